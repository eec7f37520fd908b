# Scenario 21: a primary with two standbys, of which any one has to confirm, is
# killed under load, again and again: the standby that is ahead is promoted, the
# other one follows it, and the old primary is rewound and becomes a standby;
# sometimes the new primary is killed before that.  No acknowledged lease is lost.
# Then the same without synchronous standbys: the newest leases may be lost, but
# tokens grow.  "make torture" makes it long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PostgreSQL::Test::Utils;
use Processes;
use Standbys;
use Test::More;
use Torture;

my $standbys = Standbys->new(q{
shared_buffers = 4MB
max_connections = 60
wal_consistency_checking = 'generic'
dlock.reap_interval = '200ms'
log_statement = none
});
my @nodes = $standbys->nodes;
my $torture = Torture->new(
	kind => 'postgres',
	connection => join(' ', 'dbname=postgres target_session_attrs=read-write',
		'host=' . join(',', map { $_->host } @nodes),
		'port=' . join(',', map { $_->port } @nodes)),
	allowed => qr/^((guard )?(57014|57P01|57P02|57P03|lost)|40P01)$/);

my $free = 0;
my %seconds;

# How long it took until the new primary has granted a name that was free: from the
# kill of the old one, and from the order to promote.
sub measure
{
	my ($kind, $killed, $ordered) = @_;
	my $name = 'free ' . ++$free;

	$standbys->primary->safe_psql('postgres', "SELECT dlock_acquire('$name', 'nobody', 3600)")
	  or die "$name is not free\n";
	my $now = Torture::now();
	push @{ $seconds{"$kind, from the kill"} }, ($now - $killed) / 1e6;
	push @{ $seconds{"$kind, from the order"} }, ($now - $ordered) / 1e6;
	return;
}

# Kill the primary and promote the best of these standbys; the others follow.
sub fail_over
{
	my (@candidates) = @_;
	my $old = $standbys->{primary};
	my $killed = Torture::now();

	Processes::kill_postgres($standbys->primary);
	my $best = $standbys->most_advanced(@candidates);
	my $ordered = Torture::now();
	$standbys->promote($best, grep { $_ ne $best } @candidates);
	if ($torture->{lossy}) { measure('asynchronous', $killed, $ordered) }
	# the only one that is left has nobody to confirm
	elsif (@candidates > 1) { measure('synchronous', $killed, $ordered) }
	return $old;
}

sub some_failovers
{
	my ($count) = @_;
	for my $number (1 .. $count)
	{
		$standbys->streams(2);
		$torture->let_work(2);
		my @killed;
		$torture->disturb('failover', sub { push @killed, fail_over($standbys->others) });

		# there are acknowledged leases again once the other one follows
		if ($number % 2 == 0)
		{
			$standbys->streams(1);
			$torture->let_work(1);
			my ($last) = grep { $_ ne $killed[0] } $standbys->others;
			$torture->disturb('failover at once', sub { push @killed, fail_over($last) });
		}
		$standbys->rejoin($_) for @killed;
	}
	$standbys->streams(2);
	$torture->let_work(2);
	return;
}

my $synchronous = 'ANY 1 (' . join(', ', $standbys->names) . ')';
my $long = $ENV{TORTURE_MINUTES};
$standbys->set_synchronous($synchronous);
$standbys->streams(2);
if (!$long)
{
	$torture->rounds(1, sub { some_failovers(2) });
	$standbys->set_synchronous('');
	$torture->{lossy} = 1;
	$torture->rounds(1, sub { some_failovers(1) });
}
else
{
	# one round of four without
	my $round = 0;
	$torture->rounds(undef, sub {
		$torture->{lossy} = ++$round % 4 == 0;
		$standbys->set_synchronous($torture->{lossy} ? '' : $synchronous);
		some_failovers(6);
	});
}
$torture->summary;
for my $what (sort keys %seconds)
{
	my @sorted = sort { $a <=> $b } @{ $seconds{$what} };
	my $text = sprintf('first grant, %s: %.2f to %.2f s, median %.2f s, of %d',
		$what, @sorted[ 0, -1, @sorted / 2 ], scalar @sorted);
	$long ? diag($text) : note($text);
}

$_->stop('immediate') for $standbys->nodes;
done_testing();
