# What the tests of the client for Python share: TAP, polling, and a network that goes wrong.

import os
import select
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../clients/python"))

_count = _failed = 0


def ok(passed, what):
    global _count, _failed
    _count += 1
    _failed += not passed
    print(f"{'ok' if passed else 'not ok'} {_count} - {what}", flush=True)


def same(is_, wanted, what):
    ok(is_ == wanted, what)
    if is_ != wanted:
        print(f"#   got {is_!r}, wanted {wanted!r}", flush=True)


def done():
    print(f"1..{_count}", flush=True)
    sys.exit(1 if _failed else 0)


def error_of(call):
    try:
        call()
    except Exception as error:
        return error
    return None


def until(is_so):
    end = time.monotonic() + 180
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return is_so()


class Network:
    """
    Stands between clients and a server.  "silence" swallows what its connections say from then on.
    A renewal that has "poison" in it becomes the call of a function that is not there.
    """

    def __init__(self, host, port):
        self._server = (host, port)
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._pairs = []  # a client's socket, the server's
        self._silent = set()
        self.poison = None
        self.heard = []  # when a client asked for a release, and when its connection ended
        threading.Thread(target=self._run, name="network", daemon=True).start()

    def silence(self):
        self._silent |= {end for pair in self._pairs for end in pair}

    def cut(self):
        for pair in list(self._pairs):
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _run(self):
        while True:
            ready, _, _ = select.select([self._listener] + [end for pair in self._pairs for end in pair], [], [], 0.2)
            for end in ready:
                if end is self._listener:
                    client = end.accept()[0]
                    pair = (client, socket.create_connection(self._server))
                    for one in pair:
                        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._pairs.append(pair)
                    continue
                pair = next((pair for pair in self._pairs if end in pair), None)
                if pair is None:
                    continue
                try:
                    data = end.recv(65536)
                    if end is pair[0] and b"dlock_release" in data:
                        self.heard.append((time.monotonic(), "release"))
                    if end is pair[0] and self.poison and self.poison in data:
                        data = data.replace(b"dlock_renew_many", b"dlock_renew_nobo")
                    if data and end not in self._silent:
                        pair[pair[0] is end].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    self.heard.append((time.monotonic(), "end"))
                    self._pairs.remove(pair)
                    for one in pair:
                        one.close()
