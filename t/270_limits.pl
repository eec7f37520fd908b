# The largest entries, names with thousands of holders, and a table far larger
# than what shared memory keeps track of.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Sessions;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('limits');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
synchronous_commit = off
dlock.reap_interval = '50ms'
dlock.log_expired = off
dynamic_shared_memory_type = mmap
dlock.tracked_pages = 1000
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub query
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

# Pages with room for few: 255 bytes each of name, owner, request.  From 16 on
# the longest application names are 252 bytes; 63 of them are kept.
for my $application ('a' x 63, "\xc3\xa9" x 32)
{
	is( query(qq{SET application_name = '$application';
		SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
			request => lpad(i::text, 255, 'r'))) FROM generate_series(1, 2000) i}),
		2000, 'the longest entries');
	is( query(qq{SET application_name = '$application';
		SELECT count(*), count(DISTINCT name), min(length(name)), min(length(owner)),
			bool_and(application_name = left(current_setting('application_name'), 63)),
			max(version) FROM dlock.locks}),
		'2000|2000|255|255|t|1', '... are all there');
	is( query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
			request => 's')) FROM generate_series(1, 2000) i}),
		2000, 'their request ids can shrink');
	is( query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
			request => lpad('t', 255, 't'))) FROM generate_series(1, 2000) i}),
		2000, '... and grow');
	is(query(q{SELECT count(*), min(version), max(version), count(DISTINCT request), min(length(request)) FROM dlock_private.lease_table}),
		'2000|3|3|1|255', '... with every hold counted');
	is( query(q{SELECT count(*) FILTER (WHERE dlock_release(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o')))
		FROM generate_series(1, 2000) i, generate_series(1, 3)}),
		6000, 'every hold can be released');
	is(query('SELECT count(*) FROM dlock.locks'), 0, '... and nothing is left');
	is( query(qq{SET application_name = '$application';
		SELECT cardinality(dlock_acquire_all(array_agg(lpad(i::text, 255, 'n')), lpad('', 255, 'o'), 3600,
			request => lpad('', 255, 'r'))) FROM generate_series(1, 100) i}),
		100, 'a hundred of them at once');

	# In line, several of them: each waiter's place in shared memory is full.
	my $sessions = Sessions->new($node);
	my @waiters = $sessions->open(1 .. 4);
	my $name = q{lpad('1', 255, 'n')};
	for my $i (0 .. 3)
	{
		$waiters[$i]->query("SET application_name = '$application'");
		$waiters[$i]->send(qq{SELECT dlock_acquire($name, lpad('$i', 255, 'w'), 3600, -1,
			lpad('$i', 255, 'q')) > 0});
		is($sessions->until('SELECT count(*) FROM dlock.waiters', $i + 1), $i + 1, 'a waiter more');
	}
	is( $waiters[0]->answered . query(qq{SET application_name = '$application';
		SELECT string_agg(concat_ws(' ', name = $name, owner = lpad(position - 1 || '', 255, 'w'), position,
			application_name = left(current_setting('application_name'), 63)), ' ' ORDER BY position)
		FROM dlock.waiters}),
		'0t t 1 t t t 2 t t t 3 t t t 4 t', '... all as they should be');
	is(query(q{SELECT dlock_release_all(lpad('', 255, 'o'))}), 100, 'the name comes free');
	for my $i (0 .. 3)
	{
		is($waiters[$i]->answer, 't', '... for one waiter after another');
		is( query(qq{SET application_name = '$application';
			SELECT application_name = left(current_setting('application_name'), 63), length(request),
				dlock_release($name, lpad('$i', 255, 'w')) FROM dlock_private.lease_table}),
			't|255|t', '... as it is, request and all');
		$waiters[$i]->quit;
	}
}

# One name with thousands of holders, which no split can part.
is( query(q{SELECT count(dlock_acquire_permit('semaphore', lpad(i::text, 100, 'p'), 3600, 5000))
	FROM generate_series(1, 5000) i}),
	5000, 'five thousand permits of one name');
is(query(q{SELECT dlock_acquire_permit('semaphore', 'one more', 3600, 5000) IS NULL}), 't', '... and not one more');
is(query(q{SELECT count(*), count(DISTINCT token) FROM dlock_holders('semaphore')}), '5000|5000', '... all shown');
is(query(q{SELECT sum(dlock_acquire_permit('semaphore', lpad('1', 100, 'p'), 3600, 6000) * 0 + 1)
	FROM generate_series(1, 1000)}), 1000, 'a holder may have many');
is(query(q{SELECT version FROM dlock_holders('semaphore') WHERE owner = lpad('1', 100, 'p')}), 1001, '... in one row');
is( query(q{SELECT count(dlock_acquire_shared('readers', 'r' || i, 3600)) FROM generate_series(1, 3000) i}),
	3000, 'three thousand readers of another');
is(query(q{SELECT dlock_acquire('readers', 'writer', 3600) IS NULL}), 't', '... keep a writer out');
my $token = query(q{SELECT max(token) FROM dlock_holders('readers')});
is(query(q{SELECT count(*) FILTER (WHERE dlock_release('readers', 'r' || i)) FROM generate_series(1, 3000) i}),
	3000, '... until they are gone');
cmp_ok(query(q{SELECT dlock_acquire('readers', 'writer', 3600)}), '>', $token, '... and tokens grow');
is(query(q{SELECT dlock_release_all(lpad('77', 100, 'p'))}), 1, 'one holder among thousands is found');
my $pages = query(q{SELECT pg_relation_size('dlock_private.lease_table')});
is(query(q{SELECT dlock_force_release('semaphore')}), 4999, 'all are evicted');
is(query(q{SELECT count(dlock_acquire_permit('semaphore 2', lpad(i::text, 100, 'p'), 3600, 5000))
	FROM generate_series(1, 4000) i}), 4000, 'others come');
cmp_ok(query(q{SELECT pg_relation_size('dlock_private.lease_table')}), '<=', $pages + 50 * 8192,
	'... into the room that was left');

# A holder that dies in a crowd.
is(query(q{SELECT count(dlock_acquire_shared('crowd', 's' || i, CASE WHEN i % 2 = 0 THEN 0.001 ELSE 3600 END))
	FROM generate_series(1, 1000) i}), 1000, 'a crowd of which half die');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 500 FROM dlock_holders('crowd')}), '... who are reaped');

# More pages than are tracked.  Long names fill pages quickly.
query('SELECT dlock_force_release(name) FROM dlock.locks');
my $leases = 36_000;
is( query(qq{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), CASE WHEN i % 3600 = 0 THEN 'one'
		ELSE lpad(i::text, 255, 'o') END, 36000, request => lpad(i::text, 255, 'r')))
	FROM generate_series(1, $leases) i}),
	$leases, "$leases long leases");
$pages = query(q{SELECT pg_relation_size('dlock_private.lease_table') / 8192});
cmp_ok($pages, '>', 4000, 'more pages than are tracked');
is(query(q{SELECT dlock_renew_all('one', 36000)}), 10, 'renew_all finds all');
is(query(q{SELECT count(*) FROM dlock.locks WHERE owner = 'one' AND expires_at > now() + interval '9 hours'}),
	10, '... and renews them');

# By sessions that have not seen the table yet, as those of an application.
is(query(q{SELECT dlock_stats_reset(); SELECT count(dlock_acquire(lpad('short' || i, 255, 's'), 'mayfly', 0.001))
	FROM generate_series(1, 1000) i}), "\n1000", 'short leases all over the table');
ok($node->poll_query_until('postgres', q{SELECT reaped = 1000 FROM dlock.stats}), '... are reaped');
is(query(q{SELECT count(*) FROM dlock.locks WHERE owner = 'mayfly'}), 0, '... all');
is(query(q{SELECT count(dlock_acquire('late ' || i, 'late', 3600)) FROM generate_series(1, 300) i}),
	300, 'a newcomer with leases all over the table');
is(query(q{SELECT dlock_renew_all('late', 3600)}), 300, '... renews them all');
is(query(q{SELECT dlock_release_all('late')}), 300, '... and releases them all');
is(query(q{SELECT dlock_release_all('one')}), 10, 'release_all finds all');
is(query(q{SELECT dlock_renew_all('one', 1)}), 0, '... and leaves none');
is(query('SELECT count(*), count(DISTINCT name) FROM dlock.locks'),
	join('|', ($leases - 10) x 2), 'the others are as they were');
query('VACUUM FULL dlock_private.lease_table');
is(query('SELECT count(*), count(DISTINCT name) FROM dlock.locks'),
	join('|', ($leases - 10) x 2), '... also after VACUUM FULL');
is(query(qq{SELECT dlock_release_all(lpad('$leases', 255, 'o'))}), 0, 'the one at the end was of another owner');
is(query(qq{SELECT dlock_release_all(lpad(($leases - 1)::text, 255, 'o'))}), 1, 'one that is there is found');

# The table has become someone else's: nothing tracked is left behind.
query('DROP EXTENSION dlock');
query('CREATE EXTENSION dlock');
is(query(q{SELECT count(dlock_acquire('n' || i, 'o' || i % 10, 3600)) FROM generate_series(1, 1000) i}),
	1000, 'a new table');
is(query(q{SELECT dlock_renew_all('o1', 3600)}), 100, '... is tracked anew');

# With all pages tracked again, the worker sleeps: a second has twenty of its
# rounds, and few transactions then.
my $quiet = 0;
for (1 .. $PostgreSQL::Test::Utils::timeout_default)
{
	my $commits = q{SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'};
	my $before = query($commits);
	query('SELECT pg_sleep(1)');
	$quiet = query($commits) - $before < 10;
	last if $quiet;
}
ok($quiet, '... and when nothing is due the worker does nothing');

# Memory follows the tables, and not the settings.
query('SELECT dlock_force_release(name) FROM dlock.locks');
is(query(q{SELECT count(dlock_acquire('n' || i, 'o', 3600)) FROM generate_series(1, 10) i}), 10, 'ten leases');
$node->append_conf('postgresql.conf', "dlock.tracked_pages = 1048576\nshared_buffers = 2GB");
$node->restart;
is(query(q{SELECT dlock_acquire('due', 'o2', 0.001) > 0}), 't', 'a lease that ends');
ok($node->poll_query_until('postgres', q{SELECT reaped = 1 FROM dlock.stats}), '... for which the worker makes its rounds');
my $shared = query(q{SELECT sum(allocated_size) FROM pg_shmem_allocations WHERE name LIKE 'dlock%'});
$shared += -s $_ for glob($node->data_dir . '/pg_dynshmem/mmap.*');
note "$shared bytes";
cmp_ok($shared, '<', 16 * 1024 * 1024, 'shared memory does not follow shared_buffers');
is(query(q{SELECT dlock_renew_all('o', 3600)}), 10, '... and is enough for ten leases');

$node->stop('immediate');
done_testing();
