# Wire.pm: clients that speak the servers' own protocols, for tests that send what no
# client library would send: any bytes, in any type and format.
#
#   my $client = Wire::Postgres->new(path => $socket, user => ..., database => ...,
#       client_encoding => 'LATIN1');
#   my $client = Wire::MySQL->new(path => $socket, user => ...);
#   $client = Wire::MySQL->of($engine, $user);      one of Engines.pm's
#   my $answer = $client->query($sql);              text, as it is
#   $answer = $client->execute($sql, @parameters);  a prepared statement
#   $client->pipeline([$portal, $sql], ..., [$portal], [$portal, $rows], ...)
#       binds portals and executes them, so many rows of each or all, without
#       waiting for an answer (PostgreSQL); "answer" ends the pipeline
#   $answer = $client->change_user('other');        COM_CHANGE_USER (MySQL)
#   $answer = $client->reset_connection;            COM_RESET_CONNECTION (MySQL)
#   $client->send($sql); $client->is_answered; $client->answer   as query(), in
#                                                   steps (MySQL)
#
# An answer has
#
#   error, number, message   if it is an error: its SQLSTATE, its number (MySQL)
#   rows                     else the rows of all results: lists of bytes or undef
#
# All return undef if the connection has ended without an answer; "lost" then
# says why.  They log in without a password, by a Unix socket.

package Wire;

use strict;
use warnings;

use Errno qw(EINTR);
use IO::Select;
use IO::Socket::UNIX;

# How long an answer may take, in seconds, before the server counts as hung.
our $patience = 120;

sub open_socket
{
	my ($class, %params) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $params{path})
	  or die "could not connect to $params{path}: $!\n";
	binmode $socket;
	return bless { %params, socket => $socket, buffer => '', at => 0 }, $class;
}

# Ends the connection's use; caught by _attempt().
sub _lose
{
	my ($self, $why) = @_;
	$self->{lost} = $why;
	die { lost => $why };
}

sub _send
{
	my ($self, $bytes) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $at = 0;
	while ($at < length $bytes)
	{
		my $sent = syswrite($self->{socket}, $bytes, length($bytes) - $at, $at);
		next if !defined $sent && $! == EINTR;
		# what the server said before it hung up can still be read
		return if !defined $sent;
		$at += $sent;
	}
	return;
}

# Read exactly so many bytes.
sub _read
{
	my ($self, $length) = @_;
	while (length($self->{buffer}) - $self->{at} < $length)
	{
		IO::Select->new($self->{socket})->can_read($patience)
		  or $self->_lose("no answer within $patience seconds");
		my $got = sysread($self->{socket}, my $more, 65536);
		next if !defined $got && $! == EINTR;
		$self->_lose(defined $got ? 'the server has closed the connection' : "$!") if !$got;
		if ($self->{at} > 1_000_000 || $self->{at} == length $self->{buffer})
		{
			substr($self->{buffer}, 0, $self->{at}) = '';
			$self->{at} = 0;
		}
		$self->{buffer} .= $more;
	}
	my $bytes = substr($self->{buffer}, $self->{at}, $length);
	$self->{at} += $length;
	return $bytes;
}

# Run code; returns undef if it loses the connection.
sub _attempt
{
	my ($self, $code) = @_;
	return if $self->{lost};
	my $answer = eval { $code->() };
	die $@ if $@ && ref $@ ne 'HASH';
	return $answer;
}

# The first value of a statement that has to succeed.
sub value
{
	my ($self, $sql) = @_;
	my $answer = $self->query($sql) // die "$sql: $self->{lost}\n";
	die "$sql: $answer->{error}: $answer->{message}\n" if defined $answer->{error};
	return $answer->{rows}[0] && $answer->{rows}[0][0];
}

sub close
{
	my ($self) = @_;
	$self->{lost} //= 'closed';
	CORE::close($self->{socket});
	return;
}

package Wire::Postgres;

use strict;
use warnings;
our @ISA = ('Wire');

sub new
{
	my ($class, %params) = @_;
	my $self = $class->open_socket(%params);
	my %options = (user => $self->{user}, database => $self->{database},
		client_encoding => $self->{client_encoding} // 'UTF8', application_name => 'wire');
	my $options = join('', map { "$_\0$options{$_}\0" } sort keys %options) . "\0";
	my $answer = $self->_attempt(sub {
		$self->_send(pack('N N a*', 8 + length $options, 196608, $options));
		return $self->_answer;
	}) // die "could not log in: $self->{lost}\n";
	die "could not log in: $answer->{message}\n" if defined $answer->{error};
	return $self;
}

sub _message { return pack('a1 N a*', $_[0], 4 + length $_[1], $_[1]) }

# Until the server is ready for the next query.
sub _answer
{
	my ($self) = @_;
	my %answer = (rows => []);
	while (1)
	{
		my ($type, $length) = unpack('a1 N', $self->_read(5));
		my $body = $self->_read($length - 4);
		if ($type eq 'D')
		{
			my ($count, @row) = unpack('n', $body);
			my $at = 2;
			for (1 .. $count)
			{
				my $size = unpack('N', substr($body, $at, 4));
				$at += 4;
				push(@row, undef), next if $size == 0xFFFFFFFF;
				push @row, substr($body, $at, $size);
				$at += $size;
			}
			push @{ $answer{rows} }, \@row;
		}
		elsif ($type eq 'E')
		{
			my %fields = map { substr($_, 0, 1) => substr($_, 1) } grep { length } split /\0/, $body;
			# the first one counts
			($answer{error}, $answer{message}) = @fields{qw(C M)} if !defined $answer{error};
			$self->_lose("$fields{S} $fields{C}: $fields{M}") if $fields{V} =~ /FATAL|PANIC/;
		}
		elsif ($type eq 'R')
		{
			my $method = unpack('N', $body);
			die "the server wants a password ($method)\n" if $method != 0;
		}
		elsif ($type eq 'K')
		{
			$self->{pid} = unpack('N', $body);
		}
		elsif ($type eq 'Z')
		{
			$self->{transaction} = $body;
			return \%answer;
		}
	}
}

sub query
{
	my ($self, $sql) = @_;
	return $self->_attempt(sub {
		$self->_send(_message('Q', "$sql\0"));
		return $self->_answer;
	});
}

# Parameters: { type => OID (0: guess), binary => 0 or 1, value => bytes or undef }
sub execute
{
	my ($self, $sql, @parameters) = @_;
	my $count = @parameters;
	return $self->_attempt(sub {
		$self->_send(_message('P', "\0$sql\0" . pack('n N*', $count, map { $_->{type} } @parameters))
			  . _message('B', "\0\0" . pack('n*', $count, (map { $_->{binary} } @parameters), $count)
				  . join('', map { defined $_->{value} ? pack('N a*', length $_->{value}, $_->{value}) : "\xFF" x 4 } @parameters)
				  . pack('n', 0))
			  . _message('E', "\0" . pack('N', 0))
			  . _message('S', ''));
		return $self->_answer;
	});
}

# Each step is [name, SQL], to bind a portal, [name] or [name, number of rows], to execute it.
sub pipeline
{
	my ($self, @steps) = @_;
	return $self->_attempt(sub {
		for my $step (@steps)
		{
			my ($portal, $what) = @$step;
			$self->_send(defined $what && $what =~ /\D/
				? _message('P', "\0$what\0\0\0") . _message('B', "$portal\0\0" . "\0" x 6)
				: _message('E', "$portal\0" . pack('N', $what // 0)));
		}
		$self->_send(_message('H', ''));
		return 1;
	});
}

# The answer of a pipeline, which ends here.
sub answer
{
	my ($self) = @_;
	return $self->_attempt(sub {
		$self->_send(_message('S', ''));
		return $self->_answer;
	});
}

package Wire::MySQL;

# Also MariaDB.

use strict;
use warnings;
our @ISA = ('Wire');

# A client of an engine, in the database of the tests.
sub of
{
	my ($class, $engine, $user) = @_;
	return $class->new(path => "$engine->{dir}/socket", user => $user, database => 'scenarios');
}

# long password, long flag, database, protocol 4.1, transactions, 4.1
# passwords, several results, also of prepared statements, plugins
my $capabilities = 0x1 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x20000 | 0x40000 | 0x80000;
my $more_results = 0x8;

sub new
{
	my ($class, %params) = @_;
	my $self = $class->open_socket(%params);
	my $answer = $self->_attempt(sub {
		my $greeting = $self->_packet;
		return _error($greeting) if $greeting =~ /^\xFF/;
		my ($version, $id, $plugin) = $greeting =~ /^.([^\0]*)\0(.{4}).*?([a-z0-9_]+)\0?\z/s;
		$self->{id} = unpack('V', $id);
		$self->{plugin} = $plugin;
		# 45 is utf8mb4; there is no password to prove
		$self->_send_packet(pack('V V C x23 Z* C Z* Z*', $capabilities, 2**30, 45, $self->{user}, 0,
			$self->{database}, $plugin));
		return $self->_authenticate;
	}) // die "could not log in: $self->{lost}\n";
	die "could not log in: $answer->{message}\n" if defined $answer->{error};
	return $self;
}

# Answer what the server asks before it lets a user in.
sub _authenticate
{
	my ($self) = @_;
	while (1)
	{
		my $packet = $self->_packet;
		return _error($packet) if $packet =~ /^\xFF/;
		return { rows => [] } if $packet =~ /^\x00/;
		# another plugin; its form of an empty password
		$self->_send_packet($packet =~ /^\xFEcaching_sha2/ ? "\0" : '') if $packet =~ /^\xFE/;
	}
}

sub _packet
{
	my ($self) = @_;
	my $packet = '';
	while (1)
	{
		my ($low, $high, $sequence) = unpack('v C C', $self->_read(4));
		my $length = $low | $high << 16;
		$self->{sequence} = ($sequence + 1) & 0xFF;
		$packet .= $self->_read($length);
		return $packet if $length < 0xFFFFFF;
	}
}

sub _send_packet
{
	my ($self, $packet) = @_;
	my $length;
	do
	{
		$length = length $packet < 0xFFFFFF ? length $packet : 0xFFFFFF;
		$self->_send(pack('v C C a*', $length & 0xFFFF, $length >> 16, $self->{sequence}, substr($packet, 0, $length, '')));
		$self->{sequence} = ($self->{sequence} + 1) & 0xFF;
	} while ($length == 0xFFFFFF);
	return;
}

sub _command
{
	my ($self, $command, $rest) = @_;
	$self->{sequence} = 0;
	$self->_send_packet(pack('C a*', $command, $rest));
	return;
}

sub _error
{
	my ($packet) = @_;
	my ($number, $state, $message) = $packet =~ /^\xFF(..)#(.{5})(.*)/s
	  or return { error => '', number => unpack('x v', $packet), message => substr($packet, 3), rows => [] };
	return { error => $state, number => unpack('v', $number), message => $message, rows => [] };
}

# A length-encoded integer; undef if it is the sign of a NULL.
sub _integer
{
	my ($packet, $at) = @_;
	my $first = ord substr($$packet, $$at++, 1);
	return $first if $first < 251;
	return undef if $first == 251;    ## no critic (explicit undef: a list of one)
	my $size = $first == 252 ? 2 : $first == 253 ? 3 : 8;
	my $value = unpack('Q<', substr($$packet, $$at, $size) . "\0" x (8 - $size));
	$$at += $size;
	return $value;
}

sub _string
{
	my ($packet, $at) = @_;
	my $length = _integer($packet, $at);
	return undef if !defined $length;
	my $string = substr($$packet, $$at, $length);
	$$at += $length;
	return $string;
}

# The types of the columns, after their number.
sub _columns
{
	my ($self, $count) = @_;
	my @types;
	for (1 .. $count)
	{
		my $packet = $self->_packet;
		my $at = 0;
		_string(\$packet, \$at) for 1 .. 6;
		push @types, [ unpack('x x2 V C v', substr($packet, $at)) ];
	}
	$self->_packet if $count > 0;
	return map { { type => $_->[1], flags => $_->[2] } } @types;
}

my %sizes = (1 => 'c', 2 => 's<', 3 => 'l<', 4 => 'f<', 5 => 'd<', 8 => 'q<', 9 => 'l<', 13 => 's<');

# A row of a prepared statement's result.
sub _binary_row
{
	my ($packet, @columns) = @_;
	my $nulls = 1;
	my $at = 1 + int((@columns + 9) / 8);
	my @row;
	for my $i (0 .. $#columns)
	{
		if (ord(substr($packet, $nulls + int(($i + 2) / 8), 1)) >> (($i + 2) % 8) & 1)
		{
			push @row, undef;
			next;
		}
		my $type = $columns[$i]{type};
		if (my $format = $sizes{$type})
		{
			my $size = length pack($format, 0);
			push @row, unpack($format, substr($packet, $at, $size));
			$at += $size;
		}
		else
		{
			push @row, _string(\$packet, \$at);
		}
	}
	return \@row;
}

sub _answer
{
	my ($self, $binary) = @_;
	my %answer = (rows => []);
	while (1)
	{
		my $packet = $self->_packet;
		return _error($packet) if $packet =~ /^\xFF/;
		my $status;
		my $at = 0;
		if ($packet =~ /^\x00/)
		{
			$at = 1;
			_integer(\$packet, \$at) for 1 .. 2;
			$status = unpack('v', substr($packet, $at, 2));
		}
		else
		{
			my @columns = $self->_columns(_integer(\$packet, \$at));
			while (1)
			{
				$packet = $self->_packet;
				return _error($packet) if $packet =~ /^\xFF/;
				last if $packet =~ /^\xFE/ && length $packet < 9;
				$at = 0;
				push @{ $answer{rows} }, $binary ? _binary_row($packet, @columns)
				  : [ map { _string(\$packet, \$at) } @columns ];
			}
			$status = unpack('x3 v', $packet);
		}
		return \%answer if !($status & $more_results);
	}
}

# Start a statement, and ask for its answer later.
sub send
{
	my ($self, $sql) = @_;
	return $self->_attempt(sub { $self->_command(0x03, $sql); 1 });
}

# Has something come that was not read yet, or has the connection ended?
sub is_answered
{
	my ($self) = @_;
	return $self->{lost} || length $self->{buffer} > $self->{at} || IO::Select->new($self->{socket})->can_read(0) ? 1 : 0;
}

# The answer of the statement that was started.
sub answer
{
	my ($self) = @_;
	return $self->_attempt(sub { $self->_answer });
}

sub query
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->answer;
}

# Log in as another user, on the same connection.
sub change_user
{
	my ($self, $user) = @_;
	return $self->_attempt(sub {
		$self->_command(0x11, pack('Z* C Z* v Z*', $user, 0, $self->{database}, 45, $self->{plugin}));
		return $self->_authenticate;
	});
}

sub reset_connection
{
	my ($self) = @_;
	return $self->_attempt(sub {
		$self->_command(0x1F, '');
		return $self->_answer;
	});
}

# Parameters: { type => number, unsigned => 0 or 1, value => as the type has it, or undef }
sub execute
{
	my ($self, $sql, @parameters) = @_;
	return $self->_attempt(sub {
		$self->_command(0x16, $sql);
		my $packet = $self->_packet;
		return _error($packet) if $packet =~ /^\xFF/;
		my (undef, $id, $columns, $wanted) = unpack('C V v v', $packet);
		$self->_columns($wanted);
		$self->_columns($columns);
		die "$sql: $wanted parameters\n" if $wanted != @parameters;

		my $body = pack('V C V', $id, 0, 1);
		if (@parameters)
		{
			my @bits = map { defined $_->{value} ? 0 : 1 } @parameters;
			$body .= pack('b*', join('', @bits, (0) x (-@bits % 8))) . "\x01";
			$body .= join('', map { pack('C C', $_->{type}, $_->{unsigned} ? 0x80 : 0) } @parameters);
			$body .= join('', map { _encode($_) } grep { defined $_->{value} } @parameters);
		}
		$self->_command(0x17, $body);
		my $answer = $self->_answer(1);
		$self->_command(0x19, pack('V', $id));
		return $answer;
	});
}

sub _encode
{
	my ($parameter) = @_;
	my ($type, $value) = @$parameter{qw(type value)};
	# a number, or bytes that are encoded already
	return pack($sizes{$type}, $value) if $sizes{$type} && !$parameter->{unsigned};
	return pack('Q<', $value) if $type == 8;
	return $value if $parameter->{raw};
	my $length = length $value;
	return ($length < 251 ? chr $length : $length < 2**16 ? pack('C v', 252, $length) : pack('C Q<', 254, $length)) . $value;
}

1;
