# Relinked.pm: the library for MySQL and MariaDB with a file of a test's in it.  The other
# objects are those of the library under test, as they are.

package Relinked;

use strict;
use warnings;

use Cwd qw(abs_path);

# Link it in a folder, with t/mysql/NAME.c and flags of the linker's.  %$instead says of
# functions which others the library calls instead; the client library inside does not.
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
