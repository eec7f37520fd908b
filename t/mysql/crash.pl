# Many clients while the server is killed, again and again; while its library's
# own connection is killed, or a client's; and while the server is stopped for a
# moment.  The histories of the clients keep to the rules.  The kind of server
# is the argument; "make torture" makes it long.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);
use Torture;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
$engine->write_settings(reap_interval => 1);
$engine->crash;

# Of the library, or of the load's clients, one.
sub kill_connection
{
	my ($of_library) = @_;
	my $not = $of_library ? 'NOT' : '';
	my $id = $engine->control->value("SELECT coalesce(max(id), 0) FROM
		(SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND command <> 'Daemon'
			AND user $not IN ('root', 'tester', 'other', 'system user', 'event_scheduler')
			ORDER BY rand() LIMIT 1) p");
	return $id > 0 && !defined $engine->control->query("KILL $id")->{error};
}

sub stop_for_a_moment
{
	my $pid = $engine->pid;
	my $stopped = kill 'STOP', $pid;
	usleep(int rand 700_000);
	kill 'CONT', $pid;
	return $stopped;
}

my $torture = Torture->new(
	kind => $kind,
	connection => "$engine->{dir}/socket",
	examine => sub { $engine->examine },
	# what the library says when its connection was lost in a commit; the
	# deadlock of an owner who asks again while his first call has not ended;
	# cancelled; a lost connection; and a guard is a transaction like others,
	# which may be the victim of a deadlock of rows; and what could not be decided
	# while the server stood still
	allowed => qr/^(1105|3058|(guard )?(1317|1927|2006|2013|4031)|guard 1213)$/,
	undecided => 3572);

sub some_kills
{
	my ($count) = @_;
	for my $number (1 .. $count)
	{
		$torture->let_work(2);
		my $what = $number == 1 ? 'server' : $torture->pick(server => 4, library => 2, terminate => 2, pause => 2);
		if ($what eq 'server')
		{
			$torture->disturb($what, sub { $engine->crash; return 1 });
		}
		elsif ($what eq 'pause')
		{
			$torture->disturb($what, \&stop_for_a_moment, kills => 0);
		}
		else
		{
			$torture->disturb($what, sub { kill_connection($what eq 'library') }, kills => 0);
		}
	}
	$torture->let_work(2);
	return;
}

$torture->rounds(2, sub { some_kills($ENV{TORTURE_MINUTES} ? 30 : 7) });
$torture->summary;

$engine->stop;
done_testing();
