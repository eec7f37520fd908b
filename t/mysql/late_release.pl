# A release is answered, and written only after the deadline: the remaining holds end
# at their deadline all the same, and the hold given back has not expired, so no lock
# delay applies.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use InTime;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $session = $engine->client('session');
my $guard = $engine->client('guard');
my $name;

# While the lease lives, it is guarded, and given back in part.
in_time(5, sub {
	my ($try) = @_;
	$guard->query('ROLLBACK');
	my $token = $session->value("SELECT dlock_acquire('n$try', 'own', 5)");
	is($session->value("SELECT dlock_acquire('n$try', 'own', 5)"), $token, 'two holds');
	$guard->send("BEGIN; CALL dlock.guard('n$try', 'own', $token)");
	ok(!defined $guard->answer->{error}, 'and a guard, whose row cannot be written');
	is($session->value("SELECT dlock_release('n$try', 'own')"), 1, 'one hold is given back');
	is($session->value("SELECT dlock_owner('n$try')"), 'own', 'one is left');
	$name = "n$try";
});
ok(Scenarios::Run::until(sub { $session->value("SELECT dlock_owner('$name')") eq 'NULL' }), 'until its deadline');
is($session->value("SELECT dlock_release('$name', 'own')"), 'NULL', 'after that it cannot be given back');
is($session->value("SELECT dlock_renew('$name', 'own', 600)"), 'NULL', 'or renewed');
is($guard->value('COMMIT'), undef, 'the guard ends');
is($session->value("SELECT dlock_renew('$name', 'own', 600)"), 'NULL', 'and that is so');
ok(Scenarios::Run::until(sub { $session->value("SELECT dlock_is_free('$name')") == 1 }), 'it is free');

$_->quit for $session, $guard;

$engine->set(lock_delay => 3600);    # longer than anybody waits here
($session, $guard) = map { $engine->client($_) } 'session', 'guard';
like($session->value(q{SELECT dlock_acquire('expired', 'own', 0.1)}), qr/^\d+$/, 'a lease');
ok(Scenarios::Run::until(sub { $session->value(q{SELECT dlock_owner('expired')}) eq 'NULL' }), 'expires');
is($session->value(q{SELECT dlock_acquire('expired', 'other', 30)}), 'NULL', 'and is delayed');
my $deadline;
in_time(3, sub {
	my ($try) = @_;
	$guard->query('ROLLBACK');
	$name = "m$try";
	my $token = $session->value("SELECT dlock_acquire('$name', 'own', 3)");
	$guard->send("BEGIN; CALL dlock.guard('$name', 'own', $token)");
	ok(!defined $guard->answer->{error}, 'another one, and a guard');
	$deadline = $session->value("SELECT expires_at FROM dlock.locks WHERE name = '$name'");
	is($session->value("SELECT dlock_release('$name', 'own')"), 1, 'it is given back');
	is($session->value("SELECT count(*) FROM dlock.locks WHERE name = '$name'"), 0, 'and not shown any more');
});
ok(Scenarios::Run::until(sub { $session->value("SELECT sysdate(6) > '$deadline' + INTERVAL 100000 MICROSECOND") }), 'its deadline passes');
is($session->value("SELECT dlock_is_free('$name')"), 0, 'while it is guarded');
is($guard->value('COMMIT'), undef, 'the guard ends');
like($session->value("SELECT dlock_acquire('$name', 'other', 30, 600)"), qr/^\d+$/, 'it is granted without a delay');
$_->quit for $session, $guard;

# A lease of which one hold was given back shows, although the library has forgotten all: as
# the server becomes read-only, just after that was written; and as the tables are to be
# read anew while the server is locked, so that it cannot be written.
$engine->set(lock_timeout => 3600);    # who waited for that, would be answered too late
my ($reader, $reloader);
($session, $reader, $reloader) = ($engine->client('session'), $engine->client('reader'), $engine->client('reloader', 'root'));
sub sql { return $engine->control->value($_[0]) }
sub shown { return $reader->value(q{SELECT COUNT(*) FROM dlock.locks WHERE name = 'several'}) }
like($session->value(q{SELECT dlock_acquire('several', 'own', 600)}), qr/^\d+$/, 'a hold') for 1 .. 3;
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is($session->value(q{SELECT dlock_release('several', 'own')}), 1, 'one hold is given back');
# it is in the journal for a second or more, and in the table after that
ok(Scenarios::Run::until(sub { $engine->has_log ? $engine->is_written : sql(q{SELECT COUNT(*) + (SELECT version = 2 FROM dlock.lease_table WHERE name = 'several')
	FROM dlock.journal}) > 0 }), 'which is written');
sql('SET GLOBAL read_only = 1');
like($session->outcome(q{SELECT dlock_acquire('other', 'own', 600)}), qr/^1792 /, 'the server is read-only');
is(shown(), 1, 'the lease shows');
sql('SET GLOBAL read_only = 0');
ok(Scenarios::Run::until(sub { $session->outcome(q{SELECT dlock_acquire('other', 'own', 600)}) =~ /^\d+$/ }), 'and writable');
is(sql('SELECT dlock_settle()'), 1, 'all is written');
sql('FLUSH TABLES WITH READ LOCK');
is($session->value(q{SELECT dlock_release('several', 'own')}), 1, 'another hold is given back');
is(shown(), 1, 'the lease shows');
$reloader->send('SELECT dlock_reload()');
# until the library has given up the write that it has been trying
is(scalar(grep { sleep 1; shown() != 1 } 1 .. 4), 0, 'and while all is to be read anew');
sql('UNLOCK TABLES');
is($reloader->answer->{rows}[0][0], 1, 'which is done');
is($reader->value(q{SELECT version FROM dlock.locks WHERE name = 'several'}), 1, 'one hold is left');

# A view's statement may have begun before a thousand releases were written, and ask the
# library after that.  So does one in a snapshot that is less than a second old.
sub for_hundreds
{
	my ($hundreds, $call) = @_;
	for my $first (map { 100 * $_ } 0 .. $hundreds - 1)
	{
		my $names = join(', ', map { qq{"many$_"} } $first .. $first + 99);
		$session->value(sprintf("SELECT $call", $names));
	}
	return;
}
my $snapshot;
in_time(sub { time - $snapshot < 1 }, sub {
	my ($try) = @_;
	my $hundreds = $try <= 5 ? 10 : 1;    # fewer, on a machine that is too slow for so many
	$reader->query('ROLLBACK');
	for_hundreds($hundreds, q{dlock_acquire_all('[%s]', 'own', 600)});
	is(sql('SELECT dlock_settle()'), 1, 'very many leases are written');
	$snapshot = time;
	$reader->query('START TRANSACTION WITH CONSISTENT SNAPSHOT');
	for_hundreds($hundreds, q{dlock_release_many('[%s]', 'own')});
	is(sql('SELECT dlock_settle()'), 1, 'and their releases');
	is($reader->value(q{SELECT COUNT(*) FROM dlock.locks WHERE name LIKE 'many%'}), 0, 'none of them shows');
});

$_->quit for $session, $reader, $reloader;
$engine->stop;
done_testing();
