# The library need not be preloaded: CREATE EXTENSION on a running server, and it runs, with
# a worker that reaps, over restarts, crashes and promotions.  What is worse then is
# that nothing happens before the first call.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', q{
restart_after_crash = on
autovacuum = off
max_connections = 60
max_worker_processes = 4
max_logical_replication_workers = 0
dlock.reap_interval = '50ms'
dlock.max_waiters = 5
dlock.max_ttl = '1h'
dlock.boot_id = 'first'
});
$node->start;

sub query
{
	my ($query, $on) = @_;
	return ($on // $node)->safe_psql('postgres', $query);
}

# Wait until there is one launcher, and one worker in each of these databases.
sub processes_are
{
	my ($databases, $claim, $on) = @_;
	return ok(($on // $node)->poll_query_until(
			'postgres', q{SELECT concat_ws(' ', count(*) FILTER (WHERE backend_type = 'dlock launcher'),
			string_agg(datname, ' ' ORDER BY datname) FILTER (WHERE backend_type = 'dlock worker'))
			FROM pg_stat_activity}, "1 $databases"), $claim);
}

# A role cannot size what all share, neither with a setting of its own nor with one that
# its client sends, made before the session knows what it means: it is refused all calls.
query(q{CREATE ROLE plain LOGIN; CREATE ROLE small LOGIN SUPERUSER; ALTER ROLE small SET dlock.max_waiters = 1;
	CREATE TABLE numbers AS SELECT generate_series(1, 10) AS i; GRANT SELECT ON numbers TO PUBLIC});

sub refused
{
	my ($role, $options, $setting, $query, $title) = @_;
	local $ENV{PGOPTIONS} = $options;
	my ($status, undef, $error) = $node->psql('postgres', $query, extra_params => [ '-U', $role ]);
	like($error, qr/WARNING:  .*"dlock\.$setting".*ERROR:  this role or client cannot make the settings of dlock/s, $title);
	return;
}
refused('small', '', 'max_waiters', 'CREATE EXTENSION dlock', 'a role with a setting of its own that it cannot have');

# What SET says has no effect, and does not hide what the server's files say.
like(query(q{SET dlock.max_guards = 2; SET dlock.max_databases = 1; CREATE EXTENSION dlock; SELECT dlock_acquire('job', 'me', 0.01)}),
	qr/^\d+$/, 'CREATE EXTENSION and a lease, on a running server');
processes_are('postgres', 'there is a worker');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM dlock.locks'), '... which reaps');
query('CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION dlock');
is($node->safe_psql('other', 'BEGIN; SELECT count(dlock_acquire_xact(i::text, \'me\', 60)) FROM generate_series(1, 20) i; COMMIT'),
	20, 'a session\'s settings do not size the shared memory');
processes_are('other postgres', 'CREATE EXTENSION starts a worker, without any call');
refused('plain', '-c dlock.max_ttl=1', 'max_ttl', q{SELECT dlock_acquire('long', 'me', 7200)}, 'a plain role cannot set dlock.max_ttl');

# That is no matter of statements that only open the lock table.
$node->safe_psql('other', q{ALTER DATABASE postgres SET dlock.reap_interval = '1h'});
for my $statement ('VACUUM', 'ANALYZE', q{SELECT pg_total_relation_size('dlock_private.lease_table') > 0})
{
	my ($status, undef, $error) = $node->psql('postgres', $statement);
	is($status, 0, "a setting that the database cannot have: $statement");
	like($error, qr/\A[^\n]*WARNING:  .*"dlock\.reap_interval"/, '... warns');
}
$node->safe_psql('other', q{ALTER DATABASE postgres RESET dlock.reap_interval});

# In a parallel operation the server refuses every setting, also those of its own files.  So the
# first use must not be in one.  To look at the lock table's size, as monitoring does with all
# tables of a database, is no use.
{
	local $ENV{PGOPTIONS} = query('SHOW server_version_num') < 160000 ? '-c force_parallel_mode=on' : '-c debug_parallel_query=on';
	my ($status, undef, $error) = $node->psql('postgres', q{
		CREATE FUNCTION pg_temp.first() RETURNS text LANGUAGE plpgsql PARALLEL RESTRICTED AS 'BEGIN RETURN dlock_owner($$job$$); END';
		SELECT pg_temp.first(), count(*) FROM numbers;}, extra_params => [ '-U', 'plain' ]);
	like($error, qr/ERROR:  dlock cannot be used for the first time during a parallel operation/, 'the first use is in a parallel operation');
	for my $who ('parallel_leader_participation = off', 'max_parallel_workers = 0')
	{
		(undef, my $out, $error) = $node->psql('postgres', qq{
			SET max_parallel_workers_per_gather = 4; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
			SET min_parallel_table_scan_size = 0; SET $who;
			SELECT sum(pg_total_relation_size(oid)) > 0 FROM pg_class WHERE relkind = 'r';
			SELECT dlock_acquire('long', 'me', 7200)}, extra_params => [ '-U', 'plain' ]);
		is($out, 't', "... which the size of all tables is not ($who)");
		like($error, qr/ERROR:  ttl must be at most 3600 seconds/, '... and the settings count in the first call');
	}
	(undef, my $out, $error) = $node->psql('postgres', q{
		CREATE FUNCTION pg_temp.first() RETURNS text LANGUAGE plpgsql PARALLEL RESTRICTED AS 'BEGIN RETURN current_setting($$dlock.max_ttl$$); END';
		SELECT dlock_owner('job') IS NULL, pg_temp.first(), count(*) FROM numbers;}, extra_params => [ '-U', 'plain' ]);
	is($out, 't|1h|10', '... but not if the statement names a function of dlock');
}

# Sessions wait for each other; what sizes the places is the server's setting.
{
	my $sessions = Sessions->new($node);
	my ($a, $b, $c, $d, $e) = $sessions->open(qw(a b c d e));
	$a->query(q{SELECT dlock_acquire('line', 'a', 600)});
	my @line;
	for my $waiter ($b, $c, $d)
	{
		$waiter->send("SELECT dlock_acquire('line', '$waiter->{name}', 600, 600) IS NOT NULL");
		push @line, $waiter->{name};
		$sessions->waiting(@line);
	}
	is($e->query(q{SELECT dlock_acquire('line', 'e', 600, 5)}), '53400', 'the server\'s file says how many can wait');
	like($e->error, qr/"dlock.max_waiters" allows 5\./, '... and the error how many that is');
	$a->query(q{SELECT dlock_release('line', 'a')});
	is($b->answer, 't', 'the first in line is granted the lease');
	is($b->query(q{SELECT dlock_release('line', 'b')}), 't', '... and gives it back');
	is($c->answer, 't', 'then the next');
	$c->query(q{SELECT dlock_force_release('line')});
	is($d->answer, 't', 'and the last');
	$_->quit for $a, $b, $c, $d, $e;
}

# A changed lock delay counts for all from the moment that the worker has read it.
query(q{LOAD 'dlock'; ALTER SYSTEM SET dlock.lock_delay = '1h'});
query('SELECT pg_reload_conf()');
my $round = 0;
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
			$round++;
			query(qq{SELECT dlock_acquire('delayed $round', 'a', 0.001)});
			return query(qq{SELECT pg_sleep(0.02), dlock_acquire('delayed $round', 'b', 60) IS NULL}) eq '|t'; }),
	'dlock.lock_delay can be changed by a reload');
query(q{LOAD 'dlock'; ALTER SYSTEM RESET dlock.lock_delay});
query('SELECT pg_reload_conf()');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name LIKE 'delayed _%'}),
	'... and back');

# What the command line of the server says, no client hides either.
system_or_bail('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-c dlock.lock_delay=1h --cluster-name=main', 'restart');
$node->_update_pid(1);
query(q{SELECT dlock_acquire('delayed', 'a', 0.001)});
refused('plain', '-c dlock.lock_delay=0', 'lock_delay', q{SELECT dlock_owner('job')}, 'a plain role cannot set dlock.lock_delay');
is(query(q{SELECT pg_sleep(0.02), dlock_acquire('delayed', 'b', 60) IS NULL}), '|t', '... nor change that of the server');
$node->stop;	# a restart would keep its command line
$node->start;
query(q{SELECT dlock_release('none', 'me')});
processes_are('other postgres', 'launcher and workers run');

# A crash: all comes back without a call.
query(q{SELECT dlock_acquire('kept', 'me', 3600)});
my ($victim) = Sessions->new($node)->open('victim');
Processes::crash_postgres($node, $victim->query('SELECT pg_backend_pid()'));
processes_are('other postgres', 'after a crash launcher and workers come back, without any call');
$node->_update_pid(1);
is(query(q{SELECT dlock_owner('kept')}), 'me', '... and the leases are there');

# Thirty first calls at once, after a restart and after a crash.
sub thirty
{
	my ($title) = @_;
	my $sessions = Sessions->new($node);
	my @all = $sessions->open(map { "s$_" } 1 .. 30);
	$_->send(q{SELECT dlock_acquire('first ' || pg_backend_pid(), 'me', 60) > 0}) for @all;
	is(join(' ', map { $_->answer } @all), join(' ', ('t') x 30), "$title: thirty first calls at once");
	$_->quit for @all;
	processes_are('other postgres', "$title: one launcher, and one worker each");
	return;
}
$node->restart;
thirty('after a restart');

# Until the first call after a restart nothing is reaped.
query(q{SELECT dlock_release_all('me'); SELECT dlock_acquire('brief', 'me', 0.001)});
$node->restart;
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'dlock'}), 0, 'a restart starts nothing');
query(q{SELECT dlock_release('none', 'me')});
processes_are('other postgres', '... but the first call does');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name = 'brief'}),
	'... and what was over is reaped');

# In another boot the lease clock goes on from the server's start, not from the first call.
sub remaining
{
	my ($on) = @_;
	return query(q{SELECT dlock_remaining('long', 'me')}, $on);
}
query(q{SELECT dlock_acquire('long', 'me', 600)});
my $asked = time;
my $before = remaining();
$node->stop;
$node->append_conf('postgresql.conf', "dlock.boot_id = 'second'");
$node->start;
sleep 3;
query(q{SELECT dlock_release('none', 'me')});
my $after = remaining();
cmp_ok($after, '<', $before - 2, 'another boot: the time since the server\'s start counts');
cmp_ok($after, '>', $before - (time - $asked) - 1, '... and no more');

# A standby that is promoted has seen marks that are younger than its start.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "dlock.boot_id = 'third'");
$standby->start;
sleep 3;
query(q{SELECT dlock_renew('long', 'me', 600)});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$before = remaining();
$asked = time;
$standby->promote;
is(query(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'dlock'}, $standby), 0, 'a promotion starts nothing');
is(query(q{SELECT dlock_acquire('long', 'you', 60) IS NULL}, $standby), 't', 'promoted: a lease is held');
my $left = remaining($standby);
cmp_ok($left, '>', $before - (time - $asked) - 1, '... and ends no earlier');
processes_are('other postgres', 'the first call starts launcher and workers', $standby);
$standby->stop;

# No place for a worker: calls work.
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->stop;
my $offset = -s $node->logfile;
$node->start;
for my $i (1 .. 3)
{
	is(query(qq{SELECT dlock_acquire('alone $i', 'first', 0.01) > 0}), 't', 'without a worker a lease is granted');
	ok($node->poll_query_until('postgres', qq{SELECT dlock_acquire('alone $i', 'second', 60) IS NOT NULL}), '... and ends');
}
my @told = slurp_file($node->logfile, $offset) =~ /LOG:  could not start a dlock worker/g;
is(@told, 1, 'the log is told once');
like(slurp_file($node->logfile, $offset), qr/HINT:  Increase "max_worker_processes"/, '... what to do');

done_testing();
