# psycopg 2.
# speaks: postgres
# needs: python3-psycopg2

import psycopg2
from psycopg2 import errors

from cases import *


def connect():
    connection = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
    connection.autocommit = True
    return connection


def kind_of(error):
    if isinstance(error, errors.DeadlockDetected):
        return "deadlock"
    if isinstance(error, errors.LockNotAvailable):
        return "kept"
    if getattr(error, "pgcode", None) == "55L01":
        return "lost"
    if isinstance(error, (errors.AdminShutdown, psycopg2.InterfaceError)):
        return "gone"
    if isinstance(error, psycopg2.OperationalError) and error.pgcode is None:
        return "gone"
    return "misuse" if isinstance(error, psycopg2.DataError) else repr(error)


value = dbapi_cases(connect, psycopg2, kind_of)

# lists
tokens = value("dlock_acquire_all(%s, %s, %s)", ["l1", "l2"], "me", 30)
ok(isinstance(tokens, list) and [type(t) for t in tokens] == [int, int], "a list goes in, tokens come out")
cursor = connect().cursor()
cursor.execute("SELECT name, token FROM dlock_acquire_any(%s, %s, %s, %s)", (["l1", "l3"], "me", 30, 2))
same([name for name, token in cursor], ["l3"], "rows: the names that were free")
cursor.execute("SELECT dlock_release_many(%s, %s, %s)", (["l1", "l2"], "me", tokens))
same([name for name, in cursor], ["l1", "l2"], "names and tokens go in")
done()
