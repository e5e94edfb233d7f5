//! The commands that README.md, CONTRIBUTING.md, ARCHITECTURE.md and docs/*.md show: all lines of code blocks that are
//! indented or marked `sh`, and code within a line that begins with `sidelong` or `cargo`. So do the manifests for Kubernetes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every command once, without comment, with the first place (`PAGE:LINE`) that shows it.
pub(crate) fn shown() -> BTreeMap<String, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| root().join(name)));
    pages.sort();
    let mut all = BTreeMap::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (line, command) in in_page(&text) {
            let name = page.file_name().unwrap().display().to_string();
            all.entry(command).or_insert_with(|| format!("{name}:{line}"));
        }
    }
    for manifest in fs::read_dir(root().join("deploy/kubernetes")).unwrap() {
        let path = manifest.unwrap().path();
        let name = path.file_name().unwrap().display().to_string();
        for (line, text) in (1..).zip(fs::read_to_string(&path).unwrap().lines()) {
            let Some(words) = text.trim().strip_prefix("args: ") else { continue };
            let words: Vec<String> = serde_json::from_str(words).unwrap();
            all.entry(format!("sidelong {}", words.join(" "))).or_insert_with(|| format!("{name}:{line}"));
        }
    }
    all
}

/// The commands of one page, each with the line on which it ends.
fn in_page(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence = None;
    let mut begun = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = fence.is_none().then(|| language.trim().to_owned());
        } else if fence.as_deref() == Some("sh") || (fence.is_none() && line.starts_with("    ")) {
            begun += line.trim();
            if let Some(more) = begun.strip_suffix('\\') {
                begun = more.to_owned();
                continue;
            }
            let command = begun.split(" #").next().unwrap_or_default().trim().to_owned();
            begun.clear();
            if !command.is_empty() && !command.starts_with('#') {
                found.push((number, command));
            }
        } else if fence.is_none() {
            // Every other piece between backticks is code.
            let code = line.split('`').skip(1).step_by(2);
            let commands = code.filter(|code| {
                code.starts_with("sidelong ")
                    || code.starts_with("sidelong-lab ")
                    || code.starts_with("cargo ")
            });
            found.extend(commands.map(|command| (number, command.to_owned())));
        }
    }
    found
}

/// The words of a command, without shell syntax. A variable becomes a 1.
pub(crate) fn words(command: &str) -> Vec<String> {
    let whole = command.split(['>', '|', '&']).next().unwrap_or_default();
    let plain = |word: &str| match word.split_once('$') {
        Some((before, name)) => {
            let after = name.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_');
            format!("{before}1{after}")
        }
        None => word.to_owned(),
    };
    whole.split_whitespace().map(plain).collect()
}
