# The library makes no mistakes with memory, does nothing that C does not define,
# and leaks nothing: it is built with the compiler's sanitizers, put into a
# server that has their runtime, and made to work.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use Sanitizers;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
my $reports = "$dir/reports";
mkdir $reports or die "could not make $reports: $!\n";
# the server may be another user's
chmod 0711, $dir;
chmod 0777, $reports;

# Go on after an error: there may be more.  Two shared runtimes would both take
# the file name of one of them.
my $flags = '-fsanitize=address,undefined,float-cast-overflow,float-divide-by-zero '
  . '-fsanitize-recover=all -static-libubsan';
Sanitizers::need($dir, $flags);
# checkpoints are in the smallest pieces
my $built = BuiltOnce::folder($dir, 'sanitized', sub { Sanitizers::build($_[0], "$flags -DPIECE_WORK=1") });
my $names = `nm $built/dlock.so`;
like($names, qr/ U __asan_report_/, 'the library looks at its memory');
like($names, qr/ t __ubsan_handle_/, 'and at what it computes');

# The runtime has to be in the server before all else.  It would not replace a
# handler of the server's by itself.
chomp(my $runtime = `cc -print-file-name=libasan.so`);
$ENV{DLOCK_LIBRARY} = "$built/dlock.so";
$ENV{SERVER_WRAPPER} = "env LD_PRELOAD=$runtime";
my $frames = q{stack_trace_format="    #%n %p in %f %S %M"};
$ENV{ASAN_OPTIONS} = join(':', "log_path=$reports/address", $frames, qw(
	halt_on_error=0 detect_stack_use_after_return=1 handle_segv=2 handle_sigbus=2
	handle_abort=2 detect_leaks=1 exitcode=0));
$ENV{UBSAN_OPTIONS} = "log_path=$reports/undefined:$frames:print_stacktrace=1";

# What was reported says why, should the test not come to its end.
my $examined = 0;

END
{
	my $status = $?;
	diag(Sanitizers::reports($reports)) if defined $examined && !$examined;
	$? = $status;
}

# Errors of all kinds, with a server of their own.
open(my $robustness, '-|', "$^X t/mysql/robustness.pl $kind 2>&1") or die "could not fork: $!\n";

my $engine = Engines::start($kind);

sub sql { return $engine->control->value($_[0]) }

# Both are loaded, and are the ones that were meant.
sub server_has
{
	my ($what) = @_;
	open(my $file, '<', '/proc/' . $engine->pid . '/maps') or die "could not read the server's maps: $!\n";
	return scalar grep { /\/\Q$what\E/ } <$file>;
}
cmp_ok(server_has('libasan.so'), '>', 0, 'the server has the runtime');
cmp_ok(server_has('dlock.so'), '>', 0, 'and the library');

# Many clients at once.
my $storm = "$dir/storm";
system("cc -O2 -pthread -o $storm t/mysql/storm.c \$(mariadb_config --include --libs)") == 0
  or die "could not build storm.c\n";
my $seed = $ENV{STORM_SEED} // int rand 2**31;
my $said = `$storm $engine->{dir}/socket 24 60x $seed 2>&1`;
is($?, 0, 'a storm found nothing wrong') or diag($said);
note("STORM_SEED=$seed $said");
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.locks') == 0 }), 'and nothing is held');

# Every kind of call.  Some scenarios kill the server, and in a server that is
# killed nobody looks for leaks: one of them comes last, the others not at all.
Scenarios::test($engine, grep { !/crash|lock_delay|queue|reaper|token_end/ } glob('t/scenarios/*.scn'));
$engine->restart;
Scenarios::test($engine, 't/scenarios/queue.scn');

$said = join('', <$robustness>);
ok(close($robustness), 'errors are dealt with') or diag($said);

# Mistakes that are made on purpose.  A new server: the library and the probe
# would both write to the same file.
$engine->restart;
system("cc -O1 -g -fno-omit-frame-pointer $flags -shared -fPIC -Wl,-Bsymbolic -Wl,--exclude-libs,ALL"
	  . " -Wl,-z,nodelete -o $engine->{dir}/plugins/probe.so t/mysql/probe.c") == 0
  or die "could not build probe.c\n";
sql(q{CREATE FUNCTION probe RETURNS INTEGER SONAME 'probe.so'});
sql('SELECT probe()');
$engine->stop;

my @reports = Sanitizers::reports($reports);
$examined = 1;
my @probes = grep { /\bprobe\b/ } @reports;
my @others = grep { !/\bprobe\b/ } @reports;
ok((grep { /heap-buffer-overflow/ } @probes), 'an access to wrong memory is reported');
ok((grep { /runtime error: signed integer overflow/ } @probes), 'something undefined is reported');
is(join('', grep { !/leak of|LeakSanitizer/ } @others), '', 'no access to wrong memory, nothing undefined');

# The server may have leaks of its own.
SKIP:
{
	my ($cannot) = map { /(LeakSanitizer has encountered .*)/ } @others;
	skip($cannot, 2) if defined $cannot;
	ok((grep { /leak of/ } @probes), 'a leak is reported');
	is(join('', grep { /leak of/ && m{/dlock\.so\b} } @others), '', 'no leak');
}
done_testing();
