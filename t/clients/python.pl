# The client for Python, clients/python: the cases of clients/CONTRACT.md on a server of
# the kind that is the argument, with each driver.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Cases;

Cases::run($ARGV[0],
	also => sub {
		Cases::program($_->[0], '/usr/bin/python3', "$FindBin::RealBin/python/$_->[1]", @_)
		  for [ 'what only Python has', 'more.py' ], [ 'many leases', 'many.py' ], [ 'what is around it', 'around.py' ];
	},
	command => [ '/usr/bin/python3', "$FindBin::RealBin/python/agent.py" ],
	drivers => {
		postgres => {
			psycopg => ['python3-psycopg'],
			psycopg2 => ['python3-psycopg2'],
			psycopg_async => ['python3-psycopg'] },
		mariadb => { pymysql => ['python3-pymysql'], pymysql_async => ['python3-pymysql'], mysqlclient => ['python3-mysqldb'] },
		mysql => { pymysql => ['python3-pymysql'] } });
