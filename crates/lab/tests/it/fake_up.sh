# Stands in for `sidelong up` in the lab's tests: prints what a machine would that serves as fast as it ideally can,
# with moves that cost a quarter of a second of each burst.
set -eu
[ "$1 $2 $4 $5" = "up --config --json --samples" ] || { echo "fake: $*" >&2; exit 2; }
config=$3 samples=$6
if [ "${7:-}" = --requests ]; then
    awk 'BEGIN {
        print "due_s,sent_s,site,edge,client,outcome,response_ms"
        for (i = 0; i < 3000; i++) printf "%.6f,%.6f,a,edge1,0,%s,20\n", i / 1000, i / 1000, i % 5 ? "refused" : "answered"
    }' >"$8"
fi
value() { sed -n "s/^$1 = \"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$config" | head -n 1; }

sites=$(grep -c '^\[\[site\]\]' "$config")
burst=$(value burst)
# Requests/s of a node with two workers.
rate=$(awk -v ms="$(value service_ms)" 'BEGIN { print 2000 / (ms ? ms : 5) }')
best=$((8 - sites + 1))
configuration=$(value configuration)
case "${configuration:-reconfigured}" in
rigid) nodes=$([ "$sites" = 3 ] && echo 2.57 || echo 2) lost=0 moves=0 ;;
over-provisioned) nodes=$best lost=0 moves=0 ;;
reconfigured) nodes=$best lost=0.25 moves=40 ;;
esac
[ ! -e "$(dirname "$0")/fail-at-$burst" ] || { echo "warming up" >&2; echo "node n3: port in use" >&2; exit 2; }

echo "t_s,site,nodes,nodes_busy" >"$samples"
awk -v n="$nodes" -v burst="$burst" -v lost="$lost" -v sites="$sites" -v of_one="$rate" 'BEGIN {
    for (i = 1; i <= 100; i++) {
        t = i / 10; length_s = burst / (of_one * n) + lost; at = t % length_s
        busy = at < lost ? 1 + (n - 1) * at / lost : n
        loaded = int(t / length_s) % sites
        for (s = 0; s < sites; s++) printf "%.1f,%s,%d,%.3f\n", t, substr("abcd", s + 1, 1), 2, s == loaded ? busy : 0
    }
}' >>"$samples"
step=null
[ "$moves" = 0 ] || step='{"count":40,"p50":6.2,"p99":9.9,"max":12.0}'
awk -v n="$nodes" -v burst="$burst" -v lost="$lost" -v moves="$moves" -v step="$step" -v of_one="$rate" 'BEGIN {
    rate = burst / (burst / (of_one * n) + lost) * 0.97; p50 = 32 / rate * 1000
    printf "{\"seconds\":12.5,\"requests\":12288,\"errors\":0,\"rejected\":0,\"errors_by_kind\":{\"connect\":0,"
    printf "\"timeout\":0,\"closed\":0,\"broken\":0,\"body\":0,\"status_4xx\":0,\"refused\":0,\"unavailable\":0,"
    printf "\"status_5xx\":0},\"moves\":%d,\"move_ms\":%s,\"requests_per_s\":%.3f,\"mean_ms\":%.3f,", moves, step, rate, p50
    printf "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"lag_ms_p99\":0,", p50, p50 * 1.8, p50 * 2
    printf "\"sites\":[{\"name\":\"a\",\"requests\":12288,\"errors\":0,\"rejected\":0,\"requests_per_s\":%.3f,", rate
    printf "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"rejected\":0,", p50, p50 * 1.8, p50 * 2
    printf "\"rejection_ms_p50\":0,\"rejection_ms_p99\":0,\"nodes\":3}],\"clients\":[],"
    printf "\"step_to_first_request_ms\":%s,\"misdirected\":0,\"proxies_cpu_s\":0.4,\"fronts_cpu_s\":0.1}\n", step
}'
