# GroupReplication.pm: MySQL servers of one group, all on this machine.  A node is
# an engine like those in Engines.pm.
#
#   my @nodes = GroupReplication::start(3, single_primary => 1);
#
# Any process may stand still for seconds on a busy machine, so nobody expels a silent member,
# or gives up when there is no majority.  Before a test kills a member, or cuts it off, it
# says give_up_late(0), and give_up_late(1), or come_back(), afterwards: in between a silent
# member is expelled at once, and one without a majority fails after "majority_timeout"
# seconds.  With "apart" the servers do not know each other yet, and lack the plugin.  "workers"
# says how many apply what others have committed.

package GroupReplication;

use strict;
use warnings;
our @ISA = ('Engines::MySQL');

use Engines;
use File::Temp qw(tempdir);
use FreePorts;
use Processes;
use Scenarios;

my $group_name = 'd10c4d10-c4d1-4c4d-8c4d-d10c4d10c4d1';
my (@nodes, @preloaded);

# Why there can be no group of a kind of server; undef if there can.
sub reason_not
{
	my ($kind) = @_;
	return $kind eq 'mysql' ? undef : 'Group Replication is of MySQL only';
}

sub start
{
	my ($count, %options) = @_;
	my @ports = FreePorts::reserve(2 * $count);
	my $first;

	for my $i (0 .. $count - 1)
	{
		push @nodes, bless {
			kind => 'mysql', number => $i, owner => $$, options => \%options,
			port => $ports[ 2 * $i ], group_port => $ports[ 2 * $i + 1 ] }, __PACKAGE__;
	}
	@preloaded = map { Engines::preloaded($_) } 'cut_off', 'hold_expelled';
	$_->make_directory for @nodes;
	$first = $nodes[0];
	$first->make_data;
	$first->copy_data($_) for @nodes[ 1 .. $#nodes ];
	$_->boot for @nodes;
	return @nodes if $options{apart};
	$first->join_group(bootstrap => 1);
	gather();
	return @nodes;
}

END
{
	my $status = $?;
	for my $node (grep { $_->{owner} == $$ && $_->{dir} } @nodes)
	{
		# leaving the group one after the other would take long
		eval { $node->crash if $node->pid; 1 } or warn $@;
		$node->keep_log("group$node->{number}-$$");
	}
	$? = $status;
}

# The library has to be there before the functions are: CREATE FUNCTION is done
# on all nodes.
sub make_directory
{
	my ($self) = @_;
	my $dir = $self->{dir} = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	mkdir "$dir/plugins" or die "could not make $dir/plugins: $!\n";
	system('install', '-m', '755', 'mysql_udf/dlock.so', "$dir/plugins/dlock.so") == 0
	  or die "could not install the library\n";
	return;
}

# A node's data, with the account with which others recover.
sub make_data
{
	my ($self) = @_;
	system('dev/mysql-server', 'mysql', $self->{dir}, '--skip-log-bin') == 0
	  or die "could not make a server\n";
	$self->control->value(q{
		CREATE USER recovery@'127.0.0.1' IDENTIFIED BY 'recovery';
		GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM
			ON *.* TO recovery@'127.0.0.1'});
	$self->stop;
	# a server that finds none makes an identity of its own
	unlink "$self->{dir}/data/auto.cnf" or die "could not remove auto.cnf: $!\n";
	return;
}

sub copy_data
{
	my ($self, $to) = @_;
	system('cp', '-a', "$self->{dir}/data", "$to->{dir}/data") == 0 or die "could not copy data\n";
	return;
}

# Start the server, without joining a group.
sub boot
{
	my ($self) = @_;
	my $single = $self->{options}{single_primary} ? 'ON' : 'OFF';
	my $everywhere = $self->{options}{single_primary} ? 'OFF' : 'ON';
	my @plugin = $self->{options}{apart} ? () : '--plugin-load-add=group_replication.so';
	local $ENV{LD_PRELOAD} = join(':', @preloaded, $ENV{LD_PRELOAD} // ());
	local $ENV{DLOCK_CUT_OFF} = "$self->{dir}/cut_off";
	local $ENV{DLOCK_EXPELLED} = "$self->{dir}/expelled";
	system('dev/mysql-server', 'mysql', $self->{dir},
		'--skip-networking=OFF', '--bind-address=127.0.0.1', "--port=$self->{port}",
		'--report-host=127.0.0.1', '--server-id=' . (1 + $self->{number}),
		'--gtid-mode=ON', '--enforce-gtid-consistency=ON', '--log-bin=binlog',
		'--innodb-buffer-pool-size=64M', '--innodb-redo-log-capacity=32M',
		'--plugin-load-add=auth_socket.so', @plugin,
		'--loose-group-replication-start-on-boot=OFF', "--loose-group-replication-group-name=$group_name",
		"--loose-group-replication-local-address=127.0.0.1:$self->{group_port}",
		'--loose-group-replication-group-seeds=' . join(',', map { "127.0.0.1:$_->{group_port}" } @nodes),
		'--loose-group-replication-ip-allowlist=127.0.0.1', '--loose-group-replication-recovery-get-public-key=ON',
		"--loose-group-replication-single-primary-mode=$single",
		"--loose-group-replication-enforce-update-everywhere-checks=$everywhere",
		'--loose-group-replication-member-expel-timeout=3600', '--loose-group-replication-autorejoin-tries=0',
		'--loose-group-replication-unreachable-majority-timeout=0',
		'--loose-group-replication-message-cache-size=134217728',
		map({ "--replica-parallel-workers=$_" } $self->{options}{workers} // ())) == 0
	  or die "could not start node $self->{number}\n";
	return;
}

# Have the members that run give up a silent one, or the majority, however long that takes; or
# soon.
sub give_up_late
{
	my ($late) = @_;
	for my $node (grep { $_->pid } @nodes)
	{
		$node->control->value('SET GLOBAL group_replication_unreachable_majority_timeout = '
			  . ($late ? 0 : $node->{options}{majority_timeout} // 0));
		$node->expel_late($late);
	}
	return;
}

# Have the member give up a silent one however long that takes; or soon.
sub expel_late
{
	my ($self, $late) = @_;
	$self->control->value('SET GLOBAL group_replication_member_expel_timeout = ' . ($late ? 3600 : 0));
	return;
}

# Load the plugin into a server that lacks it.
sub load_plugin
{
	my ($self) = @_;
	$self->control->value(q{INSTALL PLUGIN group_replication SONAME 'group_replication.so'});
	return;
}

# Enter the group, or begin it, and wait until the node has all of its data.  A changing
# group refuses to let a node in, and a node may fail on its way in: then try again.
sub join_group
{
	my ($self, %options) = @_;
	my $control = $self->control;
	my $refusal;
	$control->value('SET GLOBAL group_replication_bootstrap_group = ON') if $options{bootstrap};
	Scenarios::Run::until(sub {
		my $state = $self->state;
		return 1 if $state eq 'ONLINE';
		if ($state ne 'RECOVERING')
		{
			$control->query('STOP GROUP_REPLICATION');
			$refusal = $control->query(q{START GROUP_REPLICATION USER = 'recovery', PASSWORD = 'recovery'})->{message};
		}
		return 0;
	}) or die "node $self->{number} does not come to join the others: " . ($refusal // 'it is ' . $self->state) . "\n";
	$control->value('SET GLOBAL group_replication_bootstrap_group = OFF') if $options{bootstrap};
	return;
}

# The state of the node, or of another, as the node sees it.
sub state
{
	my ($self, $of) = @_;
	my $port = ($of // $self)->{port};
	my $answer = $self->control->query("SELECT member_state FROM performance_schema.replication_group_members
		WHERE member_port = $port");
	return $answer->{rows}[0][0] // '';
}

sub cluster_questions
{
	return map { "SELECT * FROM performance_schema.replication_group_$_" } qw(members member_stats);
}

# How many members it sees online.
sub online
{
	my ($self) = @_;
	return $self->control->value(q{SELECT count(*) FROM performance_schema.replication_group_members
		WHERE member_state = 'ONLINE'});
}

# The primary, as far as the node knows; undef if there is none.
sub primary
{
	my ($self) = @_;
	my $answer = $self->control->query(q{SELECT member_port FROM performance_schema.replication_group_members
		WHERE member_role = 'PRIMARY' AND member_state = 'ONLINE'});
	my ($node) = grep { $_->{port} == ($answer->{rows}[0][0] // 0) } @nodes;
	return $node;
}

# Start a server that was killed; before it has been expelled it could not join.
sub come_back
{
	my ($self) = @_;
	Scenarios::Run::until(sub { !grep { $_->state($self) ne '' } grep { $_ != $self } @nodes })
	  or die "node $self->{number} is not expelled\n";
	give_up_late(1);
	$self->boot;
	gather();
	return;
}

# Bring all nodes into the group, until each sees all others.  Failed members go offline.
sub gather
{
	Scenarios::Run::until(sub {
		for my $node (grep { $_->state !~ /^(ONLINE|RECOVERING)$/ } @nodes)
		{
			$node->join_group;
			$node->control->value('SET GLOBAL offline_mode = OFF');
		}
		return !grep { $_->online != @nodes } @nodes;
	}) or die join(', ', map { "node $_->{number} is " . $_->state . ', and sees ' . $_->online } @nodes) . "\n";
	return;
}

# Kill the server, which stays down.
sub crash { return $_[0]->kill_server }

# Cut the server off from the others, and return when it is; or connect it again.
sub cut_off
{
	my ($self) = @_;
	open(my $file, '>', "$self->{dir}/cut_off") or die "could not make $self->{dir}/cut_off: $!\n";
	Scenarios::Run::until(sub { -e "$self->{dir}/cut_off.done" }) or die "a server does not cut itself off\n";
	return;
}

sub connect_again
{
	my ($self) = @_;
	unlink "$self->{dir}/cut_off";
	Scenarios::Run::until(sub { !-e "$self->{dir}/cut_off.done" }) or die "a server does not connect itself again\n";
	return;
}

# Should the group expel the member, keep it for now from becoming read-only; wait until it
# would; let it.
sub hold_expelled
{
	my ($self) = @_;
	open(my $file, '>', "$self->{dir}/expelled") or die "could not make $self->{dir}/expelled: $!\n";
	return;
}

sub is_expelled
{
	my ($self) = @_;
	return Scenarios::Run::until(sub { -e "$self->{dir}/expelled.held" });
}

sub let_expelled
{
	my ($self) = @_;
	unlink "$self->{dir}/expelled";
	return;
}

# Stop the process, so that no thread answers any more, and let it go on.
sub pause
{
	my ($self) = @_;
	my $pid = $self->pid;
	kill 'STOP', $pid;
	Scenarios::Run::until(sub { Processes::is_stopped($pid) }) or die "a server does not stop\n";
	return;
}

sub resume
{
	my ($self) = @_;
	my $pid = $self->pid;
	kill 'CONT', $pid if $pid;
	return;
}

1;
