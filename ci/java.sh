#!/usr/bin/env bash
# Obtains the Java libraries that some tests lock with, and prints the class path with them and the tests' own
# programs. Downloads stay in target/java/, so that later calls download nothing.
#
# Needs java and javac (17 or later) and, for the first call, mvn. Progress goes to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
sources=$PWD/tests/foreign/redisson/java
folder=$PWD/target/java
for program in java javac; do
    command -v $program >/dev/null || { echo "there is no $program" >&2; exit 1; }
done
mkdir -p "$folder"
# One call at a time.
exec 9>"$folder/lock"
flock 9

wanted=$(cksum <"$sources/pom.xml")
if [ "$(cat "$folder/complete" 2>/dev/null)" != "$wanted" ]; then
    command -v mvn >/dev/null || { echo "there is no mvn to obtain the libraries with" >&2; exit 1; }
    rm -rf "$folder/jars"
    for try in 1 2 3; do
        timeout 240 mvn --batch-mode --quiet --file "$sources/pom.xml" "-Dmaven.repo.local=$folder/repository" \
            dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$folder/jars" >&2 && break
        [ $try -lt 3 ] || { echo "the libraries could not be obtained" >&2; exit 1; }
        sleep 3
    done
    echo "$wanted" >"$folder/complete"
fi
built=$(cat "$sources"/*.java | cksum)
if [ "$(cat "$folder/built" 2>/dev/null)" != "$built" ]; then
    rm -rf "$folder/classes"
    javac -J-XX:TieredStopAtLevel=1 -nowarn -d "$folder/classes" -cp "$folder/jars/*" "$sources"/*.java >&2
    echo "$built" >"$folder/built"
fi
echo "$folder/classes:$folder/jars/*"
