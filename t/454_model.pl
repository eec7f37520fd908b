# The models in doc/model, of the waiting protocol, of the journal, of runs that write in
# different ways, and of a log that is the table: Spin finds nothing wrong with them, and
# finds a fault if any step is taken out.  Needs no server.

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
# states that are not compressed, which takes up to 0.7 GB, and memory in large pages: most of
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

# The models of the log have many things that may happen, and each search has a few of them.
my @append = qw(append GRANTS=2 AGAIN=1 NUMBERS=3);
my @append_one = (@append, qw(CRASHES=0 ZOMBIES=0));
my @append_crash = (@append, qw(CRASHES=1 ZOMBIES=1 CLEANINGS=0));
my @append_zombie = (@append, qw(CRASHES=0 ZOMBIES=1 CLEANINGS=0));
my @append_restore = (@append_zombie, 'RESTORES=1');
my @carry = qw(carry TOKENS=2 RENEWALS=1 NUMBERS=3);
my @carry_few = qw(carry TOKENS=2 RENEWALS=1 NUMBERS=2);
my @follow = qw(follow GRANTS=2 RENEWALS=1 NUMBERS=5 TICKS=4);
my @follow_one = (@follow, 'FAILURES=1');
my @follow_few = qw(follow GRANTS=2 RENEWALS=1 NUMBERS=3 TICKS=3 FAILURES=1);
my @follow_two = qw(follow GRANTS=3 RENEWALS=1 NUMBERS=4 TICKS=3 FAILURES=2);
my @follow_holes = qw(follow HOLES GRANTS=2 RENEWALS=1 NUMBERS=4 TICKS=3 FAILURES=1);
my @follow_all = qw(follow HOLES GRANTS=3 RENEWALS=1 NUMBERS=5 TICKS=4 FAILURES=2 SWITCHES=1);
my @follow_semisync = (@follow, qw(SEMISYNC FAILURES=1 SWITCHES=1));
my @follow_circle = (@follow, qw(CIRCLE FAILURES=0 SWITCHES=2));
my @view = qw(view GRANTS=2 RENEWALS=1 NUMBERS=5 TICKS=4 FAILURES=1);
my @view_two = qw(view GRANTS=3 RENEWALS=1 NUMBERS=5 TICKS=4 FAILURES=2);
my @view_few = qw(view GRANTS=2 RENEWALS=1 NUMBERS=4 TICKS=4 FAILURES=1);

for my $whole (
	\@append_one, \@append_crash, \@append_restore,
	\@carry, [ @carry_few, 'LOADER' ], [ @carry_few, 'DUMPS=1' ],
	\@follow_one, \@follow_two, \@follow_all, \@follow_semisync, \@follow_circle,
	\@view_two, [ @view, 'CARRIES=1' ],
	['guard'], [qw(guard CLUSTER)])
{
	my ($states, $what) = verify(1, @$whole);
	is($what, '', "@$whole: nothing is wrong");
}

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
	(map { [ qr/held==0/, 'modes', $_, @modes_cluster ] } qw(NO_MARK KEEP)),
	(map { [ qr/image.*holder/, @append_one, $_ ] } qw(NO_LOCK NO_COMPARE ONE_COPY COPIES_FIRST NO_COPY NO_MORE_SAME)),
	[ qr/held==0/, @append_one, 'DECIDE_AGAIN' ],
	(map { [ qr/durable/, @append_one, $_ ] } qw(KILL EARLY_REFUSAL TRUST_OTHERS)),
	(map { [ qr/answered/, @append_zombie, $_ ] } qw(GIVE_UP ANY_BATCH)),
	[ qr/durable/, @append_crash, 'BELIEVE' ],
	[ qr/held==0/, @append_crash, 'EARLY' ],
	(map { [ qr/image.*holder/, @append_restore, $_ ] } qw(NO_WRITER SAME_WRITER)),
	(map { [ qr/fold==/, @carry, $_ ] } qw(REPEAT KEEP_FROM STALE FROM_NEXT)),
	(map { [ qr/first<=/, @carry, $_ ] } qw(DELETE_EARLY DELETE_ALL)),
	[ qr/first<=/, @carry, 'DUMPS=1', 'DELETE_BLIND' ],
	[ qr/found==/, @carry, 'LOADER', 'HOLES' ],
	[ qr/mistaken/, @carry, 'STRICT' ],
	(map { [ qr/token>highest/, @follow_few, $_ ] } qw(NO_FLOOR SAME_TICK)),
	(map { [ qr/token>highest/, @follow_two, $_ ] } qw(FIRST_ONLY NO_LOOK NO_PAUSE LOOK_BEFORE)),
	(map { [ qr/held==0/, @follow_one, $_ ] } qw(NO_COUNT COUNT_LIVE)),
	[ qr/held==0/, qw(follow GRANTS=2 RENEWALS=0 NUMBERS=5 TICKS=5 FAILURES=0 SWITCHES=1 LATE) ],
	[ qr/holder==/, @follow_holes, 'JUMP' ],
	[ qr/writer==0/, @follow_holes, 'NO_DELETE' ],
	[ qr/holder==/, @follow_two, 'NO_WRITER' ],
	[ qr/held==0/, @follow_few, 'SEMISYNC', 'EARLY' ],
	[ qr/s==source/, @follow_circle, 'UPKEEP' ],
	(map { [ qr/token>highest/, @view_few, $_ ] } qw(NO_FLOOR SAME_TICK NO_CERTIFY NO_VIEW LOOK_BEFORE)),
	(map { [ qr/held==0/, @view, $_ ] } qw(NO_COUNT NO_CLOCK)),
	(map { [ qr/busy/, @view, $_ ] } qw(EARLY NO_CAUSAL)),
	[ qr/deadline<=/, @view_few, 'CARRIES=1', 'CARRY_CLOCK' ],
	(map { [ qr/granted/, qw(guard CLUSTER), $_ ] } qw(APART NOT_LOGGED LOCK_ONLY NO_CHANGE)),
	(map { [ qr/pinned/, 'guard', $_ ] } qw(LOOK_ONLY SKIP_LOCKED NO_SECOND)),
	[ qr/ended.*granted.*over/, 'guard', 'NO_ASK' ],
	[ qr/over.*ended.*granted/, 'guard', 'DELETE_ALL' ]);
for my $broken (@broken)
{
	my ($assertion, $model, @defines) = @$broken;
	my (undef, $what) = verify(0, $model, @defines);
	like($what, $assertion, "$model @defines is found out");
}

done_testing();
