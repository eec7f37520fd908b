# Engines.pm: the differences between the engines that the scenarios run on; see
# Scenarios.pm.  An engine starts a server of its own and stops it at the end.

package Engines;

use strict;
use warnings;

use File::Temp qw(tempdir);
use Scenarios;

my %classes = (postgres => 'Engines::Postgres', plain => 'Engines::Plain', mariadb => 'Engines::MySQL', mysql => 'Engines::MySQL');

sub is_kind
{
	my ($kind) = @_;
	return exists $classes{$kind};
}

# What t/NAME.c or t/mysql/NAME.c makes, for servers to load before all else.
sub preloaded
{
	my ($name) = @_;
	my ($source) = grep { -e } "t/$name.c", "t/mysql/$name.c";
	my $dir = tempdir(CLEANUP => 1);

	chmod(0755, $dir) or die "could not open $dir to the server: $!\n";
	system("cc -O2 -fPIC -shared -pthread -o $dir/$name.so $source -ldl") == 0
	  or die "could not build $name.c\n";
	return "$dir/$name.so";
}

# The environment of servers that load it; its own variables come after the name.
sub preloading
{
	my ($name, %variables) = @_;
	return (%ENV, LD_PRELOAD => preloaded($name), %variables);
}

# Options are given to the server (MySQL and MariaDB only).
sub start
{
	my ($kind, @options) = @_;
	my $self = bless { kind => $kind, options => \@options }, $classes{$kind};
	$self->start_server;
	return $self;
}

package Engines::Any;

use strict;
use warnings;

sub kind
{
	my ($self) = @_;
	return $self->{kind};
}

# Does a scenario concern it?
sub plays { return 1 }

# A session: "admin" is an administrator's; others are of the role, or account, "tester"
# or another.
sub client
{
	my ($self, $name, $role) = @_;
	return Scenarios::Client->new($self, $name, $role // ($name eq 'admin' ? undef : 'tester'));
}

# The runner's own, which is an administrator's.
sub control
{
	my ($self) = @_;
	return $self->{control} //= Scenarios::Client->new($self, 'control');
}

sub end_control
{
	my ($self) = @_;
	$self->{control}->kill if $self->{control};
	delete $self->{control};
	return;
}

# Expand the notation that is the same for all engines:
#
#   LIST('a', 'b')       a list of names; LIST_OF(3): LIST('n1', 'n2', 'n3')
#   GUARD('n', 'o', 1)   a statement that guards
#   HOLDERS('n')         a table: what dlock_holders() answers
#   CLAIM(...)           a table: what dlock_acquire_any(...) answers
#   DONE(f(...))         a list: the names for which f() was done
#   LEASE_TABLE          the table behind dlock.locks
#   LIVE                 a condition on dlock.locks: not over
#   SECONDS_LEFT         of a row of dlock.locks, to the deadline
#   SECONDS_DEADLINE     of such a row, as seconds of the server's clock
#   TTL                  of such a row: seconds from the first grant to the deadline
#   BEGIN REPEATABLE READ, BEGIN READ ONLY
sub translate
{
	my ($self, $sql) = @_;
	$sql =~ s/\bLIST_OF\((\d+)\)/'LIST(' . join(', ', map { "'n$_'" } 1 .. $1) . ')'/ge;
	return $self->translate_macros($sql);
}

# The connections that wait, by name and position.
sub waiting
{
	my ($self) = @_;
	my $answer = $self->control->query($self->waiters);
	die $answer->{message} if defined $answer->{error};
	return map { $_->[0] }
	  sort { $a->[1] cmp $b->[1] || $a->[2] <=> $b->[2] }
	  # waiters without a position come last
	  map { $_->[2] = 'inf' if $_->[2] eq 'NULL'; $_ }
	  @{ $answer->{rows} };
}

sub is_waiting
{
	my ($self, $session) = @_;
	return scalar grep { $_ eq $session->{id} } $self->waiting;
}

# The statement for those of waiters() that have looked whether that is a deadlock.
sub sleepers { return $_[0]->waiters }

# Does a session wait, and has it looked whether that is a deadlock?
sub is_asleep
{
	my ($self, $session) = @_;
	my $answer = $self->control->query($self->sleepers);
	die $answer->{message} if defined $answer->{error};
	return scalar grep { $_->[0] eq $session->{id} } @{ $answer->{rows} };
}

# Does an answer, or an error's message, say that an acquire could not be decided in its time?  On a
# busy machine a call that waits for less than a second may get this: it is not a refusal.
sub is_undecided
{
	my ($self, $answer) = @_;
	my $message = ref $answer ? $answer->{message} : $answer;
	return defined $message && $message =~ /could not decide on the lease in its time/;
}

# Before a scenario: give the server exactly these settings, besides those that all have.
sub settings
{
	my ($self, $settings) = @_;
	my $text = Scenarios::settings_text($settings);
	return if $text eq ($self->{settings} // '');
	$self->set(%$settings);
	$self->{settings} = $text;
	return;
}

# After a scenario: end its sessions, and all leases.
sub clean_up
{
	my ($self, @sessions) = @_;
	my $control = $self->control;
	my $left;

	for my $session (@sessions)
	{
		if ($session->is_busy && !$session->is_answered)
		{
			# the server would notice a lost client only after a while
			$self->kill_connection($session);
			$session->kill;
		}
		$session->quit;
	}

	# their transactions are over when no connection is left
	Scenarios::Run::until(sub { ($left = $self->connections) == 0 && !$self->waiting })
	  or die "$left connections are left\n";
	$control->value("DROP TABLE $_->[0]") for @{ $control->query($self->tables)->{rows} };
	Scenarios::Run::until(sub {
		$self->end_leases($control = $self->control);
		return ($left = $control->value('SELECT count(*) FROM dlock.locks')) == 0;
	}) or die "$left leases are left\n";
	return;
}

# End all leases.
sub end_leases
{
	my ($self, $control) = @_;
	# a hold that is over cannot be evicted: its row goes when the name is taken
	for my $sql ('dlock_force_release(name)', q{dlock_acquire(name, '-', 1)})
	{
		$control->query("SELECT $sql FROM (SELECT DISTINCT name FROM dlock.locks) l");
	}
	$control->query(q{SELECT dlock_release_all('-')});
	return;
}

# After that has failed.
sub recover
{
	my ($self) = @_;
	eval { $self->end_control; $self->restart; 1 } or Test::More::BAIL_OUT("the server is lost: $@");
	return;
}

package Engines::Postgres;

use strict;
use warnings;
our @ISA = ('Engines::Any');

use LeasePages;
use Processes;

sub start_server
{
	my ($self) = @_;
	my $node = $self->{node} = PostgreSQL::Test::Cluster->new('scenarios');
	# tokens_left() writes into pages
	$node->init(extra => $node->pg_version >= 18 ? ['--no-data-checksums'] : []);
	$node->append_conf('postgresql.conf', q{
dlock.log_expired = off
dlock.reap_interval = '1h'
});
	$node->start;
	$self->install;
	$node->safe_psql('postgres', q{
		CREATE ROLE tester LOGIN;
		CREATE ROLE other LOGIN;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC});
	return;
}

sub install
{
	my ($self) = @_;
	$self->{node}->safe_psql('postgres', 'CREATE EXTENSION dlock');
	return;
}

sub stop
{
	my ($self) = @_;
	$self->end_control;
	$self->{node}->stop;
	return;
}

sub client_command
{
	my ($self, $name, $role) = @_;
	my $connection = $self->{node}->connstr('postgres') . " application_name=$name";
	$connection .= " user=$role" if defined $role;
	return [
		'psql', '-XAtq', '-F', "\t", '-P', 'null=NULL', '-v', 'VERBOSITY=verbose',
		'-d', $connection, '-f', '-' ];
}

sub connection_id { return 'SELECT pg_backend_pid()' }

sub echo { return "\\echo $_[1]" }

# psql ends with the connection.
sub is_gone { return 0 }

sub error
{
	my ($self, $text) = @_;
	return $text =~ /(?:ERROR|FATAL):  (\w{5}): (.*)/s;
}

sub is_error
{
	my ($self, $wanted, $is) = @_;
	return $is eq $wanted;
}

sub boolean { return $_[1] ? 't' : 'f' }

sub list
{
	my ($self, $value) = @_;
	return ('') unless $value =~ /^\{(.*)\}$/;
	return split /,/, $1;
}

sub translate_macros
{
	my ($self, $sql) = @_;
	$sql =~ s/\bLIST\(\)/'{}'::text[]/g;
	$sql =~ s/\bLIST\(((?:[^()]|\([^()]*\))*)\)/ARRAY[$1]/g;
	$sql =~ s/\bGUARD\(/SELECT dlock_guard(/g;
	$sql =~ s/\bHOLDERS\(/dlock_holders(/g;
	$sql =~ s/\bCLAIM\(/dlock_acquire_any(/g;
	$sql =~ s/\bDONE\(/ARRAY(SELECT /g;
	$sql =~ s/\bLEASE_TABLE\b/dlock_private.lease_table/g;
	$sql =~ s/\bLIVE\b/(expires_at IS NULL OR expires_at > clock_timestamp())/g;
	$sql =~ s/\bSECONDS_LEFT\b/extract(epoch FROM expires_at - clock_timestamp())/g;
	$sql =~ s/\bSECONDS_DEADLINE\b/extract(epoch FROM expires_at)/g;
	$sql =~ s/\bTTL\b/extract(epoch FROM expires_at - acquired_at)/g;
	$sql =~ s/\bBEGIN REPEATABLE READ\b/BEGIN ISOLATION LEVEL REPEATABLE READ/g;
	return $sql;
}

sub tables { return q{SELECT tablename FROM pg_tables WHERE schemaname = 'public'} }

sub waiters { return 'SELECT pid, name, "position" FROM dlock.waiters' }

# A session looks for deadlocks after it has joined, and only then sleeps.  If another closes
# the circle before that look, this session finds it, and is told.
sub sleepers { return $_[0]->waiters . q{ JOIN pg_stat_activity USING (pid) WHERE wait_event_type = 'Extension'} }

sub connections
{
	my ($self) = @_;
	return $self->control->value(q{SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
}

sub kill_connection
{
	my ($self, $session) = @_;
	$self->control->value("SELECT pg_terminate_backend($session->{id})");
	return;
}

sub cancel
{
	my ($self, $session) = @_;
	$self->control->value("SELECT pg_cancel_backend($session->{id})");
	return;
}

# Statements that are cancelled after so many seconds, and what comes after them is not.
sub limited
{
	my ($self, $sql, $seconds) = @_;
	return "SET statement_timeout = '$seconds s';\n$sql;\nSET statement_timeout = 0";
}

sub set
{
	my ($self, %settings) = @_;
	my $control = $self->control;
	$control->value('ALTER SYSTEM RESET ALL');
	# so that it knows the settings
	$control->value(q{LOAD 'dlock'});
	for my $name (keys %settings)
	{
		# a role can have half of the waiters
		my $value = $name eq 'max_waiters' ? 2 * $settings{$name} - 1 : "$settings{$name}s";
		$control->value("ALTER SYSTEM SET dlock.$name = '$value'");
	}
	# some settings need a restart, and it makes sure that all processes know the others
	$self->restart;
	return;
}

sub restart
{
	my ($self) = @_;
	$self->end_control;
	# the arguments of restart() differ by version
	$self->{node}->stop('fast');
	$self->{node}->start;
	return;
}

# Kill the server and all its processes, and start it again.
sub crash
{
	my ($self) = @_;
	$self->end_control;
	Processes::kill_postgres($self->{node});
	$self->{node}->start;
	return;
}

# Write the mark into every bucket's page.
sub tokens_left
{
	my ($self, $count) = @_;
	my $node = $self->{node};
	my $path = table_file($node);

	$self->end_control;
	$node->stop;
	set_marks($path, 2**53 - 1 - $count);
	$node->start;
	return;
}

package Engines::Plain;

# PostgreSQL with plain/dlock.sql instead of the extension: what takes or extends a lease is a
# CALL, and a wait is a loop.

use strict;
use warnings;
our @ISA = ('Engines::Postgres');

# In scenarios it counts as PostgreSQL, but for those that need what it has not.
sub kind { return 'postgres' }

sub plays
{
	my ($self, $scenario) = @_;
	require Plain;				# not on a machine that has no PostgreSQL
	return 0 if !$self->{sees_clients} && grep { $_->{text} =~ /^disconnect / } @{ $scenario->{steps} };
	return Plain::plays($scenario);
}

sub install
{
	my ($self) = @_;
	my $node = $self->{node};
	require Plain;
	Plain::run($node, scalar getpwuid($<), 'plain/dlock.sql', 'postgres');
	# a loop that waits for a client that is gone ends, as from 14 on the server can see to
	$self->{sees_clients} = $node->safe_psql('postgres', 'SHOW server_version_num') >= 140000;
	$node->safe_psql('postgres', q{ALTER DATABASE postgres SET client_connection_check_interval = '100ms'}) if $self->{sees_clients};
	# what scenarios that are about other things use in place of what is not here
	$node->safe_psql('postgres', q{
		CREATE SCHEMA tool;
		GRANT USAGE ON SCHEMA tool TO PUBLIC;
		CREATE FUNCTION tool.release_all(whose text) RETURNS bigint LANGUAGE sql AS
			'SELECT count(*) FILTER (WHERE dlock_release(name, owner, token, version)) FROM dlock.locks WHERE owner = whose';
		CREATE PROCEDURE tool.wait(which text, seconds anycompatible DEFAULT '0'::text, INOUT ended boolean DEFAULT NULL) LANGUAGE plpgsql AS $$
		DECLARE
			began timestamptz := clock_timestamp();
			patience float8 := dlock_private.seconds(seconds::text, 'wait');
			tokens bigint[] := ARRAY(SELECT token FROM dlock.locks WHERE name = which);
		BEGIN
			LOOP
				ended := NOT EXISTS (SELECT FROM dlock.locks
					WHERE name = which AND token = ANY (tokens) AND expires_at > clock_timestamp());
				EXIT WHEN ended OR (patience >= 0 AND clock_timestamp() >= began + patience * interval '1 s');
				COMMIT;
				PERFORM pg_sleep(0.01);
			END LOOP;
		END $$});
	return;
}

sub end_leases
{
	my ($self, $control) = @_;
	$control->value('DELETE FROM dlock_private.lease_table');
	return;
}

my $procedures = qr/dlock_(?:acquire(?:_shared|_permits?|_all)?|renew|release_after)/;

sub translate_macros
{
	my ($self, $sql) = @_;
	$sql = $self->SUPER::translate_macros($sql);
	$sql =~ s/\bdlock_release_all\(/tool.release_all(/g;
	$sql =~ s/\bSELECT dlock_wait\(/CALL tool.wait(/g;
	return join(';', map {
		s/^\s*SELECT ($procedures\(.*\))\s*$/CALL $1/sr
		  =~ s/^\s*SELECT ARRAY\(SELECT (dlock_renew_many\(.*\))\)\s*$/CALL $1 \\gset\nSELECT :'renewed'::text[]/sr
	} split /;(?=(?:[^']*'[^']*')*[^']*$)/, $sql);
}

sub waiters { return q{SELECT pid, 'any', 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%CALL dlock%' AND pid <> pg_backend_pid()} }

# it has tried once
sub sleepers { return q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'} }

sub set
{
	my ($self, %settings) = @_;
	my $max_ttl = $settings{max_ttl} // 86400;
	$self->control->value("CREATE OR REPLACE FUNCTION dlock_private.max_ttl() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT $max_ttl'");
	return;
}

sub tokens_left
{
	my ($self, $count) = @_;
	$self->control->value("SELECT setval('dlock_private.mark', 9007199254740991 - $count)");
	return;
}

package Engines::MySQL;

# MariaDB and MySQL.  DLOCK_LIBRARY in the environment names a library to test instead of
# the one in mysql_udf; STORE=log says that it was built so.

use strict;
use warnings;
our @ISA = ('Engines::Any');

use File::Copy qw(copy);
use File::Temp qw(tempdir);

# Numbers and SQLSTATEs of errors.  In MariaDB the SQLSTATE follows from the number.
my %errors = (
	'22004' => qr/^1138 22004$/,
	'22007' => qr/^1292 22007$/,
	'22023' => qr/^3037 22023$/,
	'25006' => qr/^1792 25006$/,
	'25P01' => { mysql => qr/^1105 25P01$/, mariadb => qr/^1105 HY000$/ },
	'40P01' => { mysql => qr/^3058 40P01$/, mariadb => qr/^3058 HY000$/ },
	# and 1142, if the server itself refuses access to a table
	'42501' => { mysql => qr/^(1227 42501|1142 42000)$/, mariadb => qr/^(1227|1142) 42000$/ },
	# from the server, which has no error of its own for that
	'42883' => qr/^1123 HY000$/,
	'53400' => { mysql => qr/^1637 53400$/, mariadb => qr/^1637 HY000$/ },
	'55000' => { mysql => qr/^1234 55000$/, mariadb => qr/^1234 42000$/ },
	'55L01' => qr/^1644 55L01$/,
	'55P03' => { mysql => qr/^3572 55P03$/, mariadb => qr/^3572 HY000$/ },
	# cancelled by somebody, or by a timeout
	'57014' => { mysql => qr/^(1317 70100|3024 HY000)$/, mariadb => qr/^(1317|1969) 70100$/ },
	'2200H' => { mysql => qr/^1105 2200H$/, mariadb => qr/^1105 HY000$/ });

# Keep the server's logs, those of earlier starts too, for a reader after the test.
sub keep_log
{
	my ($self, $name) = @_;
	return unless $ENV{TESTLOGDIR};
	copy("$self->{dir}/log.err", "$ENV{TESTLOGDIR}/$name.log");
	copy("$self->{dir}/log.before", "$ENV{TESTLOGDIR}/$name-before.log") if -e "$self->{dir}/log.before";
	return;
}

# Stop the servers that a dead test has left, and keep the logs.
my @started;

END
{
	my $status = $?;
	for my $self (grep { $_->{owner} == $$ } @started)
	{
		# one that cannot be stopped keeps no other one running
		if (!eval { $self->stop; 1 })
		{
			warn $@;
			$status ||= 1;
		}
		$self->keep_log("$self->{kind}-$$");
	}
	$? = $status;
}

sub start_server
{
	my ($self) = @_;
	# a socket's name may be 107 bytes long
	$self->{dir} = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	$self->{owner} = $$;
	push @started, $self;
	$self->prepare;
	$self->boot;
	my $library = $ENV{DLOCK_LIBRARY} // 'mysql_udf/dlock.so';
	my @install = ('install', '-m', '755', $library, "$self->{dir}/plugins/dlock.so");
	system(@install) == 0 or die "could not install the library\n";
	$self->control->value(q{
		CREATE DATABASE scenarios;
		CREATE USER tester@localhost, other@localhost;
		GRANT ALL ON scenarios.* TO tester@localhost, other@localhost});
	$self->feed('mysql_udf/install.sql');
	$self->control->value(q{
		GRANT EXECUTE ON dlock.* TO tester@localhost, other@localhost;
		GRANT SELECT ON dlock.locks TO tester@localhost, other@localhost;
		GRANT SELECT ON dlock.waiters TO tester@localhost, other@localhost;
		GRANT SELECT ON dlock.stats TO tester@localhost, other@localhost});
	$self->write_settings;
	$self->make_ready;
	return;
}

# Install dlock on a server that has only the library, for the tester.
sub install
{
	my ($self) = @_;
	$self->control->value(q{
		CREATE DATABASE scenarios;
		CREATE USER tester@localhost;
		GRANT ALL ON scenarios.* TO tester@localhost});
	$self->feed('mysql_udf/install.sql');
	$self->control->value('GRANT EXECUTE, SELECT ON dlock.* TO tester@localhost');
	return;
}

# STORE=log: there is no lock table.  Tests that read that find the leases under its name.
sub feed_store
{
	my ($self) = @_;
	$self->control->value(q{CREATE OR REPLACE DEFINER = 'dlock'@'localhost' VIEW dlock.lease_table AS
		SELECT CAST(name AS BINARY) AS name, CAST(owner AS BINARY) AS owner, mode, kind, version, token, ttl_us, account,
			connection_id, acquired_us, expires_us FROM dlock.lease_state});
	return;
}

sub has_log { return ($ENV{STORE} // '') eq 'log' }

# The tables that the library writes.
sub written_tables
{
	my ($self) = @_;
	return $self->has_log ? qw(log guards) : qw(journal journal_head lease_mark lease_table);
}

# Has all been written that was answered?
sub is_written
{
	my ($self) = @_;
	return $self->control->value('SELECT dlock_settle()') eq '1' &&
	  ($self->has_log || !$self->control->value('SELECT count(*) FROM dlock.journal'));
}

# A condition on information_schema.processlist: the library writes what its callers wait for.
sub is_writing
{
	my ($self) = @_;
	my $table = $self->has_log ? 'log' : 'journal';
	return "(info LIKE 'INSERT INTO dlock.$table %' OR command = 'Execute' AND info LIKE '%dlock.$table%')";
}

# From now on clients use what is installed.
sub make_ready
{
	my ($self) = @_;
	$self->end_control;
	$self->{ready} = 1;
	return;
}

# A hook before the server starts, in its folder.
sub prepare { return }

# The option of a test that asks for MySQL's performance schema, see quick_start().
sub Engines::performance_schema
{
	my ($kind) = @_;
	return $kind eq 'mysql' ? '--performance-schema=ON' : ();
}

# Options with which MySQL starts with less than half the work: at each start it fills much
# memory and reads many pages, and most tests start servers more than they do anything else.
# A test's own option wins: the scenarios, tests with many sessions at work, and those of
# what the views show and to whom ask for the performance schema.  The nodes of groups have
# all of the server's own settings.
sub quick_start
{
	my ($self) = @_;
	return () if $self->{kind} eq 'mariadb';
	return qw(--performance-schema=OFF --innodb-log-buffer-size=4M --innodb-rollback-segments=8
		--innodb-doublewrite-pages=8);
}

sub boot
{
	my ($self) = @_;
	system('dev/mysql-server', $self->{kind}, $self->{dir}, $self->quick_start, @{ $self->{options} }) == 0
	  or die "could not start $self->{kind}\n";
	return;
}

sub halt
{
	my ($self) = @_;
	my $pid = $self->pid;
	system('dev/mysql-server', 'stop', $self->{dir}) == 0 or die "could not stop $self->{kind}\n";
	await_end($pid);
	return;
}

# The server's process id, or undef if it does not run.
sub pid
{
	my ($self) = @_;
	open(my $file, '<', "$self->{dir}/pid") or return;
	return <$file> =~ /(\d+)/ ? $1 : undef;
}

# What the server has written into its error log since its start.
sub log
{
	my ($self) = @_;
	open(my $file, '<:raw', "$self->{dir}/log.err") or die "could not read the log: $!\n";
	return join('', <$file>);
}

# Wait until a process has ended.  It says so before, and keeps its files until its last
# thread has ended.
sub await_end
{
	my ($pid) = @_;
	Scenarios::Run::until(sub { !defined $pid || !kill 0, $pid })
	  or die "the server outlives its end\n";
	return;
}

# The command that feeds a script to the server as its administrator.
sub feeding
{
	my ($self, $file) = @_;
	$file = 'mysql_udf/engine/install.sql' if $file eq 'mysql_udf/install.sql' && $self->has_log;
	return "$self->{dir}/mysql --defaults-file=$self->{dir}/client.cnf <$file";
}

# Feed it.
sub feed
{
	my ($self, $file) = @_;
	my $with_store = $file eq 'mysql_udf/install.sql' && $self->has_log;
	my $command = $self->feeding($file);
	eval { $self->control->value('DROP VIEW IF EXISTS dlock.lease_table') } if $with_store;
	system($command) == 0 or die "could not run $file\n";
	$self->feed_store if $with_store;
	return;
}

sub stop
{
	my ($self) = @_;
	$self->end_control;
	$self->halt;
	return;
}

sub client_command
{
	my ($self, $name, $role) = @_;
	my $user = $role // 'root';
	my @database = $self->{ready} ? ('scenarios') : ();
	return [
		"$self->{dir}/mysql", "--defaults-file=$self->{dir}/client.cnf", "--user=$user",
		'--default-character-set=utf8mb4', '--batch', '--skip-column-names', '--unbuffered',
		'--force', '--skip-reconnect', @database ];
}

sub connection_id { return 'SELECT connection_id()' }

sub echo { return "SELECT '$_[1]';" }

sub is_gone
{
	my ($self, $text) = @_;
	return $text =~ /^ERROR (2006|2013|4031) /m;
}

sub error
{
	my ($self, $text) = @_;
	return unless $text =~ /^ERROR (\d+) \((\w{5})\)(?: at line \d+)?: (.*)/ms;
	return ("$1 $2", $3);
}

sub is_error
{
	my ($self, $wanted, $is) = @_;
	my $regex = $errors{$wanted} // die "Engines.pm does not say what error $wanted is\n";
	$regex = $regex->{ $self->{kind} } if ref $regex eq 'HASH';
	return $is =~ $regex;
}

sub boolean { return $_[1] ? '1' : '0' }

sub list
{
	my ($self, $value) = @_;
	return ('') unless $value =~ /^\[(.*)\]$/;
	return map { s/^"(.*)"$/$1/r } split /,\s*/, $1;
}

# The text between a macro's parentheses.
my $inside = qr/(?<arguments>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)/;

sub translate_macros
{
	my ($self, $sql) = @_;
	$sql =~ s/\bLIST\(/JSON_ARRAY(/g;
	$sql =~ s/\bDONE\(/(/g;
	$sql =~ s/\bCLAIM\($inside\)/JSON_TABLE(dlock_acquire_any($+{arguments}), '\$[*]' COLUMNS (
		name VARCHAR(255) PATH '\$.name', token BIGINT PATH '\$.token')) AS c/g;
	$sql =~ s/\bGUARD\(/CALL dlock.guard(/g;
	$sql =~ s/\bHOLDERS\(([^()]*)\)/JSON_TABLE(dlock_holders($1), '\$[*]' COLUMNS (
		name VARCHAR(255) PATH '\$.name', owner VARCHAR(255) PATH '\$.owner',
		mode VARCHAR(9) PATH '\$.mode', version INT PATH '\$.version', token BIGINT PATH '\$.token',
		acquired_at DATETIME(6) PATH '\$.acquired_at', expires_at DATETIME(6) PATH '\$.expires_at',
		remaining DOUBLE PATH '\$.remaining', guarded INT PATH '\$.guarded')) AS h/g;
	$sql =~ s/\bLEASE_TABLE\b/dlock.lease_table/g;
	$sql =~ s/\bLIVE\b/(expires_at IS NULL OR expires_at > sysdate(6))/g;
	$sql =~ s/\bSECONDS_LEFT\b/timestampdiff(MICROSECOND, sysdate(6), expires_at) \/ 1000000/g;
	$sql =~ s/\bSECONDS_DEADLINE\b/unix_timestamp(expires_at)/g;
	$sql =~ s/\bTTL\b/(timestampdiff(MICROSECOND, acquired_at, expires_at) \/ 1000000)/g;
	$sql =~ s/\bBEGIN REPEATABLE READ\b/SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN/g;
	$sql =~ s/\bBEGIN READ ONLY\b/START TRANSACTION READ ONLY/g;
	return $sql;
}

sub tables { return q{SELECT table_name FROM information_schema.tables WHERE table_schema = 'scenarios'} }

sub waiters { return 'SELECT connection_id, name, position FROM dlock.waiters' }

# Of the scenarios' accounts: the library has connections too.
sub connections
{
	my ($self) = @_;
	return $self->control->value(q{SELECT count(*) FROM information_schema.processlist
		WHERE user IN ('tester', 'other', 'root') AND id <> connection_id()});
}

sub kill_connection
{
	my ($self, $session) = @_;
	$self->control->value("KILL CONNECTION $session->{id}");
	return;
}

sub cancel
{
	my ($self, $session) = @_;
	$self->control->value("KILL QUERY $session->{id}");
	return;
}

# A statement that is cancelled after so many seconds, and what comes after it is not.
sub limited
{
	my ($self, $sql, $seconds) = @_;
	return "SET STATEMENT max_statement_time = $seconds FOR $sql" if $self->{kind} eq 'mariadb';
	# of which only SELECT takes notice
	return 'SET max_execution_time = ' . 1000 * $seconds . "; $sql; SET max_execution_time = 0";
}

# The id of the library's connection; 0: it has none.
sub loopback
{
	my ($self) = @_;
	return $self->control->value(q{SELECT coalesce(max(id), 0) FROM information_schema.processlist
		WHERE id NOT IN (SELECT id FROM information_schema.processlist
			WHERE user IN ('root', 'tester', 'other', 'system user', 'event_scheduler'))});
}

sub write_settings
{
	my ($self, %settings) = @_;
	my %all = (lock_delay => 0, reap_interval => 3600, max_ttl => 86400, max_waiters => 1000, %settings);
	$self->control->value("UPDATE dlock.settings SET value = '$all{$_}' WHERE name = '$_'") for keys %all;
	return;
}

# The library reads the settings when it is first used.  A crash is quicker than a
# restart.
sub set
{
	my ($self, %settings) = @_;
	$self->write_settings(%settings);
	$self->crash;
	return;
}

sub restart
{
	my ($self) = @_;
	$self->end_control;
	$self->halt;
	$self->boot;
	return;
}

# Kill the server.
sub kill_server
{
	my ($self) = @_;
	my $pid = $self->pid;
	kill 'KILL', $pid;
	$self->end_control;
	await_end($pid);
	unlink "$self->{dir}/pid";
	return;
}

sub crash
{
	my ($self) = @_;
	$self->kill_server;
	$self->boot;
	return;
}

# Queries for a server's state in its cluster.
sub cluster_questions { return () }

# Keep beside the logs the state of a server that does not do what it should, and its log,
# which a restart would begin anew.  A query has seconds to be answered; no answer is a
# finding too.  With TORTURE_GDB in the environment, also keep the stack of each thread.
sub examine
{
	my ($self) = @_;
	return unless $ENV{TESTLOGDIR};
	my $name = join('-', $self->{kind}, $self->{number} // (), $$, ++$self->{examined});
	my $base = "$ENV{TESTLOGDIR}/examined-$name";

	copy("$self->{dir}/log.err", "$base.log");
	for my $sql (
		'SHOW FULL PROCESSLIST', $self->cluster_questions, 'SELECT * FROM information_schema.innodb_trx',
		map { "SELECT * FROM dlock.$_" } qw(waiters stats locks lease_table))
	{
		system("timeout 5 $self->{dir}/mysql --defaults-file=$self->{dir}/client.cnf -vvv -t -e \"$sql\" >>$base 2>&1");
	}
	my $pid = $self->pid;
	system("timeout 60 gdb -batch -p $pid -ex 'thread apply all bt' >>$base 2>&1") if $ENV{TORTURE_GDB} && $pid;
	return;
}

# The sum of a row of dlock.log, as log/encode.c has it.
sub sum_of
{
	my ($number, $writer, $row) = @_;
	my $sum = length $row;
	no warnings 'portable';

	for my $word ($number, $writer, unpack('Q<*', substr($row, 5)), 0)
	{
		$sum = do { use integer; ($sum ^ $word) * 0x9e3779b97f4a7c15 };
		$sum &= 0xffffffffffffffff;
		$sum ^= $sum >> 29;
	}
	return ($sum ^ $sum >> 32) & 0xffffffff;
}

# Add a row that says so of the tokens; who takes over adds a second's.
sub tokens_left_in_log
{
	my ($self, $count) = @_;
	my $control = $self->control;
	$control->value('SELECT dlock_settle()');
	my ($number, $writer, $hex) = @{ $control->query('SELECT number, writer, HEX(entries) FROM dlock.log ORDER BY number DESC LIMIT 1')->{rows}[0] };
	my ($from, $wall) = unpack('x21 Q< Q<', pack('H*', $hex));
	my $row = pack('C L< Q< Q< Q< Q<', 1, 0, $writer, 2**53 - 1 - $count - 2**20, $from, $wall);
	substr($row, 1, 4) = pack('L<', sum_of($number + 1, 7, $row));
	$control->value('INSERT INTO dlock.log VALUES (' . ($number + 1) . ", 7, x'" . unpack('H*', $row) . "')");
	$control->value('SELECT dlock_reload()');
	return;
}

# Raise the marks of all names.  After a start the first grant raises them by far more, so
# do this only after that.
sub tokens_left
{
	my ($self, $count) = @_;
	return $self->tokens_left_in_log($count) if $self->has_log;
	$self->control->value(q{SELECT dlock_acquire('-', '-', 1)});
	$self->control->value('UPDATE dlock.lease_mark SET mark = ' . (2**53 - 1 - $count));
	$self->control->value('SELECT dlock_reload()');
	return;
}

1;
