# CrashPoints.pm: PostgreSQL with a dlock that has the points of
# pg_extension/lease_crash.h, at which a process dies or stops when told to.

package CrashPoints;

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;

# Build it into a folder that is removed with the test, and return the folder of its
# programs.
sub build
{
	local $ENV{COPT} = join ' ', grep { defined } $ENV{COPT}, '-DDLOCK_CRASH_POINTS';
	my ($bin, $log) = run_command([ "$FindBin::RealBin/../dev/overlay", $ENV{PG_CONFIG} // 'pg_config',
		PostgreSQL::Test::Utils::tempdir() ]);
	return $bin || die "could not build dlock with crash points: $log\n";
}

1;
