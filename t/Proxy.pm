# Proxy.pm: a network between a client and a server that goes wrong when it is told to.
#
#   my $proxy = Proxy->start($server);   to this port of this machine, or this socket of
#                                        the file system
#   $proxy->port                         where it listens
#   $proxy->pass                         it forwards everything, as it does at first
#   $proxy->swallow                      it takes everything and forwards nothing, of new
#                                        connections too; none is closed
#   $proxy->swallowed                    wait until it has done so with what a server said,
#                                        or a connection has ended
#   $proxy->silence                      it does so with the connections that it has, and
#                                        forwards those that are made from now on
#   $proxy->cut                          it ends all connections, and goes on
#   $proxy->cut_reply('x')               it ends the next connection on which a client says
#                                        "x", or its bytes in hexadecimal digits, in place
#                                        of the reply to that
#   $proxy->stop
#
# What was swallowed is gone for good.

package Proxy;

use strict;
use warnings;

use FreePorts;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use Socket ();

my @running;

sub start
{
	my ($class, $server) = @_;
	my ($port) = FreePorts::reserve(1);
	my $listener = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1)
	  or die "the proxy cannot listen: $!\n";
	pipe(my $commands, my $command) && pipe(my $acks, my $ack) or die "no pipe: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		close $command;
		close $acks;
		eval { serve($listener, $server, $commands, $ack); 1 } or warn "proxy: $@";
		POSIX::_exit(0);
	}
	close $listener;
	$command->autoflush(1);
	my $self = bless { port => $port, pid => $pid, owner => $$, command => $command, acks => $acks }, $class;
	push @running, $self;
	return $self;
}

sub port { return $_[0]->{port} }

sub order
{
	my ($self, $what) = @_;
	print { $self->{command} } "$what\n";
	readline($self->{acks}) // die "the proxy is gone\n";
	return;
}

sub pass { return $_[0]->order('pass') }
sub swallow { return $_[0]->order('swallow') }
sub swallowed { return $_[0]->order('swallowed') }
sub silence { return $_[0]->order('silence') }
sub cut { return $_[0]->order('cut') }
sub cut_reply { return $_[0]->order("reply to $_[1]") }

sub stop
{
	my ($self) = @_;
	@running = grep { $_ != $self } @running;
	kill 'KILL', $self->{pid};
	waitpid($self->{pid}, 0);
	return;
}

END
{
	my $status = $?;
	$_->stop for grep { $_->{owner} == $$ } @running;
	$? = $status;
}

# The proxy's process.
sub serve
{
	my ($listener, $server, $commands, $ack) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listener, $commands);
	my %other;			# by descriptor: the other socket of a connection
	my %is_client;
	my %is_silent;
	my %replies;		# of a server's socket: its next reply is that which is cut
	my $swallows = 0;
	my $swallowed = 0;	# what a server said, since it swallows
	my $awaits = 0;		# whoever orders waits for that
	my $word;			# after which one is

	my $end = sub {
		my ($socket) = @_;
		my @both = grep { defined } $socket, $other{$socket};
		for my $one (@both)
		{
			$select->remove($one);
			delete @{ $_ }{$one} for \%other, \%is_client, \%is_silent, \%replies;
			close $one;
		}
	};
	while (1)
	{
		for my $socket ($select->can_read)
		{
			if ($socket == $commands)
			{
				my $order = readline($commands) // return;
				chomp $order;
				if ($order eq 'cut') { $end->($_) for grep { $is_client{$_} } $select->handles }
				elsif ($order eq 'silence') { $is_silent{$_} = 1 for keys %other }
				elsif ($order =~ /^reply to (.+)/) { $word = $1 }
				elsif ($order eq 'swallowed') { $awaits = 1 }
				else { ($swallows, $swallowed) = ($order eq 'swallow', 0) }
				syswrite($ack, "done\n") unless $awaits;
			}
			elsif ($socket == $listener)
			{
				my $client = $listener->accept // next;
				my $behind = $server =~ m{/} ? IO::Socket::UNIX->new(Peer => $server) : IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server);
				if (!$behind) { close $client; next }
				setsockopt($_, Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) for grep { $_->isa('IO::Socket::INET') } $client, $behind;
				@other{ $client, $behind } = ($behind, $client);
				$is_client{$client} = 1;
				$select->add($client, $behind);
			}
			elsif ($other{$socket})
			{
				my $n = sysread($socket, my $data, 65536);
				if ($swallows && (!$n || !$is_client{$socket})) { $swallowed = 1 }
				if (!$n) { $end->($socket) unless $swallows; $select->remove($socket); next }
				next if $swallows || $is_silent{$socket};
				my $to = $other{$socket};
				if ($is_client{$socket})
				{
					($replies{$to}, $word) = (1) if defined $word && (index($data, $word) >= 0 || index($data, unpack('H*', $word)) >= 0);
				}
				elsif ($replies{$socket})
				{
					$end->($socket);
					next;
				}
				while (length $data)
				{
					my $written = syswrite($to, $data) // last;
					substr($data, 0, $written) = '';
				}
			}
		}
		if ($awaits && $swallowed)
		{
			$awaits = 0;
			syswrite($ack, "done\n");
		}
	}
	return;
}

1;
