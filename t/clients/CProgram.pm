# CProgram.pm: the program t/clients/c/client.c, built, and a network that goes wrong.
#
#   my $dir = CProgram::build();      once, with sanitizers; a temporary folder
#   my $p = CProgram->start(NAME => VALUE...);        with these in the environment
#   $p->say(LINE...)                  tell it; client.c has the words
#   $p->hear(REGEX)                   what it says, and when
#   my $network = Network->new(PORT); $network->order('swallow')
#   my $engine = CProgram::start_server(KIND, OPTION...);
#                                     a server of this kind, with the accounts tester and secret,
#                                     whose password is p@ss:word
#   CProgram::url($engine, PORT, USER)     its URL; by default its own port, and tester
#
# The test that uses this has a function value(SQL), which asks the server.

# ---------------------------------------------------------------------
# A network that goes wrong when it is told to.

package Network;

use strict;
use warnings;

use FreePorts;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use POSIX ();

sub new
{
	my ($class, $server) = @_;
	my ($port) = FreePorts::reserve(1);
	my $listener = IO::Socket::INET->new(Listen => 50, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1)
	  // die "the network cannot listen: $!\n";
	pipe(my $orders, my $order) && pipe(my $acks, my $ack) or die "no pipe: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		close $_ for $order, $acks;
		$ack->autoflush(1);
		eval { _serve($listener, $server, $orders, $ack); 1 } or print STDERR "network: $@";
		POSIX::_exit(0);
	}
	close $_ for $orders, $ack, $listener;
	$order->autoflush(1);
	return bless { port => $port, order => $order, acks => $acks, pid => $pid }, $class;
}

# pass: forward all.  deaf: nothing that servers say.  swallow: nothing at all, and take
# new connections.  cut: end all connections, and go on as before.
sub order
{
	my ($self, $what) = @_;
	print { $self->{order} } "$what\n";
	readline($self->{acks}) // die "the network is gone\n";
	return;
}

sub stop
{
	my ($self) = @_;
	# processes that were made later have a copy of this
	close $self->{order};
	kill 'TERM', $self->{pid};
	waitpid $self->{pid}, 0;
	return;
}

sub _serve
{
	my ($listener, $server, $orders, $ack) = @_;
	my ($mode, %peer, %is_server) = ('pass');
	local $SIG{PIPE} = 'IGNORE';
	my $select = IO::Select->new($listener, $orders);
	my $end = sub {
		# a copy: what is deleted may be one of the arguments
		for my $socket (my @sockets = @_)
		{
			$select->remove($socket);
			delete $peer{$socket};
			close $socket;
		}
	};
	while (1)
	{
		my @ready = $select->can_read;
		for my $ready (@ready)
		{
			if ($ready == $orders)
			{
				sysread($orders, my $said, 100) or return;
				($mode) = $said =~ /(\w+)/;
				if ($mode eq 'cut')
				{
					# with all that was not read yet
					$end->(grep { $_ != $listener && $_ != $orders } $select->handles);
					$mode = 'pass';
				}
				syswrite($ack, "\n");
			}
			elsif ($ready == $listener)
			{
				my $client = $listener->accept // next;
				$select->add($client);
				next if $mode eq 'swallow';
				my $to = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server);
				if (!$to) { $end->($client); next }
				@peer{ $client, $to } = ($to, $client);
				$is_server{$to} = 1;
				$select->add($to);
			}
			else
			{
				next unless defined fileno $ready;
				my $read = sysread($ready, my $bytes, 65536);
				if (!$read) { $end->(grep { defined } $ready, $peer{$ready}); next }
				next if $mode eq 'swallow' || !$peer{$ready} || ($mode eq 'deaf' && $is_server{$ready});
				while (length $bytes)
				{
					my $written = syswrite($peer{$ready}, $bytes) // last;
					substr($bytes, 0, $written, '');
				}
			}
		}
	}
}

# ---------------------------------------------------------------------
# The program.

package CProgram;

use strict;
use warnings;

use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use FindBin;
use IO::Handle;
use IO::Select;
use Test::More;
use Time::HiRes qw(time);

# whose module the tests for MySQL and MariaDB do without
BEGIN
{
	if (($ARGV[0] // q{}) eq q{postgres}) { require PostgreSQL::Test::Cluster }
}

# How long something may take that is to happen, in seconds; PATIENCE says otherwise.
our $patience = $ENV{PATIENCE} // 180;

my $built;

sub build
{
	my $root = "$FindBin::RealBin/../..";
	my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	my $flags = '-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -Wall -Wextra -Werror';
	$built = eval {
		BuiltOnce::folder($dir, 'c_client', sub {
			my ($build) = @_;
			my $said = `make -s -C '$root/clients/c' BUILD='$build' WERROR=1 CFLAGS='$flags' '$build/libdlock-client.a' 2>&1 &&
				cc -std=gnu11 $flags -pthread -I'$root/clients/c' -o '$build/client' '$root/t/clients/c/client.c' '$build/libdlock-client.a' -lpq -lmariadb -ldl 2>&1`;
			die $said if $? != 0;
		});
	};
	ok(defined $built, 'it is built without warnings') or BAIL_OUT($@);
	$ENV{ASAN_OPTIONS} = 'detect_leaks=1';
	delete $ENV{DLOCK_URL};
	return $dir;
}

sub start_server
{
	my ($kind, @options) = @_;
	my ($port) = FreePorts::reserve(1);
	my $engine;
	if ($kind eq 'postgres')
	{
		$engine = Engines::start($kind);
		my $node = $engine->{node};
		$port = $node->port;
		$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
		my $hba = $node->data_dir . '/pg_hba.conf';
		my $rules = PostgreSQL::Test::Utils::slurp_file($hba);
		open(my $file, '>', $hba) or die "could not write $hba: $!\n";
		print $file "host all secret 127.0.0.1/32 scram-sha-256\n$rules";
		close $file;
		$engine->control->value(q{CREATE ROLE secret LOGIN PASSWORD 'p@ss:word'});
		$engine->restart;
	}
	else
	{
		$engine = Engines::start($kind, '--skip-networking=0', '--bind-address=127.0.0.1', "--port=$port",
			'--skip-name-resolve', $kind eq 'mysql' ? '--mysqlx=OFF' : (), @options);
		for my $account (q{'tester'@'127.0.0.1'}, q{'secret'@'127.0.0.1'})
		{
			$engine->control->value("CREATE USER $account" . ($account =~ /secret/ ? q{ IDENTIFIED BY 'p@ss:word'} : ''));
			$engine->control->value("GRANT EXECUTE ON dlock.* TO $account");
		}
	}
	@$engine{qw(client_kind client_port)} = ($kind, $port);
	return $engine;
}

sub url
{
	my ($engine, $port, $user) = @_;
	$port //= $engine->{client_port};
	$user //= 'tester';
	return $engine->{client_kind} eq 'postgres' ? "postgresql://$user\@127.0.0.1:$port/postgres" : "mysql://$user\@127.0.0.1:$port/";
}

sub start
{
	my ($class, %environment) = @_;
	pipe(my $in, my $input) && pipe(my $output, my $out) or die "no pipe: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		close $_ for $input, $output;
		%ENV = (%ENV, %environment);
		open(STDIN, '<&', $in) && open(STDOUT, '>&', $out) && exec "$built/client";
		die "could not run the program: $!\n";
	}
	close $_ for $in, $out;
	$input->autoflush(1);
	return bless { pid => $pid, input => $input, output => $output, text => '', lines => [], new => {} }, $class;
}

# A busy machine has more time to connect than the ten seconds that a lease has by itself.
sub say
{
	my ($self, @lines) = @_;
	local $SIG{PIPE} = 'IGNORE';
	/^new (\S+) / && ($self->{new}{$1} = $_) for @lines;
	print { $self->{input} } map { /^new / && !/ connect_timeout=/ ? "$_ connect_timeout=$patience\n" : "$_\n" } @lines;
	return;
}

# Read what it has said until there is a line that has not been asked for and matches;
# returns the time that it says, and what the expression captures.
sub hear
{
	my ($self, $regex) = @_;
	my $end = time + $patience;
	while (1)
	{
		for my $i (0 .. $#{ $self->{lines} })
		{
			my ($when, $what) = $self->{lines}[$i] =~ /^(\d+) (.*)$/;
			next unless my @captured = $what =~ $regex;
			splice @{ $self->{lines} }, $i, 1;
			return ($when, @captured);
		}
		last unless IO::Select->new($self->{output})->can_read($end - time > 0 ? $end - time : 0);
		sysread($self->{output}, $self->{text}, 65536, length $self->{text}) or last;
		push @{ $self->{lines} }, $1 while $self->{text} =~ s/^(.*)\n//;
	}
	fail("the program says something like $regex");
	diag(join("\n", 'but:', @{ $self->{lines} }));
	return;
}

# What a lease says first, from now on: true if it is that.
sub next_is
{
	my ($self, $id, $regex) = @_;
	my (undef, $what) = $self->hear(qr/^\Q$id\E (.*)$/);
	return like($what // '', $regex, "$id: $regex");
}

# An answer as its rows, in one line each, or as the error.
sub ask
{
	my ($self, $line) = @_;
	$self->say($line);
	my @rows;
	while (1)
	{
		my (undef, $kind, $rest) = $self->hear(qr/^(row|answer|error|url)\b ?(.*)$/);
		return 'nothing' unless defined $kind;
		return "$kind $rest" if $kind eq 'error' || $kind eq 'url';
		return join('|', @rows) if $kind eq 'answer';
		push @rows, $rest;
	}
}

# These leases are given back, and say so.  A release that has no answer within a third of 5 s
# is given up, and it is not known whether it was done: then all is done once more.
sub gives_back
{
	my ($self, @ids) = @_;
	my %said;
	for (1 .. 20)
	{
		my $began = time;
		$self->say(map { "release $_" } @ids);
		$said{$_} = ($self->hear(qr/^\Q$_\E (released .*)$/))[1] // '' for @ids;
		last if time - $began < 5 / 3 || !grep { !/^released 1 none / } values %said;
		$self->hear(qr/^\Q$_\E done$/) for @ids;
		main::value("SELECT dlock_force_release('$_')") for map { $self->{new}{$_} =~ / name=(\S+)/g } @ids;
		for my $id (@ids)
		{
			$self->say("free $id", $self->{new}{$id}, "start $id");
			$self->hear(qr/^\Q$id\E held /);
		}
	}
	like($said{$_}, qr/^released 1 none /, "$_ is given back") for @ids;
	return;
}

sub end
{
	my ($self) = @_;
	$self->say('end');
	waitpid $self->{pid}, 0;
	return $?;
}

1;
