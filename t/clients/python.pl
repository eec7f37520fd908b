# The client for Python, clients/python: the cases of clients/CONTRACT.md on a server of
# the kind that is the argument, with each driver.  python_more.pl has what only Python has:
# most of both is waiting, and they run side by side.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Cases;
use Python;

Cases::run($ARGV[0], command => [ '/usr/bin/python3', "$FindBin::RealBin/python/agent.py" ], drivers => \%Python::drivers);
