# Stands in for `sidelong-lab perf load` in the lab's tests: sockets take 40 us and 100 us more for each busy thread, one-sided
# looks 0.2 us; a step is seen after 20 us by the kernel's record and after 50 ms by all others. e-rdma-sync is refused. And
# for `sidelong up` with two sites: rdma-sync serves more the oftener it looks, sockets less. With --demo persons walk, who wait
# long for sockets where nodes have other work, or are asked often.
set -eu
if [ "$1" = up ]; then
    # That of [baseline] comes last.
    scheme=$(sed -n 's/^scheme = "\(.*\)"/\1/p' "$3" | tail -n 1)
    every=$(sed -n 's/^sensitivity_ms = //p' "$3")
    busy=$(sed -n 's/.* and \([0-9]*\) busy processes .*/\1/p' "$3")
    demo=$(case "$*" in *"--demo auction"*) echo 1 ;; esac)
    awk -v scheme="$scheme" -v every="$every" -v busy="$busy" -v demo="$demo" 'BEGIN {
        finer = log(4096 / every) / log(2)
        rate = 800 + finer * (scheme == "rdma-sync" ? 50 : scheme ~ /^socket/ ? -10 : 0)
        max = scheme ~ /^socket/ && every < 8 ? 250 : 60
        if (busy > 0) max = scheme ~ /^socket/ ? 100 * busy : 10 * busy
        printf "{\"seconds\":8,\"requests\":%d,\"errors\":0,\"rejected\":0,\"errors_by_kind\":{\"connect\":0,", rate * 8
        printf "\"timeout\":0,\"closed\":0,\"broken\":0,\"body\":0,\"status_4xx\":0,\"refused\":0,\"unavailable\":0,"
        printf "\"status_5xx\":0},\"moves\":0,\"requests_per_s\":%.1f,\"mean_ms\":10,\"p50_ms\":10,", rate
        printf "\"p99_ms\":%.1f,\"max_ms\":%.1f,\"lag_ms_p99\":0,\"clients\":[],", max / 2, max
        printf "\"step_to_first_request_ms\":null,\"misdirected\":0,\"proxies_cpu_s\":0,\"fronts_cpu_s\":0,\"sites\":["
        for (site = 1; site <= 2; site++)
            printf "%s{\"name\":\"%s\",\"requests\":%d,\"errors\":0,\"rejected\":0,\"requests_per_s\":%.1f,\"p50_ms\":10,\"p99_ms\":%.1f,\"max_ms\":%.1f,\"rejected\":0,\"rejection_ms_p50\":0,\"rejection_ms_p99\":0,\"nodes\":3}", \
                (site > 1 ? "," : ""), (site > 1 ? "zipf" : "auction"), rate * 4, rate / 2, max / 2, max
        printf "]"
        if (demo) {
            names = "Home Browse BrowseRegions BrowseCategoriesInRegion SearchItemsInRegion PutBidAuth Sell AboutMeAuth SearchItemsInCategory"
            printf ",\"walk\":{\"seconds\":8,\"requests\":90,\"errors\":0,\"rejected\":0,\"errors_by_kind\":{\"connect\":0,"
            printf "\"timeout\":0,\"closed\":0,\"broken\":0,\"body\":0,\"status_4xx\":0,\"refused\":0,\"unavailable\":0,"
            printf "\"status_5xx\":0},\"refused_by_rules\":0,\"requests_per_s\":11,\"mean_ms\":3,\"p50_ms\":3,\"p99_ms\":%.1f,", max / 2
            printf "\"max_ms\":%.1f,\"lag_ms_p99\":0,\"sessions\":{\"begun\":9,\"ended\":9,\"whole\":9,\"left\":0,\"dropped\":0},", max
            printf "\"interactions\":["
            count = split(names, name, " ")
            for (at = 1; at <= count; at++)
                printf "%s{\"interaction\":\"%s\",\"requests\":10,\"errors\":0,\"rejected\":0,\"refused_by_rules\":0,\"mean_ms\":3,\"p99_ms\":%.1f,\"max_ms\":%.1f}", \
                    (at > 1 ? "," : ""), name[at], max / 2, max
            printf "]}"
        }
        print "}"
    }'
    exit
fi
[ "$1 $2" = "perf load" ] || { echo "fake: $*" >&2; exit 2; }
measure=$3 scheme= background=0 granularity=1
shift 3
while [ $# -gt 0 ]; do
    case "$1" in
    --scheme) scheme=$2 ;;
    --background) background=$2 ;;
    --granularity) granularity=$2 ;;
    esac
    shift
done
if [ "$scheme" = e-rdma-sync ]; then
    echo "sidelong: e-rdma-sync is not available: the fake has no kernel" >&2
    exit 2
fi
awk -v measure="$measure" -v scheme="$scheme" -v background="$background" -v granularity="$granularity" 'BEGIN {
    socket = scheme ~ /^socket/; kernel = scheme == "rdma-sync"
    printf "{\"measure\":\"%s\",\"scheme\":\"%s\",\"background\":%d,\"granularity_ms\":%s,\"period_ms\":50,", \
        measure, scheme, background, granularity
    printf "\"node_cpu\":0,\"this_cpu\":1,"
    if (measure == "latency" || measure == "step") {
        us = socket ? 40 + 100 * background : 0.2
        if (measure == "step") { us = kernel ? 20 : 50000; printf "\"threads\":4,\"unseen\":0,\"unclear\":1," }
        printf "\"samples\":1000,\"p50_us\":%.3f,\"p99_us\":%.3f,\"max_us\":%.3f,\"mean_us\":%.3f,\"unusable\":0}\n", us, 2 * us, 3 * us, us
    } else if (measure == "slowdown") {
        cost = scheme == "socket-async" ? 0.3 : scheme == "socket-sync" ? 0.2 : scheme == "rdma-async" ? 0.1 : 0
        printf "\"rounds\":3,\"alone_ms\":500,\"normalized_delay\":%.6f,\"kept\":%.6f,\"sampling\":%.6f}\n", \
            1.002 + cost / granularity, 1.002, 1 + cost / granularity
    } else if (measure == "interrupts") {
        printf "\"samples\":1000,\"told\":%s,\"seen\":[%d,%d],\"most\":[2,1]}\n", kernel ? "true" : "false", kernel ? 70 : 0, kernel ? 5 : 0
    } else {
        off = kernel ? 0 : 0.1 * background
        printf "\"samples\":100,\"unusable\":0,\"cpu_truth\":\"/proc/stat\",\"threads\":{\"mean\":%.3f,\"max\":%.3f},", off, 4 * off
        printf "\"cpu_percent\":{\"mean\":%.3f,\"max\":%.3f}}\n", off + 1, off + 9
    }
}'
