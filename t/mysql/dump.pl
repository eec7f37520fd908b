# A logical dump of everything, as people make it, is restored in a server without
# dlock: all other databases are complete, and once dlock is installed there, the
# leases are as they were.  The same holds when it is restored in the server from
# which it was taken, or in another one that has dlock.  The kind of server is the
# argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $is_mariadb = $kind eq 'mariadb';
my $engine = Engines::start($kind);
my $admin = $engine->control;

# A server without dlock.
package Bare;
our @ISA = ('Engines::MySQL');

sub start
{
	my ($class) = @_;
	my $self = bless { kind => $kind, options => [] }, $class;
	$self->{dir} = File::Temp::tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
	$self->{owner} = $$;
	$self->boot;
	return $self;
}

package main;

# What the client says while it is fed a dump.
sub restore
{
	my ($server, $file, @options) = @_;
	return `$server->{dir}/mysql --defaults-file=$server->{dir}/client.cnf @options <$file 2>&1`;
}

sub dump_all
{
	my ($server, @options) = @_;
	my $file = "$server->{dir}/dump.sql";
	my $program = readlink("$server->{dir}/mysql") . 'dump';
	$program =~ s{mariadbdump$}{mariadb-dump};
	# a server that has had transactions of its own takes nobody else's
	push @options, '--set-gtid-purged=OFF' unless $is_mariadb;
	system("$program --defaults-file=$server->{dir}/client.cnf --user=root --all-databases --routines --events @options >$file 2>$file.err") == 0
	  or die "could not dump\n" . `cat $file.err`;
	return $file;
}

# Others' databases, before and after dlock in the alphabet, and leases.
for my $name ('a_before', 'z_after')
{
	$admin->value("CREATE DATABASE $name");
	$admin->value("CREATE TABLE $name.t (a INT)");
	$admin->value("INSERT INTO $name.t VALUES (42)");
	$admin->value("CREATE VIEW $name.v AS SELECT a FROM $name.t");
}
my $tester = $engine->client('tester');
$admin->value(q{SELECT dlock_acquire('plain', 'a', 3600)});
my $token = $tester->value(q{SELECT dlock_acquire('tester''s', 'b', 3600)});
$tester->value(qq{SELECT dlock_acquire_permit('permits', 'p$_', 3600, 9)}) for 1 .. 3;
my $rows = q{SELECT name, owner, mode, version, token, account FROM dlock.locks ORDER BY name, owner};
my $leases = $admin->query($rows)->{rows};
is(scalar(@$leases), 5, 'leases');
my $others = q{SELECT (SELECT a FROM a_before.v) + (SELECT a FROM z_after.v)};
my $views = q{SELECT count(*) FROM information_schema.views WHERE table_schema IN ('dlock', 'a_before', 'z_after')};
# dlock.appliers is MySQL's, or dlock.server; the engine of the log has dlock.reader, and
# dlock.lease_table is a view
my $is_log = ($ENV{STORE} // '') eq 'log';
my $nviews = ($is_mariadb ? 6 : 7) + ($is_log ? 2 : 0);
is($admin->value($views), $nviews, 'and views');

sub is_complete
{
	my ($server, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $control = $server->control;
	is($control->value($others), 84, "$what: other databases are complete");
	is_deeply($control->query($rows)->{rows}, $leases, "$what: the leases are what they were");
	my $client = $server->client('client', 'tester');
	my $seen = $client->query($rows);
	is_deeply([ map { $_->[1] } @{ $seen->{rows} } ], [ 'p1', 'p2', 'p3', '<insufficient privilege>', 'b' ], "$what: seen by others")
	  or diag($seen->{message});
	is($client->outcome(q{SELECT dlock_acquire('plain', 'a', 60)}), 'NULL', "$what: one that is held is refused");
	is($client->outcome("SELECT dlock_renew('tester''s', 'b', 3600, $token)"), 1, "$what: one's own can be renewed");
	cmp_ok($client->outcome(q{SELECT dlock_acquire('plain2', 'c', 60)}), '>', $token, "$what: and tokens grow");
	is($client->outcome(q{SELECT dlock_release('plain2', 'c')}), 1, "$what: released");
	is($client->outcome('SELECT count(*) FROM dlock.waiters'), 0, "$what: the other views are there");
	is($client->outcome('SELECT count(*) FROM dlock.stats'), 1, "$what: both");
	is($control->value($views), $nviews, "$what: as many as there were");
	$client->quit;
	return;
}

my $dump = dump_all($engine);
for my $single ('', '--single-transaction')
{
	my $file = dump_all($engine, $single);
	open(my $text, '<', $file) or die "could not read $file: $!\n";
	my @calls = join('', <$text>) =~ /\b(dlock_\w+`?\([^)]+\))/g;
	is(join(' ', grep { !/guard|^dlock_version|^dlock_view_page\(page\)/ } @calls), '', "no call of a loadable function has arguments in a dump $single");
}

# Without the library.
my $bare = Bare->start;
# the other engine's views name a loadable function on MariaDB
my @missing = $is_mariadb && !$is_log ? ('--force') : ();
my $said = restore($bare, $dump, @missing);
is(join("\n", grep { !@missing || !/FUNCTION dlock\.dlock_reader does not exist/ } $said =~ /^(ERROR .*)$/mg), '',
	'restored without the library: ' . (@missing ? 'only two views are errors' : 'no error'));
is(scalar(() = $said =~ /^ERROR/mg), 2, 'these') if @missing;
is($bare->control->value($others), 84, 'other databases are complete');
$bare->control->value('FLUSH PRIVILEGES');
system('install', '-m', '755', $ENV{DLOCK_LIBRARY} // 'mysql_udf/dlock.so', "$bare->{dir}/plugins/dlock.so") == 0
  or die "could not install the library\n";
$bare->feed('mysql_udf/install.sql');
# on MariaDB the views know only who has logged in since
$bare->end_control;
$bare->{ready} = 1;
is_complete($bare, 'then installed');

# In a server that has dlock, and in the one that it comes from.
for my $server ($bare, $engine)
{
	my $what = $server == $bare ? 'restored over it' : 'restored where it comes from';
	# with nothing to be written the library leaves alone what it finds in the middle of that
	$server->control->value('SELECT dlock_settle()');
	$server->end_control;
	is(restore($server, $dump), '', "$what: no error");
	$server->control->value('FLUSH PRIVILEGES');
	$server->control->value('SELECT dlock_reload()');
	is_complete($server, $what);
}

# It can be restarted, and installed once more.
$bare->restart;
is_complete($bare, 'restarted');
$bare->feed('mysql_udf/install.sql');
is_complete($bare, 'installed again');
$bare->stop;
$tester->quit;
$engine->stop;
done_testing();
