# The checker of histories (History.pm) finds every broken rule, and no fault in a
# history that only looks like one: each rule has histories that must fail, and beside
# each the same history with the one change that makes it possible.  Needs no server.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use History;
use Test::More;

# A line for a call, in milliseconds: call(start, end, owner, op, answer, ...).
# A TTL of 1000, of name "n", by the client whose number is in the owner's name,
# unless told otherwise.
sub call
{
	my ($start, $end, $owner, $op, $answer, %more) = @_;
	my ($client) = $owner =~ /(\d+)/;
	my %call = (
		mode => 'x', limit => 0, ttl => 1000, wait => 0, request => '-', token => '-', name => 'n',
		client => $client, holds => 1, %more);
	$call{$_} *= 1000 for qw(ttl wait);
	return join("\t", 'C', $start * 1000, $end * 1000, $call{client}, $op, $call{name}, $owner,
		@call{qw(mode limit ttl wait request token)}, $answer, $call{holds});
}

sub event
{
	my ($kind, @fields) = @_;
	$_ *= 1000 for @fields[ 0, $kind eq 'D' ? () : 1 ];
	return join("\t", $kind, @fields);
}

sub seen { my ($kind, $start, $end, @entries) = @_; return event($kind, $start, $end, 99, @entries) }

sub figures_of
{
	my ($server, @lines) = @_;
	my $history = History->new($server ? ($server => 1) : (), owners => qr/^o\d/);
	$history->add(@lines);
	return (join('; ', $history->check), $history->figures);
}

sub good
{
	my ($title, @lines) = @_;
	my ($wrong) = figures_of(0, @lines);
	is($wrong, '', "possible: $title");
	return;
}

sub bad
{
	my ($rule, $title, @lines) = @_;
	my ($wrong) = figures_of(0, @lines);
	like($wrong, qr/^$rule: /, "$rule: $title");
	return;
}

# Exclusion
my @first = (call(0, 10, 'o1', 'acquire', 1));
bad('exclusion', 'two exclusive holders', @first, call(20, 30, 'o2', 'acquire', 2));
good('after the deadline', @first, call(20, 1000, 'o2', 'acquire', 2));
bad('exclusion', 'just before the deadline', @first, call(20, 999, 'o2', 'acquire', 2));
good('given back', @first, call(15, 25, 'o1', 'release', 't'), call(20, 30, 'o2', 'acquire', 2));
bad('exclusion', 'not yet given back', @first, call(31, 35, 'o1', 'release', 't'), call(20, 30, 'o2', 'acquire', 2));
good('given back, as it may be', @first, call(15, 25, 'o1', 'release', '?57014'), call(20, 30, 'o2', 'acquire', 2));
bad('exclusion', 'one of two holds given back', @first, call(11, 12, 'o1', 'acquire', 1), call(15, 16, 'o1', 'release', 't'),
	call(20, 30, 'o2', 'acquire', 2));
good('both given back', @first, call(11, 12, 'o1', 'acquire', 1),
	(map { call(15 + $_, 16 + $_, 'o1', 'release', 't') } 0, 1), call(20, 30, 'o2', 'acquire', 2));
good('the retry of an acquire is no second hold', @first, call(11, 12, 'o1', 'acquire', 1, request => 'r'),
	call(13, 14, 'o1', 'acquire', 1, request => 'r'), (map { call(15 + $_, 16 + $_, 'o1', 'release', 't') } 0, 1),
	call(20, 30, 'o2', 'acquire', 2));
good('another name', @first, call(20, 30, 'o2', 'acquire', 2, name => 'm'));
for my $modes ([ 'x', 's' ], [ 's', 'x' ], [ 'x', 'p' ], [ 'p', 'x' ], [ 's', 'p' ], [ 'p', 's' ])
{
	bad('exclusion', "@$modes", call(0, 10, 'o1', 'acquire', 1, mode => $modes->[0], limit => 9),
		call(20, 30, 'o2', 'acquire', 2, mode => $modes->[1], limit => 9));
}
good('two readers', call(0, 10, 'o1', 'acquire', 1, mode => 's'), call(20, 30, 'o2', 'acquire', 2, mode => 's'));
bad('exclusion', 'a writer while the first of two readers still reads',
	call(0, 10, 'o1', 'acquire', 1, mode => 's'), call(20, 30, 'o2', 'acquire', 2, mode => 's', ttl => 100),
	call(40, 500, 'o3', 'acquire', 3));
bad('exclusion', 'renewed', @first, call(500, 510, 'o1', 'renew', 't'), call(1100, 1110, 'o2', 'acquire', 2));
good('renewed, as it may be', @first, call(500, 510, 'o1', 'renew', '?lost'), call(1100, 1110, 'o2', 'acquire', 2));
good('renewed to end sooner', @first, call(500, 510, 'o1', 'renew', 't', ttl => 10), call(511, 515, 'o2', 'acquire', 2));
bad('exclusion', 'entered again, which prolongs', @first, call(500, 510, 'o1', 'acquire', 1), call(1100, 1110, 'o2', 'acquire', 2));
bad('exclusion', 'while a transaction guards', @first, call(900, 1500, 'o1', 'guard', 't', ttl => 1490),
	call(1300, 1400, 'o2', 'acquire', 2));
good('the transaction may have ended', @first, call(900, 1500, 'o1', 'guard', 't', ttl => 1390),
	call(1300, 1400, 'o2', 'acquire', 2));
good('a transaction that was undone, or not', @first, call(900, 1500, 'o1', 'guard', '?lost', ttl => 1490),
	call(1300, 1400, 'o2', 'acquire', 2));
bad('exclusion', 'the grant cannot have been before the hold before it ended',
	call(0, 10, 'o1', 'acquire', 1), call(500, 520, 'o1', 'release', 't'),
	call(20, 530, 'o2', 'acquire', 2, wait => -1, ttl => 100), call(540, 590, 'o3', 'acquire', 3));
good('the same, a little later', call(0, 10, 'o1', 'acquire', 1), call(500, 520, 'o1', 'release', 't'),
	call(20, 530, 'o2', 'acquire', 2, wait => -1, ttl => 100), call(540, 600, 'o3', 'acquire', 3));

# Sessions
my @session = (call(0, 10, 'o1', 'session', 1));
bad('exclusion', 'a session lease does not expire', @session, call(5000, 5010, 'o2', 'acquire', 2));
good('its session has ended', @session, event('D', 4000, 1), call(5000, 5010, 'o2', 'acquire', 2));
bad('exclusion', 'another session has ended', @session, event('D', 4000, 2), call(5000, 5010, 'o2', 'acquire', 2));
good('its session may have been ended', @session, event('X', 4000, 4010, 'terminate'), call(5000, 5010, 'o2', 'acquire', 2));
bad('exclusion', 'statements were cancelled only', @session, event('X', 4000, 4010, 'cancel'), call(5000, 5010, 'o2', 'acquire', 2));
good('the server was killed', @session, event('K', 4000, 4100, 'server'), call(5000, 5010, 'o2', 'acquire', 2));

# Permits
my @permits = map { call(0, 10 * $_, "o$_", 'acquire', $_, mode => 'p', limit => 3) } 1 .. 3;
good('three of three', @permits);
bad('permits', 'four of three', @permits, call(40, 50, 'o4', 'acquire', 4, mode => 'p', limit => 3));
good('one was given back', @permits, call(35, 45, 'o2', 'release', 't'), call(40, 50, 'o4', 'acquire', 4, mode => 'p', limit => 3));
good('a larger limit', @permits, call(40, 50, 'o4', 'acquire', 4, mode => 'p', limit => 4));
bad('permits', 'given back, but to the one before', @permits, call(35, 36, 'o2', 'release', 't'),
	call(37, 38, 'o4', 'acquire', 4, mode => 'p', limit => 3), call(40, 50, 'o5', 'acquire', 5, mode => 'p', limit => 3));

good('all of three at once', call(0, 10, 'o1', 'acquire', 1, mode => 'p', limit => 3, holds => 3));
my @several = call(0, 10, 'o1', 'acquire', 1, mode => 'p', limit => 3, holds => 2);
bad('permits', 'two and two of three', @several, call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 2));
good('two and one of three', @several, call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3));
good('two and two of four', @several, call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 4, holds => 2));
bad('permits', 'two and one and one of three', @several, map { call(20 * $_, 20 * $_ + 10, "o$_", 'acquire', $_, mode => 'p', limit => 3) } 2, 3);
good('one of the two was given back', @several, call(15, 25, 'o1', 'release', 't'),
	call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 2));
bad('permits', 'only one of the two was given back', @several, call(15, 16, 'o1', 'release', 't'),
	call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 3));
good('both were given back at once', @several, call(15, 16, 'o1', 'release', 't', holds => 2),
	call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 3));
good('both may have been', @several, call(15, 16, 'o1', 'release', '?57014', holds => 2),
	call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 3));
bad('permits', 'a guard keeps both', @several, call(12, 60, 'o1', 'guard', 't', ttl => 50), call(61, 62, 'o1', 'release', 't', holds => 2),
	call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 2));
bad('permits', 'a repeated acquire of others adds none',
	call(0, 10, 'o1', 'acquire', 1, mode => 'p', limit => 3, holds => 2, request => 'r'),
	call(11, 12, 'o1', 'acquire', 1, mode => 'p', limit => 3, holds => 2, request => 'r'),
	call(15, 16, 'o1', 'release', 't'), call(20, 30, 'o2', 'acquire', 2, mode => 'p', limit => 3, holds => 3));

# Several holds given back at once
bad('told', 'more than there are', @first, call(20, 30, 'o1', 'release', 't', holds => 2));
good('as many as there are', @first, call(11, 12, 'o1', 'acquire', 1), call(20, 30, 'o1', 'release', 't', holds => 2),
	call(31, 32, 'o2', 'acquire', 2));
bad('told', 'more than are left', @first, call(11, 12, 'o1', 'acquire', 1), call(13, 14, 'o1', 'release', 't'),
	call(20, 30, 'o1', 'release', 't', holds => 2));
good('more than are left, which is refused', @first, call(20, 30, 'o1', 'release', 'f', holds => 2), call(40, 50, 'o1', 'renew', 't'));
bad('exclusion', 'and changes nothing', @first, call(20, 30, 'o1', 'release', 'f', holds => 2), call(40, 50, 'o2', 'acquire', 2));
bad('lost', 'as many as there are, which is refused', @first, call(11, 12, 'o1', 'acquire', 1), call(20, 30, 'o1', 'release', 'f', holds => 2));

# All or none
sub both { return map { call(20, 30, 'o1', 'all', $_[0], request => 'r', name => $_) } 'n', 'm' }
my @held = call(0, 10, 'o1', 'acquire', 1, request => 'r');
good('of two names, one is held, and the other is not free', @held, both('-'));
bad('lost', 'the one alone is entered again', @held, call(20, 30, 'o1', 'acquire', '-', request => 'r'));
bad('exclusion', 'both, and one is held by another', call(0, 10, 'o2', 'acquire', 1, name => 'm'), both(2));

# Downgrades
sub downgrade { my ($start, $end, $answer) = @_; return call($start, $end, 'o1', 'downgrade', $answer) }
sub reads { my ($start, $end) = @_; return call($start, $end, 'o2', 'acquire', 2, mode => 's') }
good('a reader beside what was exclusive', @first, downgrade(15, 25, 't'), reads(20, 30));
bad('exclusion', 'before it is shared', @first, downgrade(31, 40, 't'), reads(20, 30));
good('it may be shared', @first, downgrade(15, 25, '?57014'), reads(20, 30));
bad('exclusion', 'a writer beside it', @first, downgrade(15, 25, 't'), call(30, 40, 'o2', 'acquire', 2));
bad('exclusion', 'a writer beside what may be shared', @first, downgrade(15, 25, '?57014'), call(30, 40, 'o2', 'acquire', 2));
bad('exclusion', 'a permit beside it', @first, downgrade(15, 25, 't'), call(30, 40, 'o2', 'acquire', 2, mode => 'p', limit => 3));
bad('exclusion', 'a guard keeps it exclusive', @first, call(12, 60, 'o1', 'guard', 't', ttl => 50), downgrade(15, 16, 't'), reads(20, 30));
good('a guard of what is shared', @first, downgrade(15, 16, 't'), call(18, 60, 'o1', 'guard', 't', ttl => 50), reads(20, 30));
bad('lost', 'of a live lease is answered f', @first, downgrade(20, 30, 'f'));
bad('late', 'after the deadline', @first, downgrade(1011, 1020, 't'));
bad('told', 'by one who was refused', call(0, 10, 'o1', 'acquire', '-'), downgrade(20, 30, 't'));
bad('told', 'after it was given back', @first, call(20, 30, 'o1', 'release', 't'), downgrade(40, 50, 't'));
bad('lost', 'dlock_owner names another before it', @first, downgrade(40, 50, 't'), call(20, 30, 'o3', 'owner', '-'));
good('dlock_owner names nobody after it', @first, downgrade(15, 16, 't'), call(20, 30, 'o3', 'owner', '-'));
bad('told', 'the table has it exclusive', @first, downgrade(15, 16, 't'), seen('L', 20, 30, 'n o1 exclusive 1 live'));
good('the table has it shared', @first, downgrade(15, 16, 't'), seen('L', 20, 30, 'n o1 shared 1 live'));
bad('told', 'the table has it shared before', @first, seen('L', 20, 30, 'n o1 shared 1 live'), downgrade(35, 36, 't'));
good('the table has it as it was, while it changes', @first, downgrade(15, 25, 't'), seen('L', 20, 30, 'n o1 exclusive 1 live'));
good('or after a crash', @first, downgrade(15, 16, 't'), event('K', 17, 18, 'server'), seen('L', 20, 30, 'n o1 exclusive 1 live'));
bad('lost', 'the table does not have it', @first, downgrade(15, 16, 't'), seen('L', 20, 30));
bad('told', 'the table has a reader as a writer', call(0, 10, 'o1', 'acquire', 1, mode => 's'), seen('L', 20, 30, 'n o1 exclusive 1 live'));

# Given back with effect later
sub leave { my ($start, $end, $answer, %more) = @_; return call($start, $end, 'o1', 'leave', $answer, ttl => 2000, %more) }
my @left = (@first, leave(20, 30, 't'));
bad('exclusion', 'before the time that is left', @left, call(40, 2019, 'o2', 'acquire', 2));
good('at that time', @left, call(40, 2020, 'o2', 'acquire', 2));
good('at that time, which is sooner than the deadline', @first, leave(20, 30, 't', ttl => 100), call(40, 120, 'o2', 'acquire', 2));
bad('exclusion', 'not a crash ends it', @left, event('K', 100, 200, 'server'), call(300, 2019, 'o2', 'acquire', 2));
is((figures_of('lossy', @left, event('K', 100, 200, 'server'), call(300, 310, 'o2', 'acquire', 2)))[0], '',
	'possible: over a crash, of a server that may lose leases');
bad('exclusion', 'it may be left, and has its deadline', @first, leave(20, 30, '?57014'), call(40, 999, 'o2', 'acquire', 2));
good('it may be left, and end sooner', @first, leave(20, 30, '?57014', ttl => 100), call(40, 120, 'o2', 'acquire', 2));
bad('exclusion', 'it may be left sooner, and is so by the call after it', @first, leave(20, 30, '?57014', ttl => 100), leave(40, 50, 't', token => 1),
	call(60, 119, 'o2', 'acquire', 2));
for my $op ('renew', 'release', 'guard', 'downgrade')
{
	bad('told', "$op of what is left", @left, call(40, 50, 'o1', $op, 't'));
	good("$op of what is left is refused", @left, call(40, 50, 'o1', $op, 'f'));
	bad('lost', "$op of what is left says that nobody has it", @left, call(40, 50, 'o1', $op, '-'));
	good("$op of what may be left", @first, leave(20, 30, '?57014'), call(40, 50, 'o1', $op, $_)) for 't', 'f';
}
bad('told', 'entered again by the owner who has left it', @left, call(40, 50, 'o1', 'acquire', 1));
bad('lost', 'granted to that owner', @left, call(40, 50, 'o1', 'acquire', 2));
good('shared by that owner like by anybody', call(0, 10, 'o1', 'acquire', 1, mode => 's'), leave(20, 30, 't'), call(40, 50, 'o1', 'acquire', 2, mode => 's'));
bad('lost', 'granted to that owner, exclusively', call(0, 10, 'o1', 'acquire', 1, mode => 's'), leave(20, 30, 't'), call(40, 50, 'o1', 'acquire', 2));
good('refused to that owner', @left, call(40, 50, 'o1', 'acquire', '-'));
good('granted to that owner, later', @left, call(2040, 2050, 'o1', 'acquire', 2));
good('left once more, with the token', @left, leave(40, 50, 't', token => 1), call(60, 2020, 'o2', 'acquire', 2));
bad('exclusion', 'left once more, which changes nothing', @left, leave(40, 50, 't', token => 1, ttl => 10), call(60, 70, 'o2', 'acquire', 2));
bad('told', 'left once more, without the token', @left, leave(40, 50, 't'));
bad('lost', 'left once more, with the token, in vain', @left, leave(40, 50, 'f', token => 1));
bad('late', 'left once more, after its end', @left, leave(2031, 2040, 't', token => 1));
bad('late', 'left after the deadline', @first, leave(1011, 1020, 't'));
bad('lost', 'left in vain', @first, leave(20, 30, '-'));
bad('told', 'left after it was given back', @first, call(12, 13, 'o1', 'release', 't'), leave(20, 30, 't'));
bad('told', 'left by one who was refused', call(0, 10, 'o1', 'acquire', '-'), leave(20, 30, 't'));
bad('lost', 'the table does not have what is left', @left, seen('L', 40, 50));
good('the table has what is left', @left, seen('L', 40, 50, 'n o1 exclusive 1 live'), seen('L', 60, 2020));
bad('lost', 'dlock_owner names another than the owner who has left it', @left, call(40, 50, 'o3', 'owner', '-'));
bad('permits', 'left, and so not free', (map { call(0, 10 * $_, "o$_", 'acquire', $_, mode => 'p', limit => 2) } 1, 2), leave(30, 40, 't', mode => 'p'),
	call(50, 60, 'o2', 'release', 't', mode => 'p'), call(70, 80, 'o3', 'acquire', 3, mode => 'p', limit => 2, holds => 2));

# Lost and late
for my $op ('renew', 'release', 'guard')
{
	bad('lost', "$op of a live lease is answered $_", @first, call(20, 30, 'o1', $op, $_)) for 'f', '-';
	good("$op after the deadline", @first, call(20, 1000, 'o1', $op, 'f'));
	good("$op that may have failed", @first, call(20, 30, 'o1', $op, '?57014'));
}
bad('lost', 'entering again is another lease', @first, call(20, 30, 'o1', 'acquire', 2));
bad('lost', 'entering again is refused', @first, call(20, 30, 'o1', 'acquire', '-'));
bad('lost', 'over a crash', @first, event('K', 20, 100, 'server'), call(120, 130, 'o1', 'renew', '-'));
bad('lost', 'over a crash, to somebody else: that is exclusion too',
	@first, event('K', 20, 100, 'server'), call(120, 130, 'o1', 'renew', 'f'));
my $lossy = (figures_of('lossy', @first, event('K', 20, 100, 'server'), call(120, 130, 'o1', 'renew', '-')))[0];
is($lossy, '', 'possible: over a crash, of a server that may lose leases');
$lossy = (figures_of('lossy', @first, event('K', 200, 300, 'server'), call(120, 130, 'o1', 'renew', '-')))[0];
like($lossy, qr/^lost: /, 'lost: before the crash of such a server');
bad('lost', 'the table does not have it', @first, seen('L', 20, 30));
good('the table has it', @first, seen('L', 20, 30, 'n o1 exclusive 1 live'));
good('the table has it no more', @first, seen('L', 20, 1000));
bad('lost', 'dlock_owner names another', @first, call(0, 5, 'o2', 'acquire', '?57014'), call(20, 30, 'o3', 'owner', 'o2'));
bad('lost', 'dlock_owner names nobody', @first, call(20, 30, 'o3', 'owner', '-'));
good('dlock_owner names him', @first, call(20, 30, 'o3', 'owner', 'o1'));
bad('late', 'renewed after the deadline', @first, call(1011, 1020, 'o1', 'renew', 't'));
good('renewed at the deadline', @first, call(1010, 1020, 'o1', 'renew', 't'));
bad('late', 'guarded after the deadline', @first, call(1011, 1020, 'o1', 'guard', 't', ttl => 1015));
bad('late', 'released after the deadline', @first, call(1011, 1020, 'o1', 'release', 't'));
good('a restart may have moved the deadline', @first, event('K', 500, 600, 'server'), call(1011, 1020, 'o1', 'renew', 't'));

# Tokens
bad('token', 'the same for two', @first, call(2000, 2010, 'o2', 'acquire', 1));
bad('token', 'smaller', call(0, 10, 'o1', 'acquire', 2, ttl => 1), call(2000, 2010, 'o2', 'acquire', 1, ttl => 1));
good('smaller, but asked for at the same time', call(0, 10, 'o1', 'acquire', 2, ttl => 1), call(5, 15, 'o2', 'acquire', 1, ttl => 1));
bad('token', 'smaller than before this history', "F\tn\t7", call(0, 10, 'o1', 'acquire', 7));
good('larger than before', "F\tn\t6", call(0, 10, 'o1', 'acquire', 7));
for my $server ('', 'lossy')
{
	like((figures_of($server, call(0, 10, 'o1', 'acquire', 2), event('K', 20, 100, 'server'),
				call(5000, 5010, 'o2', 'acquire', 1)))[0], qr/^token: /, 'token: over a crash, lossy or not');
}
bad('token', 'used again by its owner, after he gave it back: that is told him too',
	@first, call(20, 30, 'o1', 'release', 't'), call(40, 50, 'o2', 'acquire', 2, ttl => 1), call(2000, 2001, 'o3', 'acquire', 2));

# Order
my @line = (call(0, 1, 'o1', 'acquire', 1), call(100, 101, 'o1', 'release', 't'));
sub waits { my ($start, $owner, $answer, %more) = @_; return call($start, 300, $owner, 'acquire', $answer, wait => 1000, ttl => 20, %more) }
bad('order', 'whoever came second is served first', @line, waits(10, 'o2', 3), seen('W', 20, 25, 'n o2 1'), waits(30, 'o3', 2));
good('in order', @line, waits(10, 'o2', 2), seen('W', 20, 25, 'n o2 1'), waits(30, 'o3', 3));
good('not seen early enough', @line, waits(10, 'o2', 3), seen('W', 20, 35, 'n o2 1'), waits(30, 'o3', 2));
bad('order', 'behind him in one look', @line, waits(10, 'o2', 3), waits(10, 'o3', 2), seen('W', 20, 25, 'n o2 1', 'n o3 2'));
good('before him in one look, whatever comes first in it', @line, waits(10, 'o2', 3), waits(10, 'o3', 2),
	seen('W', 20, 25, 'n o2 2', 'n o3 1'));
good('without a place', @line, waits(10, 'o2', 3), waits(30, 'o3', 2), seen('W', 20, 25, 'n o2 -'));
bad('order', 'far behind him', @line, waits(10, 'o2', 5), waits(10, 'o3', '-', wait => 1), waits(10, 'o4', 2),
	seen('W', 20, 25, 'n o2 1', 'n o3 2', 'n o4 3'));
bad('order', 'served while he waits in vain', @line, call(10, 1100, 'o2', 'acquire', '-', wait => 1000),
	seen('W', 20, 25, 'n o2 1'), call(30, 200, 'o3', 'acquire', 2, wait => 1000));
good('served when his time may be up', @line, call(10, 1100, 'o2', 'acquire', '-', wait => 100),
	seen('W', 20, 25, 'n o2 1'), call(30, 200, 'o3', 'acquire', 2, wait => 1000));
bad('order', 'a newcomer overtakes, trying once', @line, waits(10, 'o2', 3), seen('W', 20, 25, 'n o2 1'),
	call(101, 102, 'o3', 'acquire', 2, ttl => 20));
good('who was cancelled does not count', @line, waits(10, 'o2', '?57014'), seen('W', 20, 25, 'n o2 1'), waits(30, 'o3', 2));
good('nor who had asked before, and was not answered', @line, call(2, 3, 'o2', 'acquire', '?lost'), waits(10, 'o2', 3),
	seen('W', 20, 25, 'n o2 1'), waits(30, 'o3', 2));

# Claims: for how many names, and what was answered to each.
sub claim
{
	my ($start, $end, $owner, $count, $request, %answers) = @_;
	return map { call($start, $end, $owner, 'any', $answers{$_}, name => $_, limit => $count, request => $request) } sort keys %answers;
}
my @claim = claim(0, 10, 'o1', 2, 'r', a => 1, b => '-', c => 2);
good('two of three', @claim);
bad('told', 'more than were wanted', claim(0, 10, 'o1', 2, 'r', a => 1, b => 3, c => 2));
bad('exclusion', 'what somebody has', @claim, claim(20, 30, 'o2', 2, 'r', c => 3));
good('what nobody has', @claim, claim(20, 30, 'o2', 2, 'r', b => 1, c => '-'));
bad('exclusion', 'it is exclusive', @claim, call(20, 30, 'o2', 'acquire', 3, mode => 's', name => 'c'));
good('again under the same request', @claim, claim(20, 30, 'o1', 2, 'r', a => 1, b => '-', c => 2));
bad('told', 'again under another request', @claim, claim(20, 30, 'o1', 2, 's', a => 1));
bad('told', 'again without a request', claim(0, 10, 'o1', 1, '-', a => 1), claim(20, 30, 'o1', 1, '-', a => 1));
good('left alone under another request', @claim, claim(20, 30, 'o1', 2, 's', a => '-'));
bad('lost', 'not answered again, though there is room', @claim, claim(20, 30, 'o1', 2, 'r', a => 1, c => '-'));
good('not answered again, since another came free', @claim, claim(20, 30, 'o1', 2, 'r', a => 1, b => 3, c => '-'));
bad('lost', 'again, as another lease', @claim, claim(20, 30, 'o1', 2, 'r', a => 7));
bad('exclusion', 'again, which prolongs', @claim, claim(500, 510, 'o1', 2, 'r', a => 1, c => 2), call(1100, 1110, 'o2', 'acquire', 3, name => 'c'));
bad('told', 'again is no second hold', @claim, claim(20, 30, 'o1', 2, 'r', a => 1, c => 2),
	call(40, 50, 'o1', 'release', 't', name => 'c'), seen('L', 60, 70, 'a o1 exclusive 1 live', 'c o1 exclusive 2 live'));
good('who may have it', claim(0, 10, 'o1', 2, 'r', map { $_ => '?lost' } qw(a b c)), call(20, 30, 'o1', 'renew', 't', name => 'b'));
bad('told', 'the table has what was not claimed', @claim, seen('L', 20, 30, 'a o1 exclusive 1 live', 'b o1 exclusive 1 live', 'c o1 exclusive 2 live'));
bad('order', 'a claim overtakes', @line, waits(10, 'o2', 3), seen('W', 20, 25, 'n o2 1'), claim(101, 102, 'o3', 1, '-', n => 2),
	call(103, 104, 'o3', 'release', 't'));
good('those who watch are overtaken', @line, claim(10, 300, 'o2', 1, '-', n => 3), seen('W', 20, 25, 'n o2 -'),
	waits(101, 'o3', 2));
bad('deadlock', 'of a claim, of one who has nothing', claim(20, 30, 'o1', 1, '-', a => '?40P01', b => '?40P01'));

# Leases of transactions
my @xact = call(0, 10, 'o1', 'xact', 1);
bad('exclusion', 'before its transaction has ended', @xact, call(5000, 5010, 'o2', 'acquire', 2));
good('its transaction may have ended', @xact, call(4000, 5020, 'o1', 'commit', 't', token => 1), call(5000, 5010, 'o2', 'acquire', 2));
bad('exclusion', 'before it was told to', @xact, call(5011, 5020, 'o1', 'commit', 't', token => 1), call(5000, 5010, 'o2', 'acquire', 2));
good('a commit that was lost', @xact, call(4000, 4020, 'o1', 'commit', '?lost', token => 1), call(5000, 5010, 'o2', 'acquire', 2));
good('its connection has ended', @xact, event('D', 4000, 1), call(5000, 5010, 'o2', 'acquire', 2));
bad('told', 'the table has it after the end', @xact, call(20, 30, 'o1', 'commit', 't', token => 1), seen('L', 40, 50, 'n o1 exclusive 1 live'));
my @shared = call(0, 10, 'o1', 'xact', 1, mode => 's');
good('two readers', @shared, call(20, 30, 'o2', 'xact', 2, mode => 's'));
bad('exclusion', 'a writer before the transaction has ended', @shared, call(5000, 5010, 'o2', 'acquire', 2));
bad('exclusion', 'a writer before the session has ended', call(0, 10, 'o1', 'session', 1, mode => 's'), call(5000, 5010, 'o2', 'acquire', 2));

# Told
my @refused = (call(0, 10, 'o1', 'acquire', '-'));
for my $op ('renew', 'release', 'guard')
{
	bad('told', "$op by one who was refused", @refused, call(20, 30, 'o1', $op, 't'));
	good("$op by one who may have it", call(0, 10, 'o1', 'acquire', '?57014'), call(20, 30, 'o1', $op, 't'));
}
bad('told', 'the table has whoever was refused', @refused, seen('L', 20, 30, 'n o1 exclusive 1 live'));
good('the table has him while he asks', @refused, seen('L', 5, 30, 'n o1 exclusive 1 live'));
bad('told', 'dlock_owner names whoever was refused', @refused, call(20, 30, 'o3', 'owner', 'o1'));
bad('told', 'the table has one who never asked', @refused, seen('L', 20, 30, 'n o2 exclusive 1 live'));
bad('told', 'or asked later', @refused, seen('L', 20, 30, 'n o2 exclusive 1 live'), call(31, 32, 'o2', 'acquire', 1));
good('or is of another history', @refused, seen('L', 20, 30, 'n other exclusive 1 live'));
bad('told', 'the table has another token', @first, seen('L', 20, 30, 'n o1 exclusive 2 live'));
good('the table has another token, which may be', call(0, 5, 'o1', 'acquire', '?lost'),
	call(7, 10, 'o1', 'acquire', 1), seen('L', 8, 30, 'n o1 exclusive 2 live'));
my @again = (@first, call(2000, 2010, 'o1', 'acquire', 2));
for my $op ('renew', 'release', 'guard')
{
	bad('told', "$op with the token of an earlier lease", @again, call(2020, 2030, 'o1', $op, 't', token => 1));
	good("$op with such a token is refused", @again, call(2020, 2030, 'o1', $op, 'f', token => 1));
	bad('lost', "$op with the token of this one is refused", @again, call(2020, 2030, 'o1', $op, 'f', token => 2));
}
my @back = (@first, call(20, 30, 'o1', 'release', 't'));
bad('told', 'the table has what was given back', @back, seen('L', 40, 50, 'n o1 exclusive 1 live'));
good('its row is over', @back, seen('L', 40, 50, 'n o1 exclusive 1 over'));
good('while it is given back', @back, seen('L', 25, 50, 'n o1 exclusive 1 live'));
good('a crash may undo it', @back, event('K', 31, 35, 'server'), seen('L', 40, 50, 'n o1 exclusive 1 live'));
my @guarded = (@back, call(0, 35, 'o2', 'acquire', '?lost'), call(36, 45, 'o2', 'guard', 't', ttl => 44));
bad('told', 'while another guards the name', @guarded, seen('L', 40, 50, 'n o1 exclusive 1 live'));
is((figures_of('deferred', @guarded, seen('L', 40, 50, 'n o1 exclusive 1 live')))[0], '', 'possible: where the release is written later');
like((figures_of('deferred', @back, seen('L', 40, 50, 'n o1 exclusive 1 live')))[0], qr/^told: /, 'told: where nobody guards it');
bad('told', 'given back twice', @back, call(40, 50, 'o1', 'release', 't'));
bad('told', 'renewed after it was given back', @back, call(40, 50, 'o1', 'renew', 't'));
bad('told', 'entered again after it was given back', @back, call(40, 50, 'o1', 'acquire', 1));
good('renewed after it was given back, and the server killed', @back, event('K', 31, 35, 'server'), call(40, 50, 'o1', 'renew', 't'));
good('given back twice, having been taken twice, as it may be', @first, call(11, 12, 'o1', 'acquire', '?57014'),
	call(13, 14, 'o1', 'acquire', 1), call(20, 30, 'o1', 'release', 't'), call(40, 50, 'o1', 'release', 't'),
	call(60, 70, 'o1', 'release', 't'));

# Deadlocks
my $victim = call(20, 30, 'o2', 'acquire', '?40P01', wait => -1);
bad('deadlock', 'of one who has nothing', @first, $victim);
good('of one who has something else', @first, $victim, call(0, 1, 'o2', 'acquire', 1, name => 'm'));
good('of one who may wait for something else', @first, $victim, call(0, 5, 'o2', 'acquire', '?lost', name => 'm'));
bad('deadlock', 'of one who was refused something else', @first, $victim, call(0, 5, 'o2', 'acquire', '-', name => 'm'));
good('behind one who may wait for himself', @first, $victim, call(0, 5, 'o3', 'acquire', '?lost'), call(15, 900, 'o3', 'acquire', '-', wait => 800));
bad('deadlock', 'before he does', @first, $victim, call(0, 5, 'o3', 'acquire', '?lost'), call(31, 900, 'o3', 'acquire', '-', wait => 800));

# What was there to be checked is counted.
my (undef, $figures) = figures_of(0, @line, waits(10, 'o2', 2), waits(30, 'o3', '-', wait => 10), seen('W', 20, 25, 'n o2 1'),
	waits(40, 'o4', 3), event('K', 900, 901, 'server'), call(950, 951, 'o5', 'acquire', '?lost'));
is_deeply(
	{ map { $_ => $figures->{$_} } qw(calls grants refused unknown kills compared ordered) },
	{ calls => 6, grants => 3, refused => 1, unknown => 1, kills => 1, compared => 2, ordered => 1 },
	'the figures');
eval { History->new->add("C\t1\t2\n") };
like($@, qr/^not a call/, 'half a line is an error');

done_testing();
