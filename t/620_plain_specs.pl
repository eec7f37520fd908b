# plain/specs: two sessions in every order, on what plain/dlock.sql makes; once with each
# isolation level as the default.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use File::Copy qw(copy);
use Plain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = Plain::start('specs');
Plain::run($node, 'dbo', write_file('setup.sql', q{
	-- without a key: two calls of one owner end side by side, and neither must wait for the other
	CREATE TABLE tokens (owner text, token bigint);
	CREATE PROCEDURE take(who text, mode text DEFAULT 'exclusive', INOUT taken boolean DEFAULT NULL) LANGUAGE plpgsql AS $$
	DECLARE
		got bigint;
	BEGIN
		IF mode = 'exclusive' THEN CALL dlock_acquire('job', who, 600, 0, NULL, got);
		ELSIF mode = 'shared' THEN CALL dlock_acquire_shared('job', who, 600, 0, NULL, got);
		ELSE CALL dlock_acquire_permits('job', who, 600, 3, 2, 0, NULL, got);
		END IF;
		taken := got IS NOT NULL;
		IF taken THEN
			INSERT INTO tokens VALUES (who, got);
		END IF;
	END $$;
	CREATE FUNCTION guard(who text) RETURNS void LANGUAGE sql AS
		'SELECT dlock_guard(''job'', who, (SELECT max(token) FROM tokens WHERE owner = who))';
	CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_lock_shared(TG_ARGV[0]::bigint), pg_advisory_unlock_shared(TG_ARGV[0]::bigint);
		RETURN NEW;
	END $$;
	CREATE TRIGGER stop_insert BEFORE INSERT ON dlock_private.lease_table FOR EACH ROW EXECUTE FUNCTION stop(42);
	CREATE TRIGGER stop_update BEFORE UPDATE ON dlock_private.lease_table FOR EACH ROW EXECUTE FUNCTION stop(43);
	-- the steps wait for each other, and not for a busy machine
	ALTER FUNCTION dlock_private.serve() SET lock_timeout = 0;
	ALTER FUNCTION dlock_force_release(text) SET lock_timeout = 0;
}));

# beside pg_regress there is the runner for sessions
my $runner = $ENV{PG_REGRESS} =~ s{regress/pg_regress$}{isolation/pg_isolation_regress}r;
for my $level ('read committed', 'repeatable read', 'serializable')
{
	$node->safe_psql('postgres', "ALTER DATABASE plain SET default_transaction_isolation = '$level'");
	my $dir = PostgreSQL::Test::Utils::tempdir();
	# what a release says that had to wait depends on the level
	my @specs = ('guard', 'race', $level eq 'read committed' ? 'release' : ());
	my $done = system($runner, "--inputdir=$Plain::root/plain", "--outputdir=$dir", '--use-existing', '--dbname=plain',
		'--user=dbo', '--host=' . $node->host, '--port=' . $node->port, '--bindir=' . bin_dir(), @specs);
	is($done, 0, "default $level: each order is as it should be") or diag(eval { slurp_file("$dir/regression.diffs") } // '');
	copy("$dir/results/$_.out", "$ENV{TESTLOGDIR}/$_-$level.out") for @specs;
}
$node->stop;
done_testing();

sub bin_dir
{
	my ($psql) = grep { -x "$_/psql" } split /:/, $ENV{PATH};
	return $psql;
}

sub write_file
{
	my ($name, $text) = @_;
	my $path = PostgreSQL::Test::Utils::tempdir() . "/$name";
	PostgreSQL::Test::Utils::append_to_file($path, $text);
	return $path;
}
