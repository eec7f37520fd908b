# OldTables.pm: the library's tables on MariaDB and MySQL, written by hand: as a library of
# 1.0 leaves them, or a server that was primary before.
#
# A lease has a "name", an "owner", a "token", and, unless they are left out, what
# %OldTables::lease has, by words like the columns of dlock.lease_table.

package OldTables;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(hex_of);
our %lease = (
	what => 1, slot => 0, user => 'root', host => 'localhost', mode => 1, kind => 1, version => 1, request => '',
	ttl => 600_000_000, writes => 1, writer => 1, deadline => 77_000_000, connection => 1, acquired => 0, expires => 0);

sub hex_of { return unpack('H*', $_[0]) }

# A string literal that no character set and no SQL mode changes.
sub literal { return $_[0] eq '' ? q{''} : '0x' . hex_of($_[0]) }

# The statement that puts leases into the lock table.
sub insert
{
	my (@leases) = @_;
	my @rows = map { my %l = (%lease, %$_); '(' . join(',', literal($l{name}), $l{slot}, map({ literal($l{$_}) } qw(owner user host)),
			@l{qw(mode kind version token)}, literal($l{request}), @l{qw(ttl writes writer deadline connection acquired expires)}) . ')' } @leases;
	return 'INSERT INTO dlock.lease_table (name, slot, owner, account_user, account_host, mode, kind, version, token, request,'
	  . ' ttl_us, writes, writer, deadline_us, connection_id, acquired_us, expires_us) VALUES ' . join(',', @rows);
}

# A change as the journal has it: "what" is 1 for a lease, 2 for the end of one, 3 for the
# renewal of all of an owner at the time "at".
sub json
{
	my ($change, $comma) = @_;
	my %c = (%lease, %$change);
	my %hex = map { $_ => '"' . hex_of($c{$_}) . '"' } grep { defined $c{$_} } qw(name owner user host request);

	return '[' . join($comma // ',',
		$c{what} == 1 ? (1, $hex{name}, $c{slot}, @hex{qw(owner user host)}, @c{qw(mode kind version token)}, $hex{request},
			@c{qw(ttl writes deadline connection acquired expires)})
		: $c{what} == 2 ? (2, $hex{name}, $c{token})
		: (3, @hex{qw(owner user host)}, @c{qw(at ttl expires)})) . ']';
}

# The statement that makes a run append a lease to the journal.
sub append
{
	my ($run, $lease) = @_;
	return "INSERT INTO dlock.journal (writer, number, changes) VALUES ($run, 1, '[" . json($lease) . "]')";
}

# The statements that make the journal of 1.0, with its row.
sub journal
{
	my ($changes, $writer, $leases) = @_;
	return ('CREATE TABLE dlock.lease_journal (place TINYINT UNSIGNED NOT NULL PRIMARY KEY, changes BIGINT UNSIGNED NOT NULL,'
		  . ' writer BIGINT UNSIGNED NOT NULL, leases BLOB NOT NULL) ENGINE=InnoDB ROW_FORMAT=DYNAMIC',
		"INSERT INTO dlock.lease_journal VALUES (0, $changes, $writer, '$leases')");
}

1;
