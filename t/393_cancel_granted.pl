# A call that is canceled or terminated, or runs out of time, after it was granted
# a lease and before it is answered gives back what it has added: error 57014 means
# that nothing was taken.  The server's flushes are held up, so that this happens
# where it is most likely.  And a look waits for no flush.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use HeldFlush;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
# as by default: a flush asks whether there is a synchronous standby
max_wal_senders = 10
wal_level = replica
fsync = on
dlock.log_expired = off
});
my $held = HeldFlush->start_postgres($node);
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my ($a, $b, $flusher) = $sessions->open('a', 'b', 'flusher');

# See to it that nothing gets to the disk from now on: flushes that were under way
# may be of later records too, so wait until one that has begun since is stuck.
# It need not be the flusher's: another process may have come first, and have the
# lock that it takes to flush.
sub hold_flushes
{
	$held->hold;
	my $stuck = 0;
	until ($stuck)
	{
		$flusher->send(q{DO $$ BEGIN PERFORM pg_logical_emit_message(true, 'a', 'record'); END $$});
		until ($stuck || $flusher->answered)
		{
			$stuck = grep { -e "$held->{hold}.$_" } split / /, $sessions->{watcher}->query(
				q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE lower(wait_event) = 'walsync'});
		}
		$flusher->answer if !$stuck;
	}
	return;
}

sub let_go
{
	$held->let_go;
	$flusher->answer;
	return;
}

# Have b call, once nothing gets to the disk, or have it wait before that, for what a has.
# Is it seen to have got so many holds?  If it is not, because its time was up before, its
# answer is taken, and flushes go on.  What a retry asks for was there before, so it is also
# seen that the call has begun.
sub is_granted
{
	my ($call, $count, $waits) = @_;
	my $held = q{(SELECT coalesce(sum(version), 0) FROM dlock.locks WHERE owner = 'b')};
	my $begun = $waits ? 'true'
	  : "EXISTS (SELECT FROM pg_stat_activity WHERE pid = $b->{pid} AND lower(wait_event) IN ('walwrite', 'walsync'))";
	my $granted = 0;

	if ($waits)
	{
		$a->query(q{SELECT dlock_acquire('l', 'a', 3600)});
		$b->send("SELECT $call");
		Poll::until($PostgreSQL::Test::Utils::timeout_default,
			sub { $b->answered || $sessions->{watcher}->query('SELECT count(*) FROM dlock.waiters') > 0 })
		  or die "$call does not wait\n";
	}
	hold_flushes();
	if ($waits) { $a->query("SELECT dlock_release_all('a')") }
	else { $b->send("SELECT $call") }
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
		$granted = $sessions->{watcher}->query("SELECT $held = $count AND $begun") eq 't';
		return $granted || $b->answered;
	});
	return 1 if $granted;
	let_go();
	$b->answer;
	return 0;
}

# Call, once nothing gets to the disk; see that it has what it asked for; end it;
# let go.  What it answers, and what b has then.
sub interrupted
{
	my ($how, $call, %params) = @_;
	my $what = $params{has} // 1;
	my ($seconds, $granted);

	# on a busy machine the time may be up too soon: then it gets more
	for ($seconds = 2; $seconds < 100; $seconds *= 4)
	{
		$b->insist("SET statement_timeout = '${seconds}s'") if $how eq 'a timeout';
		$b->query('BEGIN; SAVEPOINT s') if $params{block};
		last if $granted = is_granted($call, $what, $params{waits});
		last if $how ne 'a timeout';
		$b->insist('ROLLBACK') if $params{block};
	}
	ok($granted, "$how, $call: it has got what it asked for");
	die "$call: got nothing\n" if !$granted;
	if ($how eq 'a cancel')
	{
		$sessions->until("SELECT pg_cancel_backend($b->{pid})", 't');
	}
	elsif ($how eq 'a terminate')
	{
		$sessions->until("SELECT pg_terminate_backend($b->{pid})", 't');
	}
	else
	{
		# its timer has run since then, at the latest
		my $now = $sessions->{watcher}->query('SELECT clock_timestamp()');
		$sessions->until("SELECT clock_timestamp() > timestamptz '$now' + interval '$seconds s 100 ms'", 't');
	}
	let_go();
	is($b->answer, $how eq 'a terminate' ? 'gone' : '57014', "$how, $call: an error");
	if ($how eq 'a terminate')
	{
		$sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $b->{pid}", 0);
		$b->quit;
		($b) = $sessions->open('b');
	}
	$b->insist('RESET statement_timeout') if $how eq 'a timeout' && !$params{block};
	# the row of a transaction that is over may still be there
	return $a->query(q{SELECT coalesce(sum(version), 0) FROM dlock.locks WHERE owner = 'b' AND NOT dlock_is_free(name)});
}

sub takes_nothing
{
	my ($how, $call, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $balance = q{SELECT acquired + reentered - released - expired - forced
		- (SELECT coalesce(sum(version), 0) FROM dlock.locks) FROM dlock.stats};
	my $before = $a->query($balance);
	is(interrupted($how, $call, %params), $params{had} // 0, "$how, $call: nothing was taken");
	is($sessions->until($balance, $before), $before, "$how, $call: what it gave back is counted as taken, too");
	if ($params{block} && $how ne 'a terminate')
	{
		$b->insist($_) for 'ROLLBACK', 'RESET statement_timeout';
	}
	# so that the next one finds nothing either way
	$a->query(qq{SELECT dlock_force_release(name) FROM unnest('{l, m, n}'::text[]) AS name});
	return;
}

# A look does not even wait for what the first call of all makes durable.
{
	$node->safe_psql('postgres', 'CREATE DATABASE fresh TEMPLATE template0');
	my $fresh = Sessions->new($node, 'fresh');
	my ($first, $looker) = $fresh->open('first', 'looker');

	hold_flushes();
	$first->query($_) for 'SET synchronous_commit = off', 'CREATE EXTENSION dlock';
	$first->send(q{SELECT dlock_acquire('l', 'first', 3600) > 0});
	# it, or the worker
	is( $sessions->until(q{SELECT count(*) > 0 FROM pg_stat_activity
			WHERE datname = 'fresh' AND lower(wait_event) IN ('walwrite', 'walsync')}, 't'),
		't', 'the first call of all waits for a flush');
	$looker->send('SELECT count(*) FROM dlock.locks');
	ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $looker->answered }), 'a look does not');
	let_go();
	is($looker->answer, 0, 'it finds nothing');
	is($first->answer, 't', 'the first call goes on');
	$_->quit for $first, $looker;
}

# that of the other database, too, must not be held up
$a->query(q{SELECT dlock_acquire('l', 'a', 3600), dlock_release('l', 'a')});

for my $how ('a cancel', 'a timeout', 'a terminate')
{
	takes_nothing($how, $_)
	  for (
		q{dlock_acquire('l', 'b', 3600)},
		q{dlock_acquire('l', 'b', 3600, 0, 'id')},
		q{dlock_acquire_shared('l', 'b', 3600)},
		q{dlock_acquire_permit('l', 'b', 3600, 2)},
		q{dlock_acquire_session('l', 'b', 3600)});
	takes_nothing($how, q{dlock_acquire_all('{l, m, n}', 'b', 3600)}, has => 3);
	takes_nothing($how, q{dlock_acquire_any('{l, m, n}', 'b', 3600, 2)}, has => 2);

	# in a line
	for my $call (
		q{dlock_acquire('l', 'b', 3600, -1)},
		q{dlock_acquire_session('l', 'b', 3600, -1)},
		q{dlock_acquire_all('{l, m}', 'b', 3600, -1)})
	{
		takes_nothing($how, $call, waits => 1, has => $call =~ /all/ ? 2 : 1);
	}

	# a savepoint's rollback would not end it
	takes_nothing($how, q{dlock_acquire_xact('l', 'b', 3600)}, block => 1);

	# a hold more: that one is given back, and no other
	for my $call (q{dlock_acquire('l', 'b', 3600)}, q{dlock_acquire_all('{l, m}', 'b', 3600)})
	{
		$b->query(q{SELECT dlock_acquire('l', 'b', 3600)});
		takes_nothing($how, $call, had => 1, has => $call =~ /all/ ? 3 : 2);
	}

	# a claim leaves alone what its holder had of the names that it did not come to
	$b->query(q{SELECT dlock_acquire('m', 'b', 3600)});
	takes_nothing($how, q{dlock_acquire_any('{l, m}', 'b', 3600, 1)}, had => 1, has => 2);

	$b->query(q{SELECT dlock_release_all('b')});
	next if $how eq 'a terminate';

	# with a request id it stays: the retry finds it, and adds none
	my $call = q{dlock_acquire('l', 'b', 3600, 0, 'again')};
	$b->query(q{SELECT dlock_acquire('l', 'b', 3600)});
	is(interrupted($how, $call, has => 2), 2, "$how: a hold more, with a request id");
	$b->query("SELECT $call");
	is($a->query(q{SELECT version FROM dlock_holders('l')}), 2, "$how: its retry");
	# what was found is not given back
	is(interrupted($how, $call, has => 2), 2, "$how: a retry");
	$b->query(q{SELECT dlock_release_all('b')});
}

# an answer longer than work_mem needs no temporary file, for which there may be no room
$b->query(q{SET work_mem = '64kB'});
$b->query(q{SET temp_file_limit = 0});
is($b->query(q{SELECT count(*) FROM dlock_acquire_any(ARRAY(SELECT rpad(generate_series(1, 1000)::text, 255, 'x')),
	'b', 3600, 1000)}), 1000, 'a claim of many long names is answered');
is($b->query(q{SELECT dlock_release_all('b')}), 1000, '... and has taken them');

$_->quit for $a, $b, $flusher;
$node->stop;
done_testing();
