# Leases follow the lease clock: time down counts within a boot of the machine,
# counts as none in another, and steps of the wall clock do not count at all.
# Tokens' floor grows with every start.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $node = PostgreSQL::Test::Cluster->new('clock');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dlock.reap_interval = '50ms'
dlock.boot_id = 'first'
});

sub query
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

# Seconds that a lease has left, and the wall clock, both as the server has them.  They are
# read again if too long passed between them.
sub remaining
{
	my ($name) = @_;
	for (1 .. 1000)
	{
		# the first call of a session takes longer
		my (undef, $now, $expires, $after) = split /\n/, query(qq{
			SELECT count(*) FROM dlock_holders('$name');
			SELECT extract(epoch FROM clock_timestamp());
			SELECT extract(epoch FROM expires_at) FROM dlock_holders('$name');
			SELECT extract(epoch FROM clock_timestamp())});
		return ($expires - $now, $now) if $after - $now < 0.004;
	}
	die "the clocks cannot be read together\n";
}

sub other_boot
{
	my ($boot) = @_;

	$node->stop;
	$node->append_conf('postgresql.conf', "dlock.boot_id = '$boot'");
	$node->start;
}

$node->start;
query('CREATE EXTENSION dlock');
query(q{SELECT dlock_acquire('held', 'o', 1000)});

# The same boot: the clock goes on while the server is down.
my ($before, $then) = remaining('held');
$node->stop;
$node->start;
my ($after, $now) = remaining('held');
my $passed = $now - $then;
cmp_ok(abs($before - $after - $passed), '<', 0.05 * $passed + 0.02,
	sprintf 'same boot: %.3f s went by and %.3f s of the lease', $passed, $before - $after);
$node->stop('immediate');
$node->start;
($after, $now) = remaining('held');
$passed = $now - $then;
cmp_ok(abs($before - $after - $passed), '<', 0.05 * $passed + 0.02,
	'same boot: also after a crash');

# A lease may end while the server is down.
query(q{SELECT dlock_acquire('brief', 'o', 0.001)});
$node->restart;
ok($node->poll_query_until('postgres', q{SELECT dlock_is_free('brief')}), 'same boot: a lease ends while the server is down');

# Another boot: no time was spent between the last mark and the start.
for my $mode ('fast', 'immediate')
{
	# marks are a second apart at most while there are calls
	query(q{SELECT dlock_renew('held', 'o', 1000)});
	($before, $then) = remaining('held');
	$node->stop($mode);
	$node->append_conf('postgresql.conf', "dlock.boot_id = 'after $mode'");
	$node->start;
	($after, $now) = remaining('held');
	$passed = $now - $then;
	cmp_ok($after, '>=', $before - $passed - 0.02, "another boot after stop $mode: no lease ends early");
	cmp_ok($after, '<=', 1000 + 60, '... nor very late');
	# it was renewed between these two times
	my ($renewed, $from, $until) = split /\|/, query(q{
		SELECT dlock_renew('held', 'o', 500), extract(epoch FROM statement_timestamp()), extract(epoch FROM clock_timestamp())});
	is($renewed, 't', '... and it can be renewed');
	($after, $now) = remaining('held');
	cmp_ok($after, '<=', 500 - ($now - $until) + 0.02, '... to a deadline on the new clock');
	cmp_ok($after, '>=', 500 - ($now - $from) - 0.02, '... and no earlier one');
}

# A mark that is long ago, as of a server that was down for years.
query(q{SELECT dlock_renew('held', 'o', 1000), dlock_acquire('short', 'o', 600)});
other_boot('years later');
is(query(q{SELECT dlock_owner('short')}), 'o', 'another boot: a short lease is still held after it');
is(query(q{SELECT dlock_acquire('short', 'other', 1) IS NULL}), 't', '... and excludes others');
query(q{SELECT dlock_acquire('ends', 'o', 0.05)});
ok($node->poll_query_until('postgres', q{SELECT dlock_acquire('ends', 'other', 60) IS NOT NULL}),
	'the clock goes on in the new boot');

# Back on the first machine: its boot is another one by now.
($before, $then) = remaining('held');
other_boot('first');
($after, $now) = remaining('held');
cmp_ok($after, '>=', $before - ($now - $then) - 0.02, 'back in a boot that was left: no lease ends early');

# The floor.
my $token = query(q{SELECT dlock_acquire('floor', 'o', 0.001)});
for my $mode ('fast', 'immediate', 'fast')
{
	$node->stop($mode);
	$node->start;
	$node->poll_query_until('postgres', q{SELECT dlock_is_free('floor')}) or die;
	my $next = query(q{SELECT dlock_acquire('floor', 'o', 0.001)});
	cmp_ok($next, '>=', $token + 2**20, "tokens grow by a step over stop $mode");
	cmp_ok(query(q{SELECT dlock_acquire('never held ' || clock_timestamp(), 'o', 1)}),
		'>=', $token + 2**20, '... those of other names too');
	$token = $next;
}

# The other way of logging does the same, and one can be turned into the other.
for my $generic ('on', 'off')
{
	is(query(qq{SET dlock.generic_wal = $generic;
		SELECT dlock_acquire('gone', 'o', 60) > 0, dlock_release('gone', 'o'),
			dlock_acquire('logged $generic', 'o', 3600) > 0,
			dlock_acquire('logged $generic', 'o', 3600) > 0, dlock_renew('held', 'o', 1000)}),
		't|t|t|t|t', "dlock.generic_wal = $generic");
	$node->stop('immediate');
	$node->start;
	is(query(qq{SELECT version, dlock_owner('held') FROM dlock_holders('logged $generic')}),
		'2|o', '... survives a crash');
	is(query(q{SELECT dlock_is_free('gone')}), 't', '... and so does a release that something durable came after');
}
$node->stop;

# The wall clock, under a library that pretends another one.
{
	my ($library) = grep { -e } glob '/usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1';

	die "libfaketime is not installed\n" unless $library;
	my $clock = $node->basedir . '/clock';
	my $step = sub {
		my ($offset) = @_;
		my $old = query('SELECT extract(epoch FROM clock_timestamp())');

		open my $handle, '>', "$clock.new" or die $!;
		print $handle "$offset\n";
		close $handle or die $!;
		rename "$clock.new", $clock or die $!;
		$old;
	};
	open my $handle, '>', $clock or die $!;
	print $handle "+0\n";
	close $handle;
	{
		local %ENV = (
			%ENV,
			LD_PRELOAD => $library,
			FAKETIME_TIMESTAMP_FILE => $clock,
			FAKETIME_NO_CACHE => 1,
			FAKETIME_DONT_FAKE_MONOTONIC => 1,
			DONT_FAKE_MONOTONIC => 1);
		$node->start;
	}
	query(q{SELECT dlock_renew('held', 'o', 1000)});
	for my $offset ('+3600', '-3600', '+0')
	{
		my $began = clock_gettime(CLOCK_MONOTONIC);
		my ($left) = remaining('held');
		my $old = $step->($offset);
		my $new = query('SELECT extract(epoch FROM clock_timestamp())');

		cmp_ok(abs($new - $old), '>', 3000, "the wall clock is stepped to $offset");
		my ($after) = remaining('held');
		my $passed = clock_gettime(CLOCK_MONOTONIC) - $began;
		cmp_ok($after, '>=', $left - $passed - 1, '... which does not end a lease sooner');
		cmp_ok($after, '<=', $left + 1, '... nor stretches it');
		query(q{SELECT dlock_acquire('ending', 'o', 0.05)});
		ok($node->poll_query_until('postgres', q{SELECT dlock_acquire('ending', 'p', 0.05) IS NOT NULL}),
			'... and others still end in time');
		$node->poll_query_until('postgres', q{SELECT dlock_is_free('ending')}) or die;
	}
	$node->stop;
}

done_testing();
