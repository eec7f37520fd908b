# The single calls of the command dlock, and ls, waiters and stats, on the kind of server that
# is the argument; see CommandCases.pm.

use strict;
use warnings;

use Encode qw(decode encode);
use FindBin;
use lib $FindBin::RealBin;
use CommandCases;
use JSON::PP;
use Processes;
use Test::More;

my $kind = $ARGV[0];
my $is_postgres = $kind eq 'postgres';
my $admin = $is_postgres ? 'postgres' : 'root';

start_server($kind);

# Run dlock to its end: status, what it prints, what it says.  What waits for less than a second
# asks again if a busy server could not decide in that.
sub run
{
	my @arguments = @_;
	my ($run, $status);
	eventually(sub {
		$run = launch(@arguments);
		$status = finish($run);
		return errors($run) !~ /could not decide on the lease in its time/;
	});
	return ($status, output($run), errors($run));
}

# The same, and what it must come to: status, a regex or text of what it prints, and a regex
# of the line that it says, or '' for none.
sub runs
{
	my ($what, $wanted, $prints, $says, @arguments) = @_;
	my ($status, $output, $errors) = run(@arguments);
	is($status, $wanted, "$what: status");
	if (ref $prints) { like($output, $prints, "$what: prints") }
	else { is($output, $prints, "$what: prints") }
	if ($says eq '') { is($errors, '', "$what: says nothing") }
	else { like($errors, qr/\Adlock: $says\n\z/, "$what: says so") }
	return $output;
}

# What a subcommand prints as JSON.
sub json
{
	my ($status, $output, $errors) = run(@_);
	is($status, 0, "@_[0 .. 0]: status") or diag($errors);
	return decode_json($output);
}

my $true = JSON::PP::true;

sub single_calls
{
	my $token = runs('acquire', 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1m --owner me a));
	chomp $token;
	runs('acquire of another', 75, '', qr/"a" is not free/, qw(acquire --ttl 1m --owner you a));
	runs('acquire again', 0, "$token\n", '', qw(acquire -t60 -o me a));
	is(query(q{SELECT version FROM dlock.locks WHERE name = 'a'}), 2, 'is another hold');
	runs('options may follow', 0, "$token\n", '', qw(acquire a --ttl=1m --owner=me));

	runs('owner', 0, "me\n", '', qw(owner a));
	runs('owner of none', 0, '', '', qw(owner nobody-has-it));

	runs('renew', 0, "true\n", '', qw(renew --ttl 1h --owner me a));
	cmp_ok(query(q{SELECT SECONDS_LEFT FROM dlock.locks WHERE name = 'a'}), '>', 3500, 'moves the deadline');
	runs('renew with the token', 0, "true\n", '', qw(renew --ttl 1h --owner me a --token), $token);
	runs('renew with another', 70, "false\n", qr/"a" is held, but not by .*/, qw(renew --ttl 1h --owner me a --token 1));
	runs('renew by another', 70, "false\n", qr/"a" is held, but not by .*/, qw(renew --ttl 1h --owner you a));
	runs('renew of none', 70, "null\n", qr/"b" is held by nobody.*/, qw(renew --ttl 1h --owner you b));

	runs('release by another', 70, "false\n", qr/.*/, qw(release --owner you a));
	runs('release with another token', 70, "false\n", qr/.*/, qw(release --owner me a --token 1));
	runs("release $_", 0, "true\n", '', qw(release --owner me a)) for 1 .. 3;
	runs('release of none', 70, "null\n", qr/.*/, qw(release --owner me a));

	# an empty pipe is the token that was read from a call that failed
	runs('no token', 64, '', qr/--token.*/, qw(release --owner me a --token), '');
	return;
}

sub json_of_calls
{
	my $acquired = json(qw(acquire --json --ttl 1m --owner me j));
	is_deeply([ sort keys %$acquired ], [qw(name owner token)], 'acquire: members');
	like(JSON::PP->new->encode($acquired), qr/"token":\d+/, 'a token is a number');
	my ($status, $output) = run(qw(acquire --json --ttl 1m --owner you j));
	is($status, 75, 'refused');
	is_deeply(decode_json($output), { name => 'j', owner => 'you', token => undef }, 'its token is null');
	is_deeply(json(qw(renew -j --ttl 1m --owner me j)), { name => 'j', renewed => $true }, 'renewed');
	is_deeply(json(qw(owner -j j)), { name => 'j', owner => 'me' }, 'owner');
	is_deeply(json(qw(owner -j none)), { name => 'none', owner => undef }, 'no owner');
	($status, $output) = run(qw(wait -j --wait 0 j));
	is($status, 75, 'wait: status');
	is_deeply(decode_json($output), { name => 'j', ended => JSON::PP::false }, 'wait');
	is_deeply(json(qw(release -j --owner me j)), { name => 'j', released => $true }, 'released');
	($status, $output) = run(qw(release -j --owner me j));
	is_deeply(decode_json($output), { name => 'j', released => undef }, 'not released');
	return;
}

# Who calls, by the environment.
sub environment
{
	my $set = sub { return { env => {@_} } };
	my $token = runs('DLOCK_OWNER', 0, qr/\A\d+\n\z/, '', $set->(DLOCK_OWNER => 'env'), qw(acquire --ttl 1m e));
	chomp $token;
	runs('it is the owner', 0, "env\n", '', qw(owner e));
	runs('--owner counts more', 75, '', qr/.*/, $set->(DLOCK_OWNER => 'env'), qw(acquire --ttl 1m --owner x e));
	runs('no owner', 64, '', qr/say who you are.*/, $_, qw(acquire --ttl 1m e)) for $set->(), $set->(DLOCK_OWNER => '');
	runs('nor for renew', 64, '', qr/say who you are.*/, qw(renew --ttl 1m e));
	runs('nor for release', 64, '', qr/say who you are.*/, qw(release e));

	runs('DLOCK_TOKEN of this name', 0, "true\n", '',
		$set->(DLOCK_OWNER => 'env', DLOCK_NAME => 'e', DLOCK_TOKEN => $token), qw(renew --ttl 1m e));
	runs('another one', 70, "false\n", qr/.*/,
		$set->(DLOCK_OWNER => 'env', DLOCK_NAME => 'e', DLOCK_TOKEN => $token - 1), qw(renew --ttl 1m e));
	runs('that of another name does not count', 0, "true\n", '',
		$set->(DLOCK_OWNER => 'env', DLOCK_NAME => 'f', DLOCK_TOKEN => 1), qw(renew --ttl 1m e));
	runs('nor one without a name', 0, "true\n", '', $set->(DLOCK_OWNER => 'env', DLOCK_TOKEN => 1), qw(renew --ttl 1m e));
	runs('no token', 64, '', qr/DLOCK_TOKEN.*/,
		$set->(DLOCK_OWNER => 'env', DLOCK_NAME => 'e', DLOCK_TOKEN => '12x'), qw(release e));
	runs('--token counts more', 0, "true\n", '',
		$set->(DLOCK_OWNER => 'env', DLOCK_NAME => 'e', DLOCK_TOKEN => 1), qw(release e --token), $token);
	runs('DLOCK_URL', 0, '', '', { no_url => 1, env => { DLOCK_URL => url() } }, qw(owner e));
	runs('in what is run by "dlock run"', 0, "true\ntrue\n", '', qw(run inside -- sh -c),
		'"$0" renew --ttl 1m inside --url "$1" && "$0" renew --ttl 1m "$DLOCK_NAME" --url "$1"', dlock(), url());
	return;
}

sub modes
{
	runs("shared $_", 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1m --shared s --owner), $_) for 1, 2;
	runs('exclusive beside them', 75, '', qr/.*/, qw(acquire --ttl 1m s --owner 3));
	runs("permit $_", 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1m --permits 2 p --owner), $_) for 1, 2;
	runs('permit 3', 75, '', qr/.*/, qw(acquire --ttl 1m --permits 2 p --owner 3));
	is(query(q{SELECT mode FROM dlock.locks WHERE name = 'p' AND owner = '2'}), 'permit', 'they are permits');
	runs('misuse', 64, '', qr/.*release.*/i, qw(acquire --ttl 1m --owner 1 s));

	my @tokens = map { runs("request $_", 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1m --owner r --request id r)) } 1, 2;
	is($tokens[0], $tokens[1], 'the same request, the same token');
	is(query(q{SELECT version FROM dlock.locks WHERE name = 'r'}), 1, 'and the same hold');
	return;
}

sub waiting
{
	runs('taken', 0, qr/./, '', qw(acquire --ttl 1m --owner first w));
	runs('waits, in vain', 75, '', qr/"w" is not free/, qw(acquire --ttl 1m --owner second w --wait 0.1));
	my $second = launch(qw(acquire --ttl 1m --owner second w --wait forever));
	ok(eventually(sub { waits_for('w') }), 'waits');
	my $killed = launch(qw(acquire --ttl 1m --owner third w --wait 10m));
	ok(eventually(sub { waits_for('w', 2) }), 'another waits');
	kill 'TERM', $killed->{pid};
	is(finish($killed), 'signal 15', 'it is ended');
	ok(eventually(sub { waits_for('w', 1) }), 'and leaves the line');
	my $watcher = launch(qw(wait w));
	ok(eventually(sub { waits_for('w', 2) }), 'one waits for the end');
	runs('released', 0, "true\n", '', qw(release --owner first w));
	is(finish($second), 0, 'the second has it');
	like(output($second), qr/\A\d+\n\z/, 'its token');
	is(finish($watcher), 0, 'the end has come');
	is(output($watcher), "true\n", 'is told');
	runs('wait in vain', 75, "false\n", qr/"w" is still held/, qw(wait w --wait 0.1));
	runs('wait for nothing', 0, "true\n", '', qw(wait w-free));

	# a circle is no answer but a deadlock
	runs('deadlock: one', 0, qr/./, '', qw(acquire --ttl 1m --owner d1 d-a));
	runs('deadlock: two', 0, qr/./, '', qw(acquire --ttl 1m --owner d2 d-b));
	my $one = launch(qw(acquire --ttl 1m --owner d1 d-b --wait 1m));
	eventually(sub { sleeps_for('d-b') });
	runs('deadlock', 75, '', qr/.*deadlock.*/, qw(acquire --ttl 1m --owner d2 d-a --wait 1m));
	runs('deadlock: gives back', 0, "true\n", '', qw(release --owner d2 d-b));
	is(finish($one), 0, 'the other goes on');
	return;
}

sub privileges
{
	runs('taken', 0, qr/./, '', qw(acquire --ttl 1m --owner me f));
	runs('taken shared', 0, qr/./, '', qw(acquire --ttl 1m --shared g --owner), $_) for 1 .. 3;
	runs('force-release by no operator', 77, '', qr/.*permission denied.*/, qw(force-release f));
	my $operator = { url => url(undef, $admin) };
	runs('DLOCK_OWNER is not for it', 0, "1\n", '', { %$operator, env => { DLOCK_OWNER => 'x' } }, qw(force-release f));
	runs('nothing to evict', 0, "0\n", '', $operator, qw(force-release f));
	runs('one owner', 0, "1\n", '', $operator, qw(force-release g --owner 2));
	my ($status, $output) = run($operator, qw(force-release g --json));
	is_deeply(decode_json($output), { name => 'g', evicted => 2 }, 'the others');
	runs('renewal of an evicted one', 70, "null\n", qr/.*/, qw(renew --ttl 1m --owner me f));
	runs('an account that is not let in', 77, '', qr/.*/, { url => url(undef, 'nobody_of_that_name') }, qw(owner f));
	return;
}

sub no_server
{
	my $none = $is_postgres ? 'host=/no/such dbname=x' : 'mysql://u@localhost/?socket=/no/such';
	runs('no server', 69, '', qr/.*/, { no_url => 1 }, $_->[0], '--url', $none, @$_[ 1 .. $#$_ ])
	  for [qw(owner a)], [qw(acquire --ttl 1 --owner x a)], [qw(release --owner x a)], [qw(ls)], [qw(stats)];
	runs('no URL', 64, '', qr/.*/, { no_url => 1 }, qw(ls));
	runs('a wrong URL', 64, '', qr/.*/, { no_url => 1 }, qw(ls --url what://is/this));

	# a server that does not answer
	my ($port, $order) = proxy();
	runs('a port of localhost is no socket', 0, '', '', { url => url($port) =~ s/127\.0\.0\.1/localhost/r }, qw(owner nobody-has-it));
	$order->('swallow');
	my $patient = launch({ url => url($port) }, qw(ls --timeout 1h));
	runs('no answer', 69, '', qr/.*/, { url => url($port) }, qw(ls --timeout 0.5));
	ok(!defined has_ended($patient), 'before one that began sooner, with more time');
	if ($patient->{pid})
	{
		kill 'KILL', $patient->{pid};
		finish($patient);
	}

	# an answer that is lost
	($port, $order) = proxy();
	runs('held', 0, qr/./, '', qw(acquire --ttl 1m --owner holder lost));
	my $run = launch({ url => url($port) }, qw(acquire --ttl 1m --owner me --request again lost --wait 1m));
	eventually(sub { waits_for('lost') });
	$order->('swallow');
	runs('given back', 0, "true\n", '', qw(release --owner holder lost));
	eventually(sub { holds_name('lost') && query(q{SELECT owner FROM dlock.locks WHERE name = 'lost'}) eq 'me' });
	$order->('cut');
	is(finish($run), 69, 'a lost answer');
	like(errors($run), qr/\Adlock: "lost" may have been acquired: repeat .*\ndlock: .*\n\z/, 'what to do then is said');
	runs('that is done', 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 1m --owner me --request again lost));
	is(query(q{SELECT version FROM dlock.locks WHERE name = 'lost'}), 1, 'and is one hold');
	return;
}

sub usage
{
	for my $wrong (
		[qw(acquire)], [qw(acquire a)], [qw(acquire --ttl 1m --owner o)], [qw(acquire --owner o a)],
		[qw(acquire --ttl 1m --owner o a b)], [qw(acquire --ttl soon --owner o a)],
		[qw(acquire --ttl 1m --owner o --shared --permits 2 a)], [qw(acquire --ttl 1m --owner o --permits 0 a)],
		[qw(acquire --ttl 1m --owner o --nonsense a)], [qw(acquire --ttl 1m a --owner)], [qw(renew --owner o a)],
		[qw(acquire --ttl 1m --owner o), ''], [qw(acquire --ttl 1m a --owner), 'x' x 256],
		[qw(acquire --ttl 2d --owner o a)], [qw(acquire --ttl 1m --owner o --request), '', 'a'],
		[qw(release --owner o --token 0 a)], [qw(wait)], [qw(wait --wait perhaps a)], [qw(owner)], [qw(owner a b)],
		[qw(force-release)], [qw(ls a b)], [qw(waiters a)], [qw(stats a)], [qw(top --delay 1us)], [qw(top)],
		[qw(doctor a)], [qw(ls --timeout never)], [qw(waiters --url)])
	{
		runs("wrong: @$wrong", 64, '', qr/.*/, @$wrong);
	}
	# at once, before a server is asked
	for my $wrong (
		[qw(owner), ''], [qw(wait), 'x' x 256], [qw(force-release --owner), '', 'a'], [qw(release --owner o), ''],
		[qw(acquire --ttl 1m --owner o --permits 2147483648 a)], [qw(acquire --ttl 2000000000 --owner o a)],
		[qw(acquire --ttl 0 --owner o a)], [qw(release --owner o --token 9223372036854775808 a)],
		(map { [ $_, qw(--timeout 0), 'a' ] } qw(wait owner force-release ls)), [qw(doctor --timeout 0)], [qw(stats --timeout 0)],
		[qw(run --ttl 2000000000 a true)], [qw(run --permits 2147483648 a true)], [qw(run --owner), '', qw(a true)],
		[qw(elect --ttl 0 a true)], [qw(elect --ready-file), '', qw(a true)])
	{
		my ($subcommand, @arguments) = @$wrong;
		runs("wrong at once: @$wrong", 64, '', qr/.*/, { no_url => 1 }, $subcommand, '--url', 'host=/no/such', @arguments);
	}
	runs('what is no subcommand', 64, '', qr/.*"lock".*/, { no_url => 1 }, 'lock');
	return;
}

# Names and owners that somebody may choose.
sub hostile
{
	my %names = (
		'controls' => join('', map { chr } 1 .. 31, 127),
		'an escape sequence' => "\e]0;title\a\e[2J\e[31mred",
		'C1 controls' => encode('UTF-8', "\x{9b}31m\x{85}"),
		'quotes' => q{it's "quoted" `so`; -- DROP},
		'backslashes' => q{\\ \\x41 \\\\n \\'},
		'patterns' => q{100% _a|b},
		'arguments' => q{$1 $2 %s %n :name ?},
		'a line' => "two\nlines\r\n",
		'a dash' => '--json',
		'spaces' => ' a ',
		'wide' => encode('UTF-8', "\x{4e16}\x{754c} e\x{301}"),
		'directions' => encode('UTF-8', "\x{202e}desrever\x{200b}\x{feff}"),
		'an emoji' => encode('UTF-8', "\x{1f512}"),
		'255 bytes' => 'x' x 255,
		'85 characters' => encode('UTF-8', "\x{20ac}" x 85));
	my @bytes = ("\xff\xfe", "caf\xe9", "\xc3", "a\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82");

	for my $what (sort keys %names)
	{
		my $name = $names{$what};
		runs("$what: acquire", 0, qr/\A\d+\n\z/, '', qw(acquire --ttl 10m --owner), $name, '--', $name);
		runs("$what: owner", 0, "$name\n", '', 'owner', '--', $name);
		my ($row) = grep { $_->{name} eq decode('UTF-8', $name) } @{ json('ls', '--json', '--', $name) };
		ok($row, "$what: ls by name") or next;
		is($row->{owner}, decode('UTF-8', $name), "$what: the owner");
		ok(!exists $row->{name_hex}, "$what: is text");
	}
	my $taker = engine()->client('taker');
	# text that is none, which the command does not take, and SQL may: not in a PostgreSQL database of text
	for my $name (@bytes)
	{
		my $hex = unpack('H*', $name);
		runs("bytes $hex: acquire", 64, '', qr/the name is not UTF-8/, { no_url => 1 }, qw(acquire --url host=/no/such --ttl 10m --owner o), $name);
		runs("bytes $hex: owner", 64, '', qr/the owner is not UTF-8/, { no_url => 1 }, qw(acquire --url host=/no/such --ttl 10m --owner), $name, 'o');
		next if $is_postgres;
		cmp_ok($taker->value("SELECT dlock_acquire(X'$hex', X'$hex', 600)"), '>', 0, "bytes $hex: taken in SQL");
		runs("bytes $hex: owner", 0, "$name\n", '', 'owner', $name);
		my $row = json(qw(owner --json), $name);
		is($row->{owner_hex}, $hex, "bytes $hex: as they are");
		like($row->{owner}, qr/\x{fffd}/, "bytes $hex: and as text");
		is(json('ls', '--json', $name)->[0]{name_hex}, $hex, "bytes $hex: ls by name");
		# MariaDB takes half of a surrogate pair for a character
		ok((grep { $_->{name} eq '0x' . uc $hex || ($_->{name_hex} // '') eq $hex } @{ json(qw(ls --json)) }),
			"bytes $hex: as the view shows them");
	}

	my $all = json(qw(ls --json));
	my %shown = map { $_->{name} => 1 } @$all;
	ok($shown{ decode('UTF-8', $names{$_}) }, "$_: in the list") for sort keys %names;

	# people's list: a line for each, and nothing that a terminal would obey
	for my $locale ('C.UTF-8', 'C')
	{
		my ($status, $table) = run({ env => { LC_ALL => $locale } }, 'ls');
		is($status, 0, "ls in $locale");
		is(scalar(split /\n/, $table), 1 + @$all, 'has a line for each');
		unlike($table, qr/[\x00-\x09\x0b-\x1f\x7f]/, 'no control characters');
		if ($locale eq 'C') { unlike($table, qr/[\x80-\xff]/, 'nothing but ASCII') }
		else
		{
			unlike(decode('UTF-8', $table, Encode::FB_CROAK | Encode::LEAVE_SRC),
				qr/[\x{80}-\x{9f}\x{200b}-\x{200f}\x{202a}-\x{202e}\x{feff}]/, 'nothing that hides or turns');
		}
		like($table, qr/^\\x1B\]0;title\\x07\\x1B\[2J\\x1B\[31mred /m, 'escaped');
		like($table, qr/^\\\\ \\\\x41 /m, 'backslashes too');
		like($table, qr/^two\\x0Alines\\x0D\\x0A /m, 'and line ends');
	}
	runs('256 bytes', 64, '', qr/.*/, qw(acquire --ttl 1m --owner o), 'x' x 256);
	runs("$_: released", 0, "true\n", '', 'release', '--owner', $names{$_}, '--', $names{$_}) for sort keys %names;
	return;
}

# The leases that are shown as a table, one of which ends soon.
sub tables_with_one_that_ends
{
	runs('taken', 0, qr/./, '', qw(acquire --ttl 2s --owner t4 t%_));
	my $utf8 = { env => { LC_ALL => 'C.UTF-8' } };
	my ($status, $table) = run($utf8, 'ls', 't/*');
	my @lines = split /\n/, decode('UTF-8', $table);
	is(scalar @lines, 4, 'ls of a pattern');
	like($lines[0], qr/\ANAME +OWNER +MODE +HOLDS +TOKEN +HELD +LEFT +GUARDED +WHO\z/, 'headings');
	my %at = map { /\bt(\d)\b/ ? ($1 => $-[0]) : () } @lines;
	# a character of two columns, and one of none
	is_deeply(\%at, { 1 => 8, 2 => 6, 3 => 9 }, 'columns are where the terminal has them');
	my ($left) = $lines[1] =~ /(\d+m\d\ds)/;
	ok($left, 'a time is short');

	my $names = sub { return [ map { $_->{name} } @{ json('ls', '--json', @_) } ] };
	is_deeply($names->('t/a?cd'), ['t/abcd'], 'a pattern of one character');
	is_deeply($names->('t%_'), ['t%_'], 'a name');
	is_deeply($names->('t%?'), ['t%_'], 'SQL has no say in a pattern');
	is_deeply($names->('T/*'), [], 'case counts');
	is_deeply($names->('t/none'), [], 'a name that nobody holds');

	my ($row) = @{ json(qw(ls --json t/abcd)) };
	my @columns = $is_postgres ? qw(role pid application_name client_addr) : qw(account connection_id);
	is_deeply([ sort keys %$row ],
		[ sort qw(name owner mode version token acquired_at held_for expires_at remaining guarded), @columns ],
		'members');
	like(JSON::PP->new->encode($row), qr/"\Q$_\E":\d/, "$_ is a number") for qw(version token held_for remaining), $columns[1];
	like($row->{$_}, qr/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\z/, "$_ is a time") for qw(acquired_at expires_at);
	cmp_ok($row->{remaining}, '<=', 600, 'what is left');
	is($row->{guarded}, JSON::PP::false, 'not guarded');
	like($row->{ $columns[0] }, qr/\Atester/, 'who');

	# one that is over stays for a while
	ok(eventually(sub {
		my ($ended, $output, $errors) = run(qw(ls --json t%*));
		die "ls: $errors" if $ended ne '0';
		return grep { $_->{remaining} == 0 } @{ decode_json($output) };
	}), 'one is over');
	($status, $table) = run('ls', 't%*');
	like($table, qr/ over /, 'it says so');
	return;
}

sub tables
{
	runs('taken', 0, qr/./, '', qw(acquire --ttl 10m --owner t1 t/abcd));
	runs('taken', 0, qr/./, '', qw(acquire --ttl 10m --owner t2), encode('UTF-8', "t/\x{4e16}\x{754c}"));
	runs('taken', 0, qr/./, '', qw(acquire --ttl 10m --owner t3), encode('UTF-8', "t/e\x{301}b"));
	# whose row PostgreSQL's worker would remove when it comes by
	my $worker = $is_postgres ? query(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'dlock worker' AND datname = 'postgres'}) : undef;
	Processes::stop_asleep($worker, 'Extension', \&query) if $worker;
	my $ended = eval { tables_with_one_that_ends(); 1 };
	thaw($worker) if $worker;
	die $@ if !$ended;

	# one that a transaction guards is shown, too
	my ($status, $table);
	my $token = json(qw(acquire --json --ttl 10m --owner t5 t-guarded))->{token};
	my $guarding = engine()->client('guarding');
	$guarding->value('BEGIN');
	my $guarded = $guarding->query(engine()->translate("GUARD('t-guarded', 't5', $token)"));
	ok(!defined $guarded->{error}, 'a guard') or diag($guarded->{message});
	is(json(qw(ls --json t-guarded))->[0]{guarded}, $true, 'guarded');
	runs('released', 0, "true\n", '', qw(release --owner t5 t-guarded));
	($status, $table) = run('ls', 't-guarded');
	like($table, qr/ guard +yes /, 'guarded still');
	$guarding->value('ROLLBACK');
	$guarding->quit;

	# who waits
	runs('taken', 0, qr/./, '', qw(acquire --ttl 10m --owner u1 u));
	my @waiters = launch(qw(acquire --ttl 10m --wait 5m --owner u2 u));
	eventually(sub { waits_for('u') });
	push @waiters, launch(qw(acquire --ttl 10m --wait 5m --shared --owner u3 u));
	eventually(sub { waits_for('u', 2) });
	push @waiters, launch(qw(wait u));
	eventually(sub { waits_for('u', 3) });
	my @rows = grep { $_->{name} eq 'u' } @{ json(qw(waiters --json)) };
	is_deeply([ map { [ @$_{qw(position owner mode)} ] } @rows ],
		[ [ 1, 'u2', 'exclusive' ], [ 2, 'u3', 'shared' ], [ undef, undef, undef ] ], 'waiters, in line');
	cmp_ok($rows[0]{waited}, '>=', $rows[1]{waited}, 'since when');
	is_deeply($rows[1]{blocked_by}, [ 0, $rows[0]{pid} ], 'whom they wait for') if $is_postgres;
	($status, $table) = run('waiters');
	like($table, qr/^NAME +POS +OWNER +MODE +WAITED +WHO/, 'headings of the waiters');
	like($table, qr/^u +2 +u3 +shared +\d/m, 'a waiter');
	like($table, qr/^u +- +- +- +\d/m, 'one without a place');
	runs('all go on', 0, "true\n", '', qw(release --owner u1 u));
	is(finish($waiters[0]), 0, 'the first');

	my $stats = json(qw(stats --json));
	is(scalar @{ $stats->{wait_histogram} }, 24, 'stats: the histogram');
	like(JSON::PP->new->encode($stats), qr/"\Q$_\E":\d/, "stats: $_ is a number")
	  for qw(acquired reentered refused timed_out deadlocks released renewed renewals_lost expired reaped forced woken
	  waiters held);
	($status, $table) = run('stats');
	like($table, qr/^acquired +\d+$/m, 'stats for people');
	like($table, qr/^waited < +[\d.]+m?s +\d+$/m, 'with how long acquires waited');
	like($table, qr/^since \d{4}-/m, 'and since when');
	return;
}

# Answers that cannot be written, and what is in other languages.
sub odds_and_ends
{
	open(my $full, '>', '/dev/full') or die "/dev/full: $!\n";
	my $run = launch({ out => $full }, qw(stats));
	is(finish($run), 71, 'a full disk');
	like(errors($run), qr/could not write the answer/, 'is said');
	for my $help ([qw(--help)], [qw(run --help)], [qw(run --version)], [qw(--version)])
	{
		$run = launch({ out => $full, no_url => 1 }, @$help);
		is(finish($run), 71, "a full disk: @$help");
	}
	# numbers are numbers where a comma is what others write
	runs('a locale', 0, qr/"remaining": \d+\.\d/, '', { env => { LC_ALL => 'de_DE.UTF-8' } }, qw(ls --json o)) if
	  run(qw(acquire --ttl 1m --owner o o));
	return;
}

# PostgreSQL keeps bytes that are no text where the database says nothing of its encoding.
sub bytes_of_postgres
{
	query(q{CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'});
	my $url = url(undef, $admin) =~ s/dbname=postgres/dbname=bytes/r;
	my $node = engine()->{node};
	$node->safe_psql('bytes', 'CREATE EXTENSION dlock');
	$node->safe_psql('bytes', q{SELECT dlock_acquire(E'n\xff\x1b', E'o\xe9', 60)});
	my ($status, $output) = run({ url => $url }, qw(ls --json));
	my $row = decode_json($output)->[0];
	is($row->{name}, "n\x{fffd}\e", 'bytes: as text');
	is($row->{name_hex}, '6eff1b', 'bytes: as they are');
	is($row->{owner_hex}, '6fe9', 'bytes: the owner');
	runs('bytes: for people', 0, qr/^n\\xFF\\x1B  o\\xE9 /m, '', { url => $url, env => { LC_ALL => 'C.UTF-8' } }, 'ls');
	return;
}

# One that is no primary, as far as it says itself; t/cli/standby.pl has a standby.
sub read_only
{
	query('SET GLOBAL read_only = 1');
	# the library notices it in a moment
	eventually(sub { (run(qw(acquire --ttl 1s --owner o w)))[0] == 69 });
	my $says = qr/.*: this server is a replica or read-only; the URL must name the primary/;
	runs("read-only: @$_", 69, '', $says, { no_url => 1 }, @$_)
	  for [ qw(run --url), url(), qw(r true) ], [ qw(acquire --ttl 1m --owner o --url), url(), 'r' ];
	query('SET GLOBAL read_only = 0');
	return;
}

# A server, or a database, that has no dlock, as it is after this.
sub missing
{
	query($_) for $is_postgres ? 'DROP EXTENSION dlock CASCADE'
	  : (map({ "DROP FUNCTION $_" } qw(dlock_owner dlock_acquire dlock_holders)), 'DROP VIEW dlock.locks');
	my $says = qr{dlock is not installed (?:in this database, is older than this command, or is plain/dlock.sql, which lacks this|on this server, or is older than this command): .*};
	runs("without dlock: @$_", 64, '', $says, @$_)
	  for [qw(owner a)], [qw(acquire --ttl 1m --owner o a)], [qw(ls)], [qw(ls a)], [qw(run a true)], [qw(elect a true)];
	return;
}

cases(
	'calls' => \&single_calls, 'json' => \&json_of_calls, 'environment' => \&environment, 'modes' => \&modes,
	'waiting' => \&waiting, 'privileges' => \&privileges, 'no server' => \&no_server, 'usage' => \&usage,
	'odds and ends' => \&odds_and_ends);
# these list all that there is
cases('hostile' => \&hostile);
cases('tables' => \&tables, $is_postgres ? ('bytes' => \&bytes_of_postgres) : ());
cases('read-only' => \&read_only) unless $is_postgres;
cases('missing' => \&missing);
stop_server();
done_testing();
