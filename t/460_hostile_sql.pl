# Hostile calls of the SQL functions, of every kind: the server goes on, each call
# answers as the manual says or raises an expected error, bad input changes nothing,
# and a granted lease is held under exactly that name and owner.  Hostile.pm says how;
# mysql/hostile_sql.pl is the same for MySQL and MariaDB.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Hostile qw(chance one_of shown value);
use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Wire;

my $calls_per_round = 400;

# A wait that is drawn may be without limit: it is cancelled.
my $timeout = '30ms';

my $node = PostgreSQL::Test::Cluster->new('hostile');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dlock.log_expired = off
dlock.reap_interval = '1h'
log_min_error_statement = panic
log_error_verbosity = terse
log_min_messages = log
log_statement = none
});
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE tester LOGIN');
my %databases = (UTF8 => 'in_utf8', LATIN1 => 'in_latin1', SQL_ASCII => 'in_sql_ascii');
for my $encoding (sort keys %databases)
{
	my $database = $databases{$encoding};
	$node->safe_psql('postgres',
		"CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($database, q{
		CREATE EXTENSION dlock;
		CREATE DOMAIN string AS text CHECK (length(value) < 10000);
		CREATE FUNCTION run(statement text) RETURNS text LANGUAGE plpgsql AS $$
			DECLARE answer text;
			BEGIN EXECUTE statement INTO answer; RETURN answer; END $$;
		CREATE FUNCTION run_caught(statement text) RETURNS text LANGUAGE plpgsql AS $$
			DECLARE answer text;
			BEGIN
				BEGIN EXECUTE statement INTO answer;
				EXCEPTION WHEN others THEN RAISE; END;
				RETURN answer;
			END $$});
}
my $postmaster = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $admin = (getpwuid $<)[0];

# Those of both kinds of server, and those of this one.
my @functions = (
	grep({ $_->[0] ne 'dlock_release' } @Hostile::functions),
	[ 'dlock_release', [qw(name owner token holds)], 2, 'boolean or null', touches => 'name' ],
	[ 'dlock_release_after', [qw(name owner after token)], 3, 'boolean or null', touches => 'name' ],
	[ 'dlock_acquire_permits', [qw(name owner ttl limit permits wait request)], 5, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_any', [qw(any_names owner ttl count wait request)], 4, 'claimed', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_session_shared', [qw(name owner ttl wait)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_xact', [qw(name owner ttl wait)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_acquire_xact_shared', [qw(name owner ttl wait)], 3, 'token', touches => 'name', takes => 1 ],
	[ 'dlock_renew_many', [qw(any_names owner ttl tokens)], 3, 'names', touches => 'name' ],
	[ 'dlock_release_many', [qw(any_names owner tokens)], 2, 'names', touches => 'name' ],
	[ 'dlock_downgrade', [qw(name owner token)], 2, 'boolean or null', touches => 'name' ],
	[ 'dlock_guard', [qw(name owner given_token)], 3, 'null' ],
	[ 'dlock_holders', [qw(name)], 1, 'anything' ],
	[ 'dlock_remaining', [qw(name owner token)], 2, 'anything' ],
	[ 'dlock_blocking_pids', [qw(number)], 1, 'text' ],
	# not in the manual, and behind a schema that is closed, but there
	[ 'dlock_private.read_waiters', [], 0, 'anything', operators => 1 ],
	[ 'dlock_private.read_stats', [], 0, 'text', operators => 1 ],
	[ 'dlock_private.refuse_change', [], 0, 'anything', states => ['39P01'], operators => 1 ],
	[ 'dlock_private.table_handler', [qw(internal)], 1, 'anything', operators => 1 ],
	[ 'dlock_duration_in', [qw(cstring)], 1, 'text' ]);

my $hostile = Hostile->new(
	name => 'PostgreSQL ' . $node->pg_version,
	rounds => 8,
	# what it may raise if nobody can say whether a value is good
	unknown => { map { $_ => 1 } qw(22004 22007 22008 22015 22021 22023 22P02 22P03 22003 42804 54000 08P01) });

# ----------------------------------------------------------------------
# What the session is like in which a round is played
# ----------------------------------------------------------------------

my ($client, $control, %round);

# The names and owners that most calls use, as the client writes them.
my (@names, @owners);

# What the server makes of the client's bytes, or undef and the error.
sub received
{
	my ($bytes) = @_;
	my ($from, $to) = @round{qw(client_encoding encoding)};

	return (undef, '22021') if $bytes =~ /\0/;
	return (undef, '22021') if !Hostile::is_utf8($bytes) && ($from eq 'UTF8' || $from eq 'SQL_ASCII' && $to eq 'UTF8');
	return $bytes if $from eq $to || $from eq 'SQL_ASCII' || $to eq 'SQL_ASCII';
	if ($from eq 'LATIN1')
	{
		utf8::encode(my $text = $bytes);
		return $text;
	}
	utf8::decode(my $text = $bytes);
	return (undef, '22P05') if $text =~ /[^\x00-\xFF]/;
	utf8::downgrade($text);
	return $text;
}

# A string that the server takes, of at most so many bytes there.
sub good_text
{
	my ($length) = @_;
	while (1)
	{
		my $style = rand;
		my $text =
			$style < 0.4 ? Hostile::ascii_text($length)
		  : $style < 0.5 ? Hostile::bytes_from($length, 1, 31)
		  : $style < 0.7 ? Hostile::bytes_from($length, 1, 255)
		  : Hostile::utf8_text($length);
		my ($bytes) = received($text);
		return ($text, $bytes) if defined $bytes && length $bytes <= ($length < 255 ? 255 : $length) && length $bytes > 0;
	}
}

sub quoted
{
	my ($text) = @_;
	return q{'} . $text =~ s/'/''/gr . q{'};
}

sub escaped
{
	my ($text) = @_;
	# what is not ASCII is checked after it has been unescaped, too
	return q{E'} . $text =~ s/([\x00-\x1F'\\\x7F])/sprintf('\\%03o', ord $1)/ger . q{'};
}

# Start a session of a kind that is drawn.
sub begin_round
{
	my %client_encodings = (UTF8 => [qw(UTF8 UTF8 LATIN1 SQL_ASCII)], LATIN1 => [qw(LATIN1 UTF8 SQL_ASCII)],
		SQL_ASCII => [qw(SQL_ASCII UTF8 LATIN1)]);
	%round = (encoding => one_of(qw(UTF8 UTF8 UTF8 LATIN1 SQL_ASCII)), user => one_of('tester', 'tester', $admin));
	$round{client_encoding} = one_of(@{ $client_encodings{ $round{encoding} } });
	my %params = (path => $node->host . '/.s.PGSQL.' . $node->port, database => $databases{ $round{encoding} });
	$client = Wire::Postgres->new(%params, user => $round{user}, client_encoding => $round{client_encoding});
	# names and owners come as they are
	$control = Wire::Postgres->new(%params, user => $admin, client_encoding => 'SQL_ASCII');
	$client->value(q{SET intervalstyle = } . one_of(qw(postgres sql_standard iso_8601)));
	$client->value(q{SET synchronous_commit = off}) if chance(0.5);
	$client->value(q{SET plan_cache_mode = force_generic_plan}) if chance(0.3);

	@names = map { [ good_text(Hostile::good_length()) ] } 1 .. 8;
	@owners = map { [ good_text(Hostile::good_length()) ] } 1 .. 3;
	# somebody else has two of them
	$client->value('SELECT dlock_acquire(' . quoted($_->[0]) . q{, 'somebody else', 1000)}) for @names[ 0, 1 ];
	return;
}

# What is in the lock table.
sub reading
{
	my $answer = $control->query(q{SELECT name, owner, role, mode, version, token, leaving, request, pid,
		extract(epoch FROM expires_at) FROM dlock_private.lease_table}) // die "the server has ended the session: $control->{lost}\n";
	die "$answer->{error}: $answer->{message}\n" if defined $answer->{error};
	return Hostile::reading_of(map {
		my ($name, $owner, $account, $mode, undef, $token, $leaving) = @$_;
		my $expires = pop @$_;
		my $rest = join('|', map { defined $_ ? unpack('H*', $_) : '-' } @$_);
		{ name => $name, owner => $owner, account => $account, mode => $mode, token => $token, expires => $expires, rest => $rest,
			leaving => $leaving eq 't' }
	} @{ $answer->{rows} });
}

# ----------------------------------------------------------------------
# Values
# ----------------------------------------------------------------------

# A text as a parameter whose type the server finds out, in either format.
sub parameter
{
	my ($text, %more) = @_;
	return { type => 0, binary => 0, value => $text, %more };
}

my @nulls = ('NULL', 'NULL', 'NULL::text', '(SELECT NULL::text)', q{nullif('a', 'a')}, 'NULL::varchar');
my @no_strings = (
	'1', '1.5', 'true', q{DATE '2026-01-01'}, q{'{"a": 1}'::json}, q{'{"a": 1}'::jsonb}, q{'\x41'::bytea}, 'ROW(1, 2)', q{ARRAY['x']},
	'NULL::integer', q{interval '1 s'}, 'now()', q{'pg_class'::regclass}, q{inet '::1'}, q{point '(1,1)'}, q{B'101'}, q{'60'::dlock_duration},
	'9223372036854775808', q{'a=>b'::tsvector});

sub string_value
{
	my ($kind, $want_good) = @_;

	if (!$want_good)
	{
		my $dice = rand;
		return value(one_of(@nulls), $kind eq 'request' ? [] : ['22004'], parameter => parameter(undef)) if $dice < 0.15;
		return value(one_of(@no_strings), ['42883']) if $dice < 0.3;
		return value(q{(SELECT 'x' UNION ALL SELECT 'y')}, ['21000']) if $dice < 0.32;
		return value('(1 / length(' . quoted('') . '))::text', ['22012']) if $dice < 0.34;
		return value("repeat('x', " . one_of(256, 257, 1000, 1_000_000) . ')', ['22023']) if $dice < 0.4;
		if ($dice < 0.55)
		{
			# bytes that are none here
			my $length = Hostile::good_length();
			my $text = chance(0.5) ? Hostile::broken_utf8($length) : Hostile::utf8_text($length);
			my ($bytes, $state) = received($text);
			my $states = defined $state ? [$state] : length $bytes > 255 ? ['22023'] : [];
			return value(quoted($text), $states, bytes => $bytes, parameter => parameter($text, binary => chance(0.5)));
		}
		if ($dice < 0.6)
		{
			my $parameter = parameter(one_of("\0", "a\0b", "a\0"), binary => chance(0.5));
			# where it can only be written, it is too short
			return value(q{''}, undef, parameter => $parameter);
		}
		my $length = Hostile::bad_length();
		my ($text, $bytes) = $length == 0 ? ('', '') : good_text($length);
		return string_value($kind, 0) if $length > 255 && length $bytes <= 255;
		return value(chance(0.7) ? quoted($text) : escaped($text), ['22023'], bytes => $bytes,
			parameter => parameter($text, binary => chance(0.5)));
	}

	return value('NULL', [], parameter => parameter(undef)) if $kind eq 'request' && chance(0.3);
	if (chance(0.1))
	{
		my ($sql, $bytes) = @{ one_of([ q{'abc  '::char(10)}, 'abc' ], [ q{'abc '::varchar}, 'abc ' ], [ q{'abcdef'::varchar(3)}, 'abc' ],
			[ q{'abc'::name}, 'abc' ], [ q{'x'::"char"}, 'x' ], [ q{'a' || 'b'}, 'ab' ], [ q{'abc'::string}, 'abc' ], [ q{repeat('x', 255)}, 'x' x 255 ],
			[ q{substr(repeat('y', 100000), 1, 255)}, 'y' x 255 ], [ q{convert_from('\x4142', 'SQL_ASCII')}, 'AB' ], [ q{$$a'b\$$}, q{a'b\\} ],
			[ q{U&'\0041\+000042'}, 'AB' ], [ q{(SELECT 'abc')}, 'abc' ], [ q{CASE WHEN true THEN 'abc' END}, 'abc' ], [ q{'abc' COLLATE "C"}, 'abc' ]) };
		return value($sql, [], bytes => $bytes);
	}
	my ($text, $bytes) = @{
		$kind eq 'name' && chance(0.8) ? one_of(@names)
		: $kind eq 'owner' && chance(0.9) ? one_of(@owners)
		: $kind eq 'request' && chance(0.7) ? [ ('request') x 2 ]
		: [ good_text(Hostile::good_length()) ] };
	my $sql = chance(0.7) ? quoted($text) : escaped($text);
	$sql .= one_of('::text', '::varchar', '::string') if chance(0.2);
	return value($sql, [], bytes => $bytes, parameter => parameter($text, binary => chance(0.5)));
}

# dlock.max_ttl is left at one day
%Hostile::longest_us = (ttl => 86400e6, wait => 86400e6);

my @no_times = (
	'true', q{DATE '2026-01-01'}, q{'60'::char(3)}, q{'60'::name}, q{'60'::json}, q{'\x3630'::bytea}, 'ROW(60)', 'ARRAY[60]', q{TIME '01:00'},
	'60::money', 'now()', q{point '(1,1)'}, 'NULL::date', q{B'101'}, '60::oid');
# what is not text: how it is written, how many seconds, or why it is none
my @typed_times = (
	[ q{'NaN'::float8}, 'infinite' ], [ q{'infinity'::float8}, 'infinite' ], [ q{'-infinity'::real}, 'infinite' ], [ q{'NaN'::numeric}, 'infinite' ],
	[ q{'Infinity'::numeric}, 'infinite' ], [ q{'-0'::float8}, 0 ], [ q{'1e308'::float8}, 'range' ], [ q{'-1e308'::float8}, 'range' ],
	[ q{'1e-320'::float8}, 0 ], [ q{'1e-45'::real}, 0 ], [ q{'3e38'::real}, 'range' ], [ '60::smallint', 60 ], [ '32767::smallint', 32767 ], [ '60::real', 60 ],
	[ '60::float8', 60 ], [ '60::bigint', 60 ], [ '60::numeric', 60 ], [ '1e131071', 'range' ], [ '9223372036854775807', 'range' ],
	[ '-9223372036854775807::bigint', 'range' ], [ q{interval '60 s'}, 60 ], [ q{interval '1 s' * 60.5}, 60.5 ], [ q{interval '-178000000 years'}, 'range' ],
	[ q{interval '178000000 years'}, 'range' ], [ q{interval '2147483647 days'}, 'range' ], [ q{interval '1 year -360 days'}, 0 ],
	[ q{interval '170000000 years' * 1000}, 'interval' ], [ q{'60'::dlock_duration}, 60 ], [ 'CAST(60 AS dlock_duration)', 60 ], [ q{'60'::string}, 60 ],
	[ q{interval '2562047788:00:54.775807'}, 'range' ], [ '60 + 0.5', 60.5 ], [ '(SELECT 60)', 60 ]);

my %time_states = (
	syntax => ['22007'], infinite => ['22023'], range => ['22023'],
	# the type interval's own
	interval => [ '22008', '22015' ]);

# What is so many seconds, or is none.
sub time_value
{
	my ($sql, $kind, $is, %more) = @_;
	return Hostile::timed($sql, $kind, $is, \%time_states, %more);
}

sub time_argument
{
	my ($kind, $want_good) = @_;

	if (!$want_good)
	{
		return value(one_of('NULL', 'NULL', 'NULL::integer', 'NULL::interval', 'NULL::text', '(SELECT NULL::numeric)', q{nullif('1', '1')}),
			['22004'], parameter => parameter(undef)) if chance(0.1);
		return value(one_of(@no_times), ['42883']) if chance(0.12);
		if (chance(0.1))
		{
			# in the type's own binary format
			return value('60', undef, parameter => parameter(Hostile::bytes_from(int rand 20, 0, 255), binary => 1)) if chance(0.3);
			my $seconds = one_of(0, 1, -1, 0.25, 60, -60, 1e-6, 1e-7, 5e-324, 86400, 86400.5, 86401, 1e12, 2e12, -1e12, -2e12, 1e300, -1e300,
				9**9**9, -9**9**9, -sin(9**9**9));
			my $finite = abs($seconds) < 9**9**9;
			my $is = !$finite ? 'infinite' : abs($seconds) > 1e12 ? 'range' : $seconds;
			my ($good) = Hostile::judge_time($kind, $is);
			return value(quoted($finite ? $seconds : 'NaN'), undef, binary_states => $good ? [] : ['22023'], $finite ? (seconds => $seconds) : (),
				parameter => parameter(pack('d>', $seconds), binary => 1));
		}
	}
	if (chance(0.3))
	{
		while (1)
		{
			my ($sql, $is) = @{ one_of(@typed_times) };
			next if $kind eq 'wait' && $want_good && $is =~ /^[-\d]/ && $is != 0 && chance(0.85);
			my $value = time_value($sql, $kind, $is);
			# from version 17 on there is this one
			return value(q{'infinity'::interval}, [ '22007', '22023' ]) if !$want_good && chance(0.03);
			return $value if !$want_good || !@{ $value->{states} };
		}
	}
	my ($text, $is) = Hostile::time_text($kind, $want_good);
	# the client's encoding comes first
	my (undef, $state) = received($text);
	return time_argument($kind, $want_good) if defined $state;
	my $sql = quoted($text);
	my $dice = rand;
	if ($dice < 0.4 && defined $is && $text =~ /^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?$/)
	{
		$sql = $text;
	}
	elsif ($dice < 0.6)
	{
		$sql .= one_of('::text', '::varchar', '::dlock_duration');
	}
	return time_value($sql, $kind, $is, parameter => parameter($text));
}

# A number of type integer, bigint or oid.
my %not_numbers = (
	'42883' => [ '1.5', '1e3', 'true', q{'5'::text}, '5::numeric', q{DATE '2026-01-01'}, q{'5'::json}, 'ROW(5)', 'ARRAY[5]', '9223372036854775808',
		q{interval '1 s'}, 'NULL::text', q{'\x35'::bytea} ],
	'22P02' => [ q{'abc'}, q{''}, q{'1.5'}, q{'1e3'}, q{'NaN'}, q{' '}, q{'--1'}, q{'5 5'}, q{'{5}'} ],
	'22003' => [ q{'9223372036854775808'}, q{'-9223372036854775809'}, q{'99999999999999999999999999999999999999999999999999999999999'} ]);

sub number_value
{
	my ($kind, $want_good) = @_;
	my $null = $kind =~ /^(limit|permits|count|holds|given_token)$/ ? ['22004'] : [];

	if (!$want_good && chance(0.6))
	{
		return value(one_of('NULL', 'NULL::integer', '(SELECT NULL::integer)'), $null, parameter => parameter(undef)) if chance(0.2);
		return value(one_of(q{'0x10'}, q{'1_000'}, q{' 5 '}, q{'0b1'}), undef) if chance(0.2);
		my $state = one_of(sort keys %not_numbers);
		my $sql = one_of(@{ $not_numbers{$state} });
		# a parameter is as a string without a type
		my ($text) = $sql =~ /^'(.*)'$/;
		return value($sql, [$state], defined $text ? (parameter => parameter($text)) : ());
	}
	if ($kind =~ /^(limit|permits|count|holds)$/)
	{
		my @good = $kind eq 'permits' ? (1, 1, 2, 3, 100) : $kind eq 'holds' ? (1, 1, 2, 3, 2147483647) : (1, 2, 3, 100, 2147483647);
		my $number = $want_good ? one_of(@good) : one_of(0, -1, -2147483648);
		return value('2147483648', ['42883'], parameter => undef) if !$want_good && chance(0.1);
		return value(q{'2147483648'}, ['22003'], parameter => parameter('2147483648')) if !$want_good && chance(0.1);
		# a minus binds less than a cast
		my $sql = one_of(quoted($number), "($number)::integer", $number == -2147483648 ? quoted($number) : $number);
		return value($sql, $number > 0 ? [] : ['22023'], number => $number, parameter => chance(0.5) ? parameter($number) : parameter(pack('l>', $number), binary => 1));
	}
	if ($kind =~ /token$/)
	{
		return value('NULL', []) if $kind eq 'token' && chance(0.3);
		my @tokens = map { $_->{token} } values %{ $round{before}{rows} };
		my $number = @tokens && chance(0.7) ? one_of(sort @tokens) : one_of(0, 1, -1, 9007199254740991, 9007199254740992, 9223372036854775807, '-9223372036854775808');
		return value(one_of(quoted($number), $number =~ /^-9/ ? quoted($number) : "($number)::bigint"), [],
			parameter => chance(0.5) ? parameter($number) : parameter(pack('q>', $number), binary => 1));
	}
	my $number = one_of(0, 1, 10, 2147483647, $client->{pid});
	return value(one_of(quoted($number), $number), [], parameter => parameter($number));
}

# A list of names: one or more, of so many; or of any number.
sub names_value
{
	my ($kind, $want_good) = @_;
	my $any = $kind eq 'any_names';
	my $most = $any ? 1000 : 100;

	if (!$want_good)
	{
		my $dice = rand;
		return value(one_of('NULL', 'NULL::text[]'), ['22004'], parameter => parameter(undef)) if $dice < 0.1;
		return value(one_of(($any ? () : (q{'{}'}, 'ARRAY[]::text[]')), q{'{{a,b},{c,d}}'}, q{ARRAY[['a'],['b']]}, q{'{a,b,a}'}, q{'{a,""}'}, q{ARRAY['a', '']},
			q{ARRAY['a', repeat('x', 256)]}, "(SELECT array_agg(i::text) FROM generate_series(0, $most) i)", q{array_fill('a'::text, ARRAY[100000])},
			q{array_fill('a'::text, ARRAY[2, 2, 2, 2, 2, 2])}, q{'{{{{{{a}}}}}}'}), ['22023']) if $dice < 0.4;
		return value(one_of(q{'{a,NULL}'}, q{ARRAY['a', NULL]}, q{'{NULL}'}, 'ARRAY[NULL]::text[]'), ['22004']) if $dice < 0.5;
		return value(one_of(q('{a'), q('a'), q(''), q('{a}}'), q('{"a}'), q('{a,}'), q('{{a},{b,c}}'), q('[1:3]={a}')), ['22P02']) if $dice < 0.6;
		return value(one_of('ARRAY[1, 2]', q{'a'::text}, '1', q{'["a"]'::json}, 'ROW(1)', 'true', q{'{1}'::json[]}), ['42883']) if $dice < 0.75;
		# deeper than an array can be
		return value(q{'{{{{{{{a}}}}}}}'}, undef) if $dice < 0.78;
		my $array = pack('N N N N N', one_of(0, 1, 1, 2, 7, 2**31), one_of(0, 1, 2), one_of(25, 25, 23, 0), one_of(0, 1, 2, 2**31 - 1), one_of(1, 0, 2**31 - 1))
		  . pack('N', one_of(0, 1, 5, 2**31 - 1, 2**32 - 1)) . Hostile::bytes_from(int rand 12, 0, 255);
		return value(q{'{a}'}, undef, binary_states => undef, list => [undef],
			parameter => parameter(chance(0.5) ? $array : Hostile::bytes_from(int rand 40, 0, 255), binary => 1));
	}
	return value(one_of(q{'{}'}, 'ARRAY[]::text[]'), [], list => [], parameter => parameter('{}')) if $any && chance(0.05);
	# of so many a claim that waits is refused
	my $many = $any ? one_of(100, 101, 1000) : 100;
	my @list = chance(0.05) ? map { [ "n$_", "n$_" ] } 1 .. $many : map { one_of(@names) } 1 .. 1 + rand 4;
	push @list, [ good_text(Hostile::good_length()) ] if @list < 100 && chance(0.3);
	my %seen;
	@list = grep { !$seen{ $_->[1] }++ } @list;
	my @elements = map { $_->[1] } @list;
	my $text = '{' . join(',', map { '"' . $_->[0] =~ s/(["\\])/\\$1/gr . '"' } @list) . '}';
	$text = '[0:' . $#list . "]=$text" if chance(0.1);
	my $sql = chance(0.5) ? quoted($text) : 'ARRAY[' . join(', ', map { quoted($_->[0]) } @list) . ']' . one_of('', '::text[]', '::varchar[]');
	return value($sql, [], list => \@elements, parameter => parameter($text));
}

# The tokens to match for so many names.
sub tokens_value
{
	my ($want_good, $count) = @_;

	if (!$want_good)
	{
		my $dice = rand;
		return value(one_of(q('{1'), q('{a}'), q('{1.5}'), q(''), q('{1,}'), q('[1:3]={1}'), q('1')), ['22P02']) if $dice < 0.25;
		return value(one_of(q{'{99999999999999999999}'}, q{'{9223372036854775808}'}), ['22003']) if $dice < 0.35;
		return value(one_of('1', q{ARRAY['1']}, 'ARRAY[1.5]', 'true', q{'{1}'::text}, 'ROW(1)'), ['42883']) if $dice < 0.5;
		return value(one_of(q{'{{1,2},{3,4}}'}, 'ARRAY[[1]]', 'array_fill(1::bigint, ARRAY[100000])'), ['22023']) if $dice < 0.65;
		return value(q{'{1}'}, undef, parameter => parameter(Hostile::bytes_from(int rand 40, 0, 255), binary => 1)) if $dice < 0.75;
		$count = one_of(0, 1, 2, 1000);
	}
	return value(one_of('NULL', 'NULL::bigint[]'), [], parameter => parameter(undef)) if chance(0.2);
	my @tokens = sort map { $_->{token} } values %{ $round{before}{rows} };
	my @list = map { chance(0.2) ? 'NULL' : one_of(@tokens, 1, 0, -1, 9223372036854775807) } 1 .. $count;
	my $text = '{' . join(',', @list) . '}';
	return value(one_of(quoted($text), @list ? 'ARRAY[' . join(', ', @list) . ']::bigint[]' : quoted($text)), [], tokens => scalar @list, parameter => parameter($text));
}

# What the input function of the type is called with.
sub cstring_value
{
	my ($want_good) = @_;
	my ($text, $is) = Hostile::time_text('wait', $want_good);
	my (undef, $state) = received($text);
	return defined $state ? cstring_value($want_good) : time_value(quoted($text), 'span', $is);
}

sub argument
{
	my ($kind, $want_good, @before) = @_;
	my ($names) = grep { $_->{kind} eq 'names' } @before;
	my $value =
		$kind =~ /^(name|owner|request)$/ ? string_value($kind, $want_good)
	  : $kind =~ /^(ttl|wait)$/ ? time_argument($kind, $want_good)
	  : $kind eq 'after' ? time_argument('ttl', $want_good)
	  : $kind =~ /names$/ ? names_value($kind, $want_good)
	  : $kind eq 'tokens' ? tokens_value($want_good, scalar @{ $names->{list} // [1] })
	  : $kind =~ /^(limit|permits|count|holds|token|given_token|number)$/ ? number_value($kind, $want_good)
	  : $kind eq 'oid' ? ($want_good ? value(one_of('0', '10', '4294967295', q{'10'}, 'NULL', q{'pg_monitor'::regrole}, '1::bigint'), [])
		: value(@{ one_of([ q{'abc'}, ['22P02'] ], [ '1.5', ['42883'] ], [ 'true', ['42883'] ], [ q{'4294967296'}, ['22003'] ], [ q{''}, ['22P02'] ]) }))
	  : $kind eq 'internal' ? value(one_of('NULL', q{'x'}, '1', q{'x'::cstring}), ['42883'])
	  : cstring_value($want_good);
	$value->{kind} = $kind eq 'given_token' ? 'token' : $kind eq 'any_names' ? 'names' : $kind;
	return $value;
}

# ----------------------------------------------------------------------
# Ways to call
# ----------------------------------------------------------------------

# The statement, before and after it; how many calls are in it.
my @ways = (
	{ way => 'plain', weight => 10 },
	{ way => 'parameters', weight => 8 },
	{ way => 'named', weight => 1 },
	{ way => 'from', weight => 1 },
	{ way => 'columns', weight => 2 },
	{ way => 'thrice', weight => 1, number => 3 },
	{ way => 'explain', weight => 1, number => 0 },
	{ way => 'analyze', weight => 1 },
	{ way => 'function', weight => 2 },
	{ way => 'subtransaction', weight => 1 },
	{ way => 'transaction', weight => 4, begin => ['BEGIN'], end => [ 'COMMIT', 'ROLLBACK' ] },
	{ way => 'isolated', weight => 1, begin => ['BEGIN ISOLATION LEVEL SERIALIZABLE', 'SELECT 1'], end => ['COMMIT'] },
	{ way => 'read only', weight => 1, begin => ['BEGIN READ ONLY'], end => ['COMMIT'] },
	{ way => 'savepoint', weight => 2, begin => [ 'BEGIN', 'SAVEPOINT s' ], end => [ 'ROLLBACK TO s; COMMIT', 'RELEASE s; COMMIT', 'ROLLBACK' ] },
	{ way => 'aborted', weight => 1, begin => [ 'BEGIN', 'SELECT 1/0' ], end => ['ROLLBACK'] });
my @weighed_ways = map { ($_) x $_->{weight} } @ways;

# Let a call that may name a token be about a lease that there is, as a client
# would; what is good stays good.
sub aim
{
	my ($arguments) = @_;
	my %is = map { $_->{kind} => $_ } @$arguments;
	return if !($is{name} && $is{token}) && !($is{names} && $is{tokens}) || !$is{owner};
	my @leases = sort { $a->{token} <=> $b->{token} } grep { $_->{account} eq $round{oid} } values %{ $round{before}{rows} };
	return if !@leases;
	my $lease = one_of(@leases);
	my $text = sub { return q{convert_from('\x} . unpack('H*', $_[0]) . "'::bytea, '$round{encoding}')" };
	for my $kind (grep { $is{$_} } qw(name owner))
	{
		%{ $is{$kind} } = (kind => $kind, %{ value($text->($lease->{$kind}), [], bytes => $lease->{$kind}) });
	}
	if ($is{names})
	{
		# what the owner has left may be there beside what it has
		my %seen;
		my @some = grep { $_->{owner} eq $lease->{owner} && !$seen{ $_->{name} }++ } @leases;
		$#some = 9 if @some > 10;
		%{ $is{names} } = (kind => 'names', %{ value('ARRAY[' . join(', ', map { $text->($_->{name}) } @some) . ']', [], list => [ map { $_->{name} } @some ]) });
		my @tokens = map { chance(0.2) ? 'NULL' : $_->{token} } @some;
		%{ $is{tokens} } = (kind => 'tokens', %{ value(quoted('{' . join(',', @tokens) . '}'), [], tokens => scalar @tokens) });
		return;
	}
	%{ $is{token} } = (kind => 'token', %{ value(quoted($lease->{token}), []) }) if chance(0.8);
	return;
}

# What is wrong with arguments of which each is good: a value to go with them, or none.
sub together
{
	my ($function, @arguments) = @_;
	my %is = map { $_->{kind} => $_ } @arguments;
	my $names = $is{names} && $is{names}{list} && !grep({ !defined } @{ $is{names}{list} }) ? @{ $is{names}{list} } : undef;
	my $what;

	if ($is{permits} && defined $is{permits}{number} && defined $is{limit}{number})
	{
		$what = 'more permits than the limit' if $is{permits}{number} > $is{limit}{number};
	}
	if (defined $names && $is{tokens} && defined $is{tokens}{tokens})
	{
		$what = 'not as many tokens as names' if $is{tokens}{tokens} != $names;
	}
	if (defined $names && $function eq 'dlock_acquire_any' && $is{wait} && $names > 100)
	{
		return value('a wait that is not known', undef, kind => 'call') if !defined $is{wait}{seconds};
		$what = 'too many names to wait' if abs($is{wait}{seconds}) >= 0.0000005;
	}
	return $what ? value($what, ['22023'], kind => 'call') : ();
}

# The same call with the arguments that it has as columns, parameters and so on.
sub make_call
{
	my ($function, $parameters, $least, $answer, %more) = @{ one_of(@functions) };
	$round{before} //= reading();
	my $badness = one_of(0, 0, 0, 0.25, 0.25, 0.7);
	my $count = $least + int rand(1 + @$parameters - $least);
	my @arguments;
	push @arguments, argument($_, !chance($badness), @arguments) for @$parameters[ 0 .. $count - 1 ];
	aim(\@arguments) if chance(0.5);
	push @arguments, together($function, @arguments);
	# a guard makes sense in a transaction only
	my $way = one_of($function =~ /guard/ && chance(0.4) ? grep({ $_->{way} eq 'transaction' } @ways) : @weighed_ways);
	my %call = (%more, function => $function, answer => $answer, arguments => \@arguments, number => $way->{number} // 1, way => $way,
		always => [], may => []);

	# what has nothing to do with the arguments
	push @{ $call{always} }, '42501' if $more{operators} && $round{user} eq 'tester';
	push @{ $call{always} }, '22P05' if $round{client_encoding} ne $round{encoding};
	push @arguments, value($function, $more{states}, kind => 'call') if $more{states} && $call{number} > 0;
	push @{ $call{may} }, @{ $more{states} } if $more{states};
	push @arguments, value($way->{way}, ['25P02'], kind => 'call') if $way->{way} eq 'aborted';
	# a claim leaves alone what its caller has in another way
	push @{ $call{may} }, '55000' if $more{takes} && $function ne 'dlock_acquire_any' || $function =~ /^dlock_(?:downgrade|release_after)$/;
	push @{ $call{may} }, '55L01' if $function eq 'dlock_guard';
	push @{ $call{may} }, '25P01' if $function eq 'dlock_guard' && !$way->{begin};
	my ($wait) = grep { $_->{kind} eq 'wait' } @arguments;
	$call{waits} = $wait && !(defined $wait->{seconds} && abs($wait->{seconds}) < 0.0000005);
	# the time may be up before the wait begins
	push @{ $call{always} }, '57014' if $call{waits};
	# or when the function has taken a lease, on its way back: a call that ended in
	# an error may have taken the lease (rule 4)
	$call{overtaken} = $call{waits};
	push @{ $call{may} }, '40P01' if $call{waits};
	$call{ends} = $function =~ /^dlock_acquire_xact/ && !$way->{begin};
	$call{takes} = 0 if $way->{way} =~ /^(explain|analyze)$/;
	$call{answer} = 'anything' if $way->{way} =~ /^(explain|analyze)$/;
	$call{account} = $round{oid};
	$call{raw} = $round{client_encoding} eq $round{encoding} && $way->{way} !~ /^(explain|analyze)$/;
	$call{sees} = sub { return $round{user} ne 'tester' || $_[0]{account} eq $round{oid} };

	# the wrong number
	my @values = grep { $_->{kind} ne 'call' } @arguments;
	if (chance(@$parameters ? 0.02 : 0.3))
	{
		my $wrong = chance(0.5) && $least > 0 ? int rand $least : @$parameters + 1 + int rand 8;
		$#values = $wrong - 1 if $wrong < @values;
		push @values, value(one_of('NULL', q{'x'}, '1'), [], kind => 'extra') while @values < $wrong;
		push @arguments, value("$wrong arguments", ['42883'], kind => 'call');
		$call{may} = ['42883'];
		$call{wrong_number} = 1;
	}
	$call{values} = \@values;
	$call{sql} = statement(\%call);
	return \%call;
}

# The statement for a call; takes note of what it makes of the values.
sub statement
{
	my ($call) = @_;
	my $way = $call->{way}{way};
	my $function = $call->{function};
	my @values = @{ $call->{values} };
	my @sql = map { $_->{sql} } @values;
	my $list = join(', ', @sql);
	my $select = "SELECT $function($list)";

	# what has no text is not taken as one, or, before 15.19, only when it is read
	push @{ $call->{always} }, '0A000' if grep { $_->{kind} eq 'internal' } @values;
	if ($way eq 'parameters')
	{
		my @parameters;
		for my $i (0 .. $#values)
		{
			my $value = $values[$i];
			next if !$value->{parameter} || chance(0.2);
			push @parameters, $value->{parameter};
			$sql[$i] = '$' . @parameters;
			$value->{sql} .= ' by parameter ' . shown($value->{parameter}{value});
			if (exists $value->{binary_states})
			{
				$value->{states} = $value->{binary_states};
			}
			elsif (($value->{parameter}{value} // '') =~ /\0/ && $value->{kind} =~ /^(name|owner|request)$/)
			{
				$value->{states} = ['22021'];
			}
		}
		$call->{parameters} = \@parameters;
		# a string that nobody says the type of, without a parameter to put it in
		push @{ $call->{always} }, '42P18' if $call->{wrong_number};
		return "SELECT $function(" . join(', ', @sql) . ')';
	}
	if ($way eq 'named' && !$call->{wrong_number} && @values && $function =~ /^dlock_(acquire|renew|release|wait|owner|guard|is_free)/)
	{
		return "SELECT $function(" . join(', ', map {
			(($_->{kind} eq 'limit' ? '"limit"' : $_->{kind}) . ' => ' . $_->{sql})
		} shuffle @values) . ')';
	}
	return "SELECT * FROM $function($list)" if $way eq 'from' && $function !~ /refuse_change|table_handler/;
	if ($way eq 'columns' && @values)
	{
		# a column of rows may be asked for a field of the function's name
		push @{ $call->{always} }, '42809' if grep { $_->{sql} =~ /^ROW\(/ } @values;
		# what has no type is text there, and no number or list
		for my $value (@values)
		{
			next if $value->{sql} !~ /^(?:'.*'|NULL)$/s;
			push @{ $call->{always} }, '42883' if $value->{kind} =~ /^(limit|permits|count|holds|tokens?|number|names|oid|internal|cstring)$/;
			$value->{states} = undef if $value->{kind} =~ /^(limit|permits|count|holds|tokens?|number|names|oid|internal|cstring)$/;
		}
		my @columns = map { "c$_" } 1 .. @values;
		return "SELECT $function(" . join(', ', @columns) . ") FROM (VALUES ($list)) v (" . join(', ', @columns) . ')';
	}
	return "$select FROM generate_series(1, 3)" if $way eq 'thrice';
	return "EXPLAIN (VERBOSE) $select" if $way eq 'explain';
	return "EXPLAIN (ANALYZE, TIMING off, SUMMARY off) $select" if $way eq 'analyze';
	if ($way =~ /^(function|subtransaction)$/ && $function ne 'dlock_holders' && $function !~ /^dlock\./)
	{
		my $run = $way eq 'function' ? 'run' : 'run_caught';
		return "SELECT $run(" . quoted($select) . ')';
	}
	return $select;
}

# Make a call and judge it: what is wrong.
sub make_and_judge
{
	my ($call) = @_;
	my $way = $call->{way};
	my $before = $round{before};

	$client->value("SET statement_timeout = '$timeout'") if $call->{waits};
	# a time that is brief may be over in what comes before the call, too
	my $is_over;
	do
	{
		$client->query('ROLLBACK') while $client->{transaction} ne 'I' && !$client->{lost};
		$is_over = grep { ($_->{error} // '') eq '57014' } map { $client->query($_) // {} } @{ $way->{begin} // [] };
	} while $is_over && !$client->{lost};
	my $got = $call->{parameters} ? $client->execute($call->{sql}, @{ $call->{parameters} }) : $client->query($call->{sql});
	my $what = "$way->{way}: " . shown($call->{sql}) . ($call->{parameters}
		? ' with ' . join(', ', map { ($_->{binary} ? 'binary ' : '') . shown($_->{value}) } @{ $call->{parameters} }) : '');
	return "$what: $client->{lost}" if !$got;
	$call->{got} = defined $got->{error} ? $got : { value => $got->{rows}[-1] && $got->{rows}[-1][0] };
	$call->{got}{rows} = [ grep { defined } map { $_->[0] } @{ $got->{rows} } ] if $call->{answer} eq 'names';
	if ($call->{answer} eq 'claimed' && !defined $got->{error})
	{
		# the token is a column of its own, or the last field of a row
		my @tokens = map { ($_->[-1] // '') =~ /(\d+)\)?\z/ } @{ $got->{rows} };
		$call->{got}{value} = @tokens ? '{' . join(',', @tokens) . '}' : undef;
	}
	# as PL/pgSQL makes text of it
	$call->{got}{value} =~ s/^(t|f)(?:rue|alse)$/$1/ if $call->{answer} =~ /boolean/ && defined $call->{got}{value};
	my $after = reading();
	my @wrong = $hostile->judge($call, $before, $after);
	$round{before} = $after;
	if ($way->{begin})
	{
		# what belongs to the transaction ends
		$client->query(one_of(@{ $way->{end} }));
		$client->query('ROLLBACK') while $client->{transaction} ne 'I' && !$client->{lost};
		undef $round{before};
	}
	undef $round{before} if $call->{ends};
	# a brief one may end the statement that is to end it
	if ($call->{waits})
	{
		my $reset;
		do { $reset = $client->query('RESET statement_timeout') } while $reset && defined $reset->{error};
	}
	push @wrong, "the transaction status is $client->{transaction}" if $client->{transaction} ne 'I';
	push @wrong, $client->{lost} if $client->{lost};
	my $answer = defined $got->{error} ? "error $got->{error}: " . shown($got->{message}) : shown($call->{got}{value});
	return map { "$_: $answer: $what" } @wrong;
}

# What a text or number is as a duration, and comes out as.
sub check_duration
{
	my $value = time_argument('span', chance(0.5));
	return if $value->{states} && grep { /^(42883|22004)$/ } @{ $value->{states} };
	my $got = $client->query("SELECT ($value->{sql})::dlock_duration, ($value->{sql})::dlock_duration::interval") // return $client->{lost};
	my $what = "($value->{sql})::dlock_duration";
	if (defined $got->{error})
	{
		my @states = $value->{states} ? @{ $value->{states} } : sort keys %{ $hostile->{unknown} };
		return "$what: error $got->{error}: $got->{message}" if !grep { $_ eq $got->{error} } @states;
		return;
	}
	return "$what: $got->{rows}[0][0], and not an error" if $value->{states} && @{ $value->{states} };
	return if !defined $value->{seconds};
	my $difference = abs($got->{rows}[0][0] - $value->{seconds});
	return "$what: $got->{rows}[0][0]" if $difference > 0.0000005 + abs($value->{seconds}) * 1e-15;
	return;
}

# All that is held can be given back, by whom it belongs to.
sub give_back
{
	my @wrong;
	my %owners = map { $_->{owner} => 1 } grep { $_->{account} eq $round{oid} } values %{ reading()->{rows} };
	my $other = Wire::Postgres->new(path => $client->{path}, database => $client->{database}, user => $round{user}, client_encoding => 'SQL_ASCII');
	for my $owner (sort keys %owners)
	{
		my $count = $other->value('SELECT dlock_release_all(' . quoted($owner) . ')');
		push @wrong, shown($owner) . " cannot release all: $count" if $count !~ /^\d+$/;
	}
	$other->close;
	# but for what is nobody's already
	$control->value('SELECT count(dlock_force_release(name)) FROM (SELECT DISTINCT name FROM dlock_private.lease_table WHERE leaving) l');
	return @wrong, Hostile::still_held(reading());
}

$hostile->play(sub {
	begin_round();
	$round{oid} = $client->value('SELECT current_user::regrole::oid');
	my $what = "$round{encoding} from $round{client_encoding} by $round{user}";
	my @wrong;
	for (1 .. $calls_per_round)
	{
		push @wrong, make_and_judge(make_call());
		push @wrong, check_duration() if chance(0.1) && !$client->{lost};
		last if @wrong;
	}
	push @wrong, 'the server has been restarted'
	  if !$client->{lost} && $control->value('SELECT pg_postmaster_start_time()') ne $postmaster;
	push @wrong, give_back() if !@wrong;
	push @wrong, 'somebody waits: ' . $control->value('SELECT count(*) FROM dlock.waiters') if !@wrong && $control->value('SELECT count(*) FROM dlock.waiters') ne '0';
	$_->close for $client, $control;
	return map { "$what: $_" } @wrong;
});

$hostile->finish(
	functions => [ map { $_->[0] } @functions ],
	never_answered => [ 'dlock_private.refuse_change', 'dlock_private.table_handler' ],
	# what the manual has in its table, and the server itself
	errors => [qw(22004 22007 22023 42501 55000 55L01 25P01 57014 22021 22P02 22003 42883 25P02)]);

# Nothing is left, unless something went wrong before; and nobody has died.
for my $database ($hostile->{wrong} ? () : sort values %databases)
{
	$node->safe_psql($database, q{LOAD 'dlock'; ALTER SYSTEM SET dlock.reap_interval = '10ms'});
	$node->reload;
	ok($node->poll_query_until($database, 'SELECT count(*) = 0 FROM dlock_private.lease_table'), "$database: the lock table is empty");
}
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postmaster, 'the server has not been restarted');
my $log = slurp_file($node->logfile);
unlike($log, qr/was terminated by signal|PANIC|TRAP:|stack smashing|XX000/, 'no process has died');
$node->stop;
done_testing();
