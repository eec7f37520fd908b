# A server whose flushes can be held up (mysql/hold_flush.c): a commit does not
# end then.

package HeldFlush;

use strict;
use warnings;

use Engines;
use File::Temp qw(tempdir);
use Scenarios;

my %held;

# otherwise the server would not stop; so a test uses this module after the one that stops it
END { unlink keys %held }

# The environment of servers whose flushes are held up while there is a file.  If it has no
# folder, it is in each server's data, see of().
sub environment
{
	my ($file) = @_;
	return Engines::preloading('hold_flush', DLOCK_HOLD_FLUSH => $file);
}

# Start a PostgreSQL.
sub start_postgres
{
	my ($class, $node) = @_;
	my $self = bless { hold => tempdir(CLEANUP => 1) . '/hold' }, $class;
	local %ENV = environment($self->{hold});
	$node->start;
	return $self;
}

# Start a MariaDB or MySQL of a kind, with options of its own.
#
# InnoDB flushes at times in the middle of a statement.  If that is what is held up, the
# statement does not get as far as its commit.  So with a binary log only flushes of that are
# held up.  And InnoDB does not commit new statistics of tables, with its dictionary locked.
sub start
{
	my ($class, $kind, @options) = @_;
	local %ENV = environment('hold');
	local $ENV{DLOCK_HOLD_FLUSH_OF} = 'binlog' if grep { $_ eq '--log-bin=binlog' } @options;
	return $class->of(Engines::start($kind, '--innodb-stats-auto-recalc=OFF', @options));
}

# A server that was started in environment('hold').
sub of
{
	my ($class, $engine) = @_;
	return bless { hold => "$engine->{dir}/data/hold", engine => $engine }, $class;
}

sub engine
{
	my ($self) = @_;
	return $self->{engine};
}

# From now on nothing gets to the disk.  All that the library for MariaDB and MySQL has to
# write by itself is written first: otherwise that may be what is held up, and what the test
# asks for waits for it.
sub hold
{
	my ($self) = @_;
	die "not all is written\n" if $self->engine && !$self->engine->control->value('SELECT dlock_settle()');
	open(my $file, '>', $self->{hold}) or die "could not create $self->{hold}: $!\n";
	close($file) or die "could not create $self->{hold}: $!\n";
	$held{ $self->{hold} } = 1;
	return;
}

# Wait until a commit of the library is held up, for any reason: false if none is.
sub hangs
{
	my ($self) = @_;
	my $writing = $self->engine->is_writing;
	return Scenarios::Run::until(sub { $self->engine->control->value("SELECT count(*) FROM information_schema.processlist
		WHERE $writing AND id <> connection_id() AND state REGEXP 'ommit\$|semi-sync'") > 0 });
}

sub let_go
{
	my ($self) = @_;
	unlink($self->{hold}) or die "could not remove $self->{hold}: $!\n";
	return;
}

1;
