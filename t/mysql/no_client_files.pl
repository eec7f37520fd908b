# The library logs in to its own server with nothing but what it has inside: without the
# files that its client library would load, as on a machine that has none.  The kind of
# server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
$ENV{SERVER_WRAPPER} = 'env MARIADB_PLUGIN_DIR=/nowhere ' . ($ENV{SERVER_WRAPPER} // '');
my $engine = Engines::start($kind);

cmp_ok($engine->control->value("SELECT dlock_acquire('name', 'owner', 60)"), '>', 0, 'a lease is taken');
is($engine->control->value("SELECT dlock_release('name', 'owner')"), 1, '... and released');

done_testing();
