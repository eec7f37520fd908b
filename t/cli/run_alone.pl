# dlock run: whatever happens to it, its watchdog, the network and the server, its
# command is gone before another can have the lease; on the kind of server that is the
# argument.  See CommandCases.pm.
#
# Two commands write into a file, each with its token; the first ignores SIGTERM.  The
# test breaks something.  When the second gets the lease, no process of the first may
# live.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use InTime;
use POSIX ();
use Test::More;
use Time::HiRes qw(time sleep);

start_server($ARGV[0]);

# Start the first, and the second, which waits.
my $pairs = 0;

sub two
{
	my ($name, $url) = @_;
	my @options = ('run', '--ttl', '3', '--grace', '0.5');
	my ($first, $file);
	for my $try (1 .. 10)
	{
		$name .= ' again' if $first;
		$file = scratch('tokens-' . $pairs++);
		$first = launch({ url => $url // url() }, @options, $name, '--', writer($file, 'stubborn'));
		my $both_write = sub { my %pids = map { (split ' ', $_)[2] // '' => 1 } lines_of($file); keys %pids == 2 };
		# unless it has lost its lease before both of its processes began
		eventually(sub { $both_write->() || errors($first) =~ /lost the lease|not killed in time/ });
		last if $both_write->();
		finish($first);
	}
	my $second = launch('run', '--ttl', '60', '--grace', '0.5', '--wait', 'forever', $name, '--', writer($file, 0.3));
	# unless the first has lost its lease by itself
	eventually(sub { waits_for($name) || errors($first) =~ /lost the lease|not killed in time/ });
	return ($first, $second, $file);
}

# What a case has in common: "break" is told the first, and answers whether it was there to
# be broken; "mend" when the second is done.
# On a machine too busy to renew within three seconds the first loses its lease by itself,
# and on one too busy to run the watchdog it is late.  It says so, and is tried once more.
sub broken
{
	my ($name, $url, $break, $status, $mend) = @_;
	return sub {
		for my $try (1 .. 10)
		{
			my ($first, $second, $file) = two("$name $try", ref $url ? $url->() : $url);
			my $broken = $break->($first);
			is(finish($second), 0, 'the second gets the lease');
			$mend->($first, $broken) if $mend;
			my $ended = finish($first);
			my $said = errors($first);
			next if $said =~ /not killed in time/ && $try < 10;
			one_after_the_other($file, 2);
			next if (!$broken || $ended ne $status) && $said =~ /lost the lease/ && $try < 10;
			is($ended, $status, 'the first ends');
			last;
		}
		return;
	};
}

my $swallow;
my $through_proxy = sub { (my $port, $swallow) = proxy(); return url($port) };

# Stop a run's watchdog; answers it, or nothing if there is none.
sub stop_watchdog
{
	my ($run) = @_;
	my $watchdog = watchdog_of($run) // return;
	freeze($watchdog);
	return $watchdog;
}

# A command that ends at once by the first SIGTERM, and has left one in another session
# that does not: when the lease is lost, neither outlives dlock.  Several at once, for
# what is first, the command's end or dlock's order to end all, is a matter of luck.
sub left_and_lost
{
	my @runs = map {
		my $name = "left $_";
		my $pid = scratch("left-$_");
		my $run = launch('run', '--ttl', '30', '--grace', '0.3', $name, '--', 'sh', '-c',
			"setsid sh -c 'trap \"\" TERM; echo \$\$ >$pid.new; mv $pid.new $pid; while :; do sleep 0.1; done' & exec sleep 100");
		[ $run, $name, $pid ];
	} 1 .. 6;
	for (@runs)
	{
		my ($run, $name, $pid) = @$_;
		eventually(sub { -s $pid });
		is(query("SELECT dlock_force_release('$name')"), 1, 'a lease is lost');
	}
	for (@runs)
	{
		my ($run, $name, $pid) = @$_;
		is(finish($run), 70, 'a command that ends at once');
		my ($left) = lines_of($pid);
		like(state_of($left), qr/^[ZX]?$/, 'and what it has left in another session is gone, too');
		kill 'KILL', $left;
	}
	return;
}

# A process whose first thread has ended looks like a zombie, and is none.
sub first_thread_ended
{
	# the first thread ends by the system's exit(), which Perl has no name for
	my $exit = { x86_64 => 60, aarch64 => 93 }->{ (POSIX::uname())[4] }
	  // return pass('what the number of exit() is, is not known here');
	my $threads = sub {
		my ($pid, $before) = @_;
		my $path = scratch('threads.pl');
		write_text($path, qq{
			use threads; use POSIX ();
			my (\$pid, \$session) = \@ARGV;
			\$SIG{TERM} = 'IGNORE';
			POSIX::setsid() if \$session;
			threads->create(sub {
				my \$state = '';
				until (\$state eq 'Z') { open my \$f, '<', "/proc/\$\$/stat"; (\$state) = <\$f> =~ /\\) (.)/; select undef, undef, undef, 0.01 }
				open my \$f, '>', "\$pid.new"; print \$f \$\$; close \$f; rename "\$pid.new", \$pid;
				sleep 1 while 1;
			})->detach;
			syscall($exit, 0);
		});
		return "$^X $path $pid $before & until [ -e $pid ]; do sleep 0.02; done";
	};
	my $pid = scratch('in-group');
	my $run = launch('run', '--ttl', '300', '--grace', '0.3', 'thread', '--', 'sh', '-c', $threads->($pid, ''));
	is(finish($run), 0, 'a command that leaves a process without its first thread');
	my ($left) = lines_of($pid);
	is(living_threads($left), 0, 'which is gone when the lease is released');
	kill 'KILL', $left;

	$pid = scratch('in-session');
	$run = launch('run', '--ttl', '30', '--grace', '0.3', 'another thread', '--', 'sh', '-c', $threads->($pid, 1) . '; sleep 100');
	eventually(sub { -e $pid && holds_name('another thread') });
	is(query(q{SELECT dlock_force_release('another thread')}), 1, 'a lease is lost');
	is(finish($run), 70, 'one that has such a process in another session');
	($left) = lines_of($pid);
	is(living_threads($left), 0, 'which is gone, too');
	kill 'KILL', $left;
	return;
}

# A connection that is cut again and again is made again, and the lease goes on.
sub connections_cut
{
	my ($port, $tell) = proxy();
	for my $try (1 .. 10)
	{
		my $go = scratch("cut-$try");
		my $run = launch({ url => url($port) }, 'run', '--ttl', '30', "cut $try", '--', 'sh', '-c',
			"echo \$DLOCK_TOKEN; until [ -e $go ]; do sleep 0.05; done; echo \$DLOCK_TOKEN");
		eventually(sub { output($run) =~ /\n/ });
		my $least = 30;
		my $is_renewed = sub {
			my $left = query("SELECT SECONDS_LEFT FROM dlock.locks WHERE name = 'cut $try' AND LIVE") // return 0;
			$least = $left if $left < $least;
			return $left > $least + 3;
		};
		# until one was missed, or made again in spite of that
		my $was_cut = eventually(sub { $tell->('cut'); sleep 0.5; return errors($run) =~ /trying again/ || $is_renewed->() || was_late($run) });
		my $renewed = eventually(sub { $is_renewed->() || was_late($run) });
		write_text($go, '');
		my $status = finish($run);
		# by itself, on a machine too busy for a connection in time
		next if $status eq 70 && was_late($run) && $try < 10;
		ok($was_cut, 'a connection is cut again and again');
		ok($renewed, 'it is made again, and the lease renewed');
		is($status, 0, 'to the end of the command') or diag(errors($run));
		like(output($run), qr/\A(\d+)\n\1\n\z/, 'which has its token all the while');
		last;
	}
	return;
}

# A connection that is closed while it is idle is made again, without a word.
sub connection_idle
{
	my ($port, $tell) = proxy();
	my $left = sub { return query("SELECT SECONDS_LEFT FROM dlock.locks WHERE name = '$_[0]' AND LIVE") // 0 };
	for my $try (1 .. 5)
	{
		my $go = scratch("idle-$try");
		my $run = launch({ url => url($port) }, 'run', '--ttl', '9', "idle $try", '--', 'sh', '-c', "echo runs; until [ -e $go ]; do sleep 0.05; done");
		eventually(sub { output($run) =~ /\n/ });
		$tell->('cut');
		my $least = $left->("idle $try");
		eventually(sub { my $now = $left->("idle $try"); $least = $now if $now < $least; return $now > $least + 1 || errors($run) ne '' });
		write_text($go, '');
		my $status = finish($run);
		# on a busy machine another attempt may fail, too
		next if errors($run) ne '' && $try < 5;
		is($status, 0, 'a connection that is closed between two renewals is made again');
		is(errors($run), '', 'and nothing is said');
		last;
	}
	# but a network that stays away is told
	my $run = launch({ url => url($port) }, 'run', '--ttl', '9', 'idle', '--', 'sleep', '100');
	eventually(sub { watchdog_of($run) && children(watchdog_of($run)) || was_late($run) });
	$tell->('swallow');
	is(finish($run), 70, 'a connection that cannot be made again');
	like(errors($run), qr/lost the lease on "idle": .*time/, 'is told');
	return;
}

# How many threads of a process are no zombies.
sub living_threads
{
	my ($pid) = @_;
	return scalar grep { CommandCases::slurp($_) =~ /\) [^ZX] /s } glob "/proc/$pid/task/[0-9]*/stat";
}

# A watchdog that is stopped does not keep a run from its end.
sub end_without_watchdog
{
	my $run = launch('run', 'ends at once', '--', 'sh', '-c', 'read x; exit 8');
	is(finish($run), 8, 'a command that ends at once');
	my $took = 0;
	in_time(sub { $took < RELEASED_IN }, sub {
		pipe(my $in, my $to_run) or die;
		$run = launch({ in => $in }, 'run', "ends $_[0]", '--', 'sh', '-c', 'read x; exit 9');
		close($in);
		eventually(sub { watchdog_of($run) && children(watchdog_of($run)) });
		my $watchdog = stop_watchdog($run);
		ok($watchdog, 'there is a watchdog');
		my $began = time;
		close($to_run);
		is(finish($run), 9, 'has its status told, though the watchdog is stopped');
		$took = time - $began;
		is(state_of($watchdog), '', 'which is gone');
		ok(holds_name("ends $_[0]", 0), 'and the lease is released');
	});
	return;
}

# Before anything is granted there is a watchdog; if it is killed, there is another.
sub early_watchdog
{
	my $file = scratch('tokens');
	my $first = launch('run', '--ttl', '300', 'early', '--', writer($file));
	eventually(sub { -s $file });
	my $second = launch('run', '--ttl', '300', '--wait', 'forever', 'early', '--', writer($file, 0.2));
	eventually(sub { waits_for('early') });
	# which is named a moment later than it is there
	my $watchdog;
	ok(eventually(sub { $watchdog = watchdog_of($second) }), 'who waits has a watchdog');
	kill 'KILL', $watchdog;
	ok(eventually(sub { my $new = watchdog_of($second); $new && $new != $watchdog }), 'and a new one, if it is killed');
	kill 'TERM', $first->{pid};
	is(finish($first), 143, 'the first is ended');
	is(finish($second), 0, 'the second runs');
	one_after_the_other($file, 2);

	# one that is stopped is found out when it is to begin
	$first = launch('run', 'late', '--', 'sleep', '100');
	eventually(sub { holds_name('late') });
	$second = launch('run', '--wait', 'forever', 'late', '--', 'echo', 'begun');
	eventually(sub { waits_for('late') });
	eventually(sub { $watchdog = watchdog_of($second) });
	freeze($watchdog);
	kill 'TERM', $first->{pid};
	is(finish($first) . ' ' . finish($second), '143 0', 'one that was stopped meanwhile is replaced');
	is(output($second), "begun\n", 'and the command runs');

	# nor does it stay when the main process is gone
	my $holder = launch('run', 'early', '--', 'sleep', '100');
	eventually(sub { holds_name('early') });
	$second = launch('run', '--wait', 'forever', 'early', '--', 'true');
	eventually(sub { waits_for('early') });
	eventually(sub { $watchdog = watchdog_of($second) });
	kill 'KILL', $second->{pid};
	is(finish($second), 'signal 9', 'one that waits is killed');
	ok(eventually(sub { state_of($watchdog) eq '' }), 'its watchdog ends');
	ok(eventually(sub { waits_for('early', 0) }), 'and the server finds nobody who waits');
	kill 'TERM', $holder->{pid};
	finish($holder);
	return;
}

# Both were stopped past the deadline: nothing could end the command, and that is said.
sub both_stopped
{
	my $run;
	for (1 .. 10)
	{
		$run = launch('run', '--ttl', '2', '--grace', '0.3', 'both stopped', '--', 'sleep', '100');
		my $watchdog;
		eventually(sub { $watchdog = watchdog_of($run); ($watchdog && children($watchdog)) || was_late($run) });
		# on a machine that stands still it has ended before
		if (!$watchdog)
		{
			finish($run);
			next;
		}
		freeze($run->{pid}, $watchdog);
		ok(eventually(sub { holds_name('both stopped', 0) }), 'a lease ends while dlock and its watchdog are stopped');
		thaw($run->{pid}, $watchdog);
		is(finish($run), 70, 'the command is ended when they go on');
		# on a machine that stands still it is ended before they are stopped
		last if errors($run) =~ /not killed in time/;
	}
	like(errors($run), qr/the command ended up to \d+\.\d{3} s after the deadline of the lease on "both stopped": it was not killed in time\n/,
		'and that it was late is said');
	return;
}

# Some contend for a name; one after the other is broken in a way that chance chooses.  CHAOS
# in the environment is how many seconds, and maybe a number that chance begins with.
sub chaos
{
	my ($seconds, $seed) = split ' ', $ENV{CHAOS} // '6';
	$seed //= int rand 1000000;
	srand $seed;
	# a watchdog that a busy machine did not run in time says so
	for my $try (1 .. 10) { last if some_chaos($seconds, $seed, $try) }
	return;
}

# Play it, and judge it, unless that is to be done once more.
sub some_chaos
{
	my ($seconds, $seed, $try) = @_;
	my $file = scratch("tokens-$try");
	my $end = boot_time() + $seconds;
	my (@runs, @old, %done);
	my @ways = (
		[ killed => sub { kill 'KILL', $_[0]{pid} } ],
		[ terminated => sub { kill 'TERM', $_[0]{pid} } ],
		[ stopped => sub { kill 'STOP', $_[0]{pid} } ],
		[ 'watchdog killed' => sub { my $watchdog = watchdog_of($_[0]); kill 'KILL', $watchdog if $watchdog } ],
		[ 'watchdog stopped' => sub { my $watchdog = watchdog_of($_[0]); kill 'STOP', $watchdog if $watchdog } ]);
	while (boot_time() < $end || tokens_of($file) < 2)
	{
		while (@runs < 4)
		{
			push @runs, launch('run', '--ttl', '2', '--grace', '0.3', '--wait', 'forever', 'chaos', '--', writer($file, 'stubborn', rand 1.5));
		}
		sleep rand 0.3;
		# that it is broken once is what the promise is about
		my $run = splice(@runs, rand @runs, 1);
		my ($name, $break) = @{ $ways[ rand @ways ] };
		$break->($run);
		$done{$name}++;
		push @old, [ $run, boot_time() + 2.5 ];
		kill 'CONT', map { $_->[0]{pid} // () } grep { $_->[1] < boot_time() } @old;
	}
	kill 'CONT', map { $_->{pid} // () } map { $_->[0] } @old;
	kill 'TERM', map { $_->{pid} } @runs;
	my @left = grep { finish($_) =~ /none/ } @runs, map { $_->[0] } @old;
	is(scalar(@left), 0, 'all end');
	return 0 if $try < 10 && grep { errors($_) =~ /not killed in time/ } @runs, map { $_->[0] } @old;
	my $tokens = tokens_of($file);
	one_after_the_other($file, $tokens);
	cmp_ok($tokens, '>', 1, 'that is, of those that ran');
	diag("chaos began with $seed") unless Test::More->builder->is_passing;
	diag($tokens . ' tokens; ' . join(', ', map { "$_: $done{$_}" } sort keys %done)) if $ENV{CHAOS};
	return 1;
}

# How many tokens there are in a file of writers.
sub tokens_of
{
	my ($file) = @_;
	my %tokens = map { /^(\d+) / ? ($1 => 1) : () } lines_of($file);
	return scalar keys %tokens;
}

cases(
	'chaos' => \&chaos,
	'killed' => broken('killed', undef,
		sub { kill 'KILL', $_[0]{pid} }, 'signal 9'),
	'stopped' => broken('stopped', undef,
		sub { freeze($_[0]{pid}) }, 70, sub { thaw($_[0]{pid}) }),
	'watchdog killed' => broken('watchdog killed', undef,
		sub { my $watchdog = watchdog_of($_[0]); $watchdog && kill 'KILL', $watchdog }, 71),
	'network cut' => broken('network', $through_proxy,
		sub { $swallow->('swallow'); 1 }, 70),
	'network cut, watchdog stopped' => broken('both', $through_proxy,
		sub { my $watchdog = stop_watchdog($_[0]); $swallow->('swallow'); $watchdog }, 70),
	'network cut, stopped' => broken('cut and stopped', $through_proxy,
		sub { freeze($_[0]{pid}); $swallow->('swallow'); 1 }, 70, sub { thaw($_[0]{pid}) }),
	'connections cut' => \&connections_cut,
	'connection idle' => \&connection_idle,
	'left and lost' => \&left_and_lost,
	'first thread' => \&first_thread_ended,
	'both stopped' => \&both_stopped,
	'without watchdog' => \&end_without_watchdog,
	'early' => \&early_watchdog);

# The server itself: one that is restarted, and one that is stopped for too long.
cases(
	'server' => sub {
		my $file = scratch('lasts');
		my $lasts = launch('run', '--ttl', '60', 'lasts', '--', writer($file));
		eventually(sub { -s $file });
		my $waits = launch('run', '--ttl', '60', '--wait', 'forever', 'lasts', '--', writer($file, 0.1));
		eventually(sub { waits_for('lasts') });
		disconnect();
		engine()->restart;
		ok(eventually(sub { waits_for('lasts') }), 'after a restart, who waited waits');
		ok(holds_name('lasts'), 'and who held still holds');
		ok(-s $file, 'the command runs');

		my ($first, $second, $tokens) = two('frozen');
		my @server = server_processes();
		freeze(@server);
		is(finish($first), 70, 'a server that is stopped: the lease is lost in time');
		thaw(@server);
		is(finish($second), 0, 'somebody else has it when the server goes on');
		one_after_the_other($tokens, 2);

		is(join(',', grep { /BESIDE/ } lines_of($file)), '', 'the lease that was to last');
		kill 'TERM', $lasts->{pid};
		is(finish($lasts), 143, 'has lasted');
		is(finish($waits), 0, 'and is handed over');
		one_after_the_other($file, 2);
	});

# All processes of the server.
sub server_processes
{
	my $pid;
	if (engine()->kind eq 'postgres')
	{
		($pid) = CommandCases::slurp(engine()->{node}->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	}
	else { $pid = engine()->pid }
	return ($pid, children($pid));
}

stop_server();
done_testing();
