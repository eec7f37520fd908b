# A server that runs long.  Some clients stay and make every kind of call, mistakes
# too; others come for one call; those of a load wait, are cancelled and terminated.
# No lasting process gets more memory or more files, and the lock table does not grow.
# TORTURE_MINUTES makes it long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use IPC::Run;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Resources;
use Test::More;
use Time::HiRes qw(usleep);
use Torture;

my $long = $ENV{TORTURE_MINUTES};
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
dlock.reap_interval = '200ms'
dlock.log_expired = off
log_statement = none
log_min_messages = fatal
log_connections = off
log_disconnections = off
track_functions = pl
});
$node->start;

# The load cancels whoever waits, and has a database of its own.
# The workers, which look into all databases first, do not look into that template.
$node->safe_psql('postgres', 'CREATE DATABASE load TEMPLATE template0');
$node->safe_psql('load', 'CREATE EXTENSION dlock');

# One round of somebody's work.  What is taken is left in one way or another;
# what a session has taken ends with it.
$node->safe_psql('postgres', q{
	CREATE EXTENSION dlock;
	CREATE FUNCTION work(may_guard boolean) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		-- each time another owner, for leases are left
		me text := 'client ' || random();
		lock text := 'l' || floor(random() * 200);
		names text[];
		plain text := me || ' plain';
		dice float8 := random();
		token bigint;
	BEGIN
		IF dice < 0.3 THEN
			token := dlock_acquire(lock, plain, 3600, 0.01, dice::text);
			PERFORM dlock_acquire(lock, plain, 3600, 0, dice::text);
		ELSIF dice < 0.4 THEN
			token := dlock_acquire_shared(lock, plain, 3600, 0.01);
		ELSIF dice < 0.5 THEN
			lock := 'permit' || floor(random() * 3);
			IF random() < 0.5 THEN
				token := dlock_acquire_permit(lock, plain, 3600, 2, 0.05);
			ELSIF dlock_acquire_permits(lock, plain, 3600, 3, 2, 0.05) IS NOT NULL THEN
				PERFORM dlock_release(lock, plain, NULL, 3);
				PERFORM dlock_release(lock, plain, NULL, 2);
			END IF;
		ELSIF dice < 0.6 THEN
			names := ARRAY[lock, lock || 'a', lock || 'b'];
			IF random() < 0.5 THEN
				PERFORM dlock_acquire_all(names, plain, 3600, 0.01);
			ELSE
				PERFORM dlock_acquire_any(names, plain, 3600, 2, 0.01, dice::text);
				PERFORM dlock_acquire_any(names, plain, 3600, 2, 0, dice::text);
				PERFORM dlock_renew_many(names, plain, 1800);
				PERFORM dlock_downgrade(lock, plain);
				PERFORM dlock_release_many(names, plain);
			END IF;
		ELSIF dice < 0.7 THEN
			IF random() < 0.5 THEN
				PERFORM dlock_acquire_session(lock, me || ' session', 3600, 0.01);
			ELSE
				PERFORM dlock_acquire_session_shared(lock, me || ' session', 3600, 0.01);
			END IF;
			IF random() < 0.9 THEN
				PERFORM dlock_release(lock, me || ' session');
			END IF;
		ELSIF dice < 0.8 AND may_guard THEN
			IF random() < 0.5 THEN
				PERFORM dlock_acquire_xact(lock, me || ' xact', 3600, 0.01);
			ELSE
				PERFORM dlock_acquire_xact_shared(lock, me || ' xact', 3600, 0.01);
			END IF;
		ELSIF dice < 0.9 THEN
			PERFORM dlock_owner(lock), dlock_is_free(lock), dlock_wait(lock, 0.001), dlock_remaining(lock, plain);
			PERFORM count(*) FROM dlock_holders(lock);
			PERFORM count(*) FROM dlock.locks;
			PERFORM count(*) FROM dlock.waiters, dlock.stats;
		ELSE
			BEGIN
				IF random() < 0.5 THEN
					PERFORM dlock_acquire('', me, 3600);
				ELSE
					PERFORM dlock_guard(lock, me || ' nobody', 1);
				END IF;
				RAISE 'a mistake is not noticed';
			EXCEPTION
				WHEN invalid_parameter_value OR object_not_in_prerequisite_state
					OR no_active_sql_transaction THEN NULL;
			END;
		END IF;
		IF token IS NOT NULL THEN
			PERFORM dlock_renew(lock, plain, 1800, token);
			IF may_guard THEN
				PERFORM dlock_guard(lock, plain, token);
			END IF;
			IF random() < 0.2 THEN
				-- left to the worker
				PERFORM dlock_renew(lock, plain, 0.1);
				RETURN;
			END IF;
		END IF;
		PERFORM dlock_release_all(plain);
	END $$});

my $dir = PostgreSQL::Test::Utils::tempdir();
PostgreSQL::Test::Utils::append_to_file("$dir/call.sql",
	qq{SELECT work(false);\n});
PostgreSQL::Test::Utils::append_to_file("$dir/transaction.sql",
	qq{BEGIN;\nSELECT work(true);\nEND;\n});

# Clients at a pace: in a long run one that leaves room for others.  Those that stay log what
# they do.
sub start_clients
{
	my ($name, @options) = @_;
	local $ENV{PGAPPNAME} = $name;
	my $file = "$dir/$name.out";
	return {
		name => $name, file => $file,
		run => IPC::Run::start(
			[
				'pgbench', '-n', '-T', 1_000_000, '-f', "$dir/call.sql",
				'-f', "$dir/transaction.sql", @options, $node->connstr('postgres')
			],
			'<', '/dev/null', '>', $file, '2>&1') };
}

# pgbench goes on without a client that has met an error.
sub end_clients
{
	my ($clients) = @_;
	my $at_work = $clients->{run}->pumpable;
	$clients->{run}->signal('TERM');
	$clients->{run}->finish;
	my $text = slurp_file($clients->{file});
	ok($at_work && $text !~ /error/i, "those who $clients->{name} have met no error") or diag($text);
	return;
}

my @clients = (
	start_clients('stay', '-c', 3, '-R', $long ? 150 : 1000, '-l', "--log-prefix=$dir/calls"),
	start_clients('come', '-c', 2, '-R', 20, '-C'));
$node->poll_query_until('postgres',
	q{SELECT count(*) = 3 FROM pg_stat_activity WHERE application_name = 'stay'})
  or die "the clients do not come\n";

# to have the server start a worker
$node->safe_psql('load', q{SELECT dlock_acquire('l', 'me', 0.01)});
$node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type ~ 'dlock' AND datname IS NOT NULL})
  or die "there are no workers\n";

my $postmaster = Processes::postmaster($node);
# A process that has just come has still the postmaster's title, which has a path.
my @lasting = ($postmaster,
	(grep { Processes::title($_) =~ /^postgres: .*(dlock|checkpointer|writer|launcher)/ } Processes::children($postmaster)),
	split /\n/, $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'stay'}));
is(scalar(grep { Processes::title($_) =~ /: dlock/ } @lasting), 3, 'there are a launcher and two workers of dlock');

my $torture = Torture->new(
	kind => 'postgres',
	connection => $node->connstr('load'),
	clients => 8, names => 4, disturbed => 0,
	allowed => qr/^((guard )?(57014|57P01|lost)|40P01)$/);
my $table = q{SELECT pg_relation_size('dlock_private.lease_table')};
my ($early, $size);

# Whether each of those that stay has made every kind of call, of which the rarest is one of
# forty: what a session has never done before takes memory.
sub have_done_all
{
	my %done = map { slurp_file($_) =~ /^(\d+) (\d+) /mg } glob "$dir/calls.*";
	return 3 == grep { $_ >= 300 } values %done;
}

# What is there after the first round, and after all that the sessions can do, is what a
# server needs; in a long run, after some minutes.
my $rounds = 0;
$torture->rounds(2, sub {
	usleep($long ? 60e6 : 5e6);
	return if $rounds++ > ($long ? 2 : 0);
	Poll::until($PostgreSQL::Test::Utils::timeout_default, \&have_done_all)
	  or die "those who stay do not do much\n";
	$early = Resources::of(@lasting);
	$size = $node->safe_psql('postgres', $table);
});
my $late = Resources::of(@lasting);
Resources::have_not_grown($early, $late, 'a long life', kilobytes => 256);
cmp_ok($node->safe_psql('postgres', $table), '<=', 2 * $size, 'the lock table does not grow');

# What they did counts only if they did it, however long that takes them.
my ($calls, $sessions) = (0, 0);
Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
	($calls, $sessions) = split /\|/, $node->safe_psql('postgres', q{
		SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'work'), sessions
		FROM pg_stat_database WHERE datname = 'postgres'});
	return $calls > 200 && $sessions > 50;
});
end_clients($_) for @clients;
$torture->summary;
cmp_ok($calls, '>', 200, 'clients have done much');
cmp_ok($sessions, '>', 50, 'and many have come');
my $figures = "$calls rounds of work, $sessions sessions";
$long ? diag($figures) : note($figures);
ok($node->poll_query_until('postgres',
		q{SELECT count(*) = 0 FROM dlock.locks WHERE expires_at IS NULL OR expires_at < now()}),
	'no session lease outlives its session');
# what pgbench had begun may end a moment later
ok($node->poll_query_until('postgres', 'SELECT waiters = 0 FROM dlock.stats'), 'nobody waits');

$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing has crashed');
done_testing();
