# A session lease lives as long as its session, whatever its time to live, and
# ends with it in every way a session can end; after a restart of the server
# its time to live counts.  The lock delay applies when the session is lost,
# and only then.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use Pooler;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('sessions');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
# sessions that have taken no lease show the settings
shared_preload_libraries = 'dlock'
max_worker_processes = 16
restart_after_crash = on
dlock.reap_interval = '20ms'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub sql { return $node->safe_psql('postgres', @_); }

sub becomes
{
	my ($condition, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT $condition"), $title);
}

# The counters come to this: they are raised a moment after the row has gone.
sub are_counted
{
	my ($released, $expired, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', 'SELECT released, expired FROM dlock.stats', "$released|$expired"), $title);
}

# How many were released and have expired so far: all that have ended are counted.
sub counted
{
	$node->poll_query_until('postgres', q{SELECT acquired + reentered = released + expired + forced
		+ (SELECT coalesce(sum(version), 0) FROM dlock.locks) FROM dlock.stats}) or die 'what has ended is not counted';
	return split /\|/, sql('SELECT released, expired FROM dlock.stats');
}

sub session
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	return ($session, $session->query('SELECT pg_backend_pid()'));
}

# Let so much time pass on the server's own clock of leases: another lease, of
# that time to live, must have come to its end.
sub let_pass
{
	my ($seconds) = @_;
	sql("SELECT dlock_acquire('an hourglass', 'me', $seconds)");
	$node->poll_query_until('postgres', q{SELECT dlock_is_free('an hourglass')})
	  or die 'time stands still';
	return;
}

# ----------------------------------------------------------------
# While it lives
# ----------------------------------------------------------------

my ($one, $one_pid) = session();
my ($two, $two_pid) = session();

my $token = $one->query_safe(q{SELECT dlock_acquire_session('s', 'me', 0.05)});
cmp_ok($token, '>', 0, 'a session lease');
let_pass(0.2);
is(sql(q{SELECT dlock_owner('s'), dlock_is_free('s')}),
	'me|f', 'it is held beyond its time to live');
is(sql(q{SELECT count(*), min(pid) FROM dlock.locks WHERE name = 's'}),
	"1|$one_pid", 'and not reaped');
is(sql(q{SELECT dlock_acquire('s', 'you', 60)}), '', 'a stranger is refused');
$two->query(q{\set VERBOSITY sqlstate});
is($two->query(q{SELECT dlock_acquire_session('s', 'me', 60)}),
	'', 'the same owner is refused in another session');
is($two->query(q{SELECT dlock_acquire_session('s', 'me', 60, 0.01)}),
	'', 'also if it waits');
is( $one->query_safe(q{SELECT dlock_acquire_session('s', 'me', 0.05)}),
	$token, 'its own session re-enters it');
is($one->query_safe(q{SELECT dlock_release('s', 'me')}), 't', 'one hold back');
is(sql(q{SELECT dlock_is_free('s')}), 'f', 'it is still held');
is($one->query_safe(q{SELECT dlock_release('s', 'me', } . $token . ')'),
	't', 'the other');
is(sql(q{SELECT dlock_is_free('s')}), 't', 'it is free');

$one->query_safe(q{SELECT dlock_acquire_session('s', 'me', 0.05)});
is($one->query_safe(q{SELECT dlock_renew('s', 'me', 0.01)}),
	't', 'it may be renewed');
is($one->query_safe(q{SELECT dlock_renew_all('me', 0.01)}),
	'1', 'also together with the others');
let_pass(0.1);
is(sql(q{SELECT dlock_owner('s')}), 'me', 'which does not shorten it');

# A waiter is served by its holder's end, with a session lease of its own.
$two->query_until(qr/waiting/,
	"\\echo waiting\nSELECT dlock_acquire_session('s', 'me', 0.05, -1);\n");
becomes(q{count(*) = 1 FROM dlock.waiters}, 'another session waits for it');
is(sql("SELECT dlock_blocking_pids($two_pid)"),
	"{$one_pid}", 'whom it waits for');
$one->quit;
like($two->query('SELECT 1'), qr/^\d+\n1$/,
	'after a normal end the waiter has it');
let_pass(0.1);
is(sql(q{SELECT pid FROM dlock.locks WHERE name = 's'}),
	$two_pid, 'for its session');

# ----------------------------------------------------------------
# The ends of a session
# ----------------------------------------------------------------

$two->query_safe('DISCARD ALL');
is(sql(q{SELECT dlock_is_free('s')}), 't', 'DISCARD ALL ends it at once');
is(sql(q{SELECT count(*) FROM dlock.locks WHERE name <> 'an hourglass'}), 0, 'and leaves nothing');
$two->query_safe(q{SELECT dlock_acquire('plain', 'me', 3600)});
$two->query_safe(q{SELECT dlock_acquire_session('s', 'me', 3600)});
$two->query_safe('DISCARD TEMP');
$two->query_safe('RESET ALL');
is(sql(q{SELECT dlock_owner('s')}), 'me', 'other DISCARDs do not');
$two->query_safe('BEGIN');
$two->query(q{SELECT dlock_acquire_session('t', 'me', 3600)});
$two->query('ROLLBACK');
is(sql(q{SELECT dlock_owner('t')}), 'me', 'nor does ROLLBACK');
sql("SELECT pg_terminate_backend($two_pid)");
becomes(q{dlock_is_free('s') AND dlock_is_free('t')}, 'terminated');
is(sql(q{SELECT dlock_owner('plain')}), 'me', 'a plain lease stays');
$two->quit;

# Its row may be left to others: that counts as a release all the same, and as an
# expiry only with a lock delay.
for my $delay (0, '20ms')
{
	$node->append_conf('postgresql.conf', "dlock.lock_delay = $delay");
	$node->reload;
	becomes("current_setting('dlock.lock_delay') = '$delay'", "a lock delay of $delay");
	my ($ended, $ended_pid) = session();
	my ($locker) = session();
	$ended->query_safe(q{SELECT dlock_acquire_session('left', 'me', 0.05)});
	my ($released, $expired) = counted();
	$locker->query_safe('BEGIN; LOCK TABLE dlock_private.lease_table IN SHARE MODE');
	sql("SELECT pg_terminate_backend($ended_pid)");
	becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $ended_pid)",
		'a session ends while somebody has locked the table');
	is(sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'left'}), 1, '... its row is left');
	$locker->query_safe('COMMIT');
	becomes(q{count(*) = 0 FROM dlock.locks WHERE name = 'left'}, '... and removed');
	$delay eq '0' ? $released++ : $expired++;
	are_counted($released, $expired, '... and counted as '
		  . ($delay eq '0' ? 'released' : 'expired'));
	$_->quit for $ended, $locker;
}

# A session that lives on has ended its leases itself: that is a release whatever
# the lock delay, although the session before it in its place was lost.
$node->append_conf('postgresql.conf', q{dlock.lock_delay = '1h'});
$node->reload;
becomes(q{current_setting('dlock.lock_delay') = '1h'}, 'a lock delay of 1h');
sql(q{SELECT dlock_acquire_session('lost', 'me', 3600)});
my ($discards) = session();
my ($blocker) = session();
$discards->query_safe(q{SELECT dlock_acquire_session('left', 'me', 0.05)});
my ($released_before, $expired_before) = counted();
$blocker->query_safe('BEGIN; LOCK TABLE dlock_private.lease_table IN SHARE MODE');
$discards->query_safe('DISCARD ALL');
is(sql(q{SELECT count(*), bool_or(dlock_is_free('left')) FROM dlock.locks WHERE name = 'left'}),
	'1|t', 'DISCARD ALL while somebody has locked the table: its row is left, the name is free');
$blocker->query_safe('COMMIT');
becomes(q{count(*) = 0 FROM dlock.locks WHERE name = 'left'}, '... and it is removed');
are_counted($released_before + 1, $expired_before, '... and counted as released');
is(sql(q{SELECT dlock_is_free('lost'), dlock_force_release('lost')}), 'f|1', '... while that of the lost session is kept');
$_->quit for $discards, $blocker;
$node->append_conf('postgresql.conf', 'dlock.lock_delay = 0');
$node->reload;
becomes(q{current_setting('dlock.lock_delay') = '0'}, 'no lock delay');

# A reused slot in shared memory is another session.
for my $n (1 .. 5)
{
	my ($token, $pid) = split /\|/, sql(qq{SELECT dlock_acquire_session('slot $n', 'me', 3600), pg_backend_pid()});
	# a client does not wait for its server process to end
	becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", "session $n of a row is gone");
	is(sql(qq{SELECT dlock_is_free('slot $n'), dlock_is_free('slot @{[ $n - 1 ]}')}),
		't|t', "session $n of a row has ended");
}

# ----------------------------------------------------------------
# The server's end: the time to live counts
# ----------------------------------------------------------------

sub restarted
{
	my ($how, $restart) = @_;
	my ($session) = session();
	$session->query_safe(q{SELECT dlock_acquire_session('long', 'me', 3600)});
	$session->query_safe(q{SELECT dlock_acquire_session('short', 'me', 0.3)});
	$session->query_safe(q{SELECT dlock_acquire_session('lock', 'me', 3600),
		txid_current()});
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$restart->($pid);
	$session->quit;
	return;
}

restarted('kill -9', sub {
	my ($pid) = @_;
	# what was taken must be there after the crash
	Processes::crash_postgres($node, $pid);
	is(sql(q{SELECT count(*) >= 2 FROM dlock.locks WHERE name IN ('long', 'lock')}), 't', 'kill -9: it is');
});
is(sql(q{SELECT dlock_owner('long')}), 'me', 'kill -9: a long one is held on');
is(sql(q{SELECT dlock_acquire('long', 'you', 60)}), '', 'kill -9: and excludes');
is(sql(q{SELECT expires_at < now() + interval '3601 s' FROM dlock.locks WHERE name = 'long'}),
	't', 'kill -9: until its time to live has passed');
becomes(q{dlock_is_free('short')}, 'kill -9: a short one ends');
my ($heir, $heir_pid) = session();
is($heir->query(q{SELECT dlock_acquire('long', 'me', 60)}),
	'', 'kill -9: it stays a session lease');
my $before = sql(q{SELECT token FROM dlock.locks WHERE name = 'long'});
becomes(q{count(*) = 0 FROM dlock.locks WHERE name = 'short'}, 'kill -9: the short one is removed');
are_counted(0, 1, 'kill -9: and counted as expired');
my ($waiter) = session();
$waiter->query_until(qr/asks/, "\\echo asks\nSELECT dlock_acquire('long', 'you', 60, -1);\n");
becomes(q{count(*) = 1 FROM dlock.waiters WHERE name = 'long'}, 'kill -9: somebody waits for it');
cmp_ok($heir->query(q{SELECT dlock_acquire_session('long', 'me', 0.05, 60)}) || 0,
	'>', $before, 'kill -9: its owner takes it anew in a new session, before who waits');
are_counted(1, 1, 'kill -9: which ends the old one, and does not let it expire');
let_pass(0.1);
is(sql(q{SELECT owner, version, pid FROM dlock.locks WHERE name = 'long'}),
	"me|1|$heir_pid", 'kill -9: which keeps it beyond its time to live');
is($heir->query(q{SELECT dlock_renew('lock', 'me', 60), dlock_release('lock', 'me')}),
	't|t', 'kill -9: an owner may renew and release what a session left');
is($heir->query(q{SELECT dlock_release('long', 'me')}), 't', 'kill -9: and its own');
becomes(q{dlock_owner('long') = 'you'}, 'kill -9: which then goes to who waits');
is(sql(q{SELECT dlock_release('long', 'you')}), 't', 'kill -9: and is given back');
$_->quit for $heir, $waiter;

# Asked to stop, a session ends its leases.
restarted('fast', sub { $node->restart });
is(sql(q{SELECT dlock_is_free('long'), dlock_is_free('short'), dlock_is_free('lock')}),
	't|t|t', 'fast shutdown: sessions have ended theirs');

restarted('immediate', sub { $node->stop('immediate'); $node->start; });
is(sql(q{SELECT dlock_owner('long')}), 'me', 'immediate shutdown: a long one is held on');
becomes(q{dlock_is_free('short')}, 'immediate shutdown: a short one ends');
for my $round (1, 2)
{
	is(sql(q{SELECT dlock_renew_all('me', 3600)}), 3, 'immediate shutdown: their owner renews all that are left');
	is(sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM dlock.locks WHERE expires_at > now() + interval '3500 s'}),
		'lock long plain', '... and they are as they should be');
}
is(sql(q{SELECT dlock_acquire('long', 'me', 3600) = token FROM dlock_holders('long')}), 't', '... plain ones now');
is(sql(q{SELECT dlock_release_all('me')}), 3, '... to be released');

# ----------------------------------------------------------------
# The lock delay
# ----------------------------------------------------------------

$node->append_conf('postgresql.conf', "dlock.lock_delay = '1h'");
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('dlock.lock_delay') = '1h'});

my ($released, $released_pid) = session();
$released->query_safe(q{SELECT dlock_acquire_session('released', 'me', 60)});
$released->query_safe(q{SELECT dlock_release('released', 'me')});
$released->query_safe(q{SELECT dlock_acquire_session('discarded', 'me', 60)});
$released->query_safe('DISCARD ALL');
is(sql(q{SELECT dlock_is_free('released'), dlock_is_free('discarded')}),
	't|t', 'no lock delay after a release or DISCARD ALL');

$released->query_safe(q{SELECT dlock_acquire_session('ended', 'me', 60)});
$released->quit;
becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $released_pid)", 'a session has ended');
my ($lost, $lost_pid) = session();
$lost->query_safe(q{SELECT dlock_acquire_session('lost', 'me', 60)});
sql("SELECT pg_terminate_backend($lost_pid)");
becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $lost_pid)",
	'a session is lost');
for my $name ('ended', 'lost')
{
	is(sql(qq{SELECT dlock_is_free('$name'), dlock_acquire('$name', 'you', 60)}),
		'f|', "$name: a lock delay");
	is(sql(qq{SELECT dlock_owner('$name')}), '', "$name: nobody holds it");
	is(sql(qq{SELECT count(*) FROM dlock.locks WHERE name = '$name'}),
		1, "$name: the row stays");
}
isnt(sql(q{SELECT dlock_acquire('lost', 'me', 60)}),
	'', 'the lock delay is for others');
is(sql(q{SELECT dlock_force_release('ended')}), 1, 'an operator ends it');
isnt(sql(q{SELECT dlock_acquire('ended', 'you', 60)}), '', 'then it can be had');
is(sql(q{SELECT dlock_force_release('ended')}), 1, 'evicted');
isnt(sql(q{SELECT dlock_acquire('ended', 'me', 60)}),
	'', 'no lock delay after a force-release');

# a waiter gets it when the delay is over
$node->append_conf('postgresql.conf', "dlock.lock_delay = '500ms'");
$node->reload;
my ($holder) = session();
($waiter) = session();
$holder->query_safe(q{SELECT dlock_acquire_session('delayed', 'me', 60)});
$waiter->query_until(qr/waiting/,
	"\\echo waiting\nSELECT dlock_acquire('delayed', 'you', 60, -1);\n");
becomes(q{count(*) = 1 FROM dlock.waiters}, 'a waiter');
$holder->quit;
like($waiter->query('SELECT 1'), qr/^\d+\n1$/, 'is served after the delay');
$waiter->quit;
$node->append_conf('postgresql.conf', "dlock.lock_delay = 0");
$node->reload;

# ----------------------------------------------------------------
# The extension's end
# ----------------------------------------------------------------

my ($survivor) = session();
$survivor->query_safe(q{SELECT dlock_acquire_session('s', 'me', 3600)});
sql('DROP EXTENSION dlock');
is($survivor->query_safe('SELECT 1'), 1, 'a session outlives the extension');
sql('CREATE EXTENSION dlock');
is(sql(q{SELECT dlock_is_free('s')}), 't', 'its leases do not');
isnt($survivor->query_safe(q{SELECT dlock_acquire_session('t', 'me', 3600)}),
	'', 'it takes another');
$survivor->query_safe('DISCARD ALL');
is(sql(q{SELECT dlock_is_free('t')}), 't', 'and ends it');
$survivor->query_safe(q{SELECT dlock_acquire_session('t', 'me', 3600)});
sql('DROP EXTENSION dlock');
$survivor->quit;
sql('CREATE EXTENSION dlock');
is(sql(q{SELECT count(*) FROM dlock.locks}), 0, 'an end after the extension');

# ----------------------------------------------------------------
# PgBouncer's session mode: its reset query is DISCARD ALL
# ----------------------------------------------------------------

my $pooler = Pooler->start($node,
	user => sql('SELECT current_user'),
	databases => { app => 'pool_mode=session pool_size=1' });
my @psql = ('psql', '-XAtq', '-d', $pooler->connstr('app'));
my ($out, $err);

IPC::Run::run([ @psql, '-c',
		q{SELECT pg_backend_pid() || ' ' || (dlock_acquire_session('pooled', 'me', 3600) > 0)}],
	'<', '/dev/null', '>', \$out, '2>', \$err);
my ($pid, $taken) = $out =~ /^(\d+) (true)$/;
is($taken, 'true', "a session lease through PgBouncer$err");
becomes(q{dlock_is_free('pooled')}, 'it ends with the client');
IPC::Run::run([ @psql, '-c', q{SELECT pg_backend_pid(), dlock_owner('pooled')} ],
	'<', '/dev/null', '>', \$out, '2>', \$err);
chomp $out;
is($out, "$pid|", 'though the server process lives on');
$pooler->stop;

unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no assertion failed');
done_testing();
