#!/bin/sh
# Compiles the library as for a user with the oldest supported Rust: with exactly the rust-version that
# Cargo.toml states, which rustup installs if it is missing, and with freshly resolved dependencies; then with the
# oldest ones that it accepts.
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
cp -r Cargo.toml README.md src lua docs examples testkit verify demo benches cli tokio partitions tower "$folder/crate/"
cd "$folder/crate"
export CARGO_TARGET_DIR="$folder"
cargo generate-lockfile --quiet
# What src/lib.rs tells users of a Rust before 1.95 to do.
cargo update --quiet scheduled-thread-pool --precise 0.2.7
cargo "+$version" check --quiet --package redis-concurrent --lib
cargo "+$version" check --quiet --package redis-concurrent --lib --all-features
echo "compiles with Rust $version"

# The packages that users get, with the oldest dependencies that they ask for; those of the tests are left out.
for file in Cargo.toml tokio/Cargo.toml partitions/Cargo.toml tower/Cargo.toml cli/Cargo.toml; do
    awk '/^\[/ { tests = /dev-dependencies/ } !tests' "$file" |
        sed -e 's/^members = .*/members = ["cli", "tokio", "partitions", "tower"]/' -e '/^default-members = /d' >stripped
    mv stripped "$file"
done
RUSTC_BOOTSTRAP=1 cargo generate-lockfile --quiet -Z direct-minimal-versions
cargo "+$version" check --quiet --workspace --all-features
echo "compiles with the oldest versions of its dependencies"
