# The memory of a wait does not depend on how often it looks.  Each renewal of a name
# wakes its watchers, and they look at all its holders.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $holders = 400;
my $renewals = 300;

# What grows with each look is some 10 kB for so many holders.
my $slack = 256 * 1024;

my $node = PostgreSQL::Test::Cluster->new('memory');
$node->init;
$node->append_conf('postgresql.conf', q{
autovacuum = off
synchronous_commit = off
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my $watcher = $sessions->{watcher};
my ($holder) = $sessions->open('holder');

# Bytes in use by a session, which may be in the middle of a call.
sub memory
{
	my ($session) = @_;
	my $from = -s $node->logfile;

	$watcher->query("SELECT pg_log_backend_memory_contexts($session->{pid})");
	for (1 .. $PostgreSQL::Test::Utils::timeout_default * 100)
	{
		my $log = substr slurp_file($node->logfile), $from;

		return $1 if $log =~ /\[$session->{pid}\].*Grand total: .* (\d+) used/;
		select undef, undef, undef, 0.01;
	}
	die "session $session->{name} says nothing of its memory";
}

# How often so far waiters of the database were woken.
sub woken { return $watcher->query('SELECT woken FROM dlock.stats') }

is($holder->query("SELECT count(dlock_acquire_shared('l', 'holder ' || i, 3600)) FROM generate_series(1, $holders) i"),
	$holders, 'many share a name');
for my $call (q{dlock_wait('l', -1)}, q{dlock_acquire_all(ARRAY['k', 'l'], 'waiter', 3600, -1)})
{
	my ($waiter) = $sessions->open('waiter');

	$waiter->send("SELECT $call");
	$sessions->waiting('waiter');
	$holder->query("SELECT dlock_renew('l', 'holder 1', 3600)") for 1 .. 10;
	my $before = memory($waiter);
	my $woken = woken();

	# a waiter that is late, on a busy machine, is woken once for several
	for (my $n = 0; $n < $renewals || (woken() - $woken < $renewals / 2 && $n < 100 * $renewals); $n++)
	{
		$holder->query("SELECT dlock_renew('l', 'holder 2', 3600)");
		$sessions->waiting('waiter');
	}
	cmp_ok(woken() - $woken, '>=', $renewals / 2, '... wake it');
	cmp_ok(memory($waiter) - $before, '<', $slack, '... and cost it no memory');
	$watcher->query("SELECT pg_cancel_backend($waiter->{pid})");
	is($waiter->answer, '57014', '... it is cancelled');
	$waiter->quit;
}

$_->quit for $holder, $watcher;
$node->stop;
done_testing();
