"""
Leases of dlock that are kept alive: named locks with a deadline in PostgreSQL, MySQL and MariaDB.

    import dlock, psycopg

    with dlock.Lease(lambda: psycopg.connect("dbname=app"), "nightly-report", ttl=30) as lease:
        for part in parts:
            lease.check()               # raises dlock.Lost if it is not ours any more
            work(part, lease.token)

A lease is acquired at the beginning of the block, renewed by a thread while the block runs, and
released at its end.  AsyncLease is the same for asyncio.  clients/CONTRACT.md says what all clients
of dlock keep.

This is one file without dependencies, for Python 3.9 and later.  It works with psycopg (3), also
its AsyncConnection, psycopg2, PyMySQL and mysqlclient.

How it is made.  Each connection belongs to one thread, a _Link, and no other thread touches the
driver.  The others wait for its answers only for a limited time: if a driver blocks, its socket is
shut down, and its thread ends when the driver lets go of it.  The keeper, one thread for each lease
that is held, only waits and looks at the clock, so that it tells in time that a lease is lost,
whatever the driver does.

A child process after fork() has none of these threads: for it the lease is lost, and it neither
renews nor releases it.

SPDX-License-Identifier: PostgreSQL
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
import weakref
from datetime import timedelta
from typing import Any, Callable, Optional, Sequence, TypeVar, Union

__all__ = ["Lease", "AsyncLease", "Error", "Busy", "Lost", "Misuse", "Unavailable", "Canceled", "now"]
__version__ = "2.0.0"

Seconds = Union[int, float, timedelta]
_SelfLease = TypeVar("_SelfLease", bound="Lease")
_SelfAsyncLease = TypeVar("_SelfAsyncLease", bound="AsyncLease")

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
    inner = connection
    while _family_of(inner) is None:
        if not hasattr(inner, "__wrapped__"):
            raise Misuse(f"a connection must be one of {', '.join(_FAMILIES)}, not {type(connection)!r}")
        inner = inner.__wrapped__
    family = _family_of(inner)
    assert family is not None
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


def _is_answer(error: BaseException) -> bool:
    """Whether the server has sent it, and not only the driver, whose numbers begin at 2000."""
    told = _told(error)
    return told is not None and (told.sqlstate is not None or (told.errno is not None and told.errno // 1000 != 2))


def _reason(error: BaseException, before: Optional[BaseException]) -> BaseException:
    """Of the errors of two attempts, the one to tell: the later answer, or if there is none, the later one."""
    return before if before is not None and _is_answer(before) and not _is_answer(error) else error


# ----------------------------------------------------------------------------------------- links


class _Request:
    """
    A call of a function of dlock: its name, and its arguments: texts, numbers, and lists of these.

    The statement and its answers are ASCII, without a quote or a backslash inside a literal: texts
    are digits of their UTF-8.  So no setting of a session or of a driver changes what they mean.
    """

    def __init__(self, function: str, *args: Any) -> None:
        self.function = function
        self.args = args

    def statement(self, family: str) -> bytes:
        is_postgres = family.startswith("psycopg")
        literal = _postgres_literal if is_postgres else _mysql_literal
        call = f"{self.function}({', '.join(map(literal, self.args))})"
        if self.function == "dlock_guard":
            sql = f"SELECT {call}" if is_postgres else call.replace("dlock_guard", "CALL dlock.guard", 1)
        elif self.function.endswith("_many"):
            # names
            sql = (
                f"SELECT pg_catalog.encode(pg_catalog.convert_to(name, 'UTF8'), 'hex') FROM {call} AS name"
                if is_postgres
                else f"SELECT HEX({call})"
            )
        elif self.function == "dlock_acquire_all":
            sql = f"SELECT pg_catalog.array_to_string({call}, ',')" if is_postgres else f"SELECT HEX({call})"
        else:
            sql = f"SELECT {call}::pg_catalog.text" if is_postgres else f"SELECT {call}"
        return sql.encode("ascii")

    def answer(self, family: str, values: Sequence[Any]) -> Any:
        """The answer in the values of the rows: a list of names; a list of tokens, or None."""
        texts = [value.decode("ascii") if isinstance(value, bytes) else value for value in values]
        is_postgres = family.startswith("psycopg")
        if self.function.endswith("_many"):
            if is_postgres:
                return [bytes.fromhex(text).decode() for text in texts]
            return json.loads(bytes.fromhex(texts[0]))
        if self.function == "dlock_guard" or texts[0] is None:
            return None
        if self.function != "dlock_acquire_all":
            return [int(texts[0])]
        return [int(token) for token in texts[0].split(",")] if is_postgres else json.loads(bytes.fromhex(texts[0]))


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


def _cursor(connection: Any, family: str) -> Any:
    """A plain cursor of the driver's own, whatever kind the program has chosen for the connection."""
    if family == "psycopg":
        psycopg = sys.modules["psycopg"]
        return (psycopg.AsyncCursor if _is_async(connection) else psycopg.Cursor)(connection)
    if family == "psycopg2":
        extensions = sys.modules["psycopg2.extensions"]
        cursor = connection.cursor(cursor_factory=extensions.cursor)
        extensions.register_type(extensions.UNICODE, cursor)
        return cursor
    return connection.cursor(sys.modules[family + ".cursors"].Cursor)


class _Job:
    """A job for a link, and its result."""

    def __init__(self, request: Optional[_Request]) -> None:
        self.request = request  # None: only to connect
        self.sent = 0.0  # just before the request was
        self.done = False
        self.answer: Any = None
        self.error: Optional[BaseException] = None


class _Link:
    """
    A connection, and the thread that it belongs to.

    A thread that waits for a job waits for "changed".  After an error the link is of no use any
    more.
    """

    def __init__(self, connect: Callable[[], Any], changed: threading.Condition) -> None:
        self._connect = connect
        self._changed = changed
        self._jobs: queue.SimpleQueue[Optional[_Job]] = queue.SimpleQueue()
        self._socket: Optional[socket.socket] = None  # a second descriptor of the driver's
        self._given_up = False
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="dlock connection", daemon=True).start()

    def begin(self, request: Optional[_Request]) -> _Job:
        job = _Job(request)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Close the connection once all jobs are done."""
        self._jobs.put(None)

    def give_up(self) -> None:
        """End the connection now, whatever the driver is doing."""
        with self._changed:
            self._given_up = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self._jobs.put(None)

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
            job = self._jobs.get()
            if job is None:
                break
            try:
                if connection is None:
                    connection, family = _unwrapped(finish(self._connect()))
                    self._prepare(connection, family, finish)
                if job.request is not None:
                    statement = job.request.statement(family)
                    cursor = _cursor(connection, family)
                    job.sent = now()
                    finish(cursor.execute(statement))
                    if family == "psycopg":
                        # as the server has sent it, whatever loaders the program has registered
                        result = cursor.pgresult
                        values = [result.get_value(row, 0) for row in range(result.ntuples)]
                    else:
                        values = [row[0] for row in cursor.fetchall()]
                    finish(cursor.close())
                    job.answer = job.request.answer(family, values)
            except BaseException as error:  # pylint: disable=broad-except
                job.error = error
            with self._changed:
                job.done = True
                self._changed.notify_all()
            if job.error is not None:
                break
        try:
            if connection is not None:
                finish(connection.close())
        except Exception:  # pylint: disable=broad-except
            pass
        with self._changed:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
        if loop is not None:
            loop.close()

    def _prepare(self, connection: Any, family: str, finish: Callable[[Any], Any]) -> None:
        """Make a new connection fit for leases."""
        with self._changed:
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


# ---------------------------------------------------------------------------------------- leases

_RELEASE_LIMIT = 5.0  # seconds for which a release is tried at most
_LONGEST_NAP = 1.0  # sleeping does not count a suspension, so look at the clock that often


class _Stopped(Exception):
    """The wait for an answer is over, because the lease is cancelled, lost or released."""


class _LostEvent(threading.Event):
    """Set when the lease is lost; asking compares the clock first, and the process."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        return self._is_lost() or super().is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self.is_set() or super().wait(timeout)


def _seconds(value: Seconds) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def _new_owner() -> str:
    return f"{socket.gethostname()[:180]}/{os.getpid()}/{secrets.token_hex(8)}"


# leases to be released at the end of the process
_held: weakref.WeakSet[Lease] = weakref.WeakSet()


def _release_at_exit() -> None:
    for lease in list(_held):
        lease.release()


atexit.register(_release_at_exit)


class Lease:
    """
    A lease, and its heartbeat in threads.

    connect: a function without arguments that makes a new connection, of psycopg, psycopg2,
        PyMySQL or mysqlclient, or returns an awaitable for one of psycopg's AsyncConnection, which
        then lives in the event loop of a thread here.  It is called in such a thread.
    name, or names: what to lease; up to 100 names are taken exclusively, all or none.
    ttl: seconds, or a timedelta, for which it lasts if it is not renewed.
    wait: how long to wait for it; 0 tries once, less than 0 waits without limit.
    shared: with others that share it.  permits=N: one of N permits.
    owner: by default one that nobody else has.
    on_lost(lease): called once, in a thread of the lease, when the lease is lost.
    connect_timeout: seconds to go on while no server is reached, counted from the beginning, and
        while none answers, counted from the end of the wait.
    keep_at_least: if the block ends sooner than this many seconds after the grant, the lease is not
        given back, but left to end at that time.

    A Lease is used once.  Its methods may be called from any thread.
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
        connect_timeout: Seconds = 10,
        keep_at_least: Seconds = 0,
    ) -> None:
        if (name is None) == (names is None):
            raise Misuse("name one lease, or several by names=")
        if (names is not None) + bool(shared) + (permits is not None) > 1:
            raise Misuse("names, shared and permits exclude each other")
        self.name = name
        self.names = [name] if name is not None else list(names or ())
        self.owner = _new_owner() if owner is None else owner
        self.ttl = _seconds(ttl)
        self.wait = _seconds(wait)
        self.shared = bool(shared)
        self.permits = permits
        self._owner_is_ours = owner is None
        self._is_list = names is not None
        if not callable(connect):
            raise Misuse("connect must be a function that makes a connection")
        self._connect = connect
        self._on_lost = on_lost
        self._connect_timeout = _seconds(connect_timeout)
        self._keep_at_least = _seconds(keep_at_least)
        self._margin = min(self.ttl / 10, 1.0)
        self._request_id = secrets.token_hex(16)
        self._changed = threading.Condition()  # guards what follows, and is notified of answers
        self._state = "new"
        self._tokens: list[int] = []
        self._deadline = 0.0
        self._keep_until = 0.0
        self._link: Optional[_Link] = None
        self._cause: Optional[BaseException] = None  # of the loss
        self._canceled = False
        self._pid = os.getpid()
        self.lost: threading.Event = _LostEvent(lambda: self.state == "lost")

    # what a program asks

    @property
    def state(self) -> str:
        """new, waiting, held, lost or released."""
        if self._pid != os.getpid():
            return "lost" if self._state in ("waiting", "held") else self._state
        self._look()
        return self._state

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
        if not self._tokens:
            raise Misuse("the lease was not acquired")
        return list(self._tokens)

    @property
    def deadline(self) -> float:
        """The deadline, by now()."""
        return self._deadline

    def remaining(self) -> float:
        """Seconds to the deadline; 0 if it is not held."""
        return max(0.0, self._deadline - now()) if self.held else 0.0

    def check(self) -> None:
        """Raise Lost if the lease is lost, and Misuse if it was never held or is released."""
        state = self.state
        if state == "lost":
            raise self._lost_error()
        if state != "held":
            raise Misuse(f"the lease is not held: it is {state}")

    def guard(self, connection: Any) -> None:
        """
        Guard the lease in the open transaction of the program's own connection.

        Raises Lost if it is not held any more; roll back then.  If the transaction commits, this
        lease was the only holder when it did.
        """
        self.check()
        driver, family = _unwrapped(connection)
        for request in self._guards():
            try:
                cursor = _cursor(driver, family)
                cursor.execute(request.statement(family))
                cursor.close()
            except Exception as error:  # pylint: disable=broad-except
                raise self._guard_error(error) from error

    # acquire and release

    def acquire(self: _SelfLease) -> _SelfLease:
        """Acquire it, as the beginning of a with block does; returns the lease."""
        with self._changed:
            if self._state != "new":
                raise Misuse(f"a lease is acquired once: it is {self._state}")
            self._state = "waiting"
            self._pid = os.getpid()
        try:
            self._acquire()
        except BaseException:
            with self._changed:
                self._state = "released"
            raise
        _held.add(self)
        return self

    def cancel(self) -> None:
        """End the wait of an acquire in another thread, which raises Canceled there."""
        with self._changed:
            self._canceled = True
            self._changed.notify_all()

    def release(self) -> bool:
        """
        Give it back, as the end of a with block does; returns whether the server has confirmed it.

        If it cannot be released it ends at its deadline, which is no error.
        """
        if self._pid != os.getpid():
            return False  # the parent's
        with self._changed:
            self._look()
            was = self._state
            if was == "waiting":
                self.cancel()
                return False
            if was == "released":
                return False
            self._state = "released"
            link, self._link = self._link, None
            self._changed.notify_all()
        _held.discard(self)
        if was == "new":
            return False
        # a lost lease may still be held, but is not worth a new connection
        limit = now() + (1.0 if was == "lost" else min(_RELEASE_LIMIT, max(0.0, self._deadline - now())))
        return self._release(link, limit, again=was == "held")

    def __enter__(self: _SelfLease) -> _SelfLease:
        return self.acquire()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Release; raise Lost if it was lost and the block has not raised anything."""
        was_lost = self.state == "lost"
        self.release()
        if was_lost and kind is None:
            raise self._lost_error()

    def __repr__(self) -> str:
        return f"<dlock.Lease {', '.join(self.names)!r} {self._state}>"

    # requests

    def _acquire_request(self, wait: float) -> _Request:
        tail = (self.owner, self.ttl)
        if self._is_list:
            return _Request("dlock_acquire_all", self.names, *tail, wait, self._request_id)
        if self.permits is not None:
            return _Request("dlock_acquire_permit", self.name, *tail, self.permits, wait, self._request_id)
        function = "dlock_acquire_shared" if self.shared else "dlock_acquire"
        return _Request(function, self.name, *tail, wait, self._request_id)

    def _renew_request(self, tokens: list[int], ttl: float) -> _Request:
        return _Request("dlock_renew_many", self.names, self.owner, ttl, tokens)

    def _release_request(self, tokens: Optional[list[int]]) -> _Request:
        return _Request("dlock_release_many", self.names, self.owner, *([tokens] if tokens else []))

    def _is_done(self, answer: list[str]) -> bool:
        """Whether a renewal or a release was done, for all names."""
        return set(answer) == set(self.names)

    def _guards(self) -> list[_Request]:
        return [_Request("dlock_guard", name, self.owner, token) for name, token in zip(self.names, self.tokens)]

    def _guard_error(self, error: Exception) -> Exception:
        told = _told(error) or error
        if isinstance(told, Lost):
            with self._changed:
                self._lose(error)
        return told

    # waiting for answers; the caller holds no lock

    def _ask(self, link: _Link, request: Optional[_Request], until: Optional[float], state: Optional[str]) -> _Job:
        """
        Wait for a job.  If it is not done in time, gives the link up and raises Unavailable; if it
        failed, gives the link up and raises its error; raises _Stopped if the lease changes its
        state.
        """
        job = link.begin(request)
        try:
            with self._changed:
                while not job.done:
                    if state is not None and (self._state != state or (state == "waiting" and self._canceled)):
                        raise _Stopped
                    left = _LONGEST_NAP if until is None else until - now()
                    if left <= 0:
                        raise Unavailable("the server did not answer in time")
                    self._changed.wait(min(left, _LONGEST_NAP))
        except _Stopped:
            if state == "waiting":
                link.give_up()
            raise  # a renewal may be answered before the release, on the same connection
        except BaseException:
            link.give_up()
            raise
        if job.error is not None:
            told = _told(job.error)
            if told is None or told is job.error:
                raise job.error
            raise told from job.error
        return job

    def _pause(self, seconds: float, until: Optional[float], state: str) -> None:
        """Wait before another attempt, until then at most, and only in this state."""
        end = now() + seconds if until is None else min(now() + seconds, until)
        with self._changed:
            while self._state == state and not (state == "waiting" and self._canceled):
                left = end - now()
                if left <= 0:
                    return
                self._changed.wait(min(left, _LONGEST_NAP))
        raise _Stopped

    # the acquire

    def _acquire(self) -> None:
        start = now()
        # until a server was reached; then without limit, or until the wait is over and the server has
        # had its time to answer
        last: Optional[float] = start + self._connect_timeout
        pause = 0.05
        link: Optional[_Link] = None
        asked = False
        reason: Optional[BaseException] = None
        try:
            while True:
                try:
                    if link is None:
                        link = _Link(self._connect, self._changed)
                        limit = now() + self._connect_timeout / 3
                        self._ask(link, None, limit if last is None else min(limit, last), "waiting")
                        last = None if self.wait < 0 else start + self.wait + self._connect_timeout
                    left = self.wait if self.wait < 0 else max(0.0, start + self.wait - now())
                    asked = True
                    job = self._ask(link, self._acquire_request(left), last, "waiting")
                    if job.answer is None:
                        link.close()
                        raise Busy(f"{', '.join(self.names)} not free within {self.wait:g} s")
                    tokens = job.answer
                    if now() - job.sent > self.ttl / 3:
                        # when was it granted?
                        job = self._ask(link, self._renew_request(tokens, self.ttl), now() + self.ttl / 3, "waiting")
                        if not self._is_done(job.answer):
                            continue  # it is over: go on waiting
                    if self._begin(link, tokens, job.sent + self.ttl):
                        return
                    # this took too long: the same request again moves the deadline
                except Unavailable as error:
                    link = None
                    reason = _reason(error, reason)
                    if last is not None and now() + pause >= last:
                        raise reason
                    self._pause(pause, last, "waiting")
                    pause = min(2 * pause, 1.0)
        except (Busy, Misuse):
            raise
        except BaseException as error:
            # it may have been granted, though no answer came
            if link is not None:
                link.give_up()
            if asked:
                self._give_back(1.0 if isinstance(error, Unavailable) else _RELEASE_LIMIT)
            if isinstance(error, _Stopped):
                raise Canceled("the acquire was canceled") from None
            raise

    def _begin(self, link: _Link, tokens: list[int], deadline: float) -> bool:
        """Say that the lease is held, unless it is too late for that."""
        with self._changed:
            if self._canceled:
                raise _Stopped
            if now() >= deadline - self._margin:
                return False
            self._link, self._tokens, self._deadline = link, tokens, deadline
            self._state = "held"
            self._keep_until = now() + self._keep_at_least
            threading.Thread(target=self._keep, name="dlock lease", daemon=True).start()
        return True

    def _give_back(self, limit: float) -> None:
        """Give back what an acquire that was given up may have been granted."""
        until = now() + limit
        try:
            link = _Link(self._connect, self._changed)
            if self._owner_is_ours:
                self._ask(link, self._release_request(None), until, None)
            else:
                # the owner may have other holds: repeating the request id finds this one's, or
                # takes one more
                answer = self._ask(link, self._acquire_request(0), until, None).answer
                if answer is not None:
                    self._ask(link, self._release_request(answer), until, None)
            link.close()
        except Exception:  # pylint: disable=broad-except
            pass  # it ends at its deadline

    # the heartbeat

    def _keep(self) -> None:
        """Renew until the lease is lost or released, and tell that it is lost: the keeper's thread."""
        try:
            while True:
                self._pause(max(0.0, self._deadline - self.ttl * 2 / 3 - now()), self._deadline - self._margin, "held")
                self._renew()
        except _Stopped:
            pass
        with self._changed:
            was_lost = self._state == "lost"
        if was_lost and self._on_lost is not None:
            self._on_lost(self)

    def _renew(self) -> None:
        """Move the deadline; raise _Stopped if the lease is not held any more."""
        pause = 0.05
        while True:
            lost_at = self._deadline - self._margin
            link: Optional[_Link] = None
            try:
                with self._changed:
                    self._look()
                    if self._state != "held":
                        raise _Stopped
                    if self._link is None:
                        self._link = _Link(self._connect, self._changed)  # fails if there can be no thread
                    link = self._link
                job = self._ask(link, self._renew_request(self._tokens, self.ttl), min(now() + self.ttl / 3, lost_at), "held")
            except _Stopped:
                raise
            except BaseException as error:  # pylint: disable=broad-except
                with self._changed:
                    self._cause = _reason(error, self._cause)
                    if self._link is link:
                        self._link = None
                self._pause(pause, lost_at, "held")
                pause = min(2 * pause, 1.0)
                continue
            with self._changed:
                self._look()
                if self._state != "held":
                    raise _Stopped
                if not self._is_done(job.answer):
                    self._lose(None)
                    raise _Stopped
                self._deadline = job.sent + self.ttl
                self._cause = None
            return

    def _look(self) -> None:
        """Compare the clock with the deadline."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._state == "held" and now() >= self._deadline - self._margin:
                self._lose(self._cause or Unavailable("it was not renewed in time"))

    def _lose(self, cause: Optional[BaseException]) -> None:
        """The lease is lost; the caller has the lock."""
        if self._state != "held":
            return
        self._state = "lost"
        self._cause = cause
        self.lost.set()
        _held.discard(self)
        self._changed.notify_all()

    def _lost_error(self) -> Lost:
        if self._pid != os.getpid():
            return Lost(f"{', '.join(self.names)}: the lease is the parent process's")
        cause = self._cause
        error = Lost(f"{', '.join(self.names)}: the lease is lost")
        told = None if cause is None else _told(cause)
        if told is not None:
            error.sqlstate, error.errno = told.sqlstate, told.errno
        error.__cause__ = cause
        return error

    # the release

    def _release(self, link: Optional[_Link], until: float, again: bool) -> bool:
        """Give the lease back, by this connection or, if "again", by new ones."""
        pause = 0.05
        while link is not None or (again and now() < until):
            asked = False
            try:
                link = link or _Link(self._connect, self._changed)
                limit = min(until, now() + max(0.1, min(self.ttl / 3, _RELEASE_LIMIT / 2)))
                self._ask(link, None, limit, None)
                left = self._keep_until - now() if again else 0.0
                if left > 0:
                    # an owner that the program named may have other holds, which must not end
                    # sooner
                    request = self._renew_request(self._tokens, left if self._owner_is_ours else max(left, self.ttl))
                else:
                    request = self._release_request(self._tokens)
                asked = True
                job = self._ask(link, request, limit, None)
                link.close()
                return self._is_done(job.answer)
            except Exception:  # pylint: disable=broad-except
                link = None
                if asked and not self._owner_is_ours:
                    return False  # it may have been done; a second would take another hold
                if again:
                    time.sleep(max(0.0, min(pause, until - now())))
                    pause = min(2 * pause, 1.0)
        return False


# --------------------------------------------------------------------------------------- asyncio


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """
    Run a function in a thread of its own; returns its answer.  A future, not a task, so that the
    end of the loop does not cancel it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(result: Any, error: Optional[BaseException]) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # pylint: disable=broad-except
            error = raised
        try:
            loop.call_soon_threadsafe(done, result, error)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=run, name="dlock asyncio", daemon=True).start()
    return future


class AsyncLease:
    """
    A lease for asyncio; the arguments are those of Lease, and

    cancel_on_lost: when the lease is lost, cancel the task in the async with block, which then
        raises Lost.

    The heartbeat runs in threads here too, so that an event loop that is blocked does not lose the
    lease.  connect may make connections of asynchronous drivers or of others.  They are used in a
    thread; asynchronous ones in that thread's own loop.

    A wait is cancelled by cancelling its task.  on_lost(lease) is called in the loop, and may be a
    coroutine function.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        name: Optional[str] = None,
        ttl: Seconds = 30,
        wait: Seconds = 0,
        *,
        on_lost: Optional[Callable[[Any], Any]] = None,
        cancel_on_lost: bool = False,
        **options: Any,
    ) -> None:
        self._lease = Lease(connect, name, ttl, wait, on_lost=self._told_lost, **options)
        self._on_lost = on_lost
        self._cancel_on_lost = cancel_on_lost
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._block: Optional[asyncio.Task[Any]] = None
        self._block_was_canceled = False
        self._tasks: set[asyncio.Future[Any]] = set()
        self._lost: Optional[asyncio.Event] = None

    # the same as of a Lease
    name = property(lambda self: self._lease.name)
    names = property(lambda self: self._lease.names)
    owner = property(lambda self: self._lease.owner)
    ttl = property(lambda self: self._lease.ttl)
    state = property(lambda self: self._lease.state)
    held = property(lambda self: self._lease.held)
    token = property(lambda self: self._lease.token)
    tokens = property(lambda self: self._lease.tokens)
    deadline = property(lambda self: self._lease.deadline)

    def remaining(self) -> float:
        """Seconds to the deadline; 0 if it is not held."""
        return self._lease.remaining()

    def check(self) -> None:
        """Raise Lost if the lease is lost, and Misuse if it was never held or is released."""
        self._lease.check()

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the lease is lost."""
        if self._lost is None:
            raise Misuse("the lease was not acquired")
        if self._lease.lost.is_set():
            self._lost.set()
        return self._lost

    async def acquire(self: _SelfAsyncLease) -> _SelfAsyncLease:
        """Acquire it, as the beginning of an async with block does."""
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        acquire = _in_thread(self._lease.acquire)
        try:
            await asyncio.shield(acquire)
        except asyncio.CancelledError:
            self._lease.cancel()
            await _finish(acquire)
            if acquire.exception() is None:
                await _finish(_in_thread(self._lease.release))
            raise
        return self

    async def release(self) -> bool:
        """Give it back; returns whether the server has confirmed it."""
        return bool(await _to_its_end(self._lease.release))

    async def guard(self, connection: Any) -> None:
        """Lease.guard(), also on a connection of an asynchronous driver, which is used in this loop."""
        driver, family = _unwrapped(connection)
        if not _is_async(driver):
            await _to_its_end(lambda: self._lease.guard(driver))
            return
        self.check()
        for request in self._lease._guards():
            try:
                cursor = _cursor(driver, family)
                await cursor.execute(request.statement(family))
                await cursor.close()
            except Exception as error:  # pylint: disable=broad-except
                raise self._lease._guard_error(error) from error

    async def __aenter__(self: _SelfAsyncLease) -> _SelfAsyncLease:
        await self.acquire()
        self._block = asyncio.current_task()
        if self.lost.is_set():
            self._cancel_block()  # it was lost when there was no block yet
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        block, self._block = self._block, None
        was_lost = self.state == "lost"
        by_us = self._block_was_canceled and kind is not None and issubclass(kind, asyncio.CancelledError)
        if self._block_was_canceled and block is not None and hasattr(block, "uncancel"):
            by_us &= block.uncancel() == 0  # else somebody else has cancelled it, too
        await self.release()
        if by_us or (was_lost and kind is None):
            raise self._lease._lost_error()

    def __repr__(self) -> str:
        return f"<dlock.AsyncLease {', '.join(self.names)!r} {self._lease._state}>"

    def _told_lost(self, lease: Lease) -> None:
        """In the keeper's thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            pass  # the loop is closed

    def _tell(self) -> None:
        assert self._lost is not None
        self._lost.set()
        try:
            if self._on_lost is not None:
                result = self._on_lost(self)
                if inspect.isawaitable(result):
                    task = asyncio.ensure_future(result)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        finally:
            self._cancel_block()  # also if on_lost raises

    def _cancel_block(self) -> None:
        if self._cancel_on_lost and self._block is not None and not self._block_was_canceled:
            self._block_was_canceled = True
            self._block.cancel()


async def _to_its_end(function: Callable[[], Any]) -> Any:
    """Run a function in a thread; if the task is cancelled meanwhile, wait for the thread's end."""
    future = _in_thread(function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _finish(future)
        future.exception()  # nobody else asks for it
        raise


async def _finish(future: asyncio.Future[Any]) -> None:
    """Wait for the end of a thread, even if the waiting task is cancelled meanwhile."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            pass
