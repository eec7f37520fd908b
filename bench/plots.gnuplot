# plots.gnuplot : draw summary.csv of the current folder, as SVG beside it.
#
# The columns are workload, at, system, measure, median, low, high.

set datafile separator ","
set terminal svg size 960,480 dynamic noenhanced font "sans,12" background "white"
set grid ytics linecolor "#dddddd"
set border 3
set tics nomirror
set key outside right top Left reverse samplen 1

# The medians of a measure: a line "name median low high" for each of the
# systems in a list "SYSTEM=NAME|SYSTEM=NAME...", in its order.
bars(workload, at, measure, list) = sprintf( \
	"<awk -F, -v list='%s' -v w=%s -v at=%s -v m=%s '".pick."' summary.csv", \
	list, workload, at, measure)
pick = "$1 == w && $2 == at && $4 == m { v[$3] = $5 \",\" $6 \",\" $7 } \
	END { n = split(list, s, \"|\"); for (i = 1; i <= n; i++) { \
	split(s[i], p, \"=\"); print p[2] \",\" (p[1] in v ? v[p[1]] : \"NaN,NaN,NaN\") } }"

# The medians of a measure of a system, against what the workload varies.
line(workload, system, measure) = sprintf( \
	"<awk -F, -v w=%s -v s=%s -v m=%s '$1 == w && $3 == s && $4 == m { print $2 \",\" $5 }' summary.csv | sort -n", \
	workload, system, measure)

# The medians of what was done in each second.
seconds(at, system) = sprintf( \
	"<awk -F, -v at=%s -v s=%s '$1 == \"snapshot\" && $2 == at && $3 == s && sub(\"second_\", \"\", $4) { print $4 \",\" $5 }' summary.csv | sort -n", \
	at, system)

# A trial may have left a workload out.
has(workload) = int(system("grep -c '^".workload.",' summary.csv || true")) > 0

systems = "pg.dlock=dlock PostgreSQL|pg.heap=heap table|redis-aof.redisson=Redisson aof|redis-aof.set-nx=SET NX aof|mysql.dlock=dlock MySQL|mysql.table=table MySQL|mariadb.dlock=dlock MariaDB|mariadb.table=table MariaDB|zookeeper=ZooKeeper|etcd=etcd|pg-async.dlock=dlock async|pg-async.advisory=advisory lock|redis.redisson=Redisson|redis.set-nx=SET NX|mysql.get-lock=GET_LOCK MySQL|mariadb.get-lock=GET_LOCK MariaDB"

set logscale y
set style fill solid
set boxwidth 0.9 relative
set xtics rotate by -35
set format y "%.0f"

set style data histograms
set style histogram clustered gap 1
set arrow 1 from 9.5, graph 0 to 9.5, graph 1 nohead dashtype 3 linecolor "#888888"

if (has("cycle")) {
	set output "cycles.svg"
	set title "Acquire and release, cycles per second; to the left of the gap, durable"
	plot bars("cycle", "1", "rate", systems) using 2:xtic(1) title "1 client" linecolor "#9ecae1", \
		bars("cycle", "8", "rate", systems) using 2 title "8 clients" linecolor "#4292c6", \
		bars("cycle", "32", "rate", systems) using 2 title "32 clients" linecolor "#084594"
}

if (has("hot")) {
	set output "handover.svg"
	set title "One hot name: from a release to the next client's grant, microseconds, 8 clients"
	plot bars("hot", "8", "handover_p50", systems) using 2:xtic(1) title "median" linecolor "#4292c6", \
		bars("hot", "8", "handover_p99", systems) using 2 title "99 %" linecolor "#c6dbef"
}

unset arrow 1
unset style
set style data linespoints
set xtics norotate

set logscale x
set format x "%.0f"

if (has("growth")) {
	set output "growth.svg"
	set title "Cycles per second beside live leases, 8 clients"
	set xlabel "live leases"
	plot line("growth", "pg-async.dlock", "rate") title "dlock async" linewidth 2 linecolor "#084594", \
		line("growth", "few.dlock", "rate") title "dlock async, 1,000 leases" dashtype 2 linecolor "#084594", \
		line("growth", "pg-async.heap", "rate") title "heap table async" linecolor "#4292c6", \
		line("growth", "redis.redisson", "rate") title "Redisson" linecolor "#cb181d", \
		line("growth", "mysql.dlock", "rate") title "dlock MySQL" linewidth 2 linecolor "#238b45", \
		line("growth", "mysql.table", "rate") title "table MySQL" linecolor "#74c476", \
		line("growth", "mariadb.dlock", "rate") title "dlock MariaDB" linewidth 2 linecolor "#d94801", \
		line("growth", "mariadb.table", "rate") title "table MariaDB" linecolor "#fd8d3c", \
		line("growth", "zookeeper", "rate") title "ZooKeeper" linecolor "#6a51a3", \
		line("growth", "etcd", "rate") title "etcd" linecolor "#9e9ac8"
}

unset logscale x

if (has("snapshot")) {
	set output "snapshot.svg"
	set title "Durable cycles per second over 100 names, 8 clients, while a snapshot is held"
	set xlabel "seconds"
	plot seconds("held", "pg.dlock") title "dlock" linewidth 2 linecolor "#084594", \
		seconds("without", "pg.dlock") title "dlock, without" dashtype 2 linecolor "#084594", \
		seconds("held", "pg.heap") title "heap table" linecolor "#cb181d", \
		seconds("held", "mysql.dlock") title "dlock MySQL" linewidth 2 linecolor "#238b45", \
		seconds("held", "mysql.table") title "table MySQL" linecolor "#74c476"
}
