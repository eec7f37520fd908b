# A call whose caller does not learn of the grant gives it back: a waiter that is dead
# at the moment of a release, a call that fails after it has taken a lease or some of
# several.  All leases last for an hour here, so that nothing else frees them.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Cwd qw(abs_path);
use CrashPoints;
use Engines;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;

my $is_token = qr/^\{?\d{10,}/;

my $node = PostgreSQL::Test::Cluster->new('unclaimed', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
autovacuum = off
client_connection_check_interval = 0
dlock.max_guards = 1
});

# The disk is full as long as that file is there.
my $full = abs_path($node->data_dir) . '/base/full';
{
	local %ENV = Engines::preloading('no_room', DLOCK_NO_ROOM => $full);
	$node->start;
}
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my $watcher = $sessions->{watcher};
my ($a, $c) = $sessions->open('a', 'c');

sub becomes_free
{
	my ($name, $claim) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($sessions->until("SELECT coalesce(string_agg(owner, ' '), 'free') FROM dlock.locks WHERE name ~ '$name' AND NOT dlock_is_free(name)", 'free'),
		'free', $claim);
}

# ----------------------------------------------------------------
# A client that dies right before the release
# ----------------------------------------------------------------

my %kinds = (
	exclusive => [ q{dlock_acquire('l', 'a', 3600)}, q{dlock_acquire('l', 'b', 3600, -1)} ],
	shared => [ q{dlock_acquire('l', 'a', 3600)}, q{dlock_acquire_shared('l', 'b', 3600, -1)} ],
	permit => [ q{dlock_acquire_permit('l', 'a', 3600, 1)}, q{dlock_acquire_permit('l', 'b', 3600, 1, -1)} ],
	all => [ q{dlock_acquire('l', 'a', 3600)}, q{dlock_acquire_all(ARRAY['k', 'l', 'm'], 'b', 3600, -1)} ],
	session => [ q{dlock_acquire('l', 'a', 3600)}, q{dlock_acquire_session('l', 'b', 3600, -1)} ],
	transaction => [ q{dlock_acquire('l', 'a', 3600)}, q{dlock_acquire_xact('l', 'b', 3600, -1)} ],
);
for my $kind (sort keys %kinds)
{
	my ($first, $second) = @{ $kinds{$kind} };
	my %ways = (
		'its client killed' => sub { $_[0]->kill; $a->query(q{SELECT dlock_release('l', 'a')}) },
		'cancelled' => sub {
			$a->query("SELECT pg_cancel_backend($_[0]{pid}), dlock_release('l', 'a')");
		},
		'terminated' => sub {
			$a->query("SELECT pg_terminate_backend($_[0]{pid}), dlock_release('l', 'a')");
		},
		'released, then its client killed' => sub {
			$sessions->stop($_[0]);
			$a->query(q{SELECT dlock_release('l', 'a')});
			$_[0]->kill;
			kill 'CONT', $_[0]{pid};
		},
		'released, then cancelled' => sub {
			$sessions->stop($_[0]);
			$a->query("SELECT dlock_release('l', 'a'), pg_cancel_backend($_[0]{pid})");
			kill 'CONT', $_[0]{pid};
		});

	for my $way (sort keys %ways)
	{
		my ($b) = $sessions->open('b');

		like($a->query("SELECT $first"), $is_token, "$kind, $way: a holds");
		$b->send("SELECT $second");
		$sessions->waiting('b');
		$ways{$way}->($b);
		# until then it may take for a moment what nobody has
		is($sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $b->{pid} AND state = 'active'", 0), 0,
			'... its call ends');
		becomes_free('[klm]', "$kind, $way: nothing stays with the waiter");
		like($c->query(q{SELECT dlock_acquire_all(ARRAY['k', 'l', 'm'], 'c', 3600)}), $is_token, '... and another takes all');
		is($c->query(q{SELECT dlock_release_all('c')}), 3, '... and gives it back');
		$b->quit;
	}
}

# ----------------------------------------------------------------
# Interrupted and granted between the look for an interrupt and the sleep
# ----------------------------------------------------------------

# It stops in between, in the line, having seen nothing that is to end it.
for my $kind (grep { $_ ne 'all' } sort keys %kinds)
{
	my ($first, $second) = @{ $kinds{$kind} };

	for my $way ('cancelled', 'terminated', 'terminated, with a temporary table', 'its client killed', 'nothing')
	{
		for my $order ('before the grant', 'after it')	# the interrupt
		{
			my ($b) = $sessions->open('b');
			my $grant = sub { is($a->query(q{SELECT dlock_release('l', 'a')}), 't', '... the lease is released, and b granted') };

			like($a->query("SELECT $first"), $is_token, "between, $kind, $way $order: a holds");
			# which aborts the transaction before dlock hears of the exit
			$b->query(q{SELECT dlock_acquire('first', 'b', 0.001, 1)}), $b->query('CREATE TEMPORARY TABLE temporary ()') if $way =~ /temporary/;
			$b->query(q{SET dlock.crash_point = 'wait: about to handle interrupts'; SET dlock.crash_stop = on});
			$b->send("SELECT $second");
			Processes::until_stopped($b->{pid});
			$sessions->waiting('b');
			$grant->() if $order eq 'after it';
			is($a->query(q{SELECT owner FROM dlock.locks WHERE name = 'l'}), $order eq 'after it' ? 'b' : 'a', '... it has a holder');
			$a->query("SELECT pg_cancel_backend($b->{pid})") if $way eq 'cancelled';
			$a->query("SELECT pg_terminate_backend($b->{pid})") if $way =~ /^terminated/;
			$b->kill if $way eq 'its client killed';
			$grant->() if $order ne 'after it';
			kill 'CONT', $b->{pid};
			if ($way eq 'nothing')
			{
				like($b->answer, $is_token, '... which b answers');
				$b->query(q{SELECT dlock_release('l', 'b')}) if $kind ne 'transaction';
			}
			else
			{
				is($sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $b->{pid} AND state = 'active'", 0), 0,
					'... its call ends');
				is($b->answer, '57014', '... with an error') if $way eq 'cancelled';
			}
			becomes_free('l', "between, $kind, $way $order: nothing stays with the waiter");
			$b->quit;
		}
	}
}

# ----------------------------------------------------------------
# Cancelled after the grant, while somebody has locked the table
# ----------------------------------------------------------------

{
	my ($b, $locker) = $sessions->open('b', 'locker');

	like($a->query(q{SELECT dlock_acquire('l', 'a', 3600)}), $is_token, 'locked table: a holds');
	$b->send(q{SELECT dlock_acquire('l', 'b', 3600, -1)});
	$sessions->waiting('b');
	$sessions->stop($b);
	is($a->query(q{SELECT dlock_release('l', 'a')}), 't', '... gives it to b, which is stopped');
	is($a->query(q{SELECT dlock_owner('l')}), 'b', '... and holds it');
	is($locker->query('BEGIN; LOCK TABLE dlock_private.lease_table'), '', '... somebody locks the table');
	$a->query("SELECT pg_cancel_backend($b->{pid})");
	kill 'CONT', $b->{pid};
	is($b->answer, '57014', '... b is cancelled, and does not wait for the lock');
	is($locker->query('COMMIT'), '', '... the table is unlocked');
	is($c->query(q{SELECT dlock_owner('l')}), 'b', '... what b was granted stays until its deadline');
	is($b->query(q{SELECT dlock_release('l', 'b')}), 't', '... or until b releases it');
	$_->quit for $b, $locker;
}

# ----------------------------------------------------------------
# Retried with its request id, before the first call knows how it ended
# ----------------------------------------------------------------

# What the retry was answered with is its caller's, whatever becomes of the first
# call: cancelled, or its client gone, and whether it can give anything back or not.
my %retries = (
	exclusive => [ 'dlock_acquire', q{'l', 'b', 3600, -1, 'id'} ],
	'exclusive, for a shorter time' => [ 'dlock_acquire', q{'l', 'b', 3600, -1, 'id'}, q{'l', 'b', 1800, -1, 'id'} ],
	shared => [ 'dlock_acquire_shared', q{'l', 'b', 3600, -1, 'id'} ],
	permit => [ 'dlock_acquire_permit', q{'l', 'b', 3600, 1, -1, 'id'} ]);
for my $kind (sort keys %retries)
{
	my ($function, $first, $again) = @{ $retries{$kind} };

	$again //= $first;
	for my $way ('cancelled', 'its client killed', 'cancelled, the table locked')
	{
		my ($b, $retry, $locker) = $sessions->open('b', 'retry', 'locker');
		my $locked = $way =~ /locked/;

		like($a->query(q{SELECT dlock_acquire('l', 'a', 3600)}), $is_token, "$kind, $way: a holds");
		$b->send("SELECT $function($first)");
		$sessions->waiting('b');
		$sessions->stop($b);
		is($a->query(q{SELECT dlock_release('l', 'a')}), 't', '... and gives it to b, which is stopped');
		like($retry->query("SELECT $function($again)"), $is_token, '... whose retry gets it') unless $locked;
		$locker->query('BEGIN; LOCK TABLE dlock_private.lease_table') if $locked;
		if ($way =~ /killed/)
		{
			$b->kill;
		}
		else
		{
			$a->query("SELECT pg_cancel_backend($b->{pid})");
		}
		$retry->send("SELECT $function($again)") if $locked;
		kill 'CONT', $b->{pid};
		is($sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $b->{pid} AND state = 'active'", 0), 0,
			'... the first call ends');
		$locker->query('COMMIT') if $locked;
		like($retry->answer, $is_token, '... the retry is answered') if $locked;
		is($a->query(q{SELECT dlock_acquire('l', 'a', 3600)}), '', '... nobody else gets it');
		is($retry->query(q{SELECT dlock_release('l', 'b')}), 't', '... and it is its to release');
		$a->query(q{SELECT dlock_force_release('l')});
		$_->quit for $b, $retry, $locker;
	}
}

# What is added to a lease by a call that fails is given back, whether that lease
# was repeated once or not.
{
	my ($b, $other) = $sessions->open('b', 'other');

	$b->query(q{SELECT dlock_acquire_permit('l', 'b', 3600, 2, 0, 'id')}) for 1, 2;
	like($a->query(q{SELECT dlock_acquire_permit('l', 'a', 3600, 2)}), $is_token, 'repeated, then more: a has the other permit');
	$b->send(q{SELECT dlock_acquire_permit('l', 'b', 3600, 2, -1)});
	$sessions->waiting('b');
	$sessions->stop($b);
	$a->query("SELECT dlock_release('l', 'a'), pg_cancel_backend($b->{pid})");
	kill 'CONT', $b->{pid};
	is($b->answer, '57014', '... b is cancelled');
	is($other->query(q{SELECT version FROM dlock.locks WHERE name = 'l'}), 1, '... and has what it had');
	is($other->query(q{SELECT dlock_release('l', 'b')}), 't', '... which is released');
	$_->quit for $b, $other;
}

# ----------------------------------------------------------------
# A lease of a transaction for which there is no guard
# ----------------------------------------------------------------

{
	my ($guard, $b) = $sessions->open('guard', 'b');

	$guard->query(q{BEGIN; SELECT dlock_acquire_xact('g', 'guard', 3600)});
	like($guard->query(q{SELECT dlock_acquire_xact('h', 'guard', 3600)}), $is_token, 'no guard left: one has it');
	$b->query(q{BEGIN; SELECT dlock_acquire_xact('first', 'b', 3600)});
	$b->query('SAVEPOINT s');
	is($b->query(q{SELECT dlock_acquire_xact('l', 'b', 3600)}), '53400', '... another one gets an error');
	is($a->query(q{SELECT dlock_is_free('l')}), 't', '... and has no lease');
	$b->query('ROLLBACK TO s');
	like($a->query(q{SELECT dlock_acquire('l', 'a', 3600)}), $is_token, '... which somebody else takes');
	is($b->query(q{COMMIT; SELECT dlock_owner('l')}), 'a', '... and keeps');
	is($a->query(q{SELECT dlock_release('l', 'a')}), 't', '... until it is released');

	$guard->query('COMMIT');
	$_->quit for $guard, $b;
}

# ----------------------------------------------------------------
# Many at once: an error after a part was taken
# ----------------------------------------------------------------

# Names so long, and so many in one bucket, that to take them all splits it: the
# room that a call makes beforehand does not suffice.
is($a->query(q{SELECT count(dlock_acquire('n' || i, 'o', 3600)) FROM generate_series(1, 1500) i}), 1500, 'many names');
my @groups = split /\n/, $a->query(q{SELECT string_agg(quote_literal(name), ', ') FROM
	(SELECT *, row_number() OVER (PARTITION BY block) AS n FROM
		(SELECT (ctid::text::point)[0] AS block, name FROM dlock_private.lease_table) AS places) AS rows
	WHERE n <= 18 GROUP BY block HAVING count(*) = 18});
cmp_ok(scalar @groups, '>=', 13, '... that lie together, for thirteen calls');
is($a->query(q{SELECT dlock_release_all('o')}), 1500, '... released');

# A call for names that have not been asked for so far.
my %calls = (
	dlock_acquire_all => q{dlock_acquire_all(ARRAY[%s], '%s', 3600, request => '%s')},
	dlock_acquire_any => q{(SELECT string_agg(token::text, ',') FROM dlock_acquire_any(ARRAY[%s], '%s', 3600, 100, request => '%s'))});

sub many
{
	my ($function) = @_;
	return sprintf "SELECT $calls{$function}", shift @groups, 'o' x 250, 'r' x 250;
}

for my $function (sort keys %calls)
{
	append_to_file($full, '');
	is($a->query(many($function)), '53100', "$function, a full disk: an error");
	unlink $full or die "could not remove $full: $!";
	becomes_free('n', '... and none of the leases');

	for my $end (
		[ 'cancelled', 'pg_cancel_backend', '57014' ],
		[ 'terminated', 'pg_terminate_backend', 'gone' ])
	{
		my ($what, $signal, $answer) = @$end;

		for my $point ('split: page added', substr($function, -3) eq 'all' ? 'all: name taken' : 'many: name taken')
		{
			my ($b) = $sessions->open('b');

			$b->query("SET dlock.crash_point = '$point'; SET dlock.crash_stop = on");
			$b->send(many($function));
			Processes::until_stopped($b->{pid});
			# it may have a part of them, and has locked a page that nobody can read meanwhile
			is($a->query("SELECT $signal($b->{pid})"), 't', "$function, $what at \"$point\": the signal");
			kill 'CONT', $b->{pid};
			is($b->answer, $answer, '... it ends so');
			becomes_free('n', '... and none of the leases is left');
			$b->quit;
		}
	}

	# what it gives back to make room, it takes again
	like($a->query(many($function)), qr/^\{?(\d{10,},){17}\d{10,}\}?$/, "$function, with room: all of them");
	is($a->query(q{SELECT count(*), min(version), max(version) FROM dlock.locks WHERE name ~ '^n'}), '18|1|1', '... once');
	is($a->query(q{SELECT dlock_release_all(repeat('o', 250))}), 18, '... released');
}

# While a claim gives back to make room, another session of the same owner takes the name
# for which there was none: that one has not been granted to the claim.
{
	my ($b) = $sessions->open('b');
	my $names = $groups[0];
	my $owner = q{repeat('o', 250)};

	$b->query("SET dlock.crash_point = 'many: about to give back'; SET dlock.crash_stop = on");
	$b->send(many('dlock_acquire_any'));
	Processes::until_stopped($b->{pid});
	my $taken = $a->query(qq{SELECT name, dlock_acquire(name, $owner, 3600) FROM
		(SELECT name FROM unnest(ARRAY[$names]) WITH ORDINALITY AS n(name, i) WHERE dlock_owner(name) IS NULL ORDER BY i LIMIT 1) AS free});
	my ($name, $token) = split /\|/, $taken;
	like($token, $is_token, 'a claim finds no room, and another takes the name');
	kill 'CONT', $b->{pid};
	like($b->answer, qr/^(\d{10,},){16}\d{10,}$/, '... the claim gets all the others');
	is($a->query("SELECT dlock_renew('$name', $owner, 3600, $token)"), 't', '... and the other keeps its lease');
	is($a->query("SELECT dlock_release_all($owner)"), 18, '... released');
	$b->quit;
}
$_->quit for $a, $c, $watcher;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
