# dlock elect: leader election, on the kind of server that is the argument; see
# CommandCases.pm.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use InTime;
use IO::Socket::UNIX;
use POSIX ();
use Test::More;
use Time::HiRes qw(time sleep);

start_server($ARGV[0]);

# The token of who leads now, or 0.
sub leader
{
	my ($name) = @_;
	return query("SELECT coalesce(max(token), 0) FROM dlock.locks WHERE name = '$name' AND LIVE");
}

# Which of some electors has said that it leads with a token.
sub who_leads
{
	my ($token, @electors) = @_;
	return grep { errors($_) =~ /leader of "[^"]*", token $token\n/ } @electors;
}

# Three electors, whose leaders are ended in turn, each in another way.  A watchdog that a busy
# machine did not run in time says so; then all is done once more.
sub three
{
	for my $try (1 .. 10) { last if one_after_another($try) }
	return;
}

# Let them, and judge it, unless that is to be done once more.
sub one_after_another
{
	my ($try) = @_;
	my $file = scratch("tokens-$try");
	my @all;
	my $start = sub {
		my $ready = scratch("ready-$try-" . shift);
		my $elector = launch('elect', '--ttl', '3', '--grace', '0.5', '--ready-file', $ready, 'group', '--', writer($file, 'stubborn'));
		$elector->{ready} = $ready;
		push @all, $elector;
		return $elector;
	};
	my @electors = map { $start->($_) } 1 .. 3;
	my $token = 0;
	my $terms = 0;
	my %ends = (
		killed => sub { my ($leader) = @_; kill 'KILL', $leader->{pid} },
		terminated => sub { my ($leader) = @_; kill 'TERM', $leader->{pid} },
		stopped => sub { my ($leader) = @_; freeze($leader->{pid}) },
		forced => sub { query(q{SELECT dlock_force_release('group')}) },
		'of a killed watchdog' => sub { my ($leader) = @_; my $watchdog = watchdog_of($leader); kill 'KILL', $watchdog if $watchdog });
	for my $how ('terminated', 'killed', 'stopped', 'of a killed watchdog')
	{
		# on a busy machine one that leads may lose that by itself, and the next one does
		my $leads;
		ok( eventually(sub {
				my $now = leader('group');
				return 0 if $now <= $token;
				($leads) = who_leads($now, @electors);
				my @with_file = grep { -e $_->{ready} } @electors;
				return 0 unless $leads && @with_file == 1 && $with_file[0] == $leads
				  && ((lines_of($leads->{ready}))[0] // '') eq $now && grep { /^$now / } lines_of($file);
				$token = $now;
				return 1;
			}), "there is a leader, to be $how, and it alone has a ready file, with its token");
		$terms++;
		$ends{$how}->($leads);
		ok(eventually(sub { !-e $leads->{ready} }), "a leader that was $how has no ready file");
		if ($how eq 'terminated' || $how eq 'killed')
		{
			is(finish($leads), $how eq 'killed' ? 'signal 9' : 0, "the status of one that was $how");
			@electors = grep { $_ != $leads } @electors;
			push @electors, $start->("after $how");
		}
		elsif ($how eq 'stopped')
		{
			eventually(sub { leader('group') > $token });
			thaw($leads->{pid});
			ok(eventually(sub { errors($leads) =~ /lost the lease.*not the leader.*/s }), 'it notices when it goes on');
		}
	}
	ok(eventually(sub { my $now = leader('group'); $now > $token && who_leads($now, @electors) && grep { /^$now / } lines_of($file) }),
		'in the end somebody leads');
	kill 'TERM', map { $_->{pid} } @electors;
	is(join(' ', map { finish($_) } @electors), '0 0 0', 'all end in order');
	# the server finds out that somebody is gone when it looks
	ok(eventually(sub { holds_name('group', 0) && waits_for('group', 0) }), 'nobody leads, and nobody waits');
	is(scalar(grep { -e $_->{ready} } @electors), 0, 'there is no ready file');
	return 0 if $try < 10 && grep { errors($_) =~ /not killed in time/ } @all;
	# the others may have led for a moment
	my %tokens = map { (/^(\d+) /)[0] // 0 => 1 } lines_of($file);
	one_after_the_other($file, scalar(keys %tokens));
	cmp_ok(scalar(keys %tokens), '>', $terms, 'which is how many terms there were at least');
	return 1;
}

# What it is told to run when a term ends, and what COMMAND gets.
sub terms
{
	my $took = 0;
	in_time(sub { $took < RELEASED_IN }, sub {
		my $name = "terms-$_[0]";
		my ($log, $ready, $go) = map { scratch("$_-$name") } qw(log ready go);
		# of one that has crashed
		write_text($ready, "1\n");
		my $holder = launch('run', $name, '--', 'sleep', '100');
		eventually(sub { holds_name($name) });
		my $elector = launch('elect', '--ttl', '30', '--ready-file', $ready,
			'--exec-on-lose', "echo lose \$DLOCK_NAME \$DLOCK_REASON \$DLOCK_TOKEN >>$log", $name, '--', 'sh', '-c',
			"trap 'echo HUP >>$log' HUP; trap 'echo TERM >>$log; exit 0' TERM; echo lead \$DLOCK_TOKEN >>$log; until [ -e $go ]; do sleep 0.05; done; rm $go; exit 3");
		eventually(sub { waits_for($name) });
		ok(!-e $ready, 'a ready file that was left is removed at the start');
		kill 'TERM', $holder->{pid};
		finish($holder);
		ok(eventually(sub { -s $log }), 'one that waited leads');
		my @tokens = leader($name);
		kill 'HUP', $elector->{pid};
		ok(eventually(sub { grep { /HUP/ } lines_of($log) }), 'SIGHUP is passed on');
		write_text($go, '');
		ok(eventually(sub { (() = grep { /lead/ } lines_of($log)) == 2 }), 'when its command has ended, it is elected again');
		push @tokens, leader($name);
		is(query("SELECT dlock_force_release('$name')"), 1, 'a lease is lost');
		ok(eventually(sub { (() = grep { /lead/ } lines_of($log)) == 3 }), 'after that, too');
		push @tokens, leader($name);
		my $began = time;
		kill 'TERM', $elector->{pid};
		is(finish($elector), 0, 'SIGTERM ends it');
		$took = time - $began;
		ok(holds_name($name, 0), 'nobody leads');
		is(join("\n", lines_of($log)), join("\n",
				"lead $tokens[0]", 'HUP', "lose $name ended $tokens[0]", "lead $tokens[1]", 'TERM', "lose $name lost $tokens[1]",
				"lead $tokens[2]", 'TERM', "lose $name stopped $tokens[2]"), 'each term has a beginning and an end');
		like(errors($elector), qr/the command ended with status 3/, 'and the status is said');
	});
	return;
}

# A lease is held until what is run at the end of a term has ended.
sub on_lose
{
	# one that has the lease, but does not know it yet, has no term that could end
	my @leads = ('sh', '-c', 'echo leads; exec sleep 100');
	my $took = 0;
	in_time(sub { $took < RELEASED_IN }, sub {
		my $name = "lose-$_[0]";
		my $go = scratch("go-$name");
		my $elector = launch('elect', '--ttl', '300', '--exec-on-lose', "touch $go.began; until [ -e $go ]; do sleep 0.05; done", $name, @leads);
		eventually(sub { output($elector) =~ /leads/ });
		kill 'TERM', $elector->{pid};
		ok(eventually(sub { -e "$go.began" }), 'what is to be run at the end runs');
		ok(holds_name($name), 'while the lease is held');
		my $began = time;
		write_text($go, '');
		is(finish($elector), 0, 'and then the end');
		$took = time - $began;
		ok(holds_name($name, 0), 'comes for the lease, too');
	});

	my $elector = launch('elect', '--ttl', '2', '--exec-on-lose', 'sleep 1000', 'hangs', @leads);
	eventually(sub { output($elector) =~ /leads/ });
	kill 'INT', $elector->{pid};
	is(finish($elector), 0, 'one that hangs');
	# or it loses its lease of 2 s before that, on a busy machine
	like(errors($elector), qr/"sleep 1000" (?:took longer than the TTL and was killed|was killed: the lease was lost)/, 'is killed');

	my $began = scratch('evicted.began');
	$elector = launch('elect', '--ttl', '30', '--exec-on-lose', "touch $began; exec sleep 1000", 'evicted', @leads);
	eventually(sub { output($elector) =~ /leads/ });
	kill 'TERM', $elector->{pid};
	ok(eventually(sub { -e $began }), 'one that loses its lease');
	query("SELECT dlock_force_release('evicted')");
	is(finish($elector), 0, 'ends');
	like(errors($elector), qr/sleep 1000" was killed: the lease was lost/, 'since it was told that it has it');
	return;
}

# A command that ends at once is not run again and again.
sub back_off
{
	my $log = scratch('log');
	my $elector = launch('elect', 'back off', '--', $^X, '-MTime::HiRes', '-e', "open F, '>>', '$log'; printf F \"%.3f\\n\", Time::HiRes::clock_gettime(7)");
	eventually(sub { lines_of($log) >= 3 });
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'a command that ends at once');
	my @times = lines_of($log);
	cmp_ok($times[1] - $times[0], '>=', 0.9, 'is run again after a second');
	cmp_ok($times[2] - $times[1], '>=', 1.9, 'and then after two');
	return;
}

# The service manager.
sub notifications
{
	my $path = scratch('notify');
	my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $path) // die "could not listen: $!\n";
	my $next = sub {
		my ($wanted, $what) = @_;
		my $bits = '';
		vec($bits, fileno($socket), 1) = 1;
		return fail("$what: nothing came") unless select($bits, undef, undef, $CommandCases::patience);
		$socket->recv(my $message, 4096);
		return like($message, $wanted, $what);
	};
	my $holder = launch('run', 'notify', '--', 'sleep', '100');
	eventually(sub { holds_name('notify') });
	my $elector = launch({ env => { NOTIFY_SOCKET => $path } }, 'elect', 'notify', '--', 'sh', '-c', 'echo "socket=$NOTIFY_SOCKET"; sleep 100');
	$next->(qr/\AREADY=1\nSTATUS=Waiting for "notify"\z/, 'the service manager is told that all is well');
	eventually(sub { waits_for('notify') });
	kill 'TERM', $holder->{pid};
	finish($holder);
	$next->(qr/\ASTATUS=Leader, token \d+\z/, 'that this one leads');
	ok(eventually(sub { output($elector) =~ /\n/ }), 'the command runs');
	is(output($elector), "socket=\n", 'which is not the service');
	kill 'TERM', $elector->{pid};
	$next->(qr/\ASTATUS=Waiting for "notify"\z/, 'that it does not lead any more');
	$next->(qr/\ASTOPPING=1\z/, 'and that it ends');
	is(finish($elector), 0, 'it does');

	$elector = launch({ env => { NOTIFY_SOCKET => $path } }, 'elect', "a\nMAINPID=1", '--', 'sleep', '100');
	$next->(qr/\AREADY=1\nSTATUS=Waiting for "a MAINPID=1"\z/, 'a name with a newline in it is told in one line');
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'and it ends');
	return;
}

# Electors of a service manager that wants to hear from them again and again.
sub alive
{
	my $start = sub {
		my ($name, %env) = @_;
		my $path = scratch("alive-$name");
		my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $path) // die "could not listen: $!\n";
		$socket->blocking(0);
		my $set = sub { %ENV = (%ENV, NOTIFY_SOCKET => $path, WATCHDOG_USEC => 200000, WATCHDOG_PID => $$, %env) };
		my $elector = launch({ before => $set }, 'elect', "alive $name", '--', 'sh', '-c', 'echo "watchdog=$WATCHDOG_USEC$WATCHDOG_PID"; exec sleep 1000');
		my $alive = 0;
		# how often it has said that it is well
		return ($elector, sub { while (defined $socket->recv(my $message, 4096)) { $alive++ if $message eq 'WATCHDOG=1' } return $alive });
	};
	my ($elector, $heard) = $start->('one');
	my ($other, $heard_other) = $start->('two');
	# who waits says so, too
	eventually(sub { output($elector) =~ /\n/ });
	is(output($elector), "watchdog=\n", 'a command is not the service');
	my $waiter = launch({ env => { NOTIFY_SOCKET => '/no/such', WATCHDOG_USEC => 1000 } }, 'elect', 'alive one', '--', 'true');
	my $before = $heard->();
	ok(eventually(sub { $heard->() >= $before + 5 }), 'a leader is well, again and again');

	# stopped: its watchdog, or itself
	for my $pid (watchdog_of($elector), $elector->{pid})
	{
		freeze($pid);
		my $least = $heard_other->();
		eventually(sub { $heard->(); $heard_other->() >= $least + 2 });
		($before, $least) = ($heard->(), $heard_other->());
		ok(eventually(sub { $heard_other->() >= $least + 10 }), 'while another one is well');
		is($heard->(), $before, 'one of whose processes one is stopped keeps silent');
		thaw($pid);
		ok(eventually(sub { $heard->() > $before }), 'until it goes on');
	}
	eventually(sub { errors($waiter) =~ /service manager/ });
	kill 'TERM', map { $_->{pid} } $elector, $other, $waiter;
	is(join(' ', map { finish($_) } $elector, $other, $waiter), '0 0 0', 'they end');
	is(scalar(() = errors($waiter) =~ /could not tell the service manager/g), 1, 'one that nobody hears says so once');

	# asked for it each microsecond, it would use up a core; 100 of them 10 ms apart take
	# a second, and longer on a busy machine
	my $began = boot_time();
	($elector, $heard) = $start->('four', WATCHDOG_USEC => 2);
	ok(eventually(sub { $heard->() >= 100 }), 'one that is to say so without a pause');
	cmp_ok(boot_time() - $began, '>', 0.5, 'makes one all the same');
	kill 'TERM', $elector->{pid};
	finish($elector);

	# meant for another process
	($elector, $heard) = $start->('three', WATCHDOG_PID => 1);
	eventually(sub { output($elector) =~ /\n/ });
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'one that was not asked');
	is($heard->(), 0, 'says nothing');
	return;
}

# A log that is full, whose reader stands still.
sub hanging_log
{
	pipe(my $reader, my $log) or die "pipe: $!\n";
	$log->blocking(0);
	1 while syswrite($log, 'x' x 4096);
	$log->blocking(1);
	my $elector = launch({ before => sub { open(STDERR, '>&', $log) } }, 'elect', '--ttl', '9', 'log', '--', 'sh', '-c', 'echo leads; exec sleep 1000');
	eventually(sub { output($elector) =~ /leads/ });
	my $left = sub { return query(q{SELECT SECONDS_LEFT FROM dlock.locks WHERE name = 'log' AND LIVE}) // 0 };
	my $least = $left->();
	ok(eventually(sub { my $now = $left->(); $least = $now if $now < $least; return $now > $least + 1 || output($elector) =~ /leads.*leads/s }), 'one whose log hangs is renewed');
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'and ends when it is told to');
	return;
}

# A log-in that fails for a while, after one has worked: while it waits, and when a term has ended.
sub log_ins
{
	my ($let, $disconnect) = account('elector');
	my $failed = qr/elector.*|locked.*/i;
	my $holder = launch('run', 'log-ins', '--', 'sleep', '100');
	eventually(sub { holds_name('log-ins') });
	my $go = scratch('go-log-ins');
	my @arguments = ('log-ins', '--', 'sh', '-c', "echo leads; until [ -e $go ]; do sleep 0.05; done; rm $go");
	my $elector = launch({ url => url(undef, 'elector') }, 'elect', @arguments);
	eventually(sub { waits_for('log-ins') });
	my $waiter = launch({ url => url(undef, 'elector') }, 'run', '--wait', 'forever', 'log-ins', '--', 'sh', '-c', 'exit 3');
	eventually(sub { waits_for('log-ins', 2) });
	$let->(0);
	$disconnect->();
	for ($elector, $waiter)
	{
		ok(eventually(sub { errors($_) =~ $failed || defined has_ended($_) }), 'a log-in that fails while one waits, after one has worked, is told');
		ok(!defined has_ended($_), 'and tried again');
	}
	$let->(1);
	eventually(sub { waits_for('log-ins', 2) || grep { defined has_ended($_) } $elector, $waiter });
	kill 'TERM', $holder->{pid};
	finish($holder);
	# either may be the first in the line
	ok(eventually(sub { output($elector) =~ /leads/ || defined has_ended($elector) }), 'who waited leads when it works again');
	$let->(0);
	write_text($go, '');
	ok(eventually(sub { errors($elector) =~ /ended with status 0.*\n.*(?:$failed)/s || defined has_ended($elector) }), 'one that fails between two terms is told');
	$let->(1);
	ok(eventually(sub { (() = output($elector) =~ /leads/g) == 2 || defined has_ended($elector) }), 'and the next term comes when it works again');
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'to the end');
	is(finish($waiter), 3, 'and so does a run that waits');
	return;
}

# What it needs to begin.
sub beginnings
{
	my ($port, $tell) = proxy();
	$tell->('swallow');
	my $elector = launch({ url => url($port) }, 'elect', '--ttl', '3', 'begin', '--', 'sleep', '100');
	ok(eventually(sub { errors($elector) =~ /./ }), 'an elector that finds no server');
	$tell->('pass');
	ok(eventually(sub { holds_name('begin') }), 'goes on trying until there is one');
	$tell->('cut');
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'to its end');

	$elector = launch({ url => url(undef, 'nobody_of_that_name') }, 'elect', 'begin', '--', 'true');
	is(finish($elector), 77, 'one that may not log in does not');
	for my $wrong ([qw(elect)], [qw(elect x)], [qw(elect --ttl 10 --grace 6 x true)], [qw(elect x --ttl 5 true)])
	{
		$elector = launch(@$wrong);
		is(finish($elector), 64, "misuse: @$wrong");
	}
	my $holder = launch('run', 'wait', '--', 'sleep', '100');
	eventually(sub { holds_name('wait') });
	$elector = launch({ before => sub { POSIX::setsid() } }, 'elect', 'wait', '--', 'true');
	eventually(sub { waits_for('wait') });
	kill 'HUP', $elector->{pid};
	ok(eventually(sub { CommandCases::slurp("/proc/$elector->{pid}/status") =~ /^ShdPnd:\s*0+$/m }), 'SIGHUP without a terminal');
	kill 'TERM', $holder->{pid};
	finish($holder);
	ok(eventually(sub { errors($elector) =~ /leader of "wait"/ }), 'does not keep one that waits from leading');
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'it ends by SIGTERM');
	$holder = launch('run', 'wait', '--', 'sleep', '100');
	eventually(sub { holds_name('wait') });
	$elector = launch('elect', 'wait', '--', 'true');
	eventually(sub { waits_for('wait') });
	kill 'TERM', $elector->{pid};
	is(finish($elector), 0, 'one that waits ends by SIGTERM');
	ok(eventually(sub { waits_for('wait', 0) }), 'and nobody waits');
	kill 'TERM', $holder->{pid};
	finish($holder);
	return;
}

# Two with one ready file: it is there whichever of them leads.
sub one_ready_file
{
	my $ready = scratch('ready-of-both');
	my @electors = launch('elect', '--ready-file', $ready, 'shared', '--', 'sleep', '1000');
	ok(eventually(sub { -e $ready }), 'the first one leads');
	push @electors, launch('elect', '--ready-file', $ready, 'shared', '--', 'sleep', '1000');
	eventually(sub { waits_for('shared') });
	is_deeply([ lines_of($ready) ], [ leader('shared') ], 'the second one leaves its file alone');
	my $first = leader('shared');
	kill 'TERM', $electors[0]{pid};
	is(finish($electors[0]), 0, 'the first one ends');
	ok(eventually(sub { ((lines_of($ready))[0] // 0) > $first }), 'and the file is of the second one');
	is_deeply([ lines_of($ready) ], [ leader('shared') ], 'with its token');
	kill 'TERM', $electors[1]{pid};
	is(finish($electors[1]), 0, 'the second one ends');
	ok(!-e $ready, 'and there is no file');
	return;
}

cases(
	'three' => \&three,
	'one ready file' => \&one_ready_file,
	'terms' => \&terms,
	'on lose' => \&on_lose,
	'back off' => \&back_off,
	'notifications' => \&notifications,
	'alive' => \&alive,
	'hanging log' => \&hanging_log,
	'log-ins' => \&log_ins,
	'beginnings' => \&beginnings);
stop_server();
done_testing();
