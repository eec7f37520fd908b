# Session and transaction leases on a standby: it takes them for alive, shows them as
# the primary does, and waits for nothing.  After promotion their sessions and
# transactions are gone, and their times to live count.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
wal_consistency_checking = 'generic'
dlock.reap_interval = '20ms'
});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

sub sql { return $primary->safe_psql('postgres', @_); }
sub there { return $standby->safe_psql('postgres', @_); }

sub catch_up
{
	# a release is answered before it is written
	sql(q{SELECT pg_logical_emit_message(true, '', '')});
	$primary->wait_for_catchup($standby);
	return;
}

my $rows = q{
	SELECT name, owner, mode, version, token, acquired_at, role, pid,
		application_name, client_addr
	FROM %s ORDER BY name COLLATE "C", token};

sub same
{
	my ($title) = @_;
	my @questions = (
		sprintf($rows, 'dlock.locks'),
		sprintf($rows, q{(SELECT h.* FROM (SELECT DISTINCT name FROM dlock.locks) n,
			LATERAL dlock_holders(n.name) h) AS h}),
		q{SELECT n, dlock_owner(n), dlock_is_free(n)
			FROM unnest(ARRAY['session', 'short', 'xact', 'plain', 'free']) AS n},
		q{SELECT held FROM dlock.stats},
		q{SELECT name, remaining, dlock_remaining(name, 'me'), dlock_remaining(name, 'me', token), dlock_remaining(name, 'you')
			FROM dlock.locks WHERE expires_at IS NULL ORDER BY name});

	catch_up();
	is(there($_), sql($_), "$title: the standby answers like the primary")
	  for @questions;
	return;
}

my $session = $primary->background_psql('postgres', on_error_stop => 0);
my $pid = $session->query_safe('SELECT pg_backend_pid()');
$session->query_safe(q{SELECT dlock_acquire_session('session', 'me', 3600)});
$session->query_safe(q{SELECT dlock_acquire_session('short', 'me', 0.2)});
$session->query_safe(q{SELECT dlock_acquire('plain', 'me', 3600)});
$session->query_safe('BEGIN');
$session->query_safe(q{SELECT dlock_acquire_xact('xact', 'me', 3600)});
same('held');
is(there(q{SELECT dlock_owner('session'), dlock_is_free('short'), dlock_owner('xact')}),
	'me|f|me', 'held on the standby');

is(there(q{SELECT dlock_remaining('session', 'me'), dlock_remaining('short', 'me'), dlock_remaining('plain', 'me') BETWEEN 3000 AND 3601,
		remaining BETWEEN 3000 AND 3601, dlock_remaining('free', 'me') FROM dlock_holders('plain')}),
	'3600|0.2|t|t|', 'what is left of them');
is(sql(q{SELECT name FROM dlock.locks WHERE guarded}), 'xact', 'one is guarded on the primary');
is(there(q{SELECT count(*) FROM dlock.locks WHERE guarded}), 0, 'there are no guards on a standby');

# beyond the time to live, by the standby's own clock
$standby->poll_query_until('postgres', q{
	SELECT clock_timestamp() > acquired_at + interval '0.4 s'
	FROM dlock.locks WHERE name = 'short'}) or die 'time stands still';
is(there(q{SELECT dlock_owner('short'), dlock_is_free('short')}),
	'me|f', 'a live session is not taken for dead when its time to live is over');
same('beyond the time to live');

# Someone waits on the primary, nobody on the standby.
my $waiter = $primary->background_psql('postgres', on_error_stop => 0);
$waiter->query_until(qr/waiting/,
	"\\echo waiting\nSELECT dlock_acquire('session', 'you', 3600, -1);\n");
$primary->poll_query_until('postgres', q{SELECT count(*) = 1 FROM dlock.waiters})
  or die 'nobody waits';
is(there(q{SELECT count(*) FROM dlock.waiters}), 0, 'nobody waits on the standby');
is(there(q{SELECT dlock_blocking_pids(pg_backend_pid())}),
	'{}', 'and nobody is blocked');
is(there(q{SELECT waiters FROM dlock.stats}), 0, 'nor counted');

for my $call (
	q{dlock_acquire('session', 'me', 60, -1)},
	q{dlock_acquire_shared('free', 'me', 60, 1)},
	q{dlock_acquire_permit('free', 'me', 60, 1, 1)},
	q{dlock_acquire_all(ARRAY['free', 'session'], 'me', 60, -1)},
	q{dlock_acquire_session('free', 'me', 60)},
	q{dlock_acquire_session('session', 'me', 60, -1)},
	q{dlock_acquire_xact('free', 'me', 60)},
	q{dlock_wait('session', -1)},
	q{dlock_wait('free')},
	q{dlock_guard('plain', 'me', 1)})
{
	my ($status, $stdout, $stderr) = $standby->psql('postgres',
		"\\set VERBOSITY sqlstate\nBEGIN; SELECT $call;");
	like($stderr, qr/ERROR:\s+25006$/, "on a standby $call is refused");
}
is(there('DISCARD ALL; SELECT 1'), 1, 'DISCARD ALL on a standby');

# What ends on the primary ends on the standby.
$session->query_safe('COMMIT');
$session->query_safe(q{SELECT dlock_release('short', 'me')});
same('ended');
is(there(q{SELECT dlock_is_free('xact'), dlock_is_free('short'), dlock_is_free('session')}),
	't|t|f', 'what ended is free on the standby');
$session->query_safe(q{SELECT dlock_acquire_session('short', 'me', 1)});

# A transaction lease whose transaction is open when the primary dies.
$session->query_safe('BEGIN');
$session->query_safe(q{SELECT dlock_acquire_xact('xact', 'me', 3600)});
catch_up();

$primary->stop('immediate');
# their psql may have noticed already
eval { $_->quit } for $session, $waiter;
$standby->promote;
is(there(q{SELECT dlock_owner('session'), dlock_owner('xact'), dlock_owner('plain')}),
	'me|me|me', 'promoted: long ones are held');
is(there(q{SELECT dlock_acquire('session', 'you', 60)}), '', 'and exclude');
is(there(q{SELECT bool_and(expires_at < now() + interval '3601 s') FROM dlock.locks}),
	't', 'until their times to live have passed');
my $token = there(q{SELECT token FROM dlock.locks WHERE name = 'session'});

# Somebody who waits gets the short one when it is over.
my $heir = $standby->background_psql('postgres', on_error_stop => 0);
cmp_ok($heir->query_safe(q{SELECT dlock_acquire_session('short', 'you', 60, -1)}),
	'>', $token, 'a short one ends, and a waiter has it');

# The owner comes back: its new session takes the lease anew, and keeps it.
my $owner = $standby->background_psql('postgres', on_error_stop => 0);
cmp_ok($owner->query_safe(q{SELECT dlock_acquire_session('session', 'me', 0.05)}),
	'>', $token, 'the owner takes its lease anew');
there(q{SELECT dlock_acquire('an hourglass', 'me', 0.2)});
$standby->poll_query_until('postgres', q{SELECT dlock_is_free('an hourglass')})
  or die 'time stands still';
is(there(q{SELECT owner, version FROM dlock.locks WHERE name = 'session'}),
	'me|1', 'it lives with the new session');
$owner->quit;
ok($standby->poll_query_until('postgres', q{SELECT dlock_is_free('session')}),
	'and ends with it');
$heir->quit;

unlike(slurp_file($standby->logfile), qr/PANIC|TRAP|inconsistent page/,
	'replay made the same pages');
done_testing();
