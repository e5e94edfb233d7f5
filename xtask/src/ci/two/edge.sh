# On the edge's machine, by bash: asks a site for more than its one node can do, until it has another one, first alpha and then
# each in turn, after a fault. No request may fail once both sites answer again and all memory is read. $1 is the program, $2 the
# cluster file, the others are the faults.
program=$1 file=$2
shift 2

begin() {
    "$program" edge edge1 --config "$file" &
    edge=$!
}
# $1 is the port, $2 the site, $3 the path: the whole answer.
get() (
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit
    printf 'GET %s HTTP/1.1\r\nhost: %s.example\r\nconnection: close\r\n\r\n' "$3" "$2" >&3
    cat <&3
)
ask() { [[ $(get 8081 "$1" /o/1/10) == "HTTP/1.1 200 "* ]]; }
metrics() { get 9081 any /metrics; }
# Tries a command until it succeeds, for as long as an emulated machine may take.
await() {
    local tries
    for ((tries = 0; tries < 900; tries++)); do
        "$@" 2>/dev/null && return
        sleep 0.2
    done
    echo "never: $*"
    exit 1
}
both_answer() { ask alpha && ask beta; }
all_is_read() {
    local all
    all=$(metrics) && [[ $all == *sidelong_edge_board_age_seconds* ]] &&
        ! grep -qE '^sidelong_edge_(record|words|board)_age_seconds\{.*\} ([3-9]|[0-9]{2,}|inf)' <<<"$all"
}
has_two_nodes() { (($(metrics | grep -c "^sidelong_edge_node_site{node=\"n[123]\",site=\"$1\"} 1") == 2)); }
gets_a_node() {
    local client clients=()
    for client in 1 2 3; do
        while :; do ask "$1" || echo "a request failed"; done &
        clients+=($!)
    done
    await has_two_nodes "$1"
    # Before the edge, which ends with this script.
    kill "${clients[@]}"
    wait "${clients[@]}" 2>/dev/null
}

edge_is_killed() {
    kill -9 "$edge" || return
    wait "$edge" 2>/dev/null
    begin
}
# The other machine begins it anew.
node_is_killed() { await name_to_the_other n3; }
board_is_killed() { await name_to_the_other n1; }
name_to_the_other() { echo "$1" >/dev/tcp/10.77.0.1/10; }
link_is_down() { ip link set eth0 down && sleep 3 && ip link set eth0 up; }
during() { tc qdisc add dev eth0 root netem "$@" && sleep 3 && tc qdisc del dev eth0 root; }
nothing_is_sent() { during loss 100%; }
frames_are_lost() { during loss 10%; }
frames_are_late() { during delay 20ms 15ms; }
clock_is_set() { date -s "@$(($(date +%s) + 3600))"; }

begin
await both_answer
echo "both sites answer"
gets_a_node alpha
metrics | grep -E '^sidelong_edge_(node_site|moves_total|requests_total)'
[[ $# == 0 ]] || modprobe sch_netem || exit
sites=(beta alpha)
for fault in "$@"; do
    echo "$fault"
    $fault || {
        echo "cannot be made"
        exit 1
    }
    # An age shows what is away once it is 3 s.
    sleep 4
    await both_answer
    await all_is_read
    gets_a_node "${sites[0]}"
    echo "after $fault ${sites[0]} has another node"
    sites=("${sites[1]}" "${sites[0]}")
done
