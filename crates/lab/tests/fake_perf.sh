# Stands in for `sidelong perf` in the lab's tests: shm takes 0.02 us whatever the target does, TCP 10 us and 1 us more for
# each busy thread; both move 1 and 0.1 bytes a ns.
set -eu
[ "$1" = perf ] || { echo "fake: $*" >&2; exit 2; }
fabric=shm background=0 sizes= bandwidth=
while [ $# -gt 0 ]; do
    case "$1" in
    --fabric) fabric=$2 ;;
    --background) background=$2 ;;
    --sizes) sizes=all ;;
    --bandwidth) bandwidth=1 ;;
    esac
    shift
done
awk -v fabric="$fabric" -v background="$background" -v sizes="$sizes" -v bandwidth="$bandwidth" 'BEGIN {
    if (sizes) printf "["
    for (power = 0; power <= (sizes ? 20 : 0); power++) {
        bytes = 2 ^ power
        ns = fabric == "shm" ? 20 + bytes : 10000 + 10 * bytes + 1000 * background
        if (power) printf ","
        printf "{\"device\":\"fake %s\",\"bytes\":%d,\"background\":%d,", fabric, bytes, background
        printf "\"target_cpu\":0,\"initiator_cpu\":1,"
        if (bandwidth) printf "\"bytes_per_s\":%.3f,", bytes / ns * 1e9
        else printf "\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"mean_ns\":%.1f,", ns, 2 * ns, ns
        printf "\"operations\":1000,\"initiator_cpu_ns\":%.1f,\"target_cpu_ns\":%.1f}", ns, fabric == "shm" ? 0.1 : ns
    }
    if (sizes) printf "]"
    print ""
}'
