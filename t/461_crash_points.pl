# A process, or the whole server, dies at each step of every change to more than
# one page: a split, an overflow page, the free list, the directory, the start
# of a table.  The steps are the points of pg_extension/lease_crash.h, which exist
# only in the library that this test builds for itself.
#
# After each crash every acknowledged lease is there, as it was answered, nothing is
# there that nobody asked for, and the pages make up a sound table: every page is used
# for one thing.  The first walk over the table finds the pages that a crash left
# unused, and they are used again.  A standby follows all the while.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib $FindBin::RealBin;
use CrashPoints;
use IPC::Run;
use LeasePages;
use List::Util qw(max);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Processes;
use Test::More;
use Time::HiRes qw(usleep);

my $tree = "$FindBin::RealBin/..";

# ----------------------------------------------------------------
# The points, and the library that has them
# ----------------------------------------------------------------

my @points = slurp_file("$tree/pg_extension/lease_crash.h") =~ /^ \*\t"(.+?)"/mg;
is(join("\n", sort map { slurp_file($_) =~ /\bDLOCK_CRASH_POINT\("(.+?)"\)/g } glob "$tree/pg_extension/*/*.c"),
	join("\n", sort @points), 'each point is in one place of the sources, and in the list');

sub library
{
	my ($pg_config) = @_;
	my ($dir) = run_command([ $pg_config, '--pkglibdir' ]);
	return slurp_file("$dir/dlock.so");
}

my $bin = CrashPoints::build();
my $trace = qr/dlock\.crash_point|dlock dies/;
like(library("$bin/pg_config"), $trace, 'the library built for this test has crash points');
unlike(library('pg_config'), $trace, 'the one that is installed has none');

# ----------------------------------------------------------------
# The server, and its death
# ----------------------------------------------------------------

my @cluster = (install_path => $bin =~ s{/bin$}{}r);
my $node = PostgreSQL::Test::Cluster->new('main', @cluster);
$node->init(allows_streaming => 1);

# Without a worker nothing is changed by anybody but the calls below.  The check
# of replayed pages is made in each crash recovery too.
$node->append_conf(
	'postgresql.conf', q{
restart_after_crash = on
wal_consistency_checking = 'all'
wal_retrieve_retry_interval = '100ms'
wal_keep_size = '1GB'
shared_buffers = '8MB'
max_worker_processes = 1
max_logical_replication_workers = 0
autovacuum = off
log_statement = none
});
start_server();
$node->safe_psql('postgres', $_) for 'CREATE EXTENSION dlock', 'CREATE DATABASE fresh TEMPLATE template0', 'CREATE DATABASE origin TEMPLATE template0';
$node->safe_psql('origin', 'CREATE EXTENSION dlock');
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby', @cluster);
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
my $data_dir = abs_path($node->data_dir);

# The processes of the server, whoever their parent is by now.
sub processes
{
	return map { m{(\d+)} } grep { (readlink($_) // '') eq $data_dir } glob '/proc/[0-9]*/cwd';
}

sub poll
{
	my ($complaint, $done) = @_;
	my $attempts = 0;
	until ($done->())
	{
		die "$complaint\n" if $attempts++ > 100 * $PostgreSQL::Test::Utils::timeout_default;
		usleep(10_000);
	}
	return;
}

my %activated;    # databases whose table this run of the server has used

sub answers { return Processes::answers($node) }

# Start the server as our own child.  As that of init, which pg_ctl makes of it,
# it would after its death hold up the next one until init takes notice, which
# takes some a second.
sub start_server
{
	my $pid = fork // die "could not fork: $!\n";
	if ($pid == 0)
	{
		local %ENV = $node->_get_env();
		POSIX::setsid();
		open STDIN, '<', '/dev/null' or POSIX::_exit(1);
		open STDOUT, '>>', $node->logfile or POSIX::_exit(1);
		open STDERR, '>&', \*STDOUT or POSIX::_exit(1);
		exec "$bin/postgres", '-D', $node->data_dir or POSIX::_exit(1);
	}
	poll('the server does not start', \&answers);
	$node->_update_pid(1);
	return;
}

# See the server through a crash of a backend, or its own.
sub recover
{
	my ($server, $since) = @_;

	%activated = ();
	if ($server)
	{
		my $postmaster = Processes::postmaster($node);
		$node->kill9;
		poll('processes outlive kill -9', sub {
				my @left = processes();
				kill 'KILL', @left;
				waitpid $postmaster, POSIX::WNOHANG;
				return !@left && !kill 0, $postmaster;
			});
		start_server();
		return;
	}
	poll('the server does not notice', sub {
			slurp_file($node->logfile, $since) =~ /all server processes terminated; reinitializing/ });
	poll('the server does not come back', \&answers);
	return;
}

# ----------------------------------------------------------------
# What was asked for, and what was told
# ----------------------------------------------------------------

# What is known of the leases in a database, by name and owner:
#   held      acknowledged, so must be there
#   loose     released since the last durable answer, or not answered: may be
#   fleeting  expired: may be, until somebody removes the row
# with whether it was given back with effect later: 1, or 0, or without an answer either, ''.
# And the largest token of each name.
my %state;
sub forget
{
	my ($db) = @_;
	return $state{$db} = { db => $db, held => {}, loose => {}, fleeting => {}, largest => {} };
}
forget($_) for qw(postgres fresh origin);

my @wrong;        # found in this trial
my %figures = (crashes => 0, leases => 0, answers => 0, unused => 0, most_unused => 0);

sub long
{
	my ($text, $length) = @_;
	return $text . 'x' x ($length - length $text);
}

# Operations: what to call, and which leases that concerns.
sub take
{
	my ($name, $owner, %more) = @_;
	my $mode = $more{shared} ? 'shared' : 'exclusive';
	my $function = $more{shared} ? 'dlock_acquire_shared' : 'dlock_acquire';
	my $ttl = $more{fleeting} ? 0.001 : 3600;
	my $request = $more{request} ? ", 0, '$more{request}'" : '';
	return { kind => 'take', leases => [ [ $name, $owner, $mode ] ], fleeting => $more{fleeting},
		sql => "$function('$name', '$owner', $ttl$request)" . ($more{after} // '') };
}

sub take_all
{
	my ($owner, @names) = @_;
	return { kind => 'take', leases => [ map { [ $_, $owner, 'exclusive' ] } @names ],
		sql => "dlock_acquire_all(ARRAY['" . join(q{', '}, @names) . "'], '$owner', 3600)" };
}

sub take_any
{
	my ($owner, @names) = @_;
	return { kind => 'take', leases => [ map { [ $_, $owner, 'exclusive' ] } @names ],
		sql => "(SELECT array_agg(token) FROM dlock_acquire_any(ARRAY['" . join(q{', '}, @names) . "'], '$owner', 3600, 1000))" };
}

sub release_many
{
	my ($owner, @names) = @_;
	return { kind => 'give', answer => scalar @names, leases => [ map { [ $_, $owner ] } @names ],
		sql => "(SELECT count(*) FROM dlock_release_many(ARRAY['" . join(q{', '}, @names) . "'], '$owner'))" };
}

sub give
{
	my ($name, $owner, @also) = @_;
	return { kind => 'give', answer => 't', leases => [ [ $name, $owner ] ], also => \@also,
		sql => "dlock_release('$name', '$owner')" };
}

# With effect later, when all this is over.
sub leave
{
	my ($name, $owner) = @_;
	return { kind => 'leave', answer => 't', durable => 1, leases => [ [ $name, $owner ] ], sql => "dlock_release_after('$name', '$owner', 7200)" };
}

# The leases of a database for which a test is true, as [name, owner].
sub held
{
	my ($state, $test) = @_;
	return map { [ $_->{name}, $_->{owner} ] } grep { $test->() }
	  map { $state->{held}{$_} } sort keys %{ $state->{held} };
}

sub evict
{
	my ($state, $name) = @_;
	my @leases = held($state, sub { $_->{name} eq $name });
	return { kind => 'give', answer => scalar @leases, leases => \@leases, durable => 1,
		sql => "dlock_force_release('$name')" };
}

sub release_all
{
	my ($state, $owner) = @_;
	my @leases = held($state, sub { $_->{owner} eq $owner });
	return { kind => 'give', answer => scalar @leases, leases => \@leases, sql => "dlock_release_all('$owner')" };
}

sub renew_all
{
	my ($state, $owner) = @_;
	return { kind => 'other', answer => scalar(held($state, sub { $_->{owner} eq $owner })), leases => [],
		sql => "dlock_renew_all('$owner', 3600)" };
}

# Take in the answer to an operation.
sub learn
{
	my ($state, $op, $answer) = @_;

	$figures{answers}++;
	if ($op->{kind} ne 'take')
	{
		push @wrong, "$op->{sql} answers \"$answer\"" if defined $op->{answer} && $answer ne $op->{answer};
		for my $lease (@{ $op->{leases} })
		{
			my $key = "$lease->[0]|$lease->[1]";
			if ($op->{kind} eq 'leave') { $state->{held}{$key}{leaving} = 1 }
			else { $state->{loose}{$key} = delete $state->{held}{$key} }
		}
		$state->{loose} = {} if $op->{durable};
		return;
	}
	my @tokens = $answer =~ /\d+/g;
	push @wrong, "$op->{sql} answers \"$answer\"" if @tokens != @{ $op->{leases} };
	for my $lease (@{ $op->{leases} })
	{
		my ($name, $owner, $mode) = @$lease;
		my $token = shift @tokens or next;
		push @wrong, "token $token of $name after $state->{largest}{$name}"
		  if $token <= ($state->{largest}{$name} // 0);
		$state->{largest}{$name} = $token;
		$state->{ $op->{fleeting} ? 'fleeting' : 'held' }{"$name|$owner"} =
		  { name => $name, owner => $owner, mode => $mode, token => $token, leaving => 0 };
	}
	$state->{loose} = {};
	return;
}

# An operation has no answer: it may have been done, in part too if it
# concerns several leases.
sub leave_open
{
	my ($state, $op) = @_;

	for my $lease (@{ $op->{leases} }, @{ $op->{also} // [] })
	{
		my ($name, $owner, $mode) = @$lease;
		if ($op->{kind} eq 'leave')
		{
			$state->{held}{"$name|$owner"}{leaving} = '';
			next;
		}
		$state->{ $op->{fleeting} ? 'fleeting' : 'loose' }{"$name|$owner"} =
		  delete $state->{held}{"$name|$owner"} // { name => $name, owner => $owner, mode => $mode };
	}
	return;
}

# Run operations in a session of their own; with a point, until it dies there.
my $scripts = PostgreSQL::Test::Utils::tempdir();
sub run
{
	my ($state, $ops, %die) = @_;
	my $since = -s $node->logfile;
	my $script = '';
	my ($out, $error) = ('', '');

	$script .= "SET dlock.crash_point = '$die{point}';\nSET dlock.crash_pass = $die{pass};\n"
	  . ($die{server} ? "SET dlock.crash_server = on;\nSET dlock.crash_flush = on;\n" : '')
	  if $die{point};
	$script .= $_->{statement} ? "$_->{statement};\n\\echo answer|\n" : "SELECT 'answer', $_->{sql};\n" for @$ops;
	unlink "$scripts/run.sql";
	append_to_file("$scripts/run.sql", $script);
	IPC::Run::run(
		[ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($state->{db}), '-f', "$scripts/run.sql" ],
		'<', '/dev/null', '>', \$out, '2>', \$error);
	my $status = $? >> 8;

	my @left = @$ops;
	learn($state, shift @left, $_) for map { s/^answer\|//r } grep { /^answer\|/ } split /\n/, $out;
	if ($status == 0)
	{
		$activated{ $state->{db} } = 1;
		push @wrong, scalar(@left) . ' calls without an answer' if @left;
		push @wrong, 'the point is not reached' if $die{point};
		return;
	}
	leave_open($state, $left[0]) if @left;
	# killed by ourselves, and only so
	my $log = slurp_file($node->logfile, $since);
	die "a session failed: $error"
	  unless $status == 2 && $die{point} && $log =~ /^dlock dies at "\Q$die{point}\E", pass $die{pass}$/m;
	$figures{crashes}++;
	recover($die{server}, $since);
	$log = slurp_file($node->logfile, $since);
	push @wrong, $1 if $log =~ /^(.*(?:PANIC:|TRAP:|inconsistent page).*)/m;
	return 1;
}

# ----------------------------------------------------------------
# What is there
# ----------------------------------------------------------------

# Hold the lock table against what is known, and take it for true afterwards.
# Returns how many rows there are.
sub check_leases
{
	my ($state) = @_;
	my %found;
	my %sharing;
	my @rows = split /\n/, $node->safe_psql($state->{db},
		'SELECT name, owner, mode, version, token, leaving::integer FROM dlock_private.lease_table');

	for my $row (@rows)
	{
		my ($name, $owner, $mode, $version, $token, $leaving) = split /\|/, $row;
		my $key = "$name|$owner";
		my $known = $state->{held}{$key} // $state->{loose}{$key};
		my $title = substr($name, 0, 20) . ' of ' . substr($owner, 0, 20);

		if (!$known)
		{
			push @wrong, "$title was not asked for" unless $state->{fleeting}{$key};
			next;
		}
		push @wrong, "$title is there twice" if $found{$key};
		push @wrong, "$title is $mode" if $mode ne $known->{mode};
		push @wrong, "$title has $version holds" if $version != 1;
		push @wrong, "$title is " . ('held', 'left')[$leaving] if ($known->{leaving} // $leaving) !~ /^$leaving?$/;
		push @wrong, "$title has token $token" if $token != ($known->{token} // $token);
		push @wrong, "$title has token $token, after $state->{largest}{$name}"
		  if !$known->{token} && $token <= ($state->{largest}{$name} // 0);
		push @wrong, "$title has company" if $sharing{$name} && "$sharing{$name} $mode" ne 'shared shared';
		$sharing{$name} = $mode;
		$found{$key} = { name => $name, owner => $owner, mode => $mode, token => $token, leaving => $leaving };
	}
	push @wrong, map { substr($_, 0, 20) . ' is lost' } grep { !$found{$_} } sort keys %{ $state->{held} };
	$figures{leases} += keys %{ $state->{held} };

	$state->{held} = \%found;
	$state->{loose} = {};
	$_->{token} > ($state->{largest}{ $_->{name} } // 0) and $state->{largest}{ $_->{name} } = $_->{token}
	  for values %found;

	# asked by name, as the trie has it, the answers are the same
	my %there = map { $_->{name} => 1 } values %found, values %{ $state->{fleeting} };
	my @gone = grep { !$there{$_} } sort keys %{ $state->{largest} };
	splice @gone, 100 if @gone > 100;
	my $gone = join ', ', map { "('$_')" } @gone, 'never';
	my $columns = 'name, owner, mode, version, token, leaving';
	my $by_name = 'SELECT h.name, h.owner, h.mode, h.version, h.token, h.leaving'
	  . ' FROM (SELECT DISTINCT name FROM dlock_private.lease_table) n, LATERAL dlock_holders(n.name) h';
	my $differ = $node->safe_psql(
		$state->{db}, qq{
		SELECT (SELECT count(*) FROM dlock_private.lease_table
				WHERE mode = 'exclusive' AND expires_at > clock_timestamp()
					AND dlock_owner(name) IS DISTINCT FROM owner),
			(SELECT count(*) FROM (SELECT $columns FROM dlock.locks EXCEPT ALL ($by_name)) a),
			(SELECT count(*) FROM (($by_name) EXCEPT ALL SELECT $columns FROM dlock.locks) a),
			(SELECT count(*) FROM (VALUES $gone) v (name)
				WHERE dlock_owner(name) IS NOT NULL OR NOT dlock_is_free(name))});
	push @wrong, "a scan and single names do not agree: $differ" if $differ ne '0|0|0|0';
	return scalar @rows;
}

use constant {
	ENTRIES => 2000,    # of a directory page
	DIRECTORY_PAGES => 1049,
	MAX_DEPTH => 21,
};

sub image
{
	my ($db) = @_;
	$node->safe_psql($db, 'CHECKPOINT');
	return read_image(table_file($node, $db));
}

# Read the pages of a table, and complain of all that does not fit.  Returns
# how many there are of each kind, and how many entries on them.
sub check_pages
{
	my ($image) = @_;
	my @pages = pages_of($image);
	my $blocks = @pages;
	my %count = (blocks => $blocks, map { $_ => 0 } qw(unused directory bucket overflow free empty entries));
	my @kind = (0) x $blocks;
	my @special;
	my $complain = sub { push @wrong, "block $_[0]: $_[1]" };

	for my $block (0 .. $blocks - 1)
	{
		if ($pages[$block] !~ /[^\0]/)
		{
			$count{unused}++;
			next;
		}
		my ($lower, $upper) = map { field(\$image, $block, $_) } qw(lower upper);
		my %special = map { ($_ => field(\$image, $block, $_)) } qw(mark bucket next chain depth kind);
		$special[$block] = \%special;
		$kind[$block] = $special{kind};
		$complain->($block, "kind $special{kind}")
		  if $special{kind} < META || $special{kind} > FREE || ($special{kind} == META) != ($block == 0);
		$complain->($block, 'the hole is not zero') if substr($pages[$block], $lower, $upper - $lower) =~ /[^\0]/;
		my $name = (undef, undef, 'directory', 'bucket', 'overflow', 'free')[ $special{kind} ];
		$count{$name}++ if $name;
	}
	return \%count if $count{unused} == $blocks;
	if ($kind[0] != META || ($kind[1] // 0) != BUCKET)
	{
		$complain->(0, 'no metapage, or no root');
		return \%count;
	}

	# what refers to each page
	my %use = (0 => 1, 1 => 1);
	my ($depth, $floor, $free) = map { field(\$image, 0, $_) } qw(meta_depth floor free_head);
	my @directory = map { field(\$image, 0, 'directory', $_) } 0 .. DIRECTORY_PAGES - 1;
	my %block_of = (0 => 1);
	for my $index (grep { $directory[$_] } 0 .. $#directory)
	{
		my $block = $directory[$index];
		$use{$block}++;
		if (($kind[$block] // 0) != DIRECTORY || $special[$block]{bucket} != $index)
		{
			$complain->($block, "is not directory page $index");
			next;
		}
		my @entries = unpack 'L<' . ENTRIES, substr $pages[$block], CONTENTS;
		for my $place (grep { $entries[$_] } 0 .. $#entries)
		{
			$use{ $entries[$place] }++;
			$block_of{ $index * ENTRIES + $place } = $entries[$place];
		}
	}

	# the buckets share out all hashes
	my %depth_of;
	my $shared_out = 0;
	for my $number (sort { $a <=> $b } keys %block_of)
	{
		my $block = $block_of{$number};
		if (($kind[$block] // 0) != BUCKET || $special[$block]{bucket} != $number)
		{
			$complain->($block, "is not bucket $number");
			next;
		}
		$depth_of{$number} = $special[$block]{depth};
		$shared_out += 2**-$depth_of{$number};
	}
	$complain->(0, "the buckets have $shared_out of all hashes") if $shared_out != 1;
	$complain->(0, "the depth is $depth") if $depth != max values %depth_of;
	for my $number (keys %depth_of)
	{
		for my $less (0 .. $depth_of{$number} - 1)
		{
			my $above = $number & (1 << $less) - 1;
			$complain->($block_of{$number}, "bucket $number is in bucket $above")
			  if ($depth_of{$above} // NO_BLOCK) == $less;
		}
	}

	# chains, and the entries on them
	for my $number (keys %depth_of)
	{
		my $head = $special[ $block_of{$number} ];
		my ($mask, $hash) = ((1 << $head->{depth}) - 1, $number);
		my %seen;
		for (my $block = $block_of{$number}; $block != NO_BLOCK; $block = $special[$block]{next})
		{
			last if $seen{$block}++;
			if ($block != $block_of{$number})
			{
				$use{$block}++;
				if (($kind[$block] // 0) != OVERFLOW || $special[$block]{chain} != $head->{chain})
				{
					$complain->($block, "is not on the chain of bucket $number");
					last;
				}
				($mask, $hash) = ((1 << MAX_DEPTH) - 1, $head->{chain});
				$complain->($block, 'chain of another bucket')
				  if ($hash & (1 << $head->{depth}) - 1) != $number;
			}
			my $lower = field(\$image, $block, 'lower');
			my @used = grep { $_ >> 15 & 3 } unpack '(L<)*', substr $pages[$block], CONTENTS, $lower - CONTENTS;
			$count{empty}++ if !@used && $kind[$block] == OVERFLOW;
			$count{entries} += @used;
			for my $pointer (@used)
			{
				my ($entry_hash, $token) = unpack 'L<x4Q<', substr $pages[$block], $pointer & 0x7fff, 16;
				$complain->($block, 'an entry of another bucket') if ($entry_hash & $mask) != $hash;
				$complain->($block, "token $token is above mark and floor") if $token > max($head->{mark}, $floor);
			}
		}
	}

	# the free list
	my %seen;
	for (; $free != NO_BLOCK; $free = $special[$free]{next})
	{
		$use{$free}++;
		last if $seen{$free}++;
		next if ($kind[$free] // 0) == FREE;
		$complain->($free, 'is in the free list');
		last;
	}

	for my $block (0 .. $blocks - 1)
	{
		my $uses = $use{$block} // 0;
		$complain->($block, "of kind $kind[$block], is used $uses times") if $uses != ($kind[$block] ? 1 : 0);
	}
	return \%count;
}

# Check a database.  "most_unused": how many pages may be there that a
# process added and did not come to use.
sub check
{
	my ($state, %params) = @_;
	my $rows = check_leases($state);
	my $count = check_pages(image($state->{db}));

	push @wrong, "$count->{entries} entries, $rows rows" if $count->{entries} != $rows && !$params{copied};
	push @wrong, "$count->{unused} pages are unused" if $count->{unused} > $params{most_unused};
	return $count;
}

# A walk over the table after a crash, as the worker makes one, leaves no page
# unused or empty.
sub settle
{
	my ($state) = @_;

	run($state, [ release_all($state, 'nobody') ]);
	my $count = check($state, most_unused => 0);
	push @wrong, "$count->{empty} overflow pages are empty" if $count->{empty} > 0;
	return $count;
}

# ----------------------------------------------------------------
# Ways to a point: each prepares a database, and returns what it knows of it and
# the operations that come by the point
# ----------------------------------------------------------------

my $main = $state{postgres};
my $serial = 0;

# Names, owners and requests so long that ten fill a page.
sub fill
{
	my ($count, $batch) = @_;
	return map { take(long("fill $batch $_ ", 240), long("owner $_ ", 240), request => long('r', 200)) } 1 .. $count;
}

# So many more who share the name.
my $crowd_serial = 0;
sub join_crowd
{
	my ($count) = @_;
	return map { take('crowd', long("reader $_ ", 240), shared => 1) }
	  map { ++$crowd_serial } 1 .. $count;
}
my $page_of_crowd = 27;    # more than fit on one

# Names whose hashes agree in the last 14 bits.  When their bucket is split by the 15th
# it needs a directory page that is not there, and no other call of this has asked for.
# Which are there depends on the seed: the crowd's bucket is split until no other name
# is in it.
my %deepened;
sub deep
{
	my $image = image('postgres');
	my $seed = field(\$image, 0, 'seed');
	my ($index) = grep { !$deepened{$_} && !field(\$image, 0, 'directory', $_) } 9 .. 15;
	$deepened{$index} = 1;
	my $bits = $index * ENTRIES - 16384;
	my @names = split /\n/, $node->safe_psql(
		'postgres', qq{
		SELECT 'deep ' || i FROM generate_series(1, 800000) i
		WHERE hashtextextended('deep ' || i, '$seed') & 16383 = $bits LIMIT 20});
	return map { take($_, long('deep owner ', 240), request => long('r', 200)) } @names;
}

# The table of the other database anew.
sub create_fresh
{
	$node->safe_psql('fresh', 'DROP EXTENSION IF EXISTS dlock; CREATE EXTENSION dlock');
	return forget('fresh');
}

# One who waits until the server dies.
sub start_waiter
{
	my ($name, $owner) = @_;
	my $waiter = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', "SELECT dlock_acquire('$name', '$owner', 3600, -1)" ],
		'<', '/dev/null', '>', \my $out, '2>', \my $error);
	$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM dlock.waiters') or die 'nobody waits';
	$main->{waiter} = [ $waiter, \$out ];
	return;
}

my %ways = (
	creation => sub {
		return (create_fresh(), take('first', 'me'));
	},
	start => sub {
		$node->restart if $activated{postgres};
		%activated = ();
		return ($main, take('start ' . ++$serial, 'me'));
	},
	fill => sub {
		settle($main);
		return ($main, fill(120, ++$serial));
	},
	deep => sub {
		my $count = settle($main);
		if (!$count->{free})
		{
			run($main, [ join_crowd(3 * $page_of_crowd) ]);
			run($main, [ evict($main, 'crowd') ]);
		}
		return ($main, deep());
	},
	compaction => sub {
		settle($main);
		my $every = 0;
		run($main, [ map { give(@$_) } held($main, sub { $_->{name} =~ /^fill/ && $every++ % 2 }) ]);
		return ($main, fill(300, ++$serial));
	},
	overflow => sub {
		my $count = settle($main);
		return ($main, join_crowd($page_of_crowd * (4 + $count->{free})));
	},
	reuse => sub {
		settle($main);
		run($main, [ join_crowd(4 * $page_of_crowd) ]);
		run($main, [ evict($main, 'crowd') ]);
		return ($main, join_crowd(4 * $page_of_crowd));
	},
	eviction => sub {
		settle($main);
		run($main, [ join_crowd(4 * $page_of_crowd) ]);
		return ($main, evict($main, 'crowd'));
	},
	expiry => sub {
		settle($main);
		my @names = map { "short $serial $_" } 1 .. 5;
		$serial++;
		run($main, [ (map { take($_, 'me', fleeting => 1) } @names),
				{ kind => 'other', leases => [], sql => 'pg_sleep(0.01)' } ]);
		return ($main, map { take($_, 'you') } @names);
	},
	unused => sub {
		my $count = check($main, most_unused => 2 * MAX_DEPTH);
		while ($count->{unused} == 0)
		{
			run($main, [ fill(120, ++$serial) ], point => 'split: page added', pass => 1);
			$count = check($main, most_unused => 2 * MAX_DEPTH);
		}
		return ($main, release_all($main, 'nobody'));
	},
	copy => sub {
		my $origin = $state{origin};
		if (!$origin->{made}++)
		{
			run($origin, [ fill(200, 'o'), join_crowd(100) ]);
			run($origin, [ evict($origin, 'crowd'), join_crowd(60) ]);
		}
		# who is still there when it ends is waited for, but for 5 seconds only
		$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname IN ('origin', 'copy')})
		  or die "sessions do not end\n";
		$node->safe_psql('postgres', $_)
		  for 'DROP DATABASE IF EXISTS copy', 'CREATE DATABASE copy TEMPLATE origin STRATEGY file_copy';
		my $copy = forget('copy');
		$copy->{copied} = 1;
		return ($copy, take('mine', 'me'));
	},
	rewrite => sub {
		settle($main);
		run($main, [ fill(250, ++$serial) ]) if keys %{ $main->{held} } < 250;
		return ($main, { kind => 'other', leases => [], statement => 'VACUUM FULL dlock_private.lease_table' });
	},
	all => sub {
		settle($main);
		$serial++;
		return ($main, take_all('all', map { "all $serial $_" } 1 .. 8));
	},
	any => sub {
		settle($main);
		$serial++;
		return ($main, take_any('any', map { "any $serial $_" } 1 .. 8));
	},
	leave => sub {
		settle($main);
		$serial++;
		run($main, [ map { take("leave $serial $_", 'leaver') } 1 .. 4 ]);
		return ($main, map { leave("leave $serial $_", 'leaver') } 1 .. 4);
	},
	release_many => sub {
		settle($main);
		$serial++;
		run($main, [ map { take("many $serial $_", 'many') } 1 .. 8 ]);
		return ($main, release_many('many', map { "many $serial $_" } 1 .. 8));
	},
	renew_all => sub {
		settle($main);
		$serial++;
		run($main, [ map { take("walk $serial $_", 'walker') } 1 .. 20 ]);
		return ($main, renew_all($main, 'walker'));
	},
	release_all => sub {
		settle($main);
		$serial++;
		run($main, [ map { take("walk $serial $_", 'walker') } 1 .. 20 ]);
		return ($main, release_all($main, 'walker'));
	},
	mark => sub {
		settle($main);
		return ($main, take('mark ' . ++$serial, 'me', after => ' FROM pg_sleep(1.1)'));
	},
	line => sub {
		settle($main);
		run($main, [ evict($main, 'wanted'), take('wanted', 'holder') ]);
		return ($main, { kind => 'take', leases => [ [ 'wanted', 'waiter', 'exclusive' ] ],
				sql => "dlock_acquire('wanted', 'waiter', 3600, -1)" });
	},
	watch => sub {
		settle($main);
		run($main, [ evict($main, 'wanted'), take('wanted', 'holder') ]);
		return ($main, { kind => 'take', leases => [ map { [ $_, 'waiter', 'exclusive' ] } qw(wanted more) ],
				sql => "dlock_acquire_all('{wanted,more}', 'waiter', 3600, -1)" });
	},
	queue => sub {
		settle($main);
		run($main, [ evict($main, 'wanted'), take('wanted', 'holder') ]);
		start_waiter('wanted', 'waiter');
		return ($main, give('wanted', 'holder', [ 'wanted', 'waiter', 'exclusive' ]));
	},
	search => sub {
		settle($main);
		run($main, [ (map { evict($main, $_) } 'wanted', 'more'), take('wanted', 'holder'), take('more', 'other') ]);
		start_waiter('more', 'holder');
		return ($main, { kind => 'take', leases => [ [ 'wanted', 'waiter', 'exclusive' ] ],
				sql => "dlock_acquire('wanted', 'waiter', 3600, -1)" });
	});

# How to get to each point, and at which pass of it a backend dies, so that what
# is not flushed is lost; and at which the whole server, after a flush.
my @trials = (
	[ creation => 'root: page added', 1, 2 ],
	[ creation => 'root: not logged', 1, 1 ],
	[ creation => 'root: logged', 1, 1 ],
	[ creation => 'directory: not logged', 1, undef ],
	[ creation => 'directory: logged', undef, 1 ],
	[ creation => 'split: logged', 63, 30 ],
	[ start => 'activation: not logged', 1, 1 ],
	[ start => 'activation: logged', 1, 1 ],
	[ start => 'activation: flushed', 1, 1 ],
	[ fill => 'row: not logged', 1, 20 ],
	[ fill => 'row: logged', 20, 1 ],
	[ fill => 'call: not flushed', 20, 1 ],
	[ fill => 'call: not answered', 20, 1 ],
	[ fill => 'split: page added', 1, 3 ],
	[ fill => 'split: not logged', 3, 1 ],
	[ fill => 'split: logged', 1, 3 ],
	[ fill => 'split: half summarized', 3, 1 ],
	[ unused => 'unused page: not logged', 1, 1 ],
	[ unused => 'unused page: logged', 1, 1 ],
	[ overflow => 'overflow: not logged', 1, 2 ],
	[ overflow => 'overflow: logged', 2, 1 ],
	[ overflow => 'page: added', 1, 2 ],
	[ reuse => 'page: off the free list', 1, 2 ],
	[ eviction => 'rows: not logged', 1, 3 ],
	[ eviction => 'rows: logged', 3, 1 ],
	[ eviction => 'rows: overflow left empty', 1, 1 ],
	[ eviction => 'removal: not logged', 1, 2 ],
	[ eviction => 'removal: logged', 2, 1 ],
	[ expiry => 'rows: logged', 1, 3 ],
	[ deep => 'directory: not logged', undef, 1 ],
	[ deep => 'directory: logged', 1, 1 ],
	[ deep => 'split: logged', undef, 4 ],
	[ compaction => 'compaction: not logged', 1, 3 ],
	[ compaction => 'compaction: logged', 3, 1 ],
	[ all => 'all: about to take', 1, 1 ],
	[ all => 'all: name taken', 1, 4 ],
	[ all => 'all: not flushed', 1, 1 ],
	[ any => 'many: name taken', 1, 4 ],
	[ any => 'many: not flushed', 1, 1 ],
	[ release_many => 'many: name done', 3, 5 ],
	[ leave => 'rows: not logged', 2, 4 ],
	[ leave => 'rows: logged', 2, 4 ],
	[ leave => 'call: not flushed', 2, 4 ],
	[ leave => 'call: not answered', 2, 4 ],
	[ renew_all => 'walk: bucket done', 3, undef ],
	[ release_all => 'walk: bucket done', undef, 3 ],
	[ line => 'queue: about to join', 1, 1 ],
	[ line => 'wait: about to handle interrupts', 1, 1 ],
	[ watch => 'all: about to watch', 1, 1 ],
	[ queue => 'queue: granted, not answered', 1, 1 ],
	[ search => 'deadlock: name read', 1, 2 ],
	[ mark => 'mark: not logged', 1, 1 ],
	[ mark => 'mark: logged', 1, 1 ],
	[ rewrite => 'rewrite: row not logged', 1, 200 ],
	[ rewrite => 'rewrite: row logged', 200, 1 ],
	[ rewrite => 'rewrite: metapage not logged', 1, 1 ],
	[ rewrite => 'rewrite: metapage logged', 1, 1 ],
	[ copy => 'purge: not logged', 1, 40 ],
	[ copy => 'purge: logged', 40, 1 ],
	[ copy => 'activation: purged', 1, 1 ]);
my %reached;

# How many pages may be left unused.  Of what is flushed, one: the one that the
# process was about to use; or two, the metapage and the root.  Else those that
# the call has added: at each split a bucket and a directory page; a new table
# has 64 buckets, a metapage and a directory page.  Some ways start with what
# the crash before has left.
sub most_unused
{
	my ($way, $flushed) = @_;
	return 2 * MAX_DEPTH if $way eq 'start' || $way eq 'unused';
	return $flushed ? 2 : 66 if $way eq 'creation';
	return $flushed ? 1 : 2 * MAX_DEPTH;
}

sub trial
{
	my ($way, $point, $server, $pass) = @_;
	my ($state, @ops) = $ways{$way}->();
	my $count;

	my $crashed = run($state, \@ops, point => $point, pass => $pass, server => $server);
	$reached{$point}++ if $crashed;
	if (my $waiter = delete $state->{waiter})
	{
		$waiter->[0]->finish;
		push @wrong, "the waiter was told ${$waiter->[1]}" if ${ $waiter->[1] } =~ /\d/;
	}
	$count = check($state, most_unused => most_unused($way, $server), copied => $state->{copied});
	$figures{unused} += $count->{unused};
	$figures{most_unused} = max($figures{most_unused}, $count->{unused});

	# of no use to the trials that come
	if ($state != $main)
	{
		delete $state->{copied};
		run($state, [ take('afterwards', 'me'), give('afterwards', 'me') ]);
		settle($state);
	}
	is(join("\n", splice @wrong), '', ($server ? 'the server dies, flushed,' : 'a backend dies') . " at \"$point\", pass $pass ($way)");
	return;
}

# ----------------------------------------------------------------
# The trials
# ----------------------------------------------------------------

run($main, [ fill(400, 0) ]);
for my $trial (@trials)
{
	my ($way, $point, $pass, $server_pass) = @$trial;
	trial($way, $point, 0, $pass) if $pass;
	trial($way, $point, 1, $server_pass) if $server_pass;
}
# a crash in front of giving back leaves what one behind the last grant does
is(join("\n", sort keys %reached), join("\n", sort grep { $_ ne 'many: about to give back' } @points), 'all points were reached');

# ----------------------------------------------------------------
# Afterwards
# ----------------------------------------------------------------

sub size
{
	return $node->safe_psql('postgres', q{SELECT pg_relation_size('dlock_private.lease_table')}) / PAGE_SIZE;
}

# The pages that crashes left are used like others.
run($main, [ join_crowd(2 * $page_of_crowd) ]);
my $before = settle($main);
run($main, [ join_crowd(20 * $before->{free}) ]);
my $after = settle($main);
is($after->{blocks}, $before->{blocks}, "with $before->{free} pages in the free list overflow adds none");
cmp_ok($after->{free}, '<', $before->{free} / 2, '... but takes those');

# Full and empty again and again, with crashes and without.
my @sizes;
for my $round (1 .. 6)
{
	my $crash = $round > 3;

	run($main, [ join_crowd(100) ], $crash ? (point => 'page: off the free list', pass => 2, server => $round == 5) : ());
	settle($main);
	run($main, [ join_crowd(100) ]);
	run($main, [ evict($main, 'crowd') ], $crash ? (point => 'removal: logged', pass => 2, server => $round == 5) : ());
	settle($main);
	run($main, [ evict($main, 'crowd'), fill(300, 'again') ]);
	run($main, [ map { give(@$_) } held($main, sub { $_->{name} =~ /^fill again/ }) ]);
	settle($main);
	push @sizes, size();
}
is("@sizes[2 .. 5]", join(' ', ($sizes[1]) x 4), "filled and emptied, with crashes too, the table keeps its $sizes[1] pages");

run($main, [ { kind => 'other', leases => [], statement => 'VACUUM FULL dlock_private.lease_table' } ]);
settle($main);
cmp_ok(size(), '<', $sizes[1], 'VACUUM FULL gives back what is not needed');

settle($state{origin});
is(join("\n", splice @wrong), '', 'all leases are there in the end');

my $names = join ', ', map { "('$_', $main->{largest}{$_})" } sort keys %{ $main->{largest} };
is( $node->safe_psql(
		'postgres', qq{
		SELECT count(*) FROM (VALUES $names) AS names (name, seen),
			LATERAL (SELECT dlock_force_release(name) AS evicted) AS a,
			LATERAL (SELECT CASE WHEN evicted >= 0
				THEN dlock_acquire(name, 'newcomer', 3600) END AS token) AS b
		WHERE token > seen}),
	scalar(keys %{ $main->{largest} }), 'every name that there was gets a larger token');

# The standby had to check each page it made, and to find its way after each
# crash.
my $rows = 'SELECT count(*), md5(string_agg(concat_ws(\'|\', name, owner, mode, version, token, leaving), \' \' ORDER BY name, owner)) FROM dlock_private.lease_table';
$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, '', '')});
$node->wait_for_catchup($standby);
is($standby->safe_psql($_, $rows), $node->safe_psql($_, $rows), "the standby has the same leases in $_") for qw(postgres origin copy);
unlike(slurp_file($standby->logfile), qr/PANIC:|FATAL:.*inconsistent|TRAP:/, 'and was never at odds with the primary');

note "$figures{crashes} crashes at " . scalar(@points) . " points, $figures{answers} answers, $figures{leases} leases checked;"
  . " $figures{unused} pages were left unused, $figures{most_unused} at once at most";

$standby->stop;
$node->stop;
done_testing();
