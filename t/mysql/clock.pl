# Leases follow a monotonic clock: steps of the wall clock, while the server runs
# or while it does not, neither end nor stretch them; and a server that was
# stopped for a while goes on with the time that has passed.  The wall clock is
# stepped by libfaketime.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my ($kind) = @ARGV;

my ($library) = grep { -e } glob '/usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1';
die "libfaketime is not installed\n" if !$library;
# MariaDB ends itself if somebody has waited for 600 s for InnoDB's dictionary, by the wall
# clock: that is as soon as it is stepped while somebody waits for a moment
my $engine = Engines::start($kind, $kind eq 'mariadb' ? '--innodb-fatal-semaphore-wait-threshold=4294967295' : ());
$engine->write_settings(reap_interval => 1);
my $clock = "$engine->{dir}/clock";

sub sql { return $engine->control->value($_[0]) }

sub becomes
{
	my ($sql, $wanted, $title) = @_;
	my $answer;
	Scenarios::Run::until(sub { ($answer = sql($sql)) eq $wanted });
	is($answer, $wanted, $title);
	return;
}

# Step the wall clock: its distance from the true one, in seconds.
sub step
{
	my ($offset) = @_;
	open(my $file, '>', "$clock.new") or die "could not create $clock.new: $!\n";
	print $file "$offset\n";
	close($file) or die "could not write $clock.new: $!\n";
	rename("$clock.new", $clock) or die "could not rename $clock.new: $!\n";
	return;
}

# Start the server with such a clock, having stopped it in some way.
sub start_stepped
{
	my ($offset) = @_;
	step($offset);
	local %ENV = (
		%ENV,
		LD_PRELOAD => $library,
		FAKETIME_TIMESTAMP_FILE => $clock,
		# seconds: if each thread read the file each time, that would be most of what is done
		FAKETIME_CACHE_DURATION => 1,
		FAKETIME_DONT_FAKE_MONOTONIC => 1,
		# or waits by the monotonic clock end at once, and nothing is seen of those that do not
		FAKETIME_FORCE_MONOTONIC_FIX => 0,
		DONT_FAKE_MONOTONIC => 1);
	$engine->boot;
	return;
}

sub wall { return sql('SELECT unix_timestamp(sysdate(6))') }

# The server's clock is that many seconds from ours, more or less.  libfaketime
# was seen to answer the true time now and then when many threads ask at once, so
# it is made to read the offset again, in another spelling.
sub is_stepped
{
	my ($offset) = @_;
	my $spelling = "$offset.";
	my $stepped = Scenarios::Run::until(sub {
		return 1 if abs(wall() - time - $offset) < 600;
		step($spelling = length $spelling < 40 ? $spelling . '0' : "$offset.");
		return 0;
	});
	ok($stepped, "the wall clock is $offset s off");
	return;
}

# What is held long is held, what is brief ends.
sub leases_go_on
{
	my ($title) = @_;
	is(sql(q{SELECT dlock_owner('long')}), 'o', "$title: a long lease is held");
	is(sql(q{SELECT dlock_acquire('long', 'p', 1)}), 'NULL', "$title: and excludes others");
	is(sql(q{SELECT dlock_renew('long', 'o', 1000)}), 1, "$title: and can be renewed");
	# a restart may have given the one before its time to live anew
	like(sql(q{SELECT dlock_acquire('brief', 'o', 0.05, 600)}), qr/^\d+$/, "$title: a brief one is granted");
	like(sql(q{SELECT dlock_acquire('brief', 'p', 0.05, 600)}), qr/^\d+$/, "$title: ends, and goes to who waits");
	becomes(q{SELECT dlock_is_free('brief')}, 1, "$title: ends with nobody waiting");
	return;
}

$engine->end_control;
$engine->halt;
start_stepped('+0');
is_stepped(0);
sql(q{SELECT dlock_acquire('long', 'o', 1000)});
leases_go_on('at first');

# While it runs: with somebody waiting for a brief lease, too, which ends after the server
# has noticed the step.
for my $offset ('+3600', '-3600', '+0')
{
	my $waiter = $engine->client('waiter');
	sql(q{SELECT dlock_acquire('waited', 'o', 3)});
	$waiter->send(q{SELECT dlock_acquire('waited', 'w', 1000, 600)});
	Scenarios::Run::until(sub { $engine->is_waiting($waiter) || $waiter->is_answered }) or die;
	step($offset);
	is_stepped($offset);
	like($waiter->answer->{rows}[0][0], qr/^\d+$/, "stepped to $offset: who waits is served");
	is(sql(q{SELECT dlock_owner('waited')}), 'w', "stepped to $offset: and holds it");
	is($waiter->value(q{SELECT dlock_release('waited', 'w')}), 1, "stepped to $offset: and gives it back");
	leases_go_on("stepped to $offset");
	$waiter->quit;
}

# While it does not run: a lease may end later for it, never earlier.
for my $offset ('+3600', '-3600')
{
	for my $how ('stop', 'kill')
	{
		sql(q{SELECT dlock_renew('long', 'o', 1000)});
		my $pid = $engine->pid;
		$engine->end_control;
		if ($how eq 'stop')
		{
			$engine->halt;
		}
		else
		{
			kill 'KILL', $pid;
			Engines::MySQL::await_end($pid);
		}
		start_stepped($offset);
		is_stepped($offset);
		leases_go_on("$how, and start at $offset");
	}
}

# Stopped, and continued when one lease is over and the other is not.
sub now { return clock_gettime(CLOCK_MONOTONIC) }
my ($first, $second) = map { $engine->client($_) } 'first', 'second';
sql(q{SELECT dlock_acquire('brief', 'o', 0.5)});
my $until = now() + 0.5;
$first->send(q{SELECT dlock_acquire('brief', 'first', 1000, -1)});
Scenarios::Run::until(sub { $engine->is_waiting($first) || $first->is_answered }) or die;
$second->send(q{SELECT dlock_acquire('brief', 'second', 1000, -1)});
Scenarios::Run::until(sub { $engine->is_waiting($second) }) or die;
my $pid = $engine->pid;
kill 'STOP', $pid;
usleep(10_000) until now() > $until;
kill 'CONT', $pid;
my $token = $first->answer->{rows}[0][0];
like($token, qr/^\d+$/, 'a server that was stopped: who waits for what is over is served');
is(sql(q{SELECT dlock_renew('brief', 'o', 600)}), 0, 'it cannot be renewed');
is(sql(q{SELECT dlock_renew('long', 'o', 600)}), 1, 'what is not over can be');
ok($engine->is_waiting($second), 'the next one waits');
is($first->value(q{SELECT dlock_release('brief', 'first')}), 1, 'and when it is given back');
cmp_ok($second->answer->{rows}[0][0], '>', $token, 'is served');

$_->quit for $first, $second;
$engine->stop;
done_testing();
