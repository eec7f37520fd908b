# Plain.pm: a server with what plain/dlock.sql makes, and without the extension.
#
#   my $node = Plain::start('name', $settings);   its database "plain" belongs to the role
#                                                 "dbo", which is no superuser; "app" and
#                                                 "other" are plain roles
#   Plain::session($node, 'app')                  a Sessions::Session of a role
#   Plain::run($node, 'dbo', 'plain/uninstall.sql')   run a file; its messages

package Plain;

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;

our $root = abs_path("$FindBin::RealBin/..");

sub start
{
	my ($name, $settings, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	$node->start;
	$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN") for qw(dbo app other);
	create($node, 'plain');
	return $node;
}

# Make a database, and run the file in it.
sub create
{
	my ($node, $database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER dbo");
	run($node, 'dbo', 'plain/dlock.sql', $database);
	return;
}

sub connstr
{
	my ($node, $role, $database) = @_;
	return $node->connstr($database // 'plain') . " user=$role";
}

sub run
{
	my ($node, $role, $file, $database) = @_;
	my $path = $file =~ m{^/} ? $file : "$root/$file";
	my ($ok, $out) = psql_run('-v', 'ON_ERROR_STOP=1', '-d', connstr($node, $role, $database), '-f', $path);
	die "could not run $file: $out\n" unless $ok;
	return $out;
}

# Run psql: whether it succeeded, and what it printed.
sub psql_run
{
	my (@arguments) = @_;
	my $pid = open(my $pipe, '-|') // die "could not fork: $!\n";
	if ($pid == 0)
	{
		open(STDERR, '>&', \*STDOUT) && exec 'psql', '-XAtq', @arguments;
		POSIX::_exit(127);
	}
	my $out = join('', <$pipe>);
	return (close($pipe) ? 1 : 0, $out);
}

sub session
{
	my ($node, $role, $name) = @_;
	return Sessions::Session->new(connstr($node, $role), $name // $role);
}

1;
