# On the edge's machine, by bash: asks alpha for more than its one node can do, until it has another one.
# $1 is the program, $2 the cluster file.
"$1" edge edge1 --config "$2" &

# $1 is the port, $2 the site, $3 the path: the whole answer.
get() (
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit
    printf 'GET %s HTTP/1.1\r\nhost: %s.example\r\nconnection: close\r\n\r\n' "$3" "$2" >&3
    cat <&3
)
ask() { [[ $(get 8081 "$1" /o/1/10) == "HTTP/1.1 200 "* ]]; }
metrics() { get 9081 any /metrics; }

until ask alpha 2>/dev/null && ask beta 2>/dev/null; do sleep 0.2; done
echo "both sites answer"
clients=()
for client in 1 2 3; do
    while :; do ask alpha || echo "a request failed"; done &
    clients+=($!)
done
until metrics | grep -q '^sidelong_edge_node_site{node="n[23]",site="alpha"} 1'; do sleep 0.2; done
# Before the edge, which ends with this script.
kill "${clients[@]}"
wait "${clients[@]}" 2>/dev/null
metrics | grep -E '^sidelong_edge_(node_site|moves_total|requests_total)'
