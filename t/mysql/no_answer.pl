# A server that does not answer the library: a flush takes long, and with it a
# commit of the library's connection.  A waiter, in line or not there yet, is answered
# when its time is over, long before the library gives that connection up; a killed
# one is answered at once.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind);
my $engine = $server->engine;

sub sql { return $engine->control->value($_[0]) }

# The library's connection, if it is just changing something; it has another id
# once it has been lost.
sub changing
{
	return sql(q{SELECT coalesce(max(id), 0) FROM information_schema.processlist
		WHERE id <> connection_id() AND (info LIKE 'INSERT INTO dlock.%' OR info = 'COMMIT')});
}

my ($held, $waits, $commits, $late, $all, $watches, $killed) =
  map { $engine->client($_) } qw(held waits commits late all watches killed);
like($held->value(q{SELECT dlock_acquire('held', 'a', 600)}), qr/^\d+$/, 'a lease');
# again, if its time is up before that is seen
ok(Scenarios::Run::until(sub {
	$waits->answer if $waits->is_busy && $waits->is_answered;
	$waits->send(q{SELECT dlock_acquire('held', 'b', 600, 1)}) unless $waits->is_busy;
	return $engine->is_waiting($waits);
}), 'somebody waits for it');
# what the library does unasked is done
is(sql('SELECT dlock_settle()'), 1, 'it has a row');

$server->hold;
$commits->send(q{SELECT dlock_acquire('commits', 'a', 600, 600)});
ok(Scenarios::Run::until(sub { changing() > 0 }), 'a commit begins');
my $id = changing();
$late->send(q{SELECT dlock_acquire('late', 'a', 600, 0.1)});
$all->send(q{SELECT dlock_acquire_all('["late", "later"]', 'c', 600, 0.1)});
$watches->send(q{SELECT dlock_wait('held', 0.1)});
$killed->send(q{SELECT dlock_acquire('killed', 'a', 600, 600)});
like($_->outcome, qr/55P03|server does not answer/, "$_->{name}: is told when the time is up") for $late, $all;
# what it waits for goes on, whatever becomes of the commit
like($watches->outcome, $engine->has_log ? qr/^0$|server does not answer/ : qr/55P03|server does not answer/, 'who watches is told, too');
is($waits->outcome, 'NULL', 'who stands in line has waited in vain');
ok(Scenarios::Run::until(sub { sql("SELECT count(*) FROM information_schema.processlist
	WHERE id = $killed->{id} AND info LIKE 'SELECT dlock%'") }), 'somebody else asks');
$engine->cancel($killed);
like($killed->outcome, qr/^1317 /, 'and who is killed, then');
is(changing(), $id, 'and all the time the library waits for the server');

$server->let_go;
like($commits->outcome, qr/^\d+$/, 'who waited for the commit has the lease');
is($held->value("SELECT dlock_is_free('$_')"), 1, "$_: nothing was taken") for qw(late later killed);
$_->quit for $held, $waits, $commits, $late, $all, $watches, $killed;
$engine->stop;
done_testing();
