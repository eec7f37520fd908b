# What the programs for Python's drivers share: TAP, the server, and the cases that every
# driver goes through.

import asyncio
import json
import os
import sys
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

SERVER = os.environ["DLOCK_SERVER"]
HOST = os.environ["DLOCK_HOST"]
PORT = int(os.environ["DLOCK_PORT"])
USER = os.environ["DLOCK_USER"]
DATABASE = os.environ["DLOCK_DATABASE"]
IS_POSTGRES = SERVER == "postgres"

GUARD = "SELECT dlock_guard(%s, %s, %s)" if IS_POSTGRES else "CALL dlock.guard(%s, %s, %s)"
# What makes a backslash in a literal what it usually is not in this session, and what it usually is:
# nothing special and an escape; on PostgreSQL, before 19, the other way round.
BACKSLASHES = {
    "unusual": "SELECT set_config('standard_conforming_strings', 'off', false) "
               "WHERE CAST(current_setting('server_version_num') AS int) < 190000",
    "usual": "SELECT set_config('standard_conforming_strings', 'on', false)",
} if IS_POSTGRES else {
    "unusual": "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "usual": "SET SESSION sql_mode = DEFAULT",
}
CONNECTION_ID = "SELECT pg_backend_pid()" if IS_POSTGRES else "SELECT connection_id()"

_count = 0
_failed = 0


def ok(passed, what):
    """One line of TAP."""
    global _count, _failed
    _count += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_count} - {what}", flush=True)
    return passed


def same(is_, wanted, what):
    """The same value, and of the same type."""
    if not ok(type(is_) is type(wanted) and is_ == wanted, what):
        print(f"#   got {is_!r}, wanted {wanted!r}", flush=True)


def done():
    print(f"1..{_count}")
    sys.exit(1 if _failed else 0)


def error_of(call):
    """The exception that a call ends with; None: it ends well."""
    try:
        call()
    except Exception as error:  # the driver's own, whatever that is
        return error
    return None


# The cases call, as most drivers do.  These two call asyncio's drivers from there.

_loop = asyncio.new_event_loop()


def run(coroutine):
    """What a coroutine answers."""
    return _loop.run_until_complete(coroutine)


@contextmanager
def run_in(context):
    """An asynchronous context manager as an ordinary one."""
    entered = run(context.__aenter__())
    try:
        yield entered
    except BaseException:
        if not run(context.__aexit__(*sys.exc_info())):
            raise
    else:
        run(context.__aexit__(None, None, None))


def cursor_rows(connection, sql, *args):
    """The rows that a statement answers, by DB-API."""
    cursor = connection.cursor()
    cursor.execute(sql, args)
    return list(cursor.fetchall()) if cursor.description else []


def driver_cases(connect, transaction, kind_of, rows=cursor_rows, close=lambda connection: connection.close(),
                 reconnects=False):
    """
    Go through the cases with a driver.

    connect() -> connection that is in no transaction of its own accord; close(connection);
    transaction(connection): a context manager, which names the connection to be used in it;
    rows(connection, sql, *args): the rows that a statement answers, %s standing for arguments;
    kind_of(error) -> what doc/drivers.md says that an error is: lost, blocked, misuse, deadlock
    or gone; reconnects: a connection that is gone is there again at the next statement.
    """
    connection = connect()

    def value(sql, *args, on=connection):
        return rows(on, "SELECT " + sql, *args)[0][0]

    # names, whatever a backslash is in a literal
    for kind, statement in BACKSLASHES.items():
        rows(connection, statement)
        for name in ("it's", "C:\\jobs\\x", "a\\", "x\\' OR '", "caf\u00e9\""):
            what = f"{name}, with the {kind} backslash"
            same(error_of(lambda: value("dlock_acquire(%s, %s, %s)", name, "names", 30)), None, what)
            # without the driver's help with its letters
            literal = name.encode().hex()
            literal = f"convert_from(decode('{literal}', 'hex'), 'UTF8')" if IS_POSTGRES else f"x'{literal}'"
            ok(not value(f"dlock_is_free({literal})"), f"{what}: that name is held")
        value("dlock_release_all(%s)", "names")

    # numbers
    for ttl, seconds in ((30, 30), (30.5, 30.5), (Decimal("31.25"), 31.25),
                         (timedelta(minutes=1, milliseconds=500), 60.5), ("40", 40)):
        what = f"ttl and wait {ttl!r}"
        ok(value("dlock_acquire(%s, %s, %s, %s)", what, "me", ttl, ttl) is not None, what)
        left = value("dlock_remaining(%s, %s)", what, "me")
        ok(isinstance(left, float) and seconds - 20 < left <= seconds, what + ": as long as that")
    token = value("dlock_acquire(%s, %s, %s, %s, %s)", "waits", "me", 600, 60.5, "request-1")
    same(token, int(token), "a token is an int")
    same(value("dlock_acquire(%s, %s, %s, %s, %s)", "waits", "me", 600, 0, "request-1"), token,
         "the same request again: the same token")

    # token, limit, null, boolean
    renewed = True if IS_POSTGRES else 1
    same(value("dlock_renew(%s, %s, %s, %s)", "waits", "me", 600, token), renewed, "renewed by its token")
    same(value("dlock_renew(%s, %s, %s, %s)", "waits", "me", 600, token + 1), type(renewed)(0), "not by another")
    ok(value("dlock_acquire_permit(%s, %s, %s, %s)", "permits", "me", 30, 2) > 0, "a limit")
    same(value("dlock_acquire(%s, %s, %s)", "waits", "other", 30), None, "None: somebody has it")
    same(value("dlock_release(%s, %s)", "waits", "me"), renewed, "released")
    same(value("dlock_release(%s, %s)", "waits", "me"), None, "None: nobody has it")
    same(value("dlock_owner(%s)", "permits"), None, "None: no exclusive owner")

    # lists
    if IS_POSTGRES:
        tokens = value("dlock_acquire_all(%s, %s, %s)", ["l1", "l2"], "me", 30)
        claimed = [name for name, token in
                   rows(connection, "SELECT name, token FROM dlock_acquire_any(%s, %s, %s, %s)", ["l1", "l3"], "me", 30, 2)]
        released = [name for name, in
                    rows(connection, "SELECT dlock_release_many(%s, %s, %s)", ["l1", "l2"], "me", tokens)]
    else:
        ok(error_of(lambda: value("dlock_acquire_all(%s, %s, %s)", ["l1", "l2"], "me", 30)), "a list cannot be bound")
        tokens = json.loads(value("dlock_acquire_all(%s, %s, %s)", json.dumps(["l1", "l2"]), "me", 30))
        claimed = [lease["name"] for lease in
                   json.loads(value("dlock_acquire_any(%s, %s, %s, %s)", json.dumps(["l1", "l3"]), "me", 30, 2))]
        released = json.loads(value("dlock_release_many(%s, %s, %s)", json.dumps(["l1", "l2"]), "me", json.dumps(tokens)))
    same([type(token) for token in tokens], [int, int], "a list goes in, tokens come out")
    same(claimed, ["l3"], "what was free of a list comes out")
    same(released, ["l1", "l2"], "names and tokens go in")

    # text
    if IS_POSTGRES:
        same(value("dlock_owner(%s)", "l3"), "me", "an owner is text")
    else:
        same(value("dlock_owner(%s)", "l3"), b"me" if SERVER == "mariadb" else "me", "an owner is bytes on MariaDB")
        same(value("CONVERT(dlock_owner(%s) USING utf8mb4)", "l3"), "me", "and text when converted")

    # guards and errors
    token = value("dlock_acquire(%s, %s, %s)", "guarded", "me", 600)

    def guarded(token, work=lambda: None):
        with transaction(connection) as inside:
            rows(inside, GUARD, "guarded", "me", token)
            work()

    second = connect()

    def ask_for_guarded():
        """Ask for what the guard keeps until its transaction ends."""
        nonlocal blocked
        if IS_POSTGRES:
            value("set_config('lock_timeout', '200ms', false)", on=second)
            blocked = error_of(lambda: value("dlock_acquire(%s, %s, %s, %s)", "guarded", "other", 30, 600, on=second))
            value("set_config('lock_timeout', '0', false)", on=second)
        else:
            blocked = error_of(lambda: value("dlock_downgrade(%s, %s)", "guarded", "me", on=second))

    blocked = None
    same(error_of(lambda: guarded(token, ask_for_guarded)), None, "a guard of the driver's own transaction")
    same(kind_of(blocked), "blocked", "an error: blocked")
    same(kind_of(error_of(lambda: guarded(token + 1))), "lost", "an error: lost")
    ok(error_of(lambda: rows(connection, GUARD, "guarded", "me", token)), "no guard outside a transaction")
    same(kind_of(error_of(lambda: value("dlock_acquire(%s, %s, %s)", "", "me", 30))), "misuse", "an error: misuse, empty")
    same(kind_of(error_of(lambda: value("dlock_acquire(%s, %s, %s)", None, "me", 30))), "misuse", "an error: misuse, null")
    same(kind_of(error_of(lambda: value("dlock_acquire(%s, %s, %s)", "x", "me", "3 apples"))), "misuse", "an error: misuse, no time")
    same(kind_of(error_of(lambda: value("dlock_acquire_permit(%s, %s, %s, %s)", "guarded", "me", 600, 2))), "misuse",
         "an error: misuse, mixed modes")

    # who waits for itself
    value("dlock_acquire_permit(%s, %s, %s, %s)", "itself", "me", 30, 1)
    same(kind_of(error_of(lambda: value("dlock_acquire_permit(%s, %s, %s, %s, %s)", "itself", "me", 30, 1, 60))), "deadlock",
         "an error: deadlock")

    # session leases
    third = connect()
    ok(value("dlock_acquire_session(%s, %s, %s)", "session", "me", 30, on=third) is not None, "a session lease")
    same(value("dlock_acquire(%s, %s, %s)", "session", "other", 30), None, "it is there while its connection is")
    close(third)
    ok(value("dlock_acquire(%s, %s, %s, %s)", "session", "other", 30, 60) is not None, "it ends with its connection")

    # gone
    number = rows(second, CONNECTION_ID)[0][0]
    rows(connection, "SELECT pg_terminate_backend(%s)" if IS_POSTGRES else "KILL CONNECTION %s", number)
    same(kind_of(error_of(lambda: value("dlock_is_free(%s)", "x", on=second))), "gone", "an error: the server is gone")
    again = error_of(lambda: value("dlock_is_free(%s)", "x", on=second))
    if reconnects:
        same(again, None, "the next statement connects anew")
    else:
        same(kind_of(again), "gone", "and stays so")


# Which kind of error it is, for whoever has the SQLSTATE or the number.
KINDS = {
    "55L01": "lost", "55P03": "blocked", "40P01": "deadlock", "57P01": "gone",
    "22023": "misuse", "22004": "misuse", "22007": "misuse", "55000": "misuse",
} if IS_POSTGRES else {
    1644: "lost", 3572: "blocked", 3058: "deadlock", 1927: "gone", 2006: "gone", 2013: "gone",
    4031: "gone",
    3037: "misuse", 1138: "misuse", 1292: "misuse", 1234: "misuse",
}
