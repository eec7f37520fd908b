# A primary that has lost both of its standbys goes on running.  It acknowledges
# no acquire and no renewal, and no commit under a guard.  The standby that is
# ahead takes over with all leases that were acknowledged and grants what the old
# primary could not.  The old primary is rewound, follows, and becomes the primary
# again.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Sessions;
use Standbys;
use Test::More;

my $all = Standbys->new('');
my ($one, $two, $three) = @{ $all->{node} }{qw(one two three)};
$all->set_synchronous('ANY 1 (one, two, three)');
$all->streams(2);
$one->safe_psql('postgres', 'CREATE TABLE work (what text)');

my $sessions = Sessions->new($one);
my $watcher = $sessions->{watcher};
my ($holder, $me) = $sessions->open('holder', 'me');
my $rows = 'SELECT name, owner, mode, version, token FROM dlock.locks ORDER BY name, owner, token';

# The largest token a server knows of.
sub largest
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT max(token) FROM dlock.locks');
}

# A call on the primary that may not be answered: until it waits for a standby.
sub hangs
{
	my ($session, $statement, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$session->send($statement);
	is($sessions->until("SELECT wait_event FROM pg_stat_activity WHERE pid = $session->{pid}", 'SyncRep'),
		'SyncRep', "$title: waits for a standby");
	return;
}

# The same, and cancelled.
sub in_vain
{
	my ($statement, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	hangs($me, $statement, $title);
	$watcher->query("SELECT pg_cancel_backend($me->{pid})");
	is($me->answer, '57014', '... cancelled, an error');
	like($me->error, qr/^HINT:\s+Retry with the same request id, or release\.$/m, '... that says what to do');
	$me->query('ROLLBACK');
	return;
}

# From now on "three" gets nothing more, and cannot be ahead of another standby: a primary
# writes WAL of its own accord too.
sub cut_off_three
{
	$three->append_conf('postgresql.conf', q{primary_conninfo = ''});
	$three->reload;
	$all->streams(1);
	return;
}

# Both standbys are there, then "two" alone, which is enough.
$holder->query("SELECT dlock_acquire('$_', 'holder', 3600)") for 'held', 'renewed', 'released', 'evicted', 'line';
$holder->query("SELECT dlock_acquire_shared('read', '$_', 3600)") for 'reader 1', 'reader 2';
$holder->query(q{SELECT dlock_acquire_permit('some', 'holder', 3600, 3)}) for 1, 2;
$holder->query(q{SELECT dlock_acquire_session('session', 'holder', 3600)});
$one->wait_for_catchup($_) for 'two', 'three';
cut_off_three();
like($holder->query(q{SELECT dlock_acquire('late', 'holder', 3600)}), qr/^\d+$/, 'with one standby there are grants');

# Then none.  It cannot be reached any more, but runs.
my $acknowledged = $one->safe_psql('postgres', $rows);
my $largest = largest($one);
my $pg_hba = $one->data_dir . '/pg_hba.conf';
my $rules = slurp_file($pg_hba);
my $loaded = $one->safe_psql('postgres', 'SELECT pg_conf_load_time()');
unlink $pg_hba or die "could not remove $pg_hba: $!\n";
append_to_file($pg_hba, "local replication all reject\nhost replication all all reject\n$rules");
$one->reload;
$all->becomes('one', "SELECT pg_conf_load_time() > '$loaded'", 'it does not read its settings again');
is($sessions->until(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE backend_type = 'walsender'}, 0), 0, 'the primary is isolated');

# What would give something is not answered.
in_vain(q{SELECT dlock_acquire('job', 'me', 3600, 0, 'request')}, 'acquire');
my $unknown = $one->safe_psql('postgres', q{SELECT token FROM dlock_holders('job')});
cmp_ok($unknown, '>', 0, 'the lease is there, on this server');
in_vain(q{SELECT dlock_acquire('job', 'me', 3600, 0, 'request')}, 'a retry');
in_vain(q{SELECT dlock_acquire_shared('read', 'me', 3600)}, 'acquire_shared');
in_vain(q{SELECT dlock_acquire_permit('some', 'me', 3600, 3)}, 'acquire_permit');
in_vain(q{SELECT dlock_acquire_all(ARRAY['all 1', 'all 2'], 'me', 3600)}, 'acquire_all');
in_vain(q{SELECT dlock_acquire_session('my session', 'me', 3600)}, 'acquire_session');
in_vain(q{BEGIN; SELECT dlock_acquire_xact('my transaction', 'me', 3600)}, 'acquire_xact');
in_vain(q{SELECT dlock_renew('renewed', 'holder', 36000)}, 'renew');
in_vain(q{SELECT dlock_renew_all('holder', 36000)}, 'renew_all');
in_vain(q{SELECT dlock_force_release('evicted')}, 'force_release');

my ($leaver) = $sessions->open('leaver');
hangs($leaver, q{SELECT dlock_acquire('job 2', 'me', 3600)}, 'acquire');
$watcher->query("SELECT pg_terminate_backend($leaver->{pid})");
is($leaver->answer, 'gone', '... terminated, no answer');
is($leaver->{out}, '', '... nor part of one');
$leaver->quit;

# A refusal and a release are answered, and do no harm; who is served by that
# release is not answered.
is($holder->query(q{SELECT dlock_acquire('job', 'holder', 3600)}), '', 'a refusal is answered');
is($holder->query(q{SELECT dlock_release('released', 'holder')}), 't', 'so is a release');
$me->send(q{SELECT dlock_acquire('line', 'me', 3600, -1)});
$sessions->waiting('me');
is($holder->query(q{SELECT dlock_release('line', 'holder')}), 't', '... also if somebody waits');
is($sessions->until(q{SELECT wait_event FROM pg_stat_activity WHERE application_name = 'me'}, 'SyncRep'),
	'SyncRep', '... who goes on waiting, for a standby');
$watcher->query("SELECT pg_cancel_backend($me->{pid})");
is($me->answer, '57014', '... cancelled, an error');

# A guard is answered, and so is the commit of what only reads, but no other.  If
# that wait is cancelled PostgreSQL warns that the commit may be lost, as it will be.
my $held = $one->safe_psql('postgres', q{SELECT token FROM dlock_holders('held')});
my ($guard) = $sessions->open('guard');
is($guard->query("BEGIN; SELECT dlock_guard('job', 'me', $unknown); INSERT INTO work VALUES ('job')"),
	'', 'a guard is answered');
hangs($guard, 'COMMIT', '... its commit');
is($me->query("BEGIN; SELECT dlock_guard('held', 'holder', $held); INSERT INTO work VALUES ('held')"), '',
	'a guard on an acknowledged lease is answered');
hangs($me, 'COMMIT', '... its commit');
$watcher->query("SELECT pg_cancel_backend($me->{pid})");
$me->answer;
like($me->error, qr/\bWARNING:\s+canceling wait for synchronous replication/, '... cancelled, a warning');
is($me->query("BEGIN; SELECT dlock_guard('held', 'holder', $held); COMMIT"), '',
	'one that writes nothing can commit');

# The standby that is ahead takes over.
is($all->most_advanced('two', 'three'), 'two', 'one standby is ahead');
$all->promote('two', 'three');
$all->streams(1);
is($two->safe_psql('postgres', $rows), $acknowledged, 'promoted, it has the leases that were acknowledged, and no other');
is($two->safe_psql('postgres', q{SELECT max(expires_at) < now() + interval '2 hours' FROM dlock.locks}),
	't', '... none for longer than was acknowledged');
my $token = $two->safe_psql('postgres', q{SELECT dlock_acquire('job', 'you', 3600)});
cmp_ok($token, '>', $largest, 'it grants the same name, with a larger token than any that was acknowledged');
cmp_ok($token, '>', $unknown, '... and than that which was not');
is($two->safe_psql('postgres', q{
		SELECT dlock_acquire('held', 'you', 3600), dlock_renew('held', 'holder', 3600),
			dlock_release('released', 'holder')}),
	'|t|t', 'what was acknowledged is held there, by its owners');

# Two servers believe that somebody holds it; one of the owners was never told.
is($watcher->query(q{SELECT dlock_owner('job')}), 'me', 'the old primary still has its own');
in_vain(q{SELECT dlock_acquire('job', 'me', 3600, 0, 'request')}, 'a retry there');
in_vain(q{SELECT dlock_renew('job', 'me', 3600)}, 'renew');
is($guard->answered, 0, '... and the commit under its guard has not been answered');

# Stopped with a call in flight, the old primary rejoins.
hangs($me, q{SELECT dlock_acquire('job 3', 'me', 3600)}, 'acquire');
my $largest_there = largest($one);
$one->stop('fast');
is($me->answer, 'gone', '... the server stops, no answer');
is($me->{out}, '', '... nor part of one');
is($guard->answer, 'gone', 'nor is there one to the commit');
$_->quit for $watcher, $holder, $me, $guard;
$all->rejoin('one');
$all->streams(2);
# releases too
$two->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, '', '')});
$two->wait_for_catchup($_) for 'one', 'three';
for my $name ('one', 'three')
{
	is($all->{node}{$name}->safe_psql('postgres', $rows), $two->safe_psql('postgres', $rows),
		"$name shows what the new primary shows");
}
is($one->safe_psql('postgres', q{SELECT dlock_owner('job'), (SELECT count(*) FROM work)}),
	'you|0', 'nothing is left of what was not acknowledged');

# And takes over in its turn, which it can as it is not behind.
cut_off_three();
$two->wait_for_catchup('one');
my $before = $two->safe_psql('postgres', $rows);
$largest = max($largest_there, largest($two));
$two->stop('immediate');
is($all->most_advanced('one', 'three'), 'one', 'the first primary is not behind');
$all->promote('one', 'three');
$all->streams(1);
is($one->safe_psql('postgres', $rows), $before, '... and has all leases as the primary');
is($one->safe_psql('postgres', qq{
		SELECT count(*) FILTER (WHERE token > $largest)
		FROM unnest(ARRAY['job', 'job 2', 'job 3', 'new']) AS name,
			LATERAL (SELECT dlock_force_release(name) AS evicted) AS a,
			LATERAL (SELECT CASE WHEN evicted >= 0 THEN dlock_acquire(name, 'next', 3600) END AS token) AS b}),
	4, '... and tokens above all there have been on any server');

$_->stop('immediate') for $one, $three;
done_testing();
