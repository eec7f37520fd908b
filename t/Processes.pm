# Processes.pm: the processes of a PostgreSQL, as the system shows them, and their end.

package Processes;

use strict;
use warnings;

use Files;
use Poll;

# The children of a process, and the title of a process.
sub children
{
	my ($parent) = @_;
	return grep { slurp("/proc/$_/stat") =~ /^\d+ \(.*\) \S (\d+) /s && $1 == $parent }
	  map { m{/(\d+)/} } glob '/proc/[0-9]*/stat';
}

sub title
{
	my ($pid) = @_;
	return slurp("/proc/$pid/cmdline") =~ s/\0/ /gr;
}

# Has a process stopped, which with dlock.crash_stop one does at its point?
sub is_stopped
{
	my ($pid) = @_;
	return slurp("/proc/$pid/stat") =~ /\) T /;
}

# Wait until it has.
sub until_stopped
{
	my ($pid) = @_;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { is_stopped($pid) })
	  or die "process $pid does not stop\n";
	return;
}

# Kill a server, the postmaster first, and all its processes: a new one refuses to start
# until the last is gone.
sub kill_postgres
{
	my ($node) = @_;
	my ($postmaster) = slurp($node->data_dir . '/postmaster.pid') =~ /^(\d+)/ or die "the server does not run\n";

	# once it stands still, it starts no process that is not in the list
	kill 'STOP', $postmaster;
	until_stopped($postmaster);
	my @pids = ($postmaster, children($postmaster));
	$node->kill9;
	kill 'KILL', @pids;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { !kill 0, @pids })
	  or die "processes outlive kill -9\n";
	return;
}

1;
