# Tokens fail closed at their end (scenario 24): no grant, no wrap, while held leases
# can be re-entered, renewed and released.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $token_max = 2**53 - 1;

my $node = PostgreSQL::Test::Cluster->new('main');
my @no_checksums =
  $node->pg_version >= 18 ? ('--no-data-checksums') : ();
$node->init(extra => \@no_checksums);
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
$node->safe_psql('postgres', "SELECT dlock_acquire('kept', 'a', 3600)");
my $file = table_file($node);

# Two tokens are left to each bucket.
$node->stop;
set_marks($file, $token_max - 2);
$node->start;

sub acquire
{
	my ($owner) = @_;
	return "SELECT dlock_acquire_shared('doc', '$owner', 3600)";
}
is($node->safe_psql('postgres', acquire('a')),
	$token_max - 1, 'the last token but one is granted');
is($node->safe_psql('postgres', acquire('b')),
	$token_max, 'the last token is granted');

sub refused
{
	my ($title) = @_;
	my ($status, $out, $err) = $node->psql('postgres', acquire('c'),
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	is($status, 3, "$title: a grant fails");
	like($err, qr/2200H: no tokens are left for "doc"/,
		"$title: with an error");
	is($out, '', "$title: without an answer");
	is( $node->safe_psql('postgres',
			"SELECT string_agg(owner, ' ' ORDER BY owner) FROM dlock_holders('doc')"),
		'a b', "$title: and takes nothing");
}
refused('mark at the end');
is($node->safe_psql('postgres', acquire('b')),
	$token_max, 're-entry goes on');
is( $node->safe_psql('postgres', "SELECT dlock_renew('doc', 'b', 3600)"),
	't', 'renewal goes on');
is( $node->safe_psql('postgres', "SELECT dlock_release('kept', 'a')"),
	't', 'release goes on');

# The floor passes the end at the next start.
$node->stop;
set_marks($file, 0);
my $image = read_image($file);
field(\$image, 0, 'floor', 0, $token_max);
write_image($file, $image);
$node->start;
refused('floor past the end');
is( $node->safe_psql('postgres',
		"SELECT version FROM dlock_holders('doc') WHERE owner = 'b'"),
	2, 'what was held is still held');

$node->stop;
done_testing();
