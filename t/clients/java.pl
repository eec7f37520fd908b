# The client for Java, clients/java: the cases of clients/CONTRACT.md on a server of the
# kind that is the argument, with its driver.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use BuiltOnce;
use Cases;

my $dir = tempdir(CLEANUP => 1);
my $jars = '/usr/share/java/postgresql.jar:/usr/share/java/mariadb-java-client.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar';
my @sources = ("$FindBin::RealBin/../../clients/java/Lease.java", "$FindBin::RealBin/java/Agent.java");
my @needs = ('default-jdk-headless');

Cases::run($ARGV[0],
	command => sub {
		my $built = BuiltOnce::folder($dir, 'java_agent',
			sub { system('javac', '-Xlint:all', '-d', $_[0], @sources) == 0 or die "could not compile the agent\n" });
		# which starts sooner, for a short life
		return ('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-cp', "$built:$jars", 'Agent');
	},
	drivers => {
		postgres => { postgresql => [ @needs, 'libpostgresql-jdbc-java' ] },
		map { $_ => { mariadb => [ @needs, 'libmariadb-java' ] } } qw(mariadb mysql) });
