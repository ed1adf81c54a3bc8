#!/usr/bin/env bash
# Fails if a package of the workspace names a dependency that its sources do not use, as `cargo machete` would.
# It needs only cargo, and takes a second: compiling the tool itself would take longer than all of lint.
#
# A dependency of the library must be used in src/, any other one anywhere. What is needed but not named in the
# code is listed in [package.metadata.cargo-machete].
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# PACKAGE KIND FOLDER...: where the dependencies of this kind must be used. The tests include parts of benches/.
places="
redis-concurrent         normal src
redis-concurrent         dev    tests examples benches/pictures benches/contention
verify                   normal src verify
verify                   dev    verify
redis-concurrent-testkit normal testkit/src
demo                     normal demo
benches                  dev    benches
redis-concurrent-tower   normal tower/src
redis-concurrent-tower   dev    tower/tests tower/examples
redis-concurrent-cli     normal cli/src
redis-concurrent-cli     dev    cli/tests
"
ignored=$(sed -n '/^\[package\.metadata\.cargo-machete\]/,/^\[[^p]/s/^ignored = \[\(.*\)\]/\1/p' Cargo.toml | tr -d '",')

status=0
while read -r package kind folders; do
    [[ $package ]] || continue
    read -ra folders <<<"$folders"
    names=$("$cargo" tree --quiet --package "$package" --edges "$kind" --depth 1 --prefix none --all-features --target all |
        tail -n +2 | cut -d ' ' -f 1 | sort -u)
    [[ $names ]] || { echo "unused: $package has no dependencies of the kind $kind" >&2; exit 1; }
    for name in $names; do
        [[ " $ignored " == *" $name "* ]] && continue
        grep -rqwF --include='*.rs' "${name//-/_}" "${folders[@]}" && continue
        echo "unused: $package does not use $name ($kind)" >&2
        status=1
    done
done <<<"$places"
exit $status
