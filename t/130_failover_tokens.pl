# Tokens grow over failovers that lose the newest leases, and over standbys
# that are promoted in turn and know nothing of each other.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf',
	"shared_preload_libraries = 'dlock'");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->safe_psql('postgres',
	q{SELECT dlock_acquire('old', 'me', 3600)});
$primary->backup('backup');

my @standbys = map { PostgreSQL::Test::Cluster->new("standby_$_") } 1 .. 3;
for my $standby (@standbys)
{
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->start;
}

my %largest;

# Take names in many ways; each token must be above all others of its name,
# whichever server granted those.
sub grant
{
	my ($server, $title) = @_;
	my @wrong;

	my %tokens = map { split /\|/ } split /\n/,
	  $server->safe_psql(
		'postgres', q{
		SELECT name, dlock_acquire(name, 'me', 3600)
		FROM (SELECT 'name ' || i AS name FROM generate_series(1, 200) AS i
			UNION ALL VALUES ('old')) AS n
		WHERE dlock_force_release(name) >= 0});
	for my $name (keys %tokens)
	{
		push @wrong, "$name: $tokens{$name} after $largest{$name}"
		  if $tokens{$name} <= ($largest{$name} // 0);
		$largest{$name} = $tokens{$name};
	}
	is(scalar(keys %tokens), 201, "$title: all names are granted");
	is("@wrong[0 .. ($#wrong < 2 ? $#wrong : 2)]", '', "$title: tokens grow");
	return;
}

grant($primary, 'the primary');
$primary->wait_for_catchup($_) for @standbys;

# The third standby stays behind from here, the others from a little later.
$standbys[2]->stop;
$primary->safe_psql('postgres', 'CREATE TABLE seen ()');
$primary->wait_for_catchup($_) for @standbys[0, 1];
$standbys[1]->stop;
$standbys[0]->stop;

# What the standbys do not see: many grants of one name, and a restart.
grant($primary, 'the primary alone');
$primary->safe_psql('postgres', q{
	SELECT max(dlock_acquire('name 1', 'me', 3600))
	FROM generate_series(1, 5000)
	WHERE dlock_release_all('me') >= 0});
$primary->stop('immediate');
$primary->start;
grant($primary, 'the primary after a crash');
$primary->safe_psql('postgres',
	q{SELECT dlock_acquire('lost', 'me', 3600)});
$primary->stop('immediate');

# Each in its turn is the primary, and is lost.
for my $standby (@standbys)
{
	my $title = $standby->name;

	$standby->start;
	$standby->promote;
	is( $standby->safe_psql(
			'postgres',
			q{SELECT dlock_owner('name 2'), dlock_is_free('lost')}),
		'me|t',
		"$title: older leases are there, the newest are lost");
	grant($standby, $title);
	grant($standby, "$title again");
	$standby->stop('immediate');
}

# A lost primary may even come back, to be used as it is.
$primary->start;
grant($primary, 'the first primary again');

done_testing();
