# Many clients while the server is killed, again and again: the whole of it, one
# backend, or a background worker, each of which ends all sessions; and while
# processes are stopped for a moment, which ends nothing.  The histories of the
# clients keep to the rules.  "make torture" makes it long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use CrashLoad;
use PostgreSQL::Test::Cluster;
use Test::More;
use Torture;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
restart_after_crash = on
shared_buffers = 4MB
dlock.reap_interval = '200ms'
dlock.log_expired = off
log_statement = none
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $torture = Torture->new(
	kind => 'postgres',
	connection => $node->connstr('postgres'),
	# cancelled; ended by an administrator, by a crash; shutting down, starting
	allowed => qr/^((guard )?(57014|57P01|57P02|57P03|lost)|40P01)$/);
CrashLoad::play($torture, $node);

$node->stop;
done_testing();
