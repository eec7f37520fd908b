# Cases that only the client for Python has.  Prints TAP; its arguments are the
# drivers.

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from decimal import Decimal

DRIVERS = sys.argv[1:]
PORT = os.environ["DLOCK_PORT"]


def answer(sql, *args):
    """The only value that a statement answers."""
    driver, agent.DRIVER, odd, agent.ODD = agent.DRIVER, agent.DRIVER.replace("_async", ""), agent.ODD, False
    connection = agent.connect(autocommit=True)
    agent.DRIVER, agent.ODD = driver, odd
    cursor = connection.cursor()
    cursor.execute(sql, args)
    rows = cursor.fetchall()
    connection.close()
    return rows[0][0]


# the agent's connect(), by a driver of our choice
sys.argv = ["agent.py", DRIVERS[0], PORT]
sys.stdin = open(os.devnull)
sys.path.insert(0, os.path.dirname(__file__))
from tap import done, error_of, ok, until
import agent
import dlock

# a busy machine has more time to connect than the ten seconds that a client has by itself
PATIENCE = 180


def make(name, ttl, *args, **options):
    """A lease."""
    return dlock.Lease(connect, name, ttl, *args, connect_timeout=PATIENCE, **options)


def released(acquire):
    """
    What release() answers, and the lease, which is acquired with the number of the try.  A release
    that has no answer within half of 5 s is given up, and tried once more with another lease.
    """
    for number in itertools.count():
        lease = acquire(number)
        began = time.monotonic()
        answer = lease.release()
        if answer or time.monotonic() - began < 2.5 or number == 20:
            return answer, lease


# arguments
def of_time(value):
    try:
        return make("arguments", 30, value).wait
    except dlock.Misuse:
        return None


connect = agent.connect
for value, seconds in {
    "30s": 30, "500 ms": 0.5, "1 day 2 hours": 93_600, "1h30m": 5400, " 5 Minutes ": 300, "1e3": 1000, "-1": -1, ".5": 0.5, "250us": 250e-6,
    "1 mon": 2_592_000, "1 y": 31_104_000, Decimal("0.5"): 0.5, timedelta(minutes=1): 60, 7: 7, -0.5: -0.5,
    "": None, "soon": None, "01:30:00": None, "PT1M": None, "1s 2 sec": None, "nan": None, "inf": None, "1 2": None, "30 s ago": None, "2e9": None,
    "\u0663s": None, True: None, None: None, (): None, float("inf"): None, float("nan"): None, 10**400: None,
}.items():
    is_ = of_time(value)
    ok(is_ == seconds and (is_ is None) == (seconds is None), f"a time: {value!r:.40}")
for options in (
    dict(name=b"bytes"), dict(name=7), dict(name=""), dict(name="\ud800"), dict(name=None), dict(name=None, names="abc"), dict(name=None, names=[]),
    dict(name=None, names=["a", "a"]), dict(name=None, names=[f"{i}" for i in range(101)]), dict(name=None, names=7), dict(permits=True),
    dict(permits=0), dict(permits=1.5), dict(shared="yes"), dict(on_lost=1), dict(on_event="print"), dict(owner=""), dict(owner=b"me"), dict(ttl=0),
    dict(ttl=-1), dict(connect_timeout=0), dict(keep_at_least=-1), dict(permits=1, shared=True), dict(name="a", names=["b"]),
):
    error = error_of(lambda: dlock.Lease(connect, **{"name": "a", **options}))
    ok(type(error) is dlock.Misuse, f"misuse: {str(options)[:60]}")

# Another platform: no clock but Python's own, and sockets that are no files.
ELSEWHERE = """
import asyncio, concurrent.futures, os, secrets, subprocess, sys, time
for module, names in ((time, ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime")), (os, ("dup", "register_at_fork"))):
    for name in names:
        delattr(module, name)
platform, sys.platform = sys.platform, sys.argv.pop()
import agent, dlock
before = dlock.now()
lease = dlock.Lease(agent.connect, "elsewhere-" + sys.platform + agent.DRIVER, 60, connect_timeout=180)
is_windows, sys.platform = sys.platform == "win32", platform  # for the driver's own sake
with lease:
    assert before + 60 <= lease.deadline and lease._record.keeper._heart._socket is not None
sys.platform = "win32" if is_windows else "other"
before = dlock.now()
time.time = lambda real=time.time: real() + 100
assert (dlock.now() - before >= 100) == (not is_windows)
"""


def elsewhere(platform):
    path = os.pathsep.join(sys.path)
    return subprocess.run([sys.executable, "-c", ELSEWHERE, DRIVERS[0], PORT, platform], stdin=subprocess.DEVNULL,
                          env=dict(os.environ, PYTHONPATH=path)).returncode == 0


ok(elsewhere("win32"), "as on Windows")
ok(elsewhere("other"), "as on a system whose only clocks are Python's")


class Clocks:
    """The two clocks of a machine."""

    def __init__(self):
        self.mono, self.wall = 1000.0, 5000.0
        self.two, time.monotonic, time.time = None, lambda: self.mono, lambda: self.wall
        self.two = dlock._TwoClocks()

    def after(self, mono, wall):
        before = self.two.now()
        self.mono += mono
        self.wall += wall
        return round(self.two.now() - before, 3)


real = time.monotonic, time.time
clocks = Clocks()
told = [clocks.after(1, 1), clocks.after(1, 3601), clocks.after(1, -3600), clocks.after(1, 1.019), clocks.after(0.5, 0.6), clocks.after(0, 0)]
# of two threads that look at once, one writes an older look
stale = clocks.two._seen
first = clocks.after(1, 11)
clocks.two._seen = stale
again = clocks.two.now()
time.monotonic, time.time = real
ok(told == [1, 3601, 1, 1, 0.6, 0], "two clocks: what has elapsed is the larger of what they say")
ok(first == 11 and again == clocks.two._seen[0] + 3600 + 0.1 + 10, "two clocks: nothing is forgotten, and nothing counts twice")

for driver in DRIVERS:
    agent.DRIVER = driver
    connect = agent.connect

    # fork
    with make(f"fork-{driver}", 60) as lease:
        child = os.fork()
        if child == 0:
            answers = (lease.held, lease.state, lease.lost.is_set(), lease.lost.wait(), type(error_of(lease.check)), lease.release())
            os._exit(0 if answers == (False, "lost", True, True, dlock.Lost, False) else 1)
        ok(os.waitpid(child, 0)[1] == 0, f"{driver}: a child has lost its parent's lease")
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        ok(lease.held and make(f"fork-{driver}", 60).names == [f"fork-{driver}"], f"{driver}: and the parent has it")
        ok(isinstance(error_of(make(f"fork-{driver}", 60).acquire), dlock.Busy), f"{driver}: also when the child has exited")

    # a guard on a connection of any kind
    for odd in False, True:
        name = f"it's\\ \"caf\u00e9\" {driver}"
        agent.ODD = odd
        with make(name, 60) as lease:
            ok(answer("SELECT dlock_owner(%s)", name) in (lease.owner, lease.owner.encode()), f"{driver}: its name, {odd=}")
            program = connect()
            if driver == "psycopg_async":
                async def guarded():
                    connection = await program
                    await dlock.AsyncLease.guard(type("Held", (), {"_record": lease._record, "check": lease.check})(), connection)
                    await connection.close()
                asyncio.run(guarded())
            else:
                lease.guard(program)
                program.close()
    agent.ODD = False

    # order of calls
    lease = make(f"order-{driver}", 60)
    ok(isinstance(error_of(lease.check), dlock.Misuse) and isinstance(error_of(lambda: lease.token), dlock.Misuse), f"{driver}: not held yet")
    lease.acquire()
    ok(isinstance(error_of(lease.acquire), dlock.Misuse), f"{driver}: acquired once")
    lease.release()
    answer_is, lease = released(lambda number: make(f"order-{driver}-{number}", 60).acquire())
    ok(answer_is is True and lease.release() is False and lease.state == "released", f"{driver}: released once")

    # keep at least
    answer_is, lease = released(lambda number: make(f"kept-{driver}-{number}", 600, keep_at_least=300).acquire())
    ok(answer_is is True, f"{driver}: keep_at_least: released")
    left = (
        "SELECT remaining FROM dlock_holders(%s) WHERE owner = %s"
        if driver.startswith("psycopg")
        else "SELECT 0e0 + JSON_VALUE(dlock_holders(%s), '$[0].remaining') FROM (SELECT %s AS owner) AS o"
    )
    ok(0 < answer(left, lease.name, lease.owner) <= 300, f"{driver}: keep_at_least: but to be kept until then")

    # the owner's other holds stay
    def twice(number):
        first = make(f"twice-{driver}-{number}", 60, owner="me").acquire()
        with make(first.name, 60, owner="me") as second:
            ok(first.token == second.token, f"{driver}: two of one owner")
        return first

    ok(released(twice)[0], f"{driver}: each has a hold of its own")

    # a program that stops in connect() or in on_lost
    def hang():
        if hanging:
            stopped.wait()
        return connect()

    hanging, stopped, told = False, threading.Event(), threading.Event()
    lease = dlock.Lease(hang, f"hangs-{driver}", 2, on_lost=lambda lease: told.set(), connect_timeout=PATIENCE).acquire()
    hanging = True
    link = lease._record.keeper._heart
    if link is not None:
        link.give_up()
    ok(told.wait(180) and lease.state == "lost", f"{driver}: lost is told though connect() hangs")
    stopped.set()
    lease.release()
    ok(isinstance(error_of(dlock.Lease(lambda: 1 / 0, "zero", 2).acquire), ZeroDivisionError), f"{driver}: connect()'s own errors come out")
    ok(isinstance(error_of(dlock.Lease(lambda: 1, "one", 2).acquire), dlock.Misuse), f"{driver}: it must make a connection")
    ok(isinstance(error_of(lambda: dlock.Lease("host=db", "one", 2)), dlock.Misuse), f"{driver}: and be a function")

    # asyncio: a blocked loop, a lost lease, and a program that ends while it waits
    async def blocked(number):
        async with dlock.AsyncLease(connect, f"blocked-{driver}-{number}", 6, connect_timeout=PATIENCE) as lease:
            before = lease.deadline
            until(lambda: lease.deadline > before or not lease.held)
            renewed = lease.deadline > before
            lease.check()
            return renewed

    # on a machine that stands still it is lost by itself, and tried once more
    renewed = False
    for attempt in range(10):
        try:
            renewed = asyncio.run(blocked(attempt))
            break
        except dlock.Lost:
            pass
    ok(renewed, f"{driver}: renewed though the loop is blocked")

    async def loses():
        told = []

        async def on_lost(lease):
            told.append(lease.state)

        try:
            async with dlock.AsyncLease(connect, f"forced-{driver}", 3, cancel_on_lost=True, on_lost=on_lost,
                                        connect_timeout=PATIENCE) as lease:
                await dlock._in_thread(lambda: evict(lease))
                canceled = False
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    canceled = lease.lost.is_set()
                    raise
                finally:
                    ok(canceled, f"{driver}: cancel_on_lost: the block is cancelled")
            raised = False
        except dlock.Lost:
            raised = True
        ok(raised and told == ["lost"], f"{driver}: cancel_on_lost: and raises Lost")
        await asyncio.sleep(0)
        ok(not getattr(asyncio.current_task(), "cancelling", int)(), f"{driver}: cancel_on_lost: the task goes on")

    def evict(lease):
        """Take the lease away, as an operator would."""
        answer("SELECT dlock_release(%s, %s)", lease.name, lease.owner)

    asyncio.run(loses())

    async def ends(name):
        asyncio.ensure_future(dlock.AsyncLease(connect, name, 600, -1, connect_timeout=PATIENCE).acquire())
        await asyncio.sleep(0)
        await dlock._in_thread(lambda: until(lambda: any(t.name == "dlock connection" for t in threading.enumerate())))

    def after_loop(number):
        lease = make(f"ends-{driver}-{number}", 600).acquire()
        asyncio.run(ends(lease.name))
        return lease

    ended, lease = released(after_loop)
    last = make(lease.name, 60, 100).acquire()
    ok(ended and last.token > lease.token, f"{driver}: a loop that ends holds nothing, and does not wait")
    last.release()

ok(until(lambda: not [t for t in threading.enumerate() if t.name.startswith("dlock")]), "no thread is left")
done()
