# An owner with very many leases gives them all back, and renews them, in one call:
# calls for other names come in between.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use HeldFlush;
use Scenarios;
use Test::More;

# A call goes into so many commits, at most 10,000 names each.
use constant COMMITS => 3;

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind);
my $engine = $server->engine;
sub sql { return $engine->control->value($_[0]) }

# Say whether a statement that calls such a function is under way.
sub runs
{
	return sql("SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT $_[0]%'") > 0;
}

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
	# another call comes before the first part has been committed
	$server->hold;
	$owner->send("SELECT $call, sysdate(6)");
	ok(Scenarios::Run::until(sub { runs('dlock_re') }), "$call: it is under way");
	$other->send(q{SELECT dlock_acquire('other', 'b', 60) > 0, sysdate(6)});
	ok(Scenarios::Run::until(sub { runs('dlock_acquire') }), "$call: another call comes");
	$server->let_go;

	my ($other_got, $other_at) = @{ $other->answer->{rows}[0] };
	my ($owner_got, $owner_at) = @{ $owner->answer->{rows}[0] };
	is($other_got, 1, "$call: the other is answered");
	is($owner_got, $count, "$call: all of them");
	cmp_ok($other_at, 'lt', $owner_at, "$call: the other before the last commit");
}
is($other->value(q{SELECT dlock_release_all('b') > 0}), 1, 'the others\' lease is given back');
is($other->value('SELECT dlock_settle()'), 1, 'all is written');
is(sql('SELECT count(*) FROM dlock.lease_table'), 0, 'nothing is left');

$_->quit for $owner, $other;
$engine->stop;
done_testing();
