#!/bin/sh
# Makes sure that the named programs are there, and installs what is missing with apt-get (Debian,
# Ubuntu). Asks no questions, and reports what it does on standard error.
#
#   ci/setup.sh [make] [cc] [redis] [luacheck] [rust-tools] [redis-py] [java] [promtool] [valgrind]
#
# It continues without redis-py, java, promtool or valgrind: the tests that need them report that they were skipped.
set -eu
exec </dev/null >&2

# The tests start servers with an option that came with 7.0.
oldest_redis=7
redis=${REDIS_SERVER_BIN:-redis-server}
# The interpreters that tests/foreign/redis_py.rs looks for; packages are installed for the last one.
pythons="${PYTHON:-python3} /usr/bin/python3"

has() { command -v "$1" >/dev/null; }
say() { echo "setup: $*"; }
fail() {
    say "$*"
    exit 1
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold "$@"
}

# Packages may start services when they are installed, and fail where that does not work (in a
# container, say). We need no service: while this file exists, none is started.
policy=/usr/sbin/policy-rc.d
no_services() {
    if [ ! -e $policy ]; then
        trap 'as_root rm -f $policy' EXIT
        trap 'exit 1' HUP INT TERM
        as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
    fi
}

install() {
    has apt-get || fail "missing: $*; there is no apt-get here, install them in your system's way"
    if [ "$(id -u)" != 0 ] && ! { has sudo && sudo -n true 2>/dev/null; }; then
        fail "missing: $*; please run: sudo apt-get install --no-install-recommends $*"
    fi
    say "installing $*"
    no_services
    # Without package lists, or with old ones, the first attempt fails.
    apt install --no-install-recommends "$@" ||
        { apt update && apt install --no-install-recommends "$@"; } ||
        fail "apt-get could not install $*"
}

has cargo || fail "missing: cargo; see https://rustup.rs"

has_redis_py() {
    for python in $pythons; do
        "$python" -c 'import redis' 2>/dev/null && return
    done
    return 1
}

# Fetches only this program of its package, as it needs none of the others: 19 MB instead of 96. It goes to
# target/tools/.
fetch_promtool() (
    to=$(cd "$(dirname "$0")/.." && pwd)/target/tools
    [ ! -x "$to/promtool" ] || exit 0
    say "fetching promtool"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder"
    apt-get -q download prometheus || { apt update && apt-get -q download prometheus; } || exit 1
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool || exit 1
    mkdir -p "$to" && mv usr/bin/promtool "$to/"
)

packages=
wishes=
for want in "$@"; do
    case $want in
    make) has make || packages="$packages make" ;;
    cc) has cc || packages="$packages gcc libc6-dev" ;;
    redis) has "$redis" || packages="$packages redis-server" ;;
    luacheck) has luacheck || packages="$packages lua-check" ;;
    rust-tools)
        cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
            { has rustup && rustup component add rustfmt clippy; } ||
            fail "missing: cargo fmt and cargo clippy (rustup component add rustfmt clippy)"
        ;;
    redis-py) has_redis_py || wishes="$wishes python3-redis" ;;
    java) { has javac && has mvn; } || wishes="$wishes default-jdk-headless maven" ;;
    valgrind) has valgrind || wishes="$wishes valgrind" ;;
    promtool) has promtool || fetch_promtool || say "going on without promtool" ;;
    *) fail "what is $want?" ;;
    esac
done
# shellcheck disable=SC2086 # a list of words
[ -z "$packages" ] || install $packages
# shellcheck disable=SC2086
[ -z "$wishes" ] || (install $wishes) || say "going on without:$wishes"

case " $* " in
*" redis "*)
    has "$redis" || fail "missing: $redis"
    version=$("$redis" --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')
    [ "${version%%.*}" -ge $oldest_redis ] 2>/dev/null ||
        fail "$redis is version ${version:-unknown}; the tests need $oldest_redis.0 or later (name another in REDIS_SERVER_BIN)"
    ;;
esac
