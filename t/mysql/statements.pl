# The statements in which the functions take leases: not EXPLAIN, nor expressions of a
# table, nor where a replica would have to repeat the call.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Wire;

my ($kind) = @ARGV;
my $is_mariadb = $kind eq 'mariadb';
my $engine = Engines::start($kind, '--log-bin=binlog', '--server-id=1', '--log-bin-trust-function-creators=1');
my $session = Wire::MySQL->of($engine, 'root');
my $not_here = qr/^1235 (?:0A000|42000): cannot execute dlock_\w+\(\) /;

sub sql { return $session->value($_[0]) }

sub attempt
{
	my ($statement) = @_;
	my $answer = $session->query($statement) // die "$statement: $session->{lost}\n";
	return defined $answer->{error} ? "$answer->{number} $answer->{error}: $answer->{message}" : $answer->{rows}[0][0] // 'nothing';
}

# Nobody's, or the owner's; then everybody's.
sub is_taken
{
	my ($taken, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(q{SELECT dlock_is_free('n')}), $taken ? 0 : 1, $what . ($taken ? ' takes it' : ' takes nothing'));
	sql(q{SELECT dlock_release_all('o')});
	return;
}

# Is no error, and takes the lease or does not.
sub succeeds
{
	my ($taken, $statement) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 2;
	unlike(attempt($statement), qr/^\d{4} \w{5}: /, $statement);
	is_taken($taken, $statement);
	return;
}

sub takes { return succeeds(1, @_) }

sub takes_nothing { return succeeds(0, @_) }

sub fails
{
	my ($statement, $error) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(attempt($statement), $error, $statement);
	is_taken(0, $statement);
	return;
}

my $call = q{dlock_acquire('n', 'o', 600)};
sql('CREATE TABLE numbers (n BIGINT PRIMARY KEY) ENGINE = InnoDB');
sql('INSERT INTO numbers VALUES (1), (2)');
sql('CREATE TABLE tokens (token BIGINT, kind VARCHAR(20)) ENGINE = InnoDB');

# ---------------------------------------------------------------------
# EXPLAIN
# ---------------------------------------------------------------------

my $derived = "SELECT * FROM (SELECT $call) d";
takes_nothing("EXPLAIN $_")
  for "SELECT $call", $derived, "SELECT 1 FROM numbers WHERE n = (SELECT $call)", "WITH c AS (SELECT $call) SELECT * FROM c",
  "UPDATE numbers SET n = 3 WHERE n = (SELECT * FROM (SELECT $call) d)", "DELETE FROM numbers WHERE n = (SELECT * FROM (SELECT $call) d)",
  "INSERT INTO tokens (token) $derived";
takes_nothing("$_ $derived")
  for 'DESCRIBE', 'desc', 'EXPLAIN FORMAT=JSON', "  -- a comment\n\texplain", '# a comment' . "\nEXPLAIN", '/* a comment */EXPLAIN/**/';
# executable comments, by the rules of each server
my @explaining = ('/*! EXPLAIN */ %s', '/*!EXPLAIN*/%s', '/*!50000 EXPLAIN */ %s', '/*!50000EXPLAIN*/ %s', '/*!050000 EXPLAIN*/ %s', '/*!50000 EXPLAIN %s */',
	'/*!50000 /* a comment */ EXPLAIN */ %s', '/*!999999 of /* another */ server */ EXPLAIN %s', '/*M a /* comment */ EXPLAIN %s', 'EXPLAIN /*! FORMAT = JSON */ %s');
my @executing = ('/*!999999 EXPLAIN */ %s', '/* /*! EXPLAIN */ %s', '/*!999999 /* */ EXPLAIN */ %s');
push @{ $is_mariadb ? \@explaining : \@executing }, '/*M! EXPLAIN */ %s', '/*M!100100 EXPLAIN */ %s', '/*M!50700 EXPLAIN */ %s';
push @{ $is_mariadb ? \@executing : \@explaining }, '/*!80000 EXPLAIN */ %s', '/*!50700 EXPLAIN */ %s';
push @executing, '/*!50000 EXPLAIN */ /*! ANALYZE */ %s', '/*!090000 EXPLAIN ANALYZE*/ %s', '/*!999999 EXPLAIN */ %s' unless $is_mariadb;
takes_nothing(sprintf($_, $derived)) for @explaining;
sql('PREPARE explained FROM ' . "'EXPLAIN " . $derived =~ s/'/''/gr . q{'});
takes_nothing('EXECUTE explained');
sql("CREATE PROCEDURE explaining() EXPLAIN $derived");
takes_nothing('CALL explaining()');
takes_nothing("EXPLAIN SELECT * FROM (SELECT dlock_acquire_all('[\"n\"]', 'o', 600)) d");

# other calls do nothing either, and do not wait
sql("SELECT $call");
attempt("EXPLAIN SELECT * FROM (SELECT $_) d")
  for q{dlock_release('n', 'o')}, q{dlock_wait('n', -1)}, q{dlock_force_release('n')}, q{dlock_release_many('["n"]', 'o')};
is_taken(1, 'EXPLAIN: what has been taken stays');

# a view of dlock's has its real plan
my $plan = join(' ', map { $_ // '' } map { @$_ } @{ $session->query('EXPLAIN SELECT * FROM dlock.locks')->{rows} });
unlike($plan, qr/Impossible/, 'EXPLAIN of dlock.locks') or diag($plan);

# these execute the statement
takes($is_mariadb ? "ANALYZE $derived" : "EXPLAIN ANALYZE $derived");
takes('/* EXPLAIN */ SELECT ' . $call);
takes("-- EXPLAIN\nSELECT $call");
takes(sprintf($_, $derived)) for @executing;
takes(q{SELECT 'EXPLAIN', } . $call);

# ---------------------------------------------------------------------
# Expressions of tables
# ---------------------------------------------------------------------

my $disallowed = qr/^(?:1901|3758|3763|3770|3814|1064) /;
fails($_, $disallowed)
  for "CREATE TABLE t (v BIGINT AS ($call) STORED)", "CREATE TABLE t (n INT, CHECK (n > $call))", "CREATE TABLE t (n INT, v BIGINT AS ($call) VIRTUAL, KEY (v))",
  "CREATE TABLE t (n INT, KEY (($call)))", "CREATE TABLE t (n INT) PARTITION BY HASH ($call)";
if ($is_mariadb)
{
	takes_nothing("CREATE TABLE t (n INT, v BIGINT AS ($call) VIRTUAL)");
	takes_nothing('INSERT INTO t (n) VALUES (1)');
	takes_nothing('SELECT n FROM t');
	# in some places MariaDB makes an error a NULL
	takes_nothing('SELECT * FROM t');
	is(sql('SELECT v FROM t'), undef, 'a virtual column');
	takes_nothing('FLUSH TABLES');
	takes_nothing($_) for 'SELECT v FROM t', 'UPDATE t SET n = v', 'INSERT INTO tokens (token) SELECT v FROM t';
	takes_nothing('ALTER TABLE t DROP COLUMN v');
	fails("ALTER TABLE t ADD v BIGINT DEFAULT ($call)", $not_here);
	takes_nothing("CREATE TABLE t2 (n INT, v BIGINT DEFAULT ($call))");
	fails('INSERT INTO t2 (n) VALUES (1)', $not_here);
	takes_nothing('INSERT INTO t2 VALUES (1, DEFAULT)');
	takes_nothing('INSERT INTO t2 VALUES (1, 2)');
	takes_nothing('UPDATE t2 SET v = DEFAULT');
	# those that look may be there
	takes_nothing(q{CREATE TABLE t3 (n INT, v VARBINARY(255) AS (dlock_owner('n')) VIRTUAL)});
	takes_nothing('INSERT INTO t3 (n) VALUES (1)');
	takes_nothing('SELECT * FROM t3');
	sql('DROP TABLE t, t2, t3');
}
else
{
	fails("CREATE TABLE t (n INT, v BIGINT AS ($call) VIRTUAL)", $disallowed);
	fails("CREATE TABLE t (n INT, v BIGINT DEFAULT ($call))", $disallowed);
}

# All others may call.
sql("CREATE FUNCTION answering() RETURNS BIGINT NO SQL RETURN $call");
sql("CREATE FUNCTION setting() RETURNS BIGINT NO SQL BEGIN DECLARE x BIGINT; SET x = $call; RETURN x; END");
sql("CREATE FUNCTION asking() RETURNS BIGINT NO SQL BEGIN IF $call THEN RETURN 1; END IF; RETURN 0; END");
sql("CREATE FUNCTION selecting() RETURNS BIGINT NO SQL BEGIN DECLARE x BIGINT; SELECT $call INTO x; RETURN x; END");
sql("CREATE FUNCTION writing() RETURNS BIGINT MODIFIES SQL DATA BEGIN DECLARE x BIGINT; SET x = $call; INSERT INTO tokens VALUES (x, 'function'); RETURN x; END");
sql("CREATE PROCEDURE calling() BEGIN DECLARE x BIGINT; CASE $call WHEN 0 THEN SET x = 1; ELSE SET x = 2; END CASE; END");
sql("CREATE PROCEDURE fetching() BEGIN DECLARE x BIGINT; DECLARE c CURSOR FOR SELECT $call; OPEN c; FETCH c INTO x; CLOSE c; END");
sql("CREATE PROCEDURE recording() BEGIN DECLARE x BIGINT; SET x = $call; INSERT INTO tokens VALUES (x, 'procedure'); END");
sql("CREATE VIEW viewing AS SELECT $call AS token");
sql('CREATE TABLE triggering (token BIGINT) ENGINE = InnoDB');
sql("CREATE TRIGGER pulling BEFORE INSERT ON triggering FOR EACH ROW SET NEW.token = $call");
my @writes = ("INSERT INTO tokens VALUES ($call, 'values')", "INSERT INTO tokens SELECT $call, 'select'", "REPLACE INTO tokens VALUES ($call, 'replace')",
	"UPDATE numbers SET n = n WHERE n < $call", "UPDATE numbers, tokens SET token = $call WHERE n = 1 AND kind = 'values'",
	"DELETE FROM numbers WHERE n > $call", "DELETE numbers FROM numbers, tokens WHERE n > $call", "CREATE TABLE made AS SELECT $call AS token",
	"CREATE TEMPORARY TABLE made AS SELECT $call AS token", 'INSERT INTO tokens (token) SELECT token FROM viewing');
my @others = ("SET \@token = $call", "DO $call", 'SELECT answering()', 'SELECT setting()', 'SELECT asking()', 'SELECT selecting()', 'CALL calling()', 'CALL fetching()', 'SELECT * FROM viewing',
	'CALL recording()');
my @both = ('INSERT INTO triggering VALUES (1)', 'SELECT writing()');
sql('PREPARE calling FROM ' . q{"SELECT dlock_acquire(?, 'o', 600)"});
sql(q{SET @name = 'n'});

# ---------------------------------------------------------------------
# The binary log
# ---------------------------------------------------------------------

# The statements since the last time that a replica would execute and that call us.
sub logged
{
	my $answer = $session->query('SHOW BINARY LOGS');
	my $events = $session->query("SHOW BINLOG EVENTS IN '$answer->{rows}[-1][0]'")->{rows};
	sql('FLUSH BINARY LOGS');
	# the routines themselves do not count
	return grep { !/CREATE .*(?:FUNCTION|PROCEDURE|VIEW|TRIGGER)/ && /dlock_acquire|viewing|triggering|writing/ } map { $_->[5] } grep { $_->[2] eq 'Query' } @$events;
}

for my $format ('ROW', 'MIXED')
{
	sql("SET SESSION binlog_format = '$format'");
	logged();
	for my $statement (@writes, @others, @both, 'EXECUTE calling USING @name')
	{
		takes($statement);
		sql('DROP TABLE IF EXISTS made') if $statement =~ /made/;
	}
	is(join("\n", logged()), '', "$format: no call is repeated");
}
sql(q{SET SESSION binlog_format = 'STATEMENT'});
logged();
fails($_, $not_here) for @writes;
fails(q{INSERT INTO tokens (token) SELECT dlock_is_free('n')}, $not_here);
takes($_) for @others, 'EXECUTE calling USING @name';
is(join("\n", logged()), '', 'STATEMENT: no call is repeated');
takes($_) for @both;
is(scalar(() = logged()), 2, 'but those of triggers and stored functions are');
sql('SET SESSION sql_log_bin = 0');
for my $statement (@writes)
{
	takes($statement);
	sql('DROP TABLE IF EXISTS made') if $statement =~ /made/;
}

$session->close;
$engine->stop;
done_testing();
