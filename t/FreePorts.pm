# FreePorts.pm: TCP ports for the servers of a test.
#
# A server gets its port before it listens, and may be stopped and started again, so
# another program could take a port that is free now.  Ports below the range that the
# system uses for outgoing connections are safe from that, and those below 10200 from
# PostgreSQL's test framework, which takes ports up to 32767 and does not know of ours.  Each
# test keeps concurrent tests off its ports by holding the UDP port of the same number.

package FreePorts;

use strict;
use warnings;

use IO::Socket::INET;

my ($lowest, $highest) = (2000, 10199);
my @reserved;			# until the test ends

# Reserve some ports that are free and stay so.
sub reserve
{
	my ($n) = @_;
	my @ports;

	for (1 .. 10000)
	{
		return @ports if @ports == $n;
		my $port = $lowest + int rand($highest - $lowest + 1);
		my $udp = IO::Socket::INET->new(Proto => 'udp', LocalAddr => '127.0.0.1', LocalPort => $port) // next;
		# on any address, since some servers listen there
		IO::Socket::INET->new(Listen => 1, LocalAddr => '0.0.0.0', LocalPort => $port) // next;
		push @reserved, $udp;
		push @ports, $port;
	}
	die "could not find $n free ports\n";
}

1;
