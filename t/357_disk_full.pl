# No room is left on the disk for the lock table: a call that needs room gets an
# error, and grants nothing.  Granted leases stay, even over a crash, and calls that
# need no room work.  When there is room again, all goes on.

use strict;
use warnings;
use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use Engines;
use List::Util qw(max uniq);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $full = '53100';    # disk_full
my $is_token = qr/^\d{10,}$/;

my $node = PostgreSQL::Test::Cluster->new('disk_full');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
autovacuum = off
dlock.reap_interval = '20ms'
});

# Start the server on a disk that is full as long as that file is there.
my $flag = abs_path($node->data_dir) . '/base/full';
my %no_room = Engines::preloading('no_room', DLOCK_NO_ROOM => $flag);

sub start
{
	local %ENV = %no_room;
	$node->start;
	return;
}

sub room
{
	my ($room) = @_;

	if ($room)
	{
		unlink $flag or die "could not remove $flag: $!";
	}
	else
	{
		append_to_file($flag, '');
	}
	return;
}

start();
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $sessions = Sessions->new($node);
my ($client, $holder, @waiters) = $sessions->open(qw(client holder long short));

# What has been granted and not been given back: the token by name and owner;
# all names that were asked for; the largest token.
my (%held, %asked);
my $largest = 0;

# Strings so long that some ten rows fill a page; what follows their start is cut
# off again below.
sub long
{
	my ($string) = @_;
	return $string . '-' x (250 - length $string);
}

# Call a function that takes a lease: the answer.
sub take
{
	my ($function, $name, $owner, $more) = @_;
	my $answer = $client->query("SELECT $function('$name', '$owner', 3600" . ($more // '') . ')');

	$asked{$name} = 1;
	if ($answer =~ $is_token)
	{
		$held{ "$name $owner" =~ s/-+$//r } = $answer;
		$largest = max($largest, $answer);
	}
	return $answer;
}

sub take_long
{
	my ($i) = @_;
	return take('dlock_acquire', "n$i", long("o$i"), ", request => '" . long('r') . q{'});
}

sub release
{
	my ($session, $name, $owner) = @_;
	my $answer = $session->query("SELECT dlock_release('$name', '$owner')");
	delete $held{ "$name $owner" =~ s/-+$//r } if $answer eq 't';
	return $answer;
}

# What is held but not seen, or seen but not held.
sub differences
{
	my ($rows) = @_;
	my %seen = map { $_ => 1 } split /\n/, $rows;
	my %wanted = map { +"$_ $held{$_}" => 1 } keys %held;

	return join "\n", (map { "missing: $_" } grep { !$seen{$_} } sort keys %wanted),
	  (map { "too much: $_" } grep { !$wanted{$_} } sort keys %seen);
}

# A scan and a look at each name show just what is held.
sub is_held
{
	my ($claim) = @_;
	my $row = q{concat_ws(' ', name, rtrim(owner, '-'), token)};
	my $names = join ', ', map { "'$_'" } sort keys %asked;

	is(differences($client->query("SELECT $row FROM dlock.locks")), '', "$claim: what is held is there, and nothing else");
	is( differences($client->query(qq{SELECT $row FROM unnest(ARRAY[$names]) AS names (name),
			LATERAL (SELECT owner, token FROM dlock_holders(name)) AS holders})),
		'', "$claim: and is found by its name");
	is( $client->query("SELECT count(*) FROM unnest(ARRAY[$names]) AS name WHERE dlock_is_free(name)"),
		keys(%asked) - uniq(map { s/ .*//r } keys %held), "$claim: all other names are free");
	return;
}

# Calls on what is held, none of which needs room.
sub use_leases
{
	my ($claim, $i) = @_;
	my ($name, $owner) = ("n$i", long("o$i"));
	my $token = $held{"$name o$i"};

	is($client->query("SELECT dlock_renew('$name', '$owner', 7200, $token)"), 't', "$claim: renew");
	is($client->query("SELECT dlock_renew_all('$owner', 3600)"), 1, "$claim: renew all");
	is($client->query("SELECT dlock_acquire('$name', '$owner', 3600, request => '" . long('s') . q{')}),
		$token, "$claim: enter again");
	is($client->query("SELECT dlock_release('$name', '$owner', $token)"), 't', "$claim: give one hold back");
	is($client->query("SELECT dlock_acquire('$name', 'other', 3600)"), '', "$claim: refuse");
	$client->query('BEGIN');
	is($client->query("SELECT dlock_guard('$name', '$owner', $token)"), '', "$claim: guard");
	is($client->query('COMMIT'), '', "$claim: commit");
	is(release($client, $name, $owner), 't', "$claim: release");
	is($client->query("SELECT dlock_is_free('$name')"), 't', "$claim: it is free");
	cmp_ok(take_long($i), '>', $token, "$claim: and granted again, where it was, with a larger token");
	return;
}

# ----------------------------------------------------------------
# Before
# ----------------------------------------------------------------

like(take_long($_), $is_token, "lease $_, of a table with room") for 1 .. 20;
my $limit = ', 1000';
like(take('dlock_acquire_permit', 'crowd', "short$_", $limit), $is_token, "permit $_") for 1 .. 3;

# ----------------------------------------------------------------
# The disk is full
# ----------------------------------------------------------------

room(0);

# Buckets that have to be split.
my %count;
my @refused;
for my $i (21 .. 800)
{
	my $answer = take_long($i);
	$count{ $answer =~ $is_token ? 'granted' : $answer }++;
	push @refused, $i if $answer !~ $is_token;
	last if @refused == 12;
}
is(join(' ', sort keys %count), "$full granted", "splits: leases are granted, or there is an error");
like($client->error, qr/ERROR:  could not extend file "base.*No space left on device.*HINT:  Check free disk space/s,
	'which says why');
note("$count{granted} leases granted, $count{$full} errors");
is_held('splits');

# A bucket that needs an overflow page: shorter and shorter rows, until there is
# no room for the shortest.
for my $length (250, 100, 0)
{
	my $answer;
	for my $i (1 .. 300)
	{
		my $owner = "p$length.$i";
		$answer = take('dlock_acquire_permit', 'crowd', $owner . '-' x max(0, $length - length $owner), $limit);
		last if $answer !~ $is_token;
	}
	is($answer, $full, "overflow: an error, for an owner of $length bytes");
}
is_held('overflow');

# Many names at once, or a rewrite of the table.
my @all = map { "n$_" } @refused, 900 .. 920;
$asked{$_} = 1 for @all;
is($client->query("SELECT dlock_acquire_all(ARRAY['" . join("', '", @all) . "'], '" . long('all') . "', 3600)"),
	$full, 'many at once: an error');
is_held('many at once');
is($client->query('VACUUM FULL dlock_private.lease_table'), $full, 'VACUUM FULL: an error');
is_held('VACUUM FULL');
use_leases('full', 3);

# A place in the line, but no room for the row.  That is not the concern of whoever
# gives the lease back.
my $permits = grep { /^crowd / } keys %held;
$waiters[0]->send("SELECT dlock_acquire_permit('crowd', '" . long('w1') . "', 3600, $permits, -1)");
$sessions->waiting('long');
$waiters[1]->send("SELECT dlock_acquire_permit('crowd', 'short4', 3600, $permits, -1)");
$sessions->waiting('long', 'short');
is(release($holder, 'crowd', 'short1'), 't', 'one gives back what another waits for');
is($waiters[0]->answer, $full, 'for whom there is no room: an error');
my $token = $waiters[1]->answer;
cmp_ok($token, '>', $held{'crowd short3'}, 'the next, who needs no more than there is, is granted it');
$held{'crowd short4'} = $token;
is_held('waiting');

$waiters[0]->send("SELECT dlock_acquire_permit('crowd', '" . long('w1') . "', 3600, $permits, -1)");
$sessions->waiting('long');
is($holder->query(q{SELECT dlock_release_all('short2')}), 1, 'one gives back all he has');
delete $held{'crowd short2'};
is($waiters[0]->answer, $full, 'for whom there is no room: an error');
is_held('release all');
is($holder->query(q{SELECT dlock_renew('crowd', 'short3', 3600)}), 't', '... and what is durable after that makes it last');

# ----------------------------------------------------------------
# A crash while it is full
# ----------------------------------------------------------------

$_->quit for $client, $holder, @waiters, $sessions->{watcher};
$node->stop('immediate');
my $before = $largest;
start();
$sessions = Sessions->new($node);
($client) = $sessions->open('client');
is_held('after a crash');
is(take_long($refused[0]), $full, 'after a crash: still full');
is_held('after a crash, and an error');
use_leases('after a crash', 4);

# ----------------------------------------------------------------
# Room again
# ----------------------------------------------------------------

room(1);
my @tokens = map { take_long($_) } @refused;
is(scalar(grep { $_ =~ $is_token && $_ > $before } @tokens), scalar @refused,
	'room again: all are granted that were refused, with tokens larger than any before the crash');
like(take('dlock_acquire_permit', 'crowd', long("q$_"), $limit), $is_token, "room again: permit $_") for 1 .. 3;
is_held('room again');
use_leases('room again', 5);
is($client->query('VACUUM FULL dlock_private.lease_table'), '', 'VACUUM FULL');
is_held('room again, rewritten');
$client->query("SELECT dlock_acquire('brief', 'o', 0.001)");
is($sessions->until(q{SELECT reaped > 0 FROM dlock.stats}, 't'), 't', 'the worker is at work');
$_->quit for $client, $sessions->{watcher};

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|XX\d{3}|terminated by signal|invalid page|is damaged/, 'nothing has crashed');
done_testing();
