# Patroni.pm: three PostgreSQL that Patroni manages, with etcd, and HAProxy in front:
# examples/ha/postgres, on three machines.

package Patroni;

use strict;
use warnings;

use Machines;

my $examples = 'examples/ha/postgres';
my $bin = '/usr/lib/postgresql/15/bin';

# With broken => 1 standbys are not synchronous: then grants are lost.
sub new
{
	my ($class, %options) = @_;
	return bless { %options }, $class;
}

# The service that is the server, or starts it.
sub service { return 'patroni' }

# What clients are given: for the command dlock, and for load.c.
sub url { return 'host=127.0.0.1 port=5000 dbname=app user=app' }

sub connection { return 'host=127.0.0.1 port=5000 dbname=app user=postgres' }

sub kind { return 'postgres' }

# The errors that clients may meet, as in t/453_failover.pl; and 25006 of a server that is
# no primary any more, while HAProxy has not heard of that.
sub errors { return qr/^((guard )?(57014|57P01|57P02|57P03|25006|lost)|40P01)$/ }

sub manager { return 'Patroni with etcd' }

# The configuration of the clients' HAProxy.
sub haproxy { return "$examples/haproxy.cfg" }

# Before there are machines.
sub install
{
	my ($self, $work) = @_;
	my $built = "$ENV{DLOCK_BUILT}/postgres";
	Machines::add_to('/usr/lib/postgresql/15/lib', "$built/usr/lib/postgresql/15/lib");
	Machines::add_to('/usr/share/postgresql/15/extension', "$built/usr/share/postgresql/15/extension");
	Machines::write_text("$work/pgpass", "*:*:*:postgres:change-me-1\n*:*:*:app:change-me-4\n");
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
		if ($self->{broken})
		{
			my $path = "$machine->{dir}/etc/patroni/config.yml";
			my $text = Machines::slurp($path);
			$text =~ s/synchronous_mode: true/synchronous_mode: false/ or die "$path has no synchronous_mode\n";
			Machines::write_text($path, $text);
		}
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
	$machine->run(qw(mkdir /run/postgresql /run/haproxy));
	$machine->start('etcd', 'sh', '-c', "set -a; . $machine->{dir}/etc/default/etcd; exec nice -n 10 etcd");
	$machine->start('haproxy', qw(haproxy -db -f /etc/haproxy/haproxy.cfg));
	$self->start_server($machine);
	return;
}

# If Patroni runs, it does that itself, and makes a standby of a former primary.
sub start_server
{
	my ($self, $machine) = @_;
	$machine->start('patroni', qw(nice -n 10 patroni /etc/patroni/config.yml)) if $machine->has_ended('patroni');
	return;
}

sub rejoin { return }

sub moves_back { return 0 }

# Ask one server; undef if it gives no answer.
sub ask
{
	my ($self, $machine, $sql, $database) = @_;
	$database //= 'app';
	open(my $psql, '-|', $machine->here("$bin/psql", '-X', '-A', '-t', '-q', '-d',
			"host=127.0.0.1 dbname=$database user=postgres", '-c', $sql)) or die "psql: $!\n";
	local $/;
	my $answer = <$psql>;
	close($psql) or return;
	$answer =~ s{\n\z}{};
	return $answer;
}

# What Patroni says of all; undef if nobody does.
sub members
{
	my ($self) = @_;
	for my $machine (@{ $self->{machines} })
	{
		open(my $curl, '-|', $machine->here(qw(curl -s -m 2 http://127.0.0.1:8008/cluster))) or die "curl: $!\n";
		local $/;
		my $text = <$curl> // '';
		close($curl);
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

# The server dies, and nothing else does.
sub kill_server
{
	my ($self, $machine) = @_;
	$machine->kill_all(sub { $machine->processes_of('postgres') });
	return;
}

1;
