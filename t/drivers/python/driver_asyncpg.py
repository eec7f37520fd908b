# asyncpg.
# speaks: postgres
# needs: python3-asyncpg

import re

import asyncpg

from cases import *

SERVER_ADDRESS = {"host": HOST, "port": PORT, "user": USER, "database": DATABASE}


async def init(connection):
    """For connect() to be done with, and the "init" of a pool: dlock's durations."""
    await connection.set_type_codec(
        "dlock_duration", schema="public", decoder=float,
        encoder=lambda d: str(d.total_seconds() if isinstance(d, timedelta) else d))


async def connected():
    connection = await asyncpg.connect(**SERVER_ADDRESS)
    await init(connection)
    return connection


def rows(connection, sql, *args):
    """As asyncpg counts arguments."""
    numbers = iter(range(1, len(args) + 1))
    return run(connection.fetch(re.sub("%s", lambda _: f"${next(numbers)}", sql), *args))


@contextmanager
def transaction(connection):
    with run_in(connection.transaction()):
        yield connection


def kind_of(error):
    if isinstance(error, (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        return "gone"
    return KINDS.get(error.sqlstate, repr(error))


driver_cases(lambda: run(connected()), transaction, kind_of, rows=rows, close=lambda connection: run(connection.close()))


async def cases():
    # durations, without init()
    connection = await asyncpg.connect(**SERVER_ADDRESS)
    for ttl in (30, 30.5, Decimal("31.25"), timedelta(seconds=32)):
        try:
            await connection.fetchval("SELECT dlock_acquire($1, $2, $3)", "bare", "me", ttl)
            ok(False, f"bare: {ttl!r}")
        except asyncpg.DataError as error:
            ok("expected str" in str(error), f"bare: {error}")
    for ttl, cast in (("30", ""), ("30s", ""), (31, "::float8"), (31.5, "::float8"), (Decimal("32.5"), "::float8"),
                      (timedelta(seconds=33), "::interval")):
        token = await connection.fetchval(f"SELECT dlock_acquire($1, $2, $3{cast})", "bare", "me", ttl)
        same(token, int(token), f"bare: $3{cast} is {ttl!r}")
    await connection.close()

    async with asyncpg.create_pool(**SERVER_ADDRESS, init=init, min_size=1, max_size=2) as pool:
        async with pool.acquire() as connection:
            token = await connection.fetchval("SELECT dlock_acquire($1, $2, $3)", "async", "me", timedelta(minutes=5))
            async with connection.transaction():
                await connection.execute("SELECT dlock_guard($1, $2, $3)", "async", "me", token)
            same(await connection.fetchval("SELECT 1.5::dlock_duration"), 1.5, "a duration is a float")

            # a wait that is cancelled
            pid = connection.get_server_pid()
            waiting = asyncio.ensure_future(
                connection.fetchval("SELECT dlock_acquire($1, $2, $3, $4)", "async", "other", 30, 100))
            async with pool.acquire() as watcher:
                while not await watcher.fetch("SELECT FROM dlock.waiters WHERE pid = $1", pid):
                    await asyncio.sleep(0.1)
                waiting.cancel()
                try:
                    await waiting
                    ok(False, "a wait that is cancelled")
                except asyncio.CancelledError:
                    ok(True, "a wait that is cancelled")
                # the next statement of the connection waits until the server has canceled it
                same(await connection.fetchval("SELECT dlock_release($1, $2)", "async", "me"), True, "the connection goes on")
                same(await watcher.fetch("SELECT FROM dlock.waiters WHERE pid = $1", pid), [], "and nobody waits")

            token = await connection.fetchval("SELECT dlock_acquire_session($1, $2, $3)", "pooled", "me", 30)
        async with pool.acquire() as watcher:
            same(await watcher.fetchval("SELECT dlock_owner($1)", "pooled"), "me", "the pool does not end a session lease")
            async with pool.acquire() as connection:
                await connection.fetchval("SELECT dlock_acquire_session($1, $2, $3)", "closed", "me", 30)
                await connection.close()
            ok(await watcher.fetchval("SELECT dlock_acquire($1, $2, $3, $4)", "closed", "other", 30, 60),
               "close() before it goes back does")


run(cases())
done()
