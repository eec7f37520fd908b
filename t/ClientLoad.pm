# ClientLoad.pm: several clients take, renew and release leases at the same time; their
# answers are compared with the lock table.
#
# Each client runs a script of its own and notes the answers in order.  When
# the server dies, exactly one operation of each client has no answer: it may or may not
# have been carried out.  A release is answered before it is durable, so the releases
# after a client's last durable answer may be undone by a crash.
#
#   my $load = ClientLoad->new($node, clients => 3);
#   $load->start(durable => 1, operations => 10000);    or endless => 1
#   $load->wait_for_answers(3000);
#   ...kill the server, or let it be...
#   $load->finish;                  answers are read, orders are checked
#   $load->compare('after a crash', crashed => 1);
#   $load->tokens_grow('after a crash');
#
# The hold of a client on a name is a hash: token, version, renewed.

package ClientLoad;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use constant {
	TTL => 3600,
	RENEWED_TTL => 7200,
	SHARED_NAMES => 40,
};

sub new
{
	my ($class, $node, %params) = @_;
	my $self = {
		node => $node,
		clients => $params{clients} // 3,
		names => $params{names} // 1000,
		dir => PostgreSQL::Test::Utils::tempdir(),
		round => 0,
		max => {},     # name => largest token ever seen
		holds => {},   # owner => name => hold, as last known
		granted => {}, # name => token => owner
		running => [],
	};
	my $seed = $params{seed} // time;
	note "the load's seed is $seed";
	srand($seed);
	return bless $self, $class;
}

# A name that nobody else uses, from a range that grows with each round so that there are
# always splits, or a name for which all contend.
sub _random_name
{
	my ($self, $client) = @_;
	return 'everybody-' . int(rand(SHARED_NAMES)) if rand() < 0.2;
	return "own-$client-" . int(rand($self->{names} * $self->{round}));
}

# Start the clients.  They go on until their scripts end (endless ones begin them anew),
# or until the server dies.
sub start
{
	my ($self, %params) = @_;
	my $node = $self->{node};
	my $commit = $params{durable} ? 'on' : 'off';

	$self->{round}++;
	$self->{durable} = $params{durable};
	for my $client (1 .. $self->{clients})
	{
		my $base = "$self->{dir}/round$self->{round}-$client";
		my $owner = "client-$client";
		my @operations;
		my $script = "SET synchronous_commit = $commit;\n"
		  . "SET log_statement = 'none';\n";

		for (1 .. $params{operations} // 20000)
		{
			my $name = $self->_random_name($client);
			my $dice = rand();
			my $what =
				$dice < 0.55 ? 'acquire'
			  : $dice < 0.70 ? 'renew'
			  : 'release';
			my $arguments = "'$name', '$owner'";
			$arguments .= ', ' . TTL if $what eq 'acquire';
			$arguments .= ', ' . RENEWED_TTL if $what eq 'renew';
			push @operations, [ $what, $name ];
			$script .= "SELECT 'answer', dlock_$what($arguments);\n";
		}
		$script .= "\\i $base.sql\n" if $params{endless};
		PostgreSQL::Test::Utils::append_to_file("$base.sql", $script);
		my $run = IPC::Run::start(
			[
				'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1',
				'-d', $node->connstr('postgres'), '-f', "$base.sql"
			],
			'<', '/dev/null',
			'>', "$base.out",
			'2>', "$base.err");
		push @{ $self->{running} },
		  {
			owner => $owner,
			base => $base,
			run => $run,
			operations => \@operations,
			endless => $params{endless},
		  };
	}
	return;
}

# Wait until each client has written about this many answers.
sub wait_for_answers
{
	my ($self, $count) = @_;

	for my $client (@{ $self->{running} })
	{
		my $attempts = 0;
		until ((-s "$client->{base}.out" // 0) > $count * 20)
		{
			die "a client makes no progress: "
			  . PostgreSQL::Test::Utils::slurp_file("$client->{base}.err")
			  if $attempts++ > 10 * $PostgreSQL::Test::Utils::timeout_default;
			usleep(100_000);
		}
	}
	return;
}

# Wait for the clients, and read their answers.  Returns how many reached the end of their
# scripts.
sub finish
{
	my ($self) = @_;
	my $completed = 0;
	my $answered = 0;
	my @wrong;
	my %before = %{ $self->{max} };

	for my $client (@{ $self->{running} })
	{
		$client->{run}->finish;
		$completed++ if $client->{run}->result(0) == 0;

		my $holds = $self->{holds}{ $client->{owner} } //= {};
		my @answers = grep { /^answer\|/ } split /\n/,
		  PostgreSQL::Test::Utils::slurp_file("$client->{base}.out");
		my @operations = @{ $client->{operations} };
		# the order of the next answer; at the end it starts over
		my $next = sub {
			my $operation = shift @operations;
			push @operations, $operation if $client->{endless};
			return $operation;
		};

		$client->{undoable} = {};
		for my $line (@answers)
		{
			my ($what, $name) = @{ $next->() };
			my (undef, $answer) = split /\|/, $line, -1;
			push @wrong,
			  $self->_learn($client, $holds, \%before, $what, $name, $answer);
		}
		$client->{unanswered} = $next->();
		$answered += @answers;
	}
	is("@wrong[0 .. ($#wrong < 5 ? $#wrong : 5)]",
		'', "round $self->{round}: $answered answers agree with each other");
	return $completed;
}

# One answer.  Returns what is wrong with it, if anything.
sub _learn
{
	my ($self, $client, $holds, $before, $what, $name, $answer) = @_;
	my $hold = $holds->{$name};
	my $own = $name =~ /^own/;

	if ($what eq 'acquire')
	{
		if ($answer eq '')
		{
			return "($client->{owner} was refused its own $name)"
			  if $own || $hold;
			return;
		}
		$client->{undoable} = {};
		if ($hold && $hold->{token} == $answer)
		{
			$hold->{version}++;
			return;
		}
		$holds->{$name} = { token => $answer, version => 1, renewed => 0 };
		my $granted = $self->{granted}{$name} //= {};
		my @wrong;
		push @wrong, "($name: $answer replaces a lease that was held)"
		  if $hold;
		push @wrong, "($name: token $answer was granted twice)"
		  if $granted->{$answer};
		push @wrong, "($name: token $answer is not above $before->{$name})"
		  if $answer <= ($before->{$name} // 0);
		push @wrong, "($name: token $answer is not above the one before)"
		  if $answer <= ($client->{last}{$name} // 0);
		$granted->{$answer} = $client->{owner};
		$client->{last}{$name} = $answer;
		$self->{max}{$name} = $answer
		  if $answer > ($self->{max}{$name} // 0);
		return @wrong;
	}
	if ($what eq 'renew')
	{
		if ($answer eq 't')
		{
			$client->{undoable} = {};
			return "($client->{owner} renewed $name without holding it)"
			  if !$hold;
			$hold->{renewed} = 1;
			return;
		}
		return "($client->{owner} could not renew $name: \"$answer\")"
		  if $hold;
		return;
	}
	if ($answer eq 't')
	{
		return "($client->{owner} released $name without holding it)"
		  if !$hold;
		$client->{undoable}{$name} //= {%$hold};
		$hold->{version}--;
		delete $holds->{$name} if $hold->{version} == 0;
		return;
	}
	return "($client->{owner} could not release $name: \"$answer\")" if $hold;
	return;
}

# Compare the lock table of a server, by default our own, with the answers.  "crashed":
# the server may have lost what it need not keep.  Afterwards the lock table counts as the
# truth.
sub compare
{
	my ($self, $title, %params) = @_;
	my $node = $params{node} // $self->{node};
	my $lossy = $params{crashed} && !$self->{durable};
	my %found;
	my %holders;
	my @wrong;

	for my $row (
		split /\n/,
		$node->safe_psql('postgres',
				'SELECT name, owner, mode, version, token, '
			  . '(expires_at > now() + interval \''
			  . (TTL + 60)
			  . ' s\')::int FROM dlock.locks'
			  . ' WHERE name ~ \'^(own|everybody)-\''))
	{
		my ($name, $owner, $mode, $version, $token, $renewed) =
		  split /\|/, $row;
		push @wrong, "($name is held twice)" if $holders{$name}++;
		push @wrong, "($name: $mode)" if $mode ne 'exclusive';
		$found{$owner}{$name} =
		  { token => $token, version => $version, renewed => $renewed };
	}

	for my $client (@{ $self->{running} })
	{
		my $owner = $client->{owner};
		my $known = $self->{holds}{$owner};
		my $table = $found{$owner} //= {};
		my ($open_what, $open_name) = ('', '');
		($open_what, $open_name) = @{ $client->{unanswered} }
		  if $params{crashed} && $client->{unanswered};

		for my $name (sort keys %{ { %$known, %$table } })
		{
			my $open = $name eq $open_name ? $open_what : '';
			my $undone =
			  $params{crashed} ? $client->{undoable}{$name} : undef;
			push @wrong,
			  $lossy
			  ? $self->_check_lossy($owner, $name, $table->{$name}, $open)
			  : _check($owner, $name, $known->{$name}, $table->{$name},
				$undone, $open);
		}
	}
	is("@wrong[0 .. ($#wrong < 5 ? $#wrong : 5)]",
		'', "$title: every lease is as its holder was told");

	my $count = 0;
	$self->{holds} = \%found;
	for my $owner (keys %found)
	{
		for my $name (keys %{ $found{$owner} })
		{
			my $token = $found{$owner}{$name}{token};
			$count++;
			$self->{granted}{$name}{$token} = $owner;
			$self->{max}{$name} = $token
			  if $token > ($self->{max}{$name} // 0);
		}
	}
	$self->{running} = [];
	return $count;
}

# What was acknowledged must be there, except that a release may be undone.
sub _check
{
	my ($owner, $name, $known, $row, $undone, $open) = @_;
	my ($least, $most) = ($known ? $known->{version} : 0) x 2;

	$most = $undone->{version} if $undone && $undone->{version} > $most;
	$most++ if $open eq 'acquire';
	$least-- if $open eq 'release' && $least > 0;

	my $version = $row ? $row->{version} : 0;
	return "($owner on $name: $version holds, not $least to $most)"
	  if $version < $least || $version > $most;
	return unless $row;
	my $token = $known ? $known->{token} : $undone ? $undone->{token} : undef;
	return "($owner on $name: token $row->{token}, not $token)"
	  if defined $token && $row->{token} != $token && $open ne 'acquire';
	return "($owner on $name: a renewal was lost)"
	  if $known && $known->{renewed} && !$row->{renewed};
	return;
}

# Anything may be lost, but nothing may be there that was never granted.
sub _check_lossy
{
	my ($self, $owner, $name, $row, $open) = @_;

	return if !$row || $open eq 'acquire';
	return
	  if ($self->{granted}{$name}{ $row->{token} } // '') eq $owner;
	return "($owner on $name: token $row->{token} was never granted)";
}

# Free every name ever used, and take it anew.
sub tokens_grow
{
	my ($self, $title, %params) = @_;
	my $node = $params{node} // $self->{node};
	my $max = $self->{max};
	my @names = sort keys %$max;
	my $values = join ', ', map { "('$_', $max->{$_})" } @names;
	my $ttl = TTL;

	is( $node->safe_psql(
			'postgres', qq{
			SET log_statement = 'none';
			SELECT count(*), count(*) FILTER (WHERE token > seen),
				sum(evicted) > 0
			FROM (VALUES $values) AS names (name, seen),
				LATERAL (SELECT dlock_force_release(name) AS evicted) AS a,
				LATERAL (SELECT CASE WHEN evicted >= 0
					THEN dlock_acquire(name, 'newcomer', $ttl) END AS token) AS b;
			SELECT dlock_release_all('newcomer') = count(*) FROM (VALUES $values) v;
		}),
		scalar(@names) . '|' . scalar(@names) . "|t\nt",
		"$title: new tokens are larger than all that were seen");
	$self->{holds} = {} if $node == $self->{node};
	return;
}

1;
