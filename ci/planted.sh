#!/usr/bin/env bash
# Plants each fault of verify/planted/, one at a time, and shows that the models and tests named
# there notice it. All of them must pass without a fault, and fail with theirs: with the expected
# message, not by a timeout. Fails otherwise.
# FAULTS="no-timer any-number" plants only these. SIMULATE=1 plays the simulation with each of them instead, until four of
# its SEEDS (or FAILURES) have failed, and prints how many were played, and which checks failed.
# HISTORIES=3 makes as many histories with each of them instead (tests/faults/history.rs), and prints in how many of them
# something is wrong for our own checks, and for the checker in Go.
# CHECK=1 only checks that the sources with all faults compile.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
cargo=${CARGO:-cargo}
# The same in every run, so that what is found by chance is found again.
export SEED=${SEED:-1}
# The slowest of them takes half a minute on an idle machine.
limit=600
unset PLANTED MODELS
export RUST_BACKTRACE=0

# One build for all faults, of a copy of the sources. What they depend on is there already, from other builds: only the
# workspace's own packages are compiled by what switches the faults on.
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR
sources=$CARGO_TARGET_DIR/planted/sources
planter=$CARGO_TARGET_DIR/planted/plant
export RUSTC_WORKSPACE_WRAPPER=$CARGO_TARGET_DIR/planted/rustc
mkdir -p "$sources"
printf '%s\n' '#!/bin/sh' 'exec "$@" --cfg planted' >"$RUSTC_WORKSPACE_WRAPPER"
chmod +x "$RUSTC_WORKSPACE_WRAPPER"
"${RUSTC:-rustc}" --edition 2024 -o "$planter" verify/planted/plant.rs
git ls-files --cached --others --exclude-standard | "$planter" "$sources"
if [[ -e Cargo.lock ]]; then cp Cargo.lock "$sources"; fi

if [[ ${CHECK:-} ]]; then
    cd "$sources"
    exec "$cargo" check --package verify --tests
fi

# The output of the last command.
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# The test binary of each target built so far.
declare -A binary
build() {
    local line
    echo "building: $*"
    if ! (cd "$sources" && exec "$cargo" test --no-run "$@") 2>"$output"; then
        cat "$output"
        exit 1
    fi
    while IFS= read -r line; do
        [[ $line =~ Executable\ (\.\./src/lib|tests/([a-z_]+)(/main)?)\.rs\ \((.*)\) ]] || continue
        binary[${BASH_REMATCH[2]:-lib}]=${BASH_REMATCH[4]}
    done <"$output"
}

# try FAULT TARGET TEST [ARGUMENT]: runs one test with this fault; '' for none.
try() {
    PLANTED=$1 timeout "$limit" "${binary[$2]}" --exact --nocapture "${@:3}" >"$output" 2>&1
}

# try_none TARGET TEST: the test must pass without a fault; the second time, if the machine is busy.
try_none() {
    for _ in 1 2; do
        if try '' "$1" "$2" && grep -q '^test result: ok. 1 passed' "$output"; then return; fi
    done
    cat "$output"
    echo "no fault is planted, and this does not pass: $1 $2"
    exit 1
}

# caught FAULT TARGET TEST WORDS: whether the test fails with these words. On a busy machine it may
# fail earlier, because of its own short leases, and is then tried again.
caught() {
    local status
    for _ in 1 2; do
        status=0
        try "$1" "$2" "$3" || status=$?
        [[ $status == 101 ]] || return 1
        if grep -qF -- "$4" "$output"; then return 0; fi
    done
    return 1
}

row() { printf '%-24s %-76s %-10s %7s\n' "$@"; }

seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }

only=$(printf '%s\n' ${FAULTS:-} | sed -n 's/..*/^&|/p')
mapfile -t table < <("$planter" --list | grep -e "$only")
((${#table[@]})) || { echo "no such fault: $FAULTS"; exit 1; }
mapfile -t faults < <(printf '%s\n' "${table[@]}" | cut -d '|' -f 1 | sort -u)

if [[ ${SIMULATE:-} ]]; then
    CARGO_TARGET_DIR=$CARGO_TARGET_DIR/shuttle
    export RUSTFLAGS="${RUSTFLAGS-} --cfg shuttle"
    # Not 3, after which each is shrunk.
    export SEEDS=${SEEDS:-1000} FAILURES=${FAILURES:-4}
    build --release --package verify
    printf '%-28s %-14s %s\n' fault 'fails' checks
    for fault in '' "${faults[@]}"; do
        try "$fault" lib engine::simulation::runs::simulate || true
        failed=$(sed -n 's/^ *\([0-9]*\)  failed: /\1 /p' "$output")
        played=$(sed -n 's/^\([0-9]*\) seeds, .*/\1/p' "$output")
        printf '%-28s %-14s %s\n' "${fault:-none}" "$(awk '{ n += $1 } END { print n + 0 }' <<<"$failed") of ${played:-none}" \
            "$(awk 'NF { n = $1; $1 = ""; printf "%s%s %d", s, substr($0, 2), n; s = ", " }' <<<"$failed")"
        if [[ -z $fault && $failed ]]; then
            cat "$output"
            exit 1
        fi
    done
    exit
fi

if [[ ${HISTORIES:-} ]]; then
    go -C checker build -o "$CARGO_TARGET_DIR/check-history" .
    build --test faults
    export HISTORY=$CARGO_TARGET_DIR/history.jsonl
    printf '%-28s %-8s %s\n' fault ours Porcupine
    for fault in '' "${faults[@]}"; do
        ours=0 porcupine=0
        for ((SEED = 1; SEED <= HISTORIES; SEED++)); do
            rm -f "$HISTORY"
            SECONDS=20 try "$fault" faults history::history_of_the_given_seed --ignored || ours=$((ours + 1))
            "$CARGO_TARGET_DIR/check-history" "$HISTORY" >"$output" || true
            ! grep -q VIOLATION "$output" || porcupine=$((porcupine + 1))
        done
        printf '%-28s %-8s %s\n' "${fault:-none}" $ours $porcupine
    done
    exit
fi

build --package verify
mapfile -t targets < <(printf '%s\n' "${table[@]}" | cut -d '|' -f 2 | grep -v '^lib$' | sort -u)
build --package redis-concurrent --package redis-concurrent-partitions "${targets[@]/#/--test=}"

echo "planted faults: ${#faults[@]}, first without any"
mapfile -t tests < <(printf '%s\n' "${table[@]}" | cut -d '|' -f 2,3 | sort -u)
for entry in "${tests[@]}"; do
    IFS='|' read -r target test <<<"$entry"
    try_none "$target" "$test"
done

row fault 'caught by' after seconds
missed=0
for entry in "${table[@]}"; do
    IFS='|' read -r fault target test says <<<"$entry"
    began=$(date +%s%3N)
    found=yes
    caught "$fault" "$target" "$test" "$says" || found=
    took=$(seconds $(($(date +%s%3N) - began)))
    if [[ $found ]]; then
        # A model prints its steps; a randomized test prints the seed of each run.
        after=$(sed -n 's/^not .*, in \([0-9]* steps\):.*/\1/p' "$output")
        runs=$(grep -c 'SEED=' "$output" || true)
        [[ -n $after ]] || after="run $((runs > 0 ? runs : 1))"
        row "$fault" "${target/lib/src}: ${test##*::}" "$after" "$took"
    else
        tail -30 "$output"
        row "$fault" "NOT CAUGHT by $target: ${test##*::}" - "$took"
        missed=$((missed + 1))
    fi
done
if ((missed > 0)); then
    echo "$missed times a fault went unnoticed, or was noticed for another reason than: see verify/planted/faults.rs"
    exit 1
fi
echo "all were caught, in $SECONDS s"
