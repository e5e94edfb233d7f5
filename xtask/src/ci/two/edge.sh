# On the edge's machine: asks alpha for more than its one node can do, until it has another one.
# $1 is the program, $2 the cluster file.
"$1" edge edge1 --config "$2" &

ask() { busybox wget -q -T 10 -O /dev/null --header "Host: $1.example" http://127.0.0.1:8081/o/1/10; }
metrics() { busybox wget -q -T 10 -O - http://127.0.0.1:9081/metrics; }

until ask alpha 2>/dev/null && ask beta 2>/dev/null; do sleep 0.2; done
for client in 1 2 3 4 5 6; do
    while :; do ask alpha || echo "a request failed"; done &
done
until metrics | grep -q '^sidelong_edge_node_site{node="n[23]",site="alpha"} 1'; do sleep 0.2; done
metrics | grep -E '^sidelong_edge_(node_site|moves_total|requests_total)'
