# The loop of README.md, as it stands there, with a driver for each kind of server.
# speaks: postgres mariadb mysql
# needs: python3-psycopg2 python3-pymysql

import pathlib
import re
import time

from cases import *


def connect():
    if IS_POSTGRES:
        import psycopg2
        connection = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE)
        connection.autocommit = True
        return connection
    import pymysql
    return pymysql.connect(host=HOST, port=PORT, user=USER, database=DATABASE, autocommit=True, connect_timeout=180)


readme = pathlib.Path(__file__).parents[3] / "README.md"
blocks = re.findall(r"^```python\n(.*?)^```", readme.read_text(encoding="utf-8"), re.M | re.S)
ok(len(blocks) == 1, "the readme has one loop")
loop = {}
exec(compile(blocks[0], str(readme), "exec"), loop)
run = loop["run"]

connection = connect()
other = connect()


def ask(call, *arguments):
    with other.cursor() as cursor:
        cursor.execute("SELECT " + call, arguments)
        return cursor.fetchone()[0]


# a job that takes longer than its lease: 8 steps of 0.3 s with a lease of 1 s
tokens = []
free = []


def step(token):
    time.sleep(0.3)
    tokens.append(token)
    free.append(ask("dlock_acquire(%s, %s, %s)", "loop", "other", 30))


# on a machine that is held up for longer than the lease it may be lost
for attempt in range(20):
    tokens.clear()
    free.clear()
    if run(connection, "loop", 1, [step] * 8) == "done":
        break
    ask("dlock_release_all(%s)", "other")
same(len(tokens), 8, "a job that takes longer than the ttl is done")
same(len(set(tokens)), 1, "under one lease, whose token each step has")
same(set(free), {None}, "which nobody else gets meanwhile")
same(bool(ask("dlock_is_free(%s)", "loop")), True, "and which is released")

ask("dlock_acquire(%s, %s, %s)", "loop", "other", 600)
same(run(connection, "loop", 30, [step]), "busy", "somebody else has it")
same(len(tokens), 8, "and no step is run")
ask("dlock_release(%s, %s)", "loop", "other")

# lost after the first step: its deadline passes, and another owner takes it
ran = []


def slow_step(token):
    ran.append(token)
    # in line, until the loop's lease is over
    while not ask("dlock_acquire(%s, %s, %s, %s)", "loop", "other", 600, 5):
        pass


same(run(connection, "loop", 1, [slow_step] * 3), "lost", "a lease that is lost")
same(len(ran), 1, "ends the loop after the step")
same(ask("dlock_release(%s, %s)", "loop", "other") in (True, 1), True, "and is not released for its new holder")


def failing_step(token):
    raise KeyError("no such thing")


same(type(error_of(lambda: run(connection, "loop", 30, [failing_step]))), KeyError, "an error of a step is passed on")
same(bool(ask("dlock_is_free(%s)", "loop")), True, "after the release")
done()
