# With dlock.notify on, listeners hear of leases that expired or were force-released;
# with it off, they hear nothing.

use strict;
use warnings;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = PostgreSQL::Test::Cluster->new('notify');
$node->init(extra => [ '--encoding=UTF8', '--no-locale' ]);
$node->append_conf(
	'postgresql.conf', q{
# sessions that have taken no lease show the settings
shared_preload_libraries = 'dlock'
max_worker_processes = 16
dlock.reap_interval = '20ms'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
$node->safe_psql('postgres', 'CREATE DATABASE other TEMPLATE template0');
$node->safe_psql('other', 'CREATE EXTENSION dlock');
$ENV{PGCLIENTENCODING} = 'UTF8';

sub sql { return $node->safe_psql('postgres', @_); }

my $listener = $node->background_psql('postgres', on_error_stop => 0);
$listener->query_safe('LISTEN dlock');
my $stranger = $node->background_psql('other', on_error_stop => 0);
$stranger->query_safe('LISTEN dlock');

# What a listener has heard by the end of a statement, of which this is the output.
sub payloads
{
	my ($output) = @_;
	return map { decode_json($_) } $output =~ /notification "dlock" with payload "(.*)" received/g;
}

# All that a listener hears until it has heard so much.
sub heard
{
	my ($session, $count) = @_;
	my @payloads;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		push @payloads, payloads($session->query('SELECT 1'));
		last if @payloads >= $count;
		usleep(100_000);
	}
	return @payloads;
}

# Listen until so many of these events were sent or counted as lost; how many of each.
# What was heard before is among them.
sub told_and_lost
{
	my ($count, $events, @heard) = @_;
	my ($told, $lost) = (0, 0);

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		for (@heard)
		{
			$told++ if $_->{event} =~ $events;
			$lost += $_->{count} if $_->{event} eq 'lost';
		}
		last if $told + $lost >= $count;
		@heard = heard($listener, 1);
	}
	return ($told, $lost);
}

# Off by default.  The worker handles what it finds in order, so the first
# notification shows that there was none before.
is(sql('SHOW "dlock.notify"'), 'off', 'off by default');
sql(q{SELECT dlock_acquire('silent', 'me', 0.01)});
sql(q{SELECT dlock_acquire('silent too', 'me', 60)});
sql(q{SELECT dlock_force_release('silent too')});
$node->poll_query_until('postgres',
	q{SELECT NOT EXISTS (SELECT FROM dlock.locks)}) or die 'not reaped';

$node->append_conf('postgresql.conf', 'dlock.notify = on');
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('dlock.notify') = 'on'});

my @names = ('plain', q{it's "quoted" \\ back}, "new\nline\ttab",
	"\x{e9}\x{4e2d}\x{1f512}", '{"event": "x"}', 'n' x 255, "\x01");
utf8::encode($_) for @names;
for my $i (0 .. $#names)
{
	my $quoted = $names[$i] =~ s/'/''/gr;
	my $utf8 = $names[$i];
	utf8::decode($utf8);

	my $token = sql("SELECT dlock_acquire('$quoted', 'me', 3600)");
	is(sql("SELECT dlock_force_release('$quoted')"), 1, "name $i is evicted");
	is_deeply([ heard($listener, 1) ],
		[ { event => 'force-released', name => $utf8, token => $token } ],
		"name $i: that is heard");

	# whoever finds it expired, the worker sends it
	$token = sql("SELECT dlock_acquire('$quoted', 'me', 0.01)");
	is_deeply([ heard($listener, 1) ],
		[ { event => 'expired', name => $utf8, token => $token } ],
		"name $i: its expiry is heard");
}

# Releases, renewals and refusals are nobody's business.
sql(q{SELECT dlock_acquire('quiet', 'me', 3600), dlock_renew('quiet', 'me', 60),
	dlock_acquire('quiet', 'you', 60), dlock_release('quiet', 'me')});
my $last = sql(q{SELECT dlock_acquire('last', 'me', 3600)});
sql(q{SELECT dlock_force_release('last')});
is_deeply([ heard($listener, 1) ],
	[ { event => 'force-released', name => 'last', token => $last } ],
	'a release is not heard');

# Several holders at once.
sql(q{SELECT dlock_acquire_shared('crowd', 'reader ' || i, 3600)
	FROM generate_series(1, 5) AS i});
is(sql(q{SELECT dlock_force_release('crowd')}), 5, 'five are evicted');
is(scalar(grep { $_->{name} eq 'crowd' } heard($listener, 5)),
	5, 'one notification for each');

# A databases's events go to its own listeners.
$node->safe_psql('other', q{SELECT dlock_acquire('elsewhere', 'me', 3600)});
$node->safe_psql('other', q{SELECT dlock_force_release('elsewhere')});
is_deeply([ map { $_->{name} } heard($stranger, 1) ],
	['elsewhere'], 'another database hears of its own, and of nothing else');
is($listener->query('SELECT 1'), 1, 'and only that one');

# More than there is room for: it says how many were lost.
sql(q{
	SELECT count(dlock_acquire('many ' || i, 'me', 3600)) FROM generate_series(1, 3000) AS i});
sql(q{SELECT sum(dlock_force_release('many ' || i)) FROM generate_series(1, 3000) AS i});
my ($told, $lost) = told_and_lost(3000, qr/^force-released$/);
is($told + $lost, 3000, 'each event is sent or counted as lost');

# The server cannot write what is to be sent, as when its queue is full: the queue keeps what a
# listener in a transaction has not read, and the folder for that is gone.
sub worker { return sql(q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'}); }
my $worker = worker();
my $offset = -s $node->logfile;
my $folder = $node->data_dir . '/pg_notify';
$listener->query_safe('BEGIN');
sql(q{SELECT count(pg_notify('filling', repeat('x', 7000) || i)) FROM generate_series(1, 100) AS i});
rename $folder, "$folder.away" or die $!;
# more than the server's buffers for the queue hold
sql(q{SELECT count(dlock_acquire(rpad('unsent ' || i || ' ', 250, 'x'), 'me', 0.01)) FROM generate_series(1, 700) AS i});
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM dlock.locks WHERE name LIKE 'unsent %'}),
	'leases are reaped that cannot be told of');
$node->wait_for_log(qr/dlock worker.*pg_notify|could not access status of transaction/, $offset);
is(worker(), $worker, '... by the same worker');
rename "$folder.away", $folder or die $!;
my @heard = payloads($listener->query('COMMIT'));
# no other event has to bring that along
($told, $lost) = told_and_lost(700, qr/expired/, @heard);
is($told + $lost, 700, '... each event is sent or counted as lost');
cmp_ok($lost, '>', 0, "... and some were ($lost)");

$_->quit for $listener, $stranger;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no assertion failed');
done_testing();
