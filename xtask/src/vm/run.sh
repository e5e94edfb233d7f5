# PID 1 of the guest once its root is mounted: runs the command, and leaves in `$job`, which the host reads, `up` when it
# begins, `stdout` and `stderr`, and `exit` with its code when all of that is written.
# shellcheck disable=SC2154

# The directory, the environment, and the command.
mapfile -d '' -t words <"$job/words"

# The command gets pipes, since a file that it opens again, as /dev/stdout is, would be cut.
pass_on() {
    [[ -n $address ]] || exec cat
    exec sed -u "s/^/$name| /"
}
mkfifo /dev/out /dev/err
pass_on </dev/out >"$job/stdout" &
passing=" 1 $! "
pass_on </dev/err >"$job/stderr" &
passing+="$! "

ulimit -Hn 1048576
: >"$job/up"
# A session of its own, and what a background job ignores as it was.
(
    cd "${words[0]}" || exit 126
    exec setsid env -i --default-signal=INT,QUIT "${words[@]:1}"
) </dev/null >/dev/out 2>/dev/err &
wait $!
code=$?

# A process that still holds the pipes open would keep them from ending.
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    [[ $passing == *" $pid "* ]] || kill -KILL "$pid"
done 2>/dev/null
wait
sync
echo "$code" >"$job/exit"
/bin/busybox poweroff -f
