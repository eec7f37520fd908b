# No room is left for the lock table: calls raise an error, and grant nothing; when
# there is room again, all goes on.  The kind of server is the argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";
use Engines;
use Scenarios;
use Test::More;

my ($kind) = @ARGV;

# The undo log is elsewhere, or nothing could ever be deleted again.
my $engine = Engines::start(
	$kind,
	'--innodb-data-file-path=ibdata1:12M:autoextend:max:24M',
	'--innodb-file-per-table=0',
	$kind eq 'mariadb' ? '--innodb-undo-tablespaces=2' : ());
my $admin = $engine->control;

sub sql { return $admin->value($_[0]) }

sub attempt
{
	my $answer = $admin->query($_[0]);
	return "$answer->{error}: $answer->{message}" if defined $answer->{error};
	return $answer->{rows}[0][0] // '';
}

is(sql(q{SELECT count(*) FROM information_schema.innodb_} . ($kind eq 'mariadb' ? 'sys_' : '') .
		q{tables WHERE name = 'dlock/} . ($engine->has_log ? 'log' : 'lease_table') . q{' AND space = 0}), 1, 'the table is in a file of limited size');
like(attempt(q{SELECT dlock_acquire('kept', 'a', 600)}), qr/^\d+$/, 'there is room');

# Fill it up: by the page first, then with leases, which find room in theirs.  The
# rows are small: MariaDB aborts when it has no room to undo a large one.
sql('CREATE TABLE scenarios.filler (id INT AUTO_INCREMENT PRIMARY KEY, b VARBINARY(7500))');
for my $size (7500, 1000)
{
	my $n = 0;
	$n++ while attempt("INSERT INTO scenarios.filler (b) VALUES (repeat('x', $size))") !~ /full/ && $n < 10_000;
	cmp_ok($n, '<', 10_000, "no room for $size bytes more");
}
my $granted = 0;
my $answer;
for my $i (1 .. 5000)
{
	$answer = attempt(sprintf(q{SELECT dlock_acquire('%s%05d', repeat('o', 255), 600)}, 'n' x 250, $i));
	last unless $answer =~ /^\d+$/;
	$granted++;
}
like($answer, qr/^\d+ \w+: could not use the lock table: .*full/, 'full: an error');
is(sql('SELECT count(*) FROM dlock.locks'), $granted + 1, 'what was granted is there, and nothing else');
is(attempt(q{SELECT dlock_owner('kept')}), 'a', 'one can look');
is(attempt(q{SELECT dlock_release('kept', 'a')}), 1, 'and release');

# What is deleted makes room when it is purged.
sql('DELETE FROM scenarios.filler');
ok(Scenarios::Run::until(sub { attempt(q{SELECT dlock_acquire('next', 'a', 600)}) =~ /^\d+$/ }),
	'room again: the next call works');
ok(Scenarios::Run::until(sub { sql('SELECT count(*) FROM dlock.locks') == $granted + 1 }), 'the release has been written');
is(attempt(q{SELECT dlock_release_all(repeat('o', 255))}), $granted, 'all can be released');
$engine->stop;
done_testing();
