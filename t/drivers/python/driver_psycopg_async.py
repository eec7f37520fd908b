# psycopg 3, its asynchronous connections and pool.
# speaks: postgres
# needs: python3-psycopg python3-psycopg-pool

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool

from cases import *

CONNINFO = psycopg.conninfo.make_conninfo(host=HOST, port=PORT, user=USER, dbname=DATABASE)


def connect():
    return run(AsyncConnection.connect(CONNINFO, autocommit=True))


async def fetch(connection, sql, *args):
    cursor = await connection.execute(sql, args)
    return await cursor.fetchall()


@contextmanager
def transaction(connection):
    with run_in(connection.transaction()):
        yield connection


def kind_of(error):
    return "gone" if error.sqlstate is None else KINDS.get(error.sqlstate, repr(error))


driver_cases(connect, transaction, kind_of, rows=lambda *args: run(fetch(*args)),
             close=lambda connection: run(connection.close()))


async def waiters(watcher):
    return len(await fetch(watcher, "SELECT FROM dlock.waiters"))


async def begin_to_wait(connection, watcher):
    """A task that waits, by its connection, for what somebody has."""
    task = asyncio.ensure_future(connection.execute("SELECT dlock_acquire(%s, %s, %s, %s)", ("async", "other", 30, -1)))
    while not await waiters(watcher):
        await asyncio.sleep(0.1)
    return task


async def cases():
    async with AsyncConnectionPool(CONNINFO, min_size=1, max_size=2, kwargs={"autocommit": True}) as pool:
        async with pool.connection() as connection:
            (token,), = await fetch(connection, "SELECT dlock_acquire(%s, %s, %s)", "async", "me", timedelta(minutes=5))
            async with connection.transaction():
                await connection.execute(GUARD, ("async", "me", token))

            # a wait that the server is asked to cancel
            async with pool.connection() as watcher:
                waiting = await begin_to_wait(connection, watcher)
                connection.cancel()
                try:
                    await waiting
                    ok(False, "cancel() ends a wait")
                except errors.QueryCanceled:
                    ok(True, "cancel() ends a wait")
                same(await fetch(connection, "SELECT dlock_owner(%s)", "async"), [("me",)], "and the connection goes on")

                # a task that is cancelled
                lone = await AsyncConnection.connect(CONNINFO, autocommit=True)
                waiting = await begin_to_wait(lone, watcher)
                waiting.cancel()
                await asyncio.wait([waiting])
                ok(waiting.cancelled() and await waiters(watcher) == 1, "the end of the task does not")
                await lone.close()
                while await waiters(watcher):
                    await asyncio.sleep(0.1)
                ok(True, "the end of the connection does")

            (token,), = await fetch(connection, "SELECT dlock_acquire_session(%s, %s, %s)", "pooled", "me", 30)
        async with pool.connection() as connection:
            same(await fetch(connection, "SELECT dlock_owner(%s)", "pooled"), [("me",)], "the pool does not end a session lease")
    async with await AsyncConnection.connect(CONNINFO, autocommit=True) as connection:
        (new,), = await fetch(connection, "SELECT dlock_acquire(%s, %s, %s, %s)", "pooled", "other", 30, 60)
        ok(new > token, "its end does")


run(cases())
done()
