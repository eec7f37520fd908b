# The scenarios that every engine has to pass, on MariaDB or MySQL, as the
# argument says.  Started in the top folder, where the library has been built.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my $engine = Engines::start(@ARGV);
Scenarios::test($engine, glob('t/scenarios/selftest/*.scn'));
my $numbers = Scenarios::test($engine, glob('t/scenarios/*.scn'));
# 21, a failover, is each engine's own
is(join(' ', grep { !$numbers->{$_} } 1 .. 24), '21', 'no scenario of the list is missing');
$engine->stop;
done_testing();
