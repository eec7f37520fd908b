# Deadlocks among owners: a wait that would close a cycle is an error, through
# exclusive, shared and permit holds and through places in a queue; one victim
# for each cycle, and no false alarm.  Scenario 16.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;
use Time::HiRes;

my $node = PostgreSQL::Test::Cluster->new('deadlock');
$node->init;
$node->append_conf('postgresql.conf', q{
shared_preload_libraries = 'dlock'
synchronous_commit = off
dlock.log_expired = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $all = Sessions->new($node);
my @sessions = $all->open('a', 'b', 'c', 'd');
my ($one, $two, $three, $four) = @sessions;
my $watcher = $all->{watcher};
my $token = qr/^\d{10,}$/;

sub holds
{
	my ($session, @calls) = @_;
	like($session->query("SELECT $_"), $token, "$session->{name} takes $_") for @calls;
	return;
}

sub waits
{
	my ($session, $call, @waiting) = @_;
	$session->send("SELECT $call");
	$all->waiting(@waiting);
	return;
}

# The victim is told the cycle, and nothing of its wait is left.
sub deadlocks
{
	my ($session, $call, @cycle) = @_;
	is($session->query("SELECT $call"), '40P01', "$session->{name}: $call is a deadlock");
	my ($detail) = $session->error =~ /DETAIL:\s+(.*?)\nHINT/s;
	is_deeply([ sort split /\s*\n\s*/, $detail // '' ], [ sort @cycle ], '... and its detail is the cycle');
	is($watcher->query("SELECT count(*) FROM dlock.waiters WHERE application_name = '$session->{name}'"),
		0, '... it waits no longer');
	return;
}

sub release
{
	my ($session) = @_;
	isnt($session->query("SELECT dlock_release_all('$session->{name}')"), 0, "$session->{name} releases all");
	return;
}

sub served
{
	my ($session) = @_;
	like($session->answer, $token, "$session->{name} is served");
	return;
}

sub nothing_left
{
	$_->query("SELECT dlock_release_all('$_->{name}')") for @sessions;
	is($watcher->query('SELECT (SELECT count(*) FROM dlock.waiters), (SELECT count(*) FROM dlock.locks)'), '0|0', 'nothing is left');
	return;
}

# scenario 16: two owners, in opposite order; with and without a limit
for my $wait ('-1', '600')
{
	holds($one, q{dlock_acquire('x', 'a', 600)});
	holds($two, q{dlock_acquire('y', 'b', 600)});
	waits($one, "dlock_acquire('y', 'a', 600, $wait)", 'a');
	deadlocks($two, "dlock_acquire('x', 'b', 600, $wait)",
		'Owner "b" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "b".');
	$all->waiting('a');
	is($two->query(q{SELECT dlock_owner('y'), dlock_acquire('x', 'b', 600)}), 'b|', 'the victim keeps what it has, and may try');
	release($two);
	served($one);
	nothing_left();
}
is($watcher->query('SELECT deadlocks FROM dlock.stats'), 2, 'deadlocks are counted');

# three owners
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
holds($three, q{dlock_acquire('z', 'c', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
waits($two, q{dlock_acquire('z', 'b', 600, -1)}, 'a', 'b');
deadlocks($three, q{dlock_acquire('x', 'c', 600, -1)},
	'Owner "c" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "b".',
	'Owner "b" waits for "z"; held by owner "c".');
release($three);
served($two);
release($two);
served($one);
nothing_left();

# a chain is no cycle
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
waits($three, q{dlock_acquire('y', 'c', 600, -1)}, 'b', 'c');
release($one);
served($two);
release($two);
served($three);
nothing_left();

# through a reader: one of two readers in the cycle is enough, a writer needs both
holds($one, q{dlock_acquire_shared('x', 'a', 600)});
holds($four, q{dlock_acquire_shared('x', 'd', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire_shared('y', 'a', 600, -1)}, 'a');
deadlocks($two, q{dlock_acquire('x', 'b', 600, -1)},
	'Owner "b" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "b".');
release($two);
served($one);
nothing_left();

# through a permit
holds($one, q{dlock_acquire_permit('x', 'a', 600, 1)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
deadlocks($two, q{dlock_acquire_permit('x', 'b', 600, 1, -1)},
	'Owner "b" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "b".');
release($two);
served($one);
nothing_left();

# no false alarm: another holder of a permit can go on
holds($one, q{dlock_acquire_permit('x', 'a', 600, 2)});
holds($four, q{dlock_acquire_permit('x', 'd', 600, 2)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
waits($two, q{dlock_acquire_permit('x', 'b', 600, 2, -1)}, 'a', 'b');
release($four);
served($two);
release($two);
served($one);
nothing_left();
# but when that one comes to wait as well, it is a cycle
holds($one, q{dlock_acquire_permit('x', 'a', 600, 2)});
holds($four, q{dlock_acquire_permit('x', 'd', 600, 2)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
waits($two, q{dlock_acquire_permit('x', 'b', 600, 2, -1)}, 'a', 'b');
is($four->query(q{SELECT dlock_acquire('y', 'd', 600, -1)}), '40P01', 'the last one that could go on would wait');
release($four);
served($two);
release($two);
served($one);
nothing_left();

# through a place in the queue: d reads nothing yet, but stands behind b
holds($one, q{dlock_acquire_shared('x', 'a', 600)});
holds($four, q{dlock_acquire('z', 'd', 600)});
waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
waits($four, q{dlock_acquire_shared('x', 'd', 600, -1)}, 'b', 'd');
is($one->query(q{SELECT dlock_acquire('z', 'a', 600, -1)}), '40P01', 'a cycle through a place in the queue');
like($one->error, qr/Owner "a" waits for "z"; held by owner "d"\./, '... is told');
release($one);
served($two);
release($two);
served($four);
nothing_left();

# through dlock_acquire_all(), which waits for one name at a time
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
$one->send(q{SELECT array_length(dlock_acquire_all('{y,z}', 'a', 600, -1), 1)});
$all->waiting('a');
is($two->query(q{SELECT dlock_acquire('x', 'b', 600, -1)}), '40P01', 'a cycle with dlock_acquire_all() waiting');
release($two);
is($one->answer, 2, 'which then goes on');
nothing_left();
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
is($one->query(q{SELECT dlock_acquire_all('{z,y}', 'a', 600, -1)}), '40P01', '... and with it closing the cycle');
is($one->query(q{SELECT dlock_is_free('z')}), 't', '... nothing is taken');
release($one);
served($two);
nothing_left();

# a single try never deadlocks
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
is($two->query(q{SELECT dlock_acquire('x', 'b', 600)}), '', 'a single try is refused, no error');
$watcher->query("SELECT pg_cancel_backend($one->{pid})");
is($one->answer, '57014', 'a gives up');
# and one who has given up is in no cycle
waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
release($one);
served($two);
nothing_left();

# the same owner string of two roles is two owners
$watcher->query('CREATE ROLE other');
holds($one, q{dlock_acquire('x', 'same', 600)});
$two->query('SET ROLE other');
holds($two, q{dlock_acquire('y', 'same', 600)});
waits($two, q{dlock_acquire('x', 'same', 600, -1)}, 'b');
is($one->query(q{SELECT dlock_release('x', 'same')}), 't', 'no cycle of one name and another of the same owner string');
served($two);
$two->query(q{SELECT dlock_release_all('same')});
$two->query('RESET ROLE');
nothing_left();

# no false alarm from a hold that is over: with a lock delay it is in the way,
# but not its holder
$node->append_conf('postgresql.conf', "dlock.lock_delay = '1s'");
$node->reload;
$all->until('SHOW dlock.lock_delay', '1s');
# a session takes notice between statements
for my $session (@sessions)
{
	Time::HiRes::usleep(5000) until $session->query('SHOW dlock.lock_delay') eq '1s';
}
holds($two, q{dlock_acquire('y', 'b', 600)});
holds($one, q{dlock_acquire('x', 'a', 0.01)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
$all->until(q{SELECT expires_at < clock_timestamp() FROM dlock_holders('x')}, 't');
like($two->query(q{SELECT dlock_acquire('x', 'b', 600, -1)}), $token, 'an expired hold is waited for, and is no part of a cycle');
release($two);
served($one);
nothing_left();
$node->append_conf('postgresql.conf', 'dlock.lock_delay = 0');
$node->reload;
$all->until('SHOW dlock.lock_delay', '0');

# Both at the same moment: one victim, never two, never none.
my @wrong;
for my $round (1 .. 30)
{
	$one->query(q{SELECT dlock_acquire('x', 'a', 600)});
	$two->query(q{SELECT dlock_acquire('y', 'b', 600)});
	$one->send(q{SELECT dlock_acquire('y', 'a', 600, -1)});
	$two->send(q{SELECT dlock_acquire('x', 'b', 600, -1)});
	Time::HiRes::usleep(500) until $one->answered || $two->answered;
	my ($victim, $other) = $one->answered ? ($one, $two) : ($two, $one);
	my $answer = $victim->answer;
	push @wrong, "$round: the first to be answered is told $answer" if $answer ne '40P01';
	push @wrong, "$round: both are answered" if $other->answered;
	$victim->query("SELECT dlock_release_all('$victim->{name}')");
	$answer = $other->answer;
	push @wrong, "$round: the other is told $answer" if $answer !~ $token;
	$other->query("SELECT dlock_release_all('$other->{name}')");
}
is(join('; ', @wrong), '', 'at the same moment, 30 times: one victim');
nothing_left();

# dlock_acquire_all() in opposite orders never deadlocks, and takes all or none.
$watcher->query(q{
	CREATE SEQUENCE counter;
	CREATE PROCEDURE work(who text, names text[], rounds int) LANGUAGE plpgsql AS $$
	DECLARE
		n bigint;
	BEGIN
		FOR i IN 1..rounds LOOP
			IF dlock_acquire_all(names, who, 600, -1) IS NULL THEN RAISE 'not taken'; END IF;
			SELECT last_value INTO n FROM counter;
			PERFORM setval('counter', n + 1);
			IF dlock_release_all(who) <> cardinality(names) THEN RAISE 'not all'; END IF;
		END LOOP;
	END $$});
$one->send(q{CALL work('a', '{p,q,r,s}', 300)});
$two->send(q{CALL work('b', '{s,r,q,p}', 300)});
$three->send(q{CALL work('c', '{r,p}', 300)});
$four->send(q{CALL work('d', '{q,s,p}', 300)});
is($_->answer, '', "$_->{name} has worked without an error") for @sessions;
is($watcher->query('SELECT last_value FROM counter'), 1201, 'the counter is exact');
nothing_left();

$_->quit for @sessions, $watcher;
$node->stop;
done_testing();
