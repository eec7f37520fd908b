# The scenarios that every engine has to pass, on MariaDB or MySQL, as the
# argument says.  Started in the top folder, where the library has been built.  SCENARIOS in
# the environment names those to run, by file, instead of all.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my $engine = Engines::start(@ARGV, Engines::performance_schema($ARGV[0]));
# who waits for a guard's end is not to give up on a busy machine
$engine->write_settings(lock_timeout => 300);
if ($ENV{SCENARIOS})
{
	Scenarios::test($engine, split ' ', $ENV{SCENARIOS});
}
else
{
	Scenarios::test($engine, glob('t/scenarios/selftest/*.scn'));
	my $numbers = Scenarios::test($engine, glob('t/scenarios/*.scn'));
	Scenarios::check_numbers($numbers,
		21 => [ 'mysql/cluster_load.pl', $engine->kind eq 'mysql' ? 'mysql/group_replication.pl' : () ]);
}
$engine->stop;
done_testing();
