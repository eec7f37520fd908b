# The JSON arrays that calls for many names take: an array is read as JSON says, and
# everything else is an error, however long or deep it is, in any character set.  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Files;
use Scenarios;
use Test::More;
use POSIX ();
use Wire;

my ($kind) = @ARGV;
my $is_mariadb = $kind eq 'mariadb';
my $engine = Engines::start($kind, '--max-allowed-packet=64M');
my $session = Wire::MySQL->of($engine, 'root');
$session->value('SET SESSION group_concat_max_len = 1000000');

sub attempt
{
	my ($statement) = @_;
	my $answer = $session->query($statement) // die substr($statement, 0, 200) . ": $session->{lost}\n";
	return defined $answer->{error} ? "$answer->{number} $answer->{error}: $answer->{message}" : $answer->{rows}[0][0] // 'NULL';
}

sub hex_of { return q{x'} . unpack('H*', $_[0]) . q{'} }

sub shown { my ($text) = @_; return length $text > 60 ? substr($text, 0, 60) . '... of ' . length $text : $text =~ s/([^ -~])/sprintf('\x%02X', ord $1)/ger }

# What is held, as hexadecimal digits; nothing is left of it.
sub held
{
	my $names = $session->value(q{SELECT GROUP_CONCAT(HEX(name) ORDER BY name SEPARATOR ' ') FROM (SELECT dlock_settle() AS s) AS s STRAIGHT_JOIN dlock.lease_table WHERE s.s = 1});
	$session->value(q{SELECT dlock_release_all('o')});
	return $names // '';
}

# Is this text, given by an SQL expression, read as these names?
sub is_read
{
	my ($what, $sql, @names) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(attempt("SELECT dlock_acquire_any($sql, 'o', 600, 1000)"), qr/^\[\{"name": .*\}\]$/, "$what: a list");
	is(held(), join(' ', sort map { uc unpack('H*', $_) } @names), "$what: of the right names");
	return;
}

# How long the server's threads have worked, in seconds, however long they had to wait for a
# processor.
sub worked
{
	my ($user, $system) = (split ' ', slurp('/proc/' . $engine->pid . '/stat') =~ s/.*\)//sr)[ 11, 12 ];
	return ($user + $system) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

my $no_list = qr/^3037 22023: names must be a JSON array of strings$/;

sub is_refused
{
	my ($what, $sql, $error) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = worked();
	like(attempt("SELECT $_"), $error // $no_list, "$what") for "dlock_acquire_any($sql, 'o', 600, 1000)", "dlock_acquire_all($sql, 'o', 600)", "dlock_renew_many($sql, 'o', 600)", "dlock_release_many($sql, 'o')";
	cmp_ok(worked() - $before, '<', 10, "$what: without much work");
	is(held(), '', "$what: nothing is held");
	return;
}

# Strings.
is_read("<$_->[0]>", hex_of($_->[0]), $_->[1])
  for [ '["a"]', 'a' ], [ " \t\r\n[ \t\r\n\"a\" \t\r\n] \t\r\n", 'a' ], [ '["\"\\\\\/\b\f\n\r\t"]', qq{"\\/\b\f\n\r\t} ], [ '["\u0041\u00e9\u20ac"]', "A\xC3\xA9\xE2\x82\xAC" ],
  [ '["\ud83d\ude00"]', "\xF0\x9F\x98\x80" ], [ '["\uD800\uDC00\udbff\udfff"]', "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF" ], [ '["\u0000"]', "\0" ], [ '["a\u0000b"]', "a\0b" ],
  [ '["\uffff"]', "\xEF\xBF\xBF" ], [ "[\"\x7F\"]", "\x7F" ], [ '["[]{},:null"]', '[]{},:null' ];
# what is no UTF-8 stays what it is
is_read('bytes', hex_of("[\"$_\"]"), $_) for "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xC3", "\x80\x80", "\xF8\x88\x80\x80\x80";
is_read('255 bytes', hex_of('["' . 'x' x 255 . '"]'), 'x' x 255);
is_read('255 bytes in escapes', hex_of('["' . '\u20ac' x 85 . '"]'), "\xE2\x82\xAC" x 85);
is_read('1000 names', hex_of('[' . join(',', map { qq{"$_"} } 1001 .. 2000) . ']'), 1001 .. 2000);
is_read('much space', hex_of('[' . ' ' x 3_000_000 . '"a"' . "\n" x 3_000_000 . ']'), 'a');

# No arrays of strings.
is_refused("<" . shown($_) . ">", hex_of($_))
  for '', ' ', '{}', '{"a": "b"}', 'null', 'true', '"a"', '1', '[', ']', '[]]', '[[]]', '[["a"]]', '[{}]', '[1]', '[-1.5e3]', '[true]', '[false]', '["a"', '["a",]', '[,]', '[,"a"]',
  '["a",,"b"]', '["a" "b"]', '["a"]x', '["a"] ["b"]', "['a']", '[a]', '["a]', '["', '["\\', '["\\"]', '["\u"]', '["\u12"]', '["\u123g"]', '["\x41"]', '["\a"]', '["\ud800"]', '["\udc00"]',
  '["\ud800x"]', '["\ud800\n"]', '["\ud800\u0041"]', '["\ud800\ud800"]', '["\u+123"]', '["\u 123"]', "[\"a\nb\"]", "[\"a\0b\"]", "[\"a\"]\0", "[\0\"a\"]", "\0", "\xEF\xBB\xBF[\"a\"]", '[nul]', '[nullx]',
  '[NULL]', '["anull]', '[/**/"a"]', "[\"a\"\x0B]", "[\xA0\"a\"]", '[' x 1_000_000, '[' x 1_000_000 . ']' x 1_000_000, '{"a":' x 1_000_000, '["' . '\\' x 1_000_001;
is_refused('nulls', hex_of($_), qr/^1138 22004: names must not contain nulls$/) for '[null]', '["a", null]', '[null,"a"]';
is_refused('twice', hex_of($_), qr/^3037 22023: names must not contain "\S+" twice$/) for '["a","a"]', '["a","\u0061"]', '["/","b","\/"]', '["\ud83d\ude00","' . "\xF0\x9F\x98\x80" . '"]';
is_refused('too long', hex_of("[\"a\",$_]"), qr/^3037 22023: name must be 1 to 255 bytes long; it is \d+ bytes long$/)
  for '""', '"' . 'x' x 256 . '"', '"' . 'x' x 16_000_000 . '"', '"' . '\u20ac' x 86 . '"', '"' . '\u0061' x 2_000_000 . '"';
is_refused('too many', hex_of('[' . join(',', map { qq{"$_"} } 1 .. $_) . ']'), qr/^3037 22023: names must be [01] to 10+ names; there are $_$/) for 1001, 1_000_000;
is_refused('too many nulls', hex_of('[' . 'null,' x 3_000_000 . 'null]'), qr/^3037 22023: names must be [01] to 10+ names; there are 3000001$/);
is_refused('SQL NULL', 'NULL', qr/^1138 22004: names must not be null$/);
is_refused("not text, $_", $_) for '1', '1.5', 'TRUE', 'NOW()', q{DATE'2026-01-01'}, q{JSON_OBJECT('a', 1)}, 'POINT(1, 1)';
is(attempt(q{SELECT dlock_acquire_any('[]', 'o', 600, 1)}), '[]', 'none of none');
like(attempt(q{SELECT dlock_acquire_all('[]', 'o', 600)}), qr/^3037 22023: names must be 1 to 100 names; there are 0$/, 'all of none');

# Character sets.  MySQL converts; on MariaDB the bytes count, which in some are no JSON.
my $converted = "\xC3\xA9";
for my $charset (qw(utf8mb4 latin1 utf16 utf16le utf32 ucs2 gbk sjis gb18030))
{
	my $sql = $charset eq 'sjis' ? qq{CONVERT('["a"]' USING sjis)} : "CONVERT(_utf8mb4 " . hex_of(qq{["$converted"]}) . " USING $charset)";
	next if $session->value('SELECT COUNT(*) FROM information_schema.character_sets WHERE character_set_name = ' . "'$charset'") == 0;
	if ($is_mariadb && $charset =~ /^(?:utf16|utf32|ucs2)/)
	{
		is_refused($charset, $sql);
	}
	else
	{
		my $name = $charset eq 'sjis' ? 'a' : $is_mariadb ? { latin1 => "\xE9", gbk => "\xA8\xA6", gb18030 => "\xA8\xA6" }->{$charset} // $converted : $converted;
		is_read($charset, $sql, $name);
	}
	# both can convert by themselves
	is_read("$charset, converted", "CONVERT($sql USING utf8mb4)", $charset eq 'sjis' ? 'a' : $converted);
}

# Tokens.
my $token = $session->value(q{SELECT dlock_acquire('n', 'o', 600)});
for my $tokens ("[$token]", "[ $token ]", "[\"$token\"]", "[$token.0]", '[null]', 'NULL')
{
	is(attempt("SELECT dlock_renew_many('[\"n\"]', 'o', 600, " . ($tokens eq 'NULL' ? $tokens : "'$tokens'") . ')'), '["n"]', "tokens $tokens");
}
is(attempt("SELECT dlock_renew_many('[\"n\"]', 'o', 600, '[$_]')"), '[]', "tokens [$_] are others")
  for 0, -1, 1, $token + 1, '99999999999999999999', '-99999999999999999999', '1e15', '"1"';
like(attempt("SELECT dlock_renew_many('[\"n\"]', 'o', 600, " . hex_of($_) . ')'), qr/^3037 22023: tokens must be a JSON array of integers and nulls$/, 'tokens ' . shown($_))
  for '', '[', '[x]', '["x"]', '[""]', '["null"]', '["xnull]', '["nnull]', '[""null]', '["1null]', '["1]', '["1" "2"]', '["1"x]', '[1 2]', '[1.5]', '["1 "]', '[" 1"]', '[true]', '[[1]]', '[{}]', '[1]x', "[1]\0",
  '[nullnull]', '[' . '1' x 1_000_000 . ']', '[' x 1_000_000, '[0x1]', '[1e400]', '[nan]', '[--1]', '[.]', '[+]', '[e]';
like(attempt("SELECT dlock_renew_many('[\"n\"]', 'o', 600, " . hex_of($_) . ')'), qr/^3037 22023: tokens must be as many as names; there are \d+ tokens for 1 names$/, 'tokens ' . shown($_))
  for '[]', '[1,1]', '[' . 'null,' x 1_000_000 . 'null]';
is(attempt("SELECT dlock_renew_many('[]', 'o', 600, '[]')"), '[]', 'no tokens for no names');
like(attempt("SELECT dlock_renew_many('[]', 'o', 600, '[null]')"), qr/^3037 22023: tokens must be as many/, 'a token for no names');
is(held(), uc unpack('H*', 'n'), 'and that is all');

$session->close;
$engine->stop;
done_testing();
