# report.awk MACHINE.csv DATA.csv : write the results as a page.
#
# Figures are medians over the rounds, with the lowest and highest in brackets.
# A ratio is the median of the ratios within each round, because the systems of
# a round ran next to each other.

BEGIN { FS = "," }

FNR == 1 { file++; next }

file == 1 { machine[$1] = $2; next }

{
	value[$1, $2, $3, $5, $4] = $6 + 0
	if (!(($1, $2, $3, $5) in rounds) || $4 > rounds[$1, $2, $3, $5])
		rounds[$1, $2, $3, $5] = $4
	present[$1] = 1
	if ($5 == "checked")
		checked[$1] += $6
	if ($1 == "growth" && $3 == "many")
		leases = $2
}

# 12345.6 as 12,346
function number(x,    text, out) {
	text = sprintf("%.0f", x)
	while (length(text) > 3) {
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

# The figure of a system, or a dash.
function figure(workload, at, who, measure,    n, i, list) {
	n = rounds[workload, at, who, measure]
	if (!n)
		return "-"
	for (i = 1; i <= n; i++)
		list[i] = value[workload, at, who, measure, i]
	spread(list, n)
	return number(median) (n > 1 ? " (" number(low) "-" number(high) ")" : "")
}

# The ratio of two systems; also left in "median", which is -1 without figures.
function ratio(workload, at, who, at2, other, measure,    n, i, list) {
	n = rounds[workload, at, who, measure]
	median = -1
	if (!n || rounds[workload, at2, other, measure] != n)
		return "-"
	for (i = 1; i <= n; i++)
		list[i] = value[workload, at, who, measure, i] / \
			value[workload, at2, other, measure, i]
	spread(list, n)
	return sprintf("%.2f (%.2f-%.2f)", median, low, high)
}

# Note a goal; "reached" is a text, "enough" whether it will do.
function goal(what, wanted, reached, enough) {
	if (reached == "-")
		return
	goals = goals "| " what " | " wanted " | " reached " | " \
		(enough ? "met" : "**not met**") " |\n"
}

function goal_ratio(what, least, text) {
	goal(what, "at least " least, text, median >= least)
}

function section(title, text) {
	body = body "\n## " title "\n\n" text "\n"
}

function row(text) {
	body = body "| " text " |\n"
}

# A table of two systems at several numbers of clients.
function pair(workload, list, who, other, title, title2,    n, i, at, text) {
	row("clients | " title " | " title2 " | ratio")
	row("--- | --- | --- | ---")
	n = split(list, at, " ")
	for (i = 1; i <= n; i++) {
		if (!rounds[workload, at[i], who, "rate"])
			continue
		text = ratio(workload, at[i], who, at[i], other, "rate")
		row(at[i] " | " figure(workload, at[i], who, "rate") " | " \
			figure(workload, at[i], other, "rate") " | " text)
	}
}

function cycles_durable(    text) {
	section("Durable cycles", "Cycles per second, one acquire and one release each, over 100,000 names;\n`synchronous_commit = on`.\n")
	pair("durable", "1 8 32", "dlock", "heap", "dlock", "heap lock table")
	text = ratio("durable", 1, "dlock", 1, "heap", "rate")
	goal_ratio("durable, against a heap lock table, 1 client", 1.8, text)
	text = ratio("durable", 8, "dlock", 8, "heap", "rate")
	goal_ratio("durable, against a heap lock table, 8 clients", 2, text)
	text = ratio("durable", 32, "dlock", 32, "heap", "rate")
	goal_ratio("durable, against a heap lock table, 32 clients", 2, text)
}

function snapshot_row(workload, who, title,    at) {
	at = machine["snapshot clients"]
	row(title " | " figure(workload, at, who, "first_rate") " | " \
		figure(workload, at, who, "rate"))
}

function snapshot_part(workload, title,    at, text) {
	at = machine["snapshot clients"]
	row(title " | first 2 s | last " \
		(machine["snapshot seconds"] >= 15 ? 5 : 2) " s")
	row("--- | --- | ---")
	if (rounds[workload, at, "dlock", "rate"])
		snapshot_row(workload, "dlock", "dlock, no snapshot")
	snapshot_row(workload, "dlock_snapshot", "dlock, snapshot held")
	snapshot_row(workload, "heap_snapshot", "heap lock table, snapshot held")
	text = ratio(workload, at, "dlock_snapshot", at, "heap_snapshot", "rate")
	goal_ratio(title ", a snapshot held open for " \
		machine["snapshot seconds"] " s, against the heap lock table", \
		10, text)
	text = ratio(workload, at, "dlock_snapshot", at, "dlock", "rate")
	goal_ratio(title ", with the snapshot against without it", 0.95, text)
}

function snapshots() {
	section("An old snapshot", "Cycles per second over 100 names, " \
		machine["snapshot clients"] " clients, while an idle REPEATABLE READ\ntransaction holds a snapshot, for " machine["snapshot seconds"] " s from the start of each turn.\n")
	snapshot_part("snapshot_durable", "durable")
	if (!present["snapshot"])
		return
	body = body "\n"
	snapshot_part("snapshot", "not durable")
}

function cycles_fast(    text) {
	section("Cycles that are not durable", "Cycles per second as above; `synchronous_commit = off`. An advisory lock is in\nmemory only, has no deadline and no token, and ends with its connection.\n")
	pair("fast", "1 8 32", "dlock", "advisory", "dlock", "advisory lock")
	body = body "\nThe same acquire with a `wait` that it does not need, against one without:\n\n"
	pair("fast", "1 8 32", "dlock_wait", "dlock", "dlock, ready to wait", "dlock")
	text = ratio("fast", 8, "dlock", 8, "advisory", "rate")
	goal_ratio("not durable, against an advisory lock, 8 clients", 0.5, text)
	text = ratio("fast", 32, "dlock", 32, "advisory", "rate")
	goal_ratio("not durable, against an advisory lock, 32 clients", 0.6, text)
}

# A row of hand-overs at one number of clients.
function handover_row(at) {
	row(at " | " figure("handover", at, "dlock", "rate") " | " \
		figure("handover", at, "dlock", "median") " | " \
		figure("handover", at, "advisory", "median") " | " \
		ratio("handover", at, "dlock", at, "advisory", "median") " | " \
		figure("handover", at, "dlock", "p99") " | " \
		figure("handover", at, "advisory", "p99") " | " \
		ratio("handover", at, "dlock", at, "advisory", "p99"))
}

function goal_at_most(what, most, text) {
	goal(what, "at most " most, text, median <= most)
}

function handovers(    i, n, at, text) {
	section("Hand-over", "Microseconds from the moment before a release is sent to the moment when the\nnext in line has its lock; `synchronous_commit = off`. All clients want one name,\nso all but one wait. Median and 99th percentile, dlock, advisory lock, ratio.\n")
	row("clients | dlock, a second | median, dlock | advisory | ratio | 99 %, dlock | advisory | ratio")
	row("--- | --- | --- | --- | --- | --- | --- | ---")
	n = split("2 8 32 500", at, " ")
	for (i = 1; i <= n; i++)
		handover_row(at[i])
	for (i = 1; i <= 3; i++) {
		text = ratio("handover", at[i], "dlock", at[i], "advisory", "median")
		goal_at_most("hand-over, not durable, against an advisory lock, " at[i] " clients, median", 1.5, text)
		text = ratio("handover", at[i], "dlock", at[i], "advisory", "p99")
		goal_at_most("the same, 99th percentile", 1.5, text)
	}
	n = rounds["handover", 500, "dlock", "woken"]
	if (n) {
		text = value["handover", 500, "dlock", "woken", n]
		body = body "\nWith 500 clients each grant woke " text " waiter(s).\n"
		goal("500 waiters: wake-ups for each grant", "1", text, text > 0.99 && text < 1.01)
		text = ratio("handover", 500, "dlock", 32, "dlock", "rate")
		body = body "The rate with 500 clients is " text " of that with 32; an advisory lock's, " \
			ratio("handover", 500, "advisory", 32, "advisory", "rate") \
			".\nWhen the clients take turns among themselves, so that nobody ever stands in line\nfor dlock, it is " \
			ratio("handover", 500, "turns", 32, "turns", "rate") \
			": what so many connections cost without a queue.\n"
	}
}

function many(    text) {
	section("100 names at once", "Names acquired and released per second, 100 to a statement. Redis does the\nsame in pipelines of 100: `SET NX PX`, then the script that deletes a lock if\nits owner is unchanged, without persistence and without a token.\n")
	pair("many", "1 8", "dlock", "redis", "dlock, not durable", \
		"Redis, no persistence")
	if (rounds["many", 8, "dlock_all", "rate"]) {
		body = body "\n`dlock_acquire_all()` takes all or none, which Redis has no pipeline for:\n\n"
		pair("many", "1 8", "dlock_all", "redis", "dlock_acquire_all", \
			"Redis, no persistence")
	}
	text = ratio("many", 1, "dlock", 1, "redis", "rate")
	goal_ratio("100 names in one statement, not durable, against Redis pipelined by 100, 1 client", 2, text)
	text = ratio("many", 8, "dlock", 8, "redis", "rate")
	goal_ratio("100 names in one statement, not durable, against Redis pipelined by 100, 8 clients", 2, text)
	body = body "\nDurable. The heap lock table commits once for all names of a statement; each\nof dlock's calls is durable by itself before the next begins.\n\n"
	pair("many_durable", "1 8", "dlock", "heap", "dlock, durable", \
		"heap lock table, durable")
}

function wal_row(live, who, title,    i, n, list) {
	n = rounds["wal", live, who, "acquire"]
	for (i = 1; i <= n; i++)
		list[i] = value["wal", live, who, "acquire", i] + \
			value["wal", live, who, "release", i]
	spread(list, n)
	cycle_bytes = median
	row(title " | " number(live) " | " \
		figure("wal", live, who, "acquire") " | " \
		figure("wal", live, who, "release") " | " number(cycle_bytes))
}

function wal() {
	section("WAL", "Bytes of WAL, when the pages concerned were changed before since the last\ncheckpoint; `full_page_writes = on`, 1,000 names, with and without other leases\nin the table.\n")
	row("system | other leases | acquire | release | both")
	row("--- | --- | --- | --- | ---")
	wal_row(0, "dlock", "dlock")
	goal("WAL per acquire and release, an empty table", "under 300 bytes", \
		number(cycle_bytes), cycle_bytes < 300)
	wal_row(100000, "dlock", "dlock")
	goal("WAL per acquire and release, 100,000 other leases", "under 300 bytes", \
		number(cycle_bytes), cycle_bytes < 300)
	wal_row(0, "dlock_generic", "dlock, `dlock.generic_wal = on`")
	wal_row(100000, "dlock_generic", "dlock, `dlock.generic_wal = on`")
	row("heap lock table | 0 | | | " figure("wal", 0, "heap", "cycle"))
}

function growth_row(at, who) {
	row(number(at) " | " figure("growth", at, who, "rate") " | " \
		value["growth", at, who, "bytes", 1] " | " \
		figure("growth", at, who, "first_acquire") " | " \
		value["growth", at, who, "fill_seconds", 1])
}

function growth(    text, bytes) {
	section("Many live leases", "Cycles per second over 100,000 other names, 8 clients, not durable,\n`shared_buffers = 3GB`, no checkpoint in the window; the table's size for each\nlease; milliseconds from the start of the server to the first acquire, after a\nclean stop; and seconds it took to acquire them all over two connections.\n")
	row("live leases | cycles per second | bytes a lease | first acquire, ms | filled in, s")
	row("--- | --- | --- | --- | ---")
	growth_row(1000, "few")
	growth_row(leases, "many")
	text = ratio("growth", leases, "many", 1000, "few", "rate")
	goal_ratio(number(leases) " live leases against 1,000: rate", 0.9, text)
	bytes = value["growth", leases, "many", "bytes", 1]
	goal(number(leases) " live leases: size", "at most 200 bytes a lease", bytes, bytes <= 200)
	text = ratio("growth", leases, "many", 1000, "few", "first_acquire")
	goal(number(leases) " live leases against 1,000: time to the first acquire after a restart", \
		"at most 1.1 (not slower, within the noise)", text, median <= 1.1)
}

# Durable cycles on a server of MySQL's kind, with the goals for 1, 8 and 32.
function cycles_on(workload, title, goal_of_1, goal_of_8, goal_of_32,    text) {
	if (!present[workload])
		return
	body = body "\n" title ":\n\n"
	pair(workload, "1 8 32", "dlock", "table", "dlock", "lock table")
	text = ratio(workload, 1, "dlock", 1, "table", "rate")
	goal_ratio(title ", against a lock table, 1 connection", goal_of_1, text)
	text = ratio(workload, 8, "dlock", 8, "table", "rate")
	goal_ratio("the same, 8 connections", goal_of_8, text)
	text = ratio(workload, 32, "dlock", 32, "table", "rate")
	goal_ratio("the same, 32 connections", goal_of_32, text)
}

function mysql_cycles() {
	section("MySQL and MariaDB", "Cycles per second, one acquire and one release each, over 1,000 names of each\nconnection. The lock table has the name as its key, an owner and a deadline; a\ncycle is an INSERT and a DELETE, each a transaction. The servers as they come,\nwhich is durable, but for a buffer pool and a log of 512 MB.")
	cycles_on("mariadb", "MariaDB, no binary log", 1.2, 1.3, 1.5)
	cycles_on("mariadb_binlog", "MariaDB, `log_bin`, `sync_binlog = 1`", 1.2, 1.3, 1.5)
	cycles_on("mysql", "MySQL, with its binary log", 1.3, 1.5, 2)
}

END {
	if (present["durable"])
		cycles_durable()
	if (present["snapshot_durable"])
		snapshots()
	if (present["fast"])
		cycles_fast()
	if (present["handover"])
		handovers()
	if (present["many"])
		many()
	if (present["wal"])
		wal()
	if (present["growth"])
		growth()
	if (present["mariadb"] || present["mysql"])
		mysql_cycles()

	print "# What dlock costs\n"
	print "Written by `make bench`, which measures all of it in one run. The systems of a"
	print "table took turns on the same machine, so their ratios say more than their rates."
	if (machine["trial"] == "yes")
		print "\n**This was a trial run, shorter or smaller than the whole: a hint, no result.**"
	print "\n| | |\n|---|---|"
	print "| processor | " machine["processor"] ", " machine["cores"] " cores, which clients and servers share |"
	print "| memory | " machine["memory"] " |"
	print "| disk | " machine["disk"] \
		(machine["flushes a second"] ? ", " number(machine["flushes a second"]) " flushes of one page a second" : "") " |"
	print "| system | " machine["system"] ", " machine["kernel"] " |"
	print "| versions | dlock " machine["dlock"] \
		(machine["PostgreSQL"] ? ", PostgreSQL " machine["PostgreSQL"] : "") \
		(machine["Redis"] ? ", Redis " machine["Redis"] : "") \
		(machine["mariadb"] ? ", MariaDB " machine["mariadb"] : "") \
		(machine["mysql"] ? ", MySQL " machine["mysql"] : "") " |"
	print "| date | " machine["date"] " |"

	print "\n## Goals\n"
	print "| ratio of dlock | goal | measured | |\n|---|---|---|---|"
	printf "%s", goals

	print "\n## How it was measured\n"
	print "- Closed loop over the Unix socket: pgbench, prepared statements, a thread for\n  each core. " machine["rounds"] " rounds; a turn is " machine["warm-up"] " s of warm-up, not counted, and " machine["window"] " s\n  that count."
	print "- Figures are medians over the rounds, with the lowest and highest in brackets.\n  Ratios are medians of the ratios within each round."
	print "- PostgreSQL as it comes, but `shared_buffers = 1GB`, `min_wal_size = 4GB`, and\n  checkpoints only between rounds. `fsync` and `full_page_writes` are on."
	print "- The heap lock table is `INSERT ... ON CONFLICT (name) DO UPDATE ... WHERE` it\n  has expired `RETURNING token`, then `DELETE`, each a statement that commits by\n  itself; tokens from a sequence; autovacuum on. It starts each turn empty, and\n  is always found by its index."
	print "- Each client has names of its own, so that every acquire must succeed. Every\n  answer was checked, and none was wrong:\n"
	print "| workload | names acquired and released |\n|---|---|"
	n = split("durable snapshot_durable snapshot fast handover many many_durable wal growth mariadb mariadb_binlog mysql", order, " ")
	for (i = 1; i <= n; i++)
		if (checked[order[i]])
			print "| " title_of(order[i]) " | " \
				number(checked[order[i]]) " |"
	printf "%s", body
}

function title_of(workload) {
	if (workload == "snapshot_durable")
		return "an old snapshot, durable"
	if (workload == "snapshot")
		return "an old snapshot, not durable"
	if (workload == "fast")
		return "not durable"
	if (workload == "handover")
		return "hand-over"
	if (workload == "many")
		return "100 names at once, not durable"
	if (workload == "many_durable")
		return "100 names at once, durable"
	if (workload == "wal")
		return "WAL"
	if (workload == "mariadb")
		return "MariaDB"
	if (workload == "mariadb_binlog")
		return "MariaDB, binary log"
	if (workload == "mysql")
		return "MySQL"
	if (workload == "growth")
		return "many live leases"
	return workload
}
