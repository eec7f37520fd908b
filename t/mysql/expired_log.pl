# What the error log says of leases that expire, also if it stands still meanwhile, and how
# names that are no plain text are shown there and in the engine's own errors.  The kind of
# server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;
my $is_log = ($ENV{STORE} // '') eq 'log';
my $engine;
{
	local %ENV = Engines::preloading('hold_log', DLOCK_HOLD_LOG => 'hold');
	$engine = Engines::start($kind);
}
my $hold = "$engine->{dir}/data/hold";
END { unlink $hold if defined $hold }
my $admin = $engine->control;
my ($session, $other, $guard) = map { $engine->client($_) } 'session', 'other', 'guard';

sub sql { return $admin->value($_[0]) }

sub hex_of { return "x'" . unpack('H*', $_[0]) . "'" }

# How often a lease is in the log, with what is known of it.
sub lines
{
	my ($name, $owner, $token) = @_;
	my $line = qq{dlock: lease on "$name" expired while owner "$owner" held it; token $token, }
	  . qq{account 'tester'\@'localhost', connection $session->{id}};
	return scalar(() = $engine->log =~ /^(?:.*\] )?\Q$line\E$/mg);
}

# A lease that has expired is logged, and once.
sub is_logged
{
	my ($name, $owner, $token, $what) = @_;
	Scenarios::Run::until(sub { lines($name, $owner, $token) > 0 });
	return is(lines($name, $owner, $token), 1, $what);
}

# How many have expired: they are logged soon after.
sub expired { return sql('SELECT expired FROM dlock.stats') }

# Take a lease that expires, and wait until that has been noticed.
sub die_holding
{
	my ($name, $owner) = @_;
	my $before = expired();
	my $token = $session->value('SELECT dlock_acquire(' . hex_of($name) . ', ' . hex_of($owner) . ', 0.01)');
	ok(Scenarios::Run::until(sub { expired() > $before }), 'a lease expires');
	return $token;
}

sql(q{UPDATE dlock.settings SET value = '0.1' WHERE name IN ('reap_interval', 'lock_timeout')});

# Who dies is told of, once.
my %shown = (
	'dead' => 'dead',
	"two\nlines" => 'two\x0Alines',
	"two\r\nlines" => 'two\x0D\x0Alines',
	"z\0ro" => 'z\x00ro',
	"\0" => '\x00',
	"esc\e[2K" => 'esc\x1B[2K',
	"caf\xC3\xA9" => "caf\xC3\xA9",
	"caf\xE9" => 'caf\xE9',
	'50% %s %n' => '50% %s %n',
	'x' x 255 => 'x' x 160 . '...',
	"forged\ndlock: lease on \"forged\" expired" => 'forged\x0Adlock: lease on "forged" expired');
my %tokens;
for my $text (sort keys %shown)
{
	$tokens{$text} = die_holding($text, $text);
	is_logged($shown{$text}, $shown{$text}, $tokens{$text}, "is logged: $shown{$text}");
}

# Who gives up, or is evicted, or lives, is not.
is($session->value(q{SELECT dlock_acquire('released', 'me', 600) > 0 AND dlock_release('released', 'me')}), 1, 'one is given back');
like($session->value(q{SELECT dlock_acquire('evicted', 'me', 600)}), qr/^\d+$/, 'one is taken');
is(sql(q{SELECT dlock_force_release('evicted')}), 1, 'and evicted');
like($session->value(q{SELECT dlock_acquire_session('session', 'me', 0.01)}), qr/^\d+$/, 'one is a living session\'s');
my $last = die_holding('last', 'me');
is_logged('last', 'me', $last, 'the last one is logged');
unlike($engine->log, qr/lease on "(?:released|evicted|session)"/, 'but not those that were given up, or live');
is(lines($shown{$_}, $shown{$_}, $tokens{$_}), 1, "only once: $shown{$_}") for sort keys %shown;
unlike($engine->log, qr/^(?:lines|(?:.*\] )?dlock: lease on "forged" )/m, 'no name makes a line of its own');

# log_expired is off.
sub set_log_expired
{
	my ($value) = @_;
	# they are read together, and max_waiters is seen; a server that stands still sees nothing
	my $seen = $value ? qr/^0$/ : qr/max_waiters/;
	sql("UPDATE dlock.settings SET value = if(name = 'log_expired', $value, 1000 * $value) WHERE name IN ('log_expired', 'max_waiters')");
	Scenarios::Run::until(sub { $session->outcome(q{SELECT dlock_wait('session', 0.01)}) =~ $seen })
	  or die "the settings do not come into force\n";
	return;
}
set_log_expired(0);
my $unsaid = die_holding('unsaid', 'me');
is(lines('unsaid', 'me', $unsaid), 0, 'off: nothing is logged');
set_log_expired(1);
my $said = die_holding('said', 'me');
is_logged('said', 'me', $said, 'on: it is');
unlike($engine->log, qr/lease on "unsaid"/, 'the other never');

# Whoever reads the log stands still: nothing is granted, but only that waits for it.
like($session->value("SELECT dlock_acquire('$_', 'me', 600)"), qr/^\d+$/, "a lease: $_") for 'kept', 'gone';
open(my $file, '>', $hold) or die "could not create $hold: $!\n";
close($file) or die "could not create $hold: $!\n";
my $held = die_holding('held', 'me');
# the engine of the log has upkeep write them
ok($is_log || Scenarios::Run::until(sub { $session->outcome(q{SELECT dlock_acquire('free', 'me', 600, 0.01)}) =~ /in its time/ }),
	'the log stands still: nothing is granted');
like($session->value(q{SELECT dlock_acquire('free', 'me', 600)}), qr/^\d+$/, 'or all goes on') if $is_log;
is($session->value(q{SELECT dlock_owner('kept')}), 'me', 'a lease can be looked at');
is($session->value(q{SELECT dlock_acquire('kept', 'other', 600)}), 'NULL', 'and is refused to others');
is($session->value(q{SELECT dlock_release('gone', 'me')}), 1, 'another is given back');
is($session->value(q{SELECT dlock_is_free('gone')}), 1, 'and is free');
$other->quit;
$other = $engine->client('other');
pass('a connection can end');
is(lines('held', 'me', $held), 0, 'the lease that has expired is not in the log yet');
unlink($hold) or die "could not remove $hold: $!\n";
is_logged('held', 'me', $held, 'the log goes on: it is');
ok(Scenarios::Run::until(sub { $session->outcome(q{SELECT dlock_acquire('free', 'me', 600)}) =~ /^\d+$/ }), 'and leases are granted');
is($session->value(q{SELECT dlock_release('kept', 'me') + dlock_release('free', 'me')}), 2, 'and given back');

# Errors.
for my $name ("two\nlines", "z\0ro", 'x' x 255)
{
	my $hex = hex_of($name);
	my $token = $session->value("SELECT dlock_acquire($hex, $hex, 600)");
	like($token, qr/^\d+$/, "$shown{$name}: a lease");
	# on a busy machine it may take longer than lock_timeout until the lease has a row
	ok(Scenarios::Run::until(sub {
		$guard->query($_) for 'ROLLBACK', 'BEGIN';
		return !defined $guard->query("CALL dlock.guard($hex, $hex, $token)")->{error};
	}), 'that is guarded');
	like($session->outcome("SELECT dlock_downgrade($hex, $hex)"), $is_log ? qr/^1$/ :
		qr/^3572 \w+: could not change the lease on "\Q$shown{$name}\E": a transaction has locked it$/, 'can be downgraded, or not: its name');
	$guard->query('ROLLBACK');

	like($other->value(q{SELECT dlock_acquire('plain', 'other', 600)}), qr/^\d+$/, 'another one');
	$other->send("SELECT dlock_acquire($hex, 'other', 600, 600)");
	ok(Scenarios::Run::until(sub { $engine->is_waiting($other) }), 'whose holder waits for the first');
	like($session->outcome("SELECT dlock_acquire('plain', $hex, 600, 600)"),
		qr/^3058 \w+: deadlock detected: owner "\Q$shown{$name}\E" waits for "plain", held by owner "other"; owner "other" waits for "\Q$shown{$name}\E", held by /,
		'a deadlock: names and owners');
	is($session->value("SELECT dlock_release($hex, $hex)"), 1, 'given back');
	like($other->outcome, qr/^\d+$/, 'whoever waited has it');
	is($other->value(q{SELECT dlock_release_all('other')}), 2, 'and gives both back');
}

$_->quit for $session, $other, $guard;
$engine->stop;
done_testing();
