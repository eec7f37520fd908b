# A checkpoint is written in pieces.  Between two of them the lock table is ahead of the
# journal: the views show the leases as they are, calls are made, and nothing is lost if
# the server is killed then.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(sleep);

use constant LEASES => 5000;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
$engine->write_settings;
$engine->crash;
$engine->control->value(q{GRANT SELECT ON dlock.lease_table TO 'tester'@'localhost'});
sub sql { return $engine->control->value($_[0]) }

my ($holder, $other, $settler, $reader);

sub open_sessions
{
	($holder, $other, $settler, $reader) = map { $engine->client($_) } qw(holder other settler reader);
	return;
}

# The names of the leases from one number to another, as a JSON array.
sub names { return '[' . join(',', map { qq{"n$_"} } $_[0] .. $_[1]) . ']' }

sub take
{
	my ($owner, $first, $last) = @_;
	for (my $from = $first; $from <= $last; $from += 1000)
	{
		my $to = $from + 999 < $last ? $from + 999 : $last;
		my $taken = $holder->value("SELECT JSON_LENGTH(dlock_acquire_any('" . names($from, $to) . "', '$owner', 86400, 1000))");
		$taken == $to - $from + 1 or BAIL_OUT('there is nothing to be tested');
	}
	return;
}

# How many leases the table has with a time to live.
sub in_table { return "(SELECT COUNT(*) FROM dlock.lease_table WHERE ttl_us = $_[0]000000)" }

# What the views show of an owner: how many leases, and how many of them were not renewed by
# so much.
sub shown
{
	my ($owner, $ttl) = @_;
	return "(SELECT CONCAT(COUNT(*), ' ', COALESCE(SUM(remaining > $ttl OR remaining < $ttl - 5000), 0))
		FROM dlock.locks WHERE owner = '$owner')";
}

# Renew, give back and take, until a checkpoint is seen that has written a part; then do
# something.
my $ttl = 10_000;
my $round = 0;

sub in_between
{
	my ($what, $do) = @_;
	ok(Scenarios::Run::until(sub {
		$round++;
		$ttl = $ttl < 60_000 ? $ttl + 10_000 : 10_000;
		my $owner = 'owner' . $round;
		$holder->value("SELECT JSON_LENGTH(dlock_release_many('" . names(1, 50) . q{', 'changing'))}) == 50 or die "not given back\n";
		$holder->value("SELECT JSON_LENGTH(dlock_acquire_any('" . names(1, 50) . q{', 'changing', 86400, 1000))}) == 50 or die "not taken\n";
		is($holder->value("SELECT dlock_renew_all('many', $ttl)"), LEASES - 50, 'all are renewed');
		$settler->send('SELECT dlock_settle()');
		my $done = 0;
		while (!$settler->is_answered)
		{
			$reader->value('START TRANSACTION WITH CONSISTENT SNAPSHOT');
			my $written = $reader->value('SELECT ' . in_table($ttl));
			if ($written > 0 && $written < LEASES - 50)
			{
				note("$what: $written of " . (LEASES - 50) . ' are written');
				$done = $do->($written);
			}
			$reader->value('COMMIT') unless $done eq 'killed';
			last if $done;
		}
		$settler->answer unless $done eq 'killed';
		return $done;
	}), "$what: between two pieces");
	return;
}

open_sessions();
take('changing', 1, 50);
take('many', 51, LEASES);
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is(sql('SELECT COUNT(*) FROM dlock.lease_table'), LEASES, 'each has a row');

in_between('view', sub {
	is($reader->value('SELECT ' . shown('many', $ttl)), LEASES - 50 . ' 0', 'the view has all of them as they are');
	is($reader->value('SELECT ' . shown('changing', 86400)), '50 0', 'and those that were taken anew');
	return 1;
});

# Another renewal of all, and calls for single ones, while the checkpoint goes on.
in_between('calls', sub {
	my ($written) = @_;
	is($other->value(q{SELECT dlock_acquire('n100', 'other', 60)}), 'NULL', 'what is held is refused');
	is($other->value(q{SELECT dlock_acquire('free', 'other', 60) > 0 AND dlock_release('free', 'other')}), 1, 'what is free is granted');
	is($holder->value(q{SELECT dlock_release('n51', 'many')}), 1, 'one is given back');
	is($other->value(q{SELECT dlock_acquire('n51', 'other', 86400) > 0}), 1, 'and taken');
	is($holder->value(q{SELECT dlock_renew_all('many', 5000)}), LEASES - 51, 'all are renewed once more');
	is($other->value('SELECT ' . shown('many', 5000)), LEASES - 51 . ' 0', 'as the view shows');
	is($other->value(q{SELECT dlock_release('n51', 'other')}), 1, 'the one is given back');
	is($holder->value(q{SELECT dlock_acquire('n51', 'many', 86400) > 0}), 1, 'and taken again');
	return 1;
});
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is(sql('SELECT COUNT(*) FROM dlock.lease_table'), LEASES, 'each has a row');

# The server is killed.  The journal still has all, though the table is ahead of it.
for my $time (1 .. 2)
{
	my $written;
	in_between("killed, $time", sub {
		$engine->kill_server;
		$_->quit for $holder, $other, $settler, $reader;
		$engine->boot;
		open_sessions();
		$written = sql('SELECT ' . in_table($ttl));
		return 'killed' if $written > 0 && $written < LEASES - 50 && sql('SELECT COUNT(*) > 0 FROM dlock.journal');
		$settler->send('SELECT 1');
		return 0;
	});
	is($reader->value('SELECT ' . shown('many', $ttl)), LEASES - 50 . ' 0', 'the view has all of them as they are');
	is($reader->value('SELECT ' . shown('changing', 86400)), '50 0', 'and those that were taken anew');
	is($other->value(q{SELECT dlock_acquire('n100', 'other', 60)}), 'NULL', 'what is held is refused');
	is($other->value(q{SELECT dlock_owner('n1')}), 'changing', 'so is what was taken anew');
	is(sql('SELECT dlock_settle()'), 1, 'all is written');
	is(sql('SELECT COUNT(*) FROM dlock.lease_table'), LEASES, 'each has a row');
	is(sql('SELECT ' . in_table($ttl)), LEASES - 50, 'as it was renewed');
	is(sql('SELECT ' . shown('many', $ttl)), LEASES - 50 . ' 0', 'which the view shows, too');
}

# A renewal of all that was not written is none: what it would have renewed is over, and
# stays so, although a later one finds others to be renewed.
$holder->value(q{SELECT dlock_release_all('many')});
is(sql('SELECT dlock_settle()'), 1, 'all is written');
ok(Scenarios::Run::until(sub {
	is($holder->value(q{SELECT dlock_acquire('short', 'many', 60) > 0}), 1, 'a lease');
	is($holder->value(q{SELECT dlock_renew_all('many', 3)}), 1, 'is renewed for a moment');
	is($holder->value(q{SELECT dlock_acquire('long', 'many', 6000) > 0}), 1, 'another is not');
	sql('FLUSH TABLES WITH READ LOCK');
	like($holder->outcome(q{SELECT dlock_renew_all('many', 6000)}), qr/^3572 /, 'while the server is locked nothing is renewed');
	my $over = Scenarios::Run::until(sub { $other->value(q{SELECT dlock_is_free('short')}) eq '1' });
	sql('UNLOCK TABLES');
	is($holder->value(q{SELECT dlock_renew_all('many', 6000)}), 1, 'then the other is renewed');
	my $journaled = sql('SELECT COUNT(*) FROM dlock.journal');
	is(sql(q{SELECT COUNT(*) FROM dlock.locks WHERE name = 'short' AND remaining > 0}), 0, 'and what is over stays over');
	$holder->value(q{SELECT dlock_release_all('many')});
	return $over && $journaled;
}), 'before a checkpoint');

# Renewals of all of an owner's leases that are written together, at one time: the last one
# counts, also after a crash.  They come together when they and a third call have waited
# for a read lock for some seconds, each being tried for a second at a time.
sql(q{UPDATE dlock.settings SET value = '3600' WHERE name = 'lock_timeout'});
my ($third, $short, $long) = map { $engine->client($_) } qw(third short long);
is($third->value(q{SELECT dlock_acquire('third', 'third', 6000) > 0}), 1, 'a lease of one owner');
is($holder->value(q{SELECT dlock_acquire('last', 'last', 6000) > 0}), 1, 'and of another');
my $last = unpack('H*', 'last');
ok(Scenarios::Run::until(sub {
	sql('SELECT dlock_settle()');
	sql('FLUSH TABLES WITH READ LOCK');
	$third->send(q{SELECT dlock_renew_all('third', 6000)});
	sleep 0.3;
	$short->send(q{SELECT dlock_renew_all('last', 6000)});
	sleep 0.3;
	$long->send(q{SELECT dlock_renew_all('last', 12000)});
	sleep 3.5 + rand 2;
	sql('UNLOCK TABLES');
	is($_->answer->{rows}[0][0], 1, 'all is renewed') for $third, $short, $long;
	my $journal = sql(q{SELECT GROUP_CONCAT(CONVERT(changes USING utf8mb4) ORDER BY number) FROM dlock.journal});
	my @times = $journal =~ /\[3,"$last","\w+","\w+",(\d+),/g;
	return @times == 2 && $times[0] == $times[1] && $holder->value(q{SELECT dlock_remaining('last', 'last') > 6000});
}), 'two renewals are written together');
$engine->kill_server;
$_->quit for $holder, $other, $settler, $reader, $third, $short, $long;
$engine->boot;
open_sessions();
is($holder->value(q{SELECT dlock_remaining('last', 'last') > 6000}), 1, 'the lease is as it was renewed last');
is($other->value(q{SELECT remaining > 6000 FROM dlock.locks WHERE name = 'last'}), 1, 'as the view shows');

$_->quit for $holder, $other, $settler, $reader;
$engine->stop;
done_testing();
