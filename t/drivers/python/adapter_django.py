# examples/adapters/django, in a project of its own.
# speaks: postgres mariadb mysql
# needs: python3-django python3-psycopg2 python3-mysqldb

import io
import os
import pathlib
import sys
import tempfile
import time

import django
from django.conf import settings

from cases import *

# an application of the name "jobs" that has the files, and a command
folder = tempfile.TemporaryDirectory()
adapter = pathlib.Path(__file__).resolve().parents[3] / "examples/adapters/django"
os.system(f"cp -R {adapter} {folder.name}/jobs")
pathlib.Path(folder.name, "jobs/management/commands/work.py").write_text("""
from django.core.management import BaseCommand
from django.db import connection
class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--loud", action="store_true")
    def handle(self, *args, loud=False, **options):
        with connection.cursor() as cursor:
            cursor.execute("SELECT dlock_owner('command')")
            self.stdout.write(f"owner={cursor.fetchone()[0]} loud={loud}")
""")
sys.path.insert(0, folder.name)

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql" if IS_POSTGRES else "django.db.backends.mysql",
        "HOST": HOST, "PORT": str(PORT), "USER": USER, "NAME": DATABASE}},
    INSTALLED_APPS=["jobs"], USE_TZ=True)
django.setup()

from django.core.management import call_command
from django.db import connection, transaction
from jobs.leases import Busy, Lost, lease


def ask(call, *arguments):
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + call, arguments)
        value, = cursor.fetchone()
        # an owner, from MariaDB
        return value.decode() if isinstance(value, bytes) else value


def until(look):
    while not look():
        time.sleep(0.02)


@lease("decorated", ttl=600)
def work(answer):
    return answer, ask("dlock_owner(%s)", "decorated") is not None


same(work("done"), ("done", True), "a function runs under a lease")
same(work("again"), ("again", True), "and again")
same(ask("dlock_owner(%s)", "decorated"), None, "which it gives back")
with lease("busy", ttl=600) as held:
    ok(held.token > 0, "a lease has a token")
    same(type(error_of(lambda: lease("busy").__enter__())), Busy, "a second one is refused")
    held.check()
    with transaction.atomic():
        held.guard()
    ask("dlock_release(%s, %s)", "busy", held.owner)

    def guarded():
        with transaction.atomic():
            held.guard()

    same(type(error_of(guarded)), Lost, "a guard of one that is lost")
ask("dlock_acquire(%s, %s, %s)", "turn", "somebody", 1)
with lease("turn", ttl=600, wait=180) as held:
    same(ask("dlock_owner(%s)", "turn"), held.owner, "one that waits for its turn")

# renewed by the thread, while a transaction is open here; on a busy machine it may be lost
for seconds in (3, 9, 30, 90):
    with lease(f"long {seconds}", ttl=seconds) as held:
        with transaction.atomic():
            ask("1")
            first = held.until
            until(lambda: held.until > first + seconds / 4 or held.is_lost())
        if not held.is_lost():
            break
ok(not held.is_lost(), "a lease is renewed")
with lease("lost", ttl=6) as held:
    ask("dlock_release(%s, %s)", "lost", held.owner)
    until(held.is_lost)
    same(type(error_of(held.check)), Lost, "one that is lost says so")

out = io.StringIO()
real, sys.stdout = sys.stdout, out
call_command("with_lease", "--ttl", "600", "command", "work", "--loud")
sys.stdout = real
ok(out.getvalue().startswith("owner=") and out.getvalue().endswith(" loud=True\n") and "None" not in out.getvalue(), "a command runs under a lease")
same(ask("dlock_owner(%s)", "command"), None, "which it gives back")
ask("dlock_acquire(%s, %s, %s)", "command", "somebody", 600)
errors = io.StringIO()
try:
    call_command("with_lease", "command", "work", stderr=errors)
    status = 0
except SystemExit as error:
    status = error.code
same((status, errors.getvalue()), (75, '"command" is not free\n'), "or does not, if that is not free")
connection.close()
folder.cleanup()
done()
