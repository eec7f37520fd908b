# Everything that ends a wait besides the lease: KILL QUERY, KILL, a statement's
# time-out, a client that is gone, the end of the wait's own time, SHUTDOWN.  The
# waiter is told so and has taken nothing, and the others stay in line as they were.
# A line of fifty costs the server one connection of the library.
#
# The time until the waiter is told is noted, not tested: the manual says a tenth of a
# second, which is true of a machine with time to spare.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Wire;

use constant WAITERS => 50;
use constant TRIES => 5;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);

sub connected { return Wire::MySQL->of($engine, $_[0]) }

my $admin = connected('root');
my $holder = connected('tester');

sub sql { return $admin->value($_[0]) }

# Connections that wait for the lease, as they stand in line.
sub line
{
	my $answer = $admin->query(q{SELECT connection_id FROM dlock.waiters WHERE name = 'held' ORDER BY position});
	die $answer->{message} if defined $answer->{error};
	return join(' ', map { $_->[0] } @{ $answer->{rows} });
}

# Those that should.
my @line;
sub line_is
{
	my ($what) = @_;
	is(line(), join(' ', map { $_->{id} } @line), $what);
	return;
}

sub ids { return join(' ', map { $_->{id} } @_) }

# One more, at the end of the line.
my $owners = 0;
sub queue_up
{
	my ($wait) = @_;
	my $client = connected('tester');
	$client->{owner} = 'w' . ++$owners;
	push @line, $client;
	$client->send("SELECT dlock_acquire('held', '$client->{owner}', 6000, $wait)");
	Scenarios::Run::until(sub { line() eq ids(@line) }) or die "$client->{owner} does not come to wait\n";
	return $client;
}

# One that is not the first, no longer in line.
sub pick
{
	return splice(@line, 1 + int rand $#line, 1);
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return $sorted[ @sorted / 2 ];
}

sub note_times
{
	my ($what, @seconds) = @_;
	note(sprintf('%s: median of %d %.1f ms, longest %.1f ms', $what, scalar @seconds, 1000 * median(@seconds),
		1000 * (sort { $a <=> $b } @seconds)[-1]));
	return;
}

# An error's number, or what else came.
sub outcome
{
	my ($answer) = @_;
	return 'gone' if !defined $answer;
	return "$answer->{number} $answer->{error}: $answer->{message}" if defined $answer->{error};
	return $answer->{rows}[0][0] // 'NULL';
}

my $token = $holder->value(q{SELECT dlock_acquire('held', 'holder', 3600)});
queue_up(-1) for 1 .. WAITERS;
is(scalar(split / /, line()), WAITERS, WAITERS . ' wait');
my $own = q{SELECT count(*) FROM information_schema.processlist
	WHERE user NOT IN ('root', 'tester', 'system user', 'event_scheduler')};
# with the log one for each thing that must not wait for another
my $most = $engine->has_log ? 4 : 1;
cmp_ok(sql($own), '<=', $most, 'the library has few connections');
is(sql(q{SELECT count(*) FROM information_schema.processlist WHERE user = 'tester'}), WAITERS + 1,
	'and each of them its own');

# Somebody ends the statement.
my @seconds;
for (1 .. TRIES)
{
	my $client = pick();
	my $began = time;
	sql("KILL QUERY $client->{id}");
	is(outcome($client->answer), '1317 70100: canceled while waiting for a lease', 'KILL QUERY: an error');
	push @seconds, time - $began;
	line_is('the others are in line');
	is($client->value(q{SELECT dlock_owner('held')}), 'holder', 'the connection is of use');
	$client->close;
}
note_times('KILL QUERY', @seconds);

# Its time is up.
@seconds = ();
for (1 .. TRIES)
{
	my $client = connected('tester');
	$client->value($kind eq 'mariadb' ? 'SET max_statement_time = 0.5' : 'SET max_execution_time = 500');
	my $began = time;
	like(outcome($client->query(q{SELECT dlock_acquire('held', 'late', 600, -1)})),
		$kind eq 'mariadb' ? qr/^(?:1317|1969) 70100: / : qr/^(?:1317 70100|3024 HY000): /, 'a statement\'s time-out: an error');
	push @seconds, time - $began - 0.5;
	line_is('the others are in line');
	$client->close;
}
note_times('a statement\'s time-out, after 500 ms', @seconds);

# Somebody ends the connection.  Which comes first, the error or the end?
@seconds = ();
my %said;
for (1 .. TRIES)
{
	my $client = pick();
	my $began = time;
	sql("KILL $client->{id}");
	my $outcome = outcome($client->answer);
	$said{$outcome}++;
	like($outcome, qr/^(?:gone$|1317 70100: )/, 'KILL: an error, or a connection that has ended');
	Scenarios::Run::until(sub { line() eq ids(@line) });
	push @seconds, time - $began;
	line_is('the others are in line');
	is(outcome($client->query('SELECT 1')), 'gone', 'it has ended');
}
note_times('KILL', @seconds);
note("it said $_: $said{$_} times") for sort keys %said;

# The client is gone.
@seconds = ();
for (1 .. TRIES)
{
	my $client = pick();
	my $began = time;
	$client->close;
	ok(Scenarios::Run::until(sub { line() eq ids(@line) }), 'a client that is gone: has left, and the others are in line');
	push @seconds, time - $began;
	ok(Scenarios::Run::until(sub { sql("SELECT count(*) FROM information_schema.processlist WHERE id = $client->{id}") == 0 }),
		'and its connection has ended');
}
note_times('a client that is gone', @seconds);

# The wait is over.
@seconds = ();
for (1 .. TRIES)
{
	my $client = connected('tester');
	my ($began, $outcome);
	# on a busy machine it may be told that nothing was decided in so short a time
	Scenarios::Run::until(sub {
		$began = time;
		$outcome = outcome($client->query(q{SELECT dlock_acquire('held', 'brief', 600, 0.5)}));
		return !$engine->is_undecided($outcome);
	});
	is($outcome, 'NULL', 'a wait that is over: NULL');
	push @seconds, time - $began - 0.5;
	line_is('the others are in line');
	$client->close;
}
note_times('a wait that is over, after 500 ms', @seconds);
cmp_ok(sql($own), '<=', $most, 'the library has few connections');

# The rest is served in order, and nobody else.
is(scalar @line, WAITERS - 3 * TRIES, 'some are left');
my $served = 0;
my @before = ('holder', $holder, $token);
while (@line > 20)
{
	my $next = shift @line;
	my ($owner, $client) = @before;
	is($client->value("SELECT dlock_release('held', '$owner')"), 1, "$owner gives back");
	my $granted = outcome($next->answer);
	cmp_ok($granted, '>', $before[2], "$next->{owner} is next");
	line_is('the others wait');
	is(scalar(grep { $_->is_answered } @line), 0, 'unanswered');
	$client->close;
	@before = ($next->{owner}, $next, $granted);
	$served++;
}
is(sql('SELECT group_concat(owner) FROM dlock.locks'), $before[0], 'nobody has taken anything else');

# The server is shut down, with twenty in line.
my $pid = $engine->pid;
my $began = time;
sql('SHUTDOWN');
@seconds = ();
%said = ();
for my $client (@line)
{
	my $outcome = outcome($client->answer);
	push @seconds, time - $began;
	$said{$outcome}++;
	like($outcome, qr/^(?:gone$|1317 70100: |1053 |1105 \w+: could not connect)/, "SHUTDOWN: $client->{owner} is told");
}
note_times('SHUTDOWN, for each who waits', @seconds);
note("it said $_: $said{$_} times") for sort keys %said;
Engines::MySQL::await_end($pid);
note(sprintf('SHUTDOWN: all of the server has ended after %.1f s', time - $began));
like($engine->log, qr/: Shutdown complete/, 'the server has come to its end');
$engine->boot;
is($engine->control->value('SELECT group_concat(owner) FROM dlock.locks'), $before[0], 'nobody has taken anything by that');
is($engine->control->value(q{SELECT dlock_force_release('held')}), 1, 'and it works again');

$engine->stop;
done_testing();
