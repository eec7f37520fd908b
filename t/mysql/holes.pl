# A row of the log is missing, and later ones are there, as on a replica whose appliers do not
# keep the order of commits.  Looks do not jump over the hole, and do not wait for the row.
# Where no applier runs any more, a take-over deletes what is beyond: it was decided on rows
# that are lost.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use LogRows;
use Replicas;
use Scenarios;
use Test::More;
use Writers;

my ($kind) = @ARGV;

plan skip_all => 'the lock table is not a log' unless Engines::MySQL->has_log;

my $source = Replicas->start($kind);
$source->install;
my $replica = Replicas->start($kind);
$replica->follow($source);
$replica->catch_up($source);
$replica->complete;
my ($x, $y) = (session($source, 'x'), session($replica, 'y'));

like(acquire_soon($x, 'kept', 'a', 6000), $is_token, 'the source grants');
$replica->catch_up($source);
is(ask($y, q{SELECT dlock_owner('kept')}), 'a', 'the replica follows');

# A row beyond a hole, which is not in the binary log.
sub leave_hole
{
	$replica->control->value('SET SESSION sql_log_bin = 0');
	return LogRows::append($replica, skip => 1);
}

# A library that has followed, and one that is loaded when the hole is there.
for my $loaded (0, 1)
{
	my $name = "late$loaded";
	my $number = leave_hole();
	if ($loaded)
	{
		$y->quit;
		$replica->restart;
		$y = session($replica, 'y');
	}
	is(ask($y, q{SELECT dlock_owner('kept')}), 'a', "$name: a look is answered") for 1, 2;
	is(ask($y, q{SELECT count(*) FROM dlock.locks}), $loaded + 1, "$name: by the view, too");
	like(ask($y, q{SELECT dlock_acquire('new', 'b', 600)}), qr/^1792 25006: /, "$name: nothing is granted");
	$replica->control->value('SET SESSION sql_log_bin = 0');
	$replica->control->value("DELETE FROM dlock.log WHERE number = $number");
	like(acquire_soon($x, $name, 'a', 6000), $is_token, "$name: what was missing comes");
	$replica->catch_up($source);
	is(ask($y, "SELECT dlock_owner('$name')"), 'a', "$name: and is known");
}

# The replica is promoted.
for my $loaded (0, 1)
{
	my $what = $loaded ? 'loaded then' : 'followed';
	if ($loaded)
	{
		# or it would follow again
		$replica->control->value('RESET ' . ($kind eq 'mariadb' ? 'SLAVE' : 'REPLICA') . ' ALL');
		$replica->control->value('SET GLOBAL read_only = ON');
		like(ask($y, q{SELECT dlock_acquire('new', 'b', 600)}), qr/^1792 25006: /, "$what: read-only");
	}
	leave_hole() for 1, 2;
	if ($loaded)
	{
		$y->quit;
		$replica->restart;
		$y = session($replica, 'y');
	}
	$replica->stop_following if !$loaded;
	my $token;
	ok(Scenarios::Run::until(sub { ($token = ask($y, "SELECT dlock_acquire('promoted$loaded', 'b', 6000)")) =~ $is_token }),
		"$what: granted") or diag($token);
	is($replica->control->value('SELECT count(*) FROM dlock.log WHERE writer = 1'), 0, "$what: nothing is left beyond the hole");
	is(ask($y, "SELECT dlock_owner('kept')"), 'a', "$what: what was held is held");
	# a gap would be an error of whoever loads the log
	is(ask($replica->control, 'SELECT dlock_reload()'), 1, "$what: it can be loaded");
	is(ask($y, "SELECT dlock_owner('promoted$loaded')"), 'b', "$what: and has the new lease");
}

$_->quit for $x, $y;
done_testing();
