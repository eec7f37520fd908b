# The lines of doc/frameworks.md, on the kind of server that is the argument; see
# CommandCases.pm.  A framework's command is a program here that notes how it was called; where
# Debian has the framework, the line is run with that, too.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use lib "$FindBin::RealBin/..";
use CommandCases;
use Files;
use InTime;
use JSON::PP;
use Manual;
use Test::More;

my $page = "$FindBin::RealBin/../../doc/frameworks.md";
my @sections = slurp($page) =~ /^## (.*)/mg;

start_server($ARGV[0]);

# What each section's lines call, with which words; a path of the page's, /app/x or
# /usr/local/bin/x, is ./x here.
my %calls = (
	'Celery beat' => 'celery -A app beat --pidfile= --schedule FOLDER/celerybeat-schedule',
	'APScheduler' => 'python3 scheduler.py',
	q{Laravel's scheduler} => 'php artisan schedule:work',
	'Rails migrations' => 'rails db:migrate',
	'Django migrations' => 'python3 manage.py migrate --noinput',
	'Flyway' => 'flyway -postgresql.transactional.lock=false migrate',
	'Liquibase' => "liquibase release-locks\nliquibase update",
	'golang-migrate' => 'migrate -path migrations -database postgresql://app up',
	'Terraform' => 'terraform apply -input=false plan.out',
	'pg_dump' => 'pg_dump -Fc -f app.new app',
	'A plain daemon' => 'send-mail --foreground',
	'A Kubernetes CronJob' => 'report',
	'A Kubernetes Deployment with a leader' => 'scheduler');

# A folder with a program of each name, which notes its words if it runs under a lease; those
# of an elector then stay.
sub folder_with
{
	my ($name, $stays, @programs) = @_;
	my $folder = scratch("folder-$name");
	mkdir $folder;
	mkdir "$folder/bin";
	symlink dlock(), "$folder/bin/dlock";
	for my $program (map { ("$folder/$_", "$folder/bin/$_") } @programs)
	{
		write_text($program, "#!/bin/sh\n[ -n \"\$DLOCK_TOKEN\" ] || exit 9\n[ \"\$2\" != -f ] || touch \"\$3\"\n"
			  . "echo \"\${0##*/}\${1:+ }\$*\" >>$folder/ran\n" . ($stays ? 'exec sleep 1000' : ''));
		chmod 0755, $program;
	}
	return $folder;
}

# Run a command of the page's in such a folder.
sub run_in
{
	my ($folder, @command) = @_;
	@command = map { s{/tmp/}{$folder/}gr =~ s{(?:/app|/usr/local/bin)/}{./}gr } @command;
	return launch({ program => 'env', env => { PATH => "$folder/bin:$ENV{PATH}", DLOCK_URL => url(), DATABASE_URL => 'postgresql://app' } },
		'-C', $folder, @command);
}

sub ran { return slurp("$_[0]/ran") =~ s/\Q$_[0]\E/FOLDER/gr }

# The command of a section, and whether it is an elector.
sub commands
{
	my %commands = map { $_->{section} => [ 'sh', '-c', $_->{script} ] } Manual::shell_blocks($page);
	for my $block (Manual::shell_blocks($page, 'yaml'))
	{
		$commands{ $block->{section} } = decode_json($1) if $block->{script} =~ /^ +command: (\[.*\])$/m;
	}
	return %commands;
}

sub lines
{
	my ($section, $command) = @_;
	my $stays = grep { /^dlock elect|\belect$/ } @$command;
	my $wanted = "$calls{$section}\n";
	my %programs = map { $_ => 1 } $wanted =~ /^([\w-]+)/mg;
	(my $name = $section) =~ s/\W+/-/g;
	my $folder = folder_with($name, $stays, keys %programs);
	if ($stays)
	{
		my @elect = $command->[0] eq 'sh' ? ('sh', '-c', "exec $command->[2]") : @$command;
		my ($lease) = "@$command" =~ /\belect (?:--\S+ \S+ )*(\S+)/;
		my $run = run_in($folder, @elect);
		ok(eventually(sub { ran($folder) eq $wanted }), "$section: the leader runs");
		if ($section =~ /Deployment/)
		{
			my ($probe) = map { $_->{script} =~ /exec: \{command: (\[.*?\])\}/ ? decode_json($1) : () } Manual::shell_blocks($page, 'yaml');
			is(finish(run_in($folder, @$probe)), 0, 'the probe finds the leader');
		}
		my $other = run_in($folder, @elect);
		ok(eventually(sub { waits_for($lease) }), 'a second one waits');
		is(ran($folder), $wanted, 'and does not run');
		kill 'TERM', $run->{pid};
		is(finish($run), 0, 'it ends when it is told to');
		ok(eventually(sub { ran($folder) eq $wanted x 2 }), 'and the second one runs');
		kill 'TERM', $other->{pid};
		is(finish($other), 0, 'until it is told, too');
		return;
	}
	in_time(RELEASED_IN, sub {
		unlink "$folder/ran";
		query("SELECT dlock_force_release('$_')") for qw(migrations backup nightly-report terraform/prod);
		my $run = run_in($folder, @$command);
		is(finish($run), 0, "$section: it runs") or diag(errors($run));
		is(ran($folder), $wanted, 'as it is to be called');
		my $again = run_in($folder, @$command);
		is(finish($again), 0, 'again');
		my $kept = "@$command" =~ /--keep/;
		is(ran($folder), $wanted x ($kept ? 1 : 2), $kept ? 'the job is done already' : 'it runs again, after the first');
	});
	return;
}

# One after the other: several have a name in common.
sub each_line
{
	my %commands = commands();
	is(join(', ', sort(keys %commands)), join(', ', sort keys %calls), 'each section with lines is known here');
	lines($_, $commands{$_}) for sort keys %commands;
	return;
}

# Celery and APScheduler themselves: one of two runs, and the other one when that has ended.
sub real
{
	my %commands = commands();
	my %programs = (
		'Celery beat' => [ 'celery', 'app.py', <<'EOT' ],
from celery import Celery
from celery.signals import beat_init
app = Celery(broker="memory://")
app.conf.beat_schedule = {"often": {"task": "often", "schedule": 0.2}}
class Notes:
    def __call__(self, **_):
        with open("began", "a") as file:
            file.write("began\n")
beat_init.connect(Notes(), weak=False)
EOT
		'APScheduler' => [ 'apscheduler', 'scheduler.py', <<'EOT' ]);
from apscheduler.schedulers.blocking import BlockingScheduler
def job(began=[]):
    if not began:
        began.append(True)
        with open("began", "a") as file:
            file.write("began\n")
scheduler = BlockingScheduler(timezone="UTC")
scheduler.add_job(job, "interval", seconds=0.2)
scheduler.start()
EOT
	for my $section (sort keys %programs)
	{
		my ($module, $file, $text) = @{ $programs{$section} };
		if (system("/usr/bin/python3 -c 'import $module' 2>/dev/null") != 0)
		{
			pass("there is no $module here");
			next;
		}
		my $folder = folder_with("real-$module", 0);
		write_text("$folder/$file", $text);
		write_text("$folder/bin/celery", "#!/bin/sh\nexec /usr/bin/python3 -m celery \"\$@\"\n");
		write_text("$folder/bin/python3", "#!/bin/sh\nexec /usr/bin/python3 \"\$@\"\n");
		chmod 0755, glob("$folder/bin/*");
		my @both = map { run_in($folder, 'sh', '-c', "exec $commands{$section}[2]") } 1 .. 2;
		ok(eventually(sub { slurp("$folder/began") eq "began\n" }), "$section itself: one runs") or diag(map { errors($_) } @both);
		my ($lease) = $commands{$section}[2] =~ /elect (\S+)/;
		ok(eventually(sub { waits_for($lease) }), 'and one waits');
		my ($leader) = sort { errors($b) =~ /leader of/ <=> errors($a) =~ /leader of/ } @both;
		kill 'TERM', $leader->{pid};
		is(finish($leader), 0, 'it ends in order');
		ok(eventually(sub { slurp("$folder/began") eq "began\n" x 2 }), 'the other one runs then');
		my ($other) = grep { $_ != $leader } @both;
		kill 'TERM', $other->{pid};
		is(finish($other), 0, 'to its end');
	}
	return;
}

# The lines of a unit are those of the example, which t/cli/examples.pl runs.
sub units
{
	my ($block) = Manual::shell_blocks($page, 'ini');
	my $example = slurp("$FindBin::RealBin/../../examples/systemd/nightly-report.service");
	is(join("\n", grep { $example !~ /^\Q$_\E$/m } split /\n/, $block->{script}), '', 'the lines for systemd are in the whole unit');
	return;
}

# A page that is copied from: short, and each section has its trap.
sub page
{
	my %text = map { /\A([^\n]*)\n(.*)\z/s } split /^## /m, slurp($page) =~ s/\A.*?^## //msr;
	for my $section (@sections)
	{
		like($text{$section}, qr/^\*\*The trap:\*\* /m, "$section has its trap");
		my @blocks = $text{$section} =~ /^```\w+\n(.*?)^```$/msg;
		is(scalar(grep { tr/\n// > 15 } @blocks), 0, 'and at most 15 lines to copy');
	}
	return;
}

cases('page' => \&page, 'units' => \&units, 'lines' => \&each_line);
# they have the names of the others
cases('real' => \&real);
stop_server();
done_testing();
