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

# Has a process stopped, which with dlock.crash_stop one does at its point?  Its threads stop one
# after the other, some of them after kill() has returned.
sub is_stopped
{
	my ($pid) = @_;
	my @states = map { slurp($_) =~ /\) (\w) /s } glob "/proc/$pid/task/*/stat";
	return @states && !grep { $_ ne 'T' } @states;
}

# Wait until it has.
sub until_stopped
{
	my ($pid) = @_;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { is_stopped($pid) })
	  or die "process $pid does not stop\n";
	return;
}

# Stop a process while it waits for an event, or one of a type, with no lock in its hands; $query gets a statement
# and returns its only value.  It may have woken up between the look and the signal, so the
# look is repeated once it has stopped.
sub stop_asleep
{
	my ($pid, $event, $query) = @_;
	my $asleep = "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND '$event' IN (wait_event, wait_event_type)";
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
		return 0 if $query->($asleep) == 0;
		kill 'STOP', $pid or die "could not stop process $pid: $!\n";
		until_stopped($pid);
		return 1 if $query->($asleep) == 1;
		kill 'CONT', $pid;
		return 0;
	}) or die "process $pid does not sleep\n";
	return;
}

# A server's first process, which starts the others.
sub postmaster
{
	my ($node) = @_;
	return (slurp($node->data_dir . '/postmaster.pid') =~ /^(\d+)/)[0] // die "the server does not run\n";
}

# The postmaster, which stands still from now on, and all its children.  It starts none that
# is not among them, and those that end meanwhile stay until it goes on.
sub stop_postmaster
{
	my ($node) = @_;
	my $postmaster = postmaster($node);

	kill 'STOP', $postmaster;
	until_stopped($postmaster);
	return ($postmaster, children($postmaster));
}

# When a process started, in ticks: with its number it is that of no other.
sub _start_of
{
	my ($pid) = @_;
	return (split ' ', slurp("/proc/$pid/stat") =~ s/.*\) //sr)[19] // 0;
}

# Kill a server and all its processes: a new one refuses to start until the last is gone.  It
# would also refuse if another process had got the number that the lock files have.
sub kill_postgres
{
	my ($node) = @_;
	my ($postmaster, @children) = stop_postmaster($node);
	my %starts = map { $_ => _start_of($_) } $postmaster, @children;

	kill 'KILL', @children;
	$node->kill9;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { !grep { _start_of($_) == $starts{$_} } keys %starts })
	  or die "processes outlive kill -9\n";
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	return;
}

# Does a server answer that may be starting?  Nothing is written to psql, which may be gone
# before it has read it: that would end the test (EPIPE).
sub answers
{
	my ($node) = @_;

	# a psql for each look, before the server says so itself, would cost more than its start
	open(my $file, '<', $node->data_dir . '/postmaster.pid') or return 0;
	return 0 unless grep { /^ready\s*$/ } <$file>;
	return IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'SELECT' ],
		'<', '/dev/null', '>', \my $out, '2>', \my $error);
}

# Kill one process of a server that then starts all of them anew, and see it come back.
sub crash_postgres
{
	my ($node, $pid) = @_;
	my $since = -s $node->logfile;

	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $since);
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { answers($node) })
	  or die "the server does not come back\n";
	return;
}

1;
