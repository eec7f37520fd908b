# What the programs for DBI's drivers share: the server, and the cases that each of them
# goes through.

package Cases;

use strict;
use warnings;

use B;
use DBI;
use Exporter 'import';
use JSON::PP;
use Math::BigFloat;
use Test::More;
use Time::Seconds;

our @EXPORT = qw(IS_POSTGRES connected value kind_of kind_of_error in_transaction driver_cases);

use constant IS_POSTGRES => $ENV{DLOCK_SERVER} eq 'postgres';

# What makes a backslash in a literal what it usually is not in this session, and what it usually is:
# nothing special and an escape; on PostgreSQL, before 19, the other way round.
my @backslashes = IS_POSTGRES
  ? ([ unusual => q{SELECT set_config('standard_conforming_strings', 'off', false)
		WHERE current_setting('server_version_num')::int < 190000} ],
	[ usual => q{SELECT set_config('standard_conforming_strings', 'on', false)} ])
  : ([ unusual => q{SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'} ],
	[ usual => q{SET SESSION sql_mode = DEFAULT} ]);

# names and tokens as text, of characters; encode_json() makes bytes
my $json = JSON::PP->new;

# The error as an exception.  Its details are taken at once, since the next call on the
# connection forgets them, even rollback().
sub refused
{
	my ($message, $handle) = @_;
	die { number => $handle->err, state => $handle->state, message => $message };
}

# A connection.  More attributes may be given.
sub connected
{
	my (%attributes) = @_;
	my $address = "host=$ENV{DLOCK_HOST};port=$ENV{DLOCK_PORT}";
	my $dsn = IS_POSTGRES ? "dbi:Pg:$address;dbname=$ENV{DLOCK_DATABASE}" : "dbi:MariaDB:$address;database=$ENV{DLOCK_DATABASE}";
	my $connect = delete $attributes{cached} ? 'connect_cached' : 'connect';
	return DBI->$connect($dsn, $ENV{DLOCK_USER}, '', {
			RaiseError => 1,
			PrintError => 0,
			AutoInactiveDestroy => 1,
			HandleError => \&refused,
			%attributes
		});
}

# The value of an expression, as it arrives.
sub value
{
	my ($connection, $sql, @arguments) = @_;
	my ($value) = $connection->selectrow_array("SELECT $sql", undef, @arguments);
	return $value;
}

# Do something in a transaction.
sub in_transaction
{
	my ($connection, $work) = @_;
	$connection->begin_work;
	if (!eval { $work->(); $connection->commit; 1 })
	{
		my $error = $@;
		eval { $connection->rollback };
		die $error;
	}
	return;
}

my %kinds = IS_POSTGRES
  ? (
	'55L01' => 'lost',
	'55P03' => 'blocked',
	'22004' => 'misuse',
	'22007' => 'misuse',
	'22023' => 'misuse',
	'55000' => 'misuse',
	'40P01' => 'deadlock',
	'08000' => 'gone')
  : (
	1644 => 'lost',
	3572 => 'blocked',
	1138 => 'misuse',
	1234 => 'misuse',
	1292 => 'misuse',
	3037 => 'misuse',
	3058 => 'deadlock',
	1927 => 'gone',
	2006 => 'gone',
	2013 => 'gone',
	4031 => 'gone');

# The kind of an error, as in doc/drivers.md.
sub kind_of
{
	my ($error) = @_;
	return "no error of the driver: $error" unless ref $error eq 'HASH';
	return $kinds{ IS_POSTGRES ? $error->{state} : $error->{number} } // "$error->{number} $error->{state} $error->{message}";
}

# The kind of the error with which a call ends; undef if it ends well.
sub kind_of_error
{
	my ($call) = @_;
	return eval { $call->(); 1 } ? undef : kind_of($@);
}

# Whether a value is a whole number for Perl, and not text or a fraction.
sub is_whole
{
	return B::svref_2object(\$_[0])->FLAGS & B::SVf_IOK;
}

# Run the cases with connections that have these attributes.  Returns one connection.
sub driver_cases
{
	my (%attributes) = @_;
	my $mine = connected(%attributes);
	my $second = connected(%attributes);
	my $ask = sub { value($mine, @_) };

	# names, whatever a backslash is in a literal
	for (@backslashes)
	{
		my ($kind, $statement) = @$_;
		$mine->do($statement);
		for my $name (q{it's}, 'C:\\jobs\\x', 'a\\', q{x\\' OR '}, qq{caf\x{e9}"})
		{
			isnt(eval { $ask->('dlock_acquire(?, ?, ?)', $name, 'names', 30) }, undef, "a name, with the $kind backslash");
			# without the driver's help with its letters
			utf8::encode(my $bytes = $name);
			my $literal = unpack('H*', $bytes);
			$literal = IS_POSTGRES ? "convert_from(decode('$literal', 'hex'), 'UTF8')" : "x'$literal'";
			is($ask->("dlock_is_free($literal)"), 0, "... of the bytes $literal is held");
		}
		$ask->('dlock_release_all(?)', 'names');
	}

	# numbers
	my @ttls = (
		[ 'a whole number', 30, 30 ],
		[ 'a fraction', 30.5, 30.5 ],
		[ 'an exact decimal', Math::BigFloat->new('31.25'), 31.25 ],
		[ 'Time::Seconds', ONE_MINUTE + 0.5, 60.5 ],
		[ 'text that is a number', '40', 40 ],
		[ 'text', '5 minutes', 300 ]);
	for (@ttls)
	{
		my ($what, $ttl, $seconds) = @$_;
		isnt($ask->('dlock_acquire(?, ?, ?)', "ttl $what", 'me', $ttl), undef, "ttl: $what");
		my $left = $ask->('dlock_remaining(?, ?)', "ttl $what", 'me');
		ok($seconds - 20 < $left && $left <= $seconds, "ttl: $what: as long as that");
	}
	my @request = ('dlock_acquire(?, ?, ?, ?, ?)', 'waits', 'me', 600);
	my $token = $ask->(@request, 60.5, 'request-1');
	ok(is_whole($token), 'a token is a whole number');
	is($ask->(@request, '60500 ms', 'request-1'), $token, 'the same request again: the same token');

	# token, limit, undef, booleans
	is($ask->('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, $token), 1, 'renewed by its token');
	is($ask->('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, $token + 1), 0, 'not by another');
	is($ask->('dlock_renew(?, ?, ?, ?)', 'waits', 'me', 600, undef), 1, 'undef: by whichever it has');
	cmp_ok($ask->('dlock_acquire_permit(?, ?, ?, ?)', 'permits', 'me', 30, 2), '>', 0, 'a limit');
	is($ask->('dlock_acquire(?, ?, ?)', 'waits', 'other', 30), undef, 'undef: somebody has it');
	is($ask->('dlock_release(?, ?)', 'waits', 'me'), 1, 'released');
	is($ask->('dlock_release(?, ?)', 'waits', 'me'), undef, 'undef: nobody has it');

	# lists
	my @names = ('plain', "a \"quoted\", {one} \\ of Gr\x{fc}n");
	my $tokens;
	if (IS_POSTGRES)
	{
		$tokens = $ask->('dlock_acquire_all(?, ?, ?)', \@names, 'me', 30);
		is(ref $tokens, 'ARRAY', 'a list of names goes in, one of tokens comes out');
		my $rows = $mine->selectall_arrayref('SELECT name, token FROM dlock_acquire_any(?, ?, ?, ?)', undef, [ 'plain', 'free' ], 'me', 30, 2);
		is_deeply([ map { $_->[0] } @$rows ], ['free'], 'rows: the names that were free');
		is_deeply($mine->selectcol_arrayref('SELECT dlock_release_many(?, ?, ?)', undef, \@names, 'me', $tokens), \@names, 'names and tokens go in');
	}
	else
	{
		my $ask_text = sub { my ($sql, @arguments) = @_; return $json->decode($ask->("CONVERT($sql USING utf8mb4)", @arguments)) };
		$tokens = $ask_text->('dlock_acquire_all(?, ?, ?)', $json->encode(\@names), 'me', 30);
		my $claimed = $ask_text->('dlock_acquire_any(?, ?, ?, ?)', $json->encode([ 'plain', 'free' ]), 'me', 30, 2);
		is_deeply([ map { $_->{name} } @$claimed ], ['free'], 'JSON: the names that were free');
		is_deeply($ask_text->('dlock_release_many(?, ?, ?)', $json->encode(\@names), 'me', $json->encode($tokens)), \@names,
			'names and tokens go in');
	}
	is(scalar(grep { /^\d+$/ } @$tokens), 2, 'whole numbers');

	# guards and errors
	$token = $ask->('dlock_acquire(?, ?, ?)', 'guarded', 'me', 600);
	my $guard = IS_POSTGRES ? 'SELECT dlock_guard(?, ?, ?)' : 'CALL dlock.guard(?, ?, ?)';
	my $blocked;
	my $guarded = sub {
		$mine->do($guard, undef, 'guarded', 'me', $token);
		# what the guard prevents until its transaction ends
		if (IS_POSTGRES)
		{
			value($second, q{set_config('lock_timeout', '200ms', false)});
			$blocked = kind_of_error(sub { value($second, 'dlock_acquire(?, ?, ?, ?)', 'guarded', 'other', 30, 600) });
			value($second, q{set_config('lock_timeout', '0', false)});
		}
		else { $blocked = kind_of_error(sub { value($second, 'dlock_downgrade(?, ?)', 'guarded', 'me') }) }
		is($ask->('1'), 1, 'a statement after the guard');
	};
	is(kind_of_error(sub { in_transaction($mine, $guarded) }), undef, 'a guard, between begin_work and commit');
	is($blocked, 'blocked', 'an error: blocked');
	is(kind_of_error(sub { in_transaction($mine, sub { $mine->do($guard, undef, 'guarded', 'me', $token + 1) }) }),
		'lost', 'an error: lost');
	is(kind_of_error(sub { $ask->('dlock_acquire(?, ?, ?)', '', 'me', 30) }), 'misuse', 'an error: misuse, an empty name');
	is(kind_of_error(sub { $ask->('dlock_acquire(?, ?, ?)', 'x', 'me', '3 apples') }), 'misuse', 'an error: misuse, no time');
	is(kind_of_error(sub { $ask->('dlock_acquire(?, ?, ?)', 'x', undef, 30) }), 'misuse', 'an error: misuse, undef');
	is(kind_of_error(sub { $ask->('dlock_acquire_session(?, ?, ?)', 'guarded', 'me', 600) }),
		'misuse', 'an error: misuse, another kind of lease');

	# a caller that waits for itself
	$ask->('dlock_acquire_permit(?, ?, ?, ?)', 'itself', 'me', 30, 1);
	is(kind_of_error(sub { $ask->('dlock_acquire_permit(?, ?, ?, ?, ?)', 'itself', 'me', 30, 1, 60) }), 'deadlock', 'an error: deadlock');

	# without RaiseError
	my $silent = connected(%attributes, RaiseError => 0, HandleError => undef);
	is(value($silent, 'dlock_acquire(?, ?, ?)', '', 'me', 30), undef, 'without RaiseError: undef for an error too');
	$silent->disconnect;

	# session leases
	my $third = connected(%attributes);
	cmp_ok(value($third, 'dlock_acquire_session(?, ?, ?)', 'session', 'me', 30), '>', 0, 'a session lease');
	$third->disconnect;
	cmp_ok($ask->('dlock_acquire(?, ?, ?, ?)', 'session', 'other', 30, 60), '>', 0, 'it ends with its connection');

	$third = connected(%attributes, cached => 1);
	value($third, 'dlock_acquire_session(?, ?, ?)', 'cached', 'me', 30);
	undef $third;
	is($ask->('dlock_owner(?)', 'cached'), 'me', 'of connect_cached: it does not end with the variable');
	$third = connected(%attributes, cached => 1);
	is($ask->('dlock_release(?, ?)', 'cached', 'me'), 1, 'and can be released');

	# a child that exits, with a copy of the connection
	my $careful = connected(%attributes);
	is(child_leaves(\$careful), 'me', 'AutoInactiveDestroy: a child that exits leaves it as it is');
	$careful->disconnect;
	my $careless = connected(%attributes, AutoInactiveDestroy => 0);
	is(child_leaves(\$careless), 'gone', 'without: it ends the connection, and the session lease');

	# gone
	my $number = value($second, IS_POSTGRES ? 'pg_backend_pid()' : 'connection_id()');
	$mine->do(IS_POSTGRES ? "SELECT pg_terminate_backend($number)" : "KILL $number");
	is(kind_of_error(sub { value($second, 'dlock_acquire(?, ?, ?)', 'x', 'me', 30) }), 'gone', 'an error: the server is gone');
	is(kind_of_error(sub { value($second, 'dlock_acquire(?, ?, ?)', 'x', 'me', 30) }), 'gone', 'and again');
	return $mine;
}

# Take a session lease, and let a child exit that forgets the connection.  Returns the
# lease's owner after that, by the same connection; or its error.
sub child_leaves
{
	my ($connection) = @_;
	value($$connection, 'dlock_acquire_session(?, ?, ?)', 'forked', 'me', 30);
	my $child = fork // die "could not fork: $!\n";
	if ($child == 0)
	{
		undef $$connection;
		require POSIX;
		POSIX::_exit(0);
	}
	waitpid $child, 0;
	my $owner;
	my $error = kind_of_error(sub { $owner = value($$connection, 'dlock_owner(?)', 'forked') });
	return $error // $owner;
}

1;
