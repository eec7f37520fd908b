# A waiter is killed, or its client is cut off, in the very moment in which the name
# comes free: between two looks at its connection.  It may be granted the lease all
# the same, and gives it back: the next caller has it at once, and nobody waits for
# the dead waiter's time to live, which is longer than this test.  A killed waiter
# gets an error.
#
# The same for a caller that waits only for its commit.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use InTime;
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);
use Wire;

use constant ROUNDS => 6;
use constant CLIENTS => 6;
use constant HOLD_SECONDS => 0.005;

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind);
my $engine = $server->engine;
my $killed = qr/^1317 70100: /;

sub connected { return Wire::MySQL->of($engine, $_[0]) }

my $admin = connected('root');
my $holder = connected('tester');

sub sql { return $admin->value($_[0]) }

# Ways to die: each is over when it returns, and noticed by nobody yet.  What the dead
# one may be told.
my %ways = (
	'KILL QUERY' => [ sub { sql("KILL QUERY $_[0]{id}") }, $killed ],
	'KILL' => [ sub { sql("KILL $_[0]{id}") }, qr/^gone$|$killed/ ],
	'cut off' => [ sub { shutdown($_[0]{socket}, 2) }, qr/^gone$/ ],
	# MariaDB takes a client that has sent something before its end to be there
	$kind eq 'mysql' ? (
		'quit' => [ sub { syswrite($_[0]{socket}, "\1\0\0\0\1"); shutdown($_[0]{socket}, 2) }, qr/^gone$/ ]) : ());

# An answer, as text.
sub outcome
{
	my ($client) = @_;
	my $answer = $client->answer;
	return 'gone' if !defined $answer;
	return "$answer->{number} $answer->{error}: $answer->{message}" if defined $answer->{error};
	return $answer->{rows}[0][0] // 'NULL';
}

sub is_waiting { return sql("SELECT count(*) FROM dlock.waiters WHERE connection_id = $_[0]{id}") }

# Start a statement, and see it wait.
sub queue_up
{
	my ($client, $sql) = @_;
	$client->send($sql);
	Scenarios::Run::until(sub { is_waiting($client) })
	  or die "does not come to wait: $sql\n";
	return;
}

# The first answer within the patience of all tests, which is less than any time to live.
sub soon
{
	my ($client) = @_;
	return 'nothing' unless Scenarios::Run::until(sub { $client->is_answered });
	return outcome($client);
}

# Is a statement of a client's still executed, heard or not?
sub is_busy
{
	my ($client) = @_;
	return sql("SELECT count(*) FROM information_schema.processlist WHERE id = $client->{id} AND command <> 'Sleep'");
}

# Who holds what: "owner mode version", name by name.
sub held
{
	my $answer = $admin->query(q{SELECT concat(name, ' ', owner, ' ', mode, ' ', version) FROM dlock.locks ORDER BY name, owner});
	die $answer->{message} if defined $answer->{error};
	return join(', ', map { $_->[0] } @{ $answer->{rows} });
}

# What is held before, by the holder; the dead one's statement; the next one's; and what
# is held in the end.
my %kinds = (
	'exclusive' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire('n', 'dead', 3600, -1)}, q{dlock_acquire('n', 'next', 3600, -1)},
		'n next exclusive 1' ],
	'exclusive, with a request id' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire('n', 'dead', 3600, -1, 'r')}, q{dlock_acquire('n', 'next', 3600, -1)},
		'n next exclusive 1' ],
	# the same as the dead one asks for: it is not given back
	'exclusive, with a retry' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire('n', 'own', 3600, -1, 'r')}, q{dlock_acquire('n', 'own', 3600, -1, 'r')},
		'n own exclusive 1' ],
	'exclusive, and another of its owner' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire('n', 'own', 3600, -1)}, q{dlock_acquire('n', 'own', 3600, -1)},
		'n own exclusive 1' ],
	'shared' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire_shared('n', 'dead', 3600, -1)}, q{dlock_acquire('n', 'next', 3600, -1)},
		'n next exclusive 1' ],
	'permit' => [
		[q{dlock_acquire_permit('n', 'holder', 3600, 1)}],
		q{dlock_acquire_permit('n', 'dead', 3600, 1, -1)}, q{dlock_acquire_permit('n', 'next', 3600, 1, -1)},
		'n next permit 1' ],
	'one more permit' => [
		[q{dlock_acquire_permit('n', 'holder', 3600, 2)}, q{dlock_acquire_permit('n', 'own', 3600, 2)}],
		q{dlock_acquire_permit('n', 'own', 3600, 2, -1)}, q{dlock_acquire_permit('n', 'next', 3600, 2, -1)},
		'n next permit 1, n own permit 1' ],
	'all' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire_all('["m", "n", "o"]', 'dead', 3600, -1)}, q{dlock_acquire_all('["o", "n"]', 'next', 3600, -1)},
		'n next exclusive 1, o next exclusive 1' ],
	'all, some held' => [
		[q{dlock_acquire('n', 'holder', 3600)}, q{dlock_acquire('m', 'own', 3600)}],
		q{dlock_acquire_all('["m", "n"]', 'own', 3600, -1)}, q{dlock_acquire('n', 'next', 3600, -1)},
		'm own exclusive 1, n next exclusive 1' ],
	'several permits' => [
		[q{dlock_acquire_permits('n', 'holder', 3600, 3, 1)}],
		q{dlock_acquire_permits('n', 'dead', 3600, 3, 3, -1)}, q{dlock_acquire_permits('n', 'next', 3600, 3, 3, -1)},
		'n next permit 3' ],
	'any' => [
		[q{dlock_acquire('n', 'holder', 3600)}, q{dlock_acquire('o', 'holder', 3600)}],
		q{dlock_acquire_any('["o", "n"]', 'dead', 3600, 2, -1)}, q{dlock_acquire_any('["n", "o"]', 'next', 3600, 2, -1)},
		'n next exclusive 1, o holder exclusive 1' ],
	'session' => [
		[q{dlock_acquire('n', 'holder', 3600)}],
		q{dlock_acquire_session('n', 'dead', 3600, -1)}, q{dlock_acquire('n', 'next', 3600, -1)},
		'n next exclusive 1' ]);

for my $what (sort keys %kinds)
{
	my ($before, $dying, $next_sql, $held) = @{ $kinds{$what} };
	for my $way (sort keys %ways)
	{
		my ($die, $told) = @{ $ways{$way} };
		my (%said, %next_said, %held);
		for (1 .. ROUNDS)
		{
			$holder->value("SELECT $_") // die "$_\n" for @$before;
			my ($dead, $next) = (connected('tester'), connected('tester'));
			queue_up($dead, "SELECT $dying");
			queue_up($next, "SELECT $next_sql");
			$die->($dead);
			$holder->value(q{SELECT dlock_release('n', 'holder')});
			my $got = soon($next);
			$next_said{ $got =~ s/\d+/N/gr }++;
			$said{ outcome($dead) }++;
			# its statement has ended, and what it had is given back a moment later
			Scenarios::Run::until(sub { !is_busy($dead) && held() eq $held });
			$held{ held() }++;
			$_->close for $dead, $next;
			Scenarios::Run::until(sub {
				sql(qq{SELECT dlock_force_release('$_')}) for 'm', 'n', 'o';
				return !is_busy($dead) && !is_busy($next) && held() eq '';
			}) or die "$what, $way: something is left\n";
			last if $got !~ /^\[?[\d{]/;
		}
		is_deeply([ keys %next_said ], [ $what eq 'all' ? '[N, N]' : $what eq 'any' ? '[{"name": "n", "token": N}]' : 'N' ], "$what, $way: the next one has it")
		  or diag(explain(\%next_said));
		is(scalar(grep { $_ !~ $told } keys %said), 0, "$what, $way: the dead one is told so") or diag(explain(\%said));
		is_deeply([ keys %held ], [$held], "$what, $way: and has nothing") or diag(explain(\%held));
	}
}

# Do something while a commit is held up.  After half a minute the library takes a connection
# that does not answer for lost: what has taken so long is done once more.
sub with_held_commit
{
	my ($do) = @_;
	in_time(25, sub {
		my ($try) = @_;
		if ($try > 1)
		{
			eval { $server->let_go };
			Scenarios::Run::until(sub {
				sql(qq{SELECT dlock_force_release('$_')}) for 'c', 'm', 'n', 'o';
				return held() eq '' && sql('SELECT count(*) FROM dlock.waiters') == 0;
			}) or die "something is left\n";
		}
		$do->();
	});
	return;
}

# The same while the grant is being committed: the dead one stands in line no longer.
for my $what ('exclusive', 'exclusive, with a retry', 'exclusive, and another of its owner', 'all, some held')
{
	my ($before, $dying, $next_sql, $held) = @{ $kinds{$what} };
	for my $way (sort keys %ways)
	{
		with_held_commit(sub {
			$holder->value("SELECT $_") // die "$_\n" for @$before;
			my ($dead, $next) = (connected('tester'), connected('tester'));
			queue_up($dead, "SELECT $dying");
			queue_up($next, "SELECT $next_sql");
			$server->hold;
			$holder->value(q{SELECT dlock_release('n', 'holder')});
			$server->hangs or die "is not granted: $dying\n";
			$ways{$way}[0]->($dead);
			like(outcome($dead), $ways{$way}[1], "$what, $way in the commit: the dead one is told so");
			Scenarios::Run::until(sub { !is_busy($dead) });
			$server->let_go;
			is(soon($next) =~ s/\d+/N/r, 'N', "$what, $way in the commit: the next one has it");
			ok(Scenarios::Run::until(sub { held() eq $held }), "$what, $way in the commit: and the dead one nothing")
			  or diag(held());
			$_->close for $dead, $next;
			sql(qq{SELECT dlock_force_release('$_')}) for 'm', 'n';
		});
	}
}

# Who asks again with the request id has what it is answered, also if its first call
# finds out that its client is gone while the second is being made: the second stands
# ready when the first one's commit ends.  With a renewal of nothing beside it, the
# server does not wait for more calls before it makes them.
for my $way (sort keys %ways)
{
	with_held_commit(sub {
		my ($dead, $again, $other) = map { connected('tester') } 1 .. 3;
		my $acquire = q{SELECT dlock_acquire('n', 'own', 3600, -1, 'r')};
		$holder->value(q{SELECT dlock_acquire('n', 'holder', 3600)});
		queue_up($dead, $acquire);
		$server->hold;
		$holder->value(q{SELECT dlock_release('n', 'holder')});
		$server->hangs or die "is not granted: $acquire\n";
		$again->send($acquire);
		$other->send(q{SELECT dlock_renew('nothing', 'other', 60)});
		# the log's answer to the other rests on no commit
		Scenarios::Run::until(sub { is_busy($again) && ($engine->has_log || is_busy($other)) }) or die "is not made: $acquire\n";
		$ways{$way}[0]->($dead);
		$server->let_go;
		my $got = soon($again) =~ s/\d+/N/r;
		outcome($_) for $dead, $other;
		Scenarios::Run::until(sub { !is_busy($dead) });
		is("$got, " . ($again->value(q{SELECT dlock_release('n', 'own')}) // 'NULL'), 'N, 1', "asked again, $way: what is answered is there");
		$_->close for $dead, $again, $other;
	}) for 1 .. ROUNDS;
}

# Who waits for the holds to end takes nothing.
for my $way (sort keys %ways)
{
	my $dead = connected('tester');
	$holder->value(q{SELECT dlock_acquire('n', 'holder', 3600)});
	queue_up($dead, q{SELECT dlock_wait('n', -1)});
	$ways{$way}[0]->($dead);
	$holder->value(q{SELECT dlock_release('n', 'holder')});
	like(outcome($dead), qr/^1$|$ways{$way}[1]/, "dlock_wait, $way: ends");
	is(held(), '', "dlock_wait, $way: nobody has anything");
	$dead->close;
}

# Six clients in a line, each of which holds for a moment; again and again the first that
# waits dies when the name comes free, and another takes its place at the end.
my $owners = 0;
my @line;

sub join_line
{
	my $client = connected('tester');
	$client->{owner} = 'client ' . ++$owners;
	queue_up($client, "SELECT dlock_acquire('line', '$client->{owner}', 3600, -1)");
	push @line, $client;
	return;
}

$holder->value(q{SELECT dlock_acquire('line', 'holder', 3600)});
join_line() for 1 .. CLIENTS;
$holder->value(q{SELECT dlock_release('line', 'holder')});
my $last = 0;
my $stood_still = 0;
for my $round (1 .. 10 * CLIENTS)
{
	my $client = shift @line;
	my $token = soon($client);
	if ($token !~ /^\d+$/ || $token <= $last)
	{
		$stood_still = 1;
		diag("round $round: after token $last $client->{owner} was answered: $token");
		last;
	}
	$last = $token;
	usleep(1_000_000 * HOLD_SECONDS);
	my $dead = $round % 2 == 0 ? shift @line : undef;
	my $way = (sort keys %ways)[ $round / 2 % keys %ways ];
	$ways{$way}[0]->($dead) if $dead;
	$client->value("SELECT dlock_release('line', '$client->{owner}', $token)");
	$_->close for grep { defined } $dead, $client;
	join_line() while @line < CLIENTS - 1;
}
is($stood_still, 0, 'a line in which one dies again and again goes on');
$_->close for @line;
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 0 }), 'the rest of it leaves');
sql(q{SELECT dlock_force_release('line')});

# Who only waits for its own commit.
with_held_commit(sub {
	my $dead = connected('tester');
	$dead->value(q{SELECT dlock_release('c', 'dead')});
	$server->hold;
	$dead->send(q{SELECT dlock_acquire('c', 'dead', 3600)});
	$server->hangs or die "is not granted\n";
	sql("KILL QUERY $dead->{id}");
	$server->let_go;
	like(outcome($dead), $killed, 'killed in its commit: is told so');
	ok(Scenarios::Run::until(sub { (sql(q{SELECT dlock_is_free('c')}) // '') eq '1' }), 'and what it was granted is given back');
	$dead->close;
}) for 1 .. ROUNDS;

$engine->stop;
done_testing();
