# The scenarios that every engine has to pass, on PostgreSQL.  SCENARIOS in the environment
# names those to run, by file, instead of all.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Engines;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scenarios;
use Test::More;

# what is no scenario is an error, and not left out
for my $text ("== x\nsessions a\na SELECT 1\n", "sessions a\n", "== x\n   row\n", "== x\nsessions a\na: SELECT 1 => 1\n   2\n",
	"== x\nsessions a\na: SELECT 1\nset lock_delay 1\n", "== x\nonly oracle: booleans are 1 and 0\nsessions a\na: SELECT 1 => 1\n", "== x\nonly postgres:\nsessions a\na: SELECT 1 => 1\n",
	"== x\nonly postgres: nobody has listed this\nsessions a\na: SELECT 1 => 1\n", "== x\nsessions a\n", '')
{
	ok(!eval { Scenarios::read_file(\$text) }, $text =~ s/\n/ \/ /gr);
}

my $engine = Engines::start('postgres');
if ($ENV{SCENARIOS})
{
	Scenarios::test($engine, split ' ', $ENV{SCENARIOS});
}
else
{
	Scenarios::test($engine, glob("$FindBin::RealBin/scenarios/selftest/*.scn"));
	my $numbers = Scenarios::test($engine, glob("$FindBin::RealBin/scenarios/*.scn"));
	Scenarios::check_numbers($numbers, 21 => [ '453_failover.pl', '390_sync_wait.pl' ]);
}
$engine->stop;
done_testing();
