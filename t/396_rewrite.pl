# VACUUM FULL gives the lock table a new file while a transaction guards a lease and
# others wait: the guard holds, and the waiters are served in their order.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('rewrite');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

# Start psql, and send it something.
sub start_client
{
	my ($sql) = @_;
	my ($in, $out, $err) = ($sql, '', '');
	my $client = { in => \$in, out => \$out, err => \$err };
	$client->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-f', '-' ],
		'<', \$in, '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $client;
}

# Start psql for one statement that waits.
sub start_waiter
{
	my ($sql) = @_;
	my ($out, $err) = ('', '');
	return {
		out => \$out,
		run => IPC::Run::start(
			[ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $sql ],
			'<', \undef, '>', \$out, '2>', \$err,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default)) };
}

sub wait_for_waiters
{
	my ($count) = @_;
	$node->poll_query_until('postgres', "SELECT count(*) = $count FROM dlock.waiters")
		or die "no $count waiters";
	return;
}

my $guard = start_client(q{
	SELECT dlock_acquire('guarded', 'A', 600) AS token \gset
	BEGIN;
	SELECT dlock_guard('guarded', 'A', :token);
	SELECT dlock_release('guarded', 'A');
	\echo ready
});
$guard->{run}->pump until ${ $guard->{out} } =~ /ready/;
$node->safe_psql('postgres', q{SELECT dlock_acquire('busy', 'A', 600)});
my $first = start_waiter(q{SELECT 'first ' || dlock_acquire('busy', 'B', 600, -1)});
wait_for_waiters(1);
my $second = start_waiter(q{SELECT 'second ' || dlock_acquire('busy', 'C', 600, -1)});
wait_for_waiters(2);

$node->safe_psql('postgres', 'VACUUM FULL dlock_private.lease_table');

is( $node->safe_psql('postgres', q{SELECT dlock_acquire('guarded', 'D', 600) IS NULL}),
	't', 'the guard outlives the rewrite');
is( $node->safe_psql('postgres', q{SELECT dlock_acquire('busy', 'D', 600) IS NULL}),
	't', 'and so does the queue');
is( $node->safe_psql('postgres', q{SELECT dlock_release('busy', 'A')}),
	't', 'the holder releases');
$first->{run}->finish;
like(${ $first->{out} }, qr/first \d/, 'the first waiter is served');
is( $node->safe_psql('postgres', q{SELECT dlock_release('busy', 'B')}),
	't', 'it releases');
$second->{run}->finish;
like(${ $second->{out} }, qr/second \d/, 'then the second is');

${ $guard->{in} } .= "COMMIT;\n\\echo committed\n";
$guard->{run}->pump until ${ $guard->{out} } =~ /committed/;
is( $node->safe_psql('postgres', q{SELECT dlock_acquire('guarded', 'D', 600) IS NOT NULL}),
	't', 'after the commit the guard is gone');

$guard->{run}->finish;
$node->stop;
done_testing();
