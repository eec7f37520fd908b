# dlock run: a command that runs while a lease is held, on the kind of server that is the
# argument; see CommandCases.pm.  run_alone.pl shows that the command never runs when
# another may have the lease.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use File::Find qw(find);
use InTime;
use IO::Pty;
use IO::Socket::UNIX;
use POSIX qw(:sys_wait_h);
use Seccomp;
use Test::More;
use Time::HiRes qw(time sleep);

start_server($ARGV[0]);

# Two runs of the same arguments and what they end with.
sub ends_with
{
	my ($wanted, $what, @arguments) = @_;
	my $run = launch(@arguments);
	is(finish($run), $wanted, $what) or diag(errors($run));
	return $run;
}

# The only line that a run has said.
sub says
{
	my ($run, $regex, $what) = @_;
	like(errors($run), qr/\Adlock: $regex\n\z/, $what);
	return;
}

# Commands that are run one after the other, with a lease on the same name.
sub one_by_one
{
	my ($name) = @_;
	my $run;
	ends_with(0, 'a command that succeeds', 'run', $name, '--', 'true');
	$run = ends_with(7, 'one that fails', 'run', $name, 'sh', '-c', 'exit 7');
	is(errors($run), '', 'nothing is said about it');
	ends_with(137, 'one that is killed', 'run', $name, '--', 'sh', '-c', 'kill -KILL $$');
	$run = ends_with(127, 'one that does not exist', 'run', $name, '--', '/no/such');
	says($run, qr/could not run "\/no\/such": No such file.*/, 'which is said');
	$run = ends_with(126, 'one that cannot be run', 'run', $name, '--', '/etc/passwd');
	says($run, qr/could not run "\/etc\/passwd": Permission denied/, 'which is said');
	ok(holds_name($name, 0), 'each has released its lease');
	return;
}

sub statuses
{
	my $run;
	in_time(RELEASED_IN, sub { one_by_one("status $_[0]") });

	my $holder = launch('run', '--ttl', '60', 'busy', '--', 'sleep', '100');
	eventually(sub { holds_name('busy') });
	$run = ends_with(75, 'a name that is not free', 'run', 'busy', '--', 'touch', scratch('ran'));
	says($run, qr/"busy" is not free/, 'is said');
	$run = ends_with(75, 'one that is not free, for cron', 'run', '--quiet', 'busy', 'true');
	is(errors($run), '', 'is not said');
	$run = ends_with(75, 'nor within the wait', 'run', '--wait', '0.3', 'busy', '--', 'touch', scratch('ran'));
	$run = ends_with(75, 'the last of --wait and --no-wait counts', 'run', '--wait', 'forever', '--no-wait', 'busy', 'true');
	ok(!-e scratch('ran'), 'the command was not run');
	is(query(q{SELECT dlock_force_release('busy')}), 1, 'a lease is forced open');
	is(finish($holder), 70, 'and lost');
	says($holder, qr/lost the lease on "busy": .*/, 'which is said');

	$run = launch({ no_url => 1 }, 'run', '--url', 'host=/no/such dbname=x', 'x', '--', 'true');
	my $other = launch({ no_url => 1 }, 'run', '--timeout', '0.5', '--url', 'mysql://u@localhost/?socket=/no/such', 'x', '--', 'true');
	$run = finish($run) . ' ' . finish($other);
	is($run, '69 69', 'no server');
	says($other, qr/.*/, 'is said');
	my $later = scratch('later');
	mkdir $later or die;
	my $missing = socket_path() =~ s/.*\//$later\//r;
	my $socket = engine()->kind eq 'postgres' ? $later : $missing;
	$run = launch({ url => url() =~ s/(host|socket)=\S+?(?= |$)/$1=$socket/r }, 'run', '--timeout', '1h', 'x', '--', 'true');
	ok(!defined has_ended($run), 'a server that is not there yet');
	symlink socket_path(), $missing or die;
	is(finish($run), 0, 'is waited for');
	$run = ends_with(77, 'an account that may not log in', { url => url(undef, 'nobody_of_that_name') }, 'run', 'x', '--', 'true');
	says($run, qr/.*nobody_of_that_name.*/, 'is said');

	# statuses that a command uses itself
	$run = ends_with(75, 'a status of the command', 'run', '--own-status', 99, 'own', '--', 'sh', '-c', 'exit 75');
	$holder = launch('run', 'own', '--', 'sleep', '100');
	eventually(sub { holds_name('own') });
	$run = ends_with(99, 'and not free', 'run', '-E', 99, 'own', '--', 'true');
	says($run, qr/"own" is not free/, 'are told apart');
	kill 'TERM', $holder->{pid};
	finish($holder);
	$holder = launch('run', '-E99', '--ttl', '15', 'own', '--', 'sleep', '100');
	eventually(sub { holds_name('own') });
	query(q{SELECT dlock_force_release('own')});
	is(finish($holder), 99, 'and lost');
	$run = ends_with(99, 'an account that may not log in', { url => url(undef, 'nobody_of_that_name') }, 'run', '-E99', 'x', '--', 'true');
	$run = ends_with(99, 'a wrong URL', { no_url => 1 }, 'run', '-E99', '--url', 'http://x', 'x', '--', 'true');
	$run = ends_with(127, 'no command is told as a shell does', 'run', '-E', 99, 'own', '--', '/no/such');
	for my $wrong ([qw(--ttl x own true)], [qw(--nonsense own true)], [qw(--all own)], [qw(own)], [])
	{
		$run = ends_with(99, "with its own status: @$wrong", 'run', '-E', 99, @$wrong);
	}
	$run = ends_with(64, "an own status of $_", 'run', '-E', $_, 'own', '--', 'true') for 0, 256, 'x', '9' x 20;

	for my $wrong (
		[qw(run)], [qw(run x)], [qw(run x --)], [qw(run --ttl x x true)], [qw(run --ttl 0 x true)], [qw(run --timeout 0 x true)],
		[qw(run --ttl 5x x true)], [qw(run --ttl 5m5m x true)], [qw(run --ttl -1 x true)], [qw(run --ttl 10 --grace 6 x true)],
		[qw(run --permits 0 x true)], [qw(run --shared --permits 2 x true)],
		[qw(run x --ttl 5 true)], [qw(run --all a b true)], [qw(run --on-lost perhaps x true)],
		[qw(run --nonsense x true)], [qw(run --keep)], [ 'run', '', 'true' ], [ 'run', "caf\xe9", 'true' ], [qw(run --all a a -- true)], [ 'run', '--ttl', '2d', 'x', 'true' ])
	{
		$run = ends_with(64, "misuse: @$wrong", @$wrong);
		says($run, qr/.*/, 'is said');
	}
	for my $ttl (qw(90 1.5 5m 1h30m 2500ms 20s 1m0.5s PT1M), '5 minutes')
	{
		my $status;
		for my $try (1 .. 10)
		{
			$run = launch('run', '--ttl', $ttl, "ttl $ttl $try", 'true');
			$status = finish($run);
			last if !was_late($run);
		}
		is($status, 0, "a TTL of $ttl") or diag(errors($run));
	}
	$run = ends_with(0, 'help', 'run', '--help');
	like(output($run), qr/--on-lost/, 'says what options there are');
	return;
}

# Standard input and output, and which files there are.
sub files
{
	my $run;
	pipe(my $in, my $to_run) or die;
	$run = launch({ in => $in }, 'run', 'cat', '--', 'cat');
	close($in);
	syswrite($to_run, "one\n");
	eventually(sub { output($run) eq "one\n" });
	syswrite($to_run, "two\n" x 100000);
	close($to_run);
	is(finish($run), 0, 'a command that reads standard input, to its end');
	is(output($run), "one\n" . "two\n" x 100000, 'has all of it');

	pipe(my $from_run, my $out) or die;
	$run = launch({ out => $out }, 'run', 'closes', '--', 'sh', '-c', 'echo said; exec >&- 2>&-; sleep 100');
	close($out);
	my $text = do { local $/; <$from_run> };
	is($text, "said\n", 'who reads standard output finds its end when the command has closed it');
	ok($run->{pid} && kill(0, $run->{pid}) && eventually(sub { holds_name('closes') }), 'though that still runs');
	kill 'TERM', $run->{pid};
	finish($run);

	# one that we pass on purpose, and those that we happen to have
	open(my $passed, '<', '/dev/zero') or die;
	my $list = 'for f in /proc/self/fd/*; do readlink $f; done';
	my $is_own = qr{^/proc/\d+/fd$};
	my $count = 'perl -e \'opendir D, "/proc/self/fd"; print join(" ", sort { $a <=> $b } grep { /\d/ && $_ != fileno(D) } readdir D)\'';
	my $keep = sub { require Fcntl; fcntl($passed, Fcntl::F_SETFD(), 0); POSIX::dup2(fileno($passed), 9) };
	$run = launch({ before => $keep }, 'run', 'files', '--', 'sh', '-c', $count);
	finish($run);
	my $with = output($run);
	my $plain = scratch('plain');
	if (fork() == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>', $plain);
		$keep->();
		exec 'sh', '-c', $count or POSIX::_exit(99);
	}
	wait;
	is($with, join('', lines_of($plain)), 'the command has the files that dlock has got, and none of its own');
	like($with, qr/\b9\b/, 'among them one that was passed on purpose');
	return;
}

# Sockets that a service manager has opened go to the command, which finds that they are its own.
sub activated
{
	my $print = 'echo "$LISTEN_PID $LISTEN_FDS $WATCHDOG_PID $$"; readlink /proc/$$/fd/3; sleep 100';
	for my $subcommand (qw(run elect))
	{
		my $path = scratch("listens-$subcommand");
		my $socket = IO::Socket::UNIX->new(Listen => 1, Local => $path) // die "could not listen: $!\n";
		my $set = sub { POSIX::dup2(fileno($socket), 3); %ENV = (%ENV, LISTEN_PID => $$, LISTEN_FDS => 1, WATCHDOG_PID => 1) };
		my $run = launch({ before => $set }, $subcommand, "socket $subcommand", '--', 'sh', '-c', $print);
		eventually(sub { output($run) =~ /\n.*\n/ });
		my ($line, $file) = split /\n/, output($run);
		like($line, qr/\A(\d+) 1 1 \1\z/, "$subcommand: the command is named as the one to listen, by its own process");
		like($file, qr/\Asocket:/, 'and has the socket');
		kill 'TERM', $run->{pid};
		finish($run);
	}
	my $run = launch({ env => { LISTEN_PID => 1, LISTEN_FDS => 1 } }, 'run', 'socket', '--', 'sh', '-c', 'echo $LISTEN_PID');
	is(finish($run), 0, 'sockets of another process');
	is(output($run), "1\n", 'stay that');
	return;
}

sub environment
{
	my $run = launch('run', '--owner', 'me', 'env', '--', 'sh', '-c', 'echo "$DLOCK_NAME $DLOCK_OWNER $DLOCK_TOKEN"; sleep 100');
	eventually(sub { output($run) =~ /\n/ });
	my $token = query(q{SELECT token FROM dlock.locks WHERE name = 'env' AND LIVE});
	is(output($run), "env me $token\n", 'name, owner and token are in the environment');
	kill 'TERM', $run->{pid};
	is(finish($run), 143, 'a signal ends it');
	in_time(RELEASED_IN, sub {
		my @names = map { "$_ $_[0]" } 'all b', 'all a';
		my $all = launch('run', '--all', @names, '--', 'sh', '-c', 'echo "$DLOCK_NAME|$DLOCK_TOKEN"; sleep 100');
		eventually(sub { output($all) =~ /\n/ });
		my @tokens = map { query("SELECT token FROM dlock.locks WHERE name = '$_' AND LIVE") } @names;
		is(output($all), "$names[0],$names[1]|$tokens[0],$tokens[1]\n", '--all: all of them, in order');
		my $other = launch('run', $names[1], '--', 'true');
		is(finish($other), 75, 'each of which is held');
		kill 'TERM', $all->{pid};
		is(finish($all), 143, 'until the end');
		ok(holds_name($names[0], 0) && holds_name($names[1], 0), 'then all are free');
	});
	return;
}

sub signals
{
	my $run = launch('run', 'signals', '--', 'perl', '-e', q{
		$| = 1;
		$SIG{$_} = sub { print "$_[0]\n" } for qw(HUP INT QUIT USR1 USR2 WINCH);
		$SIG{TERM} = sub { print "TERM\n"; exit 5 };
		print "ready\n";
		sleep 100 while 1;
	});
	eventually(sub { output($run) eq "ready\n" });
	my $wanted = "ready\n";
	for my $signal (qw(HUP INT QUIT USR1 USR2 WINCH TERM))
	{
		kill $signal, $run->{pid};
		$wanted .= "$signal\n";
		eventually(sub { output($run) eq $wanted }) or last;
	}
	is(output($run), $wanted, 'signals are passed on');
	is(finish($run), 5, 'the status is that of the command');

	# more stops of the command than a dlock that stands still can be told of
	$run = launch('run', '--ttl', '300', 'stops', '--', $^X, '-e', '$| = 1; print "ready\n"; sleep 100 while 1');
	eventually(sub { output($run) =~ /ready/ });
	my ($stopped) = children(watchdog_of($run));
	freeze($run->{pid});
	for (1 .. 500)
	{
		for my $signal (qw(STOP CONT))
		{
			kill $signal, $stopped;
			select(undef, undef, undef, 0.002);    # for the watchdog to see each
		}
	}
	kill 'TERM', $stopped;
	eventually(sub { state_of($stopped) =~ /^Z?$/ });
	thaw($run->{pid});
	is(finish($run), 143, 'a dlock that stood still while its command was stopped many times learns of its end');

	# those that are ignored from the start
	$run = launch({ before => sub { $SIG{HUP} = 'IGNORE' } }, 'run', 'nohup', '--', 'sh', '-c', 'echo ready; sleep 0.3; echo done');
	eventually(sub { output($run) =~ /ready/ });
	kill 'HUP', $run->{pid};
	is(finish($run), 0, 'nohup: neither is ended');
	is(output($run), "ready\ndone\n", 'by SIGHUP');

	$run = launch({ before => sub { $SIG{CHLD} = 'IGNORE' } }, 'run', 'ignored', '--', 'grep', 'SigIgn', '/proc/self/status');
	is(finish($run), 0, 'SIGCHLD that is ignored from the start: the end is noticed');
	my ($mask) = output($run) =~ /SigIgn:\s*(\w+)/;
	ok($mask && hex(substr($mask, -8)) & 1 << POSIX::SIGCHLD() - 1, 'and the command ignores it too');

	# a pause, where no shell is to make one; of a command that makes no processes: a shell
	# waits in vfork() for one that has been stopped, and is not shown as stopped itself
	$run = launch({ before => sub { POSIX::setsid() } }, 'run', 'paused', '--', $^X, '-e', '$| = 1; print "$$\n"; select(undef, undef, undef, 0.05) while 1');
	eventually(sub { output($run) =~ /\n/ });
	my ($pid) = output($run) =~ /(\d+)/;
	kill 'TSTP', $run->{pid};
	ok(eventually(sub { state_of($pid) eq 'T' }), 'without a terminal, SIGTSTP stops the command');
	kill 'CONT', $run->{pid};
	ok(eventually(sub { state_of($pid) =~ /[RS]/ }), 'and SIGCONT continues it');
	kill 'TERM', $run->{pid};
	is(finish($run), 143, 'to its end');

	# while it waits
	my $holder = launch('run', 'queue', '--', 'sleep', '100');
	eventually(sub { holds_name('queue') });
	$run = launch('run', '--wait', 'forever', 'queue', '--', 'touch', scratch('queued'));
	eventually(sub { waits_for('queue') });
	kill 'TERM', $run->{pid};
	is(finish($run), 143, 'a signal ends the wait');
	ok(eventually(sub { waits_for('queue', 0) }), 'nobody waits any more');
	ok(!-e scratch('queued'), 'and nothing was run');
	kill 'TERM', $holder->{pid};
	finish($holder);
	ok(eventually(sub { holds_name('queue', 0) }), 'nor is anything held');
	return;
}

# Options that say what lease it is to be.
sub leases
{
	my ($run, $status, $others);
	for my $try (1 .. 10)
	{
		$run = launch('run', '--ttl', '4', "long $try", '--', 'sh', '-c', 'echo $DLOCK_TOKEN; sleep 6; echo $DLOCK_TOKEN');
		eventually(sub { output($run) =~ /\n/ || was_late($run) });
		$others = 0;
		until (defined($status = has_ended($run)))
		{
			my $other = launch('run', "long $try", '--', 'true');
			$others++ if finish($other) eq '0' && output($run) =~ /\A\d+\n\z/;
			sleep 0.2;
		}
		last if !was_late($run);
	}
	is($status, 0, 'a command may take longer than the TTL') or diag(errors($run));
	like(output($run), qr/\A(\d+)\n\1\n\z/, 'under the same token');
	is($others, 0, 'nobody else gets the lease meanwhile');

	my @two = map { launch('run', '--permits', '2', 'permits', '--', 'sleep', '100') } 1 .. 2;
	eventually(sub { holds_name('permits', 2) });
	ends_with(75, '--permits 2: the third is refused', 'run', '--permits', '2', 'permits', 'true');
	my $third = launch('run', '--permits', '2', '--wait', '1h', 'permits', '--', 'echo', 'third');
	eventually(sub { waits_for('permits') });
	kill 'TERM', $two[0]{pid};
	is(finish($third), 0, 'one that waits gets the first that comes free');
	is(output($third), "third\n", 'and runs');
	kill 'TERM', $two[1]{pid};
	finish($_) for @two;

	my @shared = map { launch('run', '--shared', 'shared', '--', 'sleep', '100') } 1 .. 2;
	ok(eventually(sub { holds_name('shared', 2) }), '--shared: two at a time');
	ends_with(75, 'but nobody alone', 'run', 'shared', 'true');
	kill 'TERM', map { $_->{pid} } @shared;
	finish($_) for @shared;

	my $gives_back_later = engine()->kind eq 'postgres' || ($ENV{STORE} // '') eq 'log';
	in_time(RELEASED_IN, sub {
		my $name = "keep $_[0]";
		ends_with(3, '--keep: a command that takes no time', 'run', '--keep', '1000', $name, '--', 'sh', '-c', 'exit 3');
		my $left = query("SELECT SECONDS_LEFT FROM dlock.locks WHERE name = '$name' AND LIVE");
		cmp_ok($left, '>', 900, 'leaves its lease for as long as it was asked to');
		cmp_ok($left, '<=', 1000, 'and no longer');
		is(query("SELECT count(*) FROM dlock.locks WHERE name = '$name' AND leaving"), 1, 'given back with effect then')
		  if $gives_back_later;
		ends_with(75, 'so that others are refused', 'run', $name, 'true');
	});
	in_time(RELEASED_IN, sub {
		ends_with(0, '--keep of several names', 'run', '--keep', '1000', '--owner', 'keeper', '--all', "keep a$_[0]", "keep b$_[0]", '--', 'true');
		is(query("SELECT count(*) FROM dlock.locks WHERE name IN ('keep a$_[0]', 'keep b$_[0]') AND SECONDS_LEFT > 900"), 2, 'keeps all of them');
		$run = launch('run', '--owner', 'keeper', "keep a$_[0]", '--', 'true');
		# where it is given back, it is so for its former owner, too
		is(finish($run), $gives_back_later ? 75 : 0, 'of an owner that was named');
	});
	my $grown;
	for my $try (1 .. 5)
	{
		# others' leases may expire meanwhile
		my $before = query('SELECT expired FROM dlock.stats');
		ends_with(0, '--keep for a second', 'run', '--keep', '1', "keep short $try", '--', 'true');
		ok(eventually(sub { query("SELECT count(*) FROM dlock.locks WHERE name = 'keep short $try' AND LIVE") eq '0' }), 'is free at that time');
		last if engine()->kind ne 'postgres';
		# whose row is counted when it is removed
		ok(eventually(sub { query("SELECT count(*) FROM dlock.locks WHERE name = 'keep short $try'") eq '0' }), 'and gone');
		$grown = query('SELECT expired FROM dlock.stats') - $before;
		last if !$grown;
	}
	is($grown, 0, 'and does not count as expired') if engine()->kind eq 'postgres';
	$run = ends_with(0, '--keep that is longer than the server has it', 'run', '--keep', '300d', 'keep long', '--', 'true');
	says($run, qr/could not keep the lease on "keep long": .*/, 'is said to have had no effect');
	return;
}

# What the command leaves behind.
sub leftovers
{
	my $pids = scratch('pids');
	my $run = launch('run', '--grace', '0.5', '--ttl', '300', 'leftovers', '--', 'sh', '-c',
		"(trap '' TERM; sleep 1000; :) & echo \$! >>$pids; sleep 1001 & echo \$! >>$pids; "
		  . "setsid sh -c 'touch $pids.left; exec sleep 1002' & echo \$! >>$pids; until [ -e $pids.left ]; do sleep 0.02; done; exit 4");
	is(finish($run), 4, 'a command that leaves others behind');
	my @pids = lines_of($pids);
	is(scalar(@pids), 3, 'three of them');
	is(state_of($pids[0]) . state_of($pids[1]), '', 'those of its group are gone before the lease is released');
	isnt(state_of($pids[2]), '', 'one that has left its group is not');
	kill 'KILL', $pids[2];

	# another dlock, killed with its watchdog, leaves its cgroup in that of the outer one
	$run = launch('run', '--ttl', '60', '--grace', '0.2', 'outer', '--', dlock(), 'run', '--url', url(), '--grace', '10', 'inner', '--',
		'sh', '-c', "trap '' TERM; echo \$PPID; while :; do sleep 0.05; done");
	eventually(sub { output($run) =~ /\n/ });
	my @mine = (children(watchdog_of($run)), children((output($run) =~ /(\d+)/)[0]));
	is(scalar(@mine), 2, 'one below another');
	is(query(q{SELECT dlock_force_release('outer')}), 1, 'loses its lease');
	is(finish($run), 70, 'and is ended');
	my @cgroups = map { / - cgroup2 / ? (split)[4] : () } lines_of('/proc/self/mountinfo');
	my %folders;
	find({ no_chdir => 1, wanted => sub { $folders{$_} = 1 if -d } }, @cgroups) if @cgroups;
	is(join(' ', grep { my $pid = $_; grep { /dlock-$pid$/ } keys %folders } @mine), '', 'with all cgroups');

	# of two that are started one after the other, the second finds nobody
	in_time(RELEASED_IN, sub {
		my ($try) = @_;
		my $file = scratch("writers-$try");
		my $first = launch('run', '--ttl', '300', '--grace', '0.3', "leaves $try", '--', 'sh', '-c',
			join(' ', map { "'$_'" } writer($file)) . " & until [ -s $file ]; do sleep 0.02; done");
		eventually(sub { -s $file });
		my $next = launch('run', '--wait', 'forever', "leaves $try", '--', writer($file, 0.1));
		is(finish($first) . finish($next), '00', 'a writer that is left behind');
		one_after_the_other($file, 2);
	});
	return;
}

# A lease is given back also where that is easily missed.
sub given_back
{
	# a signal for all processes, as a service manager sends it, comes to dlock when the command
	# has ended because of it
	in_time(RELEASED_IN, sub {
		my $name = "signaled $_[0]";
		my $run = launch('run', $name, '--', 'sleep', '1000');
		eventually(sub { watchdog_of($run) && holds_name($name) && children(watchdog_of($run)) });
		my ($command) = children(watchdog_of($run));
		freeze($run->{pid});
		kill 'TERM', $command;
		eventually(sub { state_of($command) =~ /^Z?$/ });
		sleep(0.5);    # for the watchdog to report it
		kill 'TERM', $run->{pid};
		thaw($run->{pid});
		is(finish($run), 143, 'a signal that comes with the end of the command');
		ok(holds_name($name, 0), 'keeps nobody from giving the lease back');
	});

	# the grant is lost on its way
	my ($port, $network) = proxy();
	my $began;
	in_time(sub { time - $began < 4 }, sub {
		my $name = "unanswered $_[0]";
		my $holder = launch('run', $name, '--', 'sleep', '1000');
		eventually(sub { holds_name($name) });
		$network->('pass');
		$began = time;
		my $run = launch({ url => url($port) }, 'run', '--wait', '5', '--timeout', '5', $name, '--', 'true');
		eventually(sub { waits_for($name) || defined has_ended($run) });
		return fail('it waits') if defined has_ended($run);
		$network->('swallow');
		kill 'TERM', $holder->{pid};
		is(finish($holder), 143, 'a holder ends');
		ok(holds_name($name), 'and the waiter is granted the lease');
		$network->('swallowed') unless defined has_ended($run);
		$network->('pass');
		is(finish($run), 69, 'but is not told');
		ok(holds_name($name, 0), 'and gives it back');
	});
	return;
}

# How it is ended.
sub endings
{
	# time enough to say so
	my $run = launch('run', '--ttl', '60', '--grace', '14', 'graceful', '--', 'sh', '-c', "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
	eventually(sub { output($run) =~ /ready/ });
	is(query(q{SELECT dlock_force_release('graceful')}), 1, 'a lease is lost');
	is(finish($run), 70, 'the command is ended');
	is(output($run), "ready\nbye\n", 'with SIGTERM');

	# on a machine that stands still it may hear the first signal when the second one comes
	my ($status, $term, $last);
	for my $try (1 .. 10)
	{
		$run = launch('run', '--ttl', '6', '--grace', '1.5', "stubborn $try", '--', 'perl', '-e', q{$SIG{TERM} = sub { syswrite STDOUT, "term " . Time::HiRes::clock_gettime(7) . "\n" }; use Time::HiRes; syswrite STDOUT, "ready\n"; while (1) { syswrite STDOUT, Time::HiRes::clock_gettime(7) . "\n"; Time::HiRes::sleep 0.05 }});
		eventually(sub { output($run) =~ /ready/ || was_late($run) });
		query("SELECT dlock_force_release('stubborn $try')");
		$status = finish($run);
		($term) = output($run) =~ /term ([\d.]+)/;
		($last) = output($run) =~ /([\d.]+)\n\z/;
		last if $status ne 70 || (defined $term && $last - $term > 1);
	}
	is($status, 70, 'another one is ended, too');
	ok(defined $term, 'with SIGTERM') or return;
	cmp_ok($last - $term, '>', 1, 'and only after the grace with SIGKILL');

	# a group that has been stopped hears it, too
	$run = launch('run', '--ttl', '60', '--grace', '14', 'frozen', '--', 'sh', '-c', "trap 'echo bye; exit 0' TERM; echo \$\$; while :; do sleep 0.05; done");
	my ($pid) = eventually(sub { output($run) =~ /(\d+)/ }) ? output($run) =~ /(\d+)/ : ();
	freeze($pid);
	query(q{SELECT dlock_force_release('frozen')});
	is(finish($run), 70, 'one that is stopped');
	like(output($run), qr/bye/, 'goes on to end in order');

	# what is noticed only when it is given back
	my $at_the_end = sub {
		my ($name, $sql, @options) = @_;
		my $go = scratch($name);
		my $ended = launch('run', '--ttl', '300', @options, $name, '--', 'sh', '-c', "echo ready; until [ -e $go ]; do sleep 0.05; done; exit 6");
		eventually(sub { output($ended) =~ /ready/ });
		is(query($sql), 1, 'a lease is lost') if $sql;
		write_text($go, '');
		return $ended;
	};
	$run = $at_the_end->('evicted', q{SELECT dlock_force_release('evicted')});
	is(finish($run), 70, 'just before the command ends');
	says($run, qr/lost the lease on "evicted": it had ended before the command did, with status 6/, 'is told');
	$run = $at_the_end->('evicted-too', q{SELECT dlock_force_release('evicted-too')}, '--on-lost', 'warn');
	is(finish($run), 6, 'or only told');
	says($run, qr/lost the lease on "evicted-too": .*/, 'if that is wanted');
	is(finish($at_the_end->('orderly')), 6, 'one that is not lost');
	my ($port, $network) = proxy();
	my $go = scratch('silent');
	$run = launch({ url => url($port) }, 'run', '--ttl', '300', 'silent', '--', 'sh', '-c', "echo ready; until [ -e $go ]; do sleep 0.05; done; exit 6");
	eventually(sub { output($run) =~ /ready/ });
	$network->('swallow');
	write_text($go, '');
	is(finish($run), 6, 'a server that is silent at the end');
	says($run, qr/could not give the lease on "silent" back, so it ends by its TTL: .*/, 'is told');

	my $forced;
	for (1 .. 10)
	{
		$run = launch('run', '--ttl', '2', '--on-lost', 'warn', 'warned', '--', 'sh', '-c', "echo ready; until [ -e " . scratch('go') . " ]; do sleep 0.05; done; exit 6");
		eventually(sub { output($run) =~ /ready/ });
		$forced = query(q{SELECT dlock_force_release('warned')});
		last if $forced == 1 || !eventually(sub { was_late($run) });
		kill 'KILL', $run->{pid};
		finish($run);
	}
	is($forced, 1, '--on-lost warn');
	ok(eventually(sub { errors($run) =~ /lost the lease/ }), 'it is said');
	my $next = launch('run', '--ttl', '300', 'warned', '--', 'sh', '-c', 'sleep 2.5');
	is(finish($next), 0, 'somebody else has it, for longer than the TTL');
	write_text(scratch('go'), '');
	is(finish($run), 6, 'the command has gone on, and its status is told');
	return;
}

# ----------------------------------------------------------------
# Terminals
# ----------------------------------------------------------------

# All below a process, by pid, as processes() has them.
sub below
{
	my ($top) = @_;
	my $all = processes();
	my %below;
	my @parents = ($top);
	while (defined(my $parent = shift @parents))
	{
		my @found = grep { $all->{$_}[0] == $parent } keys %$all;
		@below{@found} = @$all{@found};
		push @parents, @found;
	}
	return \%below;
}

# A shell on a terminal of its own: it answers a function that types, and one that waits
# for what it shows; and its process.  Keys that make signals are for a job: they are typed
# when the shell has given the terminal away and nothing of the job is stopped.
sub terminal
{
	my $pty = IO::Pty->new;
	my $pid = fork() // die "fork: $!\n";
	if ($pid == 0)
	{
		$pty->make_slave_controlling_terminal;
		my $slave = $pty->slave;
		close($pty);
		open(STDIN, '<&', $slave);
		open(STDOUT, '>&', $slave);
		open(STDERR, '>&', $slave);
		close($slave);
		CommandCases::take_all_signals();
		@ENV{qw(PS1 TERM HISTFILE DLOCK_URL D)} = ('PROMPT> ', 'dumb', '', url(), dlock());
		exec 'bash', '--norc', '--noprofile', '-i' or POSIX::_exit(99);
	}
	$pty->close_slave;
	my $shown = '';
	my $job_has_terminal = sub {
		my $front = POSIX::tcgetpgrp(fileno $pty) // return 0;
		my $job = below($pid);
		return $front != $pid && !grep { $job->{$_}[2] ne 'dlock-watchdog' && state_of($_) eq 'T' } keys %$job;
	};
	my $type = sub {
		my ($text) = @_;
		eventually($job_has_terminal) if $text =~ /\A[\x03\x1a\x1c]/;
		return syswrite($pty, $text);
	};
	my $see = sub {
		my ($regex, $what) = @_;
		my $end = time + $CommandCases::patience;
		my $text;
		until (($text) = $shown =~ /\A(.*?$regex)/s)
		{
			my $bits = '';
			vec($bits, fileno($pty), 1) = 1;
			my $left = $end - time;
			if ($left <= 0 || (select($bits, undef, undef, $left) && !sysread($pty, $shown, 4096, length $shown)))
			{
				return fail("$what: the terminal shows \"$shown\"");
			}
		}
		substr($shown, 0, length $text) = '';
		pass($what);
		return $text;
	};
	$see->(qr/PROMPT> /, 'a shell');
	# the function keeps the terminal open, too
	return ($type, $see, $pid);
}

sub keys_of_a_terminal
{
	my ($type, $see) = terminal();
	$type->("\$D run -t 600 keys-1 -- sh -c 'trap \"echo caught\" INT; echo ready; until read x; do :; done; echo and \$x; sleep 0.3'\n");
	$see->(qr/\nready\r/, 'a command on a terminal');
	$type->("\cC");
	$see->(qr/caught\r/, 'Ctrl-C reaches it');
	$type->("typed\n");
	$see->(qr/\A(?!.*caught).*and typed\r.*PROMPT> /s, 'once, and it reads what is typed');
	$type->("\$D run -t 600 keys-2 -- sh -c 'echo ready; exec sleep 100'\n");
	$see->(qr/\nready\r/, 'another command');
	$type->("\cC");
	$see->(qr/PROMPT> /, 'is ended by Ctrl-C');
	$type->("echo status=\$?\n");
	$see->(qr/status=130\r.*PROMPT> /s, 'as the status says');
	ok(eventually(sub { holds_name('keys-2', 0) }), 'and its lease is released');
	$type->("\$D run -t 600 keys-3 -- sh -c 'echo ready; exec sleep 100'\n");
	$see->(qr/\nready\r/, 'another one');
	$type->("\c\\");
	$see->(qr/PROMPT> /, 'by Ctrl-\\');
	$type->("echo status=\$?\n");
	$see->(qr/status=131\r.*PROMPT> /s, 'as the status says');

	# Ctrl-C while it waits
	my $holder = launch('run', 'keys', '--', 'sleep', '100');
	eventually(sub { holds_name('keys') });
	$type->("\$D run -t 600 -w forever keys -- echo nothing\n");
	eventually(sub { waits_for('keys') });
	$type->("\cC");
	$see->(qr/PROMPT> /, 'Ctrl-C ends a wait');
	kill 'TERM', $holder->{pid};
	finish($holder);

	# one that takes each key, as an editor does, and leaves the terminal so when it is killed
	my $raw = scratch('raw');
	write_text($raw, q{
		use POSIX; $| = 1;
		my $t = POSIX::Termios->new; $t->getattr(0);
		$t->setlflag($t->getlflag & ~(ICANON | ECHO)); $t->setattr(0, TCSANOW);
		print "ready\n"; while (sysread(STDIN, my $key, 1)) { print "key-$key\n"; kill 'KILL', $$ if $key eq 'q' }
	});
	for my $where ('', 'sh -c ')
	{
		# in a shell that has no job control, the command has the terminal when it asks for it
		my $command = "\$D run -t 600 keys-" . ($where ? 4 : 5) . " -- $^X $raw";
		$type->($where ? "$where'$command; exit \$?'\n" : "$command\n");
		$see->(qr/\nready\r/, 'one that takes each key');
		$type->('a');
		$see->(qr/key-a\r/, 'gets it');
		$type->('q');
		$see->(qr/key-q\r.*PROMPT> /s, 'and is killed');
		$type->("echo status=\$?\n");
		$see->(qr/echo status=\$\?\r.*status=137\r.*PROMPT> /s, 'the terminal echoes again');
	}
	$type->("exit\n");
	return;
}

sub job_control
{
	my ($type, $see, $shell) = terminal();
	$type->("\$D run -t 600 job -- cat\n");
	eventually(sub { holds_name('job') });
	$type->("one\n");
	$see->(qr/one\r\none\r/s, 'a command that reads the terminal');
	$type->("\cZ");
	$see->(qr/dlock: stopped; unless it goes on within \d+ s, it loses the lease on "job".*Stopped.*PROMPT> /s, 'Ctrl-Z stops the job, and it is said what that means');
	$type->("fg\n");
	$see->(qr/run -t 600 job -- cat\r/, 'fg');
	$type->("two\n");
	$see->(qr/two\r\ntwo\r/s, 'continues it');
	$type->("\cZ");
	$see->(qr/Stopped.*PROMPT> /s, 'stopped again');
	$type->("bg\n");
	$see->(qr/run -t 600 job -- cat &\r.*PROMPT> /s, 'bg');
	ok(eventually(sub { my ($job) = children($shell); state_of($job) eq 'T' }), 'stops it when it reads, as any job');
	$type->("fg\n");
	$see->(qr/run -t 600 job -- cat\r/, 'fg');
	$type->("three\n");
	$see->(qr/three\r\nthree\r/s, 'gives it the terminal');
	$type->("\cD");
	$see->(qr/PROMPT> /, 'and its end');

	$type->("\$D run -t 600 job-2 -- sh -c 'sleep 0.5; echo quiet' &\n");
	$see->(qr/quiet\r/s, 'a job in the background runs as it is');
	$type->("wait; echo status=\$?\n");
	$see->(qr/status=0\r.*PROMPT> /s, 'to its end');

	$type->("\$D run -t 600 job-3 -- cat | tr a-z A-Z; echo status=\$?\n");
	eventually(sub { holds_name('job-3') });
	$type->("pipeline\n\cD");
	$see->(qr/PIPELINE\r.*status=0\r.*PROMPT> /s, 'in a pipeline');

	my $script = scratch('script');
	write_text($script, "\$D run -t 600 job-\$1 -- sh -c 'echo ready; exec sleep 100'\necho went on\n");
	$type->("bash $script 4\n");
	$see->(qr/\nready\r/, 'in a script');
	$type->("\cZ");
	$see->(qr/Stopped.*PROMPT> /s, 'Ctrl-Z stops the script');
	$type->("fg\n");
	$see->(qr/bash \Q$script\E 4\r/, 'fg');
	$type->("\cC");
	$see->(qr/\A(?!.*went on).*PROMPT> /s, 'and Ctrl-C ends it, as without dlock');

	# the shell sees the script stop, and continues it, before dlock is told that COMMAND has
	$type->("bash $script 5\n");
	$see->(qr/\nready\r/, 'once more');
	my %job = %{ below($shell) };
	my ($watchdog) = grep { $job{$_}[2] eq 'dlock-watchdog' } keys %job;
	freeze($watchdog);
	$type->("\cZ");
	$see->(qr/Stopped.*PROMPT> /s, 'Ctrl-Z stops the script at once');
	$type->("fg\n");
	$see->(qr/bash \Q$script\E 5\r/, 'fg');
	my ($run) = $job{$watchdog}[0];
	my ($command) = grep { $job{$_}[0] == $watchdog } keys %job;
	ok(eventually(sub { state_of($run) eq 'S' && state_of($command) eq 'S' }), 'continues all of it');
	thaw($watchdog);
	ok(eventually(sub { state_of($run) eq 'S' && state_of($watchdog) eq 'S' }), 'which is not stopped again');
	$type->("\cC");
	$see->(qr/\A(?!.*(?:went on|Stopped)).*PROMPT> /s, 'and Ctrl-C ends that, too');

	# stopped for too long: never continued to work on what is another's
	my $file = scratch('written');
	my $writer = join(' ', map { "'$_'" } writer($file));
	for my $try (1 .. 10)
	{
		unlink $file;
		my $late = "late-$try";
		$type->("\$D run -t 2 $late -- $writer\n");
		eventually(sub { -s $file });
		$type->("\cZ");
		# on a machine that stands still the lease is lost before that
		next
		  unless $see->(qr/(?:Stopped|lost the lease on "$late").*PROMPT> /s, 'a job that is stopped for longer than the TTL') =~ /Stopped/
		  || $try == 10;
		my $next = launch('run', '--wait', 'forever', $late, '--', writer($file, 0.3));
		is(finish($next), 0, 'is lost to somebody else');
		$type->("fg\n");
		my $said = $see->(qr/lost the lease on "$late".*PROMPT> /s, 'as it says when it goes on');
		$type->("echo status=\$?\n");
		$see->(qr/status=70\r.*PROMPT> /s, 'and as the status says');
		# and on a busy one, the watchdog may be late
		next if $said =~ /not killed in time/ && $try < 10;
		one_after_the_other($file, 2);
		last;
	}
	$type->("exit\n");
	return;
}

# Where /proc is another namespace's, processes cannot be found.
sub foreign_proc
{
	my @unshare = ('--fork', '--pid', $> == 0 ? () : '--map-root-user');
	return pass('PID namespaces cannot be made here') if system('unshare', @unshare, 'true') != 0;
	my $run = launch({ program => 'unshare' }, @unshare, dlock(), 'run', '--url', url(), 'proc', '--', 'touch', scratch('proc'));
	is(finish($run), 71, 'a PID namespace without its /proc');
	says($run, qr/\/proc does not show .*/, 'is said to be no place to run a command');
	ok(!-e scratch('proc'), 'and the command is not run');
	return;
}

# A filter for system calls, as systemd's SystemCallFilter=~@resources makes one.
sub filtered
{
	return pass('the numbers of system calls are not known here') unless can_forbid();
	for my $action (qw(kill refuse))
	{
		my $run = launch({ before => sub { forbid($action => 'sched_setscheduler') } }, 'run', "$action priority", '--', 'echo', 'ran');
		is(finish($run), 0, "no priority ($action): the command");
		is(output($run), "ran\n", 'runs');
		is(errors($run), '', 'and nothing is said');
	}
	my $holder = launch('run', 'filtered', '--', 'sleep', '100');
	eventually(sub { holds_name('filtered') });
	my $run = launch({ before => sub { forbid(kill => 'timerfd_create') } }, 'run', '--wait', 'forever', 'filtered', '--', 'touch', scratch('filtered'));
	is(finish($run), 71, 'where no watchdog can live, waiting ends');
	says($run, qr/the watchdog ends at once, by signal 31, 3 times in a row.*/, 'as is said');
	ok(eventually(sub { waits_for('filtered', 0) }), 'and nobody waits');
	kill 'TERM', $holder->{pid};
	finish($holder);
	in_time(RELEASED_IN, sub {
		$run = launch({ before => sub { forbid(kill => 'pipe2') } }, 'run', "filtered $_[0]", '--', 'touch', scratch('filtered'));
		is(finish($run), 71, 'nor where none can make the command');
		says($run, qr/the watchdog ends at once, by signal 31, 3 times in a row.*/, 'as is said');
		ok(holds_name("filtered $_[0]", 0), 'and the lease is released');
		$run = launch({ before => sub { forbid(refuse => 'pipe2') } }, 'run', "filtered $_[0]", '--', 'touch', scratch('filtered'));
		is(finish($run), 71, 'or is refused to');
		says($run, qr/could not start a process: Operation not permitted/, 'as is said');
		ok(holds_name("filtered $_[0]", 0), 'and the lease is released');
	});
	ok(!-e scratch('filtered'), 'the command has not run');
	$run = launch({ before => sub { forbid(kill => 'timerfd_create') } }, 'elect', 'filtered', '--', 'true');
	is(finish($run), 71, 'an elector ends, too, since another one may lead');
	return;
}

cases(
	'statuses' => \&statuses,
	'filtered' => \&filtered,
	'files' => \&files,
	'environment' => \&environment,
	'activated' => \&activated,
	'signals' => \&signals,
	'leases' => \&leases,
	'leftovers' => \&leftovers,
	'endings' => \&endings,
	'given back' => \&given_back,
	'foreign proc' => \&foreign_proc,
	'keys' => \&keys_of_a_terminal,
	'job control' => \&job_control);
stop_server();
done_testing();
