#!/usr/bin/env bash
# Runs the tests whose outcome may depend on the server on each server of ci/servers.sh, and prints a table of
# how many passed, of how many.
#
#   ci/matrix.sh [NAME...]             all servers, or the named ones
#   ONLY="Lua replicas" ci/matrix.sh   only these groups of tests
#   LIMIT=600                          how long one test file may take, in seconds
#
# A test that did not pass is run once more, alone, before it counts: the machine may be busy. Fails if a test
# fails twice, and names it on standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
cargo=${CARGO:-cargo}
limit=${LIMIT:-600}

# GROUP: its test files.
groups="
Lua           lua_*
transports    transports
replicas      replicas
refusals      refusals
cost          cost
releases      unlocking grants stall
synchronizers condition semaphore latch barrier
contract      contract
bad-days      bad_days_server
locks         invariants safety_rules read_write stock receipts close terms
"

say() { echo "matrix: $*" >&2; }

# of_group GROUP: its test files, without folder and ending.
of_group() {
    local words pattern file
    read -ra words < <(awk -v group="$1" '$1 == group { $1 = ""; print }' <<<"$groups")
    [ ${#words[@]} -gt 0 ] || { say "there is no group $1"; return 1; }
    for pattern in "${words[@]}"; do
        for file in tests/$pattern.rs; do basename "$file" .rs; done
    done
}

# named ARGUMENT...: the names of a file's tests that cargo lists with these arguments.
named() {
    "$cargo" test "$@" 2>/dev/null | sed -n 's/: test$//p' | sort
}

# try PROGRAM FILE: prints how many passed, and of how many; fails if one failed twice. Its standard output
# is its answer.
try() {
    local log=$logs/log all test failed=0
    all=$(comm -23 <(named --test "$2" -- --list) <(named --test "$2" -- --list --ignored))
    [ -n "$all" ] || { say "$2: no test is listed"; echo 0 0; return 1; }
    REDIS_SERVER_BIN=$1 timeout "$limit" "$cargo" test --test "$2" >"$log" 2>&1 || true
    while read -r test; do
        say "$2: $test did not pass: once more"
        REDIS_SERVER_BIN=$1 timeout "$limit" "$cargo" test --test "$2" -- --exact "$test" >"$log.again" 2>&1 && continue
        tail -n 40 "$log.again" >&2
        say "failed twice: $2: $test"
        failed=$((failed + 1))
    done < <(comm -23 <(echo "$all") <(sed -nE 's/^test (.*[^ ])( - should panic)? \.\.\. ok$/\1/p' "$log" | sort))
    local run
    run=$(wc -l <<<"$all")
    echo $((run - failed)) "$run"
    [ $failed = 0 ]
}

# row PROGRAM: one row of the table; fails if a test failed twice.
row() {
    local group file passed run some all status=0 line
    line=$("$1" --version | sed -E 's/^(Redis|Valkey) server v=([0-9.]+).*/\1 \2/')
    for group in "${columns[@]}"; do
        passed=0 run=0
        for file in $(of_group "$group"); do
            read -r some all < <(try "$1" "$file")
            passed=$((passed + some)) run=$((run + all))
        done
        [ $passed = $run ] || status=1
        line="$line | $passed/$run"
    done
    echo "| $line |"
    return $status
}

read -ra columns <<<"${ONLY:-$(awk 'NF { print $1 }' <<<"$groups" | xargs)}"
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(ci/servers.sh)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export LC_ALL=C

# What is missing is told before anything runs.
build=() programs=()
for group in "${columns[@]}"; do
    files=$(of_group "$group")
    for file in $files; do build+=(--test "$file"); done
done
for name in "${names[@]}"; do
    program=$(ci/servers.sh "$name")
    programs+=("$program")
done
"$cargo" test --quiet --no-run "${build[@]}"

printf '| server |'; printf ' %s |' "${columns[@]}"; echo
printf '| --- |'; printf ' ---: |%.0s' "${columns[@]}"; echo
status=0
for program in "${programs[@]}"; do
    row "$program" || status=1
done
exit $status
