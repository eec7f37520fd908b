# SQLAlchemy 1.4, over psycopg 2 and PyMySQL.
# speaks: postgres mariadb mysql
# needs: python3-sqlalchemy python3-psycopg2 python3-pymysql

from sqlalchemy import create_engine, func, select, text
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from cases import *

ADDRESS = URL.create("postgresql+psycopg2" if IS_POSTGRES else "mysql+pymysql", USER, host=HOST, port=PORT, database=DATABASE)

engine = create_engine(ADDRESS)
# by the same pool, but no statement begins a transaction
leases = engine.execution_options(isolation_level="AUTOCOMMIT")


def rows(connection, sql, *args):
    """As SQLAlchemy's text() names arguments."""
    for number in range(len(args)):
        sql = sql.replace("%s", f":a{number}", 1)
    result = connection.execute(text(sql), {f"a{number}": arg for number, arg in enumerate(args)})
    return result.all() if result.returns_rows else []


def transaction(_connection):
    return engine.begin()


def kind_of(error):
    if error.connection_invalidated:
        return "gone"
    return KINDS.get(error.orig.pgcode if IS_POSTGRES else error.orig.args[0], repr(error))


def close(connection):
    connection.detach()  # from the pool, which would keep it
    connection.close()


driver_cases(leases.connect, transaction, kind_of, rows=rows, close=close, reconnects=True)

# by "func", which gives each argument a type of SQLAlchemy's
connection = leases.connect()


def answer(call):
    return connection.scalar(select(call))


minute = timedelta(seconds=60.5)
for ttl in (30, 30.5, Decimal("31.25"), "40", minute.total_seconds()):
    ok(answer(func.dlock_acquire("func", "me", ttl, ttl)), f"func: {ttl!r}")
if IS_POSTGRES:
    ok(answer(func.dlock_acquire("func", "me", minute)), f"func: {minute!r}")
    same(len(answer(func.dlock_acquire_all(["f1", "f2"], "me", 30))), 2, "func: a list")
    claim = func.dlock_acquire_any(["f1", "f3"], "me", 30, 2).table_valued("name", "token")
    same([name for name, token in connection.execute(select(claim.c.name, claim.c.token))], ["f3"], "func: rows")
else:
    error = error_of(lambda: answer(func.dlock_acquire("func", "me", minute)))
    ok(kind_of(error) == "misuse" and "1970-01-01" in str(error), "func: a timedelta becomes a date")

# a guard in the ORM's transaction
token = answer(func.dlock_acquire("orm", "me", 30))
with Session(engine) as session, session.begin():
    session.execute(text(GUARD.replace("%s, %s, %s", ":name, :owner, :token")), {"name": "orm", "owner": "me", "token": token})
ok(True, "a guard in an ORM session")


def guard_in_autocommit():
    with leases.begin() as nothing:
        rows(nothing, GUARD, "orm", "me", token)


ok(error_of(guard_in_autocommit), "with AUTOCOMMIT, begin() begins no transaction")

# session leases and pools
pooled = create_engine(ADDRESS, pool_size=1, max_overflow=0)
with pooled.connect() as one:
    number = one.scalar(text(CONNECTION_ID))
    one.execute(select(func.dlock_acquire_session("pooled", "me", 30)))
with pooled.connect() as one:
    same(one.scalar(text(CONNECTION_ID)), number, "the pool keeps the connection")
    same(answer(func.dlock_acquire("pooled", "other", 30)), None, "and its session lease")
    one.invalidate()
ok(answer(func.dlock_acquire("pooled", "other", 30, 60)), "invalidate() ends both")
with create_engine(ADDRESS, poolclass=NullPool).connect() as one:
    one.execute(select(func.dlock_acquire_session("unpooled", "me", 30)))
ok(answer(func.dlock_acquire("unpooled", "other", 30, 60)), "without a pool, close() does")
done()
