# Hostile calls of the SQL functions, of every kind: the server goes on, each call
# answers as the manual says or raises an expected error, bad input changes nothing,
# and a granted lease is held under exactly that name and owner.  This includes the
# functions behind the views and procedures, which every account can call.
# ../Hostile.pm says how; the kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Encode ();
use Engines;
use Hostile qw(chance one_of shown value);
use JSON::PP;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Wire;

my ($kind) = @ARGV;
my $is_mysql = $kind eq 'mysql';
my $calls_per_round = 250;

# A wait that is drawn may be without limit: it is cut short.
my $timeout_ms = 30;

# Nothing is lost here, and the disk need not be waited for.
my $engine = Engines::start($kind, '--innodb-flush-log-at-trx-commit=0', '--sync-binlog=0');
my $pid = $engine->pid;
$engine->control->value(q{UPDATE dlock.settings SET value = '0.5' WHERE name = 'lock_timeout'});
$engine->control->value(q{UPDATE dlock.settings SET value = '0' WHERE name = 'log_expired'});

# max_ttl is left at one day
%Hostile::longest_us = (ttl => 86400e6, wait => 86400e6);

# Columns of all types, to be called with.
$engine->control->value(q{
	CREATE TABLE scenarios.t (c_text TEXT, c_char CHAR(10), c_latin1 VARCHAR(300) CHARACTER SET latin1,
		c_ucs2 VARCHAR(300) CHARACTER SET ucs2, c_blob LONGBLOB, c_bytes VARBINARY(10), c_int INT, c_decimal DECIMAL(65, 30),
		c_double DOUBLE, c_date DATE, c_time TIME, c_year YEAR, c_bit BIT(8), c_enum ENUM('a', 'b'), c_json JSON, c_null VARCHAR(10),
		c_point POINT) CHARACTER SET utf8mb4;
	INSERT INTO scenarios.t VALUES ('abc ', 'abc', _latin1 x'636166e9', '60', REPEAT('x', 300000), x'00ff', 60, 60.5, 1e308, '2026-01-01',
		'00:01:00', 2026, b'00110101', 'b', '["a", "b"]', NULL, ST_GeomFromText('POINT(1 1)'))});

# A lease is lost, the parts of dlock.guard say when they are called by themselves: only
# dlock.guard gives that its SQLSTATE on MariaDB.
my @lost = ('55L01', $is_mysql ? () : '1644 HY000');

# Those of both kinds of server, and those of this one.
my @functions = (
	grep({ $_->[0] ne 'dlock_release' } @Hostile::functions),
	[ 'dlock_release', [qw(name owner token holds)], 2, 'boolean or null', touches => 'name' ],
	[ 'dlock_acquire_permits', [qw(name owner ttl limit permits wait request)], 5, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_any', [qw(any_names owner ttl count wait request)], 4, 'claimed', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_session_shared', [qw(name owner ttl wait)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_renew_many', [qw(any_names owner ttl tokens)], 3, 'names', touches => 'name' ],
	[ 'dlock_release_many', [qw(any_names owner tokens)], 2, 'names', touches => 'name' ],
	[ 'dlock_downgrade', [qw(name owner token)], 2, 'boolean or null', touches => 'name', may => ['55000'] ],
	[ 'dlock_remaining', [qw(name owner token)], 2, 'anything' ],
	[ 'CALL dlock.guard', [qw(name owner given_token)], 3, 'null', may => [qw(55000 55L01 25P01 25006)] ],
	[ 'dlock_holders', [qw(name)], 1, 'holders' ],
	[ 'dlock_version', [], 0, 'text' ],
	# for the views and procedures
	[ 'dlock_os_user', [], 0, 'text' ],
	[ 'dlock_settle', [], 0, 'boolean' ],
	[ 'dlock_reload', [], 0, 'boolean', operators => 1 ],
	[ 'dlock_drain', [], 0, 'boolean' ],
	[ 'dlock_reader', [], 0, 'text' ],
	[ 'dlock_unwritten', [], 0, 'json', may => ['42501'] ],
	[ 'dlock_view_waiters', [], 0, 'json', may => ['42501'] ],
	[ 'dlock_view_stats', [], 0, 'json', may => ['42501'] ],
	[ 'dlock_guard_begin', [qw(name owner given_token)], 3, 'boolean', may => [ qw(55000 25P01), @lost ] ],
	[ 'dlock_guard_ticket', [qw(name given_token)], 2, 'anything', may => [@lost] ],
	[ 'dlock_guard_check', [qw(name owner given_token rows)], 4, 'boolean', may => [ '55000', @lost ] ],
	[ 'dlock_guard_lost', [], 0, 'boolean' ],
	[ 'CALL dlock.guard_row', [qw(name given_token variable)], 3, 'null', may => [ '25006', @lost ] ]);

# Errors of the server's own, by number and SQLSTATE, which are the same on both
# unless it is said.
my $operand = '1241 21000';     # a row where a value is wanted
my $rows = '1242 21000';        # a query of more than one row
my $characters = '1300 HY000';  # bytes that are not characters of their set; the server has no better SQLSTATE for it
my $conversion = '3854 HY000';  # characters that cannot be converted, MySQL; the same
my $double = '1367 22007';      # a number beyond a double
my @of_procedures = (           # arguments that are not of the procedure's types
	'1406 22001', '1264 22003', '1366 HY000', '1366 22007', '1265 01000', '3156 22018', '22007');

my $hostile = Hostile->new(
	name => ($is_mysql ? 'MySQL ' : 'MariaDB ') . $engine->control->value('SELECT version()'),
	rounds => 8,
	unknown => { map { $_ => 1 } qw(22004 22007 22023), $characters, $conversion, $double });

# ----------------------------------------------------------------------
# What the session is like in which a round is played
# ----------------------------------------------------------------------

my ($client, $control, %round);

# The names and owners that most calls use, as bytes.
my (@names, @owners);

sub good_text
{
	my ($length) = @_;
	my $style = rand;
	return $style < 0.4 ? Hostile::ascii_text($length)
	  : $style < 0.7 ? Hostile::bytes_from($length, 0, 255)
	  : $style < 0.75 ? "\0" x $length
	  : Hostile::utf8_text($length);
}

sub begin_round
{
	%round = (
		charset => one_of(qw(utf8mb4 utf8mb4 latin1 binary utf8mb3)),
		user => one_of('tester', 'tester', 'root'),
		mode => one_of(q{@@sql_mode}, q{@@sql_mode}, q{''}, q{'ANSI'}, q{'NO_BACKSLASH_ESCAPES'}, q{'TRADITIONAL'}, q{'STRICT_ALL_TABLES,PIPES_AS_CONCAT'}));
	$client = Wire::MySQL->new(path => "$engine->{dir}/socket", user => $round{user}, database => 'scenarios');
	$control = Wire::MySQL->new(path => "$engine->{dir}/socket", user => 'root', database => 'dlock');
	# names and owners come as they are
	$control->value('SET NAMES binary');
	$client->value("SET NAMES $round{charset}");
	$client->value("SET sql_mode = $round{mode}");
	$round{account} = $client->value('SELECT convert(current_user() USING utf8mb4)');
	@names = map { good_text(Hostile::good_length()) } 1 .. 8;
	@owners = map { good_text(Hostile::good_length()) } 1 .. 3;
	# somebody else has two of them
	$client->value('SELECT dlock_acquire(' . hex_of($_) . q{, 'somebody else', 1000)}) for @names[ 0, 1 ];
	return;
}

# What is in the lock table, after what was answered has been written to it.
sub reading
{
	my $answer = $control->query(q{SELECT l.name, l.owner, concat(l.account_user, '@', l.account_host), l.mode, l.version, l.token, l.request,
			l.kind, l.ttl_us, l.expires_us
		FROM (SELECT dlock_settle() AS settled) AS s STRAIGHT_JOIN dlock.lease_table AS l WHERE s.settled = 1})
	  // die "the server has ended the session: $control->{lost}\n";
	die "$answer->{number} $answer->{error}: $answer->{message}\n" if defined $answer->{error};
	return Hostile::reading_of(map {
		my ($name, $owner, $account, $mode, undef, $token, undef, $life) = @$_;
		my $expires = pop(@$_) / 1e6;
		my $rest = join('|', map { unpack('H*', $_) } @$_);
		# a session's lease is written anew again and again
		{ name => $name, owner => $owner, account => $account, mode => $mode, token => $token, rest => $rest,
			expires => $life == 2 ? undef : $expires }
	} @{ $answer->{rows} });
}

# ----------------------------------------------------------------------
# Values
# ----------------------------------------------------------------------

sub hex_of
{
	my ($bytes) = @_;
	return q{x'} . unpack('H*', $bytes) . q{'};
}

# Text as it is, between quotes; NO_BACKSLASH_ESCAPES may be in force.
sub quoted
{
	my ($bytes) = @_;
	return q{'} . $bytes =~ s/'/''/gr . q{'};
}

# Could it stand between quotes whatever is in force?
sub is_plain { return $_[0] !~ /[\\\0\x1A]/ }

# What a function makes of text in a character set: MySQL converts it to UTF-8.
# undef: nobody can say.
sub received
{
	my ($bytes, $charset) = @_;
	return $bytes if $charset eq 'binary';
	my $size = { ucs2 => 2, utf16 => 2, utf32 => 4 }->{$charset} // 1;
	return undef if length($bytes) % $size;
	return $bytes if !$is_mysql;
	return Hostile::is_utf8($bytes) ? $bytes : undef if $charset =~ /^utf8mb4$/;
	return Hostile::is_utf8($bytes) && $bytes !~ /[\xF0-\xFF]/ ? $bytes : undef if $charset eq 'utf8mb3';
	# latin1 is Windows' here
	return undef if $charset eq 'latin1' && $bytes =~ /[\x80-\x9F]/;
	return join('', map { Hostile::utf8_of($_) } unpack('C*', $bytes)) if $charset eq 'latin1';
	my @codes = unpack($size == 4 ? 'N*' : 'n*', $bytes);
	return undef if grep { $_ >= 0xD800 && $_ < 0xE000 || $_ > 0x10FFFF } @codes;
	return join('', map { Hostile::utf8_of($_) } @codes);
}

# A string, as good or bad as its length is.
sub string_of
{
	my ($sql, $bytes, %more) = @_;
	return value($sql, undef, %more) if !defined $bytes;
	return value($sql, length $bytes >= 1 && length $bytes <= 255 ? [] : ['22023'], bytes => $bytes, %more);
}

my @nulls = ('NULL', 'NULL', '(SELECT NULL)', q{NULLIF('a', 'a')}, '@nothing', 'CAST(NULL AS CHAR)', 'NULL + 1', 't.c_null');

sub parameter
{
	my ($type, $value, %more) = @_;
	return { type => $type, value => $value, %more };
}

# The types of parameters.
my ($of_double, $of_null, $of_bigint, $of_decimal, $of_blob, $of_string) = (5, 6, 8, 246, 252, 254);

sub string_value
{
	my ($what, $want_good) = @_;

	if (!$want_good)
	{
		my $dice = rand;
		return value(one_of(@nulls), $what =~ /^(request|string|rows)$/ ? [] : ['22004'], parameter => parameter($of_null, undef)) if $dice < 0.15;
		return value('ROW(1, 2)', [ $operand, '4078 HY000' ]) if $dice < 0.2;
		return value(q{(SELECT 'x' UNION ALL SELECT 'y')}, [$rows]) if $dice < 0.23;
		return value(one_of(q{REPEAT('x', 256)}, 'SPACE(1000)', q{REPEAT('x', 1000000)}, 't.c_blob', q{''}, q{x''}, q{TRIM(' ')}), ['22023']) if $dice < 0.35;
		if ($dice < 0.6)
		{
			# text in a character set, or what is none
			my $charset = one_of(qw(utf8mb4 latin1 ucs2 utf16 utf32 binary));
			my $length = Hostile::good_length();
			my $bytes = $charset eq 'utf8mb4' ? one_of(Hostile::broken_utf8($length), Hostile::utf8_text($length)) : Hostile::bytes_from($length, 0, 255);
			my $value = string_of("_$charset " . hex_of($bytes), received($bytes, $charset));
			# MariaDB looks at it too
			$value->{states} = undef if $charset !~ /^(binary|latin1)$/;
			return $value;
		}
		if ($dice < 0.7)
		{
			my $bytes = Hostile::bytes_from(Hostile::good_length(), 1, 255);
			return string_value($what, 0) if !is_plain($bytes);
			my $value = string_of(quoted($bytes), received($bytes, $round{charset}));
			# it may be refused, or become something else
			$value = value($value->{sql}, undef) if $round{charset} =~ /^utf8/ && !Hostile::is_utf8($bytes);
			return $value;
		}
		# whatever they are
		return value(one_of(q{JSON_OBJECT(_utf8mb4'a', 1)}, q{ST_GeomFromText('POINT(1 1)')}, 'UUID()', 'NOW(6)', 'RAND()', 'PI()', 'USER()', 't.c_json', 't.c_point',
			't.c_bit', 't.c_double', q{CAST('abc' AS CHAR CHARACTER SET ucs2)}, '1/0', '~0', q{'a' > 'b'}, q{_utf8mb4'a' COLLATE utf8mb4_bin}), undef) if $dice < 0.75;
		my $bytes = good_text(Hostile::bad_length());
		return value(one_of(hex_of($bytes), '_binary ' . hex_of($bytes), q{UNHEX('} . unpack('H*', $bytes) . q{')}), ['22023'],
			bytes => $bytes, parameter => parameter($of_blob, $bytes));
	}

	return value('NULL', [], parameter => parameter($of_null, undef)) if $what =~ /^(request|string)$/ && chance(0.3);
	if (chance(0.15))
	{
		my ($sql, $bytes) = @{ one_of([ '12345', '12345' ], [ '1.50', '1.50' ], [ '-7', '-7' ], [ 'TRUE', '1' ], [ '18446744073709551615', '18446744073709551615' ],
			[ q{DATE'2026-01-01'}, '2026-01-01' ], [ q{b'01000001'}, 'A' ], [ q{REPEAT('x', 255)}, 'x' x 255 ], [ q{CONCAT('a', 'b')}, 'ab' ],
			[ q{'abc '}, 'abc ' ], [ q{CAST('abc' AS CHAR(2))}, 'ab' ], [ q{(SELECT 'abc')}, 'abc' ], [ q{N'abc'}, 'abc' ], [ q{_utf8mb4'abc'}, 'abc' ],
			[ q{0x4142}, 'AB' ], [ 't.c_text', 'abc ' ], [ 't.c_char', 'abc' ], [ 't.c_bytes', "\0\xFF" ], [ 't.c_int', '60' ], [ 't.c_enum', 'b' ],
			[ 't.c_date', '2026-01-01' ], [ 't.c_latin1', $is_mysql ? "caf\xC3\xA9" : "caf\xE9" ], [ 't.c_year', '2026' ],
			[ 't.c_ucs2', $is_mysql ? '60' : "\0006\0000" ], [ q{_latin1 x'e9'}, $is_mysql ? "\xC3\xA9" : "\xE9" ],
			[ q{CONVERT(_utf8mb4'60' USING ucs2)}, $is_mysql ? '60' : "\0006\0000" ], [ q{CONVERT(_latin1 x'e9' USING utf8mb4)}, "\xC3\xA9" ]) };
		return value($sql, [], bytes => $bytes);
	}
	my $bytes =
		$what eq 'name' && chance(0.8) ? one_of(@names)
	  : $what eq 'owner' && chance(0.9) ? one_of(@owners)
	  : $what eq 'request' && chance(0.7) ? 'request'
	  : good_text(Hostile::good_length());
	my @ways = (hex_of($bytes), '_binary ' . hex_of($bytes), q{UNHEX('} . unpack('H*', $bytes) . q{')}, 'CAST(' . hex_of($bytes) . ' AS BINARY)');
	push @ways, '_utf8mb4 ' . hex_of($bytes), 'CONVERT(' . hex_of($bytes) . ' USING utf8mb4)' if Hostile::is_utf8($bytes);
	push @ways, quoted($bytes), quoted($bytes) if is_plain($bytes) && ($bytes !~ /[\x80-\xFF]/ || $round{charset} eq 'utf8mb4' && Hostile::is_utf8($bytes));
	my $as_text = $bytes !~ /[\x80-\xFF]/ || $round{charset} eq 'utf8mb4' && Hostile::is_utf8($bytes);
	return value(one_of(@ways), [], bytes => $bytes,
		parameter => parameter($as_text && chance(0.7) ? $of_string : $of_blob, $bytes));
}

# Not text, or not plain: how it is written, how many seconds, or why it is none.
my @typed_times = (
	[ 'TRUE', 1 ], [ 'FALSE', 0 ], [ '60e0', 60 ], [ 'CAST(60 AS DECIMAL(65, 30))', 60 ], [ 'CAST(60 AS UNSIGNED)', 60 ], [ '-0e0', 0 ], [ '1e308', 'range' ],
	[ '-1e308', 'range' ], [ '1e-308', 0 ], [ '18446744073709551615', 'range' ], [ '~0', 'range' ], [ '60 + 0.5', 60.5 ], [ q{TIME'00:01:00'}, 60 ],
	[ q{DATE'2026-01-01'}, 'syntax' ], [ q{TIMESTAMP'2026-01-01 00:00:00'}, 'syntax' ], [ q{b'1'}, 'syntax' ], [ q{x'3630'}, 60 ], [ q{x'363000'}, 'syntax' ],
	[ q{x'00'}, 'syntax' ], [ q{x'ff'}, 'syntax' ], [ q{JSON_ARRAY(60)}, 'syntax' ], [ q{JSON_OBJECT(_utf8mb4'a', 60)}, 'syntax' ], [ 't.c_int', 60 ], [ 't.c_decimal', 60.5 ],
	[ 't.c_double', 'range' ], [ 't.c_time', 60 ], [ 't.c_date', 'syntax' ], [ 't.c_blob', 'syntax' ], [ 't.c_ucs2', $is_mysql ? 60 : 'syntax' ],
	[ '(SELECT 60)', 60 ], [ q{_latin1'60'}, 60 ], [ q{_ucs2 x'00360030'}, $is_mysql ? 60 : 'syntax' ], [ q{_utf32 x'0000003600000030'}, $is_mysql ? 60 : 'syntax' ],
	[ 't.c_year', 2026 ], [ q{ST_GeomFromText('POINT(1 1)')}, 'syntax' ], [ q{CONCAT(6, 0)}, 60 ], [ q{REPEAT('9', 1000000)}, 'range' ],
	[ q{CONCAT('0.', REPEAT('0', 1000000), '1')}, 0 ], [ q{CONCAT(REPEAT(' ', 1000000), '60')}, 60 ], [ q{REPEAT('1 s ', 100000)}, 'syntax' ]);
my %time_states = (syntax => ['22007'], infinite => ['22023'], range => ['22023'], interval => ['22023']);

# What is so many seconds, or is none.
sub time_of
{
	my ($sql, $what, $is, %more) = @_;
	return Hostile::timed($sql, $what, $is, \%time_states, %more);
}

sub time_value
{
	my ($what, $want_good) = @_;

	if (!$want_good)
	{
		return value(one_of(@nulls), ['22004'], parameter => parameter($of_null, undef)) if chance(0.1);
		return value('ROW(60, 60)', [ $operand, '4078 HY000' ]) if chance(0.03);
		if (chance(0.1))
		{
			# a number as such
			my $number = one_of(0, 1, -1, 60, 1e300, -1e300, 1e-300, 9**9**9, -9**9**9, 1e12, 0.25);
			my $is = abs($number) == 9**9**9 ? undef : abs($number) > 1e13 ? 'range' : $number;
			return time_of('60', $what, undef, parameter => parameter($of_double, $number), parameter_is => $is);
		}
	}
	if (chance(0.3))
	{
		while (1)
		{
			my ($sql, $is) = @{ one_of(@typed_times) };
			next if $what eq 'wait' && $want_good && $is =~ /^[-\d]/ && $is != 0 && chance(0.85);
			my $value = time_of($sql, $what, $is);
			return $value if !$want_good || !@{ $value->{states} };
		}
	}
	my ($text, $is) = Hostile::time_text($what, $want_good);
	my $dice = rand;
	if ($dice < 0.4 && defined $is && length $text < 60 && $text =~ /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?$/)
	{
		# the server reads it before we do
		return value($text, undef) if $text =~ /e-?(\d+)/ && $1 > 300;
		return time_of($text, $what, $is, parameter => parameter($text =~ /e/i ? $of_string : $of_decimal, $text));
	}
	my $sql = $dice < 0.7 && is_plain($text) && $text !~ /[\x80-\xFF]/ ? quoted($text) : chance(0.5) ? hex_of($text) : '_utf8mb4 ' . hex_of($text);
	return time_of($sql, $what, $is, $text =~ /[\x80-\xFF]/ ? () : (parameter => parameter($of_string, $text)));
}

my %integers = (
	# never more than any limit
	permits => [ '1', q{'1'}, '1.0', 'TRUE', q{x'31'} ],
	limit => [ '1', '2', '100', '2147483647', q{'5'}, '5.0', q{'7.000'}, '1e2', q{'1e2'}, 'TRUE', q{'+7'}, 'CAST(7 AS UNSIGNED)', q{x'35'}, 't.c_int' ],
	token => [ '0', '1', '-1', '9007199254740991', '9223372036854775807', '-9223372036854775808', '18446744073709551615', q{'9223372036854775808'}, q{'12.0'},
		'1e3', 'FALSE', q{'-9223372036854775809'}, '99999999999999999999999999999999999999999999999999999999999', 't.c_int', q{x'35'} ]);
my @no_integers = (
	'1.5', q{'abc'}, q{''}, q{' 5'}, q{'5 '}, q{'NaN'}, q{'--1'}, q{'1e'}, q{'.'}, q{'+'}, q{'0x10'}, '1e308', '-1e308', '1e-5', q{DATE'2026-01-01'}, q{JSON_ARRAY(5)},
	q{x'00'}, q{x'ff'}, q{x'3500'}, q{REPEAT('1', 64)}, q{REPEAT('1', 1000000)}, 't.c_decimal', 't.c_blob', 't.c_time', q{'1.2.3'}, q{'5e5e5'});
my @no_limits = ('0', '-1', '-2147483648', '2147483648', '4294967296', '9223372036854775807', '18446744073709551615', q{'-0'}, 'FALSE', '4294967297');

sub integer_value
{
	my ($what, $want_good) = @_;

	if (!$want_good)
	{
		return value(one_of(@nulls), $what eq 'token' ? [] : ['22004'], parameter => parameter($of_null, undef)) if chance(0.2);
		return value(one_of(@no_limits), ['22023']) if $what !~ /token$/ && chance(0.5);
		return value('2147483647', undef) if $what eq 'permits' && chance(0.3);
		return value(one_of(@no_integers), ['22023']);
	}
	return value('NULL', []) if $what eq 'token' && chance(0.3);
	my @tokens = $what !~ /token$/ ? () : map { $_->{token} } values %{ $round{before}{rows} };
	if (@tokens && chance(0.7))
	{
		my $token = one_of(sort @tokens);
		return value(one_of($token, quoted($token)), [], parameter => parameter(@{ one_of([ $of_bigint, $token ], [ $of_string, $token ], [ $of_decimal, $token ]) }));
	}
	my $sql = one_of(@{ $integers{ $what eq 'permits' ? 'permits' : $what =~ /token$/ ? 'token' : 'limit' } });
	return value($sql, [], $sql =~ /^-?\d{1,18}$/ ? (parameter => parameter($of_bigint, $sql)) : ());
}

# A JSON string, some of its characters escaped.
sub json_string
{
	my ($bytes) = @_;
	my $text = $bytes =~ s/(["\\])/\\$1/gr;
	$text =~ s/([\x00-\x1F])/sprintf('\\u%04x', ord $1)/ge;
	$text =~ s/([A-Za-z\/])/$1 eq '\/' ? '\\\/' : sprintf(one_of('\\u%04x', '\\u%04X'), ord $1)/ge if chance(0.2) && $text !~ /\\/;
	if (chance(0.3) && Hostile::is_utf8($bytes) && $text !~ /\\/)
	{
		utf8::decode(my $characters = $text);
		$characters =~ s/([^\x00-\x{FFFF}])/sprintf('\\u%04x\\u%04x', 0xD800 + (ord($1) - 0x10000 >> 10), 0xDC00 + (ord($1) & 0x3FF))/ge;
		$characters =~ s/([^\x00-\x7F])/sprintf('\\u%04x', ord $1)/ge;
		$text = $characters;
		utf8::encode($text);
	}
	return qq{"$text"};
}

# What is no list of names.
my @no_lists = (
	'', ' ', '[]', '[ ]', '{}', 'null', '"a"', '[1]', '[true]', '[["a"]]', '[{"a": 1}]', '["a"', '["a",]', '[,"a"]', q{['a']}, '["a"]x', '["a"] []',
	'["a","a"]', '["a","\u0061"]', '["a",""]', '[""]', '["\ud800"]', '["\udc00"]', '["\ud800\u0061"]', '["\ud800\ud800"]', '["\u12"]', '["\u12', '["\x41"]',
	'["\u"]', '["\\', '["', '[', ']', '[n', '[nul]', '[nullx]', '[NULL]', qq{["a\nb"]}, qq{["a"\0]}, qq{["a"]\0}, qq{\xEF\xBB\xBF["a"]}, qq{["\x00"]}, '[/**/"a"]',
	'[' x 100_000, '[' x 100_000 . ']' x 100_000, '["' . 'x' x 256 . '"]', '["' . 'x' x 300_000 . '"]', '["' . '\u0061' x 256 . '"]',
	'[' . join(',', map { qq{"n$_"} } 1 .. 101) . ']', '[' . join(',', map { qq{"n$_"} } 1 .. 20_000) . ']', '[' . 'null,' x 20_000,
	'["' . '\\\\' x 256 . '"]', '{"a": ["b"]}', '["a" "b"]', '["a",,"b"]', '[-]', '["a"]]');

# Those that are lists for a call that takes any number of names.
my %any_lists = map { $_ => 1 } '[]', '[ ]', grep { /^\["n1","n2".*"n101"\]$/ } @no_lists;

# A list of names: 1 to 100, or any up to 1,000.
sub names_value
{
	my ($any, $want_good) = @_;

	if (!$want_good)
	{
		my $dice = rand;
		return value(one_of(@nulls), ['22004'], parameter => parameter($of_null, undef)) if $dice < 0.1;
		return value('ROW(1, 2)', [ $operand, '4078 HY000' ]) if $dice < 0.13;
		my $nulls = one_of('[null]', '["a",null]', '[null,"a"]', '["a", null, "a"]');
		return value(hex_of($nulls), ['22004'], parameter => parameter($of_string, $nulls)) if $dice < 0.25;
		my $text = chance(0.02) ? Hostile::bytes_from(1 + int rand 300, 0, 255) : one_of(grep { !$any || !$any_lists{$_} } @no_lists);
		return value(hex_of($text), ['22023'], parameter => parameter($of_blob, $text)) if $dice < 0.9;
		return value(one_of('1', '1.5', q{DATE'2026-01-01'}, q{JSON_OBJECT(_utf8mb4'a', 1)}, q{ST_GeomFromText('POINT(1 1)')}, q{JSON_ARRAY(JSON_ARRAY(_utf8mb4'a'))}, 't.c_int', 't.c_blob',
			q{_ucs2 x'005b'}), ['22023']);
	}
	return value(one_of(q{JSON_ARRAY(_utf8mb4'a', _utf8mb4'b')}, 't.c_json', q{'["a", "b"]'}), [], list => [ 'a', 'b' ])
	  if chance(0.2);
	return value(q{'[]'}, [], list => []) if $any && chance(0.03);
	my @list = chance(0.05) ? map { "n$_" } 1 .. ($any && chance(0.3) ? 1000 : 100) : map { one_of(@names) } 1 .. 1 + rand 4;
	push @list, good_text(Hostile::good_length()) if @list < 100 && chance(0.3);
	my %seen;
	@list = grep { !$seen{$_}++ } @list;
	my $space = one_of('', '', ' ', "\n\t ");
	my $text = "$space\[$space" . join("$space,$space", map { json_string($_) } @list) . "$space]$space";
	my $sql = chance(0.3) && Hostile::is_utf8($text) ? '_utf8mb4 ' . hex_of($text) : hex_of($text);
	my $as_text = $text !~ /[\x80-\xFF]/ || $round{charset} eq 'utf8mb4' && Hostile::is_utf8($text);
	return value($sql, [], list => \@list, parameter => parameter($as_text && chance(0.5) ? $of_string : $of_blob, $text));
}

# Tokens, or nulls, for so many names.
sub tokens_value
{
	my ($want_good, $count) = @_;

	return value('NULL', [], parameter => parameter($of_null, undef)) if chance(0.2);
	my @tokens = map { $_->{token} } values %{ $round{before}{rows} };
	my @list = map { @tokens && chance(0.6) ? one_of(@tokens) : one_of(qw(null null 1 0 -1 9007199254740991 12.0 1e3 "1" "12.0")) } 1 .. $count;
	if (!$want_good)
	{
		return value('ROW(1, 2)', [ $operand, '4078 HY000' ]) if chance(0.05);
		my $text = chance(0.5) ? one_of('', ' ', '{}', '1', 'null', '[1', '["1', '["1 "]', '[""]', '["xnull]', '[""null]', '["1null]', '["1"2]', '["\u0031"]', '[[1]]', '[true]', '[1.5]', '[-]', '[1e]', '[1,]', '[nullx]', '[NULL]', '[1]x',
			'[' x 100_000, '[' . '1' x 300_000 . ']', "[1\0]") : '[' . join(',', @list, 1) . ']';
		return value(hex_of($text), ['22023'], parameter => parameter($of_blob, $text));
	}
	my $space = one_of('', '', ' ', "\n\t ");
	my $text = "$space\[$space" . join("$space,$space", @list) . "$space]$space";
	return value(one_of(hex_of($text), "_utf8mb4 " . hex_of($text)), [], parameter => parameter($of_string, $text));
}

# "before" are the arguments before it.
sub argument
{
	my ($what, $want_good, @before) = @_;
	my ($list) = map { $_->{list} } grep { $_->{kind} eq 'names' } @before;
	my $value =
		$what =~ /^(name|owner|request)$/ ? string_value($what, $want_good)
	  : $what =~ /^(ttl|wait)$/ ? time_value($what, $want_good)
	  : $what =~ /^(any_)?names$/ ? names_value($what ne 'names', $want_good)
	  : $what eq 'tokens' ? tokens_value($want_good, scalar @{ $list // [1] })
	  : $what =~ /^(limit|permits|holds|count|token|given_token)$/ ? integer_value($what, $want_good)
	  : $what eq 'variable' ? value('@changed', [])
	  : string_value($what, $want_good);
	# these two take any string
	$value->{states} = [] if $what =~ /^(string|rows)$/ && $value->{states} && grep { /^220/ } @{ $value->{states} };
	# how many names there are, nobody can say; a row is one all the same
	$value->{states} = undef if $what eq 'tokens' && !$list && !grep { $_ eq $operand } @{ $value->{states} // [] };
	$value->{kind} = $what eq 'given_token' ? 'token' : $what =~ s/^any_//r;
	return $value;
}

# ----------------------------------------------------------------------
# Ways to call
# ----------------------------------------------------------------------

my @ways = (
	{ way => 'plain', weight => 10 },
	{ way => 'parameters', weight => 8 },
	{ way => 'columns', weight => 3 },
	{ way => 'thrice', weight => 1, number => 3 },
	{ way => 'explain', weight => 1, number => 0 },
	{ way => 'variables', weight => 2 },
	{ way => 'set', weight => 2 },
	{ way => 'prepared', weight => 2 },
	{ way => 'transaction', weight => 5, begin => ['BEGIN'], end => [ 'COMMIT', 'ROLLBACK' ] },
	{ way => 'isolated', weight => 1, begin => [ 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', 'BEGIN' ], end => ['COMMIT'] },
	{ way => 'read only', weight => 1, begin => ['START TRANSACTION READ ONLY'], end => ['COMMIT'] },
	{ way => 'savepoint', weight => 2, begin => [ 'BEGIN', 'SAVEPOINT s' ], end => [ 'ROLLBACK TO s', 'RELEASE SAVEPOINT s' ] });
my @weighed_ways = map { ($_) x $_->{weight} } @ways;

# Let a call that may name a token be about a lease that there is, as a client
# would.
sub aim
{
	my ($arguments) = @_;
	my %is = map { $_->{kind} => $_ } @$arguments;
	return if !($is{name} && $is{token}) && !($is{names} && $is{owner});
	my @leases = sort { $a->{token} <=> $b->{token} } grep { $_->{account} eq $round{account} } values %{ $round{before}{rows} };
	return if !@leases;
	my $lease = one_of(@leases);
	if ($is{names})
	{
		my %seen;
		my @some = grep { $_->{owner} eq $lease->{owner} && !$seen{ $_->{name} }++ } @leases;
		$#some = 9 if @some > 10;
		my $names = '[' . join(', ', map { json_string($_->{name}) } @some) . ']';
		%{ $is{names} } = (kind => 'names', %{ value(hex_of($names), [], list => [ map { $_->{name} } @some ]) });
		%{ $is{owner} } = (kind => 'owner', %{ value(hex_of($lease->{owner}), [], bytes => $lease->{owner}) });
		my $tokens = '[' . join(', ', map { chance(0.2) ? 'null' : $_->{token} } @some) . ']';
		%{ $is{tokens} } = (kind => 'tokens', %{ value(hex_of($tokens), []) }) if $is{tokens};
		return;
	}
	for my $what (grep { $is{$_} } qw(name owner))
	{
		%{ $is{$what} } = (kind => $what, %{ value(hex_of($lease->{$what}), [], bytes => $lease->{$what}) });
	}
	%{ $is{token} } = (kind => 'token', %{ value($lease->{token}, []) }) if chance(0.8);
	%{ $is{rows} } = (kind => 'rows', %{ value('1', []) }) if $is{rows} && chance(0.8);
	return;
}

# What is wrong with arguments of which each is good: a value to go with them, or none.
sub together
{
	my ($function, @arguments) = @_;
	my %is = map { $_->{kind} => $_ } @arguments;

	return if $function ne 'dlock_acquire_any' || !$is{wait} || $is{names}{list} && @{ $is{names}{list} } <= 100;
	return value('a wait for many names', undef, kind => 'call');
}

sub make_call
{
	my ($function, $parameters, $least, $answer, %more) = @{ one_of(@functions) };
	$round{before} //= reading();
	my $badness = one_of(0, 0, 0, 0.25, 0.25, 0.7);
	my $count = $least + int rand(1 + @$parameters - $least);
	my @arguments;
	push @arguments, argument($_, !chance($badness), @arguments) for @$parameters[ 0 .. $count - 1 ];
	push @arguments, together($function, @arguments);
	aim(\@arguments) if chance(0.5);
	# a guard makes sense in a transaction only
	my $way = one_of($function =~ /guard/ && chance(0.4) ? grep({ $_->{way} eq 'transaction' } @ways) : @weighed_ways);
	my $is_procedure = $function =~ /^CALL /;
	my ($wait) = grep { $_->{kind} eq 'wait' } @arguments;
	my $waits = $wait && !(defined $wait->{seconds} && abs($wait->{seconds}) < 0.0000005);
	$way = $ways[0] if $is_procedure && $way->{way} =~ /^(columns|thrice|explain|set)$/ || $waits && $way->{way} =~ /^(set)$/;
	my %call = (%more, function => $function, answer => $answer, arguments => \@arguments, number => $way->{number} // 1, way => $way,
		always => [], may => [ @{ $more{may} // [] } ], waits => $waits, is_procedure => $is_procedure);
	push @{ $call{always} }, '42501' if $more{operators} && $round{user} eq 'tester';
	# a claim leaves alone what its caller has in another way
	push @{ $call{may} }, '55000' if $more{takes} && $function ne 'dlock_acquire_any';
	# the time may be up before the wait begins
	push @{ $call{always} }, '57014' if $waits;
	push @{ $call{may} }, '40P01' if $waits;
	# what is shown may have no place in the client's character set
	$call{answer} = 'anything' if $way->{way} eq 'explain' || $answer eq 'holders' && $round{charset} ne 'utf8mb4';
	$call{takes} = 0 if $way->{way} eq 'explain';
	# The server may notice that the time is up after the function has taken a
	# lease, and throw its answer away: a call that ended in an error may have
	# taken the lease (rule 4).
	$call{overtaken} = 1;
	$call{account} = $round{account};
	# bytes that are no characters are shown as if they were
	$call{raw} = $round{charset} eq 'utf8mb4' && !grep { $_->{list} && grep { !Hostile::is_utf8($_) } @{ $_->{list} } } @arguments;
	$call{sees} = sub { return $round{user} eq 'root' || $_[0]{account} eq $round{account} };

	if ($is_procedure)
	{
		# the arguments become those of the procedure's types first
		for my $value (@arguments)
		{
			next if $value->{kind} eq 'variable';
			if ($value->{kind} eq 'token' && !($value->{states} && @{ $value->{states} } && $value->{states}[0] eq '22004') && $value->{sql} !~ /^\d{1,18}$/)
			{
				$value->{states} = undef;
			}
			elsif (!$value->{states} || @{ $value->{states} } || $value->{sql} !~ /^(?:_binary )?x'/)
			{
				# and characters are not converted
				$value->{states} = $value->{states} && @{ $value->{states} } && $value->{states}[0] !~ /^22023/ ? $value->{states} : undef;
				delete $value->{bytes};
			}
		}
		push @{ $call{always} }, @of_procedures;
		# in some SQL modes that is no NULL when it is assigned
		push @{ $call{always} }, '1365 22012' if grep { $_->{sql} eq '1/0' } @arguments;
		# which statement is at fault then
		push @{ $call{may} }, '22004', '22023' if $function eq 'CALL dlock.guard_row';
	}

	my @values = grep { $_->{kind} ne 'call' } @arguments;
	if (chance(@$parameters ? 0.02 : 0.3) && !$is_procedure)
	{
		my $wrong = chance(0.5) && $least > 0 ? int rand $least : @$parameters + 1 + int rand 8;
		$#values = $wrong - 1 if $wrong < @values;
		push @values, value(one_of('NULL', q{'x'}, '1'), [], kind => 'extra') while @values < $wrong;
		push @arguments, value("$wrong arguments", ['42883'], kind => 'call');
		$call{may} = ['42883'];
	}
	$call{values} = \@values;
	make_statement(\%call);
	return \%call;
}

# The statements for a call: what is to be executed before it, and the one that
# is; takes note of what it makes of the values.
sub make_statement
{
	my ($call) = @_;
	my $way = $call->{way}{way};
	my $function = $call->{function};
	my @values = @{ $call->{values} };
	my $needs_table = grep { $_->{sql} =~ /\bt\.c_/ } @values;
	my $from = $needs_table ? ' FROM scenarios.t' : '';

	# columns only where there can be any
	if ($call->{is_procedure} && $needs_table)
	{
		$_->{sql} =~ s/\b(t\.c_\w+)/(SELECT $1 FROM scenarios.t)/ for @values;
		$from = '';
	}
	my @sql = map { $_->{sql} } @values;
	my $verb = $call->{is_procedure} ? $function : "SELECT $function";
	$call->{before} = [];

	if ($way eq 'parameters')
	{
		my @parameters;
		for my $i (0 .. $#values)
		{
			my $value = $values[$i];
			next if !$value->{parameter} || chance(0.2) || $call->{is_procedure} && $value->{kind} ne 'name';
			push @parameters, $value->{parameter};
			$sql[$i] = '?';
			$value->{sql} .= ' by parameter ' . shown($value->{parameter}{value});
			if (exists $value->{parameter_is})
			{
				my $time = time_of('', $value->{kind}, $value->{parameter_is});
				@$value{qw(states seconds)} = @$time{qw(states seconds)};
				$call->{waits} = 1 if $value->{kind} eq 'wait';
			}
			# what MySQL takes for text it may convert
			delete $value->{bytes}, $value->{states} = undef
			  if $is_mysql && $value->{parameter}{type} == $of_blob && $value->{parameter}{value} =~ /[\x80-\xFF]/;
		}
		$call->{parameters} = \@parameters;
		push @{ $call->{always} }, '57014', '40P01' if $call->{waits};
		$needs_table = grep { /\bt\.c_/ } @sql;
		$call->{sql} = "$verb(" . join(', ', @sql) . ')' . ($needs_table ? $from : '');
		return;
	}
	my $list = join(', ', @sql);
	$call->{sql} = "$verb($list)$from";
	if ($way eq 'columns' && @values)
	{
		my @columns = map { "c$_" } 1 .. @values;
		$call->{sql} = "SELECT $function(" . join(', ', @columns) . ') FROM (SELECT '
		  . join(', ', map { "$sql[$_] AS $columns[$_]" } 0 .. $#sql) . "$from) v";
	}
	elsif ($way eq 'thrice')
	{
		$call->{sql} = "SELECT $function($list) FROM " . ($needs_table ? 'scenarios.t, ' : '') . '(SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) v';
	}
	elsif ($way eq 'explain')
	{
		$call->{sql} = "EXPLAIN $call->{sql}";
	}
	elsif ($way eq 'variables' && !$needs_table && @values)
	{
		my @variables = map { $values[$_]{kind} && $values[$_]{kind} eq 'variable' ? $sql[$_] : "\@v$_" } 0 .. $#values;
		$call->{before} = [ 'SET ' . join(', ', map { "\@v$_ = $sql[$_]" } 0 .. $#sql) ];
		$call->{sql} = "$verb(" . join(', ', @variables) . ')';
	}
	elsif ($way eq 'set')
	{
		$call->{before} = [ "SET \@r = ($call->{sql})" ];
		$call->{sql} = 'SELECT @r';
	}
	elsif ($way eq 'prepared' && $call->{sql} !~ /[\x80-\xFF]/)
	{
		$call->{before} = [ 'SET @statement = ' . hex_of($call->{sql}), 'PREPARE s FROM @statement' ];
		$call->{sql} = 'EXECUTE s';
	}
	return;
}

# Our name for an error, or the server's number and SQLSTATE.
sub error_of
{
	my ($answer) = @_;
	my $is = "$answer->{number} $answer->{error}";
	for my $state (qw(22004 22007 22023 25006 25P01 40P01 42501 42883 53400 55000 55L01 55P03 57014))
	{
		next if !$engine->is_error($state, $is);
		# a number that stands for several
		next if $state eq '25P01' && $answer->{message} !~ /can only be used in transactions/;
		return $state;
	}
	return $is;
}

# An answer that is a list: of claims the tokens, and of names these.
sub read_list
{
	my ($call) = @_;
	my $got = $call->{got};
	# MySQL sends it in the client's character set
	Encode::from_to($got->{value}, 'cp1252', 'utf8') if $is_mysql && $round{charset} eq 'latin1';
	my $list = eval { JSON::PP->new->utf8->decode($got->{value}) };

	return if ref $list ne 'ARRAY';
	$got->{value} = '[' . join(', ', map { ref eq 'HASH' ? $_->{token} // '?' : '?' } @$list) . ']' if $call->{answer} eq 'claimed';
	$got->{rows} = [ map { my $name = $_; utf8::encode($name); $name } @$list ] if $call->{answer} eq 'names';
	return;
}

sub make_and_judge
{
	my ($call) = @_;
	my $way = $call->{way};
	my $before = $round{before};

	$client->value($is_mysql ? "SET max_execution_time = $timeout_ms" : "SET max_statement_time = $timeout_ms / 1000") if $call->{waits};
	$client->query($_) for @{ $way->{begin} // [] };
	my $got;
	for my $sql (@{ $call->{before} })
	{
		$got = $client->query($sql);
		last if !$got || defined $got->{error};
	}
	my $what = "$way->{way}: " . join('; ', map { shown($_) } @{ $call->{before} }, $call->{sql}) . ($call->{parameters}
		? ' with ' . join(', ', map { "type $_->{type} " . shown($_->{value}) } @{ $call->{parameters} }) : '');
	if (!@{ $call->{before} } || $got && !defined $got->{error})
	{
		$got = $call->{parameters} ? $client->execute($call->{sql}, @{ $call->{parameters} }) : $client->query($call->{sql});
	}
	return "$what: $client->{lost}" if !$got;
	$call->{got} = defined $got->{error} ? { %$got, error => error_of($got) } : { value => $got->{rows}[-1] && $got->{rows}[-1][0] };
	read_list($call) if $call->{answer} =~ /^(claimed|names)$/ && defined $call->{got}{value};
	my $after = reading();
	my @wrong = $hostile->judge($call, $before, $after);
	$round{before} = $after;
	if ($way->{begin})
	{
		$client->query(one_of(@{ $way->{end} }));
		$client->value('COMMIT');
		undef $round{before};
	}
	$client->value($is_mysql ? 'SET max_execution_time = 0' : 'SET max_statement_time = 0') if $call->{waits};
	my $answer = defined $got->{error} ? "error $got->{number} ($got->{error}): " . shown($got->{message}) : shown($call->{got}{value});
	return map { "$_: $answer: $what" } @wrong;
}

# All that is held can be given back, by whom it belongs to.
sub give_back
{
	my @wrong;
	my %owners = map { $_->{owner} => 1 } grep { $_->{account} eq $round{account} } values %{ reading()->{rows} };
	for my $owner (sort keys %owners)
	{
		my $count = $client->value('SELECT dlock_release_all(' . hex_of($owner) . ')');
		push @wrong, shown($owner) . " cannot release all: $count" if $count !~ /^\d+$/;
	}
	return @wrong, Hostile::still_held(reading());
}

$hostile->play(sub {
	begin_round();
	my $what = "$round{charset} and sql_mode $round{mode} by $round{user}";
	my @wrong;
	for my $number (1 .. $calls_per_round)
	{
		push @wrong, make_and_judge(make_call());
		# the views, with all that is in the table
		if ($number % 50 == 0 && !$client->{lost})
		{
			my $seen = $control->query('SELECT * FROM dlock.locks');
			push @wrong, 'dlock.locks: ' . ($seen->{message} // $control->{lost}) if !$seen || defined $seen->{error};
		}
		last if @wrong;
	}
	push @wrong, 'the server has been restarted' if ($engine->pid // 0) != $pid;
	push @wrong, give_back() if !@wrong;
	push @wrong, 'somebody waits' if !@wrong && $control->value('SELECT count(*) FROM dlock.waiters') != 0;
	$_->close for $client, $control;
	return map { "$what: $_" } @wrong;
});

$hostile->finish(
	functions => [ map { $_->[0] } @functions ],
	# they are for the views only
	never_answered => [qw(dlock_unwritten dlock_view_waiters dlock_view_stats)],
	errors => [ qw(22004 22007 22023 42501 42883 55000 25P01 57014), $operand ]);

# Nothing is left, unless something went wrong before; and nobody has died.
$engine->control->value(q{UPDATE dlock.settings SET value = '0.1' WHERE name = 'reap_interval'});
ok($hostile->{wrong} || Scenarios::Run::until(sub { $engine->control->value('SELECT count(*) FROM dlock.lease_table') == 0 }), 'the lock table is empty');
is($engine->pid, $pid, 'the server has not been restarted');
open(my $file, '<', "$engine->{dir}/log.err") or die "could not read the log: $!\n";
my $log = join('', <$file>);
unlike($log, qr/got signal|got exception|Assertion|InnoDB: Failing/, 'nothing has died');
$engine->stop;
done_testing();
