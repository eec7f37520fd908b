# The view of all leases is made of pages: it shows more leases than the server takes in one
# answer of a function, and what is held all the time is there once, whatever comes and
# goes meanwhile.  The kind of server is the argument.  Only the engine of the log has this.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

plan skip_all => 'of the engine of the log' if ($ENV{STORE} // '') ne 'log';

use constant LEASES => 5000;

my ($kind) = @ARGV;
my $engine = Engines::start($kind, Engines::performance_schema($kind), '--max-allowed-packet=1M', '--net-buffer-length=16K');
my $admin = $engine->control;
my ($keeper, $churner) = map { $engine->client($_, 'tester') } 'keeper', 'churner';

sub sql { return $admin->value($_[0]) }

# Names that begin so.
sub names
{
	my ($begin, $from, $count) = @_;
	return q{'["} . join('", "', map { $begin . $_ } $from .. $from + $count - 1) . q{"]'};
}

# What there is once, and all that there is.
my $count = q{SELECT CONCAT(COUNT(DISTINCT name, token), ' of ', COUNT(*)) FROM dlock.locks WHERE };

is(sql(qq{$count TRUE}), '0 of 0', 'no lease');
for (my $i = 0; $i < LEASES; $i += 1000)
{
	is($keeper->value('SELECT JSON_LENGTH(dlock_acquire_any(' . names('kept' . 'x' x 180, $i, 1000) . q{, 'keeper', 3600, 1000))}), 1000, 'leases');
}
is(sql("$count TRUE"), LEASES . ' of ' . LEASES, 'more than fit into one answer are shown, each once');
is(sql('SELECT held FROM dlock.stats'), LEASES, 'and counted');
is(sql(q{SELECT COUNT(*) FROM dlock.locks WHERE owner <> 'keeper' OR mode <> 'exclusive' OR account <> 'tester@localhost' OR leaving}), 0, 'as they are');
is(sql(q{SELECT COUNT(*) FROM (SELECT name FROM dlock.locks ORDER BY name DESC LIMIT 100) AS l}), 100, 'sorted');
is(sql(q{SELECT COUNT(*) FROM dlock.locks AS a JOIN dlock.locks AS b ON b.token = a.token WHERE a.name LIKE '%x9' AND b.name LIKE '%x9'}), 1, 'joined');

$churner->send(join('; ', map {
	('SELECT JSON_LENGTH(dlock_acquire_any(' . names('gone', $_, 300) . q{, 'churner', 3600, 300))}, q{SELECT dlock_release_all('churner')})
} 1 .. 40));
my $looks = 0;
until ($churner->is_answered && $looks > 2)
{
	$looks++;
	my $seen = sql("$count name LIKE 'kept%'");
	next if $seen eq LEASES . ' of ' . LEASES;
	fail("what is kept is there once: $seen");
	last;
}
$churner->answer;
pass("while others come and go, what is kept is there once, $looks times");
is(sql("$count name LIKE 'kept%'"), LEASES . ' of ' . LEASES, 'to the end');

# By direct calls nothing is seen.
for my $call ('dlock.lease_pages()', q{dlock.lease_page('0/1')}, 'dlock_view_pages()', q{dlock_view_page('0/1')})
{
	like($churner->outcome("SELECT $call"), qr/^1227 .*permission denied for function dlock_view_pages?; read the view dlock\.locks/, "$call is for the view");
}
$engine->stop;
done_testing();
