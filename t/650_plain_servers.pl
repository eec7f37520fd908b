# plain/dlock.sql where servers die, take over, are dumped, pooled, and where time runs out.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Plain;
use Poll;
use Pooler;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;

my $node = Plain::start('one', undef, allows_streaming => 1);
my $is_token = qr/\A\d{15,16}\z/;
my ($a, $b, $dbo);

sub answers
{
	my ($session, $sql, $wanted, $what) = @_;
	my $answer = $session->query($sql);
	like($answer, ref $wanted ? $wanted : qr/\A\Q$wanted\E\z/, $what // "$session->{name}: $sql") or diag($session->error);
	return $answer;
}

# New sessions on a server, after the old ones have ended.
sub connect_to
{
	my ($to) = @_;
	$_->reap for grep { defined } $a, $b, $dbo;
	($a, $b, $dbo) = map { Plain::session($to, $_) } qw(app other dbo);
	return;
}

connect_to($node);

# kill -9: what was answered is there, and tokens grow
my $token = answers($a, q{CALL dlock_acquire('n', 'a', 600, 0, 'r')}, $is_token);
answers($a, q{CALL dlock_acquire('given back', 'a', 600)}, $is_token);
my $last = $a->query(q{CALL dlock_acquire('given back', 'a', 600)});
answers($a, q{SELECT dlock_release('given back', 'a', NULL, 2)}, 't');
Processes::kill_postgres($node);
$node->start;
connect_to($node);
answers($b, q{CALL dlock_acquire('n', 'b', 600)}, '', 'held after a crash');
answers($a, q{CALL dlock_acquire('n', 'a', 600, 0, 'r')}, $token, 'and its request is known');
cmp_ok(answers($b, q{CALL dlock_acquire('given back', 'b', 600)}, $is_token), '>', $last, 'tokens grow over a crash');

# a backend that is killed in a wait leaves nothing
$b->send(q{CALL dlock_acquire('n', 'b', 600, -1)});
my $waits = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'};
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $node->safe_psql('plain', $waits) == 1 }), 'it waits');
kill 'TERM', $b->{pid};
is($b->answer =~ s/\A(57P01|08006|gone)\z//r, '', 'and is ended');
$b = Plain::session($node, 'other');
answers($dbo, q{SELECT count(*) FROM dlock_private.lease_table WHERE owner = 'b' AND name = 'n'}, 0);

# time runs out
answers($b, q{SET statement_timeout = '300ms'}, '');
answers($b, q{CALL dlock_acquire('n', 'b', 600, -1)}, '57014', 'a statement has its time');
answers($b, 'RESET statement_timeout', '');
answers($dbo, q{SELECT count(*) FROM dlock_private.lease_table WHERE owner = 'b' AND name = 'n'}, 0);
my $idle = Plain::session($node, 'app');
answers($idle, q{SET idle_in_transaction_session_timeout = '200ms'}, '');
$idle->query($_) for 'BEGIN', "SELECT dlock_guard('n', 'a', $token)";
answers($a, q{SELECT dlock_release('n', 'a')}, 't');
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $b->query(q{CALL dlock_acquire('n', 'b', 600)}) =~ $is_token }), 'a guard ends with its idle session');
$idle->kill_client;

# a guard that is prepared pins until that is committed
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 2');
$node->restart;
connect_to($node);
$token = answers($b, q{CALL dlock_acquire('two', 'b', 600)}, $is_token);
$b->query($_) eq '' or die $b->error for 'BEGIN', "SELECT dlock_guard('two', 'b', $token)", q{PREPARE TRANSACTION 'p'};
answers($b, q{SELECT dlock_release('two', 'b')}, 't');
$node->stop('immediate');
$node->start;
connect_to($node);
answers($a, q{CALL dlock_acquire('two', 'a', 600)}, '', 'a prepared guard pins, over a crash too');
answers($b, q{COMMIT PREPARED 'p'}, '');
answers($a, q{CALL dlock_acquire('two', 'a', 600)}, $is_token);

# one that is slow between its look at the mark and its change of it does not set it back
$dbo->query($_) eq '' or die $dbo->error for 'CREATE SCHEMA slow', 'SET search_path = slow, pg_catalog', q{CREATE FUNCTION slow.setval(regclass, bigint) RETURNS bigint
	LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock_shared(44), pg_advisory_unlock_shared(44); RETURN pg_catalog.setval($1, $2); END'};
answers($a, 'SELECT pg_advisory_lock(44)', '');
$dbo->send(q{SELECT dlock_private.next_token('back')});
my $is_slow = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 44 AND NOT granted};
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $node->safe_psql('plain', $is_slow) eq '1' }), 'it is in between');
# another waits for it, if it can
$b->send(q{CALL dlock_acquire('back', 'b', 600)});
my $has_come = q{SELECT count(*) FROM pg_locks WHERE relation = 'dlock_private.request'::regclass AND mode = 'ShareUpdateExclusiveLock' AND NOT granted};
Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { $b->answered || $node->safe_psql('plain', $has_come) eq '1' });
answers($a, 'SELECT pg_advisory_unlock(44)', 't');
$dbo->answer;
my $newest = $b->answer;
cmp_ok($node->safe_psql('plain', 'SELECT last_value FROM dlock_private.mark'), '>=', $newest =~ $is_token ? $newest : 0, 'the mark is above each token');
answers($dbo, 'RESET search_path', '');
answers($dbo, 'DROP SCHEMA slow CASCADE', '');
$b->query(q{SELECT dlock_release('back', 'b')});

# the clock was set back: as if the largest token had been granted in an hour
$node->safe_psql('plain', q{SELECT setval('dlock_private.mark', last_value + 3600 * 1048576::bigint) FROM dlock_private.mark});
$last = $node->safe_psql('plain', 'SELECT last_value FROM dlock_private.mark');
for my $n (1 .. 3)
{
	my $next = answers($a, q{CALL dlock_acquire('back', 'a', 600)}, $is_token);
	cmp_ok($next, '>', $last, 'tokens grow though the clock is behind');
	$last = $next;
	answers($a, q{SELECT dlock_release('back', 'a')}, 't');
}

# what is over goes when a neighbour is granted, and without end nothing grows
answers($dbo, q{UPDATE dlock_private.lease_table SET expires_at = clock_timestamp()}, '');
for my $n (1 .. 30)
{
	$a->query("CALL dlock_acquire('job/$n', 'a', 600)");
	$dbo->query(q{UPDATE dlock_private.lease_table SET expires_at = clock_timestamp() WHERE name LIKE 'job/%'});
}
cmp_ok($dbo->query('SELECT count(*) FROM dlock_private.lease_table'), '<', 20, 'rows of those who died are swept');

# a dump has the leases, and is a whole
answers($dbo, 'DELETE FROM dlock_private.lease_table', '');
$last = answers($a, q{CALL dlock_acquire('dumped', 'a', 600)}, $is_token);
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('plain'), '-f', $dump ], 'pg_dump');
like(slurp_file($dump), qr/^dumped\t\d+\ta\tapp\t/m, 'with the names of roles, whose OIDs differ from server to server');
$node->safe_psql('postgres', 'CREATE DATABASE restored OWNER dbo');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('restored'), '-f', $dump ], 'and restored');
my $there = Sessions::Session->new(Plain::connstr($node, 'other', 'restored'), 'there');
answers($there, q{CALL dlock_acquire('dumped', 'o', 600)}, '');
cmp_ok(answers($there, q{CALL dlock_acquire('new', 'o', 600)}, $is_token), '>', $last, 'tokens go on above those of the dump');
answers($there, q{SELECT owner FROM dlock.locks WHERE name = 'dumped'}, '<insufficient privilege>');
answers($there, q{INSERT INTO dlock_private.request (op, name, owner, holds, caller) VALUES ('release', 'dumped', 'a', 1, 'app'::regrole)}, '42501');
$there->reap;

# behind a pooler of transactions each call may have another connection
my $pooled = PostgreSQL::Test::Cluster->new('pooled');
$pooled->init;
$pooled->start;
$pooled->safe_psql('postgres', 'CREATE ROLE app LOGIN');
Plain::run($pooled, scalar getpwuid($<), 'plain/dlock.sql', 'postgres');
my $pooler = Pooler->start($pooled, user => 'app', databases => { app => 'pool_mode=transaction pool_size=2' });
my @clients = map { Sessions::Session->new($pooler->connstr('app'), "c$_") } 1 .. 4;
$token = answers($clients[0], q{CALL dlock_acquire('n', 'a', 600)}, $is_token);
$_->query('SELECT 1') for @clients;
answers($clients[$_], q{CALL dlock_renew('n', 'a', 600)}, 't', 'through any connection') for 0 .. 3;
$clients[3]->send(q{CALL dlock_acquire('n', 'b', 600, -1)});
answers($clients[1], "BEGIN; SELECT dlock_guard('n', 'a', $token)", '');
answers($clients[1], 'CALL dlock_acquire(' . q{'m', 'a', 600)}, '2D000');
answers($clients[1], 'ROLLBACK', '');
answers($clients[2], q{SELECT dlock_release('n', 'a')}, 't');
like($clients[3]->answer, $is_token, 'a waiter behind a pooler');
$_->reap for @clients;
$pooler->stop;
$pooled->stop;

# what pg_tle is given is what an extension's script may have
my $share = `pg_config --sharedir`;
chomp $share;
SKIP:
{
	skip('the server takes no extension here', 1) if !-w "$share/extension";
	my $script = `$Plain::root/plain/pg_tle`;
	my ($version, $text) = $script =~ /install_extension\('dlock_plain', '(.*?)', '.*?', \$pg_tle\$\n(.*)\$pg_tle\$\);\n\z/s;
	PostgreSQL::Test::Utils::append_to_file("$share/extension/dlock_plain.control", "default_version = '$version'\nsuperuser = false\n");
	PostgreSQL::Test::Utils::append_to_file("$share/extension/dlock_plain--$version.sql", $text);
	$node->safe_psql('postgres', 'CREATE DATABASE tle OWNER dbo');
	$there = Sessions::Session->new(Plain::connstr($node, 'dbo', 'tle'), 'there');
	answers($there, 'CREATE EXTENSION dlock_plain', '');
	answers($there, q{CALL dlock_acquire('n', 'a', 600)}, $is_token);
	$last = $node->safe_psql('tle', 'SELECT last_value FROM dlock_private.mark');
	$dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	$node->command_ok([ 'pg_dump', '-d', $node->connstr('tle'), '-f', $dump ], 'pg_dump of the extension');
	$node->safe_psql('postgres', 'CREATE DATABASE tle_restored OWNER dbo');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', '/dev/null', '-d', $node->connstr('tle_restored'), '-f', $dump ], 'and restored');
	my $restored = Sessions::Session->new(Plain::connstr($node, 'other', 'tle_restored'), 'restored');
	answers($restored, q{CALL dlock_acquire('n', 'o', 600)}, '', 'its leases are in the dump');
	cmp_ok(answers($restored, q{CALL dlock_acquire('m', 'o', 600)}, $is_token), '>', $last, 'and its largest token');
	$restored->reap;
	answers($there, 'DROP EXTENSION dlock_plain', '');
	answers($there, q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'dlock%'}, 0);
	$there->reap;
}

# everything is published: the table has a key
$node->append_conf('postgresql.conf', 'wal_level = logical');
$node->restart;
connect_to($node);
$node->safe_psql('plain', 'CREATE PUBLICATION everything FOR ALL TABLES');
answers($a, q{CALL dlock_renew('dumped', 'a', 600)}, 't');
answers($a, q{SELECT dlock_release('dumped', 'a')}, 't');
$node->safe_psql('plain', 'DROP PUBLICATION everything');

# a standby looks, and takes over: with all that was confirmed to it, and with tokens above what it has lost
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('two');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = '*'});
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'}), 'a synchronous standby');
$token = answers($a, q{CALL dlock_acquire('n', 'a', 600)}, $is_token);
$node->wait_for_catchup($standby, 'replay');
my $look = Plain::session($standby, 'app');
answers($look, q{SELECT dlock_owner('n'), dlock_is_free('n'), dlock_is_free('m'), (SELECT token FROM dlock_holders('n')), (SELECT count(*) FROM dlock.locks)}, "a|f|t|$token|1");
answers($look, $_, '25006') for q{CALL dlock_acquire('m', 'a', 600)}, q{CALL dlock_renew('n', 'a', 600)}, q{SELECT dlock_release('n', 'a')}, "SELECT dlock_guard('n', 'a', $token)",
	q{CALL dlock_renew_many('{n}', 'a', 600)}, q{CALL dlock_release_after('n', 'a', 600)};
$look->reap;
my $confirmed = answers($a, q{CALL dlock_acquire('confirmed', 'a', 600)}, $is_token);
$standby->stop;
$a->query('SET synchronous_commit = local');
my $lost = answers($a, q{CALL dlock_acquire('lost', 'a', 600)}, $is_token);
Processes::kill_postgres($node);
$standby->start;
$standby->promote;
$standby->safe_psql('postgres', q{ALTER SYSTEM RESET synchronous_standby_names});
$standby->reload;
ok($standby->poll_query_until('postgres', q{SELECT current_setting('synchronous_standby_names') = ''}), 'it is alone');
connect_to($standby);
answers($b, qq{CALL dlock_acquire('$_', 'b', 600)}, '', 'a lease that was confirmed outlives the failover') for 'n', 'confirmed';
answers($a, qq{CALL dlock_renew('n', 'a', 600, $token)}, 't');
cmp_ok(answers($b, q{CALL dlock_acquire('lost', 'b', 600)}, $is_token), '>', $lost, 'tokens are above what was lost') if $lost > 0;

$_->reap for $a, $b, $dbo;
$standby->stop;
done_testing();
