# No role can use up the guards, the places of those who wait, or those of calls that wait
# for any of several names: it gets half of what others have left.  What ends gives its places back.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('shares');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dlock.max_guards = 8
dlock.max_waiters = 24
});
$node->start;
my @roles = qw(ann ben cid dan eve);
$node->safe_psql('postgres', join ';', 'CREATE EXTENSION dlock', map { "CREATE ROLE $_" } @roles);

my $sessions = Sessions->new($node);

# A session that has become a role.
sub session_of
{
	my ($role, $name) = @_;
	my ($session) = $sessions->open($name // $role);
	$session->query("SET ROLE $role");
	return $session;
}

# Guard leases in one transaction until there is no more guard; answers how many.
sub guard_all
{
	my ($session) = @_;
	my $me = $session->{name};

	$session->query(qq{SELECT count(dlock_acquire('$me' || i, '$me', 3600)) FROM generate_series(1, 20) i});
	$session->query('BEGIN');
	for my $i (1 .. 20)
	{
		$session->query('SAVEPOINT s');
		my $answer = $session->query(qq{SELECT dlock_guard(name, owner, token) FROM dlock_holders('$me$i')});
		next if $answer eq '';
		is($answer, '53400', "$me: one guard too many");
		like($session->error, qr/DETAIL:  "dlock\.max_guards" allows 8 .* A role can have half of what others leave\./, '... and it is told why');
		$session->query('ROLLBACK TO s');
		return $i - 1;
	}
	return 20;
}

# How many a transaction of each role gets besides its first, one after another.
my %guarding = map { $_ => session_of($_) } @roles;
is(guard_all($guarding{ann}), 1 + 4, 'the first role has half of all guards');
my $again = session_of('ann', 'again');
is(guard_all($again), 1, '... in all its transactions together');
is(guard_all($guarding{ben}), 1 + 2, 'the second has half of the rest');
is(guard_all($guarding{cid}), 1 + 1, 'the third too');
is(guard_all($guarding{dan}), 1 + 1, 'the fourth has the last');
is(guard_all($guarding{eve}), 1, 'for the first of a transaction there is always a place');
is($guarding{$_}->query('ROLLBACK'), '', "$_ ends") for 'ann', 'eve';
is(guard_all($guarding{eve}), 1 + 2, '... and others have half of what it had');
is($_->query('COMMIT'), '', 'all end') for $again, @guarding{qw(ben cid dan eve)};
is(guard_all($again), 1 + 4, 'and half of all is free again');
$again->query('COMMIT');
$_->quit for $again, values %guarding;

# Calls that wait for any of 100 names, with 99 places from a pool of 1024.
my $names = q{ARRAY(SELECT 'n' || i FROM generate_series(1, %d) i)};
$node->safe_psql('postgres', q{SELECT count(dlock_acquire('n' || i, 'a', 3600)) FROM generate_series(1, 100) i});
my (@waiting, %next);

# Let one more session of a role wait; false if it finds no place.
sub wait_for_any
{
	my ($role, $count) = @_;
	my $session = session_of($role, $role . ++$next{$role});
	my $before = $sessions->{watcher}->query('SELECT count(*) FROM dlock.waiters');

	$session->send(sprintf "SELECT name FROM dlock_acquire_any($names, '$session->{name}', 3600, 1, -1)", $count);
	until ($sessions->{watcher}->query('SELECT count(*) FROM dlock.waiters') == $before + $count)
	{
		return $session->answer if $session->answered;
	}
	push @waiting, $session;
	return 'waits';
}

is(wait_for_any('ann', 100), 'waits', "the first role waits, $_") for 1 .. 5;
is(wait_for_any('ann', 100), '53400', '... until half of the places are its own');
is(wait_for_any('ann', 18), 'waits', '... of which it can have the rest');
is(wait_for_any('ann', 2), '53400', '... and no more');
is(wait_for_any('ann', 1), 'waits', 'one name needs none of these');
my $single = pop @waiting;
is(wait_for_any('ben', 100), 'waits', "the second waits, $_") for 1 .. 2;
is(wait_for_any('ben', 100), '53400', '... until half of the rest is its own');
is(wait_for_any('cid', 100), 'waits', 'and there are places for a third');
$node->safe_psql('postgres', q{SELECT dlock_release_all('a')});
like($_->answer, qr/\An\d+\z/, "$_->{name} gets one") for @waiting;
# another may have been faster
$node->safe_psql('postgres', q{SELECT dlock_force_release('n1')});
is($single->answer, 'n1', "$single->{name} gets its own");
$_->quit for @waiting, $single;

# All are given back.
$node->safe_psql('postgres', q{SELECT count(dlock_force_release(name)) FROM dlock.locks;
	SELECT count(dlock_acquire('n' || i, 'a', 3600)) FROM generate_series(1, 100) i});
@waiting = ();
is(wait_for_any('dan', 100), 'waits', "another role has half of all places, $_") for 1 .. 5;
is(wait_for_any('dan', 19), '53400', '... and no more');
is(wait_for_any('dan', 18), 'waits', '... down to the last');

$_->kill for @waiting;

# Those who wait for one name share the places of max_waiters.
@waiting = ();
$sessions->until('SELECT waiters FROM dlock.stats', 0);
is(wait_for_any('ann', 1), 'waits', "one role waits, $_") for 1 .. 12;
is(wait_for_any('ann', 1), '53400', '... until half of the places are its own');
is(wait_for_any('ben', 1), 'waits', "another waits, $_") for 1 .. 6;
is(wait_for_any('ben', 1), '53400', '... until half of the rest is its own');
is(wait_for_any('cid', 1), 'waits', 'and there is a place for a third');
(pop @waiting)->kill;
$sessions->until('SELECT waiters FROM dlock.stats', 18);
is(wait_for_any('dan', 1), 'waits', '... which can be used again');

$node->stop('immediate');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no assertion failed');
done_testing();
