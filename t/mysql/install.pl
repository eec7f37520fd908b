# install.sql and uninstall.sql: what they grant, that they can be repeated, that they
# leave nothing of dlock, and that they do not change what was there before.  The kind
# of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $is_mariadb = $kind eq 'mariadb';
my $plugin = $is_mariadb ? 'unix_socket' : 'auth_socket';

sub sql { return $engine->control->value($_[0]) }

sub rows
{
	my ($sql) = @_;
	my $answer = $engine->control->query($sql);
	die "$sql: $answer->{message}\n" if defined $answer->{error};
	return [ map { join(' ', @$_) } @{ $answer->{rows} } ];
}

sub install { return $engine->feed('mysql_udf/install.sql') }
sub uninstall { return $engine->feed('mysql_udf/uninstall.sql') }

# What an account may do, without how it logs in, which MariaDB says too.
sub grants
{
	my ($account) = @_;
	return [ map { s/ IDENTIFIED (VIA|WITH|BY) .*?(?= WITH |$)//r =~ tr/`'//dr } @{ rows("SHOW GRANTS FOR $account") } ];
}

sub login
{
	my ($user) = @_;
	local $engine->{ready} = 0;    # not into a database
	my $client = eval { $engine->client('login', $user) };
	return $client ? $client->value('SELECT current_user()') : $@;
}

# Everything that the scripts deal with.  The plugin for the socket stays.
sub state
{
	my %state = (
		functions => 'SELECT name FROM mysql.func',
		plugins => qq{SELECT plugin_name FROM information_schema.plugins
			WHERE plugin_status = 'ACTIVE' AND plugin_name <> '$plugin'},
		loaded => qq{SELECT name FROM mysql.plugin WHERE name <> '$plugin'},
		databases => 'SELECT schema_name FROM information_schema.schemata',
		accounts => 'SELECT user, host, plugin FROM mysql.user',
		map { $_ => "SELECT grantee, privilege_type, is_grantable FROM information_schema.${_}_privileges" }
			qw(user schema table));
	return { map { $_ => [ sort @{ rows($state{$_}) } ] } keys %state };
}

# Repeated, while it is used.
my $user = sql('SELECT dlock_os_user()');
my $account = "'$user'\@'localhost'";
my %granted = (
	$account => [
		$is_mariadb ? "GRANT PROCESS, CONNECTION ADMIN ON *.* TO $user\@localhost" : "GRANT USAGE ON *.* TO $user\@localhost",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO $user\@localhost",
		$is_mariadb ? () : "GRANT dlock_login\@localhost TO $user\@localhost" ],
	q{'dlock'@'localhost'} => [
		'GRANT USAGE ON *.* TO dlock@localhost',
		'GRANT SELECT, UPDATE, EXECUTE ON dlock.* TO dlock@localhost',
		$is_mariadb ? () : map { "GRANT SELECT ON performance_schema.$_ TO dlock\@localhost" } 'replication_applier_status',
			$engine->has_log ? qw(replication_group_member_stats replication_group_members) : (), 'session_status' ],
	$is_mariadb ? () : (
		q{'dlock_login'@'localhost'} => [
			'GRANT USAGE ON *.* TO dlock_login@localhost',
			'GRANT CONNECTION_ADMIN ON *.* TO dlock_login@localhost' ]));
my ($one, $two, $three) = map { $engine->client($_, 'tester') } qw(one two three);
my $token = $one->value(q{SELECT dlock_acquire('plain', 'own', 600)});
my $session = $one->value(q{SELECT dlock_acquire_session('session', 'own', 600)});
sql(q{UPDATE dlock.settings SET value = '7.5' WHERE name = 'lock_delay'});
$two->send(q{SELECT dlock_acquire('plain', 'waits', 600, -1)});
ok(Scenarios::Run::until(sub { $engine->is_waiting($two) }), 'leases, one who waits, a setting');
my $before = state();
install() for 1 .. 2;
is_deeply(state(), $before, 'repeated, install.sql changes no right');
is($three->value(q{SELECT dlock_owner('plain')}), 'own', 'leases stay');
is($one->value("SELECT dlock_renew('session', 'own', 600, $session)"), 1, 'session leases too');
is(sql(q{SELECT value FROM dlock.settings WHERE name = 'lock_delay'}), '7.5', 'and settings');
ok($engine->is_waiting($two), 'and who waits');
is($one->value("SELECT dlock_release('plain', 'own', $token)"), 1, 'the lease is given back');
cmp_ok($two->outcome, '>', $token, 'and granted to who has waited');
$one->quit;
ok(Scenarios::Run::until(sub { sql(q{SELECT COUNT(*) FROM dlock.locks WHERE name = 'session' AND expires_at > now(6)
	AND JSON_VALUE(dlock_holders('session'), '$[0].expires_at') IS NULL}) == 0 }), 'session leases end with their connection');

# Rights.
is_deeply(grants($_), $granted{$_}, "what $_ may do") for sort keys %granted;
like(join(' ', @{ rows("SHOW CREATE USER $account") }), qr/ IDENTIFIED (VIA|WITH) .?\Q$plugin\E\b/, 'the library logs in by the socket');
like(join(' ', @{ rows(q{SHOW CREATE USER 'dlock'@'localhost'}) }), qr/ IDENTIFIED (VIA|WITH) .?\Q$plugin\E\b.* ACCOUNT LOCK/, 'the other account is locked');
like(login('dlock'), qr/ERROR (1045|1698|3118|4151) /, 'nobody logs in as that');
SKIP:
{
	skip 'not the server\'s user', 1 if getpwuid($>) ne $user;
	is(login($user), "$user\@localhost", 'the server\'s user can log in as the library');
}
sql("CREATE USER stranger\@localhost IDENTIFIED WITH $plugin");
like(login('stranger'), qr/ERROR (1045|1698) /, 'by the socket nobody logs in as another user');
sql('DROP USER stranger@localhost');

# The engine of the log has no views of 1.0.0, and no table that can be gone while all goes on.
if (($ENV{STORE} // '') ne 'log')
{
	# Over 1.0.0, whose views called functions with arguments, and whose function for
	# those who wait answered everybody.
	for my $sql (
		q{CREATE FUNCTION dlock_may_see RETURNS INTEGER SONAME 'dlock.so'},
		q{CREATE FUNCTION dlock_waiters_json RETURNS STRING SONAME 'dlock.so'},
		q{CREATE FUNCTION dlock_stats_json RETURNS STRING SONAME 'dlock.so'},
		q{CREATE OR REPLACE DEFINER = 'dlock'@'localhost' VIEW dlock.locks AS SELECT CAST(l.name AS CHAR) AS name,
			IF(dlock_may_see(l.account_user, l.account_host), CAST(l.owner AS CHAR), 'no') AS owner
			FROM (SELECT dlock_settle() AS settled) AS s STRAIGHT_JOIN dlock.lease_table AS l WHERE s.settled = 1},
		q{CREATE OR REPLACE DEFINER = 'dlock'@'localhost' VIEW dlock.waiters AS SELECT w.name_hex
			FROM (SELECT dlock_waiters_json() AS json LIMIT 1) AS j,
			JSON_TABLE(j.json, '$[*]' COLUMNS (name_hex VARCHAR(510) PATH '$.name_hex')) AS w},
		q{CREATE OR REPLACE DEFINER = 'dlock'@'localhost' VIEW dlock.stats AS SELECT c.acquired
			FROM (SELECT dlock_stats_json() AS json LIMIT 1) AS j,
			JSON_TABLE(j.json, '$' COLUMNS (acquired BIGINT PATH '$.acquired')) AS c},
		map({ "DROP FUNCTION IF EXISTS $_" } qw(dlock_reader dlock_unwritten dlock_view_waiters dlock_view_stats dlock.all_unwritten dlock.all_waiters dlock.all_stats dlock.all_held)),
		'DROP VIEW dlock.lease_state',
		'ALTER TABLE dlock.library_account DROP COLUMN connection_admin',
		$is_mariadb ? "REVOKE CONNECTION ADMIN ON *.* FROM $account" : q{DROP USER 'dlock_login'@'localhost'})
	{
		sql($sql);
	}
	my $old_lease = $three->value(q{SELECT dlock_acquire('of 1.0.0', 'own', 600)});
	is($three->value(q{SELECT owner FROM dlock.locks WHERE name = 'of 1.0.0'}), 'own', 'the views of 1.0.0 go on with this library');
	is($three->value('SELECT count(*) FROM dlock.waiters'), 0, 'all of them');
	cmp_ok($three->value('SELECT acquired FROM dlock.stats'), '>', 0, 'until install.sql is run');
	install();
	is_deeply(state(), $before, 'it makes of 1.0.0 what it makes of nothing');
	is(sql(q{SELECT GROUP_CONCAT(table_name) FROM information_schema.views WHERE table_schema = 'dlock'
		AND view_definition REGEXP 'dlock_(may_see|waiters_json|stats_json)'}) , 'NULL', 'no view calls what is gone');
	is($three->value(q{SELECT token FROM dlock.locks WHERE name = 'of 1.0.0' AND owner = 'own'}), $old_lease, 'the lease is kept');
	is($three->value(q{SELECT dlock_release('of 1.0.0', 'own')}), 1, 'and can be given back');

	# Whoever waits is told that the table is gone, although there is nothing to be written.
	like($two->value(q{SELECT dlock_acquire('held', 'own', 600)}), qr/^\d+$/, 'a lease');
	is(sql('SELECT dlock_settle()'), 1, 'has its row');
	$three->send(q{SELECT dlock_acquire('held', 'other', 600, 600)});
	ok(Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM dlock.waiters}) == 1 }), 'somebody else waits for it');
	sql('DROP TABLE dlock.lease_table');
	ok(Scenarios::Run::until(sub { $three->is_answered }), 'and is told when the table is dropped');
	like($three->answer->{message}, qr/^could not use the lock table: .*lease_table/, 'that it is gone');
	install();
}

# Removed.
sub is_gone
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join(' ', grep { /dlock|\Q$user\E/ } map { @$_ } values %{ state() }), '', $what);
}
$_->quit for $two, $three;
sql('DROP USER tester@localhost, other@localhost');
unlike(join(' ', map { @$_ } values %{ state() }), qr/tester/, 'nobody else has rights');
uninstall();
is_gone('uninstall.sql leaves nothing');
uninstall();
is_gone('nor does it when repeated');

# An account that was there before, with what it had.
my %variants = (
	'no right' => [],
	'PROCESS' => ["GRANT PROCESS ON *.* TO $account"],
	'a right of its own' => ["GRANT SELECT ON scenarios.* TO $account"],
	'two' => [ "GRANT RELOAD, PROCESS ON *.* TO $account", "GRANT SELECT ON scenarios.* TO $account WITH GRANT OPTION" ]);
for my $what (sort keys %variants)
{
	sql("CREATE USER $account IDENTIFIED WITH $plugin");
	sql($_) for @{ $variants{$what} };
	$before = state();
	install() for 1 .. 2;
	like($engine->control->outcome(q{SELECT dlock_acquire('n', 'own', 600)}), qr/^\d+$/, "an account with $what can be used");
	uninstall() for 1 .. 2;
	is_deeply(state(), $before, 'and is left as it was');
	sql("DROP USER $account");
}

# One that was made, and has got more.
install();
sql("GRANT SELECT ON scenarios.* TO $account");
uninstall();
is_deeply(grants($account), [ "GRANT USAGE ON *.* TO $user\@localhost", "GRANT SELECT ON scenarios.* TO $user\@localhost" ],
	'an account that was used otherwise stays, without rights on dlock');
sql("DROP USER $account");

# The library is gone.
install();
$engine->end_control;
$engine->halt;
rename "$engine->{dir}/plugins/dlock.so", "$engine->{dir}/plugins/away" or die "could not rename the library: $!\n";
$engine->boot;
uninstall();
is_gone('it leaves nothing without the library either');
rename "$engine->{dir}/plugins/away", "$engine->{dir}/plugins/dlock.so" or die "could not rename the library: $!\n";

# Somebody else's account is not used, nor dropped.
for my $name ('dlock', $is_mariadb ? () : 'dlock_login')
{
	sql("CREATE USER '$name'\@'localhost'");
	$before = grants("'$name'\@'localhost'");
	my $said = `@{[ $engine->feeding('mysql_udf/install.sql') ]} 2>&1`;
	like($said, qr/ERROR 1396 .*'?$name'?@/, "an account called $name that is not locked: an error");
	is_deeply(grants("'$name'\@'localhost'"), $before, 'it is given nothing');
	uninstall();
	is_deeply(grants("'$name'\@'localhost'"), $before, 'and stays');
	is(login($name), "$name\@localhost", 'as it was');
	sql("DROP USER '$name'\@'localhost'");
}
is_gone('nothing else does');

# What the server, or a client's option file, may set otherwise.
install();
my $made = state();
uninstall();
my @odd = ('sql_safe_updates = 1', 'group_concat_max_len = 4', ($is_mariadb ? 'tx_read_only' : 'transaction_read_only') . ' = 1');
sql("SET GLOBAL $_") for @odd;
install();
is_deeply(state(), $made, 'odd settings: all is made');
install();
is_deeply(state(), $made, 'and again');
uninstall();
is_gone('with odd settings nothing is left either');
$engine->stop;

# MariaDB as mariadb-install-db makes it if nobody says otherwise: the server's user
# in the operating system is an administrator, by the socket.
package Stock;
our @ISA = ('Engines::MySQL');

sub prepare
{
	my ($self) = @_;
	my $server_user = $> == 0 ? 'mysql' : getpwuid($>);
	chown((getpwnam($server_user))[2, 3], $self->{dir});
	system("mariadb-install-db --no-defaults --datadir=$self->{dir}/data --user=$server_user >$self->{dir}/made.log 2>&1") == 0
	  or die "could not make a database\n";
	$self->{admin} = getpwuid($>);
	return;
}

sub boot
{
	my ($self) = @_;
	$self->SUPER::boot;
	$self->log_in_as($self->{admin});
	return;
}

# Who feeds it, and whose the runner's session is.
sub log_in_as
{
	my ($self, $admin) = @_;
	my $file = "$self->{dir}/client.cnf";
	$self->{admin} = $admin;
	system("sed -i 's/^user=.*/user=$admin/' $file") == 0 or die "could not change $file\n";
	$self->end_control;
	return;
}

sub client_command
{
	my ($self, $name, $role) = @_;
	return $self->SUPER::client_command($name, $role // $self->{admin});
}

package main;

if ($is_mariadb)
{
	my $stock = bless { kind => $kind, options => [] }, 'Stock';
	$stock->start_server;
	$engine = $stock;
	my @all = grep { !/ ON dlock\./ } @{ grants($account) };
	like($all[0], qr/^GRANT ALL PRIVILEGES ON \*\.\* TO $user\@localhost WITH GRANT OPTION/, 'a stock MariaDB: the server\'s user may do everything');
	my $tester = $engine->client('stock', 'tester');
	$token = $tester->value(q{SELECT dlock_acquire('n', 'own', 600)});
	like($token, qr/^\d+$/, 'a lease is taken there');
	is($tester->value(q{SELECT dlock_release('n', 'own')}), 1, 'and given back');
	like($tester->value(q{SELECT dlock_acquire_session('session', 'own', 600)}), qr/^\d+$/, 'and a session lease');
	sql('SET GLOBAL read_only = 1');
	ok(Scenarios::Run::until(sub { $tester->outcome(q{SELECT dlock_acquire('n', 'own', 600)}) =~ /^1792 25006: / }),
		'read_only is noticed, though that account may write');
	sql('SET GLOBAL read_only = 0');
	$tester->quit;
	uninstall();
	is_deeply(grants($account), \@all, 'uninstall.sql leaves the account as it was');
	install();

	# its rights taken away, as the manual says
	sql('CREATE USER administrator@localhost');
	sql('GRANT ALL ON *.* TO administrator@localhost WITH GRANT OPTION');
	$engine->log_in_as('administrator');
	sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM $account");
	install();
	# PROXY is shown still; it lets nobody be somebody else who logs in by the socket
	is_deeply([ grep { !/^GRANT PROXY / } @{ grants($account) } ], $granted{$account}, 'it is left with what the library needs');
	$engine->halt;
	$engine->boot;
	$engine->log_in_as('administrator');
	$tester = $engine->client('stock', 'tester');
	like($tester->outcome(q{SELECT dlock_acquire('n', 'own', 600)}), qr/^\d+$/, 'that suffices');
	$engine->stop;
}
done_testing();
