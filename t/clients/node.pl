# The client for Node.js, clients/node: the cases of clients/CONTRACT.md on a server of the
# kind that is the argument, with each driver.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Cases;

Cases::run($ARGV[0],
	also => sub {
		my @drivers = grep { !/callback/ } @_;
		Cases::program('the clock', 'node', "$FindBin::RealBin/node/clock.js");
		Cases::program('what only Node.js has', 'node', "$FindBin::RealBin/node/more.js", @drivers);
		Cases::program('a client with many leases', 'node', "$FindBin::RealBin/node/many.js", @drivers);
		Cases::program('counters of Prometheus', 'node', "$FindBin::RealBin/node/metrics.js", @drivers)
		  if !defined Cases::reason_not('npm:prom-client');
	},
	command => [ 'node', "$FindBin::RealBin/node/agent.js" ],
	drivers => {
		postgres => { pg => ['npm:pg'] },
		mariadb => { mysql2 => ['npm:mysql2'], mysql2_callback => ['npm:mysql2'] },
		mysql => { mysql2 => ['npm:mysql2'] } });
