# Stands in for `sidelong up --demo auction` in the test of DA: two nodes answer ten requests/s each of every site. A fifth of the
# answers are late where nodes stay, and none otherwise.
set -eu
[ "$1 $2 $4 $5 $7 $9" = "up --config --json --samples --requests --demo" ] || { echo "fake: $*" >&2; exit 2; }
config=$3 requests=$8
configuration=$(sed -n 's/^configuration = "\(.*\)"/\1/p' "$config")
while [ $# -gt 1 ]; do
    [ "$1" != --for ] || ms=${2%ms}
    shift
done
awk -v configuration="${configuration:-reconfigured}" -v seconds="$((ms / 1000))" 'BEGIN {
    print "due_s,sent_s,site,edge,client,outcome,response_ms"
    split("auction files api", sites, " ")
    for (i = 0; i < 20 * seconds; i++)
        for (at = 1; at <= 3; at++)
            printf "%.3f,%.3f,%s,edge1,0,answered,%d\n", i / 20, i / 20, sites[at], \
                (configuration == "rigid" && i % 5 == 0) ? 1200 : 20
}' >"$requests"
moves=$([ "${configuration:-reconfigured}" = reconfigured ] && echo 40 || echo 0)
printf '{"seconds":%d,"requests":%d,"errors":0,"rejected":0,"errors_by_kind":{"connect":0,' "$((ms / 1000))" "$((60 * ms / 1000))"
printf '"timeout":0,"closed":0,"broken":0,"body":0,"status_4xx":0,"refused":0,"unavailable":0,'
printf '"status_5xx":0},"moves":%d,"requests_per_s":60,"mean_ms":20,"p50_ms":20,' "$moves"
printf '"p99_ms":1200,"max_ms":1200,"lag_ms_p99":0,"clients":[],"sites":[],'
printf '"step_to_first_request_ms":null,"misdirected":0,"proxies_cpu_s":0,"fronts_cpu_s":0}\n'
