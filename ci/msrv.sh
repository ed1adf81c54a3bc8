#!/bin/sh
# Compiles the library as for a user with the oldest supported Rust: with exactly the rust-version that
# Cargo.toml states, which rustup installs if it is missing, and with freshly resolved dependencies.
set -eu
cd "$(dirname "$0")/.."
exec </dev/null
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
case $version in *.*.*) ;; *) version=$version.0 ;; esac
command -v rustup >/dev/null || {
    echo "msrv: needs rustup, which there is not here: Rust $version was not tried" >&2
    exit 1
}
rustup toolchain list | grep -q "^$version" || rustup toolchain install "$version" --profile minimal
folder=${CARGO_TARGET_DIR:-$PWD/target}/msrv
rm -rf "$folder/crate"
mkdir -p "$folder/crate"
# In a folder of its own, so that no lock file of this one applies.
cp -r Cargo.toml README.md src lua docs examples testkit verify demo benches cli tokio "$folder/crate/"
cd "$folder/crate"
CARGO_TARGET_DIR=$folder cargo "+$version" check --quiet --package redis-concurrent --lib
CARGO_TARGET_DIR=$folder cargo "+$version" check --quiet --package redis-concurrent --lib --all-features
copies=$(grep -c '^name = "parking_lot"$' Cargo.lock)
[ "$copies" = 1 ] || {
    echo "msrv: parking_lot is in the tree $copies times" >&2
    exit 1
}
echo "compiles with Rust $version"
