# Servers that apply each other's changes.  A replica that can be written to, by mistake, grants
# nothing: the row would stop its replication.  Two sources, of which one is used at a time, may
# be allowed to write; then nothing is written by itself where the other one is used.  The kind
# of server is the argument.

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
my $mariadb = $kind eq 'mariadb';
my $following = qr/^1792 25006: .*: the server applies the changes of another one/;

plan skip_all => 'the lock table is not a log' unless Engines::MySQL->has_log;

my $one = Replicas->start($kind, $mariadb ? '--gtid-domain-id=1' : ());
$one->install;
my $two = Replicas->start($kind, $mariadb ? '--gtid-domain-id=2' : ());
$two->follow($one);
$two->catch_up($one);
$two->complete;
my ($x, $y) = (session($one, 'x'), session($two, 'y'));

# Wait until both have the same rows.
sub meet
{
	my ($what) = @_;
	my @rows;
	my $met = Scenarios::Run::until(sub {
		@rows = map { my $last = LogRows::last_of($_); "$last->{number} by $last->{writer}" } $one, $two;
		return $rows[0] eq $rows[1];
	});
	ok($met, "$what: both have the same log")
	  or diag(join("\n", @rows, $one->complaint, $two->complaint));
	return;
}

# ---------------------------------------------------------------------
# A replica that can be written to.
# ---------------------------------------------------------------------

like(acquire_soon($x, 'kept', 'a', 6000), $is_token, 'the source grants');
$two->catch_up($one);
is(ask($two->control, 'SELECT @@read_only'), 0, 'the replica can be written to');
my @changes = (q{dlock_acquire('new', 'b', 600)}, q{dlock_acquire('new', 'b', 600, 2)}, q{dlock_renew('kept', 'a', 600)},
	q{dlock_release('kept', 'a')}, q{dlock_release_all('a')}, q{dlock_acquire_all('["new", "more"]', 'b', 30)});
for my $restart (0, 1)
{
	# the first call of a run is no exception
	if ($restart)
	{
		$y->quit;
		$two->restart;
		$y = session($two, 'y');
	}
	like(ask($y, "SELECT $_"), $following, "restart $restart: $_ is refused") for @changes;
	is(ask($y, q{SELECT dlock_owner('kept')}), 'a', "restart $restart: looks are answered");
	is(ask($x, "SELECT dlock_release('kept', 'a')"), 1, "restart $restart: given back");
	is(ask($x, 'SELECT dlock_settle()'), 1, "restart $restart: written");
	meet("restart $restart");
	is(ask($y, q{SELECT dlock_is_free('kept')}), 1, "restart $restart: the replica follows");
	like(acquire_soon($x, 'kept', 'a', 6000), $is_token, "restart $restart: taken again");
	meet("restart $restart");
	is(ask($y, q{SELECT dlock_owner('kept')}), 'a', "restart $restart: as the replica sees");
}

# ---------------------------------------------------------------------
# Two sources.
# ---------------------------------------------------------------------

$one->follow($two);
$one->write_settings(write_on_replicas => 1, reap_interval => 0.1, log_expired => 0);
ok(Scenarios::Run::until(sub { ask($_, q{SELECT dlock_renew('kept', 'a', 6000)}) eq '1' }), 'one of them writes') for $x;
meet('allowed');
my $last = 0;
for my $round (1 .. 4)
{
	my ($here, $there) = $round % 2 ? ($y, $x) : ($x, $y);
	my $what = "round $round";

	# the other one may not know that it may write
	ok(Scenarios::Run::until(sub { ask($here, q{SELECT dlock_renew('kept', 'a', 6000)}) eq '1' }), "$what: a lease goes on");
	is(ask($here, q{SELECT dlock_acquire('kept', 'b', 600)}), 'NULL', "$what: and is not granted");
	my $token = ask($here, "SELECT dlock_acquire('passed', 'owner$round', 6000, 600)");
	cmp_ok($token, '>', $last, "$what: tokens grow");
	$last = $token;
	like(ask($here, qq{SELECT dlock_acquire('short$_', 'a', 0.3)}), $is_token, "$what: a short lease") for 1 .. 3;
	meet($what);
	# these are over, and nobody calls; the upkeep of each server has time to end them
	ok(Scenarios::Run::until(sub { !grep { ask($_, q{SELECT dlock_is_free('short3')}) ne '1' } $here, $there }), "$what: they end");
	is(ask($there, q{SELECT sleep(1.5)}), 0, "$what: for a while nobody calls");
	meet("$what, after that");
	is(ask($there, q{SELECT dlock_owner('passed')}), "owner$round", "$what: the other one knows the owner");
	is(ask($here, "SELECT dlock_release('passed', 'owner$round', $token)"), 1, "$what: given back");
	meet("$what, in the end");
}
is(ask($_, q{SELECT dlock_owner('kept')}), 'a', 'held to the end') for $x, $y;

$_->quit for $x, $y;
done_testing();
