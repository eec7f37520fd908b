# Pooler.pm: a PgBouncer before a server, on a socket in a folder of its own.
#
#   my $pooler = Pooler->start($node, user => 'app',
#       databases => { app => 'pool_mode=transaction pool_size=20' },
#       settings => { max_client_conn => 3000 });
#   $pooler->connstr('app')
#   $pooler->admin('SHOW POOLS')     its answer, a hash for each row
#   $pooler->log                     what it has logged
#   $pooler->stop
#   $pooler->kill9                   it dies, and its connections with it
#
# Each of the databases leads to the server's "postgres", as the one user.

package Pooler;

use strict;
use warnings;

use IPC::Run;
use List::Util qw(sum);
use POSIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

my @running;

sub start
{
	my ($class, $node, %params) = @_;
	my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
	die "there is no pgbouncer; \"dev/setup test\" installs it\n" unless defined $program;
	my $self = bless {
		dir => PostgreSQL::Test::Utils::tempdir_short(),
		# of the socket's name only
		port => PostgreSQL::Test::Cluster::get_free_port(),
		owner => $$,
	}, $class;
	my $dir = $self->{dir};
	my $server = 'host=' . $node->host . ' port=' . $node->port . " dbname=postgres user=$params{user}";
	my %settings = (
		listen_addr => '',
		listen_port => $self->{port},
		unix_socket_dir => $dir,
		auth_type => 'any',
		logfile => "$dir/log",
		# a client may wait as long as a busy machine takes
		client_login_timeout => 0,
		query_wait_timeout => 0,
		server_connect_timeout => 0,
		log_connections => 0,
		log_disconnections => 0,
		%{ $params{settings} // {} });

	PostgreSQL::Test::Utils::append_to_file("$dir/ini", join("\n",
		'[databases]',
		(map { "$_ = $server $params{databases}{$_}" } sort keys %{ $params{databases} }),
		'[pgbouncer]',
		(map { "$_ = $settings{$_}" } sort keys %settings),
		''));

	# it takes a file descriptor for each client, and one for each server
	$self->{pid} = fork // die "could not fork: $!\n";
	if ($self->{pid} == 0)
	{
		open(STDIN, '<', '/dev/null') && open(STDOUT, '>', "$dir/out") && open(STDERR, '>&', \*STDOUT)
		  and exec 'sh', '-c', 'ulimit -n "$(ulimit -H -n)" && exec "$0" -q "$1"', $program, "$dir/ini";
		POSIX::_exit(127);
	}
	push @running, $self;
	my $attempts = 0;
	until (eval { $self->admin('SHOW VERSION') })
	{
		die 'PgBouncer does not start: ' . PostgreSQL::Test::Utils::slurp_file("$dir/out") . $@
		  if $attempts++ > 10 * $PostgreSQL::Test::Utils::timeout_default || waitpid($self->{pid}, WNOHANG) != 0;
		usleep(50_000);
	}
	return $self;
}

sub connstr
{
	my ($self, $database) = @_;
	return "host=$self->{dir} port=$self->{port} dbname=$database user=anybody";
}

sub admin
{
	my ($self, $command) = @_;
	my ($out, $err);

	IPC::Run::run([ 'psql', '-XAq', '-F', "\t", '-P', 'footer=off', '-c', $command,
			# the user that may do anything, if it is the same user of the system
			'-d', "host=$self->{dir} port=$self->{port} dbname=pgbouncer user=pgbouncer" ],
		'<', '/dev/null', '>', \$out, '2>', \$err)
	  or die "PgBouncer: $command: $err";
	my ($head, @rows) = map { [ split /\t/, $_, -1 ] } split /\n/, $out;
	return map {
		my %row;
		@row{@$head} = @$_;
		\%row;
	} @rows;
}

# What SHOW POOLS says of a database: the sum of columns, at one moment.
sub pool
{
	my ($self, $database, @columns) = @_;
	my ($row) = grep { $_->{database} eq $database } $self->admin('SHOW POOLS');
	return $row ? sum(map { $row->{$_} // die "SHOW POOLS has no $_\n" } @columns) : 0;
}

sub log
{
	my ($self) = @_;
	return PostgreSQL::Test::Utils::slurp_file("$self->{dir}/log");
}

sub _end
{
	my ($self, $signal) = @_;
	@running = grep { $_ != $self } @running;
	kill $signal, $self->{pid};
	waitpid($self->{pid}, 0);
	return;
}

# At once: the clients' connections end.
sub stop { return $_[0]->_end('TERM') }

sub kill9 { return $_[0]->_end('KILL') }

END
{
	my $status = $?;
	$_->stop for grep { $_->{owner} == $$ } @running;
	$? = $status;
}

1;
