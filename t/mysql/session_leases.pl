# What the library remembers of the leases of a connection.  The kind of server is
# the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $session = $engine->client('session');

# Tokens grow by name: of names that have none in common they may be equal, as the
# first are in a new run of the server.
my %token = map { $_ => $session->value("SELECT dlock_acquire_session('$_', 'own', 600)") } qw(one two three);
my ($first, @others) = values %token;
is(scalar(grep { $_ == $first } @others), 2, 'three session leases with equal tokens') or note(join(' ', %token));
$session->quit;
ok(Scenarios::Run::until(sub { $engine->control->value('SELECT count(*) FROM dlock.locks') == 0 }),
	'all of them end with their connection');

$engine->stop;
done_testing();
