# A standby replays every kind of change to the same pages, also without the
# library; it answers calls that only read, and after promotion all others.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use ClientLoad;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);

# A replayed page that differs from the primary's ends the standby.
$primary->append_conf(
	'postgresql.conf', q{
wal_consistency_checking = 'all'
wal_keep_size = '1GB'
allow_in_place_tablespaces = on
dlock.reap_interval = '100ms'
});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

my $stranger = PostgreSQL::Test::Cluster->new('stranger');
$stranger->init_from_backup($primary, 'backup', has_streaming => 1);
$stranger->start;

my $everything = q{
	SELECT name, owner, mode, version, token, acquired_at, role, pid,
		application_name, client_addr
	FROM %s ORDER BY name COLLATE "C", token};
my $from_locks = sprintf $everything, 'dlock.locks';
my $from_holders = sprintf $everything,
  q{(SELECT h.* FROM (SELECT DISTINCT name FROM dlock.locks) n,
		LATERAL dlock_holders(n.name) h) AS h};
my $from_names = q{
	SELECT name, dlock_owner(name), dlock_is_free(name)
	FROM (SELECT DISTINCT name FROM dlock.locks
		UNION ALL VALUES ('nobody''s')) AS n
	ORDER BY name COLLATE "C"};

# Wait until a standby has replayed all.  A release is answered before it is
# written, so write everything first, as a commit does.
sub catch_up
{
	my ($server) = @_;

	$primary->safe_psql('postgres',
		q{SELECT pg_logical_emit_message(true, '', '')});
	$primary->wait_for_catchup($server);
	return;
}

# Hold a server's answers against the primary's.
sub same_as_primary
{
	my ($server, $title) = @_;

	catch_up($server);
	my @differ = grep {
		$primary->safe_psql('postgres', $_) ne
		  $server->safe_psql('postgres', $_)
	} ($from_locks, $from_holders, $from_names);
	is("@differ", '', "$title: the standby answers like the primary");
	return;
}

sub do_it
{
	my ($title, @statements) = @_;

	$primary->safe_psql('postgres', $_) for @statements;
	same_as_primary($standby, $title);
	return;
}

sub table_size
{
	return $primary->safe_psql('postgres',
		q{SELECT pg_relation_size('dlock_private.lease_table')});
}

# A session that is there from before to after the promotion.
my $session = $standby->background_psql('postgres');
is($session->query(q{SELECT dlock_is_free('held')}),
	't', 'an unused table can be read on a standby');

my $load = ClientLoad->new($primary, clients => 2, names => 2000);
$load->start(operations => 2000);
is($load->finish, 2, 'two clients at work');
$load->compare('with standbys');
same_as_primary($standby, 'several clients');

do_it('splits',
	q{SELECT dlock_acquire('held', 'me', 3600, 0, 'request 1')},
	q{SELECT dlock_acquire_permit('some', 'worker', 3600, 3)
		FROM generate_series(1, 3)},
	q{SELECT count(dlock_acquire('bulk ' || i, 'bulk', 3600))
		FROM generate_series(1, 3000) AS i});
is($session->query(q{SELECT dlock_owner('held')}),
	'me', 'a session on the standby that knew an older directory');

do_it('overflow',
	q{SELECT count(dlock_acquire_shared('crowd', 'reader ' || i, 3600))
		FROM generate_series(1, 1000) AS i});
do_it('free list',
	q{SELECT count(dlock_release('crowd', 'reader ' || i))
		FROM generate_series(1, 900) AS i});
my $size = table_size();
do_it('pages from the free list',
	q{SELECT count(dlock_acquire_shared('crowd', 'late reader ' || i, 3600))
		FROM generate_series(1, 500) AS i});
is(table_size(), $size, 'they were reused');

do_it('owners',
	q{SELECT dlock_renew_all('bulk', 7200)},
	q{SELECT dlock_force_release('some')},
	q{SELECT dlock_release_all('reader 950')});
$primary->safe_psql('postgres',
	q{SELECT count(dlock_acquire('short ' || i, 'bulk', 0.01))
		FROM generate_series(1, 300) AS i});
$primary->poll_query_until('postgres',
	q{SELECT NOT EXISTS (SELECT FROM dlock.locks WHERE name LIKE 'short%')})
  or die 'the reaper does not work';
same_as_primary($standby, 'reaping');

do_it('compaction',
	q{VACUUM FULL dlock_private.lease_table},
	q{SELECT count(dlock_release('bulk ' || i, 'bulk'))
		FROM generate_series(1, 2000) AS i});
do_it(
	'another tablespace',
	q{CREATE TABLESPACE elsewhere LOCATION ''},
	q{ALTER TABLE dlock_private.lease_table SET TABLESPACE elsewhere},
	q{SELECT count(dlock_acquire('bulk ' || i, 'bulk', 3600))
		FROM generate_series(1, 1000) AS i});

# Deadlines, as the standby's clock shows them.
sub deadline
{
	my ($server) = @_;
	return $server->safe_psql('postgres',
		q{SELECT extract(epoch FROM expires_at) FROM dlock_holders('held')});
}
cmp_ok(abs(deadline($standby) - deadline($primary)),
	'<', 1, 'the standby shows the same deadline');

for my $call (
	q{dlock_acquire('other', 'me', 60)},
	q{dlock_acquire('held', 'me', 60, 0, 'request 1')},
	q{dlock_acquire_shared('other', 'me', 60)},
	q{dlock_acquire_permit('other', 'me', 60, 1)},
	q{dlock_renew('held', 'me', 60)},
	q{dlock_renew_all('me', 60)},
	q{dlock_release('held', 'me')},
	q{dlock_release_all('me')},
	q{dlock_force_release('held')})
{
	my ($status, $stdout, $stderr) = $standby->psql('postgres',
		"\\set VERBOSITY sqlstate\nSELECT $call;");
	like($stderr, qr/ERROR:\s+25006$/, "on a standby $call is refused");
}
same_as_primary($standby, 'refused calls');

# The standby without the library has followed all the while.
catch_up($stranger);
my $startup = $stranger->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
SKIP:
{
	skip 'no /proc', 1 unless -r "/proc/$startup/maps";
	unlike(slurp_file("/proc/$startup/maps"),
		qr{/dlock\.so\b}, 'a standby replays without the library');
}
$stranger->append_conf(
	'postgresql.conf', q{
dlock.boot_id = 'another machine'
});
$stranger->restart;
same_as_primary($stranger, 'without the library until now');
cmp_ok(deadline($stranger), '>', deadline($primary) - 1,
	'on another machine a deadline is not earlier');

# Fail over, first to the one, then to the other.
my $digest = "SELECT count(*), md5(string_agg(l::text, ' ')) FROM ($from_locks) l";
my $rows = $primary->safe_psql('postgres', $digest);
my $deadline = deadline($primary);
my %largest = map { split /\|/ } split /\n/,
  $primary->safe_psql('postgres',
	'SELECT name, max(token) FROM dlock.locks GROUP BY name');
my $values = join ', ', map { "('$_', $largest{$_})" } sort keys %largest;
$primary->stop;

for my $server ($standby, $stranger)
{
	my $title = 'promoted ' . $server->name;

	$server->promote;
	is($server->safe_psql('postgres', $digest),
		$rows, "$title: all leases are there");
	is( $server->safe_psql('postgres', q{
			SELECT dlock_owner('held'), dlock_acquire('held', 'you', 60),
				dlock_renew('bulk 1', 'bulk', 3600)}),
		'me||t',
		"$title: they are held");
	cmp_ok(deadline($server), '>', $deadline - 1,
		"$title: no deadline is earlier");
	if ($server == $standby)
	{
		my $token = $session->query(q{SELECT dlock_acquire('new', 'me', 60)});

		cmp_ok($token || 0, '>', $largest{held},
			"$title: a session from before acquires");
		$session->quit;
	}
	is( $server->safe_psql(
			'postgres', qq{
			SELECT count(*), count(*) FILTER (WHERE token > seen)
			FROM (VALUES $values) AS names (name, seen),
				LATERAL (SELECT dlock_force_release(name) AS evicted) AS a,
				LATERAL (SELECT CASE WHEN evicted > 0
					THEN dlock_acquire(name, 'newcomer', 60) END AS token) AS b}),
		scalar(keys %largest) . '|' . scalar(keys %largest),
		"$title: tokens grow");
	ok( $server->poll_query_until(
			'postgres',
			q{SELECT count(*) = 1 FROM pg_stat_activity
				WHERE backend_type = 'dlock worker'}),
		"$title: the worker starts");
	$server->safe_psql('postgres',
		q{SELECT dlock_acquire('short', 'me', 0.01)});
	ok( $server->poll_query_until(
			'postgres',
			q{SELECT NOT EXISTS (SELECT FROM dlock.locks WHERE name = 'short')}),
		"$title: and works");
}

done_testing();
