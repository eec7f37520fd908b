# A call that began before the summaries got more memory has not mapped that.  The
# leases that it adds are found all the same by walks that skip pages by their
# summaries.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('segment', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
synchronous_commit = off
dlock.reap_interval = '50ms'
dlock.log_expired = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub query
{
	my ($query) = @_;
	return $node->safe_psql('postgres', $query);
}

my $session = $node->background_psql('postgres');
my $pid = $session->query('SELECT pg_backend_pid()');
# the first look at dlock.stats counts the table, for which it reads the metapage: the
# session below is stopped while it has that locked
is(query(q{SELECT dlock_acquire('first', 'first', 0.001) IS NOT NULL}), 't', 'the table is in use');
like(query('SELECT held FROM dlock.stats'), qr/^[01]$/, 'and has been counted');

# While the worker is stopped the table outgrows what has summaries, and a session
# begins a call that goes on later.
$node->poll_query_until('postgres', q{SELECT reaped = 1 FROM dlock.stats}) or die 'no worker';
my $worker = query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'});
Processes::stop_asleep($worker, 'Extension', \&query);
query(q{SELECT count(dlock_acquire(lpad(i::text, 255, 'n'), lpad(i::text, 255, 'o'), 36000,
	request => lpad(i::text, 255, 'r'))) FROM generate_series(1, 50000) i});
is(query(q{SELECT count(dlock_acquire(lpad('short' || i, 255, 's'), 'mayfly', 0.001)) FROM generate_series(1, 1000) i}),
	1000, 'short leases all over the table');
cmp_ok(query(q{SELECT pg_relation_size('dlock_private.lease_table') / 8192}), '>', 4096 + 1000, 'more pages than have summaries');
# so that the next call marks the clock
query('SELECT pg_sleep(1.1)');
$session->query($_) for q{SET dlock.crash_point = 'mark: logged'}, 'SET dlock.crash_stop = on';
$session->query_until(qr/begins/, q{\echo begins
SELECT 'has ' || cardinality(dlock_acquire_all((SELECT array_agg('late ' || i) FROM generate_series(1, 60) i), 'late', 3600));
});
Processes::until_stopped($pid);

# The worker gets memory and has been everywhere; then the call goes on.
kill 'CONT', $worker or die 'the worker is gone';
ok($node->poll_query_until('postgres', q{SELECT reaped = 1001 FROM dlock.stats}), 'all short leases are reaped');
kill 'CONT', $pid or die 'the call is gone';
like($session->query('SELECT'), qr/^has 60$/m, 'the call goes on');
is(query(q{SELECT dlock_renew_all('late', 3600)}), 60, 'renew_all finds what it has taken');
is(query(q{SELECT dlock_release_all('late')}), 60, 'release_all, too');

$session->quit;
$node->stop('immediate');
done_testing();
