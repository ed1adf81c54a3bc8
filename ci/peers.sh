#!/usr/bin/env bash
# ci/peers.sh redsync|rslock: builds the program with which `make peers` locks by this library, in target/peers/, and
# prints its path. Needs Go for redsync. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
folder=$PWD/target/peers
mkdir -p "$folder"
case $1 in
redsync)
    command -v go >/dev/null || { echo "there is no go" >&2; exit 1; }
    go -C tests/foreign/redsync build -o "$folder/redsync" . >&2
    echo "$folder/redsync"
    ;;
rslock)
    cargo build --quiet --release --manifest-path tests/foreign/rslock/Cargo.toml --target-dir "$folder/rslock" >&2
    echo "$folder/rslock/release/rslock-contender"
    ;;
*)
    echo "unknown: $1" >&2
    exit 2
    ;;
esac
