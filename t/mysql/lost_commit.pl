# The library's connection is lost in a commit that goes on: a flush of the server
# takes long, and its client is killed meanwhile.  What the commit does must not be
# done twice, and a caller that asks again learns of it.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $unknown = $kind eq 'mysql' ? qr/^1105 08007: / : qr/^1105 HY000: /;
# with a binary log a transaction is prepared first, and keeps its locks
my $server = HeldFlush->start($kind, '--log-bin=binlog', '--server-id=1', '--sync-binlog=1');
my $engine = $server->engine;
$engine->write_settings(lock_timeout => 300);    # held up, nobody is to give up

sub sql { return $engine->control->value($_[0]) }

sub others
{
	my ($what, $where) = @_;
	return sql("SELECT $what FROM information_schema.processlist WHERE id <> connection_id() AND $where");
}

# The connection is in a commit, soon, and killed there.
sub lose_commit
{
	# in this state it gets to the disk, and a KILL does not undo it
	my $commits = q{(info = 'COMMIT' OR } . $engine->is_writing . q{) AND state LIKE '%ommit'};
	ok(Scenarios::Run::until(sub { others('count(*)', $commits) }), 'a commit begins');
	my $id = others('id', $commits);
	is(others('count(*)', "id = $id AND $commits"), 1, 'and does not end');
	sql("KILL $id");
	return;
}

# See a session's statement run.
sub runs
{
	my ($session) = @_;
	ok(Scenarios::Run::until(sub { others('count(*)', "id = $session->{id} AND info LIKE 'SELECT dlock%'") }), "$session->{name} asks");
	return;
}

my $session = $engine->client('session');
my $waiter = $engine->client('waiter');
my $token = $session->value(q{SELECT dlock_acquire('n', 'own', 600)});
is($session->value(q{SELECT dlock_acquire('n', 'own', 600)}), $token, 'more holds') for 1, 2;
is(sql(q{SELECT version FROM dlock.locks WHERE name = 'n'}), 3, 'three');
for my $left (2, 1)
{
	$server->hold;
	is($session->value(q{SELECT dlock_release('n', 'own')}), 1, 'one is given back');
	lose_commit();
	$waiter->send(q{SELECT dlock_renew('n', 'own', 600)});    # has it look at the row
	runs($waiter);
	$server->let_go;
	is($waiter->answer->{rows}[0][0], 1, 'it is still held');
	is(sql(q{SELECT version FROM dlock.locks WHERE name = 'n'}), $left, 'by as many holds as were left');
}
is($session->value(q{SELECT dlock_release('n', 'own')}), 1, 'the last one is given back');
is($session->value(q{SELECT dlock_is_free('n')}), 1, 'and it is free');

# A release, and with it the grant to who waits: that one is told that nobody knows,
# and asks again with the same request id.
like($session->value(q{SELECT dlock_acquire('handed', 'own', 600)}), qr/^\d+$/, 'another lease');
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is(sql('SELECT group_concat(name) FROM dlock.locks'), 'handed', 'and nothing else is held');
is(sql('SELECT group_concat(name) FROM dlock.lease_table'), 'handed', 'nor is there another row');
$waiter->send(q{SELECT dlock_acquire('handed', 'next', 600, 600, 'request')});
ok(Scenarios::Run::until(sub { $engine->is_waiting($waiter) }), 'somebody waits for it');
$server->hold;
is($session->value(q{SELECT dlock_release('handed', 'own')}), 1, 'it is given back');
lose_commit();
# the log tells what has become of it, and the caller waits for that
if (!$engine->has_log)
{
	like($waiter->outcome, $unknown, 'who waited is told that nobody knows');
	$waiter->send(q{SELECT dlock_acquire('handed', 'next', 600, 600, 'request')});
	runs($waiter);
	is(sql('SELECT count(*) FROM dlock.waiters'), 0, 'asking again he is not put in line');
}
$server->let_go;
$token = $waiter->outcome;
like($token, qr/^\d+$/, 'he has the lease');
is(sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'handed' AND owner = 'next' AND version = 1 AND token = } . $token), 1, 'once');

# Who looks meanwhile is shown what was before the commit, and what it has done afterwards.
$server->hold;
$session->send(q{SELECT dlock_acquire('taken', 'own', 600, 0, 'request')});
lose_commit();
like($session->outcome, $unknown, 'who has taken a lease is told that nobody knows') unless $engine->has_log;
is($waiter->outcome(q{SELECT dlock_owner('taken')}), 'NULL', 'who looks is told of no lease that may not come to be');
$server->let_go;
ok(Scenarios::Run::until(sub { $waiter->outcome(q{SELECT dlock_owner('taken')}) eq 'own' }), 'and then that it is taken');
$token = $session->outcome if $engine->has_log;
like($token = $session->value(q{SELECT dlock_acquire('taken', 'own', 600, 0, 'request')}), qr/^\d+$/, 'he has it');
is(sql(q{SELECT version FROM dlock.locks WHERE name = 'taken' AND token = } . $token), 1, 'once');
$_->quit for $session, $waiter;
$engine->stop;
done_testing();
