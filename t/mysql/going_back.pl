# From 1.0.1 to this version and back, and forth again: leases stay, and tokens grow.  The
# kind of server is the argument.
#
# What a library of 1.0.1 leaves is written in SQL.  With OLD_DLOCK, the folder of the
# sources of 1.0.1 where "make mysql" has built it, that library is run as well.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use OldTables;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $is_token = qr/^\d+$/;
my $clock = q{FLOOR(TIMESTAMPDIFF(MICROSECOND, '2020-01-01', UTC_TIMESTAMP(6)) * 1.048576)};
my $engine;

# A value, or an error.
sub sql { return $engine->control->outcome($_[0]) }

# The first calls of a run may have to wait for the clock, or find the tables renamed.
sub acquire_soon
{
	my ($name, $owner) = @_;
	my $token;
	Scenarios::Run::until(sub { ($token = sql("SELECT dlock_acquire('$name', '$owner', 600)")) =~ $is_token })
	  or die "$name is not granted: $token\n";
	return $token;
}

sub in_table { return sql("SELECT COUNT(*) FROM dlock.lease_table WHERE name = '$_[0]'") }

sub in_journal { return sql(q{SELECT COUNT(*) FROM dlock.journal WHERE changes LIKE '[[1,"} . unpack('H*', $_[0]) . q{"%'}) }

# What one who goes back has to do.
sub close_journal
{
	is(sql('RENAME TABLE dlock.journal_head TO dlock.closed_journal_head'), undef, 'the journal is closed');
	ok(Scenarios::Run::until(sub { sql('SELECT dlock_settle()') eq '1' }), 'written');
	is(sql('SELECT COUNT(*) FROM dlock.journal'), 0, 'and empty');
	return;
}

# ---------------------------------------------------------------------
# What stays, and where
# ---------------------------------------------------------------------

$engine = Engines::start($kind);

# A lease that the table has not: a server that is killed leaves it in the journal.
sub leave
{
	my ($name) = @_;
	my $token;
	Scenarios::Run::until(sub {
		sql("SELECT dlock_release('$name', 'a')");
		sql('SELECT dlock_settle()');
		$token = sql("SELECT dlock_acquire('$name', 'a', 600)");
		$engine->crash;
		return $token =~ $is_token && in_journal($name) && !in_table($name);
	});
	is(in_journal($name), 1, "a lease on $name is in the journal");
	is(in_table($name), 0, 'and not in the table');
	return $token;
}

my $first = acquire_soon('first', 'a');
acquire_soon('released', 'a');
is(sql(q{SELECT dlock_release('released', 'a')}), 1, 'one is given back');
close_journal();
is(in_table('first'), 1, 'a lease is in the table');
is(in_table('released'), 0, 'but not what was given back');
my $second = sql(q{SELECT dlock_acquire('second', 'a', 600)});
cmp_ok($second, '>', $first, 'leases can be taken');
is(in_table('second'), 1, 'at once in the table');
is(sql(q{SELECT dlock_renew_all('a', 900)}), 2, 'and renewed');
is(sql(q{SELECT COUNT(*) FROM dlock.lease_table WHERE ttl_us = 900000000}), 2, 'also there');
is(sql('SELECT COUNT(*) FROM dlock.journal'), 0, 'and nothing in the journal');
$engine->crash;
is(sql("SELECT dlock_owner('$_')"), 'a', "after a crash $_ is held") for 'first', 'second';
is(sql(q{SELECT dlock_acquire('second', 'b', 600)}), 'NULL', 'and granted to nobody');
$engine->feed('mysql_udf/install.sql');
is(sql(q{SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'dlock' AND table_name = 'closed_journal_head'}), 0,
	'install.sql opens the journal');
ok(Scenarios::Run::until(sub { sql(q{SELECT dlock_release('third', 'a')}); acquire_soon('third', 'a'); in_journal('third') }),
	'which is written again');
is(sql("SELECT dlock_acquire('$_', 'b', 600)"), 'NULL', "$_ is held") for 'first', 'second', 'third';

# A journal that is closed while nobody is there is emptied by the next run.
leave('fourth');
is(sql('RENAME TABLE dlock.journal_head TO dlock.closed_journal_head'), undef, 'closed');
is(sql(q{SELECT dlock_owner('fourth')}), 'a', 'who looks sees the lease');
is(sql(q{SELECT dlock_acquire('fourth', 'b', 600)}), 'NULL', 'and nobody gets it');
is(in_table('fourth'), 1, 'it is in the table');

# A journal that is opened, and another server that takes over and grants, before this one
# checks whether there is a journal: as after two quick changes of the source.
acquire_soon('fifth', 'a');
is(sql(q{SELECT dlock_release('fifth', 'a')}), 1, 'one is given back');
is(sql('SELECT dlock_settle()'), 1, 'and written');
is(sql('CREATE TABLE dlock.new_journal_head LIKE dlock.closed_journal_head'), undef, 'a new head');
is(sql('INSERT INTO dlock.new_journal_head VALUES (0, 4711)'), undef, 'names another run');
is(sql('UPDATE dlock.lease_mark SET writer = 4711'), undef, 'which has raised the marks');
my $fifth = sql('SELECT MAX(mark) + 1 FROM dlock.lease_mark');
is(sql(OldTables::append(4711, { name => 'fifth', owner => 'b', token => $fifth })), undef, 'and granted a lease');
is(sql('RENAME TABLE dlock.new_journal_head TO dlock.journal_head'), undef, 'the journal is open');
is(sql(q{SELECT dlock_acquire('fifth', 'a', 600)}), 'NULL', 'and nobody else gets the lease');
is(sql("SELECT dlock_release('fifth', 'b', $fifth)"), 1, 'its owner gives it back');
cmp_ok(acquire_soon('fifth', 'a'), '>', $fifth, 'tokens grow');
$engine->feed('mysql_udf/install.sql');

# ---------------------------------------------------------------------
# A journal that was not closed: 1.0.1 does not see what is in it
# ---------------------------------------------------------------------

sql($_) for OldTables::journal(0, 0, '');

# 1.0.1 was there, and has changed nothing
my $left = leave('left');
is(sql(q{SELECT dlock_acquire('left', 'b', 600)}), 'NULL', 'it is held still');
is(sql("SELECT dlock_release('left', 'a', $left)"), 1, 'and given back');

# What it does when it grants a lease.
sub grant_as_1_0_1
{
	my ($name) = @_;
	sql(q{UPDATE dlock.lease_journal SET changes = changes + 1, writer = 4711, leases = ''});
	sql("UPDATE dlock.lease_mark SET mark = GREATEST(mark, $clock), writer = 4711");
	my $token = sql('SELECT MAX(mark) + 1 FROM dlock.lease_mark');
	sql(OldTables::insert({ name => $name, owner => 'b', token => $token, writer => 4711 }));
	sql('UPDATE dlock.lease_mark SET mark = mark + 1');
	return $token;
}

for my $looks (0, 1)
{
	my $lost = leave('lost');
	my $granted = grant_as_1_0_1('lost');
	cmp_ok($granted, '>', $lost, '1.0.1 grants it to another one');
	is(sql(q{SELECT dlock_owner('lost')}), 'b', 'who looks sees that one') if $looks;
	is(sql(q{SELECT dlock_acquire('lost', 'c', 600)}), 'NULL', 'it is held');
	is(sql("SELECT dlock_renew('lost', 'a', 600, $lost)"), 0, 'not by the first one any more');
	is(sql(q{SELECT dlock_owner('lost')}), 'b', 'but by the other one');
	is(sql(q{SELECT COUNT(*) FROM dlock.locks WHERE name = 'lost'}), 1, 'alone');
	is(sql("SELECT dlock_release('lost', 'b', $granted)"), 1, 'who gives it back');
	cmp_ok(acquire_soon('lost', 'a'), '>', $granted, 'tokens grow');
	is(sql(q{SELECT dlock_release('lost', 'a')}), 1, 'given back');
}
$engine->stop;

# ---------------------------------------------------------------------
# A library of 1.0.1
# ---------------------------------------------------------------------

SKIP:
{
	skip 'OLD_DLOCK does not say where there is a 1.0.1', 1 unless defined $ENV{OLD_DLOCK};
	my %tokens;
	my $highest = 0;
	$engine = Engines::start($kind);

	# Run a library, with the tables that there are.
	my $run = sub {
		my ($sources, $killed) = @_;
		if ($killed) { $engine->kill_server }
		else { $engine->end_control; $engine->halt }
		$engine->end_control;
		system('install', '-m', '755', "$sources/mysql_udf/dlock.so", "$engine->{dir}/plugins/dlock.so") == 0
		  or die "could not install the library\n";
		$engine->boot;
	};
	my $check = sub {
		my ($what) = @_;
		is(sql("SELECT dlock_acquire('$_', 'b', 600)"), 'NULL', "$what: $_ is held") for sort keys %tokens;
		is(sql("SELECT dlock_owner('$_')"), 'a', "$what: by its owner") for sort keys %tokens;
		my $token = acquire_soon('grows', 'a');
		cmp_ok($token, '>', $highest, "$what: a larger token");
		$highest = $token;
		is(sql(q{SELECT dlock_release('grows', 'a')}), 1, "$what: given back");
		# what is not written is lost with a server that is killed, and taken again by its owner
		is(sql('SELECT dlock_settle()'), 1, "$what: and written");
		my $name = 'n' . keys %tokens;
		$tokens{$name} = acquire_soon($name, 'a');
		return;
	};
	$check->('at first');
	for my $killed (0, 1)
	{
		close_journal();
		$run->($ENV{OLD_DLOCK}, $killed);
		# until its install.sql has been run it may lack a table
		$check->('1.0.1 with the new tables') if sql(q{SELECT COUNT(*) FROM information_schema.tables
			WHERE table_schema = 'dlock' AND table_name = 'lease_journal'});
		$engine->feed("$ENV{OLD_DLOCK}/mysql_udf/install.sql");
		$check->('1.0.1');
		$run->($ENV{OLD_DLOCK}, $killed);
		$check->('1.0.1, started again');
		$run->('.', $killed);
		$check->('the tables of 1.0.1');
		$run->($ENV{OLD_DLOCK}, $killed);
		$check->('1.0.1 again');
		$run->('.', $killed);
		$check->('the tables of 1.0.1 again');
		$engine->feed('mysql_udf/install.sql');
		$check->('install.sql has been run');
		$run->('.', $killed);
		$check->('started again');
	}
	$engine->stop;
}
done_testing();
