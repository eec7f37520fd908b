# A name that thousands hold: each look, refusal and release is right for every one of
# them, although only calls that answer all of them go through all (rule 16).  The
# kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use HeldFlush;
use JSON::XS;
use Scenarios;
use Test::More;
use Wire;

use constant MANY => 3000;

my ($kind) = @ARGV;
my $server = HeldFlush->start($kind, '--log-bin=binlog', '--server-id=1', '--sync-binlog=1');
my $engine = $server->engine;
# held up, nobody is to give up
$engine->write_settings(reap_interval => 3600, lock_timeout => 300);
my %clients = map { $_ => wire($_) } qw(tester other root);
my $id = sql('SELECT connection_id()');

sub wire
{
	my ($user) = @_;
	return Wire::MySQL->new(path => "$engine->{dir}/socket", user => $user, database => 'scenarios');
}

# The value of a call of tester's, or of another account's; or the number of its error.
sub sql
{
	my ($statement, $user) = @_;
	my $client = $clients{ $user // 'tester' };
	my $answer = $client->query($statement) // die "$statement: $client->{lost}\n";
	return $answer->{number} if defined $answer->{error};
	return $answer->{rows}[0][0] // 'NULL';
}

# Of all lengths.
sub owner_of
{
	my ($n) = @_;
	return "$n" . 'x' x ($n % (256 - length $n));
}

sub call
{
	my ($function, $n, @more) = @_;
	return sql("SELECT $function(" . join(', ', q{'crowd'}, q{'} . owner_of($n) . q{'}, @more) . ')');
}

my %tokens;    # of each holder, and how many holds it has
my %holds;

# They are these, as one sees them who may see all.
sub are_right
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $all = decode_json(sql(q{SELECT dlock_holders('crowd')}, 'root'));
	my %expected = map { owner_of($_) => [ $tokens{$_}, $holds{$_} ] } keys %tokens;
	my %are = map { $_->{owner} => [ $_->{token}, $_->{version} ] } @$all;
	is_deeply(\%are, \%expected, "$what: the holders, their tokens and their holds");
	is(scalar @$all, keys %expected, 'each once');
	my @wrong = grep {
		$_->{name} ne 'crowd' || $_->{mode} ne 'shared' || $_->{account} ne 'tester@localhost' || $_->{connection_id} != $id
		  || $_->{guarded} != 0 || $_->{remaining} <= 0 || $_->{expires_at} !~ /^20\d\d-/ || $_->{acquired_at} !~ /^20\d\d-/
	} @$all;
	is_deeply(\@wrong, [], 'and nothing else of them is wrong');
	my @order = map { $_->{token} } @$all;
	is_deeply(\@order, [ sort { $a <=> $b } @order ], 'in the order of their tokens');
	is(sql(q{SELECT count(*) FROM dlock.locks WHERE name = 'crowd'}), keys %expected, 'the view has as many');
	return;
}

sub is_held
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sql(q{SELECT dlock_is_free('crowd')}), 0, "$what: the name is not free");
	is(sql(q{SELECT dlock_owner('crowd')}), 'NULL', 'nobody has it alone');
	is(sql(q{SELECT dlock_acquire('crowd', 'newcomer', 6000)}), 'NULL', 'nor gets it');
	is(sql(q{SELECT dlock_acquire_permit('crowd', 'newcomer', 6000, 10000)}), 'NULL', 'nor a permit');
	is(sql(q{SELECT dlock_remaining('crowd', 'newcomer')}), 'NULL', 'who has nothing has no time left');
	is(sql(q{SELECT dlock_release('crowd', 'newcomer')}), 0, 'and nothing to release');
	return;
}

for my $n (1 .. MANY)
{
	$tokens{$n} = call('dlock_acquire_shared', $n, 6000);
	$holds{$n} = 1;
}
is(scalar(grep { !/^\d{10,}$/ } values %tokens), 0, 'thousands take a name');
are_right('there are thousands');
is_held('there are thousands');
is(sql(q{SELECT dlock_renew('crowd', 'newcomer', 6000)}), 0, 'who has nothing has nothing to renew');

my @some = (1, 2, 3, 64, 65, 1500, MANY - 1, MANY);
for my $n (@some)
{
	is(call('0 < dlock_remaining', $n), 1, "holder $n has time left");
	is(call('0 < dlock_remaining', $n, $tokens{$n}), 1, 'by its token');
	is(call('dlock_remaining', $n, $tokens{$n} + 1), 'NULL', 'not by another');
	is(call('dlock_acquire', $n, 6000), 1234, 'it cannot have the name alone');
	is(call('dlock_release', $n, $tokens{$n} + 1), 0, 'or release with another token');
	is(call('dlock_release', $n, $tokens{$n}, 2), 0, 'or more than it has');
	is(call('dlock_acquire_shared', $n, 6000), $tokens{$n}, 'it enters again');
	$holds{$n}++;
	is(call('dlock_renew', $n, 6000, $tokens{$n}), 1, 'renews');
	is(call('dlock_downgrade', $n), 1, 'and is shared already');
}
are_right('some have two holds');

# an owner of the same name, of another account
my $owner = owner_of(2);
is(sql("SELECT dlock_remaining('crowd', '$owner')", 'other'), 'NULL', "another account's owner is another");
is(sql("SELECT dlock_release('crowd', '$owner')", 'other'), 0, 'and releases nothing');
like(sql("SELECT dlock_acquire_shared('crowd', '$owner', 6000)", 'other'), qr/^\d+$/, 'it has a lease of its own');
is(sql(q{SELECT JSON_LENGTH(dlock_holders('crowd'))}), MANY + 1, 'which is one more');
my @seen = grep { $_->{account} eq 'tester@localhost' } @{ decode_json(sql(q{SELECT dlock_holders('crowd')}, 'other')) };
is(scalar(grep { $_->{owner} ne '<insufficient privilege>' || defined $_->{connection_id} } @seen), 0, 'it sees nothing of the others');
is(sql("SELECT dlock_release('crowd', '$owner')", 'other'), 1, 'and gives its own back');
are_right('only that is gone');

# one hold after the other
for my $n (@some)
{
	is(call('dlock_release', $n), 1, "holder $n gives one hold back");
	$holds{$n}--;
}
are_right('which leaves them one');
for my $n (@some)
{
	is(call('dlock_release', $n, $tokens{$n}), 1, "holder $n gives the other back");
	delete $tokens{$n};
	is(call('dlock_release', $n), 0, 'it has none any more');
	is(call('dlock_remaining', $n), 'NULL', 'and no time left');
}
are_right('they are gone');
is_held('the others are there');
is(sql('SELECT dlock_settle()'), 1, 'it is written');
are_right('that has changed nothing');

# nothing of this is the batcher's, which waits for the disk
my $hung = wire('tester');
$server->hold;
$hung->send(q{SELECT dlock_acquire('hung', 'own', 6000, 6000)});
ok($server->hangs, 'a commit hangs');
is_held('while it hangs');
for my $n (301 .. 303)
{
	is(call('0 < dlock_remaining', $n), 1, "holder $n has time left");
	is(call('dlock_release', $n), 1, 'gives its lease back');
	delete $tokens{$n};
	is(call('dlock_remaining', $n), 'NULL', 'and has none left');
}
is(sql(q{SELECT JSON_LENGTH(dlock_holders('crowd'))}), scalar keys %tokens, 'they are not among the holders');
$server->let_go;
like($hung->answer->{rows}[0][0], qr/^\d+$/, 'the commit ends');
are_right('after it');

my $n = 100;
like(sql("SELECT dlock_acquire('alone', '" . owner_of($n) . q{', 6000)}), qr/^\d+$/, 'one of them has another lease');
is(sql("SELECT dlock_renew_all('" . owner_of($n) . q{', 12000)}), 2, 'it renews both');
is(call('6000 < dlock_remaining', $n), 1, 'this one, too');
is(call('6000 < dlock_remaining', $n + 1), 0, "and not somebody else's");
is(sql("SELECT dlock_downgrade('alone', '" . owner_of($n) . q{')}), 1, 'it shares the other one');
is(sql("SELECT dlock_release_all('" . owner_of($n) . q{')}), 2, 'and gives both back');
delete $tokens{$n};
are_right('without it');

# somebody wants to have it alone
my $waiter = wire('tester');
like($waiter->value(q{SELECT dlock_acquire('wanted', 'waiter', 6000)}), qr/^\d+$/, 'somebody has another name');
$waiter->send(q{SELECT dlock_acquire('crowd', 'waiter', 6000, 6000)});
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.waiters') == 1 }), 'and waits for this one');
is(sql(q{SELECT dlock_acquire_shared('crowd', 'newcomer', 6000)}), 'NULL', 'nobody overtakes it');
is(call('dlock_acquire_shared', 200, 6000), $tokens{200}, 'but who has it enters again');
$holds{200}++;
is(sql(q{SELECT dlock_acquire('wanted', '} . owner_of(MANY - 5) . q{', 6000, 6000)}), 3058, 'a holder that waits for the waiter would wait for ever');
are_right('nothing has changed');
my $left = keys %tokens;
for my $n (sort { $a <=> $b } keys %tokens)
{
	next if $n == 200;
	call('dlock_release', $n) eq '1' or fail("the release of $n");
	delete $tokens{$n};
	is(sql(q{SELECT JSON_LENGTH(dlock_holders('crowd'))}), $left, "$left are left") if --$left % 500 == 0;
}
are_right('one is left');
is(call('dlock_release', 200), 1, 'which gives one of its holds back');
ok(!$waiter->is_answered, 'and is in the way with the other');
is(call('dlock_release', 200), 1, 'until that is gone');
like($waiter->answer->{rows}[0][0], qr/^\d+$/, 'then the waiter has the name');
is(sql(q{SELECT dlock_owner('crowd')}), 'waiter', 'alone');
is(sql(q{SELECT JSON_LENGTH(dlock_holders('crowd'))}), 1, 'and nobody else');

# permits are added up, however many have them
for my $n (1 .. 300)
{
	sql("SELECT dlock_acquire_permits('permits', '$n', 6000, 1000, 3)") =~ /^\d+$/ or fail("the permits of $n");
}
is(sql(q{SELECT dlock_acquire_permit('permits', 'newcomer', 6000, 900)}), 'NULL', '900 permits are taken');
is(sql(q{SELECT dlock_acquire_permits('permits', 'newcomer', 6000, 1000, 101)}), 'NULL', 'and 100 are free');
is(sql(q{SELECT dlock_acquire_permit('permits', '7', 6000, 900)}), 'NULL', 'who has some is no exception');
is(sql(q{SELECT dlock_release('permits', '7', NULL, 2)}), 1, 'it gives two back');
is(sql(q{SELECT dlock_acquire_permits('permits', 'newcomer', 6000, 900, 3)}), 'NULL', 'that is not enough for three');
like(sql(q{SELECT dlock_acquire_permits('permits', 'newcomer', 6000, 900, 2)}), qr/^\d+$/, 'but for two');
is(sql(q{SELECT dlock_acquire('permits', 'other', 6000)}), 'NULL', 'nobody has the name alone');

# holds that are given back one after the other
my $many = 200;
sql(q{SELECT dlock_acquire('holds', 'own', 6000)}) for 1 .. $many;
for my $back (1 .. $many)
{
	sql(q{SELECT dlock_release('holds', 'own')}) eq '1' or fail("the release of hold $back");
	next if $back % 50;
	is(sql(q{SELECT IFNULL(JSON_VALUE(dlock_holders('holds'), '$[0].version'), 0)}), $many - $back, $many - $back . ' holds are left');
	is(sql(q{SELECT IFNULL(MAX(version), 0) FROM dlock.locks WHERE name = 'holds'}), $many - $back, 'the view has it so');
}
is(sql(q{SELECT dlock_release('holds', 'own')}), 'NULL', 'nobody holds it');

# all are over
sql("SELECT dlock_acquire_shared('over', '$_', 0.5)") for 1 .. 200;
ok(Scenarios::Run::until(sub { sql(q{SELECT dlock_is_free('over')}) == 1 }), 'leases end');
is(sql(q{SELECT dlock_owner('over')}), 'NULL', 'nobody has the name');
is(sql(q{SELECT dlock_remaining('over', '200')}), 'NULL', 'or time left');
is(sql(q{SELECT dlock_release('over', '200')}), 'NULL', 'or anything to release');
like(sql(q{SELECT dlock_acquire('over', 'newcomer', 6000)}), qr/^\d+$/, 'who comes has it alone');
is(sql(q{SELECT JSON_LENGTH(dlock_holders('over'))}), 1, 'and those are gone');
is(sql('SELECT dlock_settle()'), 1, 'all is written');
is(sql(q{SELECT count(*) FROM dlock.lease_table WHERE name IN ('crowd', 'holds', 'over')}, 'root'), 2, 'and the table has what is left');

$engine->stop;
done_testing();
