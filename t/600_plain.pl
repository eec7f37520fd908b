# plain/dlock.sql: the shape of the calls, and every error.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Plain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = Plain::start('plain');
my ($a, $other, $dbo) = map { Plain::session($node, $_) } qw(app other dbo);
my $token;

# Compare what a statement answers, or its error with what it says.
sub answers
{
	my ($session, $sql, $wanted, $message) = @_;
	my $answer = $session->query($sql);
	like($answer, ref $wanted ? $wanted : qr/\A\Q$wanted\E\z/, "$session->{name}: $sql");
	like($session->error, $message, "and what it says") if defined $message;
	$token = $1 if $answer =~ /\A(\d{15,16})\z/;
	return $answer;
}

my $is_token = qr/\A\d{15,16}\z/;

is($node->safe_psql('plain', 'SELECT dlock_version()'), 'plain', 'it says what it is');

# each form of a time, in each place, and the defaults
for my $ttl (q{30}, q{30::smallint}, q{30::bigint}, q{30.5}, q{30.5::real}, q{30.5::float8}, q{'30'}, q{'30 s'}, q{'30s'::text},
	q{'30'::varchar}, q{'PT30S'}, q{'00:00:30'}, q{'3e1'}, q{interval '30 s'}, q{'30 s'::dlock_duration})
{
	for my $wait ('', q{, 0}, q{, 0::bigint}, q{, 0.5}, q{, '0'}, q{, '1 ms'}, q{, interval '1 ms'}, q{, 0::float8}, q{, '0'::text}, q{, '1 s'::dlock_duration})
	{
		answers($a, "CALL dlock_acquire('n', 'a', $ttl$wait)", $is_token);
	}
	answers($a, "CALL dlock_renew('n', 'a', $ttl)", 't');
}
is($a->query('SELECT version FROM dlock.locks'), 150, 'each was one hold more');
answers($a, 'SELECT dlock_force_release(name) FROM dlock.locks', '42501', qr/permission denied for function dlock_force_release/);
answers($dbo, 'SELECT dlock_force_release(name) FROM dlock.locks', '1');

# no setting of the session changes how long it is
answers($a, $_, '') for 'SET extra_float_digits = -15', 'SET intervalstyle = iso_8601', 'SET standard_conforming_strings = off',
	q{SET plpgsql.extra_errors = 'all'};
for my $ttl ('44.44::float8', '44.44::real', q{'44.44 s'::interval})
{
	answers($a, "CALL dlock_acquire('n', 'a', $ttl, 0::float8)", $is_token);
	answers($a, q{SELECT round(extract(epoch FROM expires_at - acquired_at)::numeric, 1) FROM dlock.locks}, '44.4');
	answers($a, q{SELECT dlock_release('n', 'a')}, 't');
}
answers($a, 'RESET ALL', '');

# untyped parameters, named ones, prepared ones
answers($a, q{PREPARE p AS CALL dlock_acquire($1, $2, $3, $4, $5)}, '42601');
my ($status, $out) = Plain::psql_run('-d', Plain::connstr($node, 'app'), '-c', q{CALL dlock_acquire(owner => 'a', name => 'n', ttl => 30, request => 'r')});
like($out, qr/^\d+$/, 'named arguments');
answers($a, q{CALL dlock_acquire('n', 'a', 30, request => 'r')}, $is_token);
answers($a, q{SELECT version FROM dlock_holders('n')}, 1);
answers($a, q{SELECT dlock_release('n', 'a', NULL, 1)}, 't');

# all there is to call
answers($a, q{CALL dlock_acquire_shared('s', 'a', 30)}, $is_token);
answers($other, q{CALL dlock_acquire_shared('s', 'b', 30, '0', 'r')}, $is_token);
answers($other, q{CALL dlock_acquire('s', 'c', 30)}, '');
answers($a, q{CALL dlock_acquire_permit('p', 'a', 30, 3)}, $is_token);
answers($a, q{CALL dlock_acquire_permits('p', 'b', 30, 3, 3)}, '');
answers($a, q{CALL dlock_acquire_permits('p', 'b', 30, 3, 2, 0.1)}, $is_token);
answers($a, q{CALL dlock_acquire_all('{x,y,z}', 'a', 30)}, qr/\A\{\d+,\d+,\d+\}\z/);
answers($a, q{CALL dlock_acquire_all('[0:1]={w,y}'::text[], 'b', 30, '10 ms')}, '');
answers($a, q{SELECT dlock_is_free('w')}, 't');
answers($a, q{CALL dlock_renew_many('{x,q,z}', 'a', 30)}, '{x,z}|{1,3}');
answers($a, q{CALL dlock_renew_many('{}', 'a', 30)}, '{}|{}');
answers($a, q{CALL dlock_renew_many('{x,y}', 'a', 30, '{1,NULL}')}, '{y}|{2}');
answers($a, q{SELECT dlock_release_many('{z,q,y}', 'a')}, "z\ny");
answers($a, q{SELECT dlock_release_many('{}', 'a')}, '');
answers($a, q{SELECT dlock_release_many('{x}', 'a', '{1}')}, '');
answers($a, q{SELECT dlock_owner('x'), dlock_owner('s'), dlock_is_free('x'), dlock_is_free('z')}, 'a||f|t');
answers($a, q{CALL dlock_release_after('x', 'a', 30)}, 't');
answers($a, q{SELECT leaving, owner FROM dlock.locks WHERE name = 'x'}, 't|a');
answers($a, q{SELECT dlock_release('x', 'a')}, 'f');
answers($a, q{SELECT dlock_release('nobody', 'a')}, '');
answers($dbo, q{SELECT sum(dlock_force_release(name)) FROM (SELECT DISTINCT name FROM dlock.locks) l}, '5');
answers($dbo, q{SELECT count(*) FROM dlock_private.lease_table}, '0');

# a token is the clock's, and exact in a double
answers($a, q{CALL dlock_acquire('n', 'a', 30)}, $is_token);
answers($a, "SELECT abs($token / 1048576.0 - extract(epoch FROM clock_timestamp() - '2020-01-01 UTC')) < 600", 't');

# SELECT of what has to be a procedure is refused before it runs, whatever is around it
for my $call (q{dlock_acquire('n', 'b', 30)}, q{dlock_acquire('n', 'b', 30, 0, 'r')}, q{dlock_acquire_shared('n', 'b', 30)},
	q{dlock_acquire_permit('n', 'b', 30, 2)}, q{dlock_acquire_permits('n', 'b', 30, 2, 1)}, q{dlock_acquire_all('{n}', 'b', 30)},
	q{dlock_renew('n', 'b', 30)}, q{dlock_renew_many('{n}', 'b', 30)}, q{dlock_release_after('n', 'b', 30)})
{
	answers($a, "SELECT $call", '42809', qr/is a procedure.*HINT:  To call a procedure, use CALL/s);
	answers($a, "SELECT $call\::text", '42809');
	answers($a, "SELECT ARRAY(SELECT $call)", '42809');
	answers($a, "SELECT * FROM $call AS t", '42809');
	answers($a, 'BEGIN', '');
	answers($a, "CALL $call", '2D000', qr/invalid transaction termination/);
	answers($a, 'ROLLBACK', '');
}
answers($a, q{CALL dlock_release('n', 'a')}, '42809', qr/is not a procedure/);

# what only the extension has
for my $call (q{dlock_acquire_any('{n}', 'a', 30, 1)}, q{dlock_acquire_any('{n}', 'a', '30', 1, 5, 'r')}, (map { ("$_('n', 'a', 30)", "$_('n', 'a', '30', interval '1 s')") }
		qw(dlock_acquire_session dlock_acquire_session_shared dlock_acquire_xact dlock_acquire_xact_shared)),
	q{dlock_wait('n')}, q{dlock_wait('n', -1)}, q{dlock_wait('n', '5 s')}, q{dlock_renew_all('a', 30)}, q{dlock_release_all('a')},
	q{dlock_downgrade('n', 'a')}, q{dlock_remaining('n', 'a')}, q{dlock_blocking_pids(1)}, 'dlock_stats_reset()')
{
	answers($a, "SELECT $call", '0A000', qr/dlock_\w+\(\) needs the extension dlock.*HINT:  plain/s);
}
answers($a, q{SELECT name, token FROM dlock_acquire_any('{n}', 'a', 30, 1)}, '0A000');

# arguments
my $long = q{repeat('x', 256)};
for my $case (
	[ q{NULL, 'a', 30}, '22004', qr/name must not be null/ ],
	[ q{'', 'a', 30}, '22023', qr/name must be 1 to 255 bytes long.*It is 0 bytes long/s ],
	[ "$long, 'a', 30", '22023', qr/It is 256 bytes long/ ],
	[ q{repeat('ä', 128), 'a', 30}, '22023' ],
	[ q{'n', NULL, 30}, '22004', qr/owner must not be null/ ],
	[ "'n', $long, 30", '22023', qr/owner must be 1 to 255/ ],
	[ q{'n', 'a', NULL}, '22004', qr/ttl must not be null/ ],
	[ q{'n', 'a', 0}, '22023', qr/ttl must be greater than 0/ ],
	[ q{'n', 'a', -1}, '22023', qr/ttl must be greater than 0/ ],
	[ q{'n', 'a', 0.0000001}, '22023', qr/ttl must be greater than 0/ ],
	[ q{'n', 'a', 86401}, '22023', qr/ttl must be at most 86400 seconds.*HINT:  Times are in seconds/s ],
	[ q{'n', 'a', '1 month'}, '22023', qr/ttl must be at most/ ],
	[ q{'n', 'a', 1e13}, '22023', qr/duration is out of range/ ],
	[ q{'n', 'a', '1e999999'}, '22023', qr/duration is out of range/ ],
	[ q{'n', 'a', 'NaN'::float8}, '22023', qr/finite number of seconds/ ],
	[ q{'n', 'a', 'infinity'::float8}, '22023', qr/finite number of seconds/ ],
	[ q{'n', 'a', 'soon'}, '22007', qr/invalid input syntax for type dlock_duration: "soon".*HINT:  Give a number/s ],
	[ q{'n', 'a', ''}, '22007' ],
	[ q{'n', 'a', 30, NULL}, '22004', qr/wait must not be null/ ],
	[ q{'n', 'a', 30, 86401}, '22023', qr/wait must be at most/ ],
	[ q{'n', 'a', 30, 'soon'}, '22007' ],
	[ q{'n', 'a', 30, 0, ''}, '22023', qr/request id must be 1 to 255/ ],
	[ "'n', 'a', 30, 0, $long", '22023', qr/request id must be 1 to 255/ ],
  )
{
	my ($arguments, @wanted) = @$case;
	answers($a, "CALL dlock_acquire($arguments)", @wanted);
	answers($a, "CALL dlock_acquire_all(ARRAY[" . ($arguments =~ s/(,)(?= ('a'|NULL, 30|repeat\('x', 256\), 30))/]$1/r) . ')', $wanted[0]);
}
answers($a, q{CALL dlock_acquire_permit('n', 'a', 30, NULL)}, '22004', qr/limit must not be null/);
answers($a, q{CALL dlock_acquire_permit('n', 'a', 30, 0)}, '22023', qr/limit must be at least 1/);
answers($a, q{CALL dlock_acquire_permits('n', 'a', 30, 2, 3)}, '22023', qr/permits must not be greater than limit.*3 permits were asked for, of 2/s);
answers($a, q{CALL dlock_acquire_permits('n', 'a', 30, 2, 0)}, '22023', qr/permits must be at least 1/);
for my $call (q{CALL dlock_acquire_all(%s, 'a', 30)}, q{CALL dlock_renew_many(%s, 'a', 30)}, q{SELECT dlock_release_many(%s, 'a')})
{
	answers($a, sprintf($call, q{NULL::text[]}), '22004', qr/names must not be null/);
	answers($a, sprintf($call, q{'{a,NULL}'}), '22004', qr/names must not contain nulls/);
	answers($a, sprintf($call, q{'{a,b,a}'}), '22023', qr/names must not contain "a" twice/);
	answers($a, sprintf($call, q{'{{a,b}}'}), '22023', qr/names must be a one-dimensional array/);
	answers($a, sprintf($call, "'{" . join(',', 1 .. 1001) . "}'"), '22023', qr/There are 1001/);
}
answers($a, q{CALL dlock_acquire_all('{}', 'a', 30)}, '22023', qr/names must be 1 to 100 names.*There are 0/s);
answers($a, q{CALL dlock_renew_many('{a}', 'a', 30, '{1,2}')}, '22023', qr/tokens must be as many as names.*There are 2 tokens for 1 names/s);
answers($a, q{SELECT dlock_release_many('{a}', 'a', '{{1}}')}, '22023', qr/tokens must be a one-dimensional array/);
answers($a, q{SELECT dlock_release('n', 'a', 1, 0)}, '22023', qr/holds must be at least 1/);
answers($a, q{SELECT dlock_release('n', 'a', 1, NULL)}, '22004', qr/holds must not be null/);
answers($a, q{CALL dlock_release_after('n', 'a', 0)}, '22023', qr/after must be greater than 0/);
answers($a, q{SELECT dlock_guard('n', 'a', NULL)}, '22004', qr/token must not be null/);
answers($a, qq{SELECT $_(NULL)}, '22004', qr/name must not be null/) for qw(dlock_owner dlock_is_free dlock_holders);
answers($dbo, q{SELECT dlock_force_release(NULL)}, '22004');
answers($dbo, q{SELECT dlock_force_release('n', NULL)}, '22004');

# misuse
answers($a, q{CALL dlock_acquire('n', 'a', 30)}, $token);
answers($a, q{CALL dlock_acquire_permit('n', 'a', 30, 9)}, '55000', qr/holds "n" in mode exclusive and cannot also take it in mode permit.*Release it first/s);
answers($dbo, q{UPDATE dlock_private.lease_table SET version = 2147483647}, '');
answers($a, q{CALL dlock_acquire('n', 'a', 30)}, '54000', qr/owner "a" cannot hold "n" more than 2147483647 times/);
answers($dbo, q{SELECT dlock_force_release('n')}, 1);
answers($a, q{CALL dlock_acquire_shared('n', 'a', 30)}, $is_token);
answers($a, q{CALL dlock_acquire('n', 'a', 30)}, '55000', qr/owner "a" holds a shared lease on "n" and cannot make it exclusive.*Release the shared lease first/s);
answers($dbo, q{SELECT dlock_force_release('n', 'b')}, 0);
answers($dbo, q{SELECT dlock_force_release('n', 'a')}, 1);

# the guard
answers($a, q{CALL dlock_acquire('n', 'a', 30)}, $is_token);
answers($a, 'BEGIN', '');
answers($a, "SELECT dlock_guard('n', 'a', $token)", '');
answers($a, 'SAVEPOINT s', '');
answers($a, "SELECT dlock_guard('n', 'a', $token + 1)", '55L01', qr/no longer holds the lease on "n" with this token.*Owner "a" holds it with token $token.*Roll back/s);
answers($a, 'ROLLBACK TO s', '');
answers($a, "SELECT dlock_guard('q', 'a', 1)", '55L01', qr/Nobody holds it/);
answers($a, 'ROLLBACK', '');
answers($other, "SELECT dlock_guard('n', 'a', $token)", '55L01', qr/Somebody else holds it/);
answers($a, qq{CALL dlock_release_after('n', 'a', 30, $token)}, 't');
answers($a, "SELECT dlock_guard('n', 'a', $token)", '55L01', qr/It was released, and stays taken for a while/);

# the end of the tokens: fails closed
answers($dbo, q{SELECT setval('dlock_private.mark', 9007199254740990)}, '9007199254740990');
answers($a, q{CALL dlock_acquire('last', 'a', 30)}, '9007199254740991');
answers($a, q{CALL dlock_acquire('none', 'a', 30)}, '2200H');
answers($a, q{SELECT dlock_is_free('none')}, 't');

# beside one another they are not
SKIP:
{
	skip('this server has no library', 4) if !$node->safe_psql('plain', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'dlock'});
	my ($ok, $message) = Plain::psql_run('-v', 'VERBOSITY=verbose', '-d', $node->connstr('plain'), '-c', 'CREATE EXTENSION dlock');
	like($message, qr/42P06: schema "dlock" already exists.*run plain\/uninstall.sql first/s, 'the extension refuses to come beside it');
	$node->safe_psql('postgres', 'CREATE DATABASE ext OWNER dbo');
	$node->safe_psql('ext', 'CREATE EXTENSION dlock');
	($ok, $message) = Plain::psql_run('-v', 'VERBOSITY=verbose', '-d', Plain::connstr($node, 'dbo', 'ext'), '-f', "$Plain::root/plain/dlock.sql");
	like($message, qr/42710: the extension dlock is there already/, 'and it beside the extension');
	is($node->safe_psql('ext', q{SELECT count(*) FROM pg_proc WHERE proname = 'dlock_version'}), 0, 'and nothing is left of that');
}

$_->reap for $a, $other, $dbo;
$node->stop;
done_testing();
