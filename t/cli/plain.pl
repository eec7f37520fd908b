# The command dlock on a PostgreSQL with plain/dlock.sql and without the library; see
# CommandCases.pm.
#
# once: on PostgreSQL

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use CommandCases;
use JSON::PP;
use Test::More;

start_server('plain');

# Run dlock to its end: status, what it prints, and a regex of what it says, or '' for nothing.
sub runs
{
	my ($what, $wanted, $prints, $says, @arguments) = @_;
	my ($run, $status);
	# a busy server may not decide in the time to wait
	eventually(sub {
		$run = launch(@arguments);
		$status = finish($run);
		return errors($run) !~ /could not decide on the lease in its time|55P03/;
	});
	is($status, $wanted, "$what: status");
	if (ref $prints) { like(output($run), $prints, "$what: prints") }
	else { is(output($run), $prints, "$what: prints") }
	if ($says eq '') { is(errors($run), '', "$what: says nothing") }
	else { like(errors($run), $says, "$what: says so") }
	return output($run);
}

# Sessions that have asked, have nothing, and will ask again.
my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%CALL%dlock_acquire%' AND pid <> pg_backend_pid()
	AND pid NOT IN (SELECT pid FROM dlock.locks WHERE pid IS NOT NULL)};

# A command that goes on until the file is there.
sub until_there
{
	my ($file) = @_;
	return ('sh', '-c', "until [ -e $file ]; do sleep 0.1; done; echo \$DLOCK_TOKEN");
}

# Two commands with these options: the second is refused while the first runs, or waits for it.
sub one_runs
{
	my ($what, @options) = @_;
	my $file = scratch('go');
	my @name = (@options, 'job');
	my $first = launch('run', @options, 'job', '--', until_there($file));
	eventually(sub { holds_name('job') });
	runs("$what: a second", 75, '', qr/is not free/, 'run', @options, 'job', '--', 'echo', 'ran');
	my $waits = launch('run', '--wait', 'forever', @options, 'job', '--', 'echo', 'ran');
	eventually(sub { query($waiting) });
	ok(!defined has_ended($waits), "$what: a third waits");
	write_text($file, '');
	is(finish($first), 0, "$what: the first ends") or diag(errors($first));
	like(output($first), qr/\A[\d,]+\n\z/, "$what: it had a token");
	is(finish($waits), 0, "$what: then the third runs") or diag(errors($waits));
	is(output($waits), "ran\n", "$what: and prints");
	eventually(sub { holds_name('job', 0) });
	return;
}

sub running
{
	one_runs('run');
	my $file = scratch('all');
	my $all = launch('run', '--all', 'a', 'b', '--', until_there($file));
	eventually(sub { holds_name('a') && holds_name('b') });
	runs('run --all: a second', 75, '', qr/free/, 'run', '--all', 'b', 'c', '--', 'echo', 'ran');
	write_text($file, '');
	is(finish($all), 0, 'run --all') or diag(errors($all));
	runs('then', 0, "ran\n", '', 'run', '--all', 'b', 'c', '--', 'echo', 'ran');

	my @readers = map { launch('run', '--shared', 'readers', '--', until_there("$file-r")) } 1, 2;
	eventually(sub { holds_name('readers', 2) });
	runs('beside readers', 75, '', qr/is not free/, 'run', 'readers', '--', 'true');
	my @seats = map { launch('run', '--permits', '2', 'seats', '--', until_there("$file-r")) } 1, 2;
	eventually(sub { holds_name('seats', 2) });
	runs('a third', 75, '', qr/free/, 'run', '--permits', '2', 'seats', '--', 'true');
	write_text("$file-r", '');
	for my $run (@readers, @seats) { is(finish($run), 0, 'shared, and permits') or diag(errors($run)) }

	my $kept;
	for my $try (1 .. 10)
	{
		runs('run --keep', 0, '', qr/\A(?:.*)\z/s, 'run', '--keep', '10m', "kept$try", '--', 'true');
		# which gives up after RELEASED_IN on a machine that stands still
		last if $kept = query("SELECT count(*) FROM dlock.locks WHERE name = 'kept$try' AND leaving AND SECONDS_LEFT > 300");
	}
	is($kept, 1, 'is kept');
	return;
}

# It renews, and tells its command when the lease was taken away.
sub renewing
{
	my $renewed;
	for my $try (1 .. 10)
	{
		my $run = launch('run', '--ttl', '4', "renewed$try", '--', 'sleep', '600');
		eventually(sub { holds_name("renewed$try") || defined has_ended($run) });
		my $first = query("SELECT max(expires_at) FROM dlock.locks WHERE name = 'renewed$try'");
		eventually(sub { $renewed = query("SELECT count(*) FROM dlock.locks WHERE name = 'renewed$try' AND expires_at > '$first' AND clock_timestamp() > '$first'"); $renewed || defined has_ended($run) });
		query("SELECT dlock_force_release('renewed$try')");
		is(finish($run), 70, 'a run that lost its lease ends') or diag(errors($run));
		like(errors($run), qr/lost the lease/, 'and says so');
		last if $renewed;
	}
	ok($renewed, 'it was renewed beyond its time to live');
	return;
}

sub electing
{
	my $file = scratch('leader');
	my $leads = launch('elect', '--ttl', '1m', 'leader', '--', 'sh', '-c', "echo leads >>$file; sleep 600");
	eventually(sub { holds_name('leader') && lines_of($file) == 1 });
	my $next = launch('elect', '--ttl', '1m', 'leader', '--', 'sh', '-c', "echo next >>$file; sleep 600");
	eventually(sub { query($waiting) });
	kill 'TERM', $leads->{pid};
	finish($leads);
	eventually(sub { lines_of($file) == 2 });
	is(join(' ', lines_of($file)), 'leads next', 'elect: one after the other');
	kill 'TERM', $next->{pid};
	finish($next);
	return;
}

sub single_calls
{
	my $token = runs('acquire', 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1h --owner me x));
	chomp $token;
	runs('acquire of another', 75, '', qr/"x" is not free/, qw(acquire --ttl 1m --owner you x));
	runs('acquire again', 0, "$token\n", '', qw(acquire --ttl 1h --owner me x));
	runs('owner', 0, "me\n", '', qw(owner x));
	runs('ls', 0, qr/^x +me /m, '', 'ls');
	runs('ls --json', 0, qr{"name": *"x"}, '', qw(ls --json x));
	runs('renew', 0, "true\n", '', qw(renew --ttl 2h --owner me x --token), $token);
	cmp_ok(query(q{SELECT SECONDS_LEFT FROM dlock.locks WHERE name = 'x'}), '>', 3600, 'moves the deadline');
	runs('renew by another', 70, "false\n", qr/"x" is held, but not by/, qw(renew --ttl 1h --owner you x));
	runs('renew of none', 70, "null\n", qr/"y" is held by nobody/, qw(renew --ttl 1h --owner you y));
	runs('release', 0, "true\n", '', qw(release --owner me x)) for 1, 2;
	runs('release of none', 70, "null\n", qr/./, qw(release --owner me x));
	runs("acquire @$_", 0, qr/\A\d+\n/, '', 'acquire', @$_, qw(--ttl 1h --owner me z)) for ['--shared'];
	runs('force-release', 0, qr/./, '', { url => url(undef, scalar getpwuid $<) }, qw(force-release z));
	runs('owner of none', 0, '', '', qw(owner z));
	my $name = q{it's"a\\b$1?#`é€};
	runs('an odd name', 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1h --owner me), $name);
	runs('its owner', 0, "me\n", '', 'owner', $name);
	runs('its release', 0, "true\n", '', qw(release --owner me), $name);
	return;
}

# What is not here is said, and is no mistake of the installation.
sub missing
{
	runs("@$_", 64, '', qr/plain/, @$_) for ['waiters'], ['stats'], [qw(wait x)];
	return;
}

sub doctor
{
	my $run = launch({ url => url(undef, scalar getpwuid $<) }, qw(doctor --try --json));
	my $status = finish($run);
	is(errors($run), '', 'doctor says nothing else');
	my @found = @{ decode_json(output($run)) };
	my @bad = grep { $_->{status} =~ /error|warning/ && $_->{check} =~ /extension|lease|lock|librar|plain/ } @found;
	is(join('; ', map { "$_->{check}: $_->{value}" } @bad), '', 'nothing is wrong');
	my @notes = grep { $_->{value} =~ /plain/ } @found;
	is(scalar @notes, 1, 'one note');
	is($notes[0]{status}, 'note', 'that is none but a note');
	like($notes[0]{value}, qr{plain/dlock.sql, in schema "public"}, 'about plain/dlock.sql');
	ok(scalar(grep { $_->{check} eq 'a lease' && $_->{status} eq 'ok' } @found), 'it has tried a lease') or diag(output($run));
	return;
}

# The self-test, on a server that is well; it leaves out what plain/dlock.sql does not promise.
sub self_test
{
	query(q{ALTER SYSTEM SET fsync = on});
	query(q{SELECT pg_reload_conf()});
	my %found;
	eventually(sub {
		my $run = launch(qw(doctor --self-test --json));
		finish($run);
		%found = map { $_->{check} => $_ } @{ decode_json(output($run)) };
		return $found{fsync}{status} eq 'ok';
	});
	is(join(' ', map { $found{$_}{status} // 'none' } 'exclusion', 'expiry', 'retries', 'guards', 'load', 'verdict'),
		'ok ok ok ok ok ok', 'the self-test passes') or diag(explain(\%found));
	like($found{'not tried'}{value}, qr/order of waiters.*deadlocks.*rollback.*session leases/, 'and says what it has left out');
	is(query(q{SELECT count(*) FROM dlock.locks WHERE remaining > 0 AND name LIKE 'dlock-self-test/%'}), 0, 'nothing is held any more');
	return;
}

# The functions are in a schema of their own, wherever search_path looks.
sub elsewhere
{
	query('CREATE DATABASE elsewhere');
	my $there = url(undef, scalar getpwuid $<) =~ s/dbname=\w+/dbname=elsewhere/r;
	is(system('psql', '-qXv', 'ON_ERROR_STOP=1', '-d', $there, '-c', 'CREATE SCHEMA app', '-c', 'SET search_path = app',
		'-f', "$FindBin::RealBin/../../plain/dlock.sql"), 0, 'plain/dlock.sql in a schema of its own');
	for (['acquire', '--ttl', '1h', '--owner', 'me', 'x'], [ 'ls', 'x' ])
	{
		my $run = launch({ url => $there }, @$_);
		is(finish($run), 0, "there: @$_") or diag(errors($run));
		like(output($run), $_->[0] eq 'ls' ? qr/^x +me /m : qr/\A\d+\n\z/, '... and its answer');
	}
	return;
}

cases('calls' => \&single_calls, 'missing' => \&missing, 'elsewhere' => \&elsewhere);
cases('doctor' => \&doctor);
cases('self-test' => \&self_test);
cases('run' => \&running);
cases('renew' => \&renewing);
cases('elect' => \&electing);
stop_server();
done_testing();
