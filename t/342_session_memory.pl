# A session that takes leases for itself, which it or others end, remembers those that it
# still has.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('memory');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
dlock.log_expired = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my ($holder, $other) = $sessions->open('holder', 'other');
my $memory = q{SELECT total_bytes FROM pg_backend_memory_contexts WHERE name = 'dlock leases of this session'};

is($holder->query(q{SELECT count(dlock_acquire_session('kept ' || i, 'kept', 60)) FROM generate_series(1, 100) i}), 100, 'leases that stay');
my $before;
for my $round (1 .. 30)
{
	$holder->query(qq{SELECT count(dlock_acquire_session('$round ' || i, 'gone', 60)) FROM generate_series(1, 200) i}) == 200 or die $holder->error;
	my $who = $round % 2 ? $other : $holder;
	$who->query(q{SELECT dlock_release_all('gone')}) == 200 or die $who->error;
	$before = $holder->query($memory) if $round == 3;
}
cmp_ok($before, '>', 0, 'the session remembers its leases');
cmp_ok($holder->query($memory), '<', 2 * $before, '... and 5000 that it or others have ended take no more memory');

is($holder->query(q{SELECT count(*) FROM dlock.locks}), 100, 'those that stay are held');
$holder->query('DISCARD ALL');
is($other->query('SELECT count(*) FROM dlock.locks'), 0, '... and remembered, so that they are removed with it');

$_->quit for $holder, $other, $sessions->{watcher};
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
