//! What is to be said of the facts. Nothing is looked at here.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Fabric;
use sidelong_layout::LAYOUT_VERSION;

use super::facts::{
    Answer, CertificateFile, Controlled, Facts, Holder, Machine, Needs, Part, Port, Process, RunPlace,
    SecretFile,
};

/// The first Linux whose BPF programs keep load records (docs/load.md).
const RECORDS_SINCE: (u32, u32) = (5, 17);
/// Clocks of machines may differ by so much: an answer's time has whole seconds.
const SKEW_MAX: Duration = Duration::from_secs(2);
/// So long before a certificate's end its owner should know.
const RENEWED_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
/// A connection of a client and one to a node, for each of `limits.connections_max`, and what else a part has open.
const FILES_PER_CONNECTION: u64 = 2;
const OTHER_FILES: u64 = 256;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    /// Nothing is to be done.
    Good,
    /// What it costs can be borne.
    Warning,
    /// Something does not work.
    Error,
}

/// A thing that was looked at.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    /// The thing.
    pub(super) what: String,
    /// How it is.
    pub(super) found: String,
    /// What that costs, and what mends it, unless it is good.
    #[serde(flatten)]
    pub(super) ill: Option<Ill>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Ill {
    pub(super) costs: String,
    pub(super) mend: String,
}

fn good(what: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding { grade: Grade::Good, what: what.into(), found: found.into(), ill: None }
}

fn ill(
    grade: Grade,
    what: impl Into<String>,
    found: impl Into<String>,
    costs: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    let ill = Some(Ill { costs: costs.into(), mend: mend.into() });
    Finding { grade, what: what.into(), found: found.into(), ill }
}

/// What is to be said, a finding for each thing that was looked at.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = machine(facts);
    findings.push(match &facts.file {
        (file, None) => good("cluster file", file),
        (file, Some(why)) => ill(
            Grade::Error,
            "cluster file",
            why,
            "no part starts by it, and nothing else of the cluster was looked at",
            format!("edit {file}, then: sidelong config check {file}"),
        ),
    });
    if facts.is_blind {
        findings.push(ill(
            Grade::Warning,
            "user",
            "this one does not see what the cluster's user has",
            "processes, ports, files and proxies of this machine were not looked at",
            "sudo sidelong doctor",
        ));
    }
    findings.extend(facts.run.as_ref().map(|run| run_directory(run, &facts.needs)));
    findings.extend(facts.processes.iter().flat_map(|process| limits(process, &facts.needs)));
    findings.extend(facts.missing.iter().map(|part| missing(part, &facts.needs)));
    findings.extend(facts.ports.iter().map(port));
    findings.extend(facts.secret.as_ref().map(secret));
    findings.extend(facts.parts.iter().flat_map(|part| answer(part, &facts.parts)));
    findings.extend(facts.proxies.iter().map(proxy));
    findings.extend(facts.certificates.iter().map(certificate));
    findings
}

fn machine(Facts { machine, needs, .. }: &Facts) -> Vec<Finding> {
    let Machine { kernel, has_btf, has_bpf_files, has_groups, rdma } = machine;
    let needed = |is_needed: bool| if is_needed { Grade::Error } else { Grade::Warning };
    let by_thread = "a thread on the node keeps its load record, and not the kernel";
    let mut findings = vec![match version(kernel) {
        Some(version) if version < RECORDS_SINCE => ill(
            needed(needs.kernel_records),
            "kernel",
            format!("Linux {kernel}"),
            by_thread,
            format!("run Linux {}.{} or newer", RECORDS_SINCE.0, RECORDS_SINCE.1),
        ),
        _ => good("kernel", format!("Linux {kernel}")),
    }];
    findings.push(match has_btf {
        true => good("types of the kernel (BTF)", "/sys/kernel/btf/vmlinux"),
        false => ill(
            needed(needs.kernel_records || needs.connect),
            "types of the kernel (BTF)",
            "no /sys/kernel/btf/vmlinux",
            by_thread,
            "run a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have it",
        ),
    });
    if needs.connect {
        findings.push(match has_bpf_files {
            true => good("BPF file system", "/sys/fs/bpf"),
            false => ill(
                Grade::Error,
                "BPF file system",
                "none at /sys/fs/bpf",
                "a front without a proxy cannot attach its programs",
                "mount -t bpf bpf /sys/fs/bpf",
            ),
        });
    }
    findings.push(match has_groups {
        true => good("control groups", "version 2"),
        false => ill(
            Grade::Warning,
            "control groups",
            "no control groups of version 2 at /sys/fs/cgroup",
            "the load of a server is that of the whole machine",
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
    });
    findings.push(match (rdma.is_empty(), needs.fabric) {
        (false, _) => good("RDMA", rdma.join(", ")),
        (true, Fabric::Verbs) => ill(
            Grade::Error,
            "RDMA",
            "no device",
            "no part starts: the file asks for the fabric verbs",
            "load the adapter's driver, or set cluster.fabric = \"auto\"",
        ),
        (true, _) => good("RDMA", "no device, and none is needed"),
    });
    findings
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn run_directory(run: &RunPlace, needs: &Needs) -> Finding {
    let path = needs.run_dir.display();
    let what = "run directory";
    match run {
        RunPlace::Absent => good(what, format!("{path}, which the first part makes")),
        RunPlace::Refused(why) => ill(
            Grade::Error,
            what,
            why,
            "parts of this user do not start",
            format!("run this command as the cluster's user; or, while nothing runs: rm -r {path}"),
        ),
        RunPlace::Found { free_mib, .. } if *free_mib < needs.memory_mib => ill(
            Grade::Error,
            what,
            format!("{path} has {free_mib} MiB left, and what does not run takes {} MiB", needs.memory_mib),
            "caches and nodes with documents do not start",
            format!("mount -o remount,size=... the file system of {path}, or lower memory_mb"),
        ),
        RunPlace::Found { is_memory: false, .. } => ill(
            Grade::Warning,
            what,
            format!("{path} is on a disk"),
            "parts wait for the disk when it writes back what they change",
            "set cluster.run_dir to a directory below /run; under the package's units, below /run/sidelong",
        ),
        RunPlace::Found { free_mib, .. } => good(what, format!("{path}, {free_mib} MiB free")),
    }
}

fn limits(process: &Process, needs: &Needs) -> Vec<Finding> {
    let Process { name, kind, files_max, locked_max } = process;
    let mut findings = Vec::new();
    let files = needs.connections_max * FILES_PER_CONNECTION + OTHER_FILES;
    if let (&"edge", Some(max)) = (kind, files_max)
        && *max < files
    {
        findings.push(ill(
            Grade::Warning,
            format!("files of {name}"),
            format!("it may open {max}, and {} connections take {files}", needs.connections_max),
            "clients beyond that wait to be accepted",
            format!("LimitNOFILE={files} in its unit, or lower limits.connections_max"),
        ));
    }
    if let (Fabric::Verbs, Some(max)) = (needs.fabric, locked_max) {
        findings.push(ill(
            Grade::Warning,
            format!("locked memory of {name}"),
            format!("at most {} KiB", max / 1024),
            "RDMA of larger regions is refused",
            "LimitMEMLOCK=infinity in its unit",
        ));
    }
    if findings.is_empty() {
        findings.push(good(format!("process of {name}"), "runs, and its limits suffice"));
    }
    findings
}

fn missing((kind, name): &(&'static str, String), needs: &Needs) -> Finding {
    let costs = match *kind {
        "node" => "nobody hears the load of its server, which serves on and does not move",
        "edge" => "its clients are refused, or wait",
        "front" => "its proxy goes on by what it has heard last",
        _ => "others answer for what it has, or nobody does",
    };
    let unit = format!("sidelong-{kind}@{name}");
    let privileges = match *kind {
        "node" if needs.kernel_records => {
            "; the file asks for records that the kernel keeps: its unit needs CAP_BPF and CAP_PERFMON (docs/install.md)"
        }
        "front" if needs.connect => {
            "; without a proxy its unit needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (docs/fronts.md)"
        }
        _ => "",
    };
    ill(
        Grade::Error,
        format!("process of {name}"),
        "none runs on this machine",
        costs,
        format!("systemctl start {unit}; if it fails: journalctl --unit {unit}{privileges}"),
    )
}

fn port(Port { what, address, holder }: &Port) -> Finding {
    match holder {
        Holder::Nobody => good(what, format!("{address} is free")),
        Holder::Part => good(what, format!("{address} is its own")),
        Holder::Systemd => good(what, format!("systemd listens at {address} for it")),
        Holder::Other(who) => ill(
            Grade::Error,
            what,
            format!("{address} is taken by {who}"),
            "the part does not start",
            format!("end what listens there, or change {what} in the file"),
        ),
        Holder::Unusable(why) => ill(
            Grade::Error,
            what,
            format!("{address}: {why}"),
            "the part does not start",
            format!("change {what} in the file to an address of this machine"),
        ),
    }
}

fn secret(SecretFile { path, secrets }: &SecretFile) -> Finding {
    let path = path.display();
    match secrets {
        Ok(1) => good("secret", path.to_string()),
        Ok(_) => ill(
            Grade::Warning,
            "secret",
            format!("{path} has two"),
            "who has learned the old one is let in until it is taken away",
            "sidelong secret rotate",
        ),
        Err(why) => ill(
            Grade::Error,
            "secret",
            why,
            "the parts of this machine do not start",
            format!("chmod 600 {path}, of the user as whom the parts run"),
        ),
    }
}

fn answer(part: &Part, all: &[Part]) -> Vec<Finding> {
    let Part { name, kind, address, answer } = part;
    let what = format!("{kind} {name}");
    let Answer { version, layout, epoch, ahead_s } = match answer {
        Ok(answer) => answer,
        Err(why) => {
            return vec![ill(
                Grade::Warning,
                what,
                format!("does not answer at {address}: {why}"),
                "nobody knows how it does",
                format!("on its machine: systemctl status sidelong-{kind}@{name}"),
            )];
        }
    };
    let mut findings = Vec::new();
    if let Some(ahead) = ahead_s.filter(|ahead| ahead.abs() > SKEW_MAX.as_secs_f64()) {
        let how = if ahead > 0.0 { "ahead" } else { "behind" };
        findings.push(ill(
            Grade::Warning,
            &what,
            format!("its clock is {:.0} s {how} of this machine's", ahead.abs()),
            "times in the histories and logs of machines do not agree",
            "on both machines: timedatectl set-ntp true",
        ));
    }
    let (own, own_layout) = (env!("CARGO_PKG_VERSION"), LAYOUT_VERSION.to_string());
    let has_other_layout = layout.as_ref().is_some_and(|layout| *layout != own_layout);
    if let Some(other) = version.as_deref().filter(|other| *other != own || has_other_layout) {
        let layouts = layout.as_ref().filter(|_| has_other_layout);
        let layouts =
            layouts.map(|layout| format!(", with layouts {layout} and {own_layout}")).unwrap_or_default();
        findings.push(ill(
            Grade::Warning,
            &what,
            format!("is of release {other}, and this program of {own}{layouts}"),
            "only releases that follow each other work together",
            format!(
                "on its machine: apt-get install --only-upgrade sidelong, or restart sidelong-{kind}@{name}"
            ),
        ));
    }
    let newest = all.iter().filter_map(|part| part.answer.as_ref().ok()?.epoch).max();
    if let (Some(epoch), Some(newest)) = (epoch, newest.filter(|newest| Some(*newest) != *epoch)) {
        findings.push(ill(
            Grade::Warning,
            &what,
            format!("goes by the file of epoch {epoch}, and others by that of {newest}"),
            "it knows no member that has come since",
            "sidelong status says why; otherwise restart it",
        ));
    }
    if !findings.is_empty() {
        return findings;
    }
    let layout = layout.as_ref().map(|layout| format!(", layout {layout}")).unwrap_or_default();
    let epoch = epoch.map(|epoch| format!(", epoch {epoch}")).unwrap_or_default();
    let version = version.as_deref().unwrap_or("an unknown release");
    vec![good(what, format!("answers: {version}{layout}{epoch}"))]
}

fn proxy(Controlled { front, proxy, survey }: &Controlled) -> Finding {
    let what = format!("{proxy} of {front}");
    match survey {
        Ok(said) => good(what, said.lines().next().unwrap_or_default()),
        Err(why) => ill(
            Grade::Warning,
            what,
            why,
            "its requests, if it has any, do not go by load, and no node that it may use moves",
            format!("sidelong front config {front} prints its lines; then reload it"),
        ),
    }
}

fn certificate(CertificateFile { path, left_s }: &CertificateFile) -> Finding {
    let path = path.display();
    let (what, days) = ("certificate", |seconds: i64| seconds / (24 * 3600));
    match left_s {
        Err(why) => ill(
            Grade::Error,
            what,
            why,
            "the part that has it does not start",
            format!("openssl x509 -in {path} -noout -dates"),
        ),
        Ok(left) if *left <= 0 => ill(
            Grade::Error,
            what,
            format!("{path} has ended, {} days ago", days(-left)),
            "clients refuse it",
            format!("renew {path}: it is taken over as soon as the file is replaced"),
        ),
        Ok(left) if (*left as u64) < RENEWED_BEFORE.as_secs() => ill(
            Grade::Warning,
            what,
            format!("{path} ends in {} days", days(*left)),
            "clients refuse it then",
            format!("renew {path}: it is taken over as soon as the file is replaced"),
        ),
        Ok(left) => good(what, format!("{path}, for {} days", days(*left))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sidelong_config::Proxy;

    use super::*;

    /// A machine on which nothing is wrong.
    fn facts() -> Facts {
        let machine = Machine {
            kernel: "6.1.0-30-amd64".into(),
            has_btf: true,
            has_bpf_files: true,
            has_groups: true,
            rdma: vec![],
        };
        let process = |name: &str, kind| Process {
            name: name.into(),
            kind,
            files_max: Some(1 << 20),
            locked_max: None,
        };
        let processes = vec![process("edge1", "edge"), process("n1", "node")];
        let parts = vec![part("edge1", answer(4, 0.5)), part("edge2", answer(4, -0.5))];
        let needs = Needs { connections_max: 1024, ..Needs::default() };
        let file = ("/etc/sidelong/cluster.toml".into(), None);
        Facts { machine, file, needs, processes, parts, ..Facts::default() }
    }

    fn part(name: &str, answer: Result<Answer, String>) -> Part {
        Part { name: name.into(), kind: "edge", address: address(), answer }
    }

    fn answer(epoch: u64, ahead_s: f64) -> Result<Answer, String> {
        let version = Some(env!("CARGO_PKG_VERSION").to_owned());
        Ok(Answer { version, layout: None, epoch: Some(epoch), ahead_s: Some(ahead_s) })
    }

    fn address() -> SocketAddr {
        "127.0.0.1:9081".parse().unwrap()
    }

    fn port(holder: Holder) -> Vec<Port> {
        vec![Port { what: "listen of edge1".into(), address: address(), holder }]
    }

    fn secret(secrets: Result<usize, String>) -> Option<SecretFile> {
        Some(SecretFile { path: "/etc/sidelong/secret".into(), secrets })
    }

    fn certificate(left_s: Result<i64, String>) -> Vec<CertificateFile> {
        vec![CertificateFile { path: "cert.pem".into(), left_s }]
    }

    const DAY: i64 = 24 * 3600;

    /// How a fault is made, how bad it is, what it is about, and what its remedy names.
    type Fault = (fn(&mut Facts), Grade, &'static str, &'static str);
    const FAULTS: &[Fault] = &[
        (|of| of.machine.kernel = "5.10.0".into(), Grade::Warning, "kernel", "Linux 5.17"),
        (
            |of| of.machine.has_btf = false,
            Grade::Warning,
            "types of the kernel (BTF)",
            "CONFIG_DEBUG_INFO_BTF",
        ),
        (|of| of.machine.has_groups = false, Grade::Warning, "control groups", "unified_cgroup_hierarchy"),
        (
            |of| (of.needs.connect, of.machine.has_bpf_files) = (true, false),
            Grade::Error,
            "BPF file system",
            "mount -t bpf",
        ),
        (|of| of.needs.fabric = Fabric::Verbs, Grade::Error, "RDMA", "driver"),
        (|of| of.file.1 = Some("cluster.toml:3: no".into()), Grade::Error, "cluster file", "config check"),
        (|of| of.run = Some(RunPlace::Refused("mode 777".into())), Grade::Error, "run directory", "rm -r"),
        (
            |of| {
                of.needs.memory_mib = 64;
                of.run = Some(RunPlace::Found { is_memory: true, free_mib: 63 });
            },
            Grade::Error,
            "run directory",
            "memory_mb",
        ),
        (
            |of| of.run = Some(RunPlace::Found { is_memory: false, free_mib: 63 }),
            Grade::Warning,
            "run directory",
            "cluster.run_dir",
        ),
        (|of| of.processes[0].files_max = Some(1024), Grade::Warning, "files of edge1", "LimitNOFILE="),
        (
            |of| {
                of.needs.fabric = Fabric::Verbs;
                of.machine.rdma.push("rxe0".into());
                of.processes[1].locked_max = Some(65536);
            },
            Grade::Warning,
            "locked memory of n1",
            "LimitMEMLOCK=",
        ),
        (
            |of| {
                of.needs.kernel_records = true;
                of.missing.push(("node", "n1".into()));
            },
            Grade::Error,
            "process of n1",
            "CAP_BPF and CAP_PERFMON",
        ),
        (|of| of.is_blind = true, Grade::Warning, "user", "sudo"),
        (|of| of.missing.push(("node", "n2".into())), Grade::Error, "process of n2", "sidelong-node@n2"),
        (
            |of| of.ports = port(Holder::Other("apache2, process 12".into())),
            Grade::Error,
            "listen of edge1",
            "end what listens there",
        ),
        (
            |of| of.ports = port(Holder::Unusable("not this machine's".into())),
            Grade::Error,
            "listen of edge1",
            "an address of this machine",
        ),
        (|of| of.secret = secret(Ok(2)), Grade::Warning, "secret", "secret rotate"),
        (|of| of.secret = secret(Err("mode 644".into())), Grade::Error, "secret", "chmod 600"),
        (
            |of| of.parts[1] = part("edge2", Err("refused".into())),
            Grade::Warning,
            "edge edge2",
            "systemctl status",
        ),
        (|of| of.parts[1] = part("edge2", answer(3, 0.0)), Grade::Warning, "edge edge2", "sidelong status"),
        (|of| of.parts[1] = part("edge2", answer(4, 3600.0)), Grade::Warning, "edge edge2", "set-ntp"),
        (
            |of| {
                let old = Answer { version: Some("0.0.1".into()), epoch: Some(4), ..Answer::default() };
                of.parts[1] = part("edge2", Ok(old));
            },
            Grade::Warning,
            "edge edge2",
            "--only-upgrade",
        ),
        (
            |of| {
                let Ok(answer) = &mut of.parts[1].answer else { unreachable!("it answers") };
                answer.layout = Some("1".into());
            },
            Grade::Warning,
            "edge edge2",
            "restart sidelong-edge@edge2",
        ),
        (
            |of| {
                let survey = Err("no worker asks it".into());
                of.proxies = vec![Controlled { front: "web1".into(), proxy: Proxy::Nginx, survey }];
            },
            Grade::Warning,
            "nginx of web1",
            "front config web1",
        ),
        (|of| of.certificates = certificate(Ok(13 * DAY)), Grade::Warning, "certificate", "renew cert.pem"),
        (|of| of.certificates = certificate(Ok(-DAY)), Grade::Error, "certificate", "renew cert.pem"),
        (|of| of.certificates = certificate(Err("empty".into())), Grade::Error, "certificate", "openssl"),
    ];

    #[test]
    fn each_fault_alone_is_named_with_what_it_costs_and_what_mends_it() {
        for (make, grade, what, remedy) in FAULTS {
            let mut facts = facts();
            make(&mut facts);
            let wrong: Vec<_> = judge(&facts).into_iter().filter(|finding| finding.ill.is_some()).collect();
            let [Finding { ill: Some(Ill { costs, mend }), .. }] = &wrong[..] else {
                panic!("{what}: {wrong:?}");
            };
            assert_eq!((&wrong[0].grade, &*wrong[0].what), (grade, *what));
            assert!(!costs.is_empty() && mend.contains(remedy), "{what}: {mend}");
        }
    }

    #[test]
    fn where_nothing_is_wrong_all_findings_are_good() {
        let mut facts = facts();
        facts.run = Some(RunPlace::Found { is_memory: true, free_mib: 4096 });
        facts.ports = port(Holder::Systemd);
        facts.secret = secret(Ok(1));
        facts.certificates = certificate(Ok(15 * DAY));
        let findings = judge(&facts);
        assert!(
            findings.iter().all(|finding| finding.grade == Grade::Good && finding.ill.is_none()),
            "{findings:?}"
        );
    }

    #[test]
    fn what_a_machine_lacks_is_an_error_where_the_file_asks_for_it() {
        let mut old = facts();
        old.machine.kernel = "5.10.0".into();
        old.needs.kernel_records = true;
        old.processes.clear();
        assert!(judge(&old).iter().any(|finding| finding.what == "kernel" && finding.grade == Grade::Error));
    }
}
