# On the machine of the second cache, by bash: stores items of both, until it finds all of them without asking the first.
# $1 is the program, $2 the cluster file.
"$1" cache c2 --config "$2" &

# $1 is the machine, $2 what its cache is asked: the whole answer.
ask() (
    exec 3<>"/dev/tcp/10.77.0.$1/11211" || exit
    printf '%b\r\nquit\r\n' "$2" >&3
    cat <&3
)
stat() { ask "$1" stats | tr -d '\r' | sed -n "s/^STAT $2 //p"; }
keys=(k{1..20})

for key in "${keys[@]}"; do
    until [[ $(ask 2 "set $key 0 0 5\r\nvalue" 2>/dev/null) == STORED* ]]; do sleep 0.2; done
done
while :; do
    asked=$(stat 1 get_hits)
    found=$(ask 2 "get ${keys[*]}" | grep -c '^VALUE ')
    asked=$(($(stat 1 get_hits) - asked))
    [[ $found == 20 && $asked == 0 && $(stat 2 neighbour_hits) -gt 0 ]] && break
    sleep 0.2
done
echo "found $found items, asked for $asked; of the other machine: $(stat 2 neighbour_hits)"
