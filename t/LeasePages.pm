# LeasePages.pm: the pages of PostgreSQL's lock table as bytes in its file, for tests
# that read or change them; pg_extension/storage/lease_storage.h describes them.
#
# An image is all pages of the table, one after the other.  Before a test writes one, the
# server must have stopped; before it reads one, the server must have written its pages.

package LeasePages;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(PAGE_SIZE CONTENTS SPECIAL NO_BLOCK META DIRECTORY BUCKET OVERFLOW FREE
  table_file read_image write_image pages_of field blocks_of set_marks);

use constant {
	PAGE_SIZE => 8192,
	CONTENTS => 24,          # behind the page header
	SPECIAL => 8192 - 24,    # struct LeasePageSpecial
	NO_BLOCK => 0xffffffff,
};
use constant { META => 1, DIRECTORY => 2, BUCKET => 3, OVERFLOW => 4, FREE => 5 };

# Where the fields of a page are, and how they are packed.  Those without a page are the
# metapage's, except "entry": a directory's, or a line pointer.
my %at = (
	lower => [ 12, 'S<' ],
	upper => [ 14, 'S<' ],
	special => [ 16, 'S<' ],
	mark => [ SPECIAL, 'Q<' ],
	bucket => [ SPECIAL + 8, 'L<' ],
	next => [ SPECIAL + 12, 'L<' ],
	chain => [ SPECIAL + 16, 'L<' ],
	depth => [ SPECIAL + 20, 'C' ],
	kind => [ SPECIAL + 21, 'C' ],
	page_magic => [ SPECIAL + 22, 'S<' ],
	entry => [ CONTENTS, 'L<' ],
	magic => [ CONTENTS, 'L<' ],
	format => [ CONTENTS + 4, 'L<' ],
	database => [ CONTENTS + 8, 'L<' ],
	meta_depth => [ CONTENTS + 12, 'L<' ],
	seed => [ CONTENTS + 16, 'q<' ],
	floor => [ CONTENTS + 24, 'Q<' ],
	clock_offset => [ CONTENTS + 48, 'q<' ],
	clock_mark => [ CONTENTS + 56, 'q<' ],
	free_head => [ CONTENTS + 64, 'L<' ],
	directory => [ CONTENTS + 68, 'L<' ]);

# The file of a database's lock table; the server must run.
sub table_file
{
	my ($node, $db) = @_;
	return $node->data_dir . '/'
	  . $node->safe_psql($db // 'postgres', q{SELECT pg_relation_filepath('dlock_private.lease_table')});
}

sub read_image
{
	my ($path) = @_;
	open my $handle, '<:raw', $path or die "$path: $!";
	local $/ = undef;
	return scalar <$handle>;
}

# Write it in place, so that the file is the same one.
sub write_image
{
	my ($path, $image) = @_;
	open my $handle, '+<:raw', $path or die "$path: $!";
	print {$handle} $image or die "$path: $!";
	truncate $handle, length $image or die "$path: $!";
	close $handle or die "$path: $!";
	return;
}

# The pages of an image, each by itself.
sub pages_of
{
	my ($image) = @_;
	return unpack '(a' . PAGE_SIZE . ')*', $image;
}

# Read a field of a block in "$$image", or change it if there is a value.
sub field
{
	my ($image, $block, $name, $index, $value) = @_;
	my ($offset, $form) = @{ $at{$name} };
	my $size = length pack($form, 0);
	my $place = $block * PAGE_SIZE + $offset + ($index // 0) * $size;

	return unpack($form, substr($$image, $place, $size)) unless defined $value;
	substr($$image, $place, $size) = pack($form, $value);
	return;
}

# Blocks of these kinds.
sub blocks_of
{
	my ($image, @kinds) = @_;
	my %wanted = map { $_ => 1 } @kinds;
	return grep { $wanted{ field($image, $_, 'kind') } } 0 .. length($$image) / PAGE_SIZE - 1;
}

# Give every bucket in the file this mark.
sub set_marks
{
	my ($path, $mark) = @_;
	my $image = read_image($path);

	field(\$image, $_, 'mark', 0, $mark) for blocks_of(\$image, BUCKET);
	write_image($path, $image);
	return;
}

1;
