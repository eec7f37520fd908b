# With a synchronous standby that is away, acquire and renew wait, and raise an
# error instead of an answer when the wait is interrupted; a retry with the
# same request id gives the same token.  A release does not wait.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

$primary->append_conf('postgresql.conf',
	"synchronous_standby_names = 'standby'");
$primary->reload;
$primary->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'})
  or die 'the standby does not become synchronous';

# What a statement answers and raises, in a session that gives up if the server
# makes it wait too long: stdout, and SQLSTATEs or messages.
sub ask
{
	my ($statement, %params) = @_;
	my $settings = $params{settings} // '';
	my $timeout = $params{timeout} // '30s';
	my $verbosity = $params{verbosity} // 'sqlstate';

	my ($status, $stdout, $stderr) = $primary->psql(
		'postgres', qq{
		$settings
		SET statement_timeout = '$timeout';
		\\set VERBOSITY $verbosity
		$statement;});
	return ($stdout, $stderr);
}

# What an error says if the statement was interrupted in its wait for the standby.
my $interrupted = qr/^HINT:\s+Retry with the same request id, or release\.$/m;

# A statement must wait for the standby, and fail when the wait is interrupted.  On a busy
# machine its time may be up before it comes to wait: then it gets more.
sub waits
{
	my ($statement, $title, %params) = @_;
	my ($stdout, $stderr);

	for my $timeout ('100ms', '2s', '20s', '60s')
	{
		($stdout, $stderr) = ask($statement, timeout => $timeout, verbosity => 'verbose', %params);
		last unless $stdout eq '' && $stderr =~ /ERROR:\s+57014:/ && $stderr !~ $interrupted;
	}
	is($stdout, '', "$title: no answer");
	like($stderr, qr/ERROR:\s+57014:/, "$title: an error");
	like($stderr, $interrupted, "$title: the error says what to do");
	return;
}

# A statement must not wait.
sub answers
{
	my ($statement, $answer, $title, %params) = @_;

	is_deeply([ ask($statement, %params) ], [ $answer, '' ], $title);
	return;
}

# The row of a name, whatever has been replicated.
sub row
{
	my ($name, $columns) = @_;
	return $primary->safe_psql('postgres',
		"SELECT $columns FROM dlock_holders('$name')");
}

my ($held) =
  ask(q{SELECT dlock_acquire('held', 'me', 3600, 0, 'request 1')});
my ($twice) = ask(q{SELECT max(dlock_acquire('twice', 'me', 3600))
	FROM generate_series(1, 2)});
my ($many) =
  ask(q{SELECT count(dlock_acquire('many ' || i, 'leaver', 3600))
	FROM generate_series(1, 3) AS i});
my ($leaving) = ask(q{SELECT dlock_acquire('leaving', 'me', 3600)});
ok($held && $twice && $many == 3, 'with the standby there are answers');

$standby->stop;

waits(q{SELECT dlock_acquire('new', 'me', 3600, 0, 'request 2')},
	'acquire, timeout');
waits(q{SELECT dlock_acquire('new', 'me', 3600, 0, 'request 2')},
	'its retry, timeout');
waits(q{SELECT dlock_acquire('new', 'me', 60, 0, 'request 2')},
	'a retry that changes nothing, timeout');
waits(q{SELECT dlock_acquire_shared('read', 'me', 3600, 0, 'request 3')},
	'acquire_shared, timeout');
waits(q{SELECT dlock_acquire_permit('some', 'me', 3600, 2, 0, 'request 4')},
	'acquire_permit, timeout');
waits(q{SELECT dlock_renew('held', 'me', 7200)}, 'renew, timeout');
waits(q{SELECT dlock_renew_all('me', 7200)}, 'renew_all, timeout');
waits(qq{SELECT dlock_release_after('leaving', 'me', 7200, $leaving)}, 'release_after, timeout');
waits(qq{SELECT dlock_release_after('leaving', 'me', 7200, $leaving)}, 'its retry, which changes nothing, timeout');
for my $level ('remote_apply', 'remote_write')
{
	waits(
		q{SELECT dlock_renew('held', 'me', 7200)},
		"synchronous_commit = $level",
		settings => "SET synchronous_commit = $level;");
}

# A backend that waits for the standby with a statement of ours.
sub wait_for_waiter
{
	my ($pattern) = @_;
	my $waiter = qq{FROM pg_stat_activity
		WHERE wait_event = 'SyncRep' AND query ~ '$pattern'};

	$primary->poll_query_until('postgres', "SELECT count(*) = 1 $waiter")
	  or die 'nobody waits for the standby';
	return $primary->safe_psql('postgres', "SELECT pid $waiter");
}

for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my ($stdout, $stderr) = ('', '');
	my $run = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate',
			'-d', $primary->connstr('postgres'), '-c',
			"SELECT dlock_acquire('by $how', 'me', 3600, 0, 'request 5')"
		],
		'>', \$stdout, '2>', \$stderr);
	my $pid = wait_for_waiter("by $how");

	is( $primary->safe_psql('postgres', "SELECT $how($pid)"),
		't', "$how on an acquire that waits");
	$run->finish;
	is($stdout, '', "$how: no answer");
	isnt($run->result(0), 0, "$how: an error");
	like($stderr, qr/ERROR:\s+57014$/m, "$how: its SQLSTATE")
	  if $how eq 'pg_cancel_backend';
}

# What takes nothing, or only gives back, does not wait.
answers(q{SELECT dlock_acquire('held', 'you', 60)},
	'', 'a refusal does not wait');
answers(q{SELECT dlock_owner('new'), dlock_is_free('new')},
	'me|f', 'the lease may have been taken, and was');
answers(q{SELECT dlock_release('many 1', 'leaver')},
	't', 'release does not wait');
answers(q{SELECT dlock_release('twice', 'me')},
	't', 'nor does one that leaves a hold');
answers(q{SELECT dlock_release('many 1', 'leaver') IS NULL},
	't', 'nor does one that finds nothing');
answers(q{SELECT dlock_renew('many 1', 'leaver', 60) IS NULL},
	't', 'nor does a renewal that finds nothing');
answers(q{SELECT dlock_release_all('leaver')}, 2, 'nor does release_all');

# A session may ask for less.
my ($local) = ask(
	q{SELECT dlock_acquire('local', 'me', 3600)},
	settings => 'SET synchronous_commit = local;');
cmp_ok($local || 0, '>', 0, 'synchronous_commit = local does not wait');

my $token = row('new', 'token');
my $version = row('new', 'version');
is($version, 1, 'retries added no hold');

# An acquire that nobody interrupts is answered once there is no need to wait.
sub patient
{
	my ($name, $need_ends, $title) = @_;
	my ($stdout, $stderr) = ('', '');
	my $run = IPC::Run::start(
		[
			'psql', '-XAtq', '-d', $primary->connstr('postgres'), '-c',
			"SELECT dlock_acquire('$name', 'me', 3600)"
		],
		'>', \$stdout, '2>', \$stderr);
	wait_for_waiter($name);
	$need_ends->();
	$run->finish;
	is($stderr, '', "$title: no error");
	like($stdout, qr/^\d+$/, "$title: an answer");
	return;
}

# The standbys that new sessions are told to wait for.
sub set_names
{
	my ($names) = @_;
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
	$primary->reload;
	$primary->poll_query_until('postgres',
		"SELECT setting = '$names' FROM pg_settings WHERE name = 'synchronous_standby_names'")
	  or die 'the server does not take its settings';
	return;
}

# A commit goes on when no standby is asked for any more, and as long as the
# checkpointer has not told that one is; and so does an acquire.
patient('not asked for', sub { set_names('') }, 'no standby is asked for');
my $checkpointer = $primary->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
kill('STOP', $checkpointer) or die 'could not stop the checkpointer';
set_names('standby');
my ($untold, $untold_error) = ask(q{SELECT dlock_acquire('untold', 'me', 3600)});
kill('CONT', $checkpointer) or die 'could not continue the checkpointer';
is($untold_error, '', 'nobody has told of the standby: no error');
like($untold, qr/^\d+$/, 'nobody has told of the standby: an answer');
my $told = 0;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$told = (ask(q{SELECT dlock_renew('held', 'me', 7200)}, timeout => '100ms', verbosity => 'default'))[1] =~ $interrupted;
	last if $told;
}
ok($told, 'the checkpointer goes on: a renewal waits again');

patient('patient', sub { $standby->start }, 'the standby is back');

answers(q{SELECT dlock_acquire('new', 'me', 3600, 0, 'request 2')},
	$token, 'the retry gives the same token');
answers(
	q{SELECT dlock_acquire('by pg_cancel_backend', 'me', 3600, 0, 'request 5')},
	row('by pg_cancel_backend', 'token'),
	'so does that of the cancelled one');
answers(q{SELECT dlock_acquire_permit('some', 'me', 3600, 2, 0, 'request 4')},
	row('some', 'token'), 'and that of a permit');
is(row('some', 'version'), 1, 'which is still one permit');
answers(q{SELECT dlock_renew('held', 'me', 7200)}, 't', 'renew answers again');

# What was answered is on the standby.
$primary->stop('immediate');
$standby->promote;
is( $standby->safe_psql(
		'postgres', q{
		SELECT dlock_owner('new'), dlock_owner('held'),
			(SELECT token FROM dlock_holders('new'))}),
	"me|me|$token",
	'after a failover everything that was answered is held');

done_testing();
