# Where tokens start when a run of a server takes over: they grow, and the marks that
# they start from are never above the clock, because another server that has not heard
# of them starts there.  A run that would have to raise them above it waits for the
# clock, a second at most; looks do not wait.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use LogRows;
use Scenarios;
use Test::More;

use constant QUICK => 6;
use constant TRIES => 100;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $read_only = qr/^1792 25006/;
my $clock = q{FLOOR(TIMESTAMPDIFF(MICROSECOND, '2020-01-01', UTC_TIMESTAMP(6)) * 1.048576)};
my $last = 0;

sub sql { return $engine->control->value($_[0]) }

# The largest mark: in the log, that of its last row.
sub mark { return $engine->has_log ? LogRows::last_of($engine)->{counter} : sql('SELECT MAX(mark) FROM dlock.lease_mark') }

# As if another server had taken over just now, or at another time.
sub set_mark
{
	my ($mark) = @_;
	$mark = sql("SELECT $mark");
	if ($engine->has_log) { LogRows::append($engine, counter => $mark) }
	else { sql("UPDATE dlock.lease_mark SET mark = $mark, writer = 1") }
	$last = $mark;
	return;
}

# A value, or an error.
sub outcome
{
	my ($session) = @_;
	my $answer = $session->answer;
	return $answer->{gone} ? 'gone' : $answer->{error} // $answer->{rows}[0][0];
}

sub ask
{
	my ($session, $sql) = @_;
	$session->send($sql);
	return outcome($session);
}

# Give a lease back, and have that written: a crash could lose it.
sub give_back
{
	my ($session, $what) = @_;
	is(ask($session, q{SELECT dlock_release('n', 'o')}), 1, "$what: given back");
	is(sql(q{SELECT dlock_settle() * 0 + COUNT(*) FROM dlock.locks WHERE name = 'n'}), 0, "$what: written");
	return;
}

# The name has a larger token than the last time, and no mark is above the clock.
sub all_is_well
{
	my ($session, $what) = @_;
	my $token;
	# the first call may find the connection gone
	Scenarios::Run::until(sub { ($token = ask($session, q{SELECT dlock_acquire('n', 'o', 600)})) =~ /^\d+$/ }) or diag($token);
	cmp_ok($token, '>', $last, "$what: a larger token");
	$last = $token;
	cmp_ok(mark(), '<=', sql("SELECT $clock"), "$what: no mark is above the clock");
	give_back($session, $what);
	return;
}

my $session = $engine->client('session');
all_is_well($session, 'at first');

for my $try (1 .. QUICK)
{
	sql('SET GLOBAL read_only = 1');
	like(ask($session, q{SELECT dlock_acquire('n', 'o', 600)}), $read_only, "read-only, change $try");
	sql('SET GLOBAL read_only = 0');
	all_is_well($session, "written again, change $try");
}

for my $try (1 .. QUICK)
{
	$session->kill;
	$engine->crash;
	$session = $engine->client('session');
	all_is_well($session, "after crash $try");
}

# As if another server had taken over a moment ago, and this one followed it.
sub follow_another
{
	sql('SET GLOBAL read_only = 1');
	like(ask($session, q{SELECT dlock_acquire('n', 'o', 600)}), $read_only, 'read-only');
	set_mark($clock);
	sql('SET GLOBAL read_only = 0');
	return;
}

my $looker = $engine->client('looker');
my ($seen, $killed) = (0, 0);
for my $try (1 .. TRIES)
{
	last if $seen && $killed;
	my $other = $engine->client("other $try");
	follow_another();
	$session->send(q{SELECT dlock_acquire('n', 'o', 600)});
	$other->send(q{SELECT dlock_acquire('m', 'o', 600, 60)});
	$engine->cancel($other);
	like(ask($looker, q{SELECT dlock_owner('n')}), qr/^(?:NULL|o)$/, 'who looks is answered');
	like(ask($looker, q{SELECT COUNT(*) FROM dlock.locks}), qr/^\d$/, 'also by the view');
	my $outcome = outcome($other);
	$seen++ if !$session->is_answered;
	$killed++ if $outcome =~ /^1317 70100/;
	is(ask($other, q{SELECT dlock_release('m', 'o')}), $outcome =~ /^\d+$/ ? 1 : 'NULL', "another call: $outcome");
	$other->quit;
	my $token = outcome($session);
	cmp_ok($token, '>', $last, 'granted a larger token');
	$last = $token;
	give_back($session, 'after another server');
	all_is_well($session, 'after another server');
}
ok($seen, 'who looks was answered while an acquire waited for the clock');
ok($killed, 'and who was killed');

# Its time is up meanwhile.  On a busy machine it may be told that nothing was decided in it.
my $short;
Scenarios::Run::until(sub { follow_another(); ($short = ask($session, q{SELECT dlock_acquire('n', 'o', 600, 0.05)})) =~ /^\d+$/ });
like($short, qr/^\d+$/, 'a short wait ends with an answer');
give_back($session, 'after a short wait');

# Where the clock is so far behind that waiting is of no use, tokens go on.
set_mark("$clock + 3600 * 1048576");
$_->kill for $session, $looker;
$engine->crash;
$session = $engine->client('session');
for my $try (1 .. 3)
{
	my $token;
	Scenarios::Run::until(sub { ($token = ask($session, q{SELECT dlock_acquire('n', 'o', 600)})) =~ /^\d+$/ }) or diag($token);
	cmp_ok($token, '>', $last, 'a clock that is an hour behind: tokens grow');
	$last = $token;
	give_back($session, 'a clock that is behind');
	sql('SET GLOBAL read_only = 1');
	like(ask($session, q{SELECT dlock_acquire('n', 'o', 600)}), $read_only, 'read-only');
	sql('SET GLOBAL read_only = 0');
}
is(scalar(() = $engine->log =~ /dlock: the system clock is behind the tokens/g), 1, 'and the error log is told once');

$session->quit;
$engine->stop;
done_testing();
