# A page of the lock table cannot be read while callers wait for a name that lies on
# it.  A call that has to read it gets an error, and nothing hangs: not the waiters,
# not calls for other names, and no call once the page can be read again.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $corrupted = 'XX001';
my $is_token = qr/^\d{10,}$/;
my $page_size = 8192;

my $node = PostgreSQL::Test::Cluster->new('unreadable');
$node->init(extra => ['--data-checksums']);
$node->append_conf('postgresql.conf', q{
autovacuum = off
# few pages stay in memory
shared_buffers = '512kB'
bgwriter_lru_maxpages = 0
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# to read instead, each too small to be read by a scan that spares the others
my @others = map { "other$_" } 1 .. 12;
$node->safe_psql('postgres', "CREATE TABLE $_ AS SELECT repeat('x', 500) FROM generate_series(1, 150)") for @others;

my $sessions = Sessions->new($node);
my ($holder, $client) = $sessions->open('holder', 'client');

like($holder->query(q{SELECT dlock_acquire('l', 'holder', 3600)}), $is_token, 'a lease');
my $block = $holder->query(q{SELECT (ctid::text::point)[0] FROM dlock_private.lease_table WHERE name = 'l'});
my $file = $node->data_dir . '/' . $holder->query(q{SELECT pg_relation_filepath('dlock_private.lease_table')});

# names on other pages
$holder->query(q{SELECT dlock_acquire('n' || i, 'holder', 3600) FROM generate_series(1, 20) i});
my @elsewhere = split /\n/, $holder->query("SELECT name FROM dlock_private.lease_table WHERE (ctid::text::point)[0] <> $block LIMIT 4");
$holder->query(q{SELECT dlock_release('n' || i, 'holder') FROM generate_series(1, 20) i});
is(scalar @elsewhere, 4, 'names elsewhere');

# Read or write the page where it lies on the disk.
sub page
{
	my ($bytes) = @_;
	open my $handle, '+<:raw', $file or die "could not open $file: $!";
	seek $handle, $block * $page_size, 0 or die $!;
	if (defined $bytes)
	{
		print $handle $bytes or die $!;
	}
	else
	{
		read($handle, $bytes, $page_size) == $page_size or die $!;
	}
	close $handle or die $!;
	return $bytes;
}

# Have all pages read anew.
sub evict
{
	$client->query('CHECKPOINT');
	$client->query('SELECT ' . join(', ', map { "(SELECT count(*) FROM $_)" } @others)) for 1 .. 10;
	return;
}

my $all = join ', ', map { "'$_'" } @elsewhere[ 0, 1 ], 'l', @elsewhere[ 2, 3 ];
for my $wait (
	[ q{dlock_wait('l', -1)}, $corrupted ],
	[ "dlock_acquire_all(ARRAY[$all], 'waiter', 60, -1)", $corrupted ],
	# it looks at the page when it is told to, or at the deadline
	[ q{dlock_acquire('l', 'waiter', 60, -1)}, undef ])
{
	my ($call, $answer) = @$wait;
	my ($waiter) = $sessions->open('waiter');

	$waiter->send("SELECT $call");
	$sessions->waiting('waiter');
	evict();
	my $good = page();
	page(substr($good, 0, 4000) . ('?' x 100) . substr($good, 4100));
	evict();

	is($client->query(q{SELECT dlock_acquire('l', 'client', 60)}), $corrupted, "$call: the page cannot be read");
	is($holder->query(q{SELECT dlock_release('l', 'holder')}), $corrupted, '... by whoever holds the lease neither');
	is($waiter->answer, $answer, '... nor by the waiter') if $answer;
	for my $name (@elsewhere)
	{
		like($client->query("SELECT dlock_acquire('$name', 'client', 60)"), $is_token, "... $name is not concerned");
		is($client->query("SELECT dlock_release('$name', 'client')"), 't', '... nor its release');
	}

	page($good);
	is($holder->query(q{SELECT dlock_release('l', 'holder')}), 't', '... it can be read again: released');
	if (!$answer)
	{
		like($waiter->answer, $is_token, '... and granted to the waiter');
		is($waiter->query(q{SELECT dlock_release('l', 'waiter')}), 't', '... which gives it back');
	}
	like($holder->query(q{SELECT dlock_acquire('l', 'holder', 3600)}), $is_token, '... and taken anew');
	is($client->query(q{SELECT count(*) FROM dlock.locks}), 1, '... and nothing else is held');
	$waiter->quit;
}

# A waiter is canceled after it was granted the lease, and cannot give that back.  It is
# told why, and the session can be canceled and ended like any other.
{
	my ($waiter) = $sessions->open('waiter');

	$waiter->send(q{SELECT dlock_acquire('l', 'waiter', 3600, -1)});
	$sessions->waiting('waiter');
	$sessions->stop($waiter);
	is($holder->query(q{SELECT dlock_release('l', 'holder')}), 't', 'granted to a waiter that is stopped');
	evict();
	my $good = page();
	page(substr($good, 0, 4000) . ('?' x 100) . substr($good, 4100));
	evict();
	$sessions->until("SELECT pg_cancel_backend($waiter->{pid})", 't');
	kill 'CONT', $waiter->{pid};
	is($waiter->answer, 'XX001', '... and canceled: it cannot read the page to give back what it got');
	page($good);

	$waiter->send('SELECT pg_sleep(600)');
	$sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $waiter->{pid} AND wait_event = 'PgSleep'", 1);
	$sessions->until("SELECT pg_cancel_backend($waiter->{pid})", 't');
	is($waiter->answer, '57014', '... its next statement can be canceled');
	$waiter->send('SELECT pg_sleep(600)');
	$sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $waiter->{pid} AND wait_event = 'PgSleep'", 1);
	$sessions->until("SELECT pg_terminate_backend($waiter->{pid})", 't');
	is($waiter->answer, 'gone', '... and the session be ended');
	$waiter->quit;
}

$_->quit for $holder, $client, $sessions->{watcher};
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
