# Leases in a base backup taken under load are consistent and their tokens grow
# in the restored server; a dump has the extension and no leases; and a database
# made from a template has none of the template's.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use ClientLoad;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf(
	'postgresql.conf', q{
allow_in_place_tablespaces = on
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# A base backup, with leases from before and clients at work all the while.
$node->safe_psql(
	'postgres', q{
	SELECT count(dlock_acquire('before ' || i, 'me', 3600))
	FROM generate_series(1, 2000) AS i;
	SELECT count(dlock_acquire_shared('crowd', 'reader ' || i, 3600))
	FROM generate_series(1, 300) AS i});
my $rows = q{SELECT count(*), md5(string_agg(
		concat_ws('|', name, owner, mode, version, token),
		' ' ORDER BY name, token))
	FROM dlock.locks WHERE name ~ 'before|crowd'};
my $before = $node->safe_psql('postgres', $rows);

my $load = ClientLoad->new($node, clients => 2, names => 2000);
$load->start(endless => 1);
$load->wait_for_answers(1000);
$node->backup('backup');
# the session of a psql that has ended may still be there for a moment
ok( $node->poll_query_until('postgres',
		q{SELECT count(*) = 2 FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}
	),
	'the clients were at work all the while');
$node->stop('immediate');
$load->finish;
$node->start;
$load->compare('after the backup', crashed => 1);

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($node, 'backup');
$restored->start;
is($restored->safe_psql('postgres', $rows),
	$before, 'restored: the leases from before are there');
is( $restored->safe_psql(
		'postgres', q{
		SELECT count(*) > 2300,
			count(*) = count(DISTINCT (name, owner)),
			count(*) FILTER (WHERE mode = 'exclusive') =
				count(DISTINCT name) FILTER (WHERE mode = 'exclusive')
		FROM dlock.locks}),
	't|t|t',
	'restored: nothing is held twice');
is( $restored->safe_psql(
		'postgres', q{
		SELECT count(*) FROM (SELECT DISTINCT name FROM dlock.locks) n
		WHERE (SELECT count(*) FROM dlock_holders(n.name)) <>
			(SELECT count(*) FROM dlock.locks l WHERE l.name = n.name)}),
	0,
	'restored: each name is found where its leases are');
is($restored->safe_psql('postgres',
		q{SELECT dlock_acquire('before 1', 'you', 60)}),
	'', 'restored: a lease excludes others');
$load->tokens_grow('restored', node => $restored);
$restored->stop;

# A dump.
$node->safe_psql('postgres', 'CREATE DATABASE origin TEMPLATE template0');
$node->safe_psql('origin', 'CREATE EXTENSION dlock');
my $token = $node->safe_psql('origin',
	q{SELECT max(dlock_acquire('in origin ' || i, 'me', 3600))
		FROM generate_series(1, 500) AS i});

my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $file, 'origin' ], 'pg_dump');
my ($script) =
  run_command([ 'pg_restore', '-f', '-', $file ]);
like($script, qr/^CREATE EXTENSION.* dlock /m, 'a dump has the extension');
unlike($script, qr/in origin/, 'it has no leases');
unlike($script, qr/^(CREATE (TABLE|VIEW|FUNCTION|TYPE)|COPY|INSERT)/m,
	'it has nothing else');

$node->safe_psql('postgres', 'CREATE DATABASE from_dump TEMPLATE template0');
$node->command_checks_all(
	[ 'pg_restore', '--exit-on-error', '-d', 'from_dump', $file ],
	0, [qr/^$/], [qr/^$/], 'pg_restore');

# Copies of a database, and what the dump was restored to, start without
# leases, and are used like any other.
$node->safe_psql('postgres',
	q{CREATE DATABASE by_log TEMPLATE origin STRATEGY wal_log});
$node->safe_psql('postgres',
	q{CREATE DATABASE by_copy TEMPLATE origin STRATEGY file_copy});
$node->safe_psql('postgres', q{CREATE TABLESPACE elsewhere LOCATION ''});
$node->safe_psql('postgres',
	q{CREATE DATABASE by_move TEMPLATE origin TABLESPACE elsewhere});

my $use = q{
	SELECT dlock_acquire(name, 'you', 3600) FROM
		(VALUES ('in origin 1'), ('in origin 500'), ('new')) AS v (name)};
my @databases = ('from_dump', 'by_log', 'by_copy', 'by_move');
my %tokens;
for my $database (@databases)
{
	my $least = $database eq 'from_dump' ? 0 : $token;

	is( $node->safe_psql(
			$database, q{
			SELECT count(*), dlock_is_free('in origin 1'),
				dlock_owner('in origin 2') IS NULL,
				(SELECT count(*) FROM dlock_holders('in origin 3'))
			FROM dlock.locks}),
		'0|t|t|0',
		"$database: no leases");
	$tokens{$database} = $node->safe_psql($database, $use);
	is( scalar(grep { $_ > $least } split /\n/, $tokens{$database}),
		3, "$database: acquire works, tokens grow");
	is( $node->safe_psql(
			$database, q{SELECT string_agg(name, ', ' ORDER BY name),
				dlock_renew('new', 'you', 3600), dlock_renew_all('me', 60)
				FROM dlock.locks}),
		'in origin 1, in origin 500, new|t|0',
		"$database: only its own leases");
}

# The same after a crash.
$node->stop('immediate');
$node->start;
for my $database (@databases)
{
	is($node->safe_psql($database, 'SELECT count(*) FROM dlock.locks'),
		3, "$database: the same after a crash");
	is( $node->safe_psql($database, $use),
		$tokens{$database}, "$database: with the same tokens");
}
is( $node->safe_psql(
		'origin', q{SELECT count(*), dlock_owner('in origin 1') FROM dlock.locks}),
	'500|me',
	'the template has its leases as before');

done_testing();
