# The disk of the binary log is full: the server waits in a commit until there is room.  Looks
# and releases are answered meanwhile, nothing is granted or refused, and the library ends
# neither the commit nor, by that, the server, also when it has given up the connection
# of the commit.  When there is room again, all goes on.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use InTime;
use Scenarios;
use Test::More;

# On a machine that is busy with other things, as InTime.pm counts.
use constant {
	SOON => 10,
	AT_ONCE => 15,
};

my ($kind) = @ARGV;
my $engine;
{
	local %ENV = Engines::preloading('full_log', DLOCK_FULL_LOG => 'full');
	$engine = Engines::start($kind, '--log-bin=binlog', '--server-id=1', '--sync-binlog=1');
}
my $full = "$engine->{dir}/data/full";
END { unlink $full if defined $full }
my ($admin, $session, $hung) = map { $engine->client($_) } qw(admin session hung);

sub sql { return $admin->value($_[0]) }

# How many statements wait for room.
sub waiting
{
	return sql('SELECT count(*) FROM information_schema.processlist WHERE ' . $engine->is_writing . q{ AND id <> connection_id() AND state REGEXP 'ommit$|free space'});
}

my $undecided = qr/^3572 \w+: .*in its time/;
my $started = sql(q{SELECT variable_value FROM } . ($kind eq 'mysql' ? 'performance_schema' : 'information_schema') .
	q{.global_status WHERE variable_name = 'uptime'}) - time;

for my $round (1 .. 2)
{
	$session->value("SELECT dlock_acquire('$_$round', 'a', 6000)") for qw(kept gone more);
	is(sql('SELECT dlock_settle()'), 1, 'all is written');
	open(my $file, '>', $full) or die "could not create $full: $!\n";
	close($file) or die "could not create $full: $!\n";

	$hung->send("SELECT dlock_acquire('hung$round', 'a', 600, 6000)");
	ok(Scenarios::Run::until(sub { waiting() > 0 }), 'a commit waits for room');
	sql("KILL QUERY $hung->{id}");
	like($hung->outcome, qr/^1317 /, 'its caller need not wait');
	for my $time ('early', 'late')
	{
		answers($session, $time, AT_ONCE,
			"dlock_owner('kept$round')" => 'a',
			"dlock_is_free('free$round')" => 1,
			"count(*) FROM dlock.locks WHERE name = 'kept$round'" => 1,
			"dlock_acquire('kept$round', 'b', 600)" => 'NULL',
			"dlock_release('" . ($time eq 'early' ? 'gone' : 'more') . "$round', 'a')" => 1);
		answers($session, $time, SOON,
			"dlock_acquire('free$round', 'a', 600, 1)" => $undecided,
			"dlock_acquire_all('[\"free$round\", \"free2$round\"]', 'a', 600, 0.3)" => $undecided);
		cmp_ok(waiting(), '>', 0, "$time: the commit goes on waiting");
	}

	unlink($full) or die "could not remove $full: $!\n";
	ok(Scenarios::Run::until(sub { $session->outcome("SELECT dlock_acquire('free$round', 'c', 600)") =~ /^\d+$/ }),
		'room again: what was not granted is free');
	ok(Scenarios::Run::until(sub { $session->outcome("SELECT dlock_is_free('hung$round')") eq '1' }), 'what nobody was told of is given back');
	ok(Scenarios::Run::until(sub { $engine->is_written }),
		'all is written');
	is(sql("SELECT group_concat(name ORDER BY name) FROM dlock.lease_table WHERE name LIKE '%$round'"), "free$round,kept$round", 'and nothing else');
}

# The server is the one that we started, and its log is whole.
cmp_ok(sql(q{SELECT variable_value FROM } . ($kind eq 'mysql' ? 'performance_schema' : 'information_schema') .
	q{.global_status WHERE variable_name = 'uptime'}) - time, '<=', $started + 1, 'the server has not been started again');
my $binlog = $kind eq 'mysql' ? "$ENV{MYSQL_PREFIX}/usr/bin/mysqlbinlog" : 'mariadb-binlog';
is(system("$binlog --no-defaults --verify-binlog-checksum $engine->{dir}/data/binlog.0* > $engine->{dir}/events 2> $engine->{dir}/errors"), 0, 'the binary log can be read');
$_->quit for $session, $hung, $admin;
$engine->stop;
done_testing();
