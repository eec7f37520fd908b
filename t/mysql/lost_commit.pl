# The library's connection is lost in a commit that goes on: a flush of the server
# takes long, and its client is killed meanwhile.  What the commit does must not
# be done once more.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);

my ($kind) = @ARGV;
# with a binary log a transaction is prepared first, and keeps its locks
my $server = HeldFlush->start($kind, '--log-bin=binlog', '--server-id=1', '--sync-binlog=1');
my $engine = $server->engine;

sub sql { return $engine->control->value($_[0]) }

sub others
{
	my ($what, $where) = @_;
	return sql("SELECT $what FROM information_schema.processlist WHERE id <> connection_id() AND $where");
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
	ok(Scenarios::Run::until(sub { others('count(*)', q{info = 'COMMIT'}) }), 'its commit begins');
	my $id = others('id', q{info = 'COMMIT'});
	usleep(50_000);    # and has got to the disk
	is(others('count(*)', "id = $id AND info = 'COMMIT'"), 1, 'and does not end');
	sql("KILL $id");
	$waiter->send(q{SELECT dlock_renew('n', 'own', 600)});    # has it look at the row
	usleep(500_000);
	$server->let_go;
	is($waiter->answer->{rows}[0][0], 1, 'it is still held');
	is(sql(q{SELECT version FROM dlock.locks WHERE name = 'n'}), $left, 'by as many holds as were left');
}
is($session->value(q{SELECT dlock_release('n', 'own')}), 1, 'the last one is given back');
is($session->value(q{SELECT dlock_is_free('n')}), 1, 'and it is free');
$_->quit for $session, $waiter;
$engine->stop;
done_testing();
