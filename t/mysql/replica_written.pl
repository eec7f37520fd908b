# A replica that takes writes while it follows: it grants no name that is held in the
# data it has received, and sees the leases that have ended.  It goes on when its
# source is lost and nobody promotes it.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Replicas;
use Scenarios;
use Test::More;
use Writers;

my ($kind) = @ARGV;
my $mariadb = $kind eq 'mariadb';
my $source = Replicas->start($kind);
$source->install;
# nothing is locked here: who waited for it would wait for a machine that stands still
$source->control->value(q{UPDATE dlock.settings SET value = '300' WHERE name = 'lock_timeout'});

# it deletes rows of the source's journal; else replication would stop there
my $replica = Replicas->start($kind, $mariadb ? ('--slave-exec-mode=IDEMPOTENT', '--gtid-domain-id=2')
	: '--replica-exec-mode=IDEMPOTENT');
$replica->follow($source);
$replica->catch_up($source);
$replica->complete;
my $x = session($source, 'x');
my $y = session($replica, 'y');

# until the replica has what the source has; "written": and its table has it
sub follows
{
	my ($written) = @_;
	is(ask($x, 'SELECT dlock_settle()'), 1, 'written') if $written;
	$replica->catch_up($source);
	return;
}

# what is taken there is not granted here
sub test_taken
{
	my ($what, $name, $written) = @_;
	like(ask($y, q{SELECT dlock_acquire('mine', 'b', 600)}), $is_token, "$what, $name: the replica grants");
	my $token = acquire_soon($x, $name, 'a', 6000);
	like($token, $is_token, "$what, $name: the source grants");
	follows($written);
	is(ask($y, "SELECT dlock_acquire('$name', 'b', 600)"), 'NULL', "$what, $name: which the replica does not grant");
	is(ask($y, "SELECT dlock_owner('$name')"), 'a', "$what, $name: it knows the owner");
	is(ask($y, "SELECT COUNT(*) FROM dlock.locks WHERE name = '$name'"), 1, "$what, $name: and shows the lease");
	is(ask($y, q{SELECT dlock_release('mine', 'b')}), 1, "$what, $name: it is given back what it has granted");
	return $token;
}

for my $name ('one', 'two')
{
	my $token = test_taken('from the table', $name, 1);
	is(ask($x, "SELECT dlock_release('$name', 'a', $token)"), 1, "$name: given back");
	follows(1);
	is(ask($y, "SELECT dlock_is_free('$name')"), 1, "$name: the replica knows");
	my $new = acquire_soon($y, $name, 'b', 600);
	cmp_ok($new, '>', $token, "$name: and grants it, with a larger token");
	is(ask($y, "SELECT dlock_release('$name', 'b')"), 1, "$name: and is given it back");
	is(ask($y, 'SELECT dlock_settle()'), 1, "$name: written");
}
test_taken('from the journal', $_, 0) for 'three', 'four';

# The source is lost.
my %tokens = map { $_ => scalar acquire_soon($x, $_, 'a', 6000) } 'kept', 'kept2';
follows(1);
$tokens{$_} = acquire_soon($x, $_, 'a', 6000) for 'new', 'new2';
follows(0);
$source->crash;
$x->kill;
is(ask($y, "SELECT dlock_acquire('$_', 'b', 600)"), 'NULL', "the source is lost: $_ is held") for sort keys %tokens;
$replica->stop_following;
for my $name (sort keys %tokens)
{
	is(ask($y, "SELECT dlock_acquire('$name', 'b', 600)"), 'NULL', "nor followed: $name is held");
	is(ask($y, "SELECT dlock_release('$name', 'a', $tokens{$name})"), 1, "$name: its owner gives it back");
	cmp_ok(scalar acquire_soon($y, $name, 'b', 600), '>', $tokens{$name}, "$name: tokens grow");
}

$y->quit;
$replica->stop;
done_testing();
