//! The packets of gmetric (Ganglia 3.1 and later), in XDR (RFC 4506): a figure's description, and its value.
//!
//! The layout is that of Ganglia 3.7.2's lib/gm_protocol.x: `Ganglia_metadatadef` is the description (id 128) and
//! `Ganglia_gmetric_string` the value (id 133), which gmetric sends as text whatever the type. The tests compare with packets
//! captured from gmetric.

/// Descriptions, `gmetadata_full`.
const METADATA: u32 = 128;
/// Values as text, `gmetric_string`.
const VALUE: u32 = 133;

/// How a figure changes from one value to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slope {
    /// It only rises, and its rate is of interest.
    Positive = 1,
    /// It rises and falls.
    Both = 3,
}

/// A figure and its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Name<'a> {
    /// `KEY:NAME`, instead of the sending host; gmond tells hosts apart by the key.
    pub(super) host: &'a str,
    pub(super) figure: &'a str,
}

/// The description of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Description<'a> {
    /// A type that gmetric knows: `uint32`, `double`...
    pub(super) kind: &'static str,
    pub(super) units: &'a str,
    pub(super) slope: Slope,
    /// Most seconds between two values.
    pub(super) tmax_s: u32,
    /// Seconds after which gmond forgets a figure that gets no more values.
    pub(super) dmax_s: u32,
    pub(super) group: &'a str,
    pub(super) text: &'a str,
}

/// Replaces the content of `packet` with a description.
pub(super) fn metadata(packet: &mut Vec<u8>, name: &Name<'_>, description: &Description<'_>) {
    let Description { kind, units, slope, tmax_s, dmax_s, group, text } = description;
    begin(packet, METADATA, name);
    string(packet, kind);
    string(packet, name.figure);
    string(packet, units);
    for number in [*slope as u32, *tmax_s, *dmax_s] {
        uint(packet, number);
    }
    let extra = [("SPOOF_HOST", name.host), ("GROUP", group), ("DESC", text)];
    uint(packet, extra.len() as u32);
    for (key, value) in extra {
        string(packet, key);
        string(packet, value);
    }
}

/// Replaces the content of `packet` with a value.
pub(super) fn value(packet: &mut Vec<u8>, name: &Name<'_>, value: &str) {
    begin(packet, VALUE, name);
    // The printf format by which gmond prints it.
    string(packet, "%s");
    string(packet, value);
}

fn begin(packet: &mut Vec<u8>, id: u32, name: &Name<'_>) {
    packet.clear();
    uint(packet, id);
    string(packet, name.host);
    string(packet, name.figure);
    // It is spoofed: true.
    uint(packet, 1);
}

fn uint(packet: &mut Vec<u8>, number: u32) {
    packet.extend(number.to_be_bytes());
}

/// Its length, its bytes, and zeros up to a multiple of four.
fn string(packet: &mut Vec<u8>, text: &str) {
    uint(packet, text.len() as u32);
    packet.extend(text.bytes());
    packet.resize(packet.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name<'_> = Name { host: "10.0.0.1:n1", figure: "run_queue" };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The two packets of gmetric 3.7.2 with `-n run_queue -v 7 -t uint32 -u threads -s both -x 60 -d 120 -g sidelong
    /// -D "Threads that want a CPU" -S 10.0.0.1:n1`.
    #[test]
    fn packets_are_those_of_gmetric() {
        const METADATA: &str = "000000800000000b31302e302e302e313a6e31000000000972756e5f7175657565000000000000010000000675696e74\
        333200000000000972756e5f7175657565000000000000077468726561647300000000030000003c0000007800000003\
        0000000a53504f4f465f484f535400000000000b31302e302e302e313a6e31000000000547524f555000000000000008\
        736964656c6f6e670000000444455343000000175468726561647320746861742077616e7420612043505500";
        const VALUE: &str = "000000850000000b31302e302e302e313a6e31000000000972756e5f7175657565000000000000010000000225730000\
        0000000137000000";
        let description = Description {
            kind: "uint32",
            units: "threads",
            slope: Slope::Both,
            tmax_s: 60,
            dmax_s: 120,
            group: "sidelong",
            text: "Threads that want a CPU",
        };
        let mut packet = b"what was there".to_vec();
        metadata(&mut packet, &NAME, &description);
        assert_eq!(hex(&packet), METADATA);
        value(&mut packet, &NAME, "7");
        assert_eq!(hex(&packet), VALUE);
    }

    /// The first packet of `gmetric -n served -v 123456789012 -t double -u requests -s positive -x 15 -d 60 -g g
    /// -D Requests -S 10.0.0.1:n1`.
    #[test]
    fn counters_are_those_of_gmetric() {
        const METADATA: &str = "000000800000000b31302e302e302e313a6e31000000000673657276656400000000000100000006646f75626c650000\
        000000067365727665640000000000087265717565737473000000010000000f0000003c000000030000000a53504f4f\
        465f484f535400000000000b31302e302e302e313a6e31000000000547524f5550000000000000016700000000000004\
        44455343000000085265717565737473";
        let description = Description {
            kind: "double",
            units: "requests",
            slope: Slope::Positive,
            tmax_s: 15,
            dmax_s: 60,
            group: "g",
            text: "Requests",
        };
        let mut packet = Vec::new();
        metadata(&mut packet, &Name { figure: "served", ..NAME }, &description);
        assert_eq!(hex(&packet), METADATA);
    }
}
