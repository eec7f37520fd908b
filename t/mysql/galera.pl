# Two nodes of a Galera cluster, and leases that go back and forth between them.
# What is known on one node has to be so on the other; of those who want the same
# at the same time on both, one has it.  MariaDB only.  GALERA_SECONDS says how
# long the load in the end takes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Galera;
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);

my $reason = Galera::reason_not(@ARGV);
plan skip_all => $reason if defined $reason;

# the second outweighs the first, which will be killed
my ($one, $two) = Galera::start(1, 2);
my %seen;		# errors that clients were told

# A session's answer: a value or an error.
sub answer_of
{
	my ($session) = @_;
	my $answer = $session->answer;
	return 'gone' if $answer->{gone};
	return $answer->{rows}[0][0] unless defined $answer->{error};
	my $error = "$answer->{error}: " . ($answer->{message} =~ s/\n.*//sr);
	$seen{$error}++;
	return $error;
}

sub ask
{
	my ($session, $sql) = @_;
	$session->send($sql);
	return answer_of($session);
}

sub session
{
	my ($node, $name) = @_;
	return Scenarios::Client->new($node, $name, 'tester');
}

# Acquire until it is granted: a release on the other node may have been
# answered a moment before it is there.
sub acquire_soon
{
	my ($session, $name, $owner, $ttl, $refusals) = @_;
	my ($token, $began) = (undef, time);
	Scenarios::Run::until(sub {
		$token = ask($session, "SELECT dlock_acquire('$name', '$owner', $ttl)");
		$$refusals++ if $token eq 'NULL';
		return $token ne 'NULL';
	});
	return wantarray ? ($token, time - $began) : $token;
}

# Let sessions run statements at the same moment.
sub together
{
	my ($sessions, @sql) = @_;
	my $when = sprintf('%.6f', time + 0.03);
	$sessions->[$_]->send("DO sleep(greatest(0, $when - unix_timestamp(sysdate(6)))); $sql[$_]")
	  for 0 .. $#$sessions;
	return map { answer_of($_) } @$sessions;
}

my $is_token = qr/^\d+$/;

# ---------------------------------------------------------------------
# Installing: all of it on one node; again on the other, which is harmless.
# ---------------------------------------------------------------------

$one->control->value(q{
	CREATE DATABASE scenarios;
	CREATE USER tester@localhost;
	GRANT ALL ON scenarios.* TO tester@localhost});
$one->feed('mysql_udf/install.sql');
like(ask($two->control, q{SELECT dlock_acquire('first', 'a', 30)}), $is_token, 'installed on one node, it works on the other');
is(ask($one->control, q{SELECT dlock_owner('first')}), 'a', 'for both');
$two->feed('mysql_udf/install.sql');
is(ask($_->control, q{SELECT count(*) FROM information_schema.plugins
	WHERE plugin_library = 'dlock.so' AND plugin_status = 'ACTIVE'}), 1, 'the plugin is active') for $one, $two;
is(ask($_->control, q{SELECT dlock_owner('first')}), 'a', 'installed again, it holds what it held') for $one, $two;
is(ask($two->control, q{SELECT dlock_release('first', 'a')}), 1, 'and gives back');
$one->control->value(q{
	GRANT EXECUTE ON dlock.* TO tester@localhost;
	CREATE TABLE scenarios.counter (
		name VARCHAR(20) PRIMARY KEY, n INT NOT NULL, token BIGINT NOT NULL) ENGINE = InnoDB;
	INSERT INTO scenarios.counter VALUES ('guarded', 0, 0), ('load0', 0, 0), ('load1', 0, 0), ('load2', 0, 0), ('load3', 0, 0)});
for my $node ($one, $two)
{
	$node->end_control;
	$node->{ready} = 1;
}

my $x = session($one, 'x');
my $y = session($two, 'y');

# ---------------------------------------------------------------------
# Taken here is taken there, given back here is free there; tokens grow.
# ---------------------------------------------------------------------

my ($refusals, $longest, $last, @wrong) = (0, 0, 0);
for my $i (1 .. 40)
{
	my ($here, $there) = $i % 2 ? ($x, $y) : ($y, $x);
	my ($token, $took) = acquire_soon($here, 'n', "owner$i", 30, \$refusals);
	push @wrong, "$i: token $token after $last" unless $token =~ $is_token && $token > $last;
	$longest = $took if $took > $longest;
	$last = $token;
	my @answers = map { ask($there, $_) } "SELECT dlock_owner('n')", q{SELECT dlock_is_free('n')},
	  q{SELECT dlock_acquire('n', 'stranger', 30)}, q{SELECT dlock_release('n', 'stranger')},
	  # an owner is no connection: it can go on elsewhere
	  $i % 3 ? "SELECT dlock_renew('n', 'owner$i', 60, $token)" : 'SELECT 1';
	push @wrong, "$i: @answers" if "@answers" ne "owner$i 0 NULL 0 1";
	my $session = $i % 5 ? $here : $there;
	my $answer = ask($session, "SELECT dlock_release('n', 'owner$i', $token)");
	push @wrong, "$i: release $answer" if $answer ne '1';
}
is("@wrong", '', 'a lease goes back and forth');
note(sprintf('%d refusals after a release on the other node, for %.1f ms at most', $refusals, 1000 * $longest));
cmp_ok($longest, '<', 2, 'a release is soon seen on the other node');

# ---------------------------------------------------------------------
# Stale tokens.
# ---------------------------------------------------------------------

for my $case ([ $x, $y, $y ], [ $x, $x, $y ], [ $x, $y, $x ], [ $y, $x, $x ])
{
	my ($took, $gave, $next) = @$case;
	my $nodes = join(', ', map { $_ == $x ? 'one' : 'two' } @$case);
	my $old = acquire_soon($took, 'stale', 'a', 30);
	is(ask($gave, "SELECT dlock_release('stale', 'a', $old)"), 1, "$nodes: given back");
	my $new = acquire_soon($next, 'stale', 'b', 30);
	cmp_ok($new, '>', $old, "$nodes: the token has grown");
	for my $session ($x, $y)
	{
		my $where = $session == $x ? 'one' : 'two';
		is(ask($session, "SELECT dlock_renew('stale', 'a', 600, $old)"), 0, "$nodes: stale renewal on $where");
		is(ask($session, "SELECT dlock_release('stale', 'a', $old)"), 0, "$nodes: stale release on $where");
		is(ask($session, q{SELECT dlock_owner('stale')}), 'b', "$nodes: the lease is untouched on $where");
	}
	is(ask($next, q{SELECT dlock_release('stale', 'b')}), 1, "$nodes: the new holder gives back");
	Scenarios::Run::until(sub { !grep { ask($_, q{SELECT dlock_is_free('stale')}) ne '1' } $x, $y });
	is(ask($_, "SELECT dlock_release('stale', 'b', $new)"), 'NULL', "$nodes: now nobody holds it") for $x, $y;
}

# the one node answers releases from memory if it can: not what has ended
# elsewhere
my $token = acquire_soon($x, 'ended', 'a', 30);
is(ask($two->control, q{SELECT dlock_force_release('ended')}), 1, 'evicted on the other node');
is(ask($x, "SELECT dlock_release('ended', 'a', $token)"), 'NULL', 'it cannot be given back any more');
$token = acquire_soon($x, 'again', 'a', 30);
is(ask($y, q{SELECT dlock_acquire('again', 'a', 30)}), $token, 're-entered on the other node');
is(ask($x, "SELECT dlock_release('again', 'a', $token)"), 1, 'one hold is given back');
is(ask($y, q{SELECT dlock_owner('again')}), 'a', 'there is another');
is(ask($x, "SELECT dlock_release('again', 'a', $token)"), 1, 'it is given back too');
ok(Scenarios::Run::until(sub { ask($y, q{SELECT dlock_is_free('again')}) eq '1' }), 'then it is free');

# ---------------------------------------------------------------------
# Expiry: the other node counts for itself, and never less.
# ---------------------------------------------------------------------

for my $i (1 .. 3)
{
	my ($here, $there) = $i % 2 ? ($x, $y) : ($y, $x);
	my $began = time;
	my $old = ask($here, q{SELECT dlock_acquire('short', 'a', 1)});
	my $new = ask($there, q{SELECT dlock_acquire('short', 'b', 30, 10)});
	my $took = time - $began;
	cmp_ok($new, '>', $old, 'an expired lease is taken over on the other node');
	cmp_ok($took, '>=', 1, 'not early');
	cmp_ok($took, '<', 5, 'nor late');
	is(ask($here, "SELECT dlock_renew('short', 'a', 30, $old)"), 0, 'the old holder cannot renew it');
	is(ask($here, "SELECT dlock_release('short', 'a', $old)"), 0, 'nor release it');
	is(ask($there, q{SELECT dlock_release('short', 'b')}), 1, 'the new one can');
	Scenarios::Run::until(sub { ask($here, q{SELECT dlock_is_free('short')}) eq '1' });
}

# renewed again and again on one node, it does not end on the other
acquire_soon($x, 'kept', 'a', 1);
$y->send(q{SELECT dlock_acquire('kept', 'b', 30, 3)});
for (1 .. 16)
{
	usleep(200_000);
	my $answer = ask($x, q{SELECT dlock_renew('kept', 'a', 1)});
	is($answer, 1, 'renewed') if $answer ne '1';
}
is(answer_of($y), 'NULL', 'what is renewed on one node is not over on the other');

# ---------------------------------------------------------------------
# Races.
# ---------------------------------------------------------------------

my %winners = (x => 0, y => 0, none => 0);
@wrong = ();
for my $i (1 .. 60)
{
	my @answers = together([ $x, $y ], map { "SELECT dlock_acquire('race$i', '$_', 30)" } 'x', 'y');
	my @won = grep { $answers[$_] =~ $is_token } 0, 1;
	$winners{ @won == 1 ? ('x', 'y')[ $won[0] ] : 'none' }++;
	push @wrong, "race $i: @answers" unless @won == 1 && $answers[ 1 - $won[0] ] eq 'NULL';
	push @wrong, "race $i: " . ask($_, "SELECT dlock_owner('race$i')")
	  for grep { ask($_, "SELECT dlock_owner('race$i')") ne ('x', 'y')[ $won[0] // 0 ] } $x, $y;
}
is("@wrong", '', 'races for a free name: one winner each');
note("winners: x $winners{x}, y $winners{y}");

# those who wait for it to expire or to be released
@wrong = ();
for my $i (1 .. 4)
{
	my $old = acquire_soon($x, 'wanted', 'a', $i % 2 ? 1 : 30);
	my @waiters = (session($one, 'p'), session($two, 'q'));
	$_->send("SELECT dlock_acquire('wanted', '$_->{name}', 30, 2)") for @waiters;
	usleep(300_000);
	ask($x, q{SELECT dlock_release('wanted', 'a')}) if $i % 2 == 0;
	my @answers = map { answer_of($_) } @waiters;
	my @won = grep { $answers[$_] =~ $is_token } 0, 1;
	push @wrong, "race $i: @answers" unless @won == 1 && $answers[ 1 - $won[0] ] eq 'NULL' && $answers[ $won[0] ] > $old;
	ask($waiters[ $won[0] ], "SELECT dlock_release_all('$waiters[ $won[0] ]->{name}')") if @won;
	$_->quit for @waiters;
}
is("@wrong", '', 'waiters on both nodes: one winner each');

# ---------------------------------------------------------------------
# A waiter on the other node.
# ---------------------------------------------------------------------

my @took;
for my $i (1 .. 4)
{
	my ($here, $there) = $i % 2 ? ($x, $y) : ($y, $x);
	acquire_soon($here, 'queue', 'a', 600);
	$there->send(q{SELECT dlock_acquire('queue', 'b', 600, -1)});
	usleep(200_000 * $i);
	my $began = time;
	is(ask($here, q{SELECT dlock_release('queue', 'a')}), 1, 'released');
	like(answer_of($there), $is_token, 'a waiter on the other node gets it');
	push @took, time - $began;
	is(ask($there, q{SELECT dlock_release('queue', 'b')}), 1, 'and gives it back');
}
note('handed over to the other node after ' . join(', ', map { sprintf('%.2f', $_) } @took) . ' s');
is(scalar(grep { $_ > 2.5 } @took), 0, 'within about a second');

# ---------------------------------------------------------------------
# Guards.
# ---------------------------------------------------------------------

sub counter { return ask($_[0], q{SELECT n FROM scenarios.counter WHERE name = 'guarded'}) }

sub guard
{
	my ($session, $token) = @_;
	ask($session, 'BEGIN');
	my $error = ask($session, "CALL dlock.guard('guarded', 'a', $token)");
	return $error if defined $error && $error ne '';
	ask($session, q{UPDATE scenarios.counter SET n = n + 1 WHERE name = 'guarded'});
	return;
}

# an owner that goes on elsewhere guards there
$token = acquire_soon($x, 'guarded', 'a', 30);
is(guard($y, $token), undef, 'guarded on the other node');
is(ask($y, 'COMMIT'), undef, 'and committed');
is(ask($x, "SELECT dlock_release('guarded', 'a', $token)"), 1, 'released');
acquire_soon($y, 'guarded', 'b', 30);
like(guard($x, $token), qr/^1644 .*guarded/, 'a stale token guards nothing');
ask($x, 'ROLLBACK');
is(ask($y, q{SELECT dlock_release('guarded', 'b')}), 1, 'released');

# a lease that expires, is released or evicted under a guard: either is the
# other node refused until the guard has ended, or the guard's commit fails
@wrong = ();
my %outcomes;
for my $i (1 .. 9)
{
	my ($here, $there, $node) = $i % 2 ? ($x, $y, $two) : ($y, $x, $one);
	my $how = ('expired', 'released', 'evicted')[ $i % 3 ];
	my $old = acquire_soon($here, 'guarded', 'a', $how eq 'expired' ? 1 : 30);
	my $before = counter($here);
	my $error = guard($here, $old);
	push @wrong, "$how: guard: $error" if defined $error;
	ask($there, q{SELECT dlock_release('guarded', 'a')}) if $how eq 'released';
	ask($node->control, q{SELECT dlock_force_release('guarded')}) if $how eq 'evicted';
	my $new = ask($there, q{SELECT dlock_acquire('guarded', 'b', 30, 4)});
	my $commit = ask($here, 'COMMIT') // 'committed';
	push @wrong, "$how: $new while guarded, and $commit" if $new =~ $is_token && $commit eq 'committed';
	push @wrong, "$how: $commit" unless $commit =~ /^(committed|1213 40001: .*)$/;
	push @wrong, "$how: $new" unless $new =~ /^(\d+|NULL)$/;
	$outcomes{"$how: " . ($new =~ $is_token ? 'granted' : 'refused') . ', ' . $commit}++;
	my $after = ask($there, q{SET SESSION wsrep_sync_wait = 1; SELECT n FROM scenarios.counter WHERE name = 'guarded'; SET SESSION wsrep_sync_wait = 0});
	push @wrong, "$how: counter $before, then $after, $commit" if $after != $before + ($commit eq 'committed');
	ask($here, 'ROLLBACK');
	acquire_soon($there, 'guarded', 'b', 30);
	ask($there, q{SELECT dlock_release_all('b')});
}
is("@wrong", '', 'a guard and a grant on the other node are never both');
note("$_: $outcomes{$_}") for sort keys %outcomes;

# the guard's commit and the other's acquire come at the same time: who is
# granted the lease sees what was committed under the guard
@wrong = ();
%outcomes = ();
for my $i (1 .. 12)
{
	my ($here, $there) = $i % 2 ? ($x, $y) : ($y, $x);
	my $old = acquire_soon($here, 'guarded', 'a', 0.4);
	my $before = counter($here);
	ask($there, q{SELECT dlock_owner('guarded')});
	my $error = guard($here, $old);
	if (defined $error)
	{
		ask($here, 'ROLLBACK');
		next;
	}
	usleep(400_000);
	my ($commit, $after) = together([ $here, $there ], 'COMMIT',
		q{SELECT dlock_acquire('guarded', 'b', 30) INTO @got;
		SELECT if(@got IS NULL, 'refused', (SELECT n FROM scenarios.counter WHERE name = 'guarded'))});
	$commit //= 'committed';
	push @wrong, "$i: $before, then $after, $commit"
	  if $after ne 'refused' && ($after !~ /^\d+$/ || $after != $before + ($commit eq 'committed'));
	push @wrong, "$i: $commit" unless $commit =~ /^(committed|1213 40001: .*)$/;
	$outcomes{ ($after eq 'refused' ? 'refused' : 'granted') . ', ' . $commit }++;
	ask($here, 'ROLLBACK');
	acquire_soon($there, 'guarded', 'b', 30);
	ask($there, q{SELECT dlock_release_all('b')});
}
is("@wrong", '', 'a grant on the other node sees what was committed under the guard');
note("$_: $outcomes{$_}") for sort keys %outcomes;

# ---------------------------------------------------------------------
# Load on both nodes.  An unprotected counter is read, and written a moment
# later; it and the tokens tell whether anybody else was there.
# ---------------------------------------------------------------------

my $seconds = $ENV{GALERA_SECONDS} // 8;
$one->control->value(q{
DELIMITER //
CREATE PROCEDURE scenarios.work(me VARCHAR(20), seconds INT)
BEGIN
	DECLARE key_name VARCHAR(20);
	DECLARE granted, last_token BIGINT;
	DECLARE value INT;
	DECLARE ended DATETIME(6) DEFAULT sysdate(6) + INTERVAL seconds SECOND;
	DECLARE number INT;
	DECLARE message TEXT;
	DECLARE step VARCHAR(20);
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
	BEGIN
		GET DIAGNOSTICS CONDITION 1 number = MYSQL_ERRNO, message = MESSAGE_TEXT;
		SET @errors = concat(@errors, step, ' ', number, ' ', message, '; ');
	END;
	SET @errors = '', @done = 0, @refused = 0, @wrong = '';
	WHILE sysdate(6) < ended DO
		SET key_name = concat('load', floor(rand() * 4)), granted = NULL;
		SET step = 'acquire';
		IF rand() < 0.7 THEN
			SET granted = dlock_acquire(key_name, me, 60, 5);
		ELSE
			SET granted = dlock_acquire(key_name, me, 60);
		END IF;
		IF granted IS NULL THEN
			SET @refused = @refused + 1;
			DO sleep(0.001);
		ELSE
			SET step = 'read';
			SELECT n, token INTO value, last_token FROM scenarios.counter WHERE name = key_name;
			IF granted <= last_token THEN
				SET @wrong = concat(@wrong, key_name, ' token ', granted, ' after ', last_token, '; ');
			END IF;
			IF rand() < 0.3 THEN
				DO sleep(rand() * 0.004);
			END IF;
			SET step = 'write';
			UPDATE scenarios.counter SET n = value + 1, token = granted WHERE name = key_name;
			SET @done = @done + 1, step = 'release';
			IF dlock_release(key_name, me, granted) <=> 1 THEN
				DO 0;
			ELSE
				SET @wrong = concat(@wrong, key_name, ' not released; ');
			END IF;
		END IF;
	END WHILE;
END//
DELIMITER ;
});
usleep(200_000);
my @workers = map { session($_ % 2 ? $one : $two, "w$_") } 1 .. 8;
$_->send("CALL scenarios.work('$_->{name}', $seconds)") for @workers;
my ($done, $refused) = (0, 0);
for my $worker (@workers)
{
	is(answer_of($worker), undef, "$worker->{name} comes to an end");
	is(ask($worker, q{SELECT concat('errors: ', @errors)}), 'errors: ', "$worker->{name} met no errors");
	is(ask($worker, q{SELECT concat('wrong: ', @wrong)}), 'wrong: ', "$worker->{name} found nothing wrong");
	my $count = ask($worker, 'SELECT @done');
	note("$worker->{name}: $count done, " . ask($worker, 'SELECT @refused') . ' refused');
	$done += $count;
	$worker->quit;
}
is(ask($_, q{SELECT sum(n) FROM scenarios.counter WHERE name LIKE 'load%'}), $done, 'every increment is there') for $x, $y;
cmp_ok($done, '>', 50, 'there were some');
ok(Scenarios::Run::until(sub { !grep { ask($_->control, q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'load%'}) } $one, $two }),
	'and what was released is not held')
  or diag(join("\n", map { "@$_" } @{ $one->control->query('SELECT * FROM dlock.locks')->{rows} }));

# ---------------------------------------------------------------------
# A node is killed: the other one goes on, after the TTL.
# ---------------------------------------------------------------------

my $held = acquire_soon($x, 'orphan', 'a', 5);
my $kept = acquire_soon($x, 'kept on', 'a', 600);
my $began = time;
$one->crash;
$x->kill;
my ($new, %answers);
Scenarios::Run::until(sub {
	$new = ask($y, q{SELECT dlock_acquire('orphan', 'b', 30, 1)});
	$answers{ $new =~ $is_token ? 'token' : $new }++;
	return $new =~ $is_token;
});
my $took = time - $began;
cmp_ok($new, '>', $held, 'the lease of a killed node is taken over');
cmp_ok($took, '>=', 4.5, 'not early');
note(sprintf('taken over after %.1f s; answers: %s', $took, join(', ', map { "$answers{$_} times $_" } sort keys %answers)));
cmp_ok($took, '<', 25, 'nor late');
is(ask($y, q{SELECT dlock_owner('kept on')}), 'a', 'what is not over is held');
is(ask($y, "SELECT dlock_renew('kept on', 'a', 600, $kept)"), 1, 'and can be renewed');

# it comes back
$one->boot;
$x = session($one, 'x');
is(ask($one->control, q{SELECT count(*) FROM information_schema.plugins
	WHERE plugin_library = 'dlock.so' AND plugin_status = 'ACTIVE'}), 1, 'back, with its plugin');
is(ask($x, "SELECT dlock_release('orphan', 'a', $held)"), 0, 'what it had is not its any more');
is(ask($x, q{SELECT dlock_acquire('orphan', 'c', 30)}), 'NULL', 'and not free');
is(ask($y, "SELECT dlock_release('orphan', 'b', $new)"), 1, 'released on the other node');
my $newer = acquire_soon($x, 'orphan', 'c', 30);
cmp_ok($newer, '>', $new, 'it is granted here, with a larger token');
is(ask($y, q{SELECT dlock_owner('orphan')}), 'c', 'as the other node sees');
is(ask($x, "SELECT dlock_release('kept on', 'a', $kept)"), 1, 'a lease from before is given back');

note("errors that clients were told:");
note("$seen{$_} times $_") for sort keys %seen;
$_->quit for $x, $y;
done_testing();
