# A lock table that is not as the extension made it is refused, with a hint how to
# repair it; dropping and creating the extension repairs it; and no other table can
# use the access method.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $settings = q{
max_worker_processes = 16
dlock.reap_interval = '50ms'
autovacuum_naptime = '1s'
};
my $node = PostgreSQL::Test::Cluster->new('publisher');
$node->init(allows_streaming => 'logical');
$node->append_conf('postgresql.conf', $settings);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# Check that a statement raises an error.
sub raises
{
	my ($statement, $error, $claim) = @_;
	my ($status, $out, $errors) = $node->psql('postgres', $statement,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);

	like($errors, $error, $claim // $statement);
	return;
}

my @calls = (
	q{SELECT dlock_acquire('a', 'o', 60)},
	q{SELECT dlock_acquire_shared('b', 'o', 60)},
	q{SELECT dlock_acquire_permit('c', 'o', 60, 3)},
	q{SELECT dlock_renew('a', 'o', 60)},
	q{SELECT dlock_renew_all('o', 60)},
	q{SELECT dlock_release('a', 'o')},
	q{SELECT dlock_release_all('o')},
	q{SELECT dlock_force_release('a')},
	q{SELECT dlock_owner('a')},
	q{SELECT dlock_is_free('a')},
	q{SELECT * FROM dlock_holders('a')});
my $repair = qr/ERROR:  55000: table "dlock_private\.lease_table" is not as the extension created it.*HINT:  Drop the extension and create it again\./s;

# Wait until a worker has told the log, as it does once, what is wrong with the table.  The
# error of a call has another DETAIL.
sub worker_tells
{
	my ($what, $offset) = @_;

	$node->wait_for_log(qr/LOG:  table "dlock_private\.lease_table" $what\n.*DETAIL:  Expired leases are not removed/, $offset);
	return;
}

# Look whether a worker meets the table as it is and the server stays up.
sub server_stays
{
	my ($claim) = @_;
	my $offset = -s $node->logfile;

	# a worker looks at the table when it starts
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE backend_type = 'dlock worker'});
	worker_tells('is not as the extension created it', $offset);
	unlike(slurp_file($node->logfile, $offset), qr/terminated by signal|PANIC|TRAP/, $claim);
}

# in other databases a worker looks, for a moment, whether the extension is there
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'};

# Whoever drops an extension, be it in vain, lets the worker look at once.
sub let_worker_look
{
	$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; DROP EXTENSION dlock; ROLLBACK TO s; COMMIT');
	return;
}

sub new_extension_works
{
	my ($token) = @_;

	$node->safe_psql('postgres', 'DROP EXTENSION dlock; CREATE EXTENSION dlock');
	my $new = $node->safe_psql('postgres', q{SELECT dlock_acquire('a', 'o', 3600)});
	cmp_ok($new, '>', $token, 'a new extension repairs it, and tokens grow');

	# the one before may still be there, about to end
	$node->safe_psql('postgres', q{SELECT dlock_acquire('ended', 'o', 0.001)});
	ok($node->poll_query_until('postgres', qq{SELECT count(*) = 1
			AND NOT EXISTS (SELECT FROM dlock.locks WHERE name = 'ended')
		FROM ($worker) AS w}), '... and it has a worker');
	return $new;
}

# Columns.
my $token = $node->safe_psql('postgres', q{SELECT dlock_acquire('a', 'o', 3600)});
my $unchanged = qr/ERROR:  0A000: cannot make this change to table "lease_table"/;
raises($_, $unchanged)
  for 'ALTER TABLE dlock_private.lease_table ADD COLUMN extra text',
  'ALTER TABLE dlock_private.lease_table DROP COLUMN request CASCADE',
  'ALTER TABLE dlock_private.lease_table ALTER COLUMN name SET NOT NULL',
  'ALTER TABLE dlock_private.lease_table ALTER COLUMN request TYPE varchar',
  'ALTER TABLE dlock_private.lease_table RENAME COLUMN request TO name2',
  'ALTER TABLE dlock_private.lease_table RENAME COLUMN owner TO name2';
is($node->safe_psql('postgres', q{SELECT dlock_owner('a')}), 'o', 'leases are untouched');

# A process that has no database hears of changed relations, too, and has no table to look at.
{
	my $offset = -s $node->logfile;

	$node->safe_psql('postgres', q{
		CREATE TABLE dead (i int) WITH (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0);
		INSERT INTO dead SELECT generate_series(1, 100);
		REINDEX TABLE pg_database;
		DELETE FROM dead});
	ok($node->poll_query_until('postgres', q{SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'dead'}), 'autovacuum goes on');
	unlike(slurp_file($node->logfile, $offset), qr/autovacuum launcher process .* exited|without having selected a database/, '... with its launcher');
	$node->safe_psql('postgres', 'DROP TABLE dead');
}

# Another access method, another persistence.  Both are refused; superusers who
# write to the catalogs are told by every call, and by the worker once.
raises("ALTER TABLE dlock_private.lease_table $_", qr/ERROR:  0A000/)
  for 'SET ACCESS METHOD heap', 'SET UNLOGGED';
# Nor another name, another schema or a child.
raises($_, $unchanged)
  for 'ALTER TABLE dlock_private.lease_table RENAME TO other',
  'ALTER TABLE dlock_private.lease_table SET SCHEMA public',
  'CREATE TABLE child () INHERITS (dlock_private.lease_table)';
is($node->safe_psql('postgres', q{SELECT dlock_owner('a')}), 'o', '... and leases are untouched');
for my $change (q{relam = (SELECT oid FROM pg_am WHERE amname = 'heap')}, q{relpersistence = 'u'})
{
	my $offset = -s $node->logfile;
	my $update = "UPDATE pg_class SET $change WHERE oid = 'dlock_private.lease_table'::regclass";

	raises("SELECT dlock_owner('a'); BEGIN; $update; SELECT dlock_owner('a')", $repair,
		"a session that has used the table notices $change");
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query(q{SELECT dlock_owner('a')});
	is($session->{stderr}, '', '... and one that has used it before');
	$node->safe_psql('postgres', $update);
	$session->query(q{SELECT dlock_owner('a')});
	like($session->{stderr}, qr/is not as the extension created it/, '... is told of it');
	$session->quit;
	let_worker_look();
	worker_tells('is not as the extension created it', $offset);
	raises($_, $repair) for @calls;
	server_stays("a worker survives $change");
	my $pid = $node->safe_psql('postgres', $worker);
	$offset = -s $node->logfile;
	let_worker_look() for 1 .. 5;
	is($node->safe_psql('postgres', $worker), $pid, '... stays');
	unlike(slurp_file($node->logfile, $offset), qr/lease_table/, '... and is quiet');
	$token = new_extension_works($token);
}

# Renamed for a moment: its worker goes on where it was.
my $pid = $node->safe_psql('postgres', $worker);
my $log = -s $node->logfile;
$node->safe_psql('postgres', q{SELECT dlock_acquire('brief', 'o', 0.2);
	UPDATE pg_class SET relname = 'other' WHERE oid = 'dlock_private.lease_table'::regclass});
let_worker_look();
worker_tells('does not exist', $log);
$node->safe_psql('postgres', q{UPDATE pg_class SET relname = 'lease_table' WHERE oid = 'dlock_private.other'::regclass});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name = 'brief'}),
	'a table that was renamed and renamed back has its expired leases removed');
is($node->safe_psql('postgres', $worker), $pid, '... by the same worker');

# A schema that was renamed: the views' goes on, the table's says why.
for my $schema ('dlock', 'dlock_private')
{
	$node->safe_psql('postgres', "ALTER SCHEMA $schema RENAME TO other");
	raises(q{SELECT dlock_acquire('moved', 'o', 1)}, $schema eq 'dlock' ? qr/\A\z/ : qr/ERROR:  42P01/, "ALTER SCHEMA $schema RENAME");
	$node->safe_psql('postgres', "ALTER SCHEMA other RENAME TO $schema");
}
is($node->safe_psql('postgres', q{SELECT dlock_owner('a')}), 'o', 'put back, it works as before');
raises('DROP TABLE dlock_private.lease_table', qr/ERROR:  2BP01/, 'DROP TABLE is refused: the extension needs it');

# Tables of users.
my $refused = qr/ERROR:  0A000: access method "dlock" is only for dlock_private\.lease_table/;
raises($_, $refused)
  for 'CREATE TABLE mine (i int) USING dlock',
  'CREATE TABLE lease_table (LIKE dlock_private.lease_table) USING dlock',
  'CREATE TABLE pg_temp_1 (LIKE dlock_private.lease_table) USING dlock',
  'CREATE TEMP TABLE lease_table (LIKE dlock_private.lease_table) USING dlock',
  'CREATE UNLOGGED TABLE mine (LIKE dlock_private.lease_table) USING dlock',
  'CREATE TABLE mine USING dlock AS SELECT 1 AS i',
  'CREATE MATERIALIZED VIEW mine USING dlock AS SELECT * FROM dlock.locks',
  'SET default_table_access_method = dlock; CREATE TABLE mine (i int)',
  'BEGIN; CREATE TABLE mine (LIKE dlock_private.lease_table); ALTER TABLE mine SET ACCESS METHOD dlock';
# With the name of the copy that VACUUM FULL makes, by a role that has not locked the table.
my $oid = $node->safe_psql('postgres', q{SELECT 'dlock_private.lease_table'::regclass::oid});
$node->safe_psql('postgres', 'CREATE TABLE shape (LIKE dlock_private.lease_table); GRANT SELECT ON shape TO PUBLIC;
	CREATE ROLE plain; GRANT CREATE ON SCHEMA public TO plain');
raises("SET ROLE plain; CREATE TABLE pg_temp_$oid (LIKE shape) USING dlock", $refused);
is($node->safe_psql('postgres', 'DROP TABLE shape; SELECT 1'), 1, '... and the server goes on');
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE template0');
is( $node->safe_psql('other', q{CREATE EXTENSION dlock; SET default_table_access_method = dlock;
	SELECT dlock_acquire('a', 'o', 3600) > 0; VACUUM FULL dlock_private.lease_table; SELECT dlock_owner('a')}),
	"t\no", 'default_table_access_method = dlock does not disturb dlock');
$node->safe_psql('other', q{SET default_table_access_method = dlock; DROP EXTENSION dlock;
	CREATE EXTENSION dlock});
is($node->safe_psql('other', q{SELECT dlock_acquire('a', 'o', 3600) > 0}), 't', '... nor CREATE EXTENSION');

# Logical replication of all tables.
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 'logical');
$subscriber->append_conf('postgresql.conf', $settings);
$subscriber->start;
$node->safe_psql('postgres', q{CREATE TABLE rows (i int PRIMARY KEY);
	INSERT INTO rows VALUES (1); CREATE PUBLICATION everything FOR ALL TABLES});
$subscriber->safe_psql('postgres', q{CREATE EXTENSION dlock; CREATE TABLE rows (i int PRIMARY KEY);
	SELECT dlock_acquire('own', 'subscriber', 3600)});
$node->safe_psql('postgres', q{SELECT dlock_acquire('theirs', 'publisher', 3600)});
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION sub CONNECTION '"
	  . $node->connstr . " dbname=postgres' PUBLICATION everything");
$subscriber->wait_for_subscription_sync($node, 'sub');
pass('the copy of all tables ends');
$node->safe_psql('postgres', q{INSERT INTO rows VALUES (2);
	SELECT dlock_acquire('later', 'publisher', 3600), dlock_release('theirs', 'publisher')});
$node->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM rows'), 2, 'other tables are replicated');
is($subscriber->safe_psql('postgres', q{SELECT string_agg(name, ' ') FROM dlock.locks}),
	'own', "the subscriber has its own leases and none of the publisher's");
is($subscriber->safe_psql('postgres', q{SELECT dlock_release('own', 'subscriber')}), 't', '... which go on working');

$subscriber->stop;
$node->stop;
done_testing();
