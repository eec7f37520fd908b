# A Client that keeps many leases, and what can befall it.  Prints TAP; its arguments are the
# drivers.

import asyncio
import gc
import os
import sys
import threading
import warnings

DRIVERS = sys.argv[1:]
PORT = int(os.environ["DLOCK_PORT"])

sys.argv = ["agent.py", DRIVERS[0], str(PORT)]
sys.stdin = open(os.devnull)
sys.path.insert(0, os.path.dirname(__file__))
from tap import Network, done, error_of, ok, same, until
import agent
import dlock

PATIENCE = 180

class Connects:
    """The agent's connect(), which counts; "hangs" lets no more connections be made."""

    def __init__(self, port=PORT):
        self.count, self.port, self.hangs, self.goes_on = 0, port, False, threading.Event()

    def __call__(self):
        self.count += 1
        if self.hangs:
            self.goes_on.wait()
        return agent.connect(self.port)


def ask(sql, *arguments):
    """What a function answers for each of these arguments, on a connection of the program's own."""
    driver, agent.DRIVER = agent.DRIVER, agent.DRIVER.replace("_async", "")
    connection = agent.connect(PORT, autocommit=True)
    agent.DRIVER = driver
    cursor = connection.cursor()
    answers = []
    for argument in arguments:
        cursor.execute(sql, argument)
        ((answer,),) = cursor.fetchall()
        answers.append(answer.decode() if isinstance(answer, bytes) else answer)
    connection.close()
    return answers


def owners(leases):
    """Who has leases of these names."""
    return set(ask("SELECT dlock_owner(%s)", *[(name,) for lease in leases for name in lease.names]))


def evict(lease):
    """Take the lease away, as an operator would."""
    ask("SELECT dlock_release(%s, %s)", (lease.name, lease.owner))


def of_dlock():
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("dlock"))


def client_of(connect, **options):
    return dlock.Client(connect, connect_timeout=PATIENCE, **options)


def taken(client, prefix, count, ttl, **options):
    return [client.lease(f"{prefix}{number}", ttl, **options).acquire() for number in range(count)]


def renewed(leases):
    """Whether all are renewed once more, and held."""
    before = [lease.deadline for lease in leases]
    return until(lambda: all(lease.deadline > deadline for lease, deadline in zip(leases, before)) or not all(lease.held for lease in leases)) and all(
        lease.held for lease in leases)


def one_connection(driver):
    connect, events = Connects(), []
    with client_of(connect, on_event=lambda *event: events.append(event)) as client:
        leases = taken(client, f"many-{driver}-", 200, 60)
        two_ttls = taken(client, f"short-{driver}-", 5, 6)
        ok(connect.count <= 2 and len(of_dlock()) <= 4, f"{driver}: two connections, four threads: {connect.count}, {of_dlock()}")
        same(owners(leases + two_ttls), {client.owner}, f"{driver}: all are held")
        ok(renewed(two_ttls) and renewed(two_ttls), f"{driver}: short ones are renewed")
        for options in (dict(name=leases[3].name), dict(name=leases[3].name, shared=True), dict(names=["other", leases[3].name])):
            error = error_of(client.lease(**options).acquire)
            ok(isinstance(error, dlock.Misuse) and error.sqlstate is None and error.errno is None, f"{driver}: a name twice: {sorted(options)}")
        ok(leases[3].release() and client.lease(leases[3].name).acquire().held, f"{driver}: after a release it is free")
        ok(renewed(two_ttls), f"{driver}: which keeps none from being renewed")
        # ten at a time have a connection each
        with client_of(Connects()) as other:
            other.lease(f"wanted-{driver}", 60).acquire()
            waiters = [client.lease(names=[f"wanted-{driver}", f"waits-{driver}-{i}"], wait=60 * i) for i in range(2)]
            same(type(error_of(waiters[0].acquire)), dlock.Busy, f"{driver}: busy")
            told = []
            thread = threading.Thread(target=lambda: told.append(error_of(waiters[1].acquire)))
            thread.start()
            until(lambda: waiters[1].state == "waiting")
            client.close()
            thread.join()
            same(type(told[0]), dlock.Canceled, f"{driver}: closing ends a wait")
    same(owners(leases + two_ttls), {None}, f"{driver}: closing releases all")
    ok(until(lambda: not of_dlock()), f"{driver}: and leaves no thread: {of_dlock()}")
    ok(isinstance(error_of(client.lease("closed").acquire), dlock.Misuse), f"{driver}: a closed client acquires nothing")
    until(lambda: len([event for event in events if event[0] == "released"]) == 206)
    kinds = [kind for kind, _, _ in events]
    same([kinds.count(kind) for kind in ("acquired", "released", "lost", "late")], [206, 206, 0, 0], f"{driver}: events")


def evicted(driver):
    """One of many is evicted in the middle of a batch; callbacks that block, and that raise."""
    blocked, told, hooks = threading.Event(), [], []

    def on_lost(lease):
        told.append(lease.name)
        if lease is leases[1]:
            blocked.wait()
        raise RuntimeError("on_lost")

    def on_event(kind, name, seconds):
        hooks.append((kind, name))
        raise RuntimeError("on_event")

    reported = []
    hook, threading.excepthook = threading.excepthook, lambda args: reported.append(str(args.exc_value))
    with client_of(Connects(), on_event=on_event) as client:
        leases = taken(client, f"evicted-{driver}-", 6, 6, on_lost=on_lost)
        evict(leases[1])
        ok(until(lambda: leases[1].state == "lost"), f"{driver}: one is evicted")
        evict(leases[4])
        ok(until(lambda: told == [leases[1].name, leases[4].name]), f"{driver}: told so, though a function of the program blocks")
        ok(renewed([leases[0], leases[2], leases[3], leases[5]]), f"{driver}: the others go on")
        blocked.set()
        ok(leases[1].release() is False and client.lease(leases[1].name, 60).acquire().held, f"{driver}: its name is free")
        ok(until(lambda: reported.count("on_lost") == 2 and "on_event" in reported), f"{driver}: what functions raise is reported")
    until(lambda: not of_dlock())
    threading.excepthook = hook
    ok(("lost", leases[1].name) in hooks and ("released", leases[1].name) not in hooks[:-1], f"{driver}: lost is an event")


def silent(driver):
    """A connection that is silent, one that is cut, and a release without an answer."""
    network = Network(agent.HOST, PORT)
    connect = Connects(network.port)
    with client_of(connect) as client:
        leases = taken(client, f"silent-{driver}-", 20, 20)
        short = client.lease(f"short-{driver}", 8)
        made = connect.count
        network.silence()
        ok(renewed(leases) and connect.count > made, f"{driver}: a silent connection is replaced")
        network.cut()
        ok(renewed(leases), f"{driver}: and one that is cut")
        network.cut()
        made = connect.count
        ok(client.lease(f"kept-{driver}", 60).acquire().held, f"{driver}: the kept connection was cut, the acquire goes on")
        # a release that gets no answer within 5 s
        short.acquire()
        network.silence()
        connect.hangs = True
        ok(short.release() is False, f"{driver}: a release without an answer")
        connect.hangs = False
        connect.goes_on.set()
        same(type(error_of(client.lease(short.name, 8).acquire)), dlock.Busy, f"{driver}: leaves the name busy")
        ok(client.lease(short.name, 8, 60, connect_timeout=60).acquire().token > short.token, f"{driver}: for a while")


def kept(driver):
    """A name that is kept is kept from the client, too."""
    with client_of(Connects()) as client:
        first = client.lease(f"at-least-{driver}", 60, keep_at_least=600).acquire()
        ok(first.release(), f"{driver}: kept, and not given back")
        same(type(error_of(client.lease(first.name, 60).acquire)), dlock.Busy, f"{driver}: busy for another lease of the client")
        evict(first)
        client.lease(f"shortly-{driver}", 60, keep_at_least=0.5).acquire().release()
        ok(client.lease(f"shortly-{driver}", 60, wait=PATIENCE).acquire().held, f"{driver}: which may wait for the end of that")


def same_connection(driver):
    """A function that connects no more than once."""
    connection = Connects()()
    with client_of(lambda: connection) as client:
        first = client.lease(f"same-{driver}", 60).acquire()
        same(type(error_of(client.lease(f"other-{driver}", wait=-1).acquire)), dlock.Misuse, f"{driver}: the same connection twice is misuse")
        ok(first.held and first.release(), f"{driver}: and does not end the lease that has it")


def poisoned(driver):
    """One lease whose renewal is an error takes no other with it."""
    network = Network(agent.HOST, PORT)
    network.poison = f"poison-{driver}".encode().hex().encode()
    events = []
    with client_of(Connects(network.port), on_event=lambda *event: events.append(event)) as client:
        poison = client.lease(f"poison-{driver}", 8).acquire()
        leases = taken(client, f"well-{driver}-", 40, 8)
        ok(until(lambda: poison.state == "lost"), f"{driver}: a lease that cannot be renewed is lost")
        ok(all(lease.held for lease in leases) and renewed(leases), f"{driver}: and no other")
        error = error_of(poison.check)
        ok(isinstance(error, dlock.Lost) and (error.sqlstate or error.errno) in ("42883", 1305), f"{driver}: for the reason that the server gave")
    ok(any(kind == "late" and name == poison.name for kind, name, _ in events), f"{driver}: which was late")


def races(driver):
    """Releases and acquires race with renewals."""
    lost = []
    with client_of(Connects()) as client:
        stop = threading.Event()

        def hurry(number):
            while not stop.is_set():
                lease = client.lease(f"race-{driver}-{number}", 3, on_lost=lambda lease: lost.append(lease.name)).acquire()
                stop.wait(0.9 + number / 10)  # it is due
                if not lease.release():
                    lost.append(f"release of {lease.name}")

        threads = [threading.Thread(target=hurry, args=(number,)) for number in range(4)]
        steady = taken(client, f"steady-{driver}-", 10, 3)
        for thread in threads:
            thread.start()
        well = all(renewed(steady) for _ in range(6))
        stop.set()
        for thread in threads:
            thread.join()
    # a machine that stands still for two seconds loses leases by itself
    ok((well and not lost) or any(name.startswith("steady") for name in lost), f"{driver}: a release is no loss: {lost}")


def dropped(driver):
    """Objects that the program has dropped."""
    for make in (lambda: client.lease(f"dropped-{driver}", 6), lambda: dlock.Lease(Connects(), f"dropped-{driver}", 6, on_event=tell)):
        events = []
        tell = lambda *event: events.append(event[:2])
        client = client_of(Connects(), on_event=tell)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            owner = make().acquire().owner
            gc.collect()
        same([w.category for w in caught], [ResourceWarning], f"{driver}: a warning for a lease that was dropped")
        ok(until(lambda: ("unreferenced", f"dropped-{driver}") in events), f"{driver}: an event, too")
        ok(until(lambda: events.count(("renewed", f"dropped-{driver}")) > 1), f"{driver}: and it is still renewed")
        ask("SELECT dlock_release(%s, %s)", (f"dropped-{driver}", owner))
        ok(until(lambda: ("lost", f"dropped-{driver}") in events), f"{driver}: until it is lost")
        again = []

        def acquired():
            again.append(client.lease(f"dropped-{driver}", 60))
            return error_of(again[-1].acquire) is None

        ok(until(lambda: (again and again[-1].held) or acquired()), f"{driver}: then the name is free")
        client.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = client_of(Connects())
        client.lease(f"dropped-{driver}").acquire().release()
        del client
        gc.collect()
    same([w.category for w in caught], [ResourceWarning], f"{driver}: a warning for a client that was dropped")
    ok(until(lambda: not of_dlock()), f"{driver}: whose threads end: {of_dlock()}")


def forked(driver):
    with client_of(Connects()) as client:
        lease = client.lease(f"forked-{driver}", 60).acquire()
        child = os.fork()
        if child == 0:
            mine = client.lease(f"forked-{driver}-child", 60).acquire()
            answers = (lease.state, mine.held, mine.owner != lease.owner, lease.release(), mine.release(),
                       type(error_of(client.lease(lease.name).acquire)))
            client.close()
            os._exit(0 if answers == ("lost", True, True, False, True, dlock.Busy) else 1)
        same(os.waitpid(child, 0)[1], 0, f"{driver}: a child starts afresh")
        ok(lease.held and lease.release(), f"{driver}: and leaves its parent's leases alone")


def asynchronous(driver):
    async def main():
        connect, events, told = Connects(), [], []
        client = dlock.AsyncClient(Connects())
        # before its thread has begun
        same(error_of(lambda: client._keeper().cancel(client.lease("new")._record)), None, f"{driver}: asyncio: a cancel that comes early")
        task = asyncio.ensure_future(client.lease(f"canceled-{driver}", 60).acquire())
        await asyncio.sleep(0)
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        same(type(ended).__name__, "CancelledError", f"{driver}: asyncio: an acquire that is cancelled")
        await client.close()
        while of_dlock():
            await asyncio.sleep(0.02)
        async with dlock.AsyncClient(connect, connect_timeout=PATIENCE, on_event=lambda *event: events.append((threading.current_thread(), *event))) as client:
            leases = [client.lease(f"async-{driver}-{number}", 6, on_lost=told.append) for number in range(20)]
            for lease in leases:
                await lease.acquire()
            ok(connect.count <= 2 and until(lambda: len(of_dlock()) <= 4), f"{driver}: asyncio: no thread for each lease: {connect.count}, {of_dlock()}")
            misuse = None
            try:
                await client.lease(leases[0].name).acquire()
            except dlock.Misuse as error:
                misuse = error
            ok(misuse is not None, f"{driver}: asyncio: a name twice")
            await dlock._in_thread(lambda: evict(leases[7]))
            while leases[7].held or not told:
                await asyncio.sleep(0.02)
            ok(told == [leases[7]] and leases[7].lost.is_set(), f"{driver}: asyncio: one is lost")
            async with client.lease(f"async-{driver}", 60) as lease:
                lease.check()
            same(sum([await one.release() for one in leases]), 19, f"{driver}: asyncio: the others are released")
        while len(events) < 21 + 20 + 1:
            await asyncio.sleep(0.02)
        ok({event[0] for event in events} == {threading.current_thread()}, f"{driver}: asyncio: events are told in the loop")

    asyncio.run(main())


for number, driver in enumerate(driver for driver in DRIVERS if driver != "pymysql_async"):
    agent.DRIVER = driver
    cases = [one_connection, silent, forked, asynchronous]
    if number == 0:
        # what has nothing to do with the driver
        cases += [evicted, races, dropped, poisoned, kept, same_connection]
    for case in cases:
        if os.environ.get("ONLY_CASE", case.__name__) == case.__name__:
            case(driver)
done()
