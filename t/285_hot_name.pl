# A name with very many holders costs other names nothing, even if it came first:
# calls for these read a handful of pages, however many leases there are.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PagesRead;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
autovacuum = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

is( $node->safe_psql('postgres', q{
	SELECT count(dlock_acquire_shared('hot', 'reader-' || i, 3600))
	FROM generate_series(1, 2000) i}),
	2000, 'one name has many holders');
is( $node->safe_psql('postgres', q{
	SELECT count(dlock_acquire('job-' || i, 'me', 3600))
	FROM generate_series(1, 20000) i}),
	20000, 'then come many names');

# The most pages that a call for any of a hundred names reads, once the session
# has the catalogs in its caches.
my $most = $node->safe_psql('postgres', PagesRead::CREATE . q{
	DO $$ BEGIN PERFORM pages('SELECT dlock_renew(''job-1'', ''me'', 3600)'); END $$;
	SELECT max(pages(format('SELECT dlock_renew(%L, ''me'', 3600)', 'job-' || i)))
	FROM generate_series(1, 20000, 200) i});
cmp_ok($most, '<=', 10, "a call for another name reads at most 10 pages ($most)");

is( $node->safe_psql('postgres', q{SELECT count(*) FROM dlock_holders('hot')}),
	2000, 'the holders of the first name are all there');
is( $node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT (name, owner)) FROM dlock.locks}),
	'22000|22000', 'and so is every lease, once');
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM generate_series(1, 2000) i
	WHERE dlock_release('hot', 'reader-' || i)}),
	2000, 'all can be released');
is( $node->safe_psql('postgres', q{SELECT dlock_is_free('hot'), count(*) FROM dlock.locks}),
	't|20000', 'and nothing is left of them');

$node->stop;
done_testing();
