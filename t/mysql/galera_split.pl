# Three nodes of a Galera cluster: one is cut off from the others, all are cut off,
# one is killed, two are killed, and the last one goes on alone only when told to.
# MariaDB only.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Galera;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Writers;

my $reason = Galera::reason_not(@ARGV);
plan skip_all => $reason if defined $reason;

my @nodes = Galera::start(1, 1, 1);
my ($one, $two, $three) = @nodes;
my $refused = qr/^(gone|\d+ \w{5}: .*)$/;

# No answer may be a grant, and there has to be one.
sub is_no_grant
{
	my ($what, @sessions) = @_;
	for my $session (@sessions)
	{
		my $answer = answer_of($session);
		like($answer, $refused, "$what is told so");
		note("$what: $answer");
	}
	return;
}

sub take_over
{
	my ($session, $name, $what) = @_;
	my $began = time;
	my $token;
	Scenarios::Run::until(sub {
		($token = ask($session, "SELECT dlock_acquire('$name', 'b', 6000)")) =~ $is_token });
	like($token, $is_token, $what);
	note(sprintf('%s: after %.1f s', $what, time - $began));
	return $token;
}

$one->install;
$_->make_ready for @nodes;
my ($x, $y, $z) = map { session($_, "s$_->{number}") } @nodes;

# ---------------------------------------------------------------------
# A node is cut off.
# ---------------------------------------------------------------------

my %tokens;
my $held = time;
$tokens{short} = ask($x, q{SELECT dlock_acquire('short', 'a', 2)});
$tokens{$_} = ask($x, "SELECT dlock_acquire('$_', 'a', 6000)") for 'kept', 'mine';
like($tokens{$_}, $is_token, "$_ is granted") for sort keys %tokens;
is(ask($_, q{SELECT dlock_owner('kept')}), 'a', 'as all know') for $x, $y, $z;

my @asking = map { session($one, $_) } 'fresh', 'short', 'kept';
my $releaser = session($one, 'releaser');
Galera::give_up_late(0);
$one->isolate(1);
$_->send("SELECT dlock_acquire('$_->{name}', 'cut off', 600)") for @asking[0, 2];
$releaser->send(q{SELECT dlock_release('mine', 'a')});
my $fresh = take_over($y, 'fresh', 'a free name after a node was cut off');
cmp_ok(take_over($z, 'short', 'what it had held'), '>', $tokens{short}, 'tokens grow');
cmp_ok(time - $held, '>=', 2, 'not early');
# before it was over, that node might have refused it as held, which needs no commit
$asking[1]->send(q{SELECT dlock_acquire('short', 'cut off', 600)});
is(ask($_, q{SELECT dlock_acquire('kept', 'b', 6000)}), 'NULL', 'what is not over is held') for $y, $z;
is_no_grant('who asks a node that was cut off', @asking[0, 1]);
# these may have been answered just before the others were gone, for they need no commit
like(answer_of($asking[2]), qr/^NULL$|$refused/, 'who asks there for what is held is answered');
like(answer_of($releaser), qr/^1$|$refused/, 'who releases there is answered');
ok(Scenarios::Run::until(sub { $one->status('wsrep_cluster_status') ne 'Primary' }), 'the node knows that it is alone');
like(ask($x, "SELECT $_"), $refused, "$_ is an error there") for q{dlock_acquire('alone', 'a', 30)},
  q{dlock_acquire('alone', 'a', 30, 2)}, q{dlock_renew('kept', 'a', 30)}, q{dlock_release('kept', 'a')}, q{dlock_owner('kept')};
$_->quit for @asking, $releaser;

$one->isolate(0);
ok($one->is_synced, 'connected again');
Galera::give_up_late(1);
take_over($x, 'alone', 'a free name on the node that was cut off');
is(ask($x, "SELECT dlock_owner('$_')"), 'b', "it knows who has $_") for 'fresh', 'short';
is(ask($x, "SELECT dlock_renew('short', 'a', 6000, $tokens{short})"), 0, 'who had it there does not any more');
is(ask($x, "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'who has it goes on');
is(ask($y, q{SELECT dlock_release('fresh', 'b')}), 1, 'given back');
cmp_ok(acquire_soon($x, 'fresh', 'c', 600), '>', $fresh, 'and taken there');

# ---------------------------------------------------------------------
# Each node is cut off from the others, so that none has a majority.  That comes back
# by itself when they are connected again.
# ---------------------------------------------------------------------

my %before = map { $_ => scalar acquire_soon($x, $_, 'a', 6000) } 'through', 'given back';
is(ask($_, q{SELECT dlock_owner('given back')}), 'a', 'leases that all know') for $x, $y, $z;
Galera::give_up_late(0);
$_->isolate(1) for @nodes;
for my $node (@nodes)
{
	ok(Scenarios::Run::until(sub { $node->status('wsrep_cluster_status') eq 'non-Primary' }),
		"node $node->{number} knows that there is no majority");
}
for my $session ($x, $y, $z)
{
	like(ask($session, "SELECT $_"), $refused, "$_ is an error without a majority")
	  for q{dlock_acquire('nobody', 'a', 6000)}, q{dlock_acquire('nobody', 'a', 600, 2)}, q{dlock_renew('through', 'a', 6000)},
	  q{dlock_release('given back', 'a')}, q{dlock_owner('through')};
}
$_->isolate(0) for @nodes;
ok($_->is_synced, "node $_->{number} is connected again, without being told more") for @nodes;
Galera::give_up_late(1);
is(ask($_, q{SELECT dlock_acquire('through', 'b', 6000)}), 'NULL', 'what was held is held') for $x, $y, $z;
is(ask($y, "SELECT dlock_renew('through', 'a', 6000, $before{through})"), 1, 'and goes on');
is(ask($z, "SELECT dlock_release('given back', 'a', $before{'given back'})"), 1, 'or is given back');
cmp_ok(take_over($x, 'given back', 'and granted again'), '>', $before{'given back'}, 'tokens grow');
take_over($y, 'nobody', 'a free name');

# ---------------------------------------------------------------------
# A node is killed, any of them.
# ---------------------------------------------------------------------

my %sessions = (0 => $x, 1 => $y, 2 => $z);
for my $node ($two, $three)
{
	my $number = $node->{number};
	my $other = $sessions{ ($number + 1) % 3 };
	my $began = time;
	my $old = acquire_soon($sessions{$number}, "orphan$number", 'a', 2);
	Galera::give_up_late(0);
	$node->crash;
	$sessions{$number}->kill;
	cmp_ok(take_over($other, "orphan$number", "the lease of node $number, which was killed"), '>', $old, 'tokens grow');
	cmp_ok(time - $began, '>=', 2, 'not early');
	is(ask($other, "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'a lease goes on');
	$node->come_back;
	$sessions{$number} = session($node, "s$number");
	is(ask($sessions{$number}, "SELECT dlock_renew('orphan$number', 'a', 6000, $old)"), 0, 'back, it knows who has it');
}
($x, $y, $z) = @sessions{ 0 .. 2 };

# ---------------------------------------------------------------------
# Two are killed at once: the third has no majority.  It goes on when it is told
# to.
# ---------------------------------------------------------------------

my $last = ask($z, q{SELECT dlock_acquire('last', 'a', 6000)});
like($last, $is_token, 'a lease');
is(ask($x, q{SELECT dlock_owner('last')}), 'a', 'that all know');
Galera::give_up_late(0);
kill 'KILL', $two->pid, $three->pid;
$_->crash for $two, $three;
$_->kill for $y, $z;
$x->send(q{SELECT dlock_acquire('minority', 'a', 6000)});
is_no_grant('who asks a node without a majority', $x);
like(ask($x, "SELECT $_"), $refused, "$_ is an error there") for q{dlock_acquire('minority', 'a', 600, 2)}, q{dlock_renew('last', 'a', 30)};
$one->control->value(q{SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'});
ok($one->is_synced, 'told to go on');
Galera::give_up_late(1);
take_over($x, 'minority', 'a free name');
is(ask($x, q{SELECT dlock_acquire('last', 'b', 6000)}), 'NULL', 'what was held is held');
is(ask($x, "SELECT dlock_renew('last', 'a', 6000, $last)"), 1, 'and goes on');
$_->boot for $two, $three;
($y, $z) = map { session($_, "s$_->{number}") } $two, $three;
is(ask($_, q{SELECT dlock_owner('minority')}), 'b', 'the others are back') for $y, $z;
is(ask($z, "SELECT dlock_release('last', 'a', $last)"), 1, 'what was held is given back');
cmp_ok(acquire_soon($y, 'last', 'b', 6000), '>', $last, 'and granted again');

$_->quit for $x, $y, $z;
Writers::note_errors();
done_testing();
