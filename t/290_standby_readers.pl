# Replay on a standby and sessions that read the very bucket and overflow pages that
# it changes do not wait for each other for ever.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', q{
synchronous_commit = off
});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

is( $primary->safe_psql('postgres', q{
	SELECT count(dlock_acquire_shared('hot', 'reader-' || i, 3600))
	FROM generate_series(1, 1500) i}),
	1500, 'a name has a chain of overflow pages');

# Run pgbench with a script until a number of transactions is done.
sub start_load
{
	my ($node, $script, $clients, $transactions) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/script';
	append_to_file($file, $script);
	return IPC::Run::start(
		[
			'pgbench', '-n', '-h', $node->host, '-p', $node->port,
			'-c', $clients, '-t', $transactions, '-f', $file, 'postgres'
		],
		'>', \my $out, '2>', \my $err);
}

# The chain grows and shrinks by whole pages, which moves them to the free list
# and back; and rows come and go at its end.
my $writer = start_load($primary, q{
SELECT count(dlock_acquire_shared('hot', 'extra-' || :client_id || '-' || i, 3600)) FROM generate_series(1, 200) i;
SELECT dlock_release_all('extra-' || :client_id || '-1');
SELECT count(dlock_release('hot', 'extra-' || :client_id || '-' || i)) FROM generate_series(2, 200) i;
}, 1, 15);
my $readers = start_load($standby, q{
SELECT dlock_is_free('hot');
SELECT count(*) FROM dlock_holders('hot');
}, 3, 300);
ok($writer->finish, 'the primary is done');
# what is not flushed is neither sent nor waited for
$primary->safe_psql('postgres', q{
	SET synchronous_commit = on;
	SELECT pg_logical_emit_message(true, '', '')});
$primary->wait_for_catchup($standby, 'replay');
pass('the standby has caught up');
ok($readers->finish, 'and so are its readers');
is( $standby->safe_psql('postgres', q{SELECT count(*) FROM dlock_holders('hot')}),
	1500, 'they read what the primary has');

$standby->stop;
$primary->stop;
done_testing();
