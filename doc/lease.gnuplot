# lease.gnuplot : the picture of a lease's life, doc/lease.svg, for README.md.
#
#   gnuplot doc/lease.gnuplot
#
# dev/links.t sees to it that the picture has all words that are said here.

set terminal svg size 860,330 noenhanced font "sans-serif,13" background "white"
set output "doc/lease.svg"
unset border
unset key
unset ytics
set margins 9, 2, 3, 1
set xrange [0:82]
set yrange [0:7.4]
set xtics 0, 10, 80 nomirror scale 0.5
set label "seconds" at -1, -0.62 right
set object rectangle from 0, 0 to 82, 7.4 fillstyle empty noborder
set style fill solid 1 noborder

# the lease
set label "the lease" at -1, 6 right
set object rectangle from 0, 5.6 to 50, 6.4 fillcolor rgb "#7fb2dd"
set object rectangle from 50, 5.6 to 68, 6.4 fillcolor rgb "#8fc98a"
set object rectangle from 68, 5.6 to 82, 6.4 fillcolor rgb "#eeeeee"
set label "held by worker-1, token 1" at 25, 6 center
set label "worker-2, token 2" at 59, 6 center
set label "free" at 75, 6 center

# its deadline, and how each renewal moves it
set label "deadlines" at -1, 5 right textcolor rgb "#a03030"
set style arrow 1 head filled size 0.8, 20 linewidth 1.5 linecolor rgb "#a03030"
set arrow from 0, 5.1 to 30, 5.1 arrowstyle 1
set arrow from 10, 4.8 to 40, 4.8 arrowstyle 1
set arrow from 20, 4.5 to 50, 4.5 arrowstyle 1
set arrow from 50, 5.1 to 80, 5.1 arrowstyle 1
set arrow from 50, 4.3 to 50, 6.7 nohead dashtype 3 linecolor rgb "#a03030"
set label "the deadline passes" at 50, 6.95 center textcolor rgb "#a03030"

# worker-1
set label "worker-1" at -1, 3 right
set object rectangle from 0, 2.75 to 25, 3.25 fillcolor rgb "#7fb2dd"
set arrow from 0, 2.75 to 0, 3.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set arrow from 10, 2.75 to 10, 3.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set arrow from 20, 2.75 to 20, 3.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set label "acquire" at 0, 3.9
set label "renew" at 11, 3.9 center
set label "renew" at 20, 3.9 center
set label "works" at 5, 3 center
set label "dies, and renews no more" at 26, 3

# worker-2
set label "worker-2" at -1, 1 right
set arrow from 15, 1 to 50, 1 nohead dashtype 2 linewidth 2 linecolor rgb "#808080"
set object rectangle from 50, 0.75 to 68, 1.25 fillcolor rgb "#8fc98a"
set arrow from 15, 0.75 to 15, 1.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set arrow from 50, 0.75 to 50, 1.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set arrow from 68, 0.75 to 68, 1.6 nohead linewidth 2 dashtype 1 linecolor rgb "#000000"
set label "acquire, wait up to 60 s" at 15, 1.9
set label "waits in line" at 32, 0.6 center textcolor rgb "#606060"
set label "is granted the lease" at 50, 1.9
set label "works" at 59, 1 center
set label "release" at 68, 1.9

plot NaN
