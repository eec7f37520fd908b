# Cluster.pm: what the clusters that failover.pl plays with have in common.  Each is a class
# of its own, which has, too,
#
#   manager, service, process     what it is called; the service that starts the server; the
#                                 server's process
#   url, connection, errors       for clients: the command dlock, load.c, what they may meet
#   haproxy                       the configuration of the clients' HAProxy
#   install($work)                before there are machines
#   set_up(@machines)             makes a cluster of them
#   start_server($machine)        after its server has ended
#   primary, is_well              the machine whose server clients are sent to; whether all is
#                                 as it should be

package Cluster;

use strict;
use warnings;

use Machines;

# With broken => 1 it lacks what makes it safe.
sub new
{
	my ($class, %options) = @_;
	return bless { %options }, $class;
}

# How many of the servers HAProxy takes for well.
sub good_servers { return 1 }

# Whether clients are sent back to a server that was lost, when it is there again.
sub moves_back { return 0 }

# What is to be done when a machine is in the network again.
sub rejoin { return }

# All services of a machine, with options for the server.
sub start_services
{
	my ($self, $machine, @options) = @_;
	$machine->run(qw(mkdir -p /run/haproxy));
	$machine->start('haproxy', qw(haproxy -db -f /etc/haproxy/haproxy.cfg));
	$self->start_server($machine, @options);
	return;
}

# The server dies, and nothing else does.
sub kill_server
{
	my ($self, $machine) = @_;
	$machine->kill_all(sub { $machine->processes_of($self->process) });
	return;
}

# What a program prints on a machine; undef if it fails.
sub answer_of
{
	my ($self, $machine, @command) = @_;
	open(my $program, '-|', $machine->here(@command)) or die "$command[0]: $!\n";
	local $/;
	my $answer = <$program> // '';
	close($program) or return;
	$answer =~ s{\n\z}{};
	return $answer;
}

1;
