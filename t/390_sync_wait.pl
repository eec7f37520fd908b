# Scenario 21: a waiter's grant is as durable as its own session asks.  If a
# synchronous standby is away, the waiter waits for that too; if that wait is
# interrupted, the call raises an error instead of answering, and the lease stays, to
# be replayed or released.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->append_conf('postgresql.conf', "synchronous_standby_names = 'standby'");
$primary->reload;
$primary->poll_query_until('postgres',
	q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'})
  or die 'the standby does not become synchronous';
$standby->stop;

# What does not wait for the standby.
sub sql
{
	return $primary->safe_psql('postgres',
		"SET synchronous_commit = local; $_[0]");
}

# A session that waits for the lease, under a setting.
sub waiter
{
	my ($call, $commit) = @_;
	my $session = $primary->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->query("SET synchronous_commit = $commit");
	$session->query("\\set VERBOSITY sqlstate");
	$session->query_until(qr/waiting/, "\\echo waiting\nSELECT $call;\n");
	$primary->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM dlock.waiters WHERE pid = $pid)")
	  or die "$call does not wait";
	return ($session, $pid);
}

sub answer
{
	my ($session) = @_;
	my $answer = $session->query('SELECT');
	my $error = $session->{stderr};

	chomp $answer;
	$session->{stderr} = '';
	return $error =~ /ERROR:\s+(\w{5})/ ? $1 : $answer;
}

sub waits_for_standby
{
	my ($pid, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return ok( $primary->poll_query_until('postgres',
			"SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $pid"),
		$title);
}

my ($b, $pid, $replayed);

# Cancelled: an error, and the lease is there.
for my $replay (1, 0)
{
	my $title = $replay ? 'replayed' : 'released';
	my $token = sql(q{SELECT dlock_acquire('l', 'a', 3600)});

	($b, $pid) = waiter(q{dlock_acquire('l', 'b', 3600, -1, 'request')}, 'on');
	is(sql(q{SELECT dlock_release('l', 'a')}), 't', "$title: the holder releases");
	waits_for_standby($pid, "$title: the waiter waits for the standby");
	is(sql(q{SELECT dlock_owner('l'), (SELECT count(*) FROM dlock.waiters)}),
		'b|0', "$title: it has been granted the lease");
	sql("SELECT pg_cancel_backend($pid)");
	is(answer($b), '57014', "$title: cancelled, an error and no answer");
	my $granted = sql(q{SELECT token FROM dlock.locks WHERE name = 'l' AND owner = 'b'});
	cmp_ok($granted, '>', $token, "$title: the lease is there");
	is(sql(q{SELECT dlock_acquire('l', 'b', 3600, 0, 'request')}),
		$granted, 'the retry answers the same token') if $replay;
	is(sql(q{SELECT version FROM dlock.locks WHERE name = 'l'}),
		1, "$title: one hold");
	is(sql(q{SELECT dlock_release('l', 'b'), dlock_is_free('l')}),
		't|t', "$title: and released");
	$b->quit;
}

# Terminated while it waits for the standby: a plain lease stays, another ends.
for my $kind ('', '_session')
{
	sql(q{SELECT dlock_acquire('l', 'a', 3600)});
	($b, $pid) = waiter("dlock_acquire$kind('l', 'b', 3600, -1)", 'on');
	sql(q{SELECT dlock_release('l', 'a')});
	waits_for_standby($pid, "dlock_acquire$kind: the waiter waits for the standby");
	sql("SELECT pg_terminate_backend($pid)");
	$primary->poll_query_until('postgres',
		"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
	  or die 'it does not end';
	is(sql(q{SELECT dlock_owner('l')}), $kind ? '' : 'b',
		"dlock_acquire$kind: terminated");
	sql(q{SELECT dlock_release_all('b')});
	eval { $b->quit };
}

# A session lease whose caller has got an error ends with the session all the
# same, also when a pooler ends it.
for my $end ('DISCARD ALL', '\q')
{
	$b = $primary->background_psql('postgres', on_error_stop => 0);
	$pid = $b->query('SELECT pg_backend_pid()');
	$b->query_until(qr/waiting/,
		"\\echo waiting\nSELECT dlock_acquire_session('l', 'b', 3600);\n");
	waits_for_standby($pid, "$end: a session lease waits for the standby");
	sql("SELECT pg_cancel_backend($pid)");
	$b->query('SELECT');
	is(sql(q{SELECT dlock_owner('l')}), 'b', "$end: cancelled, it is there");
	$b->query('DISCARD ALL') if $end eq 'DISCARD ALL';
	$b->quit if $end eq '\q';
	ok($primary->poll_query_until('postgres', q{SELECT dlock_is_free('l')}),
		"$end: it is over");
	$b->quit if $end eq 'DISCARD ALL';
}

# Who asks for less waits for less, whoever serves it.
for my $commit ('local', 'off')
{
	sql(q{SELECT dlock_acquire('l', 'a', 3600)});
	($b) = waiter(q{dlock_acquire('l', 'b', 3600, -1)}, $commit);
	is( $primary->safe_psql('postgres',
			q{SET synchronous_commit = on; SELECT dlock_release('l', 'a')}),
		't', "synchronous_commit = $commit: a release");
	cmp_ok(answer($b), '>', 0, "synchronous_commit = $commit: an answer");
	sql(q{SELECT dlock_release('l', 'b')});
	$b->quit;
}

# Served by somebody who asks for nothing, it still waits, until the standby is
# there; then nothing is lost with the primary.
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
($b, $pid) = waiter(q{dlock_acquire('l', 'b', 3600, -1)}, 'on');
is( $primary->safe_psql('postgres',
		q{SET synchronous_commit = off; SELECT dlock_release('l', 'a')}),
	't', 'released without any durability');
waits_for_standby($pid, 'the waiter asks for more');
$standby->start;
my $token = answer($b);
cmp_ok($token, '>', 0, 'the standby is back: an answer');
$primary->stop('immediate');
eval { $b->quit };
$standby->promote;
is($standby->safe_psql('postgres', q{SELECT owner, token FROM dlock_holders('l')}),
	"b|$token", 'scenario 21: on the promoted standby it is held');

done_testing();
