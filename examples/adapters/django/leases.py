# leases.py: work under a lease in Django.  Copy it into an application, beside models.py, and
# management/commands/with_lease.py, too.
#
#   @lease("report", ttl=60)
#   def make_report(): ...
#
#   with lease("report", ttl=60, wait=10) as held:
#       for row in rows:
#           held.check()                    # raises Lost
#
# Busy: it is not free.  A thread renews the lease every third of the ttl, by a connection of its
# own, also while the work is in a transaction.  What you write under the lease you can guard:
# held.guard() in transaction.atomic() raises Lost, and nobody else gets the lease before the
# commit.

import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager

from django.db import Error, connections


class Busy(Exception):
    pass


class Lost(Exception):
    pass


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    def __init__(self, name, ttl, using):
        self.name, self.ttl, self.using = name, ttl, using
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(8)}"
        self.token = None
        self.until = 0
        self.over = threading.Event()

    def ask(self, call, *arguments):
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT " + call, [self.name, self.owner, *arguments])
            return cursor.fetchone()[0]

    def acquire(self, wait):
        asked = now()
        self.token = self.ask("dlock_acquire(%s, %s, %s, %s)", self.ttl, wait)
        self.until = asked + self.ttl
        # after a wait nobody knows when it was granted
        return self.token is not None and (wait == 0 or self.renew())

    def renew(self):
        asked = now()
        if not self.ask("dlock_renew(%s, %s, %s, %s)", self.ttl, self.token):
            self.until = 0
            return False
        self.until = asked + self.ttl
        return True

    def keep(self):
        while not self.over.wait(self.ttl / 3):
            try:
                if not self.renew():
                    break
            except Error:
                connections[self.using].close()   # the next one makes a connection anew
        connections[self.using].close()

    def is_lost(self):
        return now() >= self.until

    def check(self):
        if self.is_lost():
            raise Lost(self.name)

    def guard(self):
        call = "SELECT dlock_guard" if connections[self.using].vendor == "postgresql" else "CALL dlock.guard"
        with connections[self.using].cursor() as cursor:
            try:
                cursor.execute(call + "(%s, %s, %s)", [self.name, self.owner, self.token])
            except Error as error:
                codes = [getattr(error.__cause__, name, None) for name in ("pgcode", "sqlstate")]
                if "55L01" in codes or error.args[:1] == (1644,):
                    raise Lost(self.name) from error
                raise


@contextmanager
def lease(name, ttl=60, wait=0, using="default"):
    held = Lease(name, ttl, using)
    if not held.acquire(wait):
        raise Busy(name)
    thread = threading.Thread(target=held.keep, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        held.over.set()
        thread.join()
        held.ask("dlock_release(%s, %s, %s)", held.token)
