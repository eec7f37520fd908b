# A server that is stopped for a while goes on with the time that has passed, and
# a standby that is promoted with another wall clock and in another boot ends no
# lease early.  240_clock.pl has the rest of clocks, 365_leave.pl single stopped
# waiters.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Sessions;
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my ($library) = grep { -e } glob '/usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1';
die "libfaketime is not installed\n" if !$library;
my $token = qr/^\d{10,}$/;
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', q{
dlock.reap_interval = '1h'
dlock.log_expired = off
dlock.boot_id = 'main'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $all = Sessions->new($node);
my ($a, $b, $c, $d, $s) = $all->open('a', 'b', 'c', 'd', 's');
my $watcher = $all->{watcher};

# All of the server stops, and goes on when so many seconds have passed.
sub stop_server
{
	my ($seconds) = @_;
	my $until = clock_gettime(CLOCK_MONOTONIC) + $seconds;
	my ($postmaster, @children) = Processes::stop_postmaster($node);

	is(kill('STOP', @children), scalar @children, 'all of the server stops');
	usleep(10_000) until clock_gettime(CLOCK_MONOTONIC) > $until;
	kill 'CONT', $postmaster, @children;
	return;
}

# One lease is over when it goes on, others are not; those who wait keep their
# places, and whose time is up leaves.
like($a->query(q{SELECT dlock_acquire('brief', 'a', 0.4)}), $token, 'a brief lease');
like($a->query(q{SELECT dlock_acquire('long', 'a', 600)}), $token, 'a long one');
like($s->query(q{SELECT dlock_acquire_session('session', 's', 0.1)}), $token, 'one of a session');
$b->send(q{SELECT dlock_acquire('long', 'b', 600, -1)});
$all->waiting('b');
$c->send(q{SELECT dlock_acquire('long', 'c', 600, 0.3)});
usleep(5000) until $c->answered || $watcher->query('SELECT count(*) FROM dlock.waiters') == 2;
$d->send(q{SELECT dlock_acquire('long', 'd', 600, -1)});
$all->until(q{SELECT count(*) FROM dlock.waiters WHERE owner IN ('b', 'd')}, 2);
stop_server(0.5);
is($c->answer, '', 'whose time is up is told');
$all->waiting('b', 'd');
is($watcher->query(q{SELECT dlock_is_free('brief'), dlock_owner('long'), dlock_owner('session')}),
	't|a|s', 'the brief lease is over, the others are held');
is($a->query(q{SELECT dlock_renew('brief', 'a', 60) IS NULL, dlock_renew('long', 'a', 600)}), 't|t',
	'it cannot be renewed, the long one can');
is($a->query(q{SELECT dlock_release('long', 'a')}), 't', 'given back');
like($b->answer, $token, 'the first who waits is served');
is($d->answered, 0, 'the second is not');
is($b->query(q{SELECT dlock_release('long', 'b')}), 't', 'given back');
like($d->answer, $token, 'the second is served');

# A deadline with somebody waiting for it, while all are stopped.
like($a->query(q{SELECT dlock_acquire('waited', 'a', 0.4)}), $token, 'a brief lease');
$b->send(q{SELECT dlock_acquire('waited', 'b', 600, -1)});
$all->until(q{SELECT count(*) = 1 OR dlock_owner('waited') = 'b' FROM dlock.waiters}, 't');
stop_server(0.5);
like($b->answer, $token, 'who waits for what ended meanwhile is served');
is($watcher->query(q{SELECT dlock_owner('waited')}), 'b', 'and has it');
is($a->query(q{SELECT dlock_release('waited', 'a')}), 'f', 'who had it has it no more');

# A guard lasts over it, beyond its lease.
like($a->query(q{SELECT dlock_acquire('guarded', 'a', 600)}), $token, 'a lease');
$a->query('BEGIN');
is($a->query(q{SELECT dlock_guard('guarded', 'a', (SELECT token FROM dlock_holders('guarded')))}), '', 'guarded');
is($a->query(q{SELECT dlock_renew('guarded', 'a', 0.4)}), 't', 'whose deadline is near now');
stop_server(0.5);
is($b->query(q{SELECT dlock_acquire('guarded', 'b', 60)}), '', 'while it is guarded nobody else gets it');
is($a->query('COMMIT'), '', 'the transaction commits');
like($b->query(q{SELECT dlock_acquire('guarded', 'b', 60, 600)}), $token, 'then somebody does');
$_->quit for $a, $b, $c, $d, $s, $watcher;

# Promotion: each standby has a wall clock and a boot of its own.
sub remaining
{
	my ($server) = @_;
	return $server->safe_psql('postgres', q{SELECT extract(epoch FROM expires_at - clock_timestamp())
		FROM dlock_holders('carried')});
}

my $primary = $node;
for my $offset ('+3600', '-3600')
{
	my $standby = PostgreSQL::Test::Cluster->new("standby$offset");
	$primary->backup("backup$offset");
	$standby->init_from_backup($primary, "backup$offset", has_streaming => 1);
	$standby->append_conf('postgresql.conf', "dlock.boot_id = 'boot$offset'");
	{
		local %ENV = (
			%ENV,
			LD_PRELOAD => $library,
			FAKETIME => $offset,
			FAKETIME_DONT_FAKE_MONOTONIC => 1,
			DONT_FAKE_MONOTONIC => 1);
		$standby->start;
	}
	my $title = "promoted with a wall clock at $offset";
	cmp_ok(
		abs($standby->safe_psql('postgres', 'SELECT extract(epoch FROM clock_timestamp())') - time - $offset),
		'<', 600, 'the standby has its own wall clock');
	my $granted = clock_gettime(CLOCK_MONOTONIC);
	my $old = $primary->safe_psql('postgres', q{SELECT dlock_acquire('carried', 'o', 600)});
	$primary->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, '', '')});
	$primary->wait_for_catchup($standby);
	$primary->stop('immediate');
	$standby->promote;
	my $left = remaining($standby);
	my $passed = clock_gettime(CLOCK_MONOTONIC) - $granted;
	is($standby->safe_psql('postgres', q{SELECT dlock_owner('carried'), dlock_acquire('carried', 'p', 1) IS NULL}),
		'o|t', "$title: the lease is held");
	cmp_ok($left, '>=', 600 - $passed, "$title: it does not end early");
	cmp_ok($left, '<=', 600 + 60, "$title: nor very late");
	is($standby->safe_psql('postgres', q{SELECT dlock_renew('carried', 'o', 0.05)}), 't', "$title: it can be renewed");
	cmp_ok($standby->safe_psql('postgres', q{SELECT dlock_acquire('carried', 'p', 0.05, 600)}),
		'>', $old, "$title: it ends in time, and the next token is larger");
	ok($standby->poll_query_until('postgres', q{SELECT dlock_is_free('carried')}), "$title: which ends in time too");
	$primary = $standby;
}
$primary->stop;

done_testing();
