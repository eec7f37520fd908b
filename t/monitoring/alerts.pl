# The files in monitoring/ at work: Debian's exporters and its Prometheus, on loopback,
# watch a server of the kind that is the argument, with the account that README.md there
# makes.  On PostgreSQL both exporters do.
#
# The work of clients must arrive in Prometheus, as dlock.stats has it; each alert of
# rules.yml must be raised by its cause, and not without it; every metric that the
# dashboard and the rules name must be exported.
#
# Prometheus and the exporters ask every half second here, and the rules' times are
# shortened likewise; the rest of the files is as delivered.  Prometheus gives an exporter no
# longer than that to answer.  One that cannot reach its server takes longer, so it is asked
# less often then.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use File::Temp qw(tempdir);
use FreePorts;
use HTTP::Tiny;
use JSON::PP;
use POSIX qw(:sys_wait_h);
use Processes;
use Test::More;

# whose modules the tests for MySQL and MariaDB do without
BEGIN
{
	require PostgreSQL::Test::Cluster if $ARGV[0] eq 'postgres';
}

my ($kind) = @ARGV;
for my $program (qw(prometheus promtool prometheus-sql-exporter prometheus-postgres-exporter))
{
	plan skip_all => "there is no $program; Debian has it" unless -x "/usr/bin/$program";
}
my $postgres = $kind eq 'postgres';
my @exporters = $postgres ? ('sql', 'postgres') : ('sql');
my $dir = tempdir('dlXXXXXX', TMPDIR => 1, CLEANUP => 1);
my ($server_port, $prometheus_port, %port);
($server_port, $prometheus_port, @port{qw(sql postgres)}) = FreePorts::reserve(4);
my %instance = map { $_ => "127.0.0.1:$port{$_}" } keys %port;
my $http = HTTP::Tiny->new(timeout => 20);

sub slurp
{
	my ($path) = @_;
	open(my $file, '<:raw', $path) or die "could not open $path: $!\n";
	return join('', <$file>);
}

# Copy a file with changes, pairs of what is there and what is to be there instead.  That
# it is not there is an error, so that a file cannot drift away from the test.
sub copy_changed
{
	my ($path, $copy, @changes) = @_;
	my $text = slurp($path);
	while (my ($from, $to) = splice @changes, 0, 2)
	{
		$text =~ s/$from/$to/g or die "$path: there is no $from\n";
	}
	open(my $file, '>:raw', $copy) or die "could not open $copy: $!\n";
	print $file $text;
	close $file or die "could not write $copy: $!\n";
	return;
}

# ---------------------------------------------------------------------
# Processes, which end with the test.
# ---------------------------------------------------------------------

my %pids;

sub start
{
	my ($name, $environment, @command) = @_;
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		local %ENV = (%ENV, %$environment);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', "$dir/$name.log");
		open(STDERR, '>&', \*STDOUT);
		exec('setpriv', '--pdeathsig', 'TERM', @command) or POSIX::_exit(127);
	}
	$pids{$name} = $pid;
	return;
}

sub stop
{
	my ($name) = @_;
	my $pid = delete $pids{$name} // return;
	kill 'TERM', $pid;
	waitpid $pid, 0;
	return;
}

sub keep_logs
{
	return unless $ENV{TESTLOGDIR};
	system('cp', $_, $ENV{TESTLOGDIR} . "/$kind-" . s{.*/}{}r) for glob "$dir/*.log";
	return;
}

END
{
	my $status = $?;
	stop($_) for keys %pids;
	keep_logs() if $status;
	$? = $status;
}

# ---------------------------------------------------------------------
# Asking Prometheus.
# ---------------------------------------------------------------------

sub ask
{
	my ($path, %arguments) = @_;
	my $answer = $http->post_form("http://127.0.0.1:$prometheus_port/api/v1/$path", \%arguments);
	my $json = eval { decode_json($answer->{content}) } // {};
	return ($json->{data}, $json->{error} // "$answer->{status} $answer->{reason}");
}

# The series that an expression gives: their labels and values.
sub series
{
	my ($expression) = @_;
	my ($data, $error) = ask('query', query => $expression);
	die "$expression: $error\n" unless $data;
	return map { { %{ $_->{metric} }, value => $_->{value}[1] } } @{ $data->{result} };
}

# Of an exporter; undef if there is none.
sub value
{
	my ($expression, $exporter) = @_;
	my @series = series($expression);
	die "$expression gives " . @series . " series\n" if @series > 1;
	return @series ? $series[0]{value} : undef;
}

# Until Prometheus has it, of each exporter.
sub arrives
{
	my ($expected, $metric, $title) = @_;
	for my $exporter (@exporters)
	{
		my $got;
		Scenarios::Run::until(sub {
			$got = value("$metric\{instance=\"$instance{$exporter}\"}");
			return defined $got && $got == $expected;
		});
		is($got, $expected, "$title, by ${exporter}_exporter");
	}
	return;
}

sub firing
{
	my %firing;
	$firing{ $_->{alertname} }{ $_->{instance} } = 1 for series('ALERTS{alertstate="firing"}');
	return \%firing;
}

# The condition of an alert does not hold of what Prometheus has now.
sub is_quiet
{
	my ($alert, $title) = @_;
	my ($condition) = slurp("$dir/rules.yml") =~ /- alert: $alert\n +expr: (.+)\n/ or die "no condition of $alert\n";
	is_deeply([ series($condition) ], [], "$title does not raise $alert");
	return;
}

my %raised;

# An alert comes, of each of the exporters, or those that are named.
sub raises
{
	my ($alert, $title, @by) = @_;
	@by = @exporters unless @by;
	my $firing;
	ok(Scenarios::Run::until(sub {
		$firing = firing();
		return @by == grep { $firing->{$alert}{ $instance{$_} } } @by;
	}), "$title raises $alert") or diag(explain($firing));
	$raised{$alert} = 1;
	return;
}

# There are these alerts and no others.
sub are_raised
{
	my ($title, @alerts) = @_;
	my $firing;
	ok(Scenarios::Run::until(sub { $firing = firing(); return "@{[ sort keys %$firing ]}" eq "@{[ sort @alerts ]}" }), $title)
	  or diag(explain($firing));
	return;
}

sub ends
{
	my ($alert, $title) = @_;
	ok(Scenarios::Run::until(sub { !firing()->{$alert} }), "$title ends $alert");
	return;
}

# ---------------------------------------------------------------------
# The files by themselves.
# ---------------------------------------------------------------------

for my $command ('check config prometheus.yml', 'check rules rules.yml', 'test rules rules-test.yml')
{
	my $output = `cd monitoring && promtool $command 2>&1`;
	is($?, 0, "promtool $command") or diag($output);
}

my $rules = slurp('monitoring/rules.yml');
my @alerts = $rules =~ /^ +- alert: (\w+)$/mg;
my $operations = slurp('doc/operations.md');
for my $alert (@alerts)
{
	like($operations, qr/^\| `$alert` \|/m, "operations.md has $alert");
	like(slurp('monitoring/rules-test.yml'), qr/alertname: $alert\b/, "rules-test.yml tests $alert");
}

my $dashboard = decode_json(slurp('monitoring/dashboard.json'));
my @panels = @{ $dashboard->{panels} };
my %ids;
$ids{ $_->{id} }++ for @panels;
is(keys %ids, @panels, 'each panel of the dashboard has an id of its own');
is_deeply([ grep { !@{ $_->{targets} } || !$_->{title} || $_->{datasource}{uid} ne '${datasource}' } @panels ],
	[], 'each has a title, the data source that is chosen, and something to ask it');
my %cells;
for my $panel (@panels)
{
	my ($x, $y, $w, $h) = @{ $panel->{gridPos} }{qw(x y w h)};
	for my $row ($y .. $y + $h - 1) { $cells{"$_ $row"}++ for $x .. $x + $w - 1 }
}
is_deeply([ grep { $cells{$_} > 1 || !/^(?:\d|1\d|2[0-3]) / } keys %cells ], [], 'and a place of its own');
my @expressions = map { $_->{expr} } map { @{ $_->{targets} } } @panels;

# ---------------------------------------------------------------------
# The server, the account, the exporters, Prometheus.
# ---------------------------------------------------------------------

my $engine;
if ($postgres)
{
	$engine = Engines::start($kind);
	$server_port = $engine->{node}->port;
	# no worker before the first call
	$engine->{node}->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
	$engine->restart;
	# what only the account may look at then
	$engine->control->value('REVOKE SELECT ON dlock.stats, dlock.locks, dlock.waiters FROM PUBLIC');
}
else
{
	$engine = Engines::start($kind, '--skip-networking=0', '--bind-address=127.0.0.1', "--port=$server_port",
		'--skip-name-resolve', $kind eq 'mysql' ? '--mysqlx=OFF' : ());
}
my ($for_postgres, $for_mysql) = slurp('monitoring/README.md') =~ /^```sql\n(.*?)^```/msg;
$engine->control->value($postgres ? $for_postgres : $for_mysql);

my $address = "127.0.0.1:$server_port";
my $url = $postgres ? "postgres://dlock_monitor:secret\@$address/postgres?sslmode=disable"
  : "mysql://dlock_monitor:secret\@tcp($address)/?time_zone=%27%2B00%3A00%27";
my $sql_file = 'sql-exporter-' . ($postgres ? 'postgresql' : 'mysql') . '.yml';
my @at_once = $postgres ? (qr/interval '60 s'/ => q{interval '0 s'}) : (qr/seconds > 60/ => 'seconds > 0');
copy_changed("monitoring/$sql_file", "$dir/sql.yml",
	qr/interval: (?:15|60)s/ => 'interval: 500ms', @at_once);
copy_changed('monitoring/postgres-exporter.yml', "$dir/postgres.yml", qr/cache_seconds: 60/ => 'cache_seconds: 0',
	qr/interval '60 s'/ => q{interval '0 s'});

# Have Prometheus ask the exporters so often, and look so far back for what does not change.
sub configure_prometheus
{
	my ($interval, $window) = @_;
	copy_changed('monitoring/rules.yml', "$dir/rules.yml",
		qr/for: \d+m/ => 'for: 0s', qr/changes\(\w+\K\[\d+m\]/ => "[$window]", qr/> [26] \* 3600/ => '> 1', qr/> 120\b/ => '> 1');
	copy_changed('monitoring/prometheus.yml', "$dir/prometheus.yml",
		qr/evaluation_interval: 15s/ => 'evaluation_interval: 500ms',
		qr/scrape_interval: 15s/ => "scrape_interval: $interval",
		qr/127\.0\.0\.1:9237/ => $instance{sql},
		$postgres ? (qr/127\.0\.0\.1:9187/ => $instance{postgres}) : (qr/\n  - job_name: dlock-postgres-exporter.*/s => "\n"));
	return;
}
configure_prometheus('500ms', '6s');

sub start_sql_exporter
{
	start('sql_exporter', { DLOCK_CONNECTION => $url },
		'prometheus-sql-exporter', '-config.file', "$dir/sql.yml", '-web.listen-address', $instance{sql});
	return;
}
start_sql_exporter();
start('postgres_exporter', { DATA_SOURCE_NAME => $url },
	'prometheus-postgres-exporter', '--extend.query-path', "$dir/postgres.yml",
	'--disable-default-metrics', '--disable-settings-metrics',
	'--web.listen-address', $instance{postgres})
  if $postgres;
start('prometheus', {},
	'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data",
	"--web.listen-address=127.0.0.1:$prometheus_port", '--log.level=warn');

ok(Scenarios::Run::until(sub {
	return @exporters == grep {
		my $by = $_;
		my ($count) = eval { series("count({__name__=~\"dlock_leases_.+\", instance=\"$instance{$by}\"})") };
		$count;
	} @exporters;
}), 'figures of all exporters arrive') or BAIL_OUT('nothing arrives: ' . join('', map { slurp($_) } glob "$dir/*.log"));
arrives(0, 'dlock_server_launchers', 'no launcher before the first call') if $postgres;
are_raised('no alert is raised of a server that does nothing');

if ($postgres)
{
	my @series;
	Scenarios::Run::until(sub {
		@series = map { [ sort map { join(' ', map { $_ // '' } @$_{qw(__name__ server database le)}) }
				series("{__name__=~\"dlock_.+\", instance=\"$instance{$_}\"}") ] } @exporters;
		return @{ $series[0] } && "@{ $series[0] }" eq "@{ $series[1] }";
	});
	is_deeply($series[1], $series[0], 'both exporters export the same names, servers, databases and bounds');
}

# What is named and not exported.  Only PostgreSQL has workers.
my %exported;
my %without = map { $_ => 1 } $postgres ? () : qw(dlock_server_workers dlock_server_launchers);
my $elsewhere = $postgres ? qr/^$/ : qr/^pg_/;
for my $named (
	[ 'the dashboard', join("\n", @expressions, map { $_->{definition} // () } @{ $dashboard->{templating}{list} }) ],
	[ 'rules.yml', $rules =~ s/^ *(?:#|- alert|summary).*//mgr =~ s/"[^"]*"//gr ])
{
	my ($what, $text) = @$named;
	my %is;
	$is{$_} = 1 for $text =~ /\b((?:dlock|pg|sql)_(?!exporter\b)\w+)/g;
	ok(keys %is > 5, "$what names metrics");
	# an exporter that a busy machine did not let answer in time has none until it is asked again
	my @missing;
	Scenarios::Run::until(sub {
		$exported{ $_->{__name__} } = 1 for map { series("count by (__name__) ({instance=\"$_\"})") } values %instance;
		return !(@missing = grep { !$exported{$_} && !$without{$_} && !/$elsewhere/ } sort keys %is);
	});
	is_deeply(\@missing, [], "and what $what names is exported");
}
my @wrong;
for my $expression (@expressions)
{
	my $filled = $expression =~ s/\$__(?:rate_interval|range)\b/1m/gr =~ s/\$(?:server|database)\b/.*/gr;
	my ($data, $error) = ask('query', query => $filled);
	push @wrong, "$expression: $error" unless $data;
}
is_deeply(\@wrong, [], "the dashboard's expressions are such");

# ---------------------------------------------------------------------
# What clients do.
# ---------------------------------------------------------------------

my ($holder, $waiter) = map { $engine->client($_, 'tester') } 'holder', 'waiter';

sub until_free
{
	my ($name) = @_;
	ok(Scenarios::Run::until(sub { $waiter->value("SELECT dlock_is_free('$name')") eq $engine->boolean(1) }), 'a lease ends');
	return;
}

$holder->value(q{SELECT dlock_acquire('job', 'holder', 600)});
$holder->value(q{SELECT dlock_acquire('job', 'holder', 600)});
arrives(1, 'dlock_leases_held', 'a lease');
$waiter->send(q{SELECT dlock_acquire('job', 'waiter', 600, 300)});
arrives(1, 'dlock_stats_waiters', 'a waiter');
arrives(1, 'dlock_waiters_names', 'and that it waits for one name');
raises('DlockWaitsTooLong', 'a wait');
are_raised('and no other', 'DlockWaitsTooLong');
$holder->value(q{SELECT dlock_release('job', 'holder', NULL)}) for 1, 2;
like($waiter->outcome, qr/^\d{10,}$/, 'the waiter is served');
ends('DlockWaitsTooLong', 'being served');
arrives(0, 'dlock_stats_waiters', 'no waiter');
ok($waiter->value(q{SELECT dlock_release('job', 'waiter')}), 'it releases');

# The wait took more than a second, since its alert was raised.
my @waits = $engine->list($engine->control->value('SELECT wait_histogram FROM dlock.stats'));
my $sum = 0;
my @sums = map { $sum += $_ } @waits;
is($sum, 1, 'one wait is counted');
for my $exporter (@exporters)
{
	my $bounds = "dlock_wait_seconds_bucket{instance=\"$instance{$exporter}\"}";
	my @buckets;
	Scenarios::Run::until(sub {
		@buckets = sort { $a->{le} <=> $b->{le} } series($bounds);
		return @buckets && $buckets[-1]{value} == 1;
	});
	is_deeply([ map { $_->{value} } @buckets ], \@sums, "the histogram has it, by ${exporter}_exporter");
	is_deeply([ map { $_->{le} } @buckets ], [ (map { 2**$_ / 10000 } 0 .. 22), '+Inf' ], 'with bounds in seconds');
	my $half;
	Scenarios::Run::until(sub { return ($half) = series("histogram_quantile(0.5, $bounds)") });
	cmp_ok($half->{value}, '>', 0.8, 'half of the waits took longer');
}

# What the recipes do is no reason for alarm.  A leader is waited for all the time.
$holder->value(q{SELECT dlock_acquire('scheduler', 'holder', 600)});
$waiter->send(q{SELECT dlock_acquire('scheduler', 'waiter', 600, 300)});
sub has_waited
{
	my ($name) = @_;
	for my $exporter (@exporters)
	{
		ok(Scenarios::Run::until(sub { (value("dlock_waited_seconds{name='$name', instance='$instance{$exporter}'}") // 0) > 1 }),
			"one has waited for $name, by ${exporter}_exporter");
	}
	return;
}
has_waited('scheduler');
is_quiet('DlockWaitsTooLong', 'a wait for a leader');

# The leader is evicted: it renews in vain, and the one that waited leads.
is($engine->control->value(q{SELECT dlock_force_release('scheduler')}), 1, 'the leader is evicted');
like($waiter->outcome, qr/^\d{10,}$/, 'the next one leads');
is($holder->value(q{SELECT dlock_renew('scheduler', 'holder', 600)}), $engine->boolean(0), 'and the first one cannot renew');
arrives(1, 'dlock_stats_forced_total', 'an eviction');
arrives(1, 'dlock_stats_renewals_lost_total', 'a renewal in vain');
is_quiet('DlockRenewalsLost', 'an eviction');
$waiter->value(q{SELECT dlock_release('scheduler', 'waiter', NULL)});

# A nightly job is over soon, and keeps its name until the others have looked.
my $keeps = $postgres || $engine->control->value(q{SELECT COUNT(*) FROM mysql.func WHERE name = 'dlock_release_after'});
SKIP:
{
	skip 'there is no dlock_release_after', 1 unless $keeps;
	$holder->value(q{SELECT dlock_acquire('nightly-report', 'holder', 600)});
	is($holder->value(q{SELECT dlock_release_after('nightly-report', 'holder', 0.5)}), $engine->boolean(1), 'a nightly job gives its lease back');
	until_free('nightly-report');
	$waiter->value(q{SELECT dlock_acquire('nightly-report', 'waiter', 600)});
	$waiter->value(q{SELECT dlock_release('nightly-report', 'waiter', NULL)});
	arrives($engine->control->value('SELECT released FROM dlock.stats'), 'dlock_stats_released_total', 'its end');
	is_quiet('DlockHoldersDied', 'a nightly job that keeps its lease');
}
are_raised('there is no alert');

# One that hangs.
$holder->value(q{SELECT dlock_acquire('nightly-report', 'holder', 600)});
raises('DlockHeldTooLong', 'a job that hangs');
are_raised('and no other', 'DlockHeldTooLong');
$holder->value(q{SELECT dlock_release('nightly-report', 'holder', NULL)});
ends('DlockHeldTooLong', 'its end');

# a holder that dies, and comes too late; PostgreSQL's worker would remove its row soon, and so
# it does nothing until all has been counted
my $worker = 0;
ok(Scenarios::Run::until(sub {
	($worker) = map { $_->[0] } @{ $engine->control->query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker'})->{rows} };
	return $worker;
}), 'there is a worker') if $postgres;
Processes::stop_asleep($worker, 'Extension', sub { $engine->control->value($_[0]) }) if $worker;
$holder->value(q{SELECT dlock_acquire('short', 'late', 0.2)});
until_free('short');
is($holder->value(q{SELECT dlock_renew('short', 'late', 600)}), 'NULL', 'its holder renews too late');
raises('DlockRenewalsLost', 'that');
arrives(1, 'dlock_leases_dead', 'the row of a lease that is over');
raises('DlockDeadRowsStay', 'that it stays');
like($waiter->value(q{SELECT dlock_acquire('short', 'next', 600)}), qr/^\d{10,}$/, 'another holder has it');
raises('DlockHoldersDied', 'that');
ends('DlockDeadRowsStay', 'that');

# somebody waits for itself
$holder->value(q{SELECT dlock_acquire_permit('single', 'me', 600, 1)});
ok(defined $holder->query(q{SELECT dlock_acquire_permit('single', 'me', 600, 1, 300)})->{error}, 'a deadlock');
raises('DlockDeadlocks', 'that');
are_raised('there are no other alerts', qw(DlockRenewalsLost DlockHoldersDied DlockDeadlocks));

# More of most, so that no two counters are the same; then all as dlock.stats has them.
sub repeat
{
	my ($times, $client, $sql) = @_;
	$client->decided($sql) for 1 .. $times;
	return;
}
repeat(6, $holder, q{SELECT dlock_acquire_permit('single', 'me', 600, 1, 300)});
repeat(5, $waiter, q{SELECT dlock_acquire('single', 'you', 600)});
repeat(6, $waiter, q{SELECT dlock_acquire('single', 'you', 600, 0.001)});
repeat(7, $waiter, q{SELECT dlock_acquire('short', 'next', 600)});
repeat(9, $waiter, q{SELECT dlock_renew('short', 'next', 600)});
repeat(9, $waiter, q{SELECT dlock_renew('short', 'me', 600)});
repeat(1, $waiter, "SELECT dlock_acquire_shared('crowd', 'owner $_', 600)") for 1 .. 12;
$engine->control->value(q{SELECT dlock_force_release('crowd')});
$holder->value(q{SELECT dlock_acquire('brief', 'late', 0.001)});
until_free('brief');
$waiter->value(q{SELECT dlock_acquire('brief', 'next', 600)});
my @counters = qw(acquired reentered refused timed_out deadlocks released renewed renewals_lost expired reaped forced woken);
my $expected = $engine->control->query('SELECT ' . join(', ', @counters) . ' FROM dlock.stats')->{rows}[0];
my %expected;
@expected{@counters} = @$expected;
arrives($expected{$_}, "dlock_stats_${_}_total", "the count of $_") for @counters;
is_deeply(\%expected, {
	acquired => $keeps ? 24 : 22, reentered => 8, refused => 5, timed_out => 6, deadlocks => 7, released => $keeps ? 7 : 5, renewed => 9,
	renewals_lost => 11, expired => 2, reaped => 0, forced => 13, woken => 2 }, 'which is the same on all kinds of servers')
  or diag(explain(\%expected));
kill('CONT', $worker) if $worker;

# ---------------------------------------------------------------------
# What is wrong with the server.
# ---------------------------------------------------------------------

my $account = $postgres ? 'dlock_monitor' : q{'dlock_monitor'@'127.0.0.1'};
$engine->control->value("REVOKE SELECT ON dlock.locks FROM $account");
raises('DlockQueryFails', 'an account that may not look');
$engine->control->value("GRANT SELECT ON dlock.locks TO $account");
ends('DlockQueryFails', 'that it may');

$_->quit for $holder, $waiter;
# a launcher, and no place for a worker
$engine->{node}->append_conf('postgresql.conf', "max_worker_processes = 1\nmax_logical_replication_workers = 0")
  if $postgres;
$engine->tokens_left(1000);
$engine->control->value(q{SELECT dlock_acquire('last', 'me', 600)});
raises('DlockTokensNearEnd', 'a token near the end');
if ($postgres)
{
	raises('DlockWorkerGone', 'that no worker runs');
	my $launchers;
	Scenarios::Run::until(sub { defined($launchers = value("dlock_server_launchers{instance=\"$instance{sql}\"}")) });
	is($launchers, 1, 'though the launcher does');
}

if (!$postgres)
{
	# sql_exporter waits for it, and goes on giving the old figures
	my $pid = $engine->pid;
	kill 'STOP', $pid;
	raises('DlockServerUnreachable', 'a server that hangs');
	my $failed;
	Scenarios::Run::until(sub { defined($failed = value('sql_exporter_last_scrape_failed{query="dlock_stats"}')) });
	is($failed, 0, 'of which sql_exporter knows nothing');
	kill 'CONT', $pid;
	ends('DlockServerUnreachable', 'that it goes on');
}
configure_prometheus('5s', '1m');
kill 'HUP', $pids{prometheus};
ok(Scenarios::Run::until(sub {
	my $rules = $http->get("http://127.0.0.1:$prometheus_port/api/v1/rules")->{content};
	my $config = $http->get("http://127.0.0.1:$prometheus_port/api/v1/status/config")->{content};
	return $rules =~ /dlock_stats_read_seconds\[1m\]/ && $config =~ /scrape_interval: 5s/;
}), 'Prometheus asks less often, and has more patience');
ends('DlockServerUnreachable', 'that');
$engine->stop;
raises('DlockServerUnreachable', 'a server that is down');
stop('sql_exporter');
raises('DlockExporterDown', 'an exporter that is down', 'sql');

is_deeply([ sort keys %raised ], [ sort grep { $postgres || $_ ne 'DlockWorkerGone' } @alerts ], 'each alert was raised');
done_testing();
