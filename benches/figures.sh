#!/usr/bin/env bash
# Measures what docs/design/benchmarks.md shows: each part goes to docs/design/benchmarks/<part>.jsonl, and the
# table and the pictures are made of these files. By the environment:
#
#   FIGURES       the parts (pair threads reentry processes crowds local-handoff handoff renewal names
#                 reading readers signals permits starts limiter multi stock optimistic
#                 redlock linger)
#   ROUNDS        how many rounds a figure is the median of (5)
#   SECONDS       how long a round lasts (1)
#   LOCKS, KEEP   renewal, in one round: how many locks are held (100000), for how many seconds (60)
#   NAMES         names, in one round: how many (1000000)
#   FIGURES_DIR   where everything goes (docs/design/benchmarks)
set -euo pipefail
exec </dev/null
# bash has counted its own time in SECONDS since it started.
seconds=$(tr '\0' '\n' <"/proc/$$/environ" | sed -n 's/^SECONDS=//p')
seconds=${seconds:-1}
rounds=${ROUNDS:-5}
parts=${FIGURES:-pair threads reentry processes crowds local-handoff handoff renewal names reading readers signals permits starts limiter multi stock optimistic redlock linger}
where=$(realpath -m "${FIGURES_DIR:-$(dirname "$0")/../docs/design/benchmarks}")
cd "$(dirname "$0")/.."

# Quotes for JSON what some program says of itself.
quoted() { printf '"%s"' "$(tr -d '\\"[:cntrl:]' <<<"$1")"; }

# The first line of each file: where and when its figures come from.
about() {
    local cpu redis rust commit load
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    redis=$("${REDIS_SERVER_BIN:-redis-server}" --version | sed -n 's/.* v=\([^ ]*\).*/\1/p')
    rust=$(rustc --version | cut -d ' ' -f 2)
    commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    # Figures of a changed tree are not the commit's.
    git diff --quiet HEAD -- Cargo.toml Cargo.lock src lua benches 2>/dev/null || commit+=", changed"
    read -r load _ </proc/loadavg
    printf '{"about":{"cores":%d,"cpu":%s,"redis":%s,"rustc":%s,"date":"%s","commit":%s,"load":%s}}\n' \
        "$(nproc)" "$(quoted "$cpu")" "$(quoted "$redis")" "$(quoted "$rust")" "$(date -u +%F)" \
        "$(quoted "$commit")" "$load"
}

# One command of a part, on one core and wherever the system puts it.
both() {
    local pin
    for pin in same none; do
        echo "  contention --pin $pin $*" >&2
        "$contention" --json --pin "$pin" "$@" || return
    done
}

short() { both --rounds "$rounds" --seconds "$seconds" "$@"; }

part() {
    case $1 in
    pair)
        short --workload uncontended --kind simple &&
            short --workload uncontended --kind reentrant
        ;;
    threads)
        short --workload uncontended --threads 8,32 &&
            short --workload uncontended --threads 8 --connections 1
        ;;
    reentry) short --workload reentry ;;
    # The first is what the others are compared with.
    processes) short --workload contended --local-handoff-us fair,default --processes 2,1,4,8,16 ;;
    crowds) short --workload contended --local-handoff-us fair --processes 2,4,16 --threads 8 ;;
    local-handoff) short --workload contended --local-handoff-us fair,default,250,500,1000,2000,4000,8000 --processes 2 --threads 8 ;;
    handoff) short --workload handoff --hold-us 1000 ;;
    renewal)
        both --workload renewal --lease-ms 30000 --rounds 1 \
            --locks "${LOCKS:-100000}" --seconds "${KEEP:-60}"
        ;;
    names) both --workload names --names "${NAMES:-1000000}" ;;
    reading) short --workload contended --kind read --local-handoff-us 0,default --processes 2 --threads 8 ;;
    readers) short --workload writer && short --workload downgrade ;;
    signals) short --workload signal ;;
    permits) short --workload contended --kind semaphore --processes 16 ;;
    starts) short --workload latch && short --workload barrier ;;
    limiter) short --workload limiter ;;
    multi) short --workload multi ;;
    stock) short --workload stock ;;
    # Where the second overtakes the first, a lock is the better choice.
    optimistic)
        short --workload contended --kind optimistic --processes 1,2,4,8,16,32 &&
            short --workload contended --kind locked --processes 1,2,4,8,16,32
        ;;
    redlock) short --workload redlock ;;
    linger) short --workload linger ;;
    *)
        echo "there is no part $1" >&2
        return 1
        ;;
    esac
}

mkdir -p "$where"
new=$(mktemp "$where/.new.XXXXXX")
trap 'rm -f "$new"' EXIT
# Built once: whatever is edited meanwhile, all figures are of one program.
cargo bench --bench contention --no-run
contention=$(cargo bench --bench contention --no-run 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
about=$(about)
failed=
for name in $parts; do
    began=$(date +%s)
    echo "$name" >&2
    # All of a part or nothing: one that fails or is interrupted leaves the old figures.
    printf '%s\n' "$about" >"$new"
    if ! part "$name" >>"$new"; then
        failed+=" $name"
        continue
    fi
    chmod 644 "$new"
    mv "$new" "$where/$name.jsonl"
    echo "  $(($(date +%s) - began)) s" >&2
done
cargo bench --quiet --bench pictures -- "$where"
if [[ $failed ]]; then
    echo "not measured:$failed" >&2
    exit 1
fi
