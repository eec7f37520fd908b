# A primary with two standbys, of which any one has to confirm, is killed under
# load, again and again: the standby that is ahead is promoted, the other one
# follows it, and the old primary is rewound and becomes a standby; sometimes the
# new primary is killed before that.  No lease that a client was told of is lost.
# Then the same without synchronous standbys: the newest leases may be lost, but
# tokens grow.  "make torture" makes it long.

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use Torture;

my %node;
my $primary = 'one';
$node{one} = PostgreSQL::Test::Cluster->new('one');
$node{one}->init(allows_streaming => 1);
$node{one}->append_conf('postgresql.conf', q{
shared_preload_libraries = 'dlock'
shared_buffers = 4MB
max_connections = 60
wal_log_hints = on
wal_keep_size = 512MB
wal_retrieve_retry_interval = 100ms
wal_consistency_checking = 'generic'
dlock.reap_interval = '200ms'
dlock.log_expired = off
log_statement = none
});
$node{one}->start;
$node{one}->safe_psql('postgres', 'CREATE EXTENSION dlock');
$node{one}->backup('backup');
for my $name ('two', 'three')
{
	$node{$name} = PostgreSQL::Test::Cluster->new($name);
	$node{$name}->init_from_backup($node{one}, 'backup', has_streaming => 1);
	$node{$name}->start;
}

sub others { return grep { $_ ne $_[0] } sort keys %node }

# Until a query answers yes.
sub becomes
{
	my ($name, $query, $what) = @_;
	for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($status, $answer) = $node{$name}->psql('postgres', $query);
		return if $status == 0 && $answer eq 't';
		usleep(50_000);
	}
	die "$name: $what\n";
}

sub streams
{
	my ($count) = @_;
	becomes($primary, "SELECT count(*) = $count FROM pg_stat_replication WHERE state = 'streaming'",
		"it does not have $count standbys");
	return;
}

sub follow
{
	my ($name) = @_;
	$node{$name}->append_conf('postgresql.conf',
		"primary_conninfo = '" . $node{$primary}->connstr . " application_name=$name'");
	return;
}

# How far a standby has come.  Its primary is dead: first it has to notice.  It
# may have half a record, which it will never replay; and what it has received
# is counted anew on a new timeline.
sub position
{
	my ($name) = @_;
	becomes($name, q{SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')},
		'it does not notice that its primary is gone');
	return $node{$name}->safe_psql('postgres',
		q{SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'});
}

# Kill the primary and promote the best of these standbys; the others follow.
sub fail_over
{
	my (@standbys) = @_;
	my $old = $primary;

	Torture::kill_postgres($node{$old});
	my %position = map { $_ => position($_) } @standbys;
	($primary) = sort { $position{$b} <=> $position{$a} || $a cmp $b } @standbys;
	$node{$primary}->promote;
	for my $name (grep { $_ ne $primary } @standbys)
	{
		follow($name);
		$node{$name}->reload;
	}
	note("$old was killed, $primary is the primary now: " . join(', ', map { "$_ at $position{$_}" } @standbys));
	return $old;
}

# Make a killed primary a standby of the one there is.
sub rejoin
{
	my ($name) = @_;
	my $data = $node{$name}->data_dir;

	# so that it can be seen that there is a new timeline
	$node{$primary}->safe_psql('postgres', 'CHECKPOINT');
	# pg_rewind brings the other's
	copy("$data/postgresql.conf", "$data.conf") or die "could not copy the settings of $name: $!\n";
	system_or_bail('pg_rewind', '--target-pgdata', $data, '--source-server', $node{$primary}->connstr('postgres'));
	copy("$data.conf", "$data/postgresql.conf") or die "could not copy the settings of $name: $!\n";
	follow($name);
	$node{$name}->set_standby_mode;
	$node{$name}->start;
	return;
}

sub set_synchronous
{
	my ($names) = @_;
	for my $name (sort keys %node)
	{
		$node{$name}->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
		$node{$name}->reload;
	}
	becomes($primary, "SELECT setting = '$names' FROM pg_settings WHERE name = 'synchronous_standby_names'",
		'it does not take its settings');
	return;
}

my @names = sort keys %node;
my $torture = Torture->new(
	kind => 'postgres',
	connection => join(' ', 'dbname=postgres target_session_attrs=read-write',
		'host=' . join(',', map { $node{$_}->host } @names),
		'port=' . join(',', map { $node{$_}->port } @names)),
	allowed => qr/^((guard )?(57014|57P01|57P02|57P03|lost)|40P01)$/);

sub some_failovers
{
	my ($count) = @_;
	for my $number (1 .. $count)
	{
		streams(2);
		$torture->let_work(2);
		my @killed;
		$torture->disturb('failover', sub { push @killed, fail_over(others($primary)) });

		# there are acknowledged leases again once the other one follows
		if ($number % 2 == 0)
		{
			streams(1);
			$torture->let_work(1);
			my ($last) = grep { $_ ne $killed[0] } others($primary);
			$torture->disturb('failover at once', sub { push @killed, fail_over($last) });
		}
		rejoin($_) for @killed;
	}
	streams(2);
	$torture->let_work(2);
	return;
}

my $synchronous = 'ANY 1 (' . join(', ', @names) . ')';
my $long = $ENV{TORTURE_MINUTES};
set_synchronous($synchronous);
streams(2);
if (!$long)
{
	$torture->rounds(1, sub { some_failovers(2) });
	set_synchronous('');
	$torture->{lossy} = 1;
	$torture->rounds(1, sub { some_failovers(1) });
}
else
{
	# one round of four without
	my $round = 0;
	$torture->rounds(undef, sub {
		$torture->{lossy} = ++$round % 4 == 0;
		set_synchronous($torture->{lossy} ? '' : $synchronous);
		some_failovers(6);
	});
}
$torture->summary;

$node{$_}->stop('immediate') for sort keys %node;
done_testing();
