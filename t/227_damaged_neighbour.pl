# A row cannot be read that lies on the page of a name for which a caller waits.  The waiter
# is granted the name once, and answered, whoever meets the damage after that.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('neighbour');
$node->init(extra => $node->pg_version >= 18 ? ['--no-data-checksums'] : []);
$node->append_conf('postgresql.conf', q{
autovacuum = off
dlock.reap_interval = '1h'
});
$node->start;

# a page with two names, and where the second lies
$node->safe_psql('postgres', q{CREATE EXTENSION dlock; SELECT count(dlock_acquire('n' || i, 'holder', 3600)) FROM generate_series(1, 200) i});
my ($wanted, $block, $offset) = split /\|/, $node->safe_psql('postgres', q{
	SELECT name, block, other FROM (SELECT name, place[0]::int AS block, lead(place[1]::int) OVER (PARTITION BY place[0] ORDER BY place[1]) AS other
		FROM (SELECT name, ctid::text::point AS place FROM dlock_private.lease_table) places) neighbours
	WHERE other IS NOT NULL LIMIT 1});
my $path = table_file($node);
$node->stop;

# an entry that is shorter than it says
my $image = read_image($path);
field(\$image, $block, 'entry', $offset - 1, field(\$image, $block, 'entry', $offset - 1) - (8 << 17));
write_image($path, $image);

my $log = -s $node->logfile;
$node->start;
my $sessions = Sessions->new($node);
my ($holder, $waiter) = $sessions->open('holder', 'waiter');
is($holder->query(q{SELECT dlock_renew_all('holder', 3600)}), 'XX001', 'a page has a row that cannot be read');

# the worker meets it, too, when it has made room for summaries: a grant makes the page's anew
$node->wait_for_log(qr/background worker "dlock worker" .*exited with exit code 1/, $log);
$waiter->send("SELECT dlock_acquire('$wanted', 'waiter', 3600, -1)");
$sessions->waiting('waiter');
is($holder->query("SELECT dlock_release('$wanted', 'holder')"), 'XX001', 'the call that grants a name beside it meets that');
like($waiter->answer, qr/^\d{10,}$/, '... and has answered the waiter before');
is($holder->query("SELECT owner, version FROM dlock_holders('$wanted')"), 'waiter|1', '... which has one hold');
is($waiter->query("SELECT dlock_release('$wanted', 'waiter')"), 't', '... and gives it back');
is($holder->query("SELECT dlock_is_free('$wanted')"), 't', '... altogether');

$_->quit for $holder, $waiter, $sessions->{watcher};
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal/, 'nothing has crashed');
done_testing();
