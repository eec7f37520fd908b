# Scenario 20: acknowledged leases survive kill -9 of the server under load, nothing
# is held twice, and tokens grow, even where leases may be lost.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use ClientLoad;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
restart_after_crash = on
shared_buffers = 2MB
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $load = ClientLoad->new($node);

# Kill the postmaster and all its children, and start again.
sub crash_server
{
	Processes::kill_postgres($node);
	$node->start;
	return;
}

# Kill one of the clients' backends; the server restarts by itself.
sub crash_backend
{
	$node->safe_psql(
		'postgres', q{
		SELECT pid FROM pg_stat_activity
		WHERE query ~ 'dlock_acquire|dlock_re' AND pid <> pg_backend_pid()
		LIMIT 1}) =~ /(\d+)/ or die 'no client is at work';
	Processes::crash_postgres($node, $1);
	return;
}

sub play_round
{
	my ($title, $durable, $crash) = @_;

	# endless: however late the crash is, it finds all of them at work
	$load->start(durable => $durable, endless => 1);
	$load->wait_for_answers(1500);
	$crash->();
	is($load->finish, 0, "$title: all clients were at work");
	cmp_ok($load->compare($title, crashed => 1),
		'>', 100, "$title: many leases are held");
	return;
}

play_round('kill -9 of the server', 1, \&crash_server);
play_round('and again', 1, \&crash_server);
play_round('kill -9 of a backend', 1, \&crash_backend);
$load->tokens_grow('after three crashes');

play_round('kill -9 of the server, synchronous_commit off',
	0, \&crash_server);
play_round('kill -9 of a backend, synchronous_commit off',
	0, \&crash_backend);
play_round('and of the server again', 0, \&crash_server);
$load->tokens_grow('after losses');

# The first grants after a crash, on names whose last leases may be lost.
$load->start(durable => 0, operations => 1000);
is($load->finish, 3, 'all goes on');
$load->compare('without a crash');

done_testing();
