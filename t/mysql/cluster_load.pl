# Three servers of a cluster that all write, Galera or Group Replication by the
# kind of server, which is the argument; clients of each (torture/load.c) work
# with the same few leases, and one server is killed and joins the others again.
# This is scenario 21.
#
# Each server's history must keep all rules by itself: the line of waiters, the
# deadlines and the rows are promised to its own clients.  All together must keep the
# rules that need no line: these are promised for the cluster.
#
# Here a session lease counts as a lease for its time to live, since the other servers
# know no more of it.  TORTURE_MINUTES makes it long, TORTURE_SEED repeats a run's
# choices.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use File::Temp qw(tempdir);
use Files;
use Galera;
use GroupReplication;
use History;
use List::Util qw(max min);
use Scenarios;
use Test::More;
use Time::HiRes qw(time usleep);
use Torture;

my ($kind) = @ARGV;
my $class = $kind eq 'mariadb' ? 'Galera' : 'GroupReplication';
my $reason = $class->can('reason_not')->($kind);
plan skip_all => $reason if defined $reason;

my $clients = 8;      # of each server
my $names = 8;
my $lock_timeout = 5e6;    # microseconds, as it is if nobody sets it
# what clients may be told: those of t/mysql/crash.pl, also by a guard, which asks
# the library too; what the manual says of a commit under a guard; 1047, of a Galera
# node that is not ready; 3572 from a cluster that stands still; and 1213, which is
# never the library's, as not_after_guard() says
my $allowed = qr/^(1213|3058|(guard )?(1105|1317|1927|2006|2013|3572|4031)|guard (1047|1180|1213|3101))$/;
my $seed = $ENV{TORTURE_SEED} // 1 + int rand 2**20;
note("TORTURE_SEED=$seed");
srand($seed);

my $dir = tempdir('clXXXXXX', TMPDIR => 1, CLEANUP => 1);
my $load = Torture::build_load($dir, $kind, few => 1);

my @nodes = $kind eq 'mariadb' ? Galera::start(1, 1, 1) : GroupReplication::start(3, majority_timeout => 4);
$nodes[0]->control->value('CREATE DATABASE scenarios');
$nodes[0]->feed('mysql_udf/install.sql');
# MariaDB's plugin, which session leases need, is each server's own
if ($kind eq 'mariadb') { $_->feed('mysql_udf/install.sql') for @nodes[ 1, 2 ] }
$nodes[0]->write_settings(reap_interval => 1);

# Clients find a server by a link that is there while it is one of the cluster:
# who asks a member of a group before it has joined asks another server.
sub may_be_asked
{
	my ($node, $yes) = @_;
	my $link = "$dir/$node->{number}";
	if ($yes) { symlink("$node->{dir}/socket", $link) or die "could not make $link: $!\n" }
	else { unlink $link or die "could not remove $link: $!\n" }
	return;
}
may_be_asked($_, 1) for @nodes;

sub examine_all
{
	$_->examine for grep { $_->pid } @nodes;
	return;
}

sub let_work
{
	my ($seconds) = @_;
	usleep(int(5e5 + rand 1e6 * $seconds));
	return;
}

# Kill a server, and have it back after a while, until it has granted something
# again; from when to when it was away.
sub kill_one
{
	my ($node) = @_;
	my ($start, $end);

	# or those who are left may have no majority
	$class->can('gather')->();
	$class->can('give_up_late')->(0);
	$start = Torture::now();
	may_be_asked($node, 0);
	$node->crash;
	let_work(2);
	$node->come_back;
	may_be_asked($node, 1);
	$end = Torture::now();
	Scenarios::Run::until(sub { $node->control->value('SELECT acquired FROM dlock.stats') > 0 })
	  or examine_all(), die "node $node->{number} is back, but grants nothing\n";
	return ($start, $end);
}

# The history of a server's clients, for the checker: session leases are leases for
# their time to live, unless the session ended before.  And whose they were.
sub history_of
{
	my ($folder, @kills) = @_;
	# a client that had to be killed may have left a part of one
	my @lines = map { slurp($_) =~ /^(.*)\n/mg } glob "$folder/history.*";
	my (%of_session, %ends);

	for (@lines)
	{
		my ($what, $time, $client, $how, $op, undef, $owner) = split /\t/;
		push @{ $ends{$client} }, $time if $what eq 'D';
		push @kills, $time if $what eq 'X' && $how eq 'terminate';
		$of_session{$owner} = 1 if $what eq 'C' && $op eq 'session';
	}
	for (@lines)
	{
		my ($what, $start, $end, $client, $op, undef, $owner, undef, undef, $ttl) = my @columns = split /\t/;
		next unless $what eq 'C' && $of_session{$owner} && $op =~ /^(session|renew)$/;
		my $ended = min(grep { $_ >= $start } @{ $ends{$client} // [] }, @kills, 9e18);
		# it may have been granted as late as it was answered
		$columns[9] = max(1, min($ttl, $ended - $end));
		$columns[4] = 'acquire' if $op eq 'session';
		$_ = join("\t", @columns);
	}
	return (\@lines, \%of_session);
}

my %largest;
my %errors;
my %sums;

# What is wrong with a history.  Not, that a session lease is renewed or given back
# after its time to live: it may be as long as its session lives.  Nor that
# dlock.locks shows what was given back: if another server's change of the name is
# just being applied, the row is locked, and the release put off as it is by a guard.
sub wrong_with
{
	my ($history, $of_session, @lines) = @_;
	$history->add(@lines);
	return grep {
		!(/^late: (\S+) on / && $of_session->{$1}) && !/^told: \S+ was seen with .*, having given back /
	} $history->check;
}

# Errors 3572, "a transaction has locked it", that came before the time was up in which
# the call was to be decided; if that was lock_timeout, also of calls during which at
# least some of the servers went on.  A cluster may stand still for long, as Galera does
# at times when a server has just joined; what the library has given up by then, keeps
# its locks.
sub wrongly_locked
{
	my (@calls) = map { [ split /\t/ ] } @_;
	my @changes = sort { $a <=> $b } map { $_->[2] }
	  grep { ($_->[4] =~ /^(acquire|session)$/ && $_->[13] =~ /^\d+$/) || $_->[13] eq 't' } @calls;
	return grep {
		my ($start, $end, $op, $wait) = @{$_}[ 1, 2, 4, 10 ];
		my $acquires = $op =~ /^(acquire|session)$/;
		my $is_short = $acquires && $wait >= 0 && $wait < $lock_timeout;
		my @times = ($start, (grep { $_ > $start && $_ < $end } @changes), $end);
		# the longest time in which nothing was changed
		my $quiet = max(map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times);
		$is_short ? $end - $start < $wait : $end - $start < $lock_timeout || 2 * $quiet < $end - $start;
	} grep { $_->[4] ne 'guard' && $_->[13] eq '?3572' } @calls;
}

# Errors 1213 of calls that do not come right after a guard of the same client.  A Galera
# node that has ended a transaction may take the statement after it for a part of it.
sub not_after_guard
{
	my (@calls) = map { [ split /\t/ ] } @_;
	my (%before, @wrong);
	for my $call (sort { $a->[1] <=> $b->[1] } @calls)
	{
		my ($client, $op) = @{$call}[ 3, 4 ];
		push @wrong, $call
		  if $op ne 'guard' && $call->[13] eq '?1213' && ($kind ne 'mariadb' || ($before{$client} // '') ne 'guard');
		$before{$client} = $op;
	}
	return @wrong;
}

# What no round had anything to check of yet: what proves nothing is no proof.
my %proof;

sub unproven
{
	return grep { !$proof{$_} } sort keys %proof;
}

sub round_of
{
	my ($kills) = @_;
	my %folders = map { $_->{number} => "$dir/$seed." . $_->{number} } @nodes;
	my %pids = map { $_->{number} => Torture::start_load($load, "$dir/$_->{number}", $clients, $names, $seed + $_->{number}, $folders{ $_->{number} }) } @nodes;
	my %kills = map { $_->{number} => [] } @nodes;

	for (1 .. $kills)
	{
		let_work(2);
		my $node = $nodes[ int rand @nodes ];
		push @{ $kills{ $node->{number} } }, [ kill_one($node) ];
		let_work(3);
	}
	# all at once: those of one server could have to wait for those of the others
	kill 'TERM', values %pids;
	my @wrong = map { (Torture::end_load($pids{$_}, $folders{$_}, 180, \&examine_all))[1] // () } sort keys %pids;

	my @floor = map { "F\t$_\t$largest{$_}" } sort keys %largest;
	my %figures = map { $_ => 0 } qw(rows ordered);
	my (@calls, @all_kills, %checked, %of_session, %by, %granted, %back);
	for my $number (sort keys %folders)
	{
		my ($lines, $sessions) = history_of($folders{$number}, map { $_->[0] } @{ $kills{$number} });
		my @kill_lines = map { "K\t$_->[0]\t$_->[1]\tserver" } @{ $kills{$number} };
		my $prefix = 's' . ($seed + $number);
		my $history = History->new(lossy => 0, owners => qr/^$prefix\./);

		push @wrong, map { "server $number: $_" } wrong_with($history, $sessions, @floor, @kill_lines, @$lines);
		$figures{$_} += $history->figures->{$_} for keys %figures;
		push @all_kills, @kill_lines;
		push @calls, grep { /^C/ } @$lines;
		push @wrong, map { 'error 1213 by itself: ' . join(' ', @$_) }
		  not_after_guard(grep { /^C/ } @$lines);
		%of_session = (%of_session, %$sessions);
		$checked{$number} = join("\n", @floor, @kill_lines, @$lines, '');

		for my $line (grep { /^C/ } @$lines)
		{
			my (undef, $start, undef, undef, $op, $name, undef, undef, undef, undef, undef, undef, undef, $token) = split /\t/, $line;
			next unless $op eq 'acquire' && $token =~ /^\d+$/;
			$by{$name}{$token} = $number;
			$granted{$number}++;
			$back{$number}++ if @{ $kills{$number} } && $start > $kills{$number}[-1][1];
		}
	}
	my $history = History->new(lossy => 0, owners => qr/^s/);
	push @wrong, wrong_with($history, \%of_session, @floor, @all_kills, @calls);
	push @wrong, map { "error $_" } grep { $_ !~ $allowed } sort keys %{ $history->errors };
	push @wrong, map { 'error 3572 too early, or while others went on: ' . join(' ', @$_) } wrongly_locked(@calls);

	%figures = (%{ $history->figures }, %figures);
	my $ok = is(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]), '',
		"round $seed: $figures{calls} calls, $figures{grants} grants, $figures{kills} kills: nothing is wrong");
	if (!$ok && $ENV{TESTLOGDIR})
	{
		for my $number (keys %checked)
		{
			open(my $file, '>', "$ENV{TESTLOGDIR}/cluster-$kind-$seed.$number") or die $!;
			print {$file} $checked{$number};
			close($file) or die $!;
		}
	}

	my $passed = 0;      # from one server to another
	for my $name (keys %by)
	{
		my @servers = map { $by{$name}{$_} } sort { $a <=> $b } keys %{ $by{$name} };
		$passed += grep { $servers[$_] != $servers[ $_ - 1 ] } 1 .. $#servers;
	}
	$proof{"$_ were checked"} += $figures{$_} for qw(compared kills renewed guards rows ordered);
	$proof{"server $_ has granted"} += $granted{$_} // 0 for sort keys %folders;
	$proof{"server $_ again, after it was killed"} += $back{$_} // 0 for grep { @{ $kills{$_} } } sort keys %kills;
	$proof{'names went from server to server'} += $passed;

	$sums{rounds}++;
	$sums{'passed on'} += $passed;
	$sums{$_} += $figures{$_} for keys %figures;
	$errors{$_} += $history->errors->{$_} for keys %{ $history->errors };
	%largest = (%largest, %{ $history->largest });
	unlink glob("$dir/$seed.*/*");
	$seed += @nodes;
	return $ok;
}

if ($ENV{TORTURE_MINUTES})
{
	my $end = time + 60 * $ENV{TORTURE_MINUTES};
	1 while round_of(3) && time < $end;
}
else
{
	# a round on a slow machine can be a few calls, and a killed server may come back to its end
	for (1 .. 5)
	{
		last if !round_of(1) || !unproven();
	}
}
is(join('; ', unproven()), '', 'there was something to check of everything');

ok(Scenarios::Run::until(sub { !grep { $_->control->value(q{SELECT count(*) FROM dlock.locks WHERE name LIKE 'n%'}) } @nodes }),
	'nothing is left on any server');
my $text = "$class: " . join(', ', map { "$_ $sums{$_}" } sort keys %sums) . "\nerrors: "
  . join(', ', map { "$_ $errors{$_}" } sort keys %errors);
$ENV{TORTURE_MINUTES} ? diag($text) : note($text);
done_testing();
