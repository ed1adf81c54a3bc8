#!/usr/bin/env bash
# Packs the packages that are published, and compiles them from the archives alone.
#
# The compiling that `cargo package` does by itself is no proof: of a package that another one needs, it takes
# what it once unpacked into Cargo's home for an archive of the same version, however old that is.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
published=(redis-concurrent redis-concurrent-testkit redis-concurrent-tokio redis-concurrent-partitions redis-concurrent-tower redis-concurrent-cli)

archives=$CARGO_TARGET_DIR/package
rm -rf "$archives"
"$cargo" package --quiet --no-verify "${published[@]/#/--package=}"

# A workspace of what was unpacked: each package finds the others there.
unpacked=$archives/unpacked
mkdir "$unpacked"
cp Cargo.lock "$unpacked"
{
    printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n[patch.crates-io]\n'
    for package in "${published[@]}"; do
        tar --extract --gzip --directory "$unpacked" --file "$(echo "$archives/$package"-[0-9]*.crate)"
        folder=$(cd "$unpacked" && echo "$package"-[0-9]*)
        echo "$package = { path = \"$folder\" }"
    done
} >"$unpacked/Cargo.toml"
"$cargo" check --quiet --manifest-path "$unpacked/Cargo.toml" --workspace
echo "compiles from its archives: ${published[*]}"
