# psycopg 3, its ordinary connections and pool.
# speaks: postgres
# needs: python3-psycopg python3-psycopg-pool

import logging

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool

from cases import *

CONNINFO = psycopg.conninfo.make_conninfo(host=HOST, port=PORT, user=USER, dbname=DATABASE)


def connect():
    return psycopg.connect(CONNINFO, autocommit=True)


@contextmanager
def transaction(connection):
    with connection.transaction():
        yield connection


def kind_of(error):
    if error.sqlstate in (None, "57P01"):
        return "gone"
    if error.sqlstate == "55L01":
        return "lost"
    if isinstance(error, errors.LockNotAvailable):
        return "blocked"
    if isinstance(error, errors.DeadlockDetected):
        return "deadlock"
    if isinstance(error, (psycopg.DataError, errors.ObjectNotInPrerequisiteState)):
        return "misuse"
    return repr(error)


driver_cases(connect, transaction, kind_of)

# what is bound in binary, and what is prepared, is the same
connection = connect()
for ttl in (30, 30.5, Decimal("31.25"), timedelta(seconds=32)):
    same(connection.execute("SELECT dlock_acquire(%b, %b, %b, %b) IS NOT NULL", ("binary", "me", ttl, ttl)).fetchone(), (True,),
         f"in binary: {ttl!r}")
tokens = {connection.execute("SELECT dlock_acquire(%s, %s, %s)", ("prepared", "me", ttl), prepare=True).fetchone()[0]
          for ttl in (30, 30000, 30.5, Decimal("31.25"), timedelta(seconds=32), "40")}
same(len(tokens), 1, "prepared, with any of them")

# session leases and the pool, which would warn of what is done here on purpose
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
with ConnectionPool(CONNINFO, min_size=1, max_size=1) as pool:
    with pool.connection() as pooled:
        token, = pooled.execute("SELECT dlock_acquire_session(%s, %s, %s)", ("pooled", "me", 30)).fetchone()
    same(connection.execute("SELECT dlock_owner(%s)", ("pooled",)).fetchone(), ("me",), "the pool does not end a session lease")
    with pool.connection() as pooled:
        pooled.close()
    new, = connection.execute("SELECT dlock_acquire(%s, %s, %s, %s)", ("pooled", "other", 30, 60)).fetchone()
    ok(new > token, "a connection that is closed before it goes back does")
    with pool.connection() as pooled:
        same(pooled.execute("SELECT dlock_is_free(%s)", ("pooled",)).fetchone(), (False,), "and the pool has another one")

# DISCARD ALL ends session leases too, but then prepares for nothing
discarded = connect()
discarded.execute("SELECT dlock_acquire_session(%s, %s, %s)", ("discarded", "me", 30), prepare=True)
discarded.execute("DISCARD ALL")
same(connection.execute("SELECT dlock_is_free(%s)", ("discarded",)).fetchone(), (True,), "DISCARD ALL ends a session lease")
error = error_of(lambda: discarded.execute("SELECT dlock_acquire_session(%s, %s, %s)", ("discarded", "me", 30), prepare=True))
ok(isinstance(error, errors.InvalidSqlStatementName), "and psycopg misses what it had prepared")
done()
