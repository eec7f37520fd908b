# The models in doc/model, of the waiting protocol, of the journal, and of runs that write
# in different ways: Spin finds nothing wrong with them, and finds a fault if any step is
# taken out.  Needs no server.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

my $models = abs_path("$FindBin::RealBin/../doc/model");
my $dir = tempdir('moXXXXXX', TMPDIR => 1, CLEANUP => 1);
chdir $dir or die "could not enter $dir: $!\n";

# What the verifier says of a model with some definitions.  The compiler's effort pays where
# all states are searched, millions, and not where a fault ends the search; so does a table of
# states that are not compressed, which takes up to 0.5 GB, and memory in large pages: most of
# the time is spent on finding what is in that table.
sub verify
{
	my ($whole, $model, @defines) = @_;
	my ($effort, $table) = $whole ? ('-Og', 23) : ('-O0', 20);
	local $ENV{GLIBC_TUNABLES} = 'glibc.malloc.hugetlb=1';
	my $flags = join(' ', map { "-D$_" } @defines);
	my $output = `spin $flags -a $models/$model.pml 2>&1 && cc $effort -w -DSAFETY -o pan pan.c 2>&1 && ./pan -m10000 -w$table 2>&1`;
	die "could not verify: $output\n" if $output !~ /^State-vector .* errors: (\d+)$/m;
	my ($errors, $states) = ($1, $output =~ /^\s*(\d+) states, stored/m);
	my ($what) = $output =~ /^pan:\d+: (.*) \(at depth/m;
	die "the search ended before its time: $output\n"
	  if !$errors && ($output =~ /^Warning: Search not completed/m || $output =~ /max search depth too small/);
	note("$model @defines: $states states" . ($what ? ", $what" : ''));
	return ($states, $what // '');
}

# How much happens to the journal: without a crash there is time for more grants.
my @crash = qw(GRANTS=2 CRASHES=1 SWITCHES=2);
my @no_crash = qw(GRANTS=3 CRASHES=0 SWITCHES=2);
my @one_switch = qw(GRANTS=3 CRASHES=0 SWITCHES=1);

# And while its head is renamed or made anew: few things at a time.
my @modes_crash = qw(CRASHES=1 SWITCHES=1 CHANGES=1);
my @modes_switches = qw(CRASHES=0 SWITCHES=2 CHANGES=2);
my @modes_cluster = qw(CLUSTER CRASHES=1 SWITCHES=0 CHANGES=1);
my @modes_one = qw(CRASHES=0 SWITCHES=2 CHANGES=1);
my @modes_none = qw(CRASHES=0 SWITCHES=2 CHANGES=0);

for my $whole ([ 'waiting' ], [ 'waiting', 'STOP' ], [ 'journal', @crash ], [ 'journal', @no_crash ],
	map { [ 'modes', @$_ ] } \@modes_crash, \@modes_switches, \@modes_cluster)
{
	my ($states, $what) = verify(1, @$whole);
	is($what, '', "@$whole: nothing is wrong");
	cmp_ok($states, '>', 1e6, "@$whole: in many states");
}

# What is taken away, and the assertion that fails then.
my @broken = (
	[ qr/answered/, qw(waiting NO_WAKE_ANSWERED) ],
	[ qr/holder==255/, qw(waiting NO_WAKE_LEAVER) ],
	[ qr/holder==255/, qw(waiting NO_WAKE_BRIEF) ],
	[ qr/holder==255/, qw(waiting NO_SERVE) ],
	[ qr/holder!=me/, qw(waiting NO_GIVE_BACK) ],
	[ qr/waiting==0/, qw(waiting BARGING) ],
	[ qr/waiting==0/, qw(waiting LAST_FIRST) ],
	[ qr/holder==255/, qw(waiting JOIN_NOT_DUE) ],
	[ qr/invalid end state/, qw(waiting STOP NO_LOOK) ],
	(map { [ qr/held==0/, 'journal', $_, @no_crash ] }
		  qw(NO_FENCE NO_LOCK STALE LOAD_FIRST FORGET DELETE_FIRST DELETE_ALL EARLY)),
	[ qr/held==0/, 'journal', 'NO_WAIT', @one_switch ],
	[ qr/held==0/, 'journal', 'ASYNCHRONOUS', @crash ],
	(map { [ qr/held==0/, 'modes', $_, @modes_none ] } qw(NO_FENCE NO_HEAD NO_MARK KEEP FORGET_OLD NO_RAISE NOT_CLOSED)),
	[ qr/held==0/, 'modes', 'NO_RAISER', @modes_one ],
	(map { [ qr/held==0/, 'modes', $_, qw(CRASHES=0 SWITCHES=1 CHANGES=1) ] } qw(FORGET OPEN_EARLY)),
	[ qr/held==0/, 'modes', 'AS_IT_WAS', @modes_switches ],
	[ qr/held==0/, 'modes', 'NOT_EMPTY', qw(CRASHES=1 SWITCHES=0 CHANGES=1) ],
	(map { [ qr/held==0/, 'modes', $_, @modes_cluster ] } qw(NO_MARK KEEP)));
for my $broken (@broken)
{
	my ($assertion, $model, @defines) = @$broken;
	my (undef, $what) = verify(0, $model, @defines);
	like($what, $assertion, "$model @defines is found out");
}

done_testing();
