# Alembic's autogenerate, beside dlock.
# speaks: postgres mariadb mysql
# needs: python3-alembic python3-psycopg2 python3-pymysql

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import ProgrammingError

from cases import *

ADDRESS = URL.create("postgresql+psycopg2" if IS_POSTGRES else "mysql+pymysql", USER, host=HOST, port=PORT, database=DATABASE)
OURS = (None, "public") if IS_POSTGRES else (None, DATABASE)

metadata = MetaData()
Table("alembic_item", metadata, Column("id", Integer, primary_key=True))


def include_name(name, type_, _parents):
    """For context.configure() in env.py."""
    return type_ != "schema" or name in OURS


def differences(connection, **options):
    """What autogenerate would put into a migration."""
    return [(what, getattr(table, "fullname", table)) for what, table, *_ in
            compare_metadata(MigrationContext.configure(connection, opts=options), metadata)]


with create_engine(ADDRESS, future=True, isolation_level="AUTOCOMMIT").connect() as connection:
    same(differences(connection), [("add_table", "alembic_item")], "what is missing is found")
    operations = Operations(MigrationContext.configure(connection))
    operations.create_table("alembic_item", Column("id", Integer, primary_key=True))
    same(differences(connection), [], "autogenerate sees nothing of dlock")
    same(differences(connection, include_schemas=True, include_name=include_name), [],
         "nor with include_schemas, if include_name names the schemas")
    if IS_POSTGRES:
        same(differences(connection, include_schemas=True), [("remove_table", "dlock_private.lease_table")],
             "else it would drop the lock table")
        ok(isinstance(error_of(lambda: operations.drop_table("lease_table", schema="dlock_private")), ProgrammingError),
           "which the server refuses")
        operations.execute("CREATE EXTENSION IF NOT EXISTS dlock")
        ok(True, "a migration may ask for the extension that is there")
    operations.drop_table("alembic_item")
done()
