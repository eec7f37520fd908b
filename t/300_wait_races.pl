# A waiter meets every event that can happen to it: a release, an expiry, a renewal,
# an eviction, a cancel, a terminate, a timeout, the end of its client.  First one
# after the other, then at the same moment, many times.  Scenarios 7, 8, 9 and 19.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('races');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
dlock.log_expired = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $all = Sessions->new($node);
my ($a, $b, $c) = $all->open('a', 'b', 'c');
my $watcher = $all->{watcher};
my $token = qr/^\d{10,}$/;

sub nothing_left
{
	my ($what) = @_;
	is($watcher->query(q{SELECT (SELECT count(*) FROM dlock.waiters),
		(SELECT count(*) FROM dlock.locks WHERE NOT dlock_is_free(name))}), '0|0', "$what: nothing is left");
	return;
}

# a holds, b waits without limit
sub b_waits
{
	like($a->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'a holds');
	$b->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
	$all->waiting('b');
	return;
}

# a holds, and b waits, cancelled by a setting after a time.  On a busy machine that may be
# over before b is seen to wait, or before c stands behind it: then b gets more.
sub b_waits_for_a_time
{
	my ($setting) = @_;
	like($a->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'a holds');
	for (my $seconds = 0.5; ; $seconds *= 4)
	{
		$b->insist("SET $setting = '${seconds}s'");
		$b->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
		my $seen = 0;
		$seen = $watcher->query('SELECT count(*) FROM dlock.waiters') until $seen || $b->answered;
		if ($seen)
		{
			$c->send(q{SELECT dlock_acquire('job', 'c', 600, -1)});
			$all->until(q{SELECT bool_or(application_name = 'c') FROM dlock.waiters}, 't');
			return if $watcher->query(q{SELECT "position" FROM dlock.waiters WHERE application_name = 'c'}) == 2;
			$watcher->query("SELECT pg_cancel_backend($c->{pid})");
			$c->answer;
		}
		$b->answer;
		# longer than anybody waits for an answer
		die "b is never seen to wait\n" if $seconds > 100;
	}
}

# b has got it and gives it back
sub b_got_it
{
	my ($what) = @_;
	like($b->answer, $token, "$what: b is served");
	is($b->query(q{SELECT dlock_owner('job'), dlock_release('job', 'b')}), 'b|t', '... and holds it');
	nothing_left($what);
	return;
}

# wait and release: not while a hold is left
b_waits();
is($a->query(q{SELECT dlock_acquire('job', 'a', 600) IS NOT NULL, dlock_release('job', 'a')}), 't|t', 'one of two holds given back');
$all->waiting('b');
is($a->query(q{SELECT dlock_release('job', 'x'), dlock_release('job', 'a', 1)}), 'f|f', 'what releases nothing');
$all->waiting('b');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', 'the last hold given back');
b_got_it('release');

# wait and the release of all that an owner has
b_waits();
is($a->query(q{SELECT dlock_release_all('a')}), '1', 'a drops all');
b_got_it('release of all');

# wait and expiry: b serves itself; the reaper is not waited for
$node->append_conf('postgresql.conf', "dlock.reap_interval = '1h'");
$node->reload;
b_waits();
is($a->query(q{SELECT dlock_renew('job', 'a', 0.3)}), 't', 'a lets it expire');
b_got_it('expiry');

# wait and renewal: b goes back to sleep at the old deadline; then it is
# shortened, and b is there at the new one
# on a busy machine the lease may end between the two renewals: then it gets more
my $renewed;
for (my $ttl = 0.3; $ttl < 100; $ttl *= 4)
{
	b_waits();
	$renewed = $a->query("SELECT dlock_renew('job', 'a', $ttl), dlock_renew('job', 'a', 600), clock_timestamp() + '$ttl s' + '0.5 s'");
	last if $renewed =~ /^t\|t\|/;
	b_got_it('expiry before a renewal');
}
my ($past_it) = $renewed =~ /^t\|t\|(.*)$/;
ok($past_it, 'a renews');
$all->until("SELECT clock_timestamp() > '$past_it'", 't');
is($b->answered, 0, 'b still waits long after the old deadline');
is($watcher->query(q{SELECT dlock_owner('job')}), 'a', '... and a holds');
is($a->query(q{SELECT dlock_renew('job', 'a', 0.01)}), 't', 'a shortens its lease');
b_got_it('shortened');

# wait and force-release; scenario 19
b_waits();
is($watcher->query(q{SELECT dlock_force_release('job')}), '1', 'a is evicted');
is($a->query(q{SELECT coalesce(dlock_renew('job', 'a', 600), false)}), 'f', 'a cannot renew');
b_got_it('eviction');
b_waits();
is($watcher->query(q{SELECT dlock_force_release('job', 'b')}), '0', 'a waiter is no holder to evict');
$all->waiting('b');
is($watcher->query(q{SELECT dlock_force_release('job', 'a')}), '1', 'but a is');
b_got_it('eviction of one');

# what ends a wait: b's answer, what does it; then c, which waited behind b, is
# still there and is the one that gets it; scenarios 8 and 9.  What does it is a function,
# or a setting.
sub b_leaves
{
	my ($what, $answer, $act) = @_;
	if (ref $act)
	{
		b_waits();
		$c->send(q{SELECT dlock_acquire('job', 'c', 600, -1)});
		$all->waiting('b', 'c');
		$act->();
	}
	else { b_waits_for_a_time($act) }
	is($b->answer, $answer, "$what: b's wait ends");
	$all->waiting('c');
	is($watcher->query(q{SELECT "position" FROM dlock.waiters}), 1, '... and c is the first now');
	is($a->query(q{SELECT dlock_release('job', 'a')}), 't', '... a releases');
	like($c->answer, $token, '... c is served');
	is($c->query(q{SELECT dlock_release('job', 'c')}), 't', '... and gives it back');
	nothing_left($what);
	return;
}
b_leaves('cancel', '57014', sub { $watcher->query("SELECT pg_cancel_backend($b->{pid})") });
b_leaves($_, $_ eq 'lock_timeout' ? '55P03' : '57014', $_), $b->insist("RESET $_") for 'statement_timeout', 'lock_timeout';
b_leaves('terminate', 'gone', sub { $watcher->query("SELECT pg_terminate_backend($b->{pid})") });
($b) = $all->open('b');
b_leaves('client gone', 'gone', sub { $b->kill });
($b) = $all->open('b');

# cancelled in a subtransaction: the transaction goes on
like($a->query(q{SELECT dlock_acquire('job', 'a', 600)}), $token, 'a holds');
is($b->query('BEGIN; SAVEPOINT s'), '', 'b is in a transaction');
$b->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
$all->waiting('b');
$watcher->query("SELECT pg_cancel_backend($b->{pid})");
is($b->answer, '57014', 'b is cancelled');
is($b->query('ROLLBACK TO s'), '', '... rolls back');
$b->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
$all->waiting('b');
is($a->query(q{SELECT dlock_release('job', 'a')}), 't', '... waits again');
like($b->answer, $token, '... and is served');
is($b->query(q{COMMIT; SELECT dlock_release('job', 'b')}), 't', '... in the same transaction');
nothing_left('subtransaction');

# Two events at the same moment: a releases, and b is cancelled.  Either b has
# the lease, or it has an error and c gets it; never both, never neither.  The
# cancel may also meet b when dlock_acquire() has returned and its statement has
# not ended; then b has the lease, and the sequence "learnt" its token.
$watcher->query('CREATE SEQUENCE learnt');
sub at_once
{
	my ($what, $rounds, $act) = @_;
	my @wrong;
	my %ends = (served => 0, left => 0, late => 0);
	for my $round (1 .. $rounds)
	{
		$a->query(q{SELECT dlock_acquire('job', 'a', 600)}) =~ $token or push @wrong, "$round: a does not hold";
		$b->send(q{SELECT setval('learnt', dlock_acquire('job', 'b', 600, -1))});
		$all->waiting('b');
		$c->send(q{SELECT dlock_acquire('job', 'c', 600, -1)});
		$all->waiting('b', 'c');
		$act->($round);
		my $answer = $b->answer;
		if ($answer =~ $token)
		{
			$ends{served}++;
			push @wrong, "$round: c is served too" if $c->answered;
			$answer = $a->query(q{SELECT dlock_release('job', 'b')});
			push @wrong, "$round: b's release is $answer" if $answer ne 't';
		}
		elsif ($answer eq '57014' || $answer eq 'gone')
		{
			if ($answer eq 'gone')
			{
				$all->until(q{SELECT dlock_owner('job') IS DISTINCT FROM 'b'
					OR (SELECT last_value FROM learnt) = (SELECT token FROM dlock_holders('job'))}, 't');
			}
			my ($owner, $learnt) = split /\|/, $watcher->query(q{SELECT dlock_owner('job'),
				(SELECT last_value FROM learnt) = (SELECT token FROM dlock_holders('job'))});
			$ends{ $owner eq 'b' ? 'late' : 'left' }++;
			push @wrong, "$round: what b was granted is not given back" if $owner eq 'b' && $learnt ne 't';
			$a->query(q{SELECT dlock_release('job', 'b')});
		}
		else
		{
			push @wrong, "$round: b is told $answer";
		}
		$answer = $c->answer;
		push @wrong, "$round: c is told $answer" if $answer !~ $token;
		$answer = $c->query(q{SELECT dlock_owner('job'), dlock_release('job', 'c')});
		push @wrong, "$round: c's release is $answer" if $answer ne 'c|t';
		($b) = $all->open('b') if $b->query('SELECT 1') eq 'gone';
	}
	is(join('; ', @wrong), '', "$what, $rounds times: exactly one is served at a time");
	note "$what: b served $ends{served} times, left $ends{left} times, was cancelled too late $ends{late} times";
	nothing_left($what);
	return;
}
my ($canceller) = $all->open('canceller');
at_once('release and cancel', 40, sub {
	my ($round) = @_;
	my $cancel = "SELECT pg_cancel_backend($b->{pid})";
	my $release = q{SELECT dlock_release('job', 'a')};
	if ($round % 2) { $canceller->send($cancel); $a->send($release); }
	else { $a->send($release); $canceller->send($cancel); }
	$a->answer;
	$canceller->answer;
});
for my $signal ('pg_cancel_backend', 'pg_terminate_backend')
{
	at_once("release and $signal() in one statement", 20, sub {
		my ($round) = @_;
		my @calls = (q{dlock_release('job', 'a')}, "$signal($b->{pid})");
		@calls = reverse @calls if $round % 4 == 0;
		$a->query('SELECT ' . join(', ', @calls));
	});
}
at_once('eviction and cancel', 20, sub {
	$canceller->send("SELECT pg_cancel_backend($b->{pid})");
	$watcher->query(q{SELECT dlock_force_release('job')});
	$canceller->answer;
});
at_once('expiry and cancel', 20, sub {
	$a->query(q{SELECT dlock_renew('job', 'a', 0.01)});
	$canceller->query("SELECT pg_sleep(0.0095), pg_cancel_backend($b->{pid})");
});

# b's time is up at the moment of the release: it has the lease or NULL.  A round
# counts if b was seen to wait; on a busy machine its time may be up before that.
my @wrong;
my %ends = (served => 0, left => 0, unseen => 0);
for (my $round = 1; $round <= 30; $round++)
{
	$a->query(q{SELECT dlock_acquire('job', 'a', 600)});
	$b->send(q{SELECT dlock_acquire('job', 'b', 600, 0.05)});
	my $seen = 0;
	$seen = $watcher->query('SELECT count(*) FROM dlock.waiters') until $seen || $b->answered;
	if (!$seen)
	{
		my $answer = $b->answer;
		push @wrong, "$round: b, which nobody has released anything to, is told \"$answer\"" if $answer ne '';
		$a->query(q{SELECT dlock_release('job', 'a')});
		$round-- if ++$ends{unseen} < 1000;
		next;
	}
	my $answer = $a->query(q{SELECT pg_sleep(greatest(0, extract(epoch FROM
			(SELECT min(waiting_since) FROM dlock.waiters) + '0.05 s' - clock_timestamp()))),
		dlock_release('job', 'a')});
	push @wrong, "$round: a's release is $answer" if $answer !~ /t$/;
	$answer = $b->answer;
	my $owner = $watcher->query(q{SELECT coalesce(dlock_owner('job'), '')});
	push @wrong, "$round: b is told \"$answer\", the owner is \"$owner\""
	  if $answer =~ $token ? $owner ne 'b' : ($answer ne '' || $owner ne '');
	$answer =~ $token ? $ends{served}++ : $ends{left}++;
	$b->query(q{SELECT dlock_release('job', 'b')});
}
is(join('; ', @wrong), '', 'release and timeout, 30 times: the answer is true');
is($ends{served} + $ends{left}, 30, '... as many times');
note "release and timeout: b served $ends{served} times, left $ends{left} times, not seen $ends{unseen} times";
nothing_left('release and timeout');

# the renewal that comes at the moment of the expiry: a holds or b does
@wrong = ();
for my $round (1 .. 20)
{
	$a->query(q{SELECT dlock_acquire('job', 'a', 0.03)});
	$b->send(q{SELECT dlock_acquire('job', 'b', 600, -1)});
	my $renewed = $a->query(q{SELECT pg_sleep(0.0295), dlock_renew('job', 'a', 600)});
	if ($renewed =~ /t$/)
	{
		my $owner = $watcher->query(q{SELECT dlock_owner('job')});
		push @wrong, "$round: renewed, but the owner is \"$owner\"" if $owner ne 'a' || $b->answered;
		$a->query(q{SELECT dlock_release('job', 'a')});
	}
	my $answer = $b->answer;
	push @wrong, "$round: b is told $answer" if $answer !~ $token;
	$answer = $b->query(q{SELECT dlock_release('job', 'b')});
	push @wrong, "$round: b's release is $answer" if $answer ne 't';
}
is(join('; ', @wrong), '', 'expiry and renewal, 20 times: one of the two holds');
nothing_left('expiry and renewal');

$_->quit for $a, $b, $c, $canceller, $watcher;
$node->stop;
done_testing();
