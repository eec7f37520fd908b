# PagesRead.pm: how many pages a call reads.

package PagesRead;

use strict;
use warnings;

# SQL that creates pages(CALL): how many pages the call in this text reads.  To be asked for
# once before, so that the session has the catalogs in its caches.
use constant CREATE => q{
	CREATE FUNCTION pages(call text) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		plan json;
	BEGIN
		EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' || call INTO plan;
		RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint +
			(plan->0->'Plan'->>'Shared Read Blocks')::bigint;
	END $$;
};

1;
