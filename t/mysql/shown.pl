# What an operator sees of the library besides its views: what the list of processes says of
# a call that waits, lines in the server's log, in the server's form and of whom, and errors
# in one language.  The kind of server is the argument.  Only the engine of the log has this.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

plan skip_all => 'of the engine of the log' if ($ENV{STORE} // '') ne 'log';

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;
my ($one, $two) = map { $engine->client($_) } 'one', 'two';

sub sql { return $admin->value($_[0]) }

sub state_of
{
	my ($client) = @_;
	return sql("SELECT coalesce(nullif(state, ''), '-') FROM information_schema.processlist WHERE id = $client->{id}");
}

# The list of processes.
like(sql(q{SELECT dlock_acquire('n', 'admin', 600)}), qr/^\d+$/, 'a lease');
for my $call (q{dlock_acquire('n', 'one', 600, -1)}, q{dlock_acquire_all('["n", "m"]', 'one', 600, -1)}, q{dlock_wait('n', -1)})
{
	$one->send("SELECT $call");
	ok(Scenarios::Run::until(sub { state_of($one) eq 'waiting for a lease' }), "$call is shown as waiting for a lease");
	$engine->cancel($one);
	like($one->outcome, qr/^1317 70100/, 'cancelled');
	isnt(state_of($one), 'waiting for a lease', 'it is shown no more');
}
$one->send(q{SELECT dlock_acquire('n', 'one', 600, -1), SLEEP(600)});
ok(Scenarios::Run::until(sub { state_of($one) eq 'waiting for a lease' }), 'a call that waits in a longer statement');
is(sql(q{SELECT dlock_force_release('n')}), 1, 'is granted the lease');
ok(Scenarios::Run::until(sub { sql(q{SELECT dlock_is_free('n')}) == 0 && state_of($one) ne 'waiting for a lease' }), 'and the list says so');
$engine->kill_connection($one);
$one->kill;

# The server's log: its own time and severity are before each line.
my $prefix = $kind eq 'mariadb' ? qr/\d{4}-\d\d-\d\d +\d+:\d\d:\d\d \d+ \[Warning\] / : qr/\d{4}-\d\d-\d\dT[\d:.]+Z \d+ \[Warning\] \[MY-\d+\] \[Server\] /;

sub is_logged
{
	my ($line, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok(Scenarios::Run::until(sub { $engine->log =~ /^$prefix$line$/m }), $what) || diag($engine->log);
}
my $tester = q{account 'tester'@'localhost', connection } . $two->{id};
my $root = q{account 'root'@'localhost', connection } . $admin->{id};
is_logged(qr/dlock: 1 lease on "n" released by force; \Q$root\E/, 'a forced release is logged, and who has made it');
my $token = $two->value(q{SELECT dlock_acquire('50%\n', 'me', 0.05)});
sql(q{UPDATE dlock.settings SET value = '0.1' WHERE name = 'reap_interval'});
is_logged(qr/dlock: lease on "50%\\x0A" expired while owner "me" held it; token $token, \Q$tester\E/, 'so is a lease that has expired');
sql(q{UPDATE dlock.settings SET value = 'soon' WHERE name = 'lock_delay'});
is_logged(qr/dlock: setting "lock_delay" in dlock\.settings must be a number from 0 to 86400, and is "soon"; using the default/, 'and a wrong setting');
$two->value(qq{SELECT dlock_acquire_shared('shared', 'owner $_', 600)}) for 1 .. 3;
is(sql(q{SELECT dlock_force_release('shared', 'owner 2')}), 1, 'one of several is released by force');
is_logged(qr/dlock: 1 lease on "shared" released by force, of owner "owner 2"; \Q$root\E/, 'the line says which');
is(sql(q{SELECT dlock_force_release('shared')}), 2, 'then the others');
is_logged(qr/dlock: 2 leases on "shared" released by force; \Q$root\E/, 'in one line');

# Errors.  The server speaks another language, and the library's sessions do not.
sql(q{SET GLOBAL lc_messages = 'de_DE'});
# one may have ended by then
$admin->query("KILL $_->[0]") for @{ $admin->query(q{SELECT id FROM information_schema.processlist WHERE user NOT IN ('root', 'tester', 'system user', 'event_scheduler')})->{rows} };
sql(q{CREATE TRIGGER dlock.refuse BEFORE INSERT ON dlock.log FOR EACH ROW INSERT INTO dlock.missing VALUES (1)});
ok(Scenarios::Run::until(sub { $two->outcome(q{SELECT dlock_acquire('after', 'me', 600)}) =~ /could not use the lock table: .*dlock\.missing' doesn't exist/ }),
	'an error of the server is told in English') or diag($two->outcome(q{SELECT dlock_acquire('after', 'me', 600)}));
sql('DROP TRIGGER dlock.refuse');
ok(Scenarios::Run::until(sub { $two->outcome(q{SELECT dlock_acquire('after', 'me', 600)}) =~ /^\d+$/ }), 'and is over');
sql(q{SET GLOBAL lc_messages = 'en_US'});

# Error 1290 is of a read-only server only if it is read-only.
sql(q{CREATE TRIGGER dlock.refuse BEFORE INSERT ON dlock.log FOR EACH ROW
	SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'The MySQL server is running with the --odd option'});
like($two->outcome(q{SELECT dlock_acquire('odd', 'me', 600)}), qr/could not use the lock table: .*--odd option/, 'another option is named');
sql('DROP TRIGGER dlock.refuse');
ok(Scenarios::Run::until(sub { $two->outcome(q{SELECT dlock_acquire('odd', 'me', 600)}) =~ /^\d+$/ }), 'then a lease is granted');
sql('SET GLOBAL read_only = 1');
ok(Scenarios::Run::until(sub { $two->outcome(q{SELECT dlock_acquire('other', 'me', 600)}) =~ /^1792 25006.*the server is read-only/ }), 'read_only is told as such');
sql('SET GLOBAL read_only = 0');
$engine->stop;
done_testing();
