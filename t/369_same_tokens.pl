# Leases on different names may have the same token: the first ones of two buckets
# do.  A walk over an owner's session leases that meets splits must not confuse one
# that it has not renewed with one that it has.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $leases = 64;

my $node = PostgreSQL::Test::Cluster->new('same', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $session = $node->background_psql('postgres');
my $pid = $session->query('SELECT pg_backend_pid()');
is( $session->query(qq{SELECT count(dlock_acquire_session('name ' || i, 'me', 3600))
		FROM generate_series(1, $leases) i}),
	$leases, 'session leases');
cmp_ok(
	$node->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT token) FROM dlock.locks}),
	'>', 10, 'many have the same token');

# The walk stops after its first bucket; all that are left are split; it goes on.
$session->query($_) for q{SET dlock.crash_point = 'walk: bucket done'}, 'SET dlock.crash_stop = on';
$session->query_until(qr/begins/,
	"\\echo begins\nSELECT 'renewed ' || dlock_renew_all('me', 7200);\n");
Processes::until_stopped($pid);
my $pages = q{SELECT pg_relation_size('dlock_private.lease_table') / 8192};
my $before = $node->safe_psql('postgres', $pages);
$node->safe_psql('postgres', q{SELECT count(dlock_acquire('other ' || i, 'you', 3600)) FROM generate_series(1, 20000) i});
cmp_ok($node->safe_psql('postgres', $pages), '>=', $before + 64, 'buckets are split meanwhile');
kill 'CONT', $pid or die 'the walk is gone';
like($session->query('SELECT'), qr/^renewed $leases$/m, 'each lease is renewed, and none twice');
is( $node->safe_psql('postgres',
		q{SELECT count(*) FROM dlock.locks WHERE owner = 'me' AND expires_at < now() + interval '6000 s'}),
	0, 'and is for as long as was asked for');

$session->quit;
$node->stop;
done_testing();
