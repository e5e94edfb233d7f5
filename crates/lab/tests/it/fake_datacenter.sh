# Stands in for `sidelong-lab sim run` with the model `reconfig` in the lab's tests: each burst costs what fake_up.sh says, or
# each size a step of so many ms, and the papers' protocol keeps a lock.
set -eu
[ "$1 $2" = "sim run" ] || { echo "fake: $*" >&2; exit 2; }
config=$3 out=$5
value() { sed -n "s/^$1 = \(.*\)$/\1/p" "$config" | head -n 1; }
grep -q '^model = "reconfig"$' "$config" || { echo "fake: not of the model" >&2; exit 2; }
configurations= protocols= seeds=1
while [ $# -gt 0 ]; do
    case "$1" in
    configuration=*) configurations=${1#*=} ;;
    reconfig_protocol=*) protocols=${1#*=} ;;
    seed=*) seeds=${1#*=} ;;
    esac
    shift
done
mkdir -p "$out"
figures=requests,requests_per_s,response_ms_p50,response_ms_p99,errors,moves,thrash,crashes,repairs,floor_violations,below_floor_ms,nodes_lost,nodes_doubled,locks_stuck,steps,steps_unbalanced,time_to_balance_ms,step_to_first_request_ms,mended_ms,time_to_balance_ms_max,leaves,joins
awk -v names="$figures" -v configurations="$configurations" -v protocols="$protocols" -v seeds="$seeds" \
    -v nodes="$(value nodes)" -v sites="$(value sites)" -v burst="$(value burst)" 'BEGIN {
    if (configurations) {
        print "seed,nodes,configuration,reconfig_protocol," names
        count = split(configurations, of, ",")
        for (i = 1; i <= count; i++) {
            best = 8 - sites + 1
            n = of[i] == "rigid" ? (sites == 3 ? 2.57 : 2) : best
            rate = burst / (burst / (400 * n) + (of[i] == "reconfigured" ? 0.25 : 0))
            printf "1,%d,%s,lease,8192,%.3f,12.5,22,0,%d,0,0,0,0,0,0,0,0,6,0,9,%s,0,12,0,0\n", nodes, of[i], rate, of[i] == "reconfigured" ? 40 : 0, of[i] == "reconfigured" ? "6.5" : "0"
        }
    } else {
        print "seed,nodes,reconfig_protocol," names
        count = split(protocols, of, ","); runs = split(seeds, seed, ",")
        for (i = 1; i <= count; i++) for (s = 1; s <= runs; s++) {
            paper = of[i] == "paper"
            printf "%s,%d,%s,1000,100,6,9,3,%d,%d,2,%d,%d,0,0,0,%d,3,%d,%d,0,50,40,0,0\n", seed[s], nodes, of[i], nodes, paper, !paper, paper, paper, paper, 20 + s
        }
    }
}' > "$out/rows.csv"
