# A library on a replica, which only looks, gets no more memory however many leases its
# source grants, whether it is asked in between or follows by itself.  The kind of server is
# the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use BuiltOnce;
use File::Temp qw(tempdir);
use LogRows;
use Relinked;
use Replicas;
use Scenarios;
use Test::More;
use Writers;

my ($kind) = @ARGV;

plan skip_all => 'the lock table is not a log' unless Engines::MySQL->has_log;

my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
# the server may be another user's
chmod 0711, $dir;
my @wrapped = map { "-Wl,--wrap=$_" } qw(malloc calloc realloc free strdup);
my $built = BuiltOnce::folder($dir, 'count_memory', sub { Relinked::build($_[0], 'count_memory', {}, @wrapped) });
my $file = "$dir/memory";
open(my $counted, '+>:raw', $file) or die "could not create $file: $!\n";
syswrite($counted, pack('q2', 0, 0)) == 16 or die "could not write $file: $!\n";
chmod 0666, $file;

my $source = Replicas->start($kind);
$source->install;
my $replica = do {
	local $ENV{DLOCK_LIBRARY} = "$built/dlock.so";
	local $ENV{DLOCK_COUNT_MEMORY} = $file;
	Replicas->start($kind, '--read-only=ON');
};
$replica->follow($source);
$replica->catch_up($source);
$replica->complete;
my ($x, $y) = (session($source, 'x'), session($replica, 'y'));

# How many bytes the library on the replica has.
sub bytes
{
	sysseek($counted, 0, 0);
	sysread($counted, my $numbers, 16) == 16 or die "could not read $file: $!\n";
	return (unpack('q2', $numbers))[1];
}

# Leases of names that were never used before, each in a statement's call; "look": the replica
# is asked meanwhile.
my $grants = 0;
sub grant_many
{
	my ($count, $look) = @_;
	for (1 .. $count / 1000)
	{
		is(ask($x, "WITH RECURSIVE many (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 1000)
			SELECT sum(dlock_acquire(concat('name $grants ', n), concat('owner $grants ', n), 600) > 0
				AND dlock_release(concat('name $grants ', n), concat('owner $grants ', n))) FROM many"), 1000, 'granted and given back');
		$grants += 1000;
		ask($y, q{SELECT dlock_owner('none')}) if $look;
	}
	return;
}

# When the replica's library knows all.
sub rest
{
	is(ask($x, 'SELECT dlock_settle()'), 1, 'written');
	my $token = acquire_soon($x, 'last', 'a', 600);
	$replica->catch_up($source);
	is(ask($y, q{SELECT JSON_VALUE(dlock_holders('last'), '$[0].token')}), $token, 'the replica knows the last lease');
	is(ask($x, q{SELECT dlock_release('last', 'a')}), 1, 'given back');
	return bytes();
}

grant_many(2000, 1);
my $before = rest();
for my $look (1, 0)
{
	grant_many(5000, $look);
	my $after = rest();
	cmp_ok($after - $before, '<', 5000, $look ? 'asked, it takes no more memory' : 'nor if it is not asked');
	note("$before to $after bytes");
	$before = $after;
}

$_->quit for $x, $y;
done_testing();
