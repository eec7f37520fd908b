# PyMySQL.
# speaks: mariadb mysql
# needs: python3-pymysql

import pymysql

from cases import *


def connect():
    return pymysql.connect(host=HOST, port=PORT, user=USER, database=DATABASE, autocommit=True, connect_timeout=180)


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
    # what a connection answers that is known to be closed has no number
    return "gone" if isinstance(error, pymysql.InterfaceError) else KINDS.get(error.args[0], repr(error))


driver_cases(connect, transaction, kind_of)
done()
