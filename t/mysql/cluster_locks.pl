# A member of a cluster is locked against writing, by a backup say, while another member
# goes on granting (rule 15).  Nothing of that is applied by the locked member, and its
# calls do not wait for it: looks tell what there was, releases are answered and written
# afterwards, and all else is an error.  The kind of server is the argument: Galera on
# MariaDB, Group Replication on MySQL.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Galera;
use GroupReplication;
use InTime;
use Scenarios;
use Test::More;

# "Two seconds", on a machine that is busy with other things, as InTime.pm counts them: what
# waits for the other member takes at least 30.
use constant TWO_SECONDS => 20;

my ($kind) = @ARGV;
my $class = $kind eq 'mariadb' ? 'Galera' : 'GroupReplication';
my $reason = $class->can('reason_not')->($kind);
plan skip_all => $reason if defined $reason;

# Workers for all that the locked member is to apply afterwards: a server that has none left
# does not sleep until there is one, but takes a whole core.
my ($locked, $other) = $kind eq 'mariadb' ? Galera::start(1, 2) : GroupReplication::start(2, workers => 64);
my $is_token = qr/^\d{5,}$/;
my $kept_from = qr/^3572 \w+: .*locked against writing/;

$locked->install;
ok(Scenarios::Run::until(sub { $other->control->value(q{SELECT count(*) FROM mysql.db WHERE db = 'dlock' AND user = 'tester'}) }),
	'the other member has all accounts');
if ($kind eq 'mariadb') { $other->feed('mysql_udf/install.sql') }
$_->make_ready for $locked, $other;
my ($here, $waiter, $there) = ($locked->client('here'), $locked->client('waiter'), $other->client('there'));
my $locker = Scenarios::Client->new($locked, 'admin');

# A grant, of which a member that stands still for a moment says that it could not decide.
sub granted
{
	my ($client, $name, $owner, $what) = @_;
	my $token;
	Scenarios::Run::until(sub { $token = $client->outcome("SELECT dlock_acquire('$name', '$owner', 6000)"); $token =~ $is_token });
	like($token, $is_token, $what);
	return $token;
}

granted($here, $_, 'a', "$_ is granted") for qw(kept renewed gone over);
granted($there, 'wanted', 'b', 'the other member grants');
$waiter->send(q{SELECT dlock_acquire('wanted', 'c', 600, 6000)});
ok(Scenarios::Run::until(sub { $here->outcome('SELECT count(*) FROM dlock.waiters') eq '1' }), 'which one waits for here');
ok(!defined $locker->query('FLUSH TABLES WITH READ LOCK')->{error}, 'locked');
granted($there, "more$_", 'b', 'the other member goes on') for 1 .. 5;
is($there->outcome(q{SELECT dlock_release('wanted', 'b')}), 1, 'it is given back what it has granted');
is($there->outcome(q{SELECT dlock_release('over', 'a')}), 1, 'and what this one has');
my $fresh = granted($there, 'fresh', 'a', 'it grants what this one does not know of');

answers($here, 'locked', TWO_SECONDS,
	q{dlock_owner('kept')} => 'a',
	q{dlock_is_free('free')} => 1,
	q{dlock_remaining('kept', 'a') > 5000} => 1,
	q{dlock_release('gone', 'a')} => 1,
	q{dlock_is_free('gone')} => 1,
	q{dlock_acquire('free', 'x', 10)} => $kept_from,
	q{dlock_acquire('free', 'x', 10, 30)} => $kept_from,
	q{dlock_acquire('kept', 'x', 10)} => $kept_from,
	q{dlock_acquire('over', 'x', 10)} => $kept_from,
	q{dlock_acquire('wanted', 'x', 10, 30)} => $kept_from,
	q{dlock_renew('renewed', 'a', 600)} => $kept_from,
	(map { $_ => $kept_from } "dlock_renew('fresh', 'a', 600)", "dlock_release('fresh', 'a', $fresh)", q{dlock_downgrade('fresh', 'a')},
		q{dlock_renew_many('["kept", "fresh"]', 'a', 600)}, q{dlock_release_many('["kept", "fresh"]', 'a')}),
	q{dlock_wait('fresh', 0.5)} => qr/^0$|^3572 /);
$here->value('BEGIN');
like($here->outcome("CALL dlock.guard('fresh', 'a', $fresh)"), $kept_from, 'nor is it guarded: that it is lost, nobody knows');
$here->value('ROLLBACK');

ok(!defined $locker->query('UNLOCK TABLES')->{error}, 'unlocked');
like($waiter->outcome, $is_token, 'what has come free meanwhile is granted to the waiter');
is($here->outcome(q{SELECT dlock_owner('more5')}), 'b', 'what the other member has granted is seen');
ok(Scenarios::Run::until(sub { $there->outcome(q{SELECT dlock_owner('gone')}) eq 'NULL' }), 'what was given back is written');
granted($there, 'gone', 'b', 'and granted');
granted($here, 'over', 'x', 'so is what was given back there');
is($here->outcome(q{SELECT dlock_release_all('a')}), 3, 'all is there that was to be');
$_->quit for $here, $waiter, $there, $locker;

done_testing();
