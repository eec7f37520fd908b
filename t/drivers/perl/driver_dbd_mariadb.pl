# DBD::MariaDB.
# speaks: mariadb mysql
# needs: libdbd-mariadb-perl

use strict;
use warnings;

use FindBin;
use JSON::PP;
use lib $FindBin::RealBin;
use Cases;
use Test::More;

# all in the statement's text, and the server's prepared statements
for my $prepared (0, 1)
{
	note($prepared ? 'prepared by the server' : 'not prepared');
	my $connection = driver_cases(mariadb_server_prepare => $prepared);
	value($connection, 'dlock_release_all(?)', $_) for 'me', 'other';
}

# characters
my $connection = connected();
my $owner = "Gr\x{fc}n \x{263a}";
value($connection, 'dlock_acquire(?, ?, ?)', 'characters', $owner, 30);
my $bytes = $owner;
utf8::encode($bytes);
is(value($connection, 'dlock_owner(?)', 'characters'), $ENV{DLOCK_SERVER} eq 'mariadb' ? $bytes : $owner, 'text arrives as characters, but bytes from MariaDB');
is(value($connection, 'CONVERT(dlock_owner(?) USING utf8mb4)', 'characters'), $owner, 'converted: characters from both');
value($connection, 'dlock_acquire_all(?, ?, ?)', encode_json(["Gr\x{fc}n"]), 'me', 30);
is(value($connection, 'dlock_owner(?)', "Gr\x{fc}n"), undef, 'encode_json makes bytes, each of which becomes a character');
is(value($connection, 'dlock_owner(?)', "Gr\x{c3}\x{bc}n"), 'me', 'of another name');

# an error is known to the connection until it is used again
my $refused = connected(HandleError => undef);
ok(!eval { value($refused, 'dlock_acquire(?, ?, ?)', '', 'me', 30); 1 }, 'an error, without HandleError');
is($refused->err, 3037, 'its number is known to the connection');
eval { value($refused, '1') };
is($refused->err, undef, 'until its next statement');
done_testing();
