# A name is text: clients that speak different encodings mean the same name by it, in a
# database of any encoding but SQL_ASCII, where PostgreSQL converts nothing.

use strict;
use warnings;
use Encode;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('encodings');
$node->init;
$node->start;

# of Perl's, by PostgreSQL's name
my %encoder = (UTF8 => 'UTF-8', LATIN1 => 'iso-8859-1', EUC_JP => 'euc-jp', SJIS => 'shiftjis', WIN1252 => 'cp1252');

# Run a query as a client of this encoding, with psql's variables.
sub by
{
	my ($database, $encoding, $query, %text) = @_;

	local $ENV{PGCLIENTENCODING} = $encoding;
	my ($status, $out, $error) = $node->psql($database, $query,
		extra_params => [ '-v', 'VERBOSITY=sqlstate', map { ('-v', "$_=" . encode($encoder{$encoding}, $text{$_})) } sort keys %text ]);
	return $status == 0 ? $out : $error =~ /ERROR:  (\w{5})/ ? $1 : $error;
}

# By database: a name, and the encodings of the clients.
my %databases = (
	UTF8 => { name => "caf\x{e9}", clients => [qw(UTF8 LATIN1 WIN1252)] },
	LATIN1 => { name => "caf\x{e9}", clients => [qw(LATIN1 UTF8)] },
	# in SJIS the second byte of the first letter is a backslash
	EUC_JP => { name => "\x{8868}\x{65e5}", clients => [qw(EUC_JP UTF8 SJIS)] });
for my $encoding (sort keys %databases)
{
	my $database = "in_\L$encoding";
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	$node->safe_psql($database, 'CREATE EXTENSION dlock');
	my ($name, @clients) = ($databases{$encoding}{name}, @{ $databases{$encoding}{clients} });
	for my $holder (@clients)
	{
		like(by($database, $holder, q{SELECT dlock_acquire(:'name', :'name', 3600)}, name => $name),
			qr/^\d+$/, "$encoding: a client of $holder takes the name");
		for my $other (@clients)
		{
			is(by($database, $other, q{SELECT dlock_acquire(:'name', 'somebody else', 3600) IS NULL, dlock_renew(:'name', :'name', 3600)},
				name => $name), 't|t', "... a client of $other means the same name and owner");
			is(by($database, $other, q{SELECT name || ' ' || owner FROM dlock.locks}),
				encode($encoder{$other}, "$name $name"), '... and reads them as it writes them');
		}
		is(by($database, $clients[0], q{SELECT dlock_release(:'name', :'name')}, name => $name), 't', '... which is given back');
	}
}

# What an encoding does not have.
is(by('in_latin1', 'UTF8', q{SELECT dlock_acquire(:'name', 'me', 3600)}, name => "\x{65e5}"),
	'22P05', 'a name that the database cannot write is an error');
like(by('in_utf8', 'UTF8', q{SELECT dlock_acquire(:'name', 'me', 3600)}, name => "\x{65e5}"), qr/^\d+$/, 'a name that LATIN1 does not have');
is(by('in_utf8', 'LATIN1', q{SELECT name FROM dlock.locks}), '22P05', '... which a client of LATIN1 cannot read');
is(by('in_utf8', 'LATIN1', q{SELECT dlock_renew_all('me', 3600), dlock_release_all('me')}), '1|1', '... but renew and release by its owner');

# Bytes are bytes.
$node->safe_psql('postgres', q{CREATE DATABASE in_sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'});
$node->safe_psql('in_sql_ascii', 'CREATE EXTENSION dlock');
for my $encoding (qw(UTF8 LATIN1))
{
	like(by('in_sql_ascii', $encoding, q{SELECT dlock_acquire(:'name', 'me', 3600)}, name => "caf\x{e9}"), qr/^\d+$/,
		"SQL_ASCII: a client of $encoding takes a name of its own");
}
is(by('in_sql_ascii', 'LATIN1', 'SELECT count(*) FROM dlock.locks'), 2, '... so there are two');

$node->stop;
done_testing();
