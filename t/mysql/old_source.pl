# A source is lost with changes that its replica has not got.  It comes back and follows the
# server that took over, as it should not: it is to be made anew.  What it alone was given
# back must not be taken from an owner who has gone on with the lease on the other server,
# not even when the old source is promoted again.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use LogRows;
use Replicas;
use Scenarios;
use Test::More;
use Writers;

my ($kind) = @ARGV;
my $mariadb = $kind eq 'mariadb';
my $old = Replicas->start($kind);
$old->install;
my $new = Replicas->start($kind, '--read-only=ON');
$new->follow($old);
$new->catch_up($old);
$new->complete;
my $x = session($old, 'x');
my $y = session($new, 'y');

my @names = qw(untouched renewed entered);
my %tokens = map { $_ => scalar acquire_soon($x, $_, 'a', 6000) } @names;
is(ask($x, 'SELECT dlock_settle()'), 1, 'all is written');
$new->catch_up($old);
$new->stop_following;
my $position = $mariadb && $new->control->value('SELECT @@gtid_slave_pos');

# Only the old source has this.  The rows are locked, so it stays in the journal.  In the log it
# is in rows whose numbers the other server gives, too: where replication replaces them, all is
# as that one has it.
my $has_log = $old->has_log;
my $locker = $old->client('locker', 'root');
if (!$has_log)
{
	$locker->query('BEGIN');
	is(scalar @{ $locker->query('SELECT name FROM dlock.lease_table FOR UPDATE')->{rows} }, 3, 'three rows are locked');
}
is(ask($x, "SELECT dlock_release('$_', 'a', $tokens{$_})"), 1, "$_: given back, which is lost") for @names;
is(ask($x, 'SELECT dlock_settle()'), 1, 'which is in the log') if $has_log;
my $rows = $has_log && LogRows::last_of($old)->{number};
ok($has_log || Scenarios::Run::until(sub { $old->control->value(
	'SELECT ' . join(' AND ', map { q{group_concat(changes) LIKE '%[2,"} . unpack('H*', $_) . q{",%'} } @names) . ' FROM dlock.journal') eq '1' }),
	'but for the journal of the old source');
$old->crash;
$_->kill for $x, $locker;

# The owner goes on, and has the lease.
$new->control->value('SET GLOBAL read_only = OFF');
ok(Scenarios::Run::until(sub { ask($y, "SELECT dlock_renew('renewed', 'a', 6000, $tokens{renewed})") eq '1' }), 'renewed: where it is held');
is(ask($y, 'SELECT dlock_settle()'), 1, 'which is written');
is(ask($y, q{SELECT dlock_acquire('entered', 'a', 6000)}), $tokens{entered}, 'entered: once more');

if ($has_log)
{
	ok(Scenarios::Run::until(sub {
		ask($y, q{SELECT dlock_acquire('more', 'a', 600)});
		ask($y, q{SELECT dlock_release('more', 'a')});
		return LogRows::last_of($new)->{number} > $rows;
	}), 'it has more rows');
}
$old->{options} = [ '--read-only=ON', ($mariadb ? '--gtid-strict-mode=OFF' : ()),
	($has_log ? $mariadb ? '--slave-exec-mode=IDEMPOTENT' : '--replica-exec-mode=IDEMPOTENT' : ()) ];
$old->boot;
$old->control->value("SET GLOBAL gtid_slave_pos = '$position'") if $mariadb;
$old->follow($new);
$old->catch_up($new);
$x = session($old, 'x');
for my $name (@names)
{
	is(ask($x, "SELECT dlock_owner('$name')"), 'a', "$name: the old source follows");
	is(ask($x, "SELECT group_concat(owner) FROM dlock.locks WHERE name = '$name'"), 'a', "$name: its view too");
}

$new->control->value('SET GLOBAL read_only = ON');
like(ask($y, q{SELECT dlock_acquire('free', 'a', 600)}), qr/^1792 25006: /, 'the server that took over is read-only');
$old->catch_up($new);
$old->stop_following;
$old->control->value('SET GLOBAL read_only = OFF');
like(scalar acquire_soon_from($x), $is_token, 'the old source grants');
for my $name (@names)
{
	is(ask($x, "SELECT dlock_acquire('$name', 'b', 600)"), 'NULL', "$name: but not what is held");
	is(ask($x, "SELECT dlock_renew('$name', 'a', 6000, $tokens{$name})"), 1, "$name: its owner goes on");
	is(ask($x, "SELECT group_concat(owner) FROM dlock.locks WHERE name = '$name'"), 'a', "$name: as the view says");
	is(ask($x, q{SELECT dlock_release_all('a')}), 3, 'all is given back') if $name eq $names[-1];
}
cmp_ok(scalar acquire_soon($x, $_, 'b', 600), '>', $tokens{$_}, "$_: tokens grow") for @names;

# It may still believe that it is read-only.
sub acquire_soon_from
{
	my ($session) = @_;
	my $token;
	Scenarios::Run::until(sub { ($token = ask($session, q{SELECT dlock_acquire('free', 'b', 600)})) =~ $is_token });
	return $token;
}

$_->quit for $x, $y;
done_testing();
