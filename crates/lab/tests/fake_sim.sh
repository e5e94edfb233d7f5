# Stands in for `sidelong sim run` in the lab's tests: RPC takes 3 ms, whatever else 1 ms; of lazy's reads a fifth fails, of
# the others' a twentieth, of ledger's a hundredth.
set -eu
[ "$1 $2" = "sim run" ] || { echo "fake: $*" >&2; exit 2; }
nodes=64 protocols= memory= request= out=
while [ $# -gt 0 ]; do
    case "$1" in
    nodes=*) nodes=${1#*=} ;;
    protocol=*) protocols=${1#*=} ;;
    memory_mb=*) memory=${1#*=} ;;
    request_us=*) request=${1#*=} ;;
    --out) out=$2 ;;
    esac
    shift
done
mkdir -p "$out"
awk -v nodes="$nodes" -v protocols="$protocols" -v memory="$memory" -v request="$request" 'BEGIN {
    printf "seed,nodes,protocol%s,", memory ? ",memory_mb,request_us" : ""
    print "response_ms_mean,response_ms_p99,requests_per_s,disk_rate,read_failure_rate,update_bytes_per_request"
    sizes = split(nodes, size, ","); known = split(protocols, protocol, ",")
    memories = memory ? split(memory, mb, ",") : 1; requests = memory ? split(request, us, ",") : 1
    for (n = 1; n <= sizes; n++) for (p = 1; p <= known; p++) for (m = 1; m <= memories; m++) for (r = 1; r <= requests; r++) {
        of = protocol[p]
        fails = of == "rpc" ? 0 : of == "lazy" ? 0.2 : of == "ledger" ? 0.01 : 0.05
        printf "1,%d,%s", size[n], of
        if (memory) printf ",%s,%s", mb[m], us[r]
        printf ",%d,9,%d,0.1,%s,%d\n", of == "rpc" ? 3 : 1, of == "rpc" ? 100 : of == "ledger" ? 201 : 200, fails, of == "lazy" ? 0 : 9
    }
}' > "$out/rows.csv"
