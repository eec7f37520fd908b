# Global settings of the server, with which each new session begins, the library's own
# too: whatever they say, the library goes on.  And the privilege that exempts it from
# some of them gives it no further right: it does not write a read-only server.  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $admin = $engine->control;
my $is_mariadb = $kind eq 'mariadb';

sub sql { return $admin->value($_[0]) }
sub attempt { return $admin->outcome($_[0]) }

# The ids of the library's connections.
sub loopback
{
	my $user = sql('SELECT dlock_os_user()');
	return map { $_->[0] } @{ $admin->query("SELECT id FROM information_schema.processlist WHERE user = '$user'")->{rows} };
}

# End the library's connection, so that it logs in anew.
sub log_in_again
{
	$admin->query("KILL $_") for loopback();
	return;
}

# What could end a literal too early or too late: quotes of each kind, a backslash and what its
# escape could mean, and, before quotes, bytes that begin a character in gbk or sjis.
my $odd = qq{'"`\\0\\'; -- %_\x1a\xc3\xa9'\xe2\x82\xac'\xe8\xa1\xa8\\};

# Bytes as text that is the same in each session.
sub text { return q{CONVERT(x'} . unpack('H*', $_[0]) . q{' USING utf8mb4)} }

# All kinds of what the library does in its session, for plain names and odd ones.
my $count = 0;
sub works
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($name, $a, $b, $all, $y) = map { text($_) } 'n' . ++$count . $odd, "a$odd", "b$odd", "all $count$odd", "y$odd";
	# a call that was on its way when the connection went has an error of its own; so has one for
	# which the library has logged in, and was shut out by wait_timeout before it could say more
	my $token;
	Scenarios::Run::until(sub { ($token = attempt("SELECT dlock_acquire($name, $a, 600)")) !~ /Lost connection|gone away/ });
	my @answers = ($token =~ /^\d+$/ ? 'token' : $token);
	push @answers, map { attempt("SELECT $_") } "dlock_renew($name, $a, 600)", "dlock_acquire($name, $b, 600)",
	  "JSON_LENGTH(dlock_acquire_all(JSON_ARRAY('x', $y), $all, 600))", "dlock_renew_all($all, 600)",
	  "(SELECT count(*) FROM dlock.locks WHERE name = $name AND owner = $a)", "(CONVERT(dlock_owner($name) USING utf8mb4) = $a)",
	  'dlock_settle()',
	  # the names are in the lock table itself now, and not only in memory
	  "(SELECT GROUP_CONCAT(place) FROM (SELECT name IN (CAST($name AS BINARY), 'x', CAST($y AS BINARY)) AS place FROM dlock.lease_table WHERE name <> 'guarded') AS rows_there)",
	  "dlock_release($name, $a)", "dlock_release_all($all)", 'dlock_settle()',
	  q{(SELECT count(*) FROM dlock.locks WHERE name <> 'guarded')},
	  "(SELECT acquired > 0 FROM dlock.stats)", "(SELECT count(*) FROM dlock.waiters)";
	is(join(' ', @answers), 'token 1 NULL 2 2 1 1 1 1,1,1 1 2 1 0 1 0', $what);
	return;
}

# With values that another session could not do with, or not for long.
my %hostile = (
	init_connect => [ q{'SELECT nothing FROM nowhere'}, q{'SELECT dlock_acquire(''init'', ''connect'', 1, 5)'}, q{'DO SLEEP(1000)'} ],
	sql_mode => [ q{'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES,IGNORE_SPACE,HIGH_NOT_PRECEDENCE'}, q{'TRADITIONAL,ANSI_QUOTES'}, q{''} ],
	autocommit => [0],
	completion_type => [ 1, 2 ],
	sql_select_limit => [0],
	sql_safe_updates => [1],
	sql_big_selects => [0],
	max_join_size => [1],
	unique_checks => [0],
	transaction_isolation => [ q{'SERIALIZABLE'}, q{'READ-UNCOMMITTED'} ],
	transaction_read_only => [1],
	lock_wait_timeout => [1],
	innodb_lock_wait_timeout => [1],
	wait_timeout => [1],
	net_read_timeout => [1],
	character_set_client => [ 'latin1', 'gbk', 'sjis' ],
	character_set_connection => [ 'ucs2', 'gbk' ],
	character_set_results => [ 'ucs2', 'NULL' ],
	character_set_server => [ 'ucs2', 'gbk', 'sjis' ],
	collation_connection => ['utf8mb4_bin'],
	time_zone => [q{'-11:30'}],
	max_user_connections => [1],
	group_concat_max_len => [4],
	div_precision_increment => [0],
	default_storage_engine => ['MyISAM'],
	low_priority_updates => [1],
	# a row that somebody guards is in the way of who reads all of them
	range_optimizer_max_mem_size => [1],
	optimizer_max_sel_arg_weight => [1],
	optimizer_switch => [q{'derived_merge=off'}],
	max_error_count => [0],
	$is_mariadb ? (
		tx_isolation => [q{'SERIALIZABLE'}],
		max_statement_time => [0.000001],
		max_session_mem_used => [8192],
		idle_transaction_timeout => [1],
		sql_if_exists => [1],
		secure_auth => [1],
		alter_algorithm => [q{'INSTANT'}]) : (
		offline_mode => [1],
		max_execution_time => [1],
		require_secure_transport => [1],
		sql_require_primary_key => [1],
		sql_generate_invisible_primary_key => [1],
		session_track_gtids => [q{'ALL_GTIDS'}],
		session_track_transaction_info => [q{'CHARACTERISTICS'}],
		activate_all_roles_on_login => [1],
		default_collation_for_utf8mb4 => ['utf8mb4_general_ci']));
# some are not there, or not to be changed, in this server
my ($done, %value) = (0);
works('at first');
my $guard = $engine->client('admin');
my $guarded = $guard->value(q{SELECT dlock_acquire('guarded', 'a', 6000)});
$guard->value('BEGIN');
ok(!defined $guard->query("CALL dlock.guard('guarded', 'a', $guarded)")->{error}, 'a transaction guards');
for my $name (sort keys %hostile)
{
	my $row = $admin->query("SHOW GLOBAL VARIABLES LIKE '$name'")->{rows}[0];
	next if !$row;
	$value{$name} = $row->[1];
	for my $hostile (@{ $hostile{$name} })
	{
		my $answer = $admin->query("SET GLOBAL $name = $hostile");
		if (defined $answer->{error})
		{
			note("$name = $hostile: $answer->{message}");
			next;
		}
		$done++;
		log_in_again();
		works("with $name = $hostile");
		$admin->value("SET GLOBAL $name = " . ($value{$name} =~ /^-?[\d.]+$/ ? $value{$name} : "'$value{$name}'"));
	}
}
cmp_ok($done, '>=', 30, 'many were tried');
$guard->value('COMMIT');
is($guard->value(q{SELECT dlock_release('guarded', 'a')}), 1, 'the guard was there to the end');
$guard->quit;

# Switched on while the library is logged in.
if (!$is_mariadb)
{
	sql('SET GLOBAL offline_mode = 1');
	works('the server goes offline');
	sql('SET GLOBAL offline_mode = 0');
}

# The privilege is for logging in.  A server that is read-only is not to be written:
# the library's session is refused by the server itself.
log_in_again();
works('before');
my $user = sql('SELECT dlock_os_user()');
like(attempt(q{SELECT dlock_acquire('held', 'a', 600)}), qr/^\d+$/, 'a lease');
sql('SET GLOBAL read_only = 1');
like(attempt("SELECT dlock_acquire('read only $_', 'a', 600)"), qr/^1792 25006: /, 'read_only: no grant') for 1 .. 20;
like(attempt(q{SELECT dlock_renew('held', 'a', 600)}), qr/^1792 25006: /, 'nor a renewal');
is(attempt(q{SELECT dlock_owner('held')}), 'a', 'but one can look');
log_in_again();
like(attempt(q{SELECT dlock_acquire('read only', 'a', 600)}), qr/^1792 25006: /, 'nor after the library has logged in anew');
is(sql(q{SELECT count(*) FROM dlock.lease_table WHERE name LIKE 'read only%'}), 0, 'nothing was written');
sql('SET GLOBAL read_only = 0');
ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_renew('held', 'a', 600)}) eq '1' }), 'writable again');
is(sql(q{SELECT dlock_release('held', 'a')}), 1, 'and on');

# A session's setting: who looks may have any character set, also where what is no text
# is shown as its bytes.
like(sql(q{SELECT dlock_acquire(x'ff01', x'ff02', 600)}), qr/^\d+$/, 'a name and an owner that are no text');
for my $charset (qw(utf8mb4 latin1 binary ucs2 utf16 utf16le utf32))
{
	sql("SET character_set_connection = $charset");
	is(attempt('SELECT name FROM dlock.locks'), '0xFF01', "$charset: the name is shown");
	is(attempt('SELECT owner FROM dlock.locks'), '0xFF02', "$charset: and the owner");
	is(attempt('SELECT count(*) FROM dlock.waiters'), '0', "$charset: and who waits");
}
sql('SET NAMES utf8mb4');
is(sql(q{SELECT dlock_release(x'ff01', x'ff02')}), 1, 'it is given back');

# Or any collation.  On MySQL dlock_owner() has one, and JSON_VALUE() brings its own.
like(sql(q{SELECT dlock_acquire('compared', 'a', 600)}), qr/^\d+$/, 'a lease to be compared');
my @comparisons = ('(SELECT mode FROM dlock.locks)', '(SELECT name FROM dlock.locks)', '(SELECT owner FROM dlock.locks)',
	q{dlock_owner('compared')}, q{dlock_holders('compared')});
my @wrong;
for my $collation (map { $_->[0] } @{ $admin->query(q{SHOW COLLATION WHERE Charset = 'utf8mb4'})->{rows} })
{
	sql("SET NAMES utf8mb4 COLLATE $collation");
	for my $what (@comparisons)
	{
		# two binary collations that are not the same
		next if $what =~ /^dlock/ && $collation =~ /0900_bin$/;
		my $answer = attempt("SELECT $what = 'no' OR $what LIKE 'no%'");
		push @wrong, "$collation, $what: $answer" if $answer ne '0';
	}
}
is(join("\n", @wrong), '', 'each collation can be compared with');
sql('SET NAMES utf8mb4');
is(attempt(q{SELECT dlock_owner('compared') = 'A'}), 0, 'an owner is not compared without case') if !$is_mariadb;

# Or be in a database with any character set.
my $waiter = $engine->client('waiter');
$waiter->send(q{SELECT dlock_acquire('compared', 'b', 600, 600)});
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 }), 'one waits');
for my $charset (qw(latin1 ucs2 utf16 utf16le utf32))
{
	sql("CREATE DATABASE in_$charset CHARACTER SET $charset");
	sql("USE in_$charset");
	is(attempt(q{SELECT concat(name, ' ', owner, ' ', mode) FROM dlock.waiters}), 'compared b exclusive', "$charset: who waits is shown");
}
sql('USE scenarios');
sql('DROP DATABASE in_' . $_) for qw(latin1 ucs2 utf16 utf16le utf32);
is(sql(q{SELECT dlock_release('compared', 'a')}), 1, 'that one is given back');
like($waiter->answer->{rows}[0][0], qr/^\d+$/, 'who waited has it');
is($waiter->value(q{SELECT dlock_release('compared', 'b')}), 1, 'and gives it back');
$waiter->quit;

# Without the privilege the rest works; what fails says why.
if ($is_mariadb)
{
	sql("REVOKE CONNECTION ADMIN ON *.* FROM '$user'\@localhost");
}
else
{
	sql("REVOKE dlock_login\@localhost FROM '$user'\@localhost");
}
log_in_again();
works('without the privilege');
sql(q{SET GLOBAL init_connect = 'SELECT nothing FROM nowhere'});
log_in_again();
like(attempt(q{SELECT dlock_acquire('n', 'a', 600)}), qr/^1105 \w+: could not /, 'without the privilege init_connect is for the library too');
# the script has literals of its own, and quotes accounts
sql("SET GLOBAL sql_mode = $hostile{sql_mode}[0]");
$engine->feed('mysql_udf/install.sql');
sql(q{SET GLOBAL sql_mode = DEFAULT});
ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('n', 'a', 600)}) =~ /^\d+$/ }), 'install.sql gives it the privilege again');
sql(q{SET GLOBAL init_connect = ''});

# A server that does not tell whether it follows another one counts as one that does: the
# library goes by what it found last, also if it logged in and took over in between.
if (!$is_mariadb && !$engine->has_log)
{
	my $asks = "SELECT ON performance_schema.replication_applier_status";
	my $goes_to = sub {
		my ($where) = @_;
		my $name = 'journal ' . ++$count;
		return attempt("SELECT dlock_acquire('$name', 'a', 600)") =~ /^\d+$/
		  && $where eq (sql("SELECT COUNT(*) FROM dlock.lease_table WHERE name = '$name'") ? 'lock table' : 'journal');
	};
	for my $try (1 .. 6)
	{
		ok(Scenarios::Run::until(sub { $goes_to->('journal') }), 'leases go into the journal');
		sql("REVOKE $asks FROM dlock\@localhost");
		log_in_again();
		# not just once, which a checkpoint could do
		ok(Scenarios::Run::until(sub { 5 == grep { $goes_to->('lock table') } 1 .. 5 }), 'and into the lock table if it is not told');
		log_in_again();
		sql("GRANT $asks TO dlock\@localhost");
	}
}
$engine->stop;
done_testing();
