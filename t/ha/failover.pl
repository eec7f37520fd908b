# failover.pl KIND: three servers that a failover manager looks after, HAProxy in front,
# dlock on top; the machine of the primary is lost, in several ways, and what programs and
# clients were told is checked.  dev/demo-ha starts it, in namespaces, for each KIND:
# postgres, mariadb, mysql.
#
# Through the HAProxy of their own machine,
#
#   - clients of t/torture/load.c do what they like; History.pm checks all they were told;
#   - "dlock run" runs a COMMAND again and again, from three clients;
#   - "dlock elect" runs one on each of the three machines where the servers are;
#   - "dlock acquire" takes a new name all the time, to see when there are grants; and
#     "dlock ls" looks for those of before on each new primary.
#
# Both COMMANDs write their token and the time into a file, every few milliseconds: these
# are histories, too, and so is the last.  With TORTURE_MINUTES the primary is lost again and again, in random
# ways, for so long; TORTURE_SEED repeats the choices.  HA_BROKEN=1 leaves out what makes
# it safe, and is to fail.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..", "$FindBin::RealBin/../cli";
use Test::More;
use Files;
use File::Temp qw(tempdir);
use History;
use JSON::PP qw(decode_json);
use Machines;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep);
use Torture;
use WriterOfTokens;

my ($kind) = @ARGV;
my %class = (postgres => 'Patroni', mariadb => 'GaleraMachines', mysql => 'GroupMachines');
my $class = $class{$kind // ''} // die "usage: $0 postgres|mariadb|mysql\n";
require "$class.pm";

my $dlock = $ENV{DLOCK_COMMAND} // die "DLOCK_COMMAND is to name the command dlock\n";
my $work = tempdir('haXXXXXX', TMPDIR => 1, CLEANUP => 1);
my %ttl = (leader => 30, job => 10, probe => 60);
$| = 1;

sub told
{
	my ($format, @values) = @_;
	printf "-- $format\n", @values;
	return;
}

my @machines;

# What a failure leaves to be looked at.
END
{
	my $status = $?;
	for my $machine (@machines)
	{
		eval { $machine->kill_all(sub { $machine->processes }); 1 } or warn $@;
	}
	if (defined $work && $ENV{TESTLOGDIR} && ($status || !Test::More->builder->is_passing))
	{
		system("cd $work && mkdir -p $ENV{TESTLOGDIR}/$kind && cp -r --parents */log leader job probe *.log $ENV{TESTLOGDIR}/$kind 2>/dev/null");
	}
	$? = $status;
}

# ----------------------------------------------------------------
# The machines
# ----------------------------------------------------------------

told('%s: three machines, %s, HAProxy in front.', $kind, $class->manager);
Machines::begin($work);
my $cluster = $class->new(broken => $ENV{HA_BROKEN});
$cluster->install($work);
@machines = map { Machines->new($_) } qw(one two three);
$cluster->set_up(@machines);
my %by_name = map { $_->name => $_ } @machines;

# the clients' own HAProxy
background('haproxy', sub {
	exec 'setpriv', '--inh-caps=-all', '--ambient-caps=-all', 'haproxy', '-db', '-f', $cluster->haproxy;
});

my ($torture, $well_at);
my $ended = 0;

# Wait until all is as it should be.  A server that has ended by itself is started again,
# as the system's service manager does it.
sub wait_until_well
{
	Machines::until_true('all servers are well', sub {
		for my $machine (grep { $_->has_ended($cluster->service) } @machines)
		{
			told('the server on %s has ended by itself, and is started again.', $machine->name);
			$ended++;
			my $start = sub { $cluster->start_server($machine); return 1 };
			$torture ? $torture->disturb('ended by itself', $start, since => $well_at) : $start->();
		}
		return $cluster->is_well;
	}, 300);
	$well_at = Torture::now();
	return;
}
wait_until_well();
told('the primary is on machine %s.', $cluster->primary->name);

# HAProxy takes each server for well until a check has failed, and programs that begin
# before may reach a secondary.
Machines::until_true('HAProxy knows the primary', sub {
	my %is = map { /Server \w+\/(\w+) is (UP|DOWN)/ ? ($1 => $2) : () } lines_of("$work/haproxy.log");
	return @machines - $cluster->good_servers == grep { $_ eq 'DOWN' } values %is;
}, 300);

# ----------------------------------------------------------------
# Programs
# ----------------------------------------------------------------

# A process of ours, with a log.
sub background
{
	my ($name, $what) = @_;
	my $pid = fork() // die "fork: $!\n";
	return $pid if $pid;
	open(STDIN, '<', '/dev/null') or POSIX::_exit(126);
	open(STDOUT, '>>', "$work/$name.log") or POSIX::_exit(126);
	open(STDERR, '>&', \*STDOUT) or POSIX::_exit(126);
	eval { $what->(); 1 } or print STDERR $@;
	POSIX::_exit(0);
}

sub is_over { return -e "$work/over" }

my @options = ('--url', $cluster->url);

# An elector on a machine.
sub stand_for_election
{
	my ($machine) = @_;
	$machine->start('elect', $dlock, 'elect', @options, '--ttl', $ttl{leader}, '--grace', 1, 'leader', '--', writer("$work/leader"));
	return;
}

# Which machine's elector has said that it leads with the newest token there is.
sub leader
{
	my %last;
	for my $machine (@machines)
	{
		my @tokens = slurp("$machine->{dir}/log/elect") =~ /leader of "leader", token (\d+)$/mg;
		$last{ $machine->name } = $tokens[-1] // 0;
	}
	my ($name) = sort { $last{$b} <=> $last{$a} } keys %last;
	return $last{$name} && $by_name{$name};
}

# Have a machine lead, or have it not lead.
sub settle_leader
{
	my ($machine, $leads) = @_;
	return if (leader()->name eq $machine->name) == $leads;
	my @others = $leads ? grep { $_->name ne $machine->name } @machines : $machine;
	# an orderly end, which leaves the lease to those who wait
	for my $other (@others)
	{
		kill 'TERM', $other->{pids}{elect};
		waitpid($other->{pids}{elect}, 0);
	}
	Machines::until_true('there is another leader', sub { (leader()->name eq $machine->name) == $leads });
	stand_for_election($_) for @others;
	return;
}

sub run_jobs
{
	my ($number) = @_;
	return background("run-$number", sub {
		until (is_over())
		{
			system($dlock, 'run', @options, '--ttl', $ttl{job}, '--wait', 20, 'job', '--', writer("$work/job", 0.3));
			# there is no server
			sleep 0.2 if $? != 0;
		}
	});
}

# Take a new name, again and again: lines "start end name token", or "?" and the status of
# one that was not answered.
sub probe
{
	return background('probe', sub {
		open(my $file, '>>', "$work/probe") or die "probe: $!\n";
		$file->autoflush(1);
		for (my $n = 1; !is_over(); $n++)
		{
			my $start = boot_time();
			open(my $acquire, '-|', $dlock, 'acquire', @options, '--ttl', $ttl{probe}, '--timeout', 3, '--owner', 'probe', "probe-$n")
			  or die "dlock: $!\n";
			my $token = <$acquire> // '';
			close($acquire) ? chomp $token : ($token = '?' . ($? >> 8));
			printf {$file} "%.6f %.6f probe-%d %s\n", $start, boot_time(), $n, $token;
			sleep 0.05;
		}
	});
}

my $probed = qr/^(\S+) (\S+) (\S+) (\d+)$/;
my @seen;      # the leases of such names that there were, as History.pm has them

# Look for all of them.
sub look
{
	my $start = boot_time();
	open(my $ls, '-|', $dlock, 'ls', @options, '--json', 'probe-*') or die "dlock: $!\n";
	local $/;
	my $text = <$ls>;
	close($ls) or return 0;
	my @rows = map { "$_->{name} $_->{owner} $_->{mode} $_->{token} " . ($_->{remaining} > 0 ? 'live' : 'over') } @{ decode_json($text) };
	push @seen, join("\t", 'L', int(1e6 * $start), int(1e6 * boot_time()), 0, @rows);
	return 1;
}

# The longest time without a line in a file, from one time on; the expression finds the
# time in a line.
sub longest_gap
{
	my ($path, $from, $expression) = @_;
	my ($gap, $before) = (0);
	for my $time (map { $_ =~ $expression ? $1 : () } lines_of($path))
	{
		$gap = $time - $before if defined $before && $time >= $from && $time - $before > $gap;
		$before = $time;
	}
	return $gap;
}

# ----------------------------------------------------------------
# What happens to the primary
# ----------------------------------------------------------------

my %events = (
	'server killed' => {
		does => sub { $cluster->kill_server($_[0]) },
		ends => sub { $cluster->start_server($_[0]) },
	},
	'machine lost' => {
		does => sub { $_[0]->crash },
		ends => sub {
			my ($machine) = @_;
			$machine->boot;
			$cluster->start_services($machine);
			stand_for_election($machine);
		},
	},
	'machine cut off' => {
		does => sub { $_[0]->cut_off },
		ends => sub {
			my ($machine) = @_;
			$machine->connect_again;
			$cluster->rejoin($machine);
		},
	});
my (%gaps, %leader_gaps);

sub happens
{
	my ($torture, $what, $with_leader) = @_;
	wait_until_well();
	my $victim = $cluster->primary // die "there is no primary\n";
	settle_leader($victim, $with_leader);
	$torture->let_work(5);
	my ($old_leader, $from) = (leader()->name, boot_time());
	my ($token) = ((lines_of("$work/leader"))[-1] // '') =~ /^(\d+)/;
	my $after;
	told('%s: that of the primary, %s%s.', $what, $victim->name, $with_leader ? ', where the leader is, too' : '');
	$torture->disturb($what, sub {
		$events{$what}{does}->($victim);
		my $done = boot_time();
		# grants of after that: an answer may have been on its way
		Machines::until_true('somebody grants again', sub {
			((grep { $_ =~ $probed } lines_of("$work/probe"))[-1] // '') =~ $probed && $1 > $done + 1;
		});
		Machines::until_true('leases can be looked at', \&look);
		Machines::until_true('there is a primary', sub { $after = $cluster->primary });
		# a leader that is lost, or cut off, is replaced when its lease is over
		my $is_replaced = $with_leader && $what ne 'server killed';
		Machines::until_true('somebody leads', sub {
			((lines_of("$work/leader"))[-1] // '') =~ /^(\d+) (\S+)/ && $2 > $done + 1 && (!$is_replaced || $1 > $token);
		});
		return 1;
	});
	my $gap = longest_gap("$work/probe", $from, qr/^\S+ (\S+) \S+ \d+$/);
	told('%.1f s without a grant; the primary is on %s.', $gap, $after->name);
	push @{ $gaps{$what} }, $gap;
	my $is_there = "$what, leader " . ($with_leader ? 'there, too' : 'elsewhere');
	my $end = sub {
		$events{$what}{ends}->($victim);
		# what is broken may not heal
		wait_until_well() unless $ENV{HA_BROKEN};
		return 1;
	};
	# that ends connections, and is another server for all
	if ($cluster->moves_back) { $torture->disturb('move back', $end) }
	else { $end->() }
	my $leader_gap = longest_gap("$work/leader", $from, qr/^\d+ (\S+)/);
	push @{ $leader_gaps{$is_there} }, $leader_gap;
	told('%.1f s without a leader; %s.', $leader_gap,
		leader()->name eq $old_leader ? "it is $old_leader still" : "$old_leader led, " . leader()->name . ' leads');
	return;
}

# ----------------------------------------------------------------
# What COMMANDs have written
# ----------------------------------------------------------------

# Some of what is wrong, to be printed.
sub first_of
{
	my (@wrong) = @_;
	my $more = @wrong - 5;
	return join("\n", $more > 1 ? (@wrong[ 0 .. 4 ], "and $more more") : @wrong);
}

# A COMMAND held its lease from its first to its last line, and nobody else did.
sub check_commands
{
	my ($name, $at_least) = @_;
	my (%first, %last, @order, @odd, @down);
	for my $line (lines_of("$work/$name"))
	{
		my ($token, $time) = $line =~ /^(\d+) ([\d.]+) \d+$/;
		if (!defined $token) { push @odd, $line; next }
		$first{$token} //= $time;
		$last{$token} = $time;
		push @down, "$token after $order[-1] at $time" if @order && $token < $order[-1];
		push @order, $token if !@order || $token != $order[-1];
	}
	is(first_of(@odd), '', "$name: no COMMAND lives beside the next");
	is(first_of(@down), '', "$name: tokens never go down");
	my $history = History->new;
	for my $token (keys %first)
	{
		my ($start, $end) = map { int($_ * 1e6) } $first{$token}, $last{$token};
		$history->add(join("\t", 'C', $start, $start, $token, 'acquire', $name, "command $token", 'x', 0, $end - $start, 0, '-', '-', $token, 1));
	}
	is(first_of($history->check), '', "$name: nothing is wrong with the history of " . keys(%first) . ' COMMANDs');
	cmp_ok(scalar(keys %first), '>=', $at_least, "$name: which were at least $at_least");
	return;
}

# What "dlock acquire" was told, and what was there after each take-over.
sub check_probes
{
	my $history = History->new(owners => qr/^probe$/);
	for my $line (lines_of("$work/probe"))
	{
		my ($start, $end, $name, $answer) = split / /, $line;
		$history->add(join("\t", 'C', int(1e6 * $start), int(1e6 * $end) + 1, 0, 'acquire', $name, 'probe', 'x', 0, 1e6 * $ttl{probe}, 0, '-', '-', $answer, 1));
	}
	$history->add(@seen);
	my @wrong = $history->check;
	my $figures = $history->figures;
	is(first_of(@wrong), '', "nothing is wrong with $figures->{grants} grants for a minute, looked for after each take-over");
	cmp_ok($figures->{rows}, '>=', scalar(@seen), "$figures->{rows} times one was found");
	return;
}

# ----------------------------------------------------------------

$torture = Torture->new(
	kind => $kind, connection => $cluster->connection, clients => 8, names => 6, allowed => $cluster->errors);
stand_for_election($_) for @machines;
my @loops = (map({ run_jobs($_) } 1 .. 3), probe());
Machines::until_true('there is a leader', sub { leader() && -s "$work/leader" });
Machines::until_true('there are grants', sub { -s "$work/probe" && -s "$work/job" });

my $with_leader = 0;
if ($ENV{TORTURE_MINUTES})
{
	$torture->rounds(undef, sub {
		for (1 .. 4)
		{
			my $with = int rand 2;
			$with_leader += $with;
			happens($torture, $torture->pick('server killed' => 1, 'machine lost' => 2, 'machine cut off' => 2), $with);
		}
	});
}
elsif ($ENV{HA_BROKEN})
{
	$torture->rounds(1, sub { happens($torture, 'machine cut off', 1) });
}
else
{
	$torture->rounds(1, sub {
		happens($torture, 'server killed', 0);
		happens($torture, 'machine lost', 0);
		happens($torture, 'machine lost', 1);
		happens($torture, 'machine cut off', 1);
		$with_leader += 2;
	});
}

told('%d times a server has ended by itself.', $ended) if $ended;
told('The end: all programs are told to stop.');
write_text("$work/over", '');
kill 'TERM', map { $_->{pids}{elect} } @machines;
for my $pid (@loops, map { $_->{pids}{elect} } @machines)
{
	Machines::until_true("process $pid ends", sub { waitpid($pid, WNOHANG) != 0 });
}

is(first_of(map { slurp($_) =~ /^.*(?:got signal|terminated by signal (?!9:)).*/mg } glob "$work/*/log/*"), '', 'no server has crashed');
check_probes();
check_commands('leader', 1 + $with_leader);
check_commands('job', 10);
$torture->summary;
for my $figures (\%gaps, \%leader_gaps)
{
	my $what = $figures == \%gaps ? 'without a grant' : 'without a leader';
	for my $event (sort keys %$figures)
	{
		my @sorted = sort { $a <=> $b } @{ $figures->{$event} };
		told('%s: %s s %s%s', $event, @sorted > 1 ? sprintf('%.1f to %.1f', @sorted[ 0, -1 ]) : sprintf('%.1f', $sorted[0]), $what,
			@sorted > 2 ? sprintf(', median %.1f, of %d', $sorted[ @sorted / 2 ], scalar @sorted) : '');
	}
}
done_testing();
