# PgBouncer, and thousands of clients that come and go.  Behind a pooler of
# transactions an owner's calls may each use another server connection; that does no
# harm to leases, except session leases.  Clients leave in the middle of waits;
# PostgreSQL runs out of connections; PgBouncer dies.  No granted lease is lost, no
# two clients hold the same, nothing is left over, and the counters add up.  At the
# end the same without a pooler: thousands of connections, and no server process
# grows.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use History;
use IO::Socket::UNIX;
use Pooler;
use POSIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Resources;
use Sessions;
use Test::More;
use Time::HiRes qw(time usleep);

my $connections = 60;
my $reserved = 8;       # for the superuser: the test itself
my $clients = 2500;     # at once, through PgBouncer
my $names = 1000;

my $seed = $ENV{TORTURE_SEED} // 1 + int rand 2**20;
note("TORTURE_SEED=$seed");

my $node = PostgreSQL::Test::Cluster->new('pooled');
$node->init;
$node->append_conf(
	'postgresql.conf', qq{
max_connections = $connections
superuser_reserved_connections = $reserved
max_worker_processes = 16
client_connection_check_interval = 0
dlock.reap_interval = '100ms'
dlock.log_expired = off
log_statement = none
log_connections = off
log_disconnections = off
});
$node->start;
# a name's counter is written by those who guard the name
$node->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	CREATE ROLE app LOGIN;
	CREATE TABLE counter (name text PRIMARY KEY, n bigint NOT NULL);
	INSERT INTO counter SELECT 'n' || i, 0 FROM generate_series(0, 4999) i;
	GRANT SELECT, UPDATE ON counter TO app});

my $dir = PostgreSQL::Test::Utils::tempdir();
system("cc -O2 -Wall -Wextra -Werror -o $dir/churn t/torture/churn.c -I\$(/usr/bin/pg_config --includedir) -lpq") == 0
  or die "could not build churn.c\n";

my $sessions = Sessions->new($node);
my $watcher = $sessions->{watcher};
my $pooler;
my $is_token = qr/^\d+$/;

# A session through PgBouncer.
sub through
{
	my ($database, $name) = @_;
	return Sessions::Session->new($pooler->connstr($database), $name);
}

# Until it is so.
sub eventually
{
	my ($condition, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for (1 .. $PostgreSQL::Test::Utils::timeout_default * 20)
	{
		return pass($title) if $condition->();
		usleep(50_000);
	}
	return fail($title);
}

# Until a statement, the superuser's own, answers so.
sub becomes
{
	my ($sql, $wanted, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($sessions->until("SELECT $sql", $wanted), $wanted, $title);
}

sub line_is
{
	my ($wanted, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return becomes(q{coalesce(string_agg(owner, ' ' ORDER BY "position"), '') FROM dlock.waiters}, $wanted, $title);
}

# ----------------------------------------------------------------
# Clients that come and go
# ----------------------------------------------------------------

my %largest;      # token of each name

sub start_churn
{
	my (%options) = @_;
	my $run = { seed => $seed, base => "$dir/$seed" };
	my @options = map { "$_=$options{$_}" } sort keys %options;

	$seed++;
	$watcher->query('SELECT dlock_stats_reset()');
	# they are read before the child has opened them
	append_to_file("$run->{base}.$_", '') for qw(out history);
	$run->{pid} = fork // die "could not fork: $!\n";
	if ($run->{pid} == 0)
	{
		open(STDOUT, '>', "$run->{base}.out") && open(STDERR, '>', "$run->{base}.err")
		  and exec "$dir/churn", "seed=$run->{seed}", "history=$run->{base}.history", @options;
		POSIX::_exit(127);
	}
	return $run;
}

# What the clients have counted so far.
sub done_so_far
{
	my ($run) = @_;
	my %done = slurp_file("$run->{base}.out") =~ /^(\w+) (\d+)\n/mg;
	return \%done;
}

# And what their answers are good for so far, had they ended now.  Of the looks at leases
# one with rows will do: most of the work of a check is to compare them all.
sub figures_so_far
{
	my ($run) = @_;
	my $history = History->new;
	my $looks = 0;
	$history->add(grep { !/^L/ || /^L(?:\t\d+){3}\t./ && !$looks++ } slurp_file("$run->{base}.history") =~ /^(.+)\n/mg);
	$history->check;
	return $history->figures;
}

# What proves nothing is no proof: what there has to be of a storm.
my @proofs = qw(compared ordered rows guards renewed claimed several downgraded);
my @deeds = qw(left moved written);

# Wait for the clients' end, and judge what they were told.
sub end_churn
{
	my ($run, $title) = @_;
	my $attempts = 0;

	until (waitpid($run->{pid}, WNOHANG) == $run->{pid})
	{
		if ($attempts++ > $PostgreSQL::Test::Utils::timeout_default * 20)
		{
			kill 'KILL', $run->{pid};
			die "$title: the clients do not come to an end\n";
		}
		usleep(50_000);
	}
	my $status = $?;
	is(slurp_file("$run->{base}.err") . "status $status", 'status 0', "$title: the clients come to an end");
	my %done = map { split / / } split /\n/, slurp_file("$run->{base}.out");

	my $history = History->new(owners => qr/^s$run->{seed}\./);
	$history->add(map { "F\t$_\t$largest{$_}" } keys %largest);
	$history->add_file("$run->{base}.history");
	my @wrong = $history->check;
	# cancelled, terminated; left by the client; an owner who asks again while his
	# first call has not ended; what PgBouncer says when it has no connection
	push @wrong, "error $_"
	  for grep { !/^((guard )?(57014|57P01|08P01|lost)|left|40P01)$/ } sort keys %{ $history->errors };
	my $figures = $history->figures;
	is(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]), '',
		"$title: $figures->{calls} calls, $figures->{grants} grants: nothing is wrong");
	%largest = (%largest, %{ $history->largest });
	copy_history($run) if @wrong;

	note("$title: " . join(', ', map { "$_ $done{$_}" } sort keys %done));
	note("$title: " . join(', ', map { "$_ $figures->{$_}" } sort keys %$figures));
	note("$title: errors: " . join(', ', map { "$_ " . $history->errors->{$_} } sort keys %{ $history->errors }));
	return (\%done, $figures);
}

sub copy_history
{
	my ($run) = @_;
	system('cp', "$run->{base}.history", "$ENV{TESTLOGDIR}/churn-$run->{seed}") if $ENV{TESTLOGDIR};
	return;
}

# What the clients know of, by their history, and what they do not know of.
sub counted
{
	my ($run) = @_;
	my %count = map { $_ => 0 } qw(acquired entered refused timed_out renewed released sessions);
	my %unknown = map { $_ => 0 } qw(acquire renew release);
	my %seen;
	my %claims;      # by client and start: each has a line for each of its names

	open(my $file, '<', "$run->{base}.history") or die "could not open the history: $!\n";
	while (my $line = <$file>)
	{
		next if $line !~ /^C\t/;
		chomp $line;
		my (undef, $start, undef, $client, $op, $name, undef, undef, undef, undef, $wait, undef, undef, $answer) = split /\t/, $line;
		next if $op !~ /^(acquire|session|any|renew|release)$/;
		if ($op eq 'any')
		{
			my $claim = $claims{"$client $start"} //= { wait => $wait };
			$claim->{granted} = 1 if $answer ne '-';
			next if $answer eq '-';
		}
		$count{sessions}++ if $op eq 'session' && $answer =~ /^\d/;
		$op = 'acquire' if $op =~ /^(session|any)$/;
		if ($answer =~ /^\?/) { $unknown{$op}++ }
		elsif ($op eq 'renew') { $count{renewed}++ if $answer eq 't' }
		elsif ($op eq 'release') { $count{released}++ if $answer eq 't' }
		elsif ($answer eq '-') { $count{ $wait == 0 ? 'refused' : 'timed_out' }++ }
		else { $count{ $seen{"$name $answer"}++ ? 'entered' : 'acquired' }++ }
	}
	$count{ $_->{wait} == 0 ? 'refused' : 'timed_out' }++ for grep { !$_->{granted} } values %claims;
	return (\%count, \%unknown);
}

# Nothing is left, and the server has counted what the clients know of, and what
# they may not know of.
sub nothing_is_left
{
	my ($run, $title, %params) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($count, $unknown) = counted($run);
	my @wrong;

	line_is('', "$title: nobody waits");
	becomes('count(*) FROM dlock.locks', 0, "$title: nothing is held");
	# a lease is counted as expired when its row has gone
	becomes($params{one_hold}
		? 'acquired = released + expired + forced FROM dlock.stats'
		: 'acquired <= released + expired + forced AND released + expired + forced <= acquired + reentered FROM dlock.stats',
		't', "$title: every hold has ended in one way");

	my @columns = qw(acquired acquires refused timed_out renewed released waiters deadlocks);
	my %stats;
	@stats{@columns} = split /\|/, $watcher->query(
		'SELECT acquired, acquired + reentered, refused, timed_out, renewed, released, waiters, deadlocks FROM dlock.stats');
	my %range = (
		# who asks again after a lost answer may be told that he has it already
		acquired => [ $count->{acquired}, $unknown->{acquire} ],
		acquires => [ $count->{acquired} + $count->{entered}, $unknown->{acquire} ],
		refused => [ $count->{refused}, $unknown->{acquire} ],
		timed_out => [ $count->{timed_out}, $unknown->{acquire} ],
		renewed => [ $count->{renewed}, $unknown->{renew} ],
		# what is granted at the moment of a cancel is given back, and so are the
		# leases of a session that ends
		released => [ $count->{released}, $unknown->{release} + $unknown->{acquire} + $count->{sessions} ],
		waiters => [ 0, 0 ],
		# an owner whose first call has not ended may wait for himself
		deadlocks => [ 0, $unknown->{acquire} ]);
	for my $column (@columns)
	{
		my ($least, $more) = @{ $range{$column} };
		push @wrong, "$column is $stats{$column}, not $least to " . ($least + $more)
		  if $stats{$column} < $least || $stats{$column} > $least + $more;
	}
	is("@wrong", '', "$title: the server has counted what the clients know of");
	note("$title: the server: " . join(', ', map { "$_ $stats{$_}" } @columns)
		  . '; unknown to the clients: ' . join(', ', map { "$_ $unknown->{$_}" } sort keys %$unknown));
	return;
}

# A guarded transaction adds one to what it read a while before.
my ($written, $perhaps) = (0, 0);

sub counters_are_right
{
	my ($done, $title) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$written += $done->{written};
	$perhaps += $done->{perhaps};
	my $sum = $watcher->query('SELECT sum(n) FROM counter');

	ok($written <= $sum && $sum <= $written + $perhaps, "$title: no update under a guard is lost")
	  or diag("$sum, not $written to " . ($written + $perhaps));
	return;
}

# Straight to PostgreSQL, more than it has connections for.
sub direct_churn
{
	my ($lives, $title) = @_;
	my $run = start_churn(
		connection => $node->connstr('postgres') . ' user=app',
		control => $node->connstr('postgres'),
		clients => 3 * $connections, names => 60, lives => $lives, rest => 5000,
		leave => 8, sessions => 1, again => 0);
	my ($done, $figures) = end_churn($run, $title);

	cmp_ok($done->{begun}, '>=', $lives, "$title: there were so many connections");
	cmp_ok($done->{crowded}, '>', 0, "$title: and more than the server takes") if $lives >= 1000;
	cmp_ok($figures->{compared}, '>', 0, "$title: grants were compared");
	nothing_is_left($run, $title, one_hold => 1);
	counters_are_right($done, $title);
	return;
}

# ----------------------------------------------------------------
# The server's own processes
# ----------------------------------------------------------------

my $postmaster = Processes::postmaster($node);
sub lasting { return ($postmaster, sort grep { Processes::title($_) =~ /^postgres: .*dlock/ } Processes::children($postmaster)) }

direct_churn(300, 'connections');
my @lasting = lasting();
cmp_ok(scalar @lasting, '>=', 3, 'the server has a launcher and a worker of dlock');
my $early = Resources::of(@lasting);

# ----------------------------------------------------------------
# Leases and server connections
# ----------------------------------------------------------------

$pooler = Pooler->start($node, user => 'app', databases => {
	two => 'pool_mode=transaction pool_size=2',
	statement => 'pool_mode=statement pool_size=1' });
my ($holder, $pin, $other) = map { through('two', $_) } qw(holder pin other);
my $which = 'SELECT pg_backend_pid()';

$pin->query('BEGIN');
my $first = $pin->query($which);
my $token = $holder->query(q{SELECT dlock_acquire('l', 'holder', 3600)});
like($token, $is_token, 'a lease, by one of two server connections');
my $second = $holder->query($which);
isnt($second, $first, 'not the one that is in a transaction');
$other->query('BEGIN');
is($other->query($which), $second, 'another transaction has that now');
$holder->send("SELECT dlock_renew('l', 'holder', 3600, $token), pg_backend_pid()");
eventually(sub { $pooler->pool('two', 'cl_waiting') == 1 }, 'a renewal waits for a server connection');
$pin->query('COMMIT');
is($holder->answer, "t|$first", 'renewed by another one than granted it');
is($holder->query(q{SELECT dlock_acquire('l', 'holder', 3600), pg_backend_pid()}), "$token|$first", 'entered again');
is($holder->query(q{SELECT version FROM dlock_holders('l')}), 2, 'it has two holds');
$other->query('COMMIT');
is($holder->query("SELECT dlock_release('l', 'holder', $token)"), 't', 'one is given back');

# ----------------------------------------------------------------
# All server connections wait for a lease
# ----------------------------------------------------------------

my ($next, $gone) = map { through('two', $_) } qw(next gone);
$next->send(q{SELECT dlock_acquire('l', 'next', 3600, -1)});
line_is('next', 'one waits');
$gone->send(q{SELECT dlock_acquire('l', 'gone', 3600, -1)});
line_is('next gone', 'and another, on the last server connection');
$holder->send("SELECT dlock_release('l', 'holder', $token)");
eventually(sub { $pooler->pool('two', 'cl_waiting') == 1 }, 'a release waits for a server connection');
is($watcher->query(q{SELECT dlock_owner('l')}), 'holder', 'so what all wait for is held on');
$gone->kill;
is($holder->answer, 't', 'a client that waits goes away: the release is made');
my $later = $next->answer;
like($later, $is_token, 'and the next in line is served');
cmp_ok($later, '>', $token, 'with a larger token');
line_is('', 'who has gone away waits no more');
is($next->query(q{SELECT dlock_release('l', 'next')}), 't', 'given back');
is($watcher->query(q{SELECT dlock_is_free('l')}), 't', 'and nobody has it');

# ----------------------------------------------------------------
# Session leases belong to the server connection
# ----------------------------------------------------------------

$pin->query('BEGIN');
$first = $pin->query($which);
my $client = through('two', 'client');
$token = $client->query(q{SELECT dlock_acquire_session('s', 'me', 3600)});
like($token, $is_token, 'a session lease');
$second = $client->query($which);
is($watcher->query(q{SELECT pid FROM dlock.locks WHERE name = 's'}), $second, 'it is the server connection\'s');
my $before = $pooler->pool('two', 'cl_active');
$client->quit;
eventually(sub { $pooler->pool('two', 'cl_active') == $before - 1 }, 'its client goes away');
is($watcher->query(q{SELECT dlock_owner('s')}), 'me', 'the lease stays');
is($other->query(q{SELECT dlock_acquire_session('s', 'me', 3600), pg_backend_pid()}), "$token|$second",
	'another client by that server connection enters it');
$holder->query('BEGIN');
is($holder->query($which), $second, 'that server connection is taken');
$pin->query('COMMIT');
is($other->query(q{SELECT dlock_acquire_session('s', 'me', 3600), pg_backend_pid()}), "|$first",
	'by the other one the same client is refused');
$holder->query('COMMIT');
$pooler->admin('RECONNECT two');
becomes(q{dlock_is_free('s')}, 't', 'it ends when PgBouncer closes the server connection');

like($other->query(q{SELECT dlock_acquire_session('s', 'me', 3600)}), $is_token, 'another one');
is($pin->query($which), $other->query($which), 'two clients by the same server connection');
$pin->query('DISCARD ALL');
is($watcher->query(q{SELECT dlock_is_free('s')}), 't', 'one ends it with DISCARD ALL');
like($other->query(q{SELECT dlock_acquire_session('s', 'me', 3600)}), $is_token, 'another one');
$pooler->admin('SET server_reset_query_always = 1');
$other->query(q{SELECT 1 FROM dlock.locks});
$pin->query(q{SELECT 1 FROM dlock.locks});
becomes(q{dlock_is_free('s')}, 't', 'server_reset_query_always ends it with the next transaction');
like($other->query(q{SELECT dlock_acquire_session('s', 'me', 3600)}), $is_token, 'another one');
becomes(q{dlock_is_free('s')}, 't', 'which ends with its own');
$pooler->admin('SET server_reset_query_always = 0');

# ----------------------------------------------------------------
# Transaction leases and guards have their server connection to themselves
# ----------------------------------------------------------------

$holder->query('BEGIN');
like($holder->query(q{SELECT dlock_acquire_xact('x', 'holder', 3600)}), $is_token, 'a transaction lease');
is($other->query(q{SELECT dlock_acquire('x', 'other', 3600)}), '', 'which excludes');
$holder->query('COMMIT');
becomes(q{dlock_is_free('x')}, 't', 'until its transaction ends');
$token = $holder->query(q{SELECT dlock_acquire('x', 'holder', 3600)});
$holder->query('BEGIN');
is($holder->query("SELECT dlock_guard('x', 'holder', $token)"), '', 'guarded');
is($holder->query(q{SELECT dlock_release('x', 'holder')}), 't', 'and given back');
is($other->query(q{SELECT dlock_acquire('x', 'other', 3600)}), '', 'but guarded');
$holder->query('COMMIT');
like($other->query(q{SELECT dlock_acquire('x', 'other', 3600, -1)}), $is_token, 'until the transaction ends');
is($other->query(q{SELECT dlock_release('x', 'other')}), 't', 'given back');

my $single = through('statement', 'single');
$token = $single->query(q{SELECT dlock_acquire('x', 'single', 3600)});
like($token, $is_token, 'statement mode: a lease');
is($single->query("SELECT dlock_renew('x', 'single', 3600, $token)"), 't', 'statement mode: renewed');
is($single->query("SELECT dlock_release('x', 'single', $token)"), 't', 'statement mode: released');
$_->quit for $holder, $pin, $other, $next, $single;
$pooler->stop;

# ----------------------------------------------------------------
# The storm: PgBouncer wants more connections than PostgreSQL has
# ----------------------------------------------------------------

$pooler = Pooler->start($node, user => 'app',
	databases => { storm => "pool_mode=transaction pool_size=$connections" },
	settings => { max_client_conn => $clients + 500, listen_backlog => 4096, server_login_retry => 1 });

my $too_many = qr/too many clients|remaining connection slots/;

# Connect, without a client library; undef if the server refuses.
sub hog
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
	  or die "could not connect to the server: $!\n";
	my $start = pack('N', 196608) . "user\0app\0database\0postgres\0\0";
	print {$socket} pack('N', 4 + length $start), $start;
	$socket->flush;
	while (read($socket, my $head, 5) == 5)
	{
		my ($type, $length) = unpack('aN', $head);
		read($socket, my $body, $length - 4);
		return $socket if $type eq 'Z';
		die "the server refuses: $body\n" if $type eq 'E' && $body !~ $too_many;
		return if $type eq 'E';
	}
	die "the server does not answer\n";
}

# others have a third of them
my @hogs = map { hog() } 1 .. $connections / 3;

sub storm
{
	my ($title, $grants) = @_;
	my $run = start_churn(
		connection => $pooler->connstr('storm'),
		control => $node->connstr('postgres'),
		clients => $clients, names => $names, rest => 8_000_000, backoff => 120_000_000,
		gather => 0.9 * $clients, leave => 6);

	eventually(sub { (done_so_far($run)->{most} // 0) >= 0.9 * $clients }, "$title: thousands of clients at once");
	eventually(sub { $watcher->query("SELECT acquired >= $grants / 2 FROM dlock.stats") eq 't' }, "$title: they work");
	$pooler->admin('RECONNECT storm');
	eventually(sub { $watcher->query("SELECT acquired >= $grants FROM dlock.stats") eq 't' },
		"$title: they work on, by other server connections");

	# where they are served slowly, few can do more with a lease than lose it
	my $again = 0;
	eventually(sub {
		my $done = done_so_far($run);
		return 0 if time < $again || $done->{begun} <= $clients || grep { !$done->{$_} } @deeds;
		my $began = time;
		my $figures = figures_so_far($run);
		$again = time + 2 * (time - $began);
		return !grep { !$figures->{$_} } @proofs;
	}, "$title: and do all that is to be checked");

	# how many PgBouncer asks for depends on how busy the machine is: others take what it
	# does not, and some of what it gives back
	my @others;
	eventually(sub {
		return 1 if $pooler->log =~ $too_many;
		my $other = hog();
		push @others, $other if $other;
		$pooler->admin('RECONNECT storm') if !$other;
		return 0;
	}, "$title: the server is out of connections");
	close $_ for @others;
	kill 'TERM', $run->{pid};
	my ($done, $figures) = end_churn($run, $title);

	cmp_ok($figures->{$_}, '>', 0, "$title: $_") for @proofs;
	cmp_ok($done->{$_}, '>', 0, "$title: $_") for @deeds;
	cmp_ok($done->{begun}, '>', $clients, "$title: clients come and go");
	nothing_is_left($run, $title);
	counters_are_right($done, $title);
	return;
}

storm('storm', 3000);
if ($ENV{TORTURE_MINUTES})
{
	my $end = time + 60 * $ENV{TORTURE_MINUTES};
	storm('storm', 20000) while time < $end;
}
close $_ for @hogs;

# ----------------------------------------------------------------
# PostgreSQL has no connection left at all
# ----------------------------------------------------------------

my $kept = 20;
my $all_tokens = q{SELECT string_agg(token::text, ' ' ORDER BY name) FROM dlock.locks WHERE owner = 'me'};
my @holders = map { through('storm', "holder$_") } 1 .. $kept;
$token = { map { $_ => $holders[ $_ - 1 ]->query("SELECT dlock_acquire('kept$_', 'me', 3600)") } 1 .. $kept };
my $tokens = $watcher->query($all_tokens);
is(scalar(grep { $_ =~ $is_token } values %$token), $kept, 'leases, of as many clients');
$pooler->admin('RECONNECT storm');
becomes(q{count(*) FROM pg_stat_activity WHERE usename = 'app'}, 0, 'nobody uses the server now');

# a process that has left pg_stat_activity has its place for a moment more
@hogs = ();
eventually(sub {
	while (my $hog = hog())
	{
		push @hogs, $hog;
	}
	return @hogs == $connections - $reserved - 1;
}, 'others have all connections that there are, but the test\'s');
my $logged = length $pooler->log;
$holders[ $_ - 1 ]->send("SELECT dlock_renew('kept$_', 'me', 3600, $token->{$_})") for 1 .. $kept;
eventually(sub { substr($pooler->log, $logged) =~ $too_many }, 'PgBouncer gets none');
is($watcher->query($all_tokens), $tokens, 'what was granted is held');
close $_ for @hogs;

my %answers;
for my $i (1 .. $kept)
{
	my $answer = $holders[ $i - 1 ]->answer;
	$answers{$answer}++;
	next if $answer eq 't';
	# it was told that there is no connection, and comes back
	$holders[ $i - 1 ]->quit;
	eventually(sub {
		my $session = eval { through('storm', "holder$i") } or return 0;
		$holders[ $i - 1 ] = $session;
		return $session->{pid} =~ /^\d+$/;
	}, "holder $i is back");
	is($holders[ $i - 1 ]->query("SELECT dlock_renew('kept$i', 'me', 3600, $token->{$i})"), 't', 'and renews');
}
note('clients that had no connection were answered: ' . join(', ', map { "$_ $answers{$_} times" } sort keys %answers));
is($watcher->query($all_tokens), $tokens, 'all leases are there, with their tokens');

# ----------------------------------------------------------------
# PgBouncer dies
# ----------------------------------------------------------------

my @waiters = map { through('storm', "w$_") } 1 .. 3;
for my $i (1 .. 3)
{
	$waiters[ $i - 1 ]->send("SELECT dlock_acquire('kept1', 'w$i', 3600, -1)");
	line_is(join(' ', map { "w$_" } 1 .. $i), "$i wait");
}
like($holders[1]->query(q{SELECT dlock_acquire_session('s', 'me', 3600)}), $is_token, 'and a session lease');
$pooler->kill9;
line_is('', 'PgBouncer dies: nobody waits');
becomes(q{dlock_is_free('s')}, 't', 'the session lease is over');
becomes(q{count(*) FROM dlock.locks WHERE name = 's'}, 0, 'and its row goes');
is($watcher->query($all_tokens), $tokens, 'the others are there');
$_->quit for @waiters, @holders;

# ----------------------------------------------------------------
# One server process for very many clients
# ----------------------------------------------------------------

$pooler = Pooler->start($node, user => 'app', databases => { one => 'pool_mode=transaction pool_size=1' },
	settings => { max_client_conn => 200, listen_backlog => 4096 });
$client = through('one', 'client');
is($client->query("SELECT dlock_acquire('kept1', 'me', 3600)"), $token->{1}, 'by another PgBouncer a lease is entered again');
is($client->query(q{SELECT dlock_release_all('me')}), $kept, 'all are given back');
$first = $client->query($which);
$client->quit;

sub one_process
{
	my ($lives, $title) = @_;
	my $run = start_churn(
		connection => $pooler->connstr('one'),
		clients => 40, names => 5000, lives => $lives, rest => 5000);
	my ($done) = end_churn($run, $title);
	cmp_ok($done->{begun}, '>=', $lives, "$title: so many clients");
	nothing_is_left($run, $title);
	counters_are_right($done, $title);
	return Resources::of($first);
}

my $young = one_process(150, 'one process');
Resources::have_not_grown($young, one_process(1200, 'one process'), 'one process for many clients');
$pooler->stop;

# ----------------------------------------------------------------
# Connections by the thousand
# ----------------------------------------------------------------

direct_churn(2000, 'many connections');
is(join(' ', lasting()), "@lasting", 'the server\'s own processes are what they were');
Resources::have_not_grown($early, Resources::of(@lasting), 'the server');
becomes(q{count(*) FROM pg_stat_activity WHERE usename = 'app'}, 0, 'nobody is connected');

$watcher->quit;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing has crashed');
done_testing();
