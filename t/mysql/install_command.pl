# dlock-mysql-install: it installs, updates and removes, leaves leases alone, never
# writes into a loaded library, and asks for a restart where one is needed.  The kind
# of server is the argument.

use strict;
use warnings;

use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $placed = "$engine->{dir}/plugins/dlock.so";

sub sql { return $engine->control->value($_[0]) }

# Run it: its exit status, and what it says.
sub command
{
	my ($client, @options) = @_;
	my $words = join(' ', map { "'$_'" } 'mysql_udf/dlock-mysql-install', '--client', "$engine->{dir}/mysql",
		@options, '--', "--defaults-file=$client");
	my $said = `$words 2>&1`;
	return ($? >> 8, $said);
}

sub gives
{
	my ($status, $pattern, $name, @options) = @_;
	my ($is, $said) = command("$engine->{dir}/client.cnf", @options);
	is($is, $status, "$name: exit status $status") or diag($said);
	like($said, $pattern, "$name: says so");
	return;
}

sub restart
{
	$engine->end_control;
	$engine->halt;
	$engine->boot;
	return;
}

my $version = sql('SELECT CONVERT(dlock_version() USING utf8mb4)');
like(sql(q{SELECT dlock_acquire('kept', 'o', 600)}), qr/^\d+$/, 'a lease is held');
my $inode = (stat $placed)[1];
gives(0, qr/, dlock \Q$version\E$/m, 'a look', '--check');
sql('DROP PROCEDURE dlock.guard');
gives(1, qr/, dlock \Q$version\E\n.*not come to its end/, 'a look at what is not complete', '--check');
gives(0, qr/a lease was taken/, 'again');
gives(0, qr/, dlock \Q$version\E$/m, 'a look then', '--check');
is((stat $placed)[1], $inode, 'the same library is left alone');

# another library, as an update brings it
my $work = File::Temp->newdir;
system("cp mysql_udf/dlock.so $work/dlock.so && printf x >>$work/dlock.so") == 0 or die 'could not write';
gives(3, qr/put the library into \Q$placed\E.*Restart it/s, 'an update', '--library', "$work/dlock.so");
isnt((stat $placed)[1], $inode, 'a file of its own takes its place');
is(sql(q{SELECT dlock_owner('kept') = 'o'}), 1, 'the server goes on with the old one');
restart();
gives(0, qr/a lease was taken/, 'after the restart', '--library', "$work/dlock.so");
is(sql(q{SELECT dlock_owner('kept') = 'o'}), 1, 'the lease is still held');

gives(0, qr/out of the server/, 'to take it out', '--uninstall');
is(sql(q{SELECT COUNT(*) FROM mysql.func WHERE dl = 'dlock.so'}), 0, 'no function is left');
gives(1, qr/dlock not installed/, 'a look', '--check');
restart();
unlink $placed or die "$placed: $!";
gives(0, qr/put the library into/, 'the library alone', '--only-library');
gives(1, qr/dlock not installed/, 'a look then', '--check');
gives(0, qr/^dlock \Q$version\E is installed; a lease was taken, with token \d+, and released/m, 'a server that had none');

# A script that its files were not copied with: what is in the current folder is none of
# them.
system("cp mysql_udf/dlock-mysql-install $work/ && echo \"SELECT 'fed';\" >$work/install.sql"
	. " && mkdir $work/alone && mv $work/dlock-mysql-install $work/alone/") == 0 or die 'could not copy';
my $said = `cd $work && alone/dlock-mysql-install --client '$engine->{dir}/mysql' --library $work/dlock.so -- '--defaults-file=$engine->{dir}/client.cnf' 2>&1`;
is($? >> 8, 1, 'a script alone: exit status 1');
like($said, qr/\Adlock-mysql-install: none of these is there: [^\n]*\n\z/, 'it says what is missing, and does nothing');

# A server that says it is of another series: it is this one, which it can work in.
open(my $other, '>', "$work/client") or die "could not write $work/client: $!\n";
print $other "#!/bin/sh\n'$engine->{dir}/mysql' \"\$@\" | sed -E '/\t.*\t/s/^[0-9]+\\.[0-9]+/8.4/'\n";
close $other or die;
chmod 0755, "$work/client" or die;
my $before = sql('SELECT acquired FROM dlock.stats');
gives(1, qr/ 8\.4\.\S+, on which dlock was never tried: .*--untried/, 'a series that was never tried', '--client', "$work/client");
is(sql('SELECT acquired FROM dlock.stats'), $before, 'nothing was done');
gives(0, qr/ 8\.4\.\S+, plugin directory/, 'a look', '--client', "$work/client", '--check');
gives(0, qr/a lease was taken.*Nobody has tried it on .* 8\.4\.\S+  Now run "dlock doctor --self-test"/s,
	'the same, when it is told to', '--client', "$work/client", '--untried');

is((command('/nonexistent'))[0], 1, 'no way to log in: exit status 1');
is((command("$engine->{dir}/client.cnf", '--unknown'))[0], 2, 'an unknown option: exit status 2');

$engine->end_control;
$engine->stop;
done_testing();
