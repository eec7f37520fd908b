# Sanitizers.pm: the library for MySQL and MariaDB, built to find its own
# mistakes when it runs.  Nothing is written outside the folders that are given.

package Sanitizers;

use strict;
use warnings;

use Cwd qw(abs_path);
use Test::More ();

# Skip the whole test if programs cannot be built so, or do not run.
sub need
{
	my ($dir, $flags) = @_;
	my $program = "$dir/need";
	open(my $file, '>', "$program.c") or die "could not write $program.c: $!\n";
	print $file "int main(void) { return 0; }\n";
	close($file) or die "could not write $program.c: $!\n";
	my $said = `cc $flags -o $program $program.c 2>&1 && $program 2>&1`;
	Test::More::plan(skip_all => "no programs with $flags here: " . ($said =~ s/\n/ /gr)) if $? != 0;
	return;
}

# Build the library in a folder, with flags of the compiler's.
sub build
{
	my ($dir, $flags) = @_;
	my $makefile = abs_path('mysql_udf/Makefile');
	my $said = `make -s -C $dir -f $makefile CFLAGS='-O1 -g -fno-omit-frame-pointer $flags' 2>&1`;
	die "could not build the library with $flags:\n$said" if $? != 0;
	return;
}

# All reports in the files of a folder, one each.
sub reports
{
	my ($dir) = @_;
	my @reports;
	for my $path (glob "$dir/*")
	{
		open(my $file, '<', $path) or die "could not open $path: $!\n";
		my $text = join('', <$file>);
		push @reports, grep { /[^=\s]/ }
		  split /^(?=.*(?:ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:|(?:Direct|Indirect) leak of))/m,
		  $text;
	}
	return @reports;
}

1;
