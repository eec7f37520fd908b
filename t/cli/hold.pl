# dlock hold: a lease that is held for the program that has started it, on the kind of server
# that is the argument; see CommandCases.pm and ProgramWithLease.pm.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use InTime;
use JSON::PP;
use ProgramWithLease;
use Test::More;
use Time::HiRes qw(time);

start_server($ARGV[0]);

# What "dlock hold" is called with: patient, unless it is told otherwise.
sub hold
{
	my ($url, @arguments) = @_;
	my @ttl = grep({ $_ eq '--ttl' } @arguments) ? () : ('--ttl', 600);
	return (dlock(), 'hold', '--url', $url, '--timeout', $CommandCases::patience, @ttl, @arguments);
}

# Start a program that holds a lease.
sub start
{
	my $options = ref $_[0] ? shift : {};
	pipe(my $in, my $to) or die "pipe: $!\n";
	my ($perl, @arguments) = program(hold($options->{url} // url(), @_));
	my $run = launch({ program => $perl, in => $in }, @arguments);
	close($in);
	$run->{orders} = $to;
	return $run;
}

# Have it do something, and wait until it has begun to.
sub order
{
	my ($run, $what) = @_;
	syswrite($run->{orders}, "$what\n");
	eventually(sub { output($run) =~ /^does $what$/m });
	return;
}

# What it was told, each an object.
sub told
{
	my ($run) = @_;
	return map { decode_json($_) } output($run) =~ /^(\{.*\})$/mg;
}

# Wait until it was told of an event, which is the answer.
sub hears
{
	my ($run, $event) = @_;
	my $told;
	eventually(sub { ($told) = grep { $_->{event} eq $event } told($run) });
	return $told;
}

# The status of its "dlock hold", when that has ended.
sub status
{
	my ($run) = @_;
	eventually(sub { output($run) =~ /^status /m });
	return output($run) =~ /^status (.*)$/m ? $1 : '';
}

# Its "dlock hold", and the keeper.
sub main_process
{
	my ($run) = @_;
	eventually(sub { output($run) =~ /^process \d+$/m });
	return { pid => output($run) =~ /^process (\d+)$/m };
}

sub keeper
{
	my ($run) = @_;
	my $watchdog = watchdog_of(main_process($run)) // return;
	my ($keeper) = children($watchdog);
	return $keeper;
}

sub given_back
{
	my $before = time;
	my $run = start('line');
	my $held = hears($run, 'held');
	my $after = time;
	is(join(' ', sort keys %$held), 'deadline event name owner token', 'what a program is told');
	my $row = "FROM dlock.locks WHERE name = 'line' AND LIVE";
	is($held->{name}, 'line', 'the name');
	is($held->{token}, query("SELECT token $row"), 'the token');
	is($held->{owner}, query("SELECT owner $row"), 'the owner');
	cmp_ok($held->{deadline}, '>', $before + 595, 'and the deadline: the TTL');
	cmp_ok($held->{deadline}, '<=', $after + 600, 'and no more');
	order($run, 'exit');
	finish($run);

	for my $order (qw(release close))
	{
		in_time(RELEASED_IN, sub {
			my $name = "$order $_[0]";
			my $program = start($name);
			hears($program, 'held');
			order($program, 'chatter') if $order eq 'close';
			order($program, $order);
			is(status($program), 0, "$order: it ends");
			ok(holds_name($name, 0), 'and has given the lease back');
			is(scalar(told($program)), 1, 'and said no more');
			order($program, 'exit');
			is(finish($program), 3, 'the program goes on');
		});
	}

	# a process that the program has started, and that has its end of the pipe
	for my $how (qw(ends KILL))
	{
		my $program = start("heir $how");
		hears($program, 'held');
		order($program, 'leave');
		eventually(sub { output($program) =~ /^heir \d+$/m });
		my ($heir) = output($program) =~ /^heir (\d+)$/m;
		my $hold = main_process($program)->{pid};
		$how eq 'ends' ? order($program, 'exit') : kill($how, $program->{pid});
		is(finish($program), $how eq 'ends' ? 3 : 'signal 9', "a program ($how)");
		ok(eventually(sub { holds_name("heir $how", 0) }), 'whose end the lease does not outlive');
		ok(eventually(sub { state_of($hold) eq '' }), 'nor does what has held it');
		like(state_of($heir), qr/[RSD]/, 'though another process has the pipe');
		kill 'KILL', $heir;
	}

	in_time(RELEASED_IN, sub {
		my $program = start('--keep', '1000', '--owner', 'me', "kept $_[0]");
		is(hears($program, 'held')->{owner}, 'me', '--owner');
		order($program, 'release');
		is(status($program), 0, '--keep');
		cmp_ok(query("SELECT coalesce(max(SECONDS_LEFT), 0) FROM dlock.locks WHERE name = 'kept $_[0]' AND LIVE"), '>', 600, 'keeps the lease');
	});
	my @two = map { start('--permits', '2', 'permits') } 1 .. 2;
	hears($_, 'held') for @two;
	is(status(start('--permits', '2', 'permits')), 75, '--permits');
	my @shared = map { start('--shared', 'shared') } 1 .. 2;
	hears($_, 'held') for @shared;
	is(status(start('shared')), 75, '--shared');
	return;
}

# What a terminal or a service manager sends to a whole job is for the program.
sub signals
{
	my $run = start('signals');
	hears($run, 'held');
	for my $pid (main_process($run)->{pid}, watchdog_of(main_process($run)), keeper($run))
	{
		kill $_, $pid for qw(HUP INT QUIT TERM USR1);
	}
	order($run, 'release');
	is(status($run), 0, 'a signal does not end it');
	return;
}

sub not_held
{
	my $holder = start('busy');
	hears($holder, 'held');
	my $run = start('busy');
	is(status($run), 75, 'a name that is not free');
	is(scalar(told($run)), 0, 'a program is told nothing');
	is(errors($run), qq{dlock: "busy" is not free\n}, 'a person is');
	$run = start('--quiet', 'busy');
	is(status($run) . errors($run), '75', 'or not');

	for my $order (qw(release close exit))
	{
		$run = start('--quiet', '--wait', 'forever', 'busy');
		eventually(sub { waits_for('busy') });
		my $hold = main_process($run)->{pid};
		order($run, 'leave') if $order eq 'exit';
		order($run, $order);
		is(status($run), 75, "one that waits: $order") if $order ne 'exit';
		ok(eventually(sub { waits_for('busy', 0) && state_of($hold) =~ /^Z?$/ }), "one that waits ($order) waits no more");
		kill 'KILL', output($run) =~ /^heir (\d+)$/m if $order eq 'exit';
	}
	$run = start('--wait', 'forever', 'busy');
	eventually(sub { waits_for('busy') });
	order($holder, 'release');
	ok(hears($run, 'held'), 'one that goes on waiting gets it');

	for my $wrong (['x', 'y'], [], ['--ttl', '10', '--grace', '6', 'x'], ['--shared', '--permits', '2', 'x'])
	{
		is(status(start(@$wrong)), 64, "misuse: @$wrong");
	}
	is(status(start({ url => url(undef, 'nobody_of_that_name') }, 'x')), 77, 'an account that may not log in');
	return;
}

sub lost
{
	my $run = start('--ttl', '15', 'evicted');
	my $held = hears($run, 'held');
	query(q{SELECT dlock_force_release('evicted')});
	my $lost = hears($run, 'lost');
	is($lost->{token}, $held->{token}, 'a program is told of a loss');
	is(status($run), 70, 'as the status says');
	like(errors($run), qr/^dlock: lost the lease on "evicted": /m, 'and why');
	order($run, 'exit');
	is(finish($run), 3, 'and goes on');

	# it is the keeper that says it in time
	$run = start('--ttl', '3', 'stopped');
	hears($run, 'held');
	my $hold = main_process($run)->{pid};
	freeze($hold);
	ok(hears($run, 'lost'), 'one is told, though what holds the lease was stopped');
	thaw($hold);
	is(status($run), 70, 'as that says when it goes on');

	$run = start('killed');
	hears($run, 'held');
	my $keeper = keeper($run);
	kill 'KILL', main_process($run)->{pid};
	is(status($run), 'signal 9', 'the end of the output says it, too');
	ok(eventually(sub { state_of($keeper) eq '' }), 'and nothing stays');
	ok(holds_name('killed'), 'of a lease that ends by its TTL');
	return;
}

# A network that is gone for a while.
sub late
{
	my ($port, $tell) = proxy();
	my $run;
	my $told = sub { join(' ', map { $_->{event} } told($run)) };
	for my $try (1 .. 10)
	{
		$run = start({ url => url($port) }, '--ttl', '15', "late $try");
		hears($run, 'held');
		$tell->('swallow');
		hears($run, 'late');
		$tell->('pass');
		eventually(sub { $told->() =~ /renewed|lost/ });
		last if $told->() !~ /lost/;
		# on a machine that stands still
	}
	like($told->(), qr/\Aheld late renewed/, 'a lease that was not renewed in time, and then was');
	my @deadlines = map { $_->{deadline} } told($run);
	cmp_ok($deadlines[2], '>', $deadlines[1] + 4, 'has a later deadline');
	$tell->('swallow');
	is(status($run), 70, 'a network that stays away: it is lost');
	like($told->(), qr/ lost\z/, 'as is told');
	return;
}

# A program that is to be ended with its lease, and one that does without it.
sub killed
{
	my $run = start('--kill-parent', '--ttl', '15', 'term');
	hears($run, 'held');
	query(q{SELECT dlock_force_release('term')});
	is(finish($run), 'signal 15', 'a program whose lease is lost is ended');
	$run = start('--kill-parent', '--ttl', '15', '--grace', '0.5', 'kill');
	hears($run, 'held');
	order($run, 'stubborn');
	query(q{SELECT dlock_force_release('kill')});
	is(finish($run), 'signal 9', 'or killed, if need be');

	# one that has given its lease back is nobody's, also when what has held it goes wrong
	$run = start('--kill-parent', 'done');
	hears($run, 'held');
	order($run, 'release');
	is(status($run), 0, 'a program that does without the lease');
	order($run, 'exit');
	is(finish($run), 3, 'is left alone');
	$run = start('--kill-parent', 'watchdog');
	hears($run, 'held');
	my $watchdog = watchdog_of(main_process($run));
	freeze($watchdog);
	order($run, 'release');
	is(status($run), 0, 'also if the watchdog was stopped');
	order($run, 'exit');
	is(finish($run), 3, 'which is killed instead');
	my $holder = start('--kill-parent', 'line');
	hears($holder, 'held');
	$run = start('--kill-parent', '--wait', 'forever', 'line');
	eventually(sub { waits_for('line') });
	kill 'KILL', main_process($run)->{pid};
	is(status($run), 'signal 9', 'nor is a program killed that still waits');
	order($run, 'exit');
	is(finish($run), 3, 'since it has not begun');

	# the first process of a container
	my @unshare = ('--fork', '--pid', '--mount-proc', $> == 0 ? () : '--map-root-user');
	return pass('PID namespaces cannot be made here') if system('unshare', @unshare, 'true') != 0;
	$run = launch({ program => 'unshare' }, @unshare, $^X, '-e',
		'$SIG{CHLD} = "DEFAULT"; open(STDIN, "<", "/dev/null"); my $s = system { $ARGV[0] } @ARGV; print $s >> 8, "\n"', hold(url(), '--kill-parent', 'first'));
	finish($run);
	is(output($run), "71\n", 'one that cannot be killed is found out');
	like(errors($run), qr/--kill-parent: the parent, process 1, cannot be killed/, 'as is said');
	return;
}

# ----------------------------------------------------------------
# --kill-parent: whatever happens, the program is gone before another has the lease
# ----------------------------------------------------------------

sub broken
{
	my ($name, $break, %more) = @_;
	return sub {
		my ($port, $network) = $more{cut} ? proxy() : ();
		my $url = url($port);
		for my $try (1 .. 10)
		{
			my $file = scratch("tokens-$try");
			my ($perl, @arguments) = writer_with_lease($file, hold($url, '--kill-parent', '--ttl', '3', '--grace', '0.5', "$name $try"));
			my $first = launch({ program => $perl }, @arguments);
			eventually(sub { -s $file || defined has_ended($first) });
			my ($hold) = grep { defined $_->{pid} && watchdog_of($_) } map { { pid => $_ } } children($first->{pid} // 0);
			my $second = launch('run', '--ttl', '60', '--grace', '0.5', '--wait', 'forever', "$name $try", '--', writer($file, 0.3));
			eventually(sub { waits_for("$name $try") || defined has_ended($first) });
			# on a machine that stands still the lease was lost before
			my $broken = $hold && !defined has_ended($first) && $break->($hold);
			$network->('swallow') if $more{cut};
			my $ended = finish($first);
			is(finish($second), 0, 'the second gets the lease');
			thaw(@$broken) if ref $broken;
			$network->('pass') if $more{cut};
			next if $try < 10 && (!$broken || errors($first) =~ /not killed in time/);
			is($ended, 'signal 9', 'the first is killed');
			one_after_the_other($file, 2);
			last;
		}
		return;
	};
}

# Stop processes, and answer them.
sub stop
{
	my @pids = @_;
	return if grep { !defined } @pids;
	freeze(@pids);
	return \@pids;
}

sub keeper_of
{
	my ($hold) = @_;
	my $watchdog = watchdog_of($hold) // return;
	my ($keeper) = children($watchdog);
	return $keeper;
}

cases(
	'given back' => \&given_back,
	'signals' => \&signals,
	'not held' => \&not_held,
	'lost' => \&lost,
	'late' => \&late,
	'killed' => \&killed);
cases(
	'main process killed' => broken('killed', sub { kill 'KILL', $_[0]{pid} }),
	'main process stopped' => broken('stopped', sub { stop($_[0]{pid}) }),
	'watchdog killed' => broken('watchdog killed', sub { my $watchdog = watchdog_of($_[0]); $watchdog && kill 'KILL', $watchdog }),
	'keeper killed' => broken('keeper killed', sub { my $keeper = keeper_of($_[0]); $keeper && kill 'KILL', $keeper }),
	'network cut' => broken('network', sub { 1 }, cut => 1),
	'network cut, main process stopped' => broken('cut, stopped', sub { stop($_[0]{pid}) }, cut => 1),
	'network cut, watchdog stopped' => broken('cut, watchdog stopped', sub { stop(watchdog_of($_[0])) }, cut => 1),
	'network cut, keeper stopped' => broken('cut, keeper stopped', sub { stop(keeper_of($_[0])) }, cut => 1));
stop_server();
done_testing();
