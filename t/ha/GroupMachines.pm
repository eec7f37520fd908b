# GroupMachines.pm: three MySQL servers that are a group with one primary, with HAProxy in
# front: examples/ha/mysql, on three machines.

package GroupMachines;

use strict;
use warnings;

use parent 'MysqlCluster';

use Cwd qw(abs_path);
use Machines;

my $examples = 'examples/ha/mysql';
my @haproxy = qw(haproxy.cfg primary-check primary-check.cnf);
my $group_members = 'performance_schema.replication_group_members';

sub new
{
	my ($class, %options) = @_;
	die "a member without a majority cannot be made to go on\n" if $options{broken};
	return $class->SUPER::new(%options);
}

sub manager { return 'Group Replication with one primary' }

sub service { return 'mysql' }

sub process { return 'mysqld' }

# The errors that clients may meet: those of t/mysql/cluster_load.pl; and 1290 and 1792 of a
# server that is no primary any more, while HAProxy has not heard of that.
sub errors { return qr/^(1213|3058|3572|(guard )?(1105|1290|1317|1792|1927|2002|2003|2006|2013|3032|4031)|guard (1180|1213|3101))$/ }

# Debian has no MySQL: its programs are elsewhere.
sub install
{
	my ($self, $work) = @_;
	$self->{prefix} = $ENV{MYSQL_PREFIX};
	$self->install_for($work, "$self->{prefix}/usr/lib/mysql/plugin", map { "$examples/$_" } @haproxy);
	Machines::must('mount', '--bind', "$self->{prefix}/usr/bin/mysql", '/usr/bin/mysql');
	return;
}

sub set_up
{
	my ($self, @machines) = @_;
	my $first = $machines[0];
	$self->{machines} = \@machines;
	for my $machine (@machines)
	{
		$machine->holds(qw(/etc/haproxy /etc/mysql /var/lib/mysql));
		$machine->configure("$examples/group.cnf", '/etc/mysql/group.cnf');
		$machine->configure("$examples/$_", "/etc/haproxy/$_") for @haproxy;
	}
	# what all have in common is done once, without a trace in a binary log
	$first->run('sh', '-c', 'nice -n 10 "$@" >>log/install 2>&1', 'sh', $self->server, '--no-defaults', $self->places,
		'--initialize-insecure', '--innodb-flush-method=nosync');
	$first->start('mysql', $self->server, '--no-defaults', $self->places,
		'--socket=/run/mysql.sock', '--skip-networking', '--skip-log-bin', '--plugin-load-add=auth_socket.so', '--mysqlx=OFF');
	# on a slow disk that takes its time
	Machines::until_true('a server is there', sub { defined $self->ask($first, 'SELECT 1') });
	my $ask = sub { $self->ask($first, @_) // die "the first server does not do this: $_[0]\n" };
	$ask->(q{CREATE USER replicator@'%' IDENTIFIED BY 'change-me-3';
		GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO replicator@'%'});
	kill 'TERM', $first->processes_of('mysqld');
	Machines::until_true('it has stopped', sub { !$first->processes_of('mysqld') });
	# a server that finds none makes an identity of its own
	unlink "$first->{dir}/var/lib/mysql/data/auto.cnf" or die "auto.cnf: $!\n";
	Machines::must('cp', '-a', "$first->{dir}/var/lib/mysql/data", "$_->{dir}/var/lib/mysql/data") for @machines[ 1, 2 ];

	$self->start_services($first, '--loose-group-replication-start-on-boot=OFF');
	Machines::until_true('the first server is there', sub { defined $self->ask($first, 'SELECT 1') });
	$self->join_group($first, 'SET GLOBAL group_replication_bootstrap_group = ON');
	$ask->('SET GLOBAL group_replication_bootstrap_group = OFF');
	$ask->($self->accounts);
	$ask->("GRANT SELECT ON $group_members TO haproxy\@'%'");
	$first->run('sh', '-c', 'exec mysql -u root --socket=/run/mysql.sock <"$0"', abs_path('mysql_udf/install.sql'));
	$ask->($self->grants);
	for my $machine (@machines[ 1, 2 ])
	{
		$self->start_services($machine, '--loose-group-replication-start-on-boot=OFF');
		Machines::until_true("the server of $machine->{name} is there", sub { defined $self->ask($machine, 'SELECT 1') });
		$self->join_group($machine);
	}
	return;
}

# The program, and where it has its things; without what the configuration says.
sub server { return "$_[0]{prefix}/usr/sbin/mysqld" }

sub places
{
	my ($self) = @_;
	return ("--basedir=$self->{prefix}/usr", "--lc-messages-dir=$self->{prefix}/usr/share/mysql",
		"--character-sets-dir=$self->{prefix}/usr/share/mysql/charsets", "--plugin-dir=$self->{prefix}/usr/lib/mysql/plugin",
		'--datadir=/var/lib/mysql/data', '--secure-file-priv=');
}

# Small caches: there are three on one machine.
sub start_server
{
	my ($self, $machine, @options) = @_;
	$machine->start('mysql', qw(nice -n 10), $self->server, '--defaults-file=/etc/mysql/group.cnf', $self->places,
		qw(--socket=/run/mysql.sock --mysqlx=OFF --innodb-buffer-pool-size=64M --innodb-redo-log-capacity=32M
		  --loose-group-replication-message-cache-size=134217728), @options);
	return;
}

# Ask one server; undef if it gives no answer.
sub ask
{
	my ($self, $machine, $sql) = @_;
	return $self->answer_of($machine, 'timeout', 20, 'sh', '-c', 'exec mysql --no-defaults -u root --socket=/run/mysql.sock -N -B -e "$0" 2>>log/ask', $sql);
}

# What a member says of itself.
sub state
{
	my ($self, $machine) = @_;
	return $self->ask($machine, "SELECT member_state FROM $group_members WHERE member_id = \@\@server_uuid") // '';
}

# Enter the group, or begin it, and wait until the server has all that it has.  A group that
# is just changing refuses who asks to enter.
sub join_group
{
	my ($self, $machine, @before) = @_;
	Machines::until_true("$machine->{name} is in the group", sub {
		my $state = $self->state($machine);
		return 1 if $state eq 'ONLINE';
		$self->ask($machine, join(';', 'STOP GROUP_REPLICATION', 'SET GLOBAL offline_mode = OFF', @before,
			q{CHANGE REPLICATION SOURCE TO SOURCE_USER = 'replicator', SOURCE_PASSWORD = 'change-me-3' FOR CHANNEL 'group_replication_recovery'},
			'START GROUP_REPLICATION')) if $state ne 'RECOVERING';
		return 0;
	});
	return;
}

# The machine whose server is the primary, by what those say that are not away.
sub primary
{
	my ($self) = @_;
	for my $machine (grep { !$_->is_away } @{ $self->{machines} })
	{
		my $is_primary = $self->ask($machine, "SELECT SUM(member_id = \@\@server_uuid AND member_role = 'PRIMARY'
			AND member_state = 'ONLINE') FROM $group_members") // 0;
		return $machine if $is_primary eq '1';
	}
	return;
}

# Whether all is as it should be: all have one another.
sub is_well
{
	my ($self) = @_;
	return !grep { ($self->ask($_, "SELECT COUNT(*) FROM $group_members WHERE member_state = 'ONLINE'") // 0) ne '3' } @{ $self->{machines} };
}

# The server has given up.
sub rejoin
{
	my ($self, $machine) = @_;
	$self->join_group($machine);
	return;
}

1;
