# A backup, or anybody else, locks the whole server against writing (rule 15).  Looks
# and releases are answered all the same, and the releases are written afterwards.  An
# acquire that cannot be written gets an error within two seconds, because the backup
# may be waiting for that very statement.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use InTime;
use Scenarios;
use Test::More;

# "Two seconds", on a machine that is busy with other things, as InTime.pm counts them; "at
# once" is less than that.
use constant {
	TWO_SECONDS => 20,
	AT_ONCE => 15,
};

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
$engine->write_settings(reap_interval => 1);
my $number = 0;

my ($session, $other, $backup, $guard, $admin, $locker);
# each asks for a grant, all at the same time
my @askers;
sub connect_all
{
	($session, $other, $backup, $guard) = map { $engine->client($_) } qw(session other backup-session guard);
	@askers = map { $engine->client("asker$_") } 1 .. 13;
	$_->value('SET SESSION lock_wait_timeout = 60') for $session, $other, $guard, @askers;
	$admin = $engine->client('admin');
	# the one that locks is an administrator's
	$locker = Scenarios::Client->new($engine, 'admin');
	return;
}
connect_all();

sub disconnect
{
	$_->quit for $session, $other, $backup, $guard, $admin, $locker, @askers;
	return;
}

sub sql { return $admin->value($_[0]) }

my $kept_from = qr/^3572 \w+: .*(?:locked against writing|lock table is locked|does not answer)/;

# Looks of all kinds, of what there is when nobody has given anything back.
sub looks
{
	my ($what, $n) = @_;
	answers($session, "$what, looks", AT_ONCE,
		"dlock_owner('kept$n')" => 'a',
		"dlock_is_free('kept$n')" => 0,
		"dlock_is_free('free$n')" => 1,
		"dlock_remaining('kept$n', 'a') > 500" => 1,
		"dlock_holders('kept$n')" => qr/"owner": "a"/,
		"dlock_owner('guarded$n')" => 'g',
		"dlock_owner('free$n')" => 'NULL',
		"count(*) FROM dlock.locks WHERE name = 'kept$n'" => 1,
		"count(*) FROM dlock.locks WHERE name LIKE 'many$n'" => 80,
		"JSON_LENGTH(dlock_holders('many$n'))" => 80,
		'count(*) > 0 FROM dlock.stats' => 1,
		'count(*) >= 0 FROM dlock.waiters' => 1,
		"dlock_acquire('kept$n', 'b', 600)" => 'NULL');
	return;
}

sub prepare
{
	my ($n, $guards) = @_;
	sql("SELECT dlock_acquire_shared('many$n', 'm$_', 6000)") for 1 .. 80;
	$session->value("SELECT dlock_acquire('$_$n', 'a', 6000)") for qw(kept gone twice twice wanted listed1 listed2 renewed all watched);
	$session->value("SELECT dlock_acquire_shared('many$n', 'mine', 600)");
	$session->value("SELECT dlock_release('many$n', 'mine')");
	my %tokens = map { $_ => $guard->value("SELECT dlock_acquire('$_$n', 'g', 6000)") } qw(guarded own);
	return unless $guards;
	$guard->value('BEGIN');
	for my $name (sort keys %tokens)
	{
		my $answer = $guard->query("CALL dlock.guard('$name$n', 'g', $tokens{$name})");
		is($answer->{message}, undef, "$name$n is guarded");
	}
	return;
}

# What there has to be when the server is not locked any more.
sub written
{
	my ($what, $n) = @_;
	$guard->value('COMMIT');
	# while others may write, what a guard has locked is written soon after it has ended
	ok(Scenarios::Run::until(sub { $engine->is_written &&
			!sql("SELECT count(*) FROM dlock.lease_table WHERE name = 'own$n'") }), "$what: then all is written");
	is(sql("SELECT GROUP_CONCAT(DISTINCT CONCAT(name, ' ', owner, version) ORDER BY name)
		FROM dlock.lease_table WHERE name LIKE '%$n' AND name NOT LIKE 'many%'"),
		join(',', "all$n a1", "guarded$n g1", "kept$n a1", "renewed$n a1", "twice$n a1"), "$what: as it was answered");
	is(sql("SELECT count(*) FROM dlock.lease_table WHERE name = 'many$n'"), 79, "$what: of many, too");
	like($session->outcome("SELECT dlock_acquire('free$n', 'a', 600)"), qr/^\d+$/, "$what: what was not granted is free");
	is($session->outcome("SELECT dlock_release_all('a')"), 5, "$what: and all are given back") or diag(sql('select json_arrayagg(json_array(name,owner,version)) from dlock.locks where owner = "a"'));
	sql("SELECT dlock_force_release('$_$n')") for qw(guarded many);
	return;
}

# What is answered while the server is locked.  "In turn": each grant is asked for after the
# other, and may take its two seconds.
sub while_locked
{
	my ($what, $n, $in_turn) = @_;
	looks($what, $n);
	answers($session, "$what, releases", AT_ONCE,
		"dlock_release('gone$n', 'a')" => 1,
		"dlock_is_free('gone$n')" => 1);
	answers($session, "$what, no releases", TWO_SECONDS,
		"dlock_release('gone$n', 'a')" => 'NULL',
		"dlock_release('kept$n', 'b')" => 0);
	answers($guard, "$what, what its transaction guards", TWO_SECONDS,
		"dlock_release('own$n', 'g')" => 1,
		"dlock_owner('own$n')" => 'NULL',
		"dlock_release('own$n', 'g')" => 'NULL');
	answers($session, "$what, one of two holds", AT_ONCE,
		"dlock_release('twice$n', 'a')" => 1,
		"dlock_owner('twice$n')" => 'a',
		"dlock_is_free('twice$n')" => 0,
		"dlock_holders('twice$n')" => qr/"version": 1\b/);
	answers($session, "$what, other releases", TWO_SECONDS,
		"count(*) FROM dlock.locks WHERE name = 'twice$n' AND version = 1" => 1,
		"dlock_release_many('[\"listed1$n\", \"listed2$n\"]', 'a')" => qr/^\["listed1$n", "listed2$n"\]$/);
	is($admin->outcome("SELECT dlock_release('many$n', 'm1')"), 1, "$what: one of many");
	is($admin->outcome("SELECT JSON_LENGTH(dlock_holders('many$n'))"), 79, "$what: is gone");
	my @grants = (
		"dlock_acquire('free$n', 'a', 600)" => $kept_from,
		"dlock_acquire('free$n-2', 'a', 600, 0.5)" => $kept_from,
		"dlock_acquire('free$n-3', 'a', 600, 30)" => $kept_from,
		"dlock_acquire('gone$n', 'b', 600)" => $kept_from,
		"dlock_acquire('kept$n', 'a', 600)" => $kept_from,
		"dlock_acquire_shared('free$n-4', 'a', 600)" => $kept_from,
		"dlock_acquire_session('free$n-5', 'a', 600)" => $kept_from,
		"dlock_acquire_permits('free$n-6', 'a', 600, 3, 2)" => $kept_from,
		"dlock_acquire_all('[\"free$n-7\", \"free$n-8\"]', 'a', 600)" => $kept_from,
		"dlock_acquire_any('[\"free$n-9\", \"free$n-10\"]', 'a', 600, 2)" => $kept_from,
		"dlock_renew('renewed$n', 'a', 600)" => $kept_from,
		"dlock_renew_many('[\"renewed$n\"]', 'a', 600)" => $kept_from,
		"dlock_downgrade('renewed$n', 'a')" => $kept_from);
	if ($in_turn) { answers($session, "$what, grants", TWO_SECONDS, @grants) }
	else { answers_together(\@askers, "$what, grants", TWO_SECONDS, @grants) }
	answers($session, "$what, looks again", AT_ONCE,
		"dlock_is_free('free$n')" => 1,
		"dlock_owner('kept$n')" => 'a',
		"dlock_owner('renewed$n')" => 'a',
		"count(*) FROM dlock.locks WHERE name IN ('gone$n', 'listed1$n', 'listed2$n') OR name LIKE 'free%'" => 0,
		"dlock_acquire('kept$n', 'b', 600)" => 'NULL');
	answers($session, "$what, refused, or not decided", TWO_SECONDS, "dlock_acquire('kept$n', 'b', 600, 0.2)" => qr/^NULL$|in its time/);
	return;
}

my $read_lock = 'FLUSH TABLES WITH READ LOCK';
my %locks = (
	$read_lock => { unlock => 'UNLOCK TABLES', guards => 1 },
	# who guards would keep it waiting
	'LOCK TABLES of a dump' => {
		lock => 'LOCK TABLES ' . join(', ', map { "dlock.$_ READ" } $engine->written_tables, qw(library_account settings)),
		unlock => 'UNLOCK TABLES' },
	$kind eq 'mariadb' ? ('BACKUP STAGE BLOCK_COMMIT' => {
		lock => join('; ', map { "BACKUP STAGE $_" } qw(START FLUSH BLOCK_DDL BLOCK_COMMIT)),
		unlock => 'BACKUP STAGE END', guards => 1 }) : ());

# The statements that lock.
sub locking { return $locks{ $_[0] }{lock} // $_[0] }

# Lock the server while nobody waits.  "Before": what happens before that.
sub try_alone
{
	my ($lock, $where, $before) = @_;
	my $n = ++$number;
	my $what = "$lock$where";
	my $unlock = $locks{$lock}{unlock};

	prepare($n, $locks{$lock}{guards} && !$before);
	$before->() if $before;
	ok(!defined $locker->query(locking($lock))->{error}, "$what: locked");
	# of the servers that know their leases, and of those that have to read them, one each
	while_locked($what, $n, $lock eq $read_lock && !$before);
	ok(!defined $locker->query($unlock)->{error}, "$what: unlocked");
	$session->value("SELECT dlock_release('$_$n', 'a')") for qw(wanted watched);
	written($what, $n);
	return;
}

# The same while a statement that writes waits for a lease, and another for a hold to end.
sub try_with_waiter
{
	my ($lock, $where, $before) = @_;
	my $n = ++$number;
	my $what = "$lock with a waiter$where";
	my $unlock = $locks{$lock}{unlock};
	my $last = locking($lock) =~ s/.*; //r;

	prepare($n, $locks{$lock}{guards} && !$before);
	$before->() if $before;
	sql('CREATE TABLE IF NOT EXISTS scenarios.t (token BIGINT UNSIGNED)');
	$other->send("INSERT INTO scenarios.t SELECT dlock_acquire('wanted$n', 'next', 600, 6000)");
	ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 }), "$what: a statement waits for a lease");
	$backup->send("SELECT dlock_wait('watched$n', 6000)");
	ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 2 }), "$what: another for the end of one");
	$locker->send(locking($lock));
	# it has all that it asks for, or waits for the rest
	ok(Scenarios::Run::until(sub { $locker->is_answered || sql("SELECT count(*) FROM information_schema.processlist
		WHERE id = $locker->{id} AND info LIKE '$last%' AND state LIKE 'Waiting for %'") }), "$what: the server is being locked");
	while_locked($what, $n);
	answers($session, $what, TWO_SECONDS, "dlock_release('watched$n', 'a')" => 1);
	is($backup->outcome, 1, "$what: who waits for an end is told of it");
	my $released = InTime::seconds();
	answers($session, $what, TWO_SECONDS, "dlock_release('wanted$n', 'a')" => 1);
	like($other->outcome, $kept_from, "$what: the waiter is told");
	cmp_ok(InTime::seconds() - $released, '<', TWO_SECONDS, "$what: within two seconds");
	$released = InTime::seconds();
	ok(!defined $locker->answer->{error}, "$what: then all is locked");
	cmp_ok(InTime::seconds() - $released, '<', TWO_SECONDS, "$what: at once");
	answers($session, "$what and locked", AT_ONCE, "dlock_is_free('wanted$n')" => 1, "dlock_owner('kept$n')" => 'a');
	ok(!defined $locker->query($unlock)->{error}, "$what: unlocked");
	written($what, $n);
	return;
}

for my $lock (sort keys %locks)
{
	try_alone($lock, '');
	try_with_waiter($lock, '');
}

# Many who ask at the same time are told at the same time, again and again: not one in each
# second, of whom the last would wait for longer than that.
sub try_crowd
{
	my ($where) = @_;
	my @crowd = map { $engine->client("crowd$_") } 1 .. 2 * TWO_SECONDS;
	ok(!defined $locker->query($read_lock)->{error}, "a crowd$where: locked");
	for my $round (1, 2)
	{
		my $before = InTime::seconds();
		$crowd[$_]->send("SELECT dlock_acquire('crowd$_', 'a', 600)") for 0 .. $#crowd;
		is(scalar(grep { $_->outcome !~ $kept_from } @crowd), 0, "a crowd$where: all are told");
		cmp_ok(InTime::seconds() - $before, '<', TWO_SECONDS, "a crowd$where: in time");
	}
	ok(!defined $locker->query('UNLOCK TABLES')->{error}, "a crowd$where: unlocked");
	$_->quit for @crowd;
	return;
}
try_crowd('');

# The server has just started: it has not taken over, or does not know what is guarded.
sub restart
{
	disconnect();
	$engine->restart;
	connect_all();
	return;
}
try_alone($read_lock, ' after a restart', \&restart);
try_with_waiter($read_lock, ' after a restart', \&restart);

# A source that is not there is followed all the same.  Where others may write, each call
# reads what it needs.
if (!$engine->has_log)
{
my ($followed, $follower) = $kind eq 'mariadb' ? ('MASTER', 'SLAVE') : ('REPLICATION SOURCE', 'REPLICA');
my ($host, $port) = map { ($followed =~ /(\w+)$/)[0] . "_$_" } 'HOST', 'PORT';
sql("CHANGE $followed TO $host = '127.0.0.1', $port = 1");
sql("START $follower");
restart();
ok(Scenarios::Run::until(sub { $session->value(q{SELECT dlock_acquire('direct', 'd', 600)}) && !sql('SELECT count(*) FROM dlock.journal') }),
	'what is granted is in the table at once');
# it has no names, and takes over: nothing that was read for the grant may be written again
is($admin->outcome('SELECT dlock_reload()'), 1, 'a call after that, with nobody else there, is answered');
try_alone($_, ' while others may write') for grep { !/TABLES of/ } sort keys %locks;
try_with_waiter($read_lock, ' while others may write');
try_crowd(' while others may write');
}
disconnect();
$engine->stop;
done_testing();
