# Standbys.pm: a PostgreSQL primary with two standbys, for tests in which the primary is
# lost and another server takes its place.
#
#   my $all = Standbys->new($settings);       "one", with dlock, and its standbys
#                                             "two" and "three"
#   $all->set_synchronous('ANY 1 (one, two, three)');
#   $all->streams(2);                         until so many standbys are there
#   $all->primary                             the node, and its name:
#   $all->{primary}
#   $all->most_advanced('two', 'three');      the one that is to take over
#   $all->promote('two', 'three');            it does, and the other follows it
#   $all->rejoin('one');                      with pg_rewind, as a standby
#
# This does what a tool for failovers does, as in doc/high-availability.md.

package Standbys;

use strict;
use warnings;

use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

sub new
{
	my ($class, $settings) = @_;
	my $self = bless { primary => 'one' }, $class;
	my $primary = $self->{node}{one} = PostgreSQL::Test::Cluster->new('one');

	$primary->init(allows_streaming => 1);
	$primary->append_conf('postgresql.conf', qq{
wal_log_hints = on
wal_keep_size = 512MB
wal_retrieve_retry_interval = 100ms
dlock.log_expired = off
$settings});
	$primary->start;
	$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
	$primary->backup('backup');
	for my $name ('two', 'three')
	{
		my $standby = $self->{node}{$name} = PostgreSQL::Test::Cluster->new($name);
		$standby->init_from_backup($primary, 'backup', has_streaming => 1);
		$standby->start;
	}
	return $self;
}

sub names
{
	my ($self) = @_;
	return sort keys %{ $self->{node} };
}

sub others
{
	my ($self) = @_;
	return grep { $_ ne $self->{primary} } $self->names;
}

sub nodes
{
	my ($self) = @_;
	return map { $self->{node}{$_} } $self->names;
}

sub primary
{
	my ($self) = @_;
	return $self->{node}{ $self->{primary} };
}

# Wait until a query answers yes.
sub becomes
{
	my ($self, $name, $query, $what) = @_;
	for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($status, $answer) = $self->{node}{$name}->psql('postgres', $query);
		return if $status == 0 && $answer eq 't';
		usleep(50_000);
	}
	die "$name: $what\n";
}

sub streams
{
	my ($self, $count) = @_;
	$self->becomes($self->{primary}, "SELECT count(*) = $count FROM pg_stat_replication WHERE state = 'streaming'",
		"it does not have $count standbys");
	return;
}

sub set_synchronous
{
	my ($self, $names) = @_;
	for my $node ($self->nodes)
	{
		$node->append_conf('postgresql.conf', "synchronous_standby_names = '$names'");
		$node->reload;
	}
	$self->becomes($self->{primary},
		"SELECT setting = '$names' FROM pg_settings WHERE name = 'synchronous_standby_names'",
		'it does not take its settings');
	return;
}

sub follow
{
	my ($self, $name) = @_;
	$self->{node}{$name}->append_conf('postgresql.conf',
		"primary_conninfo = '" . $self->primary->connstr . " application_name=$name'");
	return;
}

# How far a standby has come.  Its primary is lost, and it has to notice that first.  It
# may have half a record, which it will never replay; and on a new timeline what it has
# received is counted anew.
sub position
{
	my ($self, $name) = @_;
	$self->becomes($name, q{SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')},
		'it does not notice that its primary is gone');
	return $self->{node}{$name}->safe_psql('postgres',
		q{SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'});
}

# The standby that should take over.
sub most_advanced
{
	my ($self, @standbys) = @_;
	my %position = map { $_ => $self->position($_) } @standbys;
	my ($best) = sort { $position{$b} <=> $position{$a} || $a cmp $b } @standbys;

	note("$self->{primary} is lost, $best is to be the primary: " . join(', ', map { "$_ at $position{$_}" } @standbys));
	return $best;
}

# Make a standby the primary, which others follow.
sub promote
{
	my ($self, $name, @others) = @_;

	$self->{primary} = $name;
	$self->primary->promote;
	for my $other (@others)
	{
		$self->follow($other);
		$self->{node}{$other}->reload;
	}
	return;
}

# Make a former primary, which does not run, a standby of the one there is.
sub rejoin
{
	my ($self, $name) = @_;
	my $node = $self->{node}{$name};
	my $data = $node->data_dir;

	# so that the new timeline can be seen
	$self->primary->safe_psql('postgres', 'CHECKPOINT');
	# pg_rewind brings the other's
	copy("$data/postgresql.conf", "$data.conf") or die "could not copy the settings of $name: $!\n";
	system_or_bail('pg_rewind', '--no-sync', '--target-pgdata', $data,
		'--source-server', $self->primary->connstr('postgres'));
	copy("$data.conf", "$data/postgresql.conf") or die "could not copy the settings of $name: $!\n";
	$self->follow($name);
	$node->set_standby_mode;
	$node->start;
	return;
}

1;
