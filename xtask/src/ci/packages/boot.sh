# Boots a container with systemd as its first process, and runs script.sh of a directory there: sh boot.sh WORK DIRECTORY ROOT. It has the
# files of ROOT, and what it writes is in memory. To be run in a mount namespace of its own. Exits with 77 if no container starts here.
set -eu
work=$1 directory=$2 files=$3
mount -t tmpfs -o size=1g none "$work" || exit 77
mkdir "$work/upper" "$work/over" "$work/root"
mount -t overlay none -o "lowerdir=$files,upperdir=$work/upper,workdir=$work/over" "$work/root" || exit 77
root=$work/root
cp -r "$directory"/* "$root/opt"
# Packages start what they bring, as on any machine.
rm -f "$root/usr/sbin/policy-rc.d"
cat > "$root/etc/systemd/system/script.service" <<'UNIT'
[Unit]
After=basic.target

[Service]
Type=oneshot
WorkingDirectory=/opt
ExecStart=sh -c 'sh -eux /opt/script.sh; echo $? > /opt/code'
ExecStopPost=systemctl poweroff --no-block
StandardOutput=file:/opt/out
StandardError=inherit
TimeoutStartSec=infinity
UNIT
cat > "$root/etc/systemd/system/script.target" <<'UNIT'
[Unit]
Requires=basic.target script.service
UNIT
systemd-nspawn --quiet --directory="$root" --private-network --register=no --keep-unit --console=pipe \
    /lib/systemd/systemd --unit=script.target > "$work/console" 2>&1 || true
if [ ! -e "$root/opt/out" ]; then
    tail -n 40 "$work/console"
    exit 77
fi
cat "$root/opt/out"
exit "$(cat "$root/opt/code" || echo 1)"
