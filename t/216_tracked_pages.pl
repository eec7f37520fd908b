# However many pages have summaries, and whatever becomes of these, renew_all, release_all
# and the worker find all leases that concern them, and no other.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('tracked');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dynamic_shared_memory_type = mmap
synchronous_commit = off
autovacuum = off
dlock.reap_interval = '20ms'
dlock.log_expired = off
dlock.tracked_pages = 7
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub query
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

# A player has owners and names of its own, so its model, a plain table, knows each answer.
query(q{
CREATE FUNCTION differ(answer anyelement, model anyelement, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF answer IS DISTINCT FROM model THEN
		RAISE EXCEPTION '%: %, not %', what, answer, model;
	END IF;
END $$;
CREATE PROCEDURE play(me integer, moves integer) LANGUAGE plpgsql AS $$
DECLARE
	who text;
	lease text;
	holder text;
BEGIN
	CREATE TEMP TABLE model (name text PRIMARY KEY, owner text);
	FOR i IN 1 .. moves LOOP
		who := me || ' ' || floor(random() * 20);
		lease := lpad(me || ' ' || floor(random() * 1000), 255, 'n');
		SELECT owner INTO holder FROM model WHERE name = lease;
		CASE floor(random() * 10)
			WHEN 0, 1, 2, 3, 4 THEN
				PERFORM differ(dlock_acquire(lease, who, 3600) IS NULL, holder <> who AND holder IS NOT NULL, 'acquire');
				INSERT INTO model VALUES (lease, who) ON CONFLICT DO NOTHING;
			WHEN 5 THEN
				PERFORM differ(dlock_force_release(lease)::integer, (holder IS NOT NULL)::integer, 'force-release');
				DELETE FROM model WHERE name = lease;
			WHEN 6 THEN
				PERFORM differ(dlock_renew_all(who, 3600 + i)::bigint,
					(SELECT count(*) FROM model WHERE owner = who), 'renew_all');
			WHEN 7 THEN
				CONTINUE WHEN i % 5 > 0;
				PERFORM differ(dlock_release_all(who)::bigint,
					(SELECT count(*) FROM model WHERE owner = who), 'release_all');
				DELETE FROM model WHERE owner = who;
			WHEN 8 THEN
				PERFORM dlock_acquire(lpad('short ' || me || ' ' || i, 255, 's'), 'mayfly', 0.001);
			WHEN 9 THEN
				lease := lpad('shortened ' || me || ' ' || i, 255, 's');
				PERFORM dlock_acquire(lease, 'mayfly', 3600);
				PERFORM differ(dlock_renew(lease, 'mayfly', 0.001), true, 'renew');
		END CASE;
	END LOOP;
	FOR i IN 0 .. 19 LOOP
		who := me || ' ' || i;
		PERFORM differ(dlock_renew_all(who, 3600)::bigint, (SELECT count(*) FROM model WHERE owner = who), 'renew_all at last');
	END LOOP;
END $$});

# A round of the worker over more than a thousand pages is of several transactions.  Where the
# table is locked between them, it is given up.
query(q{
CREATE PROCEDURE interfere(times integer) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		PERFORM pg_sleep(random() * 0.02);
		LOCK TABLE dlock_private.lease_table IN EXCLUSIVE MODE;
		PERFORM pg_sleep(random() * 0.02);
		COMMIT;
	END LOOP;
END $$});
my $others = 18000;
is(query(qq{SELECT count(dlock_acquire(lpad(i::text, 255, 'f'), lpad(i::text, 255, 'o'), 36000)) FROM generate_series(1, $others) i}),
	$others, 'leases of others');
cmp_ok(query(q{SELECT pg_relation_size('dlock_private.lease_table') / 8192}), '>', 1100, '... on many pages');

my $sessions = Sessions->new($node);
my @players = $sessions->open(1 .. 3);
my ($disturber) = $sessions->open('disturber');
for my $tracked (7, 0, 100, 1, 10000)
{
	query($_) for "ALTER SYSTEM SET dlock.tracked_pages = $tracked", 'SELECT pg_reload_conf()';
	$players[$_]->send("CALL play($_, 1500)") for 0 .. 2;
	# what has summaries goes on with them: so begin without any
	query('VACUUM FULL dlock_private.lease_table');
	query(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'dlock worker'});
	is($_->answer, '', "$tracked pages: a player has the answers of its model") for @players;
	$disturber->send('CALL interfere(100)');
	query(q{SELECT count(dlock_acquire(lpad('last ' || i, 255, 's'), 'mayfly', 0.001)) FROM generate_series(1, 300) i});
	is($disturber->answer, '', '... somebody locks the table');
	is($sessions->until(q{SELECT count(*) FROM dlock_private.lease_table WHERE owner = 'mayfly'}, 0), 0,
		'... and the worker finds what is over');
	$_->query('DROP TABLE model') for @players;
	is(query(q{SELECT sum(dlock_release_all(n || ' ' || i)) > 0 FROM generate_series(0, 2) n, generate_series(0, 19) i}),
		't', '... and the rest goes');
	is(query('SELECT count(*) FROM dlock_private.lease_table'), $others, '... without what others have');
}

$_->quit for @players, $disturber;

# A worker that gets no memory for summaries ends, and the next one does without them.
my $segments = $node->data_dir . '/pg_dynshmem';
my $tell = qr/ERROR:  could not open shared memory segment/;
my $log = -s $node->logfile;
chmod 0500, $segments or die "could not close $segments: $!";
query('VACUUM FULL dlock_private.lease_table');
for my $i (1 .. 3)
{
	is(query(qq{SELECT count(dlock_acquire(lpad('short $i ' || i, 255, 's'), 'mayfly', 0.001)) FROM generate_series(1, 50) i}),
		50, 'short leases without memory for summaries');
	is($sessions->until(q{SELECT count(*) FROM dlock_private.lease_table WHERE owner = 'mayfly'}, 0), 0, '... are reaped');
}
is(query(q{SELECT dlock_renew_all(lpad('7', 255, 'o'), 3600)}), 1, '... and renew_all finds what it looks for');
is(scalar(() = slurp_file($node->logfile, $log) =~ /$tell/g), 1, '... and one error tells of it');
chmod 0700, $segments or die "could not open $segments: $!";

$node->stop('immediate');
done_testing();
