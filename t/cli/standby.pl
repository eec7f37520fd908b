# dlock run with a URL of several PostgreSQL servers, of which the first is a synchronous
# standby: it finds the primary, and goes on with the standby that takes its place.

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
use Time::HiRes qw(time);

my $dlock = abs_path($ENV{DLOCK_COMMAND} // "$FindBin::RealBin/../../cli/dlock") // die "cli/dlock is not built\n";
my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION dlock');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->append_conf('postgresql.conf', q{synchronous_standby_names = 'standby'});
$primary->reload;
$primary->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'})
  or die "the standby is not synchronous\n";

my $dir = PostgreSQL::Test::Utils::tempdir();
my $url = sprintf 'host=%s,%s port=%s,%s dbname=postgres', map { ($standby->$_, $primary->$_) } qw(host port);
my ($out, $err) = ('', '');
my $run = IPC::Run::start([ $dlock, 'run', '--ttl', '60', '--url', $url, 'hosts', '--', 'sh', '-c', "echo ran \$DLOCK_TOKEN; until [ -e $dir/go ]; do sleep 0.05; done; exit 7" ],
	'>', \$out, '2>', \$err, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
IPC::Run::pump($run) until $out =~ /ran \d+\n/ || !$run->pumpable;
my ($token) = $out =~ /^ran (\d+)$/;
ok($token, 'a command runs, though the first server is a standby') or diag($err);
is($primary->safe_psql('postgres', q{SELECT token FROM dlock.locks WHERE name = 'hosts'}), $token, 'with a lease of the primary');

# The primary is lost, and the standby takes its place, before the lease can have ended.
$primary->stop('immediate');
$standby->promote;
my $ends = $standby->safe_psql('postgres', q{SELECT expires_at FROM dlock.locks WHERE name = 'hosts'});
ok($standby->poll_query_until('postgres', "SELECT expires_at > timestamptz '$ends' + interval '2 s' FROM dlock.locks WHERE name = 'hosts'"),
	'it is renewed at the server that has taken over');
is($standby->safe_psql('postgres', q{SELECT token FROM dlock.locks WHERE name = 'hosts'}), $token, 'with its token');
my ($other, $why) = ('', '');
IPC::Run::run([ $dlock, 'run', '--url', $url, 'hosts', '--', 'echo', 'beside' ], '>', \$other, '2>', \$why);
is($? >> 8, 75, 'nobody else can have it');
is($other, '', 'nor runs beside it');
my $began = time;
PostgreSQL::Test::Utils::append_to_file("$dir/go", '');
IPC::Run::finish($run);
my $took = time - $began;
is($run->result(0), 7, 'the command ends, and its status is told');
# dlock tries to for 5 s, and leaves it to its deadline then
$standby->safe_psql('postgres', q{SELECT dlock_force_release('hosts')}) if $took >= 5;
is($standby->safe_psql('postgres', q{SELECT count(*) FROM dlock.locks WHERE name = 'hosts'}), 0, 'and the lease is given back there');

# there is none
my $alone = PostgreSQL::Test::Cluster->new('alone');
$standby->backup('backup');
$alone->init_from_backup($standby, 'backup', has_streaming => 1);
$alone->start;
$url = sprintf 'host=%s port=%s dbname=postgres', $alone->host, $alone->port;
$run = IPC::Run::start([ $dlock, 'run', '--url', $url, 'hosts', '--', 'true' ], '>', \$out, '2>', \$err, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
IPC::Run::finish($run);
is($run->result(0), 69, 'a standby alone is no server to ask');
like($err, qr/\Adlock: .*\(25006\): this server is a standby or read-only; .*target_session_attrs=read-write\n\z/, 'as is said, and what to do');
my $asked = sub { return scalar grep { /cannot execute dlock_acquire/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($alone->logfile) };
is($asked->(), 1, 'and it is asked once');
IPC::Run::run([ $dlock, qw(run --timeout 1 --url), $url, 'hosts', '--', 'true' ], '>', \$out, '2>', \$err);
is($? >> 8, 69, 'for --timeout it is asked for longer');
cmp_ok($asked->(), '>', 2, 'again and again');

# one that is promoted meanwhile
$run = IPC::Run::start([ $dlock, qw(run --wait 1h --url), $url, 'hosts', '--', 'sh', '-c', 'exit 9' ], '>', \$out, '2>', \$err);
IPC::Run::pump($run) until $err =~ /\n/ || !$run->pumpable;
like($err, qr/could not ask for "hosts", trying again: .*25006.*target_session_attrs/, 'one that waits says so');
$alone->promote;
IPC::Run::finish($run);
is($run->result(0), 9, 'and goes on when the server has become the primary');

$alone->stop;
$standby->stop;
done_testing();
