# A server and its asynchronous replica: the replica answers looks, and grants once it
# has been promoted, even if it lacks the latest grants.  Then the formats of the
# binary log.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Replicas;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Writers;

my ($kind) = @ARGV;
my $mariadb = $kind eq 'mariadb';
my $read_only = qr/^1792 25006: /;

my $source = Replicas->start($kind);
$source->install;
my $replica = Replicas->start($kind, '--read-only=ON');
$replica->follow($source);
$replica->catch_up($source);
$replica->complete;
my $x = session($source, 'x');
my $y = session($replica, 'y');

# ---------------------------------------------------------------------
# A replica answers questions.
# ---------------------------------------------------------------------

my %tokens = map { $_ => ask($x, "SELECT dlock_acquire('$_', 'a', 6000)") } 'kept', 'released', 'renewed';
like($tokens{$_}, $is_token, "the primary grants $_") for sort keys %tokens;
$tokens{short} = ask($x, q{SELECT dlock_acquire('short', 'a', 6000)});
is(ask($x, "SELECT dlock_release('released', 'a', $tokens{released})"), 1, 'and is given one back');
is(ask($x, "SELECT dlock_renew('renewed', 'a', 9000, $tokens{renewed})"), 1, 'and renews one');
# what was answered before its commit is written before this is answered
is(ask($x, q{SELECT count(*) FROM dlock.locks}), 3, 'three are held');
$replica->catch_up($source);
is(ask($y, q{SELECT dlock_owner('kept')}), 'a', 'a replica knows the owner');
is(ask($y, q{SELECT dlock_is_free('kept')}), 0, 'that the name is taken');
is(ask($y, q{SELECT dlock_is_free('released')}), 1, 'and another is not');
is(ask($y, q{SELECT JSON_VALUE(dlock_holders('kept'), '$[0].token')}), $tokens{kept}, 'and the token');
cmp_ok(ask($y, q{SELECT dlock_remaining('kept', 'a')}), '>', 0, 'how much is left of it');
is(ask($y, q{SELECT JSON_VALUE(dlock_holders('kept'), '$[0].guarded')}), $replica->has_log ? 0 : 'NULL',
	'and, as far as it can, whether it is guarded');
is(ask($y, q{SELECT group_concat(name ORDER BY name) FROM dlock.locks}), 'kept,renewed,short', 'dlock.locks has it');
is(ask($y, q{SELECT held FROM dlock.stats}), 3, 'and how many there are');
is(ask($y, q{SELECT count(*) FROM dlock.waiters}), 0, 'dlock.waiters can be read');
is(ask($y, q{SELECT acquired FROM dlock.stats}), 0, 'and dlock.stats');
like(ask($y, "SELECT $_"), $read_only, "$_ needs the primary")
  for q{dlock_acquire('new', 'b', 30)}, q{dlock_acquire('kept', 'b', 30, 5)}, q{dlock_acquire('kept', 'a', 30)},
  q{dlock_acquire_shared('new', 'b', 30)}, q{dlock_acquire_permit('new', 'b', 30, 2)},
  q{dlock_acquire_all('["new", "more"]', 'b', 30)}, q{dlock_acquire_session('new', 'b', 30)},
  q{dlock_acquire_permits('new', 'b', 30, 2, 2)}, q{dlock_acquire_any('["new", "more"]', 'b', 30, 1)},
  q{dlock_renew_many('["kept"]', 'a', 30)}, q{dlock_release_many('["kept"]', 'a')}, q{dlock_downgrade('kept', 'a')},
  q{dlock_renew('kept', 'a', 30)}, q{dlock_renew_all('a', 30)}, q{dlock_release('kept', 'a')},
  q{dlock_release_all('a')}, q{dlock_release_all('nobody')}, q{dlock_wait('kept')};
like(ask($replica->control, q{SELECT dlock_force_release('kept')}), $read_only, 'an administrator too');
is(ask($x, "SELECT dlock_renew('short', 'a', 1, $tokens{short})"), 1, 'a lease is shortened');
ok(Scenarios::Run::until(sub { ask($x, q{SELECT dlock_is_free('short')}) eq '1' }), 'a lease expires on the primary');
ok(Scenarios::Run::until(sub { ask($x, q{SELECT count(*) FROM dlock.locks}) == 2 }), 'and is reaped');
$replica->catch_up($source);
is(ask($y, q{SELECT dlock_is_free('short')}), 1, 'the replica follows');

# ---------------------------------------------------------------------
# What is granted last does not reach the replica, which is promoted.
# ---------------------------------------------------------------------

is(ask($x, "SELECT dlock_renew('renewed', 'a', 5, $tokens{renewed})"), 1, 'a lease is shortened');
my $session_token = ask($x, q{SELECT dlock_acquire_session('session', 'a', 2)});
like($session_token, $is_token, 'and one of a session taken');
$replica->catch_up($source);
$replica->stop_following;
my $lost;
for my $i (1 .. 20)
{
	$lost = ask($x, q{SELECT dlock_acquire('lost', 'a', 6000)});
	is(ask($x, "SELECT dlock_release('lost', 'a', $lost)"), 1, 'released') if $i < 20;
}
like($lost, $is_token, 'a lease that the replica does not know');

# each of these is a take-over, and must not carry the tokens past the clock
my $refused = 0;
for my $i (1 .. 40)
{
	my $more;
	$source->control->value('SET GLOBAL read_only = ON');
	$refused++ if ask($x, q{SELECT dlock_acquire('lost', 'a', 6000)}) =~ $read_only;
	$source->control->value('SET GLOBAL read_only = OFF');
	Scenarios::Run::until(sub { ($more = ask($x, q{SELECT dlock_acquire('toggled', 'a', 6000)})) =~ $is_token }) or diag($more);
	ask($x, "SELECT dlock_release('toggled', 'a')");
	$tokens{toggled} = $more if $more > ($tokens{toggled} // 0);
}
is($refused, 40, 'it is read-only forty times');
is(ask($x, q{SELECT dlock_release('kept', 'a')}), 1, 'and a release');
is(ask($x, q{SELECT dlock_settle() * 0 + count(*) FROM dlock.locks WHERE name = 'kept'}), 0, 'which has been written');
$source->crash;
$x->kill;
my $killed = time;
$replica->control->value('SET GLOBAL read_only = OFF');
my $new;
Scenarios::Run::until(sub { ($new = ask($y, q{SELECT dlock_acquire('lost', 'b', 600)})) =~ $is_token })
  or diag($new);
note(sprintf('promoted: the first grant %.2f s after the command', time - $killed));
cmp_ok($new, '>', $lost, 'a promoted replica grants larger tokens than were lost');
cmp_ok(ask($y, q{SELECT dlock_acquire('toggled', 'b', 600)}), '>', $tokens{toggled}, 'however often the other one took over');
is(ask($y, q{SELECT dlock_acquire('kept', 'b', 600)}), 'NULL', 'a lease that it knows is held');
is(ask($y, q{SELECT dlock_owner('kept')}), 'a', 'by its owner');
is(ask($y, "SELECT dlock_renew('kept', 'a', 6000, $tokens{kept})"), 1, 'who goes on here');
cmp_ok(ask($y, q{SELECT dlock_acquire('renewed', 'b', 600, 600)}), '>', $tokens{renewed}, 'one that ends is taken over');
cmp_ok(ask($y, q{SELECT dlock_acquire('session', 'b', 600, 600)}), '>', $session_token, 'and the one of a session');
is(ask($y, q{SELECT dlock_release('short', 'a')}), 'NULL', 'what has ended has ended');
is(ask($y, q{SELECT dlock_release_all('b')}), 4, 'all is given back');

# ---------------------------------------------------------------------
# There and back again, without a loss: a server that grants, then follows, then
# grants is not led astray by what it remembers.
# ---------------------------------------------------------------------

# the old primary has what nobody else has, and is made anew
$replica->{options} = [];
my $again = Replicas->start($kind);
$again->follow($replica);
$again->catch_up($replica);
$again->complete;
$again->control->value('SET GLOBAL read_only = ON');
my $z = session($again, 'z');
my %held = map { $_ => ask($y, "SELECT dlock_acquire('$_', 'a', 6000)") } 'one', 'two', 'three';
is(ask($y, "SELECT dlock_release('three', 'a', $held{three})"), 1, 'released');
is(ask($y, q{SELECT dlock_settle()}), 1, 'written');

sub switch
{
	my ($from, $to, $session) = @_;
	$from->control->value('SET GLOBAL read_only = ON');
	$to->catch_up($from);
	$to->stop_following;
	$from->follow($to, demoted => 1);
	$to->control->value('SET GLOBAL read_only = OFF');
	return Scenarios::Run::until(sub { ask($session, q{SELECT dlock_release('none', 'none')}) eq 'NULL' });
}

ok(switch($replica, $again, $z), 'switched over');
is(ask($z, "SELECT dlock_release('one', 'a', $held{one})"), 1, 'a lease is given back there');
my $taken = ask($z, q{SELECT dlock_acquire('one', 'b', 600)});
cmp_ok($taken, '>', $held{one}, 'and taken by another');
my $third = ask($z, q{SELECT dlock_acquire('three', 'b', 600)});
cmp_ok($third, '>', $held{three}, 'a free one is taken');
is(ask($again->control, q{SELECT dlock_force_release('two')}), 1, 'a third is evicted');
like(ask($y, q{SELECT dlock_acquire('new', 'b', 30)}), $read_only, 'the old primary grants nothing');
ok(switch($again, $replica, $y), 'switched back');
is(ask($y, "SELECT dlock_release('one', 'a', $held{one})"), 0, 'what is not held any more is not given back');
is(ask($y, "SELECT dlock_release('two', 'a', $held{two})"), 'NULL', 'nor what nobody holds');
is(ask($y, q{SELECT dlock_owner('one')}), 'b', 'who took it has it');
is(ask($y, "SELECT dlock_release('one', 'b', $taken)"), 1, 'and gives it back');
cmp_ok(ask($y, q{SELECT dlock_acquire('one', 'a', 6000)}), '>', $taken, 'tokens grow');
is(ask($y, "SELECT dlock_release('three', 'b', $third)"), 1, 'and the other one');
cmp_ok(ask($y, q{SELECT dlock_acquire('three', 'a', 6000)}), '>', $third, 'tokens grow');
is(ask($y, q{SELECT dlock_release_all('a')}), 3, 'all is given back');

# ---------------------------------------------------------------------
# Formats of the binary log.
# ---------------------------------------------------------------------

# what the replica has in the end is what the primary has
sub is_same
{
	my ($what) = @_;
	my $rows = $replica->has_log ? 'SELECT number, writer, HEX(entries) FROM dlock.log ORDER BY number'
	  : 'SELECT name, slot, owner, version, token, writes, guards FROM dlock.lease_table ORDER BY name, slot';
	is(ask($y, 'SELECT dlock_settle()'), 1, "$what: all is written");
	$again->catch_up($replica);
	my ($here, $there) = map { join("\n", map { join(' ', @$_) } @{ $_->control->query($rows)->{rows} }) } $replica, $again;
	is($there, $here, "$what: the replica has the same");
	return if $replica->has_log;
	($here, $there) = map { join("\n", map { join(' ', @$_) }
		  @{ $_->control->query('SELECT bucket, mark FROM dlock.lease_mark ORDER BY bucket')->{rows} }) } $replica, $again;
	is($there, $here, "$what: and the same marks");
	return;
}

# Connections have the format that was set when they began, the library's too.
sub set_format
{
	my ($format) = @_;
	my $control = $replica->control;
	$control->value("SET GLOBAL binlog_format = '$format'");
	$y->kill;
	$control->query("KILL CONNECTION $_->[0]")
	  for @{ $control->query(q{SELECT id FROM information_schema.processlist
		WHERE user NOT IN ('root', 'follower', 'system user', 'event_scheduler')})->{rows} };
	$y = session($replica, 'y');
	return;
}

sub test_format
{
	my ($format) = @_;
	my $token;

	# the first call may find the connection gone
	Scenarios::Run::until(sub { ($token = ask($y, q{SELECT dlock_acquire('f1', 'a', 6000)})) =~ $is_token })
	  or diag($token);
	like($token, $is_token, "$format: granted");
	like(ask($y, q{SELECT dlock_acquire('f2', 'a', 6000)}), $is_token, "$format: and another");
	is(ask($y, q{SELECT dlock_release('f2', 'a')}), 1, "$format: released");
	is(ask($y, "SELECT dlock_renew('f1', 'a', 9000, $token)"), 1, "$format: renewed");
	ask($y, 'BEGIN');
	is(ask($y, "CALL dlock.guard('f1', 'a', $token)"), undef, "$format: guarded");
	is(ask($y, 'COMMIT'), undef, "$format: committed");
	is_same($format);
	is(ask($y, "CREATE TABLE scenarios.t_$format (token BIGINT)"), undef, "$format: a table");
	return ask($y, "INSERT INTO scenarios.t_$format SELECT dlock_acquire('f3', 'a', 6000)");
}

for my $format ('ROW', 'MIXED')
{
	set_format($format);
	is(test_format($format), undef, "$format: a call in a statement that changes a table");
	is_same("$format, with a call in a statement");
	my ($here, $there) = map { $_->control->value("SELECT token FROM scenarios.t_$format") } $replica, $again;
	is($there, $here, "$format: the same token in both");
	is(ask($y, q{SELECT dlock_release_all('a')}), 2, "$format: given back");
}

# the library writes at READ COMMITTED, which has no statements to be logged
set_format('STATEMENT');
my $answer;
Scenarios::Run::until(sub { ($answer = ask($y, q{SELECT dlock_acquire('f1', 'a', 6000)})) !~ /gone|lost/ });
like($answer, qr/^1105 .*BINLOG_FORMAT/i, 'STATEMENT: the lock table cannot be written, which is an error');
note($answer);
is($replica->control->value('SELECT count(*) FROM dlock.locks'), 0, 'and nothing is held');

# its account may be allowed to choose for itself
my $account = $replica->control->value(q{SELECT concat("'", dlock_os_user(), "'@localhost")});
$replica->control->value('GRANT ' . ($mariadb ? 'BINLOG ADMIN' : 'SESSION_VARIABLES_ADMIN') . " ON *.* TO $account");
set_format('STATEMENT');
like(test_format('STATEMENT'), qr/^1235 .*: cannot execute dlock_acquire\(\) in a statement that replicas repeat/,
	'STATEMENT: no call in a statement that changes a table');
# that the statement fires a trigger is not known; it is repeated on the replica, and fails there
$replica->control->value(q{CREATE TRIGGER scenarios.f BEFORE INSERT ON scenarios.t_STATEMENT FOR EACH ROW SET NEW.token = dlock_acquire('f3', 'a', 6000)});
is(ask($y, 'INSERT INTO scenarios.t_STATEMENT VALUES (0)'), undef, 'but in a trigger of one');
ok(Scenarios::Run::until(sub { $again->complaint =~ /replica/ && $again->complaint =~ /dlock_acquire/ }), 'which a replica does not repeat')
  or diag($again->complaint);
is(ask($z, q{SELECT dlock_is_free('f3')}), 0, 'it has what was granted');

# ---------------------------------------------------------------------
# A server that was replaced for a while, by one that is lost with all it has
# granted, and goes on.
# ---------------------------------------------------------------------

$replica->control->value('SET GLOBAL read_only = ON');
like(ask($y, q{SELECT dlock_acquire('forked', 'a', 6000)}), $read_only, 'the primary is read-only');
$again->stop_following;
$again->control->value('SET GLOBAL read_only = OFF');
my $forked;
Scenarios::Run::until(sub { ($forked = ask($z, q{SELECT dlock_acquire('forked', 'a', 6000)})) =~ $is_token }) or diag($forked);
like($forked, $is_token, 'another one grants a lease');
$again->crash;
$z->kill;
$replica->control->value('SET GLOBAL read_only = OFF');
Scenarios::Run::until(sub { ($new = ask($y, q{SELECT dlock_acquire('forked', 'b', 600)})) =~ $is_token }) or diag($new);
cmp_ok($new, '>', $forked, 'the first one, which does not know, grants a larger token');

Writers::note_errors();
done_testing();
