# Plain.pm: a server with what plain/dlock.sql makes, and without the extension.
#
#   my $node = Plain::start('name', $settings);   its database "plain" belongs to the role
#                                                 "dbo", which is no superuser; "app" and
#                                                 "other" are plain roles
#   Plain::session($node, 'app')                  a Sessions::Session of a role
#   Plain::run($node, 'dbo', 'plain/uninstall.sql')   run a file; its messages

package Plain;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

our $root = abs_path(dirname(__FILE__) . "/..");

sub start
{
	my ($name, $settings, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', $settings) if defined $settings;
	$node->start;
	$node->safe_psql('postgres', "CREATE ROLE $_ LOGIN") for qw(dbo app other);
	create($node, 'plain');
	return $node;
}

# Make a database, and run the file in it.
sub create
{
	my ($node, $database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER dbo");
	run($node, 'dbo', 'plain/dlock.sql', $database);
	return;
}

sub connstr
{
	my ($node, $role, $database) = @_;
	return $node->connstr($database // 'plain') . " user=$role";
}

sub run
{
	my ($node, $role, $file, $database) = @_;
	my $path = $file =~ m{^/} ? $file : "$root/$file";
	my ($ok, $out) = psql_run('-v', 'ON_ERROR_STOP=1', '-d', connstr($node, $role, $database), '-f', $path);
	BAIL_OUT("could not run $file: $out") unless $ok;
	return $out;
}

# Run psql: whether it succeeded, and what it printed.
sub psql_run
{
	my (@arguments) = @_;
	my $pid = open(my $pipe, '-|') // die "could not fork: $!\n";
	if ($pid == 0)
	{
		open(STDERR, '>&', \*STDOUT) && exec 'psql', '-XAtq', @arguments;
		POSIX::_exit(127);
	}
	my $out = join('', <$pipe>);
	return (close($pipe) ? 1 : 0, $out);
}

# What is not here, and how the row of the table in doc/plain.md begins that says so.  A
# scenario that has such a step is not played, unless the step is only to raise an error.
my @absent = (
	[ qr/\bdlock_acquire_any\b|\bCLAIM\(/ => 'Claiming' ],
	[ qr/\bdlock_acquire_session|\bdlock_acquire_xact/ => 'Session and transaction leases' ],
	[ qr/\bdlock_(?:downgrade|renew_all|remaining|stats_reset|blocking_pids)\b|\bdlock\.stats\b/ => 'Other functions' ],
	[ qr/\bdlock\.waiters\b|^waiting \w+ \w/ => 'Queue' ],
	[ qr/\berror 40P01\b/ => 'Deadlock' ],
	[ qr/\bBEGIN READ ONLY\b|\bGUARD\([^;]*\bdlock_acquire|\bdlock_(?:acquire|renew)\w*\(.*\bFROM\b|\bSELECT dlock_(?:acquire|renew)\w*\(.*?\), / => 'Autonomy' ]);

# Titles of the others, by row.
my %not_played = (
	Autonomy => [
		'a holder may renew and enter again in the transaction that guards',
		'scenario 17: acquired, and rolled back: still held',
		'scenario 17: all kinds of leases outlive a rollback',
		'scenario 17: a savepoint that is rolled back to leaves a lease as it is',
		'scenario 17: an old transaction with an old snapshot sees the true state',
		'scenario 17: an old transaction gets the full time to live',
		'nobody waits for somebody\'s open transaction',
		'a waiting call in a transaction that is cancelled leaves the line' ],
	Queue => [
		'a waiter for several permits holds up those behind it',
		'nobody overtakes the line, not even by trying once, and not the last holder either',
		'scenario 14: permits that come free go to the line, and a raised limit counts',
		'several permits that come free at once are granted at once' ],
	Guard => [ 'outside a transaction a guard would end at once' ],
	Shape => [ 'too many or too few arguments' ],
	'Other functions' => [
		'dlock_wait is answered when every hold it saw has ended, and takes nothing',
		'dlock_wait is answered although the next in the line has the name' ],
	'dlock.locks' => ['what is guarded is shown so, and by itself when its lease is gone']);

# Settings that some scenarios need.
my %settings = (lock_delay => 'Lock delay', max_waiters => 'Queue', reap_interval => 'Reaper');

# How rows of the table in doc/plain.md must begin.
sub rows
{
	return sort keys %not_played, values %settings, map { $_->[1] } @absent;
}

# Is a scenario played, and all of it?  Steps that only have to raise an error, of functions
# that are not here, are taken out.
sub plays
{
	my ($scenario) = @_;
	my @left;

	for my $step (@{ $scenario->{steps} })
	{
		my $is_absent = grep { $step->{text} =~ $_->[0] } @absent;
		# these have a stand-in, which is not to be tested
		my $is_tool = $step->{text} =~ /\bdlock_(?:wait|release_all)\b/;
		my $is_error = defined $step->{error} && $step->{error} ne '40P01';
		next if $is_error && ($is_absent || $is_tool);
		return 0 if $is_absent;
		push @left, $step;
	}
	$scenario->{steps} = \@left;
	return !(grep { $_ eq $scenario->{title} } map { @$_ } values %not_played) && !(grep { $settings{$_} } keys %{ $scenario->{settings} });
}

sub session
{
	my ($node, $role, $name) = @_;
	return Sessions::Session->new(connstr($node, $role), $name // $role);
}

1;
