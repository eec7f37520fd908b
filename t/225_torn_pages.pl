# Pages of which only a half reached the disk.  With checksums a torn page is an error
# for the leases on it, and only for them; and recovery mends a page that a crash has
# torn, from the images that the WAL has of pages changed since the checkpoint.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $torn_at = PAGE_SIZE / 2;

my $node = PostgreSQL::Test::Cluster->new('torn');
$node->init(extra => ['--data-checksums']);
$node->append_conf(
	'postgresql.conf', q{
autovacuum = off
dlock.log_expired = off
log_statement = none
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION dlock;
	SELECT count(dlock_acquire('x' || i, 'me', 10000)) FROM generate_series(1, 3000) i;
	SELECT count(dlock_acquire_shared('many', 'me' || i, 10000)) FROM generate_series(1, 400) i;
});
my $path = table_file($node);

# Whether a page has leases.
sub has_leases
{
	my ($page) = @_;
	return blocks_of(\$page, BUCKET, OVERFLOW) && field(\$page, 0, 'lower') > CONTENTS;
}

# The half of one page, and the other half of another.
sub torn
{
	my ($first, $second) = @_;
	return substr($first, 0, $torn_at) . substr($second, $torn_at);
}

# Every lease on its own, by a function of its name: the answer, or the error's code.
sub ask
{
	my ($call) = @_;
	return map { [ split /\|/ ] } split /\n/, $node->safe_psql('postgres', qq{
		CREATE FUNCTION pg_temp.ask(name text) RETURNS text LANGUAGE plpgsql
			AS \$\$ BEGIN RETURN $call; EXCEPTION WHEN data_corrupted THEN RETURN sqlstate || ' ' || sqlerrm; END \$\$;
		SELECT 'x' || i, pg_temp.ask('x' || i) FROM generate_series(1, 3000) i});
}

# Checksums.
$node->stop;
my @before = pages_of(read_image($path));
$node->start;
$node->safe_psql('postgres', q{SELECT dlock_renew_all('me', 20000)});
$node->stop;
my @after = pages_of(read_image($path));
my ($block) = grep {
	my $torn = torn($after[$_], $before[$_]);
	has_leases($after[$_]) && $torn ne $after[$_] && $torn ne $before[$_]
} 1 .. $#after;
ok($block, 'a page has changed in both halves');
write_image($path, join '', @after[ 0 .. $block - 1 ], torn($after[$block], $before[$block]), @after[ $block + 1 .. $#after ]);
$node->start;
my $error = "XX001 invalid page in block $block of relation";
my @answers = ask('dlock_owner(name)');
my @failed = grep { $_->[1] =~ /^\Q$error/ } @answers;
cmp_ok(@failed, '>', 0, 'leases on it cannot be looked at');
is(join(' ', map { "$_->[0]: $_->[1]" } grep { $_->[1] ne 'me' && $_->[1] !~ /^\Q$error/ } @answers),
	'', '... and all others are as they were');
is(scalar(grep { $_->[1] =~ /^\Q$error/ } ask(q{dlock_acquire(name, 'you', 60)})),
	scalar @failed, 'nobody is granted one of them');
my (undef, undef, $stderr) = $node->psql('postgres', q{SELECT count(*) FROM dlock.locks});
like($stderr, qr/invalid page in block $block /, 'a look at all leases is an error too');
$node->stop;
write_image($path, join '', @after);
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM dlock.locks'), 3400, 'with the page as it was all are there');

# Crashes.
for my $generic ('on', 'off')
{
	$node->safe_psql('postgres', $_)
	  for "LOAD 'dlock'; ALTER SYSTEM SET dlock.generic_wal = $generic", 'SELECT pg_reload_conf()';
	$node->restart;
	$node->safe_psql('postgres', 'CHECKPOINT');
	my $tokens = q{SELECT string_agg(concat_ws(' ', name, owner, version, token), ',' ORDER BY name, owner) FROM dlock.locks};
	my $old = $node->safe_psql('postgres', $tokens);
	$node->safe_psql(
		'postgres', q{
		SELECT count(dlock_acquire('x' || i, 'me', 30000)) FROM generate_series(1, 3000) i;
		SELECT count(dlock_acquire_shared('many', 'me' || i, 30000)) FROM generate_series(1, 400) i});
	my $new = $node->safe_psql('postgres', $tokens);
	isnt($new, $old, "dlock.generic_wal = $generic: all leases have changed");
	$node->stop('immediate');
	my $count = 0;
	write_image($path, join '', map { has_leases($_) && ++$count ? torn($_, "\xff" x PAGE_SIZE) : $_ } pages_of(read_image($path)));
	cmp_ok($count, '>', 10, '... pages are torn in a crash');
	$node->start;
	is($node->safe_psql('postgres', $tokens), $new, '... and whole after recovery');
}
$node->stop;
done_testing();
