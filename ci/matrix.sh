#!/usr/bin/env bash
# Runs the tests whose outcome may depend on the server on each server of ci/servers.sh, and prints a table of
# how many passed, of how many.
#
#   ci/matrix.sh [NAME...]             all servers, or the named ones
#   ONLY="Lua replicas" ci/matrix.sh   only these groups of tests
#   LIMIT=600                          how long the tests of one module may take, in seconds
#   SAVE=1                             puts the rows into the table of docs/operations.md, in place of those of the same
#                                      servers; if its columns differ, in place of all
#
# A test that did not pass is run again, alone, before it counts as failed: the machine may be busy. Fails if a
# test fails twice, and names it on standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
cargo=${CARGO:-cargo}
limit=${LIMIT:-600}

# GROUP: its tests, each a binary, or a module of one; `verify` is the binary of the package of that name.
groups="
Lua           lua
transports    faults::transports
replicas      locks::replicas
refusals      faults::refusals
cost          tools::cost
releases      locks::unlocking locks::grants faults::stall
synchronizers locks::condition synchronizers::semaphore synchronizers::latch synchronizers::barrier
contract      locks::contract
topologies    faults::sentinel faults::cluster faults::dns
bad-days      faults::bad_days_server faults::bad_days_network
conformance   faults::conformance
engine        locks::invariants locks::safety_rules locks::read_write synchronizers::inventory locks::receipts
              locks::close locks::terms
memory        verify::engine::simulation::compare
"

say() { echo "matrix: $*" >&2; }

# of_group GROUP: prints its tests.
of_group() {
    local words
    read -ra words < <(sed -z 's/\n  */ /g' <<<"$groups" | awk -v group="$1" '$1 == group { $1 = ""; print }')
    [ ${#words[@]} -gt 0 ] || { say "there is no group $1"; return 1; }
    printf '%s\n' "${words[@]}"
}

# target BINARY: prints what cargo calls it.
target() {
    if [ "$1" = verify ]; then echo --package verify; else echo --test "$1"; fi
}

# named BINARY MODULE [ARGUMENT...]: prints the names of the module's tests that cargo lists with these arguments;
# without a module, of all. Leaves out the tests of TLS, which not all servers of ci/servers.sh support: `make test`
# runs them on the system's server.
named() {
    "$cargo" test $(target "$1") -- --list "${@:3}" 2>/dev/null | sed -n 's/: test$//p' | grep "^${2:+$2::}" |
        grep -v '^transports::tls::' | sort
}

# try PROGRAM TESTS: prints how many passed, and of how many; fails if one failed twice. Nothing else goes to
# standard output.
try() {
    local log=$logs/log all tests test failed=0 binary=${2%%::*} module=
    [[ $2 != *::* ]] || module=${2#*::}
    all=$(comm -23 <(named "$binary" "$module") <(named "$binary" "$module" --ignored))
    [ -n "$all" ] || { say "$2: no test is listed"; echo 0 0; return 1; }
    mapfile -t tests <<<"$all"
    REDIS_SERVER_BIN=$1 timeout "$limit" "$cargo" test $(target "$binary") -- --exact "${tests[@]}" >"$log" 2>&1 || true
    while read -r test; do
        say "$binary: $test did not pass: once more"
        REDIS_SERVER_BIN=$1 timeout "$limit" "$cargo" test $(target "$binary") -- --exact "$test" >"$log.again" 2>&1 && continue
        tail -n 40 "$log.again" >&2
        say "failed twice: $binary: $test"
        failed=$((failed + 1))
    done < <(comm -23 <(echo "$all") <(sed -nE 's/^test (.*[^ ])( - should panic)? \.\.\. ok$/\1/p' "$log" | sort))
    local run
    run=$(wc -l <<<"$all")
    echo $((run - failed)) "$run"
    [ $failed = 0 ]
}

# row PROGRAM: prints one row of the table; fails if a test failed twice.
row() {
    local group tests passed run some all status=0 line
    line=$("$1" --version | sed -E 's/^Server v=/Valkey server v=/; s/^(Redis|Valkey) server v=([0-9.]+).*/\1 \2/')
    for group in "${columns[@]}"; do
        passed=0 run=0
        for tests in $(of_group "$group"); do
            read -r some all < <(try "$1" "$tests")
            passed=$((passed + some)) run=$((run + all))
        done
        [ $passed = $run ] || status=1
        line="$line | $passed/$run"
    done
    echo "| $line | $(date -u +%F), $(git rev-parse --short=7 HEAD) |"
    return $status
}

# save TABLE: puts it into docs/operations.md.
save() {
    awk '
        function server(row, words) { split(row, words, " *[|] *"); return words[2] }
        FNR == NR { rows[++n] = $0; mine[server($0)] = 1; next }
        /^<!-- servers:/ { inside = 1; print; print ""; next }
        inside && /^[|]/ { old[++m] = $0; next }
        inside && /^<!-- end -->/ {
            print rows[1]; print rows[2]
            # In the order of their names, each once.
            for (i = 3; i <= m && old[1] == rows[1]; i++) if (!(server(old[i]) in mine)) print old[i] | "sort -V"
            for (i = 3; i <= n; i++) print rows[i] | "sort -V"
            close("sort -V"); print ""; inside = 0
        }
        !inside { print }' "$1" docs/operations.md >"$1.page"
    cat "$1.page" >docs/operations.md
}

read -ra columns <<<"${ONLY:-$(awk '/^[^ ]/ { print $1 }' <<<"$groups" | xargs)}"
names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(ci/servers.sh)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export LC_ALL=C

# Reports what is missing before anything runs.
build=() programs=()
for group in "${columns[@]}"; do
    tests=$(of_group "$group")
    for test in $tests; do build+=("${test%%::*}"); done
done
for name in "${names[@]}"; do
    program=$(ci/servers.sh "$name")
    programs+=("$program")
done
for binary in $(printf '%s\n' "${build[@]}" | sort -u); do
    "$cargo" test --quiet --no-run $(target "$binary")
done

table=$logs/table
{
    # With a soft hyphen in the longest word, so that the table fits on a narrow screen.
    { printf '| server |'; printf ' %s |' "${columns[@]}"; echo ' run |'; } | sed 's/ transports / trans\&shy;ports /'
    printf '| --- |'; printf ' ---: |%.0s' "${columns[@]}"; echo ' --- |'
} | tee "$table"
status=0
for program in "${programs[@]}"; do
    row "$program" | tee -a "$table" || status=1
done
[ -z "${SAVE:-}" ] || save "$table"
exit $status
