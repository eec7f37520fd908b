# Scenarios 7, 8 and 9: every way to leave the queue.  A waiter leaves at once when it
# is cancelled, terminated or out of time, or when its client, its lock table or its
# server goes away; and the next one is served.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('leave');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
restart_after_crash = on
client_connection_check_interval = 0
# nothing reaps: waiters look for themselves
dlock.reap_interval = '1h'
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

# A session that waits: started, and seen in the queue.
sub waiter
{
	my ($call) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->query("\\set VERBOSITY sqlstate");
	$session->query_until(qr/waiting/, "\\echo waiting\nSELECT $call;\n");
	$node->poll_query_until('postgres',
		"SELECT EXISTS (SELECT FROM dlock.waiters WHERE pid = $pid)")
	  or die "$call does not wait";
	return ($session, $pid);
}

# What a session's call, which need not be over, has answered; and its error.
sub answer
{
	my ($session) = @_;
	my $answer = $session->query('SELECT');
	my $error = $session->{stderr};

	chomp $answer;
	$session->{stderr} = '';
	return $error =~ /ERROR:\s+(\w{5})/ ? $1 : $answer;
}

# End sessions; some have lost their servers, and psql has gone by itself.
sub quit
{
	for my $session (@_)
	{
		eval { $session->quit };
	}
	return;
}

sub queue
{
	return sql(q{SELECT string_agg(owner, ' ' ORDER BY position)
		FROM dlock.waiters WHERE name = 'l'});
}

# A holds; B and C wait for it, then something happens to B.
sub scene
{
	my ($title, $what, %params) = @_;
	my $token = sql(q{SELECT dlock_acquire('l', 'a', 3600)});
	my ($b, $b_pid) = waiter(q{dlock_acquire('l', 'b', 3600, -1)});
	my ($c) = waiter(q{dlock_acquire('l', 'c', 3600, -1)});

	is(queue(), 'b c', "$title: two wait");
	$what->($b, $b_pid);
	ok( $node->poll_query_until('postgres',
			"SELECT NOT EXISTS (SELECT FROM dlock.waiters WHERE pid = $b_pid)"),
		"$title: it leaves");
	is(queue(), 'c', "$title: the other waits on");
	is(answer($b), $params{answer}, "$title: its answer")
	  if defined $params{answer};
	is(sql(q{SELECT dlock_owner('l'), dlock_release('l', 'a')}),
		'a|t', "$title: the holder held it");
	cmp_ok(answer($c), '>', $token, "$title: then the next is served");
	is(sql(q{SELECT dlock_release('l', 'c')}), 't', "$title: and released");
	quit($b) if defined $params{answer};
	quit($c);
	return;
}

scene('cancel', sub { sql("SELECT pg_cancel_backend($_[1])") }, answer => '57014');
scene('terminate', sub { sql("SELECT pg_terminate_backend($_[1])"); quit($_[0]) });
scene('client killed', sub {
	# psql dies without a word to the server
	$_[0]{run}->kill_kill;
});
# Timers of the session.
sub session_with
{
	my ($setting, $call, $code, $title) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY sqlstate\n$setting;\nSELECT $call;");
	like($stderr, qr/ERROR:\s+$code$/, $title) if $code;
	is($stderr . $stdout, '', $title) unless $code;
	is(queue(), '', "$title: nobody waits");
	return;
}
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
for my $call ("dlock_acquire('l', 'b', 3600, -1)",
	"dlock_acquire_shared('l', 'b', 3600, 3600)",
	"dlock_acquire_permit('l', 'b', 3600, 2, -1)",
	"dlock_acquire_all(ARRAY['k', 'l'], 'b', 3600, -1)",
	"dlock_acquire_session('l', 'b', 3600, -1)",
	"dlock_acquire_xact('l', 'b', 3600, -1)",
	"dlock_wait('l', -1)")
{
	session_with("SET statement_timeout = '10ms'", $call, '57014',
		"statement_timeout, $call");
	session_with("SET lock_timeout = '10ms'", $call, '55P03',
		"lock_timeout, $call");
}
session_with('SELECT', "dlock_acquire('l', 'b', 3600, 0.01)", undef,
	'scenario 7: time is up');
is(sql(q{SELECT dlock_owner('l'), dlock_is_free('k')}),
	'a|t', 'nothing was taken');

# The same ends for those that watch.
for my $call ("dlock_acquire_all(ARRAY['k', 'l'], 'b', 3600, -1)",
	"dlock_wait('l', -1)")
{
	my ($b, $b_pid) = waiter($call);
	sql("SELECT pg_cancel_backend($b_pid)");
	is(answer($b), '57014', "cancelled: $call");
	quit($b);
	($b, $b_pid) = waiter($call);
	$b->{run}->kill_kill;
	becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $b_pid)",
		"client killed: $call");
}
is(sql(q{SELECT dlock_release('l', 'a')}), 't', 'released');

# Scenario 9: several in the middle of the queue go at once.
my $token = sql(q{SELECT dlock_acquire('l', 'a', 3600)});
my %waiting = map { $_ => [ waiter("dlock_acquire('l', '$_', 3600, -1)") ] } 'b' .. 'g';
is(queue(), 'b c d e f g', 'scenario 9: six wait');
sql("SELECT pg_cancel_backend($waiting{c}[1]), pg_terminate_backend($waiting{e}[1])");
$waiting{b}[0]{run}->kill_kill;
becomes(q{string_agg(owner, ' ' ORDER BY position) = 'd f g'
	AND max(position) = 3 FROM dlock.waiters}, 'three have gone');
is(answer($waiting{c}[0]), '57014', 'one with an error');
sql(q{SELECT dlock_release('l', 'a')});
for my $owner ('d', 'f', 'g')
{
	my $next = answer($waiting{$owner}[0]);
	cmp_ok($next, '>', $token, "scenario 9: \"$owner\" is served in its turn");
	$token = $next;
	sql("SELECT dlock_release('l', '$owner', $token)");
}
quit(map { $waiting{$_}[0] } 'c' .. 'g');

# ----------------------------------------------------------------
# Stopped processes
# ----------------------------------------------------------------

# The head is stopped.  It is granted the lease on its behalf, and when its time
# to live is over the next is served, though nothing reaps.
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
my ($b, $b_pid) = waiter(q{dlock_acquire('l', 'b', 0.5, -1)});
my ($c, $c_pid) = waiter(q{dlock_acquire('l', 'c', 3600, -1)});
Processes::stop_asleep($b_pid, 'Extension', \&sql);
is(sql(q{SELECT dlock_release('l', 'a')}), 't', 'the head is stopped');
cmp_ok(answer($c), '>', $token, 'the next is served when the head\'s lease is over');
kill 'CONT', $b_pid;
cmp_ok(answer($b), '>', $token, 'the head learns that it had it');
is(sql(q{SELECT dlock_renew('l', 'b', 60)}), 'f', 'and that it has it no more');
sql(q{SELECT dlock_release('l', 'c')});
quit($b, $c);

# The holder expires while the head is stopped: those behind must find out.
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
($b, $b_pid) = waiter(q{dlock_acquire('l', 'b', 0.5, -1)});
($c, $c_pid) = waiter(q{dlock_acquire('l', 'c', 3600, -1)});
Processes::stop_asleep($b_pid, 'Extension', \&sql);
is(sql(q{SELECT dlock_renew('l', 'a', 0.3)}), 't', 'a holder with little time left');
cmp_ok(answer($c), '>', $token, 'a deadline while the head is stopped');
kill 'CONT', $b_pid;
sql("SELECT pg_terminate_backend($b_pid)");
quit($b, $c);
sql(q{SELECT dlock_release('l', 'c')});

# A head that is stopped and then terminated, as it is granted the lease.
sql(q{SELECT dlock_acquire('l', 'a', 3600)});
($b, $b_pid) = waiter(q{dlock_acquire('l', 'b', 3600, -1)});
($c, $c_pid) = waiter(q{dlock_acquire('l', 'c', 3600, -1)});
Processes::stop_asleep($b_pid, 'Extension', \&sql);
is(sql(q{SELECT dlock_release('l', 'a'), dlock_owner('l')}),
	't|b', 'the stopped head has been granted it');
sql("SELECT pg_terminate_backend($b_pid)");
kill 'CONT', $b_pid;
cmp_ok(answer($c), '>', $token, 'scenario 8: it gives back what it was granted');
sql(q{SELECT dlock_release('l', 'c')});
quit($b, $c);

# The same, cancelled, and with its client gone.
for my $end ('cancel', 'client')
{
	sql(q{SELECT dlock_acquire('l', 'a', 3600)});
	($b, $b_pid) = waiter(q{dlock_acquire('l', 'b', 3600, -1)});
	($c, $c_pid) = waiter(q{dlock_acquire('l', 'c', 3600, -1)});
	Processes::stop_asleep($b_pid, 'Extension', \&sql);
	sql(q{SELECT dlock_release('l', 'a')});
	sql("SELECT pg_cancel_backend($b_pid)") if $end eq 'cancel';
	$b->{run}->kill_kill if $end eq 'client';
	kill 'CONT', $b_pid;
	if ($end eq 'cancel')
	{
		# either the answer or the cancel comes first
		my $answer = answer($b);
		sql(q{SELECT dlock_release('l', 'b')}) if $answer ne '57014';
		quit($b);
	}
	else
	{
		# it was gone when the waiter found that it had been granted the lease
		becomes("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $b_pid)",
			'the client is gone');
		becomes("coalesce(dlock_owner('l') = 'c', false)", 'and has given the lease back');
	}
	cmp_ok(answer($c), '>', $token, "$end: the next is served");
	sql(q{SELECT dlock_release('l', 'c')});
	quit($c);
}

# ----------------------------------------------------------------
# The lock table goes, the server goes
# ----------------------------------------------------------------

my @calls = ("dlock_acquire('l', 'b', 3600, -1)",
	"dlock_acquire_shared('l', 'c', 3600, -1)",
	"dlock_acquire_session('l', 'd', 3600, -1)",
	"dlock_acquire_xact('l', 'e', 3600, -1)",
	"dlock_acquire_all(ARRAY['k', 'l'], 'f', 3600, -1)",
	"dlock_wait('l', -1)");

sql(q{SELECT dlock_acquire('l', 'a', 3600)});
my @sessions = map { (waiter($_))[0] } @calls;
sql('DROP EXTENSION dlock');
for my $i (0 .. $#calls)
{
	like(answer($sessions[$i]), qr/^\w{5}$/, "DROP EXTENSION: an error for $calls[$i]");
	quit($sessions[$i]);
}
sql('CREATE EXTENSION dlock');
is(sql(q{SELECT dlock_is_free('l') FROM (SELECT count(*) FROM dlock.waiters) w
	WHERE count = 0}), 't', 'a new extension, a new table');

sql(q{SELECT dlock_acquire('l', 'a', 3600)});
@sessions = map { (waiter($_))[0] } @calls;
$node->restart;
quit(@sessions);
is(sql(q{SELECT dlock_owner('l'), (SELECT count(*) FROM dlock.waiters)}),
	'a|0', 'fast shutdown: nobody waits, the holder holds');

# A crash of one backend ends all; afterwards all can be had.
@sessions = map { (waiter($_))[0] } @calls;
($b, $b_pid) = waiter(q{dlock_acquire('l', 'g', 3600, -1)});
Processes::crash_postgres($node, $b_pid);
quit(@sessions, $b);
is(sql(q{SELECT count(*) FROM dlock.waiters}), 0, 'kill -9: nobody waits');
is(sql(q{SELECT dlock_owner('l')}), 'a', 'kill -9: the holder holds');
($b) = waiter(q{dlock_acquire('l', 'b', 3600, -1)});
sql(q{SELECT dlock_release('l', 'a')});
cmp_ok(answer($b), '>', 0, 'kill -9: queues work again');
quit($b);

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING/, 'no warning');
done_testing();
