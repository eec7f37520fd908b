# Deadlocks among owners: a wait that would close a cycle is an error, through
# exclusive, shared and permit holds and through places in a queue; one victim for
# each cycle, and no false alarm; also with guards, which belong to a transaction.
# Scenario 16.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;
use Time::HiRes;

my $node = PostgreSQL::Test::Cluster->new('deadlock', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf('postgresql.conf', q{
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

sub guards
{
	my ($session, $name, $owner) = @_;
	is($session->query("BEGIN; SELECT dlock_guard('$name', '$owner', token) FROM dlock_holders('$name') WHERE owner = '$owner'"),
		'', "$session->{name} guards $name");
	return;
}

sub waits
{
	my ($session, $call, @waiting) = @_;
	$session->send("SELECT $call");
	$all->waiting(@waiting);
	# it looks for deadlocks after it has joined, and then sleeps
	$all->until("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $session->{pid}", 'Extension');
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

# through dlock_acquire_all(), which waits for one name at a time.  It looks anew every
# second, and stands nowhere meanwhile: who comes just then waits, and the cycle is closed
# by dlock_acquire_all().
my $closed;
for (1 .. 20)
{
	holds($one, q{dlock_acquire('x', 'a', 600)});
	holds($two, q{dlock_acquire('y', 'b', 600)});
	$one->send(q{SELECT array_length(dlock_acquire_all('{y,z}', 'a', 600, -1), 1)});
	$all->waiting('a');
	$two->send(q{SELECT dlock_acquire('x', 'b', 600, -1)});
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $one->answered || $two->answered })
	  or die "a cycle is not found\n";
	last if $closed = $two->answered;
	is($one->answer, '40P01', 'dlock_acquire_all() looks just then, and closes the cycle');
	release($one);
	served($two);
	nothing_left();
}
is($closed && $two->answer, '40P01', 'a cycle with dlock_acquire_all() waiting');
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

# names of others are hidden from a role that may read neither view
$watcher->query('REVOKE SELECT ON dlock.locks, dlock.waiters FROM PUBLIC');
for my $may_read (0, 1)
{
	$watcher->query('GRANT SELECT ON dlock.waiters TO other') if $may_read;
	$two->query('SET ROLE other');
	holds($two, q{dlock_acquire('x', 'b', 600)});
	holds($one, q{dlock_acquire('secret', 'a', 600)});
	waits($one, q{dlock_acquire('x', 'a', 600, -1)}, 'a');
	is($two->query(q{SELECT dlock_acquire('secret', 'b', 600, -1)}), '40P01', 'a circle');
	my $shown = $may_read ? 'x' : '<insufficient privilege>';
	like($two->error, qr/"b" waits for "secret".*waits for "\Q$shown\E"; held by owner "b"/s,
		'whose DETAIL names ' . ($may_read ? 'all' : 'only what the role waits for'));
	release($two);
	$two->query('RESET ROLE');
	served($one);
	nothing_left();
}
$watcher->query('GRANT SELECT ON dlock.locks, dlock.waiters TO PUBLIC');

# no false alarm from a hold that is over: with a lock delay it is in the way,
# but not its holder
$node->append_conf('postgresql.conf', "dlock.lock_delay = '1s'");
$node->reload;
$all->until('SHOW dlock.lock_delay', '1s');
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

# more permits are guarded than held
holds($one, (q{dlock_acquire_permit('x', 'a', 600, 2)}) x 2);
guards($one, 'x', 'a');
is($one->query(q{SELECT dlock_release('x', 'a')}), 't', 'of two guarded permits one is given back');
holds($two, q{dlock_acquire('y', 'b', 600)});
waits($one, q{dlock_acquire('y', 'a', 600, -1)}, 'a');
deadlocks($two, q{dlock_acquire_permit('x', 'b', 600, 2, 30)},
	'Owner "b" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "b".');
release($two);
served($one);
is($one->query('COMMIT'), '', 'the guard ends');
nothing_left();

# a guarding transaction waits as another owner: it closes the cycle last, ...
holds($one, q{dlock_acquire('x', 'a', 600)});
holds($two, q{dlock_acquire('y', 'b', 600)});
guards($one, 'x', 'a');
waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
deadlocks($one, q{dlock_acquire('y', 'c', 600, 30)},
	'Owner "c" waits for "y"; held by owner "b".', 'Owner "b" waits for "x"; held by owner "a".');
is($one->query('ROLLBACK'), '', 'the guard ends');
release($one);
served($two);
nothing_left();
# ... or first; and the lease may be released
for my $released (0, 1)
{
	holds($one, q{dlock_acquire('x', 'a', 600)});
	holds($two, q{dlock_acquire('y', 'b', 600)});
	guards($one, 'x', 'a');
	release($one) if $released;
	waits($one, q{dlock_acquire('y', 'c', 600, -1)}, 'a');
	deadlocks($two, q{dlock_acquire('x', 'b', 600, 30)},
		'Owner "b" waits for "x"; held by owner "a".', 'Owner "c" waits for "y"; held by owner "b".');
	release($two);
	served($one);
	is($one->query(q{COMMIT; SELECT dlock_release_all('c')}), 1, 'the guard ends');
	nothing_left();
}
# ... or waits for what it guards
is($one->query(q{BEGIN; SELECT dlock_acquire_xact('x', 'a', 600) IS NULL}), 'f', 'a takes x for its transaction');
deadlocks($one, q{dlock_acquire('x', 'b', 600, 30)}, 'Owner "b" waits for "x"; held by owner "a".');
like($one->error, qr/HINT:  This transaction guards what it waits for\./, '... with a hint');
is($one->query(q{ROLLBACK; SELECT dlock_is_free('x')}), 't', 'the guard ends, and the lease');

# behind a line that waits for what this owner guarded and released, in the same
# connection and in another
for my $session ($one, $three)
{
	holds($one, q{dlock_acquire('x', 'a', 600)});
	guards($one, 'x', 'a');
	release($one);
	waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'b');
	deadlocks($session, q{dlock_acquire('x', 'a', 600, 30)},
		'Owner "a" waits for "x"; queued behind owner "b".', 'Owner "b" waits for "x"; held by owner "a".');
	is($one->query('ROLLBACK'), '', 'the guard ends');
	served($two);
	nothing_left();
}

# no false alarm: its own guard of a lease that it released is not in an owner's
# way; somebody else's lease is.  Somebody waits for another name meanwhile, or
# nobody would look.
for my $how ([ q{dlock_acquire_shared('x', '%s', 600)}, q{dlock_acquire('x', 'a', 600, -1)} ],
	[ q{dlock_acquire_permit('x', '%s', 600, 2)}, q{dlock_acquire_permit('x', 'a', 600, 1, -1)} ])
{
	my ($take, $wait) = @$how;
	holds($four, q{dlock_acquire('z', 'd', 600)});
	waits($three, q{dlock_acquire('z', 'c', 600, -1)}, 'c');
	holds($one, sprintf $take, 'a');
	guards($one, 'x', 'a');
	release($one);
	holds($two, sprintf $take, 'b');
	waits($one, $wait, 'c', 'a');
	release($two);
	served($one);
	is($one->query('COMMIT'), '', 'the guard ends');
	release($four);
	served($three);
	nothing_left();
}

# A session's lease is not in the way of its owner in other connections, nor a
# transaction's: it may end.  Unless it is their own, or in a circle of these.
for my $kind ('session', 'xact')
{
	my $take = "dlock_acquire_$kind('x', 'a', 600)";
	$one->query('BEGIN');
	holds($one, $take);
	deadlocks($one, q{dlock_acquire_any('{x}', 'a', 600, 1, 30)}, 'Owner "a" waits for "x"; held by owner "a".')
	  if $kind eq 'session';
	holds($four, q{dlock_acquire('z', 'd', 600)});
	waits($three, q{dlock_acquire('z', 'c', 600, -1)}, 'c');
	waits($two, "dlock_acquire_$kind('x', 'a', 600, -1)", 'c', 'b');
	# with the transaction's end its lease is given back, and the other's is of the same owner
	$one->query('ROLLBACK');
	$one->query(q{SELECT dlock_release('x', 'a')}) if $kind eq 'session';
	served($two);
	$two->query(q{SELECT dlock_release('x', 'a')});
	release($four);
	served($three);
	nothing_left();
}
holds($one, q{dlock_acquire_session('x', 'a', 600)});
holds($two, q{dlock_acquire_session('y', 'a', 600)});
waits($one, q{dlock_acquire_session('y', 'a', 600, -1)}, 'a');
deadlocks($two, q{dlock_acquire_session('x', 'a', 600, 30)},
	'Owner "a" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "a".');
$two->query(q{SELECT dlock_release('y', 'a')});
served($one);
release($one);
nothing_left();

# What a transaction has released is in the way of its owner's other transactions until it
# ends, so it may be in a circle of these.
for my $early ('', q{SELECT dlock_release('x', 'a')})
{
	$_->query('BEGIN') for $one, $two;
	holds($one, q{dlock_acquire_xact('x', 'a', 600)});
	$one->query($early);
	holds($two, q{dlock_acquire_xact('y', 'a', 600)});
	waits($one, q{dlock_acquire_xact('y', 'a', 600, -1)}, 'a');
	deadlocks($two, q{dlock_acquire_xact('x', 'a', 600, 30)},
		'Owner "a" waits for "x"; held by owner "a".', 'Owner "a" waits for "y"; held by owner "a".');
	$two->query('ROLLBACK');
	served($one);
	$one->query('COMMIT');
	nothing_left();
}
# it takes part in one, too, if its transaction wants the name again, and they are ahead
for my $again ('dlock_acquire_xact(', 'dlock_acquire(', 'dlock_acquire_all(ARRAY[')
{
	my $call = $again . ($again =~ /ARRAY/ ? q{'x']} : q{'x'}) . q{, 'a', 600, 30)};
	for my $other ('dlock_acquire_xact', 'dlock_acquire_shared')
	{
		$_->query('BEGIN') for $one, $two;
		holds($one, q{dlock_acquire_xact('x', 'a', 600)});
		is($one->query(q{SELECT dlock_release('x', 'a')}), 't', 'a releases x in its transaction');
		waits($two, "$other('x', 'a', 600, -1)", 'b');
		deadlocks($one, $call,
			'Owner "a" waits for "x"; queued behind owner "a".', 'Owner "a" waits for "x"; held by owner "a".');
		$one->query('ROLLBACK');
		served($two);
		$two->query('COMMIT');
		$two->query(q{SELECT dlock_release_all('a')});
		nothing_left();
	}
}
# three connections of one owner, one of which is stuck only by its place in the line
for my $kind ('xact', 'session')
{
	$_->query('BEGIN') for $one, $two, $three;
	holds($one, "dlock_acquire_${kind}_shared('x', 'a', 600)");
	holds($three, "dlock_acquire_$kind('z', 'a', 600)");
	waits($two, "dlock_acquire_$kind('x', 'a', 600, -1)", 'b');
	waits($three, "dlock_acquire_${kind}_shared('x', 'a', 600, -1)", 'b', 'c');
	deadlocks($one, "dlock_acquire_$kind('z', 'a', 600, 30)",
		'Owner "a" waits for "z"; held by owner "a".', 'Owner "a" waits for "x"; queued behind owner "a".',
		'Owner "a" waits for "x"; held by owner "a".');
	my $ends = sub { $_[0]->query($_) for 'COMMIT', 'DISCARD ALL' };
	$ends->($one);
	served($two);
	$ends->($two);
	served($three);
	$ends->($three);
	nothing_left();
}
# no false alarm: it is not in its own way, nor in theirs once it can go on
$_->query('BEGIN') for $one, $two, $three;
holds($one, q{dlock_acquire_xact_shared('x', 'a', 600)});
is($one->query(q{SELECT dlock_release('x', 'a')}), 't', 'a releases x in its transaction');
holds($two, q{dlock_acquire_xact_shared('x', 'b', 600)});
waits($one, q{dlock_acquire_xact('x', 'a', 600, -1)}, 'a');
waits($three, q{dlock_acquire_xact('x', 'a', 600, -1)}, 'a', 'c');
$two->query('COMMIT');
served($one);
is($three->answered, 0, 'the other transaction waits');
$one->query('COMMIT');
served($three);
$three->query('COMMIT');
nothing_left();

# All stand in one line, in which a session waits as another owner for its own lease, and
# its owner's other session for that.
my @cycle = ('Owner "a" waits for "x"; held by owner "a".', 'Owner "p" waits for "x"; held by owner "a".');
holds($one, q{dlock_acquire_session('x', 'a', 600)});
waits($two, q{dlock_acquire_session('x', 'a', 600, -1)}, 'b');
deadlocks($one, q{dlock_acquire('x', 'p', 600, 30)}, @cycle);
is($one->query(q{SELECT dlock_release('x', 'a')}), 't', 'a releases');
served($two);
is($two->query(q{SELECT dlock_release('x', 'a')}), 't', 'and b');
nothing_left();
holds($one, q{dlock_acquire_session('x', 'a', 600)});
waits($one, q{dlock_acquire('x', 'p', 600, -1)}, 'a');
deadlocks($two, q{dlock_acquire_session('x', 'a', 600, 30)}, @cycle);
is($two->query(q{SELECT dlock_release('x', 'a')}), 't', 'another connection releases');
served($one);
is($one->query(q{SELECT dlock_release('x', 'p')}), 't', 'it gives back');
nothing_left();

# A guard of a session's lease is not in the way of its owner's other sessions.
holds($one, q{dlock_acquire_session('x', 'a', 600)});
guards($one, 'x', 'a');
is($one->query(q{SELECT dlock_downgrade('x', 'a')}), 't', 'a downgrades');
is($four->query(q{SELECT dlock_acquire_shared('x', 'd', 600)}), '', 'another owner is kept out');
holds($two, q{dlock_acquire_session_shared('x', 'a', 600)});
$one->query('COMMIT');
$_->query(q{SELECT dlock_release('x', 'a')}) for $one, $two;
nothing_left();

# No false alarm: a call that has taken one of several names, and goes on through
# the others, waits for none of them any more.  It is stopped there.
{
	my ($claimer) = $all->open('claimer');

	$claimer->query(q{SET dlock.crash_point = 'many: name taken'; SET dlock.crash_stop = on});
	holds($two, q{dlock_acquire_shared('y', 'b', 600)});
	holds($three, q{dlock_acquire('x', 'c', 600)});
	$claimer->send(q{SELECT name FROM dlock_acquire_any('{x, y}', 'p', 600, 2, -1)});
	$all->waiting('claimer', 'claimer');
	is($three->query(q{SELECT dlock_release('x', 'c')}), 't', 'x becomes free');
	Processes::until_stopped($claimer->{pid});
	is($watcher->query(q{SELECT dlock_owner('x')}), 'p', '... a claim has taken it, and is about to look at y');
	waits($two, q{dlock_acquire('x', 'b', 600, -1)}, 'claimer', 'b');
	kill 'CONT', $claimer->{pid};
	is($claimer->answer, 'x', '... and ends with x');
	is($claimer->query(q{SELECT dlock_release('x', 'p')}), 't', '... which it gives back');
	served($two);
	$two->query(q{SELECT dlock_release('y', 'b'), dlock_release('x', 'b')});
	$claimer->quit;
	nothing_left();
}

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
