# A server that runs long.  The clients of a load wait, are cancelled and killed;
# others come, make every kind of call, mistakes too, and go, some without closing.
# The library gets no more memory, the server no more files, and nothing is left in
# the lock table.  The kind of server is the argument; TORTURE_MINUTES makes it long.
#
# The server itself takes more memory for some rounds, until it has what it needs.  So
# the test counts the library's memory alone (count_memory.c), at rest between the
# rounds.  In a round a buffer may have grown larger than ever; but after some rounds
# one must leave no more pieces of memory, and less than a byte for each of its
# grants; in a long run one of the last ten.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use Engines;
use File::Temp qw(tempdir);
use List::Util qw(sum0);
use Relinked;
use Resources;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);
use Torture;

my ($kind) = @ARGV;
my $long = $ENV{TORTURE_MINUTES};
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
# the server may be another user's
chmod 0711, $dir;
my @wrapped = map { "-Wl,--wrap=$_" } qw(malloc calloc realloc free strdup);
my $built = BuiltOnce::folder($dir, 'count_memory', sub { Relinked::build($_[0], 'count_memory', {}, @wrapped) });
$ENV{DLOCK_LIBRARY} = "$built/dlock.so";
$ENV{DLOCK_COUNT_MEMORY} = "$dir/memory";
open(my $counted, '+>:raw', $ENV{DLOCK_COUNT_MEMORY}) or die "could not create $ENV{DLOCK_COUNT_MEMORY}: $!\n";
syswrite($counted, pack('q2', 0, 0)) == 16 or die "could not write $ENV{DLOCK_COUNT_MEMORY}: $!\n";
chmod 0666, $ENV{DLOCK_COUNT_MEMORY};

# The server takes more and more memory until its buffers are full.  What it frees may
# stay with glibc, and the more so, the more heaps there are; by default many threads
# have one of their own.
$ENV{GLIBC_TUNABLES} = 'glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=131072';
my $engine = Engines::start($kind, '--innodb-buffer-pool-size=16M', Engines::performance_schema($kind));
$engine->write_settings(reap_interval => 1);
$engine->crash;

sub sql { return $engine->control->value($_[0]) }

# MySQL's 1105: KILL QUERY has met the UPDATE of a guard
my $guard_errors = $kind eq 'mysql' ? '(1105|1213)' : '1213';
my $torture = Torture->new(
	kind => $kind,
	connection => "$engine->{dir}/socket",
	clients => 8, names => 4, disturbed => 0,
	allowed => qr/^(3058|(guard )?(1317|1927|2006|2013|4031)|guard $guard_errors)$/,
	undecided => 3572);
my $visitors = 0;

# Somebody who comes and goes: each a new owner with a new name.
sub visit
{
	my $number = ++$visitors;
	my $client = $engine->client("visitor$number");
	my ($name, $who) = ("visit-$number", "'visitor-$number'");
	my $right = sub {
		my ($call, $wanted) = @_;
		my $answer = $client->query(($call =~ /^dlock/ ? 'SELECT ' : '') . $call);
		my $is = $answer->{error} // $answer->{rows}[0][0] // '';
		return $is if $is =~ $wanted;
		fail("$call is answered $is" . (defined $answer->{error} ? ": $answer->{message}" : ''));
		return 0;
	};

	$right->("dlock_acquire_session('$name session', $who, 600)", qr/^\d+$/);
	my $token = $right->("dlock_acquire('$name', $who, 600, 600, 'r')", qr/^\d+$/);
	$right->("dlock_acquire('$name', $who, 600, 600, 'r')", qr/^$token$/);
	$right->("dlock_renew('$name', $who, 600, $token)", qr/^1$/);
	$right->('BEGIN', qr/^$/);
	$right->("CALL dlock.guard('$name', $who, $token)", qr//);
	$right->('COMMIT', qr/^$/);
	$right->("dlock_acquire_shared('$name shared', $who, 600)", qr/^\d+$/);
	$right->("dlock_acquire_permit('$name permit', $who, 600, 2)", qr/^\d+$/);
	$right->("dlock_acquire_all('[\"$name a\", \"$name b\"]', $who, 600)", qr/^\[/);
	$right->("dlock_holders('$name')", qr/^\[/);
	$right->("dlock_owner('$name')", qr/visitor/);
	$right->("dlock_wait('$name', 0)", qr/^0$/);
	$right->("dlock_acquire('', $who, 600)", qr/^3037 /);
	$right->("dlock_acquire('$name', 'another', 30, -1, repeat('r', 256))", qr/^3037 /);
	$right->("dlock_acquire_all('[', $who, 600)", qr/^\d+ /);
	my $many = $long ? 20 : 100;
	$right->("WITH RECURSIVE many (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < $many)
		SELECT sum(dlock_acquire(concat('$name ', n), $who, 600) > 0 AND dlock_release(concat('$name ', n), $who)) FROM many",
		qr/^$many$/);
	$right->("dlock_release('$name', $who, $token)", qr/^1$/);
	$right->("dlock_release_all($who)", qr/^\d+$/) if $number % 2;
	# left to their deadlines, but for that of the session
	$right->("dlock_renew_all($who, 0.1)", qr/^\d+$/) if $number % 2 == 0;
	$number % 3 ? $client->quit : $client->kill;
	return;
}

# How many pieces of memory the library has, and how many bytes.
sub memory
{
	sysseek($counted, 0, 0);
	sysread($counted, my $numbers, 16) == 16 or die "could not read $ENV{DLOCK_COUNT_MEMORY}: $!\n";
	return unpack('q2', $numbers);
}

# When nothing is held and nobody waits: the library's memory, and how many grants
# there were.
sub rest
{
	ok(Scenarios::Run::until(sub {
		sql('SELECT (SELECT count(*) FROM dlock.locks) + (SELECT count(*) FROM dlock.waiters)') == 0
	}), 'nothing is held, and nobody waits');
	is(sql('SELECT dlock_settle()'), 1, 'all is written');
	my ($pieces, $bytes) = memory();
	return { pieces => $pieces, bytes => $bytes, grants => sql('SELECT acquired FROM dlock.stats') };
}

# What MySQL counts of its own memory: kilobytes by what they are for.
sub memory_of_server
{
	return {} if $kind ne 'mysql';
	return { map { $_->[0] => $_->[1] } @{ $engine->control->query('SELECT event_name, current_number_of_bytes_used DIV 1024
		FROM performance_schema.memory_summary_global_by_event_name WHERE current_number_of_bytes_used > 0')->{rows} } };
}

# What is there after the first round is what a server needs; in a long run, after
# some minutes.
my ($early, $early_memory, $rounds) = (undef, undef, 0);
my ($before, @grows);

# Of which memory of MySQL's there is most more.
sub note_growth
{
	my ($now) = @_;
	my %more = map { $_ => $now->{$_} - ($early_memory->{$_} // 0) } keys %$now;
	my @most = grep { defined } (sort { $more{$b} <=> $more{$a} } keys %more)[ 0 .. 9 ];
	diag("kB more: $more{$_} $_") for @most;
	return;
}

# Say whether one of the last rounds left no more than there was.
sub does_not_grow { return scalar grep { !$_ } @grows }

$torture->rounds(20, sub {
	my $end = Torture::now() + 60e6;
	for (my $visits = 0; $long ? Torture::now() < $end : $visits < 15; $visits++)
	{
		visit();
		usleep($long ? 300_000 : 20_000);
	}
	($early, $early_memory) = (Resources::of($engine->pid), memory_of_server()) if $rounds++ <= ($long ? 2 : 0);
}, sub {
	my $now = rest();
	if ($before)
	{
		my $grants = $now->{grants} - $before->{grants};
		push @grows, $now->{pieces} > $before->{pieces} || $now->{bytes} - $before->{bytes} >= $grants;
		shift @grows if @grows > ($long ? 10 : 1);
		note("the library's memory: pieces $before->{pieces} to $now->{pieces}, bytes $before->{bytes} to $now->{bytes}, $grants grants");
	}
	$before = $now if !$long || $rounds <= 3;
	return does_not_grow();
});
ok(does_not_grow(), 'a long life: the memory of the library does not grow');
# The server keeps some of what it has once needed, and gets some in half an hour.  On MySQL,
# InnoDB keeps as much for locks as so many sessions ever had at a time, which is the more, the
# slower the machine is.  MySQL says what its memory is for, so all else is looked at there.
my $most = 8 * 1024;
my $late_memory = memory_of_server();
my $counts_itself = $long && %$late_memory;
Resources::have_not_grown($early, Resources::of($engine->pid), 'a long life',
	kilobytes => $long && !$counts_itself ? $most : 'any') or note_growth($late_memory);
if ($counts_itself)
{
	my $more = sum0(map { $late_memory->{$_} - ($early_memory->{$_} // 0) }
		grep { !m{^memory/(innodb|performance_schema)/} } keys %$late_memory);
	cmp_ok($more, '<', $most, 'a long life: nor does what the server has, but for InnoDB') or note_growth($late_memory);
}
$torture->summary;

my $grants = sql('SELECT acquired FROM dlock.stats');
cmp_ok($grants, '>', 20 * $visitors, 'there were many grants');
$long ? diag("$grants grants, $visitors visitors") : note("$grants grants, $visitors visitors");
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.locks') == 0 }), 'nothing is held');
is(sql('SELECT count(*) FROM dlock.waiters'), 0, 'nobody waits');

$engine->stop;
done_testing();
