# The scenarios, on what plain/dlock.sql makes.  Plain.pm lists those that it does not play,
# and which row of the table in doc/plain.md says why.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Engines;
use Plain;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scenarios;
use Test::More;

# each reason is a row of the table
my ($table) = slurp_file("$FindBin::RealBin/../doc/plain.md") =~ /^\| rule .*?\n\n/ms ? $& : '';
like($table, qr/^\| \Q$_\E.*? \| (?:weaker|absent) \|/m, "the table has \"$_\"") for Plain::rows();

my $engine = Engines::start('plain');
Scenarios::test($engine, glob("$FindBin::RealBin/scenarios/*.scn"));
$engine->stop;
done_testing();
