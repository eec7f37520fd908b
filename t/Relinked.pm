# Relinked.pm: the library for MySQL and MariaDB with a file of a test's in it.  The rest are
# the objects of the one that all tests use, which nothing else could replace.

package Relinked;

use strict;
use warnings;

use Cwd qw(abs_path);

# Link it in a folder, with t/mysql/NAME.c and flags of the linker's.  Calls of functions go
# to others if %$instead, "redefine", says so; those of the client library inside do not.
sub build
{
	my ($dir, $name, $instead, @flags) = @_;
	my @objects = glob('mysql_udf/*.o') or die "mysql_udf is not built\n";
	my @redefine = map { "--redefine-sym=$_=$instead->{$_}" } sort keys %$instead;

	for my $object (@objects)
	{
		# with its time, or make would build another
		system('objcopy', '--preserve-dates', @redefine, $object, $dir . '/' . $object =~ s{.*/}{}r) == 0
		  or die "could not copy $object\n";
	}
	system("cc -O2 -Wall -Wextra -Werror -fPIC -c -o $dir/$name.o t/mysql/$name.c") == 0
	  or die "could not build $name.c\n";
	my $makefile = abs_path('mysql_udf/Makefile');
	my $said = `make -C $dir -f $makefile LDFLAGS='@flags $dir/$name.o' 2>&1`;
	die "could not link the library:\n$said" if $? != 0;
	die "more was built than the library:\n$said" if $said =~ / -c /;
	return;
}

1;
