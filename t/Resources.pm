# Resources.pm: the file descriptors and the private memory of processes, and whether they
# grow.
#
#   my $early = Resources::of(@pids);
#   ...
#   Resources::have_not_grown($early, Resources::of(@pids), 'the server');

package Resources;

use strict;
use warnings;

use Files;
use Processes;
use Test::More;

# For each process: how many files, and how much private memory.
sub of
{
	my %found;
	for my $pid (@_)
	{
		my @files = glob "/proc/$pid/fd/*";
		my ($kilobytes) = slurp("/proc/$pid/status") =~ /^RssAnon:\s+(\d+)/m;
		$found{$pid} = { files => scalar @files, kilobytes => $kilobytes // die("there is no process $pid\n") };
	}
	return \%found;
}

# A test for all processes, and whether it passed; a few files and some memory may be more.
# With kilobytes => 'any', memory is only printed: for processes whose memory is mostly other
# code's.
sub have_not_grown
{
	my ($early, $late, $title, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $more = $params{kilobytes} // 1024;
	my @wrong;

	for my $pid (sort { $a <=> $b } keys %$early)
	{
		my ($files, $kilobytes) = map { "$early->{$pid}{$_} to $late->{$pid}{$_}" } qw(files kilobytes);
		my $text = "$title: " . Processes::title($pid) . ": files $files, kB $kilobytes";
		$ENV{TORTURE_MINUTES} ? diag($text) : note($text);
		push @wrong, "$pid: files $files" if $late->{$pid}{files} > $early->{$pid}{files} + 5;
		push @wrong, "$pid: kB $kilobytes" if $more ne 'any' && $late->{$pid}{kilobytes} > $early->{$pid}{kilobytes} + $more;
	}
	return is("@wrong", '', "$title: " . ($more eq 'any' ? 'files do not grow' : 'neither files nor memory grow'));
}

1;
