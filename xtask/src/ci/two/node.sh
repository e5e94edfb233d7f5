# On the nodes' machine. $1 is the program, $2 the cluster file.
for node in n1 n2 n3; do
    "$1" node "$node" --config "$2" &
done
wait
