# ALTER EXTENSION UPDATE makes what CREATE EXTENSION makes, a new library works
# with the objects of the releases before it, and leases are kept whether the
# server restarts before or after the update.
#
# The library is always the new one: there is no old one here.  The old one cannot
# meet new objects, because the update script fails with it.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Sessions;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $scripts = "$FindBin::RealBin/../pg_extension";
my ($version) = slurp_file("$scripts/dlock.control") =~ /^default_version = '(.*)'/m;
my @old = grep { $_ ne $version }
  map { m{/dlock--(\d+\.\d+\.\d+)\.sql$} } glob "$scripts/dlock--*.sql";
cmp_ok(scalar @old, '>', 0, 'there are releases to update from');

# Everything that the catalogs say of the extension's objects, one per line.
my $objects = q{
WITH member AS (
	SELECT classid, objid, pg_describe_object(classid, objid, 0) AS object
	FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dlock')),
part AS (
	SELECT classid, objid, 0 AS objsubid, object FROM member
	UNION ALL
	SELECT classid, objid, attnum,
		format('%s, column %s %s %s %s %s', object, attnum, attname,
			format_type(atttypid, atttypmod), attnotnull, attacl)
	FROM member JOIN pg_attribute ON classid = 'pg_class'::regclass AND attrelid = objid
	WHERE attnum > 0)
SELECT concat_ws(' | ', object,
	'comment ' || obj_description(objid, classid::regclass::name),
	'column comment ' || col_description(objid, objsubid),
	(SELECT 'initial privileges ' || initprivs::text FROM pg_init_privs i
		WHERE i.objoid = part.objid AND i.classoid = part.classid
			AND i.objsubid = part.objsubid),
	(SELECT concat_ws(' | ', pg_get_functiondef(oid), proowner::regrole, proacl)
		FROM pg_proc WHERE classid = 'pg_proc'::regclass AND oid = objid),
	(SELECT concat_ws(' | ', relkind, relpersistence, relowner::regrole, relacl,
			reloptions, relrowsecurity, CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid) END,
			(SELECT string_agg(concat(pg_get_triggerdef(oid), tgenabled), ' | ' ORDER BY tgname)
				FROM pg_trigger WHERE tgrelid = c.oid))
		FROM pg_class c WHERE classid = 'pg_class'::regclass AND c.oid = objid AND objsubid = 0),
	(SELECT concat_ws(' | ', nspowner::regrole, nspacl) FROM pg_namespace
		WHERE classid = 'pg_namespace'::regclass AND oid = objid),
	(SELECT concat_ws(' | ', amhandler, amtype) FROM pg_am
		WHERE classid = 'pg_am'::regclass AND oid = objid),
	(SELECT concat_ws(' | ', castfunc::regprocedure, castcontext, castmethod) FROM pg_cast
		WHERE classid = 'pg_cast'::regclass AND oid = objid),
	(SELECT concat_ws(' | ', typlen, typbyval, typalign, typinput, typoutput, typreceive,
			typsend, typowner::regrole, typacl)
		FROM pg_type WHERE classid = 'pg_type'::regclass AND oid = objid))
FROM part ORDER BY object, objsubid};

my $mask = '<insufficient privilege>';
my $node = PostgreSQL::Test::Cluster->new('update');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'dlock'");
$node->start;

$node->safe_psql('postgres', 'CREATE DATABASE fresh TEMPLATE template0');
$node->safe_psql('fresh', 'CREATE SCHEMA functions; CREATE EXTENSION dlock SCHEMA functions');
my $fresh = $node->safe_psql('fresh', $objects);
like($fresh, qr/view dlock\.locks.*initial privileges/, 'the catalogs were read');

# What every call does is the same with the objects of all versions.
sub calls_work
{
	my ($database, $claim) = @_;

	is( $node->safe_psql(
			$database, q{
			SET search_path = functions, public;
			SELECT dlock_acquire('x', 'me', 60, 0, 'id') = dlock_acquire('x', 'me', 60, 1, 'id'),
				dlock_acquire_shared('s', 'me', 60) > 0, dlock_acquire_permit('p', 'me', 60, 2) > 0,
				cardinality(dlock_acquire_all('{a,b}', 'me', 60)), dlock_acquire_session('c', 'me', 60) > 0,
				dlock_owner('x'), dlock_is_free('x'), dlock_wait('none'), dlock_renew('x', 'me', 60);
			SELECT count(*), bool_and(owner = 'me' AND pid = pg_backend_pid()) FROM dlock.locks
			WHERE name IN ('x', 's', 'p', 'a', 'b', 'c');
			SELECT name, version, role = current_user FROM dlock_holders('x');
			BEGIN; SELECT dlock_guard('x', 'me', token) FROM dlock_holders('x');
			SELECT dlock_acquire_xact('t', 'me', 60) > 0; COMMIT;
			SELECT count(*) FROM dlock.waiters; SELECT acquired > 0 FROM dlock.stats;
			SELECT '0.5'::dlock_duration, dlock_duration_send('0.5') = float8send(0.5);
			SELECT dlock_blocking_pids(1), dlock_renew_all('me', 60), dlock_force_release('a'), dlock_force_release('b', 'me'),
				dlock_release('x', 'me'), dlock_release_all('me'), dlock_stats_reset()}),
		"t|t|t|2|t|me|f|t|t\n6|t\nx|1|t\n\nt\n0\nt\n0.5|t\n{}|6|1|1|t|3|", "$claim: every call works");
	is( $node->safe_psql(
			$database, q{
			SELECT functions.dlock_acquire('x', 'secret', 60) > 0;
			SET ROLE stranger;
			SELECT functions.dlock_owner('x'), owner, pid IS NULL, application_name, client_addr FROM dlock.locks WHERE name = 'x';
			RESET ROLE;
			SELECT functions.dlock_release('x', 'secret')}),
		"t\n$mask|$mask|t|$mask|$mask\nt", "$claim: and masks");
	return;
}

# What is guarded and lost is shown by the new views, and old ones are as they were.
sub guards_show
{
	my ($database, $rows, $claim) = @_;

	is( $node->safe_psql(
			$database, q{
			SET search_path = functions, public;
			BEGIN;
			DO $$ BEGIN
				PERFORM dlock_guard('g', 'me', dlock_acquire('g', 'me', 60));
				PERFORM dlock_release('g', 'me');
			END $$;
			SELECT count(*), (SELECT count(*) FROM dlock_holders('g')), dlock_is_free('g') FROM dlock.locks WHERE name = 'g';
			COMMIT}), "$rows|$rows|f", "$claim: a guard without its lease");
	return;
}

sub update
{
	my ($database, $claim) = @_;

	guards_show($database, 0, "$claim, old objects");
	$node->safe_psql($database, 'GRANT SELECT ON dlock.stats TO stranger; ALTER EXTENSION dlock UPDATE');
	is($node->safe_psql($database, q{SELECT relacl::text ~ 'stranger=r' FROM pg_class WHERE oid = 'dlock.stats'::regclass;
		REVOKE SELECT ON dlock.stats FROM stranger}), 't', "$claim: what was granted on a view stays");
	guards_show($database, 1, "$claim, new objects");
	is($node->safe_psql($database, q{SELECT extversion FROM pg_extension WHERE extname = 'dlock'}),
		$version, "$claim: the extension is of the new version");
	is($node->safe_psql($database, $objects), $fresh, "$claim: its objects are those of a new one");
	return;
}

$node->safe_psql('postgres', 'CREATE ROLE stranger');
for my $old (@old)
{
	for my $first ('restart', 'update')
	{
		my $database = "from $old, $first first";
		my $rows = q{SELECT string_agg(concat_ws(' ', name, owner, mode, version, token, acquired_at, role, pid, application_name), ' '
			ORDER BY name, token) FROM dlock.locks};

		$node->safe_psql('postgres', qq{CREATE DATABASE "$database" TEMPLATE template0});
		$node->safe_psql($database, qq{CREATE SCHEMA functions; GRANT USAGE ON SCHEMA functions TO PUBLIC;
			CREATE EXTENSION dlock SCHEMA functions VERSION '$old';
			GRANT EXECUTE ON FUNCTION functions.dlock_force_release(text) TO stranger;
			REVOKE EXECUTE ON FUNCTION functions.dlock_force_release(text) FROM stranger});
		calls_work($database, "$database, old objects");
		my $free = $node->safe_psql($database, q{SELECT functions.dlock_acquire('free', 'me', 60)});
		$node->safe_psql($database, q{SELECT functions.dlock_release('free', 'me')});

		# whoever holds and whoever waits
		my $sessions = Sessions->new($node, $database);
		my ($holder, $waiter) = $sessions->open('holder', 'waiter');
		my $held = $holder->query(q{SELECT functions.dlock_acquire('held', 'holder', 3600)});
		$holder->query(q{SELECT functions.dlock_acquire_session('bound', 'holder', 3600)});
		$holder->query(q{SELECT functions.dlock_acquire_shared('shared', 'reader ' || i, 3600) FROM generate_series(1, 3) i});
		$waiter->send(q{SELECT functions.dlock_acquire('held', 'waiter', 3600, -1)});
		$sessions->waiting('waiter');
		my $before = $node->safe_psql($database, $rows);

		if ($first eq 'update')
		{
			update($database, $database);
			is($node->safe_psql($database, $rows), $before, "$database: the leases are untouched by the update");
			$sessions->waiting('waiter');
			is($holder->query(q{SELECT functions.dlock_release('held', 'holder')}), 't', "$database: the holder releases");
			cmp_ok($waiter->answer, '>', $held, "$database: and who waited meanwhile is served");
			is($waiter->query(q{SELECT functions.dlock_release('held', 'waiter')}), 't', "$database: and releases");
			$held = $holder->query(q{SELECT functions.dlock_acquire('held', 'holder', 3600)});
			$before = $node->safe_psql($database, $rows);
		}
		$_->kill for $holder, $waiter, $sessions->{watcher};

		$node->restart;
		is($node->safe_psql($database, q{SELECT functions.dlock_owner('held')}), 'holder', "$database: the lease outlasts the restart");
		is($node->safe_psql($database, q{SELECT count(*) FROM functions.dlock_holders('shared')}), 3, "$database: the shared ones too");
		is($node->safe_psql($database, q{SELECT count(*) FROM dlock.locks WHERE name = 'bound' AND expires_at IS NULL}),
			0, "$database: that of the session has ended");
		calls_work($database, "$database, restarted");
		if ($first eq 'restart')
		{
			update($database, $database);
			is( $node->safe_psql($database, q{SELECT count(*) FROM dlock.locks WHERE name IN ('held', 'shared')}),
				4, "$database: the leases are untouched by the update");
		}
		calls_work($database, "$database, new objects");
		is($node->safe_psql($database, qq{SELECT functions.dlock_renew('held', 'holder', 3600, $held)}),
			't', "$database: the holder can go on");
		cmp_ok($node->safe_psql($database, q{SELECT functions.dlock_acquire('free', 'me', 60)}), '>', $free, "$database: tokens grow");
	}
}

# An operator has closed all functions of the old version to everybody, and let some roles
# call them.  The new functions are for the same roles, now and in a dump.
sub calls_of
{
	my ($database) = @_;
	return $node->safe_psql(
		$database, q{
		SELECT role, string_agg(proname || ' ' || pronargs, ', ' ORDER BY proname, pronargs)
		FROM pg_proc p JOIN pg_depend ON objid = p.oid AND classid = 'pg_proc'::regclass AND deptype = 'e',
			unnest('{stranger, caller, "a grantor"}'::text[]) AS role
		WHERE proname LIKE 'dlock%' AND proname NOT LIKE 'dlock_duration%'
			AND has_function_privilege(role, p.oid, 'EXECUTE' || CASE role WHEN 'a grantor' THEN ' WITH GRANT OPTION' ELSE '' END)
		GROUP BY role ORDER BY role});
}

# take, renew and give back
my $changing = '^dlock_(acquire|renew|release|downgrade)';
my $dump = "${PostgreSQL::Test::Utils::tmp_check}/closed.sql";
$node->safe_psql('postgres', 'CREATE ROLE caller; CREATE ROLE "a grantor"');
for my $old (@old)
{
	my $database = "closed $old";
	my $close = qq{DO \$\$
		DECLARE f regprocedure;
		BEGIN
			FOR f IN SELECT oid FROM pg_proc WHERE proname ~ '$changing' LOOP
				EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
				EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO caller', f);
				EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO "a grantor" WITH GRANT OPTION', f);
			END LOOP;
		END \$\$};

	$node->safe_psql('postgres', qq{CREATE DATABASE "$_" TEMPLATE template0}) for $database, "new $old", "dump of $old";
	$node->safe_psql($database, "CREATE EXTENSION dlock VERSION '$old'; $close; ALTER EXTENSION dlock UPDATE");
	$node->safe_psql("new $old", "CREATE EXTENSION dlock; $close");
	my $expected = calls_of("new $old");
	unlike($expected, qr/^stranger\|.*dlock_acquire/m, "$database: what is expected");
	is(calls_of($database), $expected, "$database: so are the functions that the update brings");

	$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($database) ], "$database: dumped");
	$node->safe_psql("dump of $old", slurp_file($dump));
	is(calls_of("dump of $old"), $expected, "$database: and after a dump");
}

$node->stop;
done_testing();
