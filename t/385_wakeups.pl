# Scenarios 10 and 11: waiters are served in the order of their arrival, and
# each release wakes exactly one of them, however many wait.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $many = 200;

my $node = PostgreSQL::Test::Cluster->new('wakeups');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
max_connections = 230
synchronous_commit = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $dir = PostgreSQL::Test::Utils::tempdir();

sub sql { return $node->safe_psql('postgres', @_); }

# One more process that waits for a name.
sub join_queue
{
	my ($owner, $call) = @_;

	return IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "SELECT $call" ],
		'<', '/dev/null', '>', "$dir/$owner.out", '2>', "$dir/$owner.err");
}

sub wait_for_waiters
{
	my ($count) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = $count FROM dlock.waiters")
	  or die "there are not $count waiters";
	return;
}

sub woken { return sql('SELECT woken FROM dlock.stats'); }

# One release after another; each has woken one, whatever the queue's length.
for my $count (50, $many)
{
	sql("SELECT dlock_stats_reset()");
	sql(q{SELECT dlock_acquire('l', 'a', 3600)});
	my @waiters = map { join_queue("w$_", "dlock_acquire('l', 'w$_', 3600, -1)") }
	  1 .. $count;
	wait_for_waiters($count);
	is(woken(), 0, "$count wait: nobody is woken for nothing");
	my @order = split / /, sql(
		q{SELECT string_agg(owner, ' ' ORDER BY "position") FROM dlock.waiters});

	is(sql(q{SELECT dlock_release('l', 'a')}), 't', 'one release');
	wait_for_waiters($count - 1);
	is(woken(), 1, "scenario 11: of $count waiters one is woken");
	is(sql(q{SELECT dlock_owner('l')}), $order[0], 'the one that came first');

	# the rest, one after another: each is the owner at once
	my $expected = join ' ', @order;
	my $served = sql(qq{
		CREATE TEMP TABLE served (n serial, owner text);
		DO \$\$
		DECLARE
			who text;
		BEGIN
			FOR i IN 1..$count LOOP
				who := dlock_owner('l');
				INSERT INTO served (owner) VALUES (who);
				PERFORM dlock_release('l', who);
			END LOOP;
		END \$\$;
		SELECT string_agg(owner, ' ' ORDER BY n) FROM served});
	is($served, $expected, "scenario 10: all $count in their order");
	$_->finish for @waiters;
	is(woken(), $count, 'one wake-up for each');
	is( sql('SELECT acquired, released, waiters FROM dlock.stats'),
		($count + 1) . '|' . ($count + 1) . '|0', 'the counters agree');
	is(sql(q{SELECT sum(n) FROM dlock.stats, unnest(wait_histogram) AS n}),
		$count, 'the histogram has all of them');
}

# Readers at the head are woken together, and those behind a writer are not.
sql('SELECT dlock_stats_reset()');
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
my @waiters;
for my $who ('r1', 'r2', 'r3', 'w4', 'r5')
{
	my $shared = $who =~ /r/ ? '_shared' : '';
	push @waiters, join_queue($who, "dlock_acquire$shared('l', '$who', 3600, -1)");
	wait_for_waiters(scalar @waiters);
}
sql(q{SELECT dlock_release('l', 'a')});
is(sql(q{SELECT string_agg(owner, ' ' ORDER BY owner) FROM dlock_holders('l')}),
	'r1 r2 r3', 'scenario 12: the readers at the head go together');
is(woken(), 3, 'and nobody else is woken');
sql("SELECT dlock_release('l', '$_')") for 'r1', 'r2';
is(woken(), 3, 'nor before the last reader has released');
sql(q{SELECT dlock_release('l', 'r3')});
is(sql(q{SELECT dlock_owner('l')}), 'w4', 'then the writer goes');
is(woken(), 4, 'alone');
sql(q{SELECT dlock_release('l', 'w4')});
is(woken(), 5, 'and the reader behind it');
$_->finish for @waiters;
sql(q{SELECT dlock_release('l', 'r5')});

# Scenario 10: nobody releases and nothing reaps.  The holder lets its lease
# run out once all stand in line.
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
@waiters = ();
for my $n (1 .. 8)
{
	push @waiters, join_queue("s$n", "dlock_acquire('l', 's$n', 0.2, -1)");
	wait_for_waiters($n);
}
is(sql(q{SELECT dlock_renew('l', 'a', 0.2)}), 't', 'the holder has 0.2 s left');
$_->finish for @waiters;
my @tokens = map { slurp_file("$dir/s$_.out") + 0 } 1 .. 8;
is("@tokens", join(' ', sort { $a <=> $b } @tokens),
	'scenario 10: eight are served in the order of their arrival');
cmp_ok($tokens[0], '>', 0, 'all of them');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no assertion failed');
done_testing();
