# dlock top, on a terminal that tmux provides, on the kind of server that is the
# argument; see CommandCases.pm.  The test reads the screen until it is right, with
# figures masked.

use strict;
use warnings;

use Encode qw(decode);
use FindBin;
use lib $FindBin::RealBin;
use CommandCases;
use Test::More;
use Time::HiRes qw(time);

my $kind = $ARGV[0];
my $is_postgres = $kind eq 'postgres';
my $admin = $is_postgres ? 'postgres' : 'root';
my ($columns, $lines) = (100, 24);

start_server($kind);
$ENV{LC_ALL} = 'C.UTF-8';
my $socket = scratch('tmux');

sub tmux
{
	my @arguments = @_;
	open(my $out, '-|', 'tmux', '-u', '-f', '/dev/null', '-S', $socket, @arguments) or die "tmux: $!\n";
	local $/;
	my $text = <$out> // '';
	close($out) or die "tmux @arguments failed\n";
	return $text;
}

END { my $status = $?; system("tmux -S $socket kill-server 2>/dev/null") if $socket; $? = $status }

# Start it in a window of its own; what it ends with is shown when it has ended.
sub start
{
	my ($window, @arguments) = @_;
	my $command = join(' ', map { "'" . s/'/'\\''/gr . "'" } dlock(), 'top', @arguments);
	my @new = -S $socket ? ('new-window', '-t', 'top') : ('new-session', '-d', '-s', 'top', '-x', $columns, '-y', $lines);
	tmux(@new, '-n', $window, "$command; echo status \$?; exec sleep 1000");
	return;
}

sub screen { return tmux('capture-pane', '-p', '-t', "top:$_[0]") }

sub keys_to
{
	my ($window, @keys) = @_;
	tmux('send-keys', '-t', "top:$window", @keys);
	return;
}

sub type
{
	my ($window, $text) = @_;
	tmux('send-keys', '-t', "top:$window", '-l', '--', $text);
	return;
}

# The lines of a part of the screen, below its headings: the first word of each.
sub first_words
{
	my ($screen, $heading) = @_;
	my ($part) = $screen =~ /^$heading\b.*?\n(.*?)(?:\n\n|^WAITING|^s sort|\z)/ms;
	return join(' ', map { (split)[0] // () } split /\n/, $part // '');
}

# Until the screen is so, and lists these names if they are given: it may be painted only in
# part.
sub shows
{
	my ($window, $regex, $what, $names) = @_;
	my $screen;
	my $so = sub {
		$screen = screen($window);
		return $screen =~ $regex && (!defined $names || first_words($screen, 'NAME') eq $names);
	};
	ok(eventually($so), $what) or diag($screen);
	return $screen;
}

# A screen without its figures.
sub masked
{
	my ($screen) = @_;
	$screen =~ s/ - .*? - \d\d:\d\d:\d\d, every/ - SERVER - TIME, every/;
	$screen =~ s/#\d+/#N/g;
	$screen =~ s/\b\d+\.\d\b/N/g;
	$screen =~ s/ +\d+m\d\ds/ T/g;
	$screen =~ s/ +\d+(?:\.\d)?s/ T/g;
	$screen =~ s/ +$//gm;
	$screen =~ s/\n{2,}/\n\n/g;
	return $screen;
}

sub acquire
{
	my ($name, $owner, @options) = @_;
	my $run = launch('acquire', '--ttl', '10m', '--owner', $owner, @options, '--', $name);
	is(finish($run), 0, 'acquired') or diag(errors($run));
	return;
}

# One after the other, so that their ages differ.
acquire('b/job', 'worker-1');
acquire("evil\e[2J\x{7}世界", 'worker-3', '--shared');
acquire('a/job', 'worker-2', '--ttl', '20m');
my @waiters = launch(qw(acquire --ttl 10m --wait 10m --owner second b/job));
eventually(sub { waits_for('b/job') });
push @waiters, launch(qw(acquire --ttl 10m --wait 10m --owner third b/job));
eventually(sub { waits_for('b/job', 2) });

start('main', '--url', url(undef, $admin), '--delay', '200ms', '--timeout', '3m');
my $who = $is_postgres ? 'tester dlock #N' : 'tester@localhost #N';
my $screen;
my $all = <<"END";
dlock top - SERVER - TIME, every T
3 held, 2 waiting; a second: acquired N, renewed N, released N, refused N
 timed out N, expired N, renewals lost N, deadlocks N; by age
NAME                 OWNER     MODE       HOLDS    HELD     LEFT  G  WAIT  WHO
b/job                worker-1  exclusive      1 T T        2  $who
evil\\x1B[2J\\x07世界  worker-3  shared         1 T T           $who
a/job                worker-2  exclusive      1 T T           $who

WAITING  POS  OWNER   MODE       WAITED  FOR               WHO
b/job      1  second  exclusive T  worker-1          $who
b/job      2  third   exclusive T  worker-1, second  $who
s sort  S turn  / filter  up, down choose  f force release  space look  q quit
END
eventually(sub { ($screen = masked(screen('main'))) eq $all });
is($screen, $all, 'all is there, and nothing else');

# sort
keys_to('main', 's');
shows('main', qr/; by time left$/m, 'by time left: is the order', 'b/job evil\x1B[2J\x07世界 a/job');
keys_to('main', 'S');
shows('main', qr/; by time left, turned$/m, 'turned: is the order', 'a/job evil\x1B[2J\x07世界 b/job');
keys_to('main', 'S', 's');
shows('main', qr/; by name$/m, 'by name: is the order', 'a/job b/job evil\x1B[2J\x07世界');
keys_to('main', 's');
shows('main', qr/; by owner$/m, 'by owner: is the order', 'b/job a/job evil\x1B[2J\x07世界');
keys_to('main', 's', 's', 's');
shows('main', qr/; by name$/m, 'by name again');

# filter
keys_to('main', '/');
shows('main', qr/^names with:/m, 'asks for a filter');
type('main', 'xx');
keys_to('main', 'BSpace', 'BSpace');
type('main', '/job');
keys_to('main', 'Enter');
shows('main', qr/by name, names with "\/job"$/m, 'filters: these are left', 'a/job b/job');
keys_to('main', '/');
shows('main', qr/^names with:/m, 'asks again');
type('main', '界');
keys_to('main', 'Enter');
shows('main', qr/names with "界"$/m, 'a character of several bytes: this is left', 'evil\x1B[2J\x07世界');
keys_to('main', '/');
shows('main', qr/^names with:/m, 'asks again');
keys_to('main', 'Escape');
shows('main', qr/^s sort/m, 'and is left alone');
shows('main', qr/names with "界"$/m, 'as it was');
keys_to('main', '/');
shows('main', qr/^names with:/m, 'asks again');
keys_to('main', 'Enter');
shows('main', qr/; by name$/m, 'no filter any more: all are there', 'a/job b/job evil\x1B[2J\x07世界');

# force a release
keys_to('main', 'Down', 'f');
shows('main', qr/^force the release of "b\/job", held by "worker-1"\? y or n$/m, 'asks before it forces');
keys_to('main', 'n');
shows('main', qr/^not forced$/m, 'takes no for an answer');
ok(holds_name('b/job'), 'it is still held');
keys_to('main', 'f');
shows('main', qr/^force the release of "b\/job"/m, 'asks again');
keys_to('main', 'y');
shows('main', qr/^1 evicted$/m, 'forces it');
is(finish($waiters[0]), 0, 'who waited has it');
$screen = shows('main', qr/^b\/job +second .*^WAITING.*^b\/job +1 +third .* second /ms, 'which shows');

# another account may not
start('tester', '--url', url(), '--delay', '200ms', '--timeout', '3m');
shows('tester', qr/^b\/job/m, 'another account looks');
keys_to('tester', 'f');
shows('tester', qr/^force the release of/m, 'it is asked');
keys_to('tester', 'y');
shows('tester', qr/^permission denied/m, 'and may not');
keys_to('tester', 'q');
shows('tester', qr/^status 0$/m, 'it ends');
is(screen('tester') =~ s/\n+\z//r, 'status 0', 'and leaves the terminal as it was');

# rates
my $stop = scratch('stop');
my $pid = fork() // die "fork: $!\n";
if ($pid == 0)
{
	for (my $i = 0; !-e $stop; $i++)
	{
		system(dlock() . " acquire --url '" . url() . "' --ttl 1m --owner rate rate >/dev/null");
		system(dlock() . " release --url '" . url() . "' --owner rate rate >/dev/null");
	}
	POSIX::_exit(0);
}
shows('main', qr/ acquired (?!0\.0)\d+\.\d, /, 'acquires show as a rate');
shows('main', qr/ released (?!0\.0)\d+\.\d, /, 'and releases');
write_text($stop, '');
waitpid($pid, 0);
shows('main', qr/ acquired 0\.0, /, 'which ends with them');

# more leases than lines, and a small window
acquire(sprintf('many/%02d', $_), "m$_") for 1 .. 30;
shows('main', qr/^33 held/m, 'many leases');
# the number may be newer than the list, to which one is added then
ok(eventually(sub { keys_to('main', ('Down') x 40); screen('main') =~ /^many\/30 /m }), 'the last can be chosen');
keys_to('main', ('PPage') x 5);
shows('main', qr/^a\/job /m, 'and the first');
tmux('resize-window', '-t', 'top:main', '-x', 40, '-y', 8);
shows('main', qr/\Adlock top.*\n.*\n.*\nNAME .*\na\/job .*\nb\/job .*\n\ns sort .*\s*\z/, 'a small window');
ok(!(grep { length(decode('UTF-8', $_)) > 40 } split /\n/, screen('main')), 'is not overrun');
tmux('resize-window', '-t', 'top:main', '-x', 12, '-y', 3);
shows('main', qr/\Adlock top -\n.*\ns sort  S tu/, 'a tiny one');
tmux('resize-window', '-t', 'top:main', '-x', $columns, '-y', $lines);
shows('main', qr/^NAME .* WHO$/m, 'and large again');

# a server that does not answer: q ends it all the same
my ($port, $order) = proxy();
start('proxy', '--url', url($port, 'tester'), '--delay', '200ms', '--timeout', '1h');
shows('proxy', qr/^a\/job/m, 'through a proxy');
$order->('swallow');
my ($before) = screen('proxy') =~ /(\d\d:\d\d:\d\d), every/;
keys_to('proxy', 'Space', 'q');
shows('proxy', qr/^status 0$/m, 'ends though the server is silent');

# a server that is gone, and comes again
engine()->end_control;
engine()->restart;
shows('main', qr/^many\/01.*^s sort/ms, 'goes on after a restart');
if ($is_postgres) { engine()->{node}->stop('fast') }
else { engine()->halt }
my $gone = shows('main', qr/^(?!s sort)\S.*(?:connect|refused|No such file|server).*\s*\z/m, 'says that the server is gone');
if ($is_postgres) { engine()->{node}->start }
else { engine()->boot }
shows('main', qr/^s sort/m, 'and goes on when it is back');
keys_to('main', 'q');
shows('main', qr/^status 0$/m, 'ends');

tmux('kill-server');
stop_server();
done_testing();
