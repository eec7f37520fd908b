# The agent for Python; t/clients/Agent.pm says what it does.
# Drivers: psycopg psycopg2 psycopg_async pymysql pymysql_async mysqlclient

import asyncio
import concurrent.futures
import os
import queue
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../clients/python"))
import dlock

DRIVER, PORT = sys.argv[1], int(sys.argv[2])
# what the programs' own connections go by, when a lease's go by a proxy
DIRECT = int(os.environ["DLOCK_PORT"])
HOST, USER, DATABASE = (os.environ["DLOCK_" + name] for name in ("HOST", "USER", "DATABASE"))


ODD = bool(os.environ.get("DLOCK_ODD"))


def connect(port=PORT, autocommit=False):
    """A connection; with DLOCK_ODD, as Agent.pm has it, one whose settings make other answers of the same."""
    if DRIVER.startswith("pymysql"):
        import pymysql
        odd = dict(charset="latin1", cursorclass=pymysql.cursors.DictCursor, sql_mode="NO_BACKSLASH_ESCAPES,ANSI_QUOTES",
                   conv={number: lambda value: f"odd {value}" for number in range(256)}) if ODD else {}
        return pymysql.connect(host=HOST, port=port, user=USER, database=DATABASE, autocommit=autocommit, connect_timeout=180, **odd)
    if DRIVER == "mysqlclient":
        import MySQLdb
        import MySQLdb.cursors
        odd = dict(charset="latin1", cursorclass=MySQLdb.cursors.DictCursor, sql_mode="NO_BACKSLASH_ESCAPES,ANSI_QUOTES",
                   conv={number: lambda value: f"odd {value}" for number in range(256)}) if ODD else {}
        return MySQLdb.connect(host=HOST, port=port, user=USER, db=DATABASE, autocommit=autocommit, connect_timeout=180, **odd)
    where = dict(host=HOST, port=port, user=USER, dbname=DATABASE)
    if ODD:
        where.update(client_encoding="latin1", options="-c standard_conforming_strings=off")
    if DRIVER == "psycopg2":
        import psycopg2
        import psycopg2.extras
        connection = psycopg2.connect(**where, **(dict(cursor_factory=psycopg2.extras.RealDictCursor) if ODD else {}))
        if ODD:
            odd = psycopg2.extensions.new_type((16, 20, 25, 1016), "odd", lambda value, cursor: f"odd {value}")
            psycopg2.extensions.register_type(odd, connection)
        connection.autocommit = autocommit
        return connection
    import psycopg
    where["autocommit"] = autocommit
    if ODD:
        where["row_factory"] = psycopg.rows.dict_row
    if DRIVER == "psycopg_async":
        async def connected():
            return make_odd(await psycopg.AsyncConnection.connect(**where))

        return connected()
    return make_odd(psycopg.connect(**where))


def make_odd(connection):
    """A connection of psycopg that makes text of all types, if it is to be odd."""
    if ODD:
        import psycopg

        class Odd(psycopg.adapt.Loader):
            def load(self, data):
                return f"odd {bytes(data)}"

        for name in ("bool", "int8", "text"):
            connection.adapters.register_loader(name, Odd)
    return connection


def say(*words):
    # at once, as the threads' lines must not mix
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def outcome(error):
    """The class and the code of an error."""
    if isinstance(error, TypeError) and "unexpected keyword argument 'unknown'" in str(error):
        return "misuse -"  # which is Python's own word for it
    if not isinstance(error, dlock.Error):
        return f"{type(error).__name__} {error}"
    code = error.sqlstate or error.errno or "-"
    assert code == "-" or error.__cause__ is not None
    return f"{type(error).__name__.lower()} {code}"


def time_of(word):
    """A number if it looks so, else the text."""
    try:
        return float(word)
    except ValueError:
        return word


def options_of(words):
    given = dict(word.split("=", 1) for word in words[3:])
    names = {"names": words[0].split(",")} if given.get("list") else {"name": words[0]}
    return dict(names, connect=connect, ttl=time_of(words[1]), wait=time_of(words[2]), shared=bool(given.get("shared")),
                permits=int(given["permits"]) if "permits" in given else None, owner=given.get("owner"),
                connect_timeout=time_of(given.get("connect_timeout", "10")),
                keep_at_least=time_of(given.get("keep_at_least", "0")),
                on_lost=lambda lease: say("lost", dlock.now()),
                on_event=tell_event if given.get("events") else None,
                **(dict(unknown=1) if given.get("unknown") else {}))


def tell_event(kind, name, seconds):
    say("event", kind, name, seconds)


def check(lease):
    try:
        lease.check()
        # the other ways to ask agree
        assert lease.held and not lease.lost.is_set() and lease.remaining() > 0
        say("check ok")
    except dlock.Error as error:
        assert not lease.held and lease.lost.is_set() and lease.remaining() == 0
        say("check", outcome(error))


class Raised(Exception):
    pass


class Threads:
    """A Lease in a thread."""

    def __init__(self):
        self.orders = queue.Queue()

    def begin(self, words):
        try:
            self.lease = dlock.Lease(**options_of(words))
        except Exception as error:
            say("failed", outcome(error))
            return
        threading.Thread(target=self.block, daemon=True).start()

    def order(self, what):
        if what == "cancel":
            self.lease.cancel()
        else:
            self.orders.put(what)

    def block(self):
        held = False
        try:
            with self.lease as lease:
                say("held", ",".join(map(str, lease.tokens)), dlock.now())
                held = True
                while True:
                    order = self.orders.get()
                    if order == "check":
                        check(lease)
                    elif order.startswith("guard"):
                        self.guard(lease, order == "guard-outside")
                    elif order == "raise":
                        raise Raised
                    else:
                        break
            say("ended")
        except Raised:
            say("raised")
        except Exception as error:
            say("ended" if held else "failed", outcome(error))

    def guard(self, lease, outside):
        connection = connect(DIRECT, autocommit=outside)
        try:
            lease.guard(connection)
            connection.commit()
            say("guard ok")
        except Exception as error:
            connection.rollback()
            say("guard" if not outside else "guard-outside", outcome(error))
        connection.close()


class Asyncio:
    """An AsyncLease in an event loop."""

    def begin(self, words):
        ready = threading.Event()

        async def main():
            self.loop = asyncio.get_running_loop()
            self.orders = asyncio.Queue()
            self.task = asyncio.current_task()
            ready.set()
            try:
                lease = dlock.AsyncLease(**options_of(words))
            except Exception as error:
                say("failed", outcome(error))
            else:
                await self.block(lease)

        threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
        ready.wait()

    def order(self, what):
        if self.loop.is_closed():
            pass  # the block has failed before, and has said so
        elif what == "cancel":
            self.loop.call_soon_threadsafe(self.task.cancel)
        else:
            self.loop.call_soon_threadsafe(self.orders.put_nowait, what)

    async def block(self, lease):
        held = False
        try:
            async with lease:
                say("held", ",".join(map(str, lease.tokens)), dlock.now())
                held = True
                while True:
                    order = await self.orders.get()
                    if order == "check":
                        check(lease)
                    elif order.startswith("guard"):
                        await self.guard(lease, order == "guard-outside")
                    elif order == "raise":
                        raise Raised
                    else:
                        break
            say("ended")
        except Raised:
            say("raised")
        except asyncio.CancelledError:
            say("failed canceled -")
        except Exception as error:
            say("ended" if held else "failed", outcome(error))

    async def guard(self, lease, outside):
        async def done(result):
            return await result if asyncio.iscoroutine(result) else result

        connection = await done(connect(DIRECT, autocommit=outside))
        try:
            await lease.guard(connection)
            await done(connection.commit())
            say("guard ok")
        except Exception as error:
            await done(connection.rollback())
            say("guard" if not outside else "guard-outside", outcome(error))
        await done(connection.close())


class Many:
    """A Client and its leases; its commands are answered one after the other, ten acquires at a time."""

    client = None
    tell_lost = staticmethod(lambda lease: say("lost-one", lease.name, dlock.now()))

    def begin(self, words):
        given = dict(word.split("=", 1) for word in words[4:])
        if self.client is None:
            self.leases = {}
            self.client = self.make(connect, owner=given.get("owner"), on_event=tell_event if given.get("events") else None)
        try:
            leases = [self.client.lease(f"{words[0]}{number}", time_of(words[2]), time_of(words[3]), shared=bool(given.get("shared")),
                                        connect_timeout=time_of(given.get("connect_timeout", "180")), on_lost=self.tell_lost,
                                        keep_at_least=time_of(given.get("keep_at_least", "0")))
                      for number in range(1, int(words[1]) + 1)]
            self.acquire(leases)
        except Exception as error:
            say("many", outcome(error))
            return
        self.leases.update((lease.name, lease) for lease in leases)
        say("many", len(leases))

    def order(self, words):
        if words[0] == "many":
            self.begin(words[1:])
        elif words[0] == "many-held":
            say("many-held", sum(lease.held for lease in self.leases.values()))
        elif words[0] == "many-release":
            say("many-release", int(self.release(self.leases.pop(words[1]))))
        else:
            self.close()
            say("many-close")

    def make(self, *args, **options):
        return dlock.Client(*args, **options)

    def acquire(self, leases):
        with concurrent.futures.ThreadPoolExecutor(10) as threads:
            list(threads.map(lambda lease: lease.acquire(), leases))

    def release(self, lease):
        return lease.release()

    def close(self):
        self.client.close()


class AsyncMany(Many):
    """The same with an AsyncClient, in a loop that goes on in a thread."""

    def make(self, *args, **options):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        return dlock.AsyncClient(*args, **options)

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def acquire(self, leases):
        async def all_of_them():
            ten = asyncio.Semaphore(10)

            async def one(lease):
                async with ten:
                    await lease.acquire()

            await asyncio.gather(*map(one, leases))

        self.do(all_of_them())

    def release(self, lease):
        return self.do(lease.release())

    def close(self):
        self.do(self.client.close())


sys.stdin.reconfigure(encoding="utf-8")
agent = Asyncio() if DRIVER.endswith("_async") else Threads()
many = AsyncMany() if DRIVER.endswith("_async") else Many()
for line in sys.stdin:
    words = line.rstrip("\n").split(" ")
    if words[0] == "lease":
        agent.begin(words[1:])
    elif words[0].startswith("many"):
        many.order(words)
    elif words[0] == "exit":
        sys.exit(0)
    else:
        agent.order(words[0])
