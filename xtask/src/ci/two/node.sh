# On the nodes' machine, by bash. $1 is the program, $2 the cluster file. A node that the other machine names is killed, and
# begins anew.
program=$1 file=$2
declare -A nodes
begin() {
    "$program" node "$1" --config "$file" &
    nodes[$1]=$!
}
for node in n1 n2 n3; do begin "$node"; done
while node=$(busybox nc -l -p 10 </dev/null); do
    kill -9 "${nodes[$node]}"
    wait "${nodes[$node]}" 2>/dev/null
    begin "$node"
done
