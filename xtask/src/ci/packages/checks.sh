# What runs in the container, as root: the commands of docs/install.md, and between them what its reader relies on.
ln -s @PACKAGES@ debs
sudo() { "$@"; }

# until_so COMMAND...: for as long as a busy machine may take. Says how long it took.
until_so() {
    began=$(date +%s%3N)
    until "$@"; do
        [ $(($(date +%s%3N) - began)) -lt 60000 ] || { journalctl --no-pager --lines=60 --unit='sidelong-*'; return 1; }
        sleep 0.1
    done
    echo "after $(($(date +%s%3N) - began)) ms: $*"
}
all_active() {
    ! systemctl list-units --all --plain --no-legend 'sidelong-*' | grep --invert-match ' active '
}
answers() {
    curl --silent --fail --max-time 30 --output /dev/null --header 'Host: app.example' "$1"
}
is_well() {
    answers "$1" && sidelong doctor
}

# check_all URL: at which the cluster answers.
check_all() {
    until_so is_well "$1"
    all_active
    for unit in $(systemctl list-units --plain --no-legend 'sidelong-*.service' | cut --delimiter=' ' --fields=1); do
        systemd-analyze security --no-pager --threshold=25 "$unit" | tail -n 1
        systemctl reload "$unit"
    done

    # Restarted, killed, or without the machine's /run, all is back without a hand.
    systemctl restart sidelong.target
    until_so answers "$1"
    until_so all_active
    systemctl kill --signal=KILL 'sidelong-*.service'
    until_so answers "$1"
    until_so all_active
    # What starts again meanwhile makes files anew.
    until rm -r /run/sidelong/*; do sleep 0.1; done
    until_so test -d /run/sidelong/app
    until_so is_well "$1"

    # Root's report lies where root is, though the command acts as the cluster's user.
    sidelong doctor --bundle report.tar
    tar --list --file=report.tar | grep status.json
    rm report.tar

    # A front or edge that hangs is killed, and started again.
    for unit in $(systemctl list-units --plain --no-legend 'sidelong-front@*.service' 'sidelong-edge@*.service' | cut --delimiter=' ' --fields=1); do
        mkdir -p "/run/systemd/system/$unit.d"
        printf '[Service]\nWatchdogSec=1s\n' > "/run/systemd/system/$unit.d/watchdog.conf"
        systemctl daemon-reload
        systemctl restart "$unit"
        systemctl kill --kill-who=main --signal=STOP "$unit"
        sleep 1
        until_so is_well "$1"
        systemctl show --property=NRestarts --value "$unit" | grep --invert-match '^0$'
    done

    # A file that cannot be used is refused with the reason, and what runs goes on.
    cp /etc/sidelong/cluster.toml good.toml
    echo 'nonsense = 1' >> /etc/sidelong/cluster.toml
    if systemctl reload sidelong-node@s1; then return 1; fi
    journalctl --no-pager --unit=sidelong-node@s1 | grep nonsense
    answers "$1"
    # As root it may be written by anybody's editor: its owner stays.
    cat good.toml > /etc/sidelong/cluster.toml
    systemctl reload sidelong-node@s1
}

# nothing_left: of a package that was purged.
nothing_left() {
    if pgrep --list-full sidelong; then return 1; fi
    for path in /usr/bin/sidelong /etc/sidelong /run/sidelong /var/lib/sidelong; do
        if [ -e $path ]; then return 1; fi
    done
    if find /etc/systemd /usr/lib/systemd -name '*sidelong*' | grep .; then return 1; fi
}

# upgrade URL: to the same under a higher version, while clients ask. None of them fails, and each part is another process.
upgrade() {
    dpkg-deb --raw-extract debs/sidelong_*.deb newer
    sed --in-place 's/^Version: .*/&+1/' newer/DEBIAN/control
    dpkg-deb -Znone --build newer sidelong-newer.deb
    rm -r newer
    asked=$(mktemp --directory)
    for client in 1 2 3 4; do
        while [ ! -e "$asked/stop" ]; do
            answers "$1" || date >> "$asked/failed"
            echo >> "$asked/$client"
        done &
    done 2> /dev/null
    before=$(systemctl show --property=MainPID --value 'sidelong-*.service')
    apt-get install -y ./sidelong-newer.deb
    until_so all_active
    touch "$asked/stop"
    wait
    echo "requests during the upgrade: $(cat "$asked"/[1-4] | wc --lines)"
    if [ -s "$asked/failed" ]; then cat "$asked/failed"; return 1; fi
    after=$(systemctl show --property=MainPID --value 'sidelong-*.service')
    for pid in $before; do
        if echo "$after" | grep --quiet --line-regexp "$pid"; then return 1; fi
    done
}

# Two servers, each a unit of systemd.
for port in 8080 8081; do
    mkdir -p /srv/$port
    echo $port > /srv/$port/index.html
    systemd-run --quiet --unit=server$port python3 -m http.server --bind 127.0.0.1 --directory /srv/$port $port
done
for port in 8080 8081; do
    until_so curl --silent --fail http://127.0.0.1:$port/
done

@INSTALL@
check_all http://127.0.0.1/
upgrade http://127.0.0.1/
@REMOVE@
nothing_left

# The same with an edge.
apt-get install -y ./debs/sidelong_*.deb
sidelong init --install --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
systemctl start sidelong.target
check_all http://127.0.0.1:8000/
upgrade http://127.0.0.1:8000/
apt-get purge -y sidelong
nothing_left
