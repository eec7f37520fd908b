# Files.pm: small files of text, whole.

package Files;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(slurp lines_of write_text);

# What is in a file; nothing, if there is none.
sub slurp
{
	my ($path) = @_;
	open(my $file, '<', $path) or return '';
	local $/;
	return <$file> // '';
}

sub lines_of { return split /\n/, slurp($_[0]) }

sub write_text
{
	my ($path, $text) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} $text;
	close($file) or die "$path: $!\n";
	return;
}

1;
