# GaleraMachines.pm: three MariaDB servers that are a Galera cluster, with HAProxy in
# front: examples/ha/mariadb, on three machines.

package GaleraMachines;

use strict;
use warnings;

use parent 'MysqlCluster';

use Cwd qw(abs_path);
use Machines;

my $examples = 'examples/ha/mariadb';
my @haproxy = qw(haproxy.cfg galera-check galera-check.cnf);

sub manager { return 'Galera' }

sub service { return 'mariadb' }

sub process { return 'mariadbd' }

# The first one is preferred.
sub good_servers { return 3 }

# The errors that clients may meet: those of t/mysql/cluster_load.pl.
sub errors { return qr/^(1213|3058|3572|(guard )?(1047|1105|1317|1927|2002|2003|2006|2013|4031)|guard (1180|1213))$/ }

# When the first one is back, clients are sent to it again.
sub moves_back { return 1 }

sub install
{
	my ($self, $work) = @_;
	$self->install_for($work, '/usr/lib/mysql/plugin', map { "$examples/$_" } @haproxy);
	return;
}

sub set_up
{
	my ($self, @machines) = @_;
	$self->{machines} = \@machines;
	for my $machine (@machines)
	{
		$machine->holds(qw(/etc/haproxy /etc/mysql/mariadb.conf.d /var/lib/mysql));
		$machine->configure("$examples/galera.cnf", '/etc/mysql/mariadb.conf.d/60-galera.cnf');
		$machine->configure("$examples/$_", "/etc/haproxy/$_") for @haproxy;
		# a node that is cut off goes on without the others: then there are two that grant
		$machine->change('/etc/mysql/mariadb.conf.d/60-galera.cnf', qr/(?<=wsrep_provider_options = ")/, 'pc.ignore_quorum=YES; ') if $self->{broken};
	}
	# the same for all
	$machines[0]->run(qw(sh -c), 'exec nice -n 10 mariadb-install-db --skip-test-db --auth-root-authentication-method=normal >log/install 2>&1');
	Machines::must('cp', '-a', "$machines[0]{dir}/var/lib/mysql", "$_->{dir}/var/lib") for @machines[ 1, 2 ];
	$self->start_services($machines[0], '--wsrep-new-cluster');
	Machines::until_true('the first node is there', sub { $self->is_synced($machines[0]) });
	my $ask = sub { $self->ask($machines[0], @_) // die "the first node does not do this: $_[0]\n" };
	$ask->($self->accounts);
	$machines[0]->run('sh', '-c', 'exec mariadb -u root <"$0"', abs_path('mysql_udf/install.sql'));
	$ask->($self->grants);
	# one after the other: each is given a copy
	for my $machine (@machines[ 1, 2 ])
	{
		$self->start_services($machine);
		Machines::until_true("$machine->{name} has joined", sub { $self->is_synced($machine) });
	}
	# MariaDB's plugin is each server's own
	$_->run('sh', '-c', 'exec mariadb -u root -e "$0"', q{INSTALL SONAME 'dlock'}) for @machines[ 1, 2 ];
	return;
}

# As Debian's service does it.
sub start_server
{
	my ($self, $machine, @options) = @_;
	$machine->run(qw(mkdir -p /run/mysqld));
	$machine->start('mariadb', 'sh', '-c', 'position=$(galera_recovery) && exec nice -n 10 mariadbd $position "$@"', 'mariadbd', @options);
	return;
}

# Ask one server; undef if it gives no answer.
sub ask
{
	my ($self, $machine, $sql) = @_;
	return $self->answer_of($machine, 'timeout', 10, 'sh', '-c', 'exec mariadb -u root -N -B --connect-timeout=2 -e "$0" 2>>log/ask', $sql);
}

sub is_synced
{
	my ($self, $machine, $size) = @_;
	my $status = $self->ask($machine, q{SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_local_state_comment', 'wsrep_cluster_size')})
	  // return 0;
	return $status =~ /^wsrep_ready\tON$/m && $status =~ /^wsrep_local_state_comment\tSynced$/m
	  && (!$size || $status =~ /^wsrep_cluster_size\t$size$/m);
}

# The machine whose server the clients' HAProxy sends them to.
sub primary
{
	my ($self) = @_;
	open(my $client, '-|', q{mariadb --no-defaults -h 127.0.0.1 -P 3307 -u root -N -B --connect-timeout=2 -e 'SELECT @@wsrep_node_name' 2>/dev/null})
	  or die "mariadb: $!\n";
	my $name = <$client> // '';
	close($client);
	chomp $name;
	my ($machine) = grep { $_->name eq $name } @{ $self->{machines} };
	return $machine;
}

# Whether all is as it should be: all nodes have one another, and clients are sent to the
# first one.
sub is_well
{
	my ($self) = @_;
	return 0 if grep { !$self->is_synced($_, 3) } @{ $self->{machines} };
	my $primary = $self->primary;
	return $primary && $primary == $self->{machines}[0];
}

1;
