# History.pm: the answers that clients of leases got, and whether they can be true.
#
# A history is the calls of many clients, written down by each, with times of one
# monotonic clock that all share.  A call took effect at some time between its start and
# its end.  What follows from that, and nothing else, is checked against the contract's
# rules:
#
#   exclusion  no two holds at once that exclude each other
#   permits    never more permits than the limit, which may be taken several at once
#   lost       no acknowledged lease ends by itself before its deadline
#   late       none is renewed after it
#   token      tokens grow with every grant of a name
#   order      first come, first served, where it is known which waiter came first
#   told       no owner holds what was refused to it, or what it has given back; none is
#              granted again what it has, or more than it wants; after a downgrade none
#              has its lease exclusively; and once it has left it, that is, given it
#              back with effect later, it is not the owner's any more
#   deadlock   no caller is told of one unless some owner may hold something and wait
#
# A check complains only if no order of the events keeps the rules.  So a call whose
# answer was lost, or was an error, proves nothing: it may have done its work or not, and
# at any time after its start.
#
#   my $history = History->new(lossy => 0, owners => qr/^a/);
#   $history->add_file($path);
#   my @wrong = $history->check;       "rule: what is wrong", ...
#   $history->figures;                 how much there was to check
#   $history->errors;                  error => how often it was answered;
#                                      "guard ..." if it was to a guard
#   $history->largest;                 name => largest token
#
# A line of a history has columns separated by tabs.  Times are microseconds.
#
#   C start end client op name owner mode limit ttl wait request token answer holds
#       A call.  op: acquire, session (dlock_acquire_session, shared or not), xact
#       (dlock_acquire_xact, the same), any (dlock_acquire_any), all
#       (dlock_acquire_all), renew, release, leave (dlock_release_after, and the ttl is
#       when), downgrade, guard, owner (dlock_owner), commit.  mode: x, s, p.  wait:
#       negative is for ever.  answer: a token, an owner, t, f, - for NULL, ? and an
#       error's code for one that is not known.  holds: how many were asked for, or given
#       back, at once.
#       A call for many names has a line for each, with the same times; "-" says that
#       a name was not claimed, "f" that it was not renewed or released.  The limit
#       of a claim is how many names it wants.
#       A guard is a whole transaction with dlock_guard; its ttl is the time when
#       COMMIT was sent, and "f" says that the lease was not held.  A commit is the
#       end of the transaction that a lease belongs to.
#   W start end client ENTRY...   those who wait; an entry is "name owner position",
#       and "-" is the position of a waiter that has none
#   L start end client ENTRY...   the rows of leases: "name owner mode token live", or
#       "over" for one whose deadline has passed and that is still there; the mode as
#       the view has it
#   D time client                 the client ends its connection, or has lost it
#   K start end what              the server was killed, until it was back
#   X start end what              somebody's statement or connection was ended
#   F name token                  such a token was granted before this history
#
# An owner is one thread of control: its calls on a name do not overlap.  All calls of the
# owners that match "owners" are in the history; others may be seen to wait or to hold,
# but the history does not have their calls.
#
# "lossy" is for servers that may lose the newest leases when they are killed:
# asynchronous commit or replication.  Tokens have to grow all the same.
# "deferred" is for servers whose table shows a lease that was given back while
# a transaction guards its name (MySQL and MariaDB).
#
# Besides the calls' times, the checks use the tokens.  They grow with every grant, so
# they tell the order of the grants of a name.  A grant was therefore not before the
# certain end of any hold with a smaller token that excludes it.  If that is after its own
# answer, something is wrong: with the exclusion, or with the tokens.

package History;

use strict;
use warnings;

use List::Util qw(max min);

use constant NEVER => 9e18;

sub new
{
	my ($class, %params) = @_;
	return bless {
		lossy => $params{lossy},
		deferred => $params{deferred},
		owners => $params{owners} // qr/^/,
		names => {},      # name => { owners => { owner => [ call ] }, asked => [ call ] }
		waiting => [],    # snapshots
		rows => [],
		kills => [],
		cuts => [],
		closed => {},     # client => [ time ]
		claims => {},     # "client start" => how many names a claim was answered
		floor => {},
		wrong => [],
		largest => {},
		errors => {},
		figures => {
			map { $_ => 0 }
			  qw(calls unknown grants refused holds kills compared ordered rows renewed guards
			  claimed replayed several bound downgraded left)
		},
	}, $class;
}

my @columns = qw(start end client op name owner mode limit ttl wait request token answer holds);

# Calls that may be granted a lease, and what the view calls their modes.
my $acquires = qr/^(acquire|session|xact|any|all)$/;
my %mode_shown = (x => 'exclusive', s => 'shared', p => 'permit');

# Add lines, or all lines of a file.
sub add
{
	my ($self, @lines) = @_;

	for my $line (@lines)
	{
		my ($kind, @fields) = split /\t/, $line =~ s/\n\z//r;
		if ($kind eq 'C')
		{
			my %call;
			@call{@columns} = @fields;
			die "not a call: $line\n" if !defined $call{holds};
			$self->{figures}{calls}++;
			if ($call{answer} =~ /^\?(.*)/)
			{
				$self->{figures}{unknown}++;
				$self->{errors}{ $call{op} eq 'guard' ? "guard $1" : $1 }++;
			}
			$self->_count_claimed(\%call) if $call{op} eq 'any' && $call{answer} =~ /^\d/;
			my $name = $self->{names}{ $call{name} } //= { owners => {}, asked => [] };
			if ($call{op} eq 'owner') { push @{ $name->{asked} }, \%call }
			else { push @{ $name->{owners}{ $call{owner} } }, \%call }
		}
		elsif ($kind eq 'W' || $kind eq 'L')
		{
			my ($start, $end, undef, @entries) = @fields;
			push @{ $self->{ $kind eq 'W' ? 'waiting' : 'rows' } },
			  { start => $start, end => $end, entries => [ map { [ split / / ] } @entries ] };
		}
		elsif ($kind eq 'K') { push @{ $self->{kills} }, [ @fields[0, 1] ] }
		elsif ($kind eq 'X') { push @{ $self->{cuts} }, $fields[0] if $fields[2] eq 'terminate' }
		elsif ($kind eq 'D') { push @{ $self->{closed}{ $fields[1] } }, $fields[0] }
		elsif ($kind eq 'F') { $self->{floor}{ $fields[0] } = $fields[1] }
		else { die "not a line of a history: $line\n" }
	}
	return;
}

# A name that a claim has got.
sub _count_claimed
{
	my ($self, $call) = @_;
	my $count = ++$self->{claims}{"$call->{client} $call->{start}"};
	$self->_wrong('told', "$call->{owner} wanted $call->{limit} names at $call->{start}, and got $count")
	  if $count == $call->{limit} + 1;
	return;
}

# Whether a claim has got fewer names than it wants: then it has tried all of them.
sub _is_wanting
{
	my ($self, $call) = @_;
	return ($self->{claims}{"$call->{client} $call->{start}"} // 0) < $call->{limit};
}

sub add_file
{
	my ($self, $path) = @_;
	open(my $file, '<', $path) or die "could not open $path: $!\n";
	while (my $line = <$file>)
	{
		$self->add($line);
	}
	return;
}

sub figures { return $_[0]{figures} }

sub errors { return $_[0]{errors} }

sub largest { return $_[0]{largest} }

sub _wrong
{
	my ($self, $rule, $text) = @_;
	push @{ $self->{wrong} }, "$rule: $text";
	return;
}

# Check everything: returns all that is wrong.
sub check
{
	my ($self) = @_;

	@{ $self->{kills} } = sort { $a->[0] <=> $b->[0] } @{ $self->{kills} };
	$self->{figures}{kills} = @{ $self->{kills} };
	@{ $self->{cuts} } = sort { $a <=> $b } @{ $self->{cuts} };
	for my $name (sort keys %{ $self->{names} })
	{
		my $known = $self->{names}{$name};
		my @holds;
		for my $owner (sort keys %{ $known->{owners} })
		{
			my $calls = $known->{owners}{$owner};
			@$calls = sort { $a->{start} <=> $b->{start} } @$calls;
			push @holds, $self->_holds($name, $owner, $calls);
		}
		$self->_check_tokens($name, \@holds);
		$self->_check_owners($name, $known, \@holds);
		$known->{holds} = \@holds;
	}
	$self->_check_order;
	$self->_check_rows;
	$self->_check_deadlocks;
	return @{ $self->{wrong} };
}

# Find an owner's holds on a name from its calls, each from its grant on.  A hold has the
# calls that were made with it; _replay() judges them, when the earliest time of its grant
# is known.
sub _holds
{
	my ($self, $name, $owner, $calls) = @_;
	my ($hold, @holds);
	my $unknown;      # start of an acquire whose answer was lost
	my ($more, $fewer) = (0, 0);      # holds that such acquires, and releases, may have come to
	my @last;         # the hold's last acquire, and those since whose answers were lost

	for my $call (@$calls)
	{
		my $answer = $call->{answer};
		if ($call->{op} =~ $acquires)
		{
			$call->{may_repeat} = $call->{request} ne '-' && grep { $_->{request} eq $call->{request} } @last;
			$call->{repeats} = $call->{may_repeat} && @last == 1 && $last[0]{answer} =~ /^\d/;
			@last = () if $answer =~ /^\d/;
			push @last, $call if $answer ne '-';
			if ($answer =~ /^\?/)
			{
				push @{ $self->{deadlocks} }, $call if $answer =~ /^\?(40P01|3058)$/;
				$unknown //= $call->{start};
				$more += $call->{holds};
				push @{ $hold->{calls} }, $call if $hold;
			}
			elsif ($answer eq '-')
			{
				$self->{figures}{refused}++;
				push @{ $hold->{calls} }, $call if $hold;
			}
			elsif ($hold && $hold->{token} == $answer)
			{
				push @{ $hold->{calls} }, $call;
				($more, $fewer) = (0, 0);
				undef $unknown;
			}
			else
			{
				# the earlier hold must have been over by then
				push @{ $hold->{calls} }, $call if $hold;
				$self->{figures}{grants}++;
				$self->{figures}{claimed}++ if $call->{op} eq 'any';
				$self->{figures}{bound}++ if $call->{op} eq 'xact';
				$self->{figures}{several}++ if $call->{holds} > 1;
				$hold = {
					name => $name,
					owner => $owner,
					client => $call->{client},
					token => $answer,
					mode => $call->{mode},
					session => scalar($call->{op} =~ /^(session|xact)$/),
					limit => $call->{limit},
					from => $unknown // $call->{start},
					start => $call->{start},
					end => $call->{end},
					ttl => $call->{ttl},
					asked => $call->{holds},
					most => $call->{holds} + $more,
					least => $call->{holds} - $fewer,
					calls => [],
				};
				push @holds, $hold;
				($more, $fewer) = (0, 0);
				undef $unknown;
			}
			next;
		}
		# a token other than the hold's is of an earlier hold, which is over
		if ($hold && $call->{token} ne '-' && $call->{token} != $hold->{token})
		{
			$self->_wrong('told', "$owner was told that $call->{op} of $name worked at $call->{start}, with token $call->{token}, but he has $hold->{token}")
			  if $answer eq 't' && !defined $unknown;
			next;
		}

		# without a hold there is nothing to renew or give back
		if (!$hold && !defined $unknown)
		{
			$self->_wrong('told', "$owner, who was never granted $name, was told that $call->{op} worked at $call->{start}")
			  if $answer eq 't';
			next;
		}
		$fewer += $call->{holds} if $call->{op} eq 'release' && $answer =~ /^\?/;
		push @{ $hold->{calls} }, $call if $hold;
	}
	return @holds;
}

# Find until when a hold has certainly been in force, and until when it was in the way of
# others, if it was granted at $granted or later.  Reports what is wrong with the calls
# that were made with it.
#
#   sure        held until then
#   alone       in the way of others until then: guarded, perhaps
#   exclusive   in the way of everybody until then
#   permits     of each of its permits: in the way until then
sub _replay
{
	my ($self, $hold, $granted) = @_;
	my ($lower, $upper) = (max($granted, $hold->{start}) + $hold->{ttl}, $hold->{end} + $hold->{ttl});
	my ($guarded, $guarded_exclusive, $guarded_permits) = (0, 0, 0);
	my ($least, $most) = @$hold{qw(least most)};
	my $permits = $least;     # of those granted first
	my @given_back;           # when, of those
	my $first_release;
	my $in_doubt = 0;     # the owner may have got another hold by now
	my $end = NEVER;      # at the latest: given back
	my $cut = NEVER;      # by something that took it
	my $left;             # it is certainly nobody's
	my $may_be_left;      # when that was asked for first
	my $left_until = NEVER;
	my $what = "$hold->{owner} on $hold->{name}, token $hold->{token}";

	if ($hold->{session})
	{
		# until the client, or somebody else, ends the connection, or the transaction ends
		$lower = $upper = NEVER;
		$cut = min(
			$self->_next_kill($hold->{end}),
			(grep { $_ >= $hold->{start} } @{ $self->{closed}{ $hold->{client} } // [] }, @{ $self->{cuts} }),
			NEVER);
	}
	$cut = min($cut, $self->_next_kill($hold->{end})) if $self->{lossy};

	for my $call (@{ $hold->{calls} })
	{
		my ($op, $answer) = @$call{qw(op answer)};
		my $sure = min($lower, $end, $cut, $left_until);
		my $is_left = $left && !($self->{lossy} && $self->_killed($may_be_left, $call->{end}));

		$self->_wrong('told', "$what: $op at $call->{start} worked, though it had been left")
		  if $is_left && ($op =~ $acquires ? $answer eq $hold->{token} : $answer eq 't' && ($op ne 'leave' || $call->{token} eq '-'));
		if ($op =~ $acquires)
		{
			if ($answer eq $hold->{token})
			{
				$self->_wrong('told', "$what: claimed again at $call->{start}")
				  if $op eq 'any' && !$call->{may_repeat} && !$in_doubt && $sure > $call->{end};
				$self->{figures}{replayed}++ if $op =~ /^(any|all)$/ && $call->{repeats};
				$lower = max($lower, $call->{start} + $call->{ttl});
				$upper = max($upper, $call->{end} + $call->{ttl});
				# it has been in force all the time, or it would be another
				$end = NEVER;
				$in_doubt = 0;
				$least += $call->{holds} unless $call->{may_repeat};
				$most += $call->{holds} unless $call->{repeats};
				$self->_wrong('told', "$what: has it again, having given it back, at $call->{start}")
				  if defined $hold->{given_back} && !$self->_killed($hold->{given_back}[0], $call->{end});
				delete $hold->{given_back};
			}
			elsif ($answer =~ /^\?/)
			{
				$most += $call->{holds};
				$in_doubt = 1;
			}
			elsif ($in_doubt) { }
			# what is left is in its owner's way like in anybody's
			elsif (defined $may_be_left && ($answer eq '-' || $call->{mode} eq 's' && ($hold->{mode} eq 's' || $hold->{downgraded}))) { }
			# a claim skips names that the owner has, unless it is repeated
			elsif ($op eq 'any' && $answer eq '-' && !($call->{repeats} && $self->_is_wanting($call))) { }
			# another of its names was not free
			elsif ($op eq 'all' && $answer eq '-') { }
			elsif ($hold->{mode} ne 'p' && $sure > $call->{end})
			{
				$self->_wrong('lost', "$what: entering it again at $call->{start} was answered $answer before " . _when($sure));
			}
		}
		elsif ($op eq 'commit')
		{
			$end = min($end, $call->{start});
			$hold->{given_back} = [ $call->{start}, $call->{end} ] if $answer eq 't';
		}
		elsif ($in_doubt)
		{
			$end = min($end, $call->{start}) if $op eq 'release';
			$lower = min($lower, $call->{start} + $call->{ttl}) if $op eq 'renew' && !$hold->{session};
			$hold->{downgraded} //= [ $call->{start}, NEVER ] if $op eq 'downgrade';
			if ($op eq 'leave')
			{
				$may_be_left //= $call->{start};
				$left_until = min($left_until, $call->{start} + $call->{ttl});
			}
		}
		elsif ($op eq 'leave' && ($answer =~ /^\?/ || $answer eq 't'))
		{
			$self->_wrong('told', "$what: left at $call->{start}, after it was given back")
			  if $answer eq 't' && defined $hold->{given_back} && !$self->_killed($hold->{given_back}[0], $call->{end});
			$self->_wrong('late', "$what: left at $call->{start}, after " . _when($upper))
			  if $answer eq 't' && $call->{start} > $upper && !$self->_killed($hold->{start}, $call->{end});
			$may_be_left //= $call->{start};
			# a call that finds it left changes nothing
			next if $left;
			$left_until = min($left_until, $call->{start} + $call->{ttl});
			$upper = $answer eq 't' && $may_be_left == $call->{start} ? $call->{end} + $call->{ttl} : NEVER;
			next if $answer ne 't';
			$self->{figures}{left}++;
			$left = 1;
			$lower = NEVER;
		}
		elsif ($answer =~ /^\?/)
		{
			# a renewal that may have shortened it, a release that may have been one
			if ($op eq 'renew')
			{
				$lower = min($lower, $call->{start} + $call->{ttl}) unless $hold->{session};
				$upper = NEVER;
			}
			elsif ($op eq 'release')
			{
				$first_release //= $call->{start};
				$least -= $call->{holds};
				push @given_back, ($call->{start}) x min($call->{holds}, max($permits - @given_back, 0));
				$end = min($end, $call->{start}) if $least <= 0;
			}
			elsif ($op eq 'downgrade')
			{
				$hold->{downgraded} //= [ $call->{start}, NEVER ];
			}
		}
		elsif ($answer ne 't')
		{
			# there may have been fewer holds: then nothing has changed
			next if $op eq 'release' && $call->{holds} > $least;
			# what is left is still there, and nobody's
			next if defined $may_be_left && $answer eq 'f' && ($op ne 'leave' || $call->{token} eq '-' || !$is_left);
			$self->_wrong('lost', "$what: $op at $call->{start} was answered $answer before " . _when($sure))
			  if $sure > $call->{end};
			$lower = min($lower, $call->{end});
		}
		elsif ($op =~ /^(renew|guard|downgrade)$/)
		{
			if (defined $hold->{given_back} && !$self->_killed($hold->{given_back}[0], $call->{end}))
			{
				$self->_wrong('told', "$what: $op at $call->{start} worked after it was given back");
			}
			if ($call->{start} > $upper && !$self->_killed($hold->{start}, $call->{end}))
			{
				$self->_wrong('late', "$what: $op at $call->{start} worked after " . _when($upper));
			}
			if ($op eq 'guard')
			{
				# no other owner until the transaction had ended
				$self->{figures}{guards}++;
				$guarded = $call->{ttl};
				$guarded_exclusive = $guarded if !$hold->{downgraded};
				$guarded_permits = $permits - @given_back;
			}
			elsif ($op eq 'downgrade')
			{
				$self->{figures}{downgraded}++;
				$hold->{downgraded} = [ $hold->{downgraded} ? $hold->{downgraded}[0] : $call->{start}, $call->{end} ]
				  if !$hold->{downgraded} || $hold->{downgraded}[1] == NEVER;
			}
			else
			{
				$self->{figures}{renewed}++;
				($lower, $upper) = ($call->{start} + $call->{ttl}, defined $may_be_left ? NEVER : $call->{end} + $call->{ttl})
				  unless $hold->{session};
			}
		}
		elsif ($op eq 'release')
		{
			# a kill may undo any release of it
			$first_release //= $call->{start};
			my $is_killed = $self->_killed($first_release, $call->{end});
			$self->_wrong('told', "$what: was given back more often than taken, at $call->{start}")
			  if $call->{holds} > $most && !$is_killed;
			$self->_wrong('late', "$what: released at $call->{start}, after " . _when($upper))
			  if $call->{start} > $upper && !$self->_killed($hold->{start}, $call->{end});
			$least -= $call->{holds};
			$most -= $call->{holds};
			push @given_back, ($call->{start}) x min($call->{holds}, max($permits - @given_back, 0));
			$end = min($end, $call->{start}) if $least <= 0;
			$hold->{given_back} = [ $first_release, $call->{end} ] if $most <= 0;
		}
	}
	$hold->{sure} = min($lower, $end, $cut, $left_until);
	my $pinned = $self->{lossy} ? $cut : NEVER;
	$hold->{alone} = max($hold->{sure}, min($guarded, $pinned));
	$hold->{exclusive} = $hold->{mode} ne 'x' ? 0
	  : !$hold->{downgraded} ? $hold->{alone}
	  : max(min($hold->{sure}, $hold->{downgraded}[0]), min($guarded_exclusive, $pinned));

	# the hold given back last lasts longest
	my @until = reverse map { min($hold->{sure}, $_) } @given_back, (NEVER) x ($permits - @given_back);
	$until[$_] = max($until[$_], min($guarded, $pinned)) for 0 .. $guarded_permits - 1;
	$hold->{permits} = \@until if $hold->{mode} eq 'p';
	return;
}

sub _when
{
	my ($time) = @_;
	return $time >= NEVER ? 'it was ended' : "its deadline, $time";
}

# The start of the first kill that was not over at a time.
sub _next_kill
{
	my ($self, $time) = @_;
	for my $kill (@{ $self->{kills} })
	{
		return $kill->[0] if $kill->[1] > $time;
	}
	return NEVER;
}

# Whether the server was killed between two times: then a release may have been
# undone, and a deadline may have moved.
sub _killed
{
	my ($self, $from, $to) = @_;
	return scalar grep { $_->[1] >= $from && $_->[0] <= $to } @{ $self->{kills} };
}

# The holds of a name in the order of their grants.
sub _check_tokens
{
	my ($self, $name, $holds) = @_;
	my $last = { token => $self->{floor}{$name} // 0, owner => 'somebody before' };
	my ($from, $from_of) = (0);      # the latest start of all so far
	my $granted = 0;                 # not before this
	my %end = map { $_ => [0] } qw(x s p);      # until when a hold of that mode is in the way at most, and which
	my @permits;                     # of each permit: until when

	@$holds = sort { $a->{token} <=> $b->{token} || $a->{from} <=> $b->{from} } @$holds;
	for my $hold (@$holds)
	{
		my $what = "$hold->{owner} on $name, token $hold->{token}, granted from $hold->{from} to $hold->{end}";

		$self->{figures}{holds}++;
		$self->_wrong('token', "$what: $last->{owner} has had $last->{token}")
		  if $hold->{token} <= $last->{token};
		$self->_wrong('token', "$what: $from_of->{owner} with token $from_of->{token} asked only at $from")
		  if $from > $hold->{end};
		$last = $hold;
		($from, $from_of) = ($hold->{from}, $hold) if $hold->{from} > $from;
		$granted = max($granted, $hold->{from});

		# holds in the way, except the owner's own: its next hold is judged together with
		# the one before
		my @modes = $hold->{mode} eq 'x' ? qw(x s p) : $hold->{mode} eq 's' ? qw(x p) : qw(x s);
		for my $mode (@modes)
		{
			my ($until, $other) = @{ $end{$mode} };
			next if $until <= 0 || $other->{owner} eq $hold->{owner};
			$self->{figures}{compared}++;
			$self->_wrong('exclusion', "$what, while $other->{owner} held it until $until with token $other->{token}")
			  if $until > $hold->{end};
			$granted = max($granted, min($until, $hold->{end}));
		}
		if ($hold->{mode} eq 'p')
		{
			# the first of others' permits that leaves no room for those asked for
			@permits = sort { $b <=> $a } grep { $_ > $hold->{from} } @permits;
			$self->{figures}{compared}++ if @permits;
			my $in_the_way = $permits[ max($hold->{limit} - $hold->{asked}, 0) ];
			$self->_wrong('permits', "$what, $hold->{asked} of $hold->{limit} permits, while too many others were held until $in_the_way")
			  if $in_the_way && $in_the_way > $hold->{end};
			$granted = max($granted, min($in_the_way, $hold->{end})) if $in_the_way;
		}

		$self->_replay($hold, min($granted, $hold->{end}));
		my %until = $hold->{mode} ne 'x' ? ($hold->{mode} => $hold->{alone})
		  : (x => $hold->{exclusive}, $hold->{downgraded} ? (s => $hold->{alone}) : ());
		for my $mode (keys %until)
		{
			$end{$mode} = [ $until{$mode}, $hold ] if $until{$mode} > $end{$mode}[0];
		}
		push @permits, @{ $hold->{permits} // [] };
	}
	$self->{largest}{$name} = $last->{token};
	return;
}

# Check the answers of dlock_owner().
sub _check_owners
{
	my ($self, $name, $known, $holds) = @_;
	my @exclusive = grep { min($_->{sure}, $_->{exclusive}) > $_->{end} } @$holds;

	for my $call (@{ $known->{asked} })
	{
		my $answer = $call->{answer};
		next if $answer =~ /^\?/;
		$self->_check_seen($name, $answer, undef, $call) if $answer ne '-';

		# the last one that was granted before
		my ($low, $high) = (0, scalar @exclusive);
		while ($low < $high)
		{
			my $middle = int(($low + $high) / 2);
			if ($exclusive[$middle]{end} <= $call->{start}) { $low = $middle + 1 }
			else { $high = $middle }
		}
		my $hold = $low > 0 ? $exclusive[ $low - 1 ] : undef;
		my $until = $hold ? min($hold->{sure}, $hold->{exclusive}) : 0;
		$self->_wrong('lost', "$hold->{owner} holds $name until $until, but at $call->{start} its owner is $answer")
		  if $until > $call->{end} && $hold->{owner} ne $answer;
	}
	return;
}

# Check that an owner seen to hold a name between two times could hold it.
sub _check_seen
{
	my ($self, $name, $owner, $token, $seen) = @_;
	my $known = $self->{names}{$name};
	my @calls = grep { $_->{start} < $seen->{end} && $_->{op} =~ $acquires }
	  @{ $known->{owners}{$owner} // [] };
	my $what = "$owner was seen with $name between $seen->{start} and $seen->{end}";

	# those that may have been granted, or may be just now
	my @granted = grep { $_->{answer} ne '-' || $_->{end} > $seen->{start} } @calls;
	if (!@granted)
	{
		$self->_wrong('told', "$what, " . (@calls ? 'having been refused' : 'without having asked'))
		  if $owner =~ $self->{owners};
		return;
	}
	$self->_wrong('told', "$what with token $token, which nobody told him")
	  if defined $token && !grep { $_->{answer} =~ /^\?/ || $_->{end} > $seen->{start} || $_->{answer} eq $token } @granted;
	return;
}

# Check first come, first served, for the waiters that were seen.
sub _check_order
{
	my ($self) = @_;
	my %seen;      # name => owner => when it was first seen to wait

	for my $snapshot (sort { $a->{end} <=> $b->{end} } @{ $self->{waiting} })
	{
		my ($line, $before) = ('', undef);
		for my $entry (sort { $a->[0] cmp $b->[0] || $a->[2] <=> $b->[2] } grep { $_->[2] ne '-' } @{ $snapshot->{entries} })
		{
			my ($name, $owner) = @$entry;
			my $call = $self->_waited($name, $owner, $snapshot);
			$before = undef if $name ne $line;
			$line = $name;
			next if !$call;
			if (!$call->{seen})
			{
				$call->{seen} = $snapshot->{end};
				push @{ $seen{$name} }, $call;
			}

			# waiters that stand before others in one look
			$self->_check_pair($before, $call) if $before;
			$before = $call
			  if $call->{answer} =~ /^\d+$/ && (!$before || $before->{answer} < $call->{answer});
		}
	}

	# waiters that came after another had been seen
	for my $name (keys %seen)
	{
		my @waiting = @{ $seen{$name} };      # by "seen"
		my @newcomers = sort { $a->{start} <=> $b->{start} } $self->_grants($name);
		my ($granted, $waits);      # ahead: the largest token; the longest vain waiter

		for my $newcomer (@newcomers)
		{
			while (@waiting && $waiting[0]{seen} < $newcomer->{start})
			{
				my $call = shift @waiting;
				if ($call->{answer} =~ /^\d+$/)
				{
					$granted = $call if !$granted || $call->{answer} > $granted->{answer};
				}
				elsif ($call->{answer} eq '-' && $call->{wait} >= 0)
				{
					$waits = $call if !$waits || $call->{start} + $call->{wait} > $waits->{start} + $waits->{wait};
				}
			}
			$self->_check_pair($granted, $newcomer) if $granted;
			$self->_check_pair($waits, $newcomer) if $waits;
		}
	}
	return;
}

# An owner's acquires of a name, up to the first whose answer was lost: nobody knows when
# later ones took their place.
sub _certain
{
	my ($calls) = @_;
	my @acquires;
	for my $call (grep { $_->{op} =~ $acquires } @{ $calls // [] })
	{
		last if $call->{answer} =~ /^\?/;
		push @acquires, $call;
	}
	return @acquires;
}

# The call with which an owner waited at the time of a look, if that is certain.
sub _waited
{
	my ($self, $name, $owner, $snapshot) = @_;
	my $known = $self->{names}{$name} or return;
	my ($call) = grep { $_->{start} < $snapshot->{end} && $_->{end} > $snapshot->{start} }
	  _certain($known->{owners}{$owner});
	return $call;
}

# The calls that were granted new holds on a name.
sub _grants
{
	my ($self, $name) = @_;
	my %first;
	for my $calls (values %{ $self->{names}{$name}{owners} })
	{
		$first{ $_->{answer} } //= $_ for grep { $_->{answer} ne '-' } _certain($calls);
	}
	return values %first;
}

# One stood before the other: it must have been granted before, or have left when the
# other was, which is not before its time was up.
sub _check_pair
{
	my ($self, $before, $after) = @_;

	return if $before->{owner} eq $after->{owner} || $after->{answer} !~ /^\d+$/;
	$self->{figures}{ordered}++;
	if ($before->{answer} =~ /^\d+$/)
	{
		$self->_wrong('order', "$after->{owner} was granted $after->{name} with token $after->{answer} before $before->{owner}, who was seen to wait before him, with $before->{answer}")
		  if $before->{answer} > $after->{answer};
	}
	elsif ($before->{start} + $before->{wait} > $after->{end})
	{
		$self->_wrong('order', "$after->{owner} was granted $after->{name} by $after->{end} while $before->{owner}, who was seen to wait before him, still waited");
	}
	return;
}

# Whether a guard on a name may have existed at some time between two times.  If a guard
# ends with its connection, the server may notice only a second later.
sub _is_guarded
{
	my ($self, $name, $from, $to) = @_;
	my $guards = $self->{names}{$name}{guards} //=
	  [ grep { $_->{op} eq 'guard' } map { @$_ } values %{ $self->{names}{$name}{owners} } ];
	return scalar grep { $_->{end} + ($_->{answer} =~ /^\?/ ? 1e6 : 0) >= $from && $_->{start} <= $to } @$guards;
}

# Check the deadlock errors: a deadlock takes an owner that has something, or may have it,
# and waits for something.
sub _check_deadlocks
{
	my ($self) = @_;
	return if !$self->{deadlocks};
	my @calls = grep { $_->{op} =~ $acquires } map { @$_ } map { values %{ $_->{owners} } } values %{ $self->{names} };
	my %first;      # owner => when it may first have got something

	for my $call (grep { $_->{answer} ne '-' && $_->{answer} !~ /^\?(40P01|3058)$/ } @calls)
	{
		my $time = $first{ $call->{owner} };
		$first{ $call->{owner} } = $call->{start} if !defined $time || $call->{start} < $time;
	}
	for my $victim (@{ $self->{deadlocks} })
	{
		next if grep {
			$_->{wait} != 0
			  && $_->{start} < $victim->{end}
			  && $_->{end} > $victim->{start}
			  && ($first{ $_->{owner} } // NEVER) < $_->{start}
		} @calls;
		$self->_wrong('deadlock', "$victim->{owner} was told of one when he asked for $victim->{name} at $victim->{start}, but nobody who has something waits");
	}
	return;
}

# A hold has been seen with this mode: a downgrade changes it, which a kill may undo.
sub _check_mode
{
	my ($self, $hold, $shown, $seen) = @_;
	my $downgraded = $hold->{downgraded};
	my %may = ($mode_shown{ $hold->{mode} } => 1);

	if ($downgraded)
	{
		$may{ $mode_shown{s} } = 1 if $seen->{end} > $downgraded->[0];
		delete $may{ $mode_shown{x} }
		  if $seen->{start} > $downgraded->[1] && !$self->_killed($downgraded->[0], $seen->{end});
	}
	$self->_wrong('told', "$hold->{owner} was seen with $hold->{name} in mode $shown between $seen->{start} and $seen->{end}, token $hold->{token}")
	  if !$may{$shown};
	return;
}

# The rows of leases that were seen.
sub _check_rows
{
	my ($self) = @_;
	my @snapshots = sort { $a->{start} <=> $b->{start} } @{ $self->{rows} };
	my %active;
	my %next;

	for my $snapshot (@snapshots)
	{
		my %row;
		for my $entry (@{ $snapshot->{entries} })
		{
			my ($name, $owner, $mode, $token, $live) = @$entry;
			$row{$name}{$owner} = { token => $token, live => $live eq 'live', mode => $mode };
			$self->{figures}{rows}++;
			$self->_check_seen($name, $owner, $token, $snapshot);
		}
		for my $name (keys %{ $self->{names} })
		{
			# those that are held all the time of the look
			my $holds = $self->{names}{$name}{by_end} //= [ sort { $a->{end} <=> $b->{end} } @{ $self->{names}{$name}{holds} } ];
			my $list = $active{$name} //= [];
			my $i = $next{$name} // 0;
			push @$list, $holds->[ $i++ ] while $i < @$holds && $holds->[$i]{end} <= $snapshot->{start};
			$next{$name} = $i;

			for my $hold (@$list)
			{
				my $seen = $row{$name}{ $hold->{owner} };
				$self->_wrong('lost', "$hold->{owner} holds $name until $hold->{sure}, but is not seen between $snapshot->{start} and $snapshot->{end}")
				  if $hold->{sure} > $snapshot->{end} && !$seen;
				$self->_check_mode($hold, $seen->{mode}, $snapshot) if $seen && $seen->{token} == $hold->{token};
				$self->_wrong('told', "$hold->{owner} was seen with $name between $snapshot->{start} and $snapshot->{end}, having given back token $hold->{token} by $hold->{given_back}[1]")
				  if $seen
				  && $seen->{live}
				  && $seen->{token} == $hold->{token}
				  && $hold->{given_back}
				  && $hold->{given_back}[1] < $snapshot->{start}
				  && !$self->_killed($hold->{given_back}[0], $snapshot->{end})
				  && !($self->{deferred} && $self->_is_guarded($name, $hold->{given_back}[0], $snapshot->{end}));
			}
			# after it was given back, a row may show up only if there are kills
			@$list = grep { $_->{sure} > $snapshot->{start} || ($row{$name}{ $_->{owner} }{token} // -1) == $_->{token} } @$list;
		}
	}
	return;
}

1;
