#!/usr/bin/env bash
# Runs a command on an overloaded machine: four busy loops for each core run beside it.
#
#   ci/busy.sh cargo test --test locks red_lock
#
# Ends the loops when the command ends, and with it all that it started when this script is told to end. Exits with the
# command's status.
set -euo pipefail
(($# > 0)) || { echo "usage: ci/busy.sh COMMAND [ARGUMENT...]" >&2; exit 2; }

loops=()
command=
end_all() {
    local pid
    for pid in ${command:+"-$command"} "${loops[@]}"; do
        kill -- "$pid" 2>/dev/null || true
    done
    wait
}
trap end_all EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Each checks now and then whether this script still runs, in case the script is killed.
parent=$$
busy() {
    local i
    while kill -0 "$parent" 2>/dev/null; do
        for ((i = 0; i < 100000; i++)); do :; done
    done
}

for ((n = 4 * $(nproc); n > 0; n--)); do
    busy &
    loops+=("$!")
done

# In the background, so that a signal is handled at once, but still with our input; a job, so that it has a group of
# its own: `make` does not end what it started.
set -m
"$@" <&0 &
command=$!
set +m
status=0
wait "$command" || status=$?
command=
exit "$status"
