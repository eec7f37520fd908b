# What the client for Python meets: tracers, gevent, uWSGI, Prometheus, and the end of the
# interpreter.  Prints TAP; its arguments are the drivers.
# needs: python3-gevent python3-wrapt python3-prometheus-client uwsgi-core uwsgi-plugin-python3 *

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

DRIVERS = sys.argv[1:]
PORT = int(os.environ["DLOCK_PORT"])

sys.argv = ["agent.py", DRIVERS[0], str(PORT)]
sys.stdin = open(os.devnull)
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from tap import Network, done, ok, same, until
import agent
import dlock

PATIENCE = 180
# what a program here begins with
HEAD = f"""
import os, sys
sys.argv = ["agent.py", {{driver!r}}, {{port!r}}]
commands, sys.stdin = sys.stdin, open(os.devnull)
sys.path.insert(0, {HERE!r})
import threading, time
import agent, dlock
def renewed(lease):
    before, end = lease.deadline, time.monotonic() + {PATIENCE}
    while lease.held and lease.deadline == before and time.monotonic() < end:
        time.sleep(0.02)
    return lease.held and lease.deadline > before
"""


def run(driver, program, before=""):
    """What a program says."""
    ran = subprocess.run([sys.executable, "-c", before + HEAD.format(driver=driver, port=str(PORT)) + program],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE)
    return ran.stdout.strip()


def is_free(name):
    driver, agent.DRIVER = agent.DRIVER, agent.DRIVER.replace("_async", "")
    connection = agent.connect(PORT, autocommit=True)
    agent.DRIVER = driver
    cursor = connection.cursor()
    cursor.execute("SELECT dlock_is_free(%s)", (name,))
    ((answer,),) = cursor.fetchall()
    connection.close()
    return bool(answer)


def tracers(driver):
    """Connections and cursors in proxies, as those of OpenTelemetry and Datadog are."""
    import wrapt

    class TracedCursor(wrapt.ObjectProxy):
        def execute(self, *args, **kwargs):
            return self.__wrapped__.execute(*args, **kwargs)

    class TracedConnection(wrapt.ObjectProxy):
        def cursor(self, *args, **kwargs):
            return TracedCursor(self.__wrapped__.cursor(*args, **kwargs))

    class Plain:
        """One that is no subclass of anything."""

        def __init__(self, wrapped):
            self.__wrapped__ = wrapped

    def traced():
        made = agent.connect()
        if not asyncio.iscoroutine(made):
            return Plain(TracedConnection(made))

        async def connected():
            return Plain(TracedConnection(await made))

        return connected()

    with dlock.Lease(traced, f"traced-{driver}", 60, connect_timeout=PATIENCE) as lease:
        ok(lease.held, f"{driver}: a traced connection")
        if driver.endswith("_async"):
            return
        connection = traced()
        lease.guard(connection)
        connection.__wrapped__.commit()
        connection.__wrapped__.close()
        ok(lease.held, f"{driver}: a guard on one")


GEVENT = """
try:
    with dlock.Lease(agent.connect, "gevent-" + agent.DRIVER, 6, connect_timeout=180) as lease:
        print("renewed" if renewed(lease) else "lost")
except dlock.Misuse as error:
    print("misuse", "greenlets" in str(error))
"""

WAIT_CALLBACK = """
import gevent.socket, psycopg2.extensions
def wait(connection):
    while (state := connection.poll()) != psycopg2.extensions.POLL_OK:
        wait_for = gevent.socket.wait_read if state == psycopg2.extensions.POLL_READ else gevent.socket.wait_write
        wait_for(connection.fileno())
psycopg2.extensions.set_wait_callback(wait)
"""


def greenlets(driver):
    patch = "from gevent import monkey; monkey.patch_all()\n"
    if driver in ("psycopg2", "mysqlclient", "psycopg_async"):
        same(run(driver, GEVENT, patch), "misuse True", f"{driver}: with gevent is misuse, since it blocks")
    else:
        same(run(driver, GEVENT, patch), "renewed", f"{driver}: with gevent")
    if driver == "psycopg2":
        same(run(driver, WAIT_CALLBACK + GEVENT, patch), "renewed", f"{driver}: with gevent and a wait callback")


UWSGI = """
lease = None
def application(environ, start):
    global lease
    start("200 OK", [])
    if environ["PATH_INFO"] == "/acquire":
        lease = dlock.Lease(agent.connect, NAME, 6, connect_timeout=180).acquire()
    return [str(lease.deadline).encode() if lease.held else lease.state.encode()]
"""


def uwsgi(driver):
    for option in ("--enable-threads", None):
        name = f"uwsgi-{driver}-{option}"
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/app.py", "w") as app:
                app.write(HEAD.format(driver=driver, port=str(PORT)) + UWSGI.replace("NAME", repr(name)))
            with open(f"{folder}/log", "w") as log:
                server = subprocess.Popen(["uwsgi", "--plugin", "python3", "--http-socket", f"{folder}/socket", "--wsgi-file", f"{folder}/app.py",
                                           "--die-on-term", *([option] if option else [])], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

            def get(path):
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(f"{folder}/socket")
                    client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                    answer = b"".join(iter(lambda: client.recv(4096), b""))
                return answer.split(b"\r\n\r\n", 1)[1].decode()

            def text():
                with open(f"{folder}/log") as log:
                    return log.read()

            until(lambda: "spawned uWSGI" in text() or server.poll() is not None)
            before = get("/acquire")
            ok(re.fullmatch(r"[0-9.]+", before), f"{driver}: uWSGI: a lease")
            if option:
                ok(until(lambda: get("/") != before) and get("/") != "lost", f"{driver}: uWSGI with threads renews between requests")
            else:
                # a request lets the threads run, so there is none meanwhile
                ok(until(lambda: is_free(name)) and get("/") == "lost", f"{driver}: without threads it is lost between requests")
            same("RuntimeWarning: uWSGI runs no thread" in text(), not option, f"{driver}: and warns of that: {option}")
            server.terminate()
            server.wait()


EXIT = """
leases = [dlock.Lease(lambda: agent.connect(int(port)), f"exit-{agent.DRIVER}-{port}", 60, connect_timeout=180).acquire()
          for port in sys.argv.pop().split(",")]
print("held", flush=True)
commands.readline()
"""


def at_exit(driver):
    """All leases are released at the same time, and not one after the other."""
    networks = [Network(agent.HOST, PORT) for _ in range(3)]
    program = HEAD.format(driver=driver, port=str(PORT)).replace("]\ncommands", ", sys.argv[1]]\ncommands") + EXIT
    process = subprocess.Popen([sys.executable, "-c", program, ",".join(str(network.port) for network in networks)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    for network in networks:
        network.silence()
    process.stdin.close()
    same(process.wait(), 0, f"{driver}: a process with three leases and silent servers ends")
    heard = sorted(event for network in networks for event in network.heard)
    first_end = min(time for time, what in heard if what == "end")
    same([what for time, what in heard if time < first_end], ["release"] * 3, f"{driver}: it releases all before it gives up one")


def prometheus(driver):
    """The example in the readme."""
    readme = os.path.join(os.path.dirname(dlock.__file__), "README.md")
    with open(readme) as text:
        (example,) = [block for block in re.findall("```python\n(.*?)```", text.read(), re.S) if "prometheus_client" in block]
    said = run(driver, "connect = agent.connect\n" + example + """
with client, client.lease("prometheus", 3, 60) as lease:
    renewed(lease)
    inside = [prometheus_client.REGISTRY.get_sample_value("dlock_leases_held", {"name": "prometheus"})]
end = time.monotonic() + 180
sample = prometheus_client.REGISTRY.get_sample_value
while sample("dlock_lease_events_total", {"kind": "released", "name": "prometheus"}) is None and time.monotonic() < end:
    time.sleep(0.02)
print(inside, sample("dlock_leases_held", {"name": "prometheus"}), sample("dlock_lease_events_total", {"kind": "acquired", "name": "prometheus"}),
      sample("dlock_renewal_seconds_count") >= 1)
""")
    same(said, "[1.0] 0.0 1.0 True", f"{driver}: the example for Prometheus counts")


for number, driver in enumerate(DRIVERS):
    agent.DRIVER = driver
    # what has nothing to do with the driver
    cases = [tracers, greenlets] + ([uwsgi, at_exit, prometheus] if number == 0 else [])
    for case in cases:
        if os.environ.get("ONLY_CASE", case.__name__) == case.__name__:
            case(driver)
done()
