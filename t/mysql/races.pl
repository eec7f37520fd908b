# Races that were lost once, and other findings of reviews: each is a case that begins
# with no lease in the table.  The kind of server is the argument.
#
# To make a commit hang, root locks the head of the journal: an append waits for root,
# a second at most.  Root also plays another server, and writes rows as if another
# writer had.  The log's commits hang in their flush, and log_attack.pl plays other writers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use HeldFlush;
use InTime;
use OldTables;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);

my ($kind) = @ARGV;
my $server = ($ENV{STORE} // '') eq 'log' ? HeldFlush->start($kind, Engines::performance_schema($kind)) : undef;
my $engine = $server ? $server->engine : Engines::start($kind, Engines::performance_schema($kind));
my @sessions;

sub sql { return $engine->control->value($_[0]) }

# What a statement answers: its first value, or its error.
sub answer_of
{
	my ($answer) = @_;
	return 'the connection is gone' if $answer->{gone};
	return "$answer->{error}: $answer->{message}" if defined $answer->{error};
	return $answer->{rows}[0][0] // 'no row';
}

sub ask
{
	my ($session, $sql) = @_;
	return answer_of($session->query($session->{engine}->translate($sql)));
}

# Sessions of one account, or of root.
sub sessions
{
	my ($count, $role) = @_;
	my @new = map { Scenarios::Client->new($engine, "session$_", $role) } 1 .. $count;
	push @sessions, @new;
	return wantarray ? @new : $new[0];
}

sub await
{
	my ($what, $check) = @_;
	Scenarios::Run::until($check) or die "$what: this never happens\n";
	return;
}

# The library waits for a lock for a second, and gives up: whatever it is to wait for has to
# be done in that.  What goes on is what has been done, not what is about to be.
my ($began, $longest);

sub it_waits_from_now { $began = $_[0] // time; return }

sub it_goes_on
{
	$longest = time - $began if time - $began > $longest;
	undef $began;
	return;
}

# Test something that works, and leave nothing behind; once more, if the machine was too
# busy for it.
sub test_case
{
	my ($title, $code) = @_;
	in_time(sub { $longest < 1 }, sub {
		$longest = 0;
		my $good = eval { $code->(); 1 };
		it_goes_on() if defined $began;    # it did not come to that
		is($good ? '' : $@, '', "$title: it ends");
		return if eval { $engine->clean_up(splice @sessions); 1 };
		fail("$title: cleaning up: $@");
		$engine->recover;
	});
	return;
}

# The owners that hold a name, with how many holds.
sub holders
{
	my ($name) = @_;
	my $rows = $engine->control->query("SELECT owner, version FROM dlock.locks WHERE name = '$name' ORDER BY owner")->{rows};
	return join(' ', map { "$_->[0]:$_->[1]" } @$rows);
}

# The row of a lease that another server has granted.
sub foreign_row
{
	my ($name, $ttl_us, $from) = @_;
	return "INSERT INTO dlock.lease_table (name, slot, owner, account_user, account_host, mode, kind,
		version, token, request, ttl_us, writes, writer, deadline_us, connection_id, acquired_us, expires_us)
		SELECT $name, 0, 'foreign', 'tester', 'elsewhere', 1, 1, 1, 1, '', $ttl_us, 1, 77, 1, 0, 1, 1 "
	  . ($from // '');
}

my $lock_head = 'SELECT writer FROM dlock.journal_head WHERE place = 0 FOR UPDATE';

# Until somebody, or so many, wait for a row; a call does so for as long as lock_timeout is.
sub await_blocked
{
	my ($most) = @_;
	await('a commit hangs', sub {
		die "it comes too late to hang\n" if defined $began && time - $began > 10;
		return $engine->control->query(q{SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'})->{rows}[0][1] >= ($most // 1);
	});
	return;
}

# Start a statement, and see to it that the library has got it, as far as that
# can be seen: it runs, and does so for the second time that we look.
sub start
{
	my ($session, $sql) = @_;
	my $count = 0;
	$session->send($sql);
	await("$sql: it runs", sub {
		return $session->is_answered || ($count += sql("SELECT count(*) FROM information_schema.processlist
			WHERE id = $session->{id} AND info LIKE 'SELECT dlock%'")) > 3;
	});
	return;
}

# Have calls, [session, statement], made in one commit that hangs, do something,
# and let it go on.  They are sent while another commit hangs.
my $ncommits = 0;

sub in_commit
{
	my ($calls, $meanwhile) = @_;
	$ncommits++;
	return behind_flush($calls, $meanwhile) if $server;
	my @root = sessions(2);
	my @blocked = sessions(2, 'tester');
	my @names = ("hangs$ncommits", "goes$ncommits");

	$root[0]->value("BEGIN; $lock_head");
	it_waits_from_now();
	$blocked[0]->send("SELECT dlock_acquire('$names[0]', 'blocked', 600)");
	await_blocked();
	$root[1]->send("BEGIN; $lock_head");
	await_blocked(2);
	start(@$_) for @$calls;
	start($blocked[1], "SELECT dlock_acquire('$names[1]', 'blocked', 600)");
	my $second = time;
	$root[0]->query('ROLLBACK');
	it_goes_on();
	it_waits_from_now($second);
	like(answer_of($blocked[0]->answer), qr/^\d+$/, 'one commit goes on');
	$root[1]->answer;
	await_blocked();
	$meanwhile->();
	$root[1]->query('ROLLBACK');
	it_goes_on();
	return answer_of($blocked[1]->answer);
}

# The same with the log: the calls are decided while a commit hangs, and go into the next.
sub behind_flush
{
	my ($calls, $meanwhile) = @_;
	my $blocked = sessions(1, 'tester');
	$server->hold;
	it_waits_from_now();
	$blocked->send("SELECT dlock_acquire('hangs$ncommits', 'blocked', 600)");
	my $hangs = $server->hangs;
	start(@$_) for @$calls;
	it_goes_on();
	my $good = $hangs && eval { $meanwhile->(); 1 };
	$server->let_go;
	die($hangs ? $@ : "no commit hangs\n") unless $good;
	return answer_of($blocked->answer);
}

# The library's connection that writes.
sub loopback
{
	my $id = $server ? sql('SELECT max(id) FROM information_schema.processlist WHERE ' . $engine->is_writing) : 0;
	return $id && $id ne 'NULL' ? $id : $engine->loopback;
}

# Have the library connect anew.
sub reconnect
{
	my $id = loopback();
	sql("KILL $id") if $id > 0;
	# to look is no risk
	sql(q{SELECT dlock_is_free('-')});
	return;
}

test_case('a release behind a guard' => sub {
	my ($one, $two, $other) = sessions(3, 'tester');
	my $token = ask($one, q{SELECT dlock_acquire_shared('n', 'one', 600)});
	ask($two, q{SELECT dlock_acquire_shared('n', 'two', 600)}) for 1, 2;
	is(holders('n'), 'one:1 two:2', 'one of two holders has it twice');
	ask($one, "BEGIN; CALL dlock.guard('n', 'one', $token)");
	is(ask($two, q{SELECT dlock_release('n', 'two')}), 1, 'and gives it back once, while the first guards it');
	ask($other, "SELECT dlock_acquire('n$_', 'other', 600)") for 1 .. 50;
	ask($one, 'COMMIT');
	is(ask($two, q{SELECT dlock_renew('n', 'two', 600)}), 1, 'it still holds it when the guard has ended');
	is(holders('n'), 'one:1 two:1', 'once');
});

$server or test_case('another server takes a lease before the commit' => sub {
	my ($session) = sessions(1, 'tester');
	my ($root) = sessions(1);
	is(ask($session, q{SELECT dlock_acquire('o', 'own', 600)}) =~ /^\d+$/, 1, 'a name is taken');
	is(ask($session, q{SELECT dlock_release('o', 'own')}), 1, 'and given back');
	sql('SELECT dlock_settle()');
	my $mark = sql('SELECT max(mark) FROM dlock.lease_mark');
	$root->value("BEGIN; $lock_head");
	it_waits_from_now();
	$session->send(q{SELECT dlock_acquire_all(JSON_ARRAY('n', 'o'), 'own', 600)});
	await_blocked();
	$root->value(OldTables::append(77, { name => 'n', owner => 'foreign', token => $mark, ttl => 600_000_000 }));
	$root->value('UPDATE dlock.journal_head SET writer = 77');
	$root->query('COMMIT');
	it_goes_on();
	is(answer_of($session->answer), 'NULL', 'whoever wanted the name does not get it');
	is(holders('n'), 'foreign:1', 'it is as it was');
	like(ask($session, q{SELECT dlock_acquire('o', 'own', 600)}), qr/^\d+$/, 'the other name is free');
});

test_case('two waiters with one request id' => sub {
	my ($holder, $older, $younger) = sessions(3, 'tester');
	my $token;
	ask($holder, q{SELECT dlock_acquire('n', 'holder', 600)});
	for my $waiter ($older, $younger)
	{
		$waiter->send(q{SELECT dlock_acquire('n', 'waiter', 600, 600, 'id')});
		await('it waits', sub { $engine->is_waiting($waiter) });
	}
	in_commit([ [ $holder, q{SELECT dlock_release('n', 'holder')} ] ], sub {
		is(answer_of($holder->answer), 1, 'the holder gives back');
		$engine->cancel($older);
		like(answer_of($older->answer), qr/cancel|interrupt/i, 'the older is killed in the commit');
	});
	like($token = answer_of($younger->answer), qr/^\d+$/, 'the younger gets it');
	is(ask($younger, "SELECT dlock_renew('n', 'waiter', 600, $token)"), 1, 'and keeps it');
	is(ask($holder, q{SELECT dlock_acquire('n', 'holder', 600)}), 'NULL', 'nobody else gets it');
});

test_case('a replay on many names that is killed' => sub {
	my ($session, $other) = sessions(2, 'tester');
	my $sql = q{SELECT dlock_acquire_all(JSON_ARRAY('n', 'o'), 'own', 600, 0, 'id')};
	like(ask($session, $sql), qr/^\[\d+, ?\d+\]$/, 'two leases');
	in_commit([ [ $session, $sql ] ], sub {
		$engine->cancel($session);
		like(answer_of($session->answer), qr/cancel|interrupt/i, 'a replay is killed in the commit');
	});
	is(ask($session, "SELECT dlock_renew('$_', 'own', 600)"), 1, "$_ is held") for 'n', 'o';
	is(ask($other, "SELECT dlock_acquire('$_', 'other', 600)"), 'NULL', "$_ is nobody else's") for 'n', 'o';
});

test_case('releases whose commit is lost' => sub {
	my @holders = sessions(3, 'tester');
	ask($_, q{SELECT dlock_acquire('n', 'own', 600)}) for @holders;
	is(holders('n'), 'own:3', 'three holds');
	my $answer = in_commit([ map { [ $_, q{SELECT dlock_release('n', 'own')} ] } @holders ], sub {
		is(answer_of($_->answer), 1, 'a release is answered') for @holders;
		sql('KILL ' . loopback());
	});
	like($answer, qr/^(\d+$|.*connection to the lock table was lost)/, 'whoever waits for the commit is told');
	is(holders('n'), '', 'all three are given back');
	like(ask($holders[0], q{SELECT dlock_acquire('n', 'another', 600)}), qr/^\d+$/, 'somebody else gets it');
});

test_case('a hold whose commit is lost, and that nobody wants any more' => sub {
	my ($holder, $again, $other) = sessions(3, 'tester');
	like(ask($holder, q{SELECT dlock_acquire('n', 'own', 600)}), qr/^\d+$/, 'a hold');
	my $id = ask($again, 'SELECT connection_id()');
	in_commit([ [ $again, q{SELECT dlock_acquire('n', 'own', 600)} ] ], sub {
		sql("KILL QUERY $id");
		like(answer_of($again->answer), qr/^1317 /, 'another is canceled');
		sql('KILL ' . loopback());
	});
	is(holders('n'), 'own:1', 'the first one is there');
	is(ask($other, q{SELECT dlock_acquire('n', 'other', 600)}), 'NULL', 'and nobody else gets it');
	is(ask($holder, q{SELECT dlock_release('n', 'own')}), 1, 'until it is given back');
});

test_case('a session lease on another connection' => sub {
	my ($old, $new, $holder, $waiter) = sessions(4, 'tester');
	ask($holder, q{SELECT dlock_acquire('o', 'holder', 600)});
	for my $others (0, 1)
	{
		like(ask($old, "SELECT dlock_acquire_session('n$others', 'own', 600)"), qr/^\d+$/, 'a session lease');
		if ($others)
		{
			$waiter->send(q{SELECT dlock_acquire('o', 'waiter', 600, 600)});
			await('it waits', sub { $engine->is_waiting($waiter) });
		}
		$new->send("SELECT dlock_acquire_session('n$others', 'own', 600, 600)");
		await('it waits', sub { $new->is_answered || $engine->is_waiting($new) });
		is($new->is_answered, 0, 'its owner waits for it elsewhere' . ($others ? ', while others wait' : ''));
		is(ask($old, "SELECT dlock_release('n$others', 'own')"), 1, 'until it is given back');
		like(answer_of($new->answer), qr/^\d+$/, 'and gets it');
	}
	is($waiter->is_answered, 0, 'the other waiter waits');
	ask($holder, q{SELECT dlock_release('o', 'holder')});
	like(answer_of($waiter->answer), qr/^\d+$/, 'and gets what it wants');
});

test_case('a guard among sharers' => sub {
	my ($one, $two) = sessions(2, 'tester');
	my $token = ask($one, q{SELECT dlock_acquire_shared('n', 'one', 600)});
	ask($one, "BEGIN; CALL dlock.guard('n', 'one', $token)");
	my $answer = $two->query(q{SELECT dlock_acquire_shared('n', 'two', 600)});
	like(answer_of($answer), qr/^(NULL|\d+)$/, 'another is answered');
	$two->send(q{SELECT dlock_acquire_shared('n', 'three', 600, 600)});
	await('it waits', sub { $two->is_answered || $engine->is_waiting($two) });
	ask($one, 'COMMIT');
	like(answer_of($two->answer), qr/^\d+$/, 'whoever waits gets it when the guard has ended');
});

test_case('releases around a guard, in one commit' => sub {
	my ($one, $two, $three) = sessions(3, 'tester');
	ask($one, q{SELECT dlock_acquire_shared('n', 'one', 600)});
	my $token = ask($two, q{SELECT dlock_acquire_shared('n', 'two', 600)});
	ask($three, q{SELECT dlock_acquire_shared('n', 'three', 600)});
	ask($two, "BEGIN; CALL dlock.guard('n', 'two', $token)");
	my @calls = ([ $three, q{SELECT dlock_release('n', 'three')} ], [ $one, q{SELECT dlock_release('n', 'one')} ]);
	in_commit(\@calls, sub {
		is(answer_of($_->[0]->answer), 1, 'who is not guarded gives back') for @calls;
	});
	ask($two, 'COMMIT');
	await('only who guarded has it', sub { holders('n') eq 'two:1' });
});

test_case('three hundred guarded names' => sub {
	my ($guard, $other) = sessions(2, 'tester');
	# else InnoDB makes locks of gaps from those of rows when it splits a page
	ask($guard, 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED');
	ask($guard, join(' ', 'BEGIN;', map { qq{SELECT dlock_acquire('n$_', 'own', 600) INTO \@t; CALL dlock.guard('n$_', 'own', \@t);} } 1 .. 300));
	my $answer = $guard->query(join('; ', map { "SELECT dlock_release('n$_', 'own')" } 1 .. 300));
	is(scalar(grep { $_->[0] eq '1' } @{ $answer->{rows} }), 300, 'are given back in the transaction that guards them');
	$answer = $other->query(q{SELECT dlock_acquire('other', 'other', 600)});
	like(answer_of($answer), qr/^\d+$/, 'somebody else gets another name');
	is(ask($other, q{SELECT dlock_acquire('n300', 'other', 600)}), 'NULL', 'but none of these');
	is(ask($other, q{SELECT dlock_renew_all('own', 600)}), 0, 'nor can they be renewed');
	is(ask($other, q{SELECT dlock_release_all('own')}), 0, 'or given back again');
	ask($guard, 'COMMIT');
	like(ask($other, q{SELECT dlock_acquire('n300', 'other', 600, 600)}), qr/^\d+$/, 'until the transaction ends');
	await('all are free', sub { sql(q{SELECT count(*) FROM dlock.lease_table WHERE owner = 'own'}) == 0 });
});

# What is set for all connections is not meant for the library's.
for my $setting ('sql_select_limit = 1', 'sql_safe_updates = 1', "completion_type = 'CHAIN'", "completion_type = 'RELEASE'",
	"sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'", "character_set_server = 'sjis'",
	"collation_server = 'utf8mb4_bin'", q{init_connect = "SET NAMES sjis, sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'"})
{
	my ($name) = $setting =~ /(\w+)/;
	test_case($setting => sub {
		my ($one, $two) = sessions(2, 'tester');
		ask($one, q{SELECT dlock_acquire_shared('n', 'one', 600)});
		ask($two, q{SELECT dlock_acquire_shared('n', 'two', 600)});
		sql("SET GLOBAL $setting");
		reconnect();
		is(ask($two, q{SELECT dlock_renew('n', 'two', 600)}), 1, "$setting: a second holder renews");
		is(holders('n'), 'one:1 two:1', "$setting: both are there");
		is(ask($one, q{SELECT dlock_release('n', 'one')}), 1, "$setting: the first gives back");
		is(ask($one, q{SELECT dlock_acquire('n', 'one', 600)}), 'NULL', "$setting: the second still has it");
		like(ask($one, q{SELECT dlock_acquire('o', 'one', 600)}), qr/^\d+$/, "$setting: another name can be had");
		is(ask($one, q{SELECT dlock_release('o', 'one')}), 1, "$setting: and given back");
		is(holders('o'), '', "$setting: for good");
		# quotes, backslashes and a letter that is none in Shift JIS
		my $binary = q{x'6F27225CC3A95C'};
		like(ask($one, "SELECT dlock_acquire($binary, $binary, 600)"), qr/^\d+$/, "$setting: one with quotes");
		is(sql("SELECT count(*) FROM dlock.locks WHERE hex(name) = hex($binary) AND hex(owner) = hex($binary)"), 1, "$setting: as it was asked for");
		is(ask($one, "SELECT dlock_release($binary, $binary)"), 1, "$setting: and given back");
	});
	sql("SET GLOBAL $name = DEFAULT");
	reconnect();
}

test_case('a server that was read-only' => sub {
	my ($session, $other, $third) = sessions(3, 'tester');
	my ($root) = sessions(1);
	ask($session, q{SELECT dlock_acquire('kept', 'own', 600)});
	my $before = ask($session, q{SELECT dlock_acquire('n', 'own', 600)});
	is(ask($session, q{SELECT dlock_release('n', 'own')}), 1, 'a lease has been given back');
	sql('SET GLOBAL sql_safe_updates = 1');
	reconnect();
	sql('SET GLOBAL read_only = 1');

	# the log's connection was killed, and so nobody may know
	like(ask($session, q{SELECT dlock_renew('kept', 'own', 600)}), $server ? qr/^1792 25006|could not learn whether/ : qr/^1792 25006/, 'it is read-only');

	# while the library waits for the table, two calls come together
	if (!$server)
	{
		$root->query('LOCK TABLES dlock.lease_table WRITE');
		it_waits_from_now();
		$session->send(q{SELECT dlock_owner('kept')});
		await('the table is waited for', sub {
			return sql(q{SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'}) > 0;
		});
		start($other, q{SELECT dlock_acquire('n', 'other', 600)});
		start($third, q{SELECT dlock_owner('kept')});
		$root->query('UNLOCK TABLES');
		it_goes_on();
		is(answer_of($session->answer), 'own', 'whoever looks is answered');
		like(answer_of($other->answer), qr/^1792 25006: .*read.only/, 'whoever acquires is refused');
		is(answer_of($third->answer), 'own', 'whoever looks in the same moment is answered');
	}

	# it has a look once a second
	my $looks = sub { $engine->control->query(q{SHOW GLOBAL STATUS LIKE 'Com_show_variables'})->{rows}[0][1] };
	my $looked = $looks->();
	await('the library notices', sub { $looks->() > $looked });
	is(ask($session, q{SELECT dlock_owner('kept')}), 'own', 'it is still so');
	# no server's tokens are above its clock
	my $clock = int((time - 1577836800) * 2**20);
	sql('SET GLOBAL read_only = 0');
	my $after = ask($session, q{SELECT dlock_acquire('n', 'own', 600)});
	cmp_ok($after, '>', $before, 'tokens grow');
	cmp_ok($after, '>=', $clock, 'and are larger than what another server may have granted meanwhile');
});
# MariaDB makes an account for the server's user that has all privileges.
test_case('a read-only server that lets the library write' => sub {
	my ($session) = sessions(1, 'tester');
	my $privilege = $kind eq 'mariadb' ? 'READ_ONLY ADMIN' : 'CONNECTION_ADMIN';
	my $user = sql('SELECT dlock_os_user()');
	ask($session, q{SELECT dlock_acquire('kept', 'own', 600)});
	sql("GRANT $privilege ON *.* TO `$user`\@localhost");
	sql('SET GLOBAL read_only = 1');
	reconnect();
	like(ask($session, q{SELECT dlock_acquire('n', 'own', 600)}), qr/^1792 25006: .*read.only/, 'it does not acquire');
	like(ask($session, q{SELECT dlock_renew('kept', 'own', 600)}), qr/^1792 25006: .*read.only/, 'nor renew');
	is(ask($session, q{SELECT dlock_owner('kept')}), 'own', 'it looks');
	sql('SET GLOBAL read_only = 0');
	is(ask($session, q{SELECT dlock_renew('kept', 'own', 600)}), 1, 'until the server may be written');
	sql("REVOKE $privilege ON *.* FROM `$user`\@localhost");
});
sql("SET GLOBAL $_ = DEFAULT") for 'read_only', 'sql_safe_updates';
reconnect();

# That is whether the plugin is loaded.
test_case('a server that was in a cluster' => sub {
	my ($session) = sessions(1, 'tester');
	my $looks = sub { $engine->control->query(q{SHOW GLOBAL STATUS LIKE 'Com_show_variables'})->{rows}[0][1] };
	my $noticed = sub {
		my $looked = $looks->();
		# one look may have begun before
		await('the library notices', sub { $looks->() > $looked + 1 });
	};
	ask($session, q{SELECT dlock_acquire('n', 'own', 600)});
	is(ask($session, q{SELECT dlock_release('n', 'own')}), 1, 'a lease has been given back');
	is(holders('n'), '', 'for good');
	sql(q{INSTALL PLUGIN group_replication SONAME 'group_replication.so'});
	$noticed->();
	# a member grants something
	my $mark = sql('SELECT max(mark) + 1 FROM dlock.lease_mark');
	sql("UPDATE dlock.lease_mark SET mark = $mark");
	sql('UNINSTALL PLUGIN group_replication');
	$noticed->();
	cmp_ok(ask($session, q{SELECT dlock_acquire('n', 'own', 600)}), '>', $mark, 'tokens are larger than what others have granted');
}) if $kind eq 'mysql' && !$server;

# A guard is told where its row is, and locks it a moment later.  Did the row move to
# the slot of a sharer who leaves, the guard would lock the gap where it was.  The
# steps are made one by one here.
test_case('a sharer leaves while another guards' => sub {
	my ($first, $guarding, $other) = sessions(3, 'root');
	like(ask($first, q{SELECT dlock_acquire_shared('n', 'first', 600)}), qr/^\d+$/, 'the first, in slot 0');
	my $token = ask($guarding, q{SELECT dlock_acquire_shared('n', 'guarding', 600)});
	sql('SELECT dlock_settle()');
	is(sql(q{SELECT slot FROM dlock.lease_table WHERE owner = 'guarding'}), 1, 'another one, in slot 1') unless $server;
	ask($guarding, 'BEGIN');
	it_waits_from_now();    # an announced guard, too
	is(ask($guarding, "SELECT dlock_guard_begin('n', 'guarding', $token)"), 1, 'it is about to be guarded');
	is(ask($first, q{SELECT dlock_release('n', 'first')}), 1, 'the first leaves');
	sql('SELECT dlock_settle()');	# it is written, if it can be
	is(sql(q{SELECT slot FROM dlock.lease_table WHERE owner = 'guarding'}), 1, '... and the other one does not move up') unless $server;
	ask($guarding, "CALL dlock.guard_row('n', $token, \@changed)");
	it_goes_on();
	is(ask($guarding, 'SELECT @changed'), 1, 'now the row is guarded');
	for my $name ('m', 'n0', 'o')
	{
		like(ask($other, "SELECT dlock_acquire('$name', 'other', 600)"), qr/^\d+$/, "a new lease on \"$name\" does not wait for that");
	}
	is(sql(q{SELECT count(*) FROM dlock.locks WHERE owner = 'other'}), 3, '... and neither do their rows');
	is(ask($guarding, "SELECT dlock_guard_check('n', 'guarding', $token, 1)"), 1, 'the guard is done');
	is(ask($guarding, 'COMMIT'), 'no row', '... and over');
	is(ask($other, q{SELECT dlock_release_all('other')}), 3, 'given back');
	is(ask($guarding, q{SELECT dlock_release('n', 'guarding')}), 1, 'and this');
});

# It is not over because the name was read between these steps.
test_case('a name is read while a guard begins' => sub {
	my ($sharer, $guarding, $other) = sessions(3, 'root');
	like(ask($sharer, q{SELECT dlock_acquire_shared('n', 'sharer', 600)}), qr/^\d+$/, 'somebody shares a lease');
	my $token = ask($guarding, q{SELECT dlock_acquire_shared('n', 'guarding', 600)});
	ask($guarding, 'BEGIN');
	is(ask($guarding, "SELECT dlock_guard_begin('n', 'guarding', $token)"), 1, 'it is about to be guarded');
	is(ask($sharer, q{SELECT dlock_renew('n', 'sharer', 600)}), 1, 'the name is read');
	ask($guarding, "CALL dlock.guard_row('n', $token, \@changed)");
	is(ask($guarding, "SELECT dlock_guard_check('n', 'guarding', $token, \@changed)"), 1, 'the row is guarded');
	is(ask($other, q{SELECT dlock_force_release('n')}), 2, 'all are evicted');
	is(ask($other, q{SELECT dlock_acquire('n', 'other', 600)}), 'NULL', 'nobody else gets it');
	ask($guarding, 'COMMIT');
	like(ask($other, q{SELECT dlock_acquire('n', 'other', 600, 600)}), qr/^\d+$/, 'before the transaction ends');
	is(ask($other, q{SELECT dlock_release('n', 'other')}), 1, 'given back');
});

# Somebody who is about to guard, and does not, is in nobody's way for long.
test_case('a guard that does not come' => sub {
	my ($guarding, $other) = sessions(2, 'root');
	my $token = ask($guarding, q{SELECT dlock_acquire('n', 'guarding', 600)});
	ask($guarding, 'BEGIN');
	is(ask($guarding, "SELECT dlock_guard_begin('n', 'guarding', $token)"), 1, 'it is about to be guarded');
	is(ask($guarding, q{SELECT dlock_release('n', 'guarding')}), 1, 'it is given back instead');
	like(ask($other, q{SELECT dlock_acquire('n', 'other', 600, 600)}), qr/^\d+$/, 'somebody else is granted it');
	ask($guarding, 'ROLLBACK');
	is(ask($other, q{SELECT dlock_release('n', 'other')}), 1, 'given back');

	# not even if its connection ends
	$token = ask($other, q{SELECT dlock_acquire('n', 'guarding', 600)});
	ask($guarding, 'BEGIN');
	is(ask($guarding, "SELECT dlock_guard_begin('n', 'guarding', $token)"), 1, 'it is about to be guarded again');
	sql('KILL ' . ask($guarding, 'SELECT connection_id()'));
	is(ask($other, q{SELECT dlock_release('n', 'guarding')}), 1, 'it is given back');
	like(ask($other, q{SELECT dlock_acquire('n', 'other', 600, 600)}), qr/^\d+$/, 'somebody else is granted it');
	is(ask($other, q{SELECT dlock_release('n', 'other')}), 1, 'given back');
});

# The server is killed for these, and reaps often from now on.
test_case('session leases of an earlier run' => sub {
	my ($session) = sessions(1, 'tester');
	ask($session, "SELECT dlock_acquire_session('$_', 'own', 600)") for 'n', 'n', 'o', 'o';
	$engine->set(reap_interval => 0.1);
	$session->kill;
	my ($one, $two) = sessions(2, 'tester');
	is(holders('n'), 'own:2', 'a session lease with two holds is there');
	is(ask($one, q{SELECT dlock_renew('n', 'own', 600)}), 1, 'it is renewed');
	is(ask($one, q{SELECT dlock_release('o', 'own')}), 1, 'of another, one of two holds is given back');
	is(ask($two, "SELECT dlock_acquire('$_', 'other', 600)"), 'NULL', "$_ is nobody else's") for 'n', 'o';
	is(holders('n') . ' ' . holders('o'), 'own:2 own:1', 'both are there');
	is(ask($one, q{SELECT dlock_release('o', 'own')}), 1, 'the last hold is given back');
	like(ask($two, q{SELECT dlock_acquire('o', 'other', 600)}), qr/^\d+$/, 'somebody else gets it');
});

$server or test_case('hundreds of rows to reap' => sub {
	my ($guard, $other) = sessions(2, 'tester');
	my $token = ask($guard, q{SELECT dlock_acquire('n', 'own', 600)});
	ask($guard, "BEGIN; CALL dlock.guard('n', 'own', $token)");
	is(ask($guard, q{SELECT dlock_release('n', 'own')}), 1, 'a lease that is guarded has been given back');
	sql(foreign_row(q{concat('f', i)}, 1, 'FROM (WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r WHERE i < 300) SELECT i FROM r) AS r'));
	sql('SELECT dlock_reload()');
	await('they are reaped', sub { sql(q{SELECT count(*) FROM dlock.lease_table WHERE owner = 'foreign'}) == 0 });
	my $answer = $other->query(q{SELECT dlock_acquire('o', 'other', 600)});
	like(answer_of($answer), qr/^\d+$/, 'somebody gets another name');
	ask($guard, 'COMMIT');
	like(ask($other, q{SELECT dlock_acquire('n', 'other', 600, 600)}), qr/^\d+$/, 'and this when the guard has ended');
});

# As when it was primary, then a replica, then primary, too soon to notice.
$server or test_case('another server was primary for a moment' => sub {
	my ($session) = sessions(1, 'tester');
	for my $round (1, 2)
	{
		like(ask($session, q{SELECT dlock_acquire('n', 'own', 600)}), qr/^\d+$/, 'a token');
		is(ask($session, q{SELECT dlock_release('n', 'own')}), 1, 'given back');
	}
	sql('SELECT dlock_settle()');	# it is written
	sql('UPDATE dlock.lease_mark SET mark = mark + 1000000, writer = 1');
	sql('UPDATE dlock.journal_head SET writer = 1');
	my $mark = sql('SELECT max(mark) FROM dlock.lease_mark');
	cmp_ok(ask($session, q{SELECT dlock_acquire('n', 'own', 600)}), '>', $mark, 'the next one is above those of the other server');
	is(sql('SELECT count(*) FROM dlock.lease_mark WHERE writer = 1'), 0, 'and the marks are ours again');
	is(ask($session, q{SELECT dlock_release('n', 'own')}), 1, 'given back');
});

$engine->stop;
done_testing();
