"""
Leases of dlock that are kept alive: named locks with a deadline in PostgreSQL, MySQL and MariaDB.

    import dlock, psycopg

    with dlock.Lease(lambda: psycopg.connect("dbname=app"), "nightly-report", ttl=30) as lease:
        for part in parts:
            lease.check()               # raises dlock.Lost if it is not ours any more
            work(part, lease.token)

A lease is acquired at the beginning of the block, renewed by a thread while the block runs, and
released at its end.  A Client keeps many leases by one connection:

    with dlock.Client(lambda: psycopg.connect("dbname=app")) as client:
        with client.lease("nightly-report", ttl=30) as lease:
            ...

AsyncLease and AsyncClient are the same for asyncio.  clients/CONTRACT.md says what all clients of
dlock keep.

This is one file without dependencies, for Python 3.9 and later.  It works with psycopg (3), also
its AsyncConnection, psycopg2, PyMySQL and mysqlclient.

How it is made.  Each connection belongs to one thread, a _Link, and no other thread touches the
driver.  The others wait for its answers only for a limited time: if a driver blocks, its socket is
shut down, and its thread ends when the driver lets go of it.  A _Keeper has all leases of one owner:
those of a client, or a single one.  Its thread only waits and looks at the clock, so that it tells
in time that a lease is lost, whatever the driver does.  An acquire is done in the thread of its
caller, and a release by the keeper.  What the program has, a Lease or an AsyncLease, is a handle on
a _Record.

A child process after fork() has none of these threads: for it the lease is lost, and it neither
renews nor releases it.  A client starts afresh there, with another owner.

SPDX-License-Identifier: PostgreSQL
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import collections.abc
import concurrent.futures
import functools
import inspect
import json
import math
import numbers
import os
import random
import re
import secrets
import socket
import sys
import threading
import time
import warnings
import weakref
from datetime import timedelta
from decimal import Decimal
from typing import Any, Callable, Optional, Sequence, TypeVar, Union, cast

__all__ = [
    "Lease", "AsyncLease", "Client", "AsyncClient", "now",
    "Error", "Busy", "Lost", "Misuse", "Unavailable", "Canceled",
]
__version__ = "2.0.0"

Seconds = Union[int, float, Decimal, timedelta, str]
EventHook = Callable[[str, str, float], Any]
_SelfLease = TypeVar("_SelfLease", bound="Lease")
_SelfAsyncLease = TypeVar("_SelfAsyncLease", bound="AsyncLease")
_SelfClient = TypeVar("_SelfClient", bound="Client")
_SelfAsyncClient = TypeVar("_SelfAsyncClient", bound="AsyncClient")

def _boot_clock() -> Optional[int]:
    """The clock that counts the time that the machine is suspended; None if there is none."""
    # macOS counts it in its CLOCK_MONOTONIC, which is not Python's time.monotonic()
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    clock: Optional[int] = getattr(time, name, None)
    if clock is not None:
        try:
            time.clock_gettime(clock)
        except OSError:
            return None  # an old kernel, or a sandbox
    return clock


class _TwoClocks:
    """
    What has elapsed by the monotonic clock or by the time of day, whichever is more.

    The time of day has run ahead while the machine was suspended, or because it was set; the
    latter only shortens leases.  One look must follow another within a second.

    There is no lock, since fork() could leave it locked.  A thread that writes an older look over a
    newer one has also written what was added up by then, so the next look adds the same again.
    """

    def __init__(self) -> None:
        self._seen = (time.monotonic(), time.time(), 0.0)  # both clocks, and what to add to the first

    def now(self) -> float:
        monotonic, wall, more = self._seen
        monotonic_now, wall_now = time.monotonic(), time.time()
        ahead = (wall_now - wall) - (monotonic_now - monotonic)
        if ahead >= 0.02:  # less is a service that adjusts the time of day
            more += ahead
        self._seen = (monotonic_now, wall_now, more)
        return monotonic_now + more


_CLOCK = _boot_clock()
_TWO_CLOCKS = _TwoClocks()


def now() -> float:
    """Seconds of the clock of all deadlines: nobody sets it, and it goes on during a suspension."""
    if _CLOCK is not None:
        return time.clock_gettime(_CLOCK)
    # on Windows this clock counts a suspension
    return time.monotonic() if sys.platform == "win32" else _TWO_CLOCKS.now()


# ---------------------------------------------------------------------------------------- errors


class Error(Exception):
    """
    The class of all errors here.

    sqlstate: the SQLSTATE, where the driver shows one.  errno: the number, of MySQL and MariaDB.
    The driver's own exception is the __cause__.
    """

    def __init__(self, message: str, sqlstate: Optional[str] = None, errno: Optional[int] = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.errno = errno


class Busy(Error):
    """Not free within the wait, or a deadlock: try later."""


class Lost(Error):
    """The lease ended before it was released: stop the work, roll back, and acquire again."""


class Misuse(Error):
    """An argument, a privilege or the order of calls is wrong: change the program, the account or the server."""


class Unavailable(Error):
    """No server answered, or none that can do it now: try again."""


class Canceled(Error):
    """Lease.cancel() ended the wait."""


_FAMILIES = ("psycopg", "psycopg2", "pymysql", "MySQLdb")
_MISUSE_NUMBERS = {
    1044, 1045, 1046, 1049, 1064, 1122, 1123, 1130, 1138, 1142, 1143, 1227, 1234, 1235, 1292, 1305, 1370, 1410, 1698,
    1820, 1862, 3037, 3118, 3955, 4151,
}


def _family_of(thing: object) -> Optional[str]:
    """The driver of a connection or an exception."""
    for cls in type(thing).__mro__:
        top = cls.__module__.partition(".")[0]
        if top in _FAMILIES:
            return top
    return None


def _unwrapped(connection: Any) -> tuple[Any, str]:
    """The driver's own connection, which a tracer may have wrapped, and its driver."""
    inner, family = connection, _family_of(connection)
    while family is None:
        if not hasattr(inner, "__wrapped__"):
            raise Misuse(f"a connection must be one of {', '.join(_FAMILIES)}, not {type(connection)!r}")
        inner = inner.__wrapped__
        family = _family_of(inner)
    return inner, family


def _is_misuse(state: Optional[str], number: Optional[int], message: str) -> bool:
    if state is not None:
        return state[:2] in ("22", "28", "42") or state in (
            "0A000", "25P01", "3D000", "3F000", "54000", "55000",
        )
    # MariaDB has one number for a guard outside a transaction and for errors that may pass
    return number in _MISUSE_NUMBERS or (number == 1105 and "can only be used in transactions" in message)


def _told(error: BaseException) -> Optional[Error]:
    """Our error for a driver's exception, which becomes its cause; None: no driver raised it."""
    if isinstance(error, Error):
        return error
    family = _family_of(error)
    if family is None:
        return Unavailable(str(error)) if isinstance(error, (OSError, EOFError)) else None
    state: Optional[str] = None
    number: Optional[int] = None
    message = str(error).strip()
    if family in ("pymysql", "MySQLdb"):
        if error.args and isinstance(error.args[0], int):
            number = error.args[0]
            message = str(error.args[1]) if len(error.args) > 1 else message
    else:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    kind: type[Error] = Unavailable
    if state == "55L01" or number == 1644:
        kind = Lost
    elif state == "40P01" or number == 3058:
        kind = Busy
    elif _is_misuse(state, number, message):
        kind = Misuse
    elif state is None and number is None and type(error).__name__ in ("ProgrammingError", "NotSupportedError"):
        kind = Misuse  # the driver's own, of a connection's parameters or of an argument
    return kind(message, state, number)


def _is_gone(error: Error) -> bool:
    """
    Whether PostgreSQL has no such function, or none of the tables or schemas that one uses, or the schema is
    another's already, as a call learns that waited for so long.
    """
    return error.sqlstate in ("42883", "42P01", "3F000") or (error.sqlstate == "42501" and "dlock_private" in str(error))


def _is_answer(error: BaseException) -> bool:
    """Whether the server has sent it, and not only the driver, whose numbers begin at 2000."""
    told = _told(error)
    return told is not None and (told.sqlstate is not None or (told.errno is not None and told.errno // 1000 != 2))


def _reason(error: BaseException, before: Optional[BaseException]) -> BaseException:
    """Of the errors of two attempts, the one to tell: the later answer, or if there is none, the later one."""
    return before if before is not None and _is_answer(before) and not _is_answer(error) else error


# ------------------------------------------------------------------------------------- arguments

# the words of core/duration.c, and the seconds of each
_UNITS = {
    word: seconds
    for words, seconds in (
        ("us usec usecs microsecond microseconds", 1e-6),
        ("ms msec msecs millisecond milliseconds", 1e-3),
        ("s sec secs second seconds", 1.0),
        ("m min mins minute minutes", 60.0),
        ("h hr hrs hour hours", 3600.0),
        ("d day days", 86_400.0),
        ("w week weeks", 7 * 86_400.0),
        ("mon mons month months", 30 * 86_400.0),
        ("y yr yrs year years", 12 * 30 * 86_400.0),
    )
    for word in words.split()
}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_LONGEST_TIME = 1e9  # seconds


def _seconds(value: Seconds, what: str, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """A time, in seconds."""
    if isinstance(value, str):
        seconds = _seconds_of_text(value)
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (numbers.Real, Decimal)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except (OverflowError, ValueError):
            seconds = math.nan
    else:
        seconds = math.nan
    if not abs(seconds) <= _LONGEST_TIME:
        raise Misuse(f"{what} is a number of seconds, a timedelta, or a text like '30s' or '1 h 30 min', not {value!r}")
    if not (seconds > above and seconds >= least):
        raise Misuse(f"{what} cannot be {value!r}")
    return seconds


def _seconds_of_text(text: str) -> float:
    """What a text says as a time; not a number if it says none."""
    text = text.strip(" \t\n\v\f\r").lower()
    if re.fullmatch(_NUMBER + "(?:e[+-]?[0-9]+)?", text):
        return float(text)
    parts = rf"({_NUMBER})[ \t-\r]*([a-z]+)[ \t-\r]*"
    found = re.findall(parts, text)
    units = [_UNITS.get(unit, math.nan) for _, unit in found]
    if not re.fullmatch(f"(?:{parts})+", text) or len(set(units)) < len(units):
        return math.nan
    return sum(float(number) * unit for (number, _), unit in zip(found, units))


def _text(value: Any, what: str) -> str:
    """A name or an owner."""
    if not isinstance(value, str):
        raise Misuse(f"{what} is a text, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Misuse(f"{what} has no UTF-8: {value!r}") from None
    if not 1 <= size <= 255 or "\0" in value:
        raise Misuse(f"{what} has 1 to 255 bytes of UTF-8, and no NUL: {value!r}")
    return value


def _names(values: Any) -> list[str]:
    if isinstance(values, (str, bytes)) or not isinstance(values, collections.abc.Iterable):
        raise Misuse(f"names is a list of texts, not {values!r}")
    names = [_text(value, "a name") for value in values]
    if not 1 <= len(names) <= 100 or len(set(names)) < len(names):
        raise Misuse("names has 1 to 100 names, and none twice")
    return names


def _function(value: Any, what: str) -> Any:
    if value is not None and not callable(value):
        raise Misuse(f"{what} is a function, not {value!r}")
    return value


def _new_owner() -> str:
    host = socket.gethostname().encode("utf-8", "replace").decode()
    return f"{host[:60]}/{os.getpid()}/{secrets.token_hex(8)}"


# -------------------------------------------------------------------------------------- requests

# dlock_release_after() of many; a MySQL or MariaDB without it renews for that time
_LEAVE = "dlock_release_after_many"

# the servers' error of a function that there is not; MySQL's, where no database is selected
_ER_NO_FUNCTION = 1305, 1046


class _Request:
    """
    A call of a function of dlock: its name, and its arguments: texts, numbers, and lists of these.

    The statement and its answers are ASCII, without a quote or a backslash inside a literal: texts
    are digits of their UTF-8.  So no setting of a session or of a driver changes what they mean.
    """

    def __init__(self, function: str, *args: Any) -> None:
        self.function = function
        self.args = args

    def statements(self, family: str, calls: bool) -> list[bytes]:
        """What is to be sent.  calls: the server has no library, but procedures."""
        if calls and self.function == _LEAVE:
            names, owner, after, tokens = self.args
            each = [_Request("dlock_release_after", name, owner, after, token) for name, token in zip(names, tokens)]
            return [request.statement(family, calls) for request in each]
        return [self.statement(family, calls)]

    def without_leaving(self) -> "_Request":
        """The same for a server that has no dlock_release_after()."""
        return _Request("dlock_renew_many", *self.args) if self.function == _LEAVE else self

    def statement(self, family: str, calls: bool) -> bytes:
        is_postgres = family.startswith("psycopg")
        literal = _postgres_literal if is_postgres else _mysql_literal
        function = self.function
        args = [literal(arg) for arg in self.args]
        if calls and function.startswith("dlock_acquire"):
            args[-2] = "0"  # the wait, which is the client's
        call = f"{function}({', '.join(args)})"
        if function == _LEAVE and not is_postgres:
            names, owner, after, tokens = args
            return (
                "SELECT HEX(COALESCE(CONVERT(JSON_ARRAYAGG(l.name) USING utf8mb4), '[]')) FROM JSON_TABLE("
                f"CONVERT({names} USING utf8mb4), '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) AS l"
                f" WHERE dlock_release_after(l.name, {owner}, {after}, JSON_EXTRACT(CONVERT({tokens} USING utf8mb4), CONCAT('$[', l.place - 1, ']'))) = 1"
            ).encode("ascii")
        if self.function == "dlock_guard":
            sql = f"SELECT {call}" if is_postgres else call.replace("dlock_guard", "CALL dlock.guard", 1)
        elif calls and function != "dlock_release_many":
            sql = f"CALL {call}"
        elif self.function.endswith("_many"):
            # names
            found = f"{call} AS name"
            if function == _LEAVE:
                names, owner, after, tokens = args
                found = (
                    f"ROWS FROM (pg_catalog.unnest({names}), pg_catalog.unnest({tokens})) AS lease(name, token)"
                    f" WHERE dlock_release_after(name, {owner}, {after}, token)"
                )
            sql = (
                f"SELECT pg_catalog.encode(pg_catalog.convert_to(name, 'UTF8'), 'hex') FROM {found}"
                if is_postgres
                else f"SELECT HEX({call})"
            )
        elif is_postgres:
            # no more than a cast may be around a call that waits, or it has a snapshot meanwhile
            sql = f"SELECT {call}::pg_catalog.text"
        else:
            sql = f"SELECT HEX({call})" if self.function == "dlock_acquire_all" else f"SELECT {call}"
        return sql.encode("ascii")

    def answer(self, family: str, values: Sequence[Any], calls: bool) -> Any:
        """The answer in the last values of the rows: a list of names; a list of tokens, or None."""
        texts = [value.decode("ascii") if isinstance(value, bytes) else value for value in values]
        is_postgres = family.startswith("psycopg")
        if calls and self.function == "dlock_renew_many":
            return [self.args[0][int(place) - 1] for place in texts[0].strip("{}").split(",") if place]
        if calls and self.function == _LEAVE:
            return [name for name, text in zip(self.args[0], texts) if text == "t"]
        if self.function.endswith("_many"):
            if is_postgres:
                return [bytes.fromhex(text).decode() for text in texts]
            return json.loads(bytes.fromhex(texts[0]))
        if self.function == "dlock_guard" or texts[0] is None:
            return None
        if self.function != "dlock_acquire_all":
            return [int(texts[0])]
        return [int(token) for token in texts[0].strip("{}").split(",")] if is_postgres else json.loads(bytes.fromhex(texts[0]))


def _postgres_literal(value: Any) -> str:
    if isinstance(value, str):
        return f"pg_catalog.convert_from(pg_catalog.decode('{value.encode().hex()}', 'hex'), 'UTF8')"
    if not isinstance(value, list):
        return repr(value)
    if isinstance(value[0], str):
        # the text of an array, whose quotes and backslashes have nothing to do with those of SQL
        quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in value)
        return _postgres_literal("{" + ",".join(f'"{name}"' for name in quoted) + "}") + "::pg_catalog.text[]"
    return f"'{{{','.join(map(str, value))}}}'::pg_catalog.int8[]"


def _mysql_literal(value: Any) -> str:
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    return f"_utf8mb4 x'{value.encode().hex()}'" if isinstance(value, str) else repr(value)


def _is_async(connection: Any) -> bool:
    return inspect.iscoroutinefunction(connection.commit)


@functools.lru_cache(maxsize=None)
def _psycopg2_raw() -> Any:
    """What a procedure answers, as the server has sent it: bool, int8, int4[], int8[]."""
    return sys.modules["psycopg2.extensions"].new_type((16, 20, 1007, 1016), "DLOCK", lambda value, _: value)


def _cursor(connection: Any, family: str) -> Any:
    """A plain cursor of the driver's own, whatever kind the program has chosen for the connection."""
    if family == "psycopg":
        psycopg = sys.modules["psycopg"]
        return (psycopg.AsyncCursor if _is_async(connection) else psycopg.Cursor)(connection)
    if family == "psycopg2":
        extensions = sys.modules["psycopg2.extensions"]
        cursor = connection.cursor(cursor_factory=extensions.cursor)
        extensions.register_type(extensions.UNICODE, cursor)
        extensions.register_type(_psycopg2_raw(), cursor)
        return cursor
    return connection.cursor(sys.modules[family + ".cursors"].Cursor)


# ----------------------------------------------------------------------------------------- links


class _Job:
    """A job for a link, and its result."""

    def __init__(self, request: Optional[_Request], changed: threading.Condition) -> None:
        self.request = request  # None: only to connect, or to see whether the connection works
        self.changed = changed  # notified when it is done
        self.sent = 0.0  # just before the request was
        self.calls = False  # it was answered by a procedure
        self.done = False
        self.answer: Any = None
        self.error: Optional[BaseException] = None


# the connections that links have, by their ids: no two have the same
_taken: dict[int, tuple["_Link", Any]] = {}


class _Factory:
    """What makes connections, and what was learned of the server that they lead to."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.connect = connect
        # the server has plain/dlock.sql and no library: what takes or extends a lease is a procedure,
        # and does not wait
        self.calls = False
        # it is a MySQL or MariaDB without dlock_release_after()
        self.cannot_leave = False


class _Link:
    """
    A connection, and the thread that it belongs to.

    After an error the link is of no use any more.
    """

    def __init__(self, factory: _Factory, lock: threading.RLock) -> None:
        self._factory = factory
        self._lock = lock
        self._todo = threading.Condition(lock)
        self._jobs: collections.deque[Optional[_Job]] = collections.deque()
        self._socket: Optional[socket.socket] = None  # a second descriptor of the driver's
        self._given_up = False
        self._starter = threading.get_native_id()
        threading.Thread(target=self._run, name="dlock connection", daemon=True).start()

    def begin(self, request: Optional[_Request], changed: threading.Condition) -> _Job:
        job = _Job(request, changed)
        self._put(job)
        return job

    def close(self) -> None:
        """Close the connection once all jobs are done."""
        self._put(None)

    def give_up(self) -> None:
        """End the connection now, whatever the driver is doing."""
        with self._lock:
            self._given_up = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self._put(None)

    def _put(self, job: Optional[_Job]) -> None:
        with self._lock:
            self._jobs.append(job)
            self._todo.notify()

    def _run(self) -> None:
        loop: Optional[asyncio.AbstractEventLoop] = None
        connection: Any = None
        family = ""

        def finish(result: Any) -> Any:
            # an asynchronous driver runs in a loop of this thread
            nonlocal loop
            if not inspect.isawaitable(result):
                return result
            loop = loop or asyncio.new_event_loop()

            async def awaited() -> Any:
                return await result

            return loop.run_until_complete(awaited())

        while True:
            with self._lock:
                while not self._jobs:
                    self._todo.wait()
                job = self._jobs.popleft()
            if job is None:
                break
            try:
                is_new = connection is None
                if is_new:
                    made, family = _unwrapped(finish(self._factory.connect()))
                    # an acquire that waits would keep the heartbeat waiting
                    if _taken.setdefault(id(made), (self, made))[0] is not self:
                        raise Misuse("connect must make a new connection each time")
                    connection = made
                    self._prepare(connection, family, finish)
                if job.request is not None or not is_new:
                    job.sent = now()
                    job.calls = self._factory.calls
                    request = job.request
                    if request is not None and self._factory.cannot_leave:
                        request = request.without_leaving()
                    try:
                        job.answer = self._ask(connection, family, finish, request, job.calls)
                    except Exception as error:  # pylint: disable=broad-except
                        # "is a procedure", or is none: the other form, which the server had not begun
                        told = _told(error)
                        if request is None or told is None:
                            raise
                        if request.function == _LEAVE and told.errno in _ER_NO_FUNCTION:
                            self._factory.cannot_leave = True
                            request = request.without_leaving()
                        elif told.sqlstate == "42809":
                            self._factory.calls = job.calls = not job.calls
                        else:
                            raise
                        job.answer = self._ask(connection, family, finish, request, job.calls)
            except BaseException as error:  # pylint: disable=broad-except
                job.error = error
            with self._lock:
                job.done = True
                job.changed.notify_all()
            if job.error is not None:
                break
        try:
            if connection is not None:
                finish(connection.close())
        except Exception:  # pylint: disable=broad-except
            pass
        _taken.pop(id(connection), None)
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        if loop is not None:
            loop.close()

    def _ask(self, connection: Any, family: str, finish: Callable[[Any], Any], request: Optional[_Request], calls: bool) -> Any:
        """The answer of the server to a request; None: only whether it answers."""
        values: list[Any] = []
        for statement in [b"SELECT 1"] if request is None else request.statements(family, calls):
            cursor = _cursor(connection, family)
            finish(cursor.execute(statement))
            if family == "psycopg":
                # as the server has sent it, whatever loaders the program has registered
                result = cursor.pgresult
                values += [result.get_value(row, result.nfields - 1) for row in range(result.ntuples)]
            else:
                values += [row[-1] for row in cursor.fetchall()]
            finish(cursor.close())
        return None if request is None else request.answer(family, values, calls)

    def _prepare(self, connection: Any, family: str, finish: Callable[[Any], Any]) -> None:
        """Make a new connection fit for leases."""
        if threading.get_native_id() == self._starter and _blocks(connection, family):
            raise Misuse(
                f"threads are greenlets here, and {family} does not yield to others while it waits for the server, so"
                " that all would stand still: use PyMySQL, psycopg in Python, or psycopg2 with a wait callback"
            )
        with self._lock:
            self._socket = _socket_of(connection, family)
            if self._given_up:
                raise Unavailable("given up")
        _keep_alive(self._socket)
        if family == "psycopg":
            if _is_async(connection):
                finish(connection.set_autocommit(True))
            else:
                connection.autocommit = True
            connection.prepare_threshold = None  # poolers in transaction mode do not know its statements
        elif family == "psycopg2":
            connection.autocommit = True
        else:
            connection.autocommit(True)
            # values as the server has sent them, whatever the program makes of them
            setattr(connection, "decoders" if family == "pymysql" else "converter", {})


def _blocks(connection: Any, family: str) -> bool:
    """Whether a driver lets no other greenlet run while it waits."""
    if family == "psycopg":
        # gevent replaces what its waiting in Python uses; the one in C has no place for that.  A
        # loop of asyncio is one for each thread of the system.
        return sys.modules["psycopg.waiting"].wait.__module__ != "psycopg.waiting" or _is_async(connection)
    if family == "psycopg2":
        return sys.modules["psycopg2.extensions"].get_wait_callback() is None
    return family == "MySQLdb"


def _socket_of(connection: Any, family: str) -> Optional[socket.socket]:
    """
    A second descriptor of a connection's socket, by which it can be shut down while the driver
    uses it.  None if the driver hides it.
    """
    if family == "MySQLdb" and not hasattr(connection, "fileno"):
        return None
    # not os.dup(): on Windows a socket is no file
    borrowed = socket.socket(fileno=connection._sock.fileno() if family == "pymysql" else connection.fileno())
    try:
        return borrowed.dup()
    finally:
        borrowed.detach()


def _keep_alive(sock: Optional[socket.socket]) -> None:
    """Make sure that a waiter whose network is gone notices within a minute."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 45_000)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# ------------------------------------------------------------------------------------- heartbeat

_RELEASE_LIMIT = 5.0  # seconds for which a release is tried at most
_LONGEST_NAP = 1.0  # sleeping does not count a suspension, so look at the clock that often
_FIRST_PAUSE = 0.05  # before an attempt after one that failed; it doubles
_LONGEST_PAUSE = 1.0
_FIRST_TRY_AGAIN = 0.02  # where the server does not wait; half as much more each time, up to the longest pause
_MOST_NAMES = 1000  # of a call
_MOST_EVENTS = 10_000  # that wait for the program's function


class _Stopped(Exception):
    """The wait for an answer is over, because the acquire is cancelled."""


class _LostEvent(threading.Event):
    """Set when the lease is lost; asking compares the clock first, and the process."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        return self._is_lost() or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self.is_set() or super().wait(timeout)


class _Record:
    """
    A lease, apart from the object that the program has of it: what is renewed must not keep that
    object alive, or nobody would notice that the program has dropped it.

    What is below "keeper" is guarded by the keeper's lock.
    """

    def __init__(
        self,
        name: Optional[str],
        ttl: Seconds,
        wait: Seconds,
        *,
        names: Optional[Sequence[str]] = None,
        shared: bool = False,
        permits: Optional[int] = None,
        on_lost: Optional[Callable[[Any], Any]] = None,
        on_event: Optional[EventHook] = None,
        connect_timeout: Seconds = 10,
        keep_at_least: Seconds = 0,
    ) -> None:
        if (name is None) == (names is None):
            raise Misuse("name one lease, or several by names=")
        if shared not in (False, True):
            raise Misuse(f"shared is a boolean, not {shared!r}")
        if (names is not None) + bool(shared) + (permits is not None) > 1:
            raise Misuse("names, shared and permits exclude each other")
        if permits is not None and (not isinstance(permits, int) or isinstance(permits, bool) or permits < 1):
            raise Misuse(f"permits is a whole number above 0, not {permits!r}")
        self.names = _names(names) if names is not None else [_text(name, "a name")]
        self.name = self.names[0] if names is None else None
        self.ttl = _seconds(ttl, "a ttl", above=0)
        self.wait = _seconds(wait, "a wait")
        self.shared = bool(shared)
        self.permits = permits
        self.on_lost = _function(on_lost, "on_lost")
        self.on_event: Optional[EventHook] = _function(on_event, "on_event")
        self.connect_timeout = _seconds(connect_timeout, "a connect_timeout", above=0)
        self.keep_at_least = _seconds(keep_at_least, "a keep_at_least", least=0)
        self.margin = min(self.ttl / 10, 1.0)
        self.request_id = secrets.token_hex(16)
        self.lost = _LostEvent(lambda: self.look() == "lost")
        self.tell_lost: Callable[[], None] = lambda: None  # called by the keeper; returns at once

        self.keeper: Optional[_Keeper] = None  # from the acquire on
        self.changed = threading.Condition()  # of the acquire; with the keeper's lock then
        self.state = "new"
        self.canceled = False
        self.may_hold = False  # the server may have granted it, though no answer came
        self.tokens: list[int] = []
        self.began = 0.0  # the acquire
        self.acquired = 0.0
        self.deadline = 0.0
        self.keep_until = 0.0
        self.cause: Optional[BaseException] = None  # of the loss; None: an answer said so
        self.is_dropped = False  # the program has no object of it any more
        # a call that had only this name has failed: the pause before the next one, and its end
        self.pause = 0.0
        self.retry_at = 0.0
        # of the release
        self.was_held = False
        self.left = 0.0  # seconds that it was asked to last on, in place of a release
        self.asked_back = 0.0
        self.until = 0.0
        self.released: concurrent.futures.Future[bool] = concurrent.futures.Future()

    def __str__(self) -> str:
        return ", ".join(self.names)

    @property
    def lost_at(self) -> float:
        return self.deadline - self.margin

    @property
    def due(self) -> float:
        """When to renew it."""
        return self.retry_at if self.pause else self.deadline - self.ttl * 2 / 3

    def look(self) -> str:
        """The state, after a look at the clock, and at the process."""
        keeper = self.keeper
        if keeper is None:
            return self.state
        if keeper.pid != os.getpid():
            return "lost" if self.state in ("waiting", "held") else self.state
        with keeper.lock:
            if self.state == "held" and now() >= self.lost_at:
                keeper.lose(self, self.cause or Unavailable("it was not renewed in time"))
            return self.state

    def check(self) -> None:
        state = self.look()
        if state == "lost":
            raise self.lost_error()
        if state != "held":
            raise Misuse(f"the lease is not held: it is {state}")

    def lost_error(self) -> Lost:
        if self.keeper is not None and self.keeper.pid != os.getpid():
            return Lost(f"{self}: the lease is the parent process's")
        error = Lost(f"{self}: the lease is lost")
        told = None if self.cause is None else _told(self.cause)
        if told is not None:
            error.sqlstate, error.errno = told.sqlstate, told.errno
        error.__cause__ = self.cause
        return error

    # requests; the lease has been given to a keeper

    def acquire_request(self, wait: float) -> _Request:
        assert self.keeper is not None
        function = "dlock_acquire"
        what: Any = self.name
        more: list[Any] = []
        if self.name is None:
            function, what = "dlock_acquire_all", self.names
        elif self.permits is not None:
            function, more = "dlock_acquire_permit", [self.permits]
        elif self.shared:
            function = "dlock_acquire_shared"
        return _Request(function, what, self.keeper.owner, self.ttl, *more, wait, self.request_id)

    def guards(self) -> list[_Request]:
        assert self.keeper is not None
        return [_Request("dlock_guard", name, self.keeper.owner, token) for name, token in zip(self.names, self.tokens)]

    def guard_error(self, error: Exception) -> Exception:
        told = _told(error) or error
        if isinstance(told, Lost) and self.keeper is not None:
            with self.keeper.lock:
                self.keeper.lose(self, error)
        return told


class _Call:
    """What is under way on the heartbeat's connection: a call for these leases, or connecting for one."""

    def __init__(self, records: list[_Record], is_release: bool, job: _Job, limit: float) -> None:
        self.records = records
        self.is_release = is_release
        self.job = job
        self.began = now()
        self.limit = limit  # it is given up then


class _Teller:
    """Tells the program's functions of events, one after the other, in a thread."""

    def __init__(self, lock: threading.RLock) -> None:
        self._todo = threading.Condition(lock)
        self._events: collections.deque[tuple[EventHook, str, str, float]] = collections.deque()
        self._is_ended = False
        self.thread = threading.Thread(target=self._run, name="dlock events", daemon=True)
        self.thread.start()

    def put(self, hook: EventHook, kind: str, name: str, seconds: float) -> None:
        with self._todo:
            if len(self._events) < _MOST_EVENTS:
                self._events.append((hook, kind, name, seconds))
                self._todo.notify()

    def end(self) -> None:
        """End the thread once all is told."""
        with self._todo:
            self._is_ended = True
            self._todo.notify()

    def _run(self) -> None:
        while True:
            with self._todo:
                while not self._events:
                    if self._is_ended:
                        return
                    self._todo.wait()
                hook, *event = self._events.popleft()
            _call_program(hook, *event)


def _call_program(function: Callable[..., Any], *args: Any) -> None:
    """Call a function of the program in a thread; what it raises is reported, as threading does it."""
    try:
        function(*args)
    except BaseException:  # pylint: disable=broad-except
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class _Keeper:
    """
    Keeps all leases of one owner: their connections, and a thread, the keeper's, that renews and
    releases them by one of these, the heartbeat's.

    The keeper's thread only waits and looks at the clock.  It calls neither the driver nor a
    function of the program, so whatever these do, it tells in time that a lease is lost.  There is
    one call at a time on the heartbeat's connection, "_call".

    A lease is in "_held" as long as its state is "held", and in "_back" from the beginning of its
    release until that was answered or given up.  It has its names in "_names" from the beginning of
    its acquire to the end of its release.

    "lock" guards all of this, and the leases.  Nothing waits while it has the lock, but for the
    start of a thread.
    """

    def __init__(self, connect: Callable[[], Any], owner: Optional[str], is_for_one: bool) -> None:
        self._factory = _Factory(connect)
        self._owner_is_ours = owner is None
        self._is_for_one = is_for_one  # a lease without a client, whose end is the keeper's
        self.owner = _new_owner() if owner is None else owner
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self._wake = threading.Condition(self.lock)  # the keeper waits for it
        self._ended = threading.Condition(self.lock)  # notified when an acquire or a release has ended
        self._held: dict[_Record, None] = {}
        self._back: dict[_Record, None] = {}
        self._names: dict[str, _Record] = {}
        self._busy: dict[str, float] = {}  # names that may still be held, and until when
        self._acquiring: set[_Record] = set()
        self._thread: Optional[threading.Thread] = None
        self._teller: Optional[_Teller] = None
        self._heart: Optional[_Link] = None  # the heartbeat's connection
        self._spare: Optional[_Link] = None  # of an acquire, for the next one
        self._logged_in = False
        self._was_there = False  # dlock, as one of its functions has shown
        self._is_closing = False
        self._is_over = False  # the thread has ended
        self.is_used = False
        # set without the lock, since a finalizer may run anywhere: what the program has dropped
        self.dropped: collections.deque[_Record] = collections.deque()
        self.is_dropped = False  # its client
        self._call: Optional[_Call] = None
        self._last_was_release = False
        self._most = _MOST_NAMES  # leases of a call; halved when one failed
        self._pause = _FIRST_PAUSE
        self._pause_until = 0.0
        self._lost: list[_Record] = []  # to be told

    # the acquire, in the thread of its caller

    def acquire(self, record: _Record) -> None:
        with self.lock:
            if record.state != "new":
                raise Misuse(f"a lease is acquired once: it is {record.state}")
            record.keeper = self
            record.changed = threading.Condition(self.lock)
            record.state = "waiting"
            record.began = now()
            self._acquiring.add(record)
            self.is_used = True
            _keepers[self] = None
        try:
            with self.lock:
                if record.on_event is not None and self._teller is None:
                    self._teller = _Teller(self.lock)
                if self._is_closing:
                    raise Misuse("the client is closed")
                for name in record.names:
                    if name in self._names:
                        raise Misuse(f'the client has a lease "{name}" already, and would be the same holder')
                self._names.update(dict.fromkeys(record.names, record))
                if not self._is_for_one:
                    self._start()
            self._acquire(record)
        except BaseException:
            with self.lock:
                record.state = "released"
                self._forget(record, record.ttl if record.may_hold else 0.0)
                self._event(record, "refused", now() - record.began)
            raise
        finally:
            with self.lock:
                self._acquiring.discard(record)
                self._ended.notify_all()
                if record.state == "released":
                    self._end_if_over()

    def _acquire(self, record: _Record) -> None:
        start = record.began
        # until a server was reached; then without limit, or until the wait is over and the server has
        # had its time to answer
        last: Optional[float] = start + record.connect_timeout
        pause = _FIRST_PAUSE
        again = _FIRST_TRY_AGAIN
        link: Optional[_Link] = None
        is_kept = False
        reason: Optional[BaseException] = None
        try:
            self._await_names(record)
            while True:
                try:
                    if link is None:
                        link, is_kept = self._link_for_acquire()
                        limit = now() + record.connect_timeout / 3
                        self._ask(link, None, limit if last is None else min(limit, last), record)
                        self._logged_in = True
                        last = None if record.wait < 0 else start + record.wait + record.connect_timeout
                    left = record.wait if record.wait < 0 else max(0.0, start + record.wait - now())
                    may_have_held, record.may_hold = record.may_hold, True
                    try:
                        job = self._ask(link, record.acquire_request(left), last, record)
                    except (Busy, Misuse) as error:
                        # these errors change nothing
                        record.may_hold = may_have_held
                        if self._was_there and _is_gone(error):
                            # somebody replaces plain/dlock.sql by the extension
                            raise Unavailable(str(error), error.sqlstate, error.errno) from error
                        raise
                    except Unavailable as error:
                        self._was_there |= (error.sqlstate or "").startswith("55")
                        raise
                    self._was_there = True
                    if job.answer is None:
                        record.may_hold = False
                        left = math.inf if record.wait < 0 else start + record.wait - now()
                        if job.calls and left > 0:
                            self._sleep(record, min(left, again * random.uniform(0.5, 1.5)), None)
                            again = min(1.5 * again, _LONGEST_PAUSE)
                            continue
                        with self.lock:
                            self._keep_spare(link)
                        raise Busy(f"{record} not free within {record.wait:g} s")
                    tokens = job.answer
                    if now() - job.sent > record.ttl / 3:
                        # when was it granted?
                        renew = _Request("dlock_renew_many", record.names, self.owner, record.ttl, tokens)
                        job = self._ask(link, renew, now() + record.ttl / 3, record)
                        if set(job.answer) != set(record.names):
                            continue  # it is over: go on waiting
                    if self._begin(record, link, tokens, job.sent + record.ttl):
                        return
                    # this took too long: the same request again moves the deadline
                except Unavailable as error:
                    link = None
                    if is_kept:
                        is_kept = False
                        continue  # closed while nobody used it: a new one, at once
                    reason = _reason(error, reason)
                    if last is not None and now() + pause >= last:
                        raise reason
                    self._sleep(record, pause, last)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        except (Busy, Misuse):
            raise
        except BaseException as error:
            if link is not None:
                link.give_up()
            if record.may_hold:
                self._give_back(record, 1.0 if isinstance(error, Unavailable) else _RELEASE_LIMIT)
            if isinstance(error, _Stopped):
                raise Canceled("the acquire was canceled") from None
            raise

    def _await_names(self, record: _Record) -> None:
        """Wait for names that this owner may still hold, since nobody knows how their last lease ended."""
        with self.lock:
            until = max(self._busy.get(name, 0.0) for name in record.names)
        if until <= now():
            return
        if 0 <= record.wait < until - record.began:
            raise Busy(f"{record} may still be held by a lease of this client that is over")
        self._sleep(record, until - now(), None)

    def _link_for_acquire(self) -> tuple[_Link, bool]:
        """A connection that no other acquire uses, and whether it has been used before."""
        with self.lock:
            link, self._spare = self._spare, None
        return (link, True) if link is not None else (_Link(self._factory, self.lock), False)

    def _keep_spare(self, link: _Link) -> None:
        """Keep an acquire's connection for the next one, or close it; the caller has the lock."""
        if self._is_for_one or self._is_closing or self._spare is not None:
            link.close()
        else:
            self._spare = link

    def _begin(self, record: _Record, link: _Link, tokens: list[int], deadline: float) -> bool:
        """Say that the lease is held, unless it is too late for that."""
        with self.lock:
            if record.canceled:
                raise _Stopped
            at = now()
            if at >= deadline - record.margin:
                return False
            self._start()  # which may fail, so it is first
            record.state = "held"
            record.tokens, record.deadline, record.acquired = tokens, deadline, at
            record.keep_until = at + record.keep_at_least
            self._held[record] = None
            if self._heart is None:
                self._heart = link
            else:
                self._keep_spare(link)
            self._event(record, "acquired", at - record.began)
            self._wake.notify()
        return True

    def _give_back(self, record: _Record, limit: float) -> None:
        """Give back what an acquire that was given up may have been granted."""
        until = now() + limit
        try:
            link = _Link(self._factory, self.lock)
            if self._owner_is_ours and self._is_for_one:
                self._ask(link, _Request("dlock_release_many", record.names, self.owner), until, None)
            else:
                # the owner may have other holds: repeating the request id finds this one's, or
                # takes one more
                tokens = self._ask(link, record.acquire_request(0), until, None).answer
                if tokens is not None:
                    self._ask(link, _Request("dlock_release_many", record.names, self.owner, tokens), until, None)
            link.close()
            record.may_hold = False
        except Exception:  # pylint: disable=broad-except
            pass  # it ends at its deadline

    def _ask(self, link: _Link, request: Optional[_Request], until: Optional[float], record: Optional[_Record]) -> _Job:
        """
        Wait for a job.  If it is not done in time, gives the link up and raises Unavailable; if it
        failed, raises its error; raises _Stopped if the acquire of this lease is cancelled.
        """
        changed = threading.Condition(self.lock) if record is None else record.changed
        job = link.begin(request, changed)
        try:
            with self.lock:
                while not job.done:
                    if record is not None and record.canceled:
                        raise _Stopped
                    left = _LONGEST_NAP if until is None else until - now()
                    if left <= 0:
                        raise Unavailable("the server did not answer in time")
                    changed.wait(min(left, _LONGEST_NAP))
        except BaseException:
            link.give_up()
            raise
        if job.error is None:
            return job
        told = _told(job.error)
        if isinstance(told, Misuse) and job.sent == 0 and self._logged_in and (told.sqlstate or told.errno):
            # an account that could log in before: its password, or what checks it, may be changing
            told = Unavailable(str(told), told.sqlstate, told.errno)
        if told is None or told is job.error:
            raise job.error
        raise told from job.error

    def _sleep(self, record: _Record, seconds: float, until: Optional[float]) -> None:
        """Wait before another attempt of an acquire, until then at most."""
        end = now() + seconds if until is None else min(now() + seconds, until)
        with self.lock:
            while not record.canceled:
                left = end - now()
                if left <= 0:
                    return
                record.changed.wait(min(left, _LONGEST_NAP))
        raise _Stopped

    def cancel(self, record: _Record) -> None:
        with self.lock:
            record.canceled = True
            if record.keeper is self:  # else its acquire has not begun yet
                record.changed.notify_all()

    # the release; the keeper's thread does it

    def begin_release(self, record: _Record) -> concurrent.futures.Future[bool]:
        """Release a lease; the answer will be whether the server has confirmed it."""
        with self.lock:
            was = record.look()
            if was == "waiting":
                self.cancel(record)
            if was not in ("held", "lost"):
                no: concurrent.futures.Future[bool] = concurrent.futures.Future()
                no.set_result(False)
                return no
            record.state = "released"
            record.was_held = was == "held"
            record.asked_back = at = now()
            # a lost lease may still be held, but is not worth a new connection
            record.until = at + (min(_RELEASE_LIMIT, record.deadline - at) if record.was_held else 1.0)
            record.pause = record.retry_at = 0.0
            self._held.pop(record, None)
            self._back[record] = None
            if self._is_for_one:
                self._is_closing = True
            if self._is_over or (not record.was_held and self._heart is None):
                self._end_release(record, False, is_answered=record.cause is None)
            self._wake.notify()
            return record.released

    def _end_release(self, record: _Record, is_released: bool, *, is_answered: bool) -> None:
        """The caller has the lock."""
        del self._back[record]
        if not is_answered:
            self._forget(record, max(record.ttl, record.left))
        else:
            self._forget(record, record.left if is_released else 0.0)
        if record.was_held:
            self._event(record, "released", now() - record.acquired)
        record.released.set_result(is_released)
        self._ended.notify_all()

    def _forget(self, record: _Record, seconds: float) -> None:
        """Free the names of a lease, which may be held for so long; the caller has the lock."""
        at = now()
        for name in [name for name, until in self._busy.items() if until <= at]:
            del self._busy[name]
        for name in record.names:
            if self._names.get(name) is record:
                del self._names[name]
                if seconds > 0:
                    self._busy[name] = at + seconds

    # the end

    def begin_close(self) -> None:
        """End all acquires, release all leases, and then end the connections and the threads."""
        with self.lock:
            self._is_closing = True
            for record in self._acquiring:
                self.cancel(record)
            for record in list(self._held):
                self.begin_release(record)
            self._end_if_over()

    def wait_closed(self, until: Optional[float]) -> None:
        """Wait until all is released, and all events are told, until then at most."""
        with self.lock:
            while (self._acquiring or self._back) and (until is None or now() < until):
                self._ended.wait(_LONGEST_NAP if until is None else max(0.0, min(until - now(), _LONGEST_NAP)))
        if until is not None and self._teller is not None:
            self._teller.thread.join(max(0.0, until - now()))

    def _end_if_over(self) -> None:
        """The caller has the lock."""
        if self._is_for_one and not self._held and not self._back:
            self._is_closing = True
        if self._thread is not None:
            self._wake.notify()
        elif self._is_closing and not self._acquiring:
            self._end()

    def _end(self) -> None:
        """End the connections and the threads that are left; the caller has the lock."""
        for link in self._heart, self._spare:
            if link is not None:
                link.close()
        self._heart = self._spare = None
        if self._teller is not None:
            self._teller.end()
        _keepers.pop(self, None)

    # what is told

    def _event(self, record: _Record, kind: str, seconds: float) -> None:
        """The caller has the lock."""
        if record.on_event is not None and self._teller is not None:
            for name in record.names:
                self._teller.put(record.on_event, kind, name, seconds)

    def lose(self, record: _Record, cause: Optional[BaseException]) -> None:
        """The lease is lost; the caller has the lock."""
        if record.state != "held":
            return
        record.state = "lost"
        record.cause = cause
        record.lost.set()
        del self._held[record]
        self._lost.append(record)
        if record.is_dropped:
            self.dropped.append(record)
        self._event(record, "lost", now() - record.acquired)
        self._wake.notify()

    # the heartbeat: the keeper's thread

    def _start(self) -> None:
        """Start the keeper's thread, if there is none; the caller has the lock."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="dlock lease", daemon=True)
            thread.start()
            self._thread = thread
            _warn_of_uwsgi()

    def _run(self) -> None:
        try:
            is_over = False
            while not is_over:
                with self.lock:
                    is_over = self._beat()
                    lost, self._lost = self._lost, []
                for record in lost:
                    record.tell_lost()
        finally:
            with self.lock:
                # there is nothing left, or a mistake here, which must not pass for a lease that is held
                self._is_over = self._is_closing = True
                for record in self._acquiring:
                    self.cancel(record)
                for record in list(self._held):
                    self.lose(record, Unavailable("the heartbeat has failed"))
                for record in list(self._back):
                    self._end_release(record, False, is_answered=False)
                self._end()
            for record in self._lost:
                record.tell_lost()

    def _beat(self) -> bool:
        """Do what is due, and wait for more; returns whether all is over.  The caller has the lock."""
        if self._call is not None:
            self._look_at_call(self._call)
        at = now()
        for record in [record for record in self._held if at >= record.lost_at]:
            record.look()
        for record in [record for record in self._back if at >= record.until]:
            self._end_release(record, False, is_answered=False)
        while self.dropped:
            record = self.dropped.popleft()
            if record.state == "held":
                self._event(record, "unreferenced", at - record.acquired)
            elif record.state == "lost":
                self.begin_release(record)
        if self.is_dropped and not self._held and not self._acquiring:
            self._is_closing = True
        if self._lost:
            return False
        next_at = self._begin_call(at) if self._call is None else self._limit(self._call)
        if self._is_closing and not (self._held or self._back or self._acquiring):
            return True
        if self._held:
            next_at = min(next_at, min(record.lost_at for record in self._held))
        self._wake.wait(max(0.0, min(next_at - now(), _LONGEST_NAP if self._held or self._back else 10.0)))
        return False

    def _begin_call(self, at: float) -> float:
        """Begin the next call if one is due, or connect for it; returns when to look again."""
        if not self._held and not self._back:
            return math.inf
        if at < self._pause_until:
            return self._pause_until
        if self._last_was_release:
            call = self._renewal(at) or self._release(at)
        else:
            call = self._release(at) or self._renewal(at)
        if call is None:
            return min(record.due for record in (*self._held, *self._back) if record.state == "held" or record.pause)
        records, is_release, request = call
        limit = at + self._shortest() / 4
        if is_release:
            limit = min(limit, at + _RELEASE_LIMIT / 2)
        else:
            limit = min(limit, min(record.lost_at for record in records))
        try:
            if self._heart is None:
                self._heart = _Link(self._factory, self.lock)
                job = self._heart.begin(None, self._wake)
            else:
                job = self._heart.begin(request, self._wake)
                self._last_was_release = is_release
        except RuntimeError as error:  # there can be no more threads
            job = _Job(None, self._wake)
            job.done, job.error = True, Unavailable(str(error))
        self._call = _Call(records, is_release, job, limit)
        return at if job.done else self._limit(self._call)

    def _shortest(self) -> float:
        return min(record.ttl for record in (self._held or self._back))

    def _limit(self, call: _Call) -> float:
        """When a call is given up: sooner if a release waits for its end."""
        if call.is_release or not self._back:
            return call.limit
        first = next(iter(self._back))
        return min(call.limit, max(call.began, first.asked_back) + _RELEASE_LIMIT / 2)

    def _renewal(self, at: float) -> Optional[tuple[list[_Record], bool, _Request]]:
        """The leases to renew now, those that end first in front."""
        due = [record for record in self._held if record.due <= at]
        if not due:
            return None
        # those that have failed alone go alone, after all others
        first = min(due, key=lambda record: (record.pause > 0, record.deadline))
        records = [first]
        if not first.pause:
            soon = at + first.ttl / 6
            like_it = [r for r in self._held if r.ttl == first.ttl and not r.pause and r.due <= soon]
            records = self._as_many(sorted(like_it, key=lambda record: record.deadline))
        return records, False, self._request("dlock_renew_many", records, first.ttl)

    def _release(self, at: float) -> Optional[tuple[list[_Record], bool, _Request]]:
        """The leases to release now."""
        due = [record for record in self._back if record.retry_at <= at]
        if not due:
            return None
        first = due[0]
        kept = first.keep_until - at if first.was_held else 0.0
        if kept > 0:
            # others that use an owner that the program named may believe for a ttl that they hold it
            first.left = kept if self._owner_is_ours else max(kept, first.ttl)
            return [first], True, self._request(_LEAVE, [first], first.left)
        records = [first]
        if not first.pause:
            like_it = [r for r in due if not r.pause and not (r.was_held and r.keep_until > at)]
            records = self._as_many(like_it)
        for record in records:
            record.left = 0.0
        return records, True, self._request("dlock_release_many", records)

    def _as_many(self, records: list[_Record]) -> list[_Record]:
        """As many of them as a call may have."""
        names = 0
        for count, record in enumerate(records[: self._most]):
            names += len(record.names)
            if names > _MOST_NAMES:
                return records[:count]
        return records[: self._most]

    def _request(self, function: str, records: list[_Record], *ttl: float) -> _Request:
        names = [name for record in records for name in record.names]
        return _Request(function, names, self.owner, *ttl, [token for record in records for token in record.tokens])

    def _look_at_call(self, call: _Call) -> None:
        """End the call under way, if it is answered or its time is over."""
        job = call.job
        if not job.done:
            if now() < self._limit(call):
                return
            job.error = Unavailable("the server did not answer in time")
        self._call = None
        if job.error is not None:
            self._failed(call, job.error)
            return
        if job.request is None:
            self._logged_in = True
            return  # connected
        self._pause = _FIRST_PAUSE
        self._most = min(2 * self._most, _MOST_NAMES)
        at = now()
        done = set(job.answer)
        for record in call.records:
            is_done = done.issuperset(record.names)
            if record in self._back and call.is_release:
                self._end_release(record, is_done, is_answered=True)
            elif record in self._held and is_done:
                record.deadline = job.sent + record.ttl
                record.cause, record.pause = None, 0.0
                self._event(record, "renewed", at - job.sent)
            elif record in self._held:
                self.lose(record, None)

    def _failed(self, call: _Call, error: BaseException) -> None:
        """A call has failed, or connecting for one; the next will be by another connection."""
        at = now()
        if self._heart is not None:
            self._heart.give_up()
            self._heart = None
        was_sent = call.job.sent > 0
        is_answered = was_sent and _is_answer(error)
        for record in call.records:
            if record in self._held:
                record.cause = _reason(error, record.cause)
                self._event(record, "late", max(0.0, record.lost_at - at))
            elif record in self._back and call.is_release:
                is_in_doubt = was_sent and not is_answered and not record.left
                if not record.was_held or (is_in_doubt and not self._owner_is_ours):
                    # it may have been done, and a second one would take another hold of that owner
                    self._end_release(record, False, is_answered=False)
        if was_sent and len(call.records) > 1:
            self._most = len(call.records) // 2
            if is_answered:
                return
        elif was_sent:
            (record,) = call.records
            record.pause = min(2 * record.pause, _LONGEST_PAUSE) or _FIRST_PAUSE
            record.retry_at = at + record.pause
        if self._held or self._back:
            # a lease that cannot be renewed must not keep others from it
            self._pause_until = at + min(self._pause, max(_FIRST_PAUSE, self._shortest() / 6))
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _warn_of_uwsgi() -> None:
    """Python's threads stand still between the requests of a uWSGI that was not told of them."""
    uwsgi = sys.modules.get("uwsgi")
    options = getattr(uwsgi, "opt", None)
    if isinstance(options, dict):
        names = {name.decode() if isinstance(name, bytes) else name for name in options}
        if not names & {"enable-threads", "threads"}:
            warnings.warn(
                "uWSGI runs no thread between two requests without its option enable-threads: a lease that is kept"
                " longer than one request is lost",
                RuntimeWarning,
                stacklevel=2,
            )


# those whose leases are to be released at the end of the process
_keepers: dict[_Keeper, None] = {}


def _release_at_exit() -> None:
    """Release all, in 5 s together."""
    until = now() + _RELEASE_LIMIT
    keepers = [keeper for keeper in list(_keepers) if keeper.pid == os.getpid()]
    for keeper in keepers:
        keeper.begin_close()
    for keeper in keepers:
        keeper.wait_closed(until)


atexit.register(_release_at_exit)


# ---------------------------------------------------------------------------------------- leases


# of a lease without a client: connect, and the owner if the program named one
_Lone = tuple[Callable[[], Any], Optional[str]]


class _Handle:
    """What a Lease and an AsyncLease have in common."""

    _record: _Record
    _lone: Optional[_Lone]
    _client: Optional[_AnyClient]
    _owner: str
    _pid: int

    def _set_up(self, record: _Record, lone: Optional[_Lone], client: Optional[_AnyClient]) -> None:
        self._record, self._lone, self._client, self._pid = record, lone, client, os.getpid()
        if lone is not None:
            self._owner = _new_owner() if lone[1] is None else lone[1]

    def _set_up_lone(self, connect: Callable[[], Any], owner: Optional[str], record: _Record) -> None:
        if not callable(connect):
            raise Misuse("connect must be a function that makes a connection")
        self._set_up(record, (connect, None if owner is None else _text(owner, "an owner")), None)

    def _keeper(self) -> _Keeper:
        """Who is to keep it, from its acquire on."""
        if self._record.state != "new":
            raise Misuse(f"a lease is acquired once: it is {self._record.state}")
        if self._client is not None:
            return self._client._keeper()
        assert self._lone is not None
        connect, owner = self._lone
        keeper = _Keeper(connect, owner, True)
        if owner is None:
            if self._pid != os.getpid():
                # acquired in a child process: its parent may do the same
                self._owner, self._record.request_id = keeper.owner, secrets.token_hex(16)
            keeper.owner = self._owner
        return keeper

    def _begin_release(self) -> Optional[concurrent.futures.Future[bool]]:
        """Begin to release it; None if there is nothing to release, or it is the parent process's."""
        keeper = self._record.keeper
        if keeper is None:
            self._record.state = "released"
        elif keeper.pid == os.getpid():
            return keeper.begin_release(self._record)
        return None

    @property
    def name(self) -> Optional[str]:
        """The name; None if there are several."""
        return self._record.name

    @property
    def names(self) -> list[str]:
        """The names, in the order in which they were given."""
        return list(self._record.names)

    @property
    def owner(self) -> str:
        """The owner."""
        keeper = self._record.keeper
        if keeper is not None:
            return keeper.owner
        return self._owner if self._client is None else self._client.owner

    @property
    def ttl(self) -> float:
        """Seconds for which it lasts if it is not renewed."""
        return self._record.ttl

    @property
    def wait(self) -> float:
        """Seconds for which the acquire waits; less than 0: without limit."""
        return self._record.wait

    @property
    def shared(self) -> bool:
        """Whether it is held with others that share it."""
        return self._record.shared

    @property
    def permits(self) -> Optional[int]:
        """Of how many permits it is one; None if it is none."""
        return self._record.permits

    @property
    def state(self) -> str:
        """new, waiting, held, lost or released."""
        return self._record.look()

    @property
    def held(self) -> bool:
        """Whether it is held, and safely so: the deadline is further than the margin."""
        return self.state == "held"

    @property
    def token(self) -> int:
        """The token of its grant; if it has several names, of the first."""
        return self.tokens[0]

    @property
    def tokens(self) -> list[int]:
        """The tokens, in the order of the names."""
        if not self._record.tokens:
            raise Misuse("the lease was not acquired")
        return list(self._record.tokens)

    @property
    def deadline(self) -> float:
        """The deadline, by now()."""
        return self._record.deadline

    def remaining(self) -> float:
        """Seconds to the deadline; 0 if it is not held."""
        return max(0.0, self._record.deadline - now()) if self.held else 0.0

    def check(self) -> None:
        """Raise Lost if the lease is lost, and Misuse if it was never held or is released."""
        self._record.check()

    def __repr__(self) -> str:
        return f"<dlock.{type(self).__name__} {str(self._record)!r} {self._record.state}>"

    # Any thread may be here at any moment, so no lock is taken.  At the end of the interpreter there
    # may be no globals any more.
    def __del__(self, getpid: Callable[[], int] = os.getpid, warn: Callable[..., None] = warnings.warn) -> None:
        record: Optional[_Record] = getattr(self, "_record", None)
        if record is None or record.state not in ("held", "lost"):
            return
        assert record.keeper is not None
        if record.keeper.pid == getpid():
            record.is_dropped = True
            record.keeper.dropped.append(record)
            if record.state == "held":
                warn(f"{self!r} was dropped without release(), and is still renewed", ResourceWarning, source=self)


class Lease(_Handle):
    """
    A lease, and its heartbeat in threads.

    connect: a function without arguments that makes a new connection, of psycopg, psycopg2,
        PyMySQL or mysqlclient, or returns an awaitable for one of psycopg's AsyncConnection, which
        then lives in the event loop of a thread here.  It is called in such a thread.
    name, or names: what to lease; up to 100 names are taken exclusively, all or none.
    ttl: for how long it lasts if it is not renewed.  A time is a number of seconds, a timedelta, or
        a text like '30s' or '1 h 30 min'.
    wait: how long to wait for it; 0 tries once, less than 0 waits without limit.
    shared: with others that share it.  permits=N: one of N permits.
    owner: by default one that nobody else has.
    on_lost(lease): called once, in a thread of its own, when the lease is lost.
    on_event(kind, name, seconds): called for each event, in one thread, in their order.  The kinds
        are acquired, refused, renewed, late, lost, released and unreferenced; clients/CONTRACT.md
        says what each means, and what its seconds are.
    connect_timeout: how long to go on while no server is reached, counted from the beginning, and
        while none answers, counted from the end of the wait.
    keep_at_least: if the block ends sooner than this after the grant, the lease is given back with
        effect at that time; on MySQL and MariaDB it is renewed until then, and expires.

    A Lease is used once.  Its methods may be called from any thread.  One that the program drops
    while it is held is still renewed, since somebody may work under it; a ResourceWarning says so.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        name: Optional[str] = None,
        ttl: Seconds = 30,
        wait: Seconds = 0,
        *,
        names: Optional[Sequence[str]] = None,
        shared: bool = False,
        permits: Optional[int] = None,
        owner: Optional[str] = None,
        on_lost: Optional[Callable[[Any], Any]] = None,
        on_event: Optional[EventHook] = None,
        connect_timeout: Seconds = 10,
        keep_at_least: Seconds = 0,
    ) -> None:
        record = _Record(
            name, ttl, wait, names=names, shared=shared, permits=permits, on_lost=on_lost, on_event=on_event,
            connect_timeout=connect_timeout, keep_at_least=keep_at_least,
        )  # fmt: skip
        self._set_up_lone(connect, owner, record)

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost."""
        return self._record.lost

    def acquire(self: _SelfLease) -> _SelfLease:
        """Acquire it, as the beginning of a with block does; returns the lease."""
        record = self._record
        keeper = self._keeper()
        if record.on_lost is not None:
            record.tell_lost = _teller_of_loss(self)
        keeper.acquire(record)
        return self

    def cancel(self) -> None:
        """End the wait of an acquire in another thread, which raises Canceled there."""
        keeper = self._record.keeper
        if keeper is None:
            self._record.canceled = True
        elif keeper.pid == os.getpid():
            keeper.cancel(self._record)

    def release(self) -> bool:
        """
        Give it back, as the end of a with block does; returns whether the server has confirmed it.

        If it cannot be released it ends at its deadline, which is no error.
        """
        answer = self._begin_release()
        return answer is not None and answer.result()

    def guard(self, connection: Any) -> None:
        """
        Guard the lease in the open transaction of the program's own connection.

        Raises Lost if it is not held any more; roll back then.  If the transaction commits, this
        lease was the only holder when it did.
        """
        self.check()
        _guard(self._record, *_unwrapped(connection))

    def __enter__(self: _SelfLease) -> _SelfLease:
        return self.acquire()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Release; raise Lost if it was lost and the block has not raised anything."""
        was_lost = self.state == "lost"
        self.release()
        if was_lost and kind is None:
            raise self._record.lost_error()


def _guard(record: _Record, driver: Any, family: str) -> None:
    for request in record.guards():
        try:
            cursor = _cursor(driver, family)
            cursor.execute(request.statement(family, False))
            cursor.close()
        except Exception as error:  # pylint: disable=broad-except
            raise record.guard_error(error) from error


def _teller_of_loss(lease: Lease) -> Callable[[], None]:
    """What calls on_lost, in a thread for each lease, so that one that blocks delays no other."""
    record, kind, alive = lease._record, type(lease), weakref.ref(lease)

    def tell() -> None:
        told = alive()
        if told is None:  # the program has dropped it
            told = kind.__new__(kind)
            told._set_up(record, None, None)
        thread = threading.Thread(target=record.on_lost, args=(told,), name="dlock lost", daemon=True)
        _call_program(thread.start)

    return tell


class _AnyClient:
    """What a Client and an AsyncClient have in common."""

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        owner: Optional[str] = None,
        on_event: Optional[EventHook] = None,
        connect_timeout: Seconds = 10,
    ) -> None:
        if not callable(connect):
            raise Misuse("connect must be a function that makes a connection")
        self._connect = connect
        self._named_owner = None if owner is None else _text(owner, "an owner")
        self._on_event: Optional[EventHook] = _function(on_event, "on_event")
        self._connect_timeout = _seconds(connect_timeout, "a connect_timeout", above=0)
        self._is_closed = False
        self._keepers: dict[int, _Keeper] = {}  # by process

    def _keeper(self) -> _Keeper:
        pid = os.getpid()
        if pid not in self._keepers:
            # a child process starts afresh: its leases are not its parent's
            self._keepers.setdefault(pid, _Keeper(self._connect, self._named_owner, False))
            if self._is_closed:
                self._keepers[pid].begin_close()
        return self._keepers[pid]

    @property
    def owner(self) -> str:
        """The owner of all its leases, in this process."""
        return self._keeper().owner

    def _record(self, name: Optional[str], ttl: Seconds, wait: Seconds, options: dict[str, Any]) -> _Record:
        options.setdefault("on_event", self._on_event)
        options.setdefault("connect_timeout", self._connect_timeout)
        return _Record(name, ttl, wait, **options)

    def __repr__(self) -> str:
        return f"<dlock.{type(self).__name__} {self.owner!r}{' closed' if self._is_closed else ''}>"

    # as for a lease
    def __del__(self, getpid: Callable[[], int] = os.getpid, warn: Callable[..., None] = warnings.warn) -> None:
        if getattr(self, "_is_closed", True):
            return
        keeper = self._keepers.get(getpid())
        if keeper is not None and keeper.is_used:
            keeper.is_dropped = True
            warn(f"the client of {keeper.owner} was dropped without close()", ResourceWarning, source=self)


class Client(_AnyClient):
    """
    Keeps many leases by one connection and one heartbeat.

    connect: a function that makes a new connection, as for a Lease.
    owner: of all its leases; by default one that nobody else has, in each process another one.
    on_event, connect_timeout: of its leases, unless they have their own.

    The server takes all leases of an owner for those of one holder.  So a client refuses, as Misuse,
    a lease with a name that another lease of its has.

    Its connections are two: one for the heartbeat, and one for acquires.  An acquire that runs at
    the same time as another has one more, meanwhile.  Its methods may be called from any thread.
    """

    def lease(
        self,
        name: Optional[str] = None,
        ttl: Seconds = 30,
        wait: Seconds = 0,
        **options: Any,
    ) -> Lease:
        """A lease of this client; the arguments are those of Lease, without connect and owner."""
        lease = Lease.__new__(Lease)
        lease._set_up(self._record(name, ttl, wait, options), None, self)
        return lease

    def close(self) -> None:
        """
        Release all leases, end all acquires, which raise Canceled, and close the connections.

        Later acquires are Misuse.
        """
        self._is_closed = True
        keeper = self._keeper()
        keeper.begin_close()
        keeper.wait_closed(None)

    def __enter__(self: _SelfClient) -> _SelfClient:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()


# --------------------------------------------------------------------------------------- asyncio


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """
    Run a function in a thread of its own; returns its answer.  A future, not a task, so that the
    end of the loop does not cancel it.
    """
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # pylint: disable=broad-except
            answer.set_exception(error)

    threading.Thread(target=run, name="dlock asyncio", daemon=True).start()
    return _in_loop(answer)


def _in_loop(answer: concurrent.futures.Future[Any]) -> asyncio.Future[Any]:
    """A future of the running loop for an answer of a thread, which may come after the loop has ended."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done() -> None:
        if not future.done():
            error = answer.exception()
            if error is None:
                future.set_result(answer.result())
            else:
                future.set_exception(error)

    def tell(_: concurrent.futures.Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(done)
        except RuntimeError:
            pass  # the loop is closed

    answer.add_done_callback(tell)
    return future


async def _to_its_end(future: asyncio.Future[Any]) -> Any:
    """The answer of a thread; if the task is cancelled meanwhile, wait for the answer all the same."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _finish(future)
        future.exception()  # nobody else asks for it
        raise


async def _finish(future: asyncio.Future[Any]) -> None:
    """Wait for the answer of a thread, even if the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            pass


class _LoopSide:
    """
    What of an AsyncLease lives in its loop.  Like its record, it does not keep that object alive.
    """

    def __init__(self, lease: AsyncLease, cancel_on_lost: bool) -> None:
        self.lease = weakref.ref(lease)
        self.record = lease._record
        self.cancel_on_lost = cancel_on_lost
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.lost: Optional[asyncio.Event] = None
        self.block: Optional[asyncio.Task[Any]] = None
        self.block_was_canceled = False
        self.tasks: set[asyncio.Future[Any]] = set()

    def begin(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.lost = asyncio.Event()
        self.record.tell_lost = self.told_lost
        hook, loop = self.record.on_event, self.loop
        if hook is not None:
            self.record.on_event = lambda *event: _call_in_loop(loop, cast(EventHook, hook), *event)

    def told_lost(self) -> None:
        """In the keeper's thread."""
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(self.tell)
        except RuntimeError:
            pass  # the loop is closed

    def tell(self) -> None:
        assert self.lost is not None
        self.lost.set()
        try:
            if self.record.on_lost is not None:
                lease = self.lease()
                if lease is None:  # the program has dropped it
                    lease = AsyncLease.__new__(AsyncLease)
                    lease._set_up(self.record, None, None)
                    lease._side = self
                result = self.record.on_lost(lease)
                if inspect.isawaitable(result):
                    task = asyncio.ensure_future(result)
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
        finally:
            self.cancel_block()  # also if on_lost raises

    def cancel_block(self) -> None:
        if self.cancel_on_lost and self.block is not None and not self.block_was_canceled:
            self.block_was_canceled = True
            self.block.cancel()


def _call_in_loop(loop: asyncio.AbstractEventLoop, hook: EventHook, *event: Any) -> None:
    """
    Call a function in a loop, and wait for its end; in the thread for events.  After the end of the
    loop it is called in this thread, since a program counts by it.
    """
    is_called = threading.Lock()  # held by the one of two that calls it
    called = threading.Event()

    def call() -> None:
        try:
            if is_called.acquire(blocking=False):
                hook(*event)
        finally:
            called.set()

    try:
        loop.call_soon_threadsafe(call)
        while not called.wait(0.1) and not loop.is_closed():
            pass
    except RuntimeError:
        pass  # the loop is closed
    call()


class AsyncLease(_Handle):
    """
    A lease for asyncio; the arguments are those of Lease, and

    cancel_on_lost: when the lease is lost, cancel the task in the async with block, which then
        raises Lost.

    The heartbeat runs in threads here too, so that an event loop that is blocked does not lose the
    lease.  connect may make connections of asynchronous drivers or of others.  They are used in a
    thread; asynchronous ones in that thread's own loop.

    A wait is cancelled by cancelling its task.  on_lost(lease) is called in the loop, and may be a
    coroutine function.  on_event is called in the loop too, and after its end in a thread.
    """

    _side: _LoopSide

    def __init__(
        self,
        connect: Callable[[], Any],
        name: Optional[str] = None,
        ttl: Seconds = 30,
        wait: Seconds = 0,
        *,
        owner: Optional[str] = None,
        cancel_on_lost: bool = False,
        **options: Any,
    ) -> None:
        self._set_up_lone(connect, owner, _Record(name, ttl, wait, **options))
        self._side = _LoopSide(self, cancel_on_lost)

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lease is lost."""
        event = self._side.lost
        if event is None:
            raise Misuse("the lease was not acquired")
        if self._record.lost.is_set():
            event.set()
        return event

    async def acquire(self: _SelfAsyncLease) -> _SelfAsyncLease:
        """Acquire it, as the beginning of an async with block does."""
        record, keeper = self._record, self._keeper()
        self._side.begin()
        acquire = _in_thread(lambda: keeper.acquire(record))
        try:
            await asyncio.shield(acquire)
        except asyncio.CancelledError:
            keeper.cancel(record)
            await _finish(acquire)
            if acquire.exception() is None:
                await _finish(_in_loop(keeper.begin_release(record)))
            raise
        return self

    async def release(self) -> bool:
        """Give it back; returns whether the server has confirmed it."""
        answer = self._begin_release()
        return answer is not None and bool(await _to_its_end(_in_loop(answer)))

    async def guard(self, connection: Any) -> None:
        """Lease.guard(), also on a connection of an asynchronous driver, which is used in this loop."""
        self.check()
        driver, family = _unwrapped(connection)
        if not _is_async(driver):
            await _to_its_end(_in_thread(lambda: _guard(self._record, driver, family)))
            return
        for request in self._record.guards():
            try:
                cursor = _cursor(driver, family)
                await cursor.execute(request.statement(family, False))
                await cursor.close()
            except Exception as error:  # pylint: disable=broad-except
                raise self._record.guard_error(error) from error

    async def __aenter__(self: _SelfAsyncLease) -> _SelfAsyncLease:
        await self.acquire()
        self._side.block = asyncio.current_task()
        if self.lost.is_set():
            self._side.cancel_block()  # it was lost when there was no block yet
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        side = self._side
        block, side.block = side.block, None
        was_lost = self.state == "lost"
        by_us = side.block_was_canceled and kind is not None and issubclass(kind, asyncio.CancelledError)
        if side.block_was_canceled and block is not None and hasattr(block, "uncancel"):
            by_us &= block.uncancel() == 0  # else somebody else has cancelled it, too
        await self.release()
        if by_us or (was_lost and kind is None):
            raise self._record.lost_error()


class AsyncClient(_AnyClient):
    """
    A Client for asyncio; the arguments are the same.  Its leases may be used in several loops.
    """

    def lease(
        self,
        name: Optional[str] = None,
        ttl: Seconds = 30,
        wait: Seconds = 0,
        *,
        cancel_on_lost: bool = False,
        **options: Any,
    ) -> AsyncLease:
        """A lease of this client; the arguments are those of AsyncLease, without connect and owner."""
        lease = AsyncLease.__new__(AsyncLease)
        lease._set_up(self._record(name, ttl, wait, options), None, self)
        lease._side = _LoopSide(lease, cancel_on_lost)
        return lease

    async def close(self) -> None:
        """Client.close()."""
        self._is_closed = True
        keeper = self._keeper()
        keeper.begin_close()
        await _to_its_end(_in_thread(lambda: keeper.wait_closed(None)))

    async def __aenter__(self: _SelfAsyncClient) -> _SelfAsyncClient:
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        await self.close()
