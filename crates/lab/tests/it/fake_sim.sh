# Stands in for `sidelong-lab sim run` and `sim live` in the lab's tests: RPC takes 3 ms, whatever else 1 ms; of lazy's reads a fifth fails, of
# the others' a twentieth, of ledger's a hundredth.
set -eu
what=$2
case "$1 $2" in
"sim run" | "sim live") ;;
*) echo "fake: $*" >&2; exit 2 ;;
esac
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
rows() {
    awk -v what="$what" -v nodes="$nodes" -v protocols="$protocols" -v memory="$memory" -v request="$request" 'BEGIN {
    columns = "requests,response_ms_mean,response_ms_p50,response_ms_p99,requests_per_s,here_rate,disk_rate,read_rate,read_failure_rate,update_messages_per_request,update_bytes_per_request"
    known = split(columns, column, ",")
    if (what == "run") printf "seed,nodes,protocol%s,%s\n", memory ? ",memory_mb,request_us" : "", columns
    sizes = split(nodes, size, ","); protocol_count = split(protocols, protocol, ",")
    memories = memory ? split(memory, mb, ",") : 1; requests = memory ? split(request, us, ",") : 1
    for (n = 1; n <= sizes; n++) for (p = 1; p <= protocol_count; p++) for (m = 1; m <= memories; m++) for (r = 1; r <= requests; r++) {
        of = protocol[p]
        fails = of == "rpc" ? 0 : of == "lazy" ? 0.2 : of == "ledger" ? 0.01 : 0.05
        figures = sprintf("80000,%d,1,9,%d,0.4,0.1,0.5,%s,0,%d", of == "rpc" ? 3 : 1, of == "rpc" ? 100 : of == "ledger" ? 201 : 200, fails, of == "lazy" ? 0 : 9)
        if (what == "live") {
            split(figures, figure, ",")
            json = ""
            for (c = 1; c <= known; c++) json = json sprintf("%s\"%s\":%s", c == 1 ? "" : ",", column[c], figure[c])
            printf "{\"protocol\":\"%s\",\"nodes\":%d,\"simulated\":{%s},\"live\":{%s},\"sharing\":{\"cpu_us_per_request\":30,\"running\":0.1,\"waiting\":0.8},\"wrong\":0}\n", of, size[n], json, json
            continue
        }
        printf "1,%d,%s", size[n], of
        if (memory) printf ",%s,%s", mb[m], us[r]
        printf ",%s\n", figures
    }
}'
}
case $what in
run) mkdir -p "$out" && rows > "$out/rows.csv" ;;
live) rows ;;
esac
