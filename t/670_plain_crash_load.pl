# What t/451_crash_load.pl does, on plain/dlock.sql: many clients while the server is killed,
# and a check of their answers by the rules that are kept there (all but the order of the
# waiters).  A wait that a lock has held up for two seconds may fail (55P03), and nothing
# may be a deadlock of the server's own locks.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CrashLoad;
use Plain;
use Test::More;
use Torture;

my $node = Plain::start('main', q{
restart_after_crash = on
shared_buffers = 4MB
log_statement = none
});
# who looks, and cancels waiters, sees all
my $torture = Torture->new(
	kind => 'plain',
	connection => $node->connstr('plain'),
	# cancelled; ended by an administrator, by a crash; shutting down, starting
	allowed => qr/^(guard )?(57014|57P01|57P02|57P03|55P03|lost)$/);
$torture->rounds(2, sub { CrashLoad::some_kills($torture, $node, $ENV{TORTURE_MINUTES} ? 30 : 6) });

# Leases may be lost here, but nothing else may be.
$torture->{lossy} = 1;
$torture->{connection} .= " options='-c synchronous_commit=off'";
$torture->rounds(1, sub { CrashLoad::some_kills($torture, $node, 4) }) if !$ENV{TORTURE_MINUTES};
$torture->summary;

$node->stop;
done_testing();
