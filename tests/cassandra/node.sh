#!/bin/sh
# Runs one node of a Cassandra cluster on 127.0.0.NUMBER until it ends by itself or its standard input does, so that it never
# outlives who has started it: node.sh NUMBER DIR NODES CQL_PORT STORAGE_PORT
# A file DIR/more.yaml adds to the settings.
# JARS names the folder of fetch.sh. NUMBER 1 to 3 gives the address and the token, DIR has its files and the number of its
# process (pid), the first node is the seed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
number=$1 dir=$2 nodes=$3 cql_port=$4 storage_port=$5
jars=$JARS/jars
case $number in
    1) token=-9223372036854775808 ;;
    2) token=-3074457345618258603 ;;
    *) token=3074457345618258602 ;;
esac
sed -e "s|@TOKEN@|$token|; s|@ADDRESS@|127.0.0.$number|; s|@SEED@|127.0.0.1:$storage_port|; s|@DIR@|$dir|" \
    -e "s|@CQL_PORT@|$cql_port|; s|@STORAGE_PORT@|$storage_port|" \
    "$here/cassandra.yaml.in" >"$dir/cassandra.yaml"
[ ! -f "$dir/more.yaml" ] || cat "$dir/more.yaml" >>"$dir/cassandra.yaml"
# The ring delay is what a node waits for gossip; alone it needs none.
delay=$([ "$nodes" = 1 ] && echo 0 || echo 2000)
export MALLOC_ARENA_MAX=2
"${JAVA_HOME:+$JAVA_HOME/bin/}java" "@$here/jvm.options" -Xms512m -Xmx512m -XX:MaxDirectMemorySize=256m \
    "-javaagent:$(ls "$jars"/jamm-*.jar)" \
    "-Dcassandra.config=file://$dir/cassandra.yaml" \
    "-Dcassandra.storagedir=$dir" "-Dcassandra.logdir=$dir" \
    "-Dlogback.configurationFile=$here/logback.xml" \
    "-Dcassandra.ring_delay_ms=$delay" \
    -cp "$(printf '%s:' "$jars"/*.jar)" org.apache.cassandra.service.CassandraDaemon \
    >"$dir/log" 2>&1 </dev/null &
node=$!
echo "$node" >"$dir/pid"
# The input of a command in the background is another one.
exec 3<&0
{
    cat <&3 >/dev/null
    kill -9 "$node"
} 2>/dev/null &
input=$!
trap 'kill -9 "$node" "$input" 2>/dev/null || true' EXIT
trap exit HUP INT TERM
wait "$node" 2>/dev/null
