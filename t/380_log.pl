# What the server's log says of waits and of holders that died.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('log');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
# sessions that have taken no lease show the settings
shared_preload_libraries = 'dlock'
max_worker_processes = 16
log_lock_waits = on
deadlock_timeout = '10ms'
dlock.reap_interval = '20ms'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub sql { return $node->safe_psql('postgres', @_); }

# Run something and return what it adds to the log, once that has a line.
sub logged
{
	my ($what, $line) = @_;
	my $offset = -s $node->logfile;

	$what->();
	$node->wait_for_log($line, $offset);
	return slurp_file($node->logfile, $offset);
}

sub waiting
{
	my ($call, $settings) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query('SELECT pg_backend_pid()');

	$session->query($settings) if $settings;
	$session->query_until(qr/waiting/, "\\echo waiting\nSELECT $call;\n");
	return ($session, $pid);
}

sql(q{SELECT dlock_acquire('l', 'a', 3600)});
my ($waiter, $pid);
my $log = logged(sub {
	($waiter, $pid) = waiting(q{dlock_acquire('l', 'b', 3600, -1)});
}, qr/still waiting for lease/);
like($log, qr/LOG:  process $pid still waiting for lease on "l" after \d+\.\d{3} ms\n.*DETAIL:  Owner "b"\./,
	'a wait longer than deadlock_timeout is logged');
$log = logged(sub { sql(q{SELECT dlock_release('l', 'a')}); },
	qr/process $pid stopped waiting for lease on "l" after \d+\.\d{3} ms/);
$waiter->query('SELECT');
my $whole = slurp_file($node->logfile);
my $lines = () = $whole =~ /still waiting for lease on "l"/g;
is($lines, 1, 'once, however long it takes');
$waiter->quit;

# off
my $offset = -s $node->logfile;
($waiter, $pid) = waiting(q{dlock_acquire('l', 'c', 3600, 0.3)},
	'SET log_lock_waits = off');
is($waiter->query('SELECT'), '', 'without log_lock_waits');
unlike(slurp_file($node->logfile, $offset), qr/process $pid .* waiting for lease/,
	'nothing is logged');
$waiter->quit;
sql(q{SELECT dlock_release_all('b')});

# Holders that died.
my $token;
$log = logged(sub { $token = sql(q{SELECT dlock_acquire('dead', 'its owner', 0.01)}); },
	qr/lease on "dead" expired while owner "its owner" held it/);
like($log, qr/DETAIL:  Token $token, role "[^"]+", process \d+, application "380_log\.pl"/,
	'and who it was');
my $died = () = $log =~ /lease on "dead" expired/g;
is($died, 1, 'a holder that died is logged once');

$offset = -s $node->logfile;
sql(q{SELECT dlock_acquire('released', 'me', 60), dlock_release('released', 'me'),
	dlock_acquire('evicted', 'me', 60)});
sql(q{SELECT dlock_force_release('evicted')});
sql(q{SELECT dlock_acquire_session('session', 'me', 0.01)});
sql(q{BEGIN; SELECT dlock_acquire_xact('xact', 'me', 0.01); ROLLBACK});
$log = logged(sub { sql(q{SELECT dlock_acquire('last', 'me', 0.01)}); },
	qr/lease on "last" expired/);
unlike(slurp_file($node->logfile, $offset),
	qr/lease on "(?:released|evicted|session|xact)" expired/,
	'those that were given up did not die');

# dlock.log_expired = off; the last line comes after it is on again
$node->append_conf('postgresql.conf', 'dlock.log_expired = off');
$node->reload;
$node->poll_query_until('postgres',
	q{SELECT current_setting('dlock.log_expired') = 'off'});

# A lease that the worker reaps.
sub expires
{
	my ($name) = @_;
	sql("SELECT dlock_acquire('$name', 'me', 0.01)");
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM dlock.locks WHERE name = '$name')")
	  or die "$name is not reaped\n";
	return;
}

# The worker, which may be at its work, has read the setting when it comes by this name once
# more.  What it has to say of a name is there when it comes by the next.
expires($_) for 'unsaid', 'next';
$offset = -s $node->logfile;
expires($_) for 'unsaid', 'next';
is(() = slurp_file($node->logfile, $offset) =~ /lease on "unsaid" expired/g,
	0, 'log_expired = off');

done_testing();
