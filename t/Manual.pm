# Manual.pm: the SQL examples of the manuals, and of the examples.
#
# An SQL example gives the answer behind each statement:
#
#   SELECT dlock_release('report', 'worker-1');   -- true: it is free now
#
# Up to the colon that is true, false, NULL, a number, a string, or ERROR and
# an SQLSTATE, or an error's number on MySQL and MariaDB.  A number of 12 digits
# or more stands for any token.  A statement without a comment must only raise no error.
#
# In a manual the examples are the blocks in the language "sql"; indented text
# is not run.  "sql postgresql" is for PostgreSQL alone, "sql mysql" for
# MySQL and MariaDB, and "sql" for all that the manual speaks of.  A block without
# a language after one of SQL is the table that its last statement prints, where
# also times may differ.

package Manual;

use strict;
use warnings;

# Split lines of SQL into statements: { line, sql, expected }.
sub statements
{
	my ($number, @lines) = @_;
	my @statements;
	my $sql = '';
	my $first = $number;
	for my $line (@lines)
	{
		my $number_here = $number++;
		next if $sql eq '' && $line =~ /^\s*(--.*)?$/;
		$first = $number_here if $sql eq '';
		my ($code, $comment) = $line =~ /^(.*?)(?:\s+--\s+(.*))?$/;
		$sql .= "$code\n";
		# a body in dollar quotes is not over yet
		next if (() = $sql =~ /\$\$/g) % 2;
		next unless $sql =~ /;\s*$|\\g(?:set)?\b[^\n]*\n$|^\\/;
		$comment =~ s/^('[^']*'|[^:]*).*/$1/ if defined $comment;
		push @statements,
		  { line => $first, sql => $sql, expected => $comment };
		$sql = '';
	}
	die "line $first: a statement without an end" if $sql ne '';
	return @statements;
}

# Statements by section: of each, in their order, its title and its statements.
sub by_section
{
	my (@statements) = @_;
	my @sections;
	for my $statement (@statements)
	{
		push @sections, [ $statement->{section} ] if !@sections || $sections[-1][0] ne $statement->{section};
		push @{ $sections[-1] }, $statement;
	}
	return @sections;
}

# The lines for a shell in a manual, or those of another language, in blocks: { section, script }.
sub shell_blocks
{
	my ($path, $language) = (@_, 'sh');
	my ($section, $script, @blocks) = ('');
	open(my $file, '<', $path) or die "could not open $path: $!\n";
	while (my $line = <$file>)
	{
		if ($line =~ /^```/)
		{
			push @blocks, { section => $section, script => $script } if defined $script;
			$script = $line =~ /^```\Q$language\E$/ ? '' : undef;
		}
		elsif (defined $script) { $script .= $line }
		elsif ($line =~ /^## (.*)/) { $section = $1 }
	}
	return @blocks;
}

# Bring a value, as a client prints it or as a comment has it, into one form.
sub alike
{
	my ($value) = @_;
	return 'true' if $value eq 't';
	return 'false' if $value eq 'f';
	$value =~ s/^'(.*)'$/$1/;
	$value =~ s/\b\d{12,}\b/TOKEN/g;
	return $value;
}

# The SQL of a manual that is for an engine, "postgresql" or "mysql", in its order;
# with the tables as { table }, and the title of its section as { section }.
sub read_file
{
	my ($path, $engine) = @_;
	my @statements;
	my @block;
	my ($language, $for, $first) = (undef, undef, 0);
	my $section = '';
	open(my $file, '<', $path) or die "could not open $path: $!\n";
	while (my $line = <$file>)
	{
		chomp $line;
		if ($line !~ /^```(\w*) ?(\w*)$/)
		{
			push @block, $line if defined $language;
			$section = $1 if !defined $language && $line =~ /^## (.*)/;
			next;
		}
		if (!defined $language)
		{
			($language, $for, $first, @block) = ($1, $2, $. + 1);
			die "$path, line $.: there is no engine \"$for\"\n" if $for !~ /^(postgresql|mysql)?$/;
			next;
		}
		push @statements, map { { %$_, section => $section } } statements($first, @block)
		  if $language eq 'sql' && ($for eq '' || $for eq $engine);
		$statements[-1]{table} = join("\n", @block)
		  if $language eq '' && @statements;
		$language = undef;
	}
	return @statements;
}

1;
