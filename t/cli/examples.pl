# The programs of examples/ that use the command dlock, and the lines for a shell in README.md
# and doc/recipes.md, on the kind of server that is the argument; see CommandCases.pm.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use Files;
use InTime;
use Manual;
use Test::More;
use Time::HiRes qw(sleep);

my $examples = "$FindBin::RealBin/../../examples";

start_server($ARGV[0]);

# Start an example in the background; "dlock" is the one that is tested.
sub start
{
	my ($program, @arguments) = @_;
	my $bin = scratch('bin');
	mkdir $bin;
	symlink dlock(), "$bin/dlock";
	return launch({ program => "$examples/$program", env => { PATH => "$bin:$ENV{PATH}", DLOCK_URL => url() } }, @arguments);
}

sub with_lease
{
	in_time(RELEASED_IN, sub {
		my $name = "report-$_[0]";
		my $run = start('with-lease', $name, 'sh', '-c', 'echo $DLOCK_TOKEN; exit 7');
		is(finish($run), 7, 'the status is that of the command');
		like(output($run), qr/\A\d{12,}\n\z/, 'which finds its token');
		ok(holds_name($name), 'the lease is kept');
		cmp_ok(query("SELECT SECONDS_LEFT FROM dlock.locks WHERE name = '$name' AND LIVE"), '>', 200, 'for some minutes');
		$run = start('with-lease', $name, 'touch', scratch('ran'));
		is(finish($run), 0, 'a second one has nothing to do');
		unlike(errors($run), qr/not free/, 'which is worth no mail of cron');
		ok(!-e scratch('ran'), 'and does nothing');
	});
	is(finish(start('with-lease', 'report')), 64, 'no command');
	return;
}

# The units for systemd: their lines run, and mean what they say.
sub units
{
	my %unit = map { $_ => slurp("$examples/systemd/$_") } qw(nightly-report.service nightly-report.timer scheduler.service);
	my $line = sub {
		my ($service, @command) = @_;
		my ($text) = $unit{$service} =~ m{^ExecStart=/usr/bin/dlock (.*) -- /\S+$}m or return die "$service: no line\n";
		my ($subcommand, @arguments) = split ' ', $text;
		return launch($subcommand, @arguments, '--', @command);
	};
	query(q{SELECT dlock_force_release('nightly-report')});
	my $report = $line->('nightly-report.service', 'echo', 'reported');
	is(finish($report), 0, 'a scheduled report');
	is(output($report), "reported\n", 'runs');
	$report = $line->('nightly-report.service', 'echo', 'reported');
	my $status = finish($report);
	like($unit{'nightly-report.service'}, qr/^SuccessExitStatus=$status$/m, 'that another machine has done it is a success');
	is(output($report) . errors($report), '', 'without a word');
	my $scheduler = $line->('scheduler.service', 'sh', '-c', 'echo leads; exec sleep 1000');
	ok(eventually(sub { output($scheduler) eq "leads\n" }), 'a scheduler runs');
	kill 'TERM', $scheduler->{pid};
	is(finish($scheduler), 0, 'to its end');

	# what systemd says of them, with programs that are there
	return pass('there is no systemd here') if system('command -v systemd-analyze >/dev/null 2>&1') != 0;
	my $dir = scratch('units');
	mkdir $dir;
	write_text("$dir/$_", $unit{$_} =~ s{^(ExecStart=).*}{$1/bin/true}mr) for keys %unit;
	local $ENV{SYSTEMD_UNIT_PATH} = "$dir:";
	is(scalar `systemd-analyze verify $dir/* 2>&1`, '', 'systemd finds no fault');
	return;
}

sub leader
{
	my $terms = scratch('terms');
	# logger(1) has no log to write to here
	my $bin = scratch('bin');
	mkdir $bin;
	write_text("$bin/logger", "#!/bin/sh\necho \"\$1\" >>$terms\n");
	chmod 0755, "$bin/logger";
	my @electors;
	for my $number (1, 2)
	{
		local $ENV{LEADER_FILE} = scratch("leader-$number");
		push @electors, start('leader', 'group', 'sh', '-c', "echo start \$DLOCK_TOKEN >>$terms; exec sleep 1000");
		eventually(sub { $number == 1 ? -s $terms : waits_for('group') });
	}
	is(scalar(lines_of($terms)), 1, 'of two, one leads');
	ok(-e scratch('leader-1') && !-e scratch('leader-2'), 'and has its file');
	kill 'TERM', $electors[0]{pid};
	is(finish($electors[0]), 0, 'it is told to end');
	ok(eventually(sub { -e scratch('leader-2') }), 'the other one takes over');
	ok(eventually(sub { grep({ /start/ } lines_of($terms)) == 2 }), 'and its command runs');
	ok(!-e scratch('leader-1'), 'the first is no leader any more');
	kill 'TERM', $electors[1]{pid};
	is(finish($electors[1]), 0, 'until it is told, too');
	my @lines = lines_of($terms);
	my ($first, $second) = map { /start (\d+)/ } @lines;
	is("@lines", "start $first group: term $first is over: stopped start $second group: term $second is over: stopped",
		'each term has a beginning and an end');
	cmp_ok($second, '>', $first, 'and a larger token');
	return;
}

sub cached
{
	my ($file, $made, $go) = map { scratch($_) } qw(page made go);
	# slow enough that all of them want it before it is there
	my @command = ('sh', '-c', "echo made >>$made; until [ -e $go ]; do sleep 0.05; done; echo content");
	my @all = map { start('cached', $file, 60, @command) } 1 .. 4;
	ok(eventually(sub { waits_for("cached $file", 3) }), 'of four, three wait');
	write_text($go, '');
	is(join(' ', map { finish($_) } @all), '0 0 0 0', 'all have an answer');
	is(join('', map { output($_) } @all), "content\n" x 4, 'the same one');
	is(scalar(lines_of($made)), 1, 'which was made once');
	my $later = start('cached', $file, 60, @command);
	is(finish($later), 0, 'later');
	is(output($later), "content\n", 'it is there');
	is(scalar(lines_of($made)), 1, 'and not made again');
	utime 1000, 1000, $file;
	is(finish(start('cached', $file, 60, @command)), 0, 'when it is old');
	is(scalar(lines_of($made)), 2, 'it is made again');
	my $fails = start('cached', scratch('no'), 60, 'sh', '-c', 'exit 9');
	is(finish($fails), 9, 'a command that fails');
	is(join(' ', glob(scratch('no*'))), '', 'leaves nothing behind');
	return;
}

sub job_worker
{
	my $folder = scratch('jobs');
	my ($did, $began) = map { scratch($_) } qw(did began);
	mkdir $folder;
	write_text(sprintf('%s/%02d.job', $folder, $_), "thing $_\n") for 1 .. 12;
	# the first worker dies over the first job
	my $first = start('job-worker', $folder, 'sh', '-c', "cat >>$began; sleep 1000");
	ok(eventually(sub { -s $began }), 'one worker begins');
	# the worker first, or it goes on with the next one
	my @children = children($first->{pid});
	kill 'KILL', $first->{pid}, @children;
	is(finish($first), 'signal 9', 'and is killed');
	my @others = map { start('job-worker', $folder, 'sh', '-c', "sleep 0.05; cat >>$did") } 1 .. 3;
	is(join(' ', map { finish($_) } @others), '0 0 0', 'three others end');
	is(join("\n", sort { ($a =~ /(\d+)/)[0] <=> ($b =~ /(\d+)/)[0] } lines_of($did)), join("\n", map { "thing $_" } 1 .. 12),
		'when each job is done, once');
	is(scalar(my @done = glob("$folder/*.done")), 12, 'and marked so');
	unlike(join('', map { errors($_) } @others), qr/not free/, 'a job that another worker has is worth no word');

	write_text("$folder/again.job", "again\n");
	my $worker = start('job-worker', $folder, 'sh', '-c', "[ -e $did.failed ] || { touch $did.failed; exit 1; }");
	is(finish($worker), 0, 'a job that fails');
	like(errors($worker), qr/again\.job failed/, 'is said');
	ok(-e "$folder/again.done", 'and done in the end');
	return;
}

# The programs that hold a lease by "dlock hold", in a language of which the interpreter or
# compiler is here.
sub hold
{
	my %run_by = (rb => 'ruby', php => 'php', rs => 'rustc', bash => 'bash');
	my $bin = scratch('bin');
	mkdir $bin;
	symlink dlock(), "$bin/dlock";
	for my $path (glob("$examples/hold/hold.*"))
	{
		my ($language) = $path =~ /\.(\w+)$/;
		my $program = $run_by{$language} // die "$path: nothing runs it\n";
		if (system("command -v $program >/dev/null 2>&1") != 0)
		{
			pass("there is no $program here");
			next;
		}
		my @command = ($program, $path);
		if ($language eq 'rs')
		{
			@command = (scratch('hold-rs'));
			is(system($program, '-o', $command[0], $path), 0, "$program compiles it");
		}
		my $work = sub {
			my ($name, $seconds) = @_;
			my ($first, @rest) = @command;
			return launch({ program => $first, env => { PATH => "$bin:$ENV{PATH}", DLOCK_URL => url() } }, @rest, $name, $seconds);
		};
		in_time(RELEASED_IN, sub {
			my $run = $work->("$language $_[0]", 0);
			is(finish($run), 0, "$language: a program that works under a lease");
			like(output($run), qr/\Aheld \d+\ndone\n\z/, 'to its end');
			ok(holds_name("$language $_[0]", 0), 'gives it back');
		});
		# unless that is lost by itself, on a machine that stands still
		my $lost;
		in_time(15, sub {
			$lost = $work->("$language lost $_[0]", 10000);
			eventually(sub { output($lost) =~ /held/ });
			my $busy = $work->("$language lost $_[0]", 0);
			finish($busy);
			is(output($busy), "busy\n", "$language: a second one finds it busy");
			query("SELECT dlock_force_release('$language lost $_[0]')");
		});
		is(finish($lost), 0, "$language: one that loses its lease");
		like(output($lost), qr/\Aheld \d+\nlost\n\z/, 'notices, and ends');
		my $killed = $work->("$language killed", 10000);
		eventually(sub { output($killed) =~ /held/ });
		kill 'KILL', $killed->{pid};
		is(finish($killed), 'signal 9', "$language: one that is killed");
		ok(eventually(sub { holds_name("$language killed", 0) }), 'holds nothing any more');
	}
	return;
}

# Run a block of a manual for a shell in a folder of its own, where each program that it calls
# as "./PROGRAM" notes that it ran.  All must run, and the block end well; "dlock elect" never
# ends by itself.
sub run_block
{
	my ($path, $block, $shell) = @_;
	my ($section, $script) = @$block{qw(section script)};
	my $name = "$path, $section, $shell->{name}";
	my $folder = scratch('block');
	mkdir $folder;
	my %programs = map { $_ => 1 } $script =~ m{\./([\w-]+)}g;
	for my $program (keys %programs)
	{
		write_text("$folder/$program", "#!/bin/sh\necho \"\$0\" >>$folder/ran\n");
		chmod 0755, "$folder/$program";
	}
	my $elects = $script =~ s/^dlock elect\b/exec dlock elect/m;
	my $bin = scratch('bin');
	mkdir $bin;
	symlink dlock(), "$bin/dlock";
	my $run = launch({ program => $shell->{program}, env => { PATH => "$bin:$shell->{path}", DLOCK_URL => url() } },
		'-c', "cd $folder\n$script");
	if ($elects)
	{
		ok(eventually(sub { -s "$folder/ran" }), "$name: a leader is elected");
		kill 'TERM', $run->{pid};
	}
	is(finish($run), 0, "$name: the status is 0") or diag(errors($run));
	my %ran = map { s{.*/}{}r => 1 } lines_of("$folder/ran");
	is(join(' ', sort keys %ran), join(' ', sort keys %programs), "$name: the programs ran");
	# other cases go on, so only what is named here
	query("SELECT dlock_force_release('$_')") for $script =~ /[\w-]+/g;
	system('rm', '-rf', $folder);
	return;
}

sub manuals
{
	for my $path ('README.md', 'doc/recipes.md')
	{
		my @blocks = Manual::shell_blocks("$examples/../$path");
		cmp_ok(scalar(@blocks), '>', 2, "$path has lines for a shell");
		for my $block (@blocks)
		{
			run_block($path, $block, $_) for shells();
		}
	}
	return;
}

# The shells that a reader may have: this system's, and BusyBox's, with programs of its own.
sub shells
{
	my $applets = scratch('applets');
	if (mkdir $applets)
	{
		system('busybox', '--install', '-s', $applets) == 0 or die "could not install the programs of busybox\n";
	}
	return ({ name => 'sh', program => '/bin/sh', path => $ENV{PATH} },
		{ name => 'BusyBox', program => "$applets/sh", path => $applets });
}

# An owner that a page has a shell make is another one each time, also in two containers with the same
# host name and process id.
sub owners
{
	my $found = 0;
	for my $path ("$examples/../README.md", "$examples/../cli/dlock.1", glob("$examples/* $examples/../doc/*.md $examples/../clients/*/README.md"))
	{
		next if !-f $path;
		for my $line (grep { /\bDLOCK_OWNER=\S/ } lines_of($path))
		{
			$found++;
			my $script = "hostname() { echo host; }\n" . $line =~ s/\$\$/1/gr . qq{\necho "\$DLOCK_OWNER"\n};
			my %owners;
			for my $shell (map { ($_) x 2 } shells())
			{
				my $run = launch({ program => $shell->{program}, env => { PATH => $shell->{path} } }, '-c', $script);
				is(finish($run), 0, "$path: $shell->{name} makes an owner");
				like(output($run), qr{\A[\w./-]+\n\z}, 'of letters and digits');
				$owners{ output($run) } = 1;
			}
			is(scalar(keys %owners), 4, "$path: it is another one each time");
		}
	}
	cmp_ok($found, '>=', 2, 'there are such lines');
	return;
}

cases(
	'manuals' => \&manuals,
	'owners' => \&owners,
	'with-lease' => \&with_lease,
	'hold' => \&hold,
	'leader' => \&leader,
	'cached' => \&cached,
	'job-worker' => \&job_worker);
# they have the names of the manuals' examples
cases('units' => \&units);
stop_server();
done_testing();
