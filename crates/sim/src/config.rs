//! A configuration: a file and `--set`, and the runs that they specify.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sidelong_os::open_regular;
use sidelong_policy::cache::store::Room;
use sidelong_rams::protocol::CacheSettings;
use sidelong_trace::{Sizes, Zipf};
use toml::de::{DeTable, DeValue};

use crate::cluster::Setup;
use crate::costs::{Costs, PerByte};
use crate::error::{Error, Result};
use crate::fields::{self, ArrivalKind, FIELDS, Field, Kind, PROFILES, Scenario, Source, find};
use crate::model::Model;
use crate::workload::{Arrivals, Requests};

/// Most bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most runs of one sweep.
pub const RUNS_MAX: usize = 100_000;

/// The values of each field. More than one value asks for a run with each.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    profile: usize,
    profile_from: Origin,
    values: Vec<Vec<String>>,
    origins: Vec<Origin>,
    /// The file's directory, from which relative paths in it start.
    directory: PathBuf,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Default,
    File(String),
    Set,
}

impl Config {
    /// Reads a file. `sets` are `key=value[,value...]`, and override it.
    ///
    /// # Errors
    /// If it cannot be read, or a field is unknown or unusable: with the line and what was expected.
    pub fn load(path: &Path, sets: &[String]) -> Result<Config> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        if length > FILE_BYTES_MAX {
            let source = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "longer than 1 MiB");
            return Err(failed(source));
        }
        let text = std::io::read_to_string(file).map_err(failed)?;
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::parse(&text, &path.display().to_string(), &directory, sets)
    }

    /// Reads a text that errors call `name`.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &str, directory: &Path, sets: &[String]) -> Result<Config> {
        let mut config = Config {
            profile: 0,
            profile_from: Origin::Default,
            values: vec![Vec::new(); FIELDS.len()],
            origins: vec![Origin::Default; FIELDS.len()],
            directory: directory.to_owned(),
        };
        config.read(text, name)?;
        for set in sets {
            config.set(set)?;
        }
        for (field, values) in FIELDS.iter().zip(&mut config.values) {
            if values.is_empty() {
                let default = field.default[config.profile];
                values.push(usable(field.kind, default).unwrap_or_else(|| default.to_owned()));
            }
        }
        config.check_model(name)?;
        config.check_trace(name)?;
        let runs = config.values.iter().try_fold(1usize, |runs, values| runs.checked_mul(values.len()));
        if runs.is_none_or(|runs| runs > RUNS_MAX) {
            return Err(refuse(name, format!("more than {RUNS_MAX} runs: sweep fewer fields")));
        }
        Ok(config)
    }

    /// Checks that there is one model, and only its fields are given.
    fn check_model(&self, name: &str) -> Result<()> {
        let field = find("model").expect("a field of the table");
        if self.values[field].len() > 1 {
            return Err(refuse(name, "run.model cannot be swept: their figures differ"));
        }
        let foreign = (0..FIELDS.len())
            .find(|&field| self.origins[field] != Origin::Default && !FIELDS[field].is_of(self.model()));
        foreign.map_or(Ok(()), |field| {
            let (of, model) = (FIELDS[field].name(), self.model().as_str());
            let reason = format!("{of} does not belong to the model {model} (run.model)");
            Err(refuse(&self.place(field, name), reason))
        })
    }

    /// Checks that a log is named if and only if one is read. Otherwise a run that names one and draws its requests by
    /// Zipf's law would look like any other.
    fn check_trace(&self, name: &str) -> Result<()> {
        let [kind, trace] = ["kind", "trace"].map(|key| find(key).expect("a field of the table"));
        let is_read = self.values[kind].iter().any(|kind| kind == "trace");
        let is_named = self.values[trace].iter().all(|trace| !trace.is_empty());
        match (is_read, is_named) {
            (true, false) => {
                let reason = "workload.kind is \"trace\", but workload.trace names none";
                Err(refuse(&self.place(kind, name), reason))
            }
            (false, true) => {
                let reason = "workload.trace names a log, but no workload.kind is \"trace\"";
                Err(refuse(&self.place(trace, name), reason))
            }
            _ => Ok(()),
        }
    }

    /// Where a field's value comes from, for errors.
    pub(crate) fn place(&self, field: usize, name: &str) -> String {
        match &self.origins[field] {
            Origin::Default => name.to_owned(),
            Origin::File(place) => place.clone(),
            Origin::Set => format!("--set {}", FIELDS[field].key),
        }
    }

    /// The model to simulate.
    pub fn model(&self) -> Model {
        let field = find("model").expect("a field of the table");
        self.values[field][0].parse().expect("it was checked when it was put")
    }

    fn read(&mut self, text: &str, name: &str) -> Result<()> {
        let at = |offset: usize| {
            let before = &text.as_bytes()[..offset.min(text.len())];
            format!("{name}:{}", 1 + before.iter().filter(|byte| **byte == b'\n').count())
        };
        let root = DeTable::parse(text).map_err(|error| {
            refuse(&at(error.span().map_or(0, |span| span.start)), error.message().replace('\n', ", "))
        })?;
        for (section, value) in root.get_ref() {
            let place = at(section.span().start);
            let section = section.get_ref().as_ref();
            if section == "profile" {
                self.set_profile(&scalar(value.get_ref()).unwrap_or_default(), &place)?;
                self.profile_from = Origin::File(place);
                continue;
            }
            let keys = |section: &str| {
                let of = FIELDS.iter().filter(|field| field.section == section);
                of.map(|field| field.key).collect::<Vec<_>>().join(", ")
            };
            let known = keys(section);
            if known.is_empty() {
                let profiles = PROFILES.join("\" or \"");
                let reason = format!(
                    "{section:?} is not known; expected profile = \"{profiles}\", or a table {}",
                    sections()
                );
                return Err(refuse(&place, reason));
            }
            let Some(table) = value.get_ref().as_table() else {
                return Err(refuse(
                    &place,
                    format!("{section:?} is not a table; expected [{section}] with {known}"),
                ));
            };
            for (key, value) in table {
                let place = at(key.span().start);
                let key = key.get_ref().as_ref();
                let Some(field) =
                    FIELDS.iter().position(|field| field.section == section && field.key == key)
                else {
                    let reason = format!("{section}.{key} is not known; [{section}] has {known}");
                    return Err(refuse(&place, reason));
                };
                let items = match value.get_ref() {
                    DeValue::Array(items) => items.iter().map(|item| scalar(item.get_ref())).collect(),
                    other => vec![scalar(other)],
                };
                let items: Option<Vec<String>> = items.into_iter().collect();
                let Some(items) = items else {
                    let of = &FIELDS[field];
                    let reason =
                        format!("{} has a value of another type; expected {}", of.name(), expected(of));
                    return Err(refuse(&place, reason));
                };
                self.put(field, items, &place)?;
                self.origins[field] = Origin::File(place);
            }
        }
        Ok(())
    }

    fn set(&mut self, set: &str) -> Result<()> {
        let place = format!("--set {set}");
        let Some((key, values)) = set.split_once('=') else {
            return Err(refuse(&place, "expected key=value or key=value,value"));
        };
        if key == "profile" {
            self.set_profile(values, &place)?;
            self.profile_from = Origin::Set;
            return Ok(());
        }
        let field = find(key)
            .ok_or_else(|| refuse(&place, format!("{key} is not known; see `sidelong-lab sim explain`")))?;
        self.put(field, values.split(',').map(|value| value.trim().to_owned()).collect(), &place)?;
        self.origins[field] = Origin::Set;
        Ok(())
    }

    fn set_profile(&mut self, name: &str, place: &str) -> Result<()> {
        let found = PROFILES.iter().position(|profile| *profile == name);
        let expected = || format!("profile is {name:?}; expected {}", PROFILES.join(" or "));
        self.profile = found.ok_or_else(|| refuse(place, expected()))?;
        Ok(())
    }

    fn put(&mut self, field: usize, values: Vec<String>, place: &str) -> Result<()> {
        let of = &FIELDS[field];
        if values.is_empty() {
            return Err(refuse(place, format!("{} has no value; expected {}", of.name(), expected(of))));
        }
        let mut usables: Vec<String> = Vec::new();
        // A range may have as many values as there may be runs.
        let mut known = BTreeSet::new();
        for value in &values.iter().map(|value| spread(of.kind, value)).collect::<Vec<_>>().concat() {
            let usable = usable(of.kind, value);
            match usable {
                Some(usable) if known.insert(usable.clone()) => usables.push(usable),
                _ => {
                    let again = if usable.is_some() { " a second time" } else { "" };
                    let reason = format!("{} is {value:?}{again}; expected {}", of.name(), expected(of));
                    return Err(refuse(place, reason));
                }
            }
        }
        self.values[field] = usables;
        Ok(())
    }

    /// Every field with its values, their source and its description.
    pub fn explain(&self) -> String {
        let origin = |origin: &Origin| match origin {
            Origin::Default => None,
            Origin::File(place) => Some(place.clone()),
            Origin::Set => Some("--set".to_owned()),
        };
        let said = origin(&self.profile_from).unwrap_or_else(|| "default".to_owned());
        let mut text = format!("profile = \"{}\"  # {said}\n", PROFILES[self.profile]);
        let mut section = "";
        let fields = FIELDS.iter().zip(&self.values).zip(&self.origins);
        for ((field, values), from) in fields.filter(|((field, _), _)| field.is_of(self.model())) {
            if field.section != section {
                section = field.section;
                text += &format!("\n[{section}]\n");
            }
            let quoted = |value: &String| match field.kind {
                Kind::Word(_) | Kind::Path => format!("{value:?}"),
                _ => value.clone(),
            };
            let mut value = values.iter().map(quoted).collect::<Vec<_>>().join(", ");
            if values.len() > 1 {
                value = format!("[{value}]");
            }
            let said = origin(from).unwrap_or_else(|| format!("default; {}", field.source));
            text += &format!("# {}\n{} = {value}  # {said}\n", field.what, field.key);
        }
        text
    }

    /// The first field whose values differ from those of another configuration, with both; `None` if both ask for the same
    /// runs.
    pub fn difference(&self, other: &Config) -> Option<String> {
        let fields = FIELDS.iter().zip(self.values.iter().zip(&other.values));
        let mut apart = fields.filter(|(_, (ours, theirs))| ours != theirs);
        apart.next().map(|(field, (ours, theirs))| {
            format!("{} is {} and not {}", field.name(), ours.join(", "), theirs.join(", "))
        })
    }

    /// The values of a field.
    pub(crate) fn values(&self, field: usize) -> &[String] {
        &self.values[field]
    }

    /// The value of a field that is not swept.
    pub(crate) fn fixed(&self, field: usize) -> Option<&str> {
        match self.values(field) {
            [value] => Some(value),
            _ => None,
        }
    }

    /// The fields that are swept: those with more than one value.
    pub fn swept(&self) -> Vec<&'static Field> {
        FIELDS
            .iter()
            .zip(&self.values)
            .filter(|(_, values)| values.len() > 1)
            .map(|(field, _)| field)
            .collect()
    }

    /// A run for each combination of values. The last field varies fastest.
    pub fn points(&self) -> Vec<Point> {
        // A path that the shell completed starts from the current directory, one in the file from the file's.
        let trace = find("trace").expect("a field of the table");
        let directory = match self.origins[trace] {
            Origin::Set => PathBuf::new(),
            _ => self.directory.clone(),
        };
        let mut points = vec![Vec::new()];
        for values in &self.values {
            let with = |point: &Vec<String>, value: &String| point.iter().chain([value]).cloned().collect();
            points = points.iter().flat_map(|point| values.iter().map(|value| with(point, value))).collect();
        }
        let point = |values: Vec<String>| {
            let scenario = Scenario::read(&values).expect("values were checked when they were put");
            Point { values, scenario, directory: directory.clone() }
        };
        points.into_iter().map(point).collect()
    }
}

/// One value for each field: a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// As text, in the order of the fields.
    values: Vec<String>,
    scenario: Scenario,
    directory: PathBuf,
}

impl Point {
    /// The value of a field, as text.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn get(&self, name: &str) -> &str {
        &self.values[find(name).expect("a field of the table")]
    }

    /// The value of each field.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The model to simulate.
    pub fn model(&self) -> Model {
        self.scenario.run.model
    }

    /// A key that is equal for points with the same requests.
    pub(crate) fn workload_key(&self) -> String {
        let of = ["kind", "trace", "requests", "objects", "alpha"];
        let sizes = ["size_bytes_median", "size_sigma", "size_bytes_max", "seed"];
        of.iter().chain(&sizes).map(|key| self.get(key)).collect::<Vec<_>>().join("\n")
    }

    /// The requests of the run.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn requests(&self) -> Result<Requests> {
        let Scenario { workload: of, run, .. } = &self.scenario;
        match of.kind {
            Source::Trace => Ok(Requests::load(&self.trace(), of.requests)?.repeated(of.requests)),
            Source::Sample => Ok(Requests::of(&sidelong_trace::sample().spread()).repeated(of.requests)),
            Source::Zipf => {
                let sizes = Sizes::LogNormal {
                    bytes_median: of.size_bytes_median,
                    sigma: of.size_sigma,
                    bytes_max: of.size_bytes_max,
                };
                Ok(Requests::zipf(&Zipf::new(of.alpha, of.objects, sizes, run.seed)?, of.requests))
            }
        }
    }

    /// The path of the trace.
    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.join(&self.scenario.workload.trace)
    }

    /// The run of this point with its `requests`.
    ///
    /// # Errors
    /// If requests are to arrive at the trace's times and it has none.
    pub fn setup(&self, requests: Arc<Requests>) -> Result<Setup> {
        let Scenario { workload, run, cluster, hardware, .. } = &self.scenario;
        let arrivals = match workload.arrivals {
            ArrivalKind::Closed => Arrivals::Closed {
                clients: cluster.nodes.saturating_mul(workload.clients_per_node),
                think_ns: (workload.think_ms * 1e6) as u64,
            },
            ArrivalKind::Poisson => {
                Arrivals::Poisson { per_s: workload.rate_per_node * f64::from(cluster.nodes) }
            }
            ArrivalKind::Trace => Arrivals::Trace { speed: workload.speed },
        };
        requests.check(&arrivals)?;
        Ok(Setup {
            nodes: cluster.nodes,
            cache: cluster.cache(),
            costs: hardware.costs(),
            requests,
            arrivals,
            dispatch: cluster.dispatcher,
            warmup: (run.warmup * workload.requests as f64) as usize,
            seed: run.seed,
        })
    }
}

impl fields::Cluster {
    fn cache(&self) -> CacheSettings {
        let memory = self.memory_mb * 1e6;
        let outgoing = ((memory * self.outgoing_part) as u64).max(1);
        let incoming = (memory as u64).saturating_sub(outgoing).max(1);
        CacheSettings {
            protocol: self.protocol,
            eviction: self.eviction,
            outgoing: Room::bytes(outgoing),
            incoming: Room::bytes(incoming),
            references: Room::entries(self.references_max),
            threshold: self.threshold,
            sample_reads: self.sample_reads,
            changes_max: self.changes_max,
            carried_max: self.carried_max,
            notes_max: self.notes_max,
        }
    }
}

impl fields::Hardware {
    fn costs(&self) -> Costs {
        let ns = |us: f64| (us * 1e3).round() as u64;
        Costs {
            request_ns: ns(self.request_us),
            answer: PerByte::of_time(self.answer_us_per_kib),
            post_ns: ns(self.post_us),
            completion_ns: ns(self.completion_us),
            message_ns: ns(self.message_us),
            change_ns: ns(self.change_us),
            rpc_ns: ns(self.rpc_us),
            rpc_copy: PerByte::of_time(self.rpc_us_per_kib),
            pin_ns: ns(self.pin_us),
            wire_ns: ns(self.wire_us),
            rpc_wire_ns: ns(self.rpc_wire_us),
            nic_ns: ns(self.nic_us),
            link: PerByte::of_rate(self.link_mb_per_s),
            disk_ns: ns(self.disk_us),
            disk: PerByte::of_rate(self.disk_mb_per_s),
            cores: self.cores,
            disk_depth: self.disk_depth,
        }
    }
}

/// A number or text as `--set` would have it; `None` for other types.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            // A number too large for any field stays as written.
            let value = i128::from_str_radix(&digits, number.radix()).map(|value| value.to_string());
            Some(value.unwrap_or(digits))
        }
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        _ => None,
    }
}

/// The whole numbers of a range such as `1..10`, its ends included; any other value is itself.
fn spread(kind: Kind, value: &str) -> Vec<String> {
    let ends = || {
        let (first, last) = value.split_once("..").filter(|_| matches!(kind, Kind::Whole(..)))?;
        let (first, last) = (first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?);
        (first <= last && last - first < RUNS_MAX as u64).then_some(first..=last)
    };
    match ends() {
        Some(numbers) => numbers.map(|number| number.to_string()).collect(),
        None => vec![value.to_owned()],
    }
}

/// A value in its one spelling, if a field of this kind can have it.
fn usable(kind: Kind, value: &str) -> Option<String> {
    match kind {
        Kind::Whole(min, max) => {
            let number = value.parse::<u64>().ok().filter(|number| (min..=max).contains(number))?;
            Some(number.to_string())
        }
        Kind::Number(min, max) => {
            let number = value.parse::<f64>().ok().filter(|number| (min..=max).contains(number))?;
            // Not "-0".
            Some((number + 0.0).to_string())
        }
        Kind::Word(words) => words.contains(&value).then(|| value.to_owned()),
        Kind::Path => {
            let is_usable = |c: char| !c.is_control() && !",\"".contains(c);
            value.chars().all(is_usable).then(|| value.to_owned())
        }
    }
}

/// The tables of a file, for a sentence.
fn sections() -> String {
    let mut names: Vec<String> = FIELDS.iter().map(|field| format!("[{}]", field.section)).collect();
    names.dedup();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}

fn expected(field: &Field) -> String {
    match field.kind {
        Kind::Whole(min, max) => {
            format!("a whole number from {min} to {max}, or a range such as {min}..{}", (min + 9).min(max))
        }
        Kind::Number(min, max) => format!("a number from {min} to {max}"),
        Kind::Word(words) => words.join(", "),
        Kind::Path => "a path without commas and quotes".to_owned(),
    }
}

fn refuse(place: &str, reason: impl Into<String>) -> Error {
    Error::Field { place: place.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, sets: &[&str]) -> Result<Config> {
        let sets: Vec<_> = sets.iter().map(|set| (*set).to_owned()).collect();
        Config::parse(text, "a.toml", Path::new("dir"), &sets)
    }

    #[test]
    fn an_empty_file_is_all_defaults_and_they_are_usable() {
        for profile in PROFILES {
            let config = parse("", &[&format!("profile={profile}")]).unwrap();
            for (i, values) in config.values.clone().into_iter().enumerate() {
                parse("", &[]).unwrap().put(i, values, "default").unwrap();
            }
            let points = config.points();
            assert_eq!(points.len(), 1);
            points[0].scenario().cluster.cache().check().unwrap();
            assert_eq!(points[0].scenario().cluster.nodes, 64);
        }
        assert_eq!(parse("", &[]).unwrap().points()[0].scenario().hardware.costs().disk_ns, 12_670_000);
        assert_eq!(
            parse("profile = \"today\"", &[]).unwrap().points()[0].scenario().hardware.costs().disk_ns,
            85_000
        );
    }

    #[test]
    fn arrays_and_sets_ask_for_a_run_each() {
        let config = parse("[cluster]\nnodes = [4, 16]\n", &["protocol=lazy,ledger", "seed=1,2"]).unwrap();
        let points = config.points();
        let names: Vec<_> = points
            .iter()
            .map(|p| format!("{} {} {}", p.get("seed"), p.get("nodes"), p.get("protocol")))
            .collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[..3], ["1 4 lazy", "1 4 ledger", "1 16 lazy"]);
        assert_eq!(
            config.swept().iter().map(|field| field.key).collect::<Vec<_>>(),
            ["seed", "nodes", "protocol"]
        );
        // A range is its numbers, ends included.
        let (listed, ranged) = (parse("", &["seed=3,4,5,9"]).unwrap(), parse("", &["seed=3..5,9"]).unwrap());
        assert_eq!(ranged.difference(&listed), None);
        let seeds = "[run]\nseed = [\"1..3\", 7]\n";
        assert_eq!(parse(seeds, &[]).unwrap().points().len(), 4);
        // What is set overrides the file.
        assert_eq!(
            parse("[cluster]\nnodes = 4\n", &["cluster.nodes=5"]).unwrap().points()[0]
                .scenario()
                .cluster
                .nodes,
            5
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            ("[cluster]\nnods = 4\n", "a.toml:2: cluster.nods is not known; [cluster] has nodes, dispatcher"),
            (
                "\n[cluster]\nnodes = 0\n",
                "a.toml:3: cluster.nodes is \"0\"; expected a whole number from 1 to 10000",
            ),
            ("[cluster]\nnodes = -3", "a.toml:2: cluster.nodes is \"-3\""),
            ("[cluster]\nmemory_mb = \"64GB\"", "a.toml:2: cluster.memory_mb is \"64GB\"; expected a number"),
            ("[hardware]\nwire_us = nan", "a.toml:2: hardware.wire_us is \"nan\""),
            ("[hardware]\nwire_us = [1.0, 1]", "is \"1\" a second time"),
            ("[hardware]\nwire_us = []", "has no value"),
            ("[run]\nseed = \"3..1\"", "a.toml:2: run.seed is \"3..1\"; expected a whole number from 0 to "),
            ("[run]\nseed = [2, \"1..3\"]", "is \"2\" a second time"),
            ("[run]\nmodel = \"vax\"", "a.toml:2: run.model is \"vax\"; expected cache, reconfig"),
            ("[hardware]\nwire_us = true", "has a value of another type; expected a number from 0"),
            ("[cluster]\nnodes = [4, [8]]", "a.toml:2: cluster.nodes has a value of another type"),
            ("[disk]\nus = 1", "[cluster], [hardware], [sites], [admission] or [reconfig]"),
            ("\ncluster = 4", "a.toml:2: \"cluster\" is not a table; expected [cluster] with nodes, "),
            (
                "[workload]\nkind = \"trace\"",
                "a.toml:2: workload.kind is \"trace\", but workload.trace names none",
            ),
            ("[workload]\ntrace = \"a.log\"", "a.toml:2: workload.trace names a log, but no workload.kind"),
            ("nodes = 4", "a.toml:1: \"nodes\" is not known"),
            ("profile = \"vax\"", "a.toml:1: profile is \"vax\"; expected rams or today"),
            ("[cluster\nnodes = 4", "a.toml:1: "),
        ];
        for (text, said) in cases {
            let error = parse(text, &[]).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        for (set, said) in
            [("nodes", "expected key=value"), ("nods=1", "nods is not known"), ("nodes=x", "is \"x\"")]
        {
            let error = parse("", &[set]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("--set {set}: ")) && error.contains(said), "{error}");
        }
        let many = (1..=9_999).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        let sets = [format!("nodes={many}"), format!("seed={many}")];
        assert!(
            Config::parse("", "a.toml", Path::new(""), &sets).unwrap_err().to_string().contains("more than")
        );
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        let config = parse(
            "[cluster]\nnodes = 0x10\nmemory_mb = 1_0.50\n",
            &["alpha=.9", "threshold=+1e-1", "think_ms=-0", "requests=007"],
        );
        let config = config.unwrap();
        let point = &config.points()[0];
        let values =
            ["nodes", "memory_mb", "alpha", "threshold", "think_ms", "requests"].map(|key| point.get(key));
        assert_eq!(values, ["16", "10.5", "0.9", "0.1", "0", "7"]);
        // Its output can be read again, as a rerun does.
        assert_eq!(parse(&config.explain(), &[]).unwrap().difference(&config), None);
        assert!(parse("", &["nodes=4,04"]).unwrap_err().to_string().contains("\"04\" a second time"));
        let (four, five) = (parse("", &["nodes=4"]).unwrap(), parse("", &["nodes=5,6"]).unwrap());
        assert_eq!(four.difference(&five).unwrap(), "cluster.nodes is 4 and not 5, 6");
    }

    #[test]
    fn a_log_is_found_from_where_it_was_named() {
        let place = |text, sets: &[&str]| {
            let error = parse(text, sets).unwrap().points()[0].requests().unwrap_err().to_string();
            error.rsplit(' ').next().unwrap().to_owned()
        };
        let text = "[workload]\nkind = \"trace\"\ntrace = \"no.log\"\n";
        assert_eq!(place(text, &[]), "dir/no.log");
        assert_eq!(place(text, &["trace=other.log"]), "other.log");
    }

    #[test]
    fn it_explains_itself_in_a_file_that_reads_the_same() {
        let config = parse("profile = \"today\"\n[cluster]\nnodes = [4, 8]\n", &["alpha=1.1"]).unwrap();
        let text = config.explain();
        assert!(text.contains("nodes = [4, 8]  # a.toml:3"), "{text}");
        assert!(text.contains("alpha = 1.1  # --set") && text.contains("profile = \"today\"  # a.toml:1"));
        assert!(text.contains("disk_us = 85  # default; published: IBM 75GXP"), "{text}");
        assert_eq!(parse(&text, &[]).unwrap().values, config.values);
    }
}
