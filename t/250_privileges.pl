# Privileges over separate connections: a pooler's role that becomes others, roles
# that are renamed or dropped while they hold leases.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Pooler;
use Sessions;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('privileges');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dlock.reap_interval = '50ms'
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION dlock;
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE ROLE pooler LOGIN NOINHERIT;
	GRANT alice, bob TO pooler;
	CREATE ROLE watcher LOGIN;
	GRANT pg_read_all_stats TO watcher;
});

sub as
{
	my ($role, $query) = @_;

	return $node->safe_psql('postgres', $query, extra_params => [ '-U', $role ]);
}

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my $mask = '<insufficient privilege>';

# Connections of their own.
my $token = as('alice', q{SELECT dlock_acquire('job', 'w', 3600)});
cmp_ok($token, '>', 0, 'alice holds a lease');
is(as('bob', q{SELECT dlock_acquire('job', 'w', 3600) IS NULL, dlock_renew('job', 'w', 3600),
	dlock_release('job', 'w', $token), dlock_renew_all('w', 3600), dlock_release_all('w')} =~ s/\$token/$token/r),
	't|f|f|0|0', 'bob with the same owner and her token is another holder');
is(as('bob', q{SELECT dlock_owner('job'), owner, role, pid IS NULL, application_name, client_addr FROM dlock.locks}),
	"$mask|$mask|alice|t|$mask|$mask", '... and is told nothing');
is(as('bob', q{SELECT owner, role, pid IS NULL FROM dlock_holders('job')}),
	"$mask|alice|t", '... neither by name');
is(as('watcher', q{SELECT dlock_owner('job'), owner, pid IS NULL FROM dlock.locks}),
	'w|w|f', 'a role with pg_read_all_stats sees it');
is(as('watcher', q{SELECT dlock_release('job', 'w')}), 'f', '... and may not touch it');
is(as('alice', q{SELECT dlock_renew('job', 'w', 3600)}), 't', 'alice on another connection may');
my ($status, $out, $error) = $node->psql('postgres', q{SELECT dlock_force_release('job')},
	extra_params => [ '-U', 'bob', '-v', 'VERBOSITY=verbose' ]);
like($error, qr/ERROR:  42501/, 'bob may not evict');
($status, $out, $error) = $node->psql('postgres', q{SELECT * FROM dlock_private.lease_table},
	extra_params => [ '-U', 'bob', '-v', 'VERBOSITY=verbose' ]);
like($error, qr/ERROR:  42501/, '... nor read the table below the view');

# One connection that becomes one role after another, as poolers do.
my $session = $node->background_psql('postgres', extra_params => [ '-U', 'pooler' ]);
is($session->query_safe(q{SET ROLE alice; SELECT dlock_release('job', 'w')}), 't',
	'a pooled connection gives back as alice what she took elsewhere');
cmp_ok($session->query_safe(q{SELECT dlock_acquire('job', 'w', 3600)}), '>', $token,
	'... and takes it again');
is($session->query_safe(q{RESET ROLE; SET ROLE bob; SELECT dlock_release('job', 'w'), dlock_owner('job')}),
	"f|$mask", 'the same connection as bob is another holder');
is($session->query_safe(q{SELECT dlock_acquire('job', 'w', 3600) IS NULL}), 't', '... and is refused');
is($session->query_safe(q{SET SESSION ROLE none; SELECT dlock_release('job', 'w')}), 'f',
	'... and so is the pooler, which does not inherit');
is($session->query_safe(q{SET ROLE bob; SELECT dlock_acquire('job 2', 'w', 3600) > 0}), 't', 'bob takes one');
is($session->query_safe(q{SET ROLE alice; SELECT role FROM dlock_holders('job')}), 'alice', 'alice holds the other');
is($session->query_safe(q{SELECT dlock_release_all('w')}), '1', 'dropping all as alice drops hers');
is($session->query_safe(q{BEGIN; SET LOCAL ROLE bob; SELECT dlock_renew('job 2', 'w', 3600)}), 't', 'within a transaction');
is($session->query_safe(q{ROLLBACK; SELECT dlock_renew('job 2', 'w', 3600)}), 'f', '... only');

# What a role may do for another follows the grant, at once.
is(as('watcher', q{SELECT dlock_release('job 2', 'w')}), 'f', 'a stranger is refused');
my $watcher = $node->background_psql('postgres', extra_params => [ '-U', 'watcher' ]);
is($watcher->query_safe(q{SELECT dlock_renew('job 2', 'w', 3600)}), 'f', '... also in a session that stays');
$node->safe_psql('postgres', 'GRANT bob TO watcher');
is($watcher->query_safe(q{SELECT dlock_renew('job 2', 'w', 3600)}), 't', '... and acts for bob once it is a member');
is($watcher->query_safe(q{SELECT dlock_renew_all('w', 3600)}), '1', '... for all his leases');
$node->safe_psql('postgres', 'REVOKE bob FROM watcher');
is($watcher->query_safe(q{SELECT dlock_renew('job 2', 'w', 3600)}), 'f', '... and no longer when it is none');
$watcher->quit;

# A member waits for one more permit of the role that it acts for, which is revoked
# meanwhile: it takes nothing.
$node->safe_psql('postgres', 'GRANT alice TO watcher');
as('alice', q{SELECT dlock_acquire_permit('permits', 'w', 3600, 2), dlock_acquire_permit('permits', 'other', 3600, 2)});
my $waits = Sessions->new($node);
my ($member) = $waits->open('member');
$member->query('SET ROLE watcher');
$member->send(q{SELECT dlock_acquire_permit('permits', 'w', 3600, 2, -1)});
$waits->waiting('member');
$node->safe_psql('postgres', 'REVOKE alice FROM watcher');
is(as('alice', q{SELECT dlock_release('permits', 'other')}), 't', 'a permit comes free');
is($member->answer, '42501', '... whoever may no longer act for the holder does not get it');
is(as('alice', q{SELECT version FROM dlock_holders('permits')}), 1, '... nor does the holder');
is(as('alice', q{SELECT dlock_release('permits', 'w')}), 't', '... who has what was there before');
$member->quit;

# The processes in a waiter's way: those that the caller may see, 0 for others.
my $sessions = Sessions->new($node);
my ($holder, $first, $second) = $sessions->open('holder', 'first', 'second');
$holder->query(q{SET ROLE alice; BEGIN; SELECT dlock_acquire_xact('pids', 'w', 3600)});
$first->query('SET ROLE bob');
$first->send(q{SELECT dlock_acquire('pids', 'w', 3600, -1) > 0});
$sessions->waiting('first');
$second->query('SET ROLE alice');
$second->send(q{SELECT dlock_acquire('pids', 'second', 3600, -1) > 0});
$sessions->waiting('first', 'second');
my $blocking = qq{SELECT dlock_blocking_pids($first->{pid}), dlock_blocking_pids($second->{pid})};
my %seen = (
	$superuser => "{$holder->{pid}}|{$holder->{pid},$first->{pid}}",
	watcher => "{$holder->{pid}}|{$holder->{pid},$first->{pid}}",
	alice => "{}|{$holder->{pid},0}",
	bob => '{0}|{}',
	stranger => '{}|{}');
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
is(as($_, $blocking), $seen{$_}, "blocking pids as seen by $_") for sort keys %seen;
is(as('stranger', q{SELECT count(*) FILTER (WHERE pid IS NULL) FROM dlock.waiters}), 2, '... as in the view');
$holder->query('COMMIT');
is($first->answer, 't', 'the next has the lease');
is(as('alice', $blocking), '{}|{0}', '... and is not seen either');
$first->query(q{SELECT dlock_release('pids', 'w')});
is($second->answer, 't', 'the last has it too');
$second->query(q{SELECT dlock_release('pids', 'second')});
$_->quit for $holder, $first, $second;

# Statements that lock a table before they ask whether the role may do that.  With a
# transaction of the same role in the way, they would stop all calls, or all looks.
{
	my $all = Sessions->new($node);
	my ($reader, $locker) = $all->open('reader', 'locker');

	$_->query('SET SESSION AUTHORIZATION stranger') for $reader, $locker;
	$locker->query(q{SET lock_timeout = '5s'});
	$locker->query('CREATE TEMP TABLE own (a text) PARTITION BY LIST (a)');
	$locker->query(q{CREATE TEMP TABLE plain (a text, "name" text)});
	is($reader->query('PREPARE p AS DELETE FROM dlock_private.lease_table'), '42501', 'a plain role cannot name the lock table');
	$reader->query('BEGIN');
	is($reader->query('SELECT count(*) > 0 FROM dlock.locks'), 't', '... and looks at it');
	is($locker->query($_), '42501', "... nor can it: $_")
	  for (
		'CREATE TRIGGER t BEFORE INSERT ON dlock_private.lease_table EXECUTE FUNCTION dlock_private.refuse_change()',
		'CREATE RULE r AS ON INSERT TO dlock_private.lease_table DO NOTHING',
		'CREATE TEMP TABLE new PARTITION OF dlock_private.lease_table DEFAULT',
		'CREATE TEMP TABLE new (a text REFERENCES dlock_private.lease_table (name))',
		'CREATE TEMP TABLE new (a text, FOREIGN KEY (a) REFERENCES dlock_private.lease_table (name))',
		'ALTER TABLE plain ADD FOREIGN KEY (a) REFERENCES dlock_private.lease_table (name)',
		'ALTER TABLE plain ADD COLUMN b text REFERENCES dlock_private.lease_table (name)',
		'ALTER TABLE own ATTACH PARTITION dlock_private.lease_table DEFAULT',
		'ALTER TABLE own DETACH PARTITION dlock_private.lease_table',
		'ALTER MATERIALIZED VIEW dlock_private.lease_table DEPENDS ON EXTENSION plpgsql',
		'ALTER INDEX dlock_private.lease_table NO DEPENDS ON EXTENSION plpgsql');

	# Nor by a name that comes to be ours while they wait for a lock.
	my ($dropper) = $all->open('dropper');
	$node->safe_psql('postgres', 'CREATE SCHEMA before AUTHORIZATION stranger');
	$locker->query('SET lock_timeout = 0');
	$dropper->query('SET SESSION AUTHORIZATION stranger');
	for my $statement (
		'CREATE RULE r AS ON INSERT TO lease_table DO NOTHING',
		'CREATE TRIGGER t BEFORE INSERT ON lease_table EXECUTE FUNCTION suppress_redundant_updates_trigger()',
		'ALTER TABLE own ATTACH PARTITION lease_table DEFAULT')
	{
		$dropper->query('CREATE TABLE before.lease_table (a text)');
		$dropper->query('BEGIN');
		$dropper->query('DROP TABLE before.lease_table');
		$locker->query('SET search_path = before, dlock_private, public');
		$locker->send($statement);
		is($all->until("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $locker->{pid}", '1'), '1', "it waits: $statement");
		is($dropper->query('COMMIT'), '', '... for a table of the same name, which goes');
		is($locker->answer, '42P01', '... and does not find the lock table in its place');
		$locker->query('RESET search_path');
	}
	is($reader->query('COMMIT'), '', 'it goes on');
	$dropper->quit;
	$_->quit for $reader, $locker, $all->{watcher};
}

# Accounts that live for an hour: whatever they log in as, they are one holder.
$node->safe_psql('postgres', q{
	CREATE ROLE app;
	CREATE ROLE hour_1 LOGIN IN ROLE app;
	CREATE ROLE hour_2 LOGIN IN ROLE app NOINHERIT;
	ALTER ROLE hour_1 SET role = 'app';
	ALTER ROLE hour_2 SET role = 'app';
	CREATE ROLE hour_3 LOGIN IN ROLE app NOINHERIT;
	CREATE ROLE outsider LOGIN;
	ALTER ROLE outsider SET role = 'app'});
$token = as('hour_1', q{SELECT dlock_acquire('hours', 'w', 3600)});
is(as('hour_1', q{SELECT session_user, role FROM dlock.locks WHERE name = 'hours'}), 'hour_1|app', 'an account takes a lease for its group');
$node->safe_psql('postgres', 'DROP ROLE hour_1');
is(as('hour_2', "SELECT session_user, dlock_renew('hours', 'w', 3600, $token)"), 'hour_2|t', '... and the next one goes on with it');
is(as('hour_2', "DISCARD ALL; SELECT dlock_renew('hours', 'w', 3600, $token)"), 't', '... also after DISCARD ALL');
is(as('hour_3', "SELECT dlock_renew('hours', 'w', 3600, $token)"), 'f', '... and one without the setting does not');
is($node->safe_psql('postgres', "SELECT dlock_renew('hours', 'w', 3600, $token)",
		connstr => $node->connstr('postgres') . " user=hour_3 options='-c role=app'"), 't', '... unless its connection string says so');
my $pooler = Pooler->start($node, user => 'hour_3', databases => {
		app => "pool_mode=transaction connect_query='SET ROLE app'", reset => "pool_mode=session pool_size=1 connect_query='SET ROLE app'" });
my @answers = map { $node->safe_psql('postgres', "SELECT dlock_renew('hours', 'w', 3600, $token)", connstr => $pooler->connstr($_)) }
  qw(app app reset reset);
is("@answers", 't t t f', "... or a pooler's connect_query, until its DISCARD ALL");
$pooler->stop;
my ($out_of_group, $warning);
$node->psql('postgres', "SELECT dlock_renew('hours', 'w', 3600, $token)", extra_params => [ '-U', 'outsider' ],
	stdout => \$out_of_group, stderr => \$warning);
is($out_of_group, 'f', 'who is no member stays what it is');
like($warning, qr/WARNING:  permission denied to set role "app"/, '... and is told');
is(as('hour_2', "SELECT dlock_release('hours', 'w', $token)"), 't', 'it is released');

# Functions in a schema that others cannot use; a program that publishes those of public has none.
$node->safe_psql('postgres', 'CREATE DATABASE apart');
$node->safe_psql('apart', q{
	CREATE SCHEMA locks;
	CREATE EXTENSION dlock SCHEMA locks;
	GRANT USAGE ON SCHEMA locks TO app;
	ALTER ROLE hour_2 IN DATABASE apart SET search_path = "$user", public, locks});
is($node->safe_psql('apart', q{SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace}), 0, 'public has nothing of it');
is($node->safe_psql('apart', q{SELECT dlock_acquire('n', 'w', '1 minute') > 0}, extra_params => [ '-U', 'hour_2' ]), 't',
	'who has the schema in its search_path writes as ever');
like(($node->psql('apart', q{SELECT locks.dlock_acquire('n', 'w', 60)}, extra_params => [ '-U', 'outsider' ]))[2],
	qr/permission denied for schema locks/, 'others have none of it');

# Those that are in public already.
$node->safe_psql('postgres', 'CREATE DATABASE closed');
$node->safe_psql('closed', q{
	CREATE EXTENSION dlock;
	SELECT format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC; GRANT EXECUTE ON FUNCTION %1$s TO app', p.oid::regprocedure)
	FROM pg_proc p JOIN pg_extension e ON extname = 'dlock' AND pronamespace = extnamespace
	WHERE proname LIKE 'dlock\_%' AND has_function_privilege('public', p.oid, 'EXECUTE') \gexec});
is($node->safe_psql('closed', q{
	SELECT string_agg(objid::regprocedure::text, ', ') FROM pg_depend JOIN pg_extension e ON refobjid = e.oid JOIN pg_proc p ON objid = p.oid
	WHERE extname = 'dlock' AND refclassid = 'pg_extension'::regclass AND deptype = 'e' AND classid = 'pg_proc'::regclass
		AND has_schema_privilege('outsider', pronamespace, 'USAGE') AND has_function_privilege('outsider', p.oid, 'EXECUTE')}), '',
	'nobody else may call any');
is($node->safe_psql('closed', q{SELECT has_function_privilege('app', 'dlock_force_release(text)', 'EXECUTE')}), 'f', 'the application evicts nobody');
is($node->safe_psql('closed', q{SELECT dlock_acquire('n', 'w', '1 minute') > 0, dlock_renew('n', 'w', interval '1 min')},
	extra_params => [ '-U', 'hour_2' ]), 't|t', 'whom they were granted calls');
like(($node->psql('closed', q{SELECT dlock_acquire('n', 'w', '1 minute'::text)}, extra_params => [ '-U', 'outsider' ]))[2],
	qr/permission denied for function/, 'others do not');

# All functions are taken from everybody, or given to nobody in the first place: whom a few are
# granted may write a time in every form, and look.
$node->safe_psql('postgres', 'CREATE DATABASE revoked; CREATE DATABASE without');
$node->safe_psql('revoked', 'CREATE EXTENSION dlock; REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC');
$node->safe_psql('without', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; CREATE EXTENSION dlock');
for my $database ('revoked', 'without')
{
	my @ask = (extra_params => [ '-U', 'hour_2' ]);
	like(($node->psql($database, q{SELECT dlock_release('n', 'w')}, @ask))[2], qr/permission denied for function/, "$database: no function is free");
	$node->safe_psql($database, 'GRANT EXECUTE ON FUNCTION dlock_acquire(text, text, dlock_duration, dlock_duration, text) TO app');
	is($node->safe_psql($database, "SELECT dlock_acquire('n', 'w', $_) > 0", @ask), 't', "$database: a ttl of $_")
	  for (qw(60 60.5 60::smallint 60::bigint 60::real 60::float8), q{'60s'}, q{'60s'::text}, q{interval '60 s'});
	is($node->safe_psql($database, q{SELECT '60'::dlock_duration::interval = '60 s', (SELECT count(*) FROM dlock.locks), (SELECT count(*) FROM dlock.waiters),
		(SELECT acquired FROM dlock.stats)}, @ask), 't|1|0|1', '... and it may look');
}

# Renamed.
$session->quit;
$node->safe_psql('postgres', 'ALTER ROLE bob RENAME TO robert');
is(as('robert', q{SELECT role, dlock_renew('job 2', 'w', 3600) FROM dlock.locks}),
	'robert|t', 'a renamed role keeps its leases');

# Dropped while holding leases.
as('robert', q{SELECT dlock_acquire('short', 'w', 1), dlock_acquire('evicted', 'w', 3600)});
my $oid = $node->safe_psql('postgres', q{SELECT 'robert'::regrole::oid});
$node->safe_psql('postgres', 'DROP ROLE robert');
is($node->safe_psql('postgres', q{SELECT name, owner, role FROM dlock.locks WHERE name <> 'short' ORDER BY name}),
	"evicted|w|unknown (OID=$oid)\njob 2|w|unknown (OID=$oid)", 'a dropped role is shown as unknown');
is($node->safe_psql('postgres', q{SELECT owner, role FROM dlock_holders('evicted')}),
	"w|unknown (OID=$oid)", '... also by name');
is(as('alice', q{SELECT owner, role, dlock_owner('evicted') FROM dlock_holders('evicted')}),
	"$mask|unknown (OID=$oid)|$mask", 'others still see no more than before');
is(as('alice', q{SELECT dlock_acquire('evicted', 'w', 1) IS NULL, dlock_release('evicted', 'w'),
	dlock_renew_all('w', 60)}), 't|f|0', 'its leases still exclude others with the same owner');
is($node->safe_psql('postgres', q{SELECT dlock_force_release('evicted')}), '1', 'they can be evicted');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name = 'short'}),
	'... and are reaped');
$node->wait_for_log(qr/lease on "short" expired while owner "w" held it/);
is($node->safe_psql('postgres', q{SELECT dlock_release('job 2', 'w')}), 't', 'a superuser acts for a role that is gone');
is(as('alice', q{SELECT dlock_acquire('evicted', 'w', 1) > 0}), 't', 'and the names are free');

$node->stop;
done_testing();
