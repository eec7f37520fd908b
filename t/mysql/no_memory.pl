# Memory is short: that is an error of the call, 1105 (53200), and never the end of the
# server (rule 16).  Each allocation of the library's that a call makes fails, one after
# the other: the call is answered correctly, or with this error, and leaves nothing that keeps
# others out.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use Relinked;
use Scenarios;
use Test::More;
use Time::HiRes;
use Wire;

# A call makes fewer allocations, and while it is made there are fewer by others.
use constant {
	MOST => 300,
	FOR_LONG => 100_000,
};

my ($kind) = @ARGV;
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
# the server may be another user's
chmod 0711, $dir;

my %failing = map { $_ => "failing_$_" } qw(malloc calloc realloc);
my $built = BuiltOnce::folder($dir, 'no_memory', sub { Relinked::build($_[0], 'no_memory', \%failing) });
$ENV{DLOCK_LIBRARY} = "$built/dlock.so";
$ENV{DLOCK_NO_MEMORY} = "$dir/plan";
open(my $plan, '+>:raw', $ENV{DLOCK_NO_MEMORY}) or die "could not create $ENV{DLOCK_NO_MEMORY}: $!\n";
chmod 0666, $ENV{DLOCK_NO_MEMORY};
plan_failure(0);

my $engine = Engines::start($kind);
my $pid = $engine->pid;
my %clients = map { $_ => Wire::MySQL->of($engine, 'tester') } qw(a b c);
my $admin = Wire::MySQL->of($engine, 'root');

# Let the nth allocation from now on fail, and some more after it; 0: none.
sub plan_failure
{
	my ($n, $more) = @_;
	sysseek($plan, 0, 0);
	syswrite($plan, pack('q3', $n, 0, $more // 0)) == 24 or die "could not write the plan: $!\n";
	return;
}

sub has_failed
{
	sysseek($plan, 8, 0);
	sysread($plan, my $failed, 8) == 8 or die "could not read the plan: $!\n";
	return unpack('q', $failed);
}

# An answer, as text.
sub outcome
{
	my ($answer) = @_;
	return 'gone' if !defined $answer;
	return "$answer->{number}: $answer->{message}" if defined $answer->{error};
	return join(', ', map { join(' ', map { $_ // 'NULL' } @$_) } @{ $answer->{rows} });
}

my $token = qr/^\d{10,}$/;
# the server says it of a statement that could not be made
my $no_memory = qr/^(1105: (could not use the lock table: .*)?|1123: Can't initialize function '\w+'; )out of memory/;

# What is there before, who then calls, and what the answer is; "waits" are calls that
# wait meanwhile.
my @cases = (
	{ call => q{SELECT dlock_acquire('n', 'a', 600)}, right => $token },
	{ call => q{SELECT dlock_acquire('n', 'a', 600, 0, 'r')}, right => $token },
	{ call => q{SELECT dlock_acquire_session('n', 'a', 600)}, right => $token },
	{ call => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, right => qr/^\[\d+, \d+\]$/ },
	{ call => q{SELECT dlock_acquire_any('["n", "m"]', 'a', 600, 2)}, right => qr/"m"/ },
	{ before => q{SELECT dlock_acquire('n', 'b', 600)}, call => q{SELECT dlock_acquire('n', 'a', 600, 0.02)}, right => qr/^NULL$/ },
	{ before => q{SELECT dlock_acquire('n', 'b', 600)}, call => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600, 0.02)}, right => qr/^NULL$/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'b', 600)}, call => q{SELECT dlock_acquire_any('["n", "m"]', 'a', 600, 1, 0.02)}, right => qr/^\[\]$/ },
	{ before => q{SELECT dlock_acquire('n', 'b', 600)}, call => q{SELECT dlock_wait('n', 0.02)}, right => qr/^0$/ },
	{ before => q{SELECT dlock_acquire('n', 'b', 600), dlock_acquire('m', 'c', 600)},
		waits => q{SELECT dlock_acquire('m', 'b', 600, 600)},
		call => q{SELECT dlock_acquire('n', 'c', 600, 600)}, right => qr/^3058: deadlock detected: owner "c" waits/ },
	{ before => q{SELECT dlock_acquire_all('["n", "k"]', 'b', 600), dlock_acquire('m', 'c', 600)},
		waits => q{SELECT dlock_acquire('m', 'b', 600, 600)},
		call => q{SELECT dlock_acquire_any('["n", "k"]', 'c', 600, 1, 600)}, right => qr/^3058: deadlock detected: owner "c" waits/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT dlock_holders('n')}, right => qr/"a"/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT dlock_owner('n')}, right => qr/^a$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT dlock_remaining('n', 'a') > 0}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire_shared('n', 'a', 600), dlock_acquire_shared('n', 'b', 600)},
		call => q{SELECT dlock_holders('n')}, right => qr/"a".*"b"/ },
	{ before => q{SELECT dlock_acquire_shared('n', 'b', 600)}, call => q{SELECT dlock_acquire('n', 'a', 600)}, right => qr/^NULL$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600), dlock_acquire('n', 'a', 600), dlock_acquire('n', 'a', 600)},
		call => q{SELECT dlock_release('n', 'a') + dlock_release('n', 'a')}, right => qr/^2$/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, call => q{SELECT dlock_renew_many('["n", "m"]', 'a', 600, '[null, null]')}, right => qr/"m"/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, call => q{SELECT dlock_renew('n', 'a', 600)}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT count(*) FROM dlock.locks}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire('n', 'b', 600)}, waits => q{SELECT dlock_acquire('n', 'c', 600, 600)},
		call => q{SELECT name FROM dlock.waiters}, right => qr/^n$/ },
	{ call => q{SELECT acquired > 0 FROM dlock.stats}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600, 0, 'q')}, call => q{SELECT dlock_acquire('n', 'a', 600, 0, 'r')}, right => $token },
	{ before => q{SELECT dlock_acquire_shared('n', 'b', 600), dlock_acquire_shared('n', 'c', 600)},
		call => q{SELECT dlock_acquire_shared('n', 'a', 600)}, right => $token },
	{ before => q{SELECT dlock_acquire_shared('n', 'b', 600), dlock_acquire_shared('n', 'c', 600)},
		call => q{SELECT dlock_release('n', 'c')}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT dlock_release('n', 'a')}, right => qr/^1$/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, call => q{SELECT dlock_release_many('["n", "m"]', 'a')}, right => qr/"m"/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, call => q{SELECT dlock_renew_all('a', 600)}, right => qr/^2$/ },
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)}, call => q{SELECT dlock_release_all('a')}, right => qr/^2$/ },
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, call => q{SELECT dlock_downgrade('n', 'a')}, right => qr/^1$/ },
	# a look at the tables, a take-over, a checkpoint
	{ before => q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600), dlock_renew_all('a', 600)}, admin => 1,
		call => q{SELECT dlock_reload()}, right => qr/^1$/ },
	# it has its row written first
	{ before => q{SELECT dlock_acquire('n', 'a', 600)}, begins => 1,
		call => q{CALL dlock.guard('n', 'a', dlock_acquire('n', 'a', 600))}, right => qr/^$/ },
);

# Nothing is held, and nobody waits.
sub clean_up
{
	my ($wrong) = @_;
	plan_failure(0);
	$clients{b}->answer if delete $clients{b}{waits};
	for my $name (qw(n m k))
	{
		my $answer = $admin->query("SELECT dlock_force_release('$name')");
		die outcome($answer) if !defined $answer || defined $answer->{error};
	}
	# for a second after that a view may not know which releases were written
	Scenarios::Run::until(sub { outcome($admin->query('SELECT count(*) FROM dlock.locks')) eq '0' })
	  or push @$wrong, 'the tables have what the library has not';
	return;
}

my ($failures, $undecided_before) = (0, 0);
for my $case (@cases)
{
	my ($n, $failed, @wrong) = (0, 1);
	my %outcomes;

	while ($failed && $n++ < MOST && !@wrong)
	{
		$clients{c}->value($case->{before}) if $case->{before};
		if ($case->{waits})
		{
			$clients{b}->send($case->{waits});
			Scenarios::Run::until(sub { $admin->value('SELECT waiters FROM dlock.stats') == 1 })
			  or die "does not come to wait: $case->{waits}\n";
		}
		my $client = $case->{admin} ? $admin : $clients{a};
		$client->query('BEGIN') if $case->{begins};
		plan_failure($n);
		my $is = outcome($client->query($case->{call}));
		# the machine was too busy to decide in so short a time
		my $undecided = $is =~ /could not decide on the lease in its time/;
		$failed = has_failed();
		plan_failure(0);
		$client->query('ROLLBACK') if $case->{begins};
		$failures += $failed;
		push @wrong, "allocation $n: $is" if !$undecided && $is !~ $case->{right} && !($failed && $is =~ $no_memory);
		$outcomes{ $is =~ $no_memory ? 'out of memory' : 'right' }++;
		last if $is eq 'gone';
		if ($case->{waits})
		{
			plan_failure(0);
			$admin->value("SELECT dlock_force_release('$_')") for qw(n m k);
			my $answer = outcome($clients{b}->answer);
			push @wrong, "allocation $n: who waits is answered $answer" if $answer !~ $token;
		}
		clean_up(\@wrong);
		$n--, $failed = 1 if $undecided && !@wrong && $undecided_before++ < 1000;
	}
	push @wrong, 'it fails again and again' if $failed && !@wrong;
	is(join("\n", @wrong), '', "$case->{call}: " . join(', ', map { "$_ $outcomes{$_}" } sort keys %outcomes));
	BAIL_OUT('the server is gone') if $wrong[0] && $wrong[0] =~ /gone$/;
}
cmp_ok($failures, '>', 2 * @cases, 'many allocations have failed');

# Memory stays short: a call is answered all the same, and not made again until there is some.
# What the library does by itself afterwards, it tries after pauses.
{
	my ($n, $failed, @wrong) = (0, 1);
	while ($failed && $n++ < MOST && !@wrong)
	{
		$clients{c}->value(q{SELECT dlock_acquire_all('["n", "m"]', 'a', 600)});
		plan_failure($n, FOR_LONG);
		my $is = outcome($clients{a}->query(q{SELECT dlock_release_many('["n", "m"]', 'a')}));
		Time::HiRes::sleep(0.2);
		$failed = has_failed();
		push @wrong, "allocation $n: $is" if $is !~ $no_memory && $is !~ /"m"/;
		push @wrong, "allocation $n: $failed failures" if $failed >= FOR_LONG;
		clean_up(\@wrong);
	}
	is(join("\n", @wrong), '', 'memory stays short');
	cmp_ok($n, '>', 3, 'from one of several allocations on');
}
is($engine->pid, $pid, 'the server is the same');
is($admin->value('SELECT waiters FROM dlock.stats'), 0, 'nobody waits');
is($admin->value('SELECT count(*) FROM dlock.locks'), 0, 'nothing is held');

$_->close for values %clients, $admin;
$engine->stop;
done_testing();
