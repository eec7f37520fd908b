# A server whose library may write in spite of read_only, as it may on a stock MariaDB:
# from the moment at which it is read-only, it grants, renews and writes nothing, and
# answers looks; another server may be promoted at once.  This holds with the journal,
# and where changes go into the lock table directly; and where InnoDB alone is read-only.
# The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);
use Writers;

my ($kind) = @ARGV;
my $engine = Engines::start($kind, '--log-bin=binlog', '--server-id=1');
my $account = $engine->control->value(q{SELECT concat("'", dlock_os_user(), "'@localhost")});
$engine->control->value('GRANT ' . ($kind eq 'mariadb' ? 'ALL' : 'CONNECTION_ADMIN') . " ON *.* TO $account");
$engine->restart;
my $session = session($engine, 'session');
my $read_only = qr/^1792 25006: .*: the server is read-only$/;

# How far the binary log is.
sub position
{
	my $answer = $engine->control->query($kind eq 'mariadb' ? 'SHOW MASTER STATUS' : 'SHOW BINARY LOG STATUS');
	die $answer->{message} if defined $answer->{error};
	return $answer->{rows}[0][1];
}

sub test_read_only
{
	my ($what, $try) = @_;
	my ($token, $position);

	# the library looks once a second: from some moment on in that second
	Scenarios::Run::until(sub { ($token = ask($session, q{SELECT dlock_acquire('kept', 'a', 600, 0, 'r')})) =~ $is_token })
	  or diag($token);
	like($token, $is_token, "$what: a lease, try $try");
	usleep(200_000 * ($try - 1));
	$engine->control->value('SET GLOBAL read_only = ON');
	my @changes = (q{dlock_acquire('new', 'b', 600)}, q{dlock_renew('kept', 'a', 600)},
		q{dlock_acquire_any('["new", "more"]', 'b', 600, 2)}, q{dlock_acquire('kept', 'a', 600)}, q{dlock_renew_all('a', 600)});

	# each of them is the first in its turn
	for my $change (@changes[ $try - 1 .. $#changes, 0 .. $try - 2 ])
	{
		like(ask($session, "SELECT $change"), $read_only, "$what: read-only, $change");
		$position //= position();
		is(ask($session, q{SELECT dlock_owner('kept')}), 'a', "$what: who looks is answered");
	}
	is(ask($session, q{SELECT count(*) FROM dlock.locks}), 1, "$what: nothing was granted");
	is($engine->control->value('SELECT dlock_reload()'), 1, "$what: a reload does not wait until it may write");
	is(ask($session, q{SELECT dlock_owner('kept')}), 'a', "$what: and who looks is answered as before");
	# what was in the journal would be written into the table by now
	usleep(1_500_000);
	is(position(), $position, "$what: nothing was written");
	$engine->control->value('SET GLOBAL read_only = OFF');
	return;
}

# Who only looks is the first to meet a server that has become so.
sub test_look
{
	my ($what) = @_;
	my $token;
	for my $try (1 .. 5)
	{
		Scenarios::Run::until(sub { ($token = ask($session, q{SELECT dlock_acquire('kept', 'a', 600, 0, 'r')})) =~ $is_token })
		  or diag($token);
		$engine->control->value('SET GLOBAL read_only = ON');
		is(ask($session, q{SELECT dlock_owner('kept')}), 'a', "$what: a look comes first, try $try");
		is(ask($session, q{SELECT dlock_is_free('none')}), 1, "$what: and another, try $try");
		$engine->control->value('SET GLOBAL read_only = OFF');
	}
	return;
}

# The database alone is read-only, as MySQL can have it.
sub test_database
{
	like(acquire_soon($session, 'kept', 'a', 600), $is_token, 'the database: a lease');
	$engine->control->value('ALTER DATABASE dlock READ ONLY = 1');
	like(ask($session, "SELECT $_"), qr/^1792 25006: .*read only mode/i, "the database is read-only: $_")
	  for q{dlock_acquire('new', 'b', 600)}, q{dlock_renew('kept', 'a', 600)};
	is(ask($session, q{SELECT dlock_owner('kept')}), 'a', 'the database is read-only: who looks is answered');
	$engine->control->value('ALTER DATABASE dlock READ ONLY = 0');
	ok(Scenarios::Run::until(sub { ask($session, q{SELECT dlock_renew('kept', 'a', 600)}) eq '1' }), 'and it can be written again');
	return;
}

test_read_only('the journal', $_) for 1 .. 5;
test_look('the journal');
test_database() if $kind eq 'mysql';
if (!$engine->has_log)
{
	$engine->control->value('RENAME TABLE dlock.journal_head TO dlock.closed_journal_head');
	ok(Scenarios::Run::until(sub { ask($session, 'SELECT dlock_settle()') eq '1'
			&& ask($session, q{SELECT dlock_renew('kept', 'a', 600)}) eq '1' }), 'the journal is closed');
	test_read_only('the table', $_) for 1 .. 5;
	test_look('the table');
}

$session->quit;
$engine->stop;

# InnoDB alone is read-only, which read_only does not tell.
$engine = Engines::start($kind);
$session = session($engine, 'session');
my $token = ask($session, q{SELECT dlock_acquire('kept', 'a', 3600)});
my @options = @{ $engine->{options} };
for my $option ('--innodb-read-only=1', map { "--innodb-force-recovery=$_" } $kind eq 'mariadb' ? (5, 6) : (1, 4, 6))
{
	$session->quit;
	$engine->{options} = [ @options, $option ];
	$engine->restart;
	$session = session($engine, 'session');
	for my $try (1, 2)
	{
		like(ask($session, "SELECT $_"), $read_only, "$option: $_, try $try")
		  for q{dlock_release('kept', 'a')}, q{dlock_acquire('new', 'b', 600)}, q{dlock_acquire('new', 'b', 600, 5)},
		  q{dlock_renew('kept', 'a', 3600)}, q{dlock_renew_all('a', 3600)};
		is(ask($session, q{SELECT dlock_owner('kept')}), 'a', "$option: who looks is answered, try $try");
	}
	is(ask($session, q{SELECT count(*) FROM dlock.locks}), 1, "$option: as the view is");
}
$session->quit;
$engine->{options} = \@options;
$engine->restart;
$session = session($engine, 'session');
is(ask($session, qq{SELECT dlock_release('kept', 'a', $token)}), 1, 'and it can be written again');

$session->quit;
$engine->stop;
done_testing();
