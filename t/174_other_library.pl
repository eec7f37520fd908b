# A library that was built for another server is refused, with a message: dlock's own for
# MySQL and MariaDB, which has the same name, and that for another PostgreSQL.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = "$FindBin::RealBin/..";
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = PostgreSQL::Test::Cluster->new('other_library');
$node->init;
$node->start;

# What the server says of a library when it is to load it, at once and at its start.
sub refused
{
	my ($library, $says, $title) = @_;

	my ($status, undef, $error) = $node->psql('postgres', "LOAD '$library'");
	isnt($status, 0, "$title: is not loaded");
	like($error, $says, "$title: the session is told why");
	# the last one counts
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$library'");
	$node->stop;
	my $offset = -s $node->logfile;
	ok(!$node->start(fail_ok => 1), "$title: no server starts with it");
	like(slurp_file($node->logfile, $offset), $says, "$title: and the log says why");
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
	$node->start;
	return;
}

SKIP:
{
	skip 'the development files of no client library of MySQL or MariaDB are at hand', 1
	  if system('command -v mariadb_config mysql_config >/dev/null') != 0;
	# that of this run, if it has one
	my $library = "$tree/mysql_udf/dlock.so";
	if (!-e $library)
	{
		mkdir "$dir/mysql" or die "could not make $dir/mysql: $!\n";
		system_or_bail('make', '-s', '-C', "$dir/mysql", '-f', "$tree/mysql_udf/Makefile");
		$library = "$dir/mysql/dlock.so";
	}
	refused($library, qr/incompatible library ".*dlock\.so": missing magic block/,
		'the library for MySQL and MariaDB');
}

SKIP:
{
	my $pg_config = $ENV{OLD_PG_CONFIG} // '/usr/lib/postgresql/15/bin/pg_config';
	my ($old) = -x $pg_config ? `'$pg_config' --version` =~ /(\d+)/ : ();
	my ($new) = `pg_config --version` =~ /(\d+)/;

	skip "no other PostgreSQL than $new is at hand (OLD_PG_CONFIG)", 1 if !defined $old || $old eq $new;
	my ($bin, $log) = run_command([ "$tree/dev/overlay", $pg_config, "$dir/pg" ]);
	die "cannot build dlock for PostgreSQL $old: $log" if !$bin;
	chomp(my $folder = `'$bin/pg_config' --pkglibdir`);
	# what the linker finds missing it says first
	refused("$folder/dlock.so", qr/incompatible library ".*dlock\.so": version mismatch|could not load library ".*dlock\.so": .*undefined symbol/,
		"the library for PostgreSQL $old");
}

# and nothing of it stays
is($node->safe_psql('postgres', 'SELECT 1'), '1', 'the server goes on');
done_testing();
