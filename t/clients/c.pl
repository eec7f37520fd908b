# The client library for C, on a server of the kind that is the argument: the cases of
# clients/CONTRACT.md that concern a library, calls on a session, and URLs.
#
# t/clients/c/client.c is the program; it is built with sanitizers that find mistakes
# and leaks.  Leases go on side by side, so most waits cost no extra time.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use CProgram;
use FreePorts;
use Test::More;
use Time::HiRes qw(time usleep);

# for one kind only
BEGIN { require Pooler if $ARGV[0] eq 'postgres' }

my $patience = $CProgram::patience;
my ($kind) = @ARGV;

my $dir = CProgram::build();

# ---------------------------------------------------------------------
# The server.

my $is_postgres = $kind eq 'postgres';
# the server has dlock_release_after()
my $leaves = $is_postgres || ($ENV{STORE} // '') eq 'log';
my $engine = CProgram::start_server($kind);
my $port = $engine->{client_port};
if ($is_postgres)
{
	my $node = $engine->{node};
	$engine->control->value("CREATE DATABASE $_ TEMPLATE template0") for 'empty', 'elsewhere';
	$node->safe_psql('elsewhere', 'CREATE SCHEMA "Of its own"; CREATE EXTENSION dlock SCHEMA "Of its own"; GRANT USAGE ON SCHEMA "Of its own" TO PUBLIC');
}

sub url { return CProgram::url($engine, @_) }
# as a word of the program's
sub word { return $_[0] =~ s/%/%25/gr }

sub value { return $engine->control->value(@_) }

sub is_free { return value(qq{SELECT dlock_is_free('$_[0]')}) =~ /^[t1]$/ }

sub is_waiting { return value(qq{SELECT count(*) FROM dlock.waiters WHERE name = '$_[0]'}) }

sub holds
{
	my ($name) = @_;
	return value("SELECT version FROM dlock.locks WHERE name = '$name' AND " . $engine->translate('LIVE'));
}

# Poll.
sub until_true
{
	my ($is_so, $what) = @_;
	my $end = time + $patience;
	while (time < $end)
	{
		return ok(1, $what) if $is_so->();
		usleep(50_000);
	}
	return ok(0, $what);
}

my $url = url($port);
my $p = CProgram->start(DLOCK_URL => $url);

# What takes its time begins here, and its end is looked at below: these leases last so long
# that they are renewed although the machine may stand still for a while.
$p->say(map { ("new $_", 'start ' . (split)[0]) } 'one name=one ttl=36', 'all name=a1 name=a2 name=a3 ttl=36',
	'forced name=forced ttl=36', 'thread name=thread ttl=36');
my (undef, $token) = $p->hear(qr/^one held (\d+)$/);
is(value(q{SELECT token FROM dlock.locks WHERE name = 'one'}), $token, 'a lease is held with its token');
my $one_token = $token;
$p->say('show one');
my (undef, $owner, $lost_at, $deadline) = $p->hear(qr/^one is held held 1 owner (\S+) request [0-9a-f]{32} lost_at (\d+) deadline (\d+)$/);
is(value(q{SELECT owner FROM dlock.locks WHERE name = 'one'}), $owner, 'by its owner');
is($deadline - $lost_at, 1_000_000, 'the margin, at most a second');
$p->next_is('all', qr/^held \d+ \d+ \d+$/);
$p->next_is($_, qr/^held /) for 'forced', 'thread';
$p->say('beat thread');
$p->hear(qr/^thread beat 1$/);

# through a pool that gives each statement any of its connections
my ($pooler, $pool);
if ($is_postgres)
{
	$pooler = Pooler->start($engine->{node}, user => 'tester',
		databases => { pool => 'pool_mode=transaction pool_size=3' });
	$pool = $pooler->connstr('pool') =~ s/([ %])/sprintf '%%%02x', ord $1/ger;
	$p->say("new pool1 url=$pool name=pool1 ttl=36", "new pool2 url=$pool name=pool2 name=pool3 ttl=36",
		"start pool1", "start pool2");
	$p->next_is('pool1', qr/^held /);
	$p->next_is('pool2', qr/^held \d+ \d+$/);
}

# by a network that is gone soon
my $environed;
my $far = Network->new($port);
my $other = CProgram->start(DLOCK_URL => $url);
$p->say('new gone url=' . word(url($far->{port})) . ' name=gone ttl=36', 'start gone');
$p->next_is('gone', qr/^held /);
$other->say('new next name=gone ttl=30 wait=600', 'start next');
until_true(sub { is_waiting('gone') == 1 }, 'somebody waits for a lease');
$far->order('swallow');
if ($is_postgres)
{
	my $hosts = word("postgresql://tester\@127.0.0.1:$far->{port},127.0.0.1:$port/postgres");
	$p->say("new hosts url=$hosts name=hosts ttl=600 connect_timeout=60", 'start hosts');
	$environed = CProgram->start(PGHOST => '127.0.0.1,127.0.0.1', PGPORT => "$far->{port},$port");
	$environed->say('new hosts url=' . word('postgresql://tester@/postgres') . ' name=environed ttl=600 connect_timeout=60', 'start hosts');
}
my ($nobody) = FreePorts::reserve(1);
$p->say('new nobody url=' . word(url($nobody)) . ' name=x ttl=30 wait=-1 connect_timeout=6', 'start nobody');

# ---------------------------------------------------------------------
# Calls.

is($p->ask('connect'), 'url ' . ($is_postgres ? 'postgresql' : 'mysql'), 'the environment names the server');
like($p->ask('call dlock_acquire t:n t:me d:60'), qr/^\d+$/, 'a token');
is($p->ask('call dlock_acquire t:n t:you d:60 d:0 t:id'), 'NULL', 'NULL');
is($p->ask('call dlock_is_free t:n'), '0', 'a boolean');
is($p->ask('call dlock_release t:n t:me n'), '1', 'an argument that is NULL');
is($p->ask('call dlock_renew t:n t:me d:60'), 'NULL', 'a boolean that is NULL');
like($p->ask('call dlock_acquire_all T:a,b,c t:me d:60'), qr/^\d+\|\d+\|\d+$/, 'tokens');
is($p->ask('call dlock_acquire_all T:c,d t:you d:60'), 'NULL', 'no tokens');
is(join('|', sort split /\|/, $p->ask('call dlock_renew_many T:a,b,x t:me d:60')), 'a|b', 'names');
is($p->ask('call dlock_release_many T:x,y t:me'), '', 'no names');
like($p->ask('call dlock_acquire_any T:a,d,e t:you d:60 i:1'), qr/^d \d+$/, 'rows of names and tokens');
is($p->ask('call dlock_acquire_any T:a,b t:you d:60 i:1'), '', 'no such rows');
like($p->ask('call dlock_holders t:a'), qr/^a me exclusive 1 \d+ /, 'rows of holders');
is($p->ask('call dlock_holders t:nobody'), '', 'no holders');
is($p->ask('call dlock_release_all t:me'), '3', 'a count');
is($p->ask('call dlock_release_all t:you'), '1', 'one more');
is($p->ask("query SELECT 1, 'x', NULL"), '1 x NULL', 'a statement');
is($p->ask(q{call dlock_wait t:n d:0}), '1', 'a function that waits');
is($p->ask('call dlock_stats_reset') =~ /^error misuse \S+ (\d+) 1 0 permission denied/ ? $is_postgres ? $1 == 0 : $1 == 1227 : 0, 1, 'a privilege is missing');

# names with everything in them, as themselves and in lists; %XX is a byte
for my $name (q{%27a%22b%5c%5cc%27}, '%c3%a9%e2%82%ac', '%5c', '%24%31%3f', 'tab%09%0anewline', '%7b%7d%5b%5d%2c', 'NULL')
{
	my $in_list = "T:$name,other";
	like($p->ask("call dlock_acquire_all $in_list t:$name d:60"), qr/^\d+\|\d+$/, "$name is taken");
	is($p->ask("call dlock_is_free t:$name"), '0', "$name is taken by its name");
	is($p->ask("call dlock_release t:$name t:$name"), '1', "$name is given back");
	is($p->ask("call dlock_release_all t:$name"), '1', "$name, an owner, is the same");
}
if ($is_postgres)
{
	like($p->ask('call dlock_acquire t:%e9 t:me d:60'), qr/^error misuse 22021 /, 'bytes that are no text');
	my $nowhere = word("$url?options=-csearch_path%3Dnowhere");
	is($p->ask("connect $nowhere"), 'url postgresql', 'another search path');
	is($p->ask('call dlock_is_free t:n'), '1', 'the functions are found all the same');
	like($p->ask('query SELECT dlock_version()'), qr/^error misuse 42883 /, 'and by it they are not');
	is($p->ask('connect ' . word($url =~ s/postgres$/elsewhere/r)), 'url postgresql', 'dlock in another schema');
	like($p->ask('call dlock_acquire t:n t:me d:60'), qr/^\d+$/, 'the functions are found there');
	is($p->ask('connect ' . word($url =~ s/postgres$/empty/r)), 'url postgresql', 'a database without dlock');
	like($p->ask('call dlock_is_free t:n'), qr/^error misuse 42883 0 0 1 the extension dlock is not in this database/, 'says so');
	is($p->ask('connect ' . word($url =~ s/postgres$/nowhere/r)), 'url postgresql', 'a database that is not there');
	like($p->ask('call dlock_is_free t:n'), qr/^error misuse 3D000 0 0 1 /, 'is misuse');
	is($p->ask("connect host%3D127.0.0.1 port%3D$port"), 'url postgresql', 'keywords');
	is($p->ask("connect host%3D127.0.0.1%20port%3D$port%20user%3Dtester%20dbname%3Dpostgres"), 'url postgresql', 'keywords');
	is($p->ask('call dlock_is_free t:n'), '1', 'lead to the server');
}
else
{
	like($p->ask('call dlock_acquire t:%e9 t:me d:60'), qr/^\d+$/, 'bytes that are no text');
	is(value(q{SELECT dlock_is_free(x'e9')}), '0', 'are kept');
	like($p->ask('call dlock_holders t:%e9'), qr/^\xef\xbf\xbd me /, 'and shown in UTF-8');
	is($p->ask('call dlock_release_all t:me'), '1', 'and given back');
	open(my $file, '>', "$dir/options.cnf") or die "could not write: $!\n";
	print $file "[client]\nuser=tester\nhost=127.0.0.1\n[dlock]\nport=$port\ndefault-character-set=latin1\n";
	close $file;
	is($p->ask("connect mysql:///?default-file=$dir/options.cnf"), 'url mysql', 'an option file');
	is($p->ask('call dlock_is_free t:n'), '1', 'leads to the server');
	is($p->ask(q{query SELECT CHARSET('x'), HEX('é')}), 'utf8mb4 C3A9', 'in UTF-8 whatever it says');
	is($p->ask(q{query SELECT 1 FROM dual WHERE $1 = 1}), 'error misuse - 0 0 0 the statement names argument $1, and there are 0', 'too few arguments');
}

# log-ins, and no password in any message
for my $password ('p%40ss%3aword', 'wr0ng', undef)
{
	my $to = word(url($port, defined $password ? "secret:$password" : 'secret'));
	is($p->ask("connect $to") =~ /^url/, 1, 'an account with a password');
	my $said = $p->ask('call dlock_is_free t:n');
	if (($password // '') =~ /^p/) { is($said, '1', 'is let in with it') }
	else
	{
		like($said, $is_postgres ? qr/^error misuse 28P01 0 1 1 / : qr/^error misuse 28000 1045 1 1 /, 'and without it is not');
		unlike($said, qr/wr0ng|p.?ss:word/, 'nor is the password shown');
	}
}
like($p->ask('connect ' . word('postgresql://u:wr0%zz@h/')), qr/^error misuse - 0 0 0 (?!.*wr0)/, 'a broken URL does not show it');
like($p->ask('connect ' . word('postgresql://u:wr0@ng@h/')), qr/^error misuse - 0 0 0 (?!.*(?:wr0|ng\@))/, 'nor one with a bare @');
like($p->ask('connect wr0ng'), qr/^error misuse - 0 0 0 (?!.*wr0)/, 'nor what is no URL');

# ---------------------------------------------------------------------
# Leases: from the grant to the release.

$p->say('new two name=one ttl=30', 'start two');
$p->next_is('two', qr/^refused busy - 0 0 0 "one" is not free$/);
$p->next_is('two', qr/^done$/);
$p->say('new brief name=brief ttl=1.5', 'start brief');
$p->hear(qr/^brief held /);
$p->say('show brief');
my (undef, $brief_lost_at, $brief_deadline) = $p->hear(qr/^brief is .* lost_at (\d+) deadline (\d+)$/);
is($brief_deadline - $brief_lost_at, 150_000, 'the margin, a tenth');
$p->say('release brief');
$p->hear(qr/^brief released /);

$p->say('new s1 name=s mode=shared ttl=600', 'new s2 name=s mode=shared ttl=600', 'start s1', 'start s2');
$p->next_is($_, qr/^held /) for 's1', 's2';
$p->say('new permits name=p mode=permit limit=3 permits=2 ttl=600', 'start permits');
$p->next_is('permits', qr/^held /);
is(holds('p'), 2, 'two permits');
$p->say('new one_more name=p mode=permit limit=3 ttl=600', 'start one_more');
$p->next_is('one_more', qr/^held /);
$p->gives_back('s1', 's2', 'permits', 'one_more');
ok(is_free('p') && is_free('s'), 'all of them are given back');

$p->say('new least name=least ttl=600 keep_at_least=300', 'start least');
$p->next_is('least', qr/^held /);
$p->gives_back('least');
my $left = value(q{SELECT remaining FROM dlock.locks WHERE name = 'least'});
cmp_ok($left, '<=', 300, 'one that is kept at least for a time is left for no longer than that');
ok(!is_free('least'), 'and not given back');
if ($leaves)
{
	$p->say('new late name=late1 name=late2 owner=late ttl=60 keep_at_least=300', 'start late');
	$p->next_is('late', qr/^held /);
	$p->gives_back('late');
	is(value(q{SELECT count(*) FROM dlock.locks WHERE leaving AND remaining > 60 AND name IN ('least', 'late1', 'late2')}), 3,
		'but with effect at that time, also several names');
}

# ---------------------------------------------------------------------
# Waiting.

value(q{SELECT dlock_acquire('busy', 'admin', 600)});
$p->say('new w1 name=busy ttl=30 wait=-1', 'start w1', 'new w2 name=busy owner=mine ttl=30 wait=-1', 'start w2',
	'new w3 name=busy ttl=30 wait=0.3', 'start w3');
until_true(sub { is_waiting('busy') >= 2 }, 'they wait');
# it asks again if a busy server could not decide in so short a time
$p->hear(qr/^w3 refused busy /);
my $began = time;
$p->say('release w1', 'release w2', 'show w1');
$p->hear(qr/^w1 is ended held 0 /);
for ('w1', 'w2')
{
	my (undef, $what) = $p->hear(qr/^$_ (released .*)$/);
	# it looks for 5 s at most whether it was granted anything
	like($what, time - $began < 5 ? qr/^released 0 none / : qr/^released 0 /, "$_ is canceled");
}
until_true(sub { is_waiting('busy') == 0 }, 'cancelled: nobody waits');
value(q{SELECT dlock_release_all('admin')});
until_true(sub { is_free('busy') }, 'and nothing is held');

# a circle: one of the two is told
$p->say('new c1 name=c1 owner=o1 ttl=600', 'new c2 name=c2 owner=o2 ttl=600', 'start c1', 'start c2');
$p->next_is($_, qr/^held /) for 'c1', 'c2';
$p->say('new c3 name=c2 owner=o1 ttl=600 wait=600', 'start c3');
until_true(sub { is_waiting('c2') == 1 && value('SELECT count(*) FROM (' . $engine->sleepers . q{) AS sleepers WHERE name = 'c2'}) == 1 }, 'one waits for the other');
$p->say('new c4 name=c1 owner=o2 ttl=600 wait=600', 'start c4');
$p->next_is('c4', $is_postgres ? qr/^refused busy 40P01 / : qr/^refused busy \S+ 3058 /);
$p->say('release c3');
$p->next_is('c3', qr/^released 0 /);
until_true(sub { is_waiting('c2') == 0 }, 'nobody waits any more');
$p->gives_back('c1', 'c2');
ok(is_free('c1') && is_free('c2'), 'both are free');

# ---------------------------------------------------------------------
# Errors.

$p->say('new long name=long ttl=2d', 'start long');
$p->next_is('long', $is_postgres ? qr/^failed misuse 22023 / : qr/^failed misuse 22023 3037 /);
$p->say('new denied url=' . word(url($port, 'secret:wr0ng')) . ' name=x ttl=30 wait=-1', 'start denied');
$p->next_is('denied', qr/^failed misuse 28\S+ \d+ 1 1 /);
$p->next_is('nobody', qr/^trouble unavailable \S+ \d+ 0 1 /);
$p->hear(qr/^nobody failed unavailable \S+ \d+ 0 1 /);
for (['ttl=30', 'names'], ['name=x', 'ttl'], ['name=x ttl=30 owner=', 'owner'], ['name=x name=y ttl=30 mode=shared', 'exclusive'],
	['name=x ttl=-1', 'ttl'], ['name=x ttl=30 connect_timeout=-1', 'connect_timeout'], ['name=x ttl=30 keep_at_least=-1', 'keep_at_least'],
	['name=%e9 ttl=30', 'not UTF-8'], ['name=x ttl=30 owner=%c0%80', 'not UTF-8'], ['name=x ttl=30 request=%ed%a0%80', 'not UTF-8'],
	['name=x name=y name=x ttl=30', '"x" is named twice'], ['name=x ttl=30 mode=permit', 'limit'], ['name=x ttl=30 mode=permit limit=2 permits=3', 'limit'], ['name=' . 'x' x 256 . ' ttl=30', 'name'])
{
	my ($options, $what) = @$_;
	like($p->ask("new wrong $options"), qr/^error misuse - 0 0 0 .*$what/, "seen without a server: $what");
}

# the guard
is($p->ask('connect ' . word($url)) =~ /^url/, 1, 'a session');
$token = $p->ask('call dlock_acquire t:g t:me d:600');
like($p->ask("call dlock_guard t:g t:me i:$token"), qr/^error misuse \S+ \d+ 0 0 /, 'no guard outside of a transaction');
for my $good (1, 0)
{
	$p->ask('query BEGIN');
	my $guarded = $p->ask("call dlock_guard t:g t:me i:" . ($good ? $token : $token + 1));
	if ($good) { is($guarded, 'NULL', 'a guard') }
	else { like($guarded, $is_postgres ? qr/^error lost 55L01 / : qr/^error lost 55L01 1644 /, 'a guard that comes too late') }
	is($p->ask('query ' . ($good ? 'COMMIT' : 'ROLLBACK')), '', 'and the end of the transaction');
}
like($p->ask("call dlock_release_after t:g t:me d:60 i:$token"), $leaves ? qr/^1$/ : qr/^error misuse .* (1305|1046) /, 'given back later');
$p->ask('call dlock_release_all t:me');

# renewals: the first ones
my ($renewed_to) = ($p->hear(qr/^one renewed lost_at (\d+)$/))[1];
$p->hear(qr/^$_ renewed /) for 'all', 'thread', $is_postgres ? ('pool1', 'pool2') : ();

# ended by an operator
value(qq{SELECT dlock_force_release('$_')}) for 'a2', 'forced';
$p->say('unbeat thread');
$p->hear(qr/^thread unbeat 1$/);
$p->hear(qr/^forced lost lost - 0 0 0 /);
$p->say('show forced', 'release forced');
# those that came before are of no interest
$p->hear(qr/^forced is lost held 0 /);
$p->hear(qr/^forced released 0 /);

# one of several; what is left of a lost lease is given back within a second, or not
for my $try (1 .. 20)
{
	$p->hear(qr/^all lost lost - /);
	ok(!is_free('a1'), 'one name of several is gone: the lease is lost');
	my $asked = time;
	$p->say('release all');
	$p->hear(qr/^all released 0 /);
	my $took = time - $asked;
	my $are_free = is_free('a1') && is_free('a3');
	if ($are_free || $took < 1 || $try == 20)
	{
		ok($are_free, 'and the others are given back');
		last;
	}
	value(qq{SELECT dlock_force_release('$_')}) for 'a1', 'a3';
	$p->say('free all', $p->{new}{all}, 'start all');
	$p->hear(qr/^all held /);
	value(q{SELECT dlock_force_release('a2')});
}

# the second renewals
my ($again_to) = ($p->hear(qr/^one renewed lost_at (\d+)$/))[1];
cmp_ok($renewed_to, '>=', $lost_at, 'a lease is renewed');
cmp_ok($again_to, '>', $renewed_to + 5_000_000, 'and renewed');
is(value(q{SELECT token FROM dlock.locks WHERE name = 'one'}), $one_token, 'and held all the time');
$p->gives_back('one');
ok(is_free('one'), 'it is free when released is told');

# the thread's is renewed without it, and lost with it
$p->hear(qr/^thread renewed /);
$p->say('beat thread');
$p->hear(qr/^thread beat 1$/);
value(q{SELECT dlock_force_release('thread')});
$p->hear(qr/^thread lost lost - /);
$p->say('unbeat thread', 'release thread');
$p->hear(qr/^thread unbeat 0$/);
$p->hear(qr/^thread released 0 /);

# through the pool
if ($is_postgres)
{
	$p->hear(qr/^$_ renewed /) for 'pool1', 'pool2';
	$p->say("new pool4 url=$pool name=pool1 ttl=30 wait=-1", 'start pool4');
	until_true(sub { is_waiting('pool1') == 1 }, 'one waits through a pool');
	$p->say('release pool4');
	$p->next_is('pool4', qr/^released 0 /);
	until_true(sub { is_waiting('pool1') == 0 }, 'cancelled: nobody waits');
	$p->gives_back('pool1', 'pool2');
	ok(is_free('pool1') && is_free('pool3'), 'all are given back');
	$pooler->stop;
}

# ---------------------------------------------------------------------
# Connections that are lost.

my $network = Network->new($port);
my $id = $is_postgres ? 'pid' : 'connection_id';
my $through = word(url($network->{port}));

# the connection is cut while the acquire waits
value(q{SELECT dlock_acquire('cut', 'admin', 600)});
$p->say("new cut url=$through name=cut ttl=600 wait=-1", 'start cut');
until_true(sub { is_waiting('cut') == 1 }, 'an acquire waits');
my $waiter = value("SELECT $id FROM dlock.waiters WHERE name = 'cut'");
$network->order('cut');
$p->next_is('cut', qr/^trouble unavailable \S+ \d+ 0 1 /);
until_true(sub { is_waiting('cut') == 1 && (value("SELECT $id FROM dlock.waiters WHERE name = 'cut'") // $waiter) ne $waiter },
	'cut off, it waits again, on another connection, and nobody else does');
value(q{SELECT dlock_release('cut', 'admin')});
$p->next_is('cut', qr/^held /);
is(holds('cut'), 1, 'one hold');
$p->gives_back('cut');

# the reply is lost
value(q{SELECT dlock_acquire('reply', 'admin', 600)});
$p->say("new reply url=$through name=reply ttl=60 wait=-1", 'start reply');
until_true(sub { is_waiting('reply') == 1 }, 'an acquire waits');
$waiter = value("SELECT $id FROM dlock.waiters WHERE name = 'reply'");
$network->order('deaf');
value(q{SELECT dlock_release('reply', 'admin')});
# until it has replied, it might find that the client is gone, and give the lease back
my $is_idle = $is_postgres ? "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $waiter" :
  "SELECT command = 'Sleep' FROM information_schema.processlist WHERE id = $waiter";
until_true(sub { (holds('reply') // '') eq '1' && value($is_idle) =~ /^[t1]$/ }, 'it is granted, and the reply is lost');
$token = value(q{SELECT token FROM dlock.locks WHERE name = 'reply'});
$network->order('cut');
$p->next_is('reply', qr/^trouble unavailable /);
my (undef, $again) = $p->hear(qr/^reply held (\d+)$/);
is($again, $token, 'the acquire is repeated, and answered with the same token');
is(holds('reply'), 1, 'and there is one hold');

# the network is gone: lost is told before somebody else can have it
if ($is_postgres)
{
	# silent hosts are not waited for for ever
	for my $program ($p, $environed)
	{
		$program->next_is('hosts', qr/^held /);
		$program->say('release hosts');
		$program->hear(qr/^hosts done/);
	}
	is($environed->end, 0, 'the program whose hosts the environment names leaks nothing');
}
my ($lost_us, $error) = $p->hear(qr/^gone lost (.*)$/);
like($error, qr/^lost - 0 0 0 .*could not be renewed in time/, 'without a network the lease is lost');
my ($held_us) = $other->hear(qr/^next held /);
$p->say('show gone');
my (undef, $gone_at) = $p->hear(qr/^gone is lost .* lost_at (\d+) /);
cmp_ok($gone_at, '<', $held_us, 'from a time before somebody else has it');
SKIP:
{
	skip('this machine is late by more than the margin', 1) if $lost_us > $gone_at + 500_000;
	cmp_ok($lost_us, '<', $held_us, 'and that is told before');
}
$p->say('release gone');
$p->hear(qr/^gone released 0 /);
$far->stop;
is($other->end, 0, 'the other program leaks nothing, though it holds the lease');

# who is stopped finds the lease lost when it goes on
my $stopped = CProgram->start(DLOCK_URL => $url);
$stopped->say('new stopped name=stopped ttl=1.5', 'start stopped');
$stopped->hear(qr/^stopped held /);
kill 'STOP', $stopped->{pid};
until_true(sub { is_free('stopped') }, 'a process is stopped until its lease has ended');
value(q{SELECT dlock_acquire('stopped', 'admin', 600)});
$stopped->say('show stopped', 'release stopped');
kill 'CONT', $stopped->{pid};
my (undef, $what);
do { (undef, $what) = $stopped->hear(qr/^stopped (.*)$/) } while defined $what && $what =~ /^(?:renewed|trouble)/;
like($what, qr/^(?:lost lost|is lost held 0) /, 'it goes on, and knows');
$stopped->hear(qr/^stopped released 0 /);
is(holds('stopped'), 1, 'and takes nothing from the next holder');
is($stopped->end, 0, 'that program leaks nothing');

# nothing is left of what is freed when it is under way
$network->order('swallow');
$p->say("new away$_ url=$through name=away ttl=30", "start away$_") for 1 .. 3;
for my $turn (1, 2)
{
	# the second is read after the first step
	$p->say('show away1');
	$p->next_is('away1', qr/^is waiting /);
}
$p->say("free away$_") for 1 .. 3;
$network->stop;

# ---------------------------------------------------------------------
# The server is restarted, and the lease goes on.

my $renewed;
for my $try (1 .. 5)
{
	$p->say('free restart') if $try > 1;
	$p->say('new restart name=restart ttl=45', 'start restart');
	(undef, $token) = $p->hear(qr/^restart held (\d+)$/);
	$engine->end_control;
	if ($is_postgres) { $engine->{node}->stop('fast') }
	else { $engine->halt }
	$p->say('show restart');
	my ($stopped_us) = $p->hear(qr/^restart is /);
	$p->hear(qr/^restart trouble unavailable /);
	if ($is_postgres) { $engine->{node}->start }
	else { $engine->boot }
	my $when_us;
	do { ($when_us, $renewed) = $p->hear(qr/^restart (renewed|lost)\b/) } while defined $when_us && $when_us < $stopped_us;
	last if ($renewed // '') ne 'lost';
	# by a restart that took too long, on a busy machine
	value(q{SELECT dlock_force_release('restart')});
}
is($renewed, 'renewed', 'a lease outlives a restart of the server');
is(value(q{SELECT token FROM dlock.locks WHERE name = 'restart'}), $token, 'with the same token');
$p->gives_back('restart');
ok(is_free('restart'), 'and is given back');

is($p->end, 0, 'the program leaks nothing, and ends as it should');
$engine->end_control;
$engine->stop;
done_testing();
