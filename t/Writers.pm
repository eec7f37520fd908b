# Writers.pm: servers of a cluster that all write the same lock table, and leases that go
# back and forth between them.  What one server knows must be true on the others; of
# several owners that want the same name at the same time, one gets it.
#
#   my ($one, $two) = Writers::with_held_flushes(sub { Galera::start(1, 2) });
#   my $writers = Writers->new(nodes => [ $one, $two ], sync => $sql,
#       conflict => qr/^1213 /);
#   $writers->test_all;
#
# "sync" has a session see what the other servers have committed, "conflict" is
# what a commit may fail with because of them.  make_tables() makes the table that
# the tests write, CLUSTER_SECONDS says how long the load at the end takes.

package Writers;

use strict;
use warnings;

use Exporter qw(import);
use HeldFlush;
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(answer_of ask session acquire_soon together $is_token);
our $is_token = qr/^\d+$/;
my %seen;		# errors that clients got
my $patient = 0;	# ask again what could not be done for lock_timeout: nothing is locked here,
					# but a cluster may stand still for as long

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
	my $answer;
	Scenarios::Run::until(sub {
		$session->send($sql);
		$answer = answer_of($session);
		return !$patient || ($answer // '') !~ /^3572 /;
	});
	return $answer;
}

sub session
{
	my ($node, $name) = @_;
	return Scenarios::Client->new($node, $name, 'tester');
}

# A session that sees what has been committed on the other servers.
sub reader
{
	my ($self, $node) = @_;
	my $reader = session($node, 'reader');

	ask($reader, $self->{sync});
	return $reader;
}

# Acquire until it is granted: a release on another server may be answered a moment before
# it arrives, and a cluster may stand still for longer than lock_timeout.
sub acquire_soon
{
	my ($session, $name, $owner, $ttl, $refusals) = @_;
	my ($token, $began) = (undef, time);
	Scenarios::Run::until(sub {
		$token = ask($session, "SELECT dlock_acquire('$name', '$owner', $ttl)");
		$$refusals++ if $token eq 'NULL';
		return $token !~ /^(NULL$|3572 )/;
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

# The errors that clients got.
sub note_errors
{
	note('errors that clients were told:');
	note("$seen{$_} times $_") for sort keys %seen;
	return;
}

# Start servers whose commits test_retries() can hold up.
sub with_held_flushes
{
	my ($start) = @_;
	local %ENV = HeldFlush::environment('hold');
	return $start->();
}

sub make_tables
{
	my ($node) = @_;
	$node->control->value(q{
		CREATE TABLE scenarios.counter (
			name VARCHAR(20) PRIMARY KEY, n INT NOT NULL, token BIGINT NOT NULL) ENGINE = InnoDB;
		INSERT INTO scenarios.counter VALUES ('guarded', 0, 0), ('load0', 0, 0), ('load1', 0, 0),
			('load2', 0, 0), ('load3', 0, 0)});
	return;
}

sub new
{
	my ($class, %self) = @_;
	my $self = bless \%self, $class;
	$self->{sessions} = [ map { session($_, "s$_->{number}") } @{ $self->{nodes} } ];
	return $self;
}

sub test_all
{
	my ($self) = @_;
	$patient = 1;
	$self->test_back_and_forth;
	$self->test_stale_tokens;
	$self->test_ended_elsewhere;
	$self->test_retries;
	$self->test_expiry;
	$self->test_races;
	$self->test_waiters;
	$self->test_sessions;
	$patient = 0;
	$self->test_guards;
	$self->test_load;
	$_->quit for @{ $self->{sessions} };
	return;
}

# A session on one server after the other, and one on the next.
sub pair
{
	my ($self, $i) = @_;
	my @sessions = @{ $self->{sessions} };
	return @sessions[ $i % @sessions, ($i + 1) % @sessions ];
}

# Until all servers see a name free.
sub until_free
{
	my ($self, $name) = @_;
	return Scenarios::Run::until(sub {
		!grep { ask($_, "SELECT dlock_is_free('$name')") ne '1' } @{ $self->{sessions} } });
}

# Taken here is taken there, given back here is free there; tokens grow.
sub test_back_and_forth
{
	my ($self) = @_;
	my ($refusals, $longest, $last, @wrong) = (0, 0, 0);

	for my $i (1 .. 40)
	{
		my ($here, $there) = $self->pair($i);
		my ($token, $took) = acquire_soon($here, 'n', "owner$i", 6000, \$refusals);
		push @wrong, "$i: token $token after $last" unless $token =~ $is_token && $token > $last;
		$longest = $took if $took > $longest;
		$last = $token;
		my @answers = map { ask($there, $_) } "SELECT dlock_owner('n')", q{SELECT dlock_is_free('n')},
		  q{SELECT dlock_acquire('n', 'stranger', 600)}, q{SELECT dlock_release('n', 'stranger')},
		  # an owner is no connection: it can go on elsewhere
		  $i % 3 ? "SELECT dlock_renew('n', 'owner$i', 6000, $token)" : 'SELECT 1';
		push @wrong, "$i: @answers" if "@answers" ne "owner$i 0 NULL 0 1";
		my $session = $i % 5 ? $here : $there;
		my $answer = ask($session, "SELECT dlock_release('n', 'owner$i', $token)");
		push @wrong, "$i: release $answer" if $answer ne '1';
	}
	is("@wrong", '', 'a lease goes back and forth');
	note(sprintf('%d refusals after a release on another server, for %.1f ms at most', $refusals, 1000 * $longest));
	return;
}

sub test_stale_tokens
{
	my ($self) = @_;
	my @sessions = @{ $self->{sessions} };
	my ($x, $y) = @sessions[ 0, -1 ];

	for my $case ([ $x, $y, $y ], [ $x, $x, $y ], [ $x, $y, $x ], [ $y, $x, $x ])
	{
		my ($took, $gave, $next) = @$case;
		my $names = join(', ', map { $_->{name} } @$case);
		my $old = acquire_soon($took, 'stale', 'a', 6000);
		is(ask($gave, "SELECT dlock_release('stale', 'a', $old)"), 1, "$names: given back");
		my $new = acquire_soon($next, 'stale', 'b', 6000);
		cmp_ok($new, '>', $old, "$names: the token has grown");
		for my $session (@sessions)
		{
			my $where = $session->{name};
			is(ask($session, "SELECT dlock_renew('stale', 'a', 600, $old)"), 0, "$names: stale renewal on $where");
			is(ask($session, "SELECT dlock_release('stale', 'a', $old)"), 0, "$names: stale release on $where");
			is(ask($session, q{SELECT dlock_owner('stale')}), 'b', "$names: the lease is untouched on $where");
		}
		is(ask($next, q{SELECT dlock_release('stale', 'b')}), 1, "$names: the new holder gives back");
		ok($self->until_free('stale'), "$names: it is free everywhere");
		is(ask($_, "SELECT dlock_release('stale', 'b', $new)"), 'NULL', "$names: now nobody holds it") for @sessions;
	}
	return;
}

# A server answers releases from memory if it can, but not of leases that ended elsewhere.
sub test_ended_elsewhere
{
	my ($self) = @_;
	my ($x, $y) = $self->pair(0);

	my $token = acquire_soon($x, 'ended', 'a', 6000);
	is(ask($y->{engine}->control, q{SELECT dlock_force_release('ended')}), 1, 'evicted on another server');
	is(ask($x, "SELECT dlock_release('ended', 'a', $token)"), 'NULL', 'it cannot be given back any more');
	$token = acquire_soon($x, 'again', 'a', 6000);
	is(ask($y, q{SELECT dlock_acquire('again', 'a', 6000)}), $token, 're-entered on another server');
	is(ask($x, "SELECT dlock_release('again', 'a', $token)"), 1, 'one hold is given back');
	is(ask($y, q{SELECT dlock_owner('again')}), 'a', 'there is another');
	is(ask($x, "SELECT dlock_release('again', 'a', $token)"), 1, 'it is given back too');
	ok($self->until_free('again'), 'then it is free');
	return;
}

# A client is gone while its acquire is being committed, and the server is to give back what
# it got.  But its retry on another server, with the same request id, has been answered with
# that already: then it is the retry's.  The other server knows of it, for only the flush of
# the first is held up.
sub test_retries
{
	my ($self) = @_;
	my ($one) = @{ $self->{nodes} };
	my $other = $self->{sessions}[1];
	my $held = HeldFlush->of($one);

	# the last one has a shorter time to live than there is
	for my $retry (undef, 600, 5)
	{
		my $title = !defined $retry ? 'no retry' : $retry == 600 ? 'a retry' : 'a retry for a shorter time';
		my $name = "found again $title";
		my $client = session($one, 'gone');
		my $token;

		$held->hold;
		$client->send("SELECT dlock_acquire('$name', 'a', 600, 0, 'r')");
		ok(Scenarios::Run::until(sub { ask($other, "SELECT dlock_owner('$name')") eq 'a' }),
			"$title: what is being committed is seen elsewhere");
		ok(!$client->is_answered, "$title: and not answered");
		$client->kill;
		$token = ask($other, "SELECT dlock_acquire('$name', 'a', $retry, 0, 'r')") if $retry;
		$held->let_go;

		# an answer comes after what was given back before
		my $after = session($one, 'after');
		ok(Scenarios::Run::until(sub { ask($after, q{SELECT count(*) FROM information_schema.processlist
			WHERE info LIKE '%found again%' AND id <> connection_id()}) == 0 }), "$title: the first is over");
		like(ask($after, "SELECT dlock_acquire('after $title', 'a', 600)"), $is_token, "$title: others have their leases");
		is(ask($after, "SELECT dlock_release('after $title', 'a')"), 1, "$title: and give them back");
		$after->quit;
		if ($retry)
		{
			like($token, $is_token, "$title: finds the lease");
			is(ask($other, "SELECT dlock_renew('$name', 'a', 600, $token)"), 1, "$title: and has it");
			is(ask($other, "SELECT dlock_release('$name', 'a', $token)"), 1, "$title: until it gives it back");
		}
		ok($self->until_free($name), "$title: it is free");
	}
	return;
}

# Each server counts the time by itself, and never too short.
sub test_expiry
{
	my ($self) = @_;

	for my $i (1 .. 3)
	{
		my ($here, $there) = $self->pair($i);
		my $began = time;
		my $old = ask($here, q{SELECT dlock_acquire('short', 'a', 1)});
		my $new = ask($there, q{SELECT dlock_acquire('short', 'b', 600, 600)});
		my $took = time - $began;
		cmp_ok($new, '>', $old, 'an expired lease is taken over on another server');
		cmp_ok($took, '>=', 1, 'not early');
		note(sprintf('taken over after %.2f s, of 1 s', $took));
		is(ask($here, "SELECT dlock_renew('short', 'a', 30, $old)"), 0, 'the old holder cannot renew it');
		is(ask($here, "SELECT dlock_release('short', 'a', $old)"), 0, 'nor release it');
		is(ask($there, q{SELECT dlock_release('short', 'b')}), 1, 'the new one can');
		ok($self->until_free('short'), 'then it is free everywhere');
	}

	# renewed again and again on one server, it does not end on another
	my ($x, $y) = $self->pair(0);
	my (@wrong, $other);
	Scenarios::Run::until(sub {
		my ($last, $longest) = (time, 0);
		@wrong = ();
		acquire_soon($x, 'kept', 'a', 4);
		$y->send(q{SELECT dlock_acquire('kept', 'b', 600, 6)});
		for (1 .. 25)
		{
			usleep(250_000);
			my $answer = ask($x, q{SELECT dlock_renew('kept', 'a', 4)});
			push @wrong, $answer if $answer ne '1';
			$longest = time - $last if time - $last > $longest;
			$last = time;
		}
		$other = answer_of($y);
		return 1 if !@wrong && $other eq 'NULL';
		# a lease that was not renewed for half of its time, on a machine that stood still, proves nothing
		ask($y, q{SELECT dlock_release_all('b')});
		return $longest < 2 && $other !~ /^3572 /;
	});
	is("@wrong", '', 'a lease is renewed again and again');
	is($other, 'NULL', 'what is renewed on one server is not over on another');
	ask($x, q{SELECT dlock_release('kept', 'a')});
	return;
}

sub test_races
{
	my ($self) = @_;
	my @sessions = @{ $self->{sessions} };
	my (%winners, @wrong);

	for my $i (1 .. 60)
	{
		my (@answers, @won);
		# what a cluster that stands still leaves undecided is no race, but nobody has won with another
		Scenarios::Run::until(sub {
			@answers = together(\@sessions, map { "SELECT dlock_acquire('race$i', '$_->{name}', 600)" } @sessions);
			@won = grep { $answers[$_] =~ $is_token } 0 .. $#sessions;
			return 1 if @won > 1 || !grep { /^3572 / } @answers;
			ask($sessions[0]->{engine}->control, "SELECT dlock_force_release('race$i')");
			return !$self->until_free("race$i");
		});
		my @refused = grep { $_ eq 'NULL' } @answers;
		my $winner = @won == 1 ? $sessions[ $won[0] ]->{name} : 'nobody';
		$winners{$winner}++;
		push @wrong, "race $i: @answers" unless @won == 1 && @refused == $#sessions;
		my @owners = map { ask($_, "SELECT dlock_owner('race$i')") } @sessions;
		push @wrong, "race $i: $winner has it, and they say @owners" if grep { $_ ne $winner } @owners;
	}
	is("@wrong", '', 'races for a free name: one winner each');
	note('winners: ' . join(', ', map { "$_ $winners{$_}" } sort keys %winners));

	# waiters for it to expire or to be released, one after the other
	@wrong = ();
	for my $i (1 .. 4)
	{
		my $last = acquire_soon($sessions[0], 'wanted', 'a', $i % 2 ? 1 : 600);
		my @waiters = map { session($_, "w$_->{number}") } @{ $self->{nodes} };
		$_->send("SELECT dlock_acquire('wanted', '$_->{name}', 600, -1)") for @waiters;
		usleep(300_000);
		ask($sessions[0], q{SELECT dlock_release('wanted', 'a')}) if $i % 2 == 0;
		while (grep { $_->is_busy } @waiters)
		{
			my @served;
			Scenarios::Run::until(sub { @served = grep { $_->is_busy && $_->is_answered } @waiters });
			# a wrong server would show itself soon
			usleep(300_000);
			@served = grep { $_->is_busy && $_->is_answered } @waiters;
			my @answers = map { answer_of($_) } @served;
			push @wrong, "race $i: after $last: @answers"
			  unless @served == 1 && $answers[0] =~ $is_token && $answers[0] > $last;
			last if @wrong;
			$last = $answers[0];
			ask($served[0], "SELECT dlock_release_all('$served[0]->{name}')");
		}
		$_->kill for @waiters;
	}
	is("@wrong", '', 'waiters on all servers: one winner each');
	return;
}

# A waiter on another server.
sub test_waiters
{
	my ($self) = @_;
	my @took;

	for my $i (1 .. 4)
	{
		my ($here, $there) = $self->pair($i);
		acquire_soon($here, 'queue', 'a', 600);
		$there->send(q{SELECT dlock_acquire('queue', 'b', 600, -1)});
		usleep(200_000 * $i);
		my $began = time;
		is(ask($here, q{SELECT dlock_release('queue', 'a')}), 1, 'released');
		like(answer_of($there), $is_token, 'a waiter on another server gets it');
		push @took, time - $began;
		is(ask($there, q{SELECT dlock_release('queue', 'b')}), 1, 'and gives it back');
	}
	note('handed over to another server after ' . join(', ', map { sprintf('%.2f', $_) } @took) . ' s');
	return;
}

# A session lives on one server.  On another server its owner is not granted its lease again,
# but may renew and release it.  A renewal there does not make it a plain lease, nor end it
# sooner.
sub test_sessions
{
	my ($self) = @_;
	my ($one) = @{ $self->{nodes} };
	my $other = $self->{sessions}[1];

	for my $how ('ends', 'is given back elsewhere')
	{
		my $holder = session($one, 'holder');
		my $name = "session $how";
		my $acquire = "dlock_acquire_session('$name', 'a', 600";
		my $token = ask($holder, "SELECT $acquire)");
		like($token, $is_token, "$name: granted");
		is(ask($other, "SELECT $acquire)"), 'NULL', "$name: not granted to its owner elsewhere");
		is(ask($other, "SELECT $acquire, 0.5)"), 'NULL', "$name: nor if that waits");
		like(ask($other, "SELECT dlock_acquire('$name', 'a', 600)"), qr/^1234 /, "$name: it is no plain lease");
		is(ask($other, "SELECT dlock_renew('$name', 'a', 1)"), 1, "$name: renewed elsewhere");
		is(ask($other, "SELECT dlock_remaining('$name', 'a') > 300"), 1, "$name: that shortens nothing");
		is(ask($other, "SELECT dlock_renew_all('a', 900)"), 1, "$name: renewed with all that its owner has");
		is(ask($other, "SELECT dlock_remaining('$name', 'a') > 800"), 1, "$name: for longer");
		like(ask($other, "SELECT dlock_acquire('$name', 'a', 600)"), qr/^1234 /, "$name: it is still no plain lease");
		is(ask($holder, "SELECT JSON_VALUE(dlock_holders('$name'), '\$[0].token')"), $token, "$name: the holder has it");
		$other->send("SELECT dlock_acquire_session('$name', 'b', 600, 6000)");
		if ($how eq 'ends')
		{
			$holder->quit;
			cmp_ok(answer_of($other), '>', $token, "$name: it ends with its session");
		}
		else
		{
			my $third = session($self->{nodes}[1], 'third');
			is(ask($third, "SELECT dlock_release('$name', 'a')"), 1, "$name: given back");
			cmp_ok(answer_of($other), '>', $token, "$name: and granted to the next");
			is(ask($holder, "SELECT dlock_renew('$name', 'a', 600)"), 0, "$name: the holder has it no more");
			$_->quit for $third, $holder;
		}
		is(ask($other, "SELECT dlock_release('$name', 'b')"), 1, "$name: given back in the end");
	}
	return;
}

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

sub test_guards
{
	my ($self) = @_;
	my ($x, $y) = $self->pair(0);
	my $conflict = $self->{conflict};
	# they read what the guard's transaction has written elsewhere
	my %readers = map { $_->{name} => $self->reader($_->{engine}) } @{ $self->{sessions} };
	my (@wrong, %outcomes);

	# an owner that goes on elsewhere guards there
	my $token = acquire_soon($x, 'guarded', 'a', 600);
	is(guard($y, $token), undef, 'guarded on another server');
	is(ask($y, 'COMMIT'), undef, 'and committed');
	is(ask($x, "SELECT dlock_release('guarded', 'a', $token)"), 1, 'released');
	acquire_soon($y, 'guarded', 'b', 600);
	like(guard($x, $token), qr/^1644 .*guarded/, 'a stale token guards nothing');
	ask($x, 'ROLLBACK');
	is(ask($y, q{SELECT dlock_release('guarded', 'b')}), 1, 'released');

	# a lease that expires, is released or evicted under a guard: either the other server
	# is refused until the guard has ended, or the guard's commit fails
	for my $i (1 .. 9)
	{
		my ($here, $there) = $self->pair($i);
		my $how = ('expired', 'released', 'evicted')[ $i / 3 % 3 ];
		my $asked = time;
		my $old = acquire_soon($here, 'guarded', 'a', $how eq 'expired' ? 1 : 600);
		my $before = counter($here);
		my $error = guard($here, $old);
		if (defined $error && $how eq 'expired' && time - $asked >= 1)
		{
			# it was over before: once more
			ask($here, 'ROLLBACK');
			redo;
		}
		push @wrong, "$how: guard: $error" if defined $error;
		ask($there, q{SELECT dlock_release('guarded', 'a')}) if $how eq 'released';
		ask($there->{engine}->control, q{SELECT dlock_force_release('guarded')}) if $how eq 'evicted';
		my $new = ask($there, q{SELECT dlock_acquire('guarded', 'b', 600, 4)});
		my $commit = ask($here, 'COMMIT') // 'committed';
		push @wrong, "$how: $new while guarded, and $commit" if $new =~ $is_token && $commit eq 'committed';
		push @wrong, "$how: $commit" unless $commit eq 'committed' || $commit =~ $conflict;
		push @wrong, "$how: $new" unless $new =~ /^(\d+|NULL)$|could not decide on the lease in its time/;
		$outcomes{"$how: " . ($new =~ $is_token ? 'granted' : 'refused') . ', ' . $commit}++;
		my $after = counter($readers{ $there->{name} });
		push @wrong, "$how: counter $before, then $after, $commit" if $after != $before + ($commit eq 'committed');
		ask($here, 'ROLLBACK');
		acquire_soon($there, 'guarded', 'b', 600);
		ask($there, q{SELECT dlock_release_all('b')});
	}
	is("@wrong", '', 'a guard and a grant on another server are never both');
	note("$_: $outcomes{$_}") for sort keys %outcomes;

	# the guard's commit and the other's acquire come at the same time: the owner that is
	# granted the lease sees what was committed under the guard
	@wrong = ();
	%outcomes = ();
	for my $i (1 .. 12)
	{
		my ($here, $there) = $self->pair($i);
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
			q{SELECT dlock_acquire('guarded', 'b', 600) INTO @got;
			SELECT if(@got IS NULL, 'refused', (SELECT n FROM scenarios.counter WHERE name = 'guarded'))});
		$commit //= 'committed';
		# nothing was decided while the cluster stood still
		$after = 'refused' if $after =~ /^3572 /;
		push @wrong, "$i: $before, then $after, $commit"
		  if $after ne 'refused' && ($after !~ /^\d+$/ || $after != $before + ($commit eq 'committed'));
		push @wrong, "$i: $commit" unless $commit eq 'committed' || $commit =~ $conflict;
		$outcomes{ ($after eq 'refused' ? 'refused' : 'granted') . ', ' . $commit }++;
		ask($here, 'ROLLBACK');
		acquire_soon($there, 'guarded', 'b', 600);
		ask($there, q{SELECT dlock_release_all('b')});
	}
	is("@wrong", '', 'a grant on another server sees what was committed under the guard');
	note("$_: $outcomes{$_}") for sort keys %outcomes;
	$_->quit for values %readers;
	return;
}

# Load on all servers.  A holder reads an unprotected counter, and writes it a moment
# later; counter and tokens show whether another holder was there.
sub test_load
{
	my ($self) = @_;
	my @nodes = @{ $self->{nodes} };
	my $seconds = $ENV{CLUSTER_SECONDS} // 8;

	$nodes[0]->control->value(q{
DELIMITER //
CREATE PROCEDURE scenarios.work(me VARCHAR(20), seconds INT)
BEGIN
	DECLARE key_name VARCHAR(20);
	DECLARE granted, last_token BIGINT;
	DECLARE value INT;
	DECLARE ended DATETIME(6) DEFAULT sysdate(6) + INTERVAL seconds SECOND;
	DECLARE began DATETIME(6);
	DECLARE number INT;
	DECLARE message TEXT;
	DECLARE step VARCHAR(20);
	DECLARE again BOOLEAN;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
	BEGIN
		GET DIAGNOSTICS CONDITION 1 number = MYSQL_ERRNO, message = MESSAGE_TEXT;
		-- where nothing could be written for lock_timeout, that is no mistake
		IF number = 3572 AND step IN ('acquire', 'release') AND sysdate(6) > began + INTERVAL 5 SECOND THEN
			SET again = TRUE;
		ELSE
			SET @errors = concat(@errors, step, ' ', number, ' ', message, '; ');
		END IF;
	END;
	SET @errors = '', @done = 0, @refused = 0, @wrong = '';
	WHILE sysdate(6) < ended DO
		SET key_name = concat('load', floor(rand() * 4)), granted = NULL;
		SET step = 'acquire', began = sysdate(6);
		IF rand() < 0.7 THEN
			-- a holder whose server was killed keeps its lease for longer than anybody waits
			SET granted = dlock_acquire(key_name, me, 600, 5);
		ELSE
			SET granted = dlock_acquire(key_name, me, 600);
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
			REPEAT
				SET again = FALSE, began = sysdate(6);
				IF dlock_release(key_name, me, granted) <=> 1 THEN
					DO 0;
				ELSE
					SET @wrong = concat(@wrong, key_name, ' not released; ');
				END IF;
			UNTIL NOT again END REPEAT;
		END IF;
	END WHILE;
END//
DELIMITER ;
});
	my $done = 0;
	# on a busy machine more than once
	ok(Scenarios::Run::until(sub {
		my @workers = map { session($nodes[ $_ % @nodes ], "w$_") } 1 .. 4 * @nodes;
		$_->send("CALL scenarios.work('$_->{name}', $seconds)") for @workers;
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
		return $done > 50;
	}), 'they have leases');
	for my $reader (map { $self->reader($_) } @nodes)
	{
		is(ask($reader, q{SELECT sum(n) FROM scenarios.counter WHERE name LIKE 'load%'}), $done, 'every increment is there');
		$reader->quit;
	}
	ok(Scenarios::Run::until(sub { !grep { ask($_->control, q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'load%'}) } @nodes }),
		'and what was released is not held')
	  or diag(join("\n", map { "@$_" } @{ $nodes[0]->control->query('SELECT * FROM dlock.locks')->{rows} }));
	return;
}

1;
