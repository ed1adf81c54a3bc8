#!/bin/sh
# Compiles for other systems what must work there: the library and the crates on top of it on each, the command line on
# macOS. rustup installs their standard libraries. A system whose library cannot be fetched is left out, which is said.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null
cargo=${CARGO:-cargo}
targets=
for target in x86_64-pc-windows-gnu x86_64-apple-darwin x86_64-unknown-freebsd x86_64-unknown-linux-musl; do
    if rustup --quiet target add "$target"; then
        targets="$targets --target $target"
    else
        echo "targets: NOT COMPILED FOR $target: rustup cannot fetch it" >&2
    fi
done
[ -n "$targets" ] || exit 0
# Nothing is linked, so dependencies in C need no compiler for these systems.
export TARGET_CC=true TARGET_AR=true
# shellcheck disable=SC2086 # a list of words
"$cargo" check --quiet $targets --package redis-concurrent --package redis-concurrent-tokio \
    --package redis-concurrent-partitions --package redis-concurrent-tower
case $targets in *darwin*) "$cargo" check --quiet --target x86_64-apple-darwin --package redis-concurrent-cli ;; esac
echo "compiles for$targets" | sed 's/--target //g'
