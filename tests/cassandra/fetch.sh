#!/bin/sh
# Fetches the jars of Cassandra and what it needs into a folder, unless they are there: fetch.sh FOLDER
# Any number of processes may ask at the same time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if ! cmp -s "$here/pom.xml" "$folder/fetched"; then
    mvn -B -q -f "$here/pom.xml" -DbuildFolder="$folder/build" -DjarFolder="$folder/jars" package
    cp "$here/pom.xml" "$folder/fetched"
fi
