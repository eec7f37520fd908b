# Commits do not end for a while: a disk does not write, or semisynchronous
# replication waits for a replica that is not there.  Looks and releases are answered
# all the same.  An acquire of a free name gets the error that it could not be decided
# in time, and is never refused.  Every answer is still true afterwards.  The same
# holds if the library has lost its connection in such a commit, which goes on.  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use InTime;
use Scenarios;
use Test::More;

# On a machine that is busy with other things, as InTime.pm counts.
use constant {
	SOON => 10,
	AT_ONCE => 15,
};

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind, '--log-bin=binlog', '--server-id=1', '--sync-binlog=1');
my $engine = $server->engine;
my ($admin, $session, $hung, $waiter, $late) = map { $engine->client($_) } qw(admin session hung waiter late);

sub sql { return $admin->value($_[0]) }

# How commits are held up, and let go.
my $source = $kind eq 'mysql' ? 'source' : 'master';
my $semi = "rpl_semi_sync_$source";
sql(q{INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'}) if $kind eq 'mysql';
sql("SET GLOBAL ${semi}_wait_point = 'AFTER_SYNC'");
sql("SET GLOBAL ${semi}_timeout = 3600000");
my %ways = (
	'a disk' => { hold => sub { $server->hold }, let_go => sub { $server->let_go } },
	'no replica' => {
		hold => sub { sql("SET GLOBAL ${semi}_enabled = ON") },
		let_go => sub { sql("SET GLOBAL ${semi}_enabled = OFF") } });

my $undecided = qr/^3572 \w+: .*in its time/;
my $unknown = $kind eq 'mysql' ? qr/^1105 08007: / : qr/^1105 HY000: /;

# Have the library lose its connection in a commit that hangs.
sub lose_connection
{
	my $id = sql('SELECT id FROM information_schema.processlist WHERE ' . $engine->is_writing);
	sql("KILL $id");
	return;
}

# The sessions of a try that took too long, and what they hold up, are in the way of the next.
sub begin_anew
{
	my (%hold_up) = @_;
	eval { $hold_up{let_go}->() };
	$_->kill for $admin, $session, $hung, $waiter, $late;
	($admin, $session, $hung, $waiter, $late) = map { $engine->client($_) } qw(admin session hung waiter late);
	Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 0 }) or die "somebody goes on waiting\n";
	return;
}

sub test_way
{
	my ($way, $try) = @_;
	my ($what, $fate) = split /, /, $way;
	my $n = ($way =~ s/\W//gr) . $try;
	my %hold_up = %{ $ways{$what} };
	$what = $way;
	begin_anew(%hold_up) if $try > 1;
	$session->value("SELECT dlock_acquire('$_$n', 'a', 6000)") for qw(kept gone other twice twice part part part wanted);
	$session->value("SELECT dlock_acquire_shared('shared$n', 'a$_', 6000)") for 1 .. 3;
	is(sql('SELECT dlock_settle()'), 1, "$what: all is written");
	$waiter->send("SELECT dlock_acquire('wanted$n', 'next', 600, 6000)");
	ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 }), "$what: somebody waits");

	$hold_up{hold}->();
	$hung->send("SELECT dlock_acquire('hung$n', 'a', 600, 6000, 'request')");
	ok($server->hangs, "$what: a commit hangs");
	if ($fate eq 'lost')
	{
		$session->value("SELECT dlock_release('part$n', 'a')");
		lose_connection();
		# the log tells what has become of it, and the caller waits for that
		like($hung->outcome, $unknown, "$what: nobody knows what becomes of it") unless $engine->has_log;
	}
	for my $time ('early', 'late')
	{
		answers($session, "$what, looks, $time", AT_ONCE,
			"dlock_owner('kept$n')" => 'a',
			"dlock_is_free('kept$n')" => 0,
			"dlock_is_free('free$n')" => 1,
			"dlock_is_free('hung$n')" => $fate eq "lost" ? qr{^[01]$} : 1,
			"dlock_owner('hung$n')" => $fate eq "lost" ? qr{^(NULL|a)$} : "NULL",
			"dlock_owner('wanted$n')" => 'a',
			"dlock_holders('part$n')" => $fate eq 'lost' ? qr/"version": 2\b/ : qr/"version": 3\b/,
			"dlock_remaining('kept$n', 'a') > 500" => 1,
			"JSON_LENGTH(dlock_holders('shared$n'))" => $time eq 'early' ? 3 : 2,
			"count(*) FROM dlock.locks WHERE name = 'kept$n'" => 1,
			"count(*) FROM dlock.locks WHERE name = 'hung$n'" => $fate eq 'lost' ? qr{^[01]$} : 0,
			'count(*) FROM dlock.waiters' => 1,
			'waiters FROM dlock.stats' => 1,
			"dlock_acquire('kept$n', 'b', 600)" => 'NULL');
		answers($session, "$what, releases, $time", AT_ONCE, $time eq 'early' ? (
			"dlock_release('gone$n', 'a')" => 1,
			"dlock_release('gone$n', 'a')" => 'NULL',
			"dlock_is_free('gone$n')" => 1,
			"dlock_release('shared$n', 'a2')" => 1,
			"JSON_LENGTH(dlock_holders('shared$n'))" => 2) : (
			"dlock_release('other$n', 'a')" => 1,
			"count(*) FROM dlock.locks WHERE name IN ('gone$n', 'other$n')" => 0));
		answers($session, "$what, grants, $time", SOON,
			"dlock_acquire('free$n', 'a', 600, 0.3)" => $undecided,
			"dlock_acquire('gone$n', 'b', 600, 0.3)" => $undecided,
			"dlock_acquire_all('[\"free$n\", \"free2$n\"]', 'a', 600, 0.3)" => $undecided,
			"dlock_acquire_any('[\"free$n\", \"free2$n\"]', 'a', 600, 2, 0.3)" => $undecided);
	}
	answers($session, "$what, releases in part, and for waiters", AT_ONCE,
		"dlock_release('twice$n', 'a')" => 1,
		"dlock_holders('twice$n')" => qr/"version": 1\b/,
		"dlock_owner('twice$n')" => 'a',
		"dlock_release('wanted$n', 'a')" => 1,
		"dlock_owner('wanted$n')" => 'NULL',
		"dlock_release('twice$n', 'a')" => 1,
		"dlock_is_free('twice$n')" => 1);
	is(sql('SELECT count(*) FROM dlock.waiters'), 1, "$what: nobody can be granted anything");

	# a waiter whose time is over was not refused, for nobody has what it waits for
	$late->send("SELECT dlock_acquire('wanted$n', 'late', 600, 0.5)");
	like($late->outcome, $undecided, "$what: who waits behind another one is told the same");

	$hold_up{let_go}->();
	like($hung->outcome($fate eq 'lost' && !$engine->has_log ? "SELECT dlock_acquire('hung$n', 'a', 600, 0, 'request')" : ()),
		qr/^\d+$/, "$what: the commit ends");
	is(sql("SELECT version FROM dlock.locks WHERE name = 'hung$n'"), 1, "$what: once");
	like($waiter->outcome, qr/^\d+$/, "$what: who has waited has the lease");
	ok(Scenarios::Run::until(sub { $engine->is_written }),
		"$what: all is written");
	is(sql("SELECT count(*) FROM dlock.lease_table WHERE name IN ('gone$n', 'other$n', 'twice$n', 'free$n', 'free2$n')"), 0, "$what: what was given back is gone");
	is(sql("SELECT count(*) FROM dlock.lease_table WHERE name = 'shared$n'"), 2, "$what: of several, too");
	like($session->outcome("SELECT dlock_acquire('free$n', 'c', 600)"), qr/^\d+$/, "$what: what was not granted is free");

	is(sql("SELECT version FROM dlock.locks WHERE name = 'part$n'"), $fate eq 'lost' ? 2 : 3, "$what: what was given back, once");
	return if $fate eq 'lost';

	$session->value("SELECT dlock_acquire('handed$n', 'a', 6000)");
	$waiter->send("SELECT dlock_acquire('handed$n', 'next', 600, 6000)");
	ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 }), "$what: somebody waits again");
	$hold_up{hold}->();
	answers($session, $what, AT_ONCE, "dlock_release('handed$n', 'a')" => 1);
	ok($server->hangs, "$what: the commit of what a waiter is granted hangs");
	answers($session, "$what, a waiter that is granted", AT_ONCE,
		"dlock_owner('handed$n')" => 'NULL',
		"count(*) FROM dlock.waiters WHERE name = 'handed$n' AND owner = 'next' AND position IS NULL" => 1,
		'waiters FROM dlock.stats' => 1);
	$hold_up{let_go}->();
	like($waiter->outcome, qr/^\d+$/, "$what: it has the lease");
	is(sql('SELECT count(*) FROM dlock.waiters'), 0, "$what: and waits no more");
	return;
}

# After half a minute the library takes a connection that does not answer for lost.
for my $way (map { ("$_, kept", "$_, lost") } sort keys %ways)
{
	in_time(25, sub { test_way($way, @_) });
}
$_->quit for $session, $hung, $waiter, $late, $admin;
$engine->stop;
done_testing();
