# The launcher keeps one worker in each database that has the extension, out of
# the way of everybody else; workers reap, count and log, and no lease needs them.

use strict;
use warnings;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use FindBin;
use lib $FindBin::RealBin;
use Processes;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('workers');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
autovacuum = off
shared_preload_libraries = 'dlock'
max_worker_processes = 16
max_logical_replication_workers = 0
restart_after_crash = on
allow_in_place_tablespaces = on
dlock.reap_interval = '50ms'
});
$node->start;

# Wait until exactly these databases have a worker, one each.
sub workers_are
{
	my ($databases, $claim) = @_;

	ok( $node->poll_query_until(
			'postgres', q{SELECT coalesce(string_agg(datname, ' ' ORDER BY datname), '')
			FROM pg_stat_activity WHERE backend_type = 'dlock worker'}, $databases),
		$claim);
}

sub worker_pid
{
	my ($database) = @_;
	my $query = "FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = '$database'";

	$node->poll_query_until('postgres', "SELECT count(*) = 1 $query")
	  or die "no worker in $database";
	return $node->safe_psql('postgres', "SELECT pid $query");
}

sub wait_until
{
	my ($database, $query, $claim) = @_;

	ok($node->poll_query_until($database, $query), $claim);
}

# A command that wants a database for itself succeeds with a worker in it.  PostgreSQL gives
# others five seconds to leave: where processes stand still for longer, all of it is done again.
sub succeeds_beside_worker
{
	my ($database, $command, $claim) = @_;

	for my $try (1 .. 10)
	{
		worker_pid($database);
		return pass($claim) if $node->psql('postgres', $command) == 0;
	}
	return fail($claim);
}

# How often a lease is in the log as expired.
sub logged
{
	my ($name) = @_;
	my @lines = grep { /lease on "\Q$name\E" expired while owner/ }
	  split /\n/, slurp_file($node->logfile);

	return scalar @lines;
}

# The largest answer to a query over a number of tries, so many seconds apart.
sub most
{
	my ($query, $times, $pause) = @_;

	return $node->safe_psql('postgres', "SELECT most(\$\$$query\$\$, $times, $pause)");
}

sub set
{
	my (@settings) = @_;

	$node->safe_psql('postgres', "ALTER SYSTEM SET $_") for @settings;
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
}

$node->safe_psql(
	'postgres', q{CREATE FUNCTION most(query text, times integer, pause float) RETURNS bigint
	LANGUAGE plpgsql AS $$
	DECLARE
		answer bigint;
		largest bigint := 0;
	BEGIN
		FOR i IN 1..times LOOP
			PERFORM pg_stat_clear_snapshot(), pg_sleep(pause);
			EXECUTE query INTO answer;
			largest := greatest(largest, answer);
		END LOOP;
		RETURN largest;
	END $$});

# Where there are workers.
wait_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'dlock launcher'},
	'there is one launcher');
$node->safe_psql('postgres', "CREATE DATABASE $_ TEMPLATE template0") for qw(a b c);
$node->safe_psql('a', 'CREATE EXTENSION dlock');
workers_are('a', 'CREATE EXTENSION starts a worker, without any call');

# A server on which nothing is held logs nothing: it would make checkpoints, and archive WAL.
$node->safe_psql('a', q{SELECT dlock_acquire('short', 'me', 0.1)});
wait_until('a', 'SELECT count(*) = 0 FROM dlock.locks', 'nothing is held');
my $idle_since = $node->lsn('insert');
for (1 .. 12)
{
	sleep 1;
	# lets the worker look around
	$node->safe_psql('a', 'SELECT pg_reload_conf()');
}
my $idle_until = $node->lsn('insert');
# a commit, so that all before it is in the files
$node->safe_psql('a', 'SELECT txid_current()');
my ($logged) = run_command([ 'pg_waldump', '-p', $node->data_dir . '/pg_wal', '-r', 'Generic', '-s', $idle_since, '-e', $idle_until ]);
is($logged, '', '... and nothing is logged');

# A server whose transactions wait for others' by default: the launcher's do not.
{
	my ($writer) = Sessions->new($node)->open('writer');
	$writer->query('BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE');
	$writer->query('CREATE TABLE written (i integer)');
	my @defaults = map { "default_transaction_$_" } qw(isolation read_only deferrable);
	set("$defaults[0] = 'serializable'", map { "$_ = on" } @defaults[ 1, 2 ]);
	local $ENV{PGOPTIONS} = join(' ', map { "-c $_=off" } @defaults[ 1, 2 ]);
	$node->safe_psql('postgres', 'CREATE DATABASE serializable');
	$node->safe_psql('serializable', 'CREATE EXTENSION dlock');
	workers_are('a serializable', 'serializable, read only and deferrable by default');
	$node->safe_psql('serializable', 'DROP EXTENSION dlock');
	workers_are('a', '... and it is dropped');
	$node->safe_psql('postgres', "ALTER SYSTEM RESET $_") for @defaults;
	$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
	$writer->query('ROLLBACK');
	$writer->quit;
}
$node->safe_psql('b', 'BEGIN; CREATE EXTENSION dlock; ROLLBACK');
$node->safe_psql('c', 'CREATE EXTENSION dlock');
workers_are('a c', 'CREATE EXTENSION that was rolled back starts none');
$node->safe_psql('c', 'DROP EXTENSION dlock');
workers_are('a', 'DROP EXTENSION ends the worker');
$node->safe_psql('c', 'BEGIN; CREATE EXTENSION dlock; COMMIT');
workers_are('a c', 'the extension can come back');
my $pid = worker_pid('c');
$node->safe_psql('c', 'BEGIN; DROP EXTENSION dlock; ROLLBACK');
$node->safe_psql('b', 'CREATE EXTENSION dlock');
workers_are('a b c', 'DROP EXTENSION that was rolled back');
is(worker_pid('c'), $pid, '... leaves the worker as it was');
$node->safe_psql('c', 'DROP EXTENSION dlock');
$node->restart;
workers_are('a b', 'a restart starts the workers where the extension is');

# Commands that want a database for themselves.
my $token = $node->safe_psql('a', q{SELECT dlock_acquire('job', 'worker', 3600)});
succeeds_beside_worker('b', 'DROP DATABASE b', 'DROP DATABASE succeeds with a worker in it');
succeeds_beside_worker('a', 'CREATE DATABASE copied TEMPLATE a', 'CREATE DATABASE succeeds with a worker in the template');
workers_are('a', 'the worker comes back to the template');
$node->safe_psql('postgres', 'CREATE ROLE proprietor; CREATE DATABASE b OWNER proprietor TEMPLATE a');
$node->safe_psql('b', q{SELECT dlock_release('none', 'x')});
succeeds_beside_worker('b', 'SET ROLE proprietor; DROP DATABASE b WITH (FORCE)',
	'DROP DATABASE WITH (FORCE) by its owner succeeds with a worker in it');
workers_are('a', 'the worker comes back to the template again');
is($node->safe_psql('copied', q{SELECT dlock_is_free('job'), count(*) FROM dlock.locks}),
	't|0', 'the copy has no leases');
cmp_ok($node->safe_psql('copied', q{SELECT dlock_acquire('job', 'other', 3600)}),
	'>', 0, '... and takes its own');
workers_are('a copied', 'the first call in the copy starts a worker');
succeeds_beside_worker('copied', 'ALTER DATABASE copied RENAME TO renamed', 'ALTER DATABASE RENAME succeeds with a worker in it');
workers_are('a renamed', 'the worker comes back under the new name');
$node->safe_psql('postgres', q{CREATE TABLESPACE elsewhere LOCATION ''});
succeeds_beside_worker('renamed', 'ALTER DATABASE renamed SET TABLESPACE elsewhere',
	'ALTER DATABASE SET TABLESPACE succeeds with a worker in it');
workers_are('a renamed', 'the worker comes back to the moved database');
is($node->safe_psql('renamed', q{SELECT dlock_owner('job')}), 'other', '... which has its leases');

# While somebody has locked a database, one worker may wait for it, not more
# and more.
my $holder;
for (1 .. 10)
{
	worker_pid('renamed');
	$holder = $node->background_psql('postgres', on_error_stop => 0);
	last if $holder->query("BEGIN; ALTER DATABASE renamed RENAME TO moving; SELECT 'locked'") eq 'locked';
	$holder->quit;
}
my $waiting = q{FROM pg_locks WHERE locktype = 'object' AND NOT granted
	AND classid = 'pg_database'::regclass
	AND objid = (SELECT oid FROM pg_database WHERE datname = 'renamed')};
wait_until('postgres', "SELECT count(*) = 1 $waiting", 'a worker waits for a locked database');
# the launcher looks again every five seconds, after at most five of waiting
is(most("SELECT count(*) $waiting", 24, 0.5), 1, '... and no second one joins it');
$holder->query_safe('ROLLBACK');
$holder->quit;
workers_are('a renamed', 'the worker is back when the lock is gone');

# Workers that die.
$pid = worker_pid('a');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
wait_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'dlock worker' AND datname = 'a' AND pid <> $pid",
	'a terminated worker is replaced');
$pid = worker_pid('a');
Processes::crash_postgres($node, $pid);
wait_until('a', "SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'dlock worker' AND datname = 'a' AND pid <> $pid",
	'a killed worker comes back with the server');
$node->_update_pid(1);
is($node->safe_psql('a', q{SELECT token FROM dlock.locks WHERE name = 'job'}),
	$token, 'the leases are still there');
cmp_ok($node->safe_psql('a', q{SELECT dlock_acquire('next', 'worker', 3600)}),
	'>', $token, 'and tokens grow');

# What a worker does, and its counters.
$node->safe_psql('a', q{SELECT dlock_stats_reset();
	SELECT dlock_acquire('short' || i, 'mayfly', 0.01) FROM generate_series(1, 5) i});
wait_until('a', 'SELECT expired = 5 AND reaped = 5 FROM dlock.stats',
	'reaped leases are counted as expired and as reaped');
is($node->safe_psql('a', q{SELECT count(*) FROM dlock.locks WHERE owner = 'mayfly'}),
	0, '... and are gone');
# they are removed and logged in the order of their pages
$node->wait_for_log(qr/lease on "short$_" expired while owner "mayfly" held it/) for 1 .. 5;
is(logged("short$_"), 1, "lease $_ is logged once") for 1 .. 5;
like(slurp_file($node->logfile),
	qr/DETAIL:  Token \d+, role "[^"]+", process \d+, application "[^"]+"\./,
	'... with who held it');

# Take a lease that ends by itself, and wait until the worker has removed it.
my $round = 0;
sub lose_a_lease
{
	my $name = 'lost' . ++$round;

	$node->safe_psql('a', "SELECT dlock_acquire('$name', 'loser', 0.01)");
	$node->poll_query_until('a', "SELECT count(*) = 0 FROM dlock.locks WHERE name = '$name'")
	  or die "$name was not reaped";
	return $name;
}

# A worker reads a changed setting a moment after the reload.
set('dlock.log_expired = off');
my $silent = 0;
for (1 .. 100)
{
	my $name = lose_a_lease();

	# the counter comes before the line in the log, the next round after both
	lose_a_lease();
	$silent = !logged($name);
	last if $silent;
}
ok($silent, 'dlock.log_expired = off silences the worker');
my @quiet = map { lose_a_lease() } 1 .. 3;
set('dlock.log_expired = on');
my $loud = 0;
for (1 .. 100)
{
	my $name = lose_a_lease();

	lose_a_lease();
	$loud = logged($name);
	last if $loud;
}
is($loud, 1, 'dlock.log_expired = on makes it speak again');
is(logged($_), 0, "lease $_ was lost without a word") for @quiet;

# A long interval leaves dead rows where they are.  (Rarely a worker works
# without being due, to see whether the extension is still there.)
set(q{dlock.reap_interval = '1h'});
my $stays = 0;
for (1 .. 100)
{
	my $name = 'corpse' . $_;

	$node->safe_psql('a', "SELECT dlock_acquire('$name', 'loser', 0.01)");
	$node->poll_query_until('a', "SELECT dlock_is_free('$name')") or die;
	$stays = $node->safe_psql('a', "SELECT count(*) FROM dlock_holders('$name')");
	last if $stays;
}
is($stays, 1, 'dlock.reap_interval can be changed by a reload');

# Now a newcomer is the first to find a lease over.
$node->safe_psql('a', q{CREATE FUNCTION take(name text) RETURNS boolean LANGUAGE plpgsql
	AS $$ BEGIN RETURN dlock_acquire(name, 'second', 3600) > 0; END $$});
for my $log ('on', 'off')
{
	my $taken = 0;

	for (1 .. 100)
	{
		my $name = "takeover $log $_";
		my $before = $node->safe_psql('a', 'SELECT reaped FROM dlock.stats');

		$node->safe_psql('a', "SELECT dlock_acquire('$name', 'first', 0.01)");
		$node->poll_query_until('a', "SELECT dlock_is_free('$name')") or die;
		my $second = $node->safe_psql('a', qq{SET dlock.log_expired = $log;
			SELECT take('$name')});
		my $after = $node->safe_psql('a', 'SELECT reaped FROM dlock.stats');
		next if $after != $before;
		$taken = 1;
		is($second, 't', "takeover, log_expired $log: a newcomer gets the lease");
		is(logged($name), $log eq 'on' ? 1 : 0, '... and logs accordingly');
		unlike(slurp_file($node->logfile), qr/STATEMENT:.*take|CONTEXT:.*take/,
			'... without what it happened to be doing');
		last;
	}
	ok($taken, 'a newcomer was faster than the worker');
}
$node->safe_psql('a', 'SELECT dlock_stats_reset()');
set(q{dlock.reap_interval = '50ms'});
wait_until('a', q{SELECT count(*) = 0 FROM dlock.locks WHERE expires_at < now()},
	'a short interval clears them away');

# LOCK TABLE.
$holder = $node->background_psql('a');
$node->safe_psql('a', q{SELECT dlock_acquire('behind a lock', 'loser', 0.01)});
$holder->query_safe(q{SET lock_timeout = '60s'; BEGIN;
	LOCK TABLE dlock_private.lease_table IN ACCESS EXCLUSIVE MODE});
pass('the worker does not keep LOCK TABLE waiting');
$holder->query_safe(q{SELECT count(dlock_acquire('under the lock ' || i, 'loser', 0.01))
	FROM generate_series(1, 5) i});
is( most(q{SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE NOT granted AND backend_type = 'dlock worker'}, 20, 0.05),
	0, 'the worker does not queue for the table');
$holder->query_safe('COMMIT');
$holder->quit;
wait_until('a', q{SELECT count(*) = 0 FROM dlock.locks WHERE owner = 'loser'},
	'... and reaps once the lock is gone');

# No place for workers.
$node->adjust_conf('postgresql.conf', 'max_worker_processes', '1');
my $offset = -s $node->logfile;
$node->restart;
$node->wait_for_log(qr/LOG:  could not start a dlock worker/, $offset);
pass('too few worker processes are told to the log');
my $first = $node->safe_psql('a', q{SELECT dlock_acquire('unattended', 'first', 0.2)});
is($node->safe_psql('a', q{SELECT dlock_acquire('unattended', 'second', 60) IS NULL
	OR dlock_owner('unattended') = 'second'}), 't', 'without workers a lease excludes');
wait_until('a', q{SELECT dlock_acquire('unattended', 'second', 60) IS NOT NULL},
	'... and ends at its deadline');
cmp_ok($node->safe_psql('a', q{SELECT token FROM dlock_holders('unattended')}),
	'>', $first, '... with a larger token for the next');
SKIP:
{
	my $launcher = $node->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock launcher'});
	skip 'no /proc', 1 unless -r "/proc/$launcher/stat";
	my $cpu = sub {
		my @fields = split / /, slurp_file("/proc/$launcher/stat") =~ s/.*\) //sr;
		return ($fields[11] + $fields[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK);
	};
	my $before = $cpu->();
	$node->safe_psql('postgres', 'SELECT pg_sleep(1)');
	cmp_ok($cpu->() - $before, '<', 0.3, 'the launcher does not spin meanwhile');
}
my @warnings = slurp_file($node->logfile, $offset) =~ /could not start a dlock worker/g;
is(@warnings, 1, '... once');

# More databases than there is room for.
sub is_refused
{
	my ($database, $claim) = @_;
	my ($status, $out, $error) = $node->psql($database, q{SELECT dlock_acquire('x', 'y', 3600)},
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	like($error, qr/ERROR:  53400: too many databases use dlock.*HINT:  Increase "dlock\.max_databases"/s, $claim);
	return;
}

$node->safe_psql('c', 'CREATE EXTENSION dlock');
my $old_token = $node->safe_psql('c', q{SELECT dlock_acquire('job', 'first', 3600)});
$node->adjust_conf('postgresql.conf', 'max_worker_processes', '16');
$node->append_conf('postgresql.conf', 'dlock.max_databases = 2');
# a worker that is late would find its place taken by the third's: that one cannot come yet
$node->safe_psql('postgres', 'ALTER DATABASE renamed ALLOW_CONNECTIONS false');
$node->restart;
workers_are('a c', 'two databases fit dlock.max_databases = 2');
# a worker is seen before it has taken its place; a call takes it, too
$node->safe_psql($_, q{SELECT dlock_release('none', 'x')}) for 'a', 'c';
$node->safe_psql('postgres', 'ALTER DATABASE renamed ALLOW_CONNECTIONS true');
is_refused('renamed', 'a third is refused, with a hint');

# Looking needs no place.
is( $node->safe_psql('renamed', q{SELECT dlock_owner('job'), dlock_is_free('job'), (SELECT owner FROM dlock_holders('job')),
		(SELECT count(*) FROM dlock.locks WHERE expires_at > clock_timestamp() AND expires_at < clock_timestamp() + interval '1 h 1 min'),
		(SELECT count(*) FROM dlock.waiters), dlock_blocking_pids(1), (SELECT acquired FROM dlock.stats)}),
	'other|f|other|1|0|{}|0', '... but may look at what it has');
$node->safe_psql('postgres', 'CREATE DATABASE e TEMPLATE template0');
$node->safe_psql('e', 'CREATE EXTENSION dlock');
is($node->safe_psql('e', q{SELECT dlock_owner('x'), dlock_is_free('x'), (SELECT count(*) FROM dlock.locks)}),
	'|t|0', '... and so may one whose table was never used');

# DROP EXTENSION frees the place, once nobody is at it any more.
$node->safe_psql('a', 'BEGIN; SAVEPOINT s; DROP EXTENSION dlock; ROLLBACK TO s; COMMIT');
is_refused('renamed', 'DROP EXTENSION that is rolled back frees no place');
my $waiter = $node->background_psql('c', on_error_stop => 0);
$waiter->query_until(qr/waiting/, "\\echo waiting\nSELECT dlock_acquire('job', 'waiter', 60, -1);\n");
wait_until('c', 'SELECT count(*) = 1 FROM dlock.waiters', 'somebody waits');
$node->safe_psql('c', 'DROP EXTENSION dlock');
wait_until('renamed', q{SELECT dlock_acquire('x', 'y', 3600) > 0}, 'DROP EXTENSION frees the place');
$waiter->query('SELECT 1');
like($waiter->{stderr}, qr/table "dlock_private.lease_table" does not exist/, '... and the waiter is told');
$waiter->quit;
$node->safe_psql('c', 'CREATE EXTENSION dlock');
is_refused('c', '... which is gone when the extension comes back');
my $inside = $node->background_psql('renamed');
is($inside->query_safe(q{SELECT dlock_owner('x')}), 'y', 'DROP and CREATE in one transaction');
$node->safe_psql('renamed', 'BEGIN; DROP EXTENSION dlock; CREATE EXTENSION dlock; COMMIT');
is_refused('c', '... free no place');
is($inside->query_safe(q{SELECT dlock_owner('x'), dlock_acquire('x', 'z', 3600) > 0}), '|t', '... also for who is connected');
$node->safe_psql('renamed', 'DROP EXTENSION dlock');
wait_until('c', q{SELECT dlock_acquire('job', 'other', 3600) > 0}, 'one after the other');
cmp_ok($node->safe_psql('c', q{SELECT token FROM dlock.locks}), '>', $old_token, '... with a larger token');
workers_are('a c', '... and a worker');
$node->safe_psql('renamed', 'CREATE EXTENSION dlock');
is($inside->query_safe(q{SELECT dlock_owner('x'), dlock_is_free('x')}), '|t', 'who was connected may look on');
$inside->quit;
is_refused('renamed', '... and take nothing');
is($node->psql('postgres', 'DROP DATABASE renamed'), 0, 'one goes');
wait_until('c', q{SELECT dlock_acquire('x', 'y', 3600) > 0}, 'and there is room for the rest');
workers_are('a c', '... and its worker');

# A database that takes no new connections is still there.
$inside = $node->background_psql('c');
$inside->query_safe('SELECT dlock_stats_reset()');
$node->safe_psql('postgres', 'ALTER DATABASE c ALLOW_CONNECTIONS false');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . worker_pid('c') . ')');
workers_are('a', 'no worker can come back to a closed database');
$node->safe_psql('postgres', 'CREATE DATABASE d TEMPLATE template0');
$node->safe_psql('d', 'CREATE EXTENSION dlock');
$node->psql('d', q{SELECT count(dlock_acquire('x' || i, 'y', 60)) FROM generate_series(1, 5) i});
is($inside->query_safe(q{SELECT acquired, dlock_owner('x') FROM dlock.stats}), '0|y',
	'... and no other database takes its place while somebody is in it');
$inside->quit;

$node->stop;
done_testing();
