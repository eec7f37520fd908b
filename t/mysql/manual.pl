# Every SQL example of doc/mysql.md, and what the readme has for MySQL and MariaDB, in
# its order and in one session, an administrator's: it answers what the manual says.
# t/Manual.pm says how it says that.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Manual;
use Scenarios;
use Test::More;

my @readme = grep { $_->{section} =~ /MySQL/ } Manual::read_file('README.md');
cmp_ok(scalar(@readme), '>', 2, 'the readme has examples');
my @manual = Manual::read_file('doc/mysql.md');
cmp_ok(scalar(@manual), '>', 50, 'and so has the manual');

my $engine = Engines::start(@ARGV);
my $session = $engine->client('admin');

sub run_examples
{
	my ($path, @statements) = @_;

	for my $statement (@statements)
	{
		my $name = "$path, line $statement->{line}";
		my $answer = $session->query($statement->{sql} =~ s/;\s*$//r);
		my $is = defined $answer->{error} ? 'ERROR ' . $answer->{error} =~ s/ .*//r : $answer->{rows}[0][0] // '';

		if (defined $statement->{expected})
		{
			is(Manual::alike($is), Manual::alike($statement->{expected}), $name) or diag($answer->{message} // ());
		}
		else
		{
			unlike($is, qr/^ERROR/, "$name: no error") or diag($answer->{message});
		}
	}
	return;
}

$session->value(q{CREATE USER 'watcher'@'%'});
run_examples('README.md', @readme);
is($session->value(q{SELECT dlock_release('job', 'w1')}), 1, 'what the readme takes is held');
run_examples('doc/mysql.md', @manual);
is($session->value(q{SELECT group_concat(name) FROM dlock.locks}), 'NULL', 'and what the manual takes it gives back');
$session->quit;
$engine->stop;
done_testing();
