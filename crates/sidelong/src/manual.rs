//! The pages of the manual for both programs, made of the help and of the example of a cluster file. A package's build calls it.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_mangen::roff::{Roff, roman};
use sidelong_config::ClusterFile;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::research::Research;

#[derive(Args)]
pub(crate) struct ManualArgs {
    /// Directory that gets the pages.
    directory: PathBuf,
}

pub(crate) fn write(ManualArgs { directory }: &ManualArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)?;
    for program in [Cli::command(), Research::own()] {
        clap_mangen::generate_to(program, directory)?;
    }
    Ok(std::fs::write(directory.join("sidelong.toml.5"), file_page())?)
}

/// sidelong.toml(5).
fn file_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["sidelong.toml", "5", "", concat!("sidelong ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]);
    page.text([roman("sidelong.toml - the file of a cluster of sidelong")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "All parts of a cluster go by one file. This is one with every key explained, as `sidelong config example` prints it. A key that is \
         a comment is optional; its value is the default, unless the comment names another. `sidelong config check FILE` says what a file \
         means, and `sidelong reload` has the parts that run adopt it.",
    )]);
    let mut is_open = false;
    for line in ClusterFile::example_text().lines() {
        let table = line.trim_start_matches("# ").strip_prefix('[').and_then(|line| line.split(']').next());
        if let Some(name) = table.map(|name| name.trim_start_matches('[')) {
            if is_open {
                page.control("fi", []);
            }
            page.control("SH", [name.to_uppercase().as_str()]);
            page.control("nf", []);
            is_open = true;
        }
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("sidelong(1), sidelong-config(1), sidelong-reload(1)")]);
    page.render()
}
