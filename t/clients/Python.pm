# Python.pm: the drivers for Python that the client is tried with, by kind of server, as
# Cases::run() has them.

package Python;

use strict;
use warnings;

our %drivers = (
	postgres => {
		psycopg => ['python3-psycopg'],
		psycopg2 => ['python3-psycopg2'],
		psycopg_async => ['python3-psycopg'] },
	mariadb => { pymysql => ['python3-pymysql'], pymysql_async => ['python3-pymysql'], mysqlclient => ['python3-mysqldb'] },
	mysql => { pymysql => ['python3-pymysql'] });

1;
