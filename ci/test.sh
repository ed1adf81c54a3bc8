#!/usr/bin/env bash
# Builds and runs the tests as `cargo test` does, but first what computes, on all cores and with nothing beside it, then
# two test binaries at a time: most tests wait for something, so one after the other they leave half of a machine idle.
# Shows what each has printed once it has ended; all of them run, even if one fails.
#
#   ci/test.sh [ARGUMENT OF CARGO...]
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
cargo=${CARGO:-cargo}
# Cargo sets this for what it runs itself.
RUST_TEST_THREADS=$(sed -n 's/^RUST_TEST_THREADS = "\(.*\)"$/\1/p' .cargo/config.toml)
export RUST_TEST_THREADS lock=$PWD/ci/test.sh

# FOLDER<tab>EXECUTABLE: runs a test binary, in its package's folder.
run() {
    local folder executable output status=0 began=$SECONDS
    IFS=$'\t' read -r folder executable <<<"$1"
    output=$(mktemp)
    (cd "$folder" && exec "$executable") >"$output" 2>&1 || status=1
    exec 9<"$lock"
    flock 9
    printf '\n     Running %s\n' "$executable"
    cat "$output"
    printf '     took %d s: %s\n' $((SECONDS - began)) "$executable"
    rm "$output"
    return $status
}
export -f run

binaries=$("$cargo" test --no-run --message-format=json-render-diagnostics "$@" |
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1\t\2/p')
[[ $binaries == *$'\n'* ]] || { echo "ci/test.sh: cargo named no test binaries" >&2; exit 1; }
# A program that tests/tools/demo.rs runs: seventeen tests would wait for it to be built beside all others.
"$cargo" build --quiet --bin flash_sale --examples

# So many of the binaries that it reads at a time.
at_a_time() {
    xargs -r -d '\n' -P "$1" -n 1 bash -c 'run "$1"' test
}

failed=0
# What computes would last as long as all others beside them, and what waits would miss its times.
sed -n '/\/verify-[^/]*$/p' <<<"$binaries" | RUST_TEST_THREADS=$(nproc) at_a_time 1 || failed=1
# The longest first.
sed '/\/verify-[^/]*$/d' <<<"$binaries" |
    awk -F / '{ name = $NF; sub(/-.*/, "", name); n = index("faults tools locks lua cli", name); print n ? n : 99, $0 }' |
    sort -s -n -k 1,1 | cut -d ' ' -f 2- | at_a_time 2 || failed=1
exit $failed
