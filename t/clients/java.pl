# The client for Java, clients/java: the cases of clients/CONTRACT.md on a server of the
# kind that is the argument, with its driver.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib $FindBin::RealBin;
use Cases;

my $dir = tempdir(CLEANUP => 1);
my $jars = '/usr/share/java/postgresql.jar:/usr/share/java/mariadb-java-client.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar';
my @sources = ("$FindBin::RealBin/../../clients/java/Lease.java", "$FindBin::RealBin/java/Agent.java");
my @needs = ('default-jdk-headless');

Cases::run($ARGV[0],
	prepare => sub { system('javac', '-Xlint:all', '-d', $dir, @sources) == 0 or die "could not compile the agent\n" },
	# which starts sooner, for a short life
	command => [ 'java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-cp', "$dir:$jars", 'Agent' ],
	drivers => {
		postgres => { postgresql => [ @needs, 'libpostgresql-jdbc-java' ] },
		map { $_ => { mariadb => [ @needs, 'libmariadb-java' ] } } qw(mariadb mysql) });
