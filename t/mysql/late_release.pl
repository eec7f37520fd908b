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
$engine->stop;
done_testing();
