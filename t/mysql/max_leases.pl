# There can be so many leases as "max_leases" says, and an account can have half of what the
# others have left, rounded up.  One more is an error, which takes nothing; what is held
# already can be held on.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $engine = Engines::start($kind);
if (!$engine->has_log)
{
	$engine->stop;
	plan(skip_all => 'this engine has no bound');
}
my ($one, $two, $again) = map { $engine->client(@$_) } [ 'one', 'tester' ], [ 'two', 'other' ], [ 'again', 'other' ];
my $full = qr/^1637 \w+: too many leases; increase "max_leases" in dlock\.settings/;

sub set_most
{
	my ($most) = @_;
	$engine->control->value("REPLACE INTO dlock.settings (name, value) VALUES ('max_leases', '$most')");
	return;
}

sub total { return $engine->control->value('SELECT count(*) FROM dlock.locks') }

# Take leases on "PREFIX1" and so on until one is refused: the answers.
sub take
{
	my ($session, $prefix, $most) = @_;
	my @answers;
	for my $n (1 .. $most)
	{
		push @answers, $session->outcome("SELECT dlock_acquire('$prefix$n', '$prefix', 600)");
		last if $answers[-1] !~ /^\d+$/;
	}
	return @answers;
}

# It is in force when nothing can be had any more.
set_most(0);
ok(Scenarios::Run::until(sub {
	my $answer = $one->outcome(q{SELECT dlock_acquire('first', 'a', 600)});
	$one->value(q{SELECT dlock_release('first', 'a')}) if $answer =~ /^\d+$/;
	return $answer =~ $full;
}), 'none: none');
set_most(8);
ok(Scenarios::Run::until(sub { $one->outcome(q{SELECT dlock_acquire('a1', 'a', 600)}) =~ /^\d+$/ }), 'eight: one');
$one->value(q{SELECT dlock_release('a1', 'a')});

my @got = take($one, 'a', 9);
is(scalar(@got), 5, 'an account has four of eight');
like($got[-1], $full, 'and no more');
@got = take($two, 'b', 9);
is(scalar(@got), 3, 'another one two of the other four');
like($got[-1], $full, 'and no more');
is(total(), 6, 'six are held');

# What needs no lease more.
is($one->value(q{SELECT dlock_acquire('a1', 'a', 600)}), $one->value(q{SELECT token FROM dlock.locks WHERE name = 'a1'}), 'a re-entry');
is($one->value(q{SELECT dlock_renew_all('a', 600)}), 4, 'renewals');
is($one->outcome(q{SELECT dlock_acquire('b1', 'a', 600)}), 'NULL', 'a refusal');
is($one->value(q{SELECT JSON_LENGTH(dlock_acquire_all('["a1", "a2"]', 'a', 600))}), 2, 'all of several that are held');
is($one->value(q{SELECT dlock_release('a1', 'a', NULL, 2)}), 1, 'given back');

# Several at a time: all or none.
is($one->value(q{SELECT dlock_release_all('a')}), 4, 'all are given back');
is($one->outcome(q{SELECT JSON_LENGTH(dlock_acquire_all('["a1", "a2"]', 'a', 600))}), 2, 'two together');
like($one->outcome(q{SELECT dlock_acquire_all('["x1", "x2"]', 'a', 600)}), $full, 'two more are one too many');
like($one->outcome(q{SELECT dlock_acquire_any('["x1", "x2"]', 'a', 600, 2)}), $full, 'so are any two');
is(total(), 4, 'and none of them was taken');
is($one->outcome(q{SELECT JSON_LENGTH(dlock_acquire_any('["x1", "x2"]', 'a', 600, 1))}), 1, 'any one is not');

# Until there can be only so many.
sub set_fewer
{
	my ($most) = @_;
	set_most($most);
	return ok(Scenarios::Run::until(sub {
		my $answer = $two->outcome(q{SELECT dlock_acquire('b3', 'b', 600)});
		$two->value(q{SELECT dlock_release('b3', 'b')}) if $answer =~ /^\d+$/;
		return $answer =~ $full;
	}), "$most: nobody has one more");
}

# One who waits is told when it is its turn, and the next one is not kept waiting.
set_fewer(6);
$one->send(q{SELECT dlock_acquire('b1', 'a', 600, 600)});
ok(Scenarios::Run::until(sub { $engine->is_waiting($one) }), 'who has three waits for another one');
$again->send(q{SELECT dlock_acquire('b1', 'next', 600, 600)});
ok(Scenarios::Run::until(sub { $engine->is_waiting($again) }), 'and the other account behind it');
is($two->value(q{SELECT dlock_release('b1', 'b')}), 1, 'which is given back');
like($one->outcome, $full, 'the first is told');
like($again->outcome, qr/^\d+$/, 'the next has it');

# Fewer than there are: these stay.
set_fewer(2);
is($one->value(q{SELECT dlock_renew_all('a', 600)}), 3, 'what is held is held on');
is($one->value(q{SELECT dlock_release_all('a')}), 3, 'and given back');
is($two->value(q{SELECT dlock_release_all('b') + dlock_release_all('next')}), 2, 'all of it');
ok(Scenarios::Run::until(sub { $two->outcome(q{SELECT dlock_acquire('b3', 'b', 600)}) =~ /^\d+$/ }), 'then there is room');
$_->quit for $one, $two, $again;
$engine->stop;
done_testing();
