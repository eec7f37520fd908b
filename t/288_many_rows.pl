# A name with very many holders, and guards, is in the way of nobody who wants another
# name: its rows have a bucket of their own, no call reads them while it has locked those
# of other names, and a session that had them is gone soon.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('rows');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
autovacuum = off
dlock.log_expired = off
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $sessions = Sessions->new($node);
my ($holder, $guard, $other) = $sessions->open('holder', 'guard', 'other');

# All buckets of the table, by block: their depth, and the chain of one that has it.
sub buckets
{
	$other->query('CHECKPOINT');
	my $image = read_image(table_file($node));
	return map { { depth => field(\$image, $_, 'depth'), next => field(\$image, $_, 'next') } } blocks_of(\$image, BUCKET);
}

is($holder->query(q{SELECT count(dlock_acquire_shared('some', 'some ' || i, 3600)) FROM generate_series(1, 300) i}),
	300, 'a name has many holders');
my ($chained) = grep { $_->{next} != NO_BLOCK } buckets();
cmp_ok($chained->{depth}, '<', 21, '... and shares a bucket with other names');
is($holder->query(q{SELECT count(dlock_acquire_shared('some', 'more ' || i, 3600)) FROM generate_series(1, 1000) i}),
	1000, 'it has very many');
my @chained = grep { $_->{next} != NO_BLOCK } buckets();
is(join(' ', map { $_->{depth} } @chained), 21, '... and a bucket of its own');
is($other->query(q{SELECT count(*), count(DISTINCT owner) FROM dlock_holders('some')}), '1300|1300', 'all rows are there');
is($other->query(q{SELECT count(dlock_acquire('n' || i, 'me', 3600)) FROM generate_series(1, 5000) i}), 5000,
	'other names are taken');
is($other->query(q{SELECT count(*) FROM generate_series(1, 5000) i WHERE dlock_renew('n' || i, 'me', 3600)}), 5000,
	'... and found');
is($other->query(q{SELECT count(*), count(DISTINCT (name, owner)) FROM dlock.locks}), '6300|6300', 'every lease shows once');

# dlock_acquire_all() with such a name
like($other->query(q{SELECT dlock_acquire_all('{a, some, b}', 'me', 3600)}), qr/\A\z/, 'it is busy for a call that wants others too');
is($other->query(q{SELECT dlock_is_free('a'), dlock_is_free('b')}), 't|t', '... which takes none');
$guard->send(q{SELECT dlock_acquire_all('{a, some, b}', 'me', 3600, -1)});
$sessions->waiting('guard');
is($other->query(q{SELECT dlock_acquire('a', 'other', 3600) > 0, dlock_release('a', 'other')}), 't|t', 'one that waits has none either');
is($holder->query(q{SELECT count(*) FROM dlock_holders('some') h WHERE dlock_release('some', h.owner)}), 1300, 'it is free');
like($guard->answer, qr/\A\{\d+,\d+,\d+\}\z/, '... and all are taken');
is($guard->query(q{SELECT dlock_release_all('me')}), 5003, 'given back');

# many guards of many leases of sessions
is($holder->query(q{SELECT count(dlock_acquire_session_shared('guarded', 'g' || i, 3600)) FROM generate_series(1, 1000) i}),
	1000, 'sessions hold a name');
$guard->query('BEGIN');
is($guard->query(q{SELECT count(*) FROM (SELECT dlock_guard('guarded', owner, token)
	FROM dlock_holders('guarded') ORDER BY token LIMIT 400) g}), 400, 'many of the leases are guarded');
is($other->query(q{SELECT count(*) FILTER (WHERE guarded), count(*) FROM dlock_holders('guarded')}), '400|1000', 'the guards show');
is($holder->query(q{SELECT count(*) FROM generate_series(1, 900) i WHERE dlock_release('guarded', 'g' || i)}), 900, 'most are released');
is($other->query(q{SELECT count(*) FILTER (WHERE guarded), count(*) FROM dlock_holders('guarded')}), '400|500', '... and their guards stay');
is($other->query(q{SELECT dlock_acquire('guarded', 'me', 3600)}), '', '... and keep others out');
is($holder->query(q{SELECT count(*) FROM generate_series(901, 1000) i WHERE dlock_release('guarded', 'g' || i)}), 100, 'the last are released');
is($other->query(q{SELECT dlock_acquire('guarded', 'me', 3600)}), '', 'guards alone keep others out');
is($other->query(q{SELECT dlock_acquire_shared('guarded', 'me', 3600) > 0}), 't', '... as they were taken');
$guard->query('ROLLBACK');
is($other->query(q{SELECT dlock_release('guarded', 'me'), dlock_acquire('guarded', 'me', 3600) > 0}), 't|t', '... until they end');

# A session that has so many leases of one name that to remove their rows takes seconds: as
# long as to take them, of the processor's time.  It leaves most.
SKIP:
{
	my $pid = $holder->{pid};
	skip 'no /proc', 5 unless -r "/proc/$pid/stat";
	my $cpu = sub {
		my @fields = split / /, slurp_file("/proc/$pid/stat") =~ s/.*\) //sr;
		return ($fields[11] + $fields[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
	};
	my ($count, $before) = (0, $cpu->());

	while ($cpu->() < $before + 5)
	{
		$holder->query(qq{SELECT count(dlock_acquire_session_shared('left', 'l' || i, 3600)) FROM generate_series($count + 1, $count + 500) i}) == 500
		  or die $holder->error;
		$count += 500;
	}
	note "$count leases of a session";
	$other->query("SELECT pg_terminate_backend($pid)");
	is($sessions->until("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0), 0, 'it is ended');
	is($other->query(q{SELECT count(*) > 0 FROM dlock_holders('left')}), 't', '... and leaves most rows');
	is($other->query(q{SELECT dlock_is_free('left')}), 't', '... but no lease');
	like($other->query(q{SELECT dlock_acquire('left', 'me', 3600)}), qr/\A\d+\z/, 'another has the name');
	is($other->query(q{SELECT count(*) FROM dlock_holders('left')}), 1, '... and has removed the rows');
}

$_->quit for $holder, $guard, $other, $sessions->{watcher};
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
