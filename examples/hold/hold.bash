#!/bin/bash
# hold.bash NAME SECONDS : a script that needs a lease for a part of it, which "dlock hold"
# holds.  For all of it "dlock run" is shorter.

set -u
name=$1
seconds=$2

coproc hold { exec dlock hold --quiet "$name"; }
dlock=$!
exec {from}<&"${hold[0]}" {to}>&"${hold[1]}"
eval "exec ${hold[0]}<&- ${hold[1]}>&-"
if ! read -r line <&"$from"; then
	echo busy
	exit
fi
token=${line##*'"token": '}
echo "held ${token%%,*}"

# a step of the work, again and again, while it goes on
for ((step = 0; step < 10 * seconds; step++)); do
	kill -0 "$dlock" 2>/dev/null || break
	sleep 0.1
done

exec {to}>&- # gives it back
if wait "$dlock"; then
	echo "done"
else
	echo lost
fi
