# Three members of a Group Replication group: first one of them writes, then all.
# Whichever member is killed, stopped or cut off: of several owners that want the same
# lease one has it, tokens grow, and held leases stay held.  Also scenario 21.  MySQL
# only.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use GroupReplication;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Writers;

my $reason = GroupReplication::reason_not(@ARGV);
plan skip_all => $reason if defined $reason;

my $started = time;
my @nodes = GroupReplication::start(3, single_primary => 1, majority_timeout => 4);
my $read_only = qr/^1792 25006: /;
my (%sessions, %tokens);

# The session on a node, which is opened again if it has ended.
sub at
{
	my ($node) = @_;
	return $sessions{ $node->{number} } //= session($node, "s$node->{number}");
}

sub forget_session
{
	my ($node) = @_;
	my $session = delete $sessions{ $node->{number} };
	$session->kill if $session;
	$node->end_control;
	return;
}

# All but one.
sub others
{
	my ($node) = @_;
	return grep { $_ != $node } @nodes;
}

# A grant: the name's tokens grow, wherever they are given.
sub granted
{
	my ($token, $name, $what) = @_;
	cmp_ok($token =~ $is_token ? $token : 0, '>', $tokens{$name} // 1, $what) or diag($token);
	$tokens{$name} = $token;
	return;
}

# Ask one of the nodes for a lease until it is granted, by whoever is the primary
# then.  What others may be told until then are errors and refusals.
sub take_over
{
	my ($nodes, $name, $owner, $what) = @_;
	my ($began, $token, $by) = (time);
	Scenarios::Run::until(sub {
		for my $node (@$nodes)
		{
			$by = $node;
			$token = ask(at($node), "SELECT dlock_acquire('$name', '$owner', 600)");
			return 1 if $token =~ $is_token;
		}
		return 0;
	}) or diag("the last answer: $token");
	granted($token, $name, $what);
	note(sprintf('%s: after %.1f s; at %.0f s', $what, time - $began, time - $started));
	return $by;
}

# What a node without the others is asked: no answer may be a grant.
sub send_acquires
{
	my ($node, @names) = @_;
	my @sessions = map { session($node, $_) } @names;
	$_->send("SELECT dlock_acquire('$_->{name}', 'cut off', 600)") for @sessions;
	return @sessions;
}

sub is_no_grant
{
	my ($sessions, $what) = @_;
	for my $session (@$sessions)
	{
		my $answer = answer_of($session);
		like($answer, qr/^(gone|\d+ \w{5}: .*)$/, "$what is told so");
		note("$what: $answer");
		$session->kill;
	}
	return;
}

# ---------------------------------------------------------------------
# Installing: on the primary, and it is everywhere.
# ---------------------------------------------------------------------

my $primary = $nodes[0];
$primary->install;
Writers::make_tables($primary);
$_->make_ready for @nodes;

# ---------------------------------------------------------------------
# One primary.  The others answer questions.
# ---------------------------------------------------------------------

granted(ask(at($primary), q{SELECT dlock_acquire('kept', 'a', 6000)}), 'kept', 'the primary grants');
for my $node (others($primary))
{
	my $session = at($node);
	is(ask($session, q{SELECT dlock_owner('kept')}), 'a', 'a secondary knows the owner');
	is(ask($session, q{SELECT dlock_is_free('kept')}), 0, 'that the name is taken');
	is(ask($session, q{SELECT dlock_is_free('other')}), 1, 'and another is not');
	is(ask($session, q{SELECT JSON_VALUE(dlock_holders('kept'), '$[0].token')}), $tokens{kept}, 'and the token');
	is(ask($session, q{SELECT group_concat(name, ' ', owner, ' ', mode) FROM dlock.locks}), 'kept a exclusive', 'dlock.locks has it');
	is(ask($session, q{SELECT count(*) FROM dlock.waiters}), 0, 'dlock.waiters can be read');
	is(ask($session, q{SELECT acquired FROM dlock.stats}), 0, 'and dlock.stats');
	like(ask($session, "SELECT $_"), $read_only, "$_ needs the primary")
	  for q{dlock_acquire('new', 'b', 30)}, q{dlock_acquire('new', 'b', 30, 5)}, q{dlock_acquire_shared('new', 'b', 30)},
	  q{dlock_acquire_permit('new', 'b', 30, 2)}, q{dlock_acquire_all('["new", "more"]', 'b', 30)},
	  q{dlock_acquire_session('new', 'b', 30)}, q{dlock_acquire('kept', 'a', 30)}, q{dlock_renew('kept', 'a', 30)},
	  q{dlock_renew_all('a', 30)}, q{dlock_release('kept', 'a')}, q{dlock_release('kept', 'b')},
	  q{dlock_release_all('a')}, q{dlock_release_all('nobody')}, q{dlock_wait('kept')};
	like(ask($node->control, q{SELECT dlock_force_release('kept')}), $read_only, 'and so does an eviction');
	ask($session, 'BEGIN');
	like(ask($session, "CALL dlock.guard('kept', 'a', $tokens{kept})"), qr/^(1290|1792) .*read.only/, 'and a guard');
	ask($session, 'ROLLBACK');
}
is(ask(at($primary), "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'all that has changed nothing');

# ---------------------------------------------------------------------
# Another one becomes the primary, because somebody said so.
# ---------------------------------------------------------------------

my $next = $nodes[1];
granted(ask(at($primary), q{SELECT dlock_acquire('moved', 'a', 6000)}), 'moved', 'a lease of the first primary');
my $waiter = session($primary, 'waiter');
$waiter->send(q{SELECT dlock_acquire('moved', 'waiter', 600, -1)});
Scenarios::Run::until(sub { ask($primary->control, 'SELECT count(*) FROM dlock.waiters') == 1 });
my $uuid = $next->control->value('SELECT @@server_uuid');
my $began = time;
$primary->control->value("DO group_replication_set_as_primary('$uuid')");
note(sprintf('moving the primary took %.1f s', time - $began));
for my $node (@nodes)
{
	ok(Scenarios::Run::until(sub { ($node->primary // '') eq $next }), 'another one is the primary');
}
is(ask(at($next), q{SELECT dlock_owner('moved')}), 'a', 'what was held is held');
is(ask(at($next), q{SELECT dlock_acquire('moved', 'b', 6000)}), 'NULL', 'and not granted');
is(ask(at($next), "SELECT dlock_release('moved', 'a', $tokens{moved})"), 1, 'it is given back to the new primary');
granted(ask(at($next), q{SELECT dlock_acquire('moved', 'b', 6000)}), 'moved', 'which grants it');
like(ask(at($primary), q{SELECT dlock_release('moved', 'b')}), $read_only, 'the old one does not any more');
like(answer_of($waiter), $read_only, 'who waited there is told');
$waiter->quit;
is(ask(at($_), q{SELECT dlock_owner('moved')}), 'b', 'all know the owner') for @nodes;
($primary, $next) = ($next, $primary);

# ---------------------------------------------------------------------
# The primary is killed.
# ---------------------------------------------------------------------

my $held = time;
granted(ask(at($primary), q{SELECT dlock_acquire('orphan', 'a', 3)}), 'orphan', 'a short lease');
is(ask(at($primary), "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'a long one is renewed');
granted(ask(at($primary), q{SELECT dlock_acquire('last', 'a', 6000)}), 'last', 'and another granted');
GroupReplication::give_up_late(0);
$primary->crash;
forget_session($primary);
my $killed = $primary;
$primary = take_over([ others($killed) ], 'free', 'b', 'a free name after the primary was killed');
is(ask(at($_), q{SELECT dlock_owner('last')}), 'a', 'the last grant is there') for others($killed);
is(ask(at($primary), "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'a lease goes on');
is(ask(at($primary), q{SELECT dlock_acquire('kept', 'b', 6000)}), 'NULL', 'and is not granted to another');
take_over([$primary], 'orphan', 'b', 'the short lease of a primary that was killed');
cmp_ok(time - $held, '>=', 3, 'not before its time');
is(ask(at($primary), q{SELECT dlock_renew('orphan', 'a', 30)}), 0, 'who had it does not any more');

# it comes back
$killed->come_back;
is($killed->primary, $primary, 'back, as a secondary');
is(ask(at($killed), q{SELECT dlock_owner('orphan')}), 'b', 'which knows what has happened');
like(ask(at($killed), q{SELECT dlock_acquire('more', 'a', 6000)}), $read_only, 'and grants nothing');

# ---------------------------------------------------------------------
# The primary is stopped, and goes on when others have taken over.
# ---------------------------------------------------------------------

granted(ask(at($primary), q{SELECT dlock_acquire('paused', 'a', 2)}), 'paused', 'a short lease');
my $paused = $primary;
my @sessions = map { session($paused, $_) } 'paused', 'new', 'kept';
GroupReplication::give_up_late(0);
$paused->hold_expelled;
$paused->pause;
# it will find these when it wakes up, believing that it is the primary
$_->send("SELECT dlock_acquire('$_->{name}', 'sleeper', 600)") for @sessions;
$primary = take_over([ others($paused) ], 'new', 'b', 'a free name after the primary was stopped');
take_over([$primary], 'paused', 'b', 'the lease of a primary that was stopped');
$paused->resume;
is_no_grant(\@sessions, 'who asks a primary that was stopped');
# it knows that it was expelled, and is not read-only yet: it reads what has long changed
forget_session($paused);
ok($paused->is_expelled, 'it was expelled');
is(ask($paused->control, 'SELECT @@read_only OR @@super_read_only'), 0, 'and can be written to');
like(ask(at($paused), $_), $read_only, "no answer from old rows: $_")
  for q{SELECT dlock_acquire('kept', 'sleeper', 600)}, q{SELECT dlock_acquire('kept', 'sleeper', 600, 5)},
	q{SELECT dlock_renew('new', 'b', 600)}, q{SELECT dlock_release('new', 'b')},
	q{SELECT dlock_renew_all('b', 600)}, q{SELECT dlock_release_all('nobody')};
is(ask(at($paused), q{SELECT dlock_owner('kept')}), 'a', 'what it knew can be looked at');
$paused->let_expelled;
forget_session($paused);
GroupReplication::gather();
GroupReplication::give_up_late(1);
is(ask(at($paused), "SELECT dlock_owner('$_')"), 'b', "$_ is held as it was") for 'new', 'paused';

# ---------------------------------------------------------------------
# The primary is cut off from the others.
# ---------------------------------------------------------------------

granted(ask(at($primary), q{SELECT dlock_acquire('cut', 'a', 2)}), 'cut', 'a short lease');
granted(ask(at($primary), q{SELECT dlock_acquire('mine', 'a', 6000)}), 'mine', 'and a long one');
my $cut = $primary;
@sessions = map { session($cut, $_) } 'fresh', 'cut';
my $releaser = session($cut, 'releaser');
GroupReplication::give_up_late(0);
$cut->cut_off;
$_->send("SELECT dlock_acquire('$_->{name}', 'cut off', 600)") for @sessions;
$releaser->send(q{SELECT dlock_release('mine', 'a')});
$primary = take_over([ others($cut) ], 'fresh', 'b', 'a free name after the primary was cut off');
take_over([$primary], 'cut', 'b', 'the lease of a primary that was cut off');
is_no_grant([ @sessions, $releaser ], 'who asks a primary that was cut off');
is(ask(at($primary), q{SELECT dlock_owner('mine')}), 'a', 'what it could not release is held');
# now it knows: it answers at once
my $answer = ask($cut->control, q{SELECT dlock_acquire('again', 'a', 30)});
like($answer, qr/^\d+ \w{5}: /, 'it grants nothing to administrators either');
note($answer);
$cut->connect_again;
forget_session($cut);
GroupReplication::gather();
GroupReplication::give_up_late(1);
is(ask(at($cut), "SELECT dlock_owner('$_')"), 'b', "$_ is held as it was") for 'fresh', 'cut';
is(ask(at($primary), "SELECT dlock_release('mine', 'a', $tokens{mine})"), 1, 'what was held is given back');

# ---------------------------------------------------------------------
# The primary loses the majority, and regains it before it gives up; then not.
# ---------------------------------------------------------------------

granted(ask(at($primary), q{SELECT dlock_acquire('short', 'a', 6000)}), 'short', 'a lease');
@sessions = map { session($primary, $_) } 'during', 'short';
# nobody gives up
$_->pause for others($primary);
$_->send("SELECT dlock_acquire('$_->{name}', '$_->{name}', 600)") for @sessions;
Scenarios::Run::until(sub { $sessions[1]->is_answered || ask($primary->control,
	"SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT dlock_acquire(%'") == 2 }) or die "nobody asks\n";
$_->resume for others($primary);
my ($during, $refused) = map { answer_of($_) } @sessions;
like($during, qr/^(\d+|\d+ \w{5}: .*)$/, "who asks meanwhile is answered: $during");
is($refused, 'NULL', 'what is held is refused');
$_->quit for @sessions;
ok(Scenarios::Run::until(sub { ($primary = $nodes[0]->primary) && $primary->online == 3 }), 'nobody has left');
take_over([$primary], 'after', 'b', 'a free name after the majority came back');
is(ask(at($primary), "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'a lease goes on');

GroupReplication::give_up_late(0);
# when these go on, the first must not give up the second before that does
$_->expel_late(1) for others($primary);
$_->pause for others($primary);
@sessions = send_acquires($primary, 'alone', 'short');
is_no_grant(\@sessions, 'who asks a primary without a majority');
my $alone = $primary;
$_->resume for others($alone);
forget_session($alone);
my ($one, $two) = others($alone);
ok(Scenarios::Run::until(sub { $one->state($two) eq 'ONLINE' && $two->state($one) eq 'ONLINE' }), 'the others come back');
$_->expel_late(0) for $one, $two;
# what was asked for may have been written when they could be reached again: nobody knows
$primary = take_over([ others($alone) ], $alone->has_log ? 'free again' : 'alone', 'b', 'a free name after the others came back');
is(ask(at($primary), q{SELECT dlock_owner('short')}), 'a', 'what was held is held');
GroupReplication::gather();
GroupReplication::give_up_late(1);

# ---------------------------------------------------------------------
# A secondary that is killed is not missed.
# ---------------------------------------------------------------------

my ($last, $secondary) = others($primary);
GroupReplication::give_up_late(0);
$secondary->crash;
forget_session($secondary);
take_over([$primary], 'free2', 'b', 'a free name after a secondary was killed');
GroupReplication::give_up_late(1);
is(ask(at($primary), "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'a lease goes on');

# ---------------------------------------------------------------------
# A member that is stopped leaves the group.  Should the library have been looking
# at the server just then, that takes the server a minute.
# ---------------------------------------------------------------------

open(my $log, '<', "$last->{dir}/log.err") or die "could not open the log: $!\n";
() = <$log>;
$last->stop;
seek($log, 0, 1);
like(join('', <$log>), qr/Shutdown complete/, 'a member stops by itself');

Writers::note_errors();
done_testing();
