# The log on a real server: what each way of failing is answered; and three writers that
# append to one log, carry and clean (log_attack.c, under AddressSanitizer), while their
# connections, they themselves and the server are killed, or stand still.  At the end
# nothing that was acknowledged is lost or doubled, and the fold of the table is that of all
# rows that there ever were.  The kind of server is the argument; LOG_SECONDS says how long;
# "make torture" makes it long.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use Sanitizers;
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);

my ($kind) = @ARGV;
my $seconds = $ENV{LOG_SECONDS} // ($ENV{TORTURE_MINUTES} ? 60 * $ENV{TORTURE_MINUTES} : 10);
my $flags = '-fsanitize=address,undefined -fno-sanitize-recover=all';
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
Sanitizers::need($dir, $flags);
my $program = BuiltOnce::folder(
	$dir, 'log_attack',
	sub {
		my ($folder) = @_;
		my $library = `mariadb_config --variable=pkglibdir` =~ s/\s*$/\/libmariadb.a/r;
		my $small = '-DCLEAN_LEAST=20 -DCLEAN_PIECE=15 -DCLEAN_AGE_US=50000 -DLOG_BYTES_LEAST=3000';
		system("cc -std=gnu11 -O1 -g -pthread -fno-omit-frame-pointer -Wall -Wextra -Wno-unused-parameter -Werror $flags $small"
			  . " -Icore -Imysql_udf/log \$(mariadb_config --include) -o $folder/log_attack"
			  . " t/mysql/log_attack.c mysql_udf/log/*.c $library \$(mariadb_config --libs_sys)") == 0
		  or die "could not build log_attack.c\n";
	}) . '/log_attack';

# a server without dlock
my $engine = bless { kind => $kind, options => [], dir => $dir }, 'Engines::MySQL';
my %writers;    # by process id, which they are
my $owner = $$;

END
{
	my $status = $?;
	if ($$ == $owner)
	{
		kill 'KILL', keys %writers;
		eval { $engine->stop; 1 } or warn $@;
		$engine->keep_log("log_attack-$kind");
	}
	$? = $status;
}
$engine->boot;
my $socket = "$dir/socket";

# what it has in memory at its end is no leak
$ENV{ASAN_OPTIONS} = 'detect_leaks=0';

sub run { return `$program $socket @_ 2>&1` }

sub new_log
{
	$engine->control->value('DROP DATABASE IF EXISTS dlock; CREATE DATABASE dlock');
	make_log();
	return;
}

# As install.sql does.
sub make_log
{
	open(my $file, '<', 'mysql_udf/engine/install.sql') or die "install.sql: $!\n";
	local $/;
	my @statements = <$file> =~ /^(CREATE TABLE IF NOT EXISTS dlock\.log .*?;)\n(INSERT INTO dlock\.log .*?;)/ms
	  or die "install.sql makes no log\n";
	$engine->control->value($_) for @statements;
	return;
}

new_log();
make_log();
is($engine->control->value('SELECT COUNT(*) FROM dlock.log'), 1, 'installed twice the log has one row');
my $said = run('cases');
is($?, 0, 'each way of failing was tried');
unlike($said, qr/^not ok/m, 'and answered as it should') or diag($said);
like($said, qr/^1\.\.[1-9]\d+$/m, 'to the end');
my @journals = map { "$dir/journal$_" } 1 .. 3;
my $starts = 0;

sub start_writer
{
	my ($number) = @_;
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		open(STDOUT, '>>', "$dir/said") or die;
		open(STDERR, '>&', \*STDOUT) or die;
		exec $program, $socket, 'write', $journals[$number], $starts;
	}
	$starts++;
	$writers{$pid} = $number;
	return;
}

sub some_writer { return (keys %writers)[rand keys %writers] }

my %done = map { $_ => 0 } qw(writer connection server frozen stopped);
my %attack = (
	writer => sub {
		my $pid = some_writer();
		kill 'KILL', $pid;
		waitpid($pid, 0);
		start_writer(delete $writers{$pid});
		return 1;
	},
	connection => sub {
		my $id = $engine->control->value("SELECT coalesce(max(id), 0) FROM
			(SELECT id FROM information_schema.processlist WHERE id <> connection_id()
				AND command <> 'Daemon' AND user = 'root' ORDER BY rand() LIMIT 1) p");
		return $id > 0 && !defined $engine->control->query("KILL $id")->{error};
	},
	server => sub {
		$engine->crash;
		return 1;
	},
	# long enough for the others to clean away what it knows
	frozen => sub {
		my $pid = some_writer();
		kill 'STOP', $pid;
		usleep(rand 600_000);
		kill 'CONT', $pid;
		return 1;
	},
	stopped => sub {
		kill 'STOP', $engine->pid;
		usleep(rand 300_000);
		kill 'CONT', $engine->pid;
		return 1;
	});

sub sizes { return map { -s || 0 } @journals }

# The server is killed each time that much has been written, since a restart may take longer
# than all the rest.
my $enough = 150_000;    # bytes of each journal

# Attack one log for so long.
sub attack
{
	my ($time) = @_;
	my $began = time;
	my $next = $enough;

	new_log();
	unlink "$dir/said", @journals;
	$_ = 0 for values %done;
	start_writer($_) for 0 .. 2;
	until (time - $began > $time && $done{server} > 1 && !grep { !$_ } values %done
		and !grep { $_ < $enough } sizes())
	{
		my $written = 0;
		$written += $_ for sizes();
		my @kinds = (qw(writer frozen stopped), ('connection') x 4);
		my $what = $written > $next ? 'server' : $kinds[rand @kinds];
		$done{$what} += $attack{$what}->() ? 1 : 0;
		$next = $written + 2 * $enough if $what eq 'server';
		usleep(rand 200_000);
		if (my ($dead) = grep { waitpid($_, 1) == $_ } keys %writers)
		{
			delete $writers{$dead};
			last;
		}
	}
	is(scalar keys %writers, 3, 'all writers have gone on');
	kill 'TERM', $_ for keys %writers;
	for my $pid (keys %writers)
	{
		waitpid($pid, 0);
		# or it was started just now, and had not begun
		ok($? == 0 || $? == 15, 'a writer found nothing wrong') or diag("it ended with $?");
		delete $writers{$pid};
	}
	open(my $file, '<', "$dir/said") or die "could not open $dir/said: $!\n";
	my $all = join('', <$file>);
	diag($all) unless Test::More->builder->is_passing;
	note($all);
	note(join(', ', map { "$_ $done{$_}" } sort keys %done));
	my $found = run('check', @journals);
	is($?, 0, 'all that was acknowledged is there, once') or diag($found);
	like($found, qr/^rows [1-9]\d+, acknowledged batches [1-9]\d+,/, 'and there was much');
	note($found);
	return;
}

# the journals of one have all rows that it ever had, so it cannot go on for long
my $end = time + $seconds;
do
{
	attack($seconds < 30 ? $seconds : 30);
} while (Test::More->builder->is_passing && time < $end);
done_testing();
