# Scenarios.pm: one set of scenarios for every engine.
#
# A scenario says what sessions do, step by step, and what they must be answered.  The
# text in t/scenarios is the same for PostgreSQL, MariaDB and MySQL; Engines.pm knows what
# differs between them.
#
#   == scenario 9: the head of the queue dies
#   sessions a b c
#   a: SELECT dlock_acquire('job', 'a', 30) => token T
#   b c> SELECT dlock_acquire('job', ME, 30, -1)
#   kill b
#   waiting c
#   a: SELECT dlock_release('job', 'a') => true
#   c< growing T
#
# A "==" begins a scenario.  24 of them, "scenario N", are faults known from other lock
# services; a new scenario gets no number.  One of the 24 is not here: 21, a primary that is
# killed under load and has replicas that confirm, needs more than one server.
# 453_failover.pl and 390_sync_wait.pl play it on PostgreSQL, mysql/cluster_load.pl on
# MariaDB (Galera) and MySQL (Group Replication), mysql/group_replication.pl on MySQL.
# "#" begins a comment line.
#
# Sessions.  They have no privileges, except "admin", an administrator, which need not be
# declared.
#
#   sessions a b           open them
#   sessions a as other    one of another role or account than the others have
#   reconnect a b          again, after their connection has ended
#   quit a                 it closes its connection
#   disconnect a           its client is killed
#   kill a                 an administrator ends its connection
#   cancel a               an administrator cancels what it runs
#   timeout a 0.5          what it runs from now on is cancelled after 0.5 s, each
#                          statement by itself
#
# Steps.  Several sessions before the sign do the same, one after the other; ME in the SQL
# stands for the session's name, quoted.
#
#   a: SQL => ANSWER       run it and compare
#   a> SQL                 start it; it must come to wait for a lease
#   a& SQL                 start it; it may wait or not
#   a& 20 times: SQL; SQL  start it, so many times
#   a< ANSWER              what was started is answered so
#   a still waits          it has not been answered, and is in dlock.waiters
#   waiting a b            until exactly these wait, on any one name in this
#                          order; names in their order
#   waiting nobody
#   eventually a: SQL => ANSWER   ask until it is so
#
# Answers.  Without "=>" no row must come back; a row is cells with "|" between
# them; of several rows each is a line of its own, indented, below the step.
#
#   NULL, true, false, any text
#   token, token T         a token; and call it T
#   growing T              a token, larger than T if there is one; now T
#   number N               a number that is not negative; and call it N
#   $T                     that token or number; in SQL as well
#   [CELL, CELL]           a list
#   0.5 to 3               a number between
#   /REGEX/
#   *                      anything
#   error SQLSTATE /REGEX/ an error; PostgreSQL's code, which Engines.pm
#                          translates; what it says in small or big letters
#   gone                   no answer: the connection has ended
#   no error               any rows
#   ANSWER, in at least 0.5 s   and it must take so long; how long at most, a busy
#                          machine decides
#   ANSWER, if within 1 s  an answer after more than that may be another: the machine
#                          was too busy, and the scenario is begun anew
#
# The server.  Tables that were made are dropped at the end of the scenario.
#
#   restart                stop and start it
#   crash                  kill it, and start it again
#   tokens left 2          leave the name two more tokens before the end; for good,
#                          so this scenario comes last of all
#
# Settings of the server's stand right below the title: "set lock_delay 0.5", in
# seconds.  Some servers have to be restarted for them, so scenarios that have
# some come last, and those that have the same one after the other.
#
# Differences.  "only postgres: REASON" has the other engines leave out the
# steps that follow up to an empty line, or the scenario if it stands right
# below its title.  The manual, doc/mysql.md, lists what differs and why: REASON
# is how a row of that list begins, and it is an error if none does.
#
# The runner's own tests, in t/scenarios/selftest, say "must fail: /REGEX/" and
# "patience 2", the time in seconds after which it gives up the last step.

package Scenarios;

use strict;
use warnings;

use CommandLine;
use File::Basename qw(dirname);
use Poll;
use Test::More ();

# How long to wait, in seconds, for something that should happen soon: on a busy machine it
# may take minutes.  Leases and waits that must not end by themselves are for longer.
use constant PATIENCE => 240;
our $patience = PATIENCE;

# How often a scenario is begun that the machine was too busy for.
use constant TRIES => 20;

# Check that all scenarios of the list were run, or that the other tests named here run
# them, and say so.
sub check_numbers
{
	my ($numbers, %elsewhere) = @_;
	for my $number (grep { !$numbers->{$_} } 1 .. 24)
	{
		my @files = @{ $elsewhere{$number} // [] };
		Test::More::ok(@files > 0, "scenario $number is played by @files");
		for my $path (@files)
		{
			open(my $file, '<', dirname(__FILE__) . "/$path") or die "could not open $path: $!\n";
			Test::More::like(join('', <$file>), qr/^# .*scenario $number\b/im, "$path says so");
		}
	}
	return;
}

# The differences that the manual lists, without marks for code and links.
my @differences;

sub differences
{
	return @differences if @differences;
	my $path = dirname(__FILE__) . '/../doc/mysql.md';
	open(my $file, '<', $path) or die "could not open $path: $!\n";
	local $/;
	my ($list) = <$file> =~ /^## Differences from PostgreSQL\n(.*?)^## /ms or die "$path lists no differences\n";
	$list =~ s/`|\[(.*?)\]\(.*?\)/$1 \/\/ ''/ge;
	return @differences = $list =~ /^\| (.+?) \|/mg;
}

# Those of MySQL and MariaDB that the engine of the log does not have.
my %not_of_log = map { $_ => 1 } 'no dlock_release_after', q{dlock.locks shows the transaction's snapshot};

# Read a file into a list of scenarios.
sub read_file
{
	my ($path) = @_;
	my (@scenarios, $scenario, $step, $only);

	open(my $file, '<', $path) or die "could not open $path: $!\n";
	while (my $line = <$file>)
	{
		my $where = "$path line $.";
		chomp $line;
		next if $line =~ /^#/;
		if ($line =~ /^\s*$/)
		{
			($step, $only) = ();
			next;
		}
		if ($line =~ /^== (.+)/)
		{
			$scenario = { title => $1, where => $where, steps => [], settings => {} };
			$scenario->{number} = $1 if $1 =~ /^scenario (\d+):/;
			push @scenarios, $scenario;
			($step, $only) = ();
			next;
		}
		die "$where: no scenario has begun\n" unless $scenario;
		if ($line =~ /^only (\w[\w ]*): (.*\w)/)
		{
			my $reason = $2;
			$only = { map { $_ => 1 } split ' ', $1 };
			$only = $only->{postgres} ? undef : {} if ($ENV{STORE} // '') eq 'log' && $not_of_log{$reason};
			next if !defined $only;
			Engines::is_kind($_) || die "$where: there is no engine \"$_\"\n" for keys %$only;
			die "$where: doc/mysql.md does not list this difference\n"
			  unless grep { /^\Q$reason\E\b/ } differences();
			$scenario->{only} = $only unless @{ $scenario->{steps} };
			$step = undef;
			next;
		}
		if ($line =~ /^set (\w+) ([\d.]+)$/ && !@{ $scenario->{steps} })
		{
			$scenario->{settings}{$1} = $2;
			next;
		}
		if ($line =~ /^patience ([\d.]+)$/)
		{
			$scenario->{patience} = $1;
			next;
		}
		if ($line =~ m{^must fail: /(.+)/$})
		{
			$scenario->{must_fail} = qr/$1/;
			next;
		}
		if ($line =~ /^\s+(.+?)\s*$/)
		{
			my $row = $1;
			die "$where: a row that no step has\n"
			  unless $step && $step->{rows} && !$step->{complete};
			push @{ $step->{rows} }, read_row($row);
			next;
		}
		$step = eval { read_step($line) } or die "$where: " . ($@ || "cannot be understood\n");
		@$step{qw(where text only)} = ($where, $line, $only);
		push @{ $scenario->{steps} }, $step;
	}
	die "$path: no scenario\n" unless @scenarios;
	for my $scenario (@scenarios)
	{
		die "$scenario->{where}: nothing is checked\n"
		  unless grep { $_->{do} =~ /^(query|eventually|answer|start|waiting)$/ } @{ $scenario->{steps} };
	}
	return @scenarios;
}

# The same for the same settings, and empty without.
sub settings_text
{
	my ($settings) = @_;
	return join(', ', map { "$_ $settings->{$_}" } sort keys %$settings);
}

sub read_step
{
	my ($line) = @_;
	my $names = qr/\w+(?: \w+)*/;

	return { do => 'open', names => [$1], role => $2 } if $line =~ /^sessions (\w+) as (\w+)$/;
	return { do => 'open', names => [ split ' ', $1 ] } if $line =~ /^sessions ($names)$/;
	return { do => $1, names => [ split ' ', $2 ] }
	  if $line =~ /^(reconnect|quit|disconnect|kill|cancel) ($names)$/;
	return { do => 'timeout', names => [$1], value => $2 } if $line =~ /^timeout (\w+) ([\d.]+)$/;
	return { do => 'still_waits', names => [ split ' ', $1 ] } if $line =~ /^($names) still waits?$/;
	return { do => 'waiting', names => [ $1 eq 'nobody' ? () : split ' ', $1 ] }
	  if $line =~ /^waiting ($names)$/;
	return { do => $1 } if $line =~ /^(restart|crash)$/;
	return { do => 'tokens_left', value => $1 } if $line =~ /^tokens left (\d+)$/;
	return { do => 'start', waits => $2 eq '>', names => [ split ' ', $1 ], times => $3 // 1, sql => $4 }
	  if $line =~ /^($names)([>&]) (?:(\d+) times: )?(.+)$/;
	return { do => 'answer', names => [ split ' ', $1 ], read_answer($2) } if $line =~ /^($names)< (.+)$/;
	return { do => $1 ? 'eventually' : 'query', names => [ split ' ', $2 ], sql => $3, read_answer($4) }
	  if $line =~ /^(eventually )?($names): (.+?)(?:\s+=> (.+))?$/;
	return;
}

# Read what follows a "=>".
sub read_answer
{
	my ($text) = @_;
	my @answer;

	return (rows => []) unless defined $text;
	push @answer, least => $1 if $text =~ s/, in at least ([\d.]+) s$//;
	push @answer, within => $1 if $text =~ s/, if within ([\d.]+) s$//;
	return (@answer, error => $1, message => defined $2 ? qr/$2/is : qr//)
	  if $text =~ m{^error (\w{5})(?: /(.+)/)?$};
	return (@answer, gone => 1) if $text eq 'gone';
	return (@answer, any => 1) if $text eq 'no error';
	return (@answer, rows => [ read_row($text) ], complete => 1);
}

sub read_row
{
	my ($text) = @_;
	return [ split /\s*\|\s*/, $text, -1 ];
}

package Scenarios::Run;

use strict;
use warnings;

use Time::HiRes qw(time);

# Test all files' scenarios on an engine, which has been started.
sub Scenarios::test
{
	my ($engine, @files) = @_;
	my %numbers;
	my @scenarios;

	for my $path (@files)
	{
		my @more = eval { Scenarios::read_file($path) };
		Test::More::fail($@ =~ s/\n//r) unless @more;
		push @scenarios, grep { (!$_->{only} || $_->{only}{ $engine->kind }) && $engine->plays($_) } @more;
	}
	for my $scenario (@scenarios)
	{
		my @last = grep { $_->{do} eq 'tokens_left' } @{ $scenario->{steps} };
		$scenario->{order} = @last . ' ' . Scenarios::settings_text($scenario->{settings});
	}
	for my $scenario (sort { $a->{order} cmp $b->{order} } @scenarios)
	{
		$numbers{ $scenario->{number} }++ if $scenario->{number};
		my $began = time;
		my ($failure, $again);
		for (1 .. Scenarios::TRIES)
		{
			($failure, $again) = run($engine, $scenario);
			last if !$again;
			Test::More::note("$scenario->{title}: once more: $failure");
		}
		my $wanted = $scenario->{must_fail};
		Test::More::ok(
			$wanted ? defined $failure && $failure =~ $wanted : !defined $failure,
			sprintf('%s (%d ms)', $scenario->{title}, 1000 * (time - $began)))
		  or Test::More::diag($failure // "$scenario->{where}: this did not fail");
	}
	return \%numbers;
}

# Run a scenario; undef if all is right, else what is wrong, and whether that is only that the
# machine was too busy.
sub run
{
	my ($engine, $scenario) = @_;
	my $self = bless { engine => $engine, sessions => {}, vars => {} },
	  __PACKAGE__;
	my $failure;
	my $step;

	if (!eval {
		$engine->settings($scenario->{settings});
		my $last = $scenario->{steps}[-1];
		for my $next (@{ $scenario->{steps} })
		{
			next if $next->{only} && !$next->{only}{ $engine->kind };
			$step = $next;
			local $Scenarios::patience = $scenario->{patience} if $scenario->{patience} && $step == $last;
			my $do = "do_$step->{do}";
			$self->$do($step);
		}
		undef $step;
		for my $name (sort keys %{ $self->{sessions} })
		{
			die "nobody asked for $name\'s answer\n" if $self->{sessions}{$name}->is_busy;
		}
		1;
	})
	{
		$failure = $step ? "$step->{where}: $step->{text}\n$@" : "$scenario->{where}: $@";
	}
	if (!eval { $engine->clean_up(values %{ $self->{sessions} }); 1 })
	{
		$failure = ($failure // '') . "cleaning up after $scenario->{where}: $@";
		$_->kill for values %{ $self->{sessions} };
		$engine->recover;
	}
	return ($failure, $self->{late});
}

sub session
{
	my ($self, $name) = @_;
	$self->{sessions}{$name} //= $self->{engine}->client($name) if $name eq 'admin';
	return $self->{sessions}{$name} // die "there is no session \"$name\"\n";
}

# Call something until it returns true; false if it never does.
sub until { return Poll::until($Scenarios::patience, @_) }

sub sql
{
	my ($self, $sql, $name) = @_;
	$sql =~ s/\$(\w+)/$self->{vars}{$1} \/\/ die "there is no token \"$1\"\n"/eg;
	$sql =~ s/\bME\b/'$name'/g;
	return $self->{engine}->translate($sql);
}

# Does a value match a cell of the answer that is wanted?
sub cell_matches
{
	my ($self, $cell, $value) = @_;
	my $engine = $self->{engine};

	return 1 if $cell eq '*';
	return $value eq $engine->boolean($cell eq 'true') if $cell eq 'true' || $cell eq 'false';
	if (my ($what, $token) = $cell =~ /^(token|growing)(?: (\w+))?$/)
	{
		return 0 unless $value =~ /^\d{1,16}$/ && $value > 0 && $value < 2**53;
		return 1 unless defined $token;
		my $before = $self->{vars}{$token};
		$self->{vars}{$token} = $value;
		return $what eq 'token' || !defined $before || $value > $before;
	}
	if (my ($number) = $cell =~ /^number (\w+)$/)
	{
		$self->{vars}{$number} = $value;
		return $value =~ /^\d+$/;
	}
	if (my ($token) = $cell =~ /^\$(\w+)$/)
	{
		return $value eq ($self->{vars}{$token} // die "there is no token \"$token\"\n");
	}
	if (my ($low, $high) = $cell =~ /^(-?[\d.]+) to (-?[\d.]+)$/)
	{
		return $value =~ /^-?[\d.]+$/ && $value >= $low && $value <= $high;
	}
	if (my ($regex) = $cell =~ m{^/(.+)/$})
	{
		return $value =~ /$regex/s;
	}
	if (my ($cells) = $cell =~ /^\[(.*)\]$/)
	{
		my @cells = split /,\s*/, $cells;
		my @items = $engine->list($value);
		return 0 if @items != @cells;
		$self->cell_matches($cells[$_], $items[$_]) || return 0 for 0 .. $#cells;
		return 1;
	}
	return $value eq $cell;
}

# Die unless an answer is what the step wants.
sub check
{
	my ($self, $step, $name, $answer) = @_;
	my $got;
	my $matches = 0;

	if ($answer->{gone})
	{
		$got = 'gone';
		$matches = $step->{gone};
	}
	elsif (defined $answer->{error})
	{
		$got = "error $answer->{error}: $answer->{message}";
		$matches = defined $step->{error}
		  && $self->{engine}->is_error($step->{error}, $answer->{error})
		  && $answer->{message} =~ $step->{message};
	}
	else
	{
		my @rows = @{ $answer->{rows} };
		# a function that returns nothing returns a row of it to PostgreSQL
		@rows = () if @rows == 1 && @{ $rows[0] } == 1 && $rows[0][0] eq '';
		$got = @rows ? join("\n", map { join(' | ', @$_) } @rows) : 'no rows';
		$matches = $step->{any};
		if ($step->{rows})
		{
			$matches = @rows == @{ $step->{rows} };
			for my $i (0 .. ($matches ? $#rows : -1))
			{
				my ($is, $wanted) = ($rows[$i], $step->{rows}[$i]);
				$matches &&= @$is == @$wanted
				  && !grep { !$self->cell_matches($wanted->[$_], $is->[$_]) } 0 .. $#$is;
			}
		}
	}
	$self->{late} = 1 if !$matches && defined $step->{within} && $answer->{seconds} > $step->{within};
	die "$name was answered: $got\n" unless $matches;
	die sprintf("%s was answered after %.3f s\n", $name, $answer->{seconds})
	  if defined $step->{least} && $answer->{seconds} < $step->{least};
	return;
}

sub do_open
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		die "there is a session \"$name\"\n" if $self->{sessions}{$name};
		$self->{sessions}{$name} = $self->{engine}->client($name, $step->{role});
	}
	return;
}

sub do_reconnect
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		my $session = $self->session($name);
		$session->kill;
		$self->{sessions}{$name} = $self->{engine}->client($name, $session->{role});
	}
	return;
}

sub do_quit
{
	my ($self, $step) = @_;
	$self->session($_)->quit for @{ $step->{names} };
	return;
}

sub do_disconnect
{
	my ($self, $step) = @_;
	$self->session($_)->kill for @{ $step->{names} };
	return;
}

sub do_kill
{
	my ($self, $step) = @_;
	$self->{engine}->kill_connection($self->session($_)) for @{ $step->{names} };
	return;
}

sub do_cancel
{
	my ($self, $step) = @_;
	$self->{engine}->cancel($self->session($_)) for @{ $step->{names} };
	return;
}

sub do_timeout
{
	my ($self, $step) = @_;
	$self->session($_)->{limit} = $step->{value} for @{ $step->{names} };
	return;
}

# An administrator's session that has ended with the server is opened again.
sub forget_admin
{
	my ($self) = @_;
	$self->{sessions}{admin}->kill if $self->{sessions}{admin};
	delete $self->{sessions}{admin};
	return;
}

sub do_restart
{
	my ($self) = @_;
	$self->{engine}->restart;
	$self->forget_admin;
	return;
}

sub do_crash
{
	my ($self) = @_;
	$self->{engine}->crash;
	$self->forget_admin;
	return;
}

sub do_tokens_left
{
	my ($self, $step) = @_;
	$self->{engine}->tokens_left($step->{value});
	$self->forget_admin;
	return;
}

sub do_query
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		my ($session, $answer) = ($self->session($name));
		# a call that waits for a moment may be told that the machine was too busy to decide in it
		Scenarios::Run::until(sub {
			$session->send($self->sql($step->{sql}, $name));
			$answer = $session->answer;
			return !$self->{engine}->is_undecided($answer);
		});
		$self->check($step, $name, $answer);
	}
	return;
}

sub do_eventually
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		my $session = $self->session($name);
		Scenarios::Run::until(sub {
			local $Scenarios::patience = Scenarios::PATIENCE;
			$session->send($self->sql($step->{sql}, $name));
			return eval { $self->check($step, $name, $session->answer); 1 };
		}) or die $@;
	}
	return;
}

sub do_start
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		my $session = $self->session($name);
		$session->send(join("; ", ($self->sql($step->{sql}, $name)) x $step->{times}));
		next unless $step->{waits};
		my $answered;
		Scenarios::Run::until(sub {
			return ($answered = $session->is_answered) || $self->{engine}->is_asleep($session);
		}) or die "$name does not come to wait\n";
		$self->check({}, $name, $session->answer) if $answered;
	}
	return;
}

sub do_answer
{
	my ($self, $step) = @_;
	$self->check($step, $_, $self->session($_)->answer) for @{ $step->{names} };
	return;
}

sub do_still_waits
{
	my ($self, $step) = @_;
	for my $name (@{ $step->{names} })
	{
		my $session = $self->session($name);
		die "$name is not in dlock.waiters\n" unless $self->{engine}->is_waiting($session);
		$self->check({}, $name, $session->answer) if $session->is_answered;
	}
	return;
}

sub do_waiting
{
	my ($self, $step) = @_;
	my $wanted = join(' ', map { $self->session($_)->{id} } @{ $step->{names} });
	my $is;
	Scenarios::Run::until(sub {
		local $Scenarios::patience = Scenarios::PATIENCE;
		$is = join(' ', $self->{engine}->waiting);
		return $is eq $wanted;
	}) or die "waiting: $is, not $wanted\n";
	return;
}

package Scenarios::Client;

# A session.

use strict;
use warnings;
our @ISA = ('CommandLine');

use Time::HiRes qw(time);

sub new
{
	my ($class, $engine, $name, $role) = @_;
	my $self = bless { engine => $engine, name => $name, role => $role, count => 0 }, $class;
	$self->start(@{ $engine->client_command($name, $role) });
	my $answer = $self->query($engine->connection_id);
	$self->{id} = $answer->{rows}[0][0] // die "could not connect: $self->{err}\n";
	return $self;
}

sub send
{
	my ($self, $sql) = @_;
	die "$self->{name} is busy\n" if $self->is_busy;
	$self->{err} = '';
	$self->{out} = '';
	$self->{end} = '=end ' . ++$self->{count} . '=';
	$self->{began} = time;
	delete $self->{seconds};
	$sql = $self->{engine}->limited($sql, $self->{limit}) if defined $self->{limit};
	$self->type("$sql;\n" . $self->{engine}->echo($self->{end}) . "\n");
	return;
}

# Was something sent whose answer was not asked for?
sub is_busy
{
	my ($self) = @_;
	return defined $self->{end};
}

# Has the answer of what was sent come, or can none come any more?
sub is_answered
{
	my ($self) = @_;
	return $self->_is_answered($self->pump(0));
}

sub _is_answered
{
	my ($self, $is_there) = @_;
	return 0 if $is_there && $self->{out} !~ /^\Q$self->{end}\E\n/m && !$self->_is_gone;
	$self->{seconds} //= time - $self->{began};
	return 1;
}

# The connection may be gone while the client still runs.
sub _is_gone
{
	my ($self) = @_;
	return $self->{engine}->is_gone($self->{err});
}

sub answer
{
	my ($self) = @_;
	die "$self->{name} was asked nothing\n" unless $self->is_busy;
	my $deadline = time + $Scenarios::patience;
	my $is_there = $self->pump(0);
	until ($self->_is_answered($is_there))
	{
		my $left = $deadline - time;
		die "$self->{name} is not answered\n" if $left <= 0;
		$is_there = $self->pump($left);
	}
	# the client wrote to stderr before that
	$self->pump(0);
	my %answer = (seconds => $self->{seconds});
	if ($self->{out} !~ s/^\Q$self->{end}\E\n.*//ms)
	{
		$answer{gone} = 1;
	}
	else
	{
		@answer{qw(error message)} = $self->{engine}->error($self->{err});
		$answer{rows} = [ map { [ split /\t/, $_, -1 ] } map { $_ eq '' ? "\t" : $_ } split /\n/, $self->{out} ];
		$_->[0] eq '' && @$_ == 2 && (@$_ = ('')) for @{ $answer{rows} };
	}
	delete $self->{end};
	return \%answer;
}

sub query
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->answer;
}

# The first value of a statement of the runner's own.
sub value
{
	my ($self, $sql) = @_;
	my $answer = $self->query($sql);
	die "$sql: " . ($answer->{message} // 'the connection is gone') . "\n"
	  if $answer->{gone} || defined $answer->{error};
	return $answer->{rows}[0][0];
}

# What a statement answers, or the one that was sent: its first value, or its error.
sub outcome
{
	my ($self, $sql) = @_;
	$self->send($sql) if defined $sql;
	my $answer = $self->answer;
	return "$answer->{error}: $answer->{message}" if defined $answer->{error};
	return $answer->{rows}[0][0];
}

# The same of an acquire that waits for less than a second: on a busy machine it may be told
# that it could not be decided in that, and asks again.
sub decided
{
	my ($self, $sql) = @_;
	my $outcome;
	Scenarios::Run::until(sub { !$self->{engine}->is_undecided($outcome = $self->outcome($sql)) });
	return $outcome;
}

# Close the connection as a program does.
sub quit
{
	my ($self) = @_;
	$self->reap;
	return;
}

# End the client in the middle of what it does.
sub kill
{
	my ($self) = @_;
	$self->kill_client;
	delete $self->{end};
	return;
}

1;
