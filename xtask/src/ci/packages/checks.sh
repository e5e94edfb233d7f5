# What runs in the container, as root: the commands of docs/install.md, and between them what its reader relies on.
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
    # All at once, as after a change of the file.
    systemctl reload 'sidelong-*.service'

    # Started twice, the second is refused, and says who runs.
    if twice=$(runuser --user sidelong -- sidelong node s1 2>&1); then return 1; fi
    echo "$twice" | grep 'exposed by a process that is still alive'

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
    if find /etc/systemd /usr/lib/systemd /var/log -name '*sidelong*' | grep .; then return 1; fi
}

# asking URL KINDS: clients of those kinds ask until `asked`.
asking() {
    asked=$(mktemp --directory)
    python3 traffic.py ask "$1" "$asked" $2 &
}
# asked: no request has failed since then.
asked() {
    touch "$asked/stop"
    wait
    cat "$asked/asked"
    if [ -s "$asked/failed" ]; then cat "$asked/failed"; return 1; fi
}

# none_of PIDS: runs.
none_of() {
    for pid in $1; do
        if [ -e "/proc/$pid" ]; then return 1; fi
    done
}

# upgrade: to the same under a higher version. Each part is another process then, as often as @ROUNDS@ says.
upgrade() {
    dpkg-deb --raw-extract debs/sidelong_*.deb newer
    release=$((release + 1))
    sed --in-place "s/^Version: .*/&+$release/" newer/DEBIAN/control
    dpkg-deb -Znone --build newer sidelong-newer.deb
    rm -r newer
    before=$(systemctl show --property=MainPID --value 'sidelong-*.service')
    # A file that the new release refuses is kept, its line is said, and what runs goes on.
    echo 'nonsense = 1' >> /etc/sidelong/cluster.toml
    said=$(apt-get install -y ./sidelong-newer.deb 2>&1)
    echo "$said" | grep nonsense
    tail --lines=1 /etc/sidelong/cluster.toml | grep nonsense
    [ "$before" = "$(systemctl show --property=MainPID --value 'sidelong-*.service')" ]
    sed --in-place '/nonsense/d' /etc/sidelong/cluster.toml
    /usr/share/sidelong/restart
    until_so none_of "$before"
    until_so all_active
    # What the package does with parts, again and again.
    for round in $(seq 2 @ROUNDS@); do
        /usr/share/sidelong/restart
        until_so all_active
    done
}

of_http='kept fresh slow upload' release=0
# Two servers, each a unit of systemd.
for port in 8080 8081; do
    systemd-run --quiet --unit=server$port python3 /opt/traffic.py serve $port
done
for port in 8080 8081; do
    until_so curl --silent --fail http://127.0.0.1:$port/
done

# A full disk: the installation fails, and succeeds once there is room.
free=$(df --output=avail --block-size=1M / | tail --lines=1)
fallocate --length=$((free - 4))M filler
if apt-get install -y ./debs/sidelong_*.deb; then exit 1; fi
rm filler
# As apt says then.
dpkg --configure -a

@INSTALL@
# What each kind of unit is exposed to.
for unit in node@s1 front@web1 edge@edge1 edge-next@edge1 cache@c1; do
    exposure=$(systemd-analyze security --no-pager --threshold=25 "sidelong-$unit.service")
    echo "$exposure" | tail --lines=1
done
check_all http://127.0.0.1/
asking http://127.0.0.1/ "$of_http"
upgrade
asked
@REMOVE@
nothing_left

# The same with an edge.
apt-get install -y ./debs/sidelong_*.deb
# A restart of all while an edge is replaced.
takes_over() {
    systemctl start sidelong-edge-next@edge1
    systemctl restart sidelong.target
    until_so answers "$1"
    if systemctl is-failed 'sidelong-*'; then return 1; fi
}
sidelong init --install --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
systemctl start sidelong.target
check_all http://127.0.0.1:8000/
# One that cannot start replaces none.
fails=/run/systemd/system/sidelong-edge-next@edge1.service.d
mkdir --parents $fails
printf '[Service]\nExecStart=\nExecStart=/bin/false\n' > $fails/fails.conf
systemctl daemon-reload
before=$(systemctl show --property=MainPID --value sidelong-edge@edge1)
if said=$(/usr/share/sidelong/restart 2>&1); then exit 1; fi
echo "$said" | grep 'not upgraded.* sidelong-edge-next@edge1'
[ "$before" = "$(systemctl show --property=MainPID --value sidelong-edge@edge1)" ]
rm -r $fails
systemctl daemon-reload
until_so all_active
takes_over http://127.0.0.1:8000/
takes_over http://127.0.0.1:8000/
asking http://127.0.0.1:8000/ "$of_http tunnel"
upgrade
asked

# Over TLS, with HTTP/2.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=app.example -keyout /etc/sidelong/key.pem -out /etc/sidelong/cert.pem
chown sidelong /etc/sidelong/*.pem
sed --in-place '/^\[\[edge\]\]/a tls = [{ certificate = "/etc/sidelong/cert.pem", key = "/etc/sidelong/key.pem" }]' /etc/sidelong/cluster.toml
# An edge that begins by the roster of others that run does not know of it. systemctl waits for the units that it is told.
systemctl stop sidelong.target 'sidelong-*.service' 'sidelong-*.socket'
systemctl start sidelong.target
until_so curl --silent --fail --insecure --output /dev/null --header 'Host: app.example' https://127.0.0.1:8000/
asking https://127.0.0.1:8000/ http2
upgrade
asked
apt-get purge -y sidelong
nothing_left
