#!/usr/bin/perl
# examples/examples.t : run every example, and every SQL example of
# doc/dlock.md, on the server that the environment names.
#
# The server is a throw-away one, which this connects to as superuser: it makes
# a database of its own, and roles that doc/dlock.md speaks of.
#
# t/Manual.pm says how an SQL example says what it answers.

use strict;
use warnings;
use File::Basename;
use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/../t";
use Manual;
use POSIX ':sys_wait_h';
use Test::More;
use Time::HiRes qw(time sleep);

my $examples = dirname(__FILE__);
my $readme = "$examples/../README.md";
my $manual = "$examples/../doc/dlock.md";
my $database = "dlock_examples_$$";
my $work = File::Temp->newdir;

# Run SQL without a look at the outcome.
sub setup
{
	my ($where, $sql) = @_;
	system('psql', '-X', '-q', '-d', $where, '-c', $sql) == 0
	  or BAIL_OUT("cannot run \"$sql\"");
	return;
}

# The only value that a query answers; NULL is "NULL".
sub value
{
	my ($sql) = @_;
	open(my $psql, '-|', 'psql', '-X', '-q', '-A', '-t', '-P', 'null=NULL',
		'-c', $sql)
	  or die "psql: $!";
	my $value = join('', <$psql>);
	close($psql);
	chomp $value;
	return $value;
}

# Wait until a query answers what it should.
sub poll
{
	my ($sql, $expected) = @_;
	my $end = time + 60;
	my $value;
	while (($value = value($sql)) ne $expected)
	{
		return fail("\"$sql\" still answers \"$value\"") if time > $end;
		sleep 0.05;
	}
	return 1;
}

sub slurp
{
	my ($path) = @_;
	open(my $file, '<', $path) or return '';
	local $/;
	return scalar <$file> // '';
}

# ----------------------------------------------------------------
# SQL
# ----------------------------------------------------------------

# A table, made alike as Manual::alike() does for a value.
sub alike_table
{
	my ($table) = @_;
	$table =~ s/\b\d{12,}\b/TOKEN/g;
	$table =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d/TIME/g;
	$table =~ s/-{2,}/--/g;
	$table =~ s/[ \t]+/ /g;
	$table =~ s/^ | $//mg;
	$table =~ s/\s+$//;
	return $table;
}

# Run statements in one session and compare their answers.
sub run_sql
{
	my ($what, @statements) = @_;
	my $script = "$work/script.sql";
	my $errors = "$work/errors";
	open(my $file, '>', $script) or die "$script: $!";
	for my $i (0 .. $#statements)
	{
		my $s = $statements[$i];
		print $file "\\pset format ",
		  (defined $s->{table} ? "aligned\n\\t off\n" : "unaligned\n\\t on\n");
		print $file "\\echo \@\@$i\n$s->{sql}\\echo \@\@state :SQLSTATE\n";
	}
	close($file);
	my $output = `psql -X -q -P null=NULL -P footer=off -f $script 2>$errors`;
	my @answers = split(/^\@\@\d+\n/m, $output);
	shift @answers;
	is(scalar(@answers), scalar(@statements), "$what: all statements ran");
	for my $i (0 .. $#answers)
	{
		my $s = $statements[$i];
		my ($answer, $state) =
		  $answers[$i] =~ /^(.*?)\@\@state (?:(\w{5})|:SQLSTATE)\n$/s;
		my $name = "$what, line $s->{line}";
		$state //= '00000';
		chomp $answer;
		if (defined $s->{table})
		{
			is(alike_table($answer), alike_table($s->{table}), $name);
		}
		elsif (!defined $s->{expected})
		{
			is($state, '00000', "$name: no error");
		}
		elsif ($s->{expected} =~ /^ERROR (\w{5})/)
		{
			is($state, $1, $name);
		}
		else
		{
			is(Manual::alike($answer), Manual::alike($s->{expected}), $name);
		}
	}
	my $expected =
	  grep { defined $_->{expected} && $_->{expected} =~ /^ERROR/ } @statements;
	my @raised = slurp($errors) =~ /ERROR: .*/g;
	is(scalar(@raised), $expected, "$what: only the errors it speaks of")
	  or diag(slurp($errors));
	return;
}

# ----------------------------------------------------------------
# Programs
# ----------------------------------------------------------------

my @children;

# Start a program in the background; its standard error goes to a file.
sub start
{
	my ($errors, @command) = @_;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null');
		open(STDERR, '>>', $errors);
		# of no use to the programs, and would keep the harness waiting
		open(STDOUT, '>&', \*STDERR);
		exec(@command) or POSIX::_exit(127);
	}
	push @children, $pid;
	return $pid;
}

# Wait for a program, at most a minute: its exit status.
sub finish
{
	my ($pid) = @_;
	my $end = time + 60;
	while (waitpid($pid, WNOHANG) == 0)
	{
		if (time > $end)
		{
			kill 'KILL', $pid;
			waitpid($pid, 0);
			return 'none, it had to be killed';
		}
		sleep 0.02;
	}
	@children = grep { $_ != $pid } @children;
	return $? & 127 ? 'signal ' . ($? & 127) : $? >> 8;
}

sub test_with_lease
{
	my $program = "$examples/with-lease";
	my $errors = "$work/with-lease.err";

	is(finish(start($errors, $program, 'a', 6, 'sh', '-c', 'exit 7')), 7,
		'with-lease: the status is that of the command');
	is(value("SELECT dlock_is_free('a')"), 't', 'and the lease is free again');

	is( finish(
			start($errors, $program, 'a', 6, 'sh', '-c',
				"echo \$DLOCK_TOKEN >$work/token")),
		0,
		'it tells the command');
	like(slurp("$work/token"), qr/^\d{12,}$/, 'the token');

	my $pid = start($errors, $program, 'a', 3, 'sleep', 4);
	poll("SELECT dlock_is_free('a')", 'f');
	my $token = value("SELECT token FROM dlock_holders('a')");
	is(finish(start($errors, $program, 'a', 3, 'touch', "$work/ran")), 75,
		'a second one is refused');
	ok(!-e "$work/ran", 'and does not run its command');
	my $renewed = 0;
	while (waitpid($pid, WNOHANG) == 0)
	{
		$renewed++
		  if value("SELECT token FROM dlock_holders('a')") eq $token;
		sleep 0.1;
	}
	is($? >> 8, 0, 'a command may take longer than the lease');
	ok($renewed > 10, 'which is renewed meanwhile');
	is(value("SELECT dlock_is_free('a')"), 't', 'and released in the end');

	is(finish(start($errors, $program, '-k', 100, 'kept', 6, 'true')), 0,
		'-k: a command that takes no time');
	is( value(
			"SELECT expires_at - acquired_at BETWEEN '98 s' AND '101 s' FROM dlock_holders('kept')"
		),
		't',
		'leaves its lease for as long as asked');

	$pid = start($errors, $program, 'a', 3, 'sleep', 60);
	poll("SELECT dlock_is_free('a')", 'f');
	is(value("SELECT dlock_force_release('a')"), 1, 'a lease is forced open');
	is(finish($pid), 70, 'and the command is stopped');
	like(slurp($errors), qr/lost the lease on "a"/, 'with a message');

	$pid = start($errors, $program, 'a', 6, 'sh', '-c', "echo >$work/runs; sleep 60");
	my $end = time + 60;
	sleep 0.02 while !-e "$work/runs" && time < $end;
	kill 'TERM', $pid;
	is(finish($pid), 143, 'a signal stops it');
	is(value("SELECT dlock_is_free('a')"), 't', 'and frees the lease');

	my @two = map { start($errors, $program, '-n', 2, 'n', 6, 'sleep', 60) } 1 .. 2;
	poll("SELECT count(*) FROM dlock_holders('n')", 2);
	is(finish(start($errors, $program, '-n', 2, 'n', 6, 'true')), 75,
		'-n 2: the third is refused');
	kill 'TERM', @two;
	is(finish($_), 143, 'stopped') for @two;

	# two at a time and one in line, which runs when a place comes free
	@two = map { start($errors, $program, '-n', 2, 'n', 6, 'sleep', 60) } 1 .. 2;
	poll("SELECT count(*) FROM dlock_holders('n')", 2);
	$pid = start($errors, $program, '-n', 2, '-w', 60, 'n', 6, 'touch',
		"$work/waited");
	poll("SELECT count(*) FROM dlock.waiters WHERE name = 'n'", 1);
	ok(!-e "$work/waited", '-w 60: the third waits');
	kill 'TERM', $two[0];
	is(finish($pid), 0, 'and is served');
	ok(-e "$work/waited", 'its command ran');
	kill 'TERM', $two[1];
	is(finish($_), 143, 'stopped') for @two;
	is(finish(start($errors, $program, 'n', 6, 'true')), 0, 'all is free again');

	local $ENV{PGHOST} = "$work";
	is(finish(start($errors, $program, 'a', 6, 'true')), 69, 'no server');
	is(finish(start($errors, $program, 'a')), 64, 'no command');
	return;
}

sub test_job_worker
{
	my $program = "$examples/job-worker";
	my $errors = "$work/job-worker.err";
	value('CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL, done_at timestamptz)');
	value("INSERT INTO jobs (payload) SELECT 'thing ' || i FROM generate_series(1, 12) i");

	# the first worker claims five and dies over the first of them
	my $first = start($errors, $program, 3, 'sh', '-c', "echo \$1 >>$work/begun; sleep 1000", 'sh');
	my $end = time + 60;
	sleep 0.02 while !-e "$work/begun" && time < $end;
	is(value("SELECT count(*) FROM dlock.locks WHERE name LIKE 'job/%'"), 5, 'job-worker: one claims five jobs');
	kill 'KILL', $first;
	is(finish($first), 'signal 9', 'and dies');

	my @others = map { start("$errors.$_", $program, 3, 'sh', '-c', "echo \$1 >>$work/did; sleep 0.1", 'sh') } 1 .. 2;
	is(finish($_), 0, 'the others end') for @others;
	is(value('SELECT count(*) FROM jobs WHERE done_at IS NULL'), 0, 'when all jobs are done');
	is(join(' ', sort { $a <=> $b } slurp("$work/did") =~ /thing (\d+)/g), join(' ', 1 .. 12), 'each once, those of the dead one too');
	is(value("SELECT count(*) FROM dlock.locks WHERE name LIKE 'job/%' AND expires_at > clock_timestamp()"), 0, 'no job is held any more');
	is(slurp("$errors.$_"), '', 'without a word') for 1 .. 2;

	# one whose command fails is done later; one that is taken away is not noted as done
	value("INSERT INTO jobs (payload) VALUES ('again')");
	is(finish(start($errors, $program, 3, 'sh', '-c', "test -e $work/failed || { touch $work/failed; false; }")), 0, 'a job that fails');
	like(slurp($errors), qr/job 13 failed/, 'is said');
	is(value('SELECT count(*) FROM jobs WHERE done_at IS NULL'), 0, 'and done in the end');
	value("INSERT INTO jobs (payload) VALUES ('lost')");
	my $lost = start($errors, $program, 30, 'sh', '-c', "touch $work/works; until [ -e $work/taken ]; do sleep 0.05; done");
	sleep 0.02 while !-e "$work/works" && time < $end;
	is(value("SELECT dlock_force_release('job/14')"), 1, 'a job that is taken from its worker');
	like(value("SELECT dlock_acquire('job/14', 'somebody else', 60)"), qr/^\d+$/, 'by somebody else');
	open(my $taken, '>', "$work/taken") or die "taken: $!";
	close($taken);
	poll("SELECT count(*) FROM dlock.waiters", 1);
	like(slurp($errors), qr/job 14 is another's/, 'is not noted as done');
	is(value('SELECT count(*) FROM jobs WHERE done_at IS NULL'), 1, 'but left');
	is(value("SELECT dlock_release('job/14', 'somebody else')"), 't', 'to who has it, and then');
	is(finish($lost), 0, 'to who waits');
	is(value('SELECT count(*) FROM jobs WHERE done_at IS NULL'), 0, 'who does it');
	is(finish(start($errors, $program, 2, 'true')), 64, 'a time to live that is too short');
	return;
}

sub test_leader
{
	my $program = "$examples/leader";
	my $errors = "$work/leader.err";
	my $leader = "SELECT token FROM dlock_holders('group') WHERE expires_at > clock_timestamp()";

	# each term writes a line, and each end of one another
	my @command = ('sh', '-c',
		"echo start \$DLOCK_TOKEN >>$work/terms; sleep 1000 & trap 'kill \$!' TERM; wait");
	my $first = start($errors, $program, 'group', 3, @command);
	poll("SELECT dlock_is_free('group')", 'f');
	my $token1 = value($leader);
	my $second = start($errors, $program, 'group', 3, @command);

	sleep 4;
	is(value($leader), $token1, 'leader: the first one stays the leader');
	is(() = slurp("$work/terms") =~ /start/g, 1, 'and alone runs the command');

	kill 'TERM', $first;
	is(finish($first), 143, 'it is stopped');
	poll("SELECT count(*) FROM dlock_holders('group') WHERE token > $token1", 1);
	my $token2 = value($leader);
	cmp_ok($token2, '>', $token1, 'the second one takes over');

	# lost to somebody else: the command is stopped, and starts again later
	is(value("SELECT dlock_force_release('group')"), 1, 'an operator');
	is(value("SELECT dlock_acquire('group', 'operator', 4) IS NOT NULL"),
		't', 'takes its place');
	my $end = time + 60;
	sleep 0.1 while slurp($errors) !~ /not the leader any more.*not the leader any more/s && time < $end;
	like(slurp($errors), qr/not the leader any more.*not the leader any more/s,
		'it steps down');
	poll("SELECT count(*) FROM dlock_holders('group') WHERE token > $token2 AND owner <> 'operator'", 1);
	sleep 0.1 while (() = slurp("$work/terms") =~ /start/g) < 3 && time < $end;
	kill 'TERM', $second;
	is(finish($second), 143, 'and later leads again');
	my @terms = slurp("$work/terms") =~ /start (\d+)/g;
	is(scalar(@terms), 3, 'three terms in all');
	is("@terms", join(' ', sort { $a <=> $b } @terms), 'with growing tokens');

	is(finish(start($errors, $program, 'group', 3, 'sh', '-c', 'exit 5')), 5,
		'a leader whose command ends');
	is(value("SELECT dlock_is_free('group')"), 't', 'steps down');
	return;
}

sub test_cached
{
	my $program = "$examples/cached";
	my $errors = "$work/cached.err";
	my $file = "$work/page";

	# slow enough that all of them want it before it is there
	my @command = ('sh', '-c',
		"echo made >>$work/made; until [ -e $work/go ]; do sleep 0.05; done; echo content");
	my @all = map { start("$errors.$_", $program, $file, 60, @command) } 1 .. 5;
	poll("SELECT count(*) FROM dlock.waiters", 4);
	open(my $go, '>', "$work/go") or die "go: $!";
	close($go);
	is(finish($_), 0, 'cached: answers') for @all;
	is(slurp("$work/made"), "made\n", 'one of five makes it');
	is(slurp("$errors.$_"), "content\n", 'and all have it') for 1 .. 5;
	is(finish(start("$errors.6", $program, $file, 60, @command)), 0, 'later');
	is(slurp("$errors.6") . slurp("$work/made"), "content\nmade\n",
		'it is there');
	is(finish(start($errors, $program, "$work/no", 60, 'sh', '-c', 'exit 9')),
		9, 'a command that fails');
	ok(!-e "$work/no", 'leaves nothing behind');
	is(value("SELECT count(*) FROM dlock.locks WHERE name LIKE 'cached %'"),
		0, 'and no lease');
	return;
}

setup($ENV{PGDATABASE} // 'postgres', "CREATE DATABASE $database");
my $server_database = $ENV{PGDATABASE} // 'postgres';
$ENV{PGDATABASE} = $database;

# What the readme says of PostgreSQL; it creates the extension, and ends with a lease.
my @readme = grep { $_->{section} !~ /MySQL/ } Manual::read_file($readme);
ok(@readme > 5, 'the readme has examples');
run_sql('README.md', @readme);
is(value(q{SELECT dlock_release('nightly-report', 'worker-3')}), 't', 'the last one is held');

my @manual = Manual::read_file($manual);
ok(@manual > 20, 'the manual has examples');
run_sql('doc/dlock.md', @manual);
for my $file (sort glob("$examples/*.sql"))
{
	run_sql(basename($file), Manual::statements(1, split(/\n/, slurp($file))));
}
test_with_lease();
test_job_worker();
test_leader();
test_cached();

END
{
	my $status = $?;
	kill 'TERM', @children if @children;
	waitpid($_, 0) for @children;
	if ($server_database)
	{
		system('psql', '-X', '-q', '-d', $server_database, '-c',
			"DROP DATABASE IF EXISTS $database WITH (FORCE)");
		system('psql', '-X', '-q', '-d', $server_database, '-c',
			'SET client_min_messages = warning', '-c',
			"DROP ROLE IF EXISTS doc_app, doc_worker, doc_other, doc_operator");
	}
	$? = $status;
}

done_testing();
