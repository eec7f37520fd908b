# A library that was built for another server is refused, with a message: that for
# PostgreSQL has the same name.  The right one in its place works, without a restart.  The
# kind of server is the argument.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $pg_config = $ENV{PG_CONFIG} // '/usr/lib/postgresql/15/bin/pg_config';
plan skip_all => 'the development files of PostgreSQL are not at hand' if !-e `'$pg_config' --pgxs` =~ s/\n//r;

# that of this run, if it has one
my $bin = $ENV{TEST_BIN};
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
if (!$bin)
{
	chomp($bin = `dev/overlay '$pg_config' $dir 2>$dir/log`);
	die `cat $dir/log` if $bin eq '';
	chmod 0755, $dir;
}
my $library = `'$bin/pg_config' --pkglibdir` =~ s{\n}{/dlock.so}r;

my $engine = Engines::start($kind);
my $plugins = "$engine->{dir}/plugins";
is($engine->control->outcome(q{SELECT dlock_acquire('kept', 'me', 600) > 0}), '1', 'a lease is held');
is(system("$engine->{dir}/mysql --defaults-file=$engine->{dir}/client.cnf <mysql_udf/uninstall.sql"), 0, 'dlock is removed');
$engine->restart;

is(system('install', '-m', '755', $library, "$plugins/dlock.so"), 0, 'there is the library for PostgreSQL');
my $said = `@{[ $engine->feeding('mysql_udf/install.sql') ]} 2>&1`;
like($said, qr/^ERROR 1126 .*dlock\.so.*undefined symbol/m, 'it is not loaded, and the error says why');
is($engine->control->outcome(q{SELECT COUNT(*) FROM mysql.func WHERE dl = 'dlock.so'}), '0', 'no function is made');

is(system('install', '-m', '755', $ENV{DLOCK_LIBRARY} // 'mysql_udf/dlock.so', "$plugins/dlock.so"), 0, 'the right one comes');
$engine->feed('mysql_udf/install.sql');
is($engine->control->outcome(q{SELECT dlock_acquire('x', 'me', 600) > 0}), '1', 'and grants');
$engine->stop;
done_testing();
