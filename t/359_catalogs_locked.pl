# A session has locked a catalog that says for whom a role may act.  A call that has
# to read it waits, and can be cancelled; it holds up no other session, not even the
# one that locked the catalog.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $canceled = '57014';
my $is_token = qr/^\d{10,}$/;

my $node = PostgreSQL::Test::Cluster->new('catalogs_locked');
$node->init;
$node->append_conf('postgresql.conf', q{
autovacuum = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	CREATE ROLE app1;
	CREATE ROLE app2;
});

my $sessions = Sessions->new($node);
my ($holder, $locker, $other) = $sessions->open(qw(holder locker other));
my $watcher = $sessions->{watcher};
my @names = map { "n$_" } 1 .. 8;
my $all = 'ARRAY[' . join(', ', map { "'$_'" } @names) . ']';

# One owner, two roles that have nothing to do with each other: of each name in
# turn app2 has a share, so that app1's calls must ask about app2 while they have
# read any number of others.
$holder->query('SET ROLE app2');

# A session whose caches know nothing of roles begins a call and has to ask.
sub asks
{
	my ($call) = @_;
	my ($asker) = $sessions->open('asker');

	$asker->query('SET ROLE app1');
	$asker->query('BEGIN');
	$asker->send("SELECT $call");
	is( $sessions->until("SELECT wait_event FROM pg_stat_activity WHERE pid = $asker->{pid}", 'relation'),
		'relation', "$call waits for the catalog");
	return $asker;
}

for my $name (@names[ 0, 3, 7 ])
{
	like($holder->query("SELECT dlock_acquire_shared('$name', 'o', 3600)"), $is_token, "app2 has $name");
	for my $call ("dlock_acquire_all($all, 'o', 60)", "dlock_acquire_all($all, 'o', 60, -1)",
		"dlock_acquire_any($all, 'o', 60, 8)", "dlock_acquire('$name', 'o', 60)", "dlock_release('$name', 'o')", "dlock_renew_all('o', 60)",
		"dlock_release_all('o')", "dlock_guard('$name', 'o', 1)")
	{
		is($locker->query('BEGIN'), '', "a transaction");
		is($locker->query('LOCK TABLE pg_auth_members'), '', '... has locked the catalog');
		my $asker = asks($call);

		# whoever has locked it uses all the names; so does somebody else
		for my $other_name (grep { $_ ne $name } @names)
		{
			like($locker->query("SELECT dlock_acquire('$other_name', 'locker', 60)"), $is_token, "... and takes $other_name");
			is($other->query("SELECT dlock_owner('$other_name')"), 'locker', '... which somebody else sees');
			is($locker->query("SELECT dlock_release('$other_name', 'locker')"), 't', '... and gives it back');
		}
		is($locker->query("SELECT dlock_acquire('$name', 'locker', 60)"), '', "... and is refused $name");
		is($other->query("SELECT pg_cancel_backend($asker->{pid})"), 't', '... the call is cancelled');
		is($asker->answer, $canceled, '... and ends');
		is($locker->query('COMMIT'), '', '... the catalog is free');
		is($watcher->query("SELECT string_agg(name, ' ') FROM dlock.locks"), $name, '... and nothing was taken');
		$asker->quit;
	}
	is($holder->query("SELECT dlock_release('$name', 'o')"), 't', "app2 gives $name back");
}

# The log tells who has died holding a lease, but waits for no name of a role: the caller
# has a lease by then, and could not be cancelled without losing it.
{
	my ($asker) = $sessions->open('asker');

	is($asker->query(q{SELECT dlock_acquire('warm', 'asker', 60) > 0}), 't', 'a session has called before');
	like($holder->query(q{SELECT dlock_acquire('dead', 'o', 0.001)}), $is_token, 'app2 has a lease for a moment');
	is($sessions->until(q{SELECT dlock_is_free('dead')}, 't'), 't', '... which is over');
	is($locker->query('BEGIN; LOCK TABLE pg_authid'), '', '... the roles are locked');
	like($asker->query(q{SELECT dlock_acquire('dead', 'asker', 60)}), $is_token, '... another takes it, and does not wait');
	is($locker->query('COMMIT'), '', '... they are unlocked');
	like(slurp_file($node->logfile), qr/lease on "dead" expired while owner "o" held it/, '... and the log has been told');
	$asker->quit;
}

$_->quit for $holder, $locker, $other, $watcher;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
