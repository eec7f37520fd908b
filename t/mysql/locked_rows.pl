# A transaction has locked rows of the lock table, by a guard or by hand, while the
# journal's changes of them are to be written: these are carried forward, and only
# calls for those names wait.  The same holds when the library reads the tables anew,
# and when the server restarts while a prepared transaction guards.  The kind of
# server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Wire;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
$engine->write_settings(lock_timeout => 3600);    # who waited for that, would be answered too late
my ($session, $guard) = map { $engine->client($_) } 'session', 'guard';

sub sql { return $engine->control->value($_[0]) }

# Calls for other names do not wait for the transaction.
sub others_work
{
	my ($what) = @_;
	for (1 .. 3)
	{
		like($session->outcome(q{SELECT dlock_acquire('other', 'a', 600)}), qr/^\d+$/, "$what: another name is had");
		is($session->outcome(q{SELECT dlock_release('other', 'a')}), 1, "$what: and given back");
		is(sql('SELECT dlock_settle()'), 1, "$what: what can be written is");
	}
	return;
}

sub begin_guard
{
	my ($name, $token, $begin) = @_;
	$guard->query($begin // 'BEGIN');
	my $answer = $guard->query("CALL dlock.guard('$name', 'own', $token)");
	ok(!defined $answer->{error}, "$name: it is guarded") or diag($answer->{message});
	return;
}

# What is shown of a name, and what its rows are.
sub shown { return sql("SELECT coalesce(group_concat(owner ORDER BY owner), '') FROM dlock.locks WHERE name = '$_[0]'") // '' }

# The log has no rows of leases.
sub rows_are
{
	my ($name, $expected, $what) = @_;
	return if $engine->has_log;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(rows_of($name), $expected, $what);
}

sub rows_of { return sql("SELECT coalesce(group_concat(owner, slot ORDER BY slot), '') FROM dlock.lease_table WHERE name = '$_[0]'") // '' }

sub test_moving_rows
{
	# Slot 0 becomes free while a transaction has locked the row of another lease: that moves
	# there, and the row that it leaves is not taken for a lease of its own, nor for its end.
	my $locker = Wire::MySQL->of($engine, 'root');
	for my $owner (qw(a b))
	{
		like($session->value("SELECT dlock_acquire_permit('moves', '$owner', 600, 3)"), qr/^\d+$/, "moves: $owner has a permit");
		is(sql('SELECT dlock_settle()'), 1, 'moves: and its row');
	}
	rows_are('moves', 'a0,b1', 'moves: in two slots');
	$locker->query('BEGIN');
	is($locker->value(q{SELECT owner FROM dlock.lease_table FORCE INDEX (PRIMARY) WHERE name = 'moves' AND slot = 1 FOR UPDATE}), 'b', 'moves: one row is locked');
	is($session->value(q{SELECT dlock_release('moves', 'a')}), 1, 'moves: the other permit is given back');
	is($session->value(q{SELECT dlock_renew('moves', 'b', 6000)}), 1, 'moves: and this one renewed');
	is(sql('SELECT dlock_settle()'), 1, 'moves: all that can be written is');
	rows_are('moves', 'b0,b1', 'moves: the lease is in the other slot, and its row in both');
	for my $time (1, 2)
	{
		is(sql('SELECT dlock_reload()'), 1, "moves: the tables are read anew, $time");
		cmp_ok($session->value(q{SELECT dlock_remaining('moves', 'b')}), '>', 5000, "moves: the lease is as it was, $time");
		is($session->value(q{SELECT dlock_acquire_permits('moves', 'c', 600, 3, 3)}), 'NULL', "moves: it has a permit, $time");
		like($session->value(q{SELECT dlock_acquire_permits('moves', 'c', 600, 3, 2)}), qr/^\d+$/, "moves: and no more, $time");
		is($session->value(q{SELECT dlock_release('moves', 'c', NULL, 2)}), 1, "moves: these are given back, $time");
		is(sql('SELECT dlock_settle()'), 1, "moves: all that can be written is, $time");
	}
	$locker->query('COMMIT');
	like($session->value(q{SELECT dlock_acquire_permit('moves', 'c', 600, 3)}), qr/^\d+$/, 'moves: the row is free, and something is to be written');
	ok(Scenarios::Run::until(sub { sql('SELECT dlock_settle()') == 1 && rows_of('moves') eq 'b0,c1' }), 'moves: then each lease has its row');
	$locker->close;
	return;
}
test_moving_rows() unless $engine->has_log;

# A guard, and a change of what it guards; then the library forgets.
my %changes = (
	renewed => { call => q{dlock_renew('%s', 'own', 6000)}, shown => 'own' },
	released => { call => q{dlock_release('%s', 'own')}, shown => '' });
for my $what (sort keys %changes)
{
	my $change = $changes{$what};
	for my $forgets (0, 1)
	{
		my $name = $what . $forgets;
		my $token = $session->value("SELECT dlock_acquire('$name', 'own', 600)");
		begin_guard($name, $token);
		is($session->value('SELECT ' . sprintf($change->{call}, $name)), 1, "$name: so it is, while it is guarded");
		is(sql('SELECT dlock_reload()'), 1, "$name: the tables are read anew") if $forgets;
		others_work($name);
		is($session->value("SELECT dlock_is_free('$name')"), 0, "$name: it is not free");
		is($session->value("SELECT dlock_acquire('$name', 'next', 600)"), 'NULL', "$name: nobody else can have it");
		is(shown($name), $change->{shown}, "$name: the view has what is so");
		rows_are($name, 'own0', "$name: and the table the row");
		$guard->query('COMMIT');
		is($session->value("SELECT dlock_is_free('$name')"), $what eq 'released' ? 1 : 0, "$name: the guard ends");
		is(sql('SELECT dlock_settle()'), 1, "$name: what is so can be written");
		rows_are($name, $change->{shown} ? 'own0' : '', "$name: and is");
		cmp_ok($session->value("SELECT dlock_remaining('$name', 'own')"), '>', 5000, "$name: with the new deadline") if $change->{shown};
		like($session->value("SELECT dlock_acquire('$name', 'next', 600)"), qr/^\d+$/, "$name: then it is somebody else's") if !$change->{shown};
	}
}

my $admin = $engine->client('admin');
sub test_by_hand
{
	# One that is locked by hand is no guard, and in nobody's way.
	like($session->value(q{SELECT dlock_acquire('hand', 'one', 600)}), qr/^\d+$/, 'hand: a lease');
	is(sql('SELECT dlock_settle()'), 1, 'hand: has a row');
	$admin->query('BEGIN');
	is($admin->value(q{SELECT owner FROM dlock.lease_table WHERE name = 'hand' AND slot = 0 FOR UPDATE}), 'one', 'hand: which is locked');
	is($session->value(q{SELECT dlock_renew('hand', 'one', 600)}), 1, 'hand: it can be renewed');
	is($session->value(q{SELECT dlock_release('hand', 'one')}), 1, 'hand: and released');
	like($session->value(q{SELECT dlock_acquire('hand', 'two', 600)}), qr/^\d+$/, 'hand: and had by others');
	others_work('hand');
	rows_are('hand', 'one0', 'hand: its row stays');
	is(shown('hand'), 'two', 'hand: the view has what is so');
	like($session->value(q{SELECT dlock_release('hand', 'two') + dlock_acquire('hand', 'three', 600)}), qr/^\d+$/, 'hand: and it goes on');
	others_work('hand, later');
	$admin->query('ROLLBACK');
	is(sql('SELECT dlock_settle()'), 1, 'hand: what is so can be written');
	rows_are('hand', 'three0', 'hand: and is');
	return;
}
test_by_hand() unless $engine->has_log;

# Most of the rows go while one is guarded: none but these is looked at.  The servers
# prefer to read all rows, by what they know of the table.
for my $count (60, 600)
{
	my $names = "(SELECT JSON_ARRAYAGG(n) FROM (WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < $count) SELECT CONCAT('most', i) AS n FROM s) AS l)";
	my $token = $session->value("SELECT dlock_acquire('few$count', 'own', 600)");
	is($session->value("SELECT JSON_LENGTH(dlock_acquire_any($names, 'most', 600, $count))"), $count, "$count: leases");
	$session->value("SELECT dlock_acquire_shared('shared$count', CONCAT('most', $_), 600)") for 1 .. 3;
	is(sql('SELECT dlock_settle()'), 1, "$count: have rows");
	$admin->query('ANALYZE TABLE dlock.lease_table') unless $engine->has_log;
	begin_guard("few$count", $token);
	is($session->value(q{SELECT dlock_release_all('most')}), $count, "$count: they are given back");
	$session->value("SELECT dlock_release_all('most$_')") for 1 .. 3;
	others_work("$count");
	rows_are("few$count", 'own0', "$count: what is guarded stays");
	is(sql(q{SELECT COUNT(*) FROM dlock.lease_table WHERE name LIKE 'most%' OR name LIKE 'shared%'}), 0, "$count: the others are gone");
	$guard->query('COMMIT');
	is($session->value("SELECT dlock_release('few$count', 'own')"), 1, "$count: the end");
}

# A prepared transaction goes on guarding, whatever becomes of the server.
my $token = $session->value(q{SELECT dlock_acquire('prepared', 'own', 600)});
begin_guard('prepared', $token, q{XA START 'x'});
$guard->query($_) for q{XA END 'x'}, q{XA PREPARE 'x'};
is($session->value(q{SELECT dlock_release('prepared', 'own')}), 1, 'prepared: it is released');
others_work('prepared');
$engine->crash;
$_->kill for $session, $guard, $admin;
($session, $admin) = map { $engine->client($_) } 'session', 'admin';
others_work('prepared, restarted');
is($session->value(q{SELECT dlock_is_free('prepared')}), 0, 'prepared, restarted: it is not free');
is($session->value(q{SELECT dlock_acquire('prepared', 'next', 600)}), 'NULL', 'prepared, restarted: nobody else can have it');
ok(!defined $admin->query(q{XA COMMIT 'x'})->{error}, 'prepared, restarted: the transaction ends');
like($session->value(q{SELECT dlock_acquire('prepared', 'next', 600)}), qr/^\d+$/, 'prepared, restarted: it is the next one\'s');
is(sql('SELECT dlock_settle()'), 1, 'prepared, restarted: which can be written');
rows_are('prepared', 'next0', 'prepared, restarted: and is');

# What a take-over has carried forward is written as soon as it can be.
$guard = $engine->client('guard');
$token = $session->value(q{SELECT dlock_acquire('carried', 'own', 600)});
begin_guard('carried', $token, q{XA START 'y'});
$guard->query($_) for q{XA END 'y'}, q{XA PREPARE 'y'};
is($session->value(q{SELECT dlock_release('carried', 'own')}), 1, 'carried: it is released');
is(sql('SELECT dlock_settle()'), 1, 'carried: which is in the journal');
$engine->crash;
$_->kill for $session, $guard, $admin;
($session, $admin) = map { $engine->client($_) } 'session', 'admin';
is($session->value(q{SELECT dlock_acquire('carried', 'next', 600)}), 'NULL', 'carried: and not free');
ok(!defined $admin->query(q{XA COMMIT 'y'})->{error}, 'carried: the transaction ends');
is(sql('SELECT dlock_settle()'), 1, 'carried: all that can be written is');
rows_are('carried', '', 'carried: the row is gone');

$_->quit for $session, $admin;
$engine->stop;
done_testing();
