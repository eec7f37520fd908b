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

# The row of a living session is written anew by the time to live that it has now,
# for others that may read it.
$session = $engine->client('session');
like($session->value(q{SELECT dlock_acquire_session('one', 'own', 600)}), qr/^\d+$/, 'a long one');
is($session->value(q{SELECT dlock_renew('one', 'own', 1)}), 1, 'made short');
my $writes = q{SELECT writes FROM dlock.lease_table WHERE name = 'one'};
my $before = $engine->control->value($writes);
ok(Scenarios::Run::until(sub { $engine->control->value($writes) > $before + 1 }), 'is written again and again');
is($session->value(q{SELECT dlock_owner('one')}), 'own', 'and held');
$session->quit;

$engine->stop;
done_testing();
