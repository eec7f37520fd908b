# The client for Go, clients/go: the cases of clients/CONTRACT.md on a server of the kind
# that is the argument, with each driver.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use Test::More;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use BuiltOnce;
use Cases;

my $dir = tempdir(CLEANUP => 1);
my @needs = qw(golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev golang-github-go-sql-driver-mysql-dev);

my $built;
Cases::run($ARGV[0],
	also => sub {
		Cases::program('without a server', "$FindBin::RealBin/go/unit", $built) if $ARGV[0] eq 'postgres';
		Cases::program('what only Go has', "$built/more", @_);
		my $reason = Cases::reason_not('golang-github-prometheus-client-golang-dev');
		SKIP:
		{
			skip("metrics $reason", 1) if defined $reason;
			Cases::program('metrics', "$built/metrics", $_[0]);
		}
	},
	command => sub {
		$built = BuiltOnce::folder($dir, 'go_agent', sub { system("$FindBin::RealBin/go/build", $_[0]) == 0 or die "could not build the agent\n" });
		return "$built/agent";
	},
	drivers => {
		postgres => { pq => \@needs, pgx => \@needs },
		map { $_ => { mysql => \@needs } } qw(mariadb mysql) });
