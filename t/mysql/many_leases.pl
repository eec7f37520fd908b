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

# More than one entry of the journal renews, so each is written.  A call goes into several
# commits.
use constant LEASES => 12_000;

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind);
my $engine = $server->engine;
$engine->write_settings(lock_timeout => 300);    # held up, nobody is to give up
sub sql { return $engine->control->value($_[0]) }

# Say whether a statement that calls such a function is under way.
sub runs
{
	return sql("SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT $_[0]%'") > 0;
}

my ($owner, $other) = map { $engine->client($_) } qw(owner other);

sub take_all
{
	for my $thousand (0 .. LEASES / 1000 - 1)
	{
		my $names = '[' . join(',', map { "\"n$thousand/$_\"" } 0 .. 999) . ']';
		my $taken = $owner->value("SELECT JSON_LENGTH(dlock_acquire_any('$names', 'many', 86400, 1000))");
		$taken == 1000 or BAIL_OUT('there is nothing to be tested');
	}
	return;
}

my %calls = (renew => q{dlock_renew_all('many', 86400)}, release => q{dlock_release_all('many')});
take_all();
for my $what ('renew', 'release')
{
	# Another call comes before the first part has been committed.  That its statement runs
	# can be seen, and not that the library has it, so one that came late is made again.
	my $try = 0;
	ok(Scenarios::Run::until(sub {
		take_all() if $what eq 'release' && $try > 0;
		$try++;
		$server->hold;
		$owner->send("SELECT $calls{$what}, sysdate(6)");
		Scenarios::Run::until(sub { runs('dlock_re') }) or die "$calls{$what} is not under way\n";
		$other->send(q{SELECT dlock_acquire('other', 'b', 6000, 6000) > 0, sysdate(6)});
		Scenarios::Run::until(sub { runs('dlock_acquire') }) or die "no other call comes\n";
		$server->let_go;

		my ($other_got, $other_at) = @{ $other->answer->{rows}[0] };
		my ($owner_got, $owner_at) = @{ $owner->answer->{rows}[0] };
		is("$other_got $owner_got", "1 " . LEASES, "$what: the other is answered, and all of them");
		return $other_at lt $owner_at;
	}), "$what: the other before the last commit");
}
is($other->value(q{SELECT dlock_release_all('b') > 0}), 1, 'the others\' lease is given back');
is($other->value('SELECT dlock_settle()'), 1, 'all is written');
is(sql('SELECT count(*) FROM dlock.lease_table'), 0, 'nothing is left');

$_->quit for $owner, $other;
$engine->stop;
done_testing();
