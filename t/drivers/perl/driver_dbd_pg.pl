# DBD::Pg.
# speaks: postgres
# needs: libdbd-pg-perl

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Cases;
use Test::More;

# the server's prepared statements, and texts made by the driver
for my $prepared (1, 0)
{
	note($prepared ? 'prepared by the server' : 'not prepared');
	my $connection = driver_cases(pg_server_prepare => $prepared);
	value($connection, 'dlock_release_all(?)', $_) for 'me', 'other';
}

# what DISCARD ALL does, before a connection is handed on
my ($connection, $other) = (connected(), connected());
value($connection, 'dlock_acquire_session(?, ?, ?)', 'pooled', 'me', 30);
is(value($other, 'dlock_is_free(?)', 'pooled'), 0, 'a session lease');
$connection->do('DISCARD ALL');
is(value($other, 'dlock_is_free(?)', 'pooled'), 1, 'DISCARD ALL ends it');
done_testing();
