# Everything that can go wrong around the library: each gives a clear error within
# bounded time, or has no effect, and the next call works.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Config;
use Engines;
use POSIX ();
use Scenarios;
use Test::More;

my %number;
@number{ split ' ', $Config{sig_name} } = split ' ', $Config{sig_num};
my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;

sub sql { return $admin->value($_[0]) }

# What a statement answers: its first value, or its error.
sub attempt { return $admin->outcome($_[0]) }

# The statement is answered with a token.
sub works
{
	my ($what) = @_;
	like(attempt(q{SELECT dlock_acquire('next', 'a', 600)}), qr/^\d+$/, "$what: the next call works");
	is(attempt(q{SELECT dlock_release('next', 'a')}), 1, "$what: and the one after it");
	return;
}

sub session
{
	my ($name, $role) = @_;
	return Scenarios::Client->new($engine, $name, $role);
}

# The first calls of all come at the same moment.
my @first = map { session("first$_", 'tester') } 1 .. 8;
$_->send("SELECT dlock_acquire('one', '$_->{name}', 600, 600)") for @first;
my $served = 0;
while ($served < @first)
{
	my @answered;
	Scenarios::Run::until(sub { @answered = grep { $_->is_busy && $_->is_answered } @first }) or die "no first call is answered\n";
	for my $session (@answered)
	{
		like($session->outcome, qr/^\d+$/, 'one of eight first calls');
		is($session->outcome("SELECT dlock_release('one', '$session->{name}')"), 1, 'gives back');
		$served++;
	}
}
$_->quit for @first;

# The loopback connection is killed.
sub loopback { return $engine->loopback }
sql(q{SELECT dlock_acquire('kept', 'a', 86400)});
my $id = loopback();
cmp_ok($id, '>', 0, 'the library has a connection');
sql("KILL $id");
works('after its connection was killed');
is(sql(q{SELECT dlock_owner('kept')}), 'a', 'what was held is held');
isnt(loopback(), $id, 'it has another one');
for my $call (q{dlock_renew_all('owner', 60)}, q{dlock_release_all('owner')})
{
	sql(q{SELECT dlock_acquire('theirs', 'owner', 600)});
	sql(q{SELECT dlock_owner('theirs')});
	sql('KILL ' . loopback());
	is(attempt("SELECT $call"), 1, "$call finds what there is without it");
}

# Nothing can be written.
sql('SET GLOBAL read_only = 1');
like(attempt(q{SELECT dlock_acquire('n', 'a', 30)}), qr/^1792 25006: .*read.only/, 'read only: an error');
is(attempt(q{SELECT dlock_owner('kept')}), 'a', 'read only: one can look');
is(attempt(q{SELECT dlock_is_free('n')}), 1, 'read only: at a free name too');
sql('SET GLOBAL read_only = 0');
works('writable again');

# It becomes read only before a release has been written, as likely as not.
sql(q{SELECT dlock_release('kept', 'a')});
sql('SET GLOBAL read_only = 1');
ok(Scenarios::Run::until(sub { attempt('SELECT count(*) FROM dlock.locks') =~ /^\d+$/ }),
	'read only: the view shows what there is');
sql('SET GLOBAL read_only = 0');
ok(Scenarios::Run::until(sub { attempt('SELECT count(*) FROM dlock.locks') eq '0' }),
	'writable again: the release has been written');
sql(q{SELECT dlock_acquire('kept', 'a', 86400)});

# A setting that is changed comes into force by itself, and a wrong one does not.
sub may_wait { return attempt(q{SELECT dlock_wait('kept', 0.01)}) !~ /max_waiters/ }
ok(may_wait(), 'one may wait');
sql(q{UPDATE dlock.settings SET value = '0' WHERE name = 'max_waiters'});
ok(Scenarios::Run::until(sub { !may_wait() }), 'max_waiters is 0: nobody may, soon');
sql(q{UPDATE dlock.settings SET value = 'many' WHERE name = 'max_waiters'});
ok(Scenarios::Run::until(sub { may_wait() }), 'it is no number: the default counts');
sql(q{UPDATE dlock.settings SET value = '1000' WHERE name = 'max_waiters'});

# Who waits for any of several names takes one of these places.  For the other names of
# all such calls there are 1,024 more.
sub list { return '[' . join(', ', map { qq{"any$_"} } 1 .. $_[0]) . ']' }
my $list = list(100);
is(scalar(() = attempt("SELECT dlock_acquire_any('$list', 'a', 600, 100)") =~ /token/g), 100, 'a hundred names are taken');
# With the log an account has at most half of what others have left, rounded up.
my @any = map { session("any$_", $_ > 5 && $engine->has_log ? 'other' : 'tester') } 1 .. ($engine->has_log ? 7 : 10);
my $one_more = $engine->has_log ? session('one more', 'tester') : $admin;
for my $n (1 .. @any)
{
	$any[ $n - 1 ]->send("SELECT dlock_acquire_any('$list', '$any[$n - 1]{name}', 600, 1, 600)");
	ok(Scenarios::Run::until(sub { sql('SELECT waiters FROM dlock.stats') == $n }), "$n wait for any of them");
}
is(sql('SELECT count(*) FROM dlock.waiters WHERE position IS NULL'), 100 * @any, 'each for all');
like($one_more->outcome("SELECT dlock_acquire_any('$list', 'b', 30, 1, 30)"), qr/^1637 \w+: too many names are waited for/, 'there is no room for one more');
is($one_more->decided(q{SELECT dlock_acquire_any('} . list($engine->has_log ? 1 : 35) . q{', 'b', 30, 1, 0.01)}), '[]', 'but for one with fewer names');
$one_more->quit if $engine->has_log;
is(scalar(() = attempt("SELECT dlock_release_many('$list', 'a')") =~ /any/g), 100, 'they are given back');
like($_->outcome, qr/^\[\{"name": "any\d+", "token": \d+\}\]$/, 'and each has one') for @any;
is(sql('SELECT waiters FROM dlock.stats'), 0, 'nobody waits');
is(sql("SELECT dlock_release_all('$_->{name}')"), 0, 'they are of another account') for $any[0];
is($_->value("SELECT dlock_release_all('$_->{name}')"), 1, 'that one is given back') for @any;
$_->quit for @any;

# Somebody else has emptied the table, as one that restores it does, and says so.
if (!$engine->has_log)
{
like(attempt(q{SELECT dlock_acquire('emptied', 'a', 86400)}), qr/^\d+$/, 'a lease that is held for long');
is(attempt(q{SELECT dlock_acquire('emptied', 'b', 30)}), 'NULL', 'is refused to others');
is(sql('SELECT dlock_settle()'), 1, 'it is in the table');
sql(q{DELETE FROM dlock.lease_table WHERE name = 'emptied'});
is(sql(q{SELECT dlock_owner('emptied')}), 'a', 'it is held as long as nobody says that it is gone from there');
sql('SELECT dlock_reload()');
like(attempt(q{SELECT dlock_acquire('emptied', 'b', 30)}), qr/^\d+$/, 'and is granted then');
sql(q{SELECT dlock_release('emptied', 'b')});
}

# The table is locked by somebody.
my $other = session('other');
$other->query('FLUSH TABLES WITH READ LOCK');
like(attempt(q{SELECT dlock_acquire('n', 'a', 30)}), qr/^\d+ \w+: could not (?:use the lock table|write the lease): /, 'FLUSH TABLES WITH READ LOCK: an error');
$other->query('UNLOCK TABLES');
works('unlocked');
my $table = $engine->has_log ? 'dlock.log' : 'dlock.lease_table';
$other->query("LOCK TABLES $table WRITE");
$admin->send(q{SELECT dlock_acquire('n', 'a', 600, -1)});
ok(Scenarios::Run::until(sub { $other->value(q{SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'}) > 0 }),
	'LOCK TABLES: the table is waited for');
$other->query('UNLOCK TABLES');
if ($engine->has_log)
{
	# for a second
	like($admin->outcome, qr/^\d+$|^3572 \w+: could not write the lease: /, 'LOCK TABLES: whoever waits, waits for that too, but not for long');
	$admin->value(q{SELECT dlock_release('n', 'a')});
	works('LOCK TABLES: unlocked');
}
else
{
	like($admin->outcome, qr/^\d+$/, 'LOCK TABLES: whoever waits without limit, waits for that too');
	is(attempt(q{SELECT dlock_release('n', 'a')}), 1, 'and gives back');
}

# A row that the caller itself has locked by a guard.
my $token = sql(q{SELECT dlock_acquire('own', 'a', 600)});
sql('BEGIN');
$admin->query("CALL dlock.guard('own', 'a', $token)");
like(attempt(q{SELECT dlock_downgrade('own', 'a')}),
	qr/^3572 \w+: could not change the lease on "own": a transaction has locked it/,
	'a lease that the caller guards cannot be downgraded') unless $engine->has_log;
is(attempt(q{SELECT dlock_renew('own', 'a', 600)}), 1, 'it can be renewed');
is(attempt(q{SELECT dlock_acquire('own', 'b', 60)}), 'NULL', 'nor be had by others');
is(attempt(q{SELECT dlock_release('own', 'a')}), 1, 'but released');
is(attempt(q{SELECT dlock_acquire('own', 'b', 60)}), 'NULL', 'and is nobody else\'s while it is locked');
works('with a locked row');
sql('ROLLBACK');
like(attempt(q{SELECT dlock_acquire('own', 'b', 600, 600)}), qr/^\d+$/, 'then it is');

# The table is not there, or not ours.  Who wants a lease may get it, into the
# journal, as long as nobody has found out; so may who looks be told.
sub fails
{
	my ($error, $what) = @_;
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('n', 'a', 30)}) =~ $error }), "$what: an error for those who want a lease, soon");
	# the log is in memory
	like(attempt(q{SELECT dlock_owner('kept')}), $engine->has_log ? qr/^a$/ : $error, "$what: and for who looks");
	return;
}
sql("RENAME TABLE $table TO dlock.elsewhere");
fails(qr/could not use the lock table: .*(?:lease_table|log).*exist/, 'no table');
sql("RENAME TABLE dlock.elsewhere TO $table");
works('the table is back');
is(sql(q{SELECT dlock_owner('kept')}), 'a', 'with what was held');
my $column = $engine->has_log ? 'entries' : 'request';
sql("ALTER TABLE $table RENAME COLUMN $column TO wish");
fails(qr/could not use the lock table: .*$column/, 'another table');
sql("ALTER TABLE $table RENAME COLUMN wish TO $column");
works('the table is as it was');
if (!$engine->has_log)
{
sql('CREATE TABLE dlock.marks AS SELECT * FROM dlock.lease_mark');
sql('DELETE FROM dlock.lease_mark');
like(attempt('SELECT dlock_reload()'), qr/lacks rows/, 'no marks: who has the tables read is told');
like(attempt(q{SELECT dlock_acquire('unmarked', 'a', 30)}), qr/could not use the lock table|lacks rows/, 'no marks: no tokens');
sql('INSERT INTO dlock.lease_mark SELECT * FROM dlock.marks');
sql('DROP TABLE dlock.marks');
works('marks are back');
}

# EXPLAIN takes nothing, and neither does a condition that is never reached.
$admin->query(q{EXPLAIN SELECT dlock_acquire('e', 'a', 30)});
$admin->query(q{PREPARE s FROM 'SELECT dlock_acquire(''e'', ''a'', 30)'});
$admin->query(q{SELECT 1 WHERE false AND dlock_acquire('e', 'a', 30) > 0});
is(sql(q{SELECT dlock_is_free('e')}), 1, 'EXPLAIN takes nothing');

# There is no connection left for the library: all have been taken, the one that
# is kept for administrators too.
my $limit = sql('SELECT @@max_connections');
my $answer;
my @clients;
my %refused;
sql('SET GLOBAL max_connections = 10');
# it may be there again before its place has been taken, or be killed on its way there
ok(Scenarios::Run::until(sub {
	my $loopback = loopback();
	if ($loopback)
	{
		$admin->query("KILL $loopback");
		Scenarios::Run::until(sub { loopback() != $loopback });
	}
	for my $role ('tester', 'root')
	{
		while (@clients < 20)
		{
			my $client = eval { session('client', $role) };
			push @clients, $client // ();
			next if $client;
			$refused{$role} = $@;
			last;
		}
	}
	$answer = attempt(q{SELECT dlock_acquire('n', 'a', 30)});
	# a client may fail to connect for another reason, on a busy machine
	return $answer =~ /Too many connections/ && loopback() == 0 && !grep { !/\b1040\b/ } values %refused;
}), 'too many connections: an error');
like($refused{$_}, qr/\b1040\b.*Too many connections/, "too many connections: $_ is refused") for 'tester', 'root';
like($answer, qr/^1105 \w{5}: could not connect to the server by its socket: Too many connections$/, 'too many connections: and so is the library');
is(loopback(), 0, 'too many connections: it has none');
$_->quit for @clients;
ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('n', 'a', 30)}) =~ /^\d+$/ }), 'there is room: it has one');
is(sql('SELECT @@max_connections'), 10, 'with the same limit');
works('there is room');
sql("SET GLOBAL max_connections = $limit");

# The socket of another server in the place of its own: the library does not write there.
my $stranger = Engines::start($kind);
my $head = $engine->has_log ? 'SELECT MAX(number) FROM dlock.log' : 'SELECT writer FROM dlock.journal_head';
my $writer = $stranger->control->value($head);
my ($own, $others) = map { "$_->{dir}/socket" } $engine, $stranger;
rename($own, "$own.away") && rename($others, $own) or die "$own: $!";
ok(Scenarios::Run::until(sub {
	my $loopback = loopback();
	$admin->query("KILL $loopback") if $loopback;
	return attempt(q{SELECT dlock_acquire('n', 'a', 30)}) =~ /^1105 \w{5}: could not connect to the server by its socket: another server listens there$/;
}), 'the socket is another server\'s: an error');
is($stranger->control->value($head), $writer, 'where nothing was written');
rename($own, $others) && rename("$own.away", $own) or die "$own: $!";
ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('n', 'a', 30)}) =~ /^\d+$/ }), 'it is its own again');
works('its own socket');
$stranger->stop;

# Dropped and created again while somebody waits.
sql(q{SELECT dlock_acquire('wanted', 'a', 600)});
$other->send(q{SELECT dlock_acquire('wanted', 'b', 600, 600)});
Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 });
$engine->feed('mysql_udf/uninstall.sql');
like($other->outcome, qr/could not use the lock table/, 'uninstalled: whoever waits is told');
$engine->feed('mysql_udf/install.sql');
works('reinstalled');
like(attempt(q{SELECT dlock_acquire_session('s', 'a', 30)}), qr/^\d+$/, 'session leases work');
$other->quit;

# A crash in the library's thread is told in the error log, like any other: the
# thread may block all signals but those that come of its own faults.
sub thread_file
{
	my ($task, $name) = @_;
	open(my $file, '<', "$task/$name") or return '';
	return join('', <$file>);
}
my $pid = $engine->pid;
my @tasks = grep { thread_file($_, 'comm') eq "dlock\n" } glob("/proc/$pid/task/*");
is(scalar(@tasks), 1, 'the library has one thread');
my $status = thread_file($tasks[0], 'status');
my $blocked = join('', map { sprintf('%04b', hex) } $status =~ /^SigBlk:\s*([0-9a-f]{16})$/m ? split(//, $1) : ());
my @faults = qw(SEGV BUS ILL FPE ABRT TRAP SYS);
# the last digit is signal 1
sub is_blocked { return substr($blocked, -$number{ $_[0] }, 1) }
is(join(' ', grep { is_blocked($_) } @faults), '', 'which blocks none of its faults');
is(join(' ', grep { !is_blocked($_) } qw(HUP INT QUIT TERM USR1 ALRM)), '', 'and all signals that are the server\'s business');
SKIP:
{
	skip('a sanitizer takes the signal', 4) if ($ENV{ASAN_OPTIONS} // '') =~ /handle_segv=2/;
	my ($thread) = $tasks[0] =~ /(\d+)$/;
	$engine->end_control;
	# SYS_tgkill
	is(syscall((POSIX::uname())[4] eq 'x86_64' ? 234 : 131, $pid + 0, $thread + 0, $number{SEGV} + 0), 0, 'it crashes');
	Engines::MySQL::await_end($pid);
	like($engine->log, qr/got signal 11/, 'and the error log tells of it');
	$engine->boot;
	$admin = $engine->control;
	works('after a crash of the library');
}
$engine->stop;
done_testing();
