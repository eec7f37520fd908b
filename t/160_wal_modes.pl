# The small WAL record and GenericXLog are replayed to the very pages that the
# primary has, by a standby without the library and by crash recovery, without
# and with full-page images; and both ways of logging give the same leases.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant BLOCK_SIZE => 8192;

# All clusters are copies of one, so that names have the same hashes in all.
my $base = PostgreSQL::Test::Cluster->new('base');
$base->init(allows_streaming => 1);
$base->append_conf(
	'postgresql.conf', q{
dlock.reap_interval = '1h'
checkpoint_timeout = '1h'
max_wal_size = '4GB'
wal_keep_size = '4GB'
autovacuum = off
});
$base->start;
$base->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	SELECT dlock_acquire('base', 'me', 3600)});
$base->stop;
$base->backup_fs_cold('base');

# Change the table in every way that needs no waiting.  The last statement
# waits for its WAL, so a crash afterwards loses nothing.
sub change_leases
{
	my ($node, $prefix) = @_;
	my $sql = q{
	SET log_statement = 'none';
	SET application_name = '160_wal_modes';

	-- new names: inserts and splits
	SELECT dlock_acquire('PREFIX', 'me', 10000);
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i % 7, 10000))
	FROM generate_series(1, 1500) AS i;

	-- changes in place
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i % 7, 20000))
	FROM generate_series(1, 1500, 5) AS i;
	SELECT count(dlock_renew('PREFIX' || i, 'owner ' || i % 7, 30000))
	FROM generate_series(1, 1500, 7) AS i;
	SELECT dlock_renew_all('owner 3', 40000);

	-- request ids of changing sizes: entries move
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i % 7, 10000, 0,
		repeat('r', 1 + i * 37 % 255)))
	FROM generate_series(1, 1500, 3) AS i;
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i % 7, 10000, 0,
		repeat('s', 1 + i * 91 % 255)))
	FROM generate_series(1, 1500, 3) AS i;
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i % 7, 50000, 0,
		repeat('s', 1 + i * 91 % 255)))
	FROM generate_series(1, 1500, 9) AS i;

	-- one hold less, and holes; the holes are used again
	SELECT count(dlock_release('PREFIX' || i, 'owner ' || i % 7))
	FROM generate_series(1, 1500, 2) AS i;
	SELECT dlock_release_all('owner 5');
	SELECT count(dlock_acquire('PREFIX' || i, 'owner ' || i, 10000))
	FROM (SELECT i * 677 % 1500 AS i FROM generate_series(1, 1500) AS i) AS v;

	-- permits
	SELECT count(dlock_acquire_permit('PREFIXpermit ' || i % 5,
		'worker ' || i % 3, 10000, 12, 0, 'request ' || i))
	FROM generate_series(1, 100) AS i;
	SELECT count(dlock_release('PREFIXpermit ' || i % 5, 'worker ' || i % 3))
	FROM generate_series(1, 20) AS i;

	-- a crowd: overflow, its entries moving between pages, the free list,
	-- and pages from it
	SELECT count(dlock_acquire_shared('PREFIXcrowd',
		repeat('reader ', 1 + i % 30) || i, 10000))
	FROM generate_series(1, 250) AS i;
	SELECT count(dlock_acquire_shared('PREFIXcrowd',
		repeat('reader ', 1 + i % 30) || i, 10000, 0,
		repeat('t', 1 + i * 67 % 255)))
	FROM generate_series(1, 250, 2) AS i;
	SELECT count(dlock_release('PREFIXcrowd',
		repeat('reader ', 1 + i % 30) || i))
	FROM generate_series(1, 250) AS i
	WHERE i % 10 > 0;
	SELECT count(dlock_acquire_shared('PREFIXcrowd', 'late ' || i, 10000))
	FROM generate_series(1, 250) AS i;
	SELECT dlock_force_release('PREFIXcrowd', 'late 17');
	SELECT count(dlock_acquire_shared('PREFIXsecond crowd', 'i ' || i, 10000))
	FROM generate_series(1, 150) AS i;

	-- leases that end at once, found by their next user
	SELECT count(dlock_acquire('PREFIXshort ' || i, 'me', 0.000001))
	FROM generate_series(1, 100) AS i;
	SELECT count(dlock_acquire('PREFIXshort ' || i, 'you', 10000))
	FROM generate_series(1, 100, 3) AS i;
	SELECT dlock_force_release('PREFIXcrowd');
	SELECT dlock_acquire('PREFIXlast', 'me', 10000)};

	$sql =~ s/PREFIX/$prefix/g;
	$node->safe_psql('postgres', $sql);
	return;
}

# Let the worker remove what is over, and stop it again.
sub reap
{
	my ($node) = @_;

	$node->safe_psql('postgres',
		q{LOAD 'dlock'; ALTER SYSTEM SET dlock.reap_interval = '10ms'});
	$node->reload;
	$node->poll_query_until('postgres',
		q{SELECT NOT EXISTS (SELECT FROM dlock.locks
			WHERE expires_at < clock_timestamp())})
	  or die 'the reaper does not work';
	$node->safe_psql('postgres', q{LOAD 'dlock'; ALTER SYSTEM RESET dlock.reap_interval});
	$node->reload;
	return;
}

# What the leases are, but for processes and the time that has passed: each deadline to
# the nearest 10,000 seconds, of which every ttl is a multiple.  Tokens, where asked for,
# are told from that of the first name.
sub leases
{
	my ($node, $first) = @_;
	my $token =
	  $first
	  ? "token - (SELECT token FROM dlock_private.lease_table WHERE name = '$first')"
	  : 'NULL';

	return $node->safe_psql(
		'postgres', qq{
		SELECT count(*), md5(string_agg(concat_ws('|', name, owner, mode,
			version, request,
			round(extract(epoch FROM expires_at - now()) / 10000), $token),
			' ' ORDER BY name, owner))
		FROM dlock_private.lease_table
		WHERE name <> 'base' AND expires_at > clock_timestamp()});
}

# Stop both cleanly, the standby with all that the primary has written.
sub stop_both
{
	my ($primary, $standby) = @_;

	$primary->safe_psql('postgres',
		q{SELECT pg_logical_emit_message(true, '', '')});
	$primary->wait_for_catchup($standby);
	$primary->stop;
	my ($control) =
	  run_command([ 'pg_controldata', $primary->data_dir ]);
	my ($checkpoint) = $control =~ /Latest checkpoint location:\s*(\S+)/;
	$standby->poll_query_until('postgres',
		"SELECT pg_last_wal_replay_lsn() > '$checkpoint'")
	  or die 'the standby does not catch up';
	$standby->stop;
	return;
}

# Hold the pages of two clusters that are stopped against each other.
sub same_pages
{
	my ($primary, $standby, $path, $title) = @_;
	my $mine = slurp_file($primary->data_dir . "/$path");
	my $its = slurp_file($standby->data_dir . "/$path");
	my $blocks = length($mine) / BLOCK_SIZE;
	my @differ;

	cmp_ok($blocks, '>', 40, "$title: $blocks pages");

	# a page that was added and never used is not in the WAL
	$its .= "\0" x (length($mine) - length($its))
	  if length($its) < length($mine);
	is(length($its), length($mine), "$title: the standby has no more");
	for my $block (0 .. $blocks - 1)
	{
		my @pages =
		  map { substr($_, $block * BLOCK_SIZE, BLOCK_SIZE) } ($mine, $its);

		# the LSN and the checksum of a page may differ
		substr($_, 0, 10, "\0" x 10) for @pages;
		next if $pages[0] eq $pages[1];
		($pages[0] ^ $pages[1]) =~ /[^\0]/;
		push @differ, "block $block from byte $-[0]";
	}
	is("@differ[0 .. ($#differ < 5 ? $#differ : 5)]",
		'', "$title: the standby has the same pages");
	return;
}

# The generic records from one position to another: how many with and without
# page images, and the average size of those without.
sub count_records
{
	my ($node, $start, $end) = @_;
	my ($with, $without, $bytes) = (0, 0, 0);

	my ($dump) = run_command(
		[
			'pg_waldump', '-p', $node->data_dir . '/pg_wal',
			'-r', 'Generic', '-s', $start, '-e', $end
		]);
	for my $line (grep { /^rmgr: Generic/ } split /\n/, $dump)
	{
		if ($line =~ /FPW/)
		{
			$with++;
			next;
		}
		$without++;
		$bytes += $1 if $line =~ m{len \(rec/tot\):\s*\d+/\s*(\d+)};
	}
	return ($with, $without, $without ? int($bytes / $without) : 0);
}

sub position
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
}

sub path
{
	my ($node) = @_;
	return $node->safe_psql('postgres',
		q{SELECT pg_relation_filepath('dlock_private.lease_table')});
}

my @with;

# One primary and one standby with these settings.  Returns its leases.
sub play
{
	my ($name, $generic, $images) = @_;
	my $title = "dlock.generic_wal $generic, full_page_writes $images";
	my $primary = PostgreSQL::Test::Cluster->new("${name}_primary");
	my $standby = PostgreSQL::Test::Cluster->new("${name}_standby");
	my @leases;

	$primary->init_from_backup($base, 'base');
	$primary->append_conf('postgresql.conf',
		"dlock.generic_wal = $generic\nfull_page_writes = $images");
	$standby->init_from_backup($base, 'base');
	$standby->enable_streaming($primary);
	$primary->start;
	$standby->start;

	change_leases($primary, 'first');
	push @leases, leases($primary, 'first');
	reap($primary);
	my $path = path($primary);
	stop_both($primary, $standby);
	same_pages($primary, $standby, $path, $title);

	# A crash, more changes on what recovery has made, and compaction.
	$primary->start;
	$standby->start;
	my $start = position($primary);
	change_leases($primary, 'second');
	my $end = position($primary);
	$primary->stop('immediate');
	my ($with, $without, $size) = count_records($primary, $start, $end);
	push @with, $with;
	note "$title: $with records with page images, $without without,"
	  . " of $size bytes";
	cmp_ok($without, '>', 5000, "$title: most records have no page image");
	cmp_ok($size, '<', 400, "$title: they are small");
	$primary->start;
	change_leases($primary, 'third');
	reap($primary);
	stop_both($primary, $standby);
	same_pages($primary, $standby, $path, "$title, after a crash");

	$primary->start;
	$standby->start;
	$primary->safe_psql('postgres', 'VACUUM FULL dlock_private.lease_table');
	change_leases($primary, 'fourth');
	push @leases, leases($primary);
	$path = path($primary);
	stop_both($primary, $standby);
	same_pages($primary, $standby, $path, "$title, after VACUUM FULL");
	return @leases;
}

my @small = play('small', 'off', 'off');
my @generic = play('generic', 'on', 'off');
my @images = play('images', 'off', 'on');

like($small[0], qr/^\d{4}\|/, 'there are many leases');
is_deeply(\@generic, \@small, 'GenericXLog comes to the same leases');
is_deeply(\@images, \@small, 'so do full-page images');
cmp_ok($with[2], '>', $with[0], 'there were such images');

done_testing();
