# psqlodbc, by pyodbc.
# speaks: postgres
# needs: python3-pyodbc odbc-postgresql unixodbc

import glob
import json
import os
import subprocess
import sys
import tempfile
from datetime import time, timedelta
from decimal import Decimal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
from cases import BACKSLASHES, DATABASE, HOST, PORT, USER, done, error_of, ok, same

# the driver manager's settings, which are otherwise those of the machine
settings = tempfile.TemporaryDirectory()
with open(os.path.join(settings.name, "odbcinst.ini"), "w") as file:
    if "pooled" in sys.argv:
        file.write("[ODBC]\nPooling=Yes\n[pooled]\nCPTimeout=60\n")
        file.write(f"Driver={glob.glob('/usr/lib/*/odbc/psqlodbcw.so')[0]}\n")
os.environ["ODBCSYSINI"] = settings.name

import pyodbc  # noqa: E402, it reads the environment


def connect(driver=glob.glob("/usr/lib/*/odbc/psqlodbcw.so")[0], **options):
    options = {"BoolsAsChar": 0, **options}
    return pyodbc.connect(f"Driver={driver};Server={HOST};Port={PORT};Database={DATABASE};UID={USER};"
                          + "".join(f"{name}={value};" for name, value in options.items()), autocommit=True)


def rows(connection, sql, *args):
    return connection.cursor().execute(sql, *args).fetchall()


def value(connection, sql, *args):
    return rows(connection, "SELECT " + sql, *args)[0][0]


def kind_of(error):
    state = error.args[0] if isinstance(error, pyodbc.Error) else None
    return {"55L01": "lost", "55P03": "blocked", "40P01": "deadlock", "57P01": "gone", "08S01": "gone", "HY000": "gone",
            "22004": "misuse", "22007": "misuse", "22023": "misuse", "55000": "misuse"}.get(state, repr(error))


def cases(**options):
    connection = connect(**options)
    second = connect(**options)

    # names, whatever a backslash is in a literal
    for kind, statement in BACKSLASHES.items():
        connection.execute(statement)
        for name in ("it's", "C:\\jobs\\x", "a\\", "x\\' OR '", "caf\u00e9\""):
            what = f"{name}, with the {kind} backslash"
            same(error_of(lambda: value(connection, "dlock_acquire(?, ?, ?)", name, "names", 30)), None, what)
            # without the driver's help with its letters
            same(value(connection, f"dlock_is_free(convert_from(decode('{name.encode().hex()}', 'hex'), 'UTF8'))"), False,
                 f"{what}: that name is held")
        value(connection, "dlock_release_all(?)", "names")

    # numbers
    for ttl, seconds in ((30, 30), (30.5, 30.5), (Decimal("31.25"), 31.25),
                         (timedelta(minutes=1, milliseconds=500).total_seconds(), 60.5), ("40", 40), ("5 minutes", 300)):
        what = f"ttl {ttl!r}"
        ok(value(connection, "dlock_acquire(?, ?, ?)", what, "me", ttl) is not None, what)
        left = value(connection, "dlock_remaining(?, ?)", what, "me")
        ok(isinstance(left, float) and seconds - 20 < left <= seconds, what + ": as long as that")
    error = error_of(lambda: value(connection, "dlock_acquire(?, ?, ?)", "x", "me", timedelta(minutes=1)))
    ok("Invalid parameter type" in str(error), "a timedelta itself cannot be bound")
    token = value(connection, "dlock_acquire(?, ?, ?, ?, ?)", "waits", "me", 600, 60.5, "request-1")
    same(type(token), int, "a token is an int")
    same(value(connection, "dlock_acquire(?, ?, ?, ?, ?)", "waits", "me", 600, "60500 ms", "request-1"), token,
         "the same request again: the same token")

    # token, limit, null, booleans
    same(value(connection, "dlock_renew(?, ?, ?, ?)", "waits", "me", 600, token), True, "renewed by its token")
    same(value(connection, "dlock_renew(?, ?, ?, ?)", "waits", "me", 600, token + 1), False, "not by another")
    same(value(connection, "dlock_renew(?, ?, ?, ?)", "waits", "me", 600, None), True, "None: by whichever it has")
    ok(value(connection, "dlock_acquire_permit(?, ?, ?, ?)", "permits", "me", 30, 2) > 0, "a limit")
    same(value(connection, "dlock_acquire(?, ?, ?)", "waits", "other", 30), None, "None: somebody has it")
    same(value(connection, "dlock_release(?, ?)", "waits", "me"), True, "released")
    same(value(connection, "dlock_release(?, ?)", "waits", "me"), None, "None: nobody has it")

    # lists, as JSON
    names = ["plain", 'a "quoted", {one} \\ Grün']
    array, numbers = "ARRAY(SELECT json_array_elements_text(?))", "ARRAY(SELECT json_array_elements_text(?)::bigint)"
    tokens = json.loads(value(connection, f"to_json(dlock_acquire_all({array}, ?, ?))::text", json.dumps(names), "me", 30))
    same([type(token) for token in tokens], [int, int], "names go in as JSON, tokens come out")
    claimed = rows(connection, f"SELECT name, token FROM dlock_acquire_any({array}, ?, ?, ?)",
                   json.dumps(["plain", "free"]), "me", 30, 2)
    same([row.name for row in claimed], ["free"], "rows: the names that were free")
    released = rows(connection, f"SELECT dlock_release_many({array}, ?, {numbers})", json.dumps(names), "me", json.dumps(tokens))
    same([row[0] for row in released], names, "names and tokens go in")
    error = error_of(lambda: value(connection, "dlock_acquire_all(?, ?, ?)", names, "me", 30))
    ok(isinstance(error, pyodbc.Error), "a list itself cannot be bound")

    # guards and errors
    token = value(connection, "dlock_acquire(?, ?, ?)", "guarded", "me", 600)
    value(second, "set_config('lock_timeout', '200ms', false)")
    connection.autocommit = False
    connection.execute("SELECT dlock_guard(?, ?, ?)", "guarded", "me", token)
    blocked = error_of(lambda: value(second, "dlock_acquire(?, ?, ?, ?)", "guarded", "other", 30, 600))
    connection.commit()
    value(second, "set_config('lock_timeout', '0', false)")
    same(kind_of(blocked), "blocked", "an error: blocked, by a guard of a transaction of pyodbc's")
    lost = error_of(lambda: connection.execute("SELECT dlock_guard(?, ?, ?)", "guarded", "me", token + 1))
    same(kind_of(lost), "lost", "an error: lost")
    # a setting is part of the transaction
    after = error_of(lambda: connection.execute("SELECT set_config('app.after', 'yes', false)"))
    if options.get("Protocol") == "7.4-0":
        same(after.args[0], "25P02", "Protocol=7.4-0: the transaction has failed")
        connection.rollback()
    else:
        connection.commit()
        same(value(connection, "current_setting('app.after', true)"), "yes", "which undoes only its statement: the rest is committed")
    connection.autocommit = True
    for what, *args in (("an empty name", "", "me", 30), ("no time", "x", "me", "3 apples"), ("None", "x", None, 30)):
        same(kind_of(error_of(lambda: value(connection, "dlock_acquire(?, ?, ?)", *args))), "misuse",
             f"an error: misuse, {what}")
    same(kind_of(error_of(lambda: value(connection, "dlock_acquire_session(?, ?, ?)", "guarded", "me", 600))), "misuse",
         "an error: misuse, another kind of lease")

    # who waits for itself
    value(connection, "dlock_acquire_permit(?, ?, ?, ?)", "itself", "me", 30, 1)
    same(kind_of(error_of(lambda: value(connection, "dlock_acquire_permit(?, ?, ?, ?, ?)", "itself", "me", 30, 1, 60))),
         "deadlock", "an error: deadlock")

    # session leases
    third = connect(**options)
    ok(value(third, "dlock_acquire_session(?, ?, ?)", "session", "me", 30) > 0, "a session lease")
    third.close()
    ok(value(connection, "dlock_acquire(?, ?, ?, ?)", "session", "other", 30, 60) is not None, "it ends with its connection")

    # gone
    value(connection, "pg_terminate_backend(?)", value(second, "pg_backend_pid()"))
    for what in ("an error: the server is gone", "and again"):
        same(kind_of(error_of(lambda: value(second, "dlock_acquire(?, ?, ?)", "x", "me", 30))), "gone", what)

    for owner in ("me", "other"):
        value(connection, "dlock_release_all(?)", owner)
    return connection


if "pooled" in sys.argv:
    # the driver manager's pool, where its settings have one
    other = connect("pooled")
    connection = connect("pooled")
    number = value(connection, "pg_backend_pid()")
    value(connection, "dlock_acquire_session(?, ?, ?)", "pooled", "me", 30)
    connection.close()
    owner = value(other, "dlock_owner(?)", "pooled")
    connection = connect("pooled")
    is_same = value(connection, "pg_backend_pid()") == number
    connection.execute("DISCARD ALL")
    print(json.dumps([owner, is_same, value(other, "dlock_is_free(?)", "pooled")]))
    sys.exit()

# the server's prepared statements, texts made by the driver, and transactions as other drivers have them
for options in ({}, {"UseServerSidePrepare": 0}, {"Protocol": "7.4-0"}):
    print(f"# {options}", flush=True)
    connection = cases(**options)

# what is said by default
same(value(connect(BoolsAsChar=1), "dlock_is_free(?)", "free"), "1", "a boolean is text without BoolsAsChar=0")
same(value(connect(BoolsAsChar=1), "dlock_release(?, ?)", "x", "me"), None, "NULL is None")

# a time of day
token = value(connect(), "dlock_acquire(?, ?, ?)", "time", "me", time(0, 1, 30))
ok(token > 0, "a time is understood when the server prepares")
error = error_of(lambda: value(connect(UseServerSidePrepare=0), "dlock_acquire(?, ?, ?)", "time", "me", time(0, 1, 30)))
same(error.args[0], "42883", "and not when the driver says its type")

# the driver manager's pool
answers = json.loads(subprocess.run([sys.executable, __file__, "pooled"], stdout=subprocess.PIPE, check=True).stdout)
same(answers, ["me", True, True], "of a pooled connection, a session lease goes on after close, the next has it, DISCARD ALL ends it")
done()
