# A row that another server of a cluster has written is over when its time to live has
# passed since it was read here: not since the read began, which may take long.  Here
# the other server is the administrator, who has locked the lock table and writes into
# it while the library waits to read it.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use OldTables;
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);

my ($kind) = @ARGV;
my $ttl = 0.5;      # less than the second for which the library waits for a table
my $engine = Engines::start($kind);
$engine->write_settings(reap_interval => 0.1);
my $session = $engine->client('session');
is($session->value(q{SELECT dlock_is_free('n')}), 1, 'the library is there');

# What the reaper is waiting to read, which tells its rounds apart; '-' if nothing.
sub reading
{
	return $engine->control->value(q{SELECT coalesce(max(info), '-') FROM information_schema.processlist
		WHERE info LIKE '%deadline_us <= %' AND info NOT LIKE '%processlist%' AND state LIKE 'Waiting for table%'});
}

# Until one round waits for longer than the lease lives; then the row is there.
my $began;
sub waits_to_read
{
	my $round;
	$engine->control->value('LOCK TABLES dlock.lease_table WRITE');
	Scenarios::Run::until(sub { ($round = reading()) ne '-' }) or die "the reaper does not read\n";
	usleep(1e6 * ($ttl + 0.2));
	$began = time;
	$engine->control->value(OldTables::insert({ name => 'n', owner => 'another', token => 1, ttl => 1e6 * $ttl }));
	return 1 if reading() eq $round;
	$engine->control->value('DELETE FROM dlock.lease_table; UNLOCK TABLES');
	return 0;
}

ok(Scenarios::Run::until(\&waits_to_read), 'a row comes while the reaper waits to read');
$engine->control->value('UNLOCK TABLES');
ok(Scenarios::Run::until(sub { $session->value(q{SELECT dlock_is_free('n')}) == 1 }), 'its lease ends');
cmp_ok(time - $began, '>=', $ttl, 'not before its time to live has passed');

$session->quit;
$engine->stop;
done_testing();
