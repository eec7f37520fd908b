# CrashPoints.pm: PostgreSQL with a dlock that has the points of
# pg_extension/lease_crash.h, at which a process dies or stops when told to.

package CrashPoints;

use strict;
use warnings;

use BuiltOnce;
use FindBin;
use PostgreSQL::Test::Utils;

# Build it, once for all tests of a run, and return the folder of its programs.
sub build
{
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	my $folder = BuiltOnce::folder(
		PostgreSQL::Test::Utils::tempdir(),
		'crash_points',
		sub {
			local $ENV{COPT} = join ' ', grep { defined } $ENV{COPT}, '-DDLOCK_CRASH_POINTS';
			my ($bin, $log) = run_command([ "$FindBin::RealBin/../dev/overlay", $pg_config, $_[0] ]);
			die "could not build dlock with crash points: $log\n" unless $bin;
		});
	my ($bin) = run_command([ $pg_config, '--bindir' ]);
	return "$folder$bin";
}

1;
