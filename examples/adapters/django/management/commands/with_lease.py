# manage.py with_lease NAME COMMAND [ARGUMENT]... : run another management command under a lease.
# If the lease is not free it is not run, and the status is 75.

import sys
from argparse import REMAINDER

from django.core.management import BaseCommand, call_command

from ...leases import Busy, lease


class Command(BaseCommand):
    help = "Run a management command under a lease"

    def add_arguments(self, parser):
        parser.add_argument("--ttl", type=float, default=60)
        parser.add_argument("--wait", type=float, default=0)
        parser.add_argument("name")
        parser.add_argument("command")
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *args, **options):
        try:
            with lease(options["name"], options["ttl"], options["wait"]):
                call_command(options["command"], *options["arguments"])
        except Busy:
            self.stderr.write(f"\"{options['name']}\" is not free")
            sys.exit(75)
