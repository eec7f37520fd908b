# The client for Go, clients/go: the cases of clients/CONTRACT.md on a server of the kind
# that is the argument, with each driver.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib $FindBin::RealBin;
use Cases;

my $dir = tempdir(CLEANUP => 1);
my @needs = qw(golang-go golang-github-lib-pq-dev golang-github-jackc-pgx-v4-dev golang-github-go-sql-driver-mysql-dev);

Cases::run($ARGV[0],
	prepare => sub { system("$FindBin::RealBin/go/build", $dir) == 0 or die "could not build the agent\n" },
	command => ["$dir/agent"],
	drivers => {
		postgres => { pq => \@needs, pgx => \@needs },
		map { $_ => { mysql => \@needs } } qw(mariadb mysql) });
