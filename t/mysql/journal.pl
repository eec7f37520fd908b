# Leases that have no row yet: they are in dlock.lease_journal, for a moment, and
# survive there whatever happens to the server.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);

sub sql { return $engine->control->value($_[0]) }

# What a statement answers: its first value, or its error.
sub attempt { return $engine->control->outcome($_[0]) }

sub is_journaled { return sql('SELECT length(leases) > 2 FROM dlock.lease_journal') }

sub rows { return sql("SELECT count(*) FROM dlock.lease_table WHERE name LIKE '$_[0]%'") }

# A number for each attempt; the tokens of its leases.
my $attempt = 0;
my %token;

# Acquire leases, as statements say, and kill the server, until they were in the
# journal then and nowhere else; their name.
sub killed_with
{
	my ($prefix, @statements) = @_;
	my $name;
	Scenarios::Run::until(sub {
		$name = $prefix . ++$attempt;
		# the first grants of a run are made by what is read
		$token{$name} = [map { sql(sprintf $_, $name) } @statements];
		sql("SELECT dlock_release_all('$_')") for qw(a b);
		$token{$name} = [map { sql(sprintf $_, $name) } @statements];
		$engine->crash;
		return is_journaled() && rows($name) == 0;
	}) or die "the leases are never in the journal\n";
	return $name;
}

# An expression that a statement can select from so many rows: n is their number.
sub from_numbers
{
	my ($digits, $expression) = @_;
	my @digits = map { "d$_" } 1 .. $digits;
	my $n = join(' + ', map { "$digits[$_].d * 1e$_" } 0 .. $#digits);
	my $ten = join(' UNION ALL ', 'SELECT 0', map { "SELECT $_" } 1 .. 9);
	return "WITH digits (d) AS ($ten) SELECT $expression FROM (SELECT CAST($n AS SIGNED) AS n FROM "
	  . join(', ', map { "digits $_" } @digits) . ') AS numbers';
}

sql(q{SELECT dlock_acquire('first', 'a', 600)});
ok(Scenarios::Run::until(sub { rows('first') == 1 && !is_journaled() }), 'a lease that is held gets its row by itself');
is(sql(q{SELECT dlock_release('first', 'a')}), 1, 'and is given back');

# What a look sees is there.
for my $look (q{count(*) FROM dlock.locks WHERE name = '%s'}, q{NOT dlock_is_free('%s')}, q{JSON_LENGTH(dlock_holders('%s'))})
{
	my $name = 'look' . ++$attempt;
	sql("SELECT dlock_acquire('$name', 'a', 600)");
	is(sql(sprintf "SELECT $look", $name), 1, "$look: sees a new lease");
	is(sql(q{SELECT dlock_release_all('a')}), 1, 'dlock_release_all() too');
}
sql(q{SELECT dlock_acquire('renewed', 'a', 600)});
is(sql(q{SELECT dlock_renew_all('a', 700)}), 1, 'and dlock_renew_all()');
is(sql(q{SELECT dlock_release('renewed', 'a')}), 1, 'which leaves it');

# The server is killed while leases are in the journal.
my $name = killed_with('killed', q{SELECT dlock_acquire('%s', 'a', 600, 0, 'id')});
is(sql("SELECT dlock_owner('$name')"), 'a', 'who looks after a crash sees what is in the journal');
is(sql("SELECT count(*) FROM dlock.locks WHERE name = '$name'"), 1, 'a view shows it');
ok(!is_journaled() && rows($name) == 1, 'moved into the lock table');
is(attempt("SELECT dlock_acquire('$name', 'b', 600)"), 'NULL', 'nobody else gets it');
is(attempt("SELECT dlock_acquire('$name', 'a', 600, 0, 'id')"), $token{$name}[0], 'its owner has its token');
is(attempt("SELECT dlock_release('$name', 'a')"), 1, 'and one hold of it');
cmp_ok(attempt("SELECT dlock_acquire('$name', 'b', 600)"), '>', $token{$name}[0], 'the next token is higher');
sql("SELECT dlock_release('$name', 'b')");

$name = killed_with('shared', q{SELECT dlock_acquire_permit('%s', 'a', 600, 2)}, q{SELECT dlock_acquire_permit('%s-2', 'b', 600, 1)});
is(attempt("SELECT dlock_acquire_permit('$name', 'c', 600, 1)"), 'NULL', 'the first grant after a crash knows of those before');
like(attempt("SELECT dlock_acquire_permit('$name', 'c', 600, 2)"), qr/^\d+$/, 'and of how many there are');
is(attempt("SELECT dlock_acquire_permit('$name-2', 'c', 600, 1)"), 'NULL', 'also of another name');
is(sql("SELECT dlock_release_all('$_')"), 1, "all that $_ has") for qw(a b c);

# A release that was answered, and its lease, may be lost, but not applied later.
$name = killed_with('released', q{SELECT dlock_acquire('%s', 'a', 600)}, q{SELECT dlock_release('%1$s', 'a')}, q{SELECT dlock_acquire('%1$s', 'b', 600)});
is(sql("SELECT dlock_owner('$name')"), 'b', 'what was taken after a release stays');
is(sql("SELECT dlock_release('$name', 'b')"), 1, 'until it is released, too');

# A server that cannot be written.
$name = killed_with('kept', q{SELECT dlock_acquire('%s', 'a', 600)});
sql('SET GLOBAL read_only = ON');
is(sql("SELECT dlock_owner('$name')"), 'a', 'a server that is read-only sees what is in the journal');
is(sql("SELECT dlock_is_free('$name')"), 0, 'in each way');
like(attempt("SELECT dlock_release('$name', 'a')"), qr/^1792 25006/, 'and changes nothing');
ok(is_journaled(), 'not even the journal');
sql('SET GLOBAL read_only = OFF');
ok(Scenarios::Run::until(sub { attempt("SELECT dlock_acquire('$name', 'b', 600)") eq 'NULL' }), 'then it is still held');
is(sql("SELECT dlock_release('$name', 'a')"), 1, 'and given back');

# More than the journal has room for: the longest names and owners there are.
my $long = 'concat(repeat("n", 251), 1000 + n)';
is(sql(from_numbers(3, "count(dlock_acquire($long, repeat('o', 255), 600))")), 1000, 'a thousand leases of long names');
is(sql('SELECT count(*) FROM dlock.locks WHERE name LIKE "nn%"'), 1000, 'are there');
is(sql(from_numbers(3, "count(dlock_acquire($long, 'another', 600))")), 0, 'and nobody else gets any');
is(sql(q{SELECT dlock_release_all(repeat('o', 255))}), 1000, 'all of them are given back');

# More leases than are remembered, in parts for slow disks: that they have rows is known all the same.
for my $part (0 .. 9)
{
	is(sql(from_numbers(3, "count(dlock_acquire(concat('many$part-', n), 'a', 600))")), 1000, 'a thousand leases');
}
is(sql(from_numbers(3, "count(dlock_acquire(concat('many$_-', n), 'b', 600))")), 0, 'none of which is granted twice') for 0 .. 9;
is(sql(q{SELECT dlock_release_all('a')}), 10000, 'all of them are given back');

# The journal is damaged, or missing: nothing is granted, and what is held stays.
sql(q{SELECT dlock_acquire('held', 'a', 600)});
is(sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'held'}), 1, 'a lease is held');
my $install = sub { $engine->feed('mysql_udf/install.sql'); return };
for my $damage (
	[q{UPDATE dlock.lease_journal SET changes = changes + 1, leases = '2'}, qr/lease_journal is damaged/,
		q{UPDATE dlock.lease_journal SET leases = ''}],
	[q{UPDATE dlock.lease_journal SET changes = changes + 1, leases = '1\\n6e 6'}, qr/lease_journal is damaged/,
		q{UPDATE dlock.lease_journal SET leases = ''}],
	['DELETE FROM dlock.lease_journal', qr/lease_journal lacks its row/, $install],
	['DROP TABLE dlock.lease_journal', qr/lease_journal/, $install])
{
	my ($statement, $error, $mend) = @$damage;
	sql($statement);
	# until then it may not be needed
	ok(Scenarios::Run::until(sub { ++$attempt; attempt("SELECT dlock_acquire('other$attempt', 'b', 600)") =~ $error }), "$statement: an error");
	like(attempt(q{SELECT dlock_acquire('another', 'b', 600)}), $error, 'for the next one too');
	ref $mend ? $mend->() : sql($mend);
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('another', 'b', 600)}) =~ /^\d+$/ }), 'until it is mended');
	is(attempt(q{SELECT dlock_acquire('held', 'b', 600)}), 'NULL', 'what was held is held');
	is(attempt(q{SELECT dlock_release('another', 'b')}), 1, 'and the next calls work');
}

# What happens while a lease is in the journal, which these are too fast to see the
# end of, unless the machine is very slow.  Another connection asks, since the
# administrator's has a lock.
my $session = Scenarios::Client->new($engine, 'session', 'tester');

sub ask { return $session->outcome($_[0]) }

for my $round (1 .. 3)
{
	my $number = ++$attempt;

	# the first grant of a name may be made by what is read
	my $journaled = sub {
		ask("SELECT dlock_acquire('during$number', 'a', 600)"), ask("SELECT dlock_release('during$number', 'a')") for 1, 2;
		$token{during} = ask("SELECT dlock_acquire('during$number', 'a', 600)");
		return;
	};
	my $is_held = sub {
		my ($what) = @_;
		ok(Scenarios::Run::until(sub { ask("SELECT dlock_acquire('next$number', 'b', 600)") =~ /^\d+$/ }), "$what: grants go on");
		is(ask("SELECT dlock_acquire('during$number', 'b', 600)"), 'NULL', "$what: the lease is held");
		is(ask("SELECT dlock_renew('during$number', 'a', 600, $token{during})"), 1, "$what: by its owner");
		is(ask(q{SELECT dlock_release_all('a')}), 1, "$what: who gives it back");
		is(ask(q{SELECT dlock_release_all('b')}), 1, "$what: as does the other");
		return;
	};

	$journaled->();
	sql('UPDATE dlock.lease_mark SET mark = mark + 1000000, writer = 1');
	sql('UPDATE dlock.lease_journal SET changes = changes + 1, writer = 1');
	my $mark = sql('SELECT min(mark) FROM dlock.lease_mark');
	cmp_ok(ask("SELECT dlock_acquire('next$number', 'b', 600)"), '>', $mark, 'another server was primary: the next token is higher');
	sql(q{SELECT dlock_release_all('b')});
	$is_held->('another server was primary');

	$journaled->();
	sql('UPDATE dlock.lease_journal SET changes = changes + 1, writer = 1');
	is(ask(q{SELECT dlock_renew_all('a', 700)}), 1, 'another server was primary: all leases of an owner are found');
	$is_held->('another server was primary, again');

	$journaled->();
	sql('FLUSH TABLES WITH READ LOCK');
	like(ask("SELECT dlock_acquire('next$number', 'b', 600)"), qr/could not use the lock table/, 'nothing can be written: an error');
	sql('UNLOCK TABLES');
	$is_held->('all tables were locked');

	$journaled->();
	sql('SET GLOBAL read_only = ON');
	is(ask("SELECT dlock_owner('during$number')"), 'a', 'who looks is answered when the server has just become read-only');
	like(ask('SELECT count(*) FROM dlock.locks'), qr/^\d+$/, 'and who reads a view');
	sql('SET GLOBAL read_only = OFF');
	$is_held->('the server was read-only');

	sql('CREATE TABLE dlock.copy LIKE dlock.lease_table');
	$journaled->();
	sql('RENAME TABLE dlock.lease_table TO dlock.old, dlock.copy TO dlock.lease_table');
	$is_held->('there is another lock table');
	sql('DROP TABLE dlock.old');
}
$session->quit;

# Somebody has made a row for what is in the journal: the journal is newer.
{
	my $columns = 'account_user, account_host, mode, kind, version, request, ttl_us, writes, writer, deadline_us, guards, connection_id, acquired_us, expires_us';
	my $held = killed_with('twice', q{SELECT dlock_acquire('%s', 'a', 600)});
	sql("INSERT INTO dlock.lease_table (name, slot, owner, token, $columns) SELECT '$held', 0, 'forged', 1, $columns FROM dlock.lease_table WHERE name = 'held'");
	is(attempt("SELECT dlock_acquire('$held', 'b', 600)"), 'NULL', 'a row by hand does not set it free');
	is(sql("SELECT dlock_owner('$held')"), 'a', 'and does not count');
}

# Of a table that has too many rows to be counted, new leases get rows at once.
sql(q{SELECT dlock_release_all('a')});
sql('INSERT INTO dlock.lease_table (name, slot, owner, account_user, account_host, mode, kind, version, token, request, ttl_us, writes, '
	  . 'writer, deadline_us, connection_id, acquired_us, expires_us) '
	  . from_numbers(6, q{concat('row', n), 0, 'z', 'root', 'localhost', 1, 1, 1, n + 1, '', 600000000, 1, 1, 0, 1, 0, 0})
	  . ' LIMIT 100001');
is(sql(q{SELECT count(*) FROM dlock.lease_table WHERE owner = 'z'}), 100001, 'a large table');
$engine->crash;
is(attempt(q{SELECT dlock_acquire('row5', 'b', 600)}), 'NULL', 'a lease of a large table is held');
my $changes = sql('SELECT changes FROM dlock.lease_journal');
like(attempt(q{SELECT dlock_acquire('large', 'b', 600)}), qr/^\d+$/, 'a new one is granted');
is(sql('SELECT changes FROM dlock.lease_journal'), $changes, 'not by way of the journal');
is(rows('large'), 1, 'but as a row');

$engine->stop;
done_testing();
