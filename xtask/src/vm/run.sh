# PID 1 of the guest once its root is mounted: runs the command, carries its output and exit code to the host through
# three serial ports, and leaves nothing behind. The host ends the guest.
# The lines of the third port: `ready`, `listening` and `exit CODE` from here, `go` and `stop` from the host.
# shellcheck disable=SC2154

. "$job/job"

# A port can be opened once only. The command gets pipes, which can be opened again, as /dev/stdout is.
mkfifo /dev/out /dev/err
exec 5<>/dev/vport0p3 6>/dev/vport0p1 7>/dev/vport0p2
cat </dev/out >&6 &
cats=$!
cat </dev/err >&7 &
cats="$cats $!"
exec 3>/dev/out 4>/dev/err
rm /dev/out /dev/err

echo ready >&5
read -r word <&5

ulimit -Hn 1048576
if [ -n "$tty" ]; then
    ( stty $tty; run 3>&- 4>&- 5>&- 6>&- 7>&- ) <>/dev/hvc0 >&0 2>&0 &
else
    ( run 5>&- 6>&- 7>&- ) </dev/null >&3 2>&4 3>&- 4>&- &
fi
child=$!
exec 3>&- 4>&-

# It leads a session, and so a group.
while read -r word <&5; do
    [ "$word" != stop ] || kill -TERM -"$child" 2>/dev/null
done &
if [ -n "$port" ]; then
    while ! grep -qE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F:]+ 0A" /proc/net/tcp /proc/net/tcp6; do
        usleep 50000
    done && echo listening >&5 &
fi
wait "$child"
code=$?

# A process that still holds the pipes open would keep the cats from ending.
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    case " 1 $cats " in
    *" $pid "*) ;;
    *) kill -KILL "$pid" 2>/dev/null ;;
    esac
done
wait $cats
sync
printf '\000%s\000' "$end" >&6
printf '\000%s\000' "$end" >&7
echo "exit $code" >&5
while :; do sleep 60; done
