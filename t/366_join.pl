# Between the look at a name and joining its queue all who stood there may leave.
# Whoever joins then must look again, for what he had to stand behind is gone.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Torture;

my $node = PostgreSQL::Test::Cluster->new('join', install_path => CrashPoints::build() =~ s{/bin$}{}r);
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'dlock'
# nothing reaps: waiters look for themselves
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# A session in which a call has begun, and its process.
sub session
{
	my ($call, @settings) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->query("SET $_") for @settings;
	$session->query_until(qr/begins/, "\\echo begins\nSELECT $call;\n");
	return ($session, $pid);
}

sub is_stopped
{
	my ($pid) = @_;
	return Torture::slurp("/proc/$pid/stat") =~ /\) T /;
}

# One shares the name for long, one waits for it alone, and one who would share it
# stands behind him.
$node->safe_psql('postgres', q{SELECT dlock_acquire_shared('n', 'holder', 3600)});
my ($first, $first_pid) = session(q{dlock_acquire('n', 'first', 60, -1)});
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM dlock.waiters}) or die 'nobody waits';
my ($second, $second_pid) = session(q{'token ' || dlock_acquire_shared('n', 'second', 60, 20)},
	q{dlock.crash_point = 'queue: about to join'}, 'dlock.crash_stop = on');
my $attempts = 0;
until (is_stopped($second_pid))
{
	die 'the second does not come by the point' if $attempts++ > 10 * $PostgreSQL::Test::Utils::timeout_default;
	select undef, undef, undef, 0.1;
}

$node->safe_psql('postgres', "SELECT pg_cancel_backend($first_pid)");
$first->query('SELECT');
like($first->{stderr}, qr/canceling statement/, 'the first has left');
kill 'CONT', $second_pid or die 'the second is gone';
like($second->query('SELECT'), qr/^token \d+$/m, 'the second finds nobody before him, and shares the lease');

$_->quit for $first, $second;
$node->stop;
done_testing();
