# The client for Python, clients/python: what only Python has, and what is around it, on a
# server of the kind that is the argument, with each driver.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Cases;
use Python;

Cases::run($ARGV[0],
	also => sub {
		my $run = sub { Cases::program($_[0], '/usr/bin/python3', "$FindBin::RealBin/python/$_[1]", @_[2 .. $#_]) };
		$run->('what only Python has', 'more.py', @_);
		$run->('many leases', 'many.py', @_);
		my $reason = Cases::reason_not(qw(python3-gevent python3-wrapt python3-prometheus-client uwsgi-core uwsgi-plugin-python3));
		SKIP:
		{
			Test::More::skip("what is around it $reason", 1) if defined $reason;
			$run->('what is around it', 'around.py', @_);
		}
	},
	drivers => \%Python::drivers);
