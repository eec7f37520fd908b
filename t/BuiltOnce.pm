# BuiltOnce.pm: build once what several tests of a run need.  The first test builds it, in
# TEST_TEMPLATES if that is set; the others wait.

package BuiltOnce;

use strict;
use warnings;

use Fcntl qw(:flock);
use File::Path qw(make_path);

# The folder NAME, which $build has filled; it is given a folder to build in, which becomes
# NAME.  The test's own folder is where that is if there is no TEST_TEMPLATES.
sub folder
{
	my ($dir, $name, $build) = @_;
	my $folder = ($ENV{TEST_TEMPLATES} // $dir) . "/$name";
	make_path($folder =~ s{/[^/]*$}{}r);
	open(my $lock, '>', "$folder.lock") or die "could not open $folder.lock: $!\n";
	flock($lock, LOCK_EX) or die "could not lock $folder.lock: $!\n";
	if (!-d $folder)
	{
		make_path("$folder.new");
		$build->("$folder.new");
		rename("$folder.new", $folder) or die "could not rename $folder.new: $!\n";
	}
	return $folder;
}

1;
