# The largest entries, names with thousands of holders, and a table far larger
# than what shared memory keeps track of.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('limits');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'dlock'
synchronous_commit = off
dlock.reap_interval = '50ms'
dlock.log_expired = off
dlock.tracked_pages = 0
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub query
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

# Pages with room for few: 255 bytes each of name, owner, request.
my $application = 'a' x 63;
is( query(qq{SET application_name = '$application';
	SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
		request => lpad(i::text, 255, 'r'))) FROM generate_series(1, 2000) i}),
	2000, 'the longest entries');
is( query(q{SELECT count(*), count(DISTINCT name), min(length(name)), min(length(owner)),
	min(length(application_name)), max(version) FROM dlock.locks}),
	'2000|2000|255|255|63|1', '... are all there');
is( query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
		request => 's')) FROM generate_series(1, 2000) i}),
	2000, 'their request ids can shrink');
is( query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 3600,
		request => lpad('t', 255, 't'))) FROM generate_series(1, 2000) i}),
	2000, '... and grow');
is(query(q{SELECT count(*), min(version), max(version), count(DISTINCT request), min(length(request)) FROM dlock.lease_table}),
	'2000|3|3|1|255', '... with every hold counted');
is( query(q{SELECT count(*) FILTER (WHERE dlock_release(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o')))
	FROM generate_series(1, 2000) i, generate_series(1, 3)}),
	6000, 'every hold can be released');
is(query('SELECT count(*) FROM dlock.locks'), 0, '... and nothing is left');

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
my $pages = query(q{SELECT pg_relation_size('dlock.lease_table')});
is(query(q{SELECT dlock_force_release('semaphore')}), 4999, 'all are evicted');
is(query(q{SELECT count(dlock_acquire_permit('semaphore 2', lpad(i::text, 100, 'p'), 3600, 5000))
	FROM generate_series(1, 4000) i}), 4000, 'others come');
cmp_ok(query(q{SELECT pg_relation_size('dlock.lease_table')}), '<=', $pages + 50 * 8192,
	'... into the room that was left');

# A holder that dies in a crowd.
is(query(q{SELECT count(dlock_acquire_shared('crowd', 's' || i, CASE WHEN i % 2 = 0 THEN 0.001 ELSE 3600 END))
	FROM generate_series(1, 1000) i}), 1000, 'a crowd of which half die');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 500 FROM dlock_holders('crowd')}), '... who are reaped');

# More pages than are tracked.  The smallest number there is: 64 times 256.
# Long names fill pages quickly.
query('SELECT dlock_force_release(name) FROM dlock.locks');
my $leases = 120_000;
is( query(qq{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), CASE WHEN i % 12000 = 0 THEN 'one'
		ELSE lpad(i::text, 255, 'o') END, 36000, request => lpad(i::text, 255, 'r')))
	FROM generate_series(1, $leases) i}),
	$leases, "$leases long leases");
$pages = query(q{SELECT pg_relation_size('dlock.lease_table') / 8192});
cmp_ok($pages, '>', 64 * 256 + 1000, 'more pages than are tracked');
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
query('VACUUM FULL dlock.lease_table');
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

$node->stop('immediate');
done_testing();
