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
CrashLoad::play($torture, $node);

$node->stop;
done_testing();
