# dlock run with a URL of several PostgreSQL servers, of which the first is
# a standby: it finds the primary.

use strict;
use warnings;

use Test::More;

BEGIN
{
	plan skip_all => 'of PostgreSQL only: no URL of others has several hosts'
	  if ($ARGV[0] // 'postgres') ne 'postgres';
}

use Cwd qw(abs_path);
use FindBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $dlock = abs_path($ENV{DLOCK_COMMAND} // "$FindBin::RealBin/../../cli/dlock") // die "cli/dlock is not built\n";
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', q{shared_preload_libraries = 'dlock'});
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $url = sprintf 'host=%s,%s port=%s,%s dbname=postgres', map { ($standby->$_, $primary->$_) } qw(host port);
my ($out, $err) = ('', '');
my $run = IPC::Run::start([ $dlock, 'run', '--ttl', '60', '--url', $url, 'hosts', '--', 'sh', '-c', "echo ran; until [ -e $dir/go ]; do sleep 0.05; done; exit 7" ],
	'>', \$out, '2>', \$err, IPC::Run::timeout(60));
IPC::Run::pump($run) until $out =~ /ran\n/ || !$run->pumpable;
is($out, "ran\n", 'a command runs, though the first server is a standby') or diag($err);
is($primary->safe_psql('postgres', q{SELECT count(*) FROM dlock.locks WHERE name = 'hosts'}), 1, 'with a lease of the primary');
PostgreSQL::Test::Utils::append_to_file("$dir/go", '');
IPC::Run::finish($run);
is($run->result(0), 7, 'and its status is told');
is($err, '', 'nothing is said about it');

# there is none
$url = sprintf 'host=%s port=%s dbname=postgres', $standby->host, $standby->port;
$run = IPC::Run::start([ $dlock, 'run', '--url', $url, 'hosts', '--', 'true' ], '>', \$out, '2>', \$err, IPC::Run::timeout(60));
IPC::Run::finish($run);
is($run->result(0), 69, 'a standby alone is no server to ask');
like($err, qr/25006/, 'as is said');

$standby->stop;
$primary->stop;
done_testing();
