# What the library remembers of the leases of a connection.  The kind of server is
# the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Wire;

# More leases of one connection than one batch takes.
use constant MANY => 300;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $session = $engine->client('session');

# In the lock table tokens grow by name: of names that have none in common they may be equal,
# as the first are in a new run of the server.
my %token = map { $_ => $session->value("SELECT dlock_acquire_session('$_', 'own', 600)") } qw(one two three);
my ($one, @others) = values %token;
is(scalar(grep { $_ == $one } @others), $engine->has_log ? 0 : 2, 'three session leases') or note(join(' ', %token));
$session->quit;
ok(Scenarios::Run::until(sub { $engine->control->value('SELECT count(*) FROM dlock.locks') == 0 }),
	'all of them end with their connection');

# The row of a living session is written anew by the time to live that it has now,
# for others that may read it.
sub writes { return $engine->has_log ? () : $engine->control->value("SELECT min(writes) FROM dlock.lease_table WHERE name LIKE '$_[0]'") }
$session = $engine->client('session');
like($session->value(q{SELECT dlock_acquire_session('one', 'own', 600)}), qr/^\d+$/, 'a long one');
is($session->value(q{SELECT dlock_renew('one', 'own', 1)}), 1, 'made short');
is($engine->control->value('SELECT dlock_settle()'), 1, 'and in the table');
my ($before) = writes('one');
ok(Scenarios::Run::until(sub { writes('one') > $before + 1 }), 'is written again and again') unless $engine->has_log;
is($session->value(q{SELECT dlock_owner('one')}), 'own', 'and held');
$session->quit;

# So are the rows of a session with many leases, all of which end with it.
sub take_many
{
	my ($client, $name, $ttl) = @_;
	return $client->value("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${\MANY})
		SELECT count(dlock_acquire_session(concat('$name', n), 'own', $ttl)) FROM numbers");
}
my $locks = q{SELECT count(*) FROM dlock.locks WHERE name LIKE };
$session = $engine->client('session');
my $waiter = $engine->client('waiter');
is(take_many($session, 'many', 1), MANY, 'many leases of a session');
is($engine->control->value('SELECT dlock_settle()'), 1, 'are in the table');
($before) = writes('many%');
ok(Scenarios::Run::until(sub { writes('many%') > $before + 1 }), 'each is written again and again') unless $engine->has_log;
is($session->value(q{SELECT dlock_release('many7', 'own')}), 1, 'one is given back');
is($waiter->value(q{SELECT dlock_acquire('many7', 'other', 600) > 0}), 1, 'and can be had');
is($engine->control->value("$locks 'many%'"), MANY, 'the others are held');
$waiter->send(q{SELECT dlock_acquire('many1', 'other', 600, 600)});
ok(Scenarios::Run::until(sub { $engine->is_waiting($waiter) }), 'a waiter for one of them');
$session->quit;
like($waiter->outcome, qr/^\d+$/, 'has it when the session has ended');
ok(Scenarios::Run::until(sub { $engine->control->value("$locks 'many%'") == 2 }), 'and all others have ended');
is($waiter->value(q{SELECT dlock_release_all('other')}), 2, 'the last are given back');
$waiter->quit;

# On MariaDB they end when the connection changes its user, before it takes one of them
# again; on MySQL they go on.
my $again = Wire::MySQL->of($engine, 'tester');
is(take_many($again, 'again', 600), MANY, 'many leases, the first of them');
my $old = $engine->control->value(q{SELECT token FROM dlock.locks WHERE name = 'again1'});
$again->change_user('tester');
my $new = $again->value(q{SELECT dlock_acquire_session('again1', 'own', 600, 600)});
my $left = $kind eq 'mariadb' ? 1 : MANY;
cmp_ok($new, $kind eq 'mariadb' ? '>' : '==', $old, 'is taken after a change of user');
ok(Scenarios::Run::until(sub { $engine->control->value("$locks 'again%'") == $left }), "$left are left");
is($again->value(q{SELECT dlock_renew('again1', 'own', 600)}), 1, 'among them that one');
is($engine->control->value(q{SELECT version FROM dlock.locks WHERE name = 'again1'}), $kind eq 'mariadb' ? 1 : 2, 'with the holds that were taken');
$again->close;
ok(Scenarios::Run::until(sub { $engine->control->value("$locks 'again%'") == 0 }), 'all end with the connection');

# After a restart a session's lease goes on for its ttl, whatever becomes of others on
# the name: also when its row takes the place of theirs.  The server is killed: if it is shut
# down, MariaDB may end the session, and have that written, while it still runs.
my $first = $engine->client('first');
$session = $engine->client('session');
like($first->value(q{SELECT dlock_acquire_shared('shared', 'first', 600)}), qr/^\d+$/, 'a shared lease');
like($session->value(q{SELECT dlock_acquire_session_shared('shared', 'own', 600)}), qr/^\d+$/, 'and one of a session');
is($engine->control->value('SELECT dlock_settle()'), 1, 'are in the table');
$engine->crash;
$_->kill for $first, $session;
$first = $engine->client('first');
is($first->value(q{SELECT dlock_release('shared', 'first')}), 1, 'restarted: the first is given back');
is($engine->control->value('SELECT dlock_settle()'), 1, 'and the other has its row');
is($engine->control->value(q{SELECT group_concat(owner) FROM dlock.lease_table WHERE name = 'shared'}), 'own', 'as the only one');
is($first->value(q{SELECT dlock_is_free('shared')}), 0, 'it goes on');
is($first->value(q{SELECT dlock_acquire('shared', 'first', 600)}), 'NULL', 'nobody else can have it');
cmp_ok($engine->control->value(q{SELECT remaining FROM dlock.locks WHERE name = 'shared'}), '>', 500, 'for long');
$first->quit;

$engine->stop;
done_testing();
