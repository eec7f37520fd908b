# dlock doctor: what it finds on healthy servers, and on others, on the kind of server
# that is the argument; see CommandCases.pm.  This test breaks each thing that it
# checks, and mends most of them again.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CommandCases;
use FreePorts;
use JSON::PP;
use Processes;
use Test::More;

my $kind = $ARGV[0];
my $is_postgres = $kind eq 'postgres';
my $is_mariadb = $kind eq 'mariadb';
my $admin = $is_postgres ? 'postgres' : 'root';

# Run it as an administrator, or with launch()'s options: its exit status, what it says besides,
# and what it found, in order, [status, check, value, advice].
sub look
{
	my $options = ref $_[0] ? shift : { url => url(undef, $admin) };
	my $run = launch($options, 'doctor', '--json', @_);
	my $status = finish($run);
	return { status => $status, says => errors($run), found => [ map { [ @$_{qw(status check value advice)} ] } @{ decode_json(output($run)) } ] };
}

sub doctor
{
	my $result = look(@_);
	is($result->{says}, '', 'says nothing else');
	return $result;
}

# Run it again and again, until a check, which gets the result, is true.  However often that is,
# it is no test of its own.
sub comes_to
{
	my ($check) = @_;
	return eventually(sub {
		my $result = look();
		die "doctor says: $result->{says}\n" if $result->{says} ne '';
		return $check->($result);
	});
}

# What was found, for whom it may concern.
sub all_of
{
	my ($result) = @_;
	return join('', map { "$_->[0] $_->[1]: $_->[2]\n" } @{ $result->{found} });
}

# The exit status.
sub ends
{
	my ($result, $status, $what) = @_;
	is($result->{status}, $status, $what) or diag(all_of($result));
	return;
}

# These were found: a check, its status, and a regex of its value.
sub finds
{
	my ($result, @expected) = @_;
	my $well = 1;
	while (my ($check, $status, $value) = splice(@expected, 0, 3))
	{
		my ($found) = grep { $_->[1] eq $check && $_->[0] eq $status && $_->[2] =~ $value } @{ $result->{found} };
		$well &= ok($found, "$status: $check");
		$well &= ok($found->[3], "$check: what to do") if $found && $status ne 'ok';
	}
	diag(all_of($result)) unless $well;
	return;
}

# Nothing was found to be as bad as this, or worse.
sub finds_no
{
	my ($result, $what, @bad) = @_;
	my @found = grep { my $status = $_->[0]; grep { $_ eq $status } @bad } @{ $result->{found} };
	is(join(', ', map { $_->[1] } @found), '', $what) or diag(all_of($result));
	return;
}

# Ask as an administrator; restarts are told by engine()->restart.
sub sql
{
	my @answers = map { engine()->control->value(engine()->translate($_)) } @_;
	return $answers[-1];
}

# In a case, which is another process.
sub own_session
{
	my ($name, $role) = @_;
	return engine()->client($name, $role);
}

start_server($kind);

# ----------------------------------------------------------------
# Both
# ----------------------------------------------------------------

# A server that is well.
sub well
{
	my $before = sql('SELECT acquired FROM dlock.stats');
	my $result = doctor();
	ends($result, 0, 'all is well');
	finds_no($result, 'nothing but notes', qw(warning error));
	is(sql('SELECT acquired FROM dlock.stats'), $before, 'nothing was taken');
	finds($result, 'privileges', 'ok', qr/may acquire/, 'views', 'ok', qr/may read/, 'leases', 'ok', qr/\A0\z/,
		'settings', 'ok', qr/./, 'renewals lost', 'ok', qr/\A0 of 0; 0 holders were evicted\z/, 'max_connections', 'ok', qr/\A\d+ of \d+ taken\z/);

	$result = doctor({ url => url(undef, $admin) }, '--try');
	ends($result, 0, 'and with a try');
	finds($result, 'a lease', 'ok', qr/\Ataken in [\d.]+ ms, given back in [\d.]+ ms\z/);
	is(sql('SELECT acquired FROM dlock.stats'), $before + 1, 'one lease was taken');
	is(sql('SELECT count(*) FROM dlock.locks'), 0, 'and is gone');

	# for people
	my $run = launch({ url => url(undef, $admin) }, 'doctor');
	is(finish($run), 0, 'for people');
	my @lines = split /\n/, output($run);
	is(scalar(grep { /\A(ok|note|warning|error) +\S.*: \S/ } @lines), @lines, 'each line is a check');
	is(scalar(grep { /\A(?!ok)/ && !/  -- \S/ } @lines), 0, 'with what to do');
	return;
}

sub other_account
{
	my $result = doctor({ url => url() });
	ends($result, 0, 'another account: all is well');
	finds($result, q{operators' functions}, 'note', qr/may not call dlock_force_release/);
	return $result;
}

sub no_server
{
	my $none = $is_postgres ? 'host=/no/such dbname=x' : 'mysql://u@localhost/?socket=/no/such';
	my $result = doctor({ url => $none }, '--try');
	ends($result, 2, 'no server is an error');
	is(scalar @{ $result->{found} }, 1, 'and nothing else is looked for');
	finds($result, 'connection', 'error', qr/./);
	return;
}

# Renewals that came too late.
sub counters
{
	my $tester = own_session('tester');
	$tester->value(q{SELECT dlock_renew('nobody-has-it', 'x', 30)});
	my $result = doctor();
	ends($result, 1, 'a warning');
	finds($result, 'renewals lost', 'warning', qr/\A1 of 1; 0 /);
	# one that was evicted renews in vain, which is no fault
	own_session('admin')->value('SELECT dlock_stats_reset()');
	$tester->value(q{SELECT dlock_acquire('evicted', 'x', 600)});
	sql(q{SELECT dlock_force_release('evicted')});
	$tester->value(q{SELECT dlock_renew('evicted', 'x', 30)});
	$result = doctor();
	ends($result, 0, 'an eviction is no reason for a warning');
	finds($result, 'renewals lost', 'ok', qr/\A1 of 1; 1 holders were evicted\z/);
	$tester->quit;
	own_session('admin')->value('SELECT dlock_stats_reset()');
	ends(doctor(), 0, 'none any more');
	return;
}

# Leases keep their promises, and nothing of the test is left.
sub self_test
{
	sql(q{SELECT dlock_acquire('n', 'somebody else', 600)});
	my $result = doctor({ url => url() }, '--self-test');
	ends($result, 0, 'the self-test passes');
	finds($result, (map { ($_, 'ok', qr/\Aas promised\z/) } 'exclusion', 'expiry', 'retries', 'shared leases and permits',
			'all or none', 'order of waiters', 'a waiter that is gone', 'deadlocks', 'rollback', 'session leases', 'guards', 'load'),
		'not tried', 'note', qr/a crash.*a clock that is set\z/, 'verdict', 'ok', qr/by \d{3,} calls, this server can be trusted/);
	is($result->{found}[-1][1], 'verdict', 'the verdict comes last');
	ok(eventually(sub { sql('SELECT count(*) FROM dlock.locks') == 1 }), 'nothing is left of it');
	is(sql(q{SELECT name FROM dlock.locks}), 'n', 'but what others hold');
	sql(q{SELECT dlock_force_release('n')});
	own_session('admin')->value('SELECT dlock_stats_reset()');
	return;
}

# A lease that is over, which nobody removes.
sub overdue
{
	my ($stop, $go_on) = @_;
	$stop->();
	my $is_there = sub { return grep { $_->[1] eq 'leases that are over and still there' } @{ $_[0]{found} } };
	ok(comes_to($is_there), 'a lease that is over is still there');
	$go_on->();
	ok(comes_to(sub { !$is_there->(@_) }), 'until it is removed');
	return;
}

# Tokens near their end, which is far ahead of the clock.
sub token_end
{
	engine()->tokens_left(1000);
	sql(q{SELECT dlock_acquire('end', 'me', 600)});
	my $result = doctor();
	ends($result, 1, 'tokens that are near their end: a warning');
	finds($result, 'token space', 'warning', qr/\A100\.0 %/, 'system clock', 'warning', qr/\A\d+ s behind/);
	sql(q{SELECT dlock_release_all('me')});
	return;
}

# A clock of ours that is an hour off: the server's is not ours, then.
sub clocks
{
	my ($library) = grep { -e } glob '/usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1';
	die "libfaketime is not installed\n" if !$library;
	my $result = doctor(
		{
			url => url(undef, $admin),
			env => { LD_PRELOAD => $library, FAKETIME => '+1h', FAKETIME_DONT_FAKE_MONOTONIC => 1 }
		});
	finds($result, 'system clock', 'note', qr/\A3[56]\d\d\.\d s behind this machine's\z/);
	return;
}

# ----------------------------------------------------------------
# PostgreSQL
# ----------------------------------------------------------------

# Set settings, and restart the server.
sub set_postgres
{
	my (%settings) = @_;
	sql(q{LOAD 'dlock'}, map { "ALTER SYSTEM SET $_ = '$settings{$_}'" } sort keys %settings);
	engine()->restart;
	return;
}

sub reload
{
	my (%settings) = @_;
	sql(q{LOAD 'dlock'}, (map { defined $settings{$_} ? "ALTER SYSTEM SET $_ = '$settings{$_}'" : "ALTER SYSTEM RESET $_" } sort keys %settings),
		'SELECT pg_reload_conf()');
	return;
}

# In another database: its URL.
sub in_database
{
	my ($name, @sql) = @_;
	engine()->{node}->safe_psql('postgres', "CREATE DATABASE $name TEMPLATE template0");
	engine()->{node}->safe_psql($name, $_) for @sql;
	return { url => url(undef, $admin) =~ s/dbname=postgres/dbname=$name/r };
}

sub postgres_databases
{
	my $result = doctor(in_database('none'));
	ends($result, 2, 'a database without dlock: an error');
	finds($result, 'extension', 'error', qr/not created in this database/);
	$result = doctor(in_database('old', 'CREATE EXTENSION dlock', q{UPDATE pg_extension SET extversion = '1.9.9' WHERE extname = 'dlock'}));
	finds($result, 'extension', 'warning', qr/\A1\.9\.9, and /, 'this program', 'note', qr/\A\d/);
	my $elsewhere = in_database('elsewhere', 'CREATE SCHEMA s', 'CREATE EXTENSION dlock SCHEMA s');
	$result = doctor($elsewhere, '--try');
	finds($result, 'search_path', 'note', qr/without schema "s"/, 'a lease', 'ok', qr/taken/);
	$elsewhere->{url} =~ s/user=\w+/user=tester/;
	$result = doctor($elsewhere);
	finds($result, 'privileges', 'warning', qr/may not use schema s,/);
	$result = doctor(in_database('renamed', 'CREATE EXTENSION dlock', q{UPDATE pg_class SET relname = 't' WHERE oid = 'dlock_private.lease_table'::regclass}));
	ends($result, 2, 'a lock table that was renamed: an error');
	finds($result, 'lock table', 'error', qr/not as the extension created it/);
	$result = doctor(in_database('published', 'CREATE EXTENSION dlock', 'CREATE PUBLICATION p FOR ALL TABLES'));
	finds($result, 'publications FOR ALL TABLES', 'note', qr/\Ap\z/);
	my $url = in_database('private', 'CREATE EXTENSION dlock',
		'REVOKE EXECUTE ON FUNCTION dlock_acquire(text, text, dlock_duration, dlock_duration, text) FROM PUBLIC',
		'REVOKE SELECT ON dlock.waiters, dlock.locks FROM PUBLIC');
	$url->{url} =~ s/user=\w+/user=tester/;
	$result = doctor($url);
	ends($result, 1, 'a role that may not acquire: a warning');
	finds($result, 'privileges', 'warning', qr/may not call dlock_acquire\(text/, 'views', 'note', qr/may not read locks, waiters\z/);
	engine()->{node}->safe_psql('private', 'REVOKE USAGE ON SCHEMA dlock FROM PUBLIC');
	finds(doctor($url), 'views', 'note', qr/schema "dlock"/);

	# functions that do not do what leases promise
	my $broken = in_database('broken', 'CREATE EXTENSION dlock',
		q{CREATE OR REPLACE FUNCTION dlock_guard(name text, owner text, token bigint) RETURNS void LANGUAGE sql AS ''},
		q{CREATE OR REPLACE FUNCTION dlock_acquire_shared(name text, owner text, ttl dlock_duration, wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
			RETURNS bigint LANGUAGE sql AS 'SELECT NULL::bigint'});
	$result = doctor($broken, '--self-test');
	ends($result, 2, 'guards that do nothing: an error');
	finds($result, 'exclusion', 'ok', qr/./, 'guards', 'error', qr/while a transaction guarded it/,
		'shared leases and permits', 'error', qr/two could not share/, 'load', 'ok', qr/./,
		'verdict', 'error', qr/do not trust/);
	engine()->{node}->safe_psql('broken', q{CREATE OR REPLACE FUNCTION dlock_acquire(name text, owner text, ttl dlock_duration,
		wait dlock_duration DEFAULT '0', request text DEFAULT NULL)
		RETURNS bigint LANGUAGE sql AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint'});
	finds(doctor($broken, '--self-test'), 'exclusion', 'error', qr/held was granted to another/,
		'load', 'error', qr/two at a time|lost before its time/, 'verdict', 'error', qr/do not trust/);

	# each has a worker, which is one too many soon
	my $databases = q{FROM pg_database WHERE datname NOT IN ('postgres', 'template0', 'template1')};
	my $is_full = sub { return grep { $_->[1] eq 'max_worker_processes' && "$_->[0] $_->[2]" eq 'warning 8 of 8 taken' } @{ $_[0]{found} } };
	ok(comes_to($is_full), 'no place is left for a worker');
	for my $name (split ' ', own_session('admin')->value("SELECT string_agg(datname, ' ') $databases"))
	{
		# the server waits for 5 s until nobody is connected any more
		ok(eventually(sub { engine()->{node}->psql('postgres', "DROP DATABASE $name") == 0 }), "$name is dropped");
	}
	ok(comes_to(sub { !$is_full->(@_) }), 'and there is');
	return;
}

# Two wait for long, of which the one in a transaction block keeps dead rows.
sub postgres_waiters_have_snapshots
{
	my ($holds, $bare, $in_block) = map { own_session($_, $admin) } qw(holds bare block);
	$holds->value(q{SELECT dlock_acquire('held', 'me', 600)});
	my $pid = $in_block->value('SELECT pg_backend_pid()');
	$in_block->value('BEGIN');
	$_->send(q{SELECT dlock_acquire('held', 'you', 600, -1)}) for $bare, $in_block;
	ok(eventually(sub { sql(q{SELECT count(*) FROM dlock.waiters WHERE waiting_since < clock_timestamp() - interval '10 s'}) == 2 }),
		'two wait for long');
	my $result = doctor();
	ends($result, 1, 'a waiter with a snapshot: a warning');
	finds($result, 'VACUUM beside waiters', 'warning', qr/these 1 began to wait: process $pid \(block\)\z/);
	finds(other_account(), 'VACUUM beside waiters', 'ok', qr/\Ano wait of this role's/);
	$_->kill for $bare, $in_block;
	ok(eventually(sub { sql('SELECT waiters FROM dlock.stats') == 0 }), 'nobody waits any more');
	finds(doctor(), 'VACUUM beside waiters', 'ok', qr/\Ano wait holds it up\z/);
	$holds->value(q{SELECT dlock_release_all('me')});
	$holds->quit;
	return;
}

sub postgres_table_is_locked
{
	for my $lock ('SHARE', 'ACCESS EXCLUSIVE')
	{
		my $session = own_session('admin');
		my $name = join '', map { ucfirst lc } split / /, $lock;
		$session->value('BEGIN');
		$session->value("LOCK TABLE dlock_private.lease_table IN $lock MODE");
		my $result = doctor();
		ends($result, 1, "$lock lock on the lock table: a warning");
		finds($result, 'lock on the lock table', 'warning', qr/\A${name}Lock/);
		$session->value('ROLLBACK');
		$session->quit;
	}
	ends(doctor(), 0, 'none any more');
	return;
}

sub postgres
{
	my $node = engine()->{node};
	# as a server is that is no test's
	$node->append_conf('postgresql.conf', "fsync = on\ndlock.reap_interval = '1s'\ndlock.log_expired = on");
	engine()->restart;
	ok(comes_to(sub { $_[0]{status} == 0 }), 'the workers run');
	well();
	my $result = doctor();
	finds($result, 'server', 'ok', qr/\APostgreSQL \d+.*role "postgres"\z/, 'preload', 'note', qr/\Ano: /,
		'extension', 'ok', qr/\A\d/, 'launcher', 'ok', qr/runs/, 'worker of this database', 'ok', qr/runs/,
		'fsync', 'ok', qr/on/);
	like(all_of($result), qr/^(?:ok|note) clock source: [\w-]+$/m, 'the clock source, whichever it is');
	finds(other_account(), 'workers', 'note', qr/not seen/, 'clock source', 'note', qr/not seen/,
		q{other roles' owners}, 'note', qr/hidden/, 'synchronous_standby_names', 'note', qr/empty/,
		'idle_in_transaction_session_timeout', 'note', qr/\A0/);

	my $worker = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'});
	cases('no server' => \&no_server, 'databases' => \&postgres_databases, 'clocks' => \&clocks,
		'overdue' => sub {
			overdue(
				sub { Processes::stop_asleep($worker, 'Extension', \&sql); own_session('t')->value(q{SELECT dlock_acquire('over', 'me', 0.1)}) },
				sub { thaw($worker); });
			finds(doctor(), 'leases that ended at their deadline', 'note', qr/\A1\z/);
		});
	cases('counters' => \&counters);
	cases('self-test' => \&self_test);
	cases('snapshots' => \&postgres_waiters_have_snapshots);
	cases('locked' => \&postgres_table_is_locked);

	# settings that take effect at once
	reload(synchronous_standby_names => 'one', synchronous_commit => 'local');
	finds(doctor(), 'synchronous_commit', 'warning', qr/local: a failover/, 'synchronous standbys', 'ok', qr/\A0\z/);
	finds(doctor({ url => url() }), 'synchronous standbys', 'note', qr/not seen/);
	reload(synchronous_commit => 'on');
	$result = doctor();
	ends($result, 2, 'a standby that is missing: an error');
	finds($result, 'synchronous standbys', 'error', qr/none is connected/);
	reload(synchronous_standby_names => '', fsync => 'off', full_page_writes => 'off', synchronous_commit => 'off',
		zero_damaged_pages => 'on', ignore_checksum_failure => 'on', 'dlock.lock_delay' => '5s', 'dlock.log_expired' => 'off',
		'dlock.generic_wal' => 'on', 'dlock.reap_interval' => '10min', statement_timeout => '1h', lock_timeout => '1h',
		idle_session_timeout => '2h', $node->pg_version >= 17 ? (transaction_timeout => '1h') : ());
	$result = doctor();
	ends($result, 2, 'settings that lose leases: an error');
	finds($result, 'fsync', 'error', qr/off/, 'full_page_writes', 'warning', qr/off/, 'synchronous_commit', 'warning', qr/off/,
		'zero_damaged_pages', 'error', qr/on/, 'ignore_checksum_failure', 'error', qr/on/, 'dlock.lock_delay', 'note', qr/5000 ms/,
		'dlock.log_expired', 'note', qr/off/, 'dlock.generic_wal', 'note', qr/on/,
		'statement_timeout', 'note', qr/57014/, 'lock_timeout', 'note', qr/55P03/,
		'idle_session_timeout', 'note', qr/\A7200000 ms/, 'dlock.max_ttl', 'note', qr/\A86400 s/,
		$node->pg_version >= 17 ? ('transaction_timeout', 'note', qr/25P04/) : (),
		'settings', 'ok', qr/dlock\.lock_delay = 5s, .*dlock\.reap_interval = 10min/);
	reload(map { $_ => undef } qw(fsync full_page_writes synchronous_commit zero_damaged_pages ignore_checksum_failure
		dlock.lock_delay dlock.log_expired dlock.generic_wal dlock.reap_interval statement_timeout lock_timeout idle_session_timeout),
		$node->pg_version >= 17 ? 'transaction_timeout' : ());
	reload('dlock.max_ttl' => '8h');
	ok(comes_to(sub { !grep { $_->[1] eq 'dlock.max_ttl' } @{ $_[0]{found} } }), 'a max_ttl below 30000 s');
	reload('dlock.max_ttl' => undef);

	# little room
	set_postgres('dlock.max_waiters' => 1, 'dlock.max_guards' => 1, max_worker_processes => 1, max_connections => 8,
		shared_buffers => '128kB', 'dlock.boot_id' => 'mine', superuser_reserved_connections => 3, max_wal_senders => 0,
		autovacuum_max_workers => 1);
	my @sessions = map { engine()->client($_) } qw(waits guards idle);
	my $token = $sessions[1]->value(q{SELECT dlock_acquire('held', 'me', 600)});
	$sessions[0]->send(q{SELECT dlock_acquire('held', 'you', 600, -1)});
	$sessions[1]->value('BEGIN');
	$sessions[1]->value("SELECT dlock_guard('held', 'me', $token)");
	$sessions[2]->value('SELECT 1');
	eventually(sub { sql('SELECT waiters FROM dlock.stats') == 1 });
	# dlock's, or the server's own for logical replication, of which one has no place
	eventually(sub { sql(q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type LIKE '%launcher' AND backend_type <> 'autovacuum launcher'}) == 1 });
	$result = doctor();
	ends($result, 1, 'little room: warnings');
	finds($result, 'worker of this database', 'warning', qr/does not run/, 'max_worker_processes', 'warning', qr/\A1 of 1 taken/,
		'dlock.max_waiters', 'warning', qr/\A1 of this database wait; 1 of all can/, 'dlock.max_guards', 'warning', qr/\A1 leases are guarded/,
		'max_connections', 'warning', qr/of 5 taken/, 'shared_buffers', 'warning', qr/\A16 pages, and the lock table has \d+/,
		'dlock.boot_id', 'note', qr/"mine"/);
	$_->kill for @sessions;
	sql('ALTER SYSTEM RESET ALL');
	engine()->restart;

	# a standby
	$node->append_conf('postgresql.conf', "max_wal_senders = 5\nwal_level = replica\nhot_standby = on");
	engine()->restart;
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;
	reload(synchronous_standby_names => '*');
	ok(comes_to(sub { return grep { $_->[1] eq 'synchronous standbys' && "@$_[0,2]" eq 'ok 1' } @{ $_[0]{found} } }), 'a standby');
	my $other = { url => 'host=' . $standby->host . ' port=' . $standby->port . ' dbname=postgres user=postgres' };
	$result = doctor($other, '--try');
	finds($result, 'standby', 'note', qr/yes/, 'a lease', 'note', qr/not tried/);
	finds_no($result, 'it is well', qw(error));
	finds(doctor($other, '--self-test'), 'verdict', 'warning', qr/nothing could be tried/);
	reload(synchronous_standby_names => undef);
	$standby->stop;

	token_end();

	# a server that preloads the library, and one that is about to
	engine()->restart;
	finds(doctor(), 'preload', 'note', qr/\Ano: /, 'launcher', 'note', qr/starts with the first call/);
	reload(shared_preload_libraries => 'dlock');
	ok(comes_to(sub { return grep { $_->[1] eq 'preload' && $_->[3] =~ /^restart the server/ } @{ $_[0]{found} } }),
		'after a change a restart is what is missing');
	engine()->restart;
	ok(comes_to(sub { return grep { $_->[1] eq 'launcher' && $_->[0] eq 'ok' } @{ $_[0]{found} } }), 'then the launcher runs without a call');
	finds(doctor(), 'preload', 'ok', qr/start/);
	return;
}

# ----------------------------------------------------------------
# MySQL and MariaDB
# ----------------------------------------------------------------

# With these options: a server that was restarted with them.
sub with_options
{
	my ($options, $check) = @_;
	my @before = @{ engine()->{options} };
	engine()->{options} = [ @before, @$options ];
	engine()->restart;
	$check->();
	engine()->{options} = \@before;
	engine()->restart;
	return;
}

# With global variables set so.
sub with_variables
{
	my ($variables, $check) = @_;
	my %before = map { $_ => sql("SELECT \@\@GLOBAL.$_") // '' } keys %$variables;
	my $literal = sub { $_[0] =~ /\A[\d.]+\z/ ? $_[0] : "'$_[0]'" };
	sql(map { "SET GLOBAL $_ = " . $literal->($variables->{$_}) } sort keys %$variables);
	$check->();
	sql(map { "SET GLOBAL $_ = " . $literal->($before{$_}) } sort keys %before);
	return;
}

sub setting
{
	my ($name, $value) = @_;
	sql("REPLACE INTO dlock.settings (name, value) VALUES ('$name', '$value')");
	return;
}

sub mysql
{
	my $account = q{'} . getpwuid($>) . q{'@'localhost'};
	my $result;
	setting('reap_interval', 1);
	# the library reads it, and is at work
	sql(q{SELECT dlock_acquire('first', 'me', 600)}, q{SELECT dlock_release('first', 'me')}, 'SELECT dlock_stats_reset()');
	well();
	finds(doctor(), 'server', 'ok', $is_mariadb ? qr/\A\d+.*MariaDB.*account root\@localhost\z/ : qr/\AMySQL \d+/,
		'library', 'ok', qr/\A\d/, q{the library's connection}, 'ok', qr/works/, q{the library's account}, 'ok', $is_mariadb ? qr/\A$account, with CONNECTION ADMIN, PROCESS\z/ : qr/\A$account\z/,
		'innodb_flush_log_at_trx_commit', 'ok', qr/1/, 'max_waiters', 'ok', qr/\A0 wait; 1000 can/,
		$is_mariadb ? ('log_bin', 'note', qr/off/) : ('sync_binlog', 'ok', qr/1/, 'binlog_format', 'ok', qr/ROW/));
	finds(other_account(), map { ($_, 'note', qr/not seen/) } q{the library's account}, 'replication from another server',
		'settings', 'open transactions', $is_mariadb ? () : 'filters of the binary log');

	cases('no server' => \&no_server, 'clocks' => \&clocks, 'overdue' => sub {
		my $locks = own_session('admin');
		my $tester = own_session('t');
		overdue(sub {
			# so it can be looked at, and not be removed, which on a machine that stands still has
			# happened before
			ok(eventually(sub {
				$locks->value('SELECT dlock_stats_reset()');
				$tester->value(q{SELECT dlock_acquire('over', 'me', 3)});
				$locks->value('LOCK TABLES dlock.journal READ, dlock.lease_table READ');
				return 1 if $tester->value(q{SELECT count(*) FROM dlock.locks WHERE name = 'over'}) == 1;
				$locks->value('UNLOCK TABLES');
				return 0;
			}), 'a lease whose row stays');
		}, sub { $locks->value('UNLOCK TABLES') });
		finds(doctor(), 'leases that ended at their deadline', 'note', qr/\A1\z/);
	});
	cases('counters' => \&counters);
	cases('self-test' => \&self_test);

	# what accounts may
	sql('REVOKE EXECUTE ON dlock.* FROM tester@localhost', 'REVOKE SELECT ON dlock.locks FROM tester@localhost');
	finds(doctor({ url => url() }), 'privileges', 'note', qr/not guard/, 'views', 'note', qr/cannot read locks\z/);
	sql('GRANT EXECUTE ON PROCEDURE dlock.guard TO tester@localhost');
	finds(doctor({ url => url() }), 'privileges', 'note', qr/not guard/);
	sql('REVOKE EXECUTE ON PROCEDURE dlock.guard FROM tester@localhost',
		'GRANT EXECUTE ON dlock.* TO tester@localhost', 'GRANT SELECT ON dlock.locks TO tester@localhost');
	sql($is_mariadb ? "REVOKE CONNECTION ADMIN ON *.* FROM $account" : "REVOKE dlock_login\@localhost FROM $account");
	$result = doctor();
	ends($result, 0, q{the library's log-in: a note});
	finds($result, q{the library's log-in}, 'note', qr/init_connect/);
	with_variables({ init_connect => 'SELECT 1' }, sub {
		finds(doctor(), q{the library's log-in}, 'warning', qr/init_connect/);
	});
	sql($is_mariadb ? "GRANT CONNECTION ADMIN ON *.* TO $account" : "GRANT dlock_login\@localhost TO $account");
	sql("GRANT SUPER ON *.* TO $account");
	finds(doctor(), q{the library's account}, 'note', qr/administrator/);
	sql("REVOKE SUPER ON *.* FROM $account");

	# dlock's own settings
	setting('lock_delay', 5), setting('log_expired', 0), setting('reap_interval', 100), setting('max_waiters', 0), setting('max_ttl', 'soon');
	sql(q{DELETE FROM dlock.settings WHERE name = 'lock_timeout'});
	$result = doctor();
	ends($result, 1, 'settings that are wrong: warnings');
	finds($result, 'lock_delay', 'note', qr/5 s/, 'log_expired', 'note', qr/\A0/, 'reap_interval', 'warning', qr/100 s/,
		'max_waiters', 'warning', qr/\A0 wait; 0 can/, 'max_ttl', 'warning', qr/"soon" is not a number/,
		'lock_timeout', 'warning', qr/missing/, 'settings', 'ok', qr/lock_delay = 5, reap_interval = 100, log_expired = 0, max_waiters = 0/);
	setting('lock_delay', 0), setting('log_expired', 1), setting('reap_interval', 1), setting('max_waiters', 1000),
	  setting('max_ttl', 86400), setting('lock_timeout', 5);

	# the server's
	my $isolation = 'transaction_isolation';
	# MariaDB 10.11 has the old name only
	$isolation = 'tx_isolation'
	  if $is_mariadb && !sql(qq{SELECT count(*) FROM information_schema.system_variables WHERE variable_name = '$isolation'});
	my $time_limit = $is_mariadb ? 'max_statement_time' : 'max_execution_time';
	with_variables({
		innodb_flush_log_at_trx_commit => 2, max_allowed_packet => 65536, read_only => 1, $isolation => 'SERIALIZABLE',
		$time_limit => 3600, max_connections => 10, max_prepared_stmt_count => 50,
		$is_mariadb ? () : (sync_binlog => 0) },
		sub {
			my @sessions = map { engine()->client("idle$_") } 1 .. 7;
			$_->send('DO SLEEP(1000)') for @sessions;
			eventually(sub { sql(q{SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'}) >= 7 });
			my $found = doctor({ url => url(undef, $admin) }, '--try');
			$_->kill for @sessions;
			ends($found, 1, 'settings of the server: warnings');
			finds($found, 'innodb_flush_log_at_trx_commit', 'warning', qr/\A2/, 'max_allowed_packet', 'warning', qr/\A65536\z/,
				'read_only', 'note', qr/on/, $isolation, 'warning', qr/SERIALIZABLE/, $time_limit, 'note', qr/3600/,
				'max_connections', 'warning', qr/ of 10 taken/, 'max_prepared_stmt_count', 'warning', qr/of 50/,
				'a lease', 'note', qr/not tried/,
				$is_mariadb ? () : ('sync_binlog', 'warning', qr/\A0/));
		});
	with_variables({ offline_mode => 1, max_user_connections => 1 }, sub {
		finds(doctor(), 'offline_mode', 'warning', qr/on/, 'max_user_connections', 'warning', qr/1/);
	}) if !$is_mariadb;
	with_variables({ max_prepared_stmt_count => 0 }, sub {
		finds(doctor(), 'max_prepared_stmt_count', 'error', qr/of 0 taken/);
	});

	# a replica, as far as it is known without its source
	sql($is_mariadb ? q{CHANGE MASTER TO MASTER_HOST = '127.0.0.1'} : q{CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1'});
	sql($is_mariadb ? q{SET GLOBAL replicate_do_db = 'app'} : 'CHANGE REPLICATION FILTER REPLICATE_DO_DB = (app)');
	sql(q{SET GLOBAL slave_exec_mode = 'IDEMPOTENT'}) if $is_mariadb;
	sql(q{SET GLOBAL replica_exec_mode = 'IDEMPOTENT'}) if !$is_mariadb;
	finds(doctor(), 'replica', 'warning', qr/can be written/, 'replica_exec_mode', 'warning', qr/IDEMPOTENT/,
		'replicate_do_db', 'warning', qr/\Aapp\z/, $is_mariadb ? ('log_slave_updates', 'note', qr/off/) : ());
	sql($is_mariadb ? q{SET GLOBAL replicate_do_db = 'app,dlock', GLOBAL replicate_wild_ignore_table = 'dlock.%'}
		: q{CHANGE REPLICATION FILTER REPLICATE_DO_DB = (app, dlock), REPLICATE_WILD_IGNORE_TABLE = ('dlock.%')});
	finds(doctor(), 'replicate_do_db', 'note', qr/\Aapp,dlock\z/, 'replicate_wild_ignore_table', 'warning', qr/\Adlock\.%\z/);
	with_variables({ read_only => 1 }, sub { finds(doctor(), 'replica', 'ok', qr/is read-only/) });
	sql($is_mariadb ? 'RESET SLAVE ALL' : 'RESET REPLICA ALL');

	# what is missing, and what is left over
	sql('CREATE TABLE dlock.closed_journal_head (a int)');
	finds(doctor(), 'journal', 'warning', qr/closed/);
	sql('DROP TABLE dlock.closed_journal_head');
	sql(q{CREATE VIEW dlock.other_stats AS SELECT 1 AS acquired}, 'RENAME TABLE dlock.stats TO dlock.kept, dlock.other_stats TO dlock.stats');
	finds(doctor(), 'objects of database dlock', 'warning', qr/older version/);
	sql('DROP VIEW dlock.stats');
	finds(doctor(), 'objects of database dlock', 'error', qr/stats/);
	sql('RENAME TABLE dlock.kept TO dlock.stats');

	# what is set at the start
	with_options([
		'--innodb-doublewrite=0', '--binlog-format=STATEMENT', '--server-id=1', '--binlog-do-db=app', '--log-bin',
		$is_mariadb ? ('--thread-handling=pool-of-threads', '--innodb-flush-method=nosync') : () ],
		sub {
			my $found = doctor();
			ends($found, 2, 'options of the server: errors');
			finds($found, 'innodb_doublewrite', 'warning', qr/OFF/i, 'binlog_format', 'error', qr/STATEMENT/,
				'Binlog_Do_DB', 'warning', qr/\Aapp\z/,
				$is_mariadb ? ('thread_handling', 'note', qr/pool/, 'innodb_flush_method', 'error', qr/nosync/,
					'sync_binlog', 'warning', qr/\A0/) : ());
		});
	if ($is_mariadb)
	{
		# a cluster of one node
		my ($listen, $receive) = FreePorts::reserve(2);
		with_options([
			'--wsrep-on=ON', '--wsrep-provider=' . ($ENV{MARIADB_PREFIX} // '') . '/usr/lib/galera/libgalera_smm.so',
			'--wsrep-cluster-address=gcomm://',
			'--wsrep-node-address=127.0.0.1', '--binlog-format=ROW', '--innodb-autoinc-lock-mode=2',
			"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:$listen;ist.recv_addr=127.0.0.1:$receive;gcache.size=16M" ],
			sub {
				ok(comes_to(sub { return grep { "@$_[0 .. 2]" eq 'ok Galera 1 node' } @{ $_[0]{found} } }), 'ok: Galera');
			});
		# nobody who would wait for a replica is asked meanwhile
		with_variables({ rpl_semi_sync_master_timeout => 40000, rpl_semi_sync_master_enabled => 1 }, sub {
			finds(doctor(), 'rpl_semi_sync_master_timeout', 'warning', qr/40000/, 'semisynchronous replicas', 'warning', qr/none/);
		});
		sql(q{UNINSTALL SONAME 'dlock'});
		finds(doctor(), 'plugin dlock', 'warning', qr/not active/);
	}
	else
	{
		sql('ALTER INSTANCE DISABLE INNODB REDO_LOG');
		finds(doctor(), q{InnoDB's redo log}, 'error', qr/off/);
		sql('ALTER INSTANCE ENABLE INNODB REDO_LOG');
		sql(q{INSTALL PLUGIN group_replication SONAME 'group_replication.so'});
		sql(q{SET GLOBAL group_replication_group_name = '6a1b1c1e-0000-4000-8000-000000000001'},
			'SET GLOBAL group_replication_unreachable_majority_timeout = 0', q{SET GLOBAL group_replication_exit_state_action = 'READ_ONLY'});
		finds(doctor(), 'Group Replication', 'warning', qr/this member is OFFLINE/,
			'group_replication_unreachable_majority_timeout', 'warning', qr/\A0/, 'group_replication_exit_state_action', 'note', qr/READ_ONLY/);
		sql(q{SET GLOBAL group_replication_group_name = ''}) if 0;
		sql('UNINSTALL PLUGIN group_replication');
	}

	token_end();

	# the library cannot log in
	sql("ALTER USER $account ACCOUNT LOCK");
	engine()->restart;
	$result = doctor();
	ends($result, 2, 'a library that cannot log in: an error');
	finds($result, q{the library's connection}, 'error', qr/could not connect to the server by its socket/);
	sql("ALTER USER $account ACCOUNT UNLOCK");

	# nothing is there
	engine()->feed('mysql_udf/uninstall.sql');
	$result = doctor({ url => url(undef, $admin) }, '--try');
	ends($result, 2, 'not installed: an error');
	finds($result, 'library', 'error', qr/plugin_dir is \S+plugins/);
	return;
}

$is_postgres ? postgres() : mysql();
stop_server();
done_testing();
