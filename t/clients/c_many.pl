# The client library for C, on a server of the kind that is the argument: a client with many
# leases, driven by the program's loop and by threads.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use CProgram;
use Test::More;
use Time::HiRes qw(time);

my ($kind) = @ARGV;
my $is_postgres = $kind eq 'postgres';
CProgram::build();
my $engine = CProgram::start_server($kind);

sub value { return $engine->control->value($engine->translate($_[0])) }

sub url { return CProgram::url($engine, @_) }

sub becomes
{
	my ($sql, $wanted, $what) = @_;
	my $is;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	Scenarios::Run::until(sub { ($is = value($sql)) eq $wanted });
	return is($is, $wanted, $what);
}

sub live { return "SELECT count(*) FROM dlock.locks WHERE name LIKE '$_[0]' AND LIVE" }

# A lease is renewed after now.
sub renewed_again
{
	my ($p, $id) = @_;
	$p->say("show $id");
	my ($now) = $p->hear(qr/^$id is /);
	while (my ($when) = $p->hear(qr/^$id renewed /)) { return if $when > $now }
	return;
}

my $connections = $is_postgres ? q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'tester'} :
  q{SELECT count(*) FROM information_schema.processlist WHERE user = 'tester'};

for my $threads (0, 1)
{
	my $with = $threads ? 'threads' : 'a loop';
	my $network = Network->new($engine->{client_port});
	my $p = CProgram->start(DLOCK_URL => url($network->{port}));
	$p->say('client');
	my (undef, $owner) = $p->hear(qr/^client (\S+)$/);
	$p->say('threads') if $threads;

	# many, one connection for all and one for acquires
	$p->say('many a 300 ttl=36');
	$p->hear(qr/^many 300$/);
	is(value(live('a%')), 300, "$with: 300 leases");
	is(value("SELECT count(DISTINCT owner) FROM dlock.locks WHERE owner = '$owner'"), 1, "$with: of one owner");
	is(value($connections), 2, "$with: one connection for all, and one for acquires");
	if ($threads && -d "/proc/$p->{pid}/task")
	{
		my @tasks = glob("/proc/$p->{pid}/task/*");
		cmp_ok(scalar @tasks, '<=', 4, "$with: at most four threads, of ours and the sanitizer's");
	}

	# what a client refuses, before it asks the server
	like($p->ask('new twice client=1 name=a7 ttl=30'), qr/^error misuse - 0 0 0 another lease of this client has "a7"$/, "$with: a name twice");
	like($p->ask('new twice client=1 name=a7 mode=shared ttl=30'), qr/^error misuse .*"a7"/, "$with: shared is no other name");
	like($p->ask('new twice client=1 name=free name=a7 ttl=30'), qr/^error misuse .*"a7"/, "$with: nor in a list");
	like($p->ask('new other client=1 name=free owner=me ttl=30'), qr/^error misuse .*owner/, "$with: another owner");
	is(value(live('free')), 0, "$with: and asks nothing");

	# two waiters have a connection each, and one is cancelled; a shared one and permits
	value(q{SELECT dlock_acquire('busy1', 'admin', 600)});
	value(q{SELECT dlock_acquire('busy2', 'admin', 600)});
	$p->say("new w$_ client=1 name=busy$_ ttl=600 wait=-1", "start w$_") for 1, 2;
	becomes(q{SELECT count(*) FROM dlock.waiters WHERE name LIKE 'busy%'}, 2, "$with: two wait");
	like($p->ask('new w3 client=1 name=busy1 ttl=30'), qr/^error misuse .*"busy1"/, "$with: and have their names");
	$p->say('release w1');
	$p->hear(qr/^w1 released 0 /);
	$p->hear(qr/^w1 done$/);
	becomes(q{SELECT count(*) FROM dlock.waiters WHERE name LIKE 'busy%'}, 1, "$with: one is cancelled");
	value(q{SELECT dlock_release_all('admin')});
	$p->hear(qr/^w2 held /);
	$p->say('free w1', 'new w1 client=1 name=busy1 ttl=600', 'start w1');
	$p->hear(qr/^w1 held /);
	$p->say('new s client=1 name=s mode=shared ttl=600', 'start s', 'new q client=1 name=q mode=permit limit=3 permits=2 ttl=600', 'start q',
		'new k client=1 name=k ttl=600 keep_at_least=300', 'start k', 'new l client=1 name=l1 name=l2 name=l3 ttl=36', 'start l');
	$p->hear(qr/^$_ held /) for 's', 'q', 'k', 'l';
	$p->say(map { "release $_" } 'w1', 'w2', 's', 'q', 'k');
	$p->hear(qr/^$_ released 1 none /) for 'w1', 'w2', 's', 'q', 'k';
	is(value(q{SELECT count(*) FROM dlock.locks WHERE name IN ('busy1', 'busy2', 's', 'q')}), 0, "$with: given back");
	my $left = value(q{SELECT remaining FROM dlock.locks WHERE name = 'k'});
	cmp_ok($left, '<=', 300, "$with: one is left for a time");
	cmp_ok($left, '>', 100, "$with: and not given back");
	is(value(q{SELECT count(*) FROM dlock.locks WHERE name = 'k' AND leaving}), 1, "$with: but with effect at that time")
	  if $engine->kind eq 'postgres' || ($ENV{STORE} // '') eq 'log';
	like($p->ask('new k2 client=1 name=k ttl=30'), qr/^error busy .*"k"/, "$with: and is not taken by re-entry meanwhile");
	$p->say("free $_", "new $_ client=1 name=$_ ttl=600", "start $_") for 's';
	$p->hear(qr/^s held /);

	# one is ended by an operator, and one of a list: these are lost, and no other
	my $polls = sub { $p->say('polls'); return ($p->hear(qr/^polls (\d+)$/))[1] };
	my $before = $polls->();
	value(q{SELECT dlock_force_release('a150')});
	value(q{SELECT dlock_force_release('l2')});
	$p->hear(qr/^a150 lost lost - 0 0 0 .*ended by an operator/);
	$p->hear(qr/^l lost lost - /);
	$p->hear(qr/^a1 renewed /);
	$p->hear(qr/^a300 renewed /);
	$p->say('many-held a');
	$p->hear(qr/^many-held 299$/);
	pass("$with: the others are renewed");
	cmp_ok($polls->() - $before, '<', 1000, "$with: nobody who waits for leases that are kept is woken all the time");
	$p->say('release l', 'release a150');
	$p->hear(qr/^l released 0 /);
	$p->hear(qr/^a150 released 0 /);
	becomes(live('l%'), 0, "$with: what is left of a list is given back");

	# a connection that is cut, and one that is silent
	$network->order('cut');
	renewed_again($p, 'a2');
	$network->order('swallow');
	$p->hear(qr/^client trouble unavailable - 0 0 1 the server has not answered in time/);
	$network->order('cut');
	renewed_again($p, 'a3');
	$p->say('many-held a');
	$p->hear(qr/^many-held 299$/);
	pass("$with: a silent connection loses none");

	# all at the end
	$p->say('end-client');
	$p->hear(qr/^closed$/);
	is(value(live('%')), 1, "$with: all are released at the end, but for the one that is left");
	like($p->ask('new z client=1 name=z ttl=30'), qr/^error misuse .*closed/, "$with: no acquire after the end");
	becomes($connections, 0, "$with: no connection after the end");
	is($p->end, 0, "$with: the program leaks nothing");
	$network->stop;
	value(q{SELECT dlock_force_release('k')});
}

# ---------------------------------------------------------------------
# The network is gone: all are lost before the next can have them; and a lease that was freed
# without a release.

my $network = Network->new($engine->{client_port});
my $p = CProgram->start(DLOCK_URL => url($network->{port}));
my $q = CProgram->start(DLOCK_URL => url());
$p->say('client', 'many b 20 ttl=9', 'new f client=1 name=f ttl=600', 'start f');
$p->hear(qr/^many 20$/);
$p->hear(qr/^f held /);
$p->say('free f');
like($p->ask('new f client=1 name=f ttl=600'), qr/^error busy .*"f"/, 'a name that was not released is not taken once more');
$network->order('swallow');
$q->say('new next name=b9 ttl=600 wait=-1', 'start next');
my ($lost_us) = $p->hear(qr/^b9 lost lost - 0 0 0 .*could not be renewed in time/);
my ($held_us) = $q->hear(qr/^next held /);
$p->say('show b9');
my (undef, $lost_at) = $p->hear(qr/^b9 is lost held 0 .* lost_at (\d+) /);
cmp_ok($lost_at, '<', $held_us, 'lost by the network: from a time before somebody else has it');
$p->say('many-held b');
$p->hear(qr/^many-held 0$/);
$q->say('release next');
$q->hear(qr/^next released 1 /);
is($q->end, 0, 'the next program leaks nothing');
is($p->end, 0, 'the program leaks nothing');

# the connection for acquires has rested, and is silent by now
$network->order('pass');
$p = CProgram->start(DLOCK_URL => url($network->{port}));
$p->say('client', 'many e 2 ttl=600');
$p->hear(qr/^many 2$/);
my $since = time;
Scenarios::Run::until(sub { time > $since + 1.1 });
$network->order('swallow');
$p->say('new e3 client=1 name=e3 ttl=600 wait=-1 connect_timeout=30', 'start e3', 'show e3');
$p->hear(qr/^e3 is waiting /);
$network->order('pass');
ok(defined $p->hear(qr/^e3 held /), 'a connection that was kept for the next acquire, and is silent, is replaced');

# the server refuses to renew, for reasons that other servers may not have
if ($is_postgres)
{
	my $logins = q{SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'};
	$p->say('many g 100 ttl=36');
	$p->hear(qr/^many 100$/);
	value(q{ALTER FUNCTION dlock_renew_many(text[], text, dlock_duration, bigint[]) RENAME TO renew_many});
	value(q{CREATE SEQUENCE refused});
	value(q{CREATE FUNCTION dlock_renew_many(text[], text, dlock_duration, bigint[]) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN PERFORM nextval('refused'); RAISE 'not here' USING ERRCODE = 'read_only_sql_transaction'; END $$});
	my $before = value($logins);
	becomes(q{SELECT last_value >= 60 FROM refused}, 't', 'a server that renews none');
	my ($after, $calls) = (value($logins), value('SELECT last_value FROM refused'));
	value(q{DROP FUNCTION dlock_renew_many(text[], text, dlock_duration, bigint[])});
	value(q{ALTER FUNCTION renew_many(text[], text, dlock_duration, bigint[]) RENAME TO dlock_renew_many});
	cmp_ok($after - $before, '<', $calls * 3 / 4, 'has a log-in for each lease alone, and none for calls that are made in halves');
	$p->hear(qr/^g$_ renewed /) for 1, 100;
	$p->say('many-held g');
	$p->hear(qr/^many-held 100$/);
}
$p->say('end-client');
$p->hear(qr/^closed$/);
is($p->end, 0, 'the program leaks nothing');

# a client is closed while a thread waits for a lease
$p = CProgram->start(DLOCK_URL => url());
value(q{SELECT dlock_acquire('closing', 'admin', 600)});
$p->say('client', 'threads', 'new closing client=1 name=closing ttl=60 wait=-1', 'acquire closing');
becomes(q{SELECT count(*) FROM dlock.waiters WHERE name = 'closing'}, 1, 'a thread waits for a lease');
$p->say('end-client');
$p->hear(qr/^closed$/);
ok(defined $p->hear(qr/^closing acquired 0 misuse$/), 'its wait ends when the client is closed');
$p->say('free closing');
becomes(q{SELECT count(*) FROM dlock.waiters WHERE name = 'closing'}, 0, 'and nobody waits any more');
value(q{SELECT dlock_release('closing', 'admin')});
is($p->end, 0, 'the program leaks nothing');

# a program that was stopped
$p = CProgram->start(DLOCK_URL => url());
$p->say('client', 'threads', 'many c 3 ttl=1.5');
$p->hear(qr/^many 3$/);
kill 'STOP', $p->{pid};
becomes(live('c%'), 0, 'a program is stopped until its leases have ended');
value(q{SELECT dlock_acquire('c2', 'admin', 600)});
$p->say('many-held c');
kill 'CONT', $p->{pid};
my (undef, $held) = $p->hear(qr/^many-held (\d)$/);
is($held, 0, 'it goes on, and knows');
$p->hear(qr/^c$_ lost lost /) for 1 .. 3;
$p->say('end-client');
$p->hear(qr/^closed$/);
is(value(live('c2')), 1, 'and takes nothing from the next holder');
is($p->end, 0, 'the program leaks nothing');

# the server is restarted, and the leases go on
$p = CProgram->start(DLOCK_URL => url());
$p->say('client', 'threads', 'many d 50 ttl=60');
$p->hear(qr/^many 50$/);
my $before = join ' ', map { value("SELECT $_(token) FROM dlock.locks WHERE name LIKE 'd%'") } qw(count max min);
$engine->end_control;
if ($is_postgres) { $engine->{node}->restart }
else { $engine->halt; $engine->boot }
$p->hear(qr/^d$_ renewed /) for 1, 50;
is(join(' ', map { value("SELECT $_(token) FROM dlock.locks WHERE name LIKE 'd%'") } qw(count max min)), $before, 'after a restart they are held by the same tokens');
$p->say('many-end d');
$p->hear(qr/^many-end 50$/);
becomes(live('d%'), 0, 'and given back');
is($p->end, 0, 'the program leaks nothing');

$engine->end_control;
$engine->stop;
done_testing();
