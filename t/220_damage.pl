# Calls that meet damaged pages raise errors that name the block, or answer; they
# never crash, hang or loop, and never damage other pages.
#
# After hand-made damage to every field there are random rounds, replayable; each run has
# others:
#   DAMAGE_SEED       as printed
#   DAMAGE_ROUNDS     how many, 60 if not given
#   TORTURE_MINUTES   for so long, instead ("make torture")

use strict;
use warnings;
use File::Copy;
use File::Find;
use FindBin;
use lib $FindBin::RealBin;
use LeasePages;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(stat utime);

my $largest = 9223372036854775807;

my $node = PostgreSQL::Test::Cluster->new('damage');
$node->init(extra => $node->pg_version >= 18 ? ['--no-data-checksums'] : []);
$node->append_conf(
	'postgresql.conf', q{
autovacuum = off
dlock.reap_interval = '20ms'
dlock.log_expired = off
log_statement = none
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION dlock;
	SELECT count(dlock_acquire('x' || i, 'o' || i, 10000)) FROM generate_series(1, 4200) i;
	SELECT count(dlock_acquire_shared('many', 's' || i, 10000)) FROM generate_series(1, 400) i;
	SELECT count(dlock_acquire_shared('gone', 's' || i, 10000)) FROM generate_series(1, 300) i;
	SELECT dlock_force_release('gone');
});
my $path = table_file($node);
$node->stop;
my $clean = read_image($path);
my $blocks = length($clean) / PAGE_SIZE;

# Every function and every way to read, each in a statement of its own.
my @calls = (
	q{SELECT count(*), count(expires_at::text), count(acquired_at::text) FROM dlock.locks},
	q{SELECT count(dlock_owner('x' || i)) FROM generate_series(1, 4200) i},
	q{SELECT count(*) FROM dlock_holders('many')},
	q{SELECT dlock_is_free('x1')},
	q{SELECT dlock_renew('x2', 'o2', 10000)},
	q{SELECT dlock_renew_all('o3', 10000)},
	q{SELECT dlock_renew_all('s4', 10000)},
	q{SELECT dlock_release_all('s5')},
	q{SELECT dlock_release('x6', 'o6')},
	q{SELECT dlock_acquire('x7', 'o7', 10000, request => 'again')},
	q{SELECT count(dlock_acquire('new' || i, 'o', 10000)) FROM generate_series(1, 1500) i},
	q{SELECT count(dlock_acquire('short' || i, 'o', 0.001)) FROM generate_series(1, 20) i},
	q{SELECT count(dlock_acquire_shared('many', 't' || i, 10000)) FROM generate_series(1, 120) i},
	q{SELECT count(dlock_acquire_permit('permits', 'p' || i, 10000, 500)) FROM generate_series(1, 250) i},
	q{SELECT dlock_force_release('many')},
	q{SELECT count(*) FROM dlock.stats},
	q{SELECT count(*) FROM dlock_private.lease_table},
	q{VACUUM FULL dlock_private.lease_table},
	q{SELECT count(*) FROM dlock.locks},
	q{SELECT dlock_acquire('last', 'o', 10000)});

# What may come of a call: an answer, damage with its block, another format.
sub is_allowed
{
	my ($error) = @_;

	return 1 if $error =~ /^ERROR:  XX001: .*block \d+/;
	return 1 if $error =~ /^ERROR:  0A000: lock table "lease_table" has format/;
	return 1 if $error =~ /^ERROR:  2200H: no tokens are left/;
	return 0;
}

# Pages that were sound before and are not pages of the lock table now.
sub spread
{
	my ($image) = @_;
	my $now = -s $path ? read_image($path) : return ();

	# an error may have left a page that is not used yet, all zero
	return map { "block $_ is damaged too" }
	  grep {
		substr($image, $_ * PAGE_SIZE, PAGE_SIZE) eq substr($clean, $_ * PAGE_SIZE, PAGE_SIZE)
		  && field(\$now, $_, 'page_magic', 0) != field(\$clean, $_, 'page_magic', 0)
	  } 0 .. (sort { $a <=> $b } length $now, length $image)[0] / PAGE_SIZE - 1;
}

# Start the server on a damaged file and call everything.  Returns what went
# wrong, and the answers in "@$answers".
sub survive
{
	my ($image, $answers) = @_;
	my @wrong;
	my $offset = -s $node->logfile;

	write_image($path, $image);
	$node->start;
	my $script = join '', map { "\\echo == $_\n$calls[$_];\n" } 0 .. $#calls;
	my $timed_out = 0;
	my ($out, $error) = ('', '');
	# a backend in a loop or waiting for itself does not heed statement_timeout; what is slow
	# only because the machine is, ends long before
	my $status = $node->psql(
		'postgres', "SET statement_timeout = '60s';\n$script",
		stdout => \$out, stderr => \$error,
		timeout => $PostgreSQL::Test::Utils::timeout_default, timed_out => \$timed_out, on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=never' ]);
	push @wrong, 'hangs after: ' . ((split /\n/, $out)[-1] // '?') if $timed_out;
	push @wrong, "psql ended with $status" if !$timed_out && $status != 0;
	@$answers = map { s/^(\d+)\n//r =~ s/\n\z//r } $out =~ /^== (\d+\n.*?)(?===|\z)/gms;
	for my $line (split /\n/, $error)
	{
		push @wrong, $line
		  if $line =~ /ERROR: |FATAL: |PANIC: |server closed/ && !is_allowed($line =~ s/^psql:\S+ //r);
	}
	my $log = slurp_file($node->logfile, $offset);
	push @wrong, $1 if $log =~ /^(.*(?:PANIC:|TRAP:|terminated by signal|checkpoint request failed|terminated abnormally).*)/m;

	# fast shutdown writes all pages; one that does not end is a hang too
	my $stopped = 0;
	if (!$timed_out)
	{
		$stopped = system_log('pg_ctl', '-s', '-D', $node->data_dir, '-m', 'fast', 'stop') == 0;
		push @wrong, 'does not shut down' unless $stopped;
		$log = slurp_file($node->logfile, $offset);
		push @wrong, $1 if $log =~ /^(.*(?:PANIC:|TRAP:|terminated by signal).*)/m;
	}
	if ($stopped)
	{
		$node->_update_pid(0);
		push @wrong, spread($image);
	}
	else
	{
		$node->stop('immediate');
	}
	return @wrong;
}

# The whole data directory as it was, since replayed WAL would undo the damage.
my $saved = $node->data_dir . '.saved';
system_or_bail('cp', '-a', $node->data_dir, $saved);
my %saved;
find({ no_chdir => 1, wanted => sub { $saved{ substr $_, length $saved } = [ stat ] if -f } }, $saved);

# Put back what has changed since.
sub rewind_server
{
	my $data = $node->data_dir;
	my %keep;

	find(
		{
			no_chdir => 1,
			wanted => sub {
				return unless -f;
				my $name = substr $_, length $data;
				my @now = stat;
				my $old = $saved{$name};
				if ($old && $now[7] == $old->[7] && abs($now[9] - $old->[9]) < 1e-4)
				{
					$keep{$name} = 1;
				}
				else
				{
					unlink or die "$_: $!";
				}
			}
		},
		$data);
	for my $name (grep { !$keep{$_} } keys %saved)
	{
		copy("$saved$name", "$data$name") or die "$name: $!";
		chmod 0600, "$data$name" or die;
		utime $saved{$name}[8], $saved{$name}[9], "$data$name" or die;
	}
}

# Apply changes to the clean image and see what comes of it; "errors" lists
# calls that must raise.
my $count = 0;
sub damage
{
	my ($claim, $change, %expect) = @_;
	my $image = $clean;
	my @answers;

	rewind_server() if $count++;
	$change->(\$image);
	my @wrong = survive($image, \@answers);
	is(join("\n", @wrong), '', $claim);
	while (my ($call, $answer) = each %expect)
	{
		like($answers[$call] // '', $answer, "... $calls[$call]");
	}
}

my @buckets = blocks_of(\$clean, BUCKET);
my @overflow = blocks_of(\$clean, OVERFLOW);
my ($directory) = blocks_of(\$clean, DIRECTORY);
my ($head) = grep { field(\$clean, $_, 'next', 0) != NO_BLOCK } @buckets;
my ($plain) = grep { $_ != $head && $_ != 1 && field(\$clean, $_, 'lower', 0) > 60 } @buckets;
my ($free) = blocks_of(\$clean, FREE);
ok($head && $plain && @overflow > 1 && $directory && $free,
	'the table has every kind of page');
my $nothing = qr/\A\z/;

damage('no damage', sub { }, 0 => qr/^4600\|/, 18 => qr/^\d+$/);

# Whole pages.
for my $block (1, $plain, $head, $overflow[0], $directory)
{
	# VACUUM FULL must not write a new table without the leases of the page,
	# but does not need the directory
	damage("zeroed block $block",
		sub { substr(${ $_[0] }, $block * PAGE_SIZE, PAGE_SIZE) = "\0" x PAGE_SIZE },
		0 => $nothing, 16 => $nothing, 18 => $block == $directory ? qr/^\d*$/ : $nothing);
}
damage('zeroed metapage', sub { substr(${ $_[0] }, 0, PAGE_SIZE) = "\0" x PAGE_SIZE },
	0 => $nothing, 2 => $nothing, 3 => $nothing, 5 => $nothing, 9 => $nothing, 18 => $nothing);
damage('a page of ones', sub { substr(${ $_[0] }, $plain * PAGE_SIZE, PAGE_SIZE) = "\xff" x PAGE_SIZE },
	0 => $nothing);
damage('a bucket copied over another', sub {
		substr(${ $_[0] }, $plain * PAGE_SIZE, PAGE_SIZE) = substr($clean, $head * PAGE_SIZE, PAGE_SIZE);
	}, 0 => $nothing);
damage('a file cut short', sub { ${ $_[0] } = substr(${ $_[0] }, 0, 8 * PAGE_SIZE) }, 0 => $nothing);

# The special area.
for my $kind (0, META, DIRECTORY, OVERFLOW, FREE, 255)
{
	damage("bucket with kind $kind", sub { field($_[0], $plain, 'kind', 0, $kind) },
		0 => $nothing, 18 => $nothing);
}
damage('overflow page with kind bucket', sub { field($_[0], $overflow[0], 'kind', 0, BUCKET) },
	0 => $nothing);
damage('bucket with another number', sub { field($_[0], $plain, 'bucket', 0, 99) }, 0 => $nothing);
damage('overflow page of another chain', sub { field($_[0], $overflow[0], 'chain', 0, 99) },
	0 => $nothing);
damage('bucket with another chain', sub { field($_[0], $head, 'chain', 0, 99) }, 0 => $nothing);
damage("bucket with depth $_->[0]", sub { field($_[0], $plain, 'depth', 0, $_->[0]) }, 0 => $nothing)
  for [255], [22], [21];
damage('wrong magic', sub { field($_[0], $plain, 'page_magic', 0, 1) }, 0 => $nothing);
damage('bucket with the largest mark', sub { field($_[0], $plain, 'mark', 0, ~0) });

# Chains of overflow pages.
for my $next ($head, 0, 1, $plain, $directory, $free, $blocks, NO_BLOCK - 1, 0x7fffffff)
{
	damage("bucket followed by block $next", sub { field($_[0], $head, 'next', 0, $next) },
		0 => $nothing, 2 => $nothing, 12 => $nothing);
}
damage('every bucket followed by the page that the next split adds', sub {
		my ($image) = @_;
		field($image, $_, 'next', 0, $blocks) for @buckets;
	}, 0 => $nothing);
damage('overflow page that follows itself', sub {
		field($_[0], $overflow[0], 'next', 0, $overflow[0]) },
	0 => $nothing, 2 => $nothing, 12 => $nothing);
damage('overflow pages in a circle', sub {
		field($_[0], $overflow[0], 'next', 0, $overflow[1]);
		field($_[0], $overflow[1], 'next', 0, $overflow[0]);
	}, 0 => $nothing, 2 => $nothing, 12 => $nothing);
damage('overflow pages that lead back to the bucket', sub {
		field($_[0], $_, 'next', 0, $head) for @overflow },
	0 => $nothing, 2 => $nothing, 12 => $nothing);

# Line pointers and entries.
my $pointer = field(\$clean, $plain, 'entry', 0);
my $entry = $plain * PAGE_SIZE + ($pointer & 0x7fff);
damage("line pointer $_->[0]", sub { field($_[0], $plain, 'entry', 0, $_->[1]) }, 0 => $nothing)
  for [ 'beyond the page', $pointer | 0x7fff ], [ 'into the header', $pointer & ~0x7fff ],
  [ 'not aligned', $pointer + 1 ], [ 'of length 0', $pointer & 0x1ffff ],
  [ 'of the largest length', $pointer | 0xfffe0000 ], [ 'redirected', ($pointer & ~0x18000) | 0x10000 ];
damage('all line pointers to one entry', sub {
		my $pointers = int((field($_[0], $plain, 'upper', 0) - CONTENTS) / 4);
		field($_[0], $plain, 'entry', $_, $pointer) for 0 .. $pointers - 1;
		field($_[0], $plain, 'lower', 0, CONTENTS + 4 * $pointers);
	}, 10 => $nothing);
damage('the line pointers twice over', sub {
		my $pointers = int((field($_[0], $plain, 'upper', 0) - CONTENTS) / 4);
		my $real = (field($_[0], $plain, 'lower', 0) - CONTENTS) / 4;
		field($_[0], $plain, 'entry', $_, field($_[0], $plain, 'entry', $_ % $real))
		  for 0 .. $pointers - 1;
		field($_[0], $plain, 'lower', 0, CONTENTS + 4 * $pointers);
	}, 10 => $nothing);
damage("$_->[0] of $_->[2]", sub { field($_[0], $plain, $_->[0], 0, $_->[1]) }, 0 => $nothing)
  for [ 'lower', 0, 0 ], [ 'lower', 9000, 9000 ], [ 'upper', 1, 1 ], [ 'upper', 20000, 20000 ],
  [ 'special', 0, 0 ], [ 'special', 8184, 8184 ];
# The entry that call 8 takes off its page, and where the entries of a page are.
my $x6 = index($clean, 'x6o6');
my $its_block = int($x6 / PAGE_SIZE);
my @places = sort { $a <=> $b } map { $_ & 0x7fff }
  map { field(\$clean, $its_block, 'entry', $_) }
  0 .. (field(\$clean, $its_block, 'lower', 0) - CONTENTS) / 4 - 1;
my ($its_place) = grep { $_ < $x6 % PAGE_SIZE } reverse @places;
cmp_ok($places[0], '<', $its_place, 'other entries are below that of x6');
damage('entries in the hole', sub { field($_[0], $its_block, 'upper', 0, $its_place) },
	0 => $nothing, 8 => qr/^t$/);
damage("entry with a name of length $_->[0]", sub {
		substr(${ $_[0] }, $entry + 41, 1) = chr $_->[0] }, 0 => $nothing)
  for [0], [255];
damage('entry of no mode', sub { substr(${ $_[0] }, $entry + 40, 1) = "\x09" }, 0 => $nothing);
damage('entry with token 0', sub { substr(${ $_[0] }, $entry + 8, 8) = "\0" x 8 }, 0 => $nothing);
damage("entry with a deadline $_->[0]", sub { substr(${ $_[0] }, $entry + 16, 8) = pack 'q<', $_->[1] },
	0 => qr/\A(?:\d+\|.*)?\z/)
  for [ 'never to come', $largest ], [ 'long past', -$largest ];
damage("entry acquired at $_", sub { substr(${ $_[0] }, $entry + 24, 8) = pack 'q<', $_ })
  for $largest, $largest - 1, -$largest;

# The directory.
my @used = grep { field(\$clean, $directory, 'entry', $_) == $plain } 0 .. 1999;
for my $block (0, $directory, $head, $overflow[0], $blocks, 0x7fffffff, NO_BLOCK)
{
	# 0 stands for a bucket that its parent has not split off
	damage("directory entry of block $block", sub { field($_[0], $directory, 'entry', $used[0], $block) },
		0 => $nothing);
}

# The metapage.
damage('metapage with another magic', sub { field($_[0], 0, 'magic', 0, 1) }, 0 => $nothing, 9 => $nothing);
damage('metapage of another format', sub { field($_[0], 0, 'format', 0, 77) }, 0 => $nothing, 9 => $nothing);
damage("metapage with depth $_->[0]", sub { field($_[0], 0, 'meta_depth', 0, $_->[0]) }, 0 => $nothing)
  for [0], [1], [22], [NO_BLOCK];
damage('metapage with depth 21', sub { field($_[0], 0, 'meta_depth', 0, 21) }, 0 => qr/^4600\|/);
for my $block (1, $plain, $overflow[0], $blocks, 0x7fffffff, NO_BLOCK)
{
	damage("directory page at block $block", sub { field($_[0], 0, 'directory', 0, $block) },
		0 => $nothing, 1 => $nothing);
	cmp_ok(-s $path || 0, '<=', length $clean, '... adds no pages');
}
for my $block (0, 1, $plain, $head, $overflow[0], $directory, $blocks, 0x7fffffff)
{
	damage("free list at block $block", sub { field($_[0], 0, 'free_head', 0, $block) },
		0 => qr/^4600\|/, 12 => $nothing);
}
damage('free page that follows itself', sub { field($_[0], $free, 'next', 0, $free);
	field($_[0], 0, 'free_head', 0, $free) }, 0 => qr/^4600\|/);
damage('free page followed by the metapage', sub { field($_[0], $free, 'next', 0, 0);
	field($_[0], 0, 'free_head', 0, $free) }, 0 => qr/^4600\|/);

# Random damage to one page: bytes, words, runs of bytes, a shifted page.
my $seed = $ENV{DAMAGE_SEED} // int rand 2**31;
my $rounds = $ENV{DAMAGE_ROUNDS} // ($ENV{TORTURE_MINUTES} ? 9**9 : 60);
my $until = time + 60 * ($ENV{TORTURE_MINUTES} // 0);
diag "DAMAGE_SEED=$seed DAMAGE_ROUNDS=$rounds";
srand $seed;
my $bad = 0;
my $round = 0;
while ($round < $rounds && (!$ENV{TORTURE_MINUTES} || time < $until))
{
	$round++;
	my $image = $clean;
	my $block = int rand $blocks;
	my $page = $block * PAGE_SIZE;
	my $way = int rand 6;
	my @answers;

	if ($way == 0)
	{
		substr($image, $page + int rand PAGE_SIZE, 1) = chr int rand 256 for 1 .. 1 + int rand 20;
	}
	elsif ($way == 1)
	{
		# a block number or a small number in the place of a word
		my $word = (0, 1, $block, $blocks, NO_BLOCK, int rand $blocks, int rand 2**32)[ rand 7 ];
		substr($image, $page + 4 * int rand PAGE_SIZE / 4, 4) = pack 'L<', $word for 1 .. 1 + int rand 4;
	}
	elsif ($way == 2)
	{
		my $start = int rand PAGE_SIZE - 64;
		substr($image, $page + $start, 64) = join '', map { chr int rand 256 } 1 .. 64;
	}
	elsif ($way == 3)
	{
		# the header or the special area, one byte
		my @places = (12 .. 19, SPECIAL .. PAGE_SIZE - 1, CONTENTS .. CONTENTS + 80);
		substr($image, $page + $places[ rand @places ], 1) = chr int rand 256;
	}
	elsif ($way == 4)
	{
		# part of another page, as after a torn write
		my $start = 512 * int rand 16;
		my $from = int rand $blocks;
		substr($image, $page + $start, 512) = substr($clean, $from * PAGE_SIZE + $start, 512);
	}
	else
	{
		substr($image, $page + CONTENTS, 8) = pack 'L<2', int rand 2**32, int rand 2**32;
	}
	rewind_server();
	my @wrong = survive($image, \@answers);
	next unless @wrong;
	diag "round $round, block $block, way $way: " . join("\n", @wrong);
	$bad++;
}
is($bad, 0, "$round rounds of random damage");

done_testing();
