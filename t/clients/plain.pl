# The clients on a PostgreSQL with plain/dlock.sql and without the library, where what takes or
# extends a lease is a procedure; and the way up to the extension and down again, while they
# work.  With each client and driver that is there.
#
# once: on PostgreSQL

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use Agent;
use BuiltOnce;
use Cases;
use CProgram;
use Plain;
use Poll;
use Test::More;
use Time::HiRes qw(time);

my $dir = tempdir(CLEANUP => 1);
my $patience = 180;
# as it comes, a server does not see that a client is gone while it works for it
my $node = Plain::start('clients', "listen_addresses = '127.0.0.1'\nmax_connections = 100\nclient_connection_check_interval = 0");
my $port = $node->port;
@ENV{qw(DLOCK_SERVER DLOCK_HOST DLOCK_PORT DLOCK_USER DLOCK_DATABASE)} = ('postgres', '127.0.0.1', $port, 'app', 'plain');
$ENV{NODE_PATH} = $ENV{DLOCK_NODE_MODULES} // '';

sub value { return $node->safe_psql('plain', $_[0]) }

sub becomes
{
	my ($sql, $wanted, $what) = @_;
	my $is;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	Poll::until($patience, sub { ($is = value($sql)) eq $wanted });
	return is($is, $wanted, $what);
}

sub live { return "SELECT count(*) FROM dlock.locks WHERE name = '$_[0]' AND expires_at > clock_timestamp()" }

sub evict { return value(join ';', map { "SELECT dlock_force_release('$_')" } @_) }

# There is no line to be seen in: a waiter is a session that has asked, has nothing, and will
# ask again.
my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'app' AND query LIKE '%CALL%dlock_acquire%'
	AND pid NOT IN (SELECT pid FROM dlock.locks WHERE pid IS NOT NULL)};

# The waiter asks again and again, by calls that end, at times that lie further and further
# apart.
sub asks_again
{
	my $started = $waiting =~ s/count\(\*\)/extract(epoch FROM max(query_start))/r;
	my @at;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(Poll::until($patience, sub {
		my $at = value($started);
		push @at, $at if $at ne '' && (!@at || $at > $at[-1]);
		return @at == 7;
	}), 'it asks again and again');
	my $least = 0;
	$least += 0.01 * 1.5**$_ for 0 .. $#at - 1;
	cmp_ok($at[-1] - $at[0], '>=', $least, 'and not too often');
	return;
}

sub holds
{
	my ($agent, $lease, $what) = @_;
	my $said = $agent->ask("lease $lease", qr/^(?:held|failed) /);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($said, qr/^held \d/, $what);
	return $said =~ /^held ([\d,]+)/ ? $1 : 0;
}

sub is_busy
{
	my ($agent, $lease, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($agent->ask("lease $lease", qr/^(?:held|failed) /), 'failed busy -', $what);
}

# An agent leaves its block.  A client tries to give back for 5 s; on a machine that stands still
# that long, all is done once more: held, and left.  If somebody waits for it, it is of this token,
# and that one is to have it.
sub leaves
{
	my ($agent, $lease, $what, $token) = @_;
	my @names = split /,/, $lease =~ s/ .*//r;
	my $keeps = $lease =~ /keep_at_least/;
	my $left = $keeps ? 'leaving AND expires_at > clock_timestamp() + $$300s$$' : defined $token ? "token = $token" : 'true';
	my $list = join ', ', map { "'$_'" } @names;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $try (1 .. 20)
	{
		my $began = time;
		my $said = $agent->ask('end', qr/^ended/);
		my $count = value("SELECT count(*) FROM dlock.locks WHERE name IN ($list) AND $left");
		my $is_done = $said eq 'ended' && $count == ($keeps ? @names : 0);
		return ok($is_done, $what) || diag("$said, $count") if $is_done || time - $began < 5 || $try == 20;
		evict(@names);
		return if defined $token;
		holds($agent, $lease, "$what: once more");
	}
	return;
}

# A lease with a short time to live, which the agent may lose by itself on a machine that stands
# still.  The check answers whether what was to be shown is so.
sub short
{
	my ($agent, $name, $what, $check) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $try (1 .. 20)
	{
		my $token = holds($agent, "$name 4 0", "$what: held");
		my $first = value("SELECT extract(epoch FROM expires_at) FROM dlock.locks WHERE name = '$name'") || 0;
		my $is_so = 0;
		Poll::until($patience, sub { ($is_so = $check->($token, $first)) || $agent->has_said(qr/^lost /) });
		return ok(1, $what) if $is_so;
		$agent->says(qr/^lost /);
		$agent->ask('end', qr/^ended/);
	}
	return ok(0, $what);
}

sub cases
{
	my (@command) = @_;
	my ($one, $two, $three) = map { Agent->start(@command, $port) } 1 .. 3;

	short($one, 'long', 'it is renewed, and held beyond its time to live', sub {
		my ($token, $first) = @_;
		return value("SELECT count(*) FROM dlock.locks WHERE name = 'long' AND token = $token
			AND expires_at > clock_timestamp() AND extract(epoch FROM clock_timestamp()) > $first");
	});
	is($one->ask('check'), 'check ok', 'it knows that it is held');
	leaves($one, 'long 4 0', 'and is given back');

	my $first = holds($one, 'busy 600 0', 'held');
	is_busy($two, 'busy 60 0', 'a second is refused');
	is_busy($two, 'busy 60 0.1', 'after a short wait, too');
	$two->tell('lease busy 600 -1');
	becomes($waiting, 1, 'a second waits');
	asks_again();
	leaves($one, 'busy 600 0', 'the first gives it back', $first);
	my ($next) = $two->says(qr/^(?:held|failed) /) =~ /^held (\d+)/;
	cmp_ok($next // 0, '>', $first, 'the second has it, by a larger token');
	leaves($two, 'busy 600 0', 'and gives it back');
	holds($one, 'busy 600 0', 'held');
	$two->tell('lease busy 600 -1');
	becomes($waiting, 1, 'one waits');
	$two->tell('cancel');
	is($two->says(qr/^(?:held|failed) /), 'failed canceled -', 'and is cancelled');
	becomes($waiting, 0, 'which leaves no wait on the server');
	leaves($one, 'busy 600 0', 'given back');
	is(value(live('busy')), 0, 'and nobody has it');

	like(holds($one, 'a,b,c 600 0 list=1', 'several names'), qr/^\d+,\d+,\d+$/, 'each with its token');
	is_busy($two, 'c,d 60 0 list=1', 'one of them is not free');
	is(value(live('d')), 0, 'then none is taken');
	is($one->ask('guard'), 'guard ok', 'several are guarded');
	leaves($one, 'a,b,c 600 0 list=1', 'all are given back');

	holds($_, 'readers 600 0 shared=1', 'shared') for $one, $two;
	is(value(live('readers')), 2, 'by two');
	is_busy($three, 'readers 60 0', 'not free for one alone');
	$_->ask('end', qr/^ended/) for $one, $two;
	evict('readers');

	holds($_, 'seats 600 0 permits=2', 'a permit') for $one, $two;
	is_busy($three, 'seats 60 0 permits=2', 'there are two');
	is($two->ask('guard'), 'guard ok', 'a permit is guarded');
	$_->ask('end', qr/^ended/) for $one, $two;
	evict('seats');

	for my $lease ('kept 600 0 keep_at_least=600', 'kept1,kept2 600 0 list=1 keep_at_least=600')
	{
		holds($one, $lease, "keep_at_least: $lease");
		leaves($one, $lease, 'given back with effect later');
		is_busy($two, $lease =~ s/ keep.*//r, 'nobody has it before');
		evict(split /,/, $lease =~ s/ .*//r);
	}

	holds($one, 'guarded 600 0', 'held');
	is($one->ask('guard'), 'guard ok', 'guarded in a transaction');
	evict('guarded');
	like($one->ask('guard'), qr/^guard lost (?:55L01|-)$/, 'after an eviction, the guard says that it is lost');
	like($one->ask('end', qr/^ended/), qr/^ended lost /, 'as does the end of the block');

	holds($two, 'evicted 4 0', 'held');
	evict('evicted');
	like($two->says(qr/^lost /), qr/^lost /, 'an eviction is told');
	like($two->ask('check'), qr/^check lost /, 'and known');
	like($two->ask('end', qr/^ended/), qr/^ended lost /, 'the block does not end well');

	my $name = q{it's"a\\b'%s$1?#--`é€x};
	my $bytes = unpack('H*', $name);
	my $is_it = "SELECT count(*) FROM dlock.locks WHERE name = convert_from(decode('$bytes', 'hex'), 'UTF8')";
	my ($odd) = do { local $ENV{DLOCK_ODD} = 1; Agent->start(@command, $port) };
	for my $by ([ $one, $odd ], [ $odd, $two ])
	{
		my ($holder, $other) = @$by;
		for my $option ('', ' list=1', ' permits=1', " owner=$name")
		{
			holds($holder, "$name 600 0$option", "an odd name$option");
			is(value($is_it), 1, 'is that name');
			is_busy($other, "$name 60 0" . ($option =~ /permits/ ? ' permits=1' : ''), 'and nobody else has it');
			is($holder->ask('guard'), 'guard ok', 'it is guarded');
			$holder->ask('end', qr/^ended/);
			value("SELECT dlock_force_release(name) FROM dlock.locks WHERE name = convert_from(decode('$bytes', 'hex'), 'UTF8')");
		}
	}
	short($odd, 'odd', 'odd answers are read', sub {
		my (undef, $first) = @_;
		return value("SELECT count(*) FROM dlock.locks WHERE name = 'odd' AND extract(epoch FROM expires_at) > $first");
	});
	$odd->ask('end', qr/^ended/);
	evict('odd');
	$_->quit for $one, $two, $three, $odd;
	return;
}

# The client for C has a program of its own; what a call does to a lease is in c.pl.
sub cases_of_c
{
	my ($p) = @_;
	$p->say('new long name=long ttl=4 wait=0', 'start long');
	my (undef, $token) = $p->hear(qr/^long held (\d+)$/);
	my $first = value(q{SELECT extract(epoch FROM expires_at) FROM dlock.locks WHERE name = 'long'}) || 0;
	my $beyond = "SELECT count(*) FROM dlock.locks WHERE name = 'long' AND token = $token AND extract(epoch FROM clock_timestamp()) > $first AND expires_at > clock_timestamp()";
	ok(Poll::until($patience, sub { value($beyond) }), 'it is renewed, and held beyond its time to live');
	$p->hear(qr/^long renewed/);
	$p->gives_back('long');

	$p->say('new busy name=busy ttl=600 wait=0', 'start busy');
	$p->next_is('busy', qr/^held \d+$/);
	$p->say('new refused name=busy ttl=60 wait=0', 'start refused', 'new next name=busy ttl=600 wait=-1', 'start next');
	$p->next_is('refused', qr/^refused busy /);
	becomes($waiting, 1, 'one waits');
	asks_again();
	$p->say('new gone name=busy ttl=600 wait=-1', 'start gone');
	becomes($waiting, 2, 'two wait');
	$p->say('release gone');
	$p->hear(qr/^gone done/);
	becomes($waiting, 1, 'one is cancelled, which leaves no wait on the server');
	$p->gives_back('busy');
	$p->next_is('next', qr/^held \d+$/);
	$p->gives_back('next');

	$p->say('new all name=a name=b name=c ttl=600', 'start all');
	$p->next_is('all', qr/^held \d+ \d+ \d+$/);
	is(value(q{SELECT count(*) FROM dlock.locks WHERE name IN ('a', 'b', 'c')}), 3, 'several names');
	$p->gives_back('all');

	$p->say("new $_ name=readers mode=shared ttl=600 wait=0", "start $_") for 'r1', 'r2';
	$p->next_is($_, qr/^held /) for 'r1', 'r2';
	$p->say("new $_ name=seats mode=permit limit=2 ttl=600 wait=0", "start $_") for 'p1', 'p2';
	$p->next_is($_, qr/^held /) for 'p1', 'p2';
	$p->say('new p3 name=seats mode=permit limit=2 ttl=600 wait=0', 'start p3');
	$p->next_is('p3', qr/^refused busy /);
	$p->say("release $_") for 'r1', 'r2', 'p1', 'p2';
	$p->hear(qr/^$_ done/) for 'r1', 'r2', 'p1', 'p2';
	evict('readers', 'seats');

	for my $names ('kept', 'kept1,kept2')
	{
		my @names = split /,/, $names;
		my $list = join ', ', map { "'$_'" } @names;
		my $kept;
		for my $try (1 .. 20)
		{
			my $id = "keep$names[0]$try";
			$p->say("new $id ttl=600 wait=0 keep_at_least=600" . join('', map { " name=$_" } @names), "start $id");
			$p->next_is($id, qr/^held /);
			my $began = time;
			$p->say("release $id");
			$p->hear(qr/^$id done/);
			$kept = value("SELECT count(*) FROM dlock.locks WHERE name IN ($list) AND leaving");
			evict(@names);
			last if $kept == @names || time - $began < 5 / 3;
		}
		is($kept, @names, "keep_at_least: $names");
	}

	like($p->ask("connect postgresql://app\@127.0.0.1:$port/plain"), qr/^url/, 'a session');
	my ($guarded) = $p->ask('call dlock_acquire t:g t:me d:600') =~ /^(\d+)$/;
	for my $good (1, 0)
	{
		$p->ask('query BEGIN');
		my $said = $p->ask("call dlock_guard t:g t:me i:$guarded");
		if ($good) { is($said, 'NULL', 'a guard') }
		else { like($said, qr/^error lost 55L01 /, 'a guard that comes too late') }
		$p->ask('query COMMIT');
		evict('g');
	}
	is($p->ask('call dlock_renew t:g t:me d:60'), 'NULL', 'a call has the answer that a function has');

	my $name = q{it's"a\\b'$1?#--`é€x};
	my $word = join '', map { sprintf '%%%02x', ord } split //, $name;
	$p->say("new odd name=$word ttl=600 wait=0", 'start odd');
	$p->next_is('odd', qr/^held \d+$/);
	is(value(sprintf q{SELECT count(*) FROM dlock.locks WHERE name = convert_from(decode('%s', 'hex'), 'UTF8')}, unpack('H*', $name)), 1, 'an odd name');
	$p->say('release odd');
	$p->hear(qr/^odd done/);

	$p->say('new evicted name=evicted ttl=4 wait=0', 'start evicted');
	$p->next_is('evicted', qr/^held /);
	evict('evicted');
	my (undef, $lost) = $p->hear(qr/^evicted lost (\w+)/);
	is($lost, 'lost', 'an eviction is told');
	$p->say('release evicted');
	$p->hear(qr/^evicted done/);
	return;
}

# ---------------------------------------------------------------------

my $clients = "$FindBin::RealBin/../../clients";
my @go = qw(golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev golang-github-go-sql-driver-mysql-dev);
my $jars = join ':', map { "/usr/share/java/$_.jar" } qw(postgresql mariadb-java-client slf4j-api slf4j-nop HikariCP metrics-core);
my @clients = (
	map({
		my $driver = $_;
		[ "Python, $driver", [ $driver eq 'psycopg2' ? 'python3-psycopg2' : 'python3-psycopg' ],
			sub { ('/usr/bin/python3', "$FindBin::RealBin/python/agent.py", $driver) } ]
	} qw(psycopg psycopg2 psycopg_async)),
	[ 'Node.js, pg', ['npm:pg'], sub { ('node', "$FindBin::RealBin/node/agent.js", 'pg') } ],
	map({
		my $driver = $_;
		[ "Go, $driver", \@go, sub {
			(BuiltOnce::folder($dir, 'go_agent', sub { system("$FindBin::RealBin/go/build", $_[0]) == 0 or die "could not build the agent\n" }) . '/agent', $driver) } ]
	} qw(pq pgx)),
	[ 'Java', [qw(default-jdk-headless libhikaricp-java libdropwizard-metrics-java libpostgresql-jdbc-java)], sub {
		('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-cp', BuiltOnce::folder($dir, 'java_agent', sub {
			system('javac', '-Xlint:all', '--release', '11', '-cp', $jars, '-d', $_[0], glob("$clients/java/*.java"), glob("$FindBin::RealBin/java/*.java")) == 0
			  or die "could not compile the agent\n" }) . ":$jars", 'Agent', 'postgresql') } ]);

# those that are to see the way up; ten acquires at a time learn how to call
my @movers;
for my $client (@clients)
{
	my ($name, $needed, $command) = @$client;
	my $reason = Cases::reason_not(@$needed);
	SKIP:
	{
		skip("$name $reason", 1) if defined $reason;
		my @command = $command->();
		subtest($name, sub { cases(@command) });
		my $mover = Agent->start(@command, $port);
		is($mover->ask('many m' . @movers . '- 10 600 0'), 'many 10', "$name: ten acquires at a time by one client");
		push @movers, [ $name, $mover, 'm' . @movers . '-', @command ];
	}
}
CProgram::build();
my $p = CProgram->start(DLOCK_URL => "postgresql://app\@127.0.0.1:$port/plain");
subtest('C', sub { cases_of_c($p) });

# The way up.  Of ten leases each, one is given back; the rest is to end soon.
is($_->[1]->ask("many-release $_->[2]3"), 'many-release 1', "$_->[0]: one is released") for @movers;
is(value(q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'm%-%'}), 9 * @movers, 'the others are held');
value(q{SELECT dlock_force_release(name) FROM dlock.locks WHERE name LIKE 'm%-%'});

sub goes_on
{
	my ($phase) = @_;
	for my $mover (@movers)
	{
		my ($name, $agent, $prefix) = @$mover;
		is($agent->ask("many $phase$prefix 3 6 0"), 'many 3', "$name: $phase, the same client acquires");
	}
	$p->say("new $phase name=$phase.c ttl=6 wait=0", "start $phase");
	$p->next_is($phase, qr/^held \d+$/);
	my $expect = value("SELECT max(expires_at) FROM dlock.locks WHERE name LIKE '$phase%'");
	# all that were not lost, on a machine that stands still
	for my $mover (@movers)
	{
		my ($name, $agent, $prefix) = @$mover;
		ok(Poll::until($patience, sub {
			value("SELECT count(*) FROM dlock.locks WHERE name LIKE '$phase$prefix%' AND expires_at > '$expect'") == 3 || $agent->has_said(qr/^lost-one $phase/)
		}), "$name: $phase, and renews");
	}
	return;
}

goes_on('before');
my $largest = value('SELECT max(token) FROM dlock.locks');
# one in C waits, and will until the extension is there
$p->say('new gap name=before.c ttl=6 wait=600', 'start gap');
Plain::run($node, 'dbo', 'plain/uninstall.sql');
# nobody could renew
for my $mover (@movers)
{
	like($mover->[1]->says(qr/^lost-one before/), qr/^lost-one /, "$mover->[0]: what could not be renewed is told");
}
$p->hear(qr/^before lost /);
# and those that begin now, since their clients have seen dlock
my $offset = -s $node->logfile;
$_->[1]->tell("many gap$_->[2] 1 600 600") for @movers;
ok(Poll::until($patience, sub { @movers <= (() = PostgreSQL::Test::Utils::slurp_file($node->logfile, $offset) =~ /(?:function|procedure) dlock_acquire.* does not exist/g) }),
	'they find nothing');
$node->safe_psql('plain', 'CREATE EXTENSION dlock');
for my $mover (@movers)
{
	is($mover->[1]->says(qr/^many /), 'many 1', "$mover->[0]: and acquire when it is there");
}
$p->hear(qr/^gap held \d+$/);
goes_on('above');
cmp_ok(value(q{SELECT min(token) FROM dlock.locks WHERE name LIKE 'above%'}), '>', $largest, 'tokens are above the old ones');
$node->safe_psql('plain', 'DROP EXTENSION dlock CASCADE');
Plain::run($node, 'dbo', 'plain/dlock.sql');
for my $mover (@movers)
{
	like($mover->[1]->says(qr/^lost-one above/), qr/^lost-one /, "$mover->[0]: what is no more is told");
}
$p->hear(qr/^above lost /);
goes_on('below');
for my $mover (@movers)
{
	$mover->[1]->ask('many-close', qr/^many-close/);
	$mover->[1]->quit;
}
$p->say("release $_") for qw(before gap above below);
is($p->end, 0, 'the program in C leaks nothing');
$node->stop;
done_testing();
