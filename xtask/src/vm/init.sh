#!/bin/busybox sh
# PID 1 of the guest until its root is mounted. The kernel's command line says who it is: `$job` is the directory that the
# host made for this guest, `$name` its name, `$address` what it has on the wire to another guest, `$out` a directory of the
# host that it may write to. run.sh in `$job` takes over from here.

fail() {
    echo "vm: $*"
    /bin/busybox poweroff -f
}

must() {
    "$@" || fail "this failed: $*"
}

# Waits up to ten seconds for a command to succeed.
await() {
    tries=0
    until "$@" 2>/dev/null; do
        [ $((tries += 1)) -lt 500 ] || fail "this did not come: $*"
        usleep 20000
    done
}

# busybox finds its applets by /proc.
/bin/busybox mount -t proc proc /proc
mount -t devtmpfs dev /dev
mount -t sysfs sys /sys
for module in /modules/*; do must insmod "$module"; done

# The host's root, and over it what this guest writes. Caching is sound as long as the guest does not care for what
# the host changes meanwhile.
must mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
must mount -t tmpfs tmpfs /layer
mkdir /layer/upper /layer/work
must mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
must mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 job "/new$job"
if [ -n "$out" ]; then
    must mkdir -p "/new$out"
    must mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap,msize=512000 out "/new$out"
fi

hostname "$name"
printf '10.77.0.1 node\n10.77.0.2 edge\n' >>/new/etc/hosts
ip link set lo up
netdev=lo
if [ -n "$address" ]; then
    netdev=eth0
    await test -e "/sys/class/net/$netdev"
    must ip addr add "$address" dev "$netdev"
fi
must ip link set "$netdev" up
must chroot /new rdma link add rxe0 type rxe netdev "$netdev"
# Index 1 is the IPv4 address; it comes a moment after the device.
await grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state
await grep -q ffff /sys/class/infiniband/rxe0/ports/1/gids/1

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
for link in fd: stdin:/0 stdout:/1 stderr:/2; do
    ln -s "/proc/self/fd${link#*:}" "/dev/${link%:*}"
done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs tracefs /sys/kernel/tracing
for dir in /sys /dev /proc; do must /bin/busybox mount --move "$dir" "/new$dir"; done

exec /bin/busybox switch_root /new /bin/bash "$job/run.sh"
