# Who may call, as dlock.callers says, and how much of what is limited one account can have.
# The kind of server is the argument.  Only the engine of the log has this.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Wire;

plan skip_all => 'of the engine of the log' if ($ENV{STORE} // '') ne 'log';

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;
my $privilege = $kind eq 'mariadb' ? 'CONNECTION ADMIN' : 'CONNECTION_ADMIN';

sub sql { return $admin->value($_[0]) }

sql(q{CREATE USER operates@localhost, 'o''n"e@two'@'localhost'});
sql(q{GRANT SELECT, EXECUTE ON scenarios.* TO operates@localhost, 'o''n"e@two'@'localhost'});
sql(q{GRANT EXECUTE ON dlock.* TO operates@localhost});
sql("GRANT $privilege ON *.* TO operates\@localhost");
my %client = map { $_ => $engine->client($_, $_) } qw(tester other operates);
my $odd = Wire::MySQL->of($engine, q{o'n"e@two});
my $denied = $kind eq 'mariadb' ? qr/^1227 42000: / : qr/^1227 42501: /;

sub outcome
{
	my ($who, $sql) = @_;
	return $client{$who}->outcome($sql);
}

# From now on the list has these; the library reads it once a second.
sub list
{
	my ($probe, $may, @accounts) = @_;
	sql('DELETE FROM dlock.callers');
	sql("INSERT INTO dlock.callers (user, host) VALUES ($_)") for @accounts;
	ok(Scenarios::Run::until(sub { (outcome($probe, q{SELECT dlock_is_free('probe')}) !~ $denied) == $may }),
		'the list has come into force');
	return;
}

my $token = outcome('tester', q{SELECT dlock_acquire('kept', 'tester', 600)});
like($token, qr/^\d+$/, 'nobody is in the list: all may call');
like(outcome('other', q{SELECT dlock_acquire_session('session', 'other', 600)}), qr/^\d+$/, 'with a session lease, too');
$client{other}->send(q{SELECT dlock_acquire('kept', 'other', 600, -1)});
ok(Scenarios::Run::until(sub { $engine->is_waiting($client{other}) }), 'one waits');

list('tester', 0, q{'other', 'localhost'});
for my $call (
	q{dlock_acquire('n', 'tester', 600)}, q{dlock_acquire_all('["n", "m"]', 'tester', 600)}, q{dlock_acquire_any('["n"]', 'tester', 600, 1)},
	"dlock_renew('kept', 'tester', 600, $token)", "dlock_release('kept', 'tester', $token)", q{dlock_renew_all('tester', 600)},
	q{dlock_release_all('tester')}, q{dlock_wait('kept')}, q{dlock_owner('kept')}, q{dlock_holders('kept')}, q{dlock_remaining('kept', 'tester')})
{
	like(outcome('tester', "SELECT $call"), qr/$denied.*permission denied for account 'tester'\@'localhost': it is not in dlock\.callers/,
		"who is not in the list may not call $call");
}
$client{tester}->query('BEGIN');
like(outcome('tester', "CALL dlock.guard('kept', 'tester', $token)"), $denied, 'nor guard');
$client{tester}->query('ROLLBACK');
is($client{tester}->value(q{SELECT owner FROM dlock.locks WHERE name = 'kept'}), 'tester', 'what it holds stays, and is seen by whoever may read the view');
ok(!$client{other}->is_answered, 'who is in the list waits on');
like(outcome('operates', q{SELECT dlock_acquire('n', 'operates', 600)}), qr/^\d+$/, 'an operator may always call');
is(outcome('operates', q{SELECT dlock_force_release('kept')}), 1, 'and release by force');
like($client{other}->outcome, qr/^\d+$/, 'who has waited is granted the lease');

list('tester', 1, q{'other', 'localhost'}, q{'tester', 'localhost'}, q{'o''n"e@two', 'localhost'});
like(outcome('tester', q{SELECT dlock_acquire('n2', 'tester', 600)}), qr/^\d+$/, 'who comes into the list may call');
ok(Scenarios::Run::until(sub { ($odd->query(q{SELECT dlock_is_free('n')})->{rows}[0][0] // '') eq '0' }), 'whatever its name is');
list('other', 0, q{'tester', 'localhost'}, q{'Other', 'localhost'}, q{'other', '%'});
like(outcome('other', q{SELECT dlock_release('session', 'other')}), $denied, 'who leaves it may not even release; and an account is both of its halves, as they are');
$client{other}->quit;
ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'session'}) == 0 }), 'session leases end with their connection all the same');

# It counts from the first call after a start.
$engine->restart;
$admin = $engine->control;
$_->quit for grep { $_ } delete @client{qw(tester operates)};
$client{other} = $engine->client('other2', 'other');
like(outcome('other', q{SELECT dlock_release_all('other')}), $denied, 'after a start the first call is refused');
list('other', 1);
like(outcome('other', q{SELECT dlock_acquire('n3', 'other', 600)}), qr/^\d+$/, 'an empty list again: all may call');

# Half of what others leave.
# The settings are read together, and max_ttl is seen.
sub set_max_waiters
{
	my ($most, $max_ttl) = @_;
	sql("UPDATE dlock.settings SET value = IF(name = 'max_ttl', $max_ttl, $most) WHERE name IN ('max_waiters', 'max_ttl')");
	ok(Scenarios::Run::until(sub { outcome('other', 'SELECT dlock_wait(\'probe\', ' . ($max_ttl + 1) . ')') =~ /at most $max_ttl seconds/ }),
		"max_waiters is $most");
	return;
}
set_max_waiters(7, 1000);
my @waiters;

# How many of an account can wait.
sub fill
{
	my ($role) = @_;
	for my $n (1 .. 8)
	{
		my $waiter = $engine->client("$role$n", $role);
		$waiter->send(qq{SELECT dlock_acquire('full', '$role$n', 600, -1)});
		Scenarios::Run::until(sub { $waiter->is_answered || $engine->is_waiting($waiter) }) or die "it does not wait\n";
		push @waiters, $waiter;
		next unless $waiter->is_answered;
		like($waiter->answer->{message}, qr/^too many connections wait for leases; an account can have half of what others leave/, "$role: one too many");
		return $n - 1;
	}
	return 8;
}
like(sql(q{SELECT dlock_acquire('full', 'admin', 600)}), qr/^\d+$/, 'a lease that is waited for');
my $first = fill('tester');
cmp_ok($first, '<=', 4, 'one account can have half of the waiters');
cmp_ok($first, '>=', 1, 'and has some');
cmp_ok(fill('other'), '>=', 1, 'so another finds a place');
$engine->control->value(q{SELECT dlock_force_release('full')});
$_->kill for @waiters;

# The same of the places of calls that wait for any of several names.
set_max_waiters(1000, 1001);
ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.waiters}) == 0 }), 'nobody waits');
my $names = join(', ', map { "'any$_'" } 1 .. 100);
sql("SELECT dlock_acquire_all(JSON_ARRAY($names), 'admin', 600)");
my @any;
for my $n (1 .. 11)
{
	my $waiter = $engine->client("any$n", 'tester');
	$waiter->send("SELECT dlock_acquire_any(JSON_ARRAY($names), 'any$n', 600, 1, -1)");
	Scenarios::Run::until(sub { $waiter->is_answered || $engine->is_waiting($waiter) }) or die "it does not wait\n";
	push @any, $waiter;
	last if $waiter->is_answered;
}
cmp_ok(scalar(@any) - 1, '<=', 6, 'one account can have half of the places');
like($any[-1]->answer->{message}, qr/^too many names are waited for; an account can have half/, 'and is told so');
my $last = $engine->client('last', 'other');
$last->send("SELECT dlock_acquire_any(JSON_ARRAY($names), 'last', 600, 1, -1)");
ok(Scenarios::Run::until(sub { $engine->is_waiting($last) }), 'so another finds some');
$_->kill for @any, $last;

# A server that has started and cannot read the list yet lets nobody in.
sql(q{INSERT INTO dlock.callers (user, host) VALUES ('other', 'localhost')});
$engine->crash;
$admin = $engine->control;
sql('LOCK TABLES dlock.callers WRITE');
my $early = $engine->client('early', 'tester');
unlike($early->outcome(q{SELECT dlock_acquire('early', 'tester', 600)}), qr/^\d+$/, 'the list is locked: no lease');
sql('UNLOCK TABLES');
ok(Scenarios::Run::until(sub { $early->outcome(q{SELECT dlock_acquire('early', 'tester', 600)}) =~ $denied }), 'then it is read');
$engine->stop;
done_testing();
