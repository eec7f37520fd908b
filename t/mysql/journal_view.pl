# The views read the journal: dlock.locks is the lock table with the changes of the
# journal applied, whatever they are.  The test fills the tables by hand, with random
# changes, and compares the view with a simple model. The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use List::Util qw(shuffle);
use OldTables qw(hex_of);
use Scenarios;
use Test::More;

use constant ROUNDS => 250;

my ($kind) = @ARGV;
my $is_mariadb = $kind eq 'mariadb';
# the views look into it
my $engine = Engines::start($kind, Engines::performance_schema($kind));
my $admin = $engine->control;
my $tester = $engine->client('tester');
my $seed = $ENV{SEED} // int(rand(1e9));
srand($seed);
note("SEED=$seed");

sub sql { return $admin->value($_[0]) }

sub pick { return $_[rand @_] }

# ---------------------------------------------------------------------
# The model: leases by name and token, changed one after the other.
# ---------------------------------------------------------------------

sub key { return "$_[0]{name}/$_[0]{token}" }

# The run that has taken over last: of the others only what they put counts, and renew.
my $head = 7;

sub let_head
{
	($head) = @_;
	$admin->value("UPDATE dlock.lease_mark SET writer = $head WHERE bucket = 0");
	return;
}

# A change that writer has made.
sub apply
{
	my ($state, $writer, $change) = @_;

	if ($change->{what} == 1)
	{
		$state->{ key($change) } = { %$change, writer => $writer };
	}
	elsif ($change->{what} == 2)
	{
		delete $state->{ key($change) } if $writer eq $head;
	}
	else
	{
		for my $lease (values %$state)
		{
			next if grep { $lease->{$_} ne $change->{$_} } qw(owner user host);
			next unless $lease->{kind} == 1 && $lease->{writer} eq $writer && $lease->{deadline} > $change->{at};
			@$lease{qw(deadline ttl expires)} = ($change->{at} + $change->{ttl}, @$change{qw(ttl expires)});
		}
	}
	return;
}

# Bytes as the views show them, and in hexadecimal digits, as SQL answers them.
sub shown
{
	my ($bytes) = @_;
	my $text = $bytes;
	return uc hex_of(utf8::decode($text) ? $bytes : '0x' . uc hex_of($bytes));
}

# What dlock.locks has, as an account sees it that is called so, or an administrator.
sub expected
{
	my ($state, $reader) = @_;
	my @modes = ('', 'exclusive', 'shared', 'permit');
	my @rows;

	for my $lease (values %$state)
	{
		my $visible = !defined $reader || "$lease->{user}\@$lease->{host}" eq $reader;
		push @rows, join(' ', shown($lease->{name}),
			shown($visible ? $lease->{owner} : '<insufficient privilege>'), $modes[ $lease->{mode} ],
			@$lease{qw(version token acquired expires)}, uc hex_of("$lease->{user}\@$lease->{host}"),
			$visible ? $lease->{connection} : 'NULL');
	}
	return [ sort @rows ];
}

sub seen
{
	my ($session) = @_;
	my $answer = $session->query(q{SELECT HEX(name), HEX(owner), mode, version, token,
		TIMESTAMPDIFF(MICROSECOND, '1970-01-01', acquired_at),
		TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at), HEX(account), connection_id FROM dlock.locks});
	die "$answer->{message}\n" if defined $answer->{error};
	return [ sort map { join(' ', @$_) } @{ $answer->{rows} } ];
}

# ---------------------------------------------------------------------
# From the model to the tables
# ---------------------------------------------------------------------

# Fill the lock table with these leases, and the journal with rows of [writer, changes...].
sub fill
{
	my ($leases, @journal) = @_;
	my %slot;
	my %number;
	my @rows = map { +{ %$_, slot => $slot{ $_->{name} }++ } } @$leases;
	my @journal_rows = map { my ($writer, @changes) = @$_; 
		$number{$writer} = ($number{$writer} // int(rand(50))) + 1 + int(rand(2));
		"($writer, $number{$writer}, '[" . join(pick(',', ', '), map { OldTables::json($_, pick(',', ', ')) } @changes) . "]')" } @journal;

	$admin->value($_) for 'DELETE FROM dlock.lease_table', 'DELETE FROM dlock.journal',
	  # any order will do
	  @rows ? OldTables::insert(@rows) : (),
	  map({ "INSERT INTO dlock.journal VALUES $_" } @journal_rows ? join(',', shuffle @journal_rows) : ());
	return;
}

# What the library has not written yet: a JSON array.
sub let_unwritten
{
	my ($json) = @_;
	sql('DROP FUNCTION dlock.all_unwritten');
	sql("CREATE DEFINER = 'dlock'\@'localhost' FUNCTION dlock.all_unwritten() RETURNS LONGTEXT CHARACTER SET utf8mb4
		NO SQL SQL SECURITY INVOKER RETURN '$json'");
	return;
}

# ---------------------------------------------------------------------
# Random changes, as the library makes them
# ---------------------------------------------------------------------

my @names = ('n', 'N', 'n ', "n\0", q{it's "quoted" \\ `so`}, "\xC3\xA9t\xC3\xA9", "\xF0\x9F\x94\x92", "\xFF", "\xC3", "a\x80b",
	"tab\tline\n", '[1,"', '%', 'x' x 255, 'x' x 254 . 'y', "\xFF" x 255, '0xFF', 'null');
my @owners = ('o', 'O', 'o ', q{o'"\\}, "\xFE\xFF", "\xE2\x82\xAC", 'w' x 255, "\x80" x 255);
my @accounts = (['tester', 'localhost'], ['root', 'localhost'], ['root', '%'], ["j\xC3\xBCrgen", '10.0.0.1'], [ 'u' x 128, 'h' x 255 ]);

# Times are small, so that they often meet.
sub random_time { return int(rand(12)) }

# A clock, the owners' renewals so far in the journal, and tokens, of one round.
sub random_put
{
	my ($round, $old) = @_;
	my ($user, $host) = @{ pick(@accounts[ 0 .. $round->{accounts} ]) };
	my %lease = (
		name => pick(@names[ 0 .. $round->{names} ]), token => $round->{tokens}[rand @{ $round->{tokens} }],
		owner => pick(@owners[ 0 .. $round->{owners} ]), user => $user, host => $host, kind => pick(1, 1, 1, 2),
		# another change of the same lease leaves these
		$old ? map { $_ => $old->{$_} } qw(name token owner user host kind) : ());
	my $ttl = random_time();

	return { what => 1, %lease, slot => int(rand(3)), mode => 1 + int(rand(3)), version => pick(1, 2, 4294967295),
		request => pick('', q{id'"\\}, "\xFF", 'r' x 255), ttl => $ttl, writes => int(rand(1000)),
		deadline => $round->{now} + $ttl, connection => pick(1, 77, '18446744073709551615'),
		acquired => 1700000000000000 + int(rand(1e9)), expires => random_expiry() };
}

# Also after 2038, which MariaDB's FROM_UNIXTIME() does not know.
sub random_expiry { return pick(1900000000, 2147483647, 2800000000, 3200000000) * 1000000 + int(rand(1e6)) }

# The next changes of a writer.
sub random_changes
{
	my ($round, $writer, $state) = @_;
	my $dice = rand();
	my @leases = map { $state->{$_} } sort keys %$state;

	$round->{now} += pick(0, 0, 1, 2, 5);
	return random_put($round) if !@leases || $dice < 0.35;
	return random_put($round, pick(@leases)) if $dice < 0.5;
	if ($dice < 0.65)
	{
		my $lease = pick(@leases, random_put($round));
		return { what => 2, map { $_ => $lease->{$_} } qw(name token) };
	}
	my $lease = pick(@leases, random_put($round));
	my $renewal = { what => 3, map({ $_ => $lease->{$_} } qw(owner user host)), at => $round->{now}, ttl => random_time(), expires => random_expiry() };
	my $last = \$round->{renewed}{ join('/', $writer, map { hex_of($_) } @$lease{qw(owner user host)}) };
	if (!defined $$last || $round->{now} < $$last)
	{
		$$last = $round->{now} + $renewal->{ttl};
		return $renewal;
	}
	# after a gap each lease is written
	return map { { %$_, what => 1, ttl => $renewal->{ttl}, deadline => $renewal->{at} + $renewal->{ttl}, expires => $renewal->{expires} } }
	  grep { my $other = $_; $_->{kind} == 1 && $_->{writer} eq $writer && $_->{deadline} > $round->{now}
		  && !grep { $other->{$_} ne $lease->{$_} } qw(owner user host) } @leases;
}

my %seen_of;    # how often things came to pass, since a test of nothing succeeds

for my $number (1 .. ROUNDS)
{
	my %round = (now => 100, names => int(rand(@names)), owners => int(rand(@owners)), accounts => int(rand(@accounts)),
		tokens => [ 1 .. 1 + int(rand(4)), '9007199254740991' ]);
	my @writers = $number % 5 ? (pick(7, '18446744073709551615')) : (7, 8, '18446744073709551615');
	my (%state, %table, @journal);
	let_head(pick(@writers));

	# what was in the lock table before
	apply(\%state, pick(@writers, 6), random_put(\%round)) for 1 .. rand(30);
	$round{now} += random_time();
	%table = map { $_ => { %{ $state{$_} } } } keys %state;
	for my $writer (@writers)
	{
		my $left = int(rand($number % 3 ? 40 : 150));
		while ($left > 0)
		{
			my @changes;
			for (1 .. 1 + rand(pick(1, 5, 20)))
			{
				for my $change (random_changes(\%round, $writer, \%state))
				{
					apply(\%state, $writer, $change);
					push @changes, $change;
					$left--;
					$seen_of{$change->{what}}++;
					# a piece of a checkpoint has written this lease meanwhile, or deleted
					# the row of that one; the journal has all its changes
					my $lease = pick(values %state);
					if ($lease && rand() < 0.05)
					{
						$table{ key($lease) } = {%$lease};
						$seen_of{written}++;
					}
					my ($ended) = grep { !$state{$_} } shuffle keys %table;
					if (defined $ended && rand() < 0.1)
					{
						delete $table{$ended};
						$seen_of{deleted}++;
					}
				}
			}
			push @journal, [ $writer, @changes ];
		}
	}
	fill([ map { $table{$_} } sort keys %table ], @journal);

	my $unwritten = $number % 4 == 0;
	if ($unwritten)
	{
		my @given_back = grep { rand() < 0.3 } sort keys %state;
		$seen_of{unwritten} += @given_back;
		let_unwritten('[' . join(', ', map { '["' . hex_of($state{$_}{name}) . "\", $state{$_}{token}]" } @given_back, @given_back)
			  . (@given_back ? ', ' : '') . '["6E6F6E65", 5]]');
		delete @state{@given_back};
	}
	for my $session ($admin, $tester)
	{
		my $name = $session == $admin ? 'all' : 'what one account sees';
		$session->value(q{SET time_zone = '+00:00'});
		# MySQL's other optimizer, which any session may choose
		$session->value("SET optimizer_switch = 'hypergraph_optimizer=" . ($number % 2 ? 'on' : 'off') . q{'}) if !$is_mariadb;
		is_deeply(seen($session), expected(\%state, $session == $admin ? undef : 'tester@localhost'), "round $number: $name")
		  or diag("SEED=$seed");
	}
	is(sql('SELECT held FROM dlock.stats'), scalar(keys %state), "round $number: so many are held");
	$seen_of{leases} += keys %state;
	let_unwritten('[]') if $unwritten;
}
cmp_ok($seen_of{$_} // 0, '>', 100, "there were enough: $_") for 1, 2, 3, qw(written deleted unwritten leases);
if (!$is_mariadb) { $_->value(q{SET optimizer_switch = 'hypergraph_optimizer=off'}) for $admin, $tester }

# ---------------------------------------------------------------------
# Who looks writes nothing, waits for nobody, and sees one moment
# ---------------------------------------------------------------------

$engine->feed('mysql_udf/install.sql');
let_head(7);

my %lease = (what => 1, name => 'n', token => 1, owner => 'o', user => 'tester', host => 'localhost', kind => 1, slot => 0,
	mode => 1, version => 1, request => '', ttl => 100, writes => 1, writer => 7, deadline => 200, connection => 5,
	acquired => 1700000000000000, expires => 1900000000000000);
my $owners = q{SELECT COALESCE(GROUP_CONCAT(owner ORDER BY owner), '') FROM dlock.locks};
fill([ \%lease, { %lease, token => 2, owner => 'p' } ], [ 7, { %lease, token => 3, owner => 'q' }, { what => 2, name => 'n', token => 2 } ]);
is(sql($owners), 'o,q', 'a row, one that is put, one that is removed');
sql('FLUSH TABLES WITH READ LOCK');
is($tester->outcome($owners), 'o,q', 'under a global read lock');
is($tester->outcome('SELECT held FROM dlock.stats'), 2, 'their number too');
sql('UNLOCK TABLES');
sql('SET GLOBAL read_only = 1');
is($tester->outcome($owners), 'o,q', 'on a server that is read-only');
sql('SET GLOBAL read_only = 0');
$tester->value('START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT');
fill([ { %lease, token => 3, owner => 'q' }, { %lease, token => 4, owner => 'r' } ]);
is($tester->value($owners), 'o,q', 'a checkpoint moves leases: a snapshot is one of both tables');
$tester->value('COMMIT');
is($tester->value($owners), 'q,r', 'and so is the next');

# Nobody sees by another way what dlock.locks masks.
like($tester->outcome("SELECT count(*) FROM dlock.$_"), qr/^1142 /, "dlock.$_ is closed") for qw(lease_state journal journal_head);
for my $function (qw(dlock_unwritten dlock.all_unwritten dlock.all_held))
{
	like($_->outcome("SELECT $function()"), qr/^(1227|1142) /, "as is $function()") for $tester, $function eq 'dlock.all_held' ? () : $admin;
}

# ---------------------------------------------------------------------
# What it costs is as much as there is to read: servers choose plans by what they
# believe of tables, which may be wrong
# ---------------------------------------------------------------------

# so that the administrator can ask it
let_unwritten('[]');

sub handled
{
	my ($sql) = @_;
	sql('FLUSH STATUS');
	sql($sql);
	my %count = map { @$_ } @{ $admin->query(q{SHOW SESSION STATUS WHERE variable_name LIKE 'Handler%'})->{rows} };
	my $sum = 0;
	$sum += $count{$_} for grep { /^Handler_(read|write|tmp_write|update)/ } keys %count;
	return $sum;
}

my ($rows, $entries) = (10000, 1000);
sub many { my ($count, $make) = @_; return [ map { my %made = (%lease, $make->($_)); \%made } 1 .. $count ] }
my @large = @{ many($rows, sub { (name => "lease $_[0]", owner => 'owner ' . $_[0] % 2, token => $_[0]) }) };
my @puts = @{ many($entries, sub { (name => "new $_[0]", token => $_[0], owner => 'owner ' . $_[0] % 2) }) };
my @removals = map { +{ what => 2, name => "lease $_", token => $_ } } 1 .. $entries;
my @renewals = map { +{ what => 3, user => 'tester', host => 'localhost', owner => 'owner ' . $_ % 2, at => 150, ttl => 100, expires => $lease{expires} + 1 } } 1 .. $entries;
sub test_cost
{
	my ($what, $allowed, $want) = @_;
	for my $sql ('SELECT count(*) FROM dlock.locks', 'SELECT max(name), max(owner), max(expires_at) FROM dlock.locks',
		q{SELECT count(*) FROM dlock.locks WHERE name = 'lease 9999'}, 'SELECT held FROM dlock.stats')
	{
		cmp_ok(handled($sql), '<', $allowed, "$what: $sql");
	}
	# others are made to find out who reads
	sql('FLUSH STATUS');
	sql('SELECT count(*) FROM dlock.lease_state');
	is($admin->query(q{SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'})->{rows}[0][1], 0, "$what: nothing on disk");
	return;
}
for my $analyzed (0, 1)
{
	my @steps = (
		[ 'a large table', \@large ],
		[ 'and many puts', \@large, map { [ 7, $_ ] } @puts ],
		[ 'or removals', \@large, [ 7, @removals ] ],
		[ 'or renewals', \@large, [ 7, @renewals[ 0 .. 499 ] ], [ 7, @renewals[ 500 .. 999 ] ] ],
		[ 'or some of each', \@large, [ 7, @puts[ 0 .. 299 ] ], [ 7, @removals[ 0 .. 299 ], @renewals[ 0 .. 299 ], @puts[ 300 .. 399 ] ] ],
		[ 'a small table', [], [ 7, @puts ] ]);
	for my $step (@steps)
	{
		my ($what, @fill) = @$step;
		fill(@fill);
		sql('ANALYZE TABLE dlock.lease_table, dlock.journal') if $analyzed;
		test_cost($what, 10 * ($rows + 10 * $entries));
	}
}

# ---------------------------------------------------------------------
# Without the library
# ---------------------------------------------------------------------

$engine->feed('mysql_udf/install.sql');
fill([ \%lease, { %lease, token => 2, owner => 'p' } ], [ 7, { %lease, token => 3, owner => 'q' }, { what => 2, name => 'n', token => 2 } ]);
$tester->quit;
$engine->end_control;
$engine->halt;
rename "$engine->{dir}/plugins/dlock.so", "$engine->{dir}/plugins/away" or die "could not rename the library: $!\n";
$engine->boot;
$admin = $engine->control;
is($admin->outcome('SELECT GROUP_CONCAT(owner ORDER BY owner) FROM dlock.lease_state'), 'o,q', 'without the library the leases are there');
# MariaDB's view names a function that says who reads; MySQL's masks everything
$is_mariadb
  ? like($admin->outcome($owners), qr/^1356 /, 'who may see what, nobody can tell')
  : is(sql($owners), '<insufficient privilege>,<insufficient privilege>', 'who may see what, nobody can tell');
$engine->end_control;
$engine->halt;
rename "$engine->{dir}/plugins/away", "$engine->{dir}/plugins/dlock.so" or die "could not rename the library: $!\n";
$engine->boot;
$admin = $engine->control;
is(sql($owners), 'o,q', 'with the library, all is seen');

# Of 1.0 there may be another journal, which is the library's affair.
sql($_) for OldTables::journal(1, 1, '1\n');
$engine->feed('mysql_udf/install.sql') for 1, 2;
is(sql('SELECT COUNT(*) FROM dlock.lease_journal WHERE changes = 1'), 1, 'install.sql leaves the journal of 1.0');
is(sql($owners), 'o,q', 'and the new one');
is(sql('SELECT COUNT(*) FROM dlock.journal_head'), 1, 'which has one head');

$engine->stop;
done_testing();
