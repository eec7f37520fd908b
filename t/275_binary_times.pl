# Times that a client sends in binary: with a type, or without one, so that the server
# takes the bytes for a dlock_duration.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use InTime;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Wire;

my %oids = (untyped => 0, int2 => 21, int4 => 23, int8 => 20, float4 => 700, float8 => 701, interval => 1186);

my $node = PostgreSQL::Test::Cluster->new('binary_times');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $client = Wire::Postgres->new(path => $node->host . '/.s.PGSQL.' . $node->port, database => 'postgres',
	user => $node->safe_psql('postgres', 'SELECT current_user'));

# Calls with one parameter; its answer or SQLSTATE.
sub call
{
	my ($sql, $type, $bytes) = @_;
	my $answer = $client->execute($sql, { type => $oids{$type}, binary => 1, value => $bytes }) // die "$sql: $client->{lost}\n";
	return $answer->{error} // $answer->{rows}[0][0];
}

sub is_time
{
	my ($type, $bytes, $seconds) = @_;

	# the lease may be a short one
	in_time($seconds, sub {
			my $began = time;
			like(call(q{SELECT dlock_acquire('n', 'me', $1)}, $type, $bytes), qr/^\d{10,}$/, "$type: $seconds seconds are a ttl");
			my $looks = time;
			my $expires = $client->value(q{SELECT extract(epoch FROM expires_at) FROM dlock_holders('n')}) // 0;
			# two clocks are read for that, one after the other, and need not run alike
			my $error = time - $looks + 0.001;
			ok($expires - $seconds >= $began - $error && $expires - $seconds <= $looks + $error, '... and so long it is')
			  or diag("from $began, or $looks, to $expires");
			is($client->value(q{SELECT dlock_release_all('me')}), 1, '... and is released');
		});
	is(call(q{SELECT dlock_wait('n', $1)}, $type, $bytes), 't', '... and a wait');
	return;
}

sub is_no_time
{
	my ($type, $bytes, $error, $what) = @_;
	is(call(q{SELECT dlock_acquire('n', 'me', $1)}, $type, $bytes), $error, "$type: $what is no ttl");
	return;
}

is_time(untyped => pack('d>', 30), 30);
is_time(untyped => pack('d>', 0.25), 0.25);
is_time(untyped => pack('d>', 86400), 86400);
is_time(float8 => pack('d>', 30.5), 30.5);
is_time(float4 => pack('f>', 30.5), 30.5);
is_time(int2 => pack('s>', 30), 30);
is_time(int4 => pack('l>', 30), 30);
is_time(int8 => pack('q>', 30), 30);
is_time(interval => pack('q> l> l>', 500_000, 0, 0), 0.5);

my $infinity = 9**9**9;
for my $type ('untyped', 'float8')
{
	is_no_time($type, pack('d>', 0), '22023', 'zero');
	is_no_time($type, pack('d>', -1), '22023', 'what is negative');
	is_no_time($type, pack('d>', 1e-7), '22023', 'less than a microsecond');
	is_no_time($type, pack('d>', 86400.5), '22023', 'more than dlock.max_ttl');
	is_no_time($type, pack('d>', 1e300), '22023', 'what is out of range');
	is_no_time($type, pack('d>', $_), '22023', 'what is not finite') for $infinity, -$infinity, $infinity - $infinity;
	is(call(q{SELECT dlock_wait('n', $1)}, $type, pack('d>', -1)), 't', "$type: what is negative is a wait");
	is(call(q{SELECT dlock_wait('n', $1)}, $type, pack('d>', -$infinity)), '22023', "$type: what is not finite is none");
}

# what a driver sends in binary, and does not say what it is
is_no_time(untyped => pack('l>', 30), '08P01', 'the form of an integer');
is_no_time(untyped => pack('q> l> l>', 30_000_000, 0, 0), '22P03', 'the form of an interval');
is_no_time(untyped => pack('q>', $_), '22023', 'the form of a bigint') for 30, 30_000_000_000;
is_no_time(untyped => '', '08P01', 'nothing');

# there and back in binary
my ($bytes) = @{ $client->execute(q{SELECT encode(dlock_duration_send($1), 'hex')},
		{ type => 0, binary => 1, value => pack('d>', 1234.567891) })->{rows}[0] };
is($bytes, unpack('H*', pack('d>', 1234.567891)), 'it is sent as it was received');

is($node->safe_psql('postgres', 'SELECT count(*) FROM dlock.locks'), 0, 'what was refused took nothing');
$client->close;
$node->stop;
done_testing();
