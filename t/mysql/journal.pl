# dlock.journal has the changes since the lock table was written: they are neither
# lost nor applied twice, whatever happens to the server, and to these tables.  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use InTime;
use OldTables;
use Scenarios;
use Test::More;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime usleep);

use constant IMAGE_LEASES_MAX => 100_000;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
$engine->write_settings(lock_timeout => 3600);    # who waited for that, would be answered too late

sub sql { return $engine->control->value($_[0]) }

# What a statement answers: its first value, or its error.
sub attempt { return $engine->control->outcome($_[0]) }

# The next attempt's number.
my $attempt = 0;

sub is_journaled { return sql('SELECT count(*) > 0 FROM dlock.journal') }

# Say whether the journal has a change of a name, which is another one's beginning too.
sub journal_has { return sql("SELECT count(*) > 0 FROM dlock.journal WHERE changes LIKE concat('%\"', lower(hex('$_[0]')), '%')") }

sub rows { return sql("SELECT count(*) FROM dlock.lease_table WHERE name LIKE '$_[0]%'") }

# Have the journal written into the table; how many leases there are.
sub settle { return sql('SELECT (SELECT dlock_settle()) * 0 + (SELECT count(*) FROM dlock.lease_table)') }

# Whoever has a name.
sub holders { return join(' ', map { join(':', @$_) } @{ $engine->control->query("SELECT owner, version FROM dlock.locks WHERE name = '$_[0]' ORDER BY owner")->{rows} }) }

# End the leases that an attempt in vain has left, which would be counted with those of the next.
sub evict
{
	my ($pattern) = @_;
	sql("SELECT dlock_force_release('$_->[0]')")
	  for @{ $engine->control->query("SELECT DISTINCT name FROM dlock.locks WHERE name REGEXP '$pattern'")->{rows} };
	return;
}

# Do something, and kill the server, until all of these names were in the journal
# then; the attempt's number.
sub killed
{
	my ($names, $change) = @_;
	my $tries = 0;
	Scenarios::Run::until(sub {
		evict("[a-z]$attempt\$") if $tries++;
		$attempt++;
		$change->();
		$engine->crash;
		return !grep { !journal_has($_) } $names->();
	}) or die "it is never in the journal\n";
	return $attempt;
}

# The same with leases, as statements say, which no rows are there of; their name.
my %token;
sub killed_with
{
	my ($prefix, @statements) = @_;
	my $name;
	Scenarios::Run::until(sub {
		evict("^$name(-2)?\$") if defined $name;
		$name = $prefix . ++$attempt;
		# the next checkpoint is a second away
		settle();
		$token{$name} = [map { sql(sprintf $_, $name) } @statements];
		$engine->crash;
		return journal_has($name) && rows($name) == 0;
	}) or die "the leases are never in the journal\n";
	return $name;
}

# The same by the rows of the lock table alone.
sub rows_of { return sql("SELECT group_concat(concat(owner, ':', version) ORDER BY owner) FROM dlock.lease_table WHERE name = '$_[0]'") }

# An expression that a statement can select from so many rows: n is their number.
sub from_numbers
{
	my ($digits, $expression, $condition) = @_;
	my @digits = map { "d$_" } 1 .. $digits;
	my $n = join(' + ', map { "$digits[$_].d * 1e$_" } 0 .. $#digits);
	my $ten = join(' UNION ALL ', 'SELECT 0', map { "SELECT $_" } 1 .. 9);
	return "WITH digits (d) AS ($ten) SELECT $expression FROM (SELECT CAST($n AS SIGNED) AS n FROM "
	  . join(', ', map { "digits $_" } @digits) . ') AS numbers' . (defined $condition ? " WHERE $condition" : '');
}

# A number between two.
sub between
{
	my ($value, $least, $most, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($value ne 'NULL' && $value >= $least && $value <= $most, $what) or diag("$value is not from $least to $most");
	return;
}

# ----------------------------------------------------------------
# A checkpoint writes the journal into the table, and empties it.
# ----------------------------------------------------------------

sql(q{SELECT dlock_acquire('first', 'a', 600)});
ok(Scenarios::Run::until(sub { rows('first') == 1 && !is_journaled() }), 'a lease that is held gets its row by itself');
is(sql(q{SELECT dlock_release('first', 'a')}), 1, 'and is given back');
ok(Scenarios::Run::until(sub { rows('first') == 0 && !is_journaled() }), 'which is written by itself');

sql('CREATE TABLE scenarios.inserted (name VARBINARY(255))');
sql('CREATE TRIGGER dlock.noted AFTER INSERT ON dlock.lease_table FOR EACH ROW INSERT INTO scenarios.inserted VALUES (NEW.name)');
{
	my $columns = q{name, owner, mode, kind, version, token, request, ttl_us / 1e6};
	my $began = clock_gettime(CLOCK_MONOTONIC);
	# the ttl is what was left when the row was written: shown as what was granted, if no more is
	# missing than the time that has passed
	my $table = sub {
		my @rows = @{ $engine->control->query("SELECT $columns FROM dlock.lease_table ORDER BY name, token")->{rows} };
		my $passed = clock_gettime(CLOCK_MONOTONIC) - $began;
		for my $row (@rows)
		{
			my ($granted) = grep { $row->[-1] <= $_ && $row->[-1] >= $_ - $passed } 600, 700;
			$row->[-1] = $granted // $row->[-1];
		}
		return join("\n", map { "@$_" } @rows);
	};
	my @all = map { sql($_) } (
		q{SELECT dlock_acquire('plain', 'a', 600, 0, 'id')},
		q{SELECT dlock_acquire('twice', 'a', 600)},
		q{SELECT dlock_acquire('twice', 'a', 600)},
		q{SELECT dlock_acquire_shared('shared', 'a', 600)},
		q{SELECT dlock_acquire_shared('shared', 'b', 600)},
		q{SELECT dlock_acquire_shared('shared', 'c', 600)},
		q{SELECT dlock_acquire_permits('permits', 'a', 600, 5, 3)});
	is(sql(q{SELECT dlock_release('twice', 'a')}), 1, 'one of two holds is given back');
	is(sql(q{SELECT dlock_release('shared', 'a')}), 1, 'and a shared lease');
	# so that the next checkpoint is a second away
	settle();
	is(sql(q{SELECT dlock_acquire('passing', 'a', 600) IS NOT NULL AND dlock_release('passing', 'a')}), 1, 'one is taken and given back');
	settle();
	is(is_journaled(), 0, 'a checkpoint empties the journal');
	is($table->(), join("\n", "permits a 3 1 3 $all[6]  600", "plain a 1 1 1 $all[0] id 600",
		"shared b 2 1 1 $all[4]  600", "shared c 2 1 1 $all[5]  600", "twice a 1 1 1 $all[1]  600"), 'and the table has it all');
	is(sql('SELECT count(*) FROM scenarios.inserted WHERE name = "plain"'), 1, 'a row was inserted for what is held');
	is(sql('SELECT count(*) FROM scenarios.inserted WHERE name = "passing"'), 0, 'and none for what was given back');
	is(sql(q{SELECT count(*) FROM dlock.lease_table WHERE name = 'shared' AND slot = 0}), 1, 'slot 0 is in use');

	is(sql(q{SELECT dlock_renew('plain', 'a', 700)}), 1, 'one is renewed');
	is(sql(q{SELECT dlock_downgrade('twice', 'a')}), 1, 'one is shared from now on');
	is(sql(q{SELECT dlock_release('shared', 'b')}), 1, 'one is given back');
	is(sql(q{SELECT dlock_release('permits', 'a', NULL, 2)}), 1, 'and two permits');
	settle();
	is(is_journaled(), 0, 'the next checkpoint empties it, too');
	is($table->(), join("\n", "permits a 3 1 1 $all[6]  600", "plain a 1 1 1 $all[0] id 700",
		"shared c 2 1 1 $all[5]  600", "twice a 2 1 1 $all[1]  600"), 'and has changed rows');
	is(sql(qq{SELECT dlock_release_all('$_->[0]')}), $_->[1], "$_->[0] gives all back") for [ a => 3 ], [ b => 0 ], [ c => 1 ];
	settle();
	is($table->(), '', 'nothing is left');
}
sql('DROP TRIGGER dlock.noted');

# ----------------------------------------------------------------
# What somebody's old snapshot keeps of the journal's deleted rows is not read by who
# appends: a backup may take hours.
# ----------------------------------------------------------------

{
	my $backup = $engine->client('backup');
	my $touched = sub { return $engine->control->query(q{SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'})->{rows}[0][1] };
	$backup->query('SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ');
	$backup->query('START TRANSACTION WITH CONSISTENT SNAPSHOT');
	settle();
	my $numbers = from_numbers(4, q{n + 1000000, repeat(' ', 1000)});
	$engine->control->query($_) for 'START TRANSACTION',
	  q{SET @writer = (SELECT writer FROM dlock.journal_head)},
	  "INSERT INTO dlock.journal (writer, number, changes) SELECT \@writer, rows_.* FROM ($numbers) AS rows_",
	  'DELETE FROM dlock.journal', 'COMMIT';
	my $most = 1e9;
	for my $try (1 .. 10)
	{
		settle();
		my $before = $touched->();
		sql("SELECT dlock_acquire('kept $try', 'a', 600)");
		my $pages = $touched->() - $before;
		$most = $pages if $pages < $most;
	}
	cmp_ok($most, '<', 300, 'an append reads few pages, whatever there was');
	$backup->query('COMMIT');
	$backup->kill;
	is(sql(q{SELECT dlock_release_all('a')}), 10, 'all are given back');
	settle();
}

# ----------------------------------------------------------------
# What a look sees is there.
# ----------------------------------------------------------------

for my $look (q{count(*) FROM dlock.locks WHERE name = '%s'}, q{NOT dlock_is_free('%s')}, q{JSON_LENGTH(dlock_holders('%s'))},
	q{dlock_remaining('%s', 'a') BETWEEN 100 AND 600}, q{dlock_owner('%s') = 'a'}, q{held FROM dlock.stats})
{
	my $name = 'look' . ++$attempt;
	sql("SELECT dlock_acquire('$name', 'a', 600)");
	is(sql("SELECT " . $look =~ s{%s}{$name}r), 1, "$look: sees a new lease");
	is(sql(q{SELECT dlock_release_all('a')}), 1, 'dlock_release_all() too');
	is(sql('SELECT count(*) FROM dlock.locks'), 0, 'then it is not there');
}
sql(q{SELECT dlock_acquire('renewed', 'a', 600)});
is(sql(q{SELECT dlock_renew_all('a', 700)}), 1, 'and dlock_renew_all()');
is(sql(q{SELECT dlock_release('renewed', 'a')}), 1, 'which leaves it');

# ----------------------------------------------------------------
# The server is killed while leases are in the journal, and nowhere else.
# ----------------------------------------------------------------

my $name = killed_with('killed', q{SELECT dlock_acquire('%s', 'a', 600, 0, 'id')});
is(sql("SELECT dlock_owner('$name')"), 'a', 'who looks after a crash sees what is in the journal');
is(sql("SELECT dlock_is_free('$name')"), 0, 'in each way');
is(sql("SELECT count(*) FROM dlock.locks WHERE name = '$name'"), 1, 'a view shows it');
is(attempt("SELECT dlock_acquire('$name', 'b', 600)"), 'NULL', 'nobody else gets it');
ok(!is_journaled() && rows($name) == 1, 'written into the lock table');
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
cmp_ok($token{$name}[2], '>', $token{$name}[0], 'with a larger token');
is(sql("SELECT dlock_release('$name', 'b')"), 1, 'until it is released, too');

# What has a row is changed; two crashes, the second before anything was asked.
my $n = killed(sub { "row$attempt" }, sub {
	$token{row} = [map { sql("SELECT dlock_acquire('row$attempt', 'a', 600)") } 1, 2];
	settle();
	sql("SELECT dlock_renew('row$attempt', 'a', 900)");
	sql("SELECT dlock_acquire('row$attempt', 'a', 1)");
});
$engine->crash;
is(holders("row$n"), 'a:3', 'after two crashes there are as many holds as there were');
between(sql("SELECT dlock_remaining('row$n', 'a')"), 800, 900, 'for as long');
is(sql("SELECT dlock_renew('row$n', 'a', 600, $token{row}[1])"), 1, 'under its token');
is(sql("SELECT dlock_release('row$n', 'a', NULL, 3)"), 1, 'they are given back');

# ----------------------------------------------------------------
# A server that cannot be written.
# ----------------------------------------------------------------

$name = killed_with('kept', q{SELECT dlock_acquire('%s', 'a', 600)});
sql('SET GLOBAL read_only = ON');
is(sql("SELECT dlock_owner('$name')"), 'a', 'a server that is read-only sees what is in the journal');
is(sql("SELECT dlock_is_free('$name')"), 0, 'in each way');
is(sql("SELECT JSON_LENGTH(dlock_holders('$name'))"), 1, 'also all holders');
like(attempt("SELECT dlock_release('$name', 'a')"), qr/^1792 25006/, 'and changes nothing');
like(attempt("SELECT dlock_renew_all('a', 600)"), qr/^1792 25006/, 'nor by a call for all of an owner');
ok(is_journaled(), 'not even the journal');
sql('SET GLOBAL read_only = OFF');
ok(Scenarios::Run::until(sub { attempt("SELECT dlock_acquire('$name', 'b', 600)") eq 'NULL' }), 'then it is still held');
is(sql("SELECT dlock_release('$name', 'a')"), 1, 'and given back');

# ----------------------------------------------------------------
# Much at a time: the longest names and owners there are, and many rows.
# ----------------------------------------------------------------

my $long = 'concat(repeat("n", 251), 1000 + n)';
is(sql(from_numbers(3, "count(dlock_acquire($long, repeat('o', 255), 600, 0, repeat('r', 255)))")), 1000, 'a thousand leases of long names');
is(sql('SELECT count(*) FROM dlock.locks WHERE name LIKE "nn%"'), 1000, 'are there');
is(sql(from_numbers(3, "count(dlock_acquire($long, 'another', 600))")), 0, 'and nobody else gets any');
is(sql(q{SELECT dlock_renew_all(repeat('o', 255), 700)}), 1000, 'they are renewed');
is(sql(q{SELECT dlock_release_all(repeat('o', 255))}), 1000, 'all of them are given back');
{
	my $list = from_numbers(3, "JSON_ARRAYAGG($long)");
	my $taken = sub { return sql("SELECT JSON_LENGTH(dlock_acquire_any(($list), repeat('o', 255), 600, 1000))") };
	is($taken->(), 1000, 'a thousand at once');
	$engine->crash;
	is(sql('SELECT count(*) FROM dlock.locks WHERE name LIKE "nn%"'), 1000, 'after a crash all are there');
	is(sql("SELECT JSON_LENGTH(dlock_release_many(($list), repeat('o', 255)))"), 1000, 'given back at once');
	is($taken->(), 1000, 'and taken again');
	is(sql(q{SELECT dlock_release_all(repeat('o', 255))}), 1000, 'and given back');
	is(settle(), 0, 'none is left');
}
is(sql(from_numbers(3, "count(dlock_acquire(concat('many$_-', n), 'a', 600))")), 1000, 'a thousand leases') for 0 .. 9;
is(sql(from_numbers(3, "count(dlock_acquire(concat('many$_-', n), 'b', 600))")), 0, 'none of which is granted twice') for 0 .. 9;
is(sql(q{SELECT dlock_release_all('a')}), 10000, 'all of them are given back');

# ----------------------------------------------------------------
# The journal is damaged, or missing: nothing is granted, and what is held stays.
# ----------------------------------------------------------------

sql(q{SELECT dlock_acquire('held', 'a', 600)});
settle();
my $install = sub { $engine->feed('mysql_udf/install.sql'); return };

sub keep_journal { return sql('DROP TABLE IF EXISTS scenarios.kept; CREATE TABLE scenarios.kept SELECT * FROM dlock.journal') }

# After a crash the journal is read; the name of a lease that it has.
sub damaged_after_crash
{
	my ($statement) = @_;
	my $damaged = killed_with('damaged', q{SELECT dlock_acquire('%s', 'a', 600)});
	keep_journal();
	sql($statement);
	return $damaged;
}

# So it is when it is another run's, which nobody writes into the table any more.
sub damaged_by_another
{
	my ($statement) = @_;
	my $damaged;
	Scenarios::Run::until(sub {
		sql("SELECT dlock_release('$damaged', 'a')") if defined $damaged;
		$damaged = 'damaged' . ++$attempt;
		settle();
		$token{$damaged} = [ sql("SELECT dlock_acquire('$damaged', 'a', 600)") ];
		keep_journal();
		$engine->control->query($_) for 'START TRANSACTION', $statement, 'UPDATE dlock.journal_head SET writer = 1', 'COMMIT';
		return is_journaled();
	}) or die "the lease is never in the journal\n";
	return $damaged;
}

sub damaged_by
{
	my ($statement, $error, $mend, $damage) = @_;
	my $damaged = ($damage // \&damaged_after_crash)->($statement);
	for my $what ('an error', 'for the next one too')
	{
		like(attempt(q{SELECT dlock_acquire('another', 'b', 600)}), $error, "$statement: $what");
	}
	like(attempt(qq{SELECT dlock_release('$damaged', 'a')}), $error, 'also of a release');
	$mend->();
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('another', 'b', 600)}) =~ /^\d+$/ }), 'until it is mended')
	  or diag(attempt(q{SELECT dlock_acquire('another', 'b', 600)}));
	is(attempt(q{SELECT dlock_acquire('held', 'b', 600)}), 'NULL', 'what was held is held');
	is(attempt(qq{SELECT dlock_acquire('$damaged', 'b', 600)}), 'NULL', 'what was in the journal, too');
	is(attempt(qq{SELECT dlock_renew('$damaged', 'a', 600, $token{$damaged}[0])}), 1, 'by its owner');
	is(attempt(qq{SELECT dlock_release('$damaged', 'a')}), 1, 'who gives it back');
	is(attempt(q{SELECT dlock_release('another', 'b')}), 1, 'and the next calls work');
	sql('DROP TABLE scenarios.kept');
	return;
}
my $restore = sub { sql('DELETE FROM dlock.journal'); sql('INSERT INTO dlock.journal SELECT * FROM scenarios.kept'); return };
my $is_damaged = qr/dlock\.journal is damaged/;
damaged_by(q{UPDATE dlock.journal SET changes = ''}, $is_damaged, $restore);
damaged_by("UPDATE dlock.journal SET changes = $_", $is_damaged, $restore, \&damaged_by_another)
  for q{'[]'}, q{concat(changes, ' ')}, q{left(changes, length(changes) - 1)}, q{'[[2,"",1]]'}, q{'[[2,"6e6",1]]'},
  q{'[[4,"6e",1]]'}, q{concat('[[2,"', repeat('6e', 256), '",1]]')}, q{concat(changes, ',[2,"6e",99999999999999999999]]')};
damaged_by('DELETE FROM dlock.journal_head', qr/journal_head lacks its row/, $install);
damaged_by('DROP TABLE dlock.journal_head', qr/journal_head/, $install);
damaged_by('DROP TABLE dlock.journal', qr/journal/, sub { $install->(); $restore->() });

# So it does with a run that goes on; of its own journal it reads nothing.
for my $damage (
	[ 'DELETE FROM dlock.journal_head', qr/journal_head lacks its row/ ],
	[ 'DROP TABLE dlock.journal_head', qr/journal_head/ ],
	[ 'DROP TABLE dlock.journal', qr/journal/ ])
{
	my ($statement, $error) = @$damage;
	settle();
	sql($statement);
	ok(Scenarios::Run::until(sub { ++$attempt; attempt("SELECT dlock_acquire('other$attempt', 'b', 600)") =~ $error }), "$statement: an error");
	like(attempt(q{SELECT dlock_acquire('another', 'b', 600)}), $error, 'for the next one too');
	$install->();
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('another', 'b', 600)}) =~ /^\d+$/ }), 'until it is mended')
	  or diag(attempt(q{SELECT dlock_acquire('another', 'b', 600)}));
	is(attempt(q{SELECT dlock_acquire('held', 'b', 600)}), 'NULL', 'what was held is held');
	cmp_ok(attempt(q{SELECT dlock_release_all('b')}), '>=', 1, 'and the next calls work');
}
is(attempt(q{SELECT dlock_release('held', 'a')}), 1, 'in the end it is given back');

# ----------------------------------------------------------------
# What happens while a lease is only in the journal.  Another connection asks, since
# the administrator's has a lock.
# ----------------------------------------------------------------

my $session = Scenarios::Client->new($engine, 'session', 'tester');

sub ask { return $session->outcome($_[0]) }

for my $round (1 .. 3)
{
	my $number = ++$attempt;
	my $journaled = sub {
		settle();
		$token{during} = ask("SELECT dlock_acquire('during$number', 'a', 600)");
		return;
	};
	my $is_held = sub {
		my ($what) = @_;
		local $Test::Builder::Level = $Test::Builder::Level + 1;
		ok(Scenarios::Run::until(sub { ask("SELECT dlock_acquire('next$number', 'b', 600)") =~ /^\d+$/ }), "$what: grants go on");
		is(ask("SELECT dlock_acquire('during$number', 'b', 600)"), 'NULL', "$what: the lease is held");
		is(ask("SELECT dlock_renew('during$number', 'a', 600, $token{during})"), 1, "$what: by its owner");
		is(ask(q{SELECT dlock_release_all('a')}), 1, "$what: who gives it back");
		is(ask(q{SELECT dlock_release_all('b')}), 1, "$what: as does the other");
		return;
	};

	$journaled->();
	sql('UPDATE dlock.lease_mark SET mark = mark + 1000000, writer = 1');
	sql('UPDATE dlock.journal_head SET writer = 1');
	my $mark = sql('SELECT min(mark) FROM dlock.lease_mark');
	cmp_ok(ask("SELECT dlock_acquire('next$number', 'b', 600)"), '>', $mark, 'another server was primary: the next token is higher');
	sql(q{SELECT dlock_release_all('b')});
	$is_held->('another server was primary');

	$journaled->();
	sql('UPDATE dlock.journal_head SET writer = 1');
	is(ask(q{SELECT dlock_renew_all('a', 700)}), 1, 'another server was primary: all leases of an owner are found');
	$is_held->('another server was primary, again');

	# what that has put into the journal
	for my $head ('and is not any more', 'and still is')
	{
		$journaled->();
		my $foreign = sql('SELECT max(mark) FROM dlock.lease_mark') + 2_000_000;
		sql(OldTables::append(1, { name => "foreign$number", owner => 'z', token => $foreign }));
		sql('UPDATE dlock.journal_head SET writer = 1') if $head eq 'and still is';
		like(ask("SELECT dlock_acquire('next$number', 'b', 600)"), qr/^\d+$/, "another one has written $head: grants go on");
		is(ask("SELECT dlock_acquire('foreign$number', 'b', 600)"), 'NULL', 'its lease is held');
		is(sql("SELECT dlock_owner('foreign$number')"), 'z', 'by whom it was granted to');
		between(sql("SELECT dlock_remaining('foreign$number', 'z')"), 500, 600, 'for the whole time to live');
		is(sql("SELECT dlock_renew('foreign$number', 'z', 500, $foreign)"), 1, 'who can renew it');
		is(sql("SELECT dlock_release('foreign$number', 'z')"), 1, 'and give it back');
		cmp_ok(sql("SELECT dlock_acquire('foreign$number', 'y', 600)"), '>', $foreign, 'the next token is higher');
		sql("SELECT dlock_release('foreign$number', 'y')");
		is(sql('SELECT count(*) FROM dlock.journal WHERE writer = 1'), 0, 'nothing of it is in the journal any more');
		$is_held->("another one has written $head");
	}

	# by the time that one is renewed or given back
	for my $call ("dlock_renew('during$number', 'a', 600)", "dlock_release('during$number', 'a')")
	{
		$journaled->();
		sql('UPDATE dlock.journal_head SET writer = 1');
		is(ask("SELECT $call"), 1, "another server was primary: $call");
		ask("SELECT dlock_acquire('during$number', 'a', 600)");
		$token{during} = ask("SELECT dlock_acquire('during$number', 'a', 600)");
		$is_held->("another server was primary: $call");
	}

	$journaled->();
	sql('FLUSH TABLES WITH READ LOCK');
	my $began = InTime::seconds();
	like(ask("SELECT dlock_acquire('next$number', 'b', 600)"), qr/locked against writing/, 'nothing can be written: an error');
	cmp_ok(InTime::seconds() - $began, '<', 20, 'soon');
	is(ask("SELECT dlock_owner('during$number')"), 'a', 'who looks is answered');
	is(ask("SELECT dlock_acquire('during$number', 'b', 600)"), 'NULL', 'who cannot have it is refused');
	sql('UNLOCK TABLES');
	$is_held->('all tables were locked');

	$journaled->();
	sql('FLUSH TABLES WITH READ LOCK');
	is(ask("SELECT dlock_release('during$number', 'a')"), 1, 'nothing can be written: a release is answered');
	is(ask("SELECT dlock_is_free('during$number')"), 1, 'and seen');
	sql('UNLOCK TABLES');
	ok(Scenarios::Run::until(sub { rows("during$number") == 0 && !is_journaled() }), 'written afterwards');
	$journaled->();
	$is_held->('released while all tables were locked');

	$journaled->();
	sql('SET GLOBAL read_only = ON');
	is(ask("SELECT dlock_owner('during$number')"), 'a', 'who looks is answered when the server has just become read-only');
	like(ask('SELECT count(*) FROM dlock.locks'), qr/^\d+$/, 'and who reads a view');
	sql('SET GLOBAL read_only = OFF');
	$is_held->('the server was read-only');

	# the tables are replaced, and edited by hand
	for my $reloads (0, 1)
	{
		my $what = 'there is another lock table' . ($reloads ? ', and the operator says so' : '');
		sql('CREATE TABLE dlock.copy LIKE dlock.lease_table');
		# by then a checkpoint may have come
		Scenarios::Run::until(sub {
			$journaled->();
			sql('RENAME TABLE dlock.lease_table TO dlock.old, dlock.copy TO dlock.lease_table');
			return 1 if !$reloads || journal_has("during$number");
			sql('RENAME TABLE dlock.lease_table TO dlock.copy, dlock.old TO dlock.lease_table');
			sql('DELETE FROM dlock.copy');
			sql('SELECT dlock_reload()');
			return 0;
		}) or die "the lease is never in the journal\n";
		sql('SELECT dlock_reload()') if $reloads;
		$is_held->($what);
		sql('DROP TABLE dlock.old');
	}
}
$session->quit;

# ----------------------------------------------------------------
# Somebody edits the table by hand.
# ----------------------------------------------------------------

my $columns = 'account_user, account_host, mode, kind, version, request, ttl_us, writes, writer, deadline_us, guards, connection_id, acquired_us, expires_us';

# Give somebody a row like that of another name's lease.
sub forge
{
	my ($name, $token, $like) = @_;
	return sql("INSERT INTO dlock.lease_table (name, slot, owner, token, $columns) SELECT '$name', 0, 'forged', $token, $columns FROM dlock.lease_table WHERE name = '$like'");
}

sql(q{SELECT dlock_acquire('held', 'a', 600)});
settle();
forge('by hand', 1, 'held');
sql('SELECT dlock_reload()');
is(attempt(q{SELECT dlock_acquire('by hand', 'b', 600)}), 'NULL', 'a row by hand is a lease, after dlock_reload()');
is(attempt(q{SELECT dlock_release('by hand', 'forged')}), 1, 'that can be given back');
is(attempt(q{SELECT dlock_acquire('held', 'b', 600)}), 'NULL', 'others stay as they are');
between(sql(q{SELECT dlock_remaining('held', 'a')}), 500, 600, 'for as long');
settle();
sql(q{DELETE FROM dlock.lease_table WHERE name = 'held'});
sql('SELECT dlock_reload()');
like(attempt(q{SELECT dlock_acquire('held', 'b', 600)}), qr/^\d+$/, 'where a row was deleted, nobody holds any more');
is(attempt(q{SELECT dlock_renew('held', 'a', 600)}), 0, 'nor can renew');
sql(q{SELECT dlock_acquire('unwritten', 'b', 600)});
sql('SELECT dlock_reload()');
is(attempt(q{SELECT dlock_acquire('unwritten', 'a', 600)}), 'NULL', 'a lease of the journal outlives dlock_reload()');
is(attempt(q{SELECT dlock_release_all('b')}), 2, 'all are given back');
like(Scenarios::Client->new($engine, 'plain', 'tester')->outcome('SELECT dlock_reload()'), qr/^(?:1227|1142) /, 'dlock_reload() is not for everyone');

# A checkpoint notices that rows are not what they were, and reads all anew.
for my $edit (q{DELETE FROM dlock.lease_table WHERE name IN ('edited', 'other')}, q{UPDATE dlock.lease_table SET writes = writes + 5 WHERE name IN ('edited', 'other')},
	q{UPDATE dlock.lease_table SET owner = 'c', token = token + 5 WHERE name IN ('edited', 'other')})
{
	my $deletes = $edit =~ /^DELETE/;
	sql("SELECT dlock_acquire('$_', 'a', 600)") for qw(edited other);
	settle();
	sql($edit);
	is(attempt(q{SELECT dlock_renew('edited', 'a', 700)}), 1, "$edit: before it is noticed");
	settle();
	ok(Scenarios::Run::until(sub { !is_journaled() }), 'after a checkpoint');
	my $owner = attempt(q{SELECT dlock_owner('other')});
	is($owner, $deletes ? 'NULL' : $edit =~ /owner/ ? 'c' : 'a', 'the other name is as it is in the table');
	like(attempt(q{SELECT dlock_owner('edited')}), qr/^[ac]$/, 'and what was in the journal stays');
	cmp_ok(attempt("SELECT dlock_force_release('$_')"), '>=', 0, 'evicted') for qw(edited other);
	is(settle(), 0, 'all are gone');
}

# Somebody has made a row for what is in the journal: the journal is newer.
sql(q{SELECT dlock_acquire('held', 'a', 600)});
settle();
{
	my $held = killed_with('twice', q{SELECT dlock_acquire('%s', 'a', 600)});
	forge($held, 1, 'held');
	is(attempt("SELECT dlock_acquire('$held', 'b', 600)"), 'NULL', 'a row by hand does not set it free');
	like(attempt("SELECT dlock_release('$held', 'a')"), qr/^[01]$/, 'its owner is there');
	is(attempt("SELECT dlock_force_release('$held')") >= 0, 1, 'and all can be evicted');
}
sql(q{SELECT dlock_release_all('a')});
is(settle(), 0, 'nothing is left');

# ----------------------------------------------------------------
# Guards
# ----------------------------------------------------------------

my ($guard, $client) = map { $engine->client($_) } qw(guard client);
my $try = sub { return $client->outcome($_[0]) };
sql('CREATE TABLE scenarios.t (a INT PRIMARY KEY) ENGINE=InnoDB');

# Of a lease that has no row yet.
for my $round (1 .. 10)
{
	my $token = $guard->value("SELECT dlock_acquire('new$round', 'a', 600)");
	$guard->query('BEGIN');
	$guard->query("INSERT INTO scenarios.t VALUES ($round)");
	my $answer = $guard->query("CALL dlock.guard('new$round', 'a', $token)");
	ok(!defined $answer->{error}, 'a lease without a row can be guarded') or diag($answer->{message});
	is(sql("SELECT dlock_force_release('new$round')"), 1, 'then evicted');
	is($try->("SELECT dlock_acquire('new$round', 'b', 600)"), 'NULL', 'nobody gets it');
	$guard->query('COMMIT');
	ok(Scenarios::Run::until(sub { $try->("SELECT dlock_acquire('new$round', 'b', 600)") =~ /^\d+$/ }), 'before the guard ends');
	is($try->("SELECT dlock_release('new$round', 'b')"), 1, 'then somebody else has it');
	$guard->query('BEGIN');
	like($guard->outcome("CALL dlock.guard('new$round', 'a', $token)"), qr/^1644 55L01/, 'and it cannot be guarded any more');
	$guard->query('ROLLBACK');
}

# One of several is guarded, and nobody is held up; checkpoints in between.  The guarded
# one has the name's first row, or another one.
for my $guarded (qw(a c))
{
	for my $ends ('COMMIT', 'ROLLBACK', 'crash')
	{
		my $what = "$guarded is guarded, $ends";
		my $s = "several-$guarded-$ends";
		my ($other) = grep { $_ ne $guarded } qw(a c);
		my %of = map { $_ => $try->("SELECT dlock_acquire_shared('$s', '$_', 600)") } qw(a b c);
		settle();
		$guard->query('BEGIN');
		$guard->query("CALL dlock.guard('$s', '$guarded', $of{$guarded})");
		is($try->("SELECT dlock_renew('$s', 'b', 700)"), 1, "$what: another one renews");
		like($try->("SELECT dlock_acquire_shared('$s', 'd', 600)"), qr/^\d+$/, "$what: one comes");
		is($try->("SELECT dlock_renew('$s', '$guarded', 800)"), 1, "$what: the guarded one renews");
		settle();
		is(holders($s), 'a:1 b:1 c:1 d:1', "$what: so they are");
		is($try->("SELECT dlock_release('$s', '$other')"), 1, "$what: one goes");
		is($try->("SELECT dlock_acquire_shared('$s', 'b', 600)"), $of{b}, "$what: one enters again");
		is($try->("SELECT dlock_renew_all('b', 900)"), 1, "$what: and renews all it has");
		settle();
		is($try->("SELECT dlock_acquire_shared('$s', 'e', 600) > $of{c}"), 1, "$what: another one comes");
		is($try->("SELECT dlock_release_all('e')"), 1, "$what: and goes");
		is($try->("SELECT dlock_acquire('$s', 'x', 600)"), 'NULL', "$what: and nobody has it alone");
		is(sql("SELECT dlock_force_release('$s', '$guarded')"), 1, "$what: the guarded one is evicted") if $ends eq 'ROLLBACK';
		settle();
		is($try->("SELECT dlock_acquire('$s', 'x', 600)"), 'NULL', "$what: which does not let others in");
		my @left = grep { $_ ne $other && !($ends eq 'ROLLBACK' && $_ eq $guarded) } qw(a b c d);
		if ($ends eq 'crash')
		{
			$guard->query('COMMIT');
			$engine->crash;
			$_->kill for $guard, $client;
			($guard, $client) = map { $engine->client($_) } qw(guard client);
		}
		else
		{
			$guard->query($ends);
		}
		Scenarios::Run::until(sub { holders($s) eq join(' ', map { $_ . ($_ eq 'b' ? ':2' : ':1') } @left) });
		is(holders($s), join(' ', map { $_ . ($_ eq 'b' ? ':2' : ':1') } @left), "$what: in the end all is as it was");
		between($try->("SELECT dlock_remaining('$s', 'b')"), 800, 900, "$what: for as long");
		between($try->("SELECT dlock_remaining('$s', '$guarded')"), 700, 800, "$what: also who was guarded") if $ends ne 'ROLLBACK';
		is($try->("SELECT dlock_release_all('$_')"), 1, "$what: $_ goes") for @left;
		ok(Scenarios::Run::until(sub { $try->("SELECT dlock_acquire('$s', 'x', 600)") =~ /^\d+$/ }), "$what: then it can be had alone");
		is($try->("SELECT dlock_release('$s', 'x')"), 1, "$what: and given back");
		ok(Scenarios::Run::until(sub { rows($s) == 0 && !is_journaled() }), "$what: and no row is left");
	}
}

# While a transaction has a row that the journal has a change of, this run takes over
# again, and after a crash the next one: names without guards are not held up.
{
	my $guarded = $try->(q{SELECT dlock_acquire('guarded', 'a', 600)});
	settle();
	$guard->query('BEGIN');
	$guard->query("CALL dlock.guard('guarded', 'a', $guarded)");
	is($try->(q{SELECT dlock_renew('guarded', 'a', 900)}), 1, 'a guarded lease is renewed');
	is(sql('SELECT dlock_reload()'), 1, 'all is read anew');
	like($try->(q{SELECT dlock_acquire('unguarded', 'b', 600)}), qr/^\d+$/, 'other names are granted');
	is($try->(q{SELECT dlock_release('unguarded', 'b')}), 1, 'and given back');
	is($try->(q{SELECT dlock_acquire('guarded', 'b', 600)}), 'NULL', 'the guarded one is not');
	between($try->(q{SELECT dlock_remaining('guarded', 'a')}), 800, 900, 'and was renewed');
	is(sql(q{SELECT dlock_force_release('guarded')}), 1, 'evicted');
	settle();
	is(sql('SELECT dlock_reload()'), 1, 'all is read anew, once more');
	is($try->(q{SELECT dlock_acquire('guarded', 'b', 600)}), 'NULL', 'it is not granted');
	like($try->(q{SELECT dlock_acquire('unguarded', 'b', 600)}), qr/^\d+$/, 'others are');
	is($try->(q{SELECT dlock_release('unguarded', 'b')}), 1, 'and given back');
	$guard->query('COMMIT');
	ok(Scenarios::Run::until(sub { $try->(q{SELECT dlock_acquire('guarded', 'b', 600)}) =~ /^\d+$/ }), 'after the guard it is granted');
	is($try->(q{SELECT dlock_release('guarded', 'b')}), 1, 'and given back');

	# a prepared transaction outlives the server
	$guarded = $try->(q{SELECT dlock_acquire('prepared', 'a', 600)});
	settle();
	is($guard->outcome(q{XA START 'x'}) // '', '', 'XA');
	$guard->query("CALL dlock.guard('prepared', 'a', $guarded)");
	is($guard->outcome($_) // '', '', $_) for q{XA END 'x'}, q{XA PREPARE 'x'};
	is($try->(q{SELECT dlock_renew('prepared', 'a', 900)}), 1, 'a lease that a prepared transaction guards is renewed');
	$engine->crash;
	$_->kill for $guard, $client;
	($guard, $client) = map { $engine->client($_) } qw(guard client);
	like($try->(q{SELECT dlock_acquire('unguarded', 'b', 600)}), qr/^\d+$/, 'after a crash other names are granted');
	is($try->(q{SELECT dlock_acquire('prepared', 'b', 600)}), 'NULL', 'the guarded one is not');
	between($try->(q{SELECT dlock_remaining('prepared', 'a')}), 800, 900, 'and was renewed');
	is(sql(q{SELECT dlock_force_release('prepared')}), 1, 'evicted');
	is($try->(q{SELECT dlock_acquire('prepared', 'b', 600)}), 'NULL', 'it is not granted');
	is(attempt(q{XA COMMIT 'x'}) // '', '', 'until the transaction is committed');
	ok(Scenarios::Run::until(sub { $try->(q{SELECT dlock_acquire('prepared', 'b', 600)}) =~ /^\d+$/ }), 'then it is');
	is($try->(q{SELECT dlock_release_all('b')}), 2, 'all are given back');
}
$_->quit for $guard, $client;
is(settle(), 0, 'nothing is left');

# ----------------------------------------------------------------
# All leases of an owner, renewed by one entry
# ----------------------------------------------------------------

sub is_one_entry { return sql(q{SELECT count(*) = 1 AND sum(changes LIKE '[[3,%' AND changes NOT LIKE '%],[%') = 1 FROM dlock.journal}) }

my $remaining = sub { my ($name, $owner) = @_; return sql("SELECT dlock_remaining('$name', '$owner')") };

for my $round (1 .. 2)
{
	my $has_entry = 0;
	$n = killed(sub { $has_entry && $round == 1 ? () : "later$attempt" }, sub {
		sql("SELECT dlock_acquire('all$_$attempt', 'o$attempt', 300)") for qw(a b);
		sql("SELECT dlock_acquire_shared('all$_$attempt', 'o$attempt', 300)") for qw(c);
		sql("SELECT dlock_acquire_permits('alld$attempt', 'o$attempt', 300, 5, 2)");
		sql("SELECT dlock_acquire('over$attempt', 'o$attempt', 0.2)");
		sql("SELECT dlock_acquire('another$attempt', 'p$attempt', 300)");
		usleep(300_000);
		settle();
		is(sql("SELECT dlock_renew_all('o$attempt', 700)"), 4, 'all are renewed');
		$has_entry = is_one_entry();
		# those that come after it
		sql("SELECT dlock_acquire('later$attempt', 'o$attempt', 100)") if $round == 2;
		sql("SELECT dlock_release('allb$attempt', 'o$attempt')") if $round == 2;
		sql("SELECT dlock_renew('allc$attempt', 'o$attempt', 200)") if $round == 2;
	});
	between($remaining->("alla$n", "o$n"), 600, 700, 'renewed by an entry: it is so after a crash');
	between($remaining->("alld$n", "o$n"), 600, 700, 'permits, too');
	# its time to live counts from the start, unless it is removed
	like($remaining->("over$n", "o$n"), qr/^(?:NULL|0(?:\.[012]\d*)?)$/, 'but not what was over');
	ok(Scenarios::Run::until(sub { sql("SELECT dlock_owner('over$n')") eq 'NULL' }), 'which ends');
	between($remaining->("another$n", "p$n"), 200, 300, 'nor what is another owner\'s');
	if ($round == 1)
	{
		between($remaining->("all$_$n", "o$n"), 600, 700, 'and the others') for qw(b c);
		is(sql("SELECT dlock_renew_all('o$n', 650)"), 4, 'and once more');
	}
	else
	{
		between($remaining->("later$n", "o$n"), 10, 100, 'nor what was taken afterwards');
		like($remaining->("allb$n", "o$n"), qr/^NULL$|^[67]/, 'given back afterwards: may be lost');
		between($remaining->("allc$n", "o$n"), 100, 200, 'renewed once more afterwards: as it was then');
	}
	is(holders("alld$n"), "o$n:2", 'there are as many permits');
	cmp_ok(sql("SELECT dlock_release_all('o$n')"), '>=', 4, 'all are given back');
	sql("SELECT dlock_acquire('over$n', 'p$n', 300)");
	is(sql("SELECT dlock_release_all('p$n')"), 2, 'and those of the other');
}

# Twice, the second time for less; of leases in the table, in the journal before the
# first, and between the two.
for my $crash (1, 0)
{
	my $change = sub {
		sql("SELECT dlock_acquire('table$attempt', 'o$attempt', 300)");
		settle();
		sql("SELECT dlock_acquire('before$attempt', 'o$attempt', 300)");
		is(sql("SELECT dlock_renew_all('o$attempt', 900)"), 2, 'all are renewed');
		sql("SELECT dlock_acquire('between$attempt', 'o$attempt', 300)");
		is(sql("SELECT dlock_renew_all('o$attempt', 500)"), 3, 'and again, for less');
		sql("SELECT dlock_acquire('after$attempt', 'o$attempt', 300)");
	};
	if ($crash)
	{
		$n = killed(sub { "before$attempt" }, $change);
	}
	else
	{
		$n = ++$attempt;
		$change->();
	}
	settle();
	between($remaining->("$_$n", "o$n"), 400, 500, "$_: the last one counts") for qw(table before between);
	between($remaining->("after$n", "o$n"), 200, 300, 'but not for what came after it');
	is(sql("SELECT ttl_us / 1e6 FROM dlock.lease_table WHERE name = '$_$n'") + 0, $_ eq 'after' ? 300 : 500, "$_: in the table, too") for qw(table before between after);
	is(sql("SELECT dlock_release_all('o$n')"), 4, 'all are given back');
}

# An owner whose leases have lapsed since its last renewal.
$n = killed(sub { "lives$attempt" }, sub {
	sql("SELECT dlock_acquire('lapses$attempt', 'o$attempt', 300)");
	settle();
	is(sql("SELECT dlock_renew_all('o$attempt', 0.3)"), 1, 'renewed for a moment');
	usleep(400_000);
	sql("SELECT dlock_acquire('lives$attempt', 'o$attempt', 300)");
	is(sql("SELECT dlock_renew_all('o$attempt', 700)"), 1, 'what has lapsed is not renewed');
	is(sql("SELECT dlock_renew_all('o$attempt', 800)"), 1, 'nor afterwards');
});
like($remaining->("lapses$n", "o$n"), qr/^(?:NULL|0(?:\.[0123]\d*)?)$/, 'nor is it after a crash');
like(sql("SELECT dlock_acquire('lapses$n', 'p$n', 300, 600)"), qr/^\d+$/, 'others get it');
between($remaining->("lives$n", "o$n"), 700, 800, 'the one that lived was renewed');
is(sql("SELECT dlock_release_all('$_$n')"), 1, 'given back') for qw(o p);

# A run after the next: its renewal is of what the last has written, and so singly.
$n = killed(sub { "foreign$attempt" }, sub {
	sql("SELECT dlock_acquire('foreign$attempt', 'o$attempt', 300)");
	settle();
	$engine->crash;
	sql("SELECT dlock_acquire('own$attempt', 'o$attempt', 300)");
	is(sql("SELECT dlock_renew_all('o$attempt', 700)"), 2, 'leases of two runs are renewed');
});
between($remaining->("$_$n", "o$n"), 600, 700, 'both') for "foreign", "own";
is(sql("SELECT dlock_release_all('o$n')"), 2, 'given back');

# Those that have renewed before the owner had them do not count: the entry has an
# account.
{
	my $tester = $engine->client('tester');
	$n = ++$attempt;
	$tester->value("SELECT dlock_acquire('theirs$n', 'o', 300)");
	sql("SELECT dlock_acquire('ours$n', 'o', 300)");
	settle();
	is(sql(q{SELECT dlock_renew_all('o', 700)}), 1, 'only those of one\'s own account');
	$engine->crash;
	between($remaining->("ours$n", 'o'), 600, 700, 'ours');
	$tester->kill;
	$tester = $engine->client('tester');
	between($tester->value("SELECT dlock_remaining('theirs$n', 'o')"), 200, 300, 'not theirs');
	is($tester->value(q{SELECT dlock_release_all('o')}), 1, 'given back');
	is(sql(q{SELECT dlock_release_all('o')}), 1, 'both');
	$tester->quit;
}

# ----------------------------------------------------------------
# More leases than are kept in memory: first by granting them, then by reading them.
# ----------------------------------------------------------------

is(settle(), 0, 'nothing is left');
my $most = IMAGE_LEASES_MAX;
for my $thousand (0 .. $most / 1000)
{
	my $list = from_numbers(3, "JSON_ARRAYAGG(concat('row', $thousand, '-', n))");
	my $owner = "concat('z', $thousand)";
	my $taken = sql("SELECT JSON_LENGTH(dlock_acquire_any(($list), $owner, 3600, 1000))");
	is($taken, 1000, "leases of z$thousand") if $taken != 1000 || $thousand % 25 == 0;
}
is(sql(q{SELECT count(*) FROM dlock.locks WHERE owner LIKE 'z%'}), $most + 1000, 'many leases are held');

sub many_leases
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $thousand (0, 50, 100)
	{
		is(attempt("SELECT dlock_acquire('row$thousand-5', 'b', 600)"), 'NULL', "$what: a lease is held");
		is(attempt("SELECT dlock_owner('row$thousand-6')"), "z$thousand", "$what: by its owner");
		is(attempt("SELECT dlock_renew('row$thousand-7', 'z$thousand', 3600)"), 1, "$what: who can renew it");
		is(attempt("SELECT dlock_release('row$thousand-8', 'z$thousand')"), 1, "$what: and give one back");
		like(attempt("SELECT dlock_acquire('row$thousand-8', 'b', 600)"), qr/^\d+$/, "$what: so that others get it");
		is(attempt("SELECT dlock_release('row$thousand-8', 'b')"), 1, "$what: who give it back");
		like(attempt("SELECT dlock_acquire('row$thousand-8', 'z$thousand', 3600)"), qr/^\d+$/, "$what: and it is taken again");
	}
	is(sql(from_numbers(3, q{count(dlock_acquire(concat('new', n), 'b', 600))})), 1000, "$what: new ones are granted");
	is(sql(from_numbers(3, q{count(dlock_acquire(concat('new', n), 'c', 600))})), 0, "$what: but once");
	is(attempt(q{SELECT dlock_renew_all('b', 700)}), 1000, "$what: all of an owner are renewed");
	is(attempt(q{SELECT dlock_release_all('b')}), 1000, "$what: and given back");
	is(attempt(q{SELECT dlock_renew_all('z1', 3000)}), 1000, "$what: also those that nobody has used for long");
	is(attempt(q{SELECT dlock_renew_all('z1', 3100)}), 1000, "$what: and again");
	between(attempt(q{SELECT dlock_remaining('row1-999', 'z1')}), 3000, 3100, "$what: for so long");
	is(sql(from_numbers(3, q{count(dlock_acquire(concat('row', n DIV 10, '-', n), 'c', 600))})), 0, "$what: all are held");
	is(sql(q{SELECT count(*) FROM dlock.locks}), $most + 1000, "$what: and as many as there were");
	return;
}

many_leases('more than are kept in memory');
$n = killed(sub { unpack('H*', '') }, sub {
	is(attempt(q{SELECT dlock_renew_all('z2', 3300)}), 1000, 'an owner renews');
	is(attempt(q{SELECT dlock_renew_all('z2', 3200)}), 1000, 'and again');
});
between(attempt(q{SELECT dlock_remaining('row2-999', 'z2')}), 3100, 3200, 'after a crash it is so');
between(attempt(q{SELECT min(remaining) FROM dlock.locks WHERE owner = 'z2'}), 3100, 3200, 'of all of them');
many_leases('after a crash');
{
	# some go by themselves, of this run and of the last
	is(attempt(q{SELECT dlock_renew_all('z3', 0.1)}), 1000, 'leases are over soon');
	is(attempt(q{SELECT dlock_renew_all('z4', 2)}), 1000, 'others a moment later');
	$engine->crash;
	$engine->write_settings(reap_interval => 0.2);
	is(attempt(q{SELECT dlock_renew_all('z5', 0.1)}), 1000, 'and those of another run');
	sql(from_numbers(3, q{count(dlock_acquire(concat('reaped', n), 'b', 0.1))}));
	ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.lease_table WHERE owner IN ('z3', 'z4', 'z5', 'b')}) == 0 && !is_journaled() }), 'they are reaped')
	  or diag(sql(q{SELECT group_concat(concat(owner, ' ', c)) FROM (SELECT owner, count(*) AS c FROM dlock.lease_table GROUP BY owner) AS o WHERE owner IN ('z3', 'z4', 'z5', 'b')}));
	is(sql(q{SELECT count(*) FROM dlock.locks}), $most + 1000 - 3000, 'and no others');
	like(attempt(q{SELECT dlock_acquire('row3-5', 'b', 600)}), qr/^\d+$/, 'others get their names');
	is(attempt(q{SELECT dlock_release_all('b')}), 1, 'and give them back');
}
is(attempt("SELECT dlock_release_all('z$_')"), $_ >= 3 && $_ <= 5 ? 0 : 1000, "all of z$_ are given back") for 0 .. 6;
sql('TRUNCATE TABLE dlock.lease_table');
sql('SELECT dlock_reload()');
is(settle(), 0, 'nothing is left');
$engine->write_settings;

# ----------------------------------------------------------------
# The tables of a 1.0 server: it had one row for new leases, in a format of its own.
# ----------------------------------------------------------------

# A lease as that server wrote it: of account root@localhost.
sub old_line
{
	my ($name, $owner, $token) = @_;
	return join(' ', map({ unpack('H*', $_) } $name, $owner, 'id', 'root', 'localhost'),
		0, 1, 1, 1, $token, 600_000_000, 1, 77_000_000, 1, 1_700_000_000_000_000, 1_700_000_600_000_000) . ' \\n';
}

# Make the tables those of 1.0, with leases.
sub make_old
{
	my ($leases) = @_;
	settle();
	sql("DROP TABLE IF EXISTS dlock.$_") for qw(journal_head journal lease_journal);
	sql($_) for OldTables::journal(42, 1, $leases), 'DELETE FROM dlock.lease_table';
	my $last = sql('SELECT max(mark) FROM dlock.lease_mark');
	sql(OldTables::insert(map { +{ name => "old row$_", owner => 'a', token => $last - $_, mode => $_ } } 1 .. 3));
	sql('UPDATE dlock.lease_mark SET writer = 1');
	return;
}

my $mark = sql('SELECT max(mark) FROM dlock.lease_mark');
for my $damage ('2\n', '1\n6e 6', '1\n' . old_line('old', 'a', $mark - 9) . 'x')
{
	make_old($damage);
	$engine->crash;
	like(attempt(q{SELECT dlock_acquire('another', 'b', 600)}), qr/dlock\.lease_journal is damaged/, 'of a 1.0 server: a damaged journal is an error');
	sql(q{UPDATE dlock.lease_journal SET leases = ''});
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('another', 'b', 600)}) =~ /^\d+$/ }), 'until it is mended');
	is(attempt(q{SELECT dlock_release('another', 'b')}), 1, 'and the next calls work');
}

for my $looks (0, 1)
{
	make_old('1\n' . old_line('old', 'a', $mark - 9) . old_line('old2', 'a', $mark - 10));
	$engine->crash;
	if ($looks)
	{
		is(attempt("SELECT dlock_owner('$_')"), 'a', "of a 1.0 server: who looks sees $_") for 'old row1', 'old', 'old2';
	}
	is(attempt("SELECT dlock_acquire('$_', 'b', 600)"), 'NULL', "of a 1.0 server: $_ is held") for 'old', 'old2', 'old row1', 'old row2';
	is(attempt(q{SELECT dlock_acquire_permit('old row3', 'b', 600, 1)}), 'NULL', 'so are permits');
	is(attempt("SELECT dlock_acquire('old', 'a', 600, 0, 'id')"), $mark - 9, 'its owner has its token');
	is(sql('SELECT length(leases) FROM dlock.lease_journal'), 0, 'the old journal is empty');
	is(rows_of('old'), 'a:1', 'the lease is in the table');
	between($remaining->('old2', 'a'), 500, 600, 'for the whole time to live');
	my $token = attempt(q{SELECT dlock_acquire('new', 'b', 600)});
	cmp_ok($token, '>', $mark, 'tokens grow');
	is(rows('new'), 1, 'what changes goes into the table');
	is(attempt(q{SELECT dlock_renew('new', 'b', 900)}), 1, 'renewed');
	is(sql(q{SELECT ttl_us FROM dlock.lease_table WHERE name = 'new'}) / 1e6, 900, 'at once');
	is(attempt(q{SELECT dlock_renew_all('a', 800)}), 5, 'all of an owner');
	is(sql(q{SELECT count(*) FROM dlock.lease_table WHERE ttl_us = 800000000}), 5, 'at once');
	is(attempt(q{SELECT dlock_release('old2', 'a')}), 1, 'released');
	ok(Scenarios::Run::until(sub { rows('old2') == 0 }), 'soon');
	my $tx = $engine->client('tx');
	$token = $tx->value(q{SELECT dlock_acquire('old guarded', 'g', 600)});
	$tx->query('BEGIN');
	is($tx->outcome("CALL dlock.guard('old guarded', 'g', $token)"), undef, 'guarded');
	is(sql(q{SELECT dlock_is_free('old guarded')}), 0, 'it is held');
	is(attempt(q{SELECT dlock_acquire('old guarded', 'x', 600)}), 'NULL', 'and granted to nobody');
	$tx->query('COMMIT');
	is($tx->value(q{SELECT dlock_release('old guarded', 'g')}), 1, 'and given back');
	$tx->kill;
	ok(Scenarios::Run::until(sub { rows('old guarded') == 0 }), 'soon');
	$engine->crash;
	is(attempt(q{SELECT dlock_acquire('new', 'c', 600)}), 'NULL', 'after a crash it is held');
	is(rows_of('old row3'), 'a:1', 'so are others');
	my $later = sub { my $t = attempt(q{SELECT dlock_acquire('later', 'b', 600)}); attempt(q{SELECT dlock_release('later', 'b')}); return $t };
	cmp_ok(my $before = $later->(), '>', $token, 'tokens grow');

	# beside which install.sql is run
	my $failed = '';
	my $worker = fork();
	die "could not fork: $!\n" unless defined $worker;
	if ($worker == 0)
	{
		$engine->{owner} = 0;
		my $command = "$engine->{dir}/mysql --defaults-file=$engine->{dir}/client.cnf <mysql_udf/install.sql >/dev/null";
		exec('sh', '-c', $command) or POSIX::_exit(1);
	}
	for (;;)
	{
		my $answer = $later->();
		$failed .= "$answer\n" unless $answer =~ /^\d+$/;
		last if waitpid($worker, 1) == $worker;
	}
	is($?, 0, 'install.sql is run');
	is($failed, '', 'which makes no call fail');
	ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_renew('new', 'b', 900)}); is_journaled() }), 'then changes go into the journal');
	is(attempt("SELECT dlock_acquire('$_', 'x', 600)"), 'NULL', "and $_ is held") for 'old', 'old row1', 'old row2', 'new';
	cmp_ok($later->(), '>', $before, 'tokens grow');
	$name = killed_with('switched', q{SELECT dlock_acquire('%s', 'a', 600)});
	is(attempt("SELECT dlock_acquire('$_', 'x', 600)"), 'NULL', "after a crash $_ is held") for $name, 'old', 'new';
	is(attempt("SELECT dlock_release_all('$_')"), $_ eq 'a' ? 5 : 1, "all of $_ are given back") for qw(a b);
	is(settle(), 0, 'nothing is left') or diag(sql('SELECT group_concat(concat(name, " ", owner)) FROM dlock.lease_table'));
	$mark = sql('SELECT max(mark) FROM dlock.lease_mark');
}

# ----------------------------------------------------------------
# However much one batch changes, a row of the journal fits into its column.
# ----------------------------------------------------------------

sql(q{CREATE TRIGGER dlock.stays BEFORE INSERT ON dlock.lease_table FOR EACH ROW SIGNAL SQLSTATE '45000'});
my $longest = join(',', map { sprintf '"%0250d"', $_ } 1 .. 1000);
is(() = sql("SELECT dlock_acquire_any('[$longest]', repeat('o', 250), 600, 1000, 0, repeat('r', 250))") =~ /"token"/g, 1000,
	'1000 leases with long names, by one owner, at once');
between(sql('SELECT sum(length(changes)) FROM dlock.journal'), 1.5e6, 3e6, 'their bytes in the journal');
between(sql('SELECT max(length(changes)) FROM dlock.journal'), 1e6, 1.1e6, 'and in the largest of its rows');
sql('DROP TRIGGER dlock.stays');
is(sql(q{SELECT dlock_release_all(repeat('o', 250))}), 1000, 'all are given back');
is(settle(), 0, 'and nothing is left');

$engine->stop;
done_testing();
