# PyMySQL.
# speaks: mariadb mysql
# needs: python3-pymysql

import json

import pymysql

from cases import *


def connect():
    return pymysql.connect(host=HOST, port=PORT, user=USER, database=DATABASE, autocommit=True)


def kind_of(error):
    if not isinstance(error, pymysql.Error):
        return repr(error)
    number = error.args[0]
    if isinstance(error, pymysql.InterfaceError) or number in (2006, 2013, 1927):
        return "gone"
    if number == 3058:
        return "deadlock"
    if number in (1644, 3572):
        return {1644: "lost", 3572: "kept"}[number]
    return "misuse" if number in (1138, 1221, 1292, 3037) else repr(error)


value = dbapi_cases(connect, pymysql, kind_of)

# lists
tokens = json.loads(value("dlock_acquire_all(%s, %s, %s)", json.dumps(["l1", "l2"]), "me", 30))
same([type(t) for t in tokens], [int, int], "a JSON list goes in, tokens come out")
done()
