# The manual page and the completion of the command dlock, and what is installed: every
# subcommand and every option of --help is in both, and the other way round.  It needs
# no server, so it runs for only one kind.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

plan skip_all => 'needs no server: postgres does it' if ($ARGV[0] // 'postgres') ne 'postgres';

my $tree = abs_path("$FindBin::RealBin/../..");
my $dlock = abs_path($ENV{DLOCK_COMMAND} // "$tree/cli/dlock") // die "cli/dlock is not built\n";
my $page = "$tree/cli/dlock.1";
my $completion = "$tree/cli/completion/dlock.bash";

sub output
{
	my ($command) = @_;
	return scalar `$command`;
}

sub text
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/;
	return <$file>;
}

# ---------------------------------------------------------------- the page

my $dir = tempdir(CLEANUP => 1);
my $warnings = output("LC_ALL=C.UTF-8 MANWIDTH=80 man -l --warnings -E UTF-8 -Tutf8 $page 2>&1 >$dir/page");
is($warnings, '', 'the manual page has no warnings');
my $shown = text("$dir/page") =~ s/.\x08//gr =~ s/\e\[[\d;]*m//gr;
like($shown, qr/^NAME\n +dlock .+ hold/m, 'it can be read');

# Options, by subcommand, as --help has them: the long ones, and the short ones by the long.
my (%options, %short);
my @subcommands = output("$dlock --help") =~ /^  (\S+) /mg;
cmp_ok(scalar @subcommands, '>', 10, 'there are subcommands');
for my $subcommand (@subcommands)
{
	for my $line (split /\n/, output("$dlock $subcommand --help"))
	{
		next unless $line =~ /^  (?:-(\w), |    )--([\w-]+)/;
		$options{$subcommand}{$2} = 1;
		$short{$subcommand}{$2} = $1 if defined $1;
	}
}

# The section of the page that is about a subcommand.
my $source = text($page);
my %section_of = (
	(map { $_ => 'SINGLE CALLS' } qw(acquire renew release wait owner force-release)),
	(map { $_ => 'TABLES' } qw(ls waiters stats log)));

sub section
{
	my ($title) = @_;
	return $source =~ /^\.Sh \Q$title\E\n(.*?)(?=^\.Sh )/ms ? $1 : '';
}

for my $subcommand (@subcommands)
{
	like($source, qr/^\.Cm \Q$subcommand\E$/m, "$subcommand: in the synopsis");
	my $section = section($section_of{$subcommand} // uc $subcommand);
	isnt($section, '', "$subcommand: has a section");
	for my $option (sort keys %{ $options{$subcommand} })
	{
		next if $option =~ /^(?:help|version)$/;
		my $letter = $short{$subcommand}{$option};
		my $item = defined $letter ? qr/^\.It Fl $letter , Fl -\Q$option\E\b/m : qr/^\.It Fl -\Q$option\E\b/m;
		like($section, $item, "$subcommand --$option: in the page");
	}
}

# Nothing is in the page that is not there.
my %sections;
push @{ $sections{ $section_of{$_} // uc $_ } }, $_ for @subcommands;
for my $title (sort keys %sections)
{
	my %known = map { %{ $options{$_} } } @{ $sections{$title} };
	my @items = section($title) =~ /^\.It Fl (?:\w , Fl )?-([\w-]+)/mg;
	is(join(', ', grep { !$known{$_} } @items), '', "$title: no option that there is not");
}
like($shown, qr/^ +$_ /m, "status $_: in the page") for 0, 64, 69, 70, 71, 75, 77, 126, 127;
like($shown, qr/\b$_\b/, "$_: in the page")
  for qw(DLOCK_URL DLOCK_OWNER DLOCK_NAME DLOCK_TOKEN DLOCK_REASON NOTIFY_SOCKET);

# ----------------------------------------------------------- the completion

sub completes
{
	my @words = @_;
	my $list = join(' ', map { "'$_'" } @words);
	return split /\n/, output("bash -c '. $completion; COMP_WORDS=($list); COMP_CWORD=$#words; _dlock; "
		. 'printf "%s\n" "${COMPREPLY[@]}"' . "' 2>&1");
}

# the words have no quotes in them
sub offers { return completes(map { s/'//gr } @_) }

is_deeply([ sort(grep { !/^-/ } offers('dlock', '')) ], [ sort @subcommands ], 'completion: all subcommands');
is_deeply([ offers('dlock', 'wai') ], [qw(wait waiters)], 'completion: of a subcommand');
for my $subcommand (@subcommands)
{
	is_deeply([ sort(offers('dlock', $subcommand, '--')) ], [ sort map { "--$_" } keys %{ $options{$subcommand} } ],
		"completion: the options of $subcommand");
}
is_deeply([ offers(qw(dlock run --on-lost), '') ], [qw(term warn)], 'completion: of an argument');
is_deeply([ offers(qw(dlock acquire --owner), '') ], [], 'completion: none of an owner');
ok((grep { $_ eq 'true' } offers(qw(dlock run --ttl 5 name tru))), 'completion: of a command');
ok((grep { $_ eq 'true' } offers(qw(dlock run --ttl = 5 name tru))), 'completion: after an option with "="');
ok((grep { /^\/bin\/true$|^\/bin\/tru/ } offers(qw(dlock elect -t5 name -- /bin/tru))), 'completion: of one with a path');
is_deeply([ offers(qw(dlock run name --)) ], ['--'], 'completion: what ends the options');

# --------------------------------------------------------------- installing

# A folder of its own, to which the tree is copied, for the tree may not be written to.
my $copy = tempdir(CLEANUP => 1);
system("cp -R $tree/Makefile $tree/META.json $tree/cli $tree/clients $tree/core $tree/mysql_udf $copy/ && rm -rf $copy/cli/*.o $copy/cli/client $copy/clients/c/build") == 0
  or die "could not copy the tree\n";
my $bin = "$copy/bin";
mkdir $bin or die "$bin: $!\n";
# where no server's development files are: pg_config is there for nobody
my $make = "env -u MAKEFLAGS -u MAKELEVEL make -s -C $copy CFLAGS=-O0 PG_CONFIG=/no/such";
my $dest = "$copy/dest";
is(output("$make install-client WERROR=1 DESTDIR=$dest prefix=/opt/x 2>&1"), '', 'make install-client');
is_deeply(
	[ sort split /\n/, output("cd $dest && find . -type f") ],
	[qw(./opt/x/bin/dlock ./opt/x/share/bash-completion/completions/dlock ./opt/x/share/man/man1/dlock.1)],
	'what is installed');
my ($version) = text("$tree/META.json") =~ /"version": "(.*?)"/;
is(output("$dest/opt/x/bin/dlock --version"), "dlock $version\n", 'the version is that of META.json');
is(output("$make install-client DESTDIR=$dest/default 2>&1"), '', 'again, without a prefix');
ok(-x "$dest/default/usr/local/bin/dlock", 'goes to /usr/local');
is(output("$make uninstall-client DESTDIR=$dest prefix=/opt/x 2>&1"), '', 'make uninstall-client');
ok(!-e "$dest/opt/x/bin/dlock", 'takes it away');
like(output("$make help"), qr/^make client .*install-client/m, 'make help has both');
done_testing();
