# pg_upgrade keeps leases, whichever way it transfers files, and tokens grow.
#
# The old cluster is always one of the same version; another is of an older
# PostgreSQL, if OLD_PG_CONFIG names its pg_config, or if Debian 12's is older than
# the one under test.
#
# PostgreSQL 15.20, of November 2026, marks each column of each table with a version:
# pg_attver, among the column's options.  A newer PostgreSQL whose minor release is older
# than that, 18.6 for example, dumps it like an option that somebody has set and then
# cannot restore it.  It cannot upgrade any table, so there is nothing to test.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = "$FindBin::RealBin/..";

# The version of a PostgreSQL, like 15.
sub major
{
	my ($pg_config) = @_;
	my ($version) = `'$pg_config' --version` =~ /(\d+)/;
	return $version // 0;
}

# Two new clusters, of the PostgreSQL installed there and of the one under test.
sub clusters
{
	my ($title, $install_path) = @_;
	my $name = $title =~ s/\W+/_/gr;
	my @nodes = (
		PostgreSQL::Test::Cluster->new("old_$name",
			$install_path ? (install_path => $install_path) : ()),
		PostgreSQL::Test::Cluster->new("new_$name"));

	# 18 turned data checksums on; both must be alike
	for my $node (@nodes)
	{
		$node->init($node->pg_version >= 18
			? (extra => ['--no-data-checksums'])
			: ());
	}
	return @nodes;
}

# How the pg_upgrade under test can transfer files, on every file system.
sub modes
{
	my ($help) = run_command([ 'pg_upgrade', '--help' ]);
	return ('copy', 'link', $help =~ /--swap/ ? 'swap' : ());
}

# Run pg_upgrade; true if it succeeds.
sub run_upgrade
{
	my ($old, $new, $mode) = @_;

	# pg_upgrade writes to the current folder
	chdir PostgreSQL::Test::Utils::tempdir()
	  or die "cannot change to a temporary folder: $!";
	return run_log(
		[
			'pg_upgrade', '--no-sync', $mode eq 'copy' ? () : "--$mode",
			'-d', $old->data_dir, '-D', $new->data_dir,
			'-b', $old->config_data('--bindir'),
			'-B', $new->config_data('--bindir'),
			'-s', $new->host, '-p', $old->port, '-P', $new->port
		]);
}

sub upgrade
{
	my ($title, $mode, $install_path) = @_;
	my ($old, $new) = clusters($title, $install_path);
	my $rows = q{SELECT count(*), md5(string_agg(concat_ws('|', name, owner,
			mode, version, token, acquired_at, role, application_name),
			' ' ORDER BY name, token))
		FROM dlock.locks};
	my $deadline = q{SELECT extract(epoch FROM expires_at)
		FROM dlock_holders('held')};

	$old->start;
	$old->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE template0');
	$old->safe_psql('other', 'CREATE EXTENSION dlock');
	$old->safe_psql(
		'postgres', q{
		CREATE SCHEMA functions;
		CREATE EXTENSION dlock SCHEMA functions;
		SELECT count(functions.dlock_acquire('name ' || i, 'me', 3600))
		FROM generate_series(1, 3000) AS i;
		SELECT count(functions.dlock_acquire_shared('crowd', 'reader ' || i,
			3600))
		FROM generate_series(1, 300) AS i;
		SELECT count(functions.dlock_release('name ' || i, 'me'))
		FROM generate_series(1, 2000) AS i});
	my ($free) = $old->safe_psql(
		'other', q{
		SELECT dlock_acquire('free', 'me', 3600);
		SELECT dlock_release('free', 'me');}) =~ /(\d+)/;
	my $held =
	  $old->safe_psql('other', q{SELECT dlock_acquire('held', 'me', 3600)});
	my @databases = ('postgres', 'other');
	my %rows = map { $_ => $old->safe_psql($_, $rows) } @databases;
	my $old_deadline = $old->safe_psql('other', $deadline);
	$old->stop;

	ok(run_upgrade($old, $new, $mode), "$title: pg_upgrade");

	$new->start;
	is($new->safe_psql($_, $rows),
		$rows{$_}, "$title: the leases of database $_ are kept")
	  for @databases;
	cmp_ok($new->safe_psql('other', $deadline),
		'>', $old_deadline - 1, "$title: no deadline is earlier");
	is( $new->safe_psql(
			'other', qq{
			SELECT dlock_owner('held'), dlock_acquire('held', 'you', 60),
				dlock_renew('held', 'me', 3600, $held)}),
		'me||t',
		"$title: they are held");
	cmp_ok(
		$new->safe_psql('other', q{SELECT dlock_acquire('free', 'me', 60)}),
		'>', $free, "$title: the token of a free name grows");
	$new->safe_psql('other', q{SELECT dlock_force_release('held')});
	cmp_ok(
		$new->safe_psql('other', q{SELECT dlock_acquire('held', 'me', 60)}),
		'>', $held, "$title: the token of a released lease grows");
	is( $new->safe_psql(
			'postgres', q{
			SELECT count(functions.dlock_acquire('name ' || i, 'me', 3600))
			FROM generate_series(1, 3000) AS i;
			SELECT functions.dlock_release_all('me')}),
		"3000\n3000",
		"$title: the table is used like any other");
	ok( $new->poll_query_until(
			'postgres',
			q{SELECT count(*) = 2 FROM pg_stat_activity
				WHERE backend_type = 'dlock worker'}),
		"$title: workers are there");
	$new->stop;
	return;
}

upgrade("same version, $_", $_) for modes();

SKIP:
{
	my $old_pg_config =
	  $ENV{OLD_PG_CONFIG} // '/usr/lib/postgresql/15/bin/pg_config';
	my $old = -x $old_pg_config ? major($old_pg_config) : 0;
	my $new = major('pg_config');

	skip "no PostgreSQL older than $new is at hand (OLD_PG_CONFIG)", 1
	  unless $old > 0 && $old < $new;

	# a private copy of it, with dlock
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($bin, $log) =
	  run_command([ "$tree/dev/overlay", $old_pg_config, $dir ]);
	die "cannot build dlock for PostgreSQL $old: $log" unless $bin;
	my $install_path = $bin =~ s{/bin$}{}r;

	# If not even that can be upgraded, the rest says nothing of dlock.
	my ($plain, $upgraded) =
	  clusters("from $old, an ordinary table", $install_path);
	$plain->start;
	$plain->safe_psql('postgres', 'CREATE TABLE ordinary (a int)');
	my ($dump) = run_command(
		[
			'pg_dump', '--schema-only', '--table=ordinary',
			$plain->connstr('postgres')
		]);
	like($dump, qr/CREATE TABLE public\.ordinary/,
		"from $old, an ordinary table: pg_dump");
	$plain->stop;
	skip "this PostgreSQL $new is older than the PostgreSQL $old, whose "
	  . 'tables it cannot read: name an older one by OLD_PG_CONFIG', 1
	  if $dump =~ /SET \(pg_attver=/;
	ok(run_upgrade($plain, $upgraded, 'copy'),
		"from $old, an ordinary table: pg_upgrade")
	  or last SKIP;

	upgrade("from $old, $_", $_, $install_path) for modes();
}

done_testing();
