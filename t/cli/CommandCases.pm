# CommandCases.pm: the cases for the command dlock, run side by side on one server.
#
# A case is a function, run in a process of its own, since it mostly waits.  Its checks
# with Test::More become tests of the file.  In a case,
#
#   launch(...)        starts "dlock ...", with a URL of the server, in the background
#   finish($run)       waits for its end: its status, or "signal N"
#   output, errors     what it has printed
#   query($sql)        the first value, asked by an administrator
#   eventually($check) waits until it is true
#
# The program is cli/dlock, or the one that DLOCK_COMMAND names.

package CommandCases;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter qw(import);
use File::Temp qw(tempdir);
use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Files;
use IO::Pty;
use POSIX qw(:sys_wait_h);
use Proxy;
use Test::More;
use Time::HiRes qw(time sleep);
use WriterOfTokens;

BEGIN
{
	require PostgreSQL::Test::Cluster if ($ARGV[0] // '') eq 'postgres';
}

our @EXPORT = qw(start_server stop_server cases launch finish has_ended output errors query account disconnect eventually
  lines_of write_text scratch was_late url socket_path dlock engine processes children watchdog_of state_of freeze
  thaw proxy holds_name waits_for sleeps_for boot_time writer one_after_the_other RELEASED_IN);

our $patience = 180;

# How long dlock tries to give a lease back, or to keep it, in seconds; then it leaves it to its
# deadline.
use constant RELEASED_IN => 5;

my ($engine, $dlock, $scratch, $client);
my $count = 0;
my @running;

sub engine { return $engine }

sub dlock { return $dlock }

# A name for a file of this case's own.
sub scratch
{
	my ($name) = @_;
	return "$scratch/$$-$name";
}

sub start_server
{
	my ($kind) = @_;
	$dlock = abs_path($ENV{DLOCK_COMMAND} // "$FindBin::RealBin/../../cli/dlock")
	  // die "cli/dlock is not built\n";
	# no URL but ours
	delete $ENV{DLOCK_URL};
	delete $ENV{$_} for grep { /^PG(?!_)/ } keys %ENV;
	$scratch = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	$engine = Engines::start($kind);
	return;
}

sub stop_server
{
	$engine->end_control;
	$engine->stop;
	return;
}

# The server's socket, by its path.
sub socket_path
{
	return $engine->kind eq 'postgres'
	  ? $engine->{node}->host . '/.s.PGSQL.' . $engine->{node}->port
	  : "$engine->{dir}/socket";
}

# A URL: of the server's socket, or of a port of a proxy's, for a user.
sub url
{
	my ($port, $user) = @_;
	$user //= 'tester';
	if ($engine->kind eq 'postgres')
	{
		my ($host, $at) = defined $port ? ('127.0.0.1', $port) : ($engine->{node}->host, $engine->{node}->port);
		return "host=$host port=$at dbname=postgres user=$user";
	}
	return "mysql://$user\@127.0.0.1:$port/scenarios" if defined $port;
	return "mysql://$user\@localhost/scenarios?socket=$engine->{dir}/socket";
}

# ----------------------------------------------------------------
# Cases
# ----------------------------------------------------------------

# Run cases, by name and function, side by side.
sub cases
{
	my @cases = @_;
	my %running;
	while (my ($name, $case) = splice(@cases, 0, 2))
	{
		my $results = "$scratch/results-" . ++$count;
		# so that nothing buffered is written twice
		STDOUT->flush;
		my $pid = fork() // die "fork: $!\n";
		if ($pid == 0)
		{
			run_case($name, $case, $results);
			POSIX::_exit(0);
		}
		$running{$pid} = [ $name, $results ];
	}
	while (%running)
	{
		my $pid = wait;
		my $case = delete $running{$pid} // next;
		my $status = $?;
		report(@$case, $status);
	}
	return;
}

sub run_case
{
	my ($name, $case, $results) = @_;
	my $builder = Test::More->builder;
	open(my $file, '>', $results) or POSIX::_exit(1);
	$file->autoflush(1);
	$builder->reset;
	$builder->$_($file) for qw(output failure_output todo_output);
	undef $client;
	@running = ();
	$SIG{PIPE} = 'IGNORE';
	eval { $case->(); 1 } or fail("died: $@");
	for my $run (@running)
	{
		next unless defined $run->{pid};
		kill 'CONT', $run->{pid};
		kill 'KILL', $run->{pid};
	}
	$client->kill if $client;
	done_testing();
	return;
}

# Take over the results of a case.
sub report
{
	my ($name, $results, $status) = @_;
	open(my $file, '<', $results) or die "$results: $!\n";
	my $ended = 0;
	while (my $line = <$file>)
	{
		if ($line =~ /^(not )?ok \d+ - (.*)/) { ok(!$1, "$name: $2") }
		elsif ($line =~ /^1\.\./) { $ended = 1 }
		elsif ($line =~ /^# ?(.*)/) { diag("$name: $1") }
	}
	ok($ended && $status == 0, "$name: ran to its end");
	return;
}

sub eventually
{
	my ($check) = @_;
	my $end = time + $patience;
	my $value;
	while (!($value = $check->()))
	{
		if (time > $end)
		{
			my (undef, $file, $line) = caller;
			# a condition that nobody looks at is one that the rest needs
			die "never became true: $file line $line\n" unless defined wantarray;
			diag("never became true: $file line $line");
			return 0;
		}
		sleep 0.02;
	}
	return $value;
}

# Ask as an administrator.
sub query
{
	my ($sql) = @_;
	$client //= $engine->client('admin');
	return $client->value($engine->translate($sql));
}

# An account that may log in, or not, as it is told later; and end its connections.
sub account
{
	my ($name) = @_;
	my $is_postgres = $engine->kind eq 'postgres';
	query($_) for $is_postgres ? "CREATE ROLE $name LOGIN" : ("CREATE USER $name\@localhost", "GRANT SELECT ON scenarios.* TO $name\@localhost");
	my $let = sub {
		my ($in) = @_;
		query($is_postgres ? "ALTER ROLE $name " . ($in ? 'LOGIN' : 'NOLOGIN') : "ALTER USER $name\@localhost ACCOUNT " . ($in ? 'UNLOCK' : 'LOCK'));
	};
	my $disconnect = sub {
		return query("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$name'") if $is_postgres;
		while (my $id = query("SELECT coalesce(max(id), 0) FROM information_schema.processlist WHERE user = '$name'")) { eval { query("KILL $id") } }
	};
	return ($let, $disconnect);
}

# For a server that is to be restarted.
sub disconnect
{
	$client->quit if $client;
	undef $client;
	return;
}

# Does somebody hold a name, by the server's clock?
sub holds_name
{
	my ($name, $number) = @_;
	return query("SELECT count(*) FROM dlock.locks WHERE name = '$name' AND LIVE") == ($number // 1);
}

# Does somebody wait for a name?
sub waits_for
{
	my ($name, $number) = @_;
	return query("SELECT count(*) FROM dlock.waiters WHERE name = '$name'") == ($number // 1);
}

# The same of one that has looked for deadlocks, too.
sub sleeps_for
{
	my ($name) = @_;
	return waits_for($name) && query('SELECT count(*) FROM (' . $engine->sleepers . ") AS sleepers WHERE name = '$name'") == 1;
}

# ----------------------------------------------------------------
# Programs
# ----------------------------------------------------------------

# Subcommands that wait for a server for ten seconds, unless they are told otherwise: on a busy
# machine it has more time.
my %patient = map { $_ => 1 } qw(run acquire renew release wait owner force-release ls waiters stats doctor);

# What keeps these patient: their leases do not end on a machine that stands still, either.
sub patience_for
{
	my ($subcommand, @arguments) = @_;
	my @options;
	push @options, '--timeout', $patience if $patient{$subcommand};
	push @options, '--ttl', 600 if $subcommand =~ /^(?:run|elect)$/ && !grep { $_ eq '--ttl' } @arguments;
	return @options;
}

# Start dlock in the background: its arguments, after { url, in, out, env, before }, all
# optional; or another program with its arguments, { program }.
sub launch
{
	my $options = ref $_[0] ? shift : {};
	my ($subcommand, @arguments) = @_;
	my $base = scratch('run-' . ++$count);
	my $run = { out => $options->{out} // "$base.out", err => "$base.err" };
	write_text($_, '') for grep { !ref } @$run{qw(out err)};
	my @command = ($dlock, $subcommand, '--url', $options->{url} // url(), patience_for($subcommand, @arguments), @arguments);
	@command = ($dlock, $subcommand, @arguments) if $options->{no_url};
	@command = ($options->{program}, $subcommand, @arguments) if $options->{program};
	$run->{pid} = fork() // die "fork: $!\n";
	if ($run->{pid} == 0)
	{
		open(STDIN, ref $options->{in} ? '<&' : '<', $options->{in} // '/dev/null')
		  or POSIX::_exit(99);
		open(STDOUT, ref $run->{out} ? '>&' : '>>', $run->{out}) or POSIX::_exit(99);
		open(STDERR, '>>', $run->{err}) or POSIX::_exit(99);
		take_all_signals();
		$ENV{$_} = $options->{env}{$_} for keys %{ $options->{env} // {} };
		$options->{before}->() if $options->{before};
		exec { $command[0] } @command or POSIX::_exit(99);
	}
	push @running, $run;
	return $run;
}

# In a process that is to become a program: have signals do what they do in a shell, also if
# the tests run under nohup, or in the background.
sub take_all_signals
{
	$SIG{$_} = 'DEFAULT' for qw(PIPE HUP INT QUIT TSTP);
	return;
}

# Its exit status, or "signal N"; undef if it runs.
sub has_ended
{
	my ($run) = @_;
	return $run->{status} if !defined $run->{pid};
	return if waitpid($run->{pid}, WNOHANG) == 0;
	delete $run->{pid};
	return $run->{status} = $? & 127 ? 'signal ' . ($? & 127) : $? >> 8;
}

# Wait for its end.
sub finish
{
	my ($run) = @_;
	my $end = time + $patience;
	my $status;
	until (defined($status = has_ended($run)))
	{
		if (time > $end)
		{
			diag('"dlock" does not end; it said: ' . errors($run));
			kill 'KILL', $run->{pid};
			waitpid($run->{pid}, 0);
			delete $run->{pid};
			return $run->{status} = 'none, it had to be killed';
		}
		sleep 0.01;
	}
	return $status;
}

sub output { return slurp($_[0]{out}) }

sub errors { return slurp($_[0]{err}) }

# Has a run lost its lease by itself?  It does, and says so, on a machine too busy to renew in
# a short time to live; and if its watchdog could not run, its command was late.  What is to
# be shown of a lease with a short time to live is then tried once more, some times.
sub was_late
{
	return scalar grep { errors($_) =~ /could not be renewed in time|not killed in time/ } @_;
}

# ----------------------------------------------------------------
# Processes
# ----------------------------------------------------------------

# All that live, by pid: [parent, group, name]
sub processes
{
	my %all;
	for my $path (glob '/proc/[0-9]*/stat')
	{
		my ($pid, $name, $state, $parent, $group) = slurp($path) =~ /^(\d+) \((.*)\) (\w) (\d+) (\d+)/s
		  or next;
		$all{$pid} = [ $parent, $group, $name ] if $state !~ /[ZX]/;
	}
	return \%all;
}

sub children
{
	my ($pid) = @_;
	my $all = processes();
	return grep { $all->{$_}[0] == $pid } keys %$all;
}

sub watchdog_of
{
	my ($run) = @_;
	my $all = processes();
	my ($pid) = grep { $all->{$_}[0] == $run->{pid} && $all->{$_}[2] eq 'dlock-watchdog' } keys %$all;
	return $pid;
}

# A process's state, as ps shows it; "" if there is none.
sub state_of
{
	my ($pid) = @_;
	return slurp("/proc/$pid/stat") =~ /\) (\w) /s ? $1 : '';
}

# Stop processes, and wait until they are.
sub freeze
{
	my (@pids) = @_;
	kill 'STOP', @pids;
	return eventually(sub { !grep { state_of($_) !~ /^[TZ]?$/ } @pids });
}

sub thaw
{
	my (@pids) = @_;
	kill 'CONT', @pids;
	return;
}

# ----------------------------------------------------------------
# A network between dlock and the server
# ----------------------------------------------------------------

# Start a proxy (Proxy.pm); answers its port, and a function that tells it what to do:
# "pass", "swallow" what comes, in both directions, wait until it is "swallowed", or "cut"
# all connections.
sub proxy
{
	my $proxy = Proxy->start(socket_path());
	return ($proxy->port, sub { $proxy->order($_[0]) });
}

# ----------------------------------------------------------------
# Who writes when
# ----------------------------------------------------------------

# Check a file of writers (WriterOfTokens.pm): so many tokens, which never go down, and no process that ran beside
# the next holder's.
sub one_after_the_other
{
	my ($file, $tokens) = @_;
	my @lines = lines_of($file);
	my @order;
	my $last = 0;
	for my $line (@lines)
	{
		my ($token) = $line =~ /^(\d+) [\d.]+ \d+$/ or next;
		push @order, $token if $token != $last;
		$last = $token;
	}
	is("@order", join(' ', sort { $a <=> $b } @order), 'tokens never go down');
	is(scalar(@order), $tokens, "there are $tokens of them");
	is(join(', ', grep { !/^\d+ [\d.]+ \d+$/ } @lines), '', 'nobody lives beside the next holder');
	return;
}

1;
