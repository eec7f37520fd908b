# Tokens grow over failovers that lose the newest leases, over standbys that are
# promoted in turn and know nothing of each other, and over any number of quick
# crash restarts that a standby has missed; also where the clock was set back.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(
	allows_streaming => 1,
	extra => $primary->pg_version >= 18 ? ['--no-data-checksums'] : []);
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

# Take one name anew: its token.
sub one_grant
{
	my ($server) = @_;
	$server->safe_psql('postgres', q{SELECT dlock_force_release('name 1')});
	return $server->safe_psql('postgres', q{SELECT dlock_acquire('name 1', 'me', 3600)});
}

# Many quick crash restarts raise the tokens no further than the clock, from which
# a standby that has missed them all starts.
$primary->backup('before the restarts');
my $late = PostgreSQL::Test::Cluster->new('late');
$late->init_from_backup($primary, 'before the restarts', has_streaming => 1);
$late->start;
$primary->wait_for_catchup($late);
$late->stop;
for my $restart (1 .. 10)
{
	$primary->stop('immediate');
	$primary->start;
	$largest{'name 1'} = one_grant($primary);
}
$primary->stop('immediate');
$late->start;
$late->promote;
grant($late, 'the standby that has missed the restarts');

# A new file of the same table needs no raise: no grant is unknown.
my $before = one_grant($late);
$late->safe_psql('postgres', 'VACUUM FULL dlock_private.lease_table');
my $mark = one_grant($late);
cmp_ok($mark, '>', $before, 'after VACUUM FULL tokens grow');
cmp_ok($mark, '<', $before + 1000, 'and are not raised');

# A new table in the same server goes on above the tokens of the old one.
$late->safe_psql('postgres', 'DROP EXTENSION dlock; CREATE EXTENSION dlock');
cmp_ok(one_grant($late), '>', $mark, 'a new table grants larger tokens');

# The clock is behind what the table has seen, as if it had been set back by an
# hour: the next start is above all marks, those of lost grants included.
my $file = table_file($late);
$late->stop;
my $hour = 3600 * 2**20;
my $floor = $largest{'name 1'} + $hour;
my $image = read_image($file);
field(\$image, 0, 'floor', 0, $floor);
write_image($file, $image);
set_marks($file, $floor + $hour);
my $offset = -s $late->logfile;
$late->start;
cmp_ok(one_grant($late), '>', $floor + $hour + 2**20,
	'the clock is behind: more than all that may have been granted and lost');
one_grant($late);
my @lines = slurp_file($late->logfile, $offset) =~ /LOG:  the system clock is behind/g;
is(scalar(@lines), 1, 'the clock is behind: the log says so once');

done_testing();
