# plain/dlock.sql against hostile roles: who says that he is somebody else, who looks, who locks,
# whose search_path or types or default privileges are not what one expects.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Plain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('hostile');
$node->init;
$node->start;
$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN") for qw(dbo app other evil);
$node->safe_psql('postgres', 'GRANT app TO other');
# what the owner makes is everybody's, and evil was there first
$node->safe_psql('postgres', 'CREATE DATABASE plain OWNER dbo');
$node->safe_psql('plain', q{
	ALTER DEFAULT PRIVILEGES FOR ROLE dbo GRANT ALL ON TABLES TO evil;
	ALTER DEFAULT PRIVILEGES FOR ROLE dbo GRANT ALL ON TABLES TO PUBLIC;
	ALTER DEFAULT PRIVILEGES FOR ROLE dbo GRANT ALL ON SEQUENCES TO evil;
	ALTER DEFAULT PRIVILEGES FOR ROLE dbo GRANT EXECUTE ON FUNCTIONS TO evil;
	ALTER DEFAULT PRIVILEGES FOR ROLE dbo GRANT ALL ON SCHEMAS TO evil;
	CREATE SCHEMA evil AUTHORIZATION evil;
	GRANT CREATE ON SCHEMA public TO evil});
# it has functions and operators that fit better than the server's, to run as who installs and uninstalls
my @traps = (
	(map { 'format(' . join(', ', ('text') x $_) . ')' } 1 .. 6), 'format(text, regprocedure)', 'format(text, regtype)', 'format(text, text, regclass, text)',
	'quote_ident(name)', 'split_part(text, varchar, integer)', 'pg_get_userbyid(integer)', 'ceil(integer)');
my @operators = map { my $name = $_; map { [ $name, @$_ ] } [ 'oid', 'regnamespace' ], [ 'oid', 'regprocedure' ], [ 'name', 'name' ], [ 'bigint', 'numeric' ], [ 'numeric', 'bigint' ],
	[ 'numeric', 'float8' ], [ 'float8', 'numeric' ], [ 'float8', 'integer' ], [ 'numeric', 'integer' ] } '=', '<>', '<=', '>', '-', '/', '*', '~';
$node->safe_psql('plain', join('', 'SET ROLE evil; ',
	map({ "CREATE FUNCTION public.$_ RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE ''a trap''; END';" } @traps),
	map({ my ($name, $left, $right) = @$_; "CREATE FUNCTION evil.op$_->[3]($left, $right) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''a trap''; END';
		CREATE OPERATOR public.$name (LEFTARG = $left, RIGHTARG = $right, FUNCTION = evil.op$_->[3]);" } map { [ @{ $operators[$_] }, $_ ] } 0 .. $#operators)));
Plain::run($node, 'dbo', $_) for 'plain/dlock.sql', 'plain/uninstall.sql', 'plain/dlock.sql';
my ($app, $other, $evil, $dbo) = map { Plain::session($node, $_) } qw(app other evil dbo);
my $super = Sessions::Session->new($node->connstr('plain'), 'super');

sub answers
{
	my ($session, $sql, $wanted, $what) = @_;
	my $answer = $session->query($sql);
	like($answer, ref $wanted ? $wanted : qr/\A\Q$wanted\E\z/, $what // "$session->{name}: $sql") or diag($session->error);
	return $answer;
}

my $is_token = qr/\A\d{15,16}\z/;
my $token = answers($app, q{CALL dlock_acquire('n', 'a', 600, 0, 'r')}, $is_token);

# nobody but the functions gets at what is behind them
for my $sql (
	'SELECT * FROM dlock_private.lease_table', 'DELETE FROM dlock_private.lease_table',
	q{INSERT INTO dlock_private.lease_table SELECT * FROM dlock_private.lease_table}, q{DO 'BEGIN LOCK TABLE dlock_private.lease_table IN ACCESS SHARE MODE; END'},
	q{DO 'BEGIN LOCK TABLE dlock_private.request IN ACCESS SHARE MODE; END'}, q{DO 'BEGIN LOCK TABLE dlock.locks IN SHARE MODE; END'}, 'SELECT * FROM dlock.locks FOR KEY SHARE',
	'UPDATE dlock.locks SET token = 1', 'DELETE FROM dlock.locks', q{INSERT INTO dlock.locks (name) VALUES ('x')}, 'TRUNCATE dlock_private.lease_table',
	q{SELECT nextval('dlock_private.mark')}, q{SELECT setval('dlock_private.mark', 1)}, 'SELECT * FROM dlock_private.request', 'SELECT last_value FROM dlock_private.mark',
	q{INSERT INTO dlock_private.request (op, name, owner, holds, caller) VALUES ('release', 'n', 'a', 1, 'app'::regrole)},
	q{INSERT INTO dlock_private.request VALUES ('release', 'n', 'a', NULL, NULL, 1, NULL, NULL, NULL, NULL, 'app'::regrole)},
	'CREATE RULE r AS ON INSERT TO dlock_private.request DO INSTEAD NOTHING',
	'CREATE TRIGGER t INSTEAD OF INSERT ON dlock_private.request FOR EACH ROW EXECUTE FUNCTION dlock_private.serve()',
	q{SELECT dlock_private.acquire(NULL, 'app'::regrole)}, q{SELECT dlock_private.evict('n', NULL)}, q{SELECT dlock_private.clear('n')},
	'SELECT dlock_private.serve()', q{SELECT dlock_force_release('n')}, q{SELECT dlock_force_release('n', 'a')},
	'CREATE TABLE dlock.t ()', 'CREATE TABLE dlock_private.t ()', 'CREATE FUNCTION dlock_private.key(text) RETURNS bigint LANGUAGE sql AS $$ SELECT 1 $$')
{
	answers($evil, $sql, '42501');
}

# the trigger's function on a relation of one's own would believe what is in its column
answers($evil, 'CREATE TABLE evil.request (op text, name text, owner text, ttl text, token bigint, holds integer, mode text, "limit" integer, permits integer, request text, caller oid, answer bigint)', '');
answers($evil, 'CREATE TRIGGER serve BEFORE INSERT ON evil.request FOR EACH ROW EXECUTE FUNCTION dlock_private.serve()', '42501');
$super->query('GRANT EXECUTE ON FUNCTION dlock_private.serve() TO evil');
answers($evil, 'CREATE TRIGGER serve BEFORE INSERT ON evil.request FOR EACH ROW EXECUTE FUNCTION dlock_private.serve()', '');
answers($evil, q{INSERT INTO evil.request (op, name, owner, holds, caller) VALUES ('release', 'n', 'a', 1, 'app'::regrole)}, '42501', 'not even where it may be executed');

# a request without a procedure: not in any transaction that a rollback can end
for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	for my $op ('acquire', 'renew', 'release after')
	{
		my $insert = qq{INSERT INTO dlock_private.request (op, name, owner, ttl, mode, holds) VALUES ('$op', 'x', 'e', '600', 'shared', 1)};
		answers($evil, $insert, '2D000');
		answers($evil, "BEGIN ISOLATION LEVEL $level", '');
		answers($evil, $insert, '2D000');
		answers($evil, 'ROLLBACK', '');
	}
	answers($evil, qq{DO 'BEGIN COMMIT; SET TRANSACTION ISOLATION LEVEL $level; INSERT INTO dlock_private.request (op, name, owner, ttl, mode) VALUES (''acquire'', ''x'', ''e'', ''600'', ''shared''); ROLLBACK; END'},
		$level eq 'READ COMMITTED' ? '' : '2D000', "a procedure of one's own, $level");
}
answers($evil, q{SELECT dlock_is_free('x')}, 't', 'which has lost only what it took itself');

# who calls is who has the rights, and not who has logged in
$evil->query($_) eq '' or die $evil->error for
	q{CREATE FUNCTION evil.release(text, text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'SELECT public.dlock_release($1, $2)'},
	q{CREATE FUNCTION evil.owner(text) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT public.dlock_owner($1)'},
	q{CREATE FUNCTION evil.lock() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM public.dlock_release(''n'', ''a''); RETURN true; END'},
	'GRANT USAGE ON SCHEMA evil TO PUBLIC', 'CREATE TABLE evil.bait (i int)', 'INSERT INTO evil.bait VALUES (1)';
answers($app, q{SELECT evil.release('n', 'a'), evil.owner('n')}, 'f|<insufficient privilege>');
answers($super, q{SELECT evil.release('n', 'a')}, 'f');
answers($evil, 'CREATE INDEX ON evil.bait ((evil.lock()))', '');
answers($super, $_, '') for 'ANALYZE evil.bait', 'VACUUM evil.bait', 'REINDEX TABLE evil.bait';
answers($app, q{SELECT dlock_owner('n')}, 'a', 'an index of a hostile role does nothing as an administrator');
answers($app, 'SET ROLE app', '');

# another role is another holder, and is told nothing
answers($evil, q{SELECT owner, pid, application_name, client_addr FROM dlock.locks}, '<insufficient privilege>||<insufficient privilege>|<insufficient privilege>');
answers($evil, q{SELECT owner FROM dlock_holders('n') WHERE owner LIKE 'a%'}, '');
answers($evil, q{CREATE FUNCTION evil.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS 'BEGIN RAISE NOTICE ''%'', $1; RETURN true; END'}, '');
answers($evil, 'SELECT count(*) FROM dlock.locks WHERE evil.tell(owner) AND evil.tell(application_name)', '1');
unlike($evil->error, qr/NOTICE:  (a|app)$/m, 'a function in WHERE sees what is masked');
answers($evil, q{SELECT dlock_release('n', 'a')}, 'f');
answers($evil, qq{SELECT dlock_release('n', 'a', $token)}, 'f');
answers($evil, qq{CALL dlock_renew('n', 'a', 600, $token)}, 'f');
answers($evil, q{CALL dlock_acquire('n', 'a', 600, 0, 'r')}, '');
answers($evil, qq{SELECT dlock_guard('n', 'a', $token)}, '55L01');
# one that has its privileges is no other
answers($other, qq{CALL dlock_renew('n', 'a', 600, $token)}, 't');
answers($other, q{SELECT owner FROM dlock.locks}, 'a');
$super->query('REVOKE app FROM other');
answers($other, qq{CALL dlock_renew('n', 'a', 600, $token)}, 'f');
answers($other, q{SELECT owner FROM dlock.locks}, '<insufficient privilege>');

# a search_path, types and operators of a hostile role's
$evil->query($_) eq '' or die $evil->error for
	q{CREATE DOMAIN evil.text AS pg_catalog.text CHECK (false)}, q{CREATE DOMAIN evil.int8 AS pg_catalog.int8 CHECK (false)}, q{CREATE DOMAIN evil.timestamptz AS pg_catalog.timestamptz CHECK (false)},
	q{CREATE FUNCTION evil.trap() RETURNS pg_catalog.bool LANGUAGE plpgsql AS 'BEGIN RAISE ''a trap''; END'},
	(map { "CREATE FUNCTION evil.trap($_, $_) RETURNS pg_catalog.bool LANGUAGE plpgsql AS 'BEGIN RAISE ''a trap''; END'" } 'pg_catalog.text', 'pg_catalog.int8', 'pg_catalog.int4'),
	(map { my $type = $_; map { "CREATE OPERATOR evil.$_ (LEFTARG = $type, RIGHTARG = $type, FUNCTION = evil.trap)" } '=', '<', '+' } 'pg_catalog.text', 'pg_catalog.int8', 'pg_catalog.int4'),
	(map { "CREATE FUNCTION evil.$_ RETURNS pg_catalog.text LANGUAGE plpgsql AS 'BEGIN RAISE ''a trap''; END'" } 'clock_timestamp()', 'pg_sleep(pg_catalog.float8)', 'array_positions(bool[], bool)', 'unnest(int4[])');
$app->query('SET search_path = evil, public, pg_catalog');
answers($app, q{CALL dlock_acquire('s', 'a', 600, 0.1)}, $is_token);
answers($app, q{CALL dlock_acquire('s', 'b', 600, 0.1)}, '');
answers($app, q{CALL dlock_acquire_all('{t,u}'::pg_catalog._text, 'a', 600, interval '1 s')}, qr/\A\{\d+,\d+\}\z/);
answers($app, q{CALL dlock_renew('s', 'a', 600)}, 't');
answers($app, q{CALL dlock_renew_many('{s,t}'::pg_catalog._text, 'a', 600)}, '{s,t}|{1,2}');
answers($app, q{CALL dlock_release_after('u', 'a', 600)}, 't');
answers($app, q{SELECT dlock_owner('s'), dlock_is_free('s'), (SELECT count(*) FROM dlock_holders('s'))}, 'a|f|1');
answers($app, q{SELECT dlock_release('s', 'a'), dlock_release_many('{t}'::pg_catalog._text, 'a')}, 't|t');
answers($app, 'RESET search_path', '');
answers($app, 'CREATE TEMP TABLE lease_table (name text)', '');
answers($app, 'CREATE TEMP TABLE request (name text)', '');
answers($app, q{CALL dlock_acquire('s', 'a', 600)}, $is_token);

# settings of the session's
for my $setting (q{default_transaction_isolation = 'serializable'}, q{default_transaction_isolation = 'repeatable read'}, 'default_transaction_read_only = on', 'row_security = off',
	q{IntervalStyle = 'sql_standard'}, 'standard_conforming_strings = off', 'transform_null_equals = on', 'extra_float_digits = -15', q{DateStyle = 'German'}, q{TimeZone = 'Asia/Tokyo'},
	'enable_indexscan = off', 'array_nulls = off', q{lock_timeout = '1h'}, q{client_encoding = 'LATIN1'}, 'plan_cache_mode = force_generic_plan', 'default_transaction_deferrable = on')
{
	$app->query("SET $setting") eq '' or die $app->error;
	answers($app, q{CALL dlock_acquire('set', 'a', '1 min 30.5 s'::interval, 0.01)}, $is_token, $setting);
	answers($app, q{CALL dlock_renew('set', 'a', 60)}, 't', $setting);
	answers($app, 'RESET ALL', '');
	answers($app, q{SELECT dlock_release('set', 'a')}, 't');
}
answers($app, q{SET default_transaction_read_only = on}, '');
answers($app, q{SELECT dlock_release('s', 'a')}, '25006', 'a release is an ordinary statement');
answers($app, q{RESET ALL}, '');

# row security on the table does not stop its owner's functions
$super->query('ALTER TABLE dlock_private.lease_table ENABLE ROW LEVEL SECURITY');
answers($app, q{CALL dlock_acquire('rls', 'a', 600)}, $is_token);
answers($evil, q{CALL dlock_acquire('rls', 'b', 600)}, '');
$super->query('ALTER TABLE dlock_private.lease_table DISABLE ROW LEVEL SECURITY');

# an old snapshot has the name that another role had
$evil->query($_) eq '' or die $evil->error for 'BEGIN ISOLATION LEVEL REPEATABLE READ', q{DO 'BEGIN PERFORM 1 FROM pg_class; END'};
$super->query($_) eq '' or die $super->error for 'ALTER ROLE app RENAME TO app_before', 'ALTER ROLE evil RENAME TO app';
answers($evil, q{SELECT dlock_release('n', 'a')}, 'f', 'a new name makes nobody somebody else');
answers($evil, 'ROLLBACK', '');
$super->query($_) eq '' or die $super->error for 'ALTER ROLE app RENAME TO evil', 'ALTER ROLE app_before RENAME TO app';

# where triggers are switched off nobody is told that he is safe
answers($super, 'SET session_replication_role = replica', '');
answers($super, q{SELECT dlock_guard('n', 'a', 1)}, '55000');
answers($super, q{CALL dlock_acquire('replica', 'a', 600)}, '');
answers($super, 'RESET session_replication_role', '');

# an operator says who may call at all
$dbo->query($_) eq '' or die $dbo->error for 'REVOKE USAGE ON SCHEMA dlock_private FROM PUBLIC', 'GRANT USAGE ON SCHEMA dlock_private TO app';
answers($evil, q{CALL dlock_acquire('any', 'e', 600)}, '42501');
answers($evil, q{SELECT dlock_release('n', 'a')}, '42501');
answers($app, q{CALL dlock_acquire('any', 'a', 600)}, $is_token);

# a lock that anybody can take keeps nobody from what he has; who wants the name is told after two seconds
answers($app, q{SELECT pg_advisory_lock(hashtextextended('any' COLLATE "C", 7236275947))}, '');
$dbo->query('GRANT USAGE ON SCHEMA dlock_private TO other');
answers($super, q{CALL dlock_renew('any', 'a', 600)}, 't');
answers($super, q{SELECT dlock_release('any', 'a')}, 't');
answers($other, q{CALL dlock_acquire('any', 'o', 600)}, '55P03');
answers($app, q{SELECT pg_advisory_unlock_all()}, '');
answers($other, q{CALL dlock_acquire('any', 'o', 600)}, $is_token);

$_->reap for $app, $other, $evil, $dbo, $super;
$node->stop;
done_testing();
