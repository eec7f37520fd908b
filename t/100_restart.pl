# Leases survive a clean restart and an immediate stop with the time they have
# left, and tokens grow.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub answer
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql);
}

# All that is known of the leases but their deadlines.
my $locks = q{
	SELECT name, owner, mode, version, token, acquired_at, role, pid,
		application_name, client_addr
	FROM dlock.locks ORDER BY name, owner};

my %largest;

sub acquire
{
	my ($name, $owner, $ttl, $title) = @_;
	my $token = answer("SELECT dlock_acquire('$name', '$owner', $ttl)");

	cmp_ok($token || 0, '>', $largest{$name} // 0, $title);
	$largest{$name} = $token;
	return $token;
}

acquire('held', 'me', 3600, 'a first token');
is(answer(q{SELECT dlock_acquire('held', 'me', 3600)}),
	$largest{held}, 're-entry gives the same token');
answer(q{SELECT dlock_acquire_shared('read', owner, 3600)
	FROM (VALUES ('reader 1'), ('reader 2')) AS v (owner)});
answer(q{SELECT dlock_acquire_permit('some', 'worker', 3600, 5, 0, 'request ' || i)
	FROM generate_series(1, 2) AS i});
acquire('released', 'me', 3600, 'a name that will be free');
answer(q{SELECT dlock_release('released', 'me')});

for my $mode ('fast', 'immediate')
{
	my $title = "$mode stop";

	acquire("taken before $mode", 'me', 3600, "$title: a name of its own");
	acquire("short $mode", 'me', 1, "$title: a lease that ends meanwhile");
	my $rows = answer("SELECT * FROM ($locks) l WHERE name NOT LIKE 'short%'");
	my $deadline = answer(q{SELECT extract(epoch FROM expires_at)
		FROM dlock_holders('held')});
	my $end = answer(qq{SELECT extract(epoch FROM expires_at)
		FROM dlock_holders('short $mode')});

	$node->stop($mode);
	# the server's clock goes on while the server is down
	until (time > $end)
	{
		usleep(10_000);
	}
	$node->start;

	# nothing has called a function yet
	is( answer("SELECT * FROM ($locks) l WHERE name NOT LIKE 'short%'"),
		$rows,
		"$title: the same leases are in dlock.locks at once");
	cmp_ok(
		answer(qq{SELECT abs(extract(epoch FROM expires_at) - $deadline)
			FROM dlock_holders('held')}),
		'<', 1,
		"$title: the deadline is where it was");
	is(answer(q{SELECT dlock_owner('held'), dlock_is_free('held'),
			dlock_is_free('read'), dlock_is_free('released')}),
		'me|f|f|t', "$title: what is held is held");
	is(answer(q{SELECT dlock_acquire('held', 'you', 60)}),
		'', "$title: it excludes others");
	is(answer(qq{SELECT dlock_is_free('short $mode')}),
		't', "$title: a lease has ended meanwhile");
	is(answer(qq{SELECT dlock_renew('held', 'me', 3600, $largest{held})}),
		't', "$title: the token is still good");
	is(answer(q{SELECT dlock_acquire_permit('some', 'worker', 3600, 5, 0,
			'request 2') = token FROM dlock_holders('some')}),
		't', "$title: the request id is still known");

	acquire('released', 'me', 3600, "$title: the token of a free name grows");
	answer(q{SELECT dlock_release('released', 'me')});
	acquire("short $mode", 'you', 3600,
		"$title: the token of an expired lease grows");
	is(answer(qq{SELECT dlock_force_release('taken before $mode')}),
		1, "$title: a lease can be ended");
	acquire("taken before $mode", 'you', 3600,
		"$title: the token of an ended lease grows");
}

is(answer(q{SELECT version FROM dlock_holders('held')}),
	2, 'hold counts survived');
is(answer(q{SELECT version FROM dlock_holders('some')}),
	2, 'so did counts of permits, and no replay counted');

done_testing();
