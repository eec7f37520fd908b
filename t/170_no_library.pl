# Recovery does not need the library.  A server that does not preload it says
# so, with a hint, wherever dlock is used, and leases outlast such times.

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
pass('recovery without the library');

# What goes wrong has the same SQLSTATE, message and hint everywhere.
sub refused
{
	my ($statement, $title, $database) = @_;

	my ($status, $stdout, $stderr) = $node->psql($database // 'postgres',
		"\\set VERBOSITY verbose\n$statement;");
	is($stdout, '', "$title: no answer");
	like($stderr,
		qr/ERROR:  55000: dlock must be loaded via "shared_preload_libraries"$/m,
		"$title: says what is missing");
	like($stderr,
		qr/^HINT:  Add dlock to "shared_preload_libraries" and restart the server\.$/m,
		"$title: says what to do");
	return;
}

for my $call (
	q{dlock_acquire('held', 'me', 60)},
	q{dlock_acquire_shared('other', 'me', 60)},
	q{dlock_acquire_permit('other', 'me', 60, 1)},
	q{dlock_acquire_all('{held,other}', 'me', 60)},
	q{dlock_acquire_any('{held,other}', 'me', 60, 1)},
	q{dlock_acquire_session('other', 'me', 60)},
	q{dlock_acquire_session_shared('other', 'me', 60)},
	q{dlock_acquire_xact('other', 'me', 60)},
	q{dlock_acquire_xact_shared('other', 'me', 60)},
	q{dlock_wait('held', 1)},
	q{dlock_downgrade('held', 'me')},
	q{dlock_renew_many('{held}', 'me', 60)},
	q{dlock_release_many('{held}', 'me')},
	q{dlock_release_after('held', 'me', 60)},
	q{dlock_remaining('held', 'me')},
	q{dlock_renew('held', 'me', 60)},
	q{dlock_renew_all('me', 60)},
	q{dlock_release('held', 'me')},
	q{dlock_release_all('me')},
	q{dlock_owner('held')},
	q{dlock_is_free('held')},
	q{dlock_holders('held')},
	q{dlock_force_release('held')},
	q{dlock_stats_reset()})
{
	refused("SELECT $call", $call);
}
refused(qq{BEGIN;\nSELECT dlock_guard('held', 'me', $token)}, 'dlock_guard');
refused('SELECT count(*) FROM dlock.locks', 'dlock.locks');
refused('SELECT count(*) FROM dlock.waiters', 'dlock.waiters');
refused('SELECT count(*) FROM dlock_private.lease_table', 'dlock_private.lease_table');
refused('SELECT * FROM dlock.stats', 'dlock.stats');
refused('VACUUM FULL dlock_private.lease_table', 'VACUUM FULL');
refused('CREATE EXTENSION dlock', 'CREATE EXTENSION', 'without');
is( $node->safe_psql(
		'without', q{SELECT count(*) FROM pg_extension WHERE extname = 'dlock'}
	),
	0,
	'CREATE EXTENSION left nothing behind');

# The rest of the server goes on.
$node->safe_psql('postgres', 'VACUUM; ANALYZE; CHECKPOINT');
$node->command_ok([ 'pg_dump', '-f', '/dev/null', 'postgres' ], 'pg_dump');
$node->safe_psql('postgres',
	'CREATE DATABASE copied TEMPLATE postgres');
is( $node->safe_psql(
		'copied', q{DROP EXTENSION dlock; SELECT to_regclass('dlock.locks')}),
	'',
	'DROP EXTENSION');
is(scalar(() = slurp_file($node->logfile) =~ /terminated by signal/g),
	0, 'no process has crashed');

$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'dlock'");
$node->restart;
is($node->safe_psql('postgres', $rows),
	$before, 'with the library all leases are there');
is( $node->safe_psql(
		'postgres', q{
		SELECT dlock_acquire('held', 'you', 60),
			dlock_acquire('held', 'me', 3600, 0, 'request 1'),
			dlock_force_release('held')}),
	"|$token|1",
	'they are held');
cmp_ok(
	$node->safe_psql('postgres', q{SELECT dlock_acquire('held', 'you', 60)}),
	'>', $token, 'tokens grow');
$node->safe_psql('copied', 'CREATE EXTENSION dlock');
is($node->safe_psql('copied', 'SELECT count(*) FROM dlock.locks'),
	0, 'CREATE EXTENSION works');

done_testing();
