# report.awk MACHINE.csv DATA.csv : write the results as a page.
#
# -v why=FILE is what the page says of goals that are not met, -v summary=FILE
# where to write the medians for plots.gnuplot, -v plots=FOLDER where the page
# will find the plots.
#
# Figures are medians over the rounds, with the lowest and highest in brackets.
# A ratio is the median of the ratios within each round, because the systems of
# a round ran next to each other.

BEGIN {
	FS = ","
	order = "cycle fresh hot herd batch reentry renewal renew deadlock queue plain snapshot log steady growth restart"
	name_mysql()
	name_systems()
}

FNR == 1 { file++; next }

file == 1 { machine[$1] = $2; next }

{
	value[$1, $2, $3, $5, $4] = $6 + 0
	key = $1 SUBSEP $2 SUBSEP $3 SUBSEP $5
	if (!(key in rounds))
		keys[++nkeys] = key
	if ($4 > rounds[key])
		rounds[key] = $4
	present[$1] = 1
	has[$1, $3] = 1
	if ($1 == "growth" || $1 == "restart")
		most[$1, $3] = $2 + 0
	if ($5 == "checked") {
		checked[$1] += $6
		turns[$1]++
	}
}

# The servers of MySQL and MariaDB.
function name_mysql(    i) {
	nmysql = split("mysql mysql-nolog mariadb mariadb-nolog", mysql, " ")
	for (i = 1; i <= nmysql; i++)
		mysql_title[i] = (mysql[i] ~ /^mysql/ ? "MySQL" : "MariaDB") \
			(has_binary_log(i) ? ", durable" : ", no binary log")
}

function has_binary_log(i) {
	return mysql[i] !~ /-nolog/
}

# What the systems are called, in the order in which they are shown.
function name_systems(    i) {
	name("pg.dlock", "**dlock**, PostgreSQL, durable")
	name("pg.dlock-each", "**dlock** `dlock_acquire()` for each name, PostgreSQL, durable")
	name("pg.plain", "**dlock** without a library, PostgreSQL, durable")
	name("pg.floor", "floor, PostgreSQL, durable")
	name("pg.heap", "heap lock table, PostgreSQL, durable")
	name("pg.heap-holds", "heap lock table with a count of holds, PostgreSQL, durable")
	name("pg.jobs-dlock", "**dlock** `dlock_acquire_any()`, `dlock_guard()`")
	name("pg.jobs-rows", "`FOR UPDATE SKIP LOCKED`")
	name("redis-aof.redisson", "Redisson's scripts, Redis, `appendfsync always`")
	name("redis-aof.set-nx", "`SET NX PX`, Redis, `appendfsync always`")
	for (i = 1; i <= nmysql; i++) {
		name(mysql[i] ".dlock", "**dlock**, " mysql_title[i])
		name(mysql[i] "-few.dlock", "**dlock**, another " mysql_title[i])
		name(mysql[i] ".dlock-all", "**dlock** `dlock_acquire_all()`, " mysql_title[i])
		name(mysql[i] ".table", "lock table, " mysql_title[i])
		name(mysql[i] ".table-holds", "lock table with a count of holds, " mysql_title[i])
	}
	name("zookeeper", "ZooKeeper, durable")
	name("etcd", "etcd, durable")
	name("pg-async.dlock", "**dlock**, PostgreSQL, `synchronous_commit = off`")
	name("pg-async.heap", "heap lock table, PostgreSQL, `synchronous_commit = off`")
	name("few.dlock", "**dlock**, another PostgreSQL")
	name("few.heap", "heap lock table, another PostgreSQL")
	name("few.look-up-few", "look-up by a hash index, one of 1,000 rows")
	name("few.look-up-many", "look-up by a hash index, one of the most rows")
	name("pg-async.dlock-each", "**dlock** `dlock_acquire()` for each name, PostgreSQL, `synchronous_commit = off`")
	name("pg-async.dlock-all", "**dlock** `dlock_acquire_all()`, PostgreSQL, `synchronous_commit = off`")
	name("redis.redisson", "Redisson's scripts, Redis, no persistence")
	name("redis.set-nx", "`SET NX PX`, Redis, no persistence")
	name("pg-async.advisory", "advisory lock, PostgreSQL, in memory")
	name("mysql.get-lock", "`GET_LOCK()`, MySQL, in memory")
	name("mariadb.get-lock", "`GET_LOCK()`, MariaDB, in memory")
}

function name(who, text) {
	systems[++nsystems] = who
	title[who] = text
}

# 12345.6 as 12,346; small ones keep a digit
function number(x,    text, out) {
	text = sprintf(x < 10 && x != int(x) ? "%.2f" : "%.0f", x)
	while (text ~ /^[0-9][0-9][0-9][0-9]/) {
		out = "," substr(text, length(text) - 2) out
		text = substr(text, 1, length(text) - 3)
	}
	return text out
}

# Sort list[1..n].
function sort(list, n,    i, j, x) {
	for (i = 2; i <= n; i++) {
		x = list[i]
		for (j = i - 1; j >= 1 && list[j] > x; j--)
			list[j + 1] = list[j]
		list[j + 1] = x
	}
}

# Set median, low and high to those of list[1..n].
function spread(list, n) {
	sort(list, n)
	low = list[1]
	high = list[n]
	median = n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

# Set them to those of a measure; its text, or a dash if there is none.
function figure(workload, at, who, measure,    n, i, list) {
	n = rounds[workload, at, who, measure]
	if (!n)
		return "-"
	for (i = 1; i <= n; i++)
		list[i] = value[workload, at, who, measure, i]
	spread(list, n)
	return number(median) (n > 1 ? " (" number(low) "-" number(high) ")" : "")
}

# The same of the ratio of two measures.
function ratio(workload, at, who, at2, who2, measure,    n, i, list) {
	n = rounds[workload, at, who, measure]
	if (!n || rounds[workload, at2, who2, measure] != n)
		return "-"
	for (i = 1; i <= n; i++) {
		# in a short turn, something slow may not have been done once
		if (!value[workload, at2, who2, measure, i])
			return "-"
		list[i] = value[workload, at, who, measure, i] / \
			value[workload, at2, who2, measure, i]
	}
	spread(list, n)
	return sprintf(n > 1 ? "%.2f (%.2f-%.2f)" : "%.2f", median, low, high)
}

# Note a goal; "reached" is its text, and "median" what counts.
function goal(what, wanted, reached, met) {
	if (reached == "-")
		return
	goals = goals "| " what " | " wanted " | " reached " | " \
		(met ? "met" : "**not met**") " |\n"
}

function at_least(what, bound, workload, at, who, at2, who2, measure,    text) {
	text = ratio(workload, at, who, at2, who2, measure)
	goal(what, "at least " bound, text, median >= bound)
}

function at_most(what, bound, workload, at, who, at2, who2, measure,    text) {
	text = ratio(workload, at, who, at2, who2, measure)
	goal(what, "at most " bound, text, median <= bound)
}

# A goal for two systems' rates at several numbers of clients.
function rates_at_least(workload, what, bounds, who, who2,    i, n, bound, at) {
	n = split(bounds, bound, " ")
	for (i = 1; i <= n; i++) {
		split(bound[i], at, ":")
		at_least(what ", clients: " at[1], at[2], workload, at[1], who, \
			at[1], who2, "rate")
	}
}

# A goal for a figure.
function figure_at_most(what, bound, workload, at, who, measure,    text) {
	text = figure(workload, at, who, measure)
	goal(what, "at most " number(bound), text, median <= bound)
}

function write_goals(    i, n, at, text, bound) {
	rates_at_least("cycle", "durable cycles, PostgreSQL, against the floor", \
		"1:0.95 8:0.95 32:0.95", "pg.dlock", "pg.floor")
	at_least("durable cycles, PostgreSQL, with a snapshot held open for " \
		machine["snapshot seconds"] " s, 100 names, 8 clients, against a heap lock table", 6, \
		"snapshot", "held", "pg.dlock", "held", "pg.heap", "last_rate")
	at_least("the same, not durable", 10, "snapshot", "held", \
		"pg-async.dlock", "held", "pg-async.heap", "last_rate")
	at_least("with the snapshot against without it", 0.95, \
		"snapshot", "held", "pg.dlock", "without", "pg.dlock", "last_rate")
	rates_at_least("cycle", "durable cycles, PostgreSQL, against Redis with Redisson's scripts and `appendfsync always`", \
		"1:1 8:1 32:1", "pg.dlock", "redis-aof.redisson")
	rates_at_least("cycle", "cycles that are not durable, PostgreSQL, against advisory locks", \
		"8:0.9 32:0.9", "pg-async.dlock", "pg-async.advisory")
	for (i = 1; i <= 8; i += 7)
		at_least("claiming 100 names, durable, PostgreSQL, against a heap lock table, clients: " i, \
			2, "batch", i, "pg.dlock", i, "pg.heap", "rate")
	for (i = 1; i <= 8; i += 7)
		at_least("100 names in one statement, not durable, PostgreSQL, against Redis pipelined by 100, clients: " i, \
			2, "batch", i, "pg-async.dlock", i, "redis.set-nx", "rate")
	n = split("2 8 32", at, " ")
	for (i = 1; i <= n; i++) {
		at_most("hand-over, not durable, PostgreSQL, against an advisory lock's, median, clients: " at[i], \
			1.1, "hot", at[i], "pg-async.dlock", at[i], "pg-async.advisory", "handover_p50")
		at_most("the same, 99th percentile", \
			1.1, "hot", at[i], "pg-async.dlock", at[i], "pg-async.advisory", "handover_p99")
	}
	text = figure("herd", 500, "pg-async.dlock", "woken")
	goal("500 waiters, PostgreSQL: wake-ups for a grant", "1", text, text > 0.99 && text < 1.01)
	text = figure("deadlock", 1000, "pg-async.dlock", "search_p50")
	goal("search for deadlocks among 1,000 waiters in a chain, PostgreSQL, median, us", \
		"under 10,000", text, median < 10000)
	at_most("meanwhile acquires of other names, against beside searches among 1, median", \
		1.1, "deadlock", "1000/cycle", "pg-async.dlock", "1/cycle", "pg-async.dlock", "acquire_p50")
	at_most("meanwhile hand-overs of another name, against beside searches among 1, median", \
		1.1, "deadlock", "1000/hot", "pg-async.dlock", "1/hot", "pg-async.dlock", "handover_p50")
	text = figure("log", "measured", "pg.dlock", "bytes")
	goal("WAL of an acquire and release, PostgreSQL, bytes", "under 210", text, median < 210)
	at[1] = most["growth", "pg-async.dlock"]
	text = number(at[1]) " live leases against 1,000, PostgreSQL"
	bound = 0.9
	if (ratio("growth", at[1], "few.look-up-many", at[1], "few.look-up-few", "rate") != "-" && median < bound)
		bound = sprintf("%.2f", median)
	at_least(text ": cycles (0.9, or the ratio of look-ups by a hash index)", bound, \
		"growth", at[1], "pg-async.dlock", at[1], "few.dlock", "rate")
	at_most(text ": time to the first acquire after a restart (not slower, within the noise)", \
		1.1, "growth", at[1], "pg-async.dlock", at[1], "few.dlock", "first_acquire_ms")
	text = figure("growth", at[1], "pg-async.dlock", "disk")
	goal("bytes of a live lease, PostgreSQL", "at most 120", text, median <= 120)
	text = figure("growth", 10, "pg-async.dlock", "shared")
	if (text != "-")
		goal("shared memory of dlock with ten leases, `shared_buffers = 3GB`, `max_connections = 1100`, MB", \
			"under 16", sprintf("%.1f", median / 1e6), median < 16e6)
	for (i = 1; i <= nmysql; i++)
		write_mysql_goals(mysql[i], ", " mysql_title[i], has_binary_log(i))
}

# Those of one server, each against a lock table there if it does not say otherwise.
function write_mysql_goals(server, on, binary,    who, naive, most_at, live) {
	who = server ".dlock"
	naive = server ".table"
	rates_at_least("cycle", "cycles" on ", against a lock table", \
		binary ? "1:1.5 8:2 32:2.5" : "1:1.2 8:1.5 32:1.5", who, naive)
	rates_at_least("renewal", "one renewal" on ", against one `UPDATE`", \
		"1:0.75 8:2 32:2", who, naive)
	rates_at_least("reentry", "a re-entry and its release" on ", against two `UPDATE`s", \
		"1:1.2 8:2 32:2", who, server ".table-holds")
	rates_at_least("renew", "`dlock_renew_all()` of 1,250 leases" on ", against `UPDATE`s of 100", \
		"1:5 8:5", who, naive)
	rates_at_least("batch", "100 names by `dlock_acquire_any()`" on ", against one `INSERT` and one `DELETE`", \
		"1:1.5 8:1.5", who, naive)
	rates_at_least("batch", "100 names by `dlock_acquire_all()`" on ", against the same", \
		"1:1.5 8:1.5", server ".dlock-all", naive)
	at_most("bytes of binary log of a cycle" on ", against a lock table", 1, \
		"log", "measured", who, "measured", naive, "binary")
	at_least("cycles over names never used before" on ", against names used again and again", \
		0.9, "fresh", "new", who, "again", who, "rate")
	figure_at_most("99th percentile of an acquire while leases are written out" on ", against the median", \
		2, "steady", "held", who, "acquire_spread")
	figure_at_most("the same" on ", beside a client that renews 1,250 leases each second", \
		2, "steady", "heartbeat", who, "acquire_spread")
	most_at = most["growth", who]
	live = number(most_at) " live leases" on
	figure_at_most(live ": ms from a start of the server to the first acquire", 5000, \
		"growth", most_at, who, "first_acquire_ms")
	figure_at_most(live ": bytes of one", 150, "growth", most_at, who, "disk")
	at_least(live ": cycles, against beside 1,000", 0.9, \
		"growth", most_at, who, most_at, server "-few.dlock", "rate")
}

function section(heading, text) {
	print "\n## " heading "\n\n" text "\n"
}

# The figures of each system at several values of AT: of one measure, or of
# several separated by blanks.
function table(workload, ats, measures, headings,    i, j, k, n, m, at, measure, line) {
	n = split(ats, at, " ")
	m = split(measures, measure, " ")
	print "| system | " headings " |"
	line = "|---|"
	for (j = 1; j <= n * m; j++)
		line = line "---|"
	print line
	for (i = 1; i <= nsystems; i++) {
		if (!has[workload, systems[i]])
			continue
		line = "| " title[systems[i]] " |"
		for (j = 1; j <= n; j++)
			for (k = 1; k <= m; k++)
				line = line " " figure(workload, at[j], systems[i], measure[k]) " |"
		print line
	}
}

# A plot that plots.gnuplot makes.
function plot(file, text) {
	print "![" text "](" plots "/" file ".svg)\n"
}

function write_cycles() {
	section("Cycles", "An acquire and a release of one of " number(machine["names"]) " names, nearly always free; cycles per\nsecond, at 1, 8 and 32 clients.")
	plot("cycles", "cycles per second")
	table("cycle", "1 8 32", "rate", "1 | 8 | 32")
	print "\nThe floor is the least that a durable cycle can be made of on PostgreSQL: a\nstatement that commits one small WAL record, and one that does next to nothing.\nAgainst the heap lock table, dlock makes " \
		ratios("cycle", "pg.dlock", "pg.heap") "\ntimes as many durable cycles, and the floor " \
		ratios("cycle", "pg.floor", "pg.heap") "."
	print "\nMicroseconds of an acquire and of a release with 8 clients, median and 99th\npercentile.\n"
	table("cycle", "8", "acquire_p50 acquire_p99 release_p50 release_p99", \
		"acquire | 99 % | release | 99 %")
}

function write_fresh(    i) {
	section("New names", "Cycles per second, 8 clients, over names that nobody has ever used, and over 1,000\nthat are used again and again.")
	table("fresh", "new again", "rate", "new | again")
	print "\nThe ratio of the two:\n\n| system | new against again |\n|---|---|"
	for (i = 1; i <= nsystems; i++)
		if (has["fresh", systems[i]])
			print "| " title[systems[i]] " | " \
				ratio("fresh", "new", systems[i], "again", systems[i], "rate") " |"
}

function write_hot() {
	section("One hot name", "All clients wait for the same name and release it at once; grants per second, at 2,\n8 and 32 clients. Where nobody can wait in line (the lock tables, `SET NX`), a client\nthat is refused asks again after a millisecond.")
	table("hot", "2 8 32", "rate", "2 | 8 | 32")
	print "\nHand-overs from one client to another, microseconds from the moment before the\nrelease is sent to the moment when the next client has the lock, median and 99th\npercentile. Grants to the client that had just released are not among them, which\nis how `SET NX` is fast: the spread, the standard deviation of the clients' grants\nover their mean, is 0 if all got the same.\n"
	table("hot", "2 8 32", "handover_p50 handover_p99", \
		"2 | 99 % | 8 | 99 % | 32 | 99 %")
	plot("handover", "hand-over, microseconds")
	table("hot", "2 8 32", "grants_cv", "spread, 2 | 8 | 32")
}

function write_herd() {
	section("500 waiters", "The same with 500 clients.")
	table("herd", "500", "rate handover_p50 handover_p99 grants_cv", \
		"grants a second | hand-over, us | 99 % | spread")
}

function write_batch() {
	section("100 names at once", "Names acquired and released per second at 1 and 8 clients, 100 to a statement. dlock\nclaims them with `dlock_acquire_any()` and gives them back with\n`dlock_release_many()`, on MySQL and MariaDB those of `dlock_acquire_all()` with\n`dlock_release_all()`. The heap lock table has one `INSERT ... ON CONFLICT DO\nNOTHING RETURNING` and one `DELETE`, the lock tables of MySQL and MariaDB one\n`INSERT` and one `DELETE`, Redis pipelines of 100, ZooKeeper requests that do not\nwait for each other's answers, etcd a transaction. With `dlock_acquire_all()`, the\nlock tables of MySQL and MariaDB, and etcd it is all names or none.")
	table("batch", "1 8", "rate", "1 | 8")
}

function write_reentry() {
	section("Re-entry", "An acquire by the owner that has the lock, and the release of that hold; with 8\nclients, and some systems with 1 and 32. The heap lock table that counts holds keeps\nits rows: an acquire is `INSERT ... ON CONFLICT (name) DO UPDATE`, a release an\n`UPDATE`; on MySQL and MariaDB both are an `UPDATE`.")
	table("reentry", "1 8 32", "rate", "a second, 1 | 8 | 32")
	print "\nMicroseconds of an acquire with 8 clients, median and 99th percentile.\n"
	table("reentry", "8", "acquire_p50 acquire_p99", "acquire | 99 %")
	print "\nAgainst the heap lock table, at 1, 8 and 32 clients: " \
		ratios("reentry", "pg.dlock", "pg.heap-holds") "."
}

function write_renewal() {
	section("One renewal", "Leases renewed per second, one in a statement, of 10,000 that the clients hold\ntogether; the lock tables with an `UPDATE` of the row.")
	table("renewal", "1 8 32", "rate", "1 | 8 | 32")
	print "\nAgainst the heap lock table, at 1, 8 and 32 clients: " \
		ratios("renewal", "pg.dlock", "pg.heap") "."
}

# The ratios of two systems' rates at 1, 8 and 32 clients.
function ratios(workload, who, who2) {
	return ratio(workload, 1, who, 1, who2, "rate") " / " \
		ratio(workload, 8, who, 8, who2, "rate") " / " \
		ratio(workload, 32, who, 32, who2, "rate")
}

function write_renew() {
	section("Heartbeats", "1 and 8 clients keep 1,250 leases alive each: leases renewed per second, and\nmilliseconds for a client's; on MySQL and MariaDB for " machine["sustained"] " s, in which dlock has to write\nout what the renewals have changed. dlock renews all leases of an owner in one call,\nthe heap lock table all names in one statement; Redis has pipelines of 100, the lock\ntables of MySQL and MariaDB statements of 100. In etcd one request per client keeps its\nlease alive and with it all keys; in ZooKeeper the session does.")
	table("renew", "1 8", "rate heartbeat_ms", "a second, 1 | ms | 8 | ms")
}

function write_deadlock(    i, n, at, who) {
	section("The search for deadlocks", "Each of a chain of waiters waits for the lock of the one before. The first asks again\nand again for the lock of the last, and is told each time that this closes a circle:\nmicroseconds of such a call, `synchronous_commit = off`. Meanwhile, one client takes\nand gives back other names, or two hand one over: both per second, with the\nmicroseconds of an acquire and of a hand-over.")
	print "| waiters | search | 99 % | cycles | acquire | 99 % | hand-overs | hand-over | 99 % |"
	print "|---|---|---|---|---|---|---|---|---|"
	n = split("1 1000", at, " ")
	who = "pg-async.dlock"
	for (i = 1; i <= n; i++)
		print "| " number(at[i]) " | " \
			figure("deadlock", at[i], who, "search_p50") " | " \
			figure("deadlock", at[i], who, "search_p99") " | " \
			figure("deadlock", at[i] "/cycle", who, "rate") " | " \
			figure("deadlock", at[i] "/cycle", who, "acquire_p50") " | " \
			figure("deadlock", at[i] "/cycle", who, "acquire_p99") " | " \
			figure("deadlock", at[i] "/hot", who, "rate") " | " \
			figure("deadlock", at[i] "/hot", who, "handover_p50") " | " \
			figure("deadlock", at[i] "/hot", who, "handover_p99") " |"
}

function write_queue() {
	section("A queue of jobs", "Jobs of a table on PostgreSQL, durable, done per second by 1, 8 and 32 workers, each\nof which takes five at a time; a job is a sleep of 1 or 10 ms. With dlock a worker\nclaims jobs, looks whether they are still to be done, does them with no transaction\nopen, and in one transaction guards its leases and notes that the jobs are done;\nthen it gives the leases back. With `SKIP LOCKED` it does all in one transaction,\nwhich keeps their rows locked. No job was done twice.")
	table("queue", "1/0.001 8/0.001 32/0.001 1/0.01 8/0.01 32/0.01", "rate", \
		"1 ms, 1 | 8 | 32 | 10 ms, 1 | 8 | 32")
	print "\nThe oldest transaction that had changed something, in milliseconds, ten looks a\nsecond: vacuum keeps all that has died since it began.\n"
	table("queue", "1/0.001 8/0.001 32/0.001 1/0.01 8/0.01 32/0.01", "oldest_ms", \
		"1 ms, 1 | 8 | 32 | 10 ms, 1 | 8 | 32")
}

function write_plain() {
	section("Without a library", "`plain/dlock.sql`, which makes dlock of an ordinary table, against the extension, and\nagainst the heap lock table, which knows no holds, permits, requests, guards and roles,\nand is called in one statement. Cycles per second, at 1, 8 and 32 clients.")
	table("plain", "1 8 32", "rate", "1 | 8 | 32")
	print "\nLeases renewed per second, one in a statement, of 1,000.\n"
	table("plain", "1/renewal 8/renewal 32/renewal", "rate", "1 | 8 | 32")
	print "\nAgainst the heap lock table it makes " ratios("plain", "pg.plain", "pg.heap") \
		"\ntimes the cycles, and against the extension " ratios("plain", "pg.plain", "pg.dlock") "."
	print "\nMicroseconds of an acquire and of a release with one client, median and 99th\npercentile.\n"
	table("plain", "1", "acquire_p50 acquire_p99 release_p50 release_p99", \
		"acquire | 99 % | release | 99 %")
}

function write_snapshot() {
	section("An old snapshot", "Durable cycles per second over 100 names, 8 clients, for " machine["snapshot seconds"] " s (MySQL: a third\nof that), and on PostgreSQL also not durable, while an idle transaction holds a snapshot, and without: in the first 2\nseconds and the last " tail ".")
	plot("snapshot", "cycles per second while a snapshot is held")
	table("snapshot", "without held", "first_rate last_rate", \
		"without, first | last | held, first | last")
}

function write_log() {
	section("Log", "Bytes of log for an acquire and a release, of 1,000 names by one client, once the\npages concerned were changed since the last checkpoint: WAL, redo and binary log,\nRedis's file, ZooKeeper's and etcd's log. MySQL and MariaDB go on for " machine["sustained"] " s, so that\nwhat is written after the answers is counted.")
	table("log", "measured", "bytes binary", "bytes | of these, binary log")
}

function write_steady() {
	section("Writing out", "Microseconds of an acquire, when 8 clients take 400 leases per second together, far\nfewer than they could, for " machine["sustained"] " s, and give each back two seconds later: so there are\nalways leases that dlock has to write out behind its answers. The same beside one more\nclient that renews 1,250 leases each second. A client that is answered late is late\nwith its next request, whose time counts from when it was due.")
	print "Nothing else:\n"
	table("steady", "held", "acquire_p50 acquire_p99 acquire_max acquire_spread", \
		"acquire | 99 % | longest | 99 % against median")
	print "\nWith the heartbeats:\n"
	table("steady", "heartbeat", "acquire_p50 acquire_p99 acquire_max acquire_spread", \
		"acquire | 99 % | longest | 99 % against median")
}

# Systems differ in how many leases they are given at most.
function write_growth(    i, n, at, last, headings) {
	n = split(machine["leases"], at, " ")
	for (i = 1; i <= n; i++)
		headings = headings (i > 1 ? " | " : "") number(at[i])
	section("Many live leases", "Cycles per second over " number(machine["names"]) " other names, 8 clients, beside live leases; on\nPostgreSQL without a checkpoint in the window. Another PostgreSQL, and another server\neach of MySQL and MariaDB, stay at 1,000 leases and are measured in the same rounds.")
	plot("growth", "cycles per second beside live leases")
	table("growth", machine["leases"], "rate", headings)
	print "\nA look-up by a hash index, two to a cycle, finds one of " number(machine["names"]) " names among the most rows,\nor one of 1,000: the ratio of the two rates is " \
		ratio("growth", at[n], "few.look-up-many", at[n], "few.look-up-few", "rate") "."
	print "\nWhat one more lease takes, in bytes, and how many were taken per second, by 8\nclients, 100 names at once, on the way to the most. In memory it is the pages of the\ntable, where there is one.\n"
	print "| system | live leases | memory | disk | taken a second |\n|---|---|---|---|---|"
	for (i = 1; i <= nsystems; i++) {
		last = most["growth", systems[i]]
		if (rounds["growth", last, systems[i], "memory"])
			print "| " title[systems[i]] " | " number(last) " | " \
				figure("growth", last, systems[i], "memory") " | " \
				figure("growth", last, systems[i], "disk") " | " \
				figure("growth", last, systems[i], "fill_rate") " |"
	}
	last = most["growth", "pg-async.dlock"]
	print "\nAfter a clean stop, PostgreSQL with " number(last) " leases took " \
		figure("growth", last, "pg-async.dlock", "first_acquire_ms") " ms\nfrom its start to the first acquire, with 1,000 leases " \
		figure("growth", last, "few.dlock", "first_acquire_ms") " ms."
	print "\nMySQL and MariaDB beside the most leases: their cycles against those of the other\nserver, bytes of a lease against those of the lock table, and milliseconds from a start\nafter a clean stop until the server answers, and until the first acquire.\n"
	print "| system | live leases | cycles against beside 1,000 | bytes | answers | first acquire |\n|---|---|---|---|---|---|"
	for (i = 1; i <= nmysql; i++) {
		last = most["growth", mysql[i] ".dlock"]
		print "| " title[mysql[i] ".dlock"] " | " number(last) " | " \
			ratio("growth", last, mysql[i] ".dlock", last, mysql[i] "-few.dlock", "rate") " | " \
			ratio("growth", last, mysql[i] ".dlock", last, mysql[i] ".table", "disk") " | " \
			figure("growth", last, mysql[i] ".dlock", "answers_ms") " | " \
			figure("growth", last, mysql[i] ".dlock", "first_acquire_ms") " |"
	}
}

function write_restart(    i, at) {
	section("After a crash", "Milliseconds from the start of a server that was killed (`kill -9`) to the first\nacquire, with all that has been logged since the leases began to come. Of the\nleases, a thousand were then found to be held still.")
	print "| system | live leases | ms |\n|---|---|---|"
	for (i = 1; i <= nsystems; i++) {
		at = most["restart", systems[i]]
		if (at)
			print "| " title[systems[i]] " | " number(at) " | " \
				figure("restart", at, systems[i], "first_acquire_ms") " |"
	}
}

# What is computed from other measures.
function derive(    i, j, s, part, base, n, last, sum) {
	tail = machine["snapshot seconds"] >= 15 ? 5 : 1
	n = nkeys
	for (i = 1; i <= n; i++) {
		split(keys[i], part, SUBSEP)
		base = part[1] SUBSEP part[2] SUBSEP part[3]
		for (j = 1; j <= rounds[keys[i]]; j++) {
			if (part[1] == "snapshot" && part[4] == "rate") {
				for (last = 0; (base SUBSEP "second_" last + 1 SUBSEP j) in value; )
					last++
				sum = 0
				for (s = last - tail + 1; s <= last; s++)
					sum += value[base, "second_" s, j]
				put(base, "last_rate", j, sum / tail)
				put(base, "first_rate", j, \
					(value[base, "second_1", j] + value[base, "second_2", j]) / 2)
			}
			if (part[1] == "steady" && part[4] == "acquire_p99")
				put(base, "acquire_spread", j, \
					value[base, part[4], j] / value[base, "acquire_p50", j])
			if (part[4] == "heartbeat_p50")
				put(base, "heartbeat_ms", j, value[base, part[4], j] / 1000)
		}
	}
}

function put(base, measure, round, x) {
	value[base, measure, round] = x
	if (!((base SUBSEP measure) in rounds))
		keys[++nkeys] = base SUBSEP measure
	rounds[base, measure] = round
}

# All medians, for the plots.
function write_summary(    i, part) {
	print "workload,at,system,measure,median,low,high" >summary
	for (i = 1; i <= nkeys; i++) {
		split(keys[i], part, SUBSEP)
		figure(part[1], part[2], part[3], part[4])
		print part[1] "," part[2] "," part[3] "," part[4] "," median "," low "," high >summary
	}
	close(summary)
}

function write_head(    line, n, i, kinds) {
	print "# What dlock costs\n"
	print "Written by `make bench`, which measures all of it in one run, or some workloads"
	print "again. The systems of a table took turns on the same machine, so their ratios say"
	print "more than their rates."
	if (machine["trial"] == "yes")
		print "\n**This was a trial run, shorter or smaller than the whole: a hint, no result.**"
	print "\n| | |\n|---|---|"
	print "| processor | " machine["processor"] ", " machine["cores"] " cores, which clients and servers share |"
	print "| memory | " machine["memory"] " |"
	print "| disk | " machine["disk"] ", " number(machine["flushes a second"]) " flushes of one page a second |"
	print "| system | " machine["system"] ", " machine["kernel"] " |"
	print "| versions | dlock " machine["dlock"] ", PostgreSQL " machine["pg"] \
		", MySQL " machine["mysql"] ", MariaDB " machine["mariadb"] \
		", Redis " machine["redis"] ", ZooKeeper " machine["zookeeper"] \
		", etcd " machine["etcd"] " |"
	print "| date | " machine["date"] " |"
	n = split(order, kinds, " ")
	for (i = 1; i <= n; i++)
		if (("again " kinds[i]) in machine)
			print "| " kinds[i] ", measured again | " machine["again " kinds[i]] " |"

	print "\n## Goals\n"
	print "| ratio of dlock | goal | measured | |\n|---|---|---|---|"
	printf "%s", goals
	print "\n## Where it falls short, and why\n"
	while ((getline line <why) > 0)
		print line
}

function write_method(    i, n, kinds) {
	print "\n## How it was measured\n"
	print "- One load generator (`bench/load`) for all systems, each over its own client\n  library, a thread and a connection for each client. Closed loop: a client sends\n  its next request when it has the answer to the last, but where a rate is named."
	print "- " machine["rounds"] " round(s), in which the systems take turns, in the other order in every other\n  round; a turn is " machine["warm-up"] " s of warm-up, which do not count, and " machine["window"] " s that do."
	print "- Figures are medians over the rounds, with the lowest and highest in brackets.\n  Ratios are medians of the ratios within each round. Percentiles are from a\n  histogram, off by less than 0.4 %."
	print "- Connections are over Unix sockets; those of ZooKeeper and etcd, which have none,\n  over the loopback address."
	print "- PostgreSQL as it comes, but `shared_buffers = 3GB`, and checkpoints only between\n  rounds; `fsync` and `full_page_writes` are on, `synchronous_commit` as named.\n  MySQL and MariaDB as they come, with a binary log and `sync_binlog = 1` but\n  where it says that there is no binary log, which is how MariaDB comes; a buffer\n  pool and a redo log of 1 GB. Redis with `appendfsync always`, or keeping\n  nothing on disk. ZooKeeper and etcd as they come, a server each, not a cluster:\n  both flush their logs."
	print "- The heap lock table is `INSERT ... ON CONFLICT (name) DO UPDATE ... WHERE` it\n  has expired `RETURNING` a token from a sequence, then `DELETE`; autovacuum on.\n  The lock table of MySQL and MariaDB is `INSERT`, then `DELETE`, and has no\n  expiry; the one that counts holds keeps its rows. Each is a transaction of its own. `SET NX PX` is released by a script\n  that deletes a key with the right value. Redisson's scripts are its lock's,\n  in our words, waiting by publish and subscribe. In ZooKeeper a lock\n  is the smallest of ephemeral sequential nodes, and a waiter watches the next\n  smaller one; etcd has the recipe of its concurrency package, over its HTTP\n  gateway: one lease per client, a transaction that puts a key and asks for the\n  oldest, a watch of the key before."
	print "- A client takes names of its own, and in one of 64 attempts the name that\n  another is busy with. That no\n  two clients ever had a name at once was checked at each grant, and that each\n  could be given back by its holder; it never was otherwise:\n"
	print "| workload | turns | grants checked |\n|---|---|---|"
	n = split(order, kinds, " ")
	for (i = 1; i <= n; i++)
		if (turns[kinds[i]])
			print "| " kinds[i] " | " number(turns[kinds[i]]) " | " \
				number(checked[kinds[i]]) " |"
}

END {
	derive()
	if (summary)
		write_summary()
	write_goals()
	write_head()
	write_method()
	if (present["cycle"])
		write_cycles()
	if (present["fresh"])
		write_fresh()
	if (present["hot"])
		write_hot()
	if (present["herd"])
		write_herd()
	if (present["batch"])
		write_batch()
	if (present["reentry"])
		write_reentry()
	if (present["renewal"])
		write_renewal()
	if (present["renew"])
		write_renew()
	if (present["deadlock"])
		write_deadlock()
	if (present["queue"])
		write_queue()
	if (present["plain"])
		write_plain()
	if (present["snapshot"])
		write_snapshot()
	if (present["log"])
		write_log()
	if (present["steady"])
		write_steady()
	if (present["growth"])
		write_growth()
	if (present["restart"])
		write_restart()
}
