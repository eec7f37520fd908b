# The threads of the engine never touch the same memory without order: it is
# built with ThreadSanitizer into a program (data_races.c) that calls it from
# many threads.  The kind of server is the argument; STORM_SEED repeats a run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use Sanitizers;
use Test::More;

my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
my $flags = '-fsanitize=thread';
Sanitizers::need($dir, $flags);
my $built = BuiltOnce::folder(
	$dir, 'data_races',
	sub {
		my ($folder) = @_;
		Sanitizers::build($folder, $flags);
		my @objects = map { "$folder/$_.o" } qw(connection array hash heap),
			($ENV{STORE} // '') eq 'log' ? map { m{(\w+)\.c$} } glob('mysql_udf/engine/*.c mysql_udf/log/*.c') : qw(journal table);
		system("cc -O1 -g -fno-omit-frame-pointer $flags -pthread -Imysql_udf -Icore -o $folder/data_races"
			  . " t/mysql/data_races.c @objects $folder/image*.o $folder/lease*.o $folder/stuck.o $folder/udf_text.o \$(mariadb_config --include --libs)") == 0
		  or die "could not build data_races.c\n";
	});
my $program = "$built/data_races";

# Run the program: how it ended, what it said, and what was reported.
sub run
{
	my ($name, @arguments) = @_;
	my $reports = "$dir/$name";
	mkdir $reports or die "could not make $reports: $!\n";
	local $ENV{TSAN_OPTIONS} = "log_path=$reports/thread:history_size=4";
	my $said = `$program @arguments 2>$reports.log`;
	my $status = $?;
	open(my $file, '<', "$reports.log") or die "could not open $reports.log: $!\n";
	# what the engine has to say in the server's log
	$said .= join('', grep { !/^(?:.*\[Warning\] )?(?:\[[^]]*\] )*dlock: lease on / } <$file>);
	return ($status, $said, Sanitizers::reports($reports));
}

my ($status, $said, @reports) = run('mistake');
cmp_ok($status, '!=', 0, 'a mistake that is made on purpose');
like(join('', @reports), qr/data race.*\bmake_mistake\b/s, 'is reported');

my $engine = Engines::start(@ARGV);
my $seed = $ENV{STORM_SEED} // int rand 2**31;
($status, $said, @reports) = run('races', "$engine->{dir}/socket", 16, 300, $seed);
is($status, 0, '16 threads that call the engine') or diag($said);
note("STORM_SEED=$seed $said");
like($said, qr/grants [1-9]\d+ refusals [1-9]\d* deadlocks \d+ cancels [1-9]\d*/, 'have had grants, refusals and cancellations');
is(join('', @reports), '', 'and no data race was reported');
# so few that callers make their commits themselves
($status, $said, @reports) = run('few', "$engine->{dir}/socket", 2, 1000, $seed);
is($status, 0, 'two threads') or diag($said);
is(join('', @reports), '', 'and no data race either');
$engine->stop;
done_testing();
