# The client library for C, on a server of the kind that is the argument: hosts with addresses
# that are silent, log-ins that fail for a while, and what certificates are for.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/..";
use CProgram;
use IO::Select;
use IO::Socket::INET;
use Test::More;

my ($kind) = @ARGV;
my $is_postgres = $kind eq 'postgres';
my $dir = CProgram::build();
my $is_mysql = !$is_postgres;
if ($is_mysql)
{
	system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=somebody -keyout $dir/key.pem -out $dir/cert.pem 2>$dir/openssl.log") == 0
	  or BAIL_OUT('openssl makes no certificate');
	chmod 0755, $dir;
	chmod 0644, "$dir/key.pem";
}
my $engine = CProgram::start_server($kind, "--ssl-cert=$dir/cert.pem", "--ssl-key=$dir/key.pem");

sub value { return $engine->control->value($engine->translate($_[0])) }

sub url { return CProgram::url($engine, @_) }

sub word { return $_[0] =~ s/%/%25/gr }

# ---------------------------------------------------------------------
# A host whose first address is silent, or its first two.  The program has these hosts by itself:
# two.test is 127.0.0.2, 127.0.0.1, and three.test is 127.0.0.3 and those.

# Nobody answers there: the line of those that wait to be accepted is full.
my @crowd;

sub silence
{
	my ($address) = @_;
	my $listener = IO::Socket::INET->new(Listen => 1, LocalAddr => $address, LocalPort => $engine->{client_port})
	  or BAIL_OUT("cannot listen at $address: $!");
	push @crowd, $listener;
	for (1 .. 20)
	{
		my $socket = IO::Socket::INET->new(PeerAddr => $address, PeerPort => $engine->{client_port}, Blocking => 0);
		push @crowd, $socket;
		return 1 if !IO::Select->new($socket)->can_write(1);
	}
	return 0;
}

sub host { return url() =~ s/127\.0\.0\.1/$_[0]/r }

sub terminate
{
	my ($owner) = @_;
	my $id = value(($is_postgres ? 'SELECT pid' : 'SELECT connection_id') . " FROM dlock.locks WHERE name = '$owner'");
	value($is_postgres ? "SELECT pg_terminate_backend($id)" : "KILL $id");
	return;
}

my $silent = silence('127.0.0.2') && silence('127.0.0.3');
SKIP:
{
	skip('this system takes connections that nobody accepts', 1) if !$silent;
	my $p = CProgram->start;
	my %of = (two => host('two.test'), three => host('three.test'));
	$of{list} = host("127.0.0.2:$engine->{client_port},two.test:$engine->{client_port},127.0.0.1") if $is_postgres;
	$p->say(map { ("new $_ url=" . word($of{$_}) . " name=$_ ttl=36 connect_timeout=30", "start $_") } sort keys %of);
	for my $what (sort keys %of)
	{
		$p->next_is($what, qr/^held /);
		terminate($what);
	}
	$p->hear(qr/^$_ renewed /) for sort keys %of;
	pass('and it is reached by a heartbeat');
	is($p->end, 0, 'the program leaks nothing');
}
@crowd = ();

# one that takes connections and never answers
{
	my $listener = IO::Socket::INET->new(Listen => 100, LocalAddr => '127.0.0.2', LocalPort => $engine->{client_port})
	  or BAIL_OUT("cannot listen: $!");
	my $p = CProgram->start;
	$p->say('new mute url=' . word(host('two.test')) . ' name=mute ttl=36 connect_timeout=30', 'start mute');
	$p->next_is('mute', qr/^held /);
	terminate('mute');
	$p->hear(qr/^mute renewed /);
	is($p->end, 0, 'the program leaks nothing');
}

# ---------------------------------------------------------------------
# Log-ins that fail for a while, after one has worked.

sub set_password
{
	my ($password) = @_;
	value($is_postgres ? "ALTER ROLE secret PASSWORD '$password'" : "ALTER USER 'secret'\@'127.0.0.1' IDENTIFIED BY '$password'");
	return;
}

my $network = Network->new($engine->{client_port});
my $p = CProgram->start(DLOCK_URL => url($network->{port}, 'secret:p%40ss%3aword'));
my $refused = $is_postgres ? qr/^trouble unavailable 28P01 0 0 1 / : qr/^trouble unavailable 28000 1045 0 1 /;

# these go on until the log-in is let in again; "id" tells of the refusal
sub shut_out
{
	my ($id) = @_;
	set_password('other');
	$network->order('cut');
	while (1)
	{
		my (undef, $said) = $p->hear(qr/^$id (.*)$/) or return;
		next if $said =~ /^renewed / || ($said =~ /^trouble/ && $said !~ $refused);
		like($said, $refused, "$id: a log-in that fails is unavailable");
		return;
	}
}

value(q{SELECT dlock_acquire('waits', 'admin', 600)});
$p->say('new waits name=waits ttl=600 wait=-1', 'start waits');
ok(Scenarios::Run::until(sub { value(q{SELECT count(*) FROM dlock.waiters WHERE name = 'waits'}) == 1 }), 'an acquire waits');
shut_out('waits');
value(q{SELECT dlock_release('waits', 'admin')});
set_password('p@ss:word');
$p->hear(qr/^waits held /);
pass('an acquire goes on when it is let in again');

$p->say('new held name=held ttl=30', 'start held');
$p->hear(qr/^held held /);
shut_out('held');
set_password('p@ss:word');
$p->hear(qr/^held renewed /);
pass('so does a heartbeat');

# a program that knows that it was let in before
$p->say('new first name=first ttl=600 logged_in=1 wait=-1', 'start first');
$p->hear(qr/^first held /);
set_password('other');
$p->say('new again name=again ttl=600 logged_in=1 wait=-1', 'start again', 'new new name=new ttl=600 wait=-1', 'start new');
$p->hear(qr/^again trouble unavailable 28/);
$p->hear(qr/^new failed misuse 28\S+ \d+ 1 1 /);
set_password('p@ss:word');
$p->hear(qr/^again held /);
pass('so does the first acquire of a program that was let in before');
is($p->end, 0, 'the program leaks nothing');
$network->stop;

# ---------------------------------------------------------------------
# Certificates are looked at if the URL or an option file says so, and else are not, whatever the
# connection library does by itself.

if ($is_mysql)
{
	my %options = (plain => '', tls => "ssl\n", verify => "ssl\nssl-verify-server-cert=1\n");
	my %file;
	for my $name (keys %options)
	{
		$file{$name} = "$dir/$name.cnf";
		open(my $file, '>', $file{$name}) or die "could not write: $!\n";
		print $file "[client]\n$options{$name}";
		close $file;
	}
	my $q = CProgram->start;
	for (
		[ 1, "default-file=$file{plain}" ], [ 1, "default-file=$file{tls}" ], [ 0, "default-file=$file{verify}" ],
		[ 1, "default-file=$file{plain}&ssl-verify=0" ], [ 0, "default-file=$file{plain}&ssl-verify=1" ],
		[ 0, "default-file=$file{plain}&ssl-ca=$dir/cert.pem" ], [ 1, "default-file=$file{plain}&ssl-ca=$dir/cert.pem&ssl-verify=0" ])
	{
		my ($good, $parameters) = @$_;
		$q->ask('connect ' . url() . "?$parameters");
		my $is = $q->ask('call dlock_is_free t:x');
		like($is, $good ? qr/^1$/ : qr/^error unavailable HY000 2026 /, ($good ? 'let in' : 'refused') . " with $parameters" =~ s/\Q$dir\E\///gr);
	}
	is($q->end, 0, 'the program leaks nothing');
}

$engine->end_control;
$engine->stop;
done_testing();
