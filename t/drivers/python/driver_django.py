# Django 3.2, over psycopg 2 and mysqlclient.
# speaks: postgres mariadb mysql
# needs: python3-django python3-psycopg2 python3-mysqldb

import io

import django
from django.conf import settings

from cases import *

ADDRESS = {
    "ENGINE": "django.db.backends.postgresql" if IS_POSTGRES else "django.db.backends.mysql",
    "HOST": HOST, "PORT": str(PORT), "USER": USER, "NAME": DATABASE}
ALIASES = ["default", "second", "third"]

settings.configure(
    DATABASES={alias: ADDRESS for alias in ALIASES} | {"kept": ADDRESS | {"CONN_MAX_AGE": 600}},
    INSTALLED_APPS=["django.contrib.contenttypes"], USE_TZ=True)
django.setup()

from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import connections, transaction
from django.db.utils import InterfaceError

unused = iter(ALIASES)


def rows(alias, sql, *args):
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, args)
        return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def atomic(alias):
    with transaction.atomic(using=alias):
        yield alias


def kind_of(error):
    if isinstance(error, InterfaceError):
        return "gone"
    if IS_POSTGRES:
        return KINDS.get(error.__cause__.pgcode or "57P01", repr(error))
    return KINDS.get(error.args[0], repr(error))


driver_cases(lambda: next(unused), atomic, kind_of, rows=rows, close=lambda alias: connections[alias].close())


def value(sql, *args, on="default"):
    return rows(on, "SELECT " + sql, *args)[0][0]


# CONN_MAX_AGE: "second" has met its end
request_started.send(sender=None)
same(value("1", on="second"), 1, "the next request connects anew")
for alias in ("third", "kept"):
    ok(value("dlock_acquire_session(%s, %s, %s)", alias, "request", 30, on=alias), f"{alias}: a session lease")
request_finished.send(sender=None)
ok(value("dlock_acquire(%s, %s, %s, %s)", "third", "other", 30, 60), "third: it ends with the request")
same(value("dlock_acquire(%s, %s, %s)", "kept", "other", 30), None, "kept: with CONN_MAX_AGE it does not")
connections["kept"].close()
ok(value("dlock_acquire(%s, %s, %s, %s)", "kept", "other", 30, 60), "kept: close() ends it")

# the tools
def tool(*args, **options):
    out = io.StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue()


value("dlock_acquire(%s, %s, %s)", "migrated", "me", 60)
tool("migrate", verbosity=0)
models = tool("inspectdb", include_views=True)
ok("DjangoMigrations" in models and "Lease" not in models and "Waiters" not in models, "inspectdb: nothing of dlock")
tool("flush", interactive=False, verbosity=0)
owner = value("dlock_owner(%s)" if IS_POSTGRES else "CONVERT(dlock_owner(%s) USING utf8mb4)", "migrated")
same(owner, "me", "migrate and flush leave leases alone")
if IS_POSTGRES:
    from django.contrib.postgres.operations import CreateExtension
    with connections["default"].schema_editor() as editor:
        CreateExtension("dlock").database_forwards("any", editor, None, None)
    ok(True, "CreateExtension() in a migration: it is there already")
tool("migrate", "contenttypes", "zero", verbosity=0)
rows("default", "DROP TABLE django_migrations")
done()
