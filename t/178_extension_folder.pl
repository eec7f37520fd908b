# The extension in a folder of its own, outside of the server's: extension_control_path and
# dynamic_library_path name it, as with CloudNativePG's images of extensions.

use strict;
use warnings;

use File::Copy;
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('folder');
plan skip_all => 'PostgreSQL 18 is the first with extension_control_path' if $node->pg_version < 18;

# what containers/cloudnativepg.Containerfile puts into the image
my $image = PostgreSQL::Test::Utils::tempdir();
chomp(my $library = `pg_config --pkglibdir`);
chomp(my $share = `pg_config --sharedir`);
mkdir "$image/$_" or die "could not make $image/$_: $!\n" for 'lib', 'share', 'share/extension';
copy("$library/dlock.so", "$image/lib/") or die "could not copy dlock.so: $!\n";
chmod 0755, "$image/lib/dlock.so" or die;
copy($_, "$image/share/extension/") or die "could not copy $_: $!\n" for glob "$share/extension/dlock*";

# That folder is searched first, since the server's own have dlock too; and they have plpgsql.
$node->init;
$node->append_conf('postgresql.conf', qq{
extension_control_path = '$image/share'
dynamic_library_path = '$image/lib:\$libdir'
});
$node->start;

# Has a process loaded the library from there?
sub loaded_by
{
	my ($pid) = @_;
	return join(' ', sort keys %{ { map { $_ => 1 } slurp_file("/proc/$pid/maps") =~ m{(/\S*/dlock\.so)\b}g } });
}

sub takes_a_lease
{
	my ($title) = @_;
	my $session = $node->background_psql('postgres');
	like($session->query(q{SELECT dlock_acquire('job', 'me', 600, 0, 'r')}), qr/^\d{15,16}$/, "$title: a lease is granted");
	is(loaded_by($session->query('SELECT pg_backend_pid()')), "$image/lib/dlock.so", "$title: by the library in the folder");
	my $worker;
	ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
		$worker = $session->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker'});
		return $worker =~ /^\d+$/ && loaded_by($worker) ne '';
	}), "$title: there is a worker");
	is(loaded_by($worker), "$image/lib/dlock.so", "$title: by the same library");
	is($session->query(q{SELECT owner FROM dlock.locks WHERE name = 'job'}), 'me', "$title: and the views show it");
	$session->quit;
	return;
}

is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'dlock'}), 1, 'it is available');
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
takes_a_lease('without preloading');
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'dlock'});
$node->restart;
takes_a_lease('preloaded');
$node->stop;
done_testing();
