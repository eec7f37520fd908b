# A package replaces the library while the server runs, which did not preload it.  With the
# same layout of shared memory, old and new sessions go on together, also under load; with
# another one new sessions are refused, and nothing is corrupted.  A server whose library was
# removed starts.

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
# the library that is tested, and one of another layout, built with a server of its own
chomp(my $tested = `pg_config --pkglibdir`);
my ($bin) = do
{
	local $ENV{COPT} = join ' ', grep { defined } $ENV{COPT}, '-DLEASE_AREA_LAYOUT=1000000';
	run_command([ "$FindBin::RealBin/../dev/overlay", $ENV{PG_CONFIG} // 'pg_config', "$dir/server" ]);
};
die "could not build\n" unless $bin;
chomp(my $folder = `'$bin/pg_config' --pkglibdir`);
copy("$tested/dlock.so", "$dir/same.so") or die $!;
copy("$folder/dlock.so", "$dir/other.so") or die $!;

# As a package does: the old file stays for those who have it mapped.
sub replace
{
	my ($library) = @_;
	copy($library, "$folder/dlock.so.new") or die "could not copy $library: $!\n";
	chmod 0755, "$folder/dlock.so.new";
	rename("$folder/dlock.so.new", "$folder/dlock.so") or die "could not rename: $!\n";
	return;
}

$ENV{PATH} = "$bin:$ENV{PATH}";
replace("$dir/same.so");
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
dlock.reap_interval = '50ms'
restart_after_crash = on
log_min_messages = debug1
});
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION dlock; CREATE TABLE held (name text, i int);
	INSERT INTO held SELECT 'name ' || i, 0 FROM generate_series(1, 3) i});
my $sessions = Sessions->new($node);
my ($old) = $sessions->open('old');
$old->query(q{SELECT dlock_acquire('kept', 'old', 3600)});

# Under load: each counts what it does under a lease; none is lost.
my $script = "$dir/cycle.sql";
append_to_file($script, q{
\set n random(1, 3)
SELECT dlock_acquire('name ' || :n, 'client ' || :client_id || ' ' || pg_backend_pid(), 60, -1);
UPDATE held SET i = i + 1 WHERE name = 'name ' || :n;
SELECT dlock_release('name ' || :n, 'client ' || :client_id || ' ' || pg_backend_pid());
});
my $transactions = 200;
my @load = ('pgbench', '-n', '-C', '-c', '4', '-t', $transactions, '-f', $script, $node->connstr('postgres'));
my $out = '';
my $load = IPC::Run::start(\@load, '>', \$out, '2>', \$out);
for (1 .. 20)
{
	replace("$dir/same.so");
	$node->safe_psql('postgres', q{SELECT dlock_acquire('new', 'new', 60) > 0, dlock_release('new', 'new')});
}
ok($load->finish, 'a library of the same layout is put in place under load') or diag $out;
is($node->safe_psql('postgres', 'SELECT sum(i) FROM held'), 4 * $transactions, '... and every cycle was done');
is($old->query(q{SELECT dlock_owner('kept')}), 'old', 'an old session goes on');
is($node->safe_psql('postgres', q{SELECT dlock_acquire('kept', 'new', 60) IS NULL}), 't', '... and a new one sees its lease');

# Another layout.
replace("$dir/other.so");
for my $statement (q{SELECT dlock_acquire('kept', 'new', 60)}, 'SELECT count(*) FROM dlock.locks', 'DROP EXTENSION dlock')
{
	my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
	like($error, qr/ERROR:  55000: the dlock library of this session cannot be used with this server's shared memory/, "another layout: $statement");
	like($error, qr/HINT:  Restart the server\. Sessions from before go on\./, '... says what to do');
}
is($old->query(q{SELECT dlock_owner('kept'), dlock_acquire('more', 'old', 60) > 0}), 'old|t', 'an old session still goes on');
is($old->query(q{SELECT dlock_acquire('brief', 'old', 0.01) > 0}), 't', '... and so does its worker');
is($sessions->until(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'dlock worker'}, 1), 1, '... which is there');

# A launcher that cannot start is started again by the server; calls put none beside it.
sub launchers
{
	my ($what, $offset) = @_;
	return scalar(() = slurp_file($node->logfile, $offset // 0) =~ /\Q$what\E "dlock launcher"/g);
}
my $offset = -s $node->logfile;
is($old->query(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'dlock launcher'}), 't', 'the launcher is ended');
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
	$old->query(q{SELECT dlock_acquire('more', 'old', 60)});
	return launchers('starting background worker process', $offset) >= 3;
}), '... started again and again, in vain');
is(launchers('registering background worker'), 1, '... and there is one');
$node->restart;
is($node->safe_psql('postgres', q{SELECT dlock_owner('kept'), dlock_acquire('kept', 'new', 60) IS NULL}), 'old|t', 'a restart puts it in use');

# And back, as after a downgrade: the session's library is the older one.
replace("$dir/same.so");
my ($status, undef, $error) = $node->psql('postgres', q{SELECT dlock_owner('kept')});
like($error, qr/HINT:  Connect again\./, 'an older library than the shared memory');
$node->restart;
is($node->safe_psql('postgres', q{SELECT dlock_owner('kept')}), 'old', '... works after a restart');

# The package is removed: the server recovers and starts, and only calls of dlock fail.
$node->safe_psql('postgres', q{SELECT dlock_acquire('later', 'old', 3600)});
rename("$folder/dlock.so", "$dir/gone.so") or die "could not rename: $!\n";
$node->stop('immediate');
$node->start;
($status, undef, $error) = $node->psql('postgres', q{SELECT dlock_owner('kept')});
like($error, qr/could not access file "\$libdir\/dlock": No such file/, 'no library: the server starts, and a call says what is missing');
$node->safe_psql('postgres', 'CREATE TABLE other (i int)');
replace("$dir/gone.so");
is($node->safe_psql('postgres', q{SELECT dlock_owner('kept'), dlock_owner('later')}), 'old|old', '... and once it is there all is as it was');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC/, 'no process has crashed');

done_testing();
