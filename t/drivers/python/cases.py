# What the programs for Python's drivers share: TAP, the server, and the cases that any
# driver with DB-API's connections goes through.

import os
import sys
from datetime import timedelta
from decimal import Decimal

SERVER = os.environ["DLOCK_SERVER"]
HOST = os.environ["DLOCK_HOST"]
PORT = int(os.environ["DLOCK_PORT"])
USER = os.environ["DLOCK_USER"]
DATABASE = os.environ["DLOCK_DATABASE"]
IS_POSTGRES = SERVER == "postgres"

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


def dbapi_cases(connect, driver, kind_of, converts=lambda value: value):
    """
    Go through the cases with a driver of DB-API.

    connect() -> connection in autocommit mode; driver: its module; kind_of(error) -> what
    doc/drivers.md says that an error is: lost, kept, misuse, deadlock or gone;
    converts(value): what the page says to do with a value that cannot be bound.
    """
    connection = connect()

    def value(sql, *args, on=connection):
        cursor = on.cursor()
        cursor.execute("SELECT " + sql, args)
        return cursor.fetchone()[0]

    # numbers
    for ttl, seconds in ((30, 30), (30.5, 30.5), (Decimal("31.25"), 31.25),
                         (timedelta(minutes=1, milliseconds=500), 60.5), ("40", 40)):
        what = f"ttl {ttl!r}"
        ok(value("dlock_acquire(%s, %s, %s)", what, "me", converts(ttl)) is not None, what)
        left = float(value("dlock_remaining(%s, %s)", what, "me"))
        ok(seconds - 20 < left <= seconds, what + ": as long as that")
    token = value("dlock_acquire(%s, %s, %s, %s, %s)", "waits", "me", converts(30), converts(0.5), "request-1")
    same(token, int(token), "a token is an int")
    same(value("dlock_acquire(%s, %s, %s, %s, %s)", "waits", "me", converts(30), converts(0), "request-1"), token,
         "the same request again: the same token")

    # token, limit, null
    renewed = True if IS_POSTGRES else 1
    same(value("dlock_renew(%s, %s, %s, %s)", "waits", "me", converts(30), token), renewed, "renewed by its token")
    same(value("dlock_renew(%s, %s, %s, %s)", "waits", "me", converts(30), token + 1), type(renewed)(0),
         "not by another")
    ok(value("dlock_acquire_permit(%s, %s, %s, %s)", "permits", "me", converts(30), 2) > 0, "a limit")
    same(value("dlock_acquire(%s, %s, %s)", "waits", "other", converts(30)), None, "None: somebody has it")
    same(value("dlock_release(%s, %s)", "waits", "me"), renewed, "released")
    same(value("dlock_release(%s, %s)", "waits", "me"), None, "None: nobody has it")

    # guards and errors
    token = value("dlock_acquire(%s, %s, %s)", "guarded", "me", converts(30))
    guard = "SELECT dlock_guard(%s, %s, %s)" if IS_POSTGRES else "CALL dlock.guard(%s, %s, %s)"

    def guarded(token, work=lambda: None):
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        try:
            cursor.execute(guard, ("guarded", "me", token))
            work()
            cursor.execute("COMMIT")
        except Exception:
            connection.cursor().execute("ROLLBACK")
            raise

    second = connect()

    def is_kept():
        """Ask for what the guard keeps until its transaction ends."""
        if IS_POSTGRES:
            value("set_config('lock_timeout', '200ms', false)", on=second)
            return error_of(lambda: value("dlock_acquire(%s, %s, %s, %s)", "guarded", "other", converts(30), converts(10), on=second))
        return error_of(lambda: value("dlock_downgrade(%s, %s)", "guarded", "me", on=second))

    def note_kept():
        nonlocal kept
        kept = is_kept()

    kept = None
    same(error_of(lambda: guarded(token, note_kept)), None, "a guard of the driver's own transaction")
    same(kind_of(kept), "kept", "an error: kept from writing")
    same(kind_of(error_of(lambda: guarded(token + 1))), "lost", "an error: lost")
    same(kind_of(error_of(lambda: value("dlock_acquire(%s, %s, %s)", "", "me", converts(30)))), "misuse", "an error: misuse")

    # who waits for itself
    value("dlock_acquire_permit(%s, %s, %s, %s)", "itself", "me", converts(30), 1)
    same(kind_of(error_of(lambda: value("dlock_acquire_permit(%s, %s, %s, %s, %s)", "itself", "me", converts(30), 1, converts(10)))),
         "deadlock", "an error: deadlock")

    # session leases
    third = connect()
    same(value("dlock_acquire_session(%s, %s, %s)", "session", "me", converts(30), on=third) is None, False, "a session lease")
    third.close()
    ok(value("dlock_acquire(%s, %s, %s, %s)", "session", "other", converts(30), converts(60)) is not None, "it ends with its connection")

    # gone
    number = value("pg_backend_pid()" if IS_POSTGRES else "connection_id()", on=second)
    if IS_POSTGRES:
        value("pg_terminate_backend(%s)", number)
    else:
        connection.cursor().execute("KILL CONNECTION %s", (number,))
    same(kind_of(error_of(lambda: value("dlock_is_free(%s)", "x", on=second))), "gone", "an error: the server is gone")
    return value
