# Many clients at once do what they like with a few leases (storm.c), while the lock
# table is flushed and altered.  At the end nothing is left over.  The kind of server
# is the argument; STORM_SECONDS says how long, STORM_SEED repeats one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;
use Time::HiRes qw(usleep);

my $engine = Engines::start(@ARGV, Engines::performance_schema($ARGV[0]));
my $program = "$engine->{dir}/storm";
my $seconds = $ENV{STORM_SECONDS} // 6;
my $seed = $ENV{STORM_SEED} // int rand 2**31;
note("STORM_SEED=$seed");

system("cc -O2 -pthread -o $program t/mysql/storm.c \$(mariadb_config --include --libs)") == 0
  or die "could not build storm.c\n";

sub output
{
	open(my $file, '<', "$program.out") or die "could not open $program.out: $!\n";
	return join('', <$file>);
}

sub storm
{
	my ($clients, $meanwhile) = @_;
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		open(STDOUT, '>', "$program.out") or die;
		open(STDERR, '>&', \*STDOUT) or die;
		exec $program, "$engine->{dir}/socket", $clients, $seconds, $seed;
	}
	my $ended = $meanwhile->($pid);
	waitpid($pid, 0) unless $ended;
	is($?, 0, "$clients clients found nothing wrong")
	  or diag(output());
	note(output());
	return;
}

sub sql { return $engine->control->value($_[0]) }

sub is_over
{
	my ($what) = @_;
	ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.locks') == 0 }),
		"$what: nothing is held");
	is(sql('SELECT count(*) FROM dlock.waiters'), 0, "$what: nobody waits");
	return;
}

# one more, if the machine was too busy for many calls
ok(Scenarios::Run::until(sub {
	storm(24, sub { return 0 });
	is_over('a storm');
	return sql('SELECT acquired > 100 AND woken > 10 FROM dlock.stats');
}), 'there were grants, and waiters were woken');

# The same, while the table is flushed and changed under them: that takes time,
# and nothing else.
my $changes = 0;
ok(Scenarios::Run::until(sub {
	storm(8, sub {
		my ($pid) = @_;
		until (waitpid($pid, 1) == $pid)
		{
			my @tables = map { "dlock.$_" } $engine->written_tables;
			my ($table) = grep { /log|lease_table/ } @tables;
			sql('FLUSH TABLES ' . join(', ', @tables));
			sql("ALTER TABLE $table ADD COLUMN more INT");
			sql("ALTER TABLE $table DROP COLUMN more");
			$changes++;
			usleep(200_000);
		}
		return 1;
	});
	is_over('a storm over a changing table');
	return $changes > 2;
}), 'it was changed');

$engine->stop;
done_testing();
