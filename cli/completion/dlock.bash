# dlock.bash: completion of the command dlock in bash.  shellcheck shell=bash
#
# Subcommands and options, and after the name of "run" and "elect" the command and
# its own completion, if the package bash-completion is there.  It asks no server.
#
# SPDX-License-Identifier: PostgreSQL

# The options of a subcommand; t/cli/page.pl compares them with --help.
_dlock_options() {
	case $1 in
	run) echo --ttl --wait --no-wait --shared --permits --all --keep --owner --on-lost \
		--grace --timeout --own-status --quiet --url --help --version ;;
	hold) echo --ttl --wait --no-wait --shared --permits --keep --owner --kill-parent --grace \
		--timeout --quiet --url --help --version ;;
	elect) echo --ttl --permits --owner --grace --exec-on-lose --ready-file --url --help \
		--version ;;
	acquire) echo --url --ttl --owner --wait --shared --permits --request --timeout \
		--json --help --version ;;
	renew) echo --url --ttl --owner --token --timeout --json --help --version ;;
	release) echo --url --owner --token --timeout --json --help --version ;;
	wait) echo --url --wait --timeout --json --help --version ;;
	force-release) echo --url --owner --timeout --json --help --version ;;
	owner | ls | waiters | stats | log) echo --url --timeout --json --help --version ;;
	top) echo --url --delay --timeout --help --version ;;
	doctor) echo --url --try --self-test --timeout --json --help --version ;;
	esac
}

# Options whose argument is the next word.
_dlock_takes_argument() {
	case $1 in
	--url | --ttl | --wait | --permits | --keep | --owner | --on-lost | --grace | --own-status | \
		--exec-on-lose | --ready-file | --request | --token | --timeout | --delay) return 0 ;;
	-[utwpkogrdE]) return 0 ;;
	*) return 1 ;;
	esac
}

_dlock() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local subcommand=${COMP_WORDS[1]} i name=''
	COMPREPLY=()

	if [ "$COMP_CWORD" -eq 1 ]; then
		mapfile -t COMPREPLY < <(compgen -W 'run hold elect acquire renew release wait owner
			force-release ls waiters stats top log doctor --help --version' -- "$word")
		return
	fi

	# the command of "run" and "elect", with words of its own
	case $subcommand in
	run | elect)
		for ((i = 2; i < COMP_CWORD; i++)); do
			# --ttl=5 is three words
			if [[ ${COMP_WORDS[i]} = --* && ${COMP_WORDS[i + 1]} = = ]]; then
				i=$((i + 2))
			elif _dlock_takes_argument "${COMP_WORDS[i]}"; then
				i=$((i + 1))
			elif [ "${COMP_WORDS[i]}" = -- ]; then
				name=--
				i=$((i + 1))
				break
			elif [[ ${COMP_WORDS[i]} != -* ]]; then
				[ -z "$name" ] || break
				name=${COMP_WORDS[i]}
			fi
		done
		if [ -n "$name" ] && [ "$i" -le "$COMP_CWORD" ]; then
			if [ "$word" = -- ] && [ "$name" != -- ]; then
				COMPREPLY=(--)
			elif declare -F _command_offset >/dev/null; then
				_command_offset "$i"
			else
				mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
			fi
			return
		fi
		;;
	esac

	case $previous in
	--on-lost) mapfile -t COMPREPLY < <(compgen -W 'term warn' -- "$word") ;;
	--ready-file) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
	--wait | -w) mapfile -t COMPREPLY < <(compgen -W 'forever 10s 1m 10m' -- "$word") ;;
	--ttl | -t | --keep | -k | --grace | -g | --timeout | --delay | -d)
		mapfile -t COMPREPLY < <(compgen -W '10s 30s 1m 10m' -- "$word")
		;;
	*)
		_dlock_takes_argument "$previous" ||
			mapfile -t COMPREPLY < <(compgen -W "$(_dlock_options "$subcommand")" -- "$word")
		;;
	esac
}

complete -F _dlock dlock
