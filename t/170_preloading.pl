# Preloading can be turned on and off: leases outlast it, and recovery does not need the
# library.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'dlock'
restart_after_crash = on
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE DATABASE without TEMPLATE template0;
	CREATE EXTENSION dlock});
$node->safe_psql('postgres', 'CHECKPOINT');

$node->safe_psql('postgres', q{
	SELECT count(dlock_acquire_shared('crowd', 'reader ' || i, 3600))
	FROM generate_series(1, 300) AS i;
	SELECT count(dlock_release('crowd', 'reader ' || i))
	FROM generate_series(1, 200) AS i;
	SELECT count(dlock_acquire('name ' || i, 'me', 3600))
	FROM generate_series(1, 2000) AS i});

# A release may be lost; this makes sure of those above.
my $token = $node->safe_psql('postgres',
	q{SELECT dlock_acquire('held', 'me', 3600, 0, 'request 1')});
my $rows = q{SELECT count(*), md5(string_agg(
		concat_ws('|', name, owner, mode, version, token, acquired_at),
		' ' ORDER BY name, token))
	FROM dlock.locks};
my $before = $node->safe_psql('postgres', $rows);

$node->stop('immediate');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->start;
my $startup = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'dlock'});
is($startup, 0, 'recovery without the library');

# What does not use it.
$node->safe_psql('postgres', 'CHECKPOINT');
$node->command_ok([ 'pg_dump', '-f', '/dev/null', 'postgres' ], 'pg_dump');
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE postgres');
is( $node->safe_psql(
		'copied', q{DROP EXTENSION dlock; SELECT to_regclass('dlock.locks')}),
	'',
	'DROP EXTENSION');

sub all_is_there
{
	my ($title) = @_;
	is($node->safe_psql('postgres', $rows), $before, "$title: all leases are there");
	is( $node->safe_psql(
			'postgres', q{
			SELECT dlock_acquire('held', 'you', 60),
				dlock_acquire('held', 'me', 3600, 0, 'request 1')}),
		"|$token",
		"$title: they are held");
	is($node->safe_psql('postgres', q{SELECT dlock_acquire('more', 'you', 60) > } . $token . q{, dlock_release('more', 'you')}),
		't|t', "$title: tokens grow");
	return;
}
all_is_there('without preloading');
$node->safe_psql('postgres', 'VACUUM; ANALYZE');
$node->safe_psql('postgres', 'VACUUM FULL dlock_private.lease_table');
$node->safe_psql('without', 'CREATE EXTENSION dlock');

$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'dlock'");
$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type = 'dlock worker'}),
	'preloaded: workers start without a call');
all_is_there('preloaded');
$node->safe_psql('copied', 'CREATE EXTENSION dlock');
is($node->safe_psql('copied', 'SELECT count(*) FROM dlock.locks'), 0, 'CREATE EXTENSION works');
is(scalar(() = slurp_file($node->logfile) =~ /terminated by signal/g), 0, 'no process has crashed');

done_testing();
