//! The caller's terminal, which a guest's shell is given. QEMU changes its settings and is killed at the end, so they are
//! put back here.

use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::exec;

/// A terminal whose settings come back when this goes.
pub(super) struct Terminal {
    /// As stty takes it.
    pub(super) size: String,
    settings: String,
}

impl Terminal {
    /// That of standard input and output, or why there is none.
    pub(super) fn find() -> Result<Terminal, Error> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Error::NoCommand);
        }
        let size = stty("size")?;
        // One that does not know its size says 0.
        let (rows, columns) = size.split_once(' ').filter(|(rows, _)| *rows != "0").unwrap_or(("24", "80"));
        Ok(Terminal { size: format!("rows {rows} cols {columns}"), settings: stty("-g")? })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Err(error) = stty(&self.settings) {
            eprintln!("xtask: the terminal stays as it is: {error}");
        }
    }
}

fn stty(argument: &str) -> Result<String, Error> {
    let mut stty = Command::new("stty");
    let said = exec::output_on(stty.arg(argument).stdin(Stdio::inherit()))?;
    Ok(said.trim_end().into())
}
