# Stands in for `sidelong up` in the lab's tests of admission: a server that does as A says it should under each system.
set -eu
[ "$1 $2 $4 $5" = "up --config --json --samples" ] || { echo "fake: $*" >&2; exit 2; }
config=$3 requests=${8:-/dev/null}
has() { grep -q "^$1 = \"$2\"" "$config"; }

system=none
if has rule target; then system=ours; fi
if grep -q "^threshold = " "$config"; then system=one-sided; fi
if has scheme socket-async; then system=tcp; fi
mode=closed
if has mode open; then mode=open; fi

awk -v who="$system" -v mode="$mode" 'BEGIN {
    took["none"] = 250; took["tcp"] = 160; took["one-sided"] = 100; took["ours"] = 80
    print "due_s,sent_s,site,edge,client,outcome,response_ms"
    for (i = 0; i < 1250; i++) {
        t = i / 250; burst = t % 2 >= 1 && t % 2 < 1.5
        if (mode == "open" && !burst && i % 4) continue
        streak = who == "tcp" ? int(i / 40) % 2 : i % 2
        out = who != "none" && streak && (mode == "closed" || burst)
        printf "%.6f,%.6f,site,edge1,%d,%s,%.3f\n", t, t, i % 400, out ? "refused" : "answered", out ? 0.2 : took[who]
    }
}' >"$requests"
none='{"connect":0,"timeout":0,"closed":0,"broken":0,"body":0,"status_4xx":0,"refused":0,"unavailable":0,"status_5xx":0}'
echo '{"seconds":5,"requests":5000,"errors":0,"rejected":0,"errors_by_kind":'"$none"',"moves":0,"requests_per_s":1000,' \
    '"mean_ms":100,"p50_ms":100,"p99_ms":100,"max_ms":100,"lag_ms_p99":0,"sites":[],"clients":[],"step_to_first_request_ms":null,"misdirected":0,"proxies_cpu_s":0,"fronts_cpu_s":0}'
