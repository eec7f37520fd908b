# From plain/dlock.sql to the extension, while programs run that retry: none of them has the
# lease together with another, and each token is above all before.

use strict;
use warnings;

use Fcntl qw(:flock);
use FindBin;
use lib $FindBin::RealBin;
use Plain;
use Poll;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = Plain::start('up');
if (!$node->safe_psql('plain', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'dlock'}))
{
	$node->stop;
	plan(skip_all => 'this server has no library');
}
my $dir = PostgreSQL::Test::Utils::tempdir();

# A worker, as a program over a client is: it calls as the server tells it to, and tries again.
# In the file of grants are the tokens in the order in which they were had.
sub work
{
	my ($me) = @_;
	my $session = Plain::session($node, 'app', $me);
	my $verb = 'CALL';
	until (-e "$dir/stop")
	{
		my $token = $session->query("$verb dlock_acquire('job', '$me', 2)");
		$verb = $verb eq 'CALL' ? 'SELECT' : 'CALL' if $token eq '42809';
		if ($token !~ /\A\d{15,16}\z/)
		{
			select(undef, undef, undef, 0.05);
			next;
		}
		open(my $lock, '>>', "$dir/lock") or die;
		append_to_file("$dir/two", "$me $token\n") unless flock($lock, LOCK_EX | LOCK_NB);
		append_to_file("$dir/grants", "$verb $token\n");
		select(undef, undef, undef, 0.02);
		close($lock);
		$session->query("SELECT dlock_release('job', '$me', $token)");
	}
	$session->reap;
	return;
}

sub grants
{
	open(my $file, '<', "$dir/grants") or return;
	return map { [split] } grep { /\n/ } <$file>;
}

my @workers;
for my $me ('w1', 'w2')
{
	my $pid = fork() // die "could not fork: $!\n";
	if ($pid == 0)
	{
		eval { work($me); 1 } or append_to_file("$dir/two", "$me: $@");
		POSIX::_exit(0);
	}
	push @workers, $pid;
}
sub until_granted
{
	my ($verb, $count) = @_;
	return Poll::until($PostgreSQL::Test::Utils::timeout_default, sub { grep({ $_->[0] eq $verb } grants()) >= $count });
}

ok(until_granted('CALL', 5), 'they work with CALL');
# somebody holds a lease, and cannot renew it any more
my $holder = Plain::session($node, 'other');
like($holder->query(q{CALL dlock_acquire('held', 'h', 3)}), qr/\A\d{15,16}\z/, 'a lease is held');
my $out = Plain::run($node, 'dbo', 'plain/uninstall.sql');
like($out, qr/waiting \d+ s until the last lease has ended/, 'uninstall.sql waits for its end');
is($holder->query(q{CALL dlock_renew('held', 'h', 3)}), '42883', 'nothing is left of the procedures');
is($node->safe_psql('plain', q{SELECT count(*) FROM pg_proc WHERE proname LIKE 'dlock%'}), 0, 'of none');
is($node->safe_psql('plain', q{SELECT count(*) FROM pg_type WHERE typname LIKE 'dlock%'}), 0, 'nor of the type');
$node->safe_psql('plain', 'CREATE EXTENSION dlock');
ok(until_granted('SELECT', 5), 'they go on with SELECT');
append_to_file("$dir/stop", '');
waitpid($_, 0) for @workers;
ok(!-e "$dir/two", 'no two had it at a time') or diag(slurp_file("$dir/two"));
my @tokens = map { $_->[1] } grants();
is_deeply(\@tokens, [ sort { $a <=> $b } @tokens ], 'each token is above all before: ' . @tokens);

# and down again: plain/dlock.sql refuses beside the extension, and comes when it is gone
$node->safe_psql('plain', 'DROP EXTENSION dlock');
Plain::run($node, 'dbo', 'plain/dlock.sql');
cmp_ok($node->safe_psql('plain', q{CALL dlock_acquire('job', 'a', 30)}), '>', $tokens[-1], 'and back');

$holder->reap;
$node->stop;
done_testing();
