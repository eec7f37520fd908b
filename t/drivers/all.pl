# Every real driver: the programs in the folders beside this file, one for each
# driver, in its language, run against a server of the kind that is the argument.
# DRIVERS in the environment names those to run, by file, instead of all.
#
# A program's first lines say, in its language's comments,
#
#   speaks: postgres mariadb mysql      to which servers its driver speaks
#   needs: PACKAGE...                   Debian's packages that it needs
#   npm: MODULE...                      what npm has, by t/drivers/node/package.json
#
# It finds the server by DLOCK_SERVER (the kind), DLOCK_HOST, DLOCK_PORT, DLOCK_USER
# (without a password) and DLOCK_DATABASE, prints TAP and shows, as doc/drivers.md says of
# the driver:
#
#   names      with quotes and backslashes, whatever a backslash is in a literal
#   numbers    a ttl that is a whole number, one with a fraction, an exact decimal, a
#              duration of the language's, and text: dlock_remaining() has as much
#   token      arrives as a whole number, and goes back unchanged; a limit beside it
#   null       a name that somebody holds: the language's null
#   boolean    renew and release: true, and null or false for what one does not hold
#   lists      names go in, tokens and names come out
#   guard      in a transaction of the driver's own; one of another token is lost
#   errors     lost, blocked, misuse, deadlock and server gone, told apart
#   session    a session lease, and how it ends when a pool takes its connection back
#
# python/readme_loop.py shows the readme's loop instead.
#
# A value that a driver cannot bind unchanged is bound as the page says, and the
# program also shows that it could not be.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use FreePorts;
use TAP::Parser;
use Test::More;

# whose modules the tests for MySQL and MariaDB do without
BEGIN
{
	require PostgreSQL::Test::Cluster if $ARGV[0] eq 'postgres';
}

my %run_by = (
	py => ['/usr/bin/python3'],
	pl => ['/usr/bin/perl'],
	php => ['/usr/bin/php'],
	rb => ['/usr/bin/ruby'],
	js => ['node'],
	mjs => ['node'],
	go => [ 'sh', "$FindBin::RealBin/go/run" ],
	rs => [ 'sh', "$FindBin::RealBin/rust/run" ],
	java => [ 'sh', "$FindBin::RealBin/java/run" ]);

my ($kind) = @ARGV;
my @programs = $ENV{DRIVERS} ? split ' ', $ENV{DRIVERS} : sort glob("$FindBin::RealBin/*/*");

# What the head of a program says.
sub head_of
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "could not open $path: $!\n";
	my %head;
	while (my $line = <$file>)
	{
		last if $. > 15;
		$head{$1} = [ split ' ', $2 ] if $line =~ /\b(speaks|needs|npm): (.+?)\s*(?:\*\/)?$/;
	}
	return \%head;
}

# Why a program cannot run here; undef if it can.
sub reason_not
{
	my ($head) = @_;
	for my $package (@{ $head->{needs} // [] })
	{
		my $status = `dpkg-query -W -f '\${db:Status-Status}' $package 2>/dev/null`;
		return "needs $package" if $status ne 'installed';
	}
	for my $module (@{ $head->{npm} // [] })
	{
		return "needs $module of npm, in DLOCK_NODE_MODULES" unless $ENV{DLOCK_NODE_MODULES} && -d "$ENV{DLOCK_NODE_MODULES}/$module";
	}
	return;
}

my %heads;
for my $path (@programs)
{
	my $head = head_of($path);
	$heads{$path} = $head if grep { $_ eq $kind } @{ $head->{speaks} // [] };
}
plan skip_all => "none of these speaks to $kind" unless %heads;

my $engine;
my ($port) = FreePorts::reserve(1);
if ($kind eq 'postgres')
{
	$engine = Engines::start($kind);
	my $node = $engine->{node};
	$port = $node->port;
	$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nmax_connections = 100");
	$engine->restart;
	# as on the others; migrations make tables where the extension is
	$engine->control->value('GRANT CREATE ON SCHEMA public TO tester');
}
else
{
	$engine = Engines::start($kind, '--skip-networking=0', '--bind-address=127.0.0.1', "--port=$port", '--skip-name-resolve',
		$kind eq 'mysql' ? '--mysqlx=OFF' : ());
	my $address = q{'tester'@'127.0.0.1'};
	$engine->control->value("
		CREATE USER $address;
		GRANT ALL ON scenarios.* TO $address;
		GRANT EXECUTE ON dlock.* TO $address;
		GRANT SELECT ON dlock.locks TO $address;
		GRANT SELECT ON dlock.waiters TO $address");
	$engine->control->value(q{UPDATE dlock.settings SET value = '1' WHERE name = 'lock_timeout'});
	$engine->restart;
}
my %environment = (
	DLOCK_SERVER => $kind,
	DLOCK_HOST => '127.0.0.1',
	DLOCK_PORT => $port,
	DLOCK_USER => 'tester',
	DLOCK_DATABASE => $kind eq 'postgres' ? 'postgres' : 'scenarios',
	# where node's require() looks
	NODE_PATH => $ENV{DLOCK_NODE_MODULES} // '');

for my $path (sort keys %heads)
{
	my $name = $path =~ s{^\Q$FindBin::RealBin\E/}{}r;
	my $reason = reason_not($heads{$path});
	SKIP:
	{
		skip("$name $reason", 1) if defined $reason;
		my ($extension) = $path =~ /\.(\w+)$/;
		my @command = @{ $run_by{$extension} // die "$path: nothing runs it\n" };
		local %ENV = (%ENV, %environment);
		my $parser = TAP::Parser->new({ exec => [ 'timeout', '600', @command, $path ], merge => 1 });
		while (my $result = $parser->next)
		{
			if ($result->is_test)
			{
				my $what = "$name: " . $result->description =~ s/^- //r;
				if ($result->has_skip) { ok(1, "$what # skip " . $result->explanation) }
				else { ok($result->is_ok, $what) }
			}
			elsif (!$result->is_plan) { diag("$name: " . $result->as_string) }
		}
		ok(!$parser->has_problems && $parser->tests_run > 0, "$name ran to its end");
	}
	# what a program leaves must not be in the way of the next
	$engine->clean_up;
}
$engine->stop;
done_testing();
