# Cases.pm: the cases of clients/CONTRACT.md, for the client of any language.
#
#   Cases::run($kind, command => ['python3', 'agent.py'],
#       drivers => { postgres => { psycopg => ['python3-psycopg'] }, ... })
#
# starts a server of that kind, and goes through the cases with each of the drivers for
# it: its name, and what it needs, Debian packages or "npm:MODULE".  The command may be a sub
# that builds the agent and returns the words; it is called once those are there.  Without one
# there are no such cases.  "also" is called at the end with those drivers, for cases of this
# language only.  Agent.pm says what the command does.

package Cases;

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Agent;
use Engines;
use FreePorts;
use Proxy;
use TAP::Parser;
use Test::More;
use Time::HiRes qw(time);

# whose modules the tests for MySQL and MariaDB do without
BEGIN
{
	if (($ARGV[0] // '') eq 'postgres')
	{
		require PostgreSQL::Test::Cluster;
		require Pooler;
	}
}

my ($engine, $kind, $port, @command, $driver);
my $number = qr/-?[\d.]+(?:e-\d+)?/;

sub run
{
	my ($for, %how) = @_;
	$kind = $for;
	my $drivers = $how{drivers}{$kind} // {};
	# which to a client is like MariaDB, but for the numbers of some errors
	plan skip_all => 'on MySQL with ENGINE=mysql, or by "make matrix"' if $kind eq 'mysql' && ($ENV{ENGINE} // '') ne 'mysql';
	my @able;
	for my $name (sort keys %$drivers)
	{
		my $reason = reason_not(@{ $drivers->{$name} });
		if (defined $reason) { SKIP: { skip("$name $reason", 1) } }
		else { push @able, $name }
	}
	plan skip_all => "none of these speaks to $kind" unless %$drivers;
	if (@able)
	{
		@command = ref $how{command} eq 'CODE' ? $how{command}->() : @{ $how{command} // [] };
		start_server();
		for my $name ($how{command} ? @able : ())
		{
			$driver = $name;
			subtest($name, \&cases);
			$engine->clean_up;
		}
		$how{also}->(@able) if $how{also};
		$engine->stop;
	}
	done_testing();
	return;
}

# A program that prints TAP.
sub program
{
	my ($what, @exec) = @_;
	subtest($what, sub {
		my $parser = TAP::Parser->new({ exec => [ 'timeout', '600', @exec ], merge => 1 });
		while (my $result = $parser->next)
		{
			if ($result->is_test) { ok($result->is_ok, $result->description =~ s/^- //r) }
			elsif (!$result->is_plan) { diag($result->as_string) }
		}
		ok(!$parser->has_problems && $parser->tests_run > 0, 'it ran to its end');
	});
	return;
}

# What something lacks that it needs; undef if nothing.
sub reason_not
{
	for my $need (@_)
	{
		if ($need =~ /^npm:(.*)/)
		{
			return "needs $1 of npm, in DLOCK_NODE_MODULES" unless $ENV{DLOCK_NODE_MODULES} && -d "$ENV{DLOCK_NODE_MODULES}/$1";
			next;
		}
		my $status = `dpkg-query -W -f '\${db:Status-Status}' $need 2>/dev/null`;
		return "needs $need" if $status ne 'installed';
	}
	return;
}

sub start_server
{
	($port) = FreePorts::reserve(1);
	if ($kind eq 'postgres')
	{
		$engine = Engines::start($kind);
		$port = $engine->{node}->port;
		# who cannot wait for a lease
		$engine->control->value('CREATE ROLE hasty LOGIN');
		$engine->control->value(q{ALTER ROLE hasty SET statement_timeout = '50ms'});
		# one that may not log in for a while, and one whose connections are counted
		$engine->control->value("CREATE ROLE $_ LOGIN") for 'changing', 'fleet';
		$engine->{node}->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nmax_connections = 100");
		$engine->restart;
	}
	else
	{
		$engine = Engines::start($kind, '--skip-networking=0', '--bind-address=127.0.0.1', "--port=$port", '--skip-name-resolve',
			$kind eq 'mysql' ? '--mysqlx=OFF' : ());
		$engine->control->value(q{
			CREATE USER 'tester'@'127.0.0.1';
			GRANT ALL ON scenarios.* TO 'tester'@'127.0.0.1';
			GRANT EXECUTE ON dlock.* TO 'tester'@'127.0.0.1'});
		$engine->control->value("$_ 'fleet'\@'127.0.0.1', 'changing'\@'127.0.0.1'") for 'CREATE USER', 'GRANT EXECUTE ON dlock.* TO', 'GRANT ALL ON scenarios.* TO';
	}
	$ENV{DLOCK_SERVER} = $kind;
	$ENV{DLOCK_HOST} = '127.0.0.1';
	$ENV{DLOCK_PORT} = $port;
	$ENV{DLOCK_USER} = 'tester';
	$ENV{DLOCK_DATABASE} = $kind eq 'postgres' ? 'postgres' : 'scenarios';
	# where node's require() looks
	$ENV{NODE_PATH} = $ENV{DLOCK_NODE_MODULES} // '';
	return;
}

# An agent; its lease may use another port.
sub agent
{
	my ($by) = @_;
	return Agent->start(@command, $driver, $by // $port);
}

sub value { return $engine->control->value($engine->translate($_[0])) }

# Poll until a query answers this.
sub becomes
{
	my ($sql, $wanted, $what) = @_;
	my $is;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	Scenarios::Run::until(sub { ($is = value($sql)) eq $wanted });
	return is($is, $wanted, $what);
}

sub holds { return "SELECT count(*) FROM dlock.locks WHERE name = '$_[0]' AND LIVE" }
sub waits { return "SELECT count(*) FROM dlock.waiters WHERE name = '$_[0]'" }

# The statements of the clients are such that a wait keeps no dead rows.
sub waits_without_a_snapshot
{
	my ($name, $what) = @_;
	return if $kind ne 'postgres';
	return becomes("SELECT count(*) FROM dlock.waiters JOIN pg_stat_activity USING (pid) WHERE name = '$name' AND backend_xmin IS NOT NULL",
		0, "who waits for $what has no snapshot");
}

# An agent that holds a lease; its token.
sub holds_it
{
	my ($agent, $lease, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = $agent->ask("lease $lease", qr/^(?:held|failed) /);
	like($said, qr/^held \d/, $what);
	return $said =~ /^held (\d+)/ ? $1 : 0;
}

# An agent leaves its block, by "end" or by "raise", and gives back what is "which" of
# dlock.locks.  A client tries that for 5 s, and leaves the rest to the deadline, which comes
# much later here: on a machine that stands still that long, the lease is evicted, and the agent
# takes it again, if "again" says so, and leaves once more.
sub gives_back
{
	my ($agent, $what, %how) = @_;
	my $order = $how{order} // 'end';
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $try (1 .. 20)
	{
		my $began = time;
		my $said = $agent->ask($order, qr/^(?:ended|raised)/);
		my $took = time - $began;
		is($said, $order eq 'raise' ? 'raised' : 'ended', "$what: the block ends");
		my $left = value("SELECT count(*) FROM dlock.locks WHERE $how{which}");
		return is($left, 0, "$what: the lease is released") if !$left || $took < 5 || $try == 20;
		evict($how{which});
		return if !$how{again};
		holds_it($agent, $how{again}, "$what: held once more");
	}
	return;
}

# An agent closes its client, which gives all leases back.  What it has not within 5 s it leaves
# to the deadline.
sub closes
{
	my ($agent, $what, $which) = @_;
	my $began = time;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($agent->ask('many-close', qr/^many-close/), 'many-close', "$what: the client is closed");
	evict($which) if time - $began >= 5;
	return is(value("SELECT count(*) FROM dlock.locks WHERE $which AND LIVE"), 0, "$what: all are released");
}

sub evict
{
	my ($which) = @_;
	value("SELECT dlock_force_release(name) FROM (SELECT DISTINCT name FROM dlock.locks WHERE $which) l");
	return;
}

sub token_of { return $_[0] =~ /^held (\d+)/ ? $1 : 0 }
sub time_of { return $_[0] =~ / ([\d.]+)$/ ? $1 : die "\"$_[0]\" tells no time\n" }

# An agent whose network is gone while it holds a lease, and one that waits for that.
my $networks = 0;

sub begin_network
{
	my $name = 'network' . ++$networks;
	my $network = Proxy->start($port);
	my ($far, $near) = (agent($network->port), agent());
	my $token = holds_it($far, "$name 10 0", '4 lost by the network: held');
	$network->swallow;
	$near->tell("lease $name 60 -1");
	return [ $network, $far, $near, $token ];
}

# Was the one told that it has lost the lease, before the other one had it?
sub end_network
{
	my ($network, $far, $near, $token) = @{ $_[0] };
	my $granted = $near->says(qr/^(?:held|failed)/);
	cmp_ok(token_of($granted), '>', $token, '4 lost by the network: the next holder has it');
	my $told = $far->says(qr/^lost /);
	like($far->ask('check'), qr/^check lost /, '4 lost by the network: the first has lost it');
	is($near->ask('end', qr/^ended/), 'ended', '4 lost by the network: the next holder releases it');
	$near->quit;
	like($far->ask('end', qr/^ended/), qr/^ended lost /, '4 lost by the network: the block does not end well');
	$far->quit;
	$network->stop;
	return time_of($told) < time_of($granted);
}

sub cases
{
	my ($lost, $misuse) = $kind eq 'postgres' ? ('55L01', '22023') : ('(?:55L01|1644)', '(?:22023|3037)');
	my ($deadlock, $outside) = $kind eq 'postgres' ? ('40P01', '25P01') : ('(?:40P01|3058)', '(?:25P01|1105)');
	my ($one, $two, $three) = map { agent() } 1 .. 3;

	# 5, the beginning: a TTL long enough for a restart, so its renewals are far apart
	my $steady = agent();
	my $token = holds_it($steady, 'restart 60 0', '5 restart: held');

	# 15 and 16, the beginning
	my $logins = begin_logins();
	my $fleet = begin_fleet();

	# 4, the beginning: it takes long, so the rest goes on meanwhile
	my $cut_off = begin_network();

	# 10, the beginning: a server that refuses, and then does not answer any more
	my ($refusing, $refused);
	if ($kind eq 'postgres')
	{
		$refusing = Proxy->start($port);
		value(q{SELECT dlock_acquire('refused', 'somebody', 600)});
		local $ENV{DLOCK_USER} = 'hasty';
		my $log = sub { PostgreSQL::Test::Utils::slurp_file($engine->{node}->logfile) };
		my $before = length $log->();
		# the log comes before the answer; a client that asks again has had its answer
		my $is_answered = sub { (() = substr($log->(), $before) =~ /due to statement timeout/g) > 1 };
		# one whose machine stands still has no time to be answered
		for (1 .. 5)
		{
			$refused = agent($refusing->port);
			$refused->tell('lease refused 60 5 connect_timeout=25');
			Scenarios::Run::until(sub { $is_answered->() || $refused->has_said(qr/^failed /) });
			last if $is_answered->();
			$refused->kill;
		}
		ok($is_answered->(), '10 errors: an acquire is refused');
		$refusing->swallow;
	}

	# leases that last while the machine stands still for a moment, so it is long until they are
	# renewed; their ends are below
	my ($listing, $evicted) = (agent(), agent());
	like($listing->ask('lease l1,l2 30 0 list=1', qr/^(?:held|failed)/), qr/^held \d+,\d+ /, 'two names at once');
	my $acquired = value(q{SELECT SECONDS_DEADLINE FROM dlock.locks WHERE name = 'l2'});
	my $held = $evicted->ask('lease forced 60 0', qr/^(?:held|failed) /);
	value(q{SELECT dlock_force_release('forced')});
	my ($pooler, @pooled);
	if ($kind eq 'postgres')
	{
		# 7, the beginning
		$pooler = Pooler->start($engine->{node}, user => 'tester',
			databases => { postgres => 'pool_mode=transaction pool_size=3' },
			settings => { listen_addr => '127.0.0.1', ignore_startup_parameters => 'extra_float_digits' });
		local $ENV{DLOCK_POOLED} = 1;
		@pooled = map { agent($pooler->{port}) } 1 .. 5;
		my $i = 0;
		holds_it($_, 'pooled' . ++$i . ' 30 0', "7 pool: held by $i of 5") for @pooled;
	}

	# 1
	$_->tell('lease cron 60 0') for $one, $two;
	my @said = sort map { $_->says(qr/^(?:held|failed) /) } $one, $two;
	like($said[0], qr/^failed busy -$/, '1 cron singleton: one is busy');
	like($said[1], qr/^held /, '1 cron singleton: one runs');
	$_->tell('end') for $one, $two;
	becomes(holds('cron'), 0, '1 cron singleton: it is over');
	# an order to the one that held nothing stays
	($one, $two) = map { $_->quit; agent() } $one, $two;

	# the modes
	holds_it($one, 'doc 60 0 shared=1', 'shared by one');
	holds_it($two, 'doc 60 0 shared=1', 'shared by two');
	is($three->ask('lease doc 60 0', qr/^failed/), 'failed busy -', 'and nobody else has it alone');
	is($_->ask('end', qr/^ended/), 'ended', 'shared, released') for $one, $two;
	holds_it($one, 'pool 60 0 permits=2', 'a permit of two');
	holds_it($two, 'pool 60 0 permits=2', 'the other one');
	is($three->ask('lease pool 60 0 permits=2', qr/^failed/), 'failed busy -', 'there is no third');
	is($_->ask('end', qr/^ended/), 'ended', 'permits, released') for $one, $two;
	is($two->ask('lease l2,l3 60 0 list=1', qr/^failed/), 'failed busy -', 'all or none');
	is(value(holds('l3')), 0, 'that is: none');

	# 2
	my $first = holds_it($one, 'leader 600 0', '2 leader: the first');
	$two->tell('lease leader 2 -1');
	becomes(waits('leader'), 1, '2 leader: the second waits');
	gives_back($one, '2 leader: the first steps down', which => "name = 'leader' AND token = $first");
	my $second = token_of($two->says(qr/^(?:held|failed)/));
	cmp_ok($second, '>', $first, '2 leader: the second takes over');
	$three->tell('lease leader 60 -1');
	# on a machine that stands still the second may have lost it by itself
	ok(Scenarios::Run::until(sub { value(waits('leader')) == 1 || $three->has_said(qr/^held /) }), '2 leader: the third waits');
	$two->kill;
	cmp_ok(token_of($three->says(qr/^(?:held|failed)/)), '>', $second, '2 leader: it takes over after a kill');
	is($three->ask('end', qr/^ended/), 'ended', '2 leader: it steps down');
	$two = agent();

	# 3
	holds_it($one, 'stopped 2 0', '3 stopped: held');
	$one->signal('STOP');
	holds_it($two, 'stopped 60 -1', '3 stopped: somebody else has it');
	$one->tell('check');
	$one->signal('CONT');
	like($one->says(qr/^check /), qr/^check lost /, '3 stopped: it finds out before anything else');
	like($one->says(qr/^lost /), qr/^lost \d/, '3 stopped: and is told');
	like($one->ask('end', qr/^ended/), qr/^ended lost /, '3 stopped: the block does not end well');
	is(value(holds('stopped')), 1, '3 stopped: the other one still has it');
	is($two->ask('end', qr/^ended/), 'ended', '3 stopped: until it releases it');

	# 6
	my $proxy = Proxy->start($port);
	my $cut = agent($proxy->port);
	my $reentered = value('SELECT reentered FROM dlock.stats');
	# some drivers send the name after the statement
	for my $word ('dlock_acquire', 'of-the-name')
	{
		$proxy->cut_reply($word);
		my $token = holds_it($cut, 'of-the-name 600 0', "6 a lost reply to $word: held");
		is(value(q{SELECT max(token) FROM dlock.locks WHERE name = 'of-the-name' AND version = 1}), $token, '6 a lost reply: one hold');
		gives_back($cut, '6 a lost reply', which => "name = 'of-the-name'", again => 'of-the-name 600 0');
	}
	cmp_ok(value('SELECT reentered FROM dlock.stats'), '>', $reentered, '6 a lost reply: there was one after the grant');
	my $before_it = holds_it($one, 'waited 600 0', '6 cut while it waits: somebody has it');
	$cut->tell('lease waited 600 -1');
	my $waiter = sub { value(sprintf(q{SELECT max(%s) FROM dlock.waiters WHERE name = 'waited'}, $kind eq 'postgres' ? 'pid' : 'connection_id')) };
	becomes(waits('waited'), 1, '6 cut while it waits: it waits');
	my $before = $waiter->();
	$proxy->cut;
	ok(Scenarios::Run::until(sub { my $now = $waiter->(); $now ne 'NULL' && $now != $before && value(waits('waited')) == 1 }), '6 cut while it waits: it waits again');
	gives_back($one, '6 cut while it waits', which => "name = 'waited' AND token = $before_it");
	like($cut->says(qr/^(?:held|failed)/), qr/^held /, '6 cut while it waits: held');
	is(value(q{SELECT max(version) FROM dlock.locks WHERE name = 'waited'}), 1, '6 cut while it waits: one hold');
	# a heartbeat that is cut goes on by another connection
	$proxy->cut;
	gives_back($cut, '6 cut while it is held', which => "name = 'waited'", again => 'waited 600 0');
	$_->quit for $cut;
	$proxy->stop;

	# 7
	SKIP:
	{
		skip('PgBouncer is for PostgreSQL', 1) if $kind ne 'postgres';
		becomes(q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'pooled%' AND expires_at > acquired_at + interval '32 s'}, 5,
			'7 pool: all are renewed');
		is($_->ask('check'), 'check ok', '7 pool: held') for @pooled;
		gives_back($pooled[ $_ - 1 ], "7 pool: $_", which => "name = 'pooled$_'", again => "pooled$_ 30 0") for 1 .. 5;
		$_->quit for @pooled;
		$pooler->stop;
	}

	# 8
	holds_it($one, 'canceled 600 0', '8 canceled: somebody has it');
	$two->tell('lease canceled 60 -1');
	becomes(waits('canceled'), 1, '8 canceled: one waits');
	waits_without_a_snapshot('canceled', 'one');
	is($two->ask('cancel', qr/^(?:failed|held)/), 'failed canceled -', '8 canceled: it is told');
	becomes(waits('canceled'), 0, '8 canceled: nobody waits');
	is(value(holds('canceled')), 1, '8 canceled: one holds');
	$two->tell('lease alist,canceled 60 -1 list=1');
	becomes(waits('canceled'), 1, '8 canceled: one waits for a list');
	waits_without_a_snapshot('canceled', 'a list');
	is($two->ask('cancel', qr/^(?:failed|held)/), 'failed canceled -', '8 canceled: it is told, too');
	# whose server may not have noticed yet, and would be granted what is now released
	becomes(waits('canceled'), 0, '8 canceled: nobody waits any more');
	gives_back($one, '8 canceled', which => "name = 'canceled'", again => 'canceled 600 0');

	# the list, its end
	becomes("SELECT count(*) FROM dlock.locks WHERE name IN ('l1', 'l2') AND SECONDS_DEADLINE > $acquired + 2", 2, 'both are renewed');
	is($listing->ask('guard'), 'guard ok', 'both are guarded');
	gives_back($listing, 'both', which => q{name IN ('l1', 'l2')}, again => 'l1,l2 30 0 list=1');
	$listing->quit;

	# 9
	# which would come later if only an answer were missing
	cmp_ok(time_of($evicted->says(qr/^lost /)), '<', time_of($held) + 58, '9 forced: lost at the next renewal');
	is($evicted->ask('check'), 'check lost -', '9 forced: and is so');
	like($evicted->ask('end', qr/^ended/), qr/^ended lost /, '9 forced: the block does not end well');
	$evicted->quit;

	# 10: lost is in 9, and in 11
	holds_it($one, 'errors 60 0', '10 errors: held');
	is($two->ask('lease errors 60 0', qr/^(?:failed|held)/), 'failed busy -', '10 errors: busy');
	is($two->ask('lease errors 60 0.2', qr/^(?:failed|held)/), 'failed busy -', '10 errors: busy after a while');
	like($two->ask('lease errors 1e6 0', qr/^(?:failed|held)/), qr/^failed misuse $misuse$/, '10 errors: misuse');
	is($one->ask('end', qr/^ended/), 'ended', '10 errors: released');
	holds_it($one, 'itself 60 0 permits=1 owner=x', '10 errors: a permit');
	like($two->ask('lease itself 60 60 permits=1 owner=x', qr/^(?:failed|held)/), qr/^failed busy $deadlock$/, '10 errors: a deadlock is busy');
	is($one->ask('end', qr/^ended/), 'ended', '10 errors: the permit is released');
	my ($nobody) = FreePorts::reserve(1);
	my $lonely = agent($nobody);
	like($lonely->ask('lease errors 60 0 connect_timeout=0.5', qr/^(?:failed|held)/), qr/^failed unavailable /, '10 errors: unavailable');
	$lonely->quit;
	{
		local $ENV{DLOCK_DATABASE} = 'nowhere';
		my $lost = agent();
		# psycopg does not tell the SQLSTATE of what the server says instead of a connection, so
		# it tries again until its time is over
		my ($time, $told) = $driver =~ /^psycopg/ ? (' connect_timeout=1', qr/^failed unavailable -$/)
		  : ('', qr/^failed misuse (?:3D000|1044|1049|42000)$/);
		like($lost->ask("lease errors 60 0$time", qr/^(?:failed|held)/), $told, '10 errors: a database that is not there');
		$lost->quit;
	}
	if ($refused)
	{
		is($refused->says(qr/^(?:failed|held)/), 'failed unavailable 57014', '10 errors: what the server answered last');
		$refused->quit;
		$refusing->stop;
	}

	# 11
	holds_it($one, 'guarded 60 0', '11 guard: held');
	is($one->ask('guard'), 'guard ok', '11 guard: it holds');
	like($one->ask('guard-outside'), qr/^guard-outside misuse $outside$/, '11 guard: not without a transaction');
	is($one->ask('check'), 'check ok', '11 guard: which changes nothing');
	value(q{SELECT dlock_force_release('guarded')});
	like($one->ask('guard'), qr/^guard lost $lost$/, '11 guard: lost');
	like($one->ask('check'), qr/^check lost $lost$/, '11 guard: and that is remembered');
	like($one->ask('end', qr/^ended/), qr/^ended lost /, '11 guard: the block does not end well');

	# 12
	holds_it($one, 'raised 600 0', '12 exception: held');
	gives_back($one, '12 exception', order => 'raise', which => "name = 'raised'", again => 'raised 600 0');
	for my $try (1 .. 20)
	{
		holds_it($one, 'exited 600 0', '12 end of the process: held');
		my $began = time;
		$one->tell('exit');
		is($one->await_end, 0, '12 end of the process');
		my $took = time - $began;
		my $left = value(holds('exited'));
		$one = agent();
		# as in gives_back()
		if ($left && $took >= 5 && $try < 20) { evict(q{name = 'exited'}) }
		else
		{
			is($left, 0, '12 end of the process: the lease is released');
			last;
		}
	}

	arguments($one);
	one_name($one, $two);
	end_logins($logins);
	go_on_fleet($fleet);

	# 17
	holds_it($one, 'events 60 0 events=1', '17 events: held');
	like($one->says(qr/^event /), qr/^event acquired events $number$/, '17 events: acquired');
	is($two->ask('lease events 60 0 events=1', qr/^(?:failed|held)/), 'failed busy -', '17 events: busy');
	like($two->says(qr/^event /), qr/^event refused events $number$/, '17 events: refused');
	is($one->ask('end', qr/^ended/), 'ended', '17 events: the block ends');
	# on a machine that stands still it was renewed before
	like($one->says(qr/^event (?!(?:late|renewed) )/), qr/^event released events $number$/, '17 events: released');

	# 16, a name that is kept is still the owner's, which the client is, too
	is($one->ask('many kept 1 60 0 keep_at_least=600'), 'many 1', '16 kept: held');
	is($one->ask('many-release kept1'), 'many-release 1', '16 kept: released');
	is(value(holds('kept1')), 1, '16 kept: but kept');
	is(value(q{SELECT COUNT(*) FROM dlock.locks WHERE name = 'kept1' AND leaving}), 1, '16 kept: and given back with effect later') if leaves();
	is($one->ask('many kept 1 60 0'), 'many busy -', '16 kept: from the client, too');
	is(value(q{SELECT max(version) FROM dlock.locks WHERE name = 'kept1'}), 1, '16 kept: of which no server hears');
	is($one->ask('many-close', qr/^many-close/), 'many-close', '16 kept: the client is closed');

	keeps_at_least($one, $two);

	# 4, the end; who tells it stands still with the machine, and then it is tried once more
	my $told_before;
	for (1 .. 5)
	{
		last if $told_before = end_network($cut_off);
		$cut_off = begin_network();
	}
	ok($told_before, '4 lost by the network: lost was told before');

	# 5, the end, last, since it ends everybody's connections
	my $left = q{SELECT SECONDS_LEFT FROM dlock.locks WHERE name = 'restart'};
	my $slow;
	for my $try (1 .. 5)
	{
		$engine->restart;
		my $least = 'inf';
		my $is_renewed = Scenarios::Run::until(sub {
			my $now = value($left) // 'NULL';
			return $steady->has_said(qr/^lost /) if $now eq 'NULL';
			$least = $now if $now < $least;
			# more than a restart may add
			return $now > $least + 3 || $steady->has_said(qr/^lost /);
		});
		my $check = $steady->ask('check');
		# by itself, on a machine too busy to restart the server and to renew in that time
		if ($check =~ /^check lost/ && $try < 5)
		{
			$slow = 1;
			$steady->ask('end', qr/^ended/);
			$steady->quit;
			evict(q{name = 'restart'});
			$steady = agent();
			$token = holds_it($steady, 'restart 60 0', '5 restart: held once more');
			next;
		}
		ok($is_renewed, '5 restart: renewed after it');
		is($check, 'check ok', '5 restart: it goes on');
		is(value(q{SELECT max(token) FROM dlock.locks WHERE name = 'restart'}), $token, '5 restart: with the same token');
		is($steady->ask('end', qr/^ended/), 'ended', '5 restart: released');
		last;
	}
	end_fleet($fleet, $slow);
	$_->quit for $one, $two, $three, $steady;
	return;
}

# Has the server dlock_release_after()?
sub leaves { return $kind eq 'postgres' || ($ENV{STORE} // '') eq 'log' }

# 18: a job that ends too soon.  Its client tries for 5 s to say so, and leaves the rest to the
# deadline: on a machine that stands still that long, it is done again, as in gives_back().
sub keeps_at_least
{
	my ($one, $two) = @_;
	for my $lease ('kept-one 60 0', 'kept-a,kept-b 60 0 list=1', 'kept-named 60 0 owner=keeper', 'kept-pair 60 0 permits=2')
	{
		my @names = split /,/, $lease =~ s/ .*//r;
		my $which = join ' OR ', map { "name = '$_'" } @names;
		my $left = leaves() ? 'leaving' : 'LIVE';
		for my $try (1 .. 20)
		{
			holds_it($one, "$lease keep_at_least=600", "18 keep at least: @names held");
			my $began = time;
			is($one->ask('end', qr/^ended/), 'ended', '18 keep at least: the block ends');
			my $took = time - $began;
			my $kept = value("SELECT count(*) FROM dlock.locks WHERE ($which) AND $left AND SECONDS_LEFT > 300");
			evict($which), next if $kept < @names && $took >= 5 && $try < 20;
			is($kept, @names, '18 keep at least: given back with effect later, or kept');
			last;
		}
		# its former owner, too, where it can be given back
		is($two->ask("lease $lease", qr/^(?:held|failed)/), 'failed busy -', '18 keep at least: nobody has it before')
		  if $lease !~ /permits/ && (leaves() || $lease !~ /owner/);
		evict($which);
	}

	# a lost reply: it is asked for once more, whoever has made the owner
	for my $try (1 .. 20)
	{
		my $proxy = Proxy->start($port);
		my $cut = agent($proxy->port);
		is($cut->ask("many cut$try. 1 60 0 keep_at_least=600 owner=keeper"), 'many 1', '18 keep at least, a lost reply: held');
		$proxy->cut_reply(leaves() ? 'dlock_release_after' : 'dlock_renew_many');
		my $began = time;
		my $answer = $cut->ask("many-release cut$try.1");
		my $took = time - $began;
		$cut->quit;
		$proxy->stop;
		evict("name = 'cut$try.1'");
		next if $answer ne 'many-release 1' && $took >= 5 && $try < 20;
		is($answer, 'many-release 1', '18 keep at least, a lost reply: given back');
		last;
	}

	my $grown;
	for my $try (1 .. 5)
	{
		# others' leases may expire meanwhile
		my $before = value('SELECT expired FROM dlock.stats');
		holds_it($one, "soon$try 60 0 keep_at_least=1", '18 keep at least: for a second');
		is($one->ask('end', qr/^ended/), 'ended', '18 keep at least: the block ends');
		becomes(holds("soon$try"), 0, '18 keep at least: it is free at that time');
		last if $kind ne 'postgres';
		# whose row is counted when it is removed
		becomes("SELECT count(*) FROM dlock.locks WHERE name = 'soon$try'", 0, '18 keep at least: and gone');
		$grown = value('SELECT expired FROM dlock.stats') - $before;
		last if !$grown;
	}
	is($grown, 0, '18 keep at least: and does not count as expired') if $kind eq 'postgres';
	return;
}

# 13: what cannot be meant is told before a server is asked, so there is no code.
sub arguments
{
	my ($one) = @_;
	holds_it($one, 'text 5min 0.5s', '13 arguments: times as text');
	cmp_ok(abs(value(q{SELECT TTL FROM dlock.locks WHERE name = 'text'}) - 300), '<', 5, '13 arguments: mean what they say');
	is($one->ask('end', qr/^ended/), 'ended', '13 arguments: released');
	my $long = 'é' x 128;
	for my $wrong ('x 30q 0', 'x 0 0', 'x -1 0', 'x 2e9 0', 'x 30 soon', "$long 30 0", "x 30 0 owner=$long", "a\0b 30 0", "x 30 0 owner=a\0b",
		'x 30 0 permits=0', 'x 30 0 connect_timeout=0', 'x,x 30 0 list=1', 'x 30 0 unknown=1')
	{
		(my $shown = $wrong) =~ s/\0/\\0/g;
		is($one->ask("lease $wrong", qr/^(?:held|failed)/), 'failed misuse -', "13 arguments: $shown");
	}
	return;
}

# 14: a name is the same, whatever the driver and the session make of statements and of answers.
sub one_name
{
	my ($one, $two) = @_;
	my $name = q{it's"a\\b'%s$1?#--`é€x};
	my $bytes = unpack('H*', $name);
	my $is_it = 'name = ' . ($kind eq 'postgres' ? "convert_from(decode('$bytes', 'hex'), 'UTF8')" : "CAST(X'$bytes' AS CHAR CHARACTER SET utf8mb4)");
	my $holds = "SELECT count(*) FROM dlock.locks WHERE $is_it AND LIVE";
	value(q{SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'}) if $kind ne 'postgres';
	my ($odd, $other) = do { local $ENV{DLOCK_ODD} = 1; map { agent() } 1, 2 };
	for my $order ("lease $name 60 0", "lease $name 60 0 list=1", "lease $name 60 0 permits=1", "lease $name 60 0 owner=$name")
	{
		my $what = '14 one name' . ($order =~ /( \w+=).*$/ ? $1 : '');
		for my $by ([ $odd, $one, 'odd' ], [ $one, $odd, 'plain' ])
		{
			my ($holder, $newcomer, $how) = @$by;
			like($holder->ask($order, qr/^(?:held|failed)/), qr/^held \d/, "$what, $how: held");
			is(value($holds), 1, "$what, $how: by its name");
			is($newcomer->ask("lease $name 60 0" . ($order =~ /permits/ ? ' permits=1' : ''), qr/^(?:held|failed)/), 'failed busy -', "$what, $how: nobody else has it");
			is($holder->ask('guard'), 'guard ok', "$what, $how: guarded");
			is($holder->ask('end', qr/^ended/), 'ended', "$what, $how: the block ends");
			is(value($holds), 0, "$what, $how: given back");
		}
	}
	# answers of a heartbeat, and of a cancelled wait
	my $before = holds_it($one, 'odd 600 0', '14 odd: somebody has it');
	$odd->tell('lease odd 2 -1');
	becomes(waits('odd'), 1, '14 odd: one waits');
	gives_back($one, '14 odd', which => "name = 'odd' AND token = $before");
	like($odd->says(qr/^(?:held|failed)/), qr/^held \d/, '14 odd: held');
	my $acquired = value(q{SELECT SECONDS_DEADLINE FROM dlock.locks WHERE name = 'odd'});
	# on a machine that stands still it may have lost it by itself
	ok(Scenarios::Run::until(sub { (value(q{SELECT max(SECONDS_DEADLINE) FROM dlock.locks WHERE name = 'odd'}) // 'NULL') ne $acquired || $odd->has_said(qr/^lost /) }), '14 odd: renewed');
	like($odd->ask('end', qr/^ended/), qr/^ended/, '14 odd: ended');
	like($odd->ask('many odd 3 60 0'), qr/^many 3$/, '14 odd: three by a client');
	is(value(q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'odd_' AND LIVE}), 3, '14 odd: held');
	is($odd->ask('many-release odd2'), 'many-release 1', '14 odd: one is released');
	closes($odd, '14 odd', q{name LIKE 'odd_'});
	$_->quit for $odd, $other;
	value(q{SET GLOBAL sql_mode = DEFAULT}) if $kind ne 'postgres';
	return;
}

# 15: how often an account was refused, and whether it may log in.
sub refusals
{
	return scalar(() = PostgreSQL::Test::Utils::slurp_file($engine->{node}->logfile) =~ /is not permitted to log in/g) if $kind eq 'postgres';
	my $schema = $kind eq 'mysql' ? 'performance_schema' : 'information_schema';
	return value("SELECT variable_value FROM $schema.global_status WHERE variable_name = 'Aborted_connects'");
}

sub may_log_in
{
	my ($may) = @_;
	value($kind eq 'postgres' ? 'ALTER ROLE changing ' . ($may ? 'LOGIN' : 'NOLOGIN')
		: q{ALTER USER 'changing'@'127.0.0.1' ACCOUNT } . ($may ? 'UNLOCK' : 'LOCK'));
	return;
}

sub begin_logins
{
	local $ENV{DLOCK_USER} = 'changing';
	my $proxy = Proxy->start($port);
	my ($holder, $waiter) = map { agent($proxy->port) } 1, 2;
	my $token = holds_it($holder, 'logins 600 0', '15 log-ins: held');
	$waiter->tell('lease logins 60 -1');
	becomes(waits('logins'), 1, '15 log-ins: one waits');
	my $before = refusals();
	may_log_in(0);
	$proxy->cut;
	return [ $proxy, $holder, $waiter, $before, $token ];
}

sub end_logins
{
	my ($proxy, $holder, $waiter, $before, $token) = @{ $_[0] };
	ok(Scenarios::Run::until(sub { refusals() > $before + 2 || $waiter->has_said(qr/^failed /) }), '15 log-ins: refused');
	ok(!$waiter->has_said(qr/^(?:failed|held) /), '15 log-ins: which is no reason to give up waiting');
	is($holder->ask('check'), 'check ok', '15 log-ins: nor to lose it');
	may_log_in(1);
	becomes(waits('logins'), 1, '15 log-ins: one waits again');
	gives_back($holder, '15 log-ins', which => "name = 'logins' AND token = $token");
	like($waiter->says(qr/^(?:held|failed)/), qr/^held \d/, '15 log-ins: it waited to the end');
	is($waiter->ask('end', qr/^ended/), 'ended', '15 log-ins: and has it');
	$_->quit for $holder, $waiter;
	$proxy->stop;
	# the first log-in that fails is the program's mistake
	may_log_in(0);
	local $ENV{DLOCK_USER} = 'changing';
	my $wrong = agent();
	my ($time, $told) = $driver =~ /^psycopg/ ? (' connect_timeout=1', qr/^failed unavailable -$/) : ('', qr/^failed misuse (?:28000|4151|3118|HY000)$/);
	like($wrong->ask("lease logins 60 0$time", qr/^(?:failed|held)/), $told, '15 log-ins: the first one is refused');
	$wrong->quit;
	may_log_in(1);
	return;
}

# 16: many leases by one client, on an account of its own, whose connections are counted.
my $of_fleet = q{FROM dlock.locks WHERE name LIKE 'fleet%' AND LIVE};

sub connections
{
	return value($kind eq 'postgres' ? q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'fleet'} : q{SELECT count(*) FROM information_schema.processlist WHERE user = 'fleet'});
}

sub begin_fleet
{
	local $ENV{DLOCK_USER} = 'fleet';
	my $proxy = Proxy->start($port);
	my $agent = agent($proxy->port);
	is($agent->ask('many fleet 30 30 0 events=1'), 'many 30', '16 many: all are held');
	is(value("SELECT count(DISTINCT owner) $of_fleet"), 1, '16 many: by one owner');
	is(value("SELECT count(*) $of_fleet"), 30, '16 many: each by its name');
	# the heartbeat's, and the last acquire's
	ok(Scenarios::Run::until(sub { connections() <= 2 }), '16 many: by one connection, and one for acquires');
	is($agent->ask("many fleet 1 30 0$_"), 'many misuse -', '16 many: a name that the client has already') for '', ' shared=1';
	is(value("SELECT max(version) $of_fleet"), 1, '16 many: of which no server hears');
	value(q{SELECT dlock_force_release('fleet7')});
	my $deadline = value("SELECT max(SECONDS_DEADLINE) $of_fleet");
	return { proxy => $proxy, agent => $agent, deadline => $deadline };
}

sub go_on_fleet
{
	my ($fleet) = @_;
	my $agent = $fleet->{agent};
	like($agent->says(qr/^lost-one /), qr/^lost-one fleet7 $number$/, '16 many: one was evicted, and is told so');
	becomes("SELECT count(*) $of_fleet AND SECONDS_DEADLINE > $fleet->{deadline}", 29, '16 many: the others are renewed');
	is($agent->ask('many-held'), 'many-held 29', '16 many: and held');
	is($agent->ask('many-release fleet3'), 'many-release 1', '16 many: one is released');
	is(value("SELECT count(*) $of_fleet"), 28, '16 many: only that');
	is($agent->ask('many-release fleet7'), 'many-release 0', '16 many: the one that was lost cannot be');
	for my $event (qr/acquired fleet1/, qr/acquired fleet30/, qr/renewed fleet1/, qr/lost fleet7/, qr/released fleet3/)
	{
		like($agent->says(qr/^event $event /), qr/^event $event $number$/, "17 events: $event");
	}
	# the next renewal has no answer
	my $deadline = value("SELECT max(SECONDS_DEADLINE) $of_fleet");
	$fleet->{proxy}->silence;
	becomes("SELECT count(*) $of_fleet AND SECONDS_DEADLINE > $deadline", 28, '16 many: all are renewed by another connection');
	ok(!$agent->has_said(qr/^lost-one /), '16 many: none was lost');
	# of another ttl, that outlasts a restart; the connection kept for acquires is silent, and given
	# up after a third of the timeout
	is($agent->ask('many steadyfleet 3 60 0 connect_timeout=60'), 'many 3', '16 many: some of another ttl');
	return;
}

# "slow": another lease, of that ttl, did not outlast the restart.
sub end_fleet
{
	my ($fleet, $slow) = @_;
	my $agent = $fleet->{agent};
	my $steady = q{FROM dlock.locks WHERE name LIKE 'steadyfleet%' AND LIVE};
	if (!$slow)
	{
		my $deadline = value("SELECT max(SECONDS_DEADLINE) $steady");
		becomes("SELECT count(*) $steady AND SECONDS_DEADLINE > $deadline", 3, '16 many: renewed after the restart');
		ok(!$agent->has_said(qr/^lost-one steady/), '16 many: none of these was lost');
	}
	closes($agent, '16 many', q{(name LIKE 'fleet%' OR name LIKE 'steadyfleet%')});
	ok(Scenarios::Run::until(sub { connections() == 0 }), '16 many: and no connection is left');
	$agent->quit;
	$fleet->{proxy}->stop;
	return;
}

1;
