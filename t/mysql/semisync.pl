# Semisynchronous replication: the source is killed under load, again and again, and its
# replica, which has received all that was acknowledged, is promoted.  No acknowledged lease
# is lost: what the source did when its replica was cut off already, was not acknowledged.
# The next replica is made anew and follows from the beginning, since the lost
# source may have committed what nobody else has; until it is there, no commit ends.  The
# kind of server is the argument; TORTURE_MINUTES makes it long.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use File::Temp qw(tempdir);
use Replicas;
use Scenarios;
use Test::More;
use Torture;

my ($kind) = @ARGV;
my ($source, $replica) = $kind eq 'mysql' ? qw(source replica) : qw(master slave);
my @options = (
	($kind eq 'mysql' ? "--plugin-load-add=semisync_source.so;semisync_replica.so" : ()),
	"--rpl-semi-sync-$replica-enabled=ON",
	"--rpl-semi-sync-$source-wait-point=AFTER_SYNC",
	"--rpl-semi-sync-$source-timeout=3600000");

# Clients find the source by a link.
my $dir = tempdir('ssXXXXXX', TMPDIR => 1, CLEANUP => 1);
my $link = "$dir/source";
my ($primary, $follower);

sub let_clients_find
{
	my ($server) = @_;
	symlink("$server->{dir}/socket", "$link.new") && rename("$link.new", $link) or die "could not make $link: $!\n";
	return;
}

# From now on a commit waits until a replica has received it.
sub wait_for_replicas
{
	my ($server) = @_;
	$server->control->value("SET GLOBAL rpl_semi_sync_${source}_enabled = ON");
	return;
}

sub new_replica
{
	my $server = Replicas->start($kind, '--read-only=ON', @options);
	$server->follow($primary);
	return $server;
}

# Wait until the source has a replica that acknowledges.
sub have_followed
{
	Scenarios::Run::until(sub {
		$primary->control->query("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_${source}_clients'")->{rows}[0][1] > 0 })
	  or die "nobody follows: " . $follower->complaint;
	return;
}

$primary = Replicas->start($kind, @options);
$primary->install;
$primary->write_settings(reap_interval => 1);
$follower = new_replica();
$follower->catch_up($primary);
$follower->complete;
wait_for_replicas($primary);
have_followed();
let_clients_find($primary);

my $torture = Torture->new(
	kind => $kind,
	connection => $link,
	examine => sub { $_->examine for $primary, $follower },
	# those of t/mysql/crash.pl
	allowed => qr/^(1105|3058|(guard )?(1317|1927|2006|2013|4031)|guard 1213)$/,
	undecided => 3572);

# Cut the replica off, kill the source, promote the replica, and have another one.
sub fail_over
{
	$follower->stop_receiving;
	$torture->let_work(0.5);
	unlink $link or die "could not remove $link: $!\n";
	$primary->kill_server;
	$follower->apply_received;
	$follower->stop_following;
	wait_for_replicas($follower);
	$follower->control->value('SET GLOBAL read_only = OFF');
	($primary, my $lost) = ($follower, $primary);
	let_clients_find($primary);
	$lost->forget;
	$follower = new_replica();
	have_followed();
	return 1;
}

sub some_failovers
{
	my ($count) = @_;
	for (1 .. $count)
	{
		$torture->let_work(3);
		$torture->disturb('failover', \&fail_over);
		$follower->catch_up($primary);
		$follower->complete;
	}
	$torture->let_work(2);
	return;
}

$torture->rounds(1, sub { some_failovers($ENV{TORTURE_MINUTES} ? 6 : 2) });
$torture->summary;
done_testing();
