# On the machine `node`: one server after the other, each until the other machine has what it wants of it, which it says by
# a connection. $1 is the program.
two=$(dirname "$0")
install -m 600 "$two"/*.toml /tmp

serve() {
    setsid "$@" &
    busybox nc -l -p 9 </dev/null
    kill -TERM -- -$! 2>/dev/null
    wait
}

serve ib_read_lat -d rxe0
SIDELONG_SECRET='known to both guests' serve "$1" perf serve
serve bash "$two/node.sh" "$1" /tmp/cluster.toml
serve bash "$two/cache.sh" "$1" /tmp/caches.toml
