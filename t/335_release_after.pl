# dlock_release_after: known after a crash and on a standby; its end is a release, and a
# wait for it is a wait for nobody.  That it waits for synchronous standbys is in
# 140_sync_standby.pl.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('primary');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', q{
# sessions that have taken no lease show the settings
shared_preload_libraries = 'dlock'
dlock.reap_interval = '50ms'
dlock.notify = on
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;

sub sql { return $node->safe_psql('postgres', $_[0]) }
sub there { return $standby->safe_psql('postgres', $_[0]) }

my $shown = q{SELECT name, owner, mode, version, token, leaving, dlock_is_free(name), dlock_owner(name), dlock_remaining(name, owner, token)
	FROM dlock.locks ORDER BY name};

# ----------------------------------------------------------------------
# A wait for it is a wait for nobody
# ----------------------------------------------------------------------

my $all = Sessions->new($node);
my ($one, $two, $three) = $all->open('one', 'two', 'three');
my $token = qr/^\d{10,}$/;

like($one->query(q{SELECT dlock_acquire('x', 'a', 600)}), $token, 'a has x');
like($two->query(q{SELECT dlock_acquire('y', 'b', 600)}), $token, 'b has y');
is($one->query(q{SELECT dlock_release_after('x', 'a', 600)}), 't', 'a gives x back later');
$one->send(q{SELECT dlock_acquire('y', 'a', 600, -1)});
$all->waiting('one');
$two->send(q{SELECT dlock_acquire('x', 'b', 600, -1)});
$all->waiting('one', 'two');
# the former owner waits for its own name like anybody
$three->send(q{SELECT dlock_acquire('x', 'a', 600, -1)});
$all->waiting('one', 'two', 'three');
is(sql("SELECT dlock_blocking_pids($two->{pid})"), '{0}', 'no process is to blame');
is(sql(q{SELECT deadlocks FROM dlock.stats}), 0, 'no deadlock');
is(sql(q{SELECT dlock_force_release('x')}), 1, 'an operator ends it');
like($two->answer, $token, 'b has x');
is($two->query(q{SELECT dlock_release_all('b')}), 2, 'and gives both back');
like($_->answer, $token, "$_->{name} is served") for $one, $three;
is(sql(q{SELECT dlock_force_release('x') + dlock_force_release('y')}), 2, 'all is free');

# ----------------------------------------------------------------------
# Its end is a release
# ----------------------------------------------------------------------

# others are kept out for an hour after a holder that died
sql(q{ALTER SYSTEM SET dlock.lock_delay = '1h'});
$node->reload;
$node->poll_query_until('postgres', q{SELECT current_setting('dlock.lock_delay') = '1h'}) or die 'not reloaded';
my $listener = $node->background_psql('postgres', on_error_stop => 0);
$listener->query_safe('LISTEN dlock');
sql(q{SELECT dlock_stats_reset()});
sql(q{SELECT dlock_release_after('reaped', 'a', 0.1, dlock_acquire('reaped', 'a', 600))});
$node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM dlock.locks)') or die 'not reaped';
sql(q{SELECT dlock_release_after('job', 'a', 0.2, dlock_acquire('job', 'a', 600))});
like($one->query(q{SELECT dlock_acquire('job', 'b', 600, -1)}), $token, 'there is no lock delay');
is(sql('SELECT released, expired, reaped FROM dlock.stats'), '2|0|0', 'both ends count as releases');
unlike(slurp_file($node->logfile), qr/expired while owner/, 'no holder died');
sql(q{SELECT dlock_force_release('job')});
my $heard = '';
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$heard .= $listener->query('SELECT 1');
	last if $heard =~ /force-released/;
	select(undef, undef, undef, 0.1);
}
like($heard, qr/force-released/, 'a listener hears of the lease that was evicted');
unlike($heard, qr/expired/, 'and of none that expired');
$listener->quit;

# ----------------------------------------------------------------------
# It is on disk
# ----------------------------------------------------------------------

my $x = sql(q{SELECT dlock_acquire('x', 'a', 600)});
sql(q{SELECT dlock_acquire_shared('y', 'a', 600)});
is($one->query(qq{BEGIN; SELECT dlock_release_after('x', 'a', 3000, $x); ROLLBACK}), 't', 'given back, whatever becomes of the transaction');
is($one->query(q{SELECT dlock_release_after('y', 'a', 3000)}), 't', 'a shared one');
my $before = sql($shown);
is($before, "x|a|exclusive|1|$x|t|f|a|\n" . ($before =~ s/.*\n//sr), 'leaving');
like($before, qr/\ny\|a\|shared\|1\|\d+\|t\|f\|\|$/, 'both');
$node->wait_for_catchup($standby);
is(there($shown), $before, 'a standby shows the same');
$_->quit for $one, $two, $three;
$node->stop('immediate');
$node->start;
is(sql($shown), $before, 'so does the server after a crash');
is(sql(qq{SELECT dlock_renew('x', 'a', 60, $x), dlock_release('x', 'a', $x), dlock_acquire('x', 'a', 60), dlock_release_after('x', 'a', 60, $x)}),
	'f|f||t', 'it stays taken');
is(sql(q{SELECT remaining > 2000 FROM dlock_holders('x')}), 't', 'for as long');
is(sql('VACUUM FULL dlock_private.lease_table') . sql($shown), $before, 'a rewrite of the table keeps it');

$node->stop('immediate');
$standby->promote;
is(there(qq{SELECT dlock_renew('x', 'a', 60, $x), dlock_acquire('x', 'b', 60), dlock_release_after('x', 'a', 60, $x)}),
	'f||t', 'it stays taken after a failover');
is(there(q{SELECT dlock_force_release('x'), dlock_acquire_shared('y', 'b', 60) IS NOT NULL}), '1|t', 'and ends as it should');
$standby->stop;
done_testing();
