# The shared memory cannot be made: /dev/shm is full, or the server has none to give.  Calls
# say so and leave nothing behind, the server goes on, and once there is room they work.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Engines;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
dynamic_shared_memory_type = posix
max_worker_processes = 2
});

my $full = "/dev/shm/dlock_full_$$";
plan skip_all => 'there is no /dev/shm' unless -w '/dev/shm';
my %no_room = Engines::preloading('no_room', DLOCK_NO_ROOM => $full);

sub start
{
	local %ENV = %no_room;
	$node->start;
	return;
}
start();
END { unlink $full if defined $full }

# What a statement's error is, in verbose form; empty: none.
sub error
{
	my ($statement) = @_;
	my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
	return $status == 0 ? '' : $error;
}

my $no_room = qr/ERROR:  53100: could not resize shared memory segment .* No space left on device/;

append_to_file($full, '');
like(error('CREATE EXTENSION dlock;'), $no_room, 'CREATE EXTENSION without room says why');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_extension WHERE extname = 'dlock'}), 0, '... and leaves nothing');
like(error('CREATE EXTENSION dlock;'), $no_room, '... the second time too');
is($node->safe_psql('postgres', 'CREATE TABLE other (i int); DROP TABLE other; SELECT 1'), 1, 'the server goes on');
unlink $full;
is(error('CREATE EXTENSION dlock;'), '', 'with room it succeeds');
is($node->safe_psql('postgres', q{SELECT dlock_acquire('job', 'me', 3600) > 0}), 't', '... and leases are granted');

# The same of calls, after a restart; in one session, and in a block that catches the error.
$node->stop;
start();
append_to_file($full, '');
like(error(q{SELECT dlock_acquire('job', 'me', 60);}), $no_room, 'a call without room says why');
like(error(q{SELECT * FROM dlock.locks;}), $no_room, '... and so does a look');
my $session = $node->background_psql('postgres', on_error_stop => 0);
is($session->query(q{DO $$ BEGIN PERFORM dlock_owner('job'); EXCEPTION WHEN disk_full THEN PERFORM set_config('my.caught', 'yes', false); END $$;
	SELECT current_setting('my.caught')}), 'yes', 'a block can catch it');
unlink $full;
is($session->query(q{SELECT dlock_owner('job')}), 'me', 'with room the same session goes on');
$session->quit;
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process has crashed');

$node->stop;
done_testing();
