# plain/dlock.sql against the core's naive model: core/test/lease_model.c draws random
# requests, and this test asks the same of the server.  Each answer and each live lease must
# be as the model has them.  A microsecond of the model's is 1000 s here, and its clock goes on
# by moving all deadlines.  MODEL_SEED and MODEL_STEPS repeat a run.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use Plain;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{MODEL_SEED} // 1 + int rand 2**30;
my $steps = $ENV{MODEL_STEPS} // 1500;
my $build = PostgreSQL::Test::Utils::tempdir();
system("make -s -C $Plain::root/core/test BUILD=$build $build/lease_model") == 0 or die "could not build the model\n";
open(my $model, '-|', "$build/lease_model", '-p', '-s', $seed, '-n', $steps) or die "could not run the model: $!\n";

my $node = Plain::start('model', 'max_connections = 60');
$node->safe_psql('postgres', "CREATE ROLE p$_ LOGIN") for 0 .. 2;
$node->safe_psql('plain', q{SET ROLE dbo;
	CREATE OR REPLACE FUNCTION dlock_private.max_ttl() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1000000000'});
my @roles = map { Plain::session($node, "p$_") } 0 .. 2;
my ($dbo, $super) = (Plain::session($node, 'dbo'), Sessions::Session->new($node->connstr('plain'), 'super'));

my @names = ('n', 'N', 'n ');
my @owners = ('a', 'ä', 'A', 'a ');
my @ids = (undef, 'r', 'r ', 'R', "r'");
my %acquire = (exclusive => '', shared => '_shared', permit => '_permits');
my (%real, %model);         # tokens
my @guards;                 # sessions, by name
my @idle;                   # sessions that guard nothing, by role
my $asked = 0;
my %outcomes;

LINE: while (my $line = <$model>)
{
	chomp $line;
	my ($what, $rest) = split / /, $line, 2;
	if ($what eq 'world')
	{
		for my $list (@guards) { unguard($list, 0) while $list && @$list }
		$dbo->query('DELETE FROM dlock_private.lease_table');
		my @may = split / /, $rest;
		for my $pair ([ 1, 0 ], [ 2, 0 ], [ 2, 1 ])
		{
			my ($role, $of) = @$pair;
			my $sql = shift(@may) ? "GRANT p$of TO p$role" : "REVOKE p$of FROM p$role";
			$super->query($sql) eq '' or die $super->error;
		}
		(%real, %model) = ();
	}
	elsif ($what eq 'time')
	{
		$dbo->query("UPDATE dlock_private.lease_table SET expires_at = expires_at - $rest * interval '1000 s' WHERE expires_at > '-infinity'") eq ''
		  or die $dbo->error;
	}
	elsif ($what eq 'guard')
	{
		my ($name, $owner, $role, $token) = split / /, $rest;
		my $session = pop(@{ $idle[$role] }) // Plain::session($node, "p$role");
		$session->query('BEGIN');
		my $answer = $session->query("SELECT dlock_guard(" . text($names[$name]) . ', ' . text($owners[$owner]) . ", $real{$token})");
		last LINE if !is_same($line, $answer, '');
		push @{ $guards[$name] }, [ $session, $role ];
	}
	elsif ($what eq 'unguard')
	{
		my ($name, $at) = split / /, $rest;
		unguard($guards[$name], $at);
	}
	elsif ($what eq 'ask')
	{
		ask($line, split /\|/, $rest) or last LINE;
	}
}
cmp_ok($asked, '==', $steps, "MODEL_SEED=$seed: $asked steps, and server and model agree");
note("$outcomes{$_} $_") for sort keys %outcomes;
close($model);
$_->reap for @roles, $dbo, $super, map { @{ $_ // [] } } @idle;
$_->[0]->reap for map { @{ $_ // [] } } @guards;
$node->stop;
done_testing();

sub text
{
	my ($value) = @_;
	return defined $value ? "'" . $value =~ s/'/''/gr . "'" : 'NULL';
}

sub is_same
{
	my ($line, $is, $wanted) = @_;
	return 1 if $is eq $wanted;
	fail("step $asked: $line");
	diag("answered: $is\nby the model: $wanted");
	return 0;
}

# The guards' end: the last takes its place in the list.
sub unguard
{
	my ($list, $at) = @_;
	my ($session, $role) = @{ $list->[$at] };
	$list->[$at] = $list->[-1];
	pop @$list;
	$session->query('COMMIT');
	push @{ $idle[$role] }, $session;
	return;
}

sub ask
{
	my ($line, $op, $name, $owner, $role, $mode, $limit, $permits, $holds, $id, $ttl, $token, $outcome, $answer, $changed) = @_;
	my $subject = text($names[$name]) . ', ' . ($owner >= 0 ? text($owners[$owner]) : 'NULL');
	my $session = $roles[$role];
	my $real = $token == 0 ? 'NULL' : $real{$token} // 1;
	my $sql =
	  $op eq 'acquire' ? "CALL dlock_acquire$acquire{$mode}($subject, $ttl * 1000, " . ($mode eq 'permit' ? "$limit, $permits, " : '') . "0, " . text($ids[$id]) . ')' :
	  $op eq 'renew' ? "CALL dlock_renew($subject, $ttl * 1000, $real)" :
	  $op eq 'release' ? "SELECT dlock_release($subject, $real, $holds)" :
	  $op eq 'drop after' ? "CALL dlock_release_after($subject, $ttl * 1000, $real)" :
	  'SELECT dlock_force_release(' . ($owner >= 0 ? $subject : text($names[$name])) . ')';
	$session = $dbo if $op eq 'evict';
	my $is = $session->query($sql);
	$asked++;
	$outcomes{"$op: $outcome"}++;
	if ($outcome eq 'granted')
	{
		return is_same("$line\n$sql", $is, 'a new token') if $is !~ /\A\d{15,16}\z/ || $model{$is};
		($real{$answer}, $model{$is}) = ($is, $answer);
	}
	else
	{
		my $wanted =
		  $outcome =~ /^(re-entered|replayed)$/ ? $real{$answer} :
		  $op eq 'evict' ? $changed :
		  $outcome =~ /^(renewed|released|will end)$/ ? 't' :
		  $outcome eq 'not yours' ? 'f' :
		  $outcome =~ /^(busy|not held)$/ ? '' :
		  $outcome =~ /^(upgrade|mixed)$/ ? '55000' : "what is \"$outcome\"?";
		return 0 if !is_same("$line\n$sql", $is, $wanted);
	}
	# what is live of the name
	my @wanted;
	while (my $live = <$model>)
	{
		last if $live =~ /^end/;
		my ($of, $whose, $by, @rest) = split /\|/, $live =~ s/^live (.*)\n/$1/r;
		push @wanted, join('|', $real{$of}, $owners[$whose], "p$by", @rest[0 .. 2], $ids[ $rest[3] ] // '', $rest[4] ? 't' : 'f');
	}
	my $rows = $dbo->query('SELECT token, owner, pg_get_userbyid(role), mode, version,
		ceil(extract(epoch FROM expires_at - clock_timestamp()) / 1000)::integer, request, leaving
		FROM dlock_private.lease_table WHERE name = ' . text($names[$name]) . ' AND expires_at > clock_timestamp() ORDER BY token');
	return is_same("$line\n$sql", $rows, join("\n", sort @wanted));
}
