# Replicas.pm: servers of a kind, MariaDB or MySQL, that have a binary log and can follow
# each other.
#
#   my $source = Replicas->start($kind);
#   $source->install;
#   my $replica = Replicas->start($kind, '--read-only=ON');
#   $replica->follow($source);
#   $replica->catch_up($source);
#   $replica->complete;

package Replicas;

use strict;
use warnings;

use Engines;
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use FreePorts;
use Scenarios;
our @ISA = ('Engines::MySQL');
my @started;

END
{
	my $status = $?;
	for my $self (grep { $_->{owner} == $$ } @started)
	{
		$self->stop;
		$self->keep_log("$self->{kind}-replica$self->{number}-$$");
	}
	$? = $status;
}

# A server without dlock, except for the library.
sub start
{
	my ($class, $kind, @options) = @_;
	my $self = bless { kind => $kind, options => \@options, number => 1 + @started, owner => $$ }, $class;
	($self->{port}) = FreePorts::reserve(1);
	$self->{dir} = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	mkdir "$self->{dir}/plugins" or die "could not make $self->{dir}/plugins: $!\n";
	system('install', '-m', '755', $ENV{DLOCK_LIBRARY} // 'mysql_udf/dlock.so', "$self->{dir}/plugins/dlock.so") == 0
	  or die "could not install the library\n";
	push @started, $self;
	$self->boot;
	return $self;
}

sub boot
{
	my ($self) = @_;
	my @options = ('--skip-networking=OFF', '--bind-address=127.0.0.1', "--port=$self->{port}",
		"--server-id=$self->{number}", '--log-bin=binlog');
	# the plugin is not installed by way of the binary log
	push @options, $self->is_mariadb ? ('--gtid-strict-mode=ON', '--log-slave-updates=ON')
	  : ('--gtid-mode=ON', '--enforce-gtid-consistency=ON', '--plugin-load-add=auth_socket.so');
	system('dev/mysql-server', $self->{kind}, $self->{dir}, $self->quick_start, @options, @{ $self->{options} }) == 0
	  or die "could not start $self->{kind}\n";
	return;
}

sub follow
{
	my ($self, $source, %options) = @_;
	my $control = $self->control;
	my $demoted = $options{demoted} ? ', MASTER_DEMOTE_TO_SLAVE = 1' : '';
	$control->value($self->is_mariadb
		? "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = $source->{port}, MASTER_USER = 'follower',
			MASTER_PASSWORD = 'follower', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos$demoted"
		: "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = $source->{port}, SOURCE_USER = 'follower',
			SOURCE_PASSWORD = 'follower', SOURCE_CONNECT_RETRY = 1, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1");
	$control->value('START ' . ($self->is_mariadb ? 'SLAVE' : 'REPLICA'));
	return;
}

sub stop_following
{
	my ($self) = @_;
	$self->control->value('STOP ' . ($self->is_mariadb ? 'SLAVE' : 'REPLICA'));
	return;
}

# Apply what is there, and receive no more.
sub stop_receiving
{
	my ($self) = @_;
	$self->control->value('STOP ' . ($self->is_mariadb ? 'SLAVE' : 'REPLICA') . ' IO_THREAD');
	return;
}

# Its plugin is not in the binary log.
sub complete
{
	my ($self) = @_;
	$self->control->value(q{INSTALL SONAME 'dlock'}) if $self->is_mariadb;
	$self->make_ready;
	return;
}

# Wait until it has all that another one has now.
sub catch_up
{
	my ($self, $source) = @_;
	$self->_await($source->control->value('SELECT ' . ($self->is_mariadb ? '@@gtid_binlog_pos' : '@@gtid_executed')));
	return;
}

# Wait until it has applied transactions with these GTIDs.
sub _await
{
	my ($self, $position) = @_;
	$position =~ s/\s|\\n//g;
	my $patience = Scenarios::PATIENCE - 10;    # its client has no more
	my $got = $self->control->value($self->is_mariadb ? "SELECT MASTER_GTID_WAIT('$position', $patience)"
		: "SELECT WAIT_FOR_EXECUTED_GTID_SET('$position', $patience)");
	die "the replica does not follow: $got\n" . $self->complaint unless $got eq '0';
	return;
}

# Wait until it has applied what it has received, whose source is gone.
sub apply_received
{
	my ($self) = @_;
	my $status = `$self->{dir}/mysql --defaults-file=$self->{dir}/client.cnf -E -e "SHOW @{[ $self->is_mariadb ? 'SLAVE' : 'REPLICA' ]} STATUS"`;
	my ($position) = $status =~ /^ *(?:Gtid_IO_Pos|Retrieved_Gtid_Set): ((?:.*,\n)*.*)$/m or die "no replica: $status\n";
	$self->_await($position);
	return;
}

# Have its data gone, of a server that is down for good.
sub forget
{
	my ($self) = @_;
	remove_tree("$self->{dir}/data");
	return;
}

# Kill the server, which stays down.
sub crash { return $_[0]->kill_server }

# Why it does not follow.
sub complaint
{
	my ($self) = @_;
	my $answer = $self->control->query($self->is_mariadb ? 'SHOW SLAVE STATUS'
		: 'SELECT last_error_message FROM performance_schema.replication_applier_status_by_worker');
	return join("\n", map { join(' ', grep { $_ ne '' } @$_) } @{ $answer->{rows} }) . "\n";
}

sub is_mariadb { return $_[0]{kind} eq 'mariadb' }

# Install dlock, and make the accounts that the tests use, and replicas.
sub install
{
	my ($self) = @_;
	$self->control->value(q{
		CREATE USER follower@'127.0.0.1' IDENTIFIED BY 'follower';
		GRANT REPLICATION SLAVE ON *.* TO follower@'127.0.0.1'});
	$self->SUPER::install;
	$self->make_ready;
	return;
}

1;
