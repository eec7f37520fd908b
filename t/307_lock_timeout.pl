# lock_timeout ends a wait with its own SQLSTATE, also when the waiter is woken all the time.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('timeouts');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $sessions = Sessions->new($node);
my ($holder, $waiter) = $sessions->open('holder', 'waiter');
$holder->query(q{SELECT dlock_acquire('a', 'holder', 3600)});

# A reload sets the latch and does nothing else, as often as it comes.
my $child = fork // die "could not fork: $!\n";
if ($child == 0)
{
	my $parent = getppid;
	while (getppid == $parent)
	{
		kill 'HUP', $waiter->{pid} for 1 .. 100;
	}
	POSIX::_exit(0);
}

for my $call (q{dlock_acquire('a', 'w', 60, -1)}, q{dlock_acquire_all(ARRAY['a', 'b'], 'w', 60, -1)}, q{dlock_wait('a', -1)})
{
	$waiter->query("SET lock_timeout = '15ms'");
	my %ends;
	$ends{ $waiter->query("SELECT $call") }++ for 1 .. 40;
	is_deeply(\%ends, { '55P03' => 40 }, "lock_timeout ends $call");
	like($waiter->error, qr/canceling statement due to lock timeout/, '... and says so');

	# whichever comes first
	$waiter->query("SET statement_timeout = '15ms'; SET lock_timeout = '1h'");
	is($waiter->query("SELECT $call"), '57014', '... statement_timeout comes before it');
	$waiter->insist('RESET statement_timeout');
	$waiter->query('RESET lock_timeout');
}
$waiter->query("SET lock_timeout = '1h'");
is($waiter->query(q{SELECT dlock_acquire('a', 'w', 60, 0.05) IS NULL}), 't', 'so does the end of the wait');
kill 'KILL', $child;
waitpid $child, 0;
$_->quit for $holder, $waiter, $sessions->{watcher};
$node->stop;
done_testing();
