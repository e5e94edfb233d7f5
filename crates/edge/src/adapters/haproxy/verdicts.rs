//! Which clients HAProxy rejects when it is controlled by weights: what it is told of each site's verdict, in variables of its process,
//! and the rules of its configuration that read them. It does no I/O and asks no clock.
//!
//! A client has a place on a circle, by a hash of its address and port. The verdict admits an arc of that circle, which turns
//! (`sidelong_policy::admission`). HAProxy computes the place itself, so that it is asked nothing at a request.
//!
//! A verdict counts until a time of day, so that all are admitted soon after a front that ended, hangs or was killed. Its Runtime API
//! calls variables experimental (management guide, 9.3, `set var`); they are there since 2.4.

use std::time::Duration;

use sidelong_layout::{SiteId, Slots};
use sidelong_policy::admission::{CIRCLE, Verdict};

/// How much longer than it takes until the next one a verdict counts, at least.
const COUNTS_MIN: Duration = Duration::from_millis(500);

/// The beginning of the names of a site's variables. Names of sites may have characters that those of variables may not.
fn variables(site: &str) -> String {
    let letter =
        |c: char| if c.is_ascii_alphanumeric() { c.into() } else { format!(".{:02x}", u32::from(c)) };
    format!("proc.sidelong_{}", site.chars().map(letter).collect::<String>())
}

/// The rules of a site's backend, each after so much space, by which HAProxy rejects the clients that the site does not admit.
/// Variables that were never set reject nobody.
pub fn haproxy_admission(site: &str, indent: &str) -> String {
    let of = variables(site);
    let place = format!("src,xxh32,xor(txn.sidelong),xxh32,sub({of}_turn),and({})", CIRCLE - 1);
    format!(
        "{indent}http-request set-var(txn.sidelong) src_port\n\
         {indent}http-request deny deny_status 503 hdr Retry-After 1 hdr X-Sidelong-Reason %[var({of}_why)] \
         if {{ date(0,ms),sub({of}_until) lt 0 }} {{ {place},sub({of}_part) ge 0 }}\n"
    )
}

/// What HAProxy was told of the sites' verdicts.
pub(super) struct Verdicts {
    /// By site.
    variables: Vec<String>,
    /// Whether it may reject clients.
    rejects: Vec<bool>,
    counts: Duration,
}

impl Verdicts {
    /// Nothing was said yet of these sites, by slot. What comes later than `stale` after the last word is too late.
    pub(super) fn new(sites: &Slots<String>, stale: Duration) -> Self {
        let variables = sites.map(|site| variables(site)).to_vec();
        // Its process may have been told by a front that has ended.
        Verdicts { rejects: vec![true; variables.len()], variables, counts: stale.max(COUNTS_MIN) }
    }

    /// What to tell, at that time of day: of each site commands that belong into one connection. `None` knows of no verdicts.
    pub(super) fn commands(&self, verdicts: Option<&[Verdict]>, wall_ns: u64) -> Vec<(SiteId, Vec<String>)> {
        let until_ms = (wall_ns + self.counts.as_nanos() as u64) / 1_000_000;
        let of_site = |(site, (verdict, rejects)): (usize, (&Verdict, &bool))| {
            // A vacant slot has no name.
            let of = Some(&self.variables[site]).filter(|of| !of.is_empty())?;
            let set = |what: &str, value: String| format!("set var {of}_{what} {value}");
            let int = |number: u64| format!("int({number})");
            let sets = match verdict.arc() {
                Some((turn, part)) => vec![
                    set("turn", int(turn.into())),
                    set("part", int(part.into())),
                    set("why", format!("str({})", verdict.why().word())),
                    set("until", int(until_ms)),
                ],
                None if *rejects => vec![set("until", int(0))],
                None => return None,
            };
            let commands = std::iter::once("experimental-mode on".to_owned()).chain(sets);
            Some((SiteId::new(site), commands.collect()))
        };
        let known = verdicts.unwrap_or_default().iter().zip(&self.rejects);
        known.enumerate().filter_map(of_site).collect()
    }

    /// HAProxy was told these.
    pub(super) fn told(&mut self, verdicts: Option<&[Verdict]>) {
        for (rejects, verdict) in self.rejects.iter_mut().zip(verdicts.unwrap_or_default()) {
            *rejects = verdict.arc().is_some();
        }
    }
}

#[cfg(test)]
mod tests {
    use sidelong_policy::admission::Why;

    use super::*;

    /// The words of one verdict: a half is admitted, from a quarter of the circle on.
    fn half() -> Verdict {
        let word = u64::from(CIRCLE / 2) << 33 | u64::from(CIRCLE / 4) << 3 | Why::OverTarget as u64;
        Verdict::decode(word)
    }

    #[test]
    fn a_site_that_rejects_is_told_each_time_and_one_that_does_not_once() {
        let mut verdicts =
            Verdicts::new(&["a", "b-1"].map(str::to_owned).into_iter().collect(), Duration::from_millis(150));
        let open = Verdict::open(Why::Within);
        let now = [half(), open];
        let said = |verdicts: &Verdicts, now: &[Verdict]| -> Vec<String> {
            verdicts.commands(Some(now), 7_000_000_000).into_iter().flat_map(|(_, said)| said).collect()
        };
        let of_a = [
            "experimental-mode on",
            "set var proc.sidelong_a_turn int(268435456)",
            "set var proc.sidelong_a_part int(536870912)",
            "set var proc.sidelong_a_why str(over-target)",
            "set var proc.sidelong_a_until int(7500)",
        ];
        let first = said(&verdicts, &now);
        assert_eq!(first[..5], of_a);
        assert_eq!(first[5..], ["experimental-mode on", "set var proc.sidelong_b.2d1_until int(0)"]);
        verdicts.told(Some(&now));
        assert_eq!(said(&verdicts, &now), of_a);
        assert_eq!(said(&verdicts, &[open, open])[1..], ["set var proc.sidelong_a_until int(0)"]);
        verdicts.told(Some(&[open, open]));
        assert!(said(&verdicts, &[open, open]).is_empty() && verdicts.commands(None, 0).is_empty());
    }
}
