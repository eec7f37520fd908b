# BuiltOnce.pm: what several tests, or one on several kinds of server, need to have built in
# the same way.  Whoever comes first builds it for the whole run, in a folder of
# TEST_TEMPLATES, where that is in the environment; others wait for that.

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
