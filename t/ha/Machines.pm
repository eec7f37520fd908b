# Machines.pm: machines in a network, for servers and clients that are to lose one
# another.
#
#   Machines::begin("$work");
#   my @machines = map { Machines->new($_) } qw(one two three);
#   $machine->holds('/etc/haproxy', '/var/lib/postgresql');   folders of its own
#   $machine->start('haproxy', 'haproxy', '-f', ...);         a service; its log is kept
#   $machine->run('psql', ...);                               a program, until it has ended
#   $machine->cut_off; $machine->connect_again;
#   $machine->crash; $machine->boot;
#
# A machine is a network namespace, with an interface on a bridge, and a mount namespace.
# The caller has a network, mount, and process namespace of its own already, in which he
# has capabilities (dev/demo-ha), and is one more machine, "client", on the bridge.  They
# know each other by their names.  When the process that began the namespaces ends, all is
# gone.

package Machines;

use strict;
use warnings;

use Cwd qw(abs_path);
use Files;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

my ($work, @all);

# How long anything may take.
our $patience = 300;

# Do what has to succeed.
sub must
{
	my (@command) = @_;
	system(@command) == 0 or die "this failed: @command\n";
	return;
}

# Wait until something is true; its value.
sub until_true
{
	my ($what, $check, $seconds) = @_;
	my $end = time + ($seconds // $patience);
	my $value;
	until ($value = $check->())
	{
		die "it never came true that $what\n" if time > $end;
		sleep 0.1;
	}
	return $value;
}

# Make the network, and the caller's own place in it.
sub begin
{
	($work) = @_;
	write_text("$work/hosts", join('', "127.0.0.1 localhost\n", "10.77.0.1 one\n", "10.77.0.2 two\n", "10.77.0.3 three\n", "10.77.0.9 client\n"));
	must(qw(mount --make-rprivate /));
	must('mount', '--bind', "$work/hosts", '/etc/hosts');
	# what servers leave in memory goes with us
	must(qw(mount -t tmpfs tmpfs /dev/shm));
	must(qw(mount -t tmpfs tmpfs /run));
	must(qw(ip link set lo up));
	must(qw(ip link add bridge type bridge));
	must(qw(ip address add 10.77.0.9/24 dev bridge));
	must(qw(ip link set bridge up));
	return;
}

sub new
{
	my ($class, $name) = @_;
	my $self = bless { name => $name, number => 1 + @all, dir => "$work/$name" }, $class;
	mkdir $self->{dir} or die "$self->{dir}: $!\n";
	for my $folder ("$self->{dir}/log", "$self->{dir}/tmp")
	{
		mkdir $folder or die "$folder: $!\n";
	}
	my $pid = fork() // die "fork: $!\n";
	if ($pid == 0)
	{
		# it keeps the namespaces
		exec(qw(unshare -n -m sh -c), 'echo >"$0"; exec sleep infinity', "$self->{dir}/there") or POSIX::_exit(127);
	}
	$self->{holder} = $pid;
	until_true("there is a machine $name", sub { -e "$self->{dir}/there" });
	$self->{namespace} = readlink("/proc/$pid/ns/net");
	must('ip', 'link', 'add', "to-$name", 'type', 'veth', 'peer', 'name', 'eth0', 'netns', $pid);
	must('ip', 'link', 'set', "to-$name", 'master', 'bridge', 'up');
	$self->run(qw(mount -t tmpfs tmpfs /run));
	$self->run(qw(ip link set lo up));
	$self->run('ip', 'address', 'add', "10.77.0.$self->{number}/24", 'dev', 'eth0');
	$self->run(qw(ip link set eth0 up));
	$self->run(qw(sysctl -q -p), abs_path('examples/ha/keepalive.conf'));
	push @all, $self;
	return $self;
}

sub name { return $_[0]{name} }

# A command, to be run on the machine.  Servers that start remove what others of their
# kind have left in their folder for temporary files, so it has one of its own.
sub here
{
	my ($self, @command) = @_;
	return ('nsenter', '-t', $self->{holder}, '-n', '-m', "--wd=$self->{dir}", 'env', "TMPDIR=$self->{dir}/tmp", @command);
}

# Give it a folder of its own in place of a system's.
sub holds
{
	my ($self, @paths) = @_;
	for my $path (@paths)
	{
		my $own = $self->{dir} . $path;
		must('mkdir', '-p', $own);
		$self->run('mount', '--bind', $own, $path);
	}
	return;
}

# Add files to a system's folder, on all machines; before there are any.
sub add_to
{
	my ($path, $from) = @_;
	must('mount', '-t', 'overlay', 'overlay', '-o', "lowerdir=$from:$path", $path);
	return;
}

# A file of the examples, with the machine's name and number in it.
sub configure
{
	my ($self, $from, $to) = @_;
	my $text = slurp($from) || die "$from: $!\n";
	$text =~ s/\@NAME\@/$self->{name}/g;
	$text =~ s/\@NUMBER\@/$self->{number}/g;
	write_text($self->{dir} . $to, $text);
	chmod(0755, $self->{dir} . $to) if -x $from;
	return;
}

# Change something in such a file, which has to be there.
sub change
{
	my ($self, $path, $from, $to) = @_;
	my $text = slurp($self->{dir} . $path);
	$text =~ s/$from/$to/ or die "$path of $self->{name} has nothing like $from\n";
	write_text($self->{dir} . $path, $text);
	return;
}

sub run
{
	my ($self, @command) = @_;
	must($self->here(@command));
	return;
}

# Start a service, or start it again.  It has no capabilities: those are ours.
sub start
{
	my ($self, $service, @command) = @_;
	# one that is not buried looks alive to the next one
	until_true("the last $service is gone", sub { $self->has_ended($service) }) if $self->{pids}{$service};
	my $pid = fork() // die "fork: $!\n";
	if ($pid == 0)
	{
		open(STDIN, '<', '/dev/null') or POSIX::_exit(126);
		open(STDOUT, '>>', "$self->{dir}/log/$service") or POSIX::_exit(126);
		open(STDERR, '>&', \*STDOUT) or POSIX::_exit(126);
		POSIX::setsid();
		exec $self->here('setpriv', '--inh-caps=-all', '--ambient-caps=-all', @command) or POSIX::_exit(127);
	}
	$self->{pids}{$service} = $pid;
	return;
}

# Whether a service that was started has ended.
sub has_ended
{
	my ($self, $service) = @_;
	my $pid = $self->{pids}{$service} // return 1;
	return 0 if waitpid($pid, WNOHANG) == 0;
	delete $self->{pids}{$service};
	return 1;
}

# Its processes, but for the one that keeps it.
sub processes
{
	my ($self) = @_;
	return grep { $_ != $self->{holder} && (readlink("/proc/$_/ns/net") // '') eq $self->{namespace} && slurp("/proc/$_/stat") !~ /\) [ZX] /s }
	  map { m{/(\d+)/} } glob '/proc/[0-9]*/stat';
}

# The processes with such a name.
sub processes_of
{
	my ($self, $name) = @_;
	return grep { slurp("/proc/$_/comm") =~ /^\Q$name\E$/ } $self->processes;
}

# Kill processes, and wait until they are gone.
sub kill_all
{
	my ($self, $which) = @_;
	until_true("the processes of $self->{name} are dead", sub {
		my @pids = $which->();
		kill 'KILL', @pids;
		return !@pids;
	});
	return;
}

# The power fails: nobody hears from it any more, and its processes are gone.
sub crash
{
	my ($self) = @_;
	$self->cut_off;
	$self->kill_all(sub { $self->processes });
	return;
}

# It is back, and its services are to be started.
sub boot
{
	my ($self) = @_;
	$self->run('sh', '-c', 'rm -rf /run/*');
	$self->connect_again;
	return;
}

# Whether the others do not hear from it.
sub is_away { return $_[0]{is_away} }

sub cut_off
{
	my ($self) = @_;
	must('ip', 'link', 'set', "to-$self->{name}", 'down');
	$self->{is_away} = 1;
	return;
}

sub connect_again
{
	my ($self) = @_;
	must('ip', 'link', 'set', "to-$self->{name}", 'up');
	$self->{is_away} = 0;
	return;
}

1;
