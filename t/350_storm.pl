# Scenarios 7 to 16, 19 and 22 at once: a storm.  Hundreds of sessions wait for few
# names in every possible way; waiters are cancelled, terminated, lose their clients,
# run out of time, deadlock and are evicted.  The clients note every answer with the
# time before and after the call, and the test judges them afterwards: no two holders
# that exclude each other, no token twice or out of order.  Then nothing is left over,
# and the counters add up.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $clients = 150;
my $rounds = 14;        # at least, and at most, until there was enough weather
my $most_rounds = 80;
my $enough = 100;    # of what happens to the clients
my $places = 170;    # to wait in, for one role: half of all
my $guards = 40;	# of one role

my $seed = $ENV{DLOCK_STORM_SEED} // time;
note "the seed is $seed";
srand($seed);

my $node = PostgreSQL::Test::Cluster->new('storm');
$node->init;
$node->append_conf(
	'postgresql.conf', qq{
max_connections = 220
max_worker_processes = 16
synchronous_commit = off
client_connection_check_interval = 0
log_min_messages = panic
log_statement = none
log_error_verbosity = terse
dlock.log_expired = off
dlock.reap_interval = '50ms'
dlock.max_waiters = @{[2 * $places - 1]}
dlock.max_guards = @{[2 * $guards]}
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock; CREATE SEQUENCE storms; CREATE SEQUENCE evictions');
my $start = $node->safe_psql('postgres', 'SELECT clock_timestamp()');

# ----------------------------------------------------------------
# What each client does
# ----------------------------------------------------------------

my $dir = PostgreSQL::Test::Utils::tempdir();

sub pick { return $_[ int(rand(@_)) ]; }
sub name { return 'n' . int(rand(10)); }
sub wait_time { return rand() < 0.1 ? -1 : sprintf('%.3f', 0.01 + rand() * 2); }

# A call, with the times before and after; one line, so that the line of an
# error says which call it was.
sub call
{
	my ($what, $name, $ttl, $sql) = @_;
	return {
		what => $what, name => $name, ttl => $ttl,
		sql => "SELECT 'answer', extract(epoch FROM clock_timestamp()), $sql,"
		  . ' extract(epoch FROM clock_timestamp());'
	};
}

sub plain
{
	my ($name, $owner, $mode, $ttl, $wait) = @_;
	my $suffix = $mode eq 'exclusive' ? '' : "_$mode";
	my $limit = $mode eq 'permit' ? ' 3,' : '';
	return call($mode, $name, $ttl,
		"dlock_acquire$suffix('$name', '$owner', $ttl,$limit $wait)");
}

sub other { return { what => 'other', sql => $_[0] }; }
sub pause { return other(sprintf 'SELECT pg_sleep(%.3f);', rand() * 0.06); }

# One round: take something, keep it for a while, let go of it somehow.
sub one_round
{
	my ($owner) = @_;
	my $dice = rand();
	my $name = name();
	my $wait = wait_time();
	my @calls;

	push @calls, other(pick("SET statement_timeout = '300ms';",
			"SET lock_timeout = '200ms';", 'RESET statement_timeout;',
			'RESET lock_timeout;', 'SET synchronous_commit = on;'))
	  if rand() < 0.3;
	if ($dice < 0.30)
	{
		push @calls, plain($name, $owner, 'exclusive', 30, $wait), pause();
		push @calls, call('renew', $name, 30, "dlock_renew('$name', '$owner', 30)")
		  if rand() < 0.3;
		push @calls, call('release', $name, 0, "dlock_release('$name', '$owner')");
	}
	elsif ($dice < 0.40)
	{
		# left to expire
		push @calls, plain($name, $owner, 'exclusive',
			sprintf('%.3f', 0.01 + rand() * 0.2), $wait);
		push @calls, pause(), call('release', $name, 0,
			"dlock_release('$name', '$owner')") if rand() < 0.3;
		return @calls, pause();
	}
	elsif ($dice < 0.52)
	{
		push @calls, plain($name, $owner, 'shared', 30, $wait), pause();
	}
	elsif ($dice < 0.64)
	{
		push @calls, plain(pick('p0', 'p1'), $owner, 'permit', 30, $wait), pause();
	}
	elsif ($dice < 0.72)
	{
		my %names = map { name() => 1 } 1 .. 3;
		my $list = join ', ', map { "'$_'" } keys %names;
		push @calls, call('all', [ keys %names ], 30,
			"dlock_acquire_all(ARRAY[$list], '$owner', 30, $wait)"), pause();
	}
	elsif ($dice < 0.80)
	{
		push @calls, call('exclusive', $name, 30,
			"dlock_acquire_session('$name', '$owner', 30, $wait)"), pause();
		push @calls, { what => 'discard', sql => 'DISCARD ALL;' }
		  if rand() < 0.5;
	}
	elsif ($dice < 0.88)
	{
		push @calls, other('BEGIN;'),
		  call('exclusive', $name, 30,
			"dlock_acquire_xact('$name', '$owner', 30, $wait)"), pause(),
		  { what => 'end', sql => pick('COMMIT;', 'ROLLBACK;') };
	}
	elsif ($dice < 0.96)
	{
		# any order: deadlocks
		($name, my $second) = @{ pick([ 'n0', 'n1' ], [ 'n1', 'n0' ]) };
		push @calls, plain($name, $owner, pick('exclusive', 'shared'), 30, $wait),
		  pause(), plain($second, $owner, 'exclusive', 30, -1), pause();
	}
	else
	{
		push @calls, call('other', $name, 0, "dlock_wait('$name', $wait)");
	}
	return @calls, call('release_all', undef, 0, "dlock_release_all('$owner')");
}

# On a busy machine little may happen to the clients in the time of their first rounds.
my @ends_if_enough = map { other($_) } "SELECT s.last_value >= $enough AND e.is_called AS enough FROM storms s, evictions e \\gset",
  '\if :enough', '\echo enough', '\q', '\endif';

my @clients;
for my $c (1 .. $clients)
{
	# a new owner each time, so that nobody re-enters what a lost release left
	my @calls = (other('\set enough false'),
		map { ($_ > $rounds ? @ends_if_enough : (), one_round("owner $c.$_")) } 1 .. $most_rounds);
	my $base = "$dir/$c";
	PostgreSQL::Test::Utils::append_to_file("$base.sql",
		join("\n", map { $_->{sql} } @calls) . "\n");
	push @clients, { owner => "owner $c", calls => \@calls, base => $base };
}

# ----------------------------------------------------------------
# The storm
# ----------------------------------------------------------------

$ENV{PGAPPNAME} = 'storm';
for my $client (@clients)
{
	my $run = IPC::Run::start(
		[
			'stdbuf', '-oL', 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate',
			'-d', $node->connstr('postgres'), '-f', "$client->{base}.sql"
		],
		'<', '/dev/null', '>', "$client->{base}.out", '2>', "$client->{base}.err");
	$client->{run} = $run;
}
$ENV{PGAPPNAME} = 'weather';
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM dlock.waiters})
  or die 'nobody waits';

# Cancels, terminations and evictions, until all clients are gone.  Evictions are noted,
# with the times before and after: they end holds without their holders' knowing.
PostgreSQL::Test::Utils::append_to_file("$dir/weather.sql", qq{
	-- a victim may be gone before it is signalled, which is a warning
	SET client_min_messages = error;
	SELECT setseed(0.@{[ $seed % 1000 ]});
	CREATE TABLE evicted (since float8, until float8, name text);
	CREATE PROCEDURE weather() LANGUAGE plpgsql AS \$\$
	DECLARE
		dice float8;
		victim int;
		lock text;
		since float8;
		ends int := 0;
	BEGIN
		WHILE EXISTS (SELECT FROM pg_stat_activity
				WHERE application_name = 'storm') LOOP
			dice := random();
			PERFORM nextval('storms');
			SELECT pid INTO victim FROM dlock.waiters ORDER BY random() LIMIT 1;
			IF victim IS NULL OR dice < 0.1 THEN
				SELECT pid INTO victim FROM pg_stat_activity
					WHERE application_name = 'storm' ORDER BY random() LIMIT 1;
			END IF;
			IF dice < 0.70 THEN
				PERFORM pg_cancel_backend(victim);
			ELSIF dice < 0.80 AND ends < 30 THEN
				PERFORM pg_terminate_backend(victim);
				ends := ends + 1;
			ELSE
				lock := CASE WHEN random() < 0.1
					THEN 'p' || floor(random() * 2)
					ELSE 'n' || floor(random() * 10) END;
				since := extract(epoch FROM clock_timestamp());
				IF dlock_force_release(lock) > 0 THEN
					PERFORM nextval('evictions');
				END IF;
				INSERT INTO evicted
					VALUES (since, extract(epoch FROM clock_timestamp()), lock);
			END IF;
			PERFORM dlock_blocking_pids(victim);
			PERFORM count(*) FROM dlock.waiters, dlock.locks;
			COMMIT;
			PERFORM pg_sleep(0.02);
		END LOOP;
	END \$\$;
	CALL weather();
});
my $weather = IPC::Run::start(
	[
		'psql', '-XAtq', '-d', $node->connstr('postgres'),
		'-f', "$dir/weather.sql"
	],
	'<', '/dev/null', '>', "$dir/weather.out", '2>', "$dir/weather.err");

# Some clients die without a word while they wait.
my %killed;
for my $n (1 .. 12)
{
	usleep(100_000);
	my $client = pick(grep { !$killed{ $_->{owner} } } @clients);
	$client->{run}->kill_kill;
	$killed{ $client->{owner} } = 1;
}
for my $client (@clients)
{
	$client->{run}->finish unless $killed{ $client->{owner} };
}
$weather->finish;
is(slurp_file("$dir/weather.err"), '', 'the weather was fine');

ok( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'storm'}),
	'scenario 8: no server process outlives its client');
is($node->safe_psql('postgres', 'SELECT count(*) FROM dlock.waiters'),
	0, 'nobody waits any more');

# ----------------------------------------------------------------
# What the clients were told
# ----------------------------------------------------------------

my %evictions;
for (split /\n/, $node->safe_psql('postgres', 'SELECT name, since, until FROM evicted'))
{
	my ($name, @times) = split /\|/;
	push @{ $evictions{$name} }, \@times;
}

my (%grants, %count, @wrong);
$count{$_} = 0 for qw(grants timed_out refused deadlocks released lost answers);
my %errors;
for my $client (@clients)
{
	my %failed;
	for (split /\n/, slurp_file("$client->{base}.err"))
	{
		$failed{$1} = $2, $errors{$2}++ if /^psql:.*:(\d+): ERROR:\s+(\w{5})$/;
	}
	my $output = slurp_file("$client->{base}.out");
	my @answers = grep { /^answer\|.*\|.*\|./ } split /\n/, $output;
	my $line = 0;
	my @open;    # grants that nothing has ended
	for my $call (@{ $client->{calls} })
	{
		$line++;
		if (defined $failed{$line})
		{
			# it may have happened
			my $code = $failed{$line};
			$count{deadlocks}++ if $code eq '40P01';
			$count{lost} += ref $call->{name} ? @{ $call->{name} } : 1
			  if $call->{ttl} && $code eq '57014' || $call->{what} =~ /^release/;
			my $ends = $call->{what} =~ /^release|^discard$|^end$/;
			$_->{uncertain} = 1 for $ends ? @open : ();
			@open = () if $ends;
			next;
		}
		if ($call->{sql} !~ /^SELECT 'answer'/)
		{
			# these end holds at the earliest when the call before was over
			$_->{uncertain} = 1 for $call->{what} =~ /discard|end/ ? @open : ();
			@open = () if $call->{what} =~ /discard|end/;
			next;
		}
		my $answer = shift @answers;
		if (!defined $answer)
		{
			$count{lost} += 3 if $output !~ /^enough$/m;
			last;
		}
		my (undef, $before, $result, $after) = split /\|/, $answer, -1;
		$count{answers}++;
		if ($call->{what} =~ /^(release|release_all)$/)
		{
			$count{released} += $result eq 't' ? 1 : $result =~ /^\d+$/ ? $result : 0;
			$_->{end} = $before < $_->{end} ? $before : $_->{end} for @open;
			@open = ();
		}
		elsif ($call->{what} =~ /^(exclusive|shared|permit|all)$/)
		{
			my @names = ref $call->{name} ? @{ $call->{name} } : $call->{name};
			my @tokens = $result =~ /(\d+)/g;
			if (!@tokens)
			{
				$count{timed_out}++;
				next;
			}
			push @wrong, "($call->{sql} answers $result)" if @tokens != @names;
			for my $i (0 .. $#names)
			{
				my $grant = {
					what => "$client->{owner} by line $line: $call->{sql}",
					token => $tokens[$i],
					mode => $call->{what} eq 'all' ? 'exclusive' : $call->{what},
					before => $before, after => $after,
					end => $before + $call->{ttl}
				};
				$count{grants}++;
				push @{ $grants{ $names[$i] } }, $grant;
				push @open, $grant;
			}
		}
	}
	# a session that ended took some of these with it
	$_->{uncertain} = 1 for @open;
}
note join ', ', map { "$_: $count{$_}" } sort keys %count;
note join ', ', map { "$_: $errors{$_}" } sort keys %errors;

for my $name (sort keys %grants)
{
	my @by_token = sort { $a->{token} <=> $b->{token} } @{ $grants{$name} };
	for my $i (1 .. $#by_token)
	{
		my ($one, $two) = @by_token[ $i - 1, $i ];
		push @wrong, "($name: token $one->{token} twice)"
		  if $one->{token} == $two->{token};
		push @wrong, "($name: $two->{token} was granted before $one->{token})"
		  if $two->{after} < $one->{before};
	}

	# the times in which somebody held it for certain
	my @held;
	for my $grant (grep { !$_->{uncertain} } @by_token)
	{
		for my $eviction (@{ $evictions{$name} // [] })
		{
			my ($since, $until) = @$eviction;
			$grant->{end} = $since if $until >= $grant->{before} && $since < $grant->{end};
		}
		push @held, $grant if $grant->{end} > $grant->{after};
	}
	@held = sort { $a->{after} <=> $b->{after} } @held;
	my @still;
	for my $grant (@held)
	{
		@still = grep { $_->{end} > $grant->{after} } @still;
		my @bad = $grant->{mode} eq 'permit'
		  ? (@still < 3 ? () : $still[0])
		  : grep { $grant->{mode} ne 'shared' || $_->{mode} ne 'shared' } @still;
		push @wrong, "($name: $grant->{what} and $bad[0]{what} at $grant->{after})"
		  if @bad;
		push @still, $grant;
	}
	note "$name: " . @by_token . ' grants, of which ' . @held . ' can be judged';
}
is("@wrong[0 .. ($#wrong < 5 ? $#wrong : 5)]", '',
	'scenarios 5, 12, 14, 22: tokens grow, and nobody holds what another holds');
cmp_ok($count{grants}, '>', $clients, 'there were enough grants to tell');
cmp_ok($errors{'57014'} // 0, '>', 20, 'and cancels');

# ----------------------------------------------------------------
# What is left
# ----------------------------------------------------------------

# Session leases of the dead are over; the others have long deadlines.
ok( $node->poll_query_until(
		'postgres',
		q{SELECT count(*) = 0 FROM dlock.locks WHERE expires_at < now()}),
	'the dead leases are reaped');
# A lease that expires just now may be counted already and still be there, or be gone and
# not be counted yet.
my %stats;
Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
	@stats{qw(acquired reentered refused timed_out deadlocks released expired forced left waiters)} =
	  split /\|/, $node->safe_psql('postgres', q{
		SELECT acquired, reentered, refused, timed_out, deadlocks, released, expired,
			forced, (SELECT sum(version) FROM dlock.locks), waiters
		FROM dlock.stats});
	$stats{left} ||= 0;
	return $stats{acquired} == $stats{released} + $stats{expired} + $stats{forced} + $stats{left};
});
note join ', ', map { "$_: $stats{$_}" } sort keys %stats;
is($stats{reentered}, 0, 'nobody holds a name twice');
is($stats{acquired},
	$stats{released} + $stats{expired} + $stats{forced} + $stats{left},
	'every hold has ended in one way, or is there');
cmp_ok($stats{acquired}, '>=', $count{grants}, 'no grant is uncounted');
cmp_ok($stats{acquired}, '<=', $count{grants} + $count{lost},
	'the other grants were lost on the way');
cmp_ok($stats{timed_out}, '>=', $count{timed_out}, 'no timeout is uncounted');
cmp_ok($stats{timed_out}, '<=', $count{timed_out} + $count{lost},
	'the other timeouts were lost on the way');
cmp_ok($stats{forced}, '>', 0, 'there were evictions');
cmp_ok($stats{deadlocks}, '>=', $count{deadlocks}, 'no deadlock is uncounted');
cmp_ok($stats{deadlocks}, '<=', $count{deadlocks} + $clients,
	'nor made up');
cmp_ok($count{deadlocks}, '>', 0, 'scenario 16: there were deadlocks');
is($stats{waiters}, 0, 'no waiter is counted');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM generate_series(0, 9) AS i,
			LATERAL (SELECT dlock_force_release('n' || i) >= 0 AS evicted) AS a,
			LATERAL (SELECT CASE WHEN evicted
				THEN dlock_acquire('n' || i, 'new', 0.01) END AS token) AS b
		WHERE token IS NOT NULL}),
	10, 'all names can be had');

# Every place to wait in and every guard can be used again.
$node->safe_psql('postgres', q{SELECT dlock_acquire('gate', 'me', 3600)});
my @waiters = map {
	IPC::Run::start(
		[
			'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c',
			"SELECT dlock_acquire('gate', 'waiter $_', 60, -1), dlock_release('gate', 'waiter $_')"
		],
		'<', '/dev/null', '>', '/dev/null', '2>', "$dir/waiters.err")
} 1 .. $places;
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = $places FROM dlock.waiters"),
	"all $places places to wait in are free");
my ($status, $stdout, $stderr) = $node->psql('postgres', q{
	\set VERBOSITY sqlstate
	SELECT dlock_acquire('gate', 'one more', 60, 60)});
like($stderr, qr/53400/, 'and no more');
is($node->safe_psql('postgres', q{SELECT dlock_release('gate', 'me')}),
	't', 'the gate opens');
my $ok = 0;
$ok += $_->finish for @waiters;
is($ok, $places, 'scenario 10: all are served');

is( $node->safe_psql('postgres', qq{
		BEGIN;
		SELECT count(dlock_guard('g' || i, 'me', dlock_acquire('g' || i, 'me', 60))::text)
		FROM generate_series(0, $guards) AS i;
		COMMIT;}),
	$guards + 1, "all $guards guards are free, besides a transaction's first");

my $log = slurp_file($node->logfile);
unlike($log, qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');

done_testing();
