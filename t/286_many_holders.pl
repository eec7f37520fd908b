# A request on a name with very many holders is answered as if it were shown
# each of them, although it looks at most of them only together
# (pg_extension/storage/lease_crowd.c); and it reads no page of theirs twice.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use PagesRead;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sessions;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', q{
synchronous_commit = off
autovacuum = off
max_connections = 150
dlock.reap_interval = '1h'
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

my $sessions = Sessions->new($node);
my ($a, $b) = $sessions->open('a', 'b');

$a->query(PagesRead::CREATE);

# Take so many leases, of owners with a prefix, and say how many were granted.
sub fill
{
	my ($function, $name, $prefix, $count, @more) = @_;
	my $more = join('', map { ", $_" } @more);
	return $a->query(qq{SELECT count($function('$name', '$prefix' || i, 3600$more))
		FROM generate_series(1, $count) i});
}

subtest 'pages read' => sub {
	is(fill('dlock_acquire_shared', 'pages', 'r', 3000), 3000, 'many holders');
	$a->query(q{SELECT pages($$SELECT dlock_release('pages', 'r1')$$)});
	$a->query(q{SELECT pages($$SELECT dlock_acquire_shared('pages', 'r1', 3600)$$)});
	my $all = $a->query(q{SELECT pages($$SELECT * FROM dlock_holders('pages')$$)});
	cmp_ok($all, '>', 20, "they are on many pages ($all)");
	for my $call (
		q{dlock_acquire_shared('pages', 'more', 3600)},
		q{dlock_renew('pages', 'r1500', 3600)},
		q{dlock_release('pages', 'more')},
		q{dlock_release('pages', 'r2999')})
	{
		my $read = $a->query("SELECT pages(\$\$SELECT $call\$\$)");
		cmp_ok($read, '<', $all * 1.5, "$call reads no page twice ($read)");
	}
};

# Two sessions, each of which remembers pages that the other changes.
subtest 'what others change is seen' => sub {
	my %token;
	my @wrong;
	my $seed = 42;
	my $random = sub {
		$seed = ($seed * 1103515245 + 12345) % 2147483648;
		return int($seed / 65536) % $_[0];
	};
	is(fill('dlock_acquire_shared', 'mixed', 'o', 1500), 1500, 'many holders');
	%token = map { split /=/ } split /\n/,
	  $a->query(q{SELECT owner || '=' || token FROM dlock_holders('mixed')});
	for my $step (1 .. 600)
	{
		my $session = $random->(2) ? $a : $b;
		my $owner = 'o' . (1 + $random->(1600));
		my $held = $token{$owner};
		my $kind = $random->(3);
		my ($answer, $wanted);

		if ($kind == 0)
		{
			$answer = $session->query("SELECT dlock_acquire_shared('mixed', '$owner', 3600, request => '$owner')");
			if (defined $held)
			{
				# a hold more, once, which is given back at once
				$wanted = $held;
				$session->query("SELECT dlock_release('mixed', '$owner') WHERE (SELECT version FROM dlock_holders('mixed') WHERE owner = '$owner') > 1");
			}
			else
			{
				$wanted = $answer =~ /^\d+$/ ? $answer : 'a token';
				$token{$owner} = $answer;
			}
		}
		elsif ($kind == 1)
		{
			$answer = $session->query("SELECT dlock_renew('mixed', '$owner', 3600)");
			$wanted = defined $held ? 't' : 'f';
		}
		else
		{
			$answer = $session->query("SELECT dlock_release('mixed', '$owner')");
			$wanted = defined $held ? 't' : 'f';
			delete $token{$owner};
		}
		push @wrong, "step $step, $owner: $answer, not $wanted" if $answer ne $wanted;
	}
	is_deeply(\@wrong, [], 'each answer is right');
	is( $a->query(q{SELECT string_agg(owner || '=' || token, ' ' ORDER BY owner COLLATE "C")
		FROM dlock_holders('mixed')}),
		join(' ', map { "$_=$token{$_}" } sort keys %token),
		'and so are the holders left');
};

subtest 'permits' => sub {
	is(fill('dlock_acquire_permits', 'permits', 'p', 400, 1000, 2), 400, 'many holders');
	is($b->query(q{SELECT dlock_acquire_permits('permits', 'x', 3600, 1000, 201)}), '',
		'one too many is refused');
	like($b->query(q{SELECT dlock_acquire_permits('permits', 'x', 3600, 1000, 200)}), qr/^\d+$/,
		'what is left is granted');
	is($a->query(q{SELECT dlock_acquire_permit('permits', 'p7', 3600, 1000)}), '',
		'a holder gets no more either');
	is($a->query(q{SELECT dlock_release('permits', 'p399')}), 't', 'one is given back');
	is($b->query(q{SELECT dlock_acquire_permits('permits', 'y', 3600, 1000, 2)}), '',
		'which is not enough for two');
	like($b->query(q{SELECT dlock_acquire_permit('permits', 'y', 3600, 1000)}), qr/^\d+$/,
		'but for one');
};

subtest 'a guard and its lease count once' => sub {
	is(fill('dlock_acquire_permit', 'guards', 'g', 300, 300), 300, 'many holders');
	my $token = $a->query(q{SELECT token FROM dlock_holders('guards') WHERE owner = 'g150'});
	$a->query('BEGIN');
	$a->query("SELECT dlock_guard('guards', 'g150', $token)");
	is($b->query(q{SELECT dlock_acquire_permit('guards', 'x', 3600, 300)}), '', 'all are taken');
	like($b->query(q{SELECT dlock_acquire_permit('guards', 'x', 3600, 301)}), qr/^\d+$/,
		'there was one more');
	is($b->query(q{SELECT dlock_release('guards', 'x')}), 't', 'given back');
	is($a->query(q{SELECT dlock_release('guards', 'g150')}), 't', 'the guarded one is released');
	is($b->query(q{SELECT dlock_acquire_permit('guards', 'x', 3600, 300)}), '',
		'its guard keeps the permit');
	$a->query('COMMIT');
	like($b->query(q{SELECT dlock_acquire_permit('guards', 'x', 3600, 300)}), qr/^\d+$/,
		'until its transaction ends');
	$b->query('BEGIN');
	is($b->query(q{SELECT dlock_guard('guards', 'nobody', 1)}), '55L01',
		'a guard without a lease fails');
	like($b->error, qr/DETAIL: .*"g\d+"/, 'and tells of a holder');
	$b->query('ROLLBACK');
};

subtest 'ends' => sub {
	is(fill('dlock_acquire_shared', 'ends', 'e', 300), 300, 'many holders');
	is($a->query(q{SELECT dlock_renew('ends', 'e150', 1)}), 't', 'one ends soon');
	$b->send(q{SELECT dlock_acquire('ends', 'x', 3600, 3600)});
	$sessions->waiting('b');
	$sessions->until(q{SELECT count(*) FROM dlock.locks WHERE name = 'ends'}, 299)
	  or fail('it has ended');
	is($a->query(q{SELECT dlock_acquire_shared('ends', 'e1', 3600) IS NOT NULL}), 't',
		'a holder re-enters');
	is($a->query(q{SELECT dlock_release('ends', 'e1')}), 't', 'and gives back');
	is( $a->query(q{SELECT count(*) FROM generate_series(1, 299) i
		WHERE dlock_release('ends', 'e' || i)}), 298, 'all but the last give back');
	$sessions->waiting('b');
	is($a->query(q{SELECT dlock_release('ends', 'e300')}), 't', 'and the last');
	like($b->answer, qr/^\d+$/, 'the waiter is served');
};

# A call for all leases of an owner remembers which pages have none of them, too.
subtest 'all of an owner' => sub {
	is(fill('dlock_acquire_shared', 'all', 'a', 1000), 1000, 'many holders');
	is(fill('dlock_acquire_session_shared', 'all', 's', 300), 300, '... also of sessions');
	is($b->query(q{SELECT dlock_renew_all('a500', 3600), dlock_renew_all('s150', 3600), dlock_renew_all('nobody', 3600)}), '1|1|0', 'two are found');
	for my $round (1 .. 3)
	{
		is($a->query(q{SELECT dlock_release('all', 'a500')}), 't', 'one gives back');
		is($b->query(q{SELECT dlock_renew_all('a500', 3600)}), 0, '... and is not found');
		is(fill('dlock_acquire_shared', 'all', "a$round-", 100), 100, 'more come');
		is($a->query(q{SELECT dlock_acquire_shared('all', 'a500', 60) > 0}), 't', 'it comes back');
		is($b->query(q{SELECT dlock_renew_all('a500', 3600)}), 1, '... and is found');
		is($b->query(qq{SELECT sum(dlock_renew_all('a$round-' || i, 3600)) FROM generate_series(1, 100) i}), 100, '... with all others');
	}
	is($b->query(q{SELECT dlock_release_all('a500'), dlock_release_all('a500')}), '1|0', 'given back as well');
	is($b->query(q{SELECT sum(dlock_release_all('a' || i)) FROM generate_series(1, 1000) i}), 999, '... like all others');
	is($b->query(q{SELECT count(*) FROM dlock_holders('all')}), 600, 'those that are left are left');
};

# More waiters than one call serves, behind more holders than one page has.
subtest 'many waiters' => sub {
	my $file = $node->basedir . '/wait.sql';

	append_to_file($file, q{SELECT dlock_acquire_shared('line', 'w' || :client_id, 3600, 3600);});
	is(fill('dlock_acquire_shared', 'line', 'l', 300), 300, 'many holders');
	$b->send(q{SELECT dlock_acquire('line', 'b', 3600, 3600)});
	$sessions->waiting('b');
	my $waiters = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 100, '-t', 1, '-f', $file, $node->connstr('postgres') ],
		'>', \my $out, '2>', \my $err);
	is( $sessions->until(q{SELECT count(*) FROM dlock.waiters WHERE name = 'line'}, 101), 101,
		'many wait');
	is( $a->query(q{SELECT count(*) FROM generate_series(1, 300) i
		WHERE dlock_release('line', 'l' || i)}), 300, 'the holders leave');
	like($b->answer, qr/^\d+$/, 'the head is served');
	is(fill('dlock_acquire_shared', 'line', 'late', 1), 0, 'a newcomer is not');
	is($b->query(q{SELECT dlock_release('line', 'b')}), 't', 'the name is free for all others');
	ok($waiters->finish, 'who are served') or diag($err);
	is( $a->query(q{SELECT count(*) FROM dlock_holders('line') WHERE owner LIKE 'w%'}), 100,
		'together');
};

$node->stop;
done_testing();
