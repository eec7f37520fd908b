#!/usr/bin/perl
# dev/links.t : every link in our documents leads to a file, and to a heading, that exists;
# the readme's figures, and those of doc/scale.md, are the benchmark's; a picture shows
# what its source says.
#
# It ignores addresses on the web.  Where the files of a release can be told from the
# rest of the folder (dev/release-files), a link's target must be part of the release.

use strict;
use warnings;
use File::Find;
use Test::More;

sub slurp
{
	my ($path) = @_;
	open(my $file, '<:encoding(UTF-8)', $path) or return '';
	local $/;
	return scalar <$file>;
}

# The document without its fenced blocks.
sub without_code
{
	my ($path) = @_;
	my $text = slurp($path);
	$text =~ s/^ {0,3}(```|~~~).*?^ {0,3}\1[^\n]*$//msg;
	return $text;
}

# The anchors of a document's headings, made as the usual viewers make them; the second
# heading of the same text gets a number.
my %anchors;

sub anchors
{
	my ($path) = @_;
	return $anchors{$path} ||= do
	{
		my (%anchor, %seen);
		for my $heading (without_code($path) =~ /^#{1,6}[ \t]+(.*?)[ \t]*#*$/mg)
		{
			my $anchor = lc $heading;
			$anchor =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
			$anchor =~ s/[^\w\- ]//g;
			$anchor =~ tr/ /-/;
			my $before = $seen{$anchor}++;
			$anchor{ $before ? "$anchor-$before" : $anchor } = 1;
		}
		\%anchor;
	};
}

my @release = split(/\n/, `dev/release-files 2>/dev/null`);
my %there;
for my $file (@release)
{
	my $path = $file;
	$there{$path} = 1;
	$there{$path} = 1 while $path =~ s{/[^/]*$}{};
}

# Where a link in a document leads, or undef: out of the tree, or to what is not there.
sub target
{
	my ($document, $link) = @_;
	return $document if $link eq '';
	my @path = split(m{/}, $document);
	pop @path;
	for my $step (split(m{/}, $link))
	{
		next if $step eq '.';
		if ($step ne '..')
		{
			push @path, $step;
		}
		elsif (!defined pop @path)
		{
			return undef;
		}
	}
	my $path = join('/', @path);
	return $path if $path eq '' || (@release ? $there{$path} : -e $path);
	return undef;
}

my @documents = grep { /\.md$/ } @release;
if (!@release)
{
	find(
		{
			no_chdir => 1,
			wanted => sub {
				if ($_ ne '.' && m{/(?:\.[^/]*|node_modules|packages)$})
				{
					$File::Find::prune = 1;
				}
				elsif (/\.md$/)
				{
					push @documents, s{^\./}{}r;
				}
			}
		},
		'.');
}
cmp_ok(scalar(@documents), '>', 10, scalar(@documents) . ' documents');

my $links = 0;
my $to_headings = 0;
for my $document (sort @documents)
{
	my $text = without_code($document);
	$text =~ s/`[^`]*`/code/g;
	my @broken;
	# inline links and those that are defined in a line of their own
	for my $link ($text =~ /\]\(\s*<?([^)\s>]+)/g, $text =~ /^ {0,3}\[[^]]+\]:\s*<?([^\s>]+)/mg)
	{
		next if $link =~ /^[a-z][a-z+.\-]*:/i;
		$links++;
		my ($path, $anchor) = split(/#/, $link, 2);
		my $target = target($document, $path);
		if (!defined $target)
		{
			push @broken, "$link (nothing there)";
			next;
		}
		next if !defined $anchor;
		$to_headings++;
		push @broken, "$link (no such heading)" if !anchors($target)->{$anchor};
	}
	is(join("\n", @broken), '', $document);
}
cmp_ok($links, '>', 50, "$links links");
cmp_ok($to_headings, '>', 20, "$to_headings of them to headings");

# What the readme says dlock costs stands in bench/RESULTS.md, in the rows of the same name.
# Whoever measures again has to copy the new medians.
sub cells
{
	my ($row) = @_;
	$row =~ s/^\|\s*|\s*\|$//g;
	return split(/\s*\|\s*/, $row);
}

# The medians of a table, by system: of the table under a heading that has this first line.
sub medians
{
	my ($heading, $first) = @_;
	my ($section) = slurp('bench/RESULTS.md') =~ /^## \Q$heading\E\n(.*?)(?=^## |\z)/ms;
	my ($table) = ($section // '') =~ /^\Q$first\E\n\|[-|]+\n((?:\|.*\n)+)/m;
	my %medians;
	for my $row (split(/\n/, $table // ''))
	{
		my ($system, @values) = cells($row);
		$medians{$system} = [ map { s/ \(.*//r } @values ];
	}
	return \%medians;
}

my $cycles = medians('Cycles', '| system | 1 | 8 | 32 |');
my $hand_overs = medians('One hot name', '| system | 2 | 99 % | 8 | 99 % | 32 | 99 % |');
my ($costs) = slurp('README.md') =~ /^## What it costs\n.*?^\|[-|]+\n((?:\|[^\n]*\n)+)/ms;
my @costs = split(/\n/, $costs // '');
cmp_ok(scalar(@costs), '>', 5, 'the readme says what dlock costs');
for my $row (@costs)
{
	my ($system, @values) = cells($row);
	is_deeply(\@values, [ @{ $cycles->{$system} // [] }, ($hand_overs->{$system} // [])->[2] ],
		"$system costs what the benchmark says");
}
my $queue = medians('A queue of jobs', '| system | 1 ms, 1 | 8 | 32 | 10 ms, 1 | 8 | 32 |');
my ($skip_locked, $dlock) = slurp('README.md') =~ s/\s+/ /gr =~ /with jobs of 1 ms, 8 workers did ([\d,]+) a .*? and ([\d,]+) with dlock/;
is($skip_locked, $queue->{'`FOR UPDATE SKIP LOCKED`'}[1], 'jobs a second with SKIP LOCKED');
is($dlock, $queue->{'**dlock** `dlock_acquire_any()`, `dlock_guard()`'}[1], 'and with dlock');

# So do the first rates of doc/scale.md, a column for each engine.
my $scale = slurp('doc/scale.md');
my $renewal = medians('One renewal', '| system | 1 | 8 | 32 |');
my $heartbeats = medians('Heartbeats', '| system | a second, 1 | ms | 8 | ms |');
my $hundred = medians('100 names at once', '| system | 1 | 8 |');
my @engines = map { "**dlock**, $_, durable" } qw(PostgreSQL MySQL MariaDB);
for my $row (
	[ 'an acquire and a release', map { join(', ', @{ $cycles->{$_} }) } @engines ],
	[ 'renewals, one in a statement', map { join(', ', @{ $renewal->{$_} }) } @engines ],
	[ 'renewals by `dlock_renew_all`, 8 clients with 1,250 leases each', map { $heartbeats->{$_}[2] } @engines ],
	[ 'names claimed by `dlock_acquire_any` and given back, 100 in a statement, by 1 and 8 clients',
		map { join(', ', @{ $hundred->{$_} }) } @engines ],
	[ 'an acquire and a release, `synchronous_commit = off`',
		join(', ', @{ $cycles->{'**dlock**, PostgreSQL, `synchronous_commit = off`'} }) ])
{
	my ($what, @values) = @$row;
	my ($line) = $scale =~ /^(\| \Q$what\E \|.*)/m;
	is_deeply([ (cells($line // ''))[ 1 .. @values ] ], \@values, "scale.md: $what");
}

# A picture that is drawn anew has all labels of its source.
for my $source (glob('doc/*.gnuplot'))
{
	my $picture = slurp($source =~ s/gnuplot$/svg/r);
	my @lacks = grep { $picture !~ />\Q$_\E</ } slurp($source) =~ /^set label "([^"]*)"/mg;
	is("@lacks", '', "$source is drawn as it is");
}

done_testing();
