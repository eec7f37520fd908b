# A commit takes long, because a flush does, and the caller that waits for it is
# killed, out of time, or without its client.  It is answered at once all the same,
# and gives back what it was granted.  The kind of server is the argument.
#
# If nobody else calls, and no commit was slow lately, a caller commits by itself, and
# waits for the server without checking whether it was interrupted; the library cuts
# its connection for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind);
my $engine = $server->engine;
my $control = $engine->control;
my $number = 0;
$engine->write_settings(lock_timeout => 1);

sub sql { return $control->value($_[0]) }

# The library's connection: none of ours, and none of the server's own.
sub loopback
{
	my ($command) = @_;
	return sql("SELECT coalesce(max(id), 0) FROM information_schema.processlist
		WHERE user NOT IN ('root', 'tester', 'other', 'system user', 'event_scheduler') AND command LIKE '$command'");
}

sub is_committing
{
	return sql(q{SELECT count(*) FROM information_schema.processlist WHERE state LIKE '%ommit'
		AND user NOT IN ('root', 'tester', 'other', 'system user', 'event_scheduler')}) > 0;
}

# Have a session wait for its commit, end that, and look what has become of it.
sub ended
{
	my ($what, $end, $error) = @_;
	my $name = 'n' . ++$number;
	my $session = $engine->client("session $number");

	usleep(2_100_000) if $number > 1;    # the last one was slow
	# what comes first reads
	$session->value("SELECT dlock_acquire('$name', 'before', 600)");
	$session->value("SELECT dlock_release('$name', 'before')");
	my $id = $session->value('SELECT connection_id()');
	my $connection = loopback('%');
	my $other = $engine->client("other session $number");

	$server->hold;
	$session->send($end->{statement} // "SELECT dlock_acquire('$name', 'own', 600)");
	# by then a limit of time may have ended it
	ok(Scenarios::Run::until(sub { is_committing() || $session->is_answered }), "$what: its commit begins");
	$end->{end}->($session, $id) if $end->{end};
	if ($error)
	{
		like($session->outcome, $error, "$what: it is answered");
	}
	else
	{
		ok(Scenarios::Run::until(sub { !sql("SELECT count(*) FROM information_schema.processlist WHERE id = $id") }),
			"$what: it ends");
	}
	# another call finds rows locked by the commit that was lost, and longer than
	# lock_timeout says: but it is the disk that holds it up
	$other->send("SELECT dlock_acquire('$name other', 'other', 600)");
	usleep(3_000_000) if $end->{long};
	$server->let_go;
	like($other->outcome, qr/^\d{6,}$/, "$what: another call is made in the end");
	$other->quit;
	ok(Scenarios::Run::until(sub { sql("SELECT dlock_is_free('$name')") == 1 }), 'what it was granted is given back');
	is(sql("SELECT dlock_acquire('$name', 'next', 600) IS NOT NULL"), 1, 'and granted to the next');
	is(sql("SELECT dlock_release('$name', 'next')"), 1, 'who gives it back');
	$session->quit if $error;
	return loopback('%') != $connection;
}

my $cut = 0;
my $timed = $kind eq 'mysql' ? 'SELECT /*+ MAX_EXECUTION_TIME(1000) */ %s' : 'SET STATEMENT max_statement_time = 1 FOR SELECT %s';
# now and then it is the batcher that makes it; on a busy machine, where each answer of the
# server's is slow, most of the time
ok(Scenarios::Run::until(sub {
	$cut += ended('KILL QUERY', { long => 1, end => sub { sql("KILL QUERY $_[1]") } }, qr/1317/);
	my $statement = sprintf($timed, "dlock_acquire('n" . ($number + 1) . q{', 'own', 600)});
	$cut += ended('a limit of time', { statement => $statement }, qr/\d/);
	$cut += ended('KILL', { end => sub { sql("KILL $_[1]") } });
	$cut += ended('a client that is gone', { end => sub { $_[0]->kill } });
	return $cut > 0;
}), 'the connection was cut');
$engine->stop;
done_testing();
