# There are as many places to wait in, and guards, as configured, of which one role has
# half; one too many is an error with a hint, and no other caller loses its place.

use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('places');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
max_worker_processes = 16
dlock.max_waiters = 5
dlock.max_guards = 1
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION dlock');

sub sql { return $node->safe_psql('postgres', @_); }

sub waiter
{
	my ($call, $count) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_until(qr/waiting/, "\\echo waiting\nSELECT $call;\n");
	$node->poll_query_until('postgres',
		"SELECT count(*) = $count FROM dlock.waiters")
	  or die "$call does not wait";
	return $session;
}

# A call that finds no place.
sub too_many
{
	my ($call, $what, $setting) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres',
		"\\set VERBOSITY verbose\nBEGIN; SELECT $call;");

	like($stderr, qr/ERROR:\s+53400: too many .*DETAIL:  "dlock\.$setting" allows \d\b.*HINT:  Increase "dlock\.$setting"/s,
		"$what: $call");
	return;
}

my $queue = q{SELECT string_agg(name || ' ' || owner || ' ' || "position", ', '
	ORDER BY name, "position") FROM dlock.waiters};

my $token = sql(q{SELECT dlock_acquire(n, 'a', 3600) FROM unnest(ARRAY['k', 'l']) AS n});
my $b = waiter(q{dlock_acquire('k', 'b', 3600, -1)}, 1);
my $c = waiter(q{dlock_acquire('k', 'c', 3600, -1)}, 2);
my $d = waiter(q{dlock_acquire('l', 'd', 3600, -1)}, 3);
my $before = sql($queue);
is($before, 'k b 1, k c 2, l d 1', 'three wait');

too_many($_, 'one too many', 'max_waiters')
  for (
	q{dlock_acquire('k', 'e', 3600, -1)},
	q{dlock_acquire_shared('k', 'e', 3600, 60)},
	q{dlock_acquire_permit('l', 'e', 3600, 3, 60)},
	q{dlock_acquire_session('l', 'e', 3600, -1)},
	q{dlock_acquire_xact('l', 'e', 3600, -1)},
	q{dlock_acquire_all(ARRAY['j', 'k'], 'e', 3600, -1)},
	q{dlock_wait('k', -1)});
is(sql($queue), $before, 'the three have their places');
is( sql(q{SELECT dlock_acquire('k', 'e', 60), dlock_acquire('j', 'e', 60, -1) > 0,
		dlock_wait('k'), dlock_wait('i', -1)}),
	'|t|f|t', 'who need not wait needs no place');

sql(q{SELECT dlock_release('k', 'a'), dlock_release('l', 'a')});
cmp_ok($b->query('SELECT'), '>', 0, 'the first is served');
cmp_ok($d->query('SELECT'), '>', 0, 'and the third');
my $e = waiter(q{dlock_acquire('k', 'e', 3600, -1)}, 2);
is(sql($queue), 'k c 1, k e 2', 'their places can be used again');
sql(q{SELECT dlock_release_all('b')});
cmp_ok($c->query('SELECT'), '>', 0, 'the second is served');
sql(q{SELECT dlock_release_all('c')});
cmp_ok($e->query('SELECT'), '>', 0, 'the last is served');
$_->quit for $b, $c, $d, $e;

# A call that waits for any of several names takes one place from the others.
sql(q{SELECT dlock_acquire('n' || i, 'a', 3600) FROM generate_series(1, 100) AS i});
my @any = map { waiter("dlock_acquire_any(ARRAY(SELECT 'n' || i FROM generate_series(1, 100) AS i), '$_', 3600, 1, -1)",
		100 * $_) } 1, 2;
is(sql('SELECT waiters FROM dlock.stats'), 2, 'two wait for any of 100 names');
my $f = waiter(q{dlock_acquire('n1', 'f', 3600, -1)}, 201);
too_many(q{dlock_acquire_any('{n1, n2}', 'e', 3600, 1, -1)}, 'one too many', 'max_waiters');
sql(q{SELECT dlock_release('n1', 'a'), dlock_release_many('{n2, n3}', 'a')});
cmp_ok($f->query('SELECT'), '>', 0, 'the one in line is served');
like($_->query('SELECT'), qr/\(n[23],\d+\)/, 'and who waits for any') for @any;
$_->quit for $f, @any;
sql(q{SELECT dlock_release_all(o) FROM unnest(ARRAY['a', 'f', '1', '2']) AS o});

# The same for guards; the error ends the transaction and its guards.
sql(q{SELECT dlock_acquire('g' || i, 'a', 3600) FROM generate_series(1, 4) AS i});
my $guards = q{SELECT dlock_guard(name, owner, token) FROM dlock.locks
	WHERE name LIKE 'g%%' ORDER BY name LIMIT %d};
my $holder = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe('BEGIN');
$holder->query_safe(sprintf $guards, 2);
too_many(q{dlock_guard(name, owner, token) FROM dlock.locks WHERE name IN ('g3', 'g4')},
	'a second guard', 'max_guards');
too_many(q{dlock_acquire_xact('g5', 'a', 60), dlock_acquire_xact('g6', 'a', 60)}, 'a second guard', 'max_guards');
is(sql(q{SELECT dlock_is_free('g5'), dlock_is_free('g6')}), 't|t', 'the transaction that failed took nothing');
like(sql(q{BEGIN; SELECT dlock_acquire_xact('g5', 'a', 60); COMMIT}), qr/^\d+$/, 'for the first of a transaction there is a place');
is(sql(q{SELECT dlock_force_release('g1'), dlock_is_free('g1')}),
	'1|f', 'the two are guarded');
$holder->query_safe('COMMIT');
is(sql(q{SELECT dlock_is_free('g1')}), 't', 'until the end');
is(sql(sprintf "BEGIN; $guards; COMMIT", 2), "\n", 'then others can guard');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'no assertion failed');
done_testing();
