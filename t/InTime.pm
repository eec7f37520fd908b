# InTime.pm: check that clients are answered in time, whatever else the server cannot do;
# and repeat what proves something only if it was quick.
#
#   answers($client, 'locked', 20, "dlock_owner('n')" => 'a');
#   answers_together(\@clients, 'locked', 20, "dlock_owner('n')" => 'a', ...);
#   in_time(5, sub { my ($try) = @_; ... });
#   in_time(sub { $took < 5 }, sub { my ($try) = @_; ... });
#
# Their seconds are counted by a bystander, a process that does nothing else:
# while the machine stands still, or has no time for the bystander, none pass.

package InTime;

use strict;
use warnings;

use Exporter qw(import);
use IO::Handle;
use POSIX ();
use Test2::API qw(intercept);
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(answers answers_together in_time);

use constant TICK => 0.1;
use constant TRIES => 20;

# The bystander.  It starts first, since it keeps open what is open then.
my $ticks = 0;
pipe(my $count, my $tick) or die "no pipe: $!\n";
if (!(fork // die "could not fork: $!\n"))
{
	close $count;
	$SIG{PIPE} = 'DEFAULT';
	do { select(undef, undef, undef, TICK) } while syswrite($tick, '.');
	POSIX::_exit(0);
}
close $tick;
$count->blocking(0);

# The bystander's time.
sub seconds
{
	my $new;
	$ticks += $new while $new = sysread($count, my $read, 65536);
	return $ticks * TICK;
}

# Wait for a client's answer, and try it and the bystander's seconds since then.
sub try_answer
{
	my ($client, $what, $seconds, $began, $wanted) = @_;
	my $got = $client->outcome // '';
	my $took = seconds() - $began;
	ref $wanted ? like($got, $wanted, $what) : is($got, $wanted, $what);
	cmp_ok($took, '<', $seconds, "$what: in time");
	return;
}

# Run a client's SELECTs, given without that word: the answer of each within so many
# seconds.
sub answers
{
	my ($client, $what, $seconds, @statements) = @_;
	while (my ($sql, $wanted) = splice(@statements, 0, 2))
	{
		my $began = seconds();
		$client->send("SELECT $sql");
		try_answer($client, "$what: $sql", $seconds, $began, $wanted);
	}
	return;
}

# The same of SELECTs that run at the same time, each on a client of its own.
sub answers_together
{
	my ($clients, $what, $seconds, @statements) = @_;
	my @idle = @$clients;
	my @sent;
	my $began = seconds();
	while (my ($sql, $wanted) = splice(@statements, 0, 2))
	{
		my $client = shift @idle or die "$what: too few clients\n";
		$client->send("SELECT $sql");
		push @sent, [ $client, $sql, $wanted ];
	}
	for my $sent (@sent)
	{
		my ($client, $sql, $wanted) = @$sent;
		try_answer($client, "$what: $sql", $seconds, $began, $wanted);
	}
	return;
}

# Do something that proves what it should only if it takes less than so many seconds, since
# a lease lives no longer, say; or if a function says afterwards that it was in time.  What
# fails, and has taken longer, was done on too busy a machine, and is done again, with the
# number of the try as its argument.
sub in_time
{
	my ($limit, $code) = @_;
	for my $try (1 .. TRIES)
	{
		my $died;
		my $began = time;
		my $events = intercept { eval { $code->($try); 1 } or $died = $@ };
		my $took = time - $began;
		my $failed = defined $died || grep { $_->isa('Test2::Event::Ok') && !$_->pass } @$events;
		if ($failed && $try < TRIES && !(ref $limit ? $limit->() : $took < $limit))
		{
			note(sprintf('took %.1f s: once more', $took));
			next;
		}
		for my $event (@$events)
		{
			if ($event->isa('Test2::Event::Ok')) { ok($event->pass, $event->name) }
			elsif ($event->isa('Test2::Event::Diag')) { diag($event->message) }
			elsif ($event->isa('Test2::Event::Note')) { note($event->message) }
		}
		die $died if defined $died;
		return;
	}
	return;
}

1;
