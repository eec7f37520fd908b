# A server that has few threads for all its connections: one group of them, of which
# one at a time may work.  Waiters for leases do not keep other connections from going
# on: idle ones, callers of dlock, and the library's own connection.  Nothing is
# timed: the test waits for each answer while all waiters wait, whose own time is far
# off.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

use constant WAITERS => 20;

my ($kind) = @ARGV;
my @pool = $kind eq 'mariadb'
  # a thread that has worked for so long, in milliseconds, would be taken for one
  # that waits, and the group be given another
  ? ('--thread-handling=pool-of-threads', '--thread-pool-size=1', '--thread-pool-stall-limit=600000')
  : ('--plugin-load-add=thread_pool.so', '--thread-pool-size=1', '--thread-pool-query-threads-per-group=1',
	'--thread-pool-stall-limit=600', '--performance-schema=ON');
my $engine = Engines::start($kind, @pool);
my $admin = $engine->control;

sub sql { return $admin->value($_[0]) }
sub attempt { return $admin->outcome($_[0]) }

is(sql('SELECT @@thread_handling'), $kind eq 'mariadb' ? 'pool-of-threads' : 'loaded-dynamically', 'a pool of threads');

my $client = $engine->client('client');
my @waiters = map { $engine->client("w$_") } 1 .. WAITERS;
my $token = sql(q{SELECT dlock_acquire('held', 'a', 3600)});

# All kinds of waits, each for an hour.
my @waits = (
	q{dlock_acquire('held', ME, 60, 3600)}, q{dlock_acquire_shared('held', ME, 60, 3600)},
	q{dlock_wait('held', 3600)}, q{dlock_acquire_all('["held", "other"]', ME, 60, 3600)},
	q{dlock_acquire_session('held', ME, 60, 3600)});
for my $i (0 .. $#waiters)
{
	my $wait = $waits[ $i % @waits ] =~ s/ME/'$waiters[$i]{name}'/r;
	$waiters[$i]->send("SELECT $wait");
	ok(Scenarios::Run::until(sub { $engine->is_waiting($waiters[$i]) }), "$waiters[$i]{name} waits") or last;
}

sub all_wait
{
	my ($what, @who) = @_;
	my @answered = grep { $_->is_answered } @who;
	is(join(' ', map { $_->{name} } @answered), '', "$what while all of them wait");
	return;
}
is($client->value('SELECT 1'), 1, 'SELECT 1 is answered');
all_wait('it is', @waiters);
like($client->value(q{SELECT dlock_acquire('free', 'c', 60)}), qr/^\d+$/, 'a free name is granted');
is($client->value(q{SELECT dlock_renew('free', 'c', 60)}), 1, 'renewed');
is($client->value(q{SELECT dlock_release('free', 'c')}), 1, 'and released');
is($client->value(q{SELECT count(*) FROM dlock.locks}), 1, 'the view is read');
all_wait('they are', @waiters);
my $new = $engine->client('new');
is($new->value('SELECT 2'), 2, 'a new connection is let in');
all_wait('it is', @waiters);

# There six seconds are the most, after which the others would go on all the same.
cmp_ok(sql('SELECT sum(user_lock_waits) FROM performance_schema.tp_thread_group_stats'), '>=', WAITERS,
	'the pool was told of all waits') if $kind eq 'mysql';

# KILL of some, and clients that go.
my @killed = splice(@waiters, 0, 5);
my @gone = splice(@waiters, 0, 5);
$engine->kill_connection($_) for @killed;
ok(Scenarios::Run::until(sub { !grep { !$_->is_answered } @killed }), 'who is killed is told');
$_->kill for @gone;
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == @waiters }), 'and who is gone leaves');
all_wait('they do', @waiters);

# Those who are left are served.
is(sql("SELECT dlock_release('held', 'a', $token)"), 1, 'the lease is given back');
my $served = 0;
while ($served < @waiters)
{
	my @answered;
	Scenarios::Run::until(sub { @answered = grep { $_->is_busy && $_->is_answered } @waiters }) or last;
	for my $waiter (@answered)
	{
		like($waiter->outcome, qr/^(\d+|\[\d+, \d+\])$/, "$waiter->{name} has waited");
		$client->value("SELECT dlock_release_all('$waiter->{name}')");
		$served++;
	}
}
is($served, scalar(@waiters), 'all of them');
$_->quit for @waiters, @killed, $client, $new;
$engine->stop;
done_testing();
