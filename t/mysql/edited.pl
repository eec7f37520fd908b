# Somebody has changed the library's tables: the library forgets what it knew, and
# goes on with what they contain.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $session = $engine->client('session');

sub sql { return $engine->control->value($_[0]) }

# The log: its last rows are gone, it is damaged, or empty, or that of another time.
sub test_log
{
	my $token = $session->value(q{SELECT dlock_acquire('n', 'a', 600)});
	is(sql('SELECT dlock_settle()'), 1, 'a lease is in the log');
	$engine->control->value('CREATE TABLE scenarios.copy AS SELECT * FROM dlock.log');

	# who has lost the last row loads what is there
	like($session->value(q{SELECT dlock_acquire('lost', 'a', 600)}), qr/^\d+$/, 'another one');
	is(sql('SELECT dlock_settle()'), 1, 'too');
	sql('DELETE FROM dlock.log ORDER BY number DESC LIMIT 1');
	my $next = $session->outcome(q{SELECT dlock_acquire('m', 'a', 600)});
	like($next, qr/^\d+$/, 'the last row is gone: the next call works');
	cmp_ok($next, '>', $token, 'with a larger token');
	is($session->value(q{SELECT dlock_owner('n')}), 'a', 'what is in the log is held');
	is($session->value(q{SELECT dlock_is_free('lost')}), 1, 'and nothing else');

	# each byte of a row counts
	my $row = q{(SELECT number FROM (SELECT MAX(number) AS number FROM dlock.log) AS l)};
	for my $change (
		'entries = CONCAT(entries, 0)',
		'entries = LEFT(entries, LENGTH(entries) - 1)',
		'entries = INSERT(entries, LENGTH(entries), 1, CHAR(ORD(RIGHT(entries, 1)) ^ 1))',
		'entries = INSERT(entries, 1, 1, CHAR(9))',
		q{entries = ''},
		'writer = writer + 1',
		'number = number + 1')
	{
		is(sql('SELECT dlock_settle()'), 1, "$change: all is written");
		sql('CREATE TABLE scenarios.row AS SELECT * FROM dlock.log WHERE number = ' . $row);
		sql("UPDATE dlock.log SET $change WHERE number = $row");
		my $error = qr/could not use the lock table: row \d+ of dlock\.log cannot be read/;
		like($engine->control->outcome('SELECT dlock_reload()'), $error, "$change: a row cannot be read");
		like($session->outcome("SELECT $_"), $error, "$change: $_")
			for q{dlock_owner('n')}, q{dlock_acquire('x', 'a', 600)}, q{dlock_release('x', 'a')}, q{count(*) FROM dlock.locks};
		sql("DELETE FROM dlock.log WHERE number >= (SELECT number FROM scenarios.row)");
		sql('INSERT INTO dlock.log SELECT * FROM scenarios.row');
		sql('DROP TABLE scenarios.row');
		ok(Scenarios::Run::until(sub { $engine->control->outcome('SELECT dlock_reload()') eq '1' }), "$change: it is as it was");
		is($session->value(q{SELECT dlock_owner('n')}), 'a', "$change: so is what is held");
	}

	# a log without rows is an error, and one of an earlier time is what is held
	sql('DELETE FROM dlock.log');
	my $empty = qr/dlock\.log is empty; run install\.sql again/;
	like($engine->control->outcome('SELECT dlock_reload()'), $empty, 'an empty log: who has it read is told');
	like($session->outcome("SELECT $_"), $empty, "an empty log: $_")
		for q{dlock_owner('n')}, q{dlock_acquire('x', 'a', 600)}, q{dlock_release('n', 'a')};
	my $last = $next;
	sql('INSERT INTO dlock.log SELECT * FROM scenarios.copy');
	is($engine->control->outcome('SELECT dlock_reload()'), 1, 'an older log: it is read');
	is(sql('SELECT GROUP_CONCAT(name) FROM dlock.locks'), 'n', 'and holds what it has');
	cmp_ok($session->value(q{SELECT dlock_acquire('m', 'a', 600)}), '>', $last, 'tokens are larger than before that');
	is($session->value(q{SELECT dlock_release_all('a')}), 2, 'all are given back');
	return;
}
if ($engine->has_log)
{
	test_log();
	$session->quit;
	$engine->stop;
	done_testing();
	exit;
}

# The journal has a row with the number of the next, as if a commit that was taken for
# one that failed had taken place.
like($session->value(q{SELECT dlock_acquire('n', 'a', 600)}), qr/^\d+$/, 'a lease');
Scenarios::Run::until(sub {
	$session->value(q{SELECT dlock_renew('n', 'a', 600)});
	return sql(q{INSERT INTO dlock.journal (writer, number, changes)
		SELECT writer, MAX(number) + 1, '[[2,"6e",1]]' FROM dlock.journal GROUP BY writer;
		SELECT COUNT(*) FROM dlock.journal}) > 1;
}) or die "nothing is in the journal\n";
like($session->outcome(q{SELECT dlock_acquire('m', 'a', 600)}), qr/^\d+$/, 'a number that is taken: the next call works');
is($session->value(q{SELECT dlock_owner('n')}), 'a', 'and what was held is held');

# Two rows with one token: the library does not mind, however often it reads them.
for my $try (1 .. 3)
{
	is($session->value(q{SELECT dlock_acquire_shared('s', 'a', 600) > 0}), 1, 'a shared lease') if $try == 1;
	is(sql('SELECT dlock_settle()'), 1, 'has a row');
	sql(q{REPLACE INTO dlock.lease_table SELECT l.name, l.slot + 1 + } . (3 - $try) . q{, l.owner, l.account_user, l.account_host,
		l.mode, l.kind, l.version, l.token, l.request, l.ttl_us, l.writes, l.writer + 1, l.deadline_us, l.connection_id,
		l.acquired_us, l.expires_us, l.guards FROM dlock.lease_table AS l WHERE l.name = 's' AND l.slot = 0});
	is(sql('SELECT dlock_reload()'), 1, "and another one with the same token, try $try");
	like($session->outcome(q{SELECT dlock_holders('s')}), qr/"a"/, 'there are holders');
	like($session->outcome(q{SELECT dlock_acquire_shared('s', 'b', 600)}), qr/^\d+$/, 'and can be others');
}
like($engine->control->value(q{SELECT dlock_force_release('s')}), qr/^[1-9]/, 'all end');

# The lock table cannot be written: leases are kept in the journal, the error log is told
# once, and told when it is over.
sub told { return scalar(() = $engine->log =~ /^dlock: dlock\.lease_table $_[0]/mg) }
sql(q{CREATE TRIGGER dlock.t BEFORE INSERT ON dlock.lease_table FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not\\nnow'});
like($session->outcome(q{SELECT dlock_acquire('w', 'a', 600)}), qr/^\d+$/, 'a table that cannot be written: a lease');
ok(Scenarios::Run::until(sub { told('cannot be written: .*not..0Anow;') > 0 }), 'the error log is told');
select(undef, undef, undef, 3);
is(told('cannot be written'), 1, 'once');
is($session->value(q{SELECT dlock_owner('w')}), 'a', 'the lease is there');
like($session->outcome(q{SELECT dlock_acquire('w', 'b', 600)}), qr/^NULL$/, 'and in the way of others');
is(told('can be written'), 0, 'nothing is over');
sql('DROP TRIGGER dlock.t');
ok(Scenarios::Run::until(sub { told('can be written again') > 0 }), 'the table can be written again: the error log is told');
is($session->value(q{SELECT dlock_release('w', 'a')}), 1, 'and the lease is still there');

# A run that does not know when a lease was written that only the journal has: it is
# over when its time to live has passed since somebody looked first, and not later.  Who
# is answered only after that time sees nothing of it, and looks at another one.
my $owner;
my $journaled = Scenarios::Run::until(sub {
	$session->value(q{SELECT dlock_release_all('j')});
	$session->value(q{SELECT dlock_acquire('j', 'j', 2)});
	$session->kill;
	$engine->crash;
	$session = $engine->client('after');
	return 0 if sql(q{SELECT COUNT(*) FROM dlock.journal WHERE changes LIKE '%"6a"%'}) == 0
		|| sql(q{SELECT COUNT(*) FROM dlock.lease_table WHERE name = 'j'}) > 0;
	my $asked = time;
	$owner = $session->value(q{SELECT dlock_owner('j')});
	return $owner eq 'j' || time - $asked < 2;
});
ok($journaled, 'a lease is in the journal and not in the table, and the server is killed');
is($owner, 'j', 'the next run knows of it');
my $free;
for (1 .. 60)
{
	select(undef, undef, undef, 0.1);
	$free = $session->value(q{SELECT dlock_is_free('j')}) and last;
}
is($free, 1, 'and that it is over, however often somebody looks');

# A source is lost with what is in its journal, follows its successor, and is to grant
# again: then the journal has leases that were never known to the successor, and the table
# what that has granted.
my %tokens;
$journaled = Scenarios::Run::until(sub {
	$session->value(qq{SELECT dlock_release_all('$_')}) for 'old', 'old2';
	$tokens{excluded} = $session->value(q{SELECT dlock_acquire('excluded', 'old', 600)});
	$tokens{shared} = $session->value(q{SELECT dlock_acquire_shared('shared', 'old', 600)});
	$session->value(q{SELECT dlock_acquire_shared('other mode', 'old', 600)});
	$session->value(q{SELECT dlock_acquire_shared('other mode', 'old2', 600)});
	$session->kill;
	$engine->crash;
	$session = $engine->client('after');
	return sql(q{SELECT COUNT(*) FROM dlock.journal WHERE changes LIKE '%"6f6c6432"%'}) == 1
		&& sql(q{SELECT COUNT(*) FROM dlock.lease_table WHERE name IN ('excluded', 'shared', 'other mode')}) == 0;
});
ok($journaled, 'leases are in the journal and not in the table, and the server is killed');
my $larger = $tokens{excluded} + 1000;
sql("INSERT INTO dlock.lease_table SELECT name, 0, 'new', 'tester', 'localhost', mode, 1, 1, $larger, '', 600000000, 1, 7, 0, 0, 7, 0, 0
	FROM (SELECT 'excluded' AS name, 1 AS mode UNION ALL SELECT 'shared', 2 UNION ALL SELECT 'other mode', 1) AS n;
	UPDATE dlock.journal_head SET writer = 7; SELECT 1");
my $owners = q{SELECT GROUP_CONCAT(owner ORDER BY owner) FROM dlock.lease_table WHERE name = };
is($session->value(qq{SELECT dlock_renew('excluded', 'old', 600, $tokens{excluded})}), 0, 'of two that exclude each other the older is not held');
is($session->value(qq{SELECT dlock_renew('excluded', 'new', 600, $larger)}), 1, 'and the newer is');
is($session->value(qq{SELECT dlock_renew('other mode', 'new', 600, $larger)}), 1, 'also where several were older');
is($session->value(q{SELECT dlock_release_all('old2')}), 0, 'none of which is held');
is($session->value(qq{SELECT dlock_renew('shared', 'old', 600, $tokens{shared})}), 1, 'of two that share a name one is held');
is($session->value(qq{SELECT dlock_renew('shared', 'new', 600, $larger)}), 1, 'and the other');
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is(sql("$owners'$_->[0]'"), $_->[1], "the table has the same of $_->[0]")
  for [ 'excluded', 'new' ], [ 'other mode', 'new' ], [ 'shared', 'new,old' ];
ok(Scenarios::Run::until(sub { $engine->log =~ /^dlock: dropped 3 of the leases/m }), 'the error log is told');
$session->kill;
$engine->crash;
$session = $engine->client('after');
is($session->value(q{SELECT dlock_release_all('new')}), 3, 'and the next run knows the same');
is($session->value(q{SELECT dlock_release_all('old')}), 1, 'of both');

$session->quit;
$engine->stop;
done_testing();
