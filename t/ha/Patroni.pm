# Patroni.pm: three PostgreSQL that Patroni manages, with etcd, and HAProxy in front:
# examples/ha/postgres, on three machines.

package Patroni;

use strict;
use warnings;

use parent 'Cluster';

use Files;
use Machines;

my $examples = 'examples/ha/postgres';
my $bin = '/usr/lib/postgresql/15/bin';

sub service { return 'patroni' }

sub process { return 'postgres' }

sub url { return 'host=127.0.0.1 port=5000 dbname=app user=app' }

sub connection { return 'host=127.0.0.1 port=5000 dbname=app user=postgres' }

# The errors that clients may meet, as in t/453_failover.pl; and 25006 of a server that is
# no primary any more, while HAProxy has not heard of that.
sub errors { return qr/^((guard )?(57014|57P01|57P02|57P03|25006|lost)|40P01)$/ }

sub manager { return 'Patroni with etcd' }

sub haproxy { return "$examples/haproxy.cfg" }

sub install
{
	my ($self, $work) = @_;
	my $built = "$ENV{DLOCK_BUILT}/postgres";
	Machines::add_to('/usr/lib/postgresql/15/lib', "$built/usr/lib/postgresql/15/lib");
	Machines::add_to('/usr/share/postgresql/15/extension', "$built/usr/share/postgresql/15/extension");
	write_text("$work/pgpass", "*:*:*:postgres:change-me-1\n*:*:*:app:change-me-4\n");
	chmod 0600, "$work/pgpass";
	$ENV{PGPASSFILE} = "$work/pgpass";
	$ENV{PGCONNECT_TIMEOUT} = 5;
	return;
}

sub set_up
{
	my ($self, @machines) = @_;
	$self->{machines} = \@machines;
	for my $machine (@machines)
	{
		$machine->holds(qw(/etc/patroni /etc/haproxy /var/lib/etcd /var/lib/postgresql));
		mkdir "$machine->{dir}/etc/default" or die "$machine->{dir}/etc/default: $!\n";
		$machine->configure("$examples/etcd", '/etc/default/etcd');
		$machine->configure("$examples/patroni.yml", '/etc/patroni/config.yml');
		$machine->configure("$examples/haproxy.cfg", '/etc/haproxy/haproxy.cfg');
		# standbys that are not synchronous: then grants are lost
		$machine->change('/etc/patroni/config.yml', qr/synchronous_mode: true/, 'synchronous_mode: false') if $self->{broken};
	}
	$self->start_services($_) for @machines;
	my $primary = Machines::until_true('there is a primary', sub { $self->primary });
	my $ask = sub { $self->ask($primary, @_) };
	$ask->(q{CREATE ROLE app LOGIN PASSWORD 'change-me-4'}, 'postgres');
	$ask->('CREATE DATABASE app', 'postgres');
	$ask->('CREATE EXTENSION dlock');
	return;
}

sub start_services
{
	my ($self, $machine) = @_;
	$machine->run(qw(mkdir /run/postgresql));
	$machine->start('etcd', 'sh', '-c', "set -a; . $machine->{dir}/etc/default/etcd; exec nice -n 10 etcd");
	$self->SUPER::start_services($machine);
	return;
}

# If Patroni runs, it does that itself, and makes a standby of a former primary.
sub start_server
{
	my ($self, $machine) = @_;
	$machine->start('patroni', qw(nice -n 10 patroni /etc/patroni/config.yml)) if $machine->has_ended('patroni');
	return;
}

# Ask one server; undef if it gives no answer.
sub ask
{
	my ($self, $machine, $sql, $database) = @_;
	$database //= 'app';
	return $self->answer_of($machine, "$bin/psql", '-X', '-A', '-t', '-q', '-d', "host=127.0.0.1 dbname=$database user=postgres", '-c', $sql);
}

# What Patroni says of all; undef if nobody does.
sub members
{
	my ($self) = @_;
	for my $machine (@{ $self->{machines} })
	{
		my $text = $self->answer_of($machine, qw(curl -s -m 2 http://127.0.0.1:8008/cluster)) // next;
		my %members;
		while ($text =~ /\{([^{}]*)\}/g)
		{
			my $member = $1;
			my ($name) = $member =~ /"name": "(\w+)"/ or next;
			$members{$name} = { map { $_ => $member =~ /"$_": "([^"]*)"/ ? $1 : '' } qw(role state) };
		}
		return \%members if %members;
	}
	return;
}

# The machine whose server is the primary, by what it says of itself; but for one that is
# cut off, and may not know.
sub primary
{
	my ($self) = @_;
	for my $machine (grep { !$_->is_away } @{ $self->{machines} })
	{
		return $machine if system($machine->here(qw(curl -s -f -o /dev/null -m 2 http://127.0.0.1:8008/primary))) == 0;
	}
	return;
}

# Whether all is as it should be: one primary, two that follow, one of them synchronous.
sub is_well
{
	my ($self) = @_;
	my $members = $self->members // return 0;
	my $primary = $self->primary // return 0;
	my $count = sub { my ($role, $state) = @_; scalar grep { $_->{role} =~ $role && $_->{state} =~ $state } values %$members };
	return $count->(qr/^leader$/, qr/^running$/) == 1
	  && $count->(qr/replica|standby/, qr/^(running|streaming)$/) == 2
	  && ($self->{broken} || $count->(qr/^sync_standby$/, qr/./) == 1)
	  && ($self->ask($primary, q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'}) // 0) == 2;
}

1;
