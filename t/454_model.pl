# The model of the waiting protocol (doc/model/waiting.pml): Spin finds nothing
# wrong with it, and finds out whatever is taken away from it.  Needs no server.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

my $model = abs_path("$FindBin::RealBin/../doc/model/waiting.pml");
my $dir = tempdir('moXXXXXX', TMPDIR => 1, CLEANUP => 1);
chdir $dir or die "could not enter $dir: $!\n";

# What the verifier says of the model with some definitions.
sub verify
{
	my (@defines) = @_;
	my $flags = join(' ', map { "-D$_" } @defines);
	# what is wrong is found soon: building takes longer
	my $optimize = @defines && "@defines" ne 'STOP' ? '-O0' : '-O1';
	my $output = `spin $flags -a $model 2>&1 && cc $optimize -w -DSAFETY -o pan pan.c 2>&1 && ./pan -m10000 2>&1`;
	die "could not verify: $output\n" if $output !~ /^State-vector .* errors: (\d+)$/m;
	my ($errors, $states) = ($1, $output =~ /^\s*(\d+) states, stored/m);
	my ($what) = $output =~ /^pan:\d+: (.*) \(at depth/m;
	die "the search ended before its time: $output\n"
	  if !$errors && ($output =~ /^Warning: Search not completed/m || $output =~ /max search depth too small/);
	note(join(' ', @defines) . ": $states states" . ($what ? ", $what" : ''));
	return ($states, $what // '');
}

for my $defines ([], ['STOP'])
{
	my ($states, $what) = verify(@$defines);
	my $title = @$defines ? 'the protocol, with a waiter that stops' : 'the protocol';
	is($what, '', "$title: nothing is wrong");
	cmp_ok($states, '>', 1e6, "$title: in many states");
}

my %found = (
	NO_WAKE_ANSWERED => qr/answered/,
	NO_WAKE_LEAVER => qr/holder==255/,
	NO_WAKE_BRIEF => qr/holder==255/,
	NO_SERVE => qr/holder==255/,
	NO_GIVE_BACK => qr/holder!=me/,
	BARGING => qr/waiting==0/,
	LAST_FIRST => qr/waiting==0/,
	JOIN_NOT_DUE => qr/holder==255/,
	'STOP NO_LOOK' => qr/invalid end state/,
);
for my $defines (sort keys %found)
{
	my (undef, $what) = verify(split / /, $defines);
	like($what, $found{$defines}, "$defines is found out");
}

done_testing();
