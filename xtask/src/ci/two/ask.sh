# On the machine `edge`: a client of each of the other machine's servers. $1 is the program, the others are faults.
set -e
two=$(dirname "$0")
install -m 600 "$two"/*.toml /tmp

listens() {
    until (: <>"/dev/tcp/10.77.0.1/$1") 2>/dev/null; do sleep 0.2; done
}
next() {
    busybox killall sidelong 2>/dev/null || true
    until busybox nc node 9 </dev/null 2>/dev/null; do sleep 0.2; done
}

until ib_read_lat -d rxe0 node; do sleep 1; done
next
listens 7471
for what in read "write --ping-pong"; do
    # shellcheck disable=SC2086
    SIDELONG_SECRET='known to both guests' "$1" perf $what --to node --fabric verbs --quick
done
next
listens 7203
bash "$two/edge.sh" "$1" /tmp/cluster.toml "${@:2}"
next
listens 7302
bash "$two/reader.sh" "$1" /tmp/caches.toml
