# mysqlclient, which is imported as MySQLdb.
# speaks: mariadb mysql
# needs: python3-mysqldb

import MySQLdb

from cases import *


def connect():
    return MySQLdb.connect(host=HOST, port=PORT, user=USER, database=DATABASE, autocommit=True)


@contextmanager
def transaction(connection):
    connection.begin()
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def kind_of(error):
    return KINDS.get(error.args[0], repr(error))


driver_cases(connect, transaction, kind_of)

# durations: it sends no fractions of a second
connection = connect()
half = timedelta(milliseconds=500)


def value(sql, *args):
    return cursor_rows(connection, "SELECT " + sql, *args)[0][0]


same(value("%s", timedelta(minutes=1) + half), "0 0:1:0", "a timedelta loses its fraction")
same(kind_of(error_of(lambda: value("dlock_acquire(%s, %s, %s)", "half", "me", half))), "misuse", "half a second is none")
ok(value("dlock_acquire(%s, %s, %s)", "half", "me", half.total_seconds()), "total_seconds() keeps it")

# session leases, and what resets a connection
session = connect()
cursor_rows(session, "SELECT dlock_acquire_session(%s, %s, %s)", "reset", "me", 30)
session.change_user(USER, "", DATABASE)
if SERVER == "mariadb":
    ok(value("dlock_acquire(%s, %s, %s, %s)", "reset", "other", 30, 60), "change_user() ends a session lease on MariaDB")
else:
    same(value("dlock_owner(%s)", "reset"), "me", "change_user() ends no session lease on MySQL")
    same(cursor_rows(session, "SELECT dlock_release_all(%s)", "me")[0][0] > 0, True, "dlock_release_all() does")
done()
