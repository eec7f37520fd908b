# Functions are dropped and created again, one of them and all by uninstall.sql and
# install.sql, while clients call them, wait and have session leases.  The server goes
# on; each call is answered, or raises an error that the manual lists; afterwards all
# works, and tokens have grown.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use POSIX ();
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);
use Wire;

use constant {
	CLIENTS => 8,
	REINSTALLS => 3,
	NAMES => 3,
};

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
my $dir = $engine->{dir};
my $server = $engine->pid;

sub sql { return $engine->control->value($_[0]) }

sub connected { return Wire::MySQL->of($engine, 'tester') }

# What the manual has for calls while dlock is not there, or goes, by number.
my %documented = (
	1105 => qr/^could not use the lock table: |^could not connect to the server by its socket: /,
	# dropped after the statement was parsed
	1122 => qr/^Can't load function 'dlock_\w+'/,
	1305 => qr/^FUNCTION scenarios\.dlock_\w+ does not exist/i,
	1234 => qr/^cannot be told when this connection ends/,
	# a table is made or dropped, and that takes longer than the library waits for it
	3572 => qr/^could not /);
use constant LOCK_SECONDS => 1;

# A client's life: lines of a name and a token, or of an error.
sub live
{
	my ($number) = @_;
	my $client = connected();
	open(my $file, '>', "$dir/client$number") or die "could not create $dir/client$number: $!\n";
	$file->autoflush(1);
	for (my $i = $number; !-e "$dir/end"; $i++)
	{
		my $name = 'n' . $i % NAMES;
		my $kind = ('', '_shared', '_session', '')[ $i / NAMES % 4 ];
		for my $call ("dlock_acquire$kind('$name', 'o$number', 600, " . ($kind eq '_shared' ? 0 : 600) . ')',
			"dlock_release('$name', 'o$number')")
		{
			my $began = time;
			my $answer = $client->query("SELECT $call");
			if (!defined $answer)
			{
				print $file "lost $client->{lost}: $call\n";
				return;
			}
			if (defined $answer->{error})
			{
				my $early = $answer->{number} == 3572 && time - $began < LOCK_SECONDS;
				print $file $early ? 'early ' : '', "error $answer->{number} $answer->{message}\n";
				usleep(2000);
				# or what is taken next would be another hold
				redo if $call =~ /release/ && !-e "$dir/end";
				next;
			}
			my $value = $answer->{rows}[0][0];
			print $file "token $name $value\n" if $call =~ /acquire/ && defined $value;
		}
	}
	$client->close;
	return;
}

sub lines
{
	my ($number) = @_;
	open(my $file, '<', "$dir/client$number") or return;
	return <$file>;
}

# Until each client has been granted something more.
my %seen;
sub granted_more
{
	my ($what) = @_;
	my %before = map { $_ => scalar(grep { /^token/ } lines($_)) } 1 .. CLIENTS;
	ok(Scenarios::Run::until(sub {
		return !grep { my $n = $_; grep({ /^token/ } lines($n)) <= $before{$n} } 1 .. CLIENTS;
	}), "$what: every client is granted leases")
	  or diag(map { "client $_: " . (lines($_))[-1] } 1 .. CLIENTS);
	return;
}

my $left = q{SELECT coalesce(group_concat(name ORDER BY name), 'none') FROM dlock.locks WHERE name LIKE 's%'};

# Quietly: connections from before go on, and keep MariaDB's plugin from being active again.
my @old = map { connected() } 0 .. 2;
my %before = map { $_ => $old[$_]->value("SELECT dlock_acquire_session('s$_', 'o', 600)") } 0 .. 2;
$engine->feed($_) for 'mysql_udf/uninstall.sql', 'mysql_udf/install.sql';
my @new = map { connected() } 0 .. 1;
cmp_ok($old[$_]->value("SELECT dlock_acquire_session('s$_', 'o', 600)"), '>', $before{$_}, 'a session lease again, with a larger token')
  for 0 .. 1;
like($new[$_]->value("SELECT dlock_acquire_session('s_new$_', 'o', 600)"), qr/^\d+$/, 'one of a new connection') for 0 .. 1;
$_->close for $old[0], $new[0];
ok(Scenarios::Run::until(sub { sql($left) eq 's1,s_new1' }), 'they end with their connections') or diag(sql($left));
$_->close for @old[ 1, 2 ], $new[1];
ok(Scenarios::Run::until(sub { sql($left) eq 'none' }), 'all of them');

sub plugin_is
{
	my ($status) = @_;
	return sql(qq{SELECT count(*) FROM information_schema.plugins
		WHERE plugin_name = 'dlock' AND plugin_status = '$status'}) == 1;
}
# it is told of their end a moment before it is let go
Scenarios::Run::until(sub { !plugin_is('DELETED') }) or die "the plugin is not let go\n";
$engine->feed('mysql_udf/install.sql');

# The plugin alone, by hand, while a connection from before keeps it: it is silent for those
# that come later.
for my $round ($kind eq 'mariadb' ? (1 .. 3) : ())
{
	my $keeper = connected();
	$keeper->value('SELECT 1');
	ok(plugin_is('ACTIVE'), "the plugin is active, round $round");
	sql(q{UNINSTALL SONAME 'dlock'});
	ok(plugin_is('DELETED'), 'and uninstalled, but kept');
	my $new = connected();
	like($new->value(q{SELECT dlock_acquire_session('s_silent', 'o', 600)}), qr/^\d+$/, 'a session lease');
	$new->close;
	if ($round == 1)
	{
		ok(Scenarios::Run::until(sub { sql($left) eq 'none' }), 'it ends with its connection') or diag(sql($left));
	}
	# it may be active again before anybody has noticed
	$keeper->close;
	Scenarios::Run::until(sub { !plugin_is('DELETED') }) or die "the plugin is not let go\n";
	sql(q{INSTALL SONAME 'dlock'});
	ok(Scenarios::Run::until(sub { sql($left) eq 'none' }), 'installed again, nothing is left') or diag(sql($left));
}

# A statement that began before, and ends some time after the functions are gone.
my $long = connected();
$long->send(q{SELECT dlock_owner('other'), sleep(5)});
Scenarios::Run::until(sub { sql(q{SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'}) })
  or die "the statement does not begin\n";
$engine->feed($_) for 'mysql_udf/uninstall.sql', 'mysql_udf/install.sql';
is_deeply($long->answer->{rows}, [ [ undef, 0 ] ], 'a long statement with a function that is dropped');
$long->close;
is(connected()->value(q{SELECT dlock_owner('other')}), undef, 'its end does not take the new function away');

my @clients;
for my $number (1 .. CLIENTS)
{
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		my $done = eval { live($number); 1 };
		print STDERR $@ if !$done;
		# the server is the parent's
		POSIX::_exit($done ? 0 : 1);
	}
	push @clients, $pid;
}
granted_more('before');

# Sessions that have leases: not before, or the clients would keep their sockets open.
my @sessions = map { connected() } 1 .. 4;

# One function.
for my $function ('dlock_release', 'dlock_acquire')
{
	sql("DROP FUNCTION $function");
	my $dropped = time;
	ok(Scenarios::Run::until(sub { grep { /^error 1305 .*$function / } map { lines($_) } 1 .. CLIENTS }),
		"$function is dropped: 1305");
	like($engine->control->outcome(q{SELECT dlock_is_free('other')}), qr/^1$/, 'the others are there');
	# or the end of a call from before takes the new one away
	ok(Scenarios::Run::until(sub {
		my $seconds = int(time - $dropped);
		return $seconds > 0 && !sql("SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT $function(%' AND time >= $seconds");
	}), "calls of $function from before end");
	sql("CREATE FUNCTION $function RETURNS INTEGER SONAME 'dlock.so'");
	granted_more("$function is back");
}

# All.
for my $round (1 .. REINSTALLS)
{
	my %token = map { $_ => $sessions[$_]->value("SELECT dlock_acquire_session('s$_', 'o', 600)") } 0 .. $#sessions;
	$engine->feed('mysql_udf/uninstall.sql');
	like($sessions[0]->query(q{SELECT dlock_owner('s0')})->{message}, qr/does not exist/, "uninstalled, round $round");
	# one connection ends while dlock is not there
	(pop @sessions)->close if $round == 1;
	$engine->feed('mysql_udf/install.sql');
	granted_more("installed, round $round");
	for my $i (0 .. $#sessions)
	{
		is($sessions[$i]->value("SELECT dlock_is_free('s$i')"), 1, 'a session lease from before is gone');
		cmp_ok($sessions[$i]->value("SELECT dlock_acquire_session('s$i', 'o', 600)"), '>', $token{$i},
			'its connection takes it again, with a larger token');
	}
	push @sessions, connected() if $round == 1;
}
is($engine->pid, $server, 'the server is the same');

# They end with their connections, also with those from before, while one of these goes on.
$_->close for @sessions[ 1 .. $#sessions ];
ok(Scenarios::Run::until(sub { sql($left) eq 's0' }), 'session leases end with their connections') or diag(sql($left));
is($sessions[0]->value(q{SELECT dlock_owner('s0')}), 'o', 'and not before');
$sessions[0]->close;
ok(Scenarios::Run::until(sub { sql($left) eq 'none' }), 'the last one too');

open(my $end, '>', "$dir/end") or die "could not create $dir/end: $!\n";
close($end);
for my $pid (@clients)
{
	waitpid($pid, 0);
	is($?, 0, 'a client comes to its end');
}

# What they were told.
my (%told, %tokens);
for my $number (1 .. CLIENTS)
{
	my %last;
	for my $line (lines($number))
	{
		if (my ($name, $token) = $line =~ /^token (\w+) (\d+)$/)
		{
			push @{ $tokens{$name}{$token} }, $number;
			fail("client $number: $token of $name comes after $last{$name}") if $token <= ($last{$name} // 0);
			$last{$name} = $token;
		}
		elsif (my ($error, $message) = $line =~ /^error (\d+) (.*)$/)
		{
			my $known = $documented{$error};
			$told{"$error $message"}++;
			fail("client $number: undocumented: $line") if !$known || $message !~ $known;
		}
		else
		{
			fail("client $number: $line");
		}
	}
}
note("$told{$_} times: $_") for sort keys %told;
is_deeply([ grep { my $of = $tokens{$_}; grep { @{ $of->{$_} } > 1 } keys %$of } sort keys %tokens ], [],
	'no token was granted twice');
is(scalar(keys %tokens), NAMES, 'all names were granted');
note(join(' ', map { "$_: " . keys(%{ $tokens{$_} }) . ' tokens' } sort keys %tokens));
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.locks') == 0 }), 'nothing is held');
is(sql('SELECT count(*) FROM dlock.waiters'), 0, 'nobody waits');
unlike($engine->log, qr/got signal|AddressSanitizer/, 'the server has not crashed');

$engine->stop;
done_testing();
