# A cluster of 1.0 is upgraded node by node, with leases held and others taken all the time:
# the new library on each node in turn, and install.sql after the last.  Galera on MariaDB,
# Group Replication with one primary on MySQL.  The kind of server is the argument.
#
# OLD_DLOCK is the folder of the sources of 1.0.0 or 1.0.1, where "make mysql" has built it.

use strict;
use warnings;

use Fcntl qw(O_APPEND O_CREAT O_WRONLY);
use File::Temp qw(tempdir);
use FindBin;
use lib "$FindBin::RealBin/..";
use Galera;
use GroupReplication;
use POSIX ();
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);

my ($kind) = @ARGV;
plan skip_all => 'OLD_DLOCK does not say where there is a 1.0' unless defined $ENV{OLD_DLOCK};
my $old = $ENV{OLD_DLOCK};
my $galera = $kind eq 'mariadb';
my $is_token = qr/^\d+$/;
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);

# Before anything is loaded, each node has the old library.
sub put_library
{
	my ($node, $library) = @_;
	system('install', '-m', '755', $library, "$node->{dir}/plugins/dlock.so") == 0
	  or die "could not install $library\n";
	return;
}

my @nodes = $galera ? Galera::start(1, 1, 1) : GroupReplication::start(3, single_primary => 1);
put_library($_, "$old/mysql_udf/dlock.so") for @nodes;

# Where leases can be taken: on each node, or on the primary only.
sub writers
{
	return @nodes if $galera;
	my ($primary) = map { eval { $_->primary } // () } grep { $_->pid } @nodes;
	return $primary // ();
}

# A value, or an error, as of who asks until he is granted it.
sub until_token
{
	my ($node, $sql) = @_;
	my $said;
	Scenarios::Run::until(sub { ($said = eval { $node->control->outcome($sql) } // $@) =~ $is_token });
	return $said;
}

# MariaDB's plugins are not replicated.
sub install_from
{
	my ($sources) = @_;
	my ($writer) = writers();
	$writer->feed("$sources/mysql_udf/install.sql");
	return unless $galera;
	for my $node (grep { $_ != $writer } @nodes)
	{
		$node->control->query(q{INSTALL SONAME 'dlock'});
	}
	return;
}
install_from($old);
like($_->control->value('SELECT dlock_version()'), qr/^1\.0\./, "node $_->{number} begins with 1.0") for @nodes;

my ($first) = writers();
my $held = until_token($first, q{SELECT dlock_acquire('held', 'me', 3600)});
my $shared = until_token($first, q{SELECT dlock_acquire_shared('shared', 'me', 3600)});
my $last = until_token($first, q{SELECT dlock_acquire('grows', 'me', 60)});
is($first->control->value(q{SELECT dlock_release('grows', 'me')}), 1, 'leases are held');

# A node that is not being upgraded: a member of a group writes for itself alone until it
# has joined, unless it starts read-only.
sub any_node
{
	my @there = grep { !-e "$dir/away$_->{number}" } @nodes;
	return $there[ rand @there ];
}

# What a node's client prints, of its own process, for a statement.
sub printed
{
	my ($node, $sql) = @_;
	return `timeout 30 $node->{dir}/mysql --defaults-file=$node->{dir}/client.cnf -N -B -e "$sql" 2>/dev/null`;
}

# Those who take one lease in turn, each on any node, and write down its token while they
# hold it.
my @workers;
for my $number (1 .. 2)
{
	my $pid = fork() // die "could not fork: $!\n";
	if ($pid)
	{
		push @workers, $pid;
		next;
	}
	sysopen(my $file, "$dir/tokens", O_WRONLY | O_APPEND | O_CREAT) or POSIX::_exit(1);
	srand($$);
	while (getppid() != 1)
	{
		my $node = any_node() // next;
		my $owner = "worker $number";
		my ($token) = printed($node, "SELECT dlock_acquire('hot', '$owner', 120, 2)") =~ /^(\d+)$/m or next;
		syswrite($file, "$token\n");
		# on a node that takes it, in the lease's time
		for my $try (1 .. 100)
		{
			$node = any_node() // next;
			last if printed($node, "SELECT dlock_release('hot', '$owner', $token)") =~ /^(1|NULL)$/m;
			usleep(100_000);
		}
	}
	POSIX::_exit(0);
}
END
{
	my $status = $?;
	kill 'KILL', @workers if @workers;
	$? = $status;
}

sub tokens_written
{
	open(my $file, '<', "$dir/tokens") or return ();
	chomp(my @tokens = <$file>);
	return @tokens;
}

# What must be so at each step, wherever one asks.
sub holds
{
	my ($what) = @_;
	my $written = tokens_written();
	for my $node (writers())
	{
		my $at = "$what, node $node->{number}";
		is($node->control->outcome(q{SELECT dlock_owner('held')}), 'me', "$at: the lease is held");
		my $refused;
		# the first call of a run, and one that meets another node's, may be an error
		Scenarios::Run::until(sub {
			$refused = $node->control->outcome(q{SELECT dlock_acquire('held', 'other', 60)});
			$refused eq 'NULL' || $refused =~ $is_token;
		});
		is($refused, 'NULL', "$at: granted to nobody");
		is(until_token($node, "SELECT dlock_renew('held', 'me', 3600, $held)"), 1, "$at: renewed with its token");
		is(until_token($node, "SELECT dlock_renew('shared', 'me', 3600, $shared)"), 1, "$at: and the shared one");
		my $token = until_token($node, q{SELECT dlock_acquire('grows', 'me', 60)});
		cmp_ok($token, '>', $last, "$at: a larger token") if like($token, $is_token, "$at: a token");
		$last = $token if $token =~ $is_token;
		is(until_token($node, "SELECT dlock_release('grows', 'me', $token)"), 1, "$at: given back");
	}
	ok(Scenarios::Run::until(sub { tokens_written() > $written + 2 }), "$what: the others take leases, too");
	return;
}

holds('1.0 everywhere');

# the primary comes last
my ($primary) = writers();
for my $node (($galera ? () : grep { $_ != $primary } @nodes), $galera ? @nodes : $primary)
{
	open(my $away, '>', "$dir/away$node->{number}") or die "could not mark node $node->{number}: $!\n";
	close($away);
	$node->end_control;
	$node->halt;
	put_library($node, 'mysql_udf/dlock.so');
	$node->boot;
	$node->join_group unless $galera;
	unlink "$dir/away$node->{number}" or die "could not unmark node $node->{number}: $!\n";
	unlike($node->control->value('SELECT dlock_version()'), qr/^1\.0\./, "node $node->{number} has the new library");
	holds("after node $node->{number}");
}
my ($writer) = writers();
is(until_token($writer, q{SELECT COUNT(*) FROM information_schema.tables
	WHERE table_schema = 'dlock' AND table_name = 'journal_head'}), 0, 'the tables are those of 1.0 until then');
install_from('.');
holds('after install.sql');
is($writer->control->outcome(q{SELECT dlock_acquire_any('["held", "free"]', 'me', 60, 1) LIKE '%free%'}), 1, 'what is new works');

kill 'KILL', @workers;
waitpid($_, 0) for @workers;
@workers = ();
my @tokens = tokens_written();
is(scalar(grep { $tokens[$_] <= $tokens[ $_ - 1 ] } 1 .. $#tokens), 0, 'tokens have grown from holder to holder')
  or diag("@tokens");
note(scalar(@tokens) . ' leases were taken meanwhile');
done_testing();
