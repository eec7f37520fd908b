# Sessions.pm: several psql sessions on one server, for tests in which some wait
# for leases while others go on.
#
# pg_isolation_regress notices sessions that wait for locks of PostgreSQL's own;
# a wait for a lease is not one, so interleavings with waits are written with this module.
# Tests make sure of the order of events by polling dlock.waiters, never by time.
#
#   my $sessions = Sessions->new($node);
#   my ($a, $b) = $sessions->open('a', 'b');   the owners' names, by convention
#   $a->query($sql)          its answer, or the SQLSTATE of its error
#   $b->send($sql)           start it
#   $sessions->waiting('b')  until exactly these wait, in this order
#   $sessions->stop($b)      stop the process of one that waits
#   $b->answer               as query(), once it is there; "gone" if psql ended
#   $b->error                what the last statement wrote to stderr
#   $b->insist($sql)         until the session's own statement_timeout lets it be

package Sessions;

use strict;
use warnings;

use CommandLine;
use Poll;
use PostgreSQL::Test::Utils;
use Processes;

sub new
{
	my ($class, $node, $database) = @_;
	my $self = bless { node => $node, database => $database // 'postgres' }, $class;
	($self->{watcher}) = $self->open('watcher');
	return $self;
}

sub open
{
	my ($self, @names) = @_;
	return map { Sessions::Session->new($self->{node}->connstr($self->{database}), $_) } @names;
}

# Poll until a statement gives the wanted answer; if it never does, print the last one.
sub until
{
	my ($self, $sql, $wanted) = @_;
	my $answer;
	Poll::until($PostgreSQL::Test::Utils::timeout_default,
		sub { ($answer = $self->{watcher}->query($sql)) eq $wanted });
	return $answer;
}

# Wait until just these sessions wait, in that order on any one name.
sub waiting
{
	my ($self, @names) = @_;
	my $wanted = join(' ', @names);
	my $answer = $self->until(q{SELECT coalesce(string_agg(application_name, ' '
		ORDER BY waiting_since, "position"), '') FROM dlock.waiters}, $wanted);
	die "waiting: \"$answer\", not \"$wanted\"" if $answer ne $wanted;
	return 1;
}

# Stop the process of a session that waits for a lease, as it sleeps.
sub stop
{
	my ($self, $session) = @_;
	Processes::stop_asleep($session->{pid}, 'Extension', sub { $self->{watcher}->query($_[0]) });
	return;
}

package Sessions::Session;

use strict;
use warnings;
our @ISA = ('CommandLine');

use Poll;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

sub new
{
	my ($class, $connstr, $name) = @_;
	my $self = bless { name => $name }, $class;
	$self->start('psql', '-XAtq', '-d', "$connstr application_name=$name", '-f', '-');
	$self->{pid} = $self->query('SELECT pg_backend_pid()');
	return $self;
}

sub send
{
	my ($self, $sql) = @_;
	$self->{err} = '';
	$self->type("$sql;\n\\echo =:SQLSTATE=\n");
	return;
}

sub answer
{
	my ($self) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($self->_has_answer)
	{
		my $left = $deadline - time;
		die "$self->{name} is not answered\n" if $left <= 0;
		return 'gone' if !$self->pump($left) && !$self->_has_answer;
	}
	# psql wrote to stderr before that
	$self->pump(0);
	my ($answer, $state) = $self->{out} =~ /\A(.*?)=(\w{5})=\n/s;
	substr($self->{out}, 0, $+[0]) = '';
	chomp $answer;
	return $state eq '00000' ? $answer : $state;
}

sub query
{
	my ($self, $sql) = @_;
	$self->send($sql);
	return $self->answer;
}

# Have done what answers nothing, such as RESET statement_timeout, which that may end.
sub insist
{
	my ($self, $sql) = @_;
	my $answer;
	Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { ($answer = $self->query($sql)) ne '57014' });
	die "$sql: $answer\n" if $answer ne '';
	return;
}

sub error
{
	my ($self) = @_;
	return $self->{err};
}

# Has the answer of what was sent come?
sub answered
{
	my ($self) = @_;
	$self->pump(0);
	return $self->_has_answer;
}

sub _has_answer
{
	my ($self) = @_;
	return $self->{out} =~ /=\w{5}=\n/ ? 1 : 0;
}

sub quit
{
	my ($self) = @_;
	$self->reap;
	return;
}

# End psql, as when a client dies.
sub kill
{
	my ($self) = @_;
	$self->kill_client;
	return;
}

1;
