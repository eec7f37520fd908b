# psycopg 2.
# speaks: postgres
# needs: python3-psycopg2

import psycopg2
from psycopg2 import errors
from psycopg2.pool import SimpleConnectionPool

from cases import *


def connect():
    connection = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
    connection.autocommit = True
    return connection


@contextmanager
def transaction(connection):
    # since 2.9 also in autocommit mode; it commits or rolls back, and does not close
    with connection:
        yield connection


def kind_of(error):
    if isinstance(error, psycopg2.InterfaceError) or error.pgcode in (None, "57P01"):
        return "gone"
    if error.pgcode == "55L01":
        return "lost"
    if isinstance(error, errors.LockNotAvailable):
        return "blocked"
    if isinstance(error, errors.DeadlockDetected):
        return "deadlock"
    if isinstance(error, (psycopg2.DataError, errors.ObjectNotInPrerequisiteState)):
        return "misuse"
    return repr(error)


driver_cases(connect, transaction, kind_of)

# session leases and the pool
pool = SimpleConnectionPool(1, 1, host=HOST, port=PORT, user=USER, dbname=DATABASE)
watcher = connect()
connection = pool.getconn()
token = cursor_rows(connection, "SELECT dlock_acquire_session(%s, %s, %s)", "pooled", "me", 30)[0][0]
pool.putconn(connection)
same(cursor_rows(watcher, "SELECT dlock_owner(%s)", "pooled")[0][0], "me", "putconn() does not end a session lease")
pool.putconn(pool.getconn(), close=True)
ok(cursor_rows(watcher, "SELECT dlock_acquire(%s, %s, %s, %s)", "pooled", "other", 30, 60)[0][0] > token,
   "putconn(close=True) does")
done()
