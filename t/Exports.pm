# Exports.pm : the symbols that a shared library shows to the program that loads it.
#
#	Exports::of($file)		the names that it defines, in order

package Exports;

use strict;
use warnings;

sub of
{
	my ($file) = @_;

	open(my $nm, '-|', 'nm', '-D', '--defined-only', '--format=posix', $file) or die "nm: $!\n";
	my @names = map { s/[ \@].*//sr } <$nm>;
	close($nm) or die "nm could not read $file\n";
	return sort @names;
}

1;
