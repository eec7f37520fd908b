# An owner with very many leases gives them all back, and renews them, in one call:
# calls for other names come in between.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

# A call goes into so many commits, at most 10,000 names each.
use constant COMMITS => 6;

my ($kind) = @ARGV;
my $engine = Engines::start($kind, '--innodb-flush-log-at-trx-commit=0', '--sync-binlog=0');
my ($owner, $other) = map { $engine->client($_) } qw(owner other);

my $count = COMMITS * 10_000;
for my $thousand (0 .. $count / 1000 - 1)
{
	my $names = '[' . join(',', map { "\"n$thousand/$_\"" } 0 .. 999) . ']';
	is($owner->value("SELECT JSON_LENGTH(dlock_acquire_any('$names', 'many', 6000, 1000))"), 1000, 'a thousand leases')
	  or BAIL_OUT('there is nothing to be tested');
}

for my $call (q{dlock_renew_all('many', 6000)}, q{dlock_release_all('many')})
{
	my $between = 0;
	$owner->send("SELECT $call");
	while (!$owner->is_answered)
	{
		my $answer = $other->value("SELECT dlock_acquire('other', 'b', 60) > 0");
		$between++ if $answer eq '1' && !$owner->is_answered;
	}
	is($owner->outcome, $count, "$call: all of them");
	cmp_ok($between, '>=', COMMITS / 2, "$call: others are answered between its commits");
	note("$call: $between calls of others");
}
is($other->value(q{SELECT dlock_release_all('b') > 0}), 1, 'the others\' lease is given back');
is($other->value('SELECT dlock_settle()'), 1, 'all is written');
is($engine->control->value('SELECT count(*) FROM dlock.lease_table'), 0, 'nothing is left');

$_->quit for $owner, $other;
$engine->stop;
done_testing();
