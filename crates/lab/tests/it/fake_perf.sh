# Stands in for `sidelong-lab perf` in the lab's tests: shm takes 0.02 us whatever the target does, TCP 10 us and 1 us more for
# each busy thread; both move 1 and 0.1 bytes a ns.
set -eu
[ "$1" = perf ] || { echo "fake: $*" >&2; exit 2; }
fabric=shm background=0 size=1 sizes= bandwidth=
while [ $# -gt 0 ]; do
    case "$1" in
    --fabric) fabric=$2 ;;
    --background) background=$2 ;;
    --size) [ "$2" = 64K ] && size=65536 || size=$2 ;;
    --sizes) sizes=all ;;
    --bandwidth) bandwidth=1 ;;
    esac
    shift
done
awk -v fabric="$fabric" -v background="$background" -v size="$size" -v sizes="$sizes" -v bandwidth="$bandwidth" 'BEGIN {
    if (sizes) printf "["
    for (power = 0; power <= (sizes ? 20 : 0); power++) {
        bytes = sizes ? 2 ^ power : size
        ns = fabric == "shm" ? 20 + bytes : 10000 + 10 * bytes + 1000 * background
        if (power) printf ","
        printf "{\"operation\":\"read\",\"ping_pong\":false,\"fabric\":\"%s\",\"device\":\"fake %s\",", fabric, fabric
        printf "\"completion\":\"polling\",\"peers\":1,\"bytes\":%d,\"bytes_moved\":%d,", bytes, bytes
        printf "\"background\":%d,\"inbox_full\":0,", background
        printf "\"target_cpu\":0,\"initiator_cpu\":1,"
        if (bandwidth) printf "\"window\":16,\"bytes_per_s\":%.3f,\"operations_per_s\":%.3f,", bytes / ns * 1e9, 1e9 / ns
        else {
            printf "\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f,\"max_ns\":%.1f,", ns, 2 * ns, 2 * ns, 3 * ns
            printf "\"mean_ns\":%.1f,\"batches_per_run\":1,\"runs\":1000,", ns
        }
        printf "\"operations\":1000,\"initiator_cpu_ns\":%.1f,\"target_cpu_ns\":%.1f}", ns, fabric == "shm" ? 0.1 : ns
    }
    if (sizes) printf "]"
    print ""
}'
