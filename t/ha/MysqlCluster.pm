# MysqlCluster.pm: what the clusters of MariaDB and MySQL have in common; see Cluster.pm.

package MysqlCluster;

use strict;
use warnings;

use parent 'Cluster';

use Files;
use Machines;

sub url { return "mysql://app\@127.0.0.1:3307/app?default-file=$_[0]{work}/app.cnf" }

sub connection { return '127.0.0.1:3307' }

# It has its files in a place of the caller's.
sub haproxy { return '/etc/haproxy/haproxy.cfg' }

# The library into the servers' folder for plugins, and HAProxy's files.
sub install_for
{
	my ($self, $work, $plugins, @haproxy) = @_;
	$self->{work} = $work;
	mkdir "$work/plugin" or die "$work/plugin: $!\n";
	Machines::must('install', '-m', '755', 'mysql_udf/dlock.so', "$work/plugin/dlock.so");
	Machines::add_to($plugins, "$work/plugin");
	write_text("$work/app.cnf", "[dlock]\npassword = change-me-2\n");
	mkdir "$work/haproxy" or die "$work/haproxy: $!\n";
	Machines::must('cp', @haproxy, "$work/haproxy");
	Machines::must('mount', '--bind', "$work/haproxy", '/etc/haproxy');
	return;
}

# What there is before install.sql: databases, and the accounts of programs, of HAProxy's
# check, and of the clients' machine.
sub accounts
{
	return q{CREATE DATABASE app; CREATE DATABASE scenarios;
		CREATE USER app@'%' IDENTIFIED BY 'change-me-2'; GRANT ALL ON app.* TO app@'%';
		CREATE USER haproxy@'%' IDENTIFIED BY 'change-me-1';
		CREATE USER root@'10.77.0.9'; GRANT ALL ON *.* TO root@'10.77.0.9'};
}

# And after it.
sub grants { return q{GRANT EXECUTE ON dlock.* TO app@'%'; GRANT SELECT ON dlock.locks TO app@'%'} }

1;
