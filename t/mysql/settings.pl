# The rows of dlock.settings: a valid value takes effect by itself; for an invalid or
# missing one the default counts, and the error log tells of an invalid one.  The kind
# of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;
my ($guard, $holder) = map { $engine->client($_) } 'guard', 'holder';

my %range = (
	lock_delay => 'number from 0 to 86400',
	reap_interval => 'number from 0.1 to 3600',
	lock_timeout => 'number from 0.1 to 3600',
	max_ttl => 'whole number from 1 to 1000000000',
	max_waiters => 'whole number from 0 to 1000000',
	max_leases => 'whole number from 0 to 1000000000',
	log_expired => 'whole number from 0 to 1');
my @names = sort keys %range;

sub sql { return $admin->value($_[0]) }
sub attempt { return $admin->outcome($_[0]) }

# Give settings values, all at once.
sub set
{
	my (%values) = @_;
	sql('REPLACE INTO dlock.settings (name, value) VALUES ' . join(', ', map { "('$_', '$values{$_}')" } sort keys %values));
	return;
}

# How often the log tells of a wrong value.
sub complaints
{
	my ($name, $shown) = @_;
	my $line = qq{dlock: setting "$name" in dlock.settings must be a $range{$name}, and is "$shown"; using the default};
	return scalar(() = $engine->log =~ /^(?:.*\] )?\Q$line\E$/mg);
}

# Until there are so many complaints of all of these.
sub complained
{
	my ($shown, $count, @of) = @_;
	ok(Scenarios::Run::until(sub { !grep { complaints($_, $shown) < $count } @of }),
		"\"$shown\" is wrong, says the log: @of");
	return;
}

sub may_wait { return attempt(q{SELECT dlock_wait('kept', 0.01)}) !~ /max_waiters/ }

# Nothing of dlock runs before the first call.
like(attempt(q{SELECT dlock_acquire('kept', 'a', 3600)}), qr/^\d+$/, 'a lease');

# Wrong values.
my %shown = ("many" => 'many', '' => '', '-1' => '-1', '1000000001' => '1000000001', '1 s' => '1 s',
	"\n1\ndlock: forged" => '\x0A1\x0Adlock: forged');
for my $value (sort keys %shown)
{
	set(map { $_ => $value } @names);
	complained($shown{$value}, 1, @names);
}
set(max_waiters => 1.5, max_leases => 1.5, max_ttl => 1.5, log_expired => 0.5);
complained(1.5, 1, 'max_waiters', 'max_leases', 'max_ttl');
complained(0.5, 1, 'log_expired');
set(max_waiters => '');
complained('', 2, 'max_waiters');
for my $value (sort keys %shown)
{
	is(complaints($_, $shown{$value}), $_ eq 'max_waiters' && $value eq '' ? 2 : 1,
		"$_: of \"$shown{$value}\" it was told each time it was set") for @names;
}

# What counts.  At first values far from the defaults; then none that are right.
for my $how ('wrong', 'missing')
{
	set(lock_delay => 86400, reap_interval => 3600, lock_timeout => 3600, max_ttl => 3600, max_waiters => 0, log_expired => 0);
	ok(Scenarios::Run::until(sub { !may_wait() }), 'right values: nobody may wait');
	like(attempt("SELECT dlock_acquire('long $how', 'a', 3601)"), qr/^3037 22023: ttl must be at most 3600 seconds/, 'nor hold for long');
	like(attempt("SELECT dlock_acquire('delayed $how', 'a', 0.01)"), qr/^\d+$/, 'and a lease');
	ok(Scenarios::Run::until(sub { attempt("SELECT dlock_owner('delayed $how')") eq 'NULL' }), 'that expires');
	is(attempt("SELECT dlock_acquire('delayed $how', 'b', 3600)"), 'NULL', 'is not granted anew yet');
	like(attempt("SELECT dlock_acquire('silent $how', 'a', 0.01)"), qr/^\d+$/, 'another one expires');

	my $token = $holder->value("SELECT dlock_acquire('guarded $how', 'a', 3600)");
	like($token, qr/^\d+$/, 'and one is held');
	$guard->query('BEGIN');
	ok(!defined $guard->query("CALL dlock.guard('guarded $how', 'a', $token)")->{error}, 'and guarded');
	$holder->send("SELECT dlock_downgrade('guarded $how', 'a')");

	if ($how eq 'wrong')
	{
		set(map { $_ => 'many' } @names);
		complained('many', 2, @names);
	}
	else
	{
		sql('DELETE FROM dlock.settings');
	}
	ok(Scenarios::Run::until(sub { may_wait() }), "$how, max_waiters: one may wait");
	ok(Scenarios::Run::until(sub { attempt("SELECT dlock_acquire('delayed $how', 'b', 3600)") =~ /^\d+$/ }),
		"$how, lock_delay: what has expired is granted anew");
	like(attempt("SELECT dlock_acquire('long $how', 'a', 86400)"), qr/^\d+$/, "$how, max_ttl: one may hold for a day");
	like(attempt("SELECT dlock_acquire('long $how', 'b', 86401)"), qr/^3037 22023: ttl must be at most 86400 seconds/, 'and not longer');
	like(attempt("SELECT dlock_acquire('reaped $how', 'a', 0.01)"), qr/^\d+$/, 'a lease that expires');
	ok(Scenarios::Run::until(sub { $engine->log =~ /lease on "reaped $how" expired/ }),
		"$how, reap_interval, log_expired: is removed, and the log told");
	# a guard keeps its mode, so with the log it is in nobody's way who downgrades
	like($holder->outcome, $engine->has_log ? qr/^1$/ : qr/^3572 \w+: could not change the lease on "guarded $how": a transaction has locked it/,
		"$how, lock_timeout: who waits for the end of a guard is told");
	$guard->query('ROLLBACK');
}

# A name that means nothing.
set(lock_dely => 'much', max_waiters => 'last');
complained('last', 1, 'max_waiters');
unlike($engine->log, qr/lock_dely|much/, 'other names mean nothing');
like(attempt(q{SELECT dlock_acquire('after all', 'a', 60)}), qr/^\d+$/, 'and the library goes on');

$_->quit for $guard, $holder;
$engine->stop;
done_testing();
