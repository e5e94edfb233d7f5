//! The lab with scripts in place of the program, and the page that it writes.

mod experiments;
mod page;
