# From a real 1.0 to this version: its library and its objects, with leases held, and then
# the new ones, in either order of restart and ALTER EXTENSION UPDATE.  And back, as long as
# the update has not been done.
#
# OLD_DLOCK is the folder of the sources of 1.0.0 or 1.0.1.  t/185_update.pl does without.

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'OLD_DLOCK does not say where there is a 1.0' unless defined $ENV{OLD_DLOCK};

my $tree = "$FindBin::RealBin/..";
my $dir = PostgreSQL::Test::Utils::tempdir();
chomp(my $new_config = `which pg_config`);

# A private copy of the server under test for each of the two; a server runs with one or
# the other, so its own folder has both files in turn.
my ($old_bin, $old_log) = run_command([ "$ENV{OLD_DLOCK}/dev/overlay", $new_config, "$dir/old" ]);
die "cannot build the old dlock: $old_log" unless $old_bin;
my ($bin, $log) = run_command([ "$tree/dev/overlay", $new_config, "$dir/new" ]);
die "cannot build dlock: $log" unless $bin;

# The folder of a server's libraries, and that of its extensions.
sub folders
{
	my ($of) = @_;
	chomp(my $library = `'$of/pg_config' --pkglibdir`);
	chomp(my $share = `'$of/pg_config' --sharedir`);
	return ($library, "$share/extension");
}

my @old = folders($old_bin);
my @now = folders($bin);
system_or_bail('cp', '-a', $now[0] . '/dlock.so', "$dir/new.so");
mkdir "$dir/new_scripts" or die "could not make a folder: $!\n";
system_or_bail("cp -a $now[1]/dlock* $dir/new_scripts/");

# As a package does it: the files are replaced while the server runs.
sub install_version
{
	my ($which) = @_;
	my ($library, $scripts) = $which eq 'old' ? ("$old[0]/dlock.so", $old[1]) : ("$dir/new.so", "$dir/new_scripts");
	system_or_bail("rm -f $now[1]/dlock* && cp -a $scripts/dlock* $now[1]/ && install -m 755 $library $now[0]/dlock.so");
	return;
}

my ($node, $highest, %tokens);

# Each lease is held, refused to others, renewed with its token; a new token is larger.
sub holds
{
	my ($what) = @_;
	for my $name (sort keys %tokens)
	{
		is($node->safe_psql('postgres', "SELECT dlock_owner('$name'), dlock_acquire('$name', 'other', 60),
			dlock_renew('$name', 'me', 3600, $tokens{$name})"), 'me||t', "$what: $name is held");
	}
	my $token = $node->safe_psql('postgres', q{SELECT dlock_acquire('grows', 'me', 60)});
	cmp_ok($token, '>', $highest, "$what: a larger token");
	$highest = $token;
	is($node->safe_psql('postgres', q{SELECT dlock_release('grows', 'me')}), 't', "$what: given back");
	my $name = 'n' . keys %tokens;
	$tokens{$name} = $node->safe_psql('postgres', "SELECT dlock_acquire('$name', 'me', 3600)");
	return;
}

for my $mode ('fast', 'immediate')
{
	install_version('old');
	$node = PostgreSQL::Test::Cluster->new("old_$mode", install_path => $bin =~ s{/bin$}{}r);
	$node->init;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'dlock'");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
	my $old_version = $node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'dlock'});
	like($old_version, qr/^1\.0\.\d$/, "$mode: begins with $old_version");
	%tokens = (first => $node->safe_psql('postgres', q{SELECT dlock_acquire('first', 'me', 3600)}));
	$highest = $tokens{first};
	holds("$mode, $old_version");

	# the new files under the old server
	install_version('new');
	holds("$mode, the new files are there");
	my ($status, undef, $error) = $node->psql('postgres', 'ALTER EXTENSION dlock UPDATE');
	isnt($status, 0, "$mode, before the restart: no update");
	like($error, qr/could not find function ".*" in file ".*dlock\.so"/, "$mode, before the restart: and the error says why");
	holds("$mode, the update has failed");

	$node->stop($mode);
	$node->start;
	is($node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'dlock'}), $old_version,
		"$mode, the new library: with the old objects");
	holds("$mode, the new library");

	# back, and forth again
	install_version('old');
	$node->stop($mode);
	$node->start;
	holds("$mode, back");
	install_version('new');
	$node->stop($mode);
	$node->start;
	holds("$mode, forth");

	$node->safe_psql('postgres', 'ALTER EXTENSION dlock UPDATE');
	isnt($node->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'dlock'}), $old_version,
		"$mode: updated");
	holds("$mode, updated");
	$node->stop($mode);
	$node->start;
	holds("$mode, updated and restarted");
	$node->stop;
}
done_testing();
