# Three members of a Group Replication group that all write.  First they are separate
# servers, one of which holds leases; then they become a group while the library runs.
# MySQL only.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use GroupReplication;
use InTime;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Writers;

my $reason = GroupReplication::reason_not(@ARGV);
plan skip_all => $reason if defined $reason;

my @nodes = Writers::with_held_flushes(sub { GroupReplication::start(3, apart => 1, majority_timeout => 4) });
my ($one, $two, $three) = @nodes;

# ---------------------------------------------------------------------
# A server becomes the first member of a group.  By itself it may answer from
# memory what it has written last; with others it may not.
# ---------------------------------------------------------------------

$one->install;
Writers::make_tables($one);
$one->make_ready;

my $x = session($one, 'x');
my @names = map { "before$_" } 1 .. 4;
my %before = map { $_ => ask($x, "SELECT dlock_acquire('$_', 'a', 600)") } @names;
like($before{$_}, $is_token, "$_ is granted by a server by itself") for @names;
is(ask($x, "SELECT dlock_release('before1', 'a', $before{before1})"), 1, 'and given back');

$one->load_plugin;
my $loaded = time;
$one->join_group(bootstrap => 1);
$two->load_plugin;
$two->join_group;
$two->make_ready;
my $y = session($two, 'y');
# as soon as can be
is(ask($two->control, "SELECT dlock_force_release('before2')"), 1, 'the second member evicts');
note(sprintf('%.1f s after the plugin was loaded into the first', time - $loaded));
is(ask($x, "SELECT dlock_release('before2', 'a', $before{before2})"), 'NULL', 'what has ended there is not given back here');
my $token = ask($y, q{SELECT dlock_acquire('before2', 'b', 600)});
cmp_ok($token, '>', $before{before2}, 'it is granted there, with a larger token');
is(ask($x, "SELECT dlock_renew('before2', 'a', 600, $before{before2})"), 0, 'which the first knows');
is(ask($y, q{SELECT dlock_release('before3', 'a')}), 1, 'the second member takes back a lease of the first');
ok(Scenarios::Run::until(sub { ask($x, q{SELECT dlock_is_free('before3')}) eq '1' }), 'which the first comes to know');
is(ask($x, "SELECT dlock_release('before3', 'a', $before{before3})"), 'NULL', 'and does not do again');
cmp_ok(ask($x, q{SELECT dlock_acquire('before3', 'b', 600)}), '>', $before{before3}, 'but grants it');
is(ask($y, q{SELECT dlock_acquire('before4', 'b', 600)}), 'NULL', 'what is held is held');
is(ask($x, "SELECT dlock_release('before4', 'a', $before{before4})"), 1, 'and given back');
cmp_ok(acquire_soon($y, 'before4', 'b', 600), '>', $before{before4}, 'then it is free');
is(ask($y, q{SELECT dlock_release_all('b')}), 3, 'that was all');
$_->quit for $x, $y;

$three->load_plugin;
$three->join_group;
$three->make_ready;

# ---------------------------------------------------------------------
# All write.
# ---------------------------------------------------------------------

Writers->new(nodes => \@nodes, sync => q{SET SESSION group_replication_consistency = 'BEFORE'},
	conflict => qr/^(1213 40001|3101 40000|1180 HY000): /)->test_all;

# ---------------------------------------------------------------------
# A session's lease is known to live everywhere.
# ---------------------------------------------------------------------

($x, $y) = (session($one, 'x'), session($two, 'y'));
my $refused;
# the server of the session writes it anew in time, unless the machine stands still
my ($began, $counted);
in_time(sub { $refused !~ /^3572 / && time - $began - (InTime::seconds() - $counted) < 2 }, sub {
	ask($y, q{SELECT dlock_release('session', 'b')});
	($began, $counted) = (time, InTime::seconds());
	Scenarios::Run::until(sub { ($token = ask($x, q{SELECT dlock_acquire_session('session', 'a', 5)})) =~ $is_token });
	like($token, $is_token, 'a lease of a session');
	$refused = ask($y, q{SELECT dlock_acquire('session', 'b', 600, 8)});
	is($refused, 'NULL', 'outlives its time while the session lives');
});
$y->send(q{SELECT dlock_acquire('session', 'b', 600, -1)});
$x->quit;
cmp_ok(answer_of($y), '>', $token, 'and ends with it');
is(ask($y, q{SELECT dlock_release('session', 'b')}), 1, 'given back');

# ---------------------------------------------------------------------
# A member is cut off; the others go on.
# ---------------------------------------------------------------------

my @sessions = map { session($one, $_) } 'fresh', 'orphan', 'held';
my $held = time;
my $orphan = ask($sessions[0], q{SELECT dlock_acquire('orphan', 'a', 2)});
like($orphan, $is_token, 'a short lease');
my $kept = ask($sessions[0], q{SELECT dlock_acquire('held', 'a', 600)});
like($kept, $is_token, 'and a long one');
GroupReplication::give_up_late(0);
$one->cut_off;
$_->send("SELECT dlock_acquire('$_->{name}', 'cut off', 600)") for @sessions;
$began = time;
my $fresh = acquire_soon($y, 'fresh', 'b', 600);
like($fresh, $is_token, 'the others grant');
note(sprintf('after %.1f s', time - $began));
cmp_ok(acquire_soon($y, 'orphan', 'b', 600), '>', $orphan, 'and take over');
cmp_ok(time - $held, '>=', 2, 'not early');
is(ask($y, q{SELECT dlock_acquire('held', 'b', 600)}), 'NULL', 'but not what is held');
for my $session (@sessions)
{
	my $answer = answer_of($session);
	like($answer, qr/^(gone|\d+ \w{5}: .*)$/, 'who asks a member that was cut off is told so');
	note($answer);
	$session->kill;
}
$one->connect_again;
$one->end_control;
GroupReplication::gather();
GroupReplication::give_up_late(1);
$x = session($one, 'x');
is(ask($x, "SELECT dlock_owner('$_')"), 'b', "$_ is held as it was") for 'fresh', 'orphan';
is(ask($x, "SELECT dlock_release('held', 'a', $kept)"), 1, 'what was held is given back');
is(ask($y, "SELECT dlock_release_all('b')"), 2, 'and all else');
$x->quit;

# ---------------------------------------------------------------------
# A member is killed in the middle of things.
# ---------------------------------------------------------------------

my @workers = map { session($nodes[ $_ % 2 ], "k$_") } 1 .. 4;
my @killed = map { session($three, "d$_") } 1 .. 2;
$_->send("CALL scenarios.work('$_->{name}', 12)") for @workers, @killed;
Scenarios::Run::until(sub { ask($three->control, 'SELECT acquired FROM dlock.stats') > 40 });
GroupReplication::give_up_late(0);
$three->crash;
$_->kill for @killed;
my $done = 0;
for my $worker (@workers)
{
	is(answer_of($worker), undef, "$worker->{name} comes to an end");
	is(ask($worker, q{SELECT concat('errors: ', @errors)}), 'errors: ', "$worker->{name} met no errors");
	is(ask($worker, q{SELECT concat('wrong: ', @wrong)}), 'wrong: ', "$worker->{name} found nothing wrong");
	$done += ask($worker, 'SELECT @done');
	$worker->quit;
}
cmp_ok($done, '>', 0, 'the others went on');
note("$done times");
$three->come_back;
my $z = session($three, 'z');
cmp_ok(acquire_soon($z, 'fresh', 'c', 30), '>', $fresh, 'it comes back, and grants');
is(ask($y, q{SELECT dlock_owner('fresh')}), 'c', 'as all know');

Writers::note_errors();
done_testing();
