# Every SQL example of doc/mysql.md, and what README.md and doc/recipes.md have for MySQL
# and MariaDB, in its order and in one session, an administrator's: it answers what the
# manual says.  t/Manual.pm says how it says that.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Manual;
use Scenarios;
use Test::More;

my @readme = Manual::read_file('README.md', 'mysql');
cmp_ok(scalar(@readme), '>', 15, 'the readme has examples');
my @recipes = Manual::read_file('doc/recipes.md', 'mysql');
cmp_ok(scalar(@recipes), '>', 50, 'there are recipes');
my @manual = Manual::read_file('doc/mysql.md', 'mysql');
cmp_ok(scalar(@manual), '>', 50, 'and so has the manual');

my $engine = Engines::start(@ARGV);
my $session = $engine->client('admin');

# What a comment says in words that are those of PostgreSQL too.
my %alike = (true => 1, false => 0);

sub run_examples
{
	my ($path, @statements) = @_;

	for my $statement (@statements)
	{
		my $name = "$path, line $statement->{line}";
		my $answer;
		# who waits for less than a second may be told that the machine was too busy to decide
		Scenarios::Run::until(sub { !$engine->is_undecided($answer = $session->query($statement->{sql} =~ s/;\s*$//r)) });
		my $error = $answer->{error};
		my $is = defined $error ? 'ERROR ' . $error =~ s/ .*//r : $answer->{rows}[0][0] // '';
		my $expected = $statement->{expected};

		if (!defined $expected)
		{
			unlike($is, qr/^ERROR/, "$name: no error") or diag($answer->{message});
		}
		elsif ($expected =~ /^ERROR (\w{5})$/)
		{
			ok(defined $error && $engine->is_error($1, $error), "$name: $expected") or diag("it answers $is");
		}
		else
		{
			is(Manual::alike($is), Manual::alike($alike{$expected} // $expected), $name) or diag($answer->{message} // ());
		}
	}
	return;
}

# End all leases, so that what comes next begins with none.
sub end_leases
{
	$session->query('SELECT dlock_force_release(name) FROM (SELECT DISTINCT name FROM dlock.locks) AS l');
	return;
}

$session->value(q{CREATE USER 'watcher'@'%'});
run_examples('README.md', @readme);
end_leases();

# Each recipe is for itself.
my @by_title = Manual::by_section(@recipes);
cmp_ok(scalar(@by_title), '>', 12, 'which are many');
for my $recipe (@by_title)
{
	my ($title, @statements) = @$recipe;
	run_examples("doc/recipes.md, $title", @statements);
	end_leases();
}

run_examples('doc/mysql.md', @manual);
is($session->value(q{SELECT group_concat(name) FROM dlock.locks}), 'NULL', 'and what the manual takes it gives back');
$session->quit;
$engine->stop;
done_testing();
