#!/usr/bin/perl
# examples/examples.t : run every example in SQL, and all SQL of README.md,
# doc/recipes.md and doc/dlock.md that is for PostgreSQL, on the server that the
# environment names.  t/mysql/manual.pl runs what is for MySQL and MariaDB, and
# t/cli/examples.pl what uses the command dlock, on each kind of server.
#
# The server is a throw-away one, which this connects to as superuser: it makes
# a database of its own, and roles that doc/dlock.md speaks of.
#
# t/Manual.pm says how an SQL example says what it answers.

use strict;
use warnings;
use File::Basename;
use File::Temp;
use FindBin;
use lib "$FindBin::RealBin/../t";
use Files;
use Manual;
use Test::More;

my $examples = dirname(__FILE__);
my $readme = "$examples/../README.md";
my $recipes = "$examples/../doc/recipes.md";
my $manual = "$examples/../doc/dlock.md";
my $database = "dlock_examples_$$";
my $work = File::Temp->newdir;

# Run SQL without a look at the outcome.
sub setup
{
	my ($where, $sql) = @_;
	system('psql', '-X', '-q', '-o', '/dev/null', '-d', $where, '-c', $sql) == 0
	  or BAIL_OUT("cannot run \"$sql\"");
	return;
}

# The only value that a query answers; NULL is "NULL".
sub value
{
	my ($sql) = @_;
	open(my $psql, '-|', 'psql', '-X', '-q', '-A', '-t', '-P', 'null=NULL',
		'-c', $sql)
	  or die "psql: $!";
	my $value = join('', <$psql>);
	close($psql);
	chomp $value;
	return $value;
}

# ----------------------------------------------------------------
# SQL
# ----------------------------------------------------------------

# A table, made alike as Manual::alike() does for a value.
sub alike_table
{
	my ($table) = @_;
	$table =~ s/\b\d{12,}\b/TOKEN/g;
	$table =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d/TIME/g;
	$table =~ s/-{2,}/--/g;
	$table =~ s/[ \t]+/ /g;
	$table =~ s/^ | $//mg;
	$table =~ s/\s+$//;
	return $table;
}

# Run statements in one session and compare their answers.
sub run_sql
{
	my ($what, @statements) = @_;
	my $script = "$work/script.sql";
	my $errors = "$work/errors";
	open(my $file, '>', $script) or die "$script: $!";
	for my $i (0 .. $#statements)
	{
		my $s = $statements[$i];
		print $file "\\pset format ",
		  (defined $s->{table} ? "aligned\n\\t off\n" : "unaligned\n\\t on\n");
		print $file "\\echo \@\@$i\n$s->{sql}\\echo \@\@state :SQLSTATE\n";
	}
	close($file);
	my $output = `psql -X -q -P null=NULL -P footer=off -f $script 2>$errors`;
	my @answers = split(/^\@\@\d+\n/m, $output);
	shift @answers;
	is(scalar(@answers), scalar(@statements), "$what: all statements ran");
	for my $i (0 .. $#answers)
	{
		my $s = $statements[$i];
		my ($answer, $state) =
		  $answers[$i] =~ /^(.*?)\@\@state (?:(\w{5})|:SQLSTATE)\n$/s;
		my $name = "$what, line $s->{line}";
		$state //= '00000';
		chomp $answer;
		if (defined $s->{table})
		{
			is(alike_table($answer), alike_table($s->{table}), $name);
		}
		elsif (!defined $s->{expected})
		{
			is($state, '00000', "$name: no error");
		}
		elsif ($s->{expected} =~ /^ERROR (\w{5})/)
		{
			is($state, $1, $name);
		}
		else
		{
			is(Manual::alike($answer), Manual::alike($s->{expected}), $name);
		}
	}
	my $expected =
	  grep { defined $_->{expected} && $_->{expected} =~ /^ERROR/ } @statements;
	my @raised = slurp($errors) =~ /ERROR: .*/g;
	is(scalar(@raised), $expected, "$what: only the errors it speaks of")
	  or diag(slurp($errors));
	return;
}

setup($ENV{PGDATABASE} // 'postgres', "CREATE DATABASE $database");
my $server_database = $ENV{PGDATABASE} // 'postgres';
$ENV{PGDATABASE} = $database;

# End all leases, so that what comes next begins with none.
sub end_leases
{
	value('SELECT count(dlock_force_release(name)) FROM dlock.locks');
	return;
}

setup($database, 'CREATE EXTENSION dlock');

my @readme = Manual::read_file($readme, 'postgresql');
ok(@readme > 15, 'the readme has examples');
run_sql('README.md', @readme);
end_leases();

# Each recipe is for itself.
my @recipes = Manual::by_section(Manual::read_file($recipes, 'postgresql'));
cmp_ok(scalar(@recipes), '>', 12, 'there are recipes');
for my $recipe (@recipes)
{
	my ($title, @statements) = @$recipe;
	run_sql("doc/recipes.md, $title", @statements);
	end_leases();
}

# what has been counted so far is none of the manual's
setup($database, 'SELECT dlock_stats_reset()');
my @manual = Manual::read_file($manual, 'postgresql');
ok(@manual > 20, 'the manual has examples');
run_sql('doc/dlock.md', @manual);
for my $file (sort glob("$examples/*.sql"))
{
	run_sql(basename($file), Manual::statements(1, split(/\n/, slurp($file))));
}

END
{
	my $status = $?;
	if ($server_database)
	{
		system('psql', '-X', '-q', '-d', $server_database, '-c',
			"DROP DATABASE IF EXISTS $database WITH (FORCE)");
		system('psql', '-X', '-q', '-d', $server_database, '-c',
			'SET client_min_messages = warning', '-c',
			"DROP ROLE IF EXISTS doc_app, doc_operator");
	}
	$? = $status;
}

done_testing();
