# While a lease is held the clock is marked now and then, also by calls that change nothing
# else.  These marks alone make archive_timeout archive nothing.

use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use Poll;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('marks');
$node->init;
$node->append_conf('postgresql.conf', q{
autovacuum = off
wal_level = replica
archive_mode = on
archive_command = 'true'
archive_timeout = 1
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');
my $sessions = Sessions->new($node);
my ($holder) = $sessions->open('holder');
like($holder->query(q{SELECT dlock_acquire_session('idle', 'holder', 600)}), qr/^\d{10,}$/, 'a session has a lease');

# The checkpointer, which archives, sleeps since it found recovery at work: wake it.
$sessions->{watcher}->query('CHECKPOINT');

# Marks are what is logged now.  What came before them may still end its segment, and so does
# each record that counts as important.
my ($segment, $lsn, $marks) = ('', '', 0);
ok(Poll::until($PostgreSQL::Test::Utils::timeout_default, sub {
	$sessions->{watcher}->query(q{SELECT dlock_acquire('idle', 'other', 600)});
	my ($new_segment, $new_lsn) = split /\|/, $sessions->{watcher}->query(
		'SELECT pg_walfile_name(pg_current_wal_insert_lsn()), pg_current_wal_insert_lsn()');
	$marks = $new_segment ne $segment ? 0 : $new_lsn ne $lsn ? $marks + 1 : $marks;
	($segment, $lsn) = ($new_segment, $new_lsn);
	return $marks >= 4;
}), 'marks come one after another and end no segment');

# A record that somebody needs does.
$sessions->{watcher}->query('CREATE TABLE t ()');
is($sessions->until("SELECT pg_walfile_name(pg_current_wal_insert_lsn()) > '$segment'", 't'), 't', 'a change of a table ends one');

$_->quit for $holder, $sessions->{watcher};
$node->stop;
done_testing();
