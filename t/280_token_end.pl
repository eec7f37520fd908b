# Tokens fail closed at their end (scenario 24): no grant, no wrap, while what
# is held can be re-entered, renewed and released.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $token_max = 2**53 - 1;
# of the floor in the metapage: behind the page header, four 32-bit fields and
# the seed
my $floor_offset = 24 + 4 * 4 + 8;
# of the mark on a bucket's page: the special area is the page's last 24 bytes,
# and says 3 for a bucket in its 22nd
my $page_size = 8192;
my $mark_offset = $page_size - 24;
my $kind_offset = $page_size - 24 + 21;

my $node = PostgreSQL::Test::Cluster->new('main');
my @no_checksums =
  $node->pg_version >= 18 ? ('--no-data-checksums') : ();
$node->init(extra => \@no_checksums);
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'dlock'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
$node->safe_psql('postgres', "SELECT dlock_acquire('kept', 'a', 3600)");
my $file = $node->data_dir . '/'
  . $node->safe_psql('postgres',
	"SELECT pg_relation_filepath('dlock.lease_table')");

# Write a 64-bit number into the stopped server's lock table.
sub poke
{
	my ($offset, $value) = @_;
	open(my $handle, '+<:raw', $file) or die "could not open $file: $!";
	seek($handle, $offset, 0) or die "could not seek in $file: $!";
	print $handle pack('Q', $value);
	close($handle) or die "could not write $file: $!";
}

# Give every bucket this mark.
sub poke_marks
{
	my ($value) = @_;
	for (my $page = 0; $page < (-s $file); $page += $page_size)
	{
		open(my $handle, '<:raw', $file) or die "could not open $file: $!";
		seek($handle, $page + $kind_offset, 0) or die "could not seek: $!";
		read($handle, my $kind, 1) or die "could not read $file: $!";
		close($handle);
		poke($page + $mark_offset, $value) if ord($kind) == 3;
	}
}

# Two tokens are left to each bucket.
$node->stop;
poke_marks($token_max - 2);
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
is( $node->safe_psql('postgres', "SELECT dlock_renew('doc', 'b', 60)"),
	't', 'renewal goes on');
is( $node->safe_psql('postgres', "SELECT dlock_release('kept', 'a')"),
	't', 'release goes on');

# The floor passes the end at the next start.
$node->stop;
poke_marks(0);
poke($floor_offset, $token_max);
$node->start;
refused('floor past the end');
is( $node->safe_psql('postgres',
		"SELECT version FROM dlock_holders('doc') WHERE owner = 'b'"),
	2, 'what was held is still held');

$node->stop;
done_testing();
