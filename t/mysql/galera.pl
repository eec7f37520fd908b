# Two nodes of a Galera cluster, and leases that go back and forth between them;
# see Writers.pm.  Then one is killed.  MariaDB only.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Galera;
use Scenarios;
use Test::More;
use Time::HiRes qw(time);
use Writers;

my $reason = Galera::reason_not(@ARGV);
plan skip_all => $reason if defined $reason;

# the second outweighs the first, which will be killed
my ($one, $two) = Writers::with_held_flushes(sub { Galera::start(1, 2) });

# ---------------------------------------------------------------------
# Installing: all of it on one node; again on the other, which is harmless.
# ---------------------------------------------------------------------

$one->control->value(q{
	CREATE DATABASE scenarios;
	CREATE USER tester@localhost;
	GRANT ALL ON scenarios.* TO tester@localhost});
$one->feed('mysql_udf/install.sql');
# the other node may be behind with it
$two->control->value('SET SESSION wsrep_sync_wait = 1; SELECT count(*) FROM mysql.user; SET SESSION wsrep_sync_wait = DEFAULT');
like(ask($two->control, q{SELECT dlock_acquire('first', 'a', 6000)}), $is_token, 'installed on one node, it works on the other');
is(ask($one->control, q{SELECT dlock_owner('first')}), 'a', 'for both');
$two->feed('mysql_udf/install.sql');
is(ask($_->control, q{SELECT count(*) FROM information_schema.plugins
	WHERE plugin_library = 'dlock.so' AND plugin_status = 'ACTIVE'}), 1, 'the plugin is active') for $one, $two;
is(ask($_->control, q{SELECT dlock_owner('first')}), 'a', 'installed again, it holds what it held') for $one, $two;
is(ask($two->control, q{SELECT dlock_release('first', 'a')}), 1, 'and gives back');
$one->control->value(q{
	GRANT EXECUTE ON dlock.* TO tester@localhost});
Writers::make_tables($one);
$_->make_ready for $one, $two;

Writers->new(nodes => [ $one, $two ], sync => 'SET SESSION wsrep_sync_wait = 1', conflict => qr/^1213 40001: /)->test_all;

# ---------------------------------------------------------------------
# What a node has to roll back for another node's change has not taken effect, and
# is not told.  Clients of both take permits of one name, each time for a new owner,
# and give them back: what was taken twice would be left.
# ---------------------------------------------------------------------

$one->control->value(q{
DELIMITER //
CREATE PROCEDURE scenarios.take_permits(me VARCHAR(20), seconds INT)
BEGIN
	DECLARE holder VARCHAR(40);
	DECLARE granted BIGINT;
	DECLARE message TEXT;
	DECLARE number INT;
	DECLARE again BOOLEAN DEFAULT FALSE;
	DECLARE began DATETIME(6);
	DECLARE ended DATETIME(6) DEFAULT sysdate(6) + INTERVAL seconds SECOND;
	DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
	BEGIN
		GET DIAGNOSTICS CONDITION 1 number = MYSQL_ERRNO, message = MESSAGE_TEXT;
		-- a release that could not be written for lock_timeout
		IF number = 3572 AND sysdate(6) > began + INTERVAL 5 SECOND THEN
			SET again = TRUE;
		ELSE
			SET @wrong = concat(@wrong, holder, ': ', message, '; ');
		END IF;
	END;
	SET @wrong = '', @tokens = '', @done = 0;
	WHILE sysdate(6) < ended DO
		SET @done = @done + 1, holder = concat(me, '.', @done), granted = NULL, began = NULL;
		SET granted = dlock_acquire_permit('permits', holder, 6000, 10000, 600);
		SET @tokens = concat(@tokens, ' ', ifnull(granted, 'NULL'));
		REPEAT
			SET again = FALSE, began = sysdate(6);
			IF NOT dlock_release('permits', holder, granted) <=> 1 THEN
				SET @wrong = concat(@wrong, holder, ' was not held; ');
			END IF;
		UNTIL NOT again END REPEAT;
	END WHILE;
END//
DELIMITER ;
});
my @clients = map { my $node = $_; map { session($node, "c$node->{number}.$_") } 1 .. 12 } $one, $two;
my $rounds = 0;
sub conflicts
{
	my $sum = 0;
	$sum += $_->status('wsrep_local_bf_aborts') + $_->status('wsrep_local_cert_failures') for $one, $two;
	return $sum;
}
my $before = conflicts();
my ($conflicts, $calls, %given) = (0, 0);
# until there were some, and each was tried for some seconds
ok(Scenarios::Run::until(sub {
	my $round = ++$rounds;
	$_->send("CALL scenarios.take_permits('$_->{name}.$round', 3)") for @clients;
	for my $client (@clients)
	{
		is(answer_of($client), undef, "$client->{name} comes to an end");
		is(ask($client, q{SELECT concat('wrong: ', @wrong)}), 'wrong: ', "$client->{name} found nothing wrong");
		$calls += ask($client, 'SELECT @done');
		$given{$_}++ for split ' ', ask($client, 'SELECT @tokens');
	}
	$conflicts = conflicts() - $before;
	return $conflicts > 0;
}), 'nodes had to give way to each other');
$_->quit for @clients;
note("$conflicts times, at $calls permits");
is(join(', ', grep { $given{$_} > 1 } sort keys %given), '', 'no token was given twice');
# releases that were answered may be put off for a moment
ok(Scenarios::Run::until(sub { !$one->control->value(q{SELECT count(*) FROM dlock.locks WHERE name = 'permits'}) }),
	'no permit was taken twice');

# ---------------------------------------------------------------------
# A node is killed: the other one goes on, after the TTL.
# ---------------------------------------------------------------------

my $x = session($one, 'x');
my $y = session($two, 'y');
my $began = time;
my $held = acquire_soon($x, 'orphan', 'a', 5);
my $kept = acquire_soon($x, 'kept on', 'a', 6000);
Galera::give_up_late(0);
$one->crash;
$x->kill;
my ($new, %answers);
Scenarios::Run::until(sub {
	$new = ask($y, q{SELECT dlock_acquire('orphan', 'b', 6000, 1)});
	$answers{ $new =~ $is_token ? 'token' : $new }++;
	return $new =~ $is_token;
});
my $took = time - $began;
cmp_ok($new, '>', $held, 'the lease of a killed node is taken over');
cmp_ok($took, '>=', 5, 'not early');
note(sprintf('taken over after %.1f s; answers: %s', $took, join(', ', map { "$answers{$_} times $_" } sort keys %answers)));
is(ask($y, q{SELECT dlock_owner('kept on')}), 'a', 'what is not over is held');
is(ask($y, "SELECT dlock_renew('kept on', 'a', 600, $kept)"), 1, 'and can be renewed');

# it comes back
$one->come_back;
$x = session($one, 'x');
is(ask($one->control, q{SELECT count(*) FROM information_schema.plugins
	WHERE plugin_library = 'dlock.so' AND plugin_status = 'ACTIVE'}), 1, 'back, with its plugin');
is(ask($x, "SELECT dlock_release('orphan', 'a', $held)"), 0, 'what it had is not its any more');
is(ask($x, q{SELECT dlock_acquire('orphan', 'c', 6000)}), 'NULL', 'and not free');
is(ask($y, "SELECT dlock_release('orphan', 'b', $new)"), 1, 'released on the other node');
my $newer = acquire_soon($x, 'orphan', 'c', 6000);
cmp_ok($newer, '>', $new, 'it is granted here, with a larger token');
is(ask($y, q{SELECT dlock_owner('orphan')}), 'c', 'as the other node sees');
is(ask($x, "SELECT dlock_release('kept on', 'a', $kept)"), 1, 'a lease from before is given back');

Writers::note_errors();
$_->quit for $x, $y;
done_testing();
