# Hostile.pm: hostile calls of the functions, and what must follow; for 460_hostile_sql.pl
# and mysql/hostile_sql.pl, which write them for their servers.
#
# A round is many calls of one session.  Each is drawn at random: a function, a
# value for each argument, and a way to call it.  A value knows:
#
#   sql        how it is written in a statement
#   states     undef: unknown; []: good; else the errors of which it must raise one
#   bytes      the string, as the function must take it; undef: unknown
#   seconds    the span of time
#   parameter  how to send it as a prepared statement's parameter; undef: cannot
#
# So for each call it is known whether it must fail, and how.  After each, an
# administrator reads the lock table and compares it with its state before:
#
#   - a call that raised has changed nothing;
#   - an answer has the type that the manual says;
#   - the lease that was granted is there, under this name, owner and token, byte for
#     byte;
#   - no call has changed a lease of a name or owner other than its own.
#
# It fails, within two rounds, on versions of dlock that were broken on purpose: with
# strings of 256 bytes allowed; with a request id that is looked at after the lease has
# been taken; and, on MariaDB, with strings that end at a zero byte.
#
# HOSTILE_SEED repeats a run; a round that fails prints its own seed, with which it is the
# first.  HOSTILE_ROUNDS says how many rounds, TORTURE_MINUTES for how long.  With
# HOSTILE_GO_ON a failure is not the end.

package Hostile;

use strict;
use warnings;

use Exporter qw(import);
use JSON::PP;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT_OK = qw(chance one_of shown value);

# Largest token.
use constant TOKEN_MAX => 2**53 - 1;

# Leases whose deadline is nearer than this, in seconds, are not checked.
use constant SOON => 20;

sub chance { return rand() < $_[0] }

sub one_of { return $_[ rand @_ ] }

# Bytes, fit for a message.
sub shown
{
	my ($bytes) = @_;
	return 'NULL' if !defined $bytes;
	$bytes = substr($bytes, 0, 400) . '...' . length($bytes) . ' bytes' if length $bytes > 420;
	return $bytes =~ s/([^\x20-\x7e])/sprintf('\\x%02X', ord $1)/ger;
}

# ----------------------------------------------------------------------
# Strings
# ----------------------------------------------------------------------

# Lengths that are allowed, and that are not.
my @good_lengths = (1, 1, 2, 3, 8, 20, 31, 63, 64, 127, 128, 160, 161, 200, 254, 255, 255, 255);
my @bad_lengths = (0, 0, 256, 256, 256, 257, 300, 512, 1000, 1024, 1025, 8191, 65_536);
# these take long
my $huge_length = 1 << 20;

sub good_length { return one_of(@good_lengths) }

sub bad_length { return chance(0.02) ? $huge_length : one_of(@bad_lengths) }

my @code_points = (
	[ 0x20, 0x7E ], [ 0x01, 0x1F ], [ 0x7F, 0x9F ], [ 0xA0, 0xFF ], [ 0x300, 0x36F ], [ 0x5D0, 0x5EA ],
	[ 0x200B, 0x200F ], [ 0x2028, 0x202E ], [ 0x4E00, 0x9FFF ], [ 0xFEFF, 0xFEFF ], [ 0xFFF0, 0xFFFD ],
	[ 0x1F600, 0x1F64F ], [ 0x10FFFD, 0x10FFFF ]);

sub utf8_of
{
	my ($code) = @_;
	my $character = chr $code;
	utf8::encode($character);
	return $character;
}

# UTF-8 of exactly this many bytes.
sub utf8_text
{
	my ($length) = @_;
	my $text = '';
	my @ranges = map { one_of(@code_points) } 1 .. 1 + rand 3;
	while (length $text < $length)
	{
		my ($first, $last) = @{ one_of(@ranges) };
		my $character = utf8_of($first + int rand($last - $first + 1));
		$character = chr(0x61 + int rand 26) if length($text) + length($character) > $length;
		$text .= $character;
	}
	return $text;
}

sub bytes_from
{
	my ($length, $first, $last) = @_;
	my @some = map { chr($first + int rand($last - $first + 1)) } 1 .. ($length < 300 ? $length : 300);
	return substr(join('', @some) x (1 + $length / 300), 0, $length);
}

# Printable ASCII, with characters that have a special meaning somewhere.
sub ascii_text
{
	my ($length) = @_;
	my $text = one_of('', '', q{'}, q{"}, q{\\}, q{\\'}, '%s%n', '; DROP TABLE x; --', '{}', '[', '$1', ' ', '<insufficient privilege>',
		'0x41', '\\x41', 'NULL', '${x}', '`', '?', ':a', '/*', '%', '_');
	return substr($text . bytes_from($length, 0x20, 0x7E), 0, $length);
}

# Bytes that are not UTF-8.
sub broken_utf8
{
	my ($length) = @_;
	my $broken = one_of("\x80", "\xFF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80",
		"\xF8\x88\x80\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xFE\xFF");
	my $text = utf8_text($length > length $broken ? $length - length $broken : 0);
	return substr(chance(0.5) ? $text . $broken : $broken . $text, 0, $length || 1);
}

sub is_utf8
{
	my ($bytes) = @_;
	# sequences that only Perl lets pass
	return 0 if $bytes =~ /\xED[\xA0-\xBF]|\xF4[\x90-\xBF]|[\xF5-\xFF]/;
	return utf8::decode(my $copy = $bytes) ? 1 : 0;
}

# ----------------------------------------------------------------------
# Times
# ----------------------------------------------------------------------

# A text, and how many seconds it is, or why it is none: "syntax"; "infinite";
# "range", of numbers; "interval", of an interval too long for its type.
my $zeros = '0' x 60;
my @times = (
	# numbers
	[ '0', 0 ], [ '-0', 0 ], [ '-0.0', 0 ], [ '0e0', 0 ], [ '1', 1 ], [ '-1', -1 ], [ '30', 30 ], [ '3600', 3600 ], [ '0.25', 0.25 ],
	[ '60.5', 60.5 ], [ '+60', 60 ], [ ' 60 ', 60 ], [ "\t60\n", 60 ], [ '1e3', 1000 ], [ '1E2', 100 ], [ '6.e1', 60 ], [ '.5', 0.5 ],
	[ '60.', 60 ], [ '-.5', -0.5 ], [ '0.000001', 0.000001 ], [ '0.0000001', 0 ], [ '1e-320', 0 ], [ '1e-400', 0 ],
	[ '999999999.999999', 999999999.999999 ], [ '1000000000', 1e9 ], [ '1000000000.000001', 1000000000.000001 ],
	[ '1000000001', 1e9 + 1 ], [ '2147483647', 2**31 - 1 ], [ '2147483648', 2**31 ], [ '-2147483648', -2**31 ], [ '4294967296', 2**32 ],
	[ '1e12', 1e12 ], [ '-1e12', -1e12 ], [ '1e13', 'range' ], [ '-1e13', 'range' ], [ '9223372036854775807', 'range' ],
	[ '9223372036854775808', 'range' ], [ '-9223372036854775808', 'range' ], [ '18446744073709551616', 'range' ],
	[ '1e308', 'range' ], [ '1e309', 'range' ], [ '-1e400', 'range' ], [ '1e5000', 'range' ], [ '1e99999999999999999999', 'range' ],
	[ '1' x 60, 'range' ], [ "60.$zeros", 60 ], [ "0.${zeros}1", 0 ], [ "${zeros}60", 60 ], [ '9' x 5000, 'range' ],
	# not finite
	map({ [ $_, 'infinite' ] } qw(nan NaN inf Inf -inf infinity Infinity -infinity INFINITY)),
	# intervals
	[ '60s', 60 ], [ '60 s', 60 ], [ '1 min', 60 ], [ '1 MINUTE', 60 ], [ '1h 30m', 5400 ], [ '1 day 2:03', 93780 ], [ '00:01:00', 60 ],
	[ '0:0:0.5', 0.5 ], [ 'PT1M30S', 90 ], [ 'P1D', 86400 ], [ '500 ms', 0.5 ], [ '1 minute ago', -60 ], [ '-1 day', -86400 ],
	[ '1 week', 604800 ], [ '1 month', 2592000 ], [ '1 year', 31104000 ], [ 'P1Y', 31104000 ], [ '0 s', 0 ], [ 'PT0S', 0 ],
	[ '31 years', 31 * 31104000 ], [ '40 years', 40 * 31104000 ], [ '100000 years', 'range' ],
	[ '178956971 years', 'interval' ], [ '999999999999 days', 'interval' ], [ '99999999999999999999 s', 'interval' ],
	[ '-99999999999999999999 s', 'interval' ], [ '9223372036854775807 hours', 'interval' ], [ '9223372036854775808 ms', 'interval' ],
	# neither
	map({ [ $_, 'syntax' ] } '', ' ', 'garbage', '0x10', '1 parsec', '1e', 'e5', '1 s 1 s', '1 minute 1 minute', 'NULL',
		'true', 'infinit', 'x' x 5000, "\xC3\xA9", '1 s x', 'PT1X', "30\xC2\xA0s"));

# A text of which nobody can say what it is.
sub odd_time
{
	return one_of('P', 'PT', '1 2 3', '1:2:3:4', '--1', '.', '+', '-', '1,5', '1.2.3', '60;', q{60'}, 'nan(1)', '1_000', '+inf', '@ 1 minute', '1e+', '00:60:00',
		'00:00:60', '1.5 months', 'P1DT', '1 day -2:03', '1 y 1 mon 1 w 1 d 1 h 1 m 1 s', 'allballs', 'now', '1:2', '1.5:00', 'P-1D', '-P1D')
	  if chance(0.3);
	return join('', map { one_of(split //, '0123456789012345678901234567890123456789 .:+-eEpPtTymwdhsunago') } 1 .. 1 + rand 24);
}

# A text that is a time, or is not.  It is good as a ttl or as a wait.
sub time_text
{
	my ($what, $want_good) = @_;
	while (1)
	{
		my ($text, $is) = !$want_good && chance(0.3) ? (odd_time(), undef) : @{ one_of(@times) };
		next if $what eq 'wait' && defined $is && $is =~ /^[-\d]/ && $is != 0 && $want_good && chance(0.85);
		my ($good) = judge_time($what, $is);
		return ($text, $is) if !$want_good || $good;
	}
}

# The longest time that may be asked for, in microseconds; as a value, 1e18.
our %longest_us = (ttl => 1e15, wait => 1e18);

# Is this number of seconds good?  Also, why not.
sub judge_time
{
	my ($what, $is) = @_;
	return (undef) if !defined $is;
	return (0, $is) if $is =~ /^[a-z]/;
	my $us = sprintf('%.0f', $is * 1e6);
	return ($us >= ($what eq 'ttl' ? 1 : -1e18) && $us <= ($longest_us{$what} // 1e18), 'range');
}

# A value, as the head of this file says.
sub value
{
	my ($sql, $states, %more) = @_;
	return { sql => $sql, states => $states, %more };
}

# A value of so many seconds, or of none; its errors depend on why it is none.
sub timed
{
	my ($sql, $what, $is, $states, %more) = @_;
	return value($sql, undef, %more) if !defined $is;
	my ($good, $why) = judge_time($what, $is);
	return value($sql, $good ? [] : $states->{$why}, $is =~ /^[a-z]/ ? () : (seconds => $is), %more);
}

# ----------------------------------------------------------------------
# The lock table
# ----------------------------------------------------------------------

# A reading of the lock table: its rows, by account, name and owner.
sub reading_of
{
	my (@rows) = @_;
	# what an owner has left does not keep it from a share or permit beside it
	my %rows = map { (join('|', $_->{account}, unpack('H*', $_->{name}), unpack('H*', $_->{owner}), $_->{leaving} ? $_->{token} : ()) => $_) } @rows;
	die 'a holder has two rows' if keys %rows != @rows;
	return { rows => \%rows, time => time };
}

# After everything was given back: the leases that are still held, which is wrong.
sub still_held
{
	my ($reading) = @_;
	return map { 'still held: ' . shown($_->{name}) . ' by ' . shown($_->{owner}) }
	  grep { !defined $_->{expires} || $_->{expires} > $reading->{time} + 1 } values %{ $reading->{rows} };
}

# ----------------------------------------------------------------------
# Rounds
# ----------------------------------------------------------------------

# Takes a name for messages, and the number of rounds of a short run.
sub new
{
	my ($class, %params) = @_;
	my $self = bless {
		seed => $ENV{HOSTILE_SEED} // 1 + int rand 2**30,
		left => $ENV{HOSTILE_ROUNDS} // $params{rounds},
		done => 0, calls => 0, answers => {}, errors => {}, %params }, $class;
	$self->{until} = time + 60 * $ENV{TORTURE_MINUTES} if $ENV{TORTURE_MINUTES};
	note("HOSTILE_SEED=$self->{seed}");
	return $self;
}

# Play rounds: the code gets the number of each, and returns what was wrong, as a list of
# texts.  The first round with something wrong is the last.
sub play
{
	my ($self, $code) = @_;
	$self->{code} = $code;
	while ($self->{until} ? time < $self->{until} : $self->{done} < $self->{left})
	{
		my $seed = $self->{seed} + $self->{done};
		my $before = $self->{calls};
		srand($seed);
		$self->{overtaken} = [];
		my @wrong = eval { $code->($seed) };
		push @wrong, $@ if $@;
		$self->{done}++;
		my $calls = $self->{calls} - $before;
		push @wrong, 'nothing was called' if $calls == 0;
		is(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]), '', "round HOSTILE_SEED=$seed: $calls calls") and next;
		$self->{wrong} = 1;
		last if !$ENV{HOSTILE_GO_ON};
	}
	return;
}

# ----------------------------------------------------------------------
# Calls
# ----------------------------------------------------------------------

# Function, its parameters, how many are required, what it answers; and what it touches,
# if it acquires or changes anything.
our @functions = (
	[ 'dlock_acquire', [qw(name owner ttl wait request)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_shared', [qw(name owner ttl wait request)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_permit', [qw(name owner ttl limit wait request)], 4, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_all', [qw(names owner ttl wait request)], 3, 'tokens', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_session', [qw(name owner ttl wait)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_wait', [qw(name wait)], 1, 'boolean' ],
	[ 'dlock_renew', [qw(name owner ttl token)], 3, 'boolean or null', touches => 'name' ],
	[ 'dlock_renew_all', [qw(owner ttl)], 2, 'count', touches => 'owner' ],
	[ 'dlock_release', [qw(name owner token)], 2, 'boolean or null', touches => 'name' ],
	[ 'dlock_release_all', [qw(owner)], 1, 'count', touches => 'owner' ],
	[ 'dlock_owner', [qw(name)], 1, 'text' ],
	[ 'dlock_is_free', [qw(name)], 1, 'boolean' ],
	[ 'dlock_force_release', [qw(name owner)], 1, 'count', touches => 'name', operators => 1 ],
	[ 'dlock_stats_reset', [], 0, 'null', operators => 1 ]);

# The form of an answer.
my %answers = (
	token => sub { return !defined $_[0] || $_[0] =~ /^[1-9]\d*$/ && $_[0] <= TOKEN_MAX },
	boolean => sub { return defined $_[0] && $_[0] =~ /^[tf01]$/ },
	'boolean or null' => sub { return !defined $_[0] || $_[0] =~ /^[tf01]$/ },
	count => sub { return defined $_[0] && $_[0] =~ /^\d+$/ },
	tokens => sub {
		my ($value, $count) = @_;
		return 1 if !defined $value;
		my @tokens = tokens_of($value);
		return (!defined $count || @tokens == $count) && @tokens > 0 && !grep { !/^[1-9]\d*$/ || $_ > TOKEN_MAX } @tokens;
	},
	claimed => sub {
		my ($value, $count, $calls) = @_;
		return 1 if !defined $value;
		my @tokens = tokens_of($value);
		return (!defined $count || @tokens <= $count * $calls) && !grep { !/^[1-9]\d*$/ || $_ > TOKEN_MAX } @tokens;
	},
	holders => sub {
		my ($value) = @_;
		my $list = eval { JSON::PP->new->utf8->decode($value) };
		return ref $list eq 'ARRAY' && !grep { !$_->{mode} || !defined $_->{name} || !defined $_->{owner} || $_->{token} !~ /^\d+$/ } @$list;
	},
	json => sub { return defined $_[0] && ref eval { JSON::PP->new->utf8->decode($_[0]) } },
	text => sub { return 1 },
	names => sub { return 1 },
	anything => sub { return 1 },
	null => sub { return !defined $_[0] || $_[0] eq '' });

# Of {1,2} or [1, 2].
sub tokens_of
{
	my ($list) = @_;
	return $list =~ /^[[{](.*)[\]}]$/s ? split(/, ?/, $1, -1) : ('?');
}

# The leases in which two readings of the lock table differ.  A lease that may have
# expired meanwhile may be missing.
sub changes
{
	my ($before, $after) = @_;
	my @changes;
	for my $key (keys %{ { %{ $before->{rows} }, %{ $after->{rows} } } })
	{
		my ($was, $is) = ($before->{rows}{$key}, $after->{rows}{$key});
		if (!$is)
		{
			next if defined $was->{expires} && $was->{expires} < $after->{time} + SOON;
		}
		elsif ($was)
		{
			# the deadline is shown on a clock that is read anew each time; of a
			# transaction's lease that is over and still there, it is the reading's
			next if $was->{rest} eq $is->{rest}
			  && (is_over($before, $was) && is_over($after, $is)
				|| (defined $was->{expires} ? defined $is->{expires} && abs($was->{expires} - $is->{expires}) < 1 : !defined $is->{expires}));
		}
		push @changes, $was // $is;
	}
	return @changes;
}

sub is_over
{
	my ($reading, $row) = @_;
	return defined $row->{expires} && $row->{expires} < $reading->{time} + 1;
}

sub is_held
{
	my ($reading, $row) = @_;
	return !defined $row->{expires} || $row->{expires} > $reading->{time} + SOON;
}

# May a call whose time was up have changed a row?  If the server is slow, it may go on
# during later calls, and what it has taken is given back.
sub is_overtaken
{
	my ($self, $row) = @_;

	for my $call (@{ $self->{overtaken} })
	{
		my %is = map { $_->{kind} => $_ } @{ $call->{arguments} };
		my @names = $is{names} ? @{ $is{names}{list} // [undef] } : $is{name} ? ($is{name}{bytes}) : (undef);
		next if $is{owner} && ($is{owner}{bytes} // $row->{owner}) ne $row->{owner};
		return 1 if grep { ($_ // $row->{name}) eq $row->{name} } @names;
	}
	return 0;
}

# Judge a call.
#
#   function     its name
#   answer       what it must look like, see above
#   takes        is it one that acquires
#   touches      "name", "owner": what it may change the leases of; else nothing
#   arguments    the values, in their order, each with its "kind"
#   always       errors that it may raise whatever its arguments are
#   may          errors that it may raise if they are all good
#   number       of calls in the statement (0: it is not carried out)
#   overtaken    may its time be up when it has been answered already?
#   ends         what it takes is over when it is looked at
#   raw          are its strings as the client has sent them?
#   got          the answer: { error, message } or { value }; of an answer that is
#                names, with these as "rows"; claims are their tokens, {1,2}
#
# Returns what is wrong with it, if anything.
sub judge
{
	my ($self, $call, $before, $after) = @_;
	my @arguments = @{ $call->{arguments} };
	my $got = $call->{got};
	my @bad = grep { $_->{states} && @{ $_->{states} } } @arguments;
	my @unknown = grep { !$_->{states} } @arguments;
	my @changes = grep { !$self->is_overtaken($_) } changes($before, $after);
	my @wrong;

	$self->{calls}++;
	$self->{functions}{ $call->{function} }{ defined $got->{error} ? 'raised' : 'answered' }++;
	if (defined $got->{error})
	{
		my %may = map { $_ => 1 } @{ $call->{always} }, map { @{ $_->{states} } } @bad;
		if (!@bad)
		{
			$may{$_} = 1 for @{ $call->{may} };
		}
		$self->{errors}{ $got->{error} }++;
		push @wrong, 'this error is not for it' if !$may{ $got->{error} } && !(@unknown && $self->{unknown}{ $got->{error} });
		# of several calls the first may have been good
		my $overtaken = $call->{overtaken} && $got->{error} eq '57014';
		my $excused = !@bad && ($call->{number} > 1 || $overtaken);
		push @{ $self->{overtaken} }, $call if $overtaken;
		push @wrong, 'an error has changed the lease of ' . shown($_->{name}) for $excused ? () : @changes;
		return @wrong;
	}

	my $value = $got->{value};
	$self->{answers}{ defined $value ? 'not null' : 'null' }++;
	return map { 'what is not carried out has changed the lease of ' . shown($_->{name}) } @changes if $call->{number} == 0;
	push @wrong, 'it was answered, though this is wrong: ' . shown($_->{sql}) for @bad;
	my %is = map { $_->{kind} => $_ } @arguments;
	my @names = $is{names} ? @{ $is{names}{list} // [] } : $is{name} ? ($is{name}{bytes}) : ();
	my $known = (@names || $is{names} && $is{names}{list}) && !grep { !defined } @names;
	push @wrong, 'this is no answer' if !$answers{ $call->{answer} }->($value, $known && $is{names} ? scalar @names : undef, $call->{number});

	# what has changed is what was named
	my $touches = $call->{touches} // '';
	for my $row (@changes)
	{
		my $allowed =
			$touches eq 'name' ? !$known || grep { $_ eq $row->{name} } @names
		  : $touches eq 'owner' ? !defined $is{owner}{bytes} || $is{owner}{bytes} eq $row->{owner}
		  : 0;
		push @wrong, 'it has changed the lease of ' . shown($row->{owner}) . ' on ' . shown($row->{name}) if !$allowed;
	}
	# a name may have several holders
	my %changed = map { $_->{name} => 1 } @changes;
	push @wrong, 'the leases of ' . keys(%changed) . ' names have changed'
	  if $touches eq 'name' && !$known && !$is{names} && keys(%changed) > $call->{number};
	return @wrong if @wrong;

	# those for which something was done, each once and in the order of the list
	if ($call->{answer} eq 'names' && $known && $call->{raw} && $call->{number} == 1)
	{
		my @left = @names;
		for my $name (@{ $got->{rows} })
		{
			while (@left && $left[0] ne $name) { shift @left }
			push @wrong, shown($name) . ' was not next in the list' if !@left;
			shift @left;
		}
		$self->{told} += @{ $got->{rows} };
	}

	# the lease taken is there
	if ($call->{takes} && defined $value && !$call->{ends})
	{
		my @tokens = $is{names} ? tokens_of($value) : ($value);
		my $owner = $is{owner}{bytes};
		my $lasts = ($is{ttl}{seconds} // 0) > 2 * SOON;
		for my $i (0 .. $#tokens)
		{
			my %may_be = !$known ? () : map { $_ => 1 } $call->{answer} eq 'claimed' ? @names : $names[$i];
			my @rows = grep { $_->{token} eq $tokens[$i] && (!$known || $may_be{ $_->{name} }) } values %{ $after->{rows} };
			# several names may have the same token, and only one of them may have been taken
			@rows = grep { $_->{owner} eq $owner } @rows if $call->{answer} eq 'claimed' && defined $owner;
			push @wrong, "token $tokens[$i] is nowhere" if !@rows && $lasts;
			push @wrong, "token $tokens[$i] is there for " . shown($rows[0]{owner})
			  if @rows && defined $owner && !grep { $_->{owner} eq $owner } @rows;
			$self->{granted}++ if @rows && $known && defined $owner;
		}
	}
	# and a lease given back is not
	if ($call->{function} =~ /force_release$/ && $known && !$is{owner})
	{
		push @wrong, 'there is still a holder' if grep { $_->{name} eq $names[0] && is_held($after, $_) } values %{ $after->{rows} };
	}
	if ($call->{function} =~ /release_all$/ && defined $is{owner}{bytes})
	{
		push @wrong, 'there is still a lease'
		  if grep { $_->{owner} eq $is{owner}{bytes} && $_->{account} eq $call->{account} && !$_->{leaving} && is_held($after, $_) } values %{ $after->{rows} };
	}
	# one that was given back with effect later is, until then
	if ($call->{function} eq 'dlock_release_after' && $value && $value =~ /^t/ && $known && $call->{number} == 1 && defined $is{owner}{bytes})
	{
		my $lasts = ($is{after}{seconds} // 0) > 2 * SOON;
		my @rows = grep { $_->{name} eq $names[0] && $_->{owner} eq $is{owner}{bytes} } values %{ $after->{rows} };
		push @wrong, 'it is not there, or not left' if $lasts && !grep { $_->{leaving} } @rows;
		$self->{told}++;
	}
	# and the answer is true, if nothing is about to expire
	my @there = $known && @names ? grep { $_->{name} eq $names[0] } values %{ $after->{rows} } : ();
	if ($known && $call->{answer} ne 'anything' && !grep { !is_held($after, $_) } @there)
	{
		if ($call->{function} eq 'dlock_is_free')
		{
			push @wrong, 'this is not so' if ($value =~ /[t1]/ ? 1 : 0) != (@there ? 0 : 1);
			$self->{told}++;
		}
		if ($call->{function} eq 'dlock_owner' && defined $call->{account})
		{
			my ($holder) = grep { $_->{mode} =~ /^(1|exclusive)$/ } @there;
			my $is = $holder ? $call->{sees}->($holder) ? $holder->{owner} : '<insufficient privilege>' : undef;
			push @wrong, 'it is ' . shown($is) if $call->{raw} && ($value // "\0") ne ($is // "\0");
			$self->{told}++;
		}
	}
	return @wrong;
}

# What was not tried: see finish().
sub _lacking
{
	my ($self, %params) = @_;
	my @lacking;
	for my $function (@{ $params{functions} })
	{
		for my $what (qw(answered raised))
		{
			next if grep { $_ eq $function } @{ $params{"never_$what"} // [] };
			push @lacking, "$function has never $what" if !$self->{functions}{$function}{$what};
		}
	}
	push @lacking, "error $_" for grep { !$self->{errors}{$_} } @{ $params{errors} };
	push @lacking, 'grants that were read back' if !$self->{granted};
	push @lacking, 'answers that were compared' if !$self->{told};
	return @lacking;
}

# Report what was done, and check that it was enough to prove something: all functions
# both answered and raised, except those declared never to; all errors named were met;
# grants were read back.
sub finish
{
	my ($self, %params) = @_;
	my $tries_all = !$ENV{HOSTILE_ROUNDS} && !$self->{wrong};
	my @lacking = $self->_lacking(%params);
	# what is drawn seldom may take some more rounds
	for (1 .. 10)
	{
		last if !@lacking || !$tries_all || $self->{until};
		$self->{left}++;
		$self->play($self->{code});
		@lacking = $self->_lacking(%params);
	}
	is(join(', ', @lacking), '', 'everything was tried') if $tries_all;

	note(join(', ', map { my $f = $_; map { "$f $_ " . ($self->{functions}{$f}{$_} // 0) } qw(answered raised) } @{ $params{functions} }));
	my $text = join("\n",
		"$self->{name}: $self->{done} rounds, $self->{calls} calls, of which " . ($self->{answers}{'not null'} // 0) . ' were answered, '
		  . ($self->{answers}{null} // 0) . ' with NULL, ' . ($self->{granted} // 0) . ' grants read back',
		'errors: ' . join(', ', map { "$_ $self->{errors}{$_} times" } sort keys %{ $self->{errors} }));
	$ENV{TORTURE_MINUTES} || $ENV{HOSTILE_ROUNDS} ? diag($text) : note($text);
	return;
}

1;
