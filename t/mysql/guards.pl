# A guard pins its lease, whatever the library does meanwhile, and keeps no caller
# from leases on other names.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $guard = $engine->client('guard');
my $other = $engine->client('other');

sub sql { return $engine->control->value($_[0]) }

# A lease that has a row, and its token.
sub lease
{
	my ($name, $ttl) = @_;
	my $token = $guard->value("SELECT dlock_acquire('$name', 'a', $ttl)");
	Scenarios::Run::until(sub { sql("SELECT count(*) FROM dlock.lease_table WHERE name = '$name'") == 1 })
	  or die "the lease never has a row\n";
	return $token;
}

# Somebody asks for the name between the steps of a guard (udf_guard.c), so that its
# row is read when it has been announced, and not yet locked.
my $token = lease('n', 600);
$guard->value('BEGIN');
is($guard->value("SELECT dlock_guard_begin('n', 'a', $token)"), 1, 'a guard is announced');
is($other->decided(q{SELECT dlock_acquire('n', 'b', 30, 0.001)}), 'NULL', 'somebody else asks for the name');
$guard->value("CALL dlock.guard_row('n', $token, \@rows)");
is($guard->value("SELECT dlock_guard_check('n', 'a', $token, \@rows)"), 1, 'and the row is locked');
is($guard->value(q{SELECT dlock_renew('n', 'a', 1)}), 1, 'the lease has a second left');
ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'n' AND remaining > 0}) == 0 }), 'the lease is over');
is($other->value(q{SELECT dlock_acquire('n', 'b', 30)}), 'NULL', 'and nobody else has the name');
$guard->value('COMMIT');
like($other->value(q{SELECT dlock_acquire('n', 'b', 600, 600)}), qr/^\d+$/, 'until the guard is gone');

# A rollback to a savepoint from before the guard gives the row's lock back only if the
# savepoint was set before InnoDB had any part in the transaction.
$guard->value('CREATE TABLE scenarios.work (i INT PRIMARY KEY) ENGINE=InnoDB');
for my $first ('', 'SELECT * FROM scenarios.work', 'INSERT INTO scenarios.work VALUES (1)')
{
	my $name = "savepoint $first";
	my $what = $first || 'nothing before the savepoint';
	$token = lease($name, 600);
	$guard->value($_) for 'BEGIN', $first || (), 'SAVEPOINT s', "CALL dlock.guard('$name', 'a', $token)", 'ROLLBACK TO SAVEPOINT s';
	if (!$first)
	{
		is(sql("SELECT JSON_VALUE(dlock_holders('$name'), '\$[0].guarded')"), 0, "$what: the guard ends");
		$guard->value("CALL dlock.guard('$name', 'a', $token)");
	}
	is($guard->value("SELECT dlock_release('$name', 'a')"), 1, "$what: the lease is given back");
	is($other->value("SELECT dlock_acquire('$name', 'b', 30)"), 'NULL', "$what: and guarded to the end");
	$guard->value('ROLLBACK');
	like($other->value("SELECT dlock_acquire('$name', 'b', 30, 600)"), qr/^\d+$/, "$what: and no longer");
}

# What is to become of the row of a guarded lease stays in the journal, also when the
# library takes over: by itself, and when the server has been killed while the
# transaction was prepared.
for my $how ('taken over', 'killed')
{
	my $name = $how =~ s/ //r;
	$token = lease($name, 600);
	$guard->value(q{XA START 'x'});
	$guard->value("CALL dlock.guard('$name', 'a', $token)");
	is($guard->value("SELECT dlock_renew('$name', 'a', 6000)"), 1, "$how: a guarded lease is renewed");
	if ($how eq 'killed')
	{
		my $gone = $guard->value("SELECT dlock_acquire('$name gone', 'a', 600)");
		$guard->value("CALL dlock.guard('$name gone', 'a', $gone)");
		is($guard->value("SELECT dlock_release('$name gone', 'a')"), 1, "$how: another one is released");
		is(sql('SELECT dlock_settle()'), 1, "$how: and that is written");
	}
	$guard->value($_) for q{XA END 'x'}, q{XA PREPARE 'x'};
	if ($how eq 'killed')
	{
		$_->kill for $guard, $other;
		$engine->crash;
		($guard, $other) = map { $engine->client($_) } qw(guard2 other2);
	}
	else
	{
		is(sql('SELECT dlock_reload()'), 1, "$how: the library begins anew");
	}
	# the first call may find the connection gone
	my $got;
	Scenarios::Run::until(sub { ($got = $other->outcome("SELECT dlock_acquire('$name else', 'b', 60)")) =~ /^\d+$/ });
	like($got, qr/^\d+$/, "$how: others have their leases");
	is($other->value("SELECT dlock_acquire('$name', 'b', 60)"), 'NULL', "$how: the guarded one is held");
	cmp_ok($guard->value("SELECT dlock_remaining('$name', 'a')"), '>', 5000, "$how: and renewed");
	is($other->value("SELECT dlock_owner('$name gone')"), 'NULL', "$how: what was released is gone") if $how eq 'killed';
	cmp_ok(sql("SELECT remaining FROM dlock.locks WHERE name = '$name'"), '>', 5000, "$how: in the view as well");
	is($guard->value("SELECT dlock_release('$name', 'a')"), 1, "$how: it is released");
	is($other->value("SELECT dlock_acquire('$name', 'b', 60)"), 'NULL', "$how: and guarded");
	# only who has prepared it can end it, as long as he is there
	($how eq 'killed' ? $engine->control : $guard)->value(q{XA COMMIT 'x'});
	like($other->value("SELECT dlock_acquire('$name', 'b', 600, 600)"), qr/^\d+$/, "$how: until the guard is gone");
	ok(Scenarios::Run::until(sub { $engine->is_written }), "$how: all is in the table");
	is(sql("SELECT count(*) FROM dlock.lease_table WHERE name = '$name'"), 1, "$how: once");
}

# A guard pins as many permits as there were, and so does its lease's row: nothing else is
# left of the guard when the library takes over.  The row has as many, or fewer or more.
for my $row (2, 1, 3)
{
	my $name = "permits $row";
	$token = $guard->value("SELECT dlock_acquire_permits('$name', 'a', 600, 3, $row)");
	is(sql('SELECT dlock_settle()'), 1, "row of $row: it is written");
	is($guard->value("SELECT dlock_acquire_permit('$name', 'a', 600, 3)"), $token, "row of $row: one more is taken") if $row == 1;
	is($guard->value("SELECT dlock_release('$name', 'a')"), 1, "row of $row: one is given back") if $row == 3;
	$guard->value('BEGIN');
	is($guard->outcome("CALL dlock.guard('$name', 'a', $token)"), undef, "row of $row: two are guarded");
	is($other->value("SELECT dlock_acquire_permits('$name', 'b', 60, 3, 2)"), 'NULL', "row of $row: nobody else has two");
	like($other->value("SELECT dlock_acquire_permit('$name', 'b', 600, 3)"), qr/^\d+$/, "row of $row: but one");
	is($guard->value("SELECT dlock_release('$name', 'a')"), 1, "row of $row: one of them is released");
	is($other->value("SELECT dlock_acquire_permit('$name', 'c', 60, 3)"), 'NULL', "row of $row: and is nobody else's");
	is(sql('SELECT dlock_settle()'), 1, "row of $row: all that can be written is");
	is($other->value("SELECT dlock_acquire_permit('$name', 'c', 60, 3)"), 'NULL', "row of $row: nor after a checkpoint");
	is($guard->outcome("CALL dlock.guard('$name', 'a', $token)"), undef, "row of $row: what is left is guarded again");
	is(sql('SELECT dlock_reload()'), 1, "row of $row: the library begins anew");
	is($other->decided("SELECT dlock_acquire_permit('$name', 'c', 60, 3)"), 'NULL', "row of $row: nor then");
	$guard->value('COMMIT');
	like($other->value("SELECT dlock_acquire_permit('$name', 'c', 600, 3, 600)"), qr/^\d+$/, "row of $row: until the guard is gone");
}

# Nor is the row of a lease that was exclusive taken for that of a shared one.
$token = lease('was exclusive', 600);
is($guard->value("SELECT dlock_downgrade('was exclusive', 'a')"), 1, 'an exclusive lease becomes a shared one');
$guard->value('BEGIN');
is($guard->outcome("CALL dlock.guard('was exclusive', 'a', $token)"), undef, 'and is guarded');
is(sql('SELECT dlock_reload()'), 1, 'the library begins anew');
like($other->decided(q{SELECT dlock_acquire_shared('was exclusive', 'b', 600)}), qr/^\d+$/, 'it can be shared');
$guard->value('COMMIT');

# A take-over gives no lease the slot of another one that has ended, and whose row a guard
# has locked: it could not be guarded as long as that guard is there.
$token = $guard->value(q{SELECT dlock_acquire_shared('slots', 'a', 600)});
$guard->value('BEGIN');
is($guard->outcome("CALL dlock.guard('slots', 'a', $token)"), undef, 'a shared lease is guarded');
$token = $other->value(q{SELECT dlock_acquire_shared('slots', 'b', 600)});
like($other->value(q{SELECT dlock_acquire_shared('slots', 'c', 600)}), qr/^\d+$/, 'and shared by two others');
is($guard->value(q{SELECT dlock_release('slots', 'a')}), 1, 'it ends');
for my $when ('before', 'after')
{
	is(sql('SELECT dlock_reload()'), 1, 'the library begins anew') if $when eq 'after';
	$other->value('BEGIN');
	is($other->outcome("CALL dlock.guard('slots', 'b', $token)"), undef, "another one is guarded, too, $when that");
	$other->value('ROLLBACK');
}
$guard->value('COMMIT');

# That the library's connection was closed while it was idle is no reason to put off what a
# guard needs.  A busy machine may take longer than the lock_timeout.
$engine->write_settings(lock_timeout => 0.9);
my $failed;
for my $try (1 .. 20)
{
	$failed = 0;
	for my $i (1 .. 10)
	{
		$token = $guard->value("SELECT dlock_acquire('gone $try $i', 'a', 600)");
		my $library = $engine->loopback;
		sql("KILL $library") if $library;
		$guard->value('BEGIN');
		$failed++ if defined $guard->outcome("CALL dlock.guard('gone $try $i', 'a', $token)");
		$guard->value('ROLLBACK');
	}
	last if !$failed;
}
is($failed, 0, 'a guard goes on with another connection of the library');
$engine->write_settings(lock_timeout => 5);

# Nor does anybody end a guard who looks while the server is locked against writing, so
# that nobody can find out which rows are locked.
my $admin = $engine->client('admin');
for my $how ('over', 'released')
{
	$token = lease("blind $how", 600);
	$guard->value('BEGIN');
	$guard->value("CALL dlock.guard('blind $how', 'a', $token)");
	my $end = $how eq 'over' ? 'dlock_renew(%s, 1)' : 'dlock_release(%s)';
	is($guard->value(sprintf("SELECT $end", "'blind $how', 'a'")), 1, "$how: a guarded lease");
	is($other->value("SELECT dlock_acquire('blind $how', 'b', 60)"), 'NULL', "$how: nobody else can have it");
	ok(Scenarios::Run::until(sub { sql("SELECT dlock_owner('blind $how')") eq 'NULL' }), "$how: it has no owner");
	ok(!defined $admin->query('FLUSH TABLES WITH READ LOCK')->{error}, "$how: the server is locked");
	is($other->value("SELECT dlock_is_free('blind $how')"), 0, "$how: it is not free");
	like($other->value("SELECT dlock_holders('blind $how')"), qr/"owner"/, "$how: somebody is in the way");
	ok(!defined $admin->query('UNLOCK TABLES')->{error}, "$how: the server is unlocked");
	is($other->value("SELECT dlock_is_free('blind $how')"), 0, "$how: and it is not free");
	is($other->value("SELECT dlock_acquire('blind $how', 'b', 60)"), 'NULL', "$how: nor can anybody else have it");
	$guard->value('COMMIT');
	like($other->value("SELECT dlock_acquire('blind $how', 'b', 600, 600)"), qr/^\d+$/, "$how: until the guard is gone");
}

# A transaction that has read before the lease's row was written guards all the same, also
# where the server lets nobody change what is newer than what he has read.
$admin->value('CREATE TABLE scenarios.s (a INT)');
$guard->value('SET SESSION innodb_snapshot_isolation = ON') if $kind eq 'mariadb';
for my $isolation ('REPEATABLE READ', 'SERIALIZABLE')
{
	for my $change ('taken', 'renewed')
	{
		my $what = "$isolation, $change after the first look";
		my $name = lc("snapshot $isolation $change") =~ s/ /_/gr;
		$token = lease($name, 600) if $change eq 'renewed';
		$guard->value("SET SESSION TRANSACTION ISOLATION LEVEL $isolation");
		$guard->value('BEGIN');
		is($guard->value('SELECT count(*) FROM scenarios.s'), 0, "$what: a transaction has looked");
		$token = $guard->value("SELECT dlock_acquire('$name', 'a', 600)") if $change eq 'taken';
		is($guard->value("SELECT dlock_renew('$name', 'a', 600)"), 1, "$what: renewed");
		is(sql('SELECT dlock_settle()'), 1, "$what: and written");
		is($guard->outcome("CALL dlock.guard('$name', 'a', $token)"), undef, "$what: guarded");
		is($guard->value("SELECT dlock_release('$name', 'a')"), 1, "$what: released");
		is($other->value("SELECT dlock_acquire('$name', 'b', 60)"), 'NULL', "$what: and nobody else can have it");
		is($guard->outcome('COMMIT'), undef, "$what: committed");
		like($other->value("SELECT dlock_acquire('$name', 'b', 600, 600)"), qr/^\d+$/, "$what: then one can");
	}
}

# What keeps nobody from other names, while a transaction goes on.
sub others_guard
{
	my ($what, $guarded) = @_;
	for my $name ('a', substr($guarded, 0, -1), "${guarded}0", 'z')
	{
		my $new = $other->value("SELECT dlock_acquire('$name', 'b', 60)");
		is($other->outcome('SELECT dlock_settle()'), 1, "$what: a new lease gets its row");
		$other->value('BEGIN');
		ok(!defined $other->query("CALL dlock.guard('$name', 'b', $new)")->{error}, "$what: and is guarded");
		$other->value('COMMIT');
		is($other->value("SELECT dlock_release('$name', 'b')"), 1, "$what: and given back");
		is($other->outcome('SELECT dlock_settle()'), 1, "$what: and that is written");
	}
	return;
}

# The steps of a guard can be called by anybody at any time: the second one is good for
# a lease that is held.  Without its row it would lock the gap where that was.
$token = lease('late', 600);
$guard->value('BEGIN');
is($guard->value("SELECT dlock_guard_begin('late', 'a', $token)"), 1, 'late: a guard is announced');
sleep(2);
$guard->value("CALL dlock.guard_row('late', $token, \@rows)");
is($guard->value('SELECT @rows'), 1, 'late: and locks its row much later');
is($guard->value("SELECT dlock_guard_check('late', 'a', $token, \@rows)"), 1, 'late: as the lease is still held');
is($guard->value(q{SELECT dlock_release('late', 'a')}), 1, 'late: it is released');
is($other->value(q{SELECT dlock_acquire('late', 'b', 60)}), 'NULL', 'late: and guarded');
$guard->value('COMMIT');
$token = lease('too late', 600);
$guard->value('BEGIN');
is($guard->value("SELECT dlock_guard_begin('too late', 'a', $token)"), 1, 'too late: a guard is announced');
$guard->value('COMMIT');
is($guard->value(q{SELECT dlock_release('too late', 'a')}), 1, 'too late: the lease is given back');
ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.lease_table WHERE name = 'too late'}) == 0 }), 'too late: its row is gone');
$guard->value('BEGIN');
my $none = $guard->outcome("CALL dlock.guard_row('too late', $token, \@rows)");
# the log's guard may still have its row: then the last step finds that it is over
if ($engine->has_log) { isnt($guard->outcome("SELECT dlock_guard_check('too late', 'a', $token, \@rows)"), 1, 'too late: it does not guard') }
else { like($none, qr/no longer holds/, 'too late: no row is to be locked') }
others_guard('too late', 'too late');
$guard->value('ROLLBACK');

# However the server looks for rows in this session, the guard locks its own alone.
my $setting = $kind eq 'mariadb' ? 'optimizer_max_sel_arg_weight' : 'range_optimizer_max_mem_size';
lease("many $_", 600) for 1 .. 5;
$token = lease('own plan', 600);
my $default = $guard->value("SELECT \@\@$setting");
$guard->value("SET SESSION $setting = 1");
$guard->value('BEGIN');
ok(!defined $guard->query("CALL dlock.guard('own plan', 'a', $token)")->{error}, "$setting: there is a guard");
others_guard($setting, 'own plan');
is($other->value(q{SELECT dlock_acquire('own plan', 'b', 600)}), 'NULL', "$setting: which guards");
$guard->value('COMMIT');
$guard->value("SET SESSION $setting = $default");

$_->quit for $guard, $other, $admin;
$engine->stop;
done_testing();
