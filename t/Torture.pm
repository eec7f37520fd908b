# Torture.pm: clients at work (torture/load.c) while something terrible happens to the
# server, and a check of their answers (History.pm).
#
#   my $torture = Torture->new(
#       kind => 'postgres', connection => ..., clients => 16, names => 4,
#       allowed => qr/^57014$/);              errors that clients may meet
#   $torture->rounds(2, sub {                 or for TORTURE_MINUTES
#       for (1 .. 4)
#       {
#           $torture->let_work(0.5);          for up to so many seconds
#           $torture->disturb('server', sub { ...kill it, and start it again... });
#       }
#   });
#   $torture->summary;
#
# A kind is postgres, plain (PostgreSQL with plain/dlock.sql), mysql or mariadb.
#
# With undecided => 3572 that error is allowed too, for acquires whose time to wait was
# up, and for other calls after lock_timeout.  With disturbed => 0 nothing is done to the
# server.  With examine => sub { ... } that runs when clients do not end, before they are
# killed.
#
# A round is a run of the clients, and a test.  TORTURE_SEED repeats the choices
# of a run, as far as scheduling allows, and TORTURE_MINUTES says how long it
# takes.  The history of a round that fails is kept beside the logs.

package Torture;

use strict;
use warnings;

use BuiltOnce;
use Files;
use File::Temp qw(tempdir);
use History;
use POSIX qw(WNOHANG);
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my %all = (rounds => 0);
my %disturbed;

# Counters of History.pm for what only PostgreSQL has: leases of transactions, and those that
# are given back with effect later.
my @postgres_only = qw(bound left);

# And those for what plain/dlock.sql does not have: a line, claims, and downgrades.
my @not_plain = qw(ordered claimed downgraded bound);

sub new
{
	my ($class, %params) = @_;
	my $self = bless {
		clients => 32,
		names => 12,
		lossy => 0,
		disturbed => 1,
		dir => tempdir('toXXXXXX', TMPDIR => 1, CLEANUP => 1),
		seed => $ENV{TORTURE_SEED} // 1 + int rand 2**30,
		largest => {},
		%params }, $class;

	# any seed will do for the clients, but each round needs another
	$self->{until} = now() + 60e6 * $ENV{TORTURE_MINUTES} if $ENV{TORTURE_MINUTES};
	note("TORTURE_SEED=$self->{seed}");
	srand($self->{seed});

	$self->{load} = build_load($self->{dir}, $self->{kind});
	return $self;
}

# Build the clients for a kind of server, once in a run, or in a folder; returns their
# program.  With few => 1 they do not call functions for many names, permits or holds.
sub build_load
{
	my ($dir, $kind, %params) = @_;
	# any libpq works; the private copy of PostgreSQL under test has none
	my $postgres = '-DPOSTGRES -I$(/usr/bin/pg_config --includedir) -lpq';
	my ($folder, $flags) = $kind eq 'postgres' ? ('load_postgres', $postgres)
	  : $kind eq 'plain' ? ('load_plain', "-DPLAIN_SQL $postgres")
	  : ('load_mysql', '$(mariadb_config --include --libs)');
	($folder, $flags) = ("${folder}_few", "-DHAS_MANY=false $flags") if $params{few};
	my $built = BuiltOnce::folder($dir, $folder, sub {
		system("cc -O2 -Wall -Wextra -Werror -pthread -o $_[0]/load t/torture/load.c $flags") == 0
		  or die "could not build load.c\n";
	});
	return "$built/load";
}

# Start clients, with the arguments of load.c, the last a folder that this makes; returns
# the process.
sub start_load
{
	my ($program, @arguments) = @_;
	my $folder = $arguments[-1];

	mkdir $folder or die "could not create $folder: $!\n";
	my $pid = fork // die "could not fork: $!\n";
	return $pid if $pid;
	open(STDOUT, '>', "$folder/load.out") && open(STDERR, '>&', \*STDOUT)
	  and exec $program, @arguments;
	POSIX::_exit(127);
}

# Tell clients to stop, and wait for so many seconds: they may have to wait for the last
# leases to expire.  Returns whether they have ended, and what was wrong, if anything.
# Before this kills clients that have not, "examine" finds out what they wait for.
sub end_load
{
	my ($pid, $folder, $seconds, $examine) = @_;
	my $ended = 0;

	kill 'TERM', $pid;
	for (1 .. 10 * $seconds)
	{
		last if ($ended = waitpid($pid, WNOHANG) == $pid);
		usleep(100_000);
	}
	my $status = $?;
	if (!$ended)
	{
		$examine->() if $examine;
		kill 'KILL', $pid;
		waitpid($pid, 0);
		return (0, 'the clients do not come to an end: somebody was forgotten');
	}
	return 1 if $status == 0;
	# the server's notices are there too
	return (1, 'the clients: ' . join(' ', slurp("$folder/load.out") =~ /^load: .*/mg, "ended with status $status"));
}

# Microseconds, as the clients have them.
sub now
{
	return int(1e6 * clock_gettime(CLOCK_MONOTONIC));
}

# Run rounds until the time is up, or so many; or, if no time is set, until the function
# called after each round, when its clients are gone, says that they are enough.  Without
# a set time some more follow if a kind of check had nothing to check yet: on a slow
# machine a round is a few hundred calls, and some kinds of call are rare.
sub rounds
{
	my ($self, $count, $round, $are_enough) = @_;
	my $done = 0;

	while ($self->{until} ? now() < $self->{until} : $done < $count || ($self->_unproven && $done < $count + 10))
	{
		last if !$self->_round($round);
		$done++;
		last if $are_enough && $are_enough->() && !$self->{until} && !$self->_unproven;
	}
	return;
}

sub _is_postgres { return $_[0]{kind} =~ /^(postgres|plain)$/ }

# The checks for which no round had anything to check: these prove nothing.
sub _unproven
{
	my ($self) = @_;
	my %is_absent = map { $_ => 1 } $self->{kind} eq 'plain' ? @not_plain : ();
	return grep { !$self->{checked}{$_} && !$is_absent{$_} }
	  qw(grants renewed guards compared ordered rows claimed replayed several downgraded), $self->_is_postgres ? @postgres_only : (), ('kills') x $self->{disturbed};
}

# The lines of a history that must not have this error: only an acquire whose time was up
# may, or another call that could not be made for as long as lock_timeout is if nobody sets
# it.
sub too_early
{
	my ($error, $path) = @_;
	return grep {
		my (undef, $start, $end, undef, $op, undef, undef, undef, undef, undef, $wait) = split /\t/;
		my $acquires = $op =~ /^(acquire|all|any|session)$/;
		$acquires && $wait < 0 || $end - $start < ($acquires ? $wait : 5e6);
	} grep { /^C\t/ && /\t\?$error\t/ } split /\n/, slurp($path);
}

sub _round
{
	my ($self, $round) = @_;
	my $dir = "$self->{dir}/" . $self->{seed};
	my $seed = $self->{seed}++;

	$self->{lines} = [ map { "F\t$_\t$self->{largest}{$_}" } keys %{ $self->{largest} } ];
	my $pid = start_load(@$self{qw(load connection clients names)}, $seed, $dir);
	my $died = eval { $round->($self); 1 } ? '' : $@;
	my ($ended, $fault) = end_load($pid, $dir, 180, $self->{examine});
	$died ||= $fault if !$ended;
	die $died if $died;

	my $history = History->new(lossy => $self->{lossy}, deferred => !$self->_is_postgres, owners => qr/^s$seed\./);
	$history->add(@{ $self->{lines} });
	$history->add_file($_) for glob "$dir/history.*";
	my @wrong = $history->check;
	push @wrong, $fault if defined $fault;
	my $undecided = $self->{undecided};
	push @wrong, "error $_" for grep { $_ !~ $self->{allowed} && !(defined $undecided && $_ eq $undecided) } sort keys %{ $history->errors };
	push @wrong, map { "error $undecided too early: $_" } map { too_early($undecided, $_) } glob "$dir/history.*"
	  if defined $undecided;
	my $figures = $history->figures;
	my $ok = is(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]),
		'', "round $seed: $figures->{calls} calls, $figures->{grants} grants, $figures->{kills} kills: nothing is wrong");
	$self->{checked}{$_} += $figures->{$_} for keys %$figures;
	$all{rounds}++;
	$all{$_} += $figures->{$_} for keys %$figures;
	$self->{errors}{$_} += $history->errors->{$_} for keys %{ $history->errors };
	$self->{largest} = { %{ $self->{largest} }, %{ $history->largest } };
	if (!$ok && $ENV{TESTLOGDIR})
	{
		open(my $kept, '>', "$ENV{TESTLOGDIR}/history-$self->{kind}-$seed") or die $!;
		print {$kept} map { "$_\n" } @{ $self->{lines} };
		for my $path (glob "$dir/history.*")
		{
			open(my $file, '<', $path) or die $!;
			print {$kept} <$file>;
		}
		close($kept) or die $!;
	}
	unlink glob("$dir/history.*"), "$dir/load.out";
	return $ok;
}

# Let the clients work for a while, at most so many seconds.
sub let_work
{
	my ($self, $seconds) = @_;
	usleep(int rand 1e6 * $seconds);
	return;
}

# Do something to the server, and write down when, if it returns that it was done.  A
# "kill" may undo releases, and ends sessions; the others must not affect leases.
# With "since" it may have happened at any time from then on.
sub disturb
{
	my ($self, $what, $act, %params) = @_;
	my $start = $params{since} // now();

	$act->() or return;
	push @{ $self->{lines} }, join("\t", $params{kills} // 1 ? 'K' : 'X', $start, now(), $what);
	$disturbed{$what}++;
	return;
}

# Pick one of several, by weight: pick(a => 1, b => 3).
sub pick
{
	my ($self, %chances) = @_;
	my $sum = 0;
	$sum += $_ for values %chances;
	my $dice = rand $sum;
	for my $what (sort keys %chances)
	{
		return $what if ($dice -= $chances{$what}) < 0;
	}
	return (sort keys %chances)[0];
}

# The figures of all rounds, and the errors that clients got.
sub summary
{
	my ($self) = @_;
	is(join(' ', $self->_unproven), '', 'there was something to check of everything');
	my $errors = join(', ', map { "$_ $self->{errors}{$_} times" } sort keys %{ $self->{errors} });
	my $text = join("\n",
		"$self->{kind}: $all{rounds} rounds, $all{calls} calls, $all{unknown} of them without an answer ($errors)",
		('done to the server: ' . join(', ', map { "$_ $disturbed{$_} times" } sort keys %disturbed)) x $self->{disturbed},
		"$all{grants} grants, $all{refused} refusals, $all{renewed} renewals, $all{guards} guarded transactions",
		"$all{claimed} names claimed and $all{replayed} again, $all{several} grants of several permits, $all{bound} of transactions, $all{downgraded} downgrades, $all{left} given back with effect later",
		"checked: $all{compared} grants against holds before them, $all{ordered} against the order of waiting, $all{rows} rows seen");
	$ENV{TORTURE_MINUTES} ? diag($text) : note($text);
	return;
}

1;
