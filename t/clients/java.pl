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
my $jars = '/usr/share/java/postgresql.jar:/usr/share/java/mariadb-java-client.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar:/usr/share/java/HikariCP.jar:/usr/share/java/metrics-core.jar';
my @sources = (glob("$FindBin::RealBin/../../clients/java/*.java"), glob("$FindBin::RealBin/java/*.java"));
my @needs = qw(default-jdk-headless libhikaricp-java libdropwizard-metrics-java);

# which starts sooner, for a short life
my @java = ('java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-cp');

sub built
{
	return BuiltOnce::folder($dir, 'java_agent',
		sub { system('javac', '-Xlint:all', '--release', '11', '-cp', $jars, '-d', $_[0], @sources) == 0 or die "could not compile the agent\n" });
}

Cases::run($ARGV[0],
	# virtual threads, if there are any, have two to run on
	also => sub {
		Cases::program("what only Java has: $_", 'java', map({ "-Djdk.virtualThreadScheduler.$_=2" } 'parallelism', 'maxPoolSize'),
			@java[ 1 .. $#java ], built() . ":$jars", 'dlock.More', $_)
		  for @_;
	},
	command => sub { return (@java, built() . ":$jars", 'Agent') },
	drivers => {
		postgres => { postgresql => [ @needs, 'libpostgresql-jdbc-java' ] },
		map { $_ => { mariadb => [ @needs, 'libmariadb-java' ] } } qw(mariadb mysql) });
