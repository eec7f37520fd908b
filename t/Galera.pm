# Galera.pm: MariaDB servers of one Galera cluster, all on this machine.  A node
# is an engine like those in Engines.pm.
#
#   my ($a, $b) = Galera::start(1, 2);
#
# starts as many nodes as there are numbers.  The numbers are their weights: when nodes
# die, the rest goes on if it weighs more than they did.
#
# Any process may stand still for seconds on a busy machine, so nobody gives up a silent
# node before it has been silent for minutes.  Before a test kills a node, or cuts it off, it
# says give_up_late(0), and give_up_late(1), or come_back(), afterwards.

package Galera;

use strict;
use warnings;
our @ISA = ('Engines::MySQL');

use Engines;
use File::Temp qw(tempdir);
use Files;
use FreePorts;
use Scenarios;

my $provider = ($ENV{MARIADB_PREFIX} // '') . '/usr/lib/galera/libgalera_smm.so';
my @nodes;

# Why there can be no cluster of a kind of server; undef if there can.
sub reason_not
{
	my ($kind) = @_;
	return 'Galera is of MariaDB only' if $kind ne 'mariadb';
	system('dev/install galera-4 rsync >/dev/null') == 0 && -e $provider
	  or die "galera-4 and rsync are not installed\n";
	return;
}

sub start
{
	my (@weights) = @_;
	my @ports = FreePorts::reserve(3 * @weights);

	for my $i (0 .. $#weights)
	{
		push @nodes, bless {
			kind => 'mariadb', number => $i, weight => $weights[$i], owner => $$,
			gcomm => $ports[ 3 * $i ], ist => $ports[ 3 * $i + 1 ], sst => $ports[ 3 * $i + 2 ] }, __PACKAGE__;
	}
	$_->start_node for @nodes;
	return @nodes;
}

END
{
	my $status = $?;
	for my $node (grep { $_->{owner} == $$ && $_->{dir} } @nodes)
	{
		eval { $node->stop; 1 } or warn $@;
		$node->keep_log("galera$node->{number}-$$");
	}
	$? = $status;
}

# The library has to be there before the functions are: CREATE FUNCTION is done
# on all nodes.
sub start_node
{
	my ($self) = @_;
	my $plugins;

	$self->{dir} = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	$plugins = "$self->{dir}/plugins";
	mkdir $plugins or die "could not make $plugins: $!\n";
	system('install', '-m', '755', 'mysql_udf/dlock.so', "$plugins/dlock.so") == 0
	  or die "could not install the library\n";
	$self->boot;
	return;
}

# After what time a silent node is given up: each time has to be less than the next one, also
# while they are changed.
sub patience
{
	my ($late) = @_;
	return $late ? 'evs.inactive_timeout=PT4M;evs.suspect_timeout=PT2M'
	  : 'evs.suspect_timeout=PT2S;evs.inactive_timeout=PT6S';
}

# Have the nodes that run give up silent ones late, or soon.
sub give_up_late
{
	my ($late) = @_;
	$_->control->value("SET GLOBAL wsrep_provider_options = '" . patience($late) . q{'}) for grep { $_->pid } @nodes;
	return;
}

# How far a node has come, as an option.  From there on it gets what it missed; if it does
# not say so, it gets a copy of everything, and the node that makes it stands still
# meanwhile.  MariaDB's service does the same before each start.
sub start_position
{
	my ($self, @options) = @_;
	my $log = "$self->{dir}/recovery.log";
	my $server = ($ENV{MARIADB_PREFIX} // '') . '/usr/sbin/mariadbd';
	my @command = ($server, "--defaults-file=$self->{dir}/server.cnf", @options, '--wsrep-recover', "--log-error=$log");
	# what it prints before it has its log is of no use
	my ($position) = system('sh', '-c', 'exec "$@" 2>/dev/null', 'sh', @command) == 0
	  ? slurp($log) =~ /WSREP: Recovered position: (\S+)/ : ();
	die "could not find out how far node $self->{number} has come: see $log\n" unless $position;
	unlink $log or die "could not remove $log: $!\n";
	return "--wsrep-start-position=$position";
}

# The first node begins the cluster, unless there is one already.
sub boot
{
	my ($self) = @_;
	my $others = join(',', map { "127.0.0.1:$_->{gcomm}" } grep { $_ != $self && $_->{dir} && $_->pid } @nodes);
	my $provider_options = join(';',
		"gmcast.listen_addr=tcp://127.0.0.1:$self->{gcomm}", "ist.recv_addr=127.0.0.1:$self->{ist}",
		"pc.weight=$self->{weight}", 'gcache.size=16M',
		'evs.keepalive_period=PT0.5S', 'evs.inactive_check_period=PT0.5S', patience(1));
	my @options = (
		# MariaDB 11.8 has a plugin with a variable for each option, but the one of isolate()
		'--loose-plugin-wsrep-provider=OFF',
		'--wsrep-on=ON', "--wsrep-provider=$provider", '--wsrep-cluster-name=dlock',
		"--wsrep-cluster-address=gcomm://$others", "--wsrep-provider-options=$provider_options",
		"--wsrep-node-name=node$self->{number}", '--wsrep-node-address=127.0.0.1',
		'--wsrep-sst-method=rsync', "--wsrep-sst-receive-address=127.0.0.1:$self->{sst}",
		'--binlog-format=ROW', '--innodb-autoinc-lock-mode=2', '--innodb-buffer-pool-size=32M',
		'--innodb-log-file-size=16M');
	push @options, $self->start_position(@options) if -d "$self->{dir}/data";
	system('dev/mysql-server', 'mariadb', $self->{dir}, @options) == 0 or die "could not start node $self->{number}\n";
	$self->is_synced or die "node $self->{number} does not come to join the others\n";
	return;
}

# Wait until the node belongs to the cluster and has all that the others have.
sub is_synced
{
	my ($self) = @_;
	return Scenarios::Run::until(sub { $self->status('wsrep_ready') eq 'ON' && $self->status('wsrep_local_state') == 4 });
}

# Wait until this is so for all nodes, and each sees the others.
sub gather
{
	Scenarios::Run::until(sub {
		!grep { $_->status('wsrep_local_state') ne '4' || $_->status('wsrep_cluster_size') ne @nodes } @nodes;
	}) or die join(', ', map { "node $_->{number} is " . $_->status('wsrep_local_state_comment')
		. ', and sees ' . $_->status('wsrep_cluster_size') } @nodes) . "\n";
	return;
}

# Start a node that was killed, when the others have given it up.
sub come_back
{
	my ($self) = @_;
	my @others = grep { $_ != $self && $_->pid } @nodes;
	Scenarios::Run::until(sub { !grep { $_->status('wsrep_cluster_size') ne @others || $_->status('wsrep_ready') ne 'ON' } @others })
	  or die "node $self->{number} is not given up\n";
	give_up_late(1);
	$self->boot;
	return;
}

# Cut the node off from the others, or connect it again.
sub isolate
{
	my ($self, $isolate) = @_;
	$self->control->value("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=$isolate'");
	return;
}

sub status
{
	my ($self, $name) = @_;
	# a node that is joining ends connections, old and new ones
	my $answer = eval { $self->control->query("SHOW STATUS LIKE '$name'") } // { gone => 1 };
	$self->end_control if $answer->{gone};
	return $answer->{rows}[0][1] // '';
}

sub cluster_questions
{
	return "SHOW STATUS WHERE Variable_name IN ('wsrep_cluster_status', 'wsrep_cluster_size',
		'wsrep_local_state_comment', 'wsrep_ready', 'wsrep_flow_control_paused', 'wsrep_flow_control_status',
		'wsrep_local_recv_queue', 'wsrep_local_send_queue', 'wsrep_last_committed')";
}

# Kill the server, which stays down.
sub crash { return $_[0]->kill_server }

1;
