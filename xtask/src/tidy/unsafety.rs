//! Where memory-unsafe code may lie. Clippy sees to it that every block says why it holds.

/// Where everything else finds what it needs unsafe code for, behind safe functions.
const HOME: &str = "crates/fabric/src/memory.rs";

/// The files that may hold unsafe code, and why. A crate without one forbids it to the compiler.
const HOLDERS: &[(&str, &str)] = &[
    (HOME, "hands out mapped memory, which other processes change, as atomics"),
    ("crates/fabric/src/verbs/sys/abi.rs", "declares libibverbs, and loads it"),
    ("crates/fabric/src/verbs/sys.rs", "calls libibverbs, whose objects it frees in their order"),
    (
        "crates/fabric/src/verbs/sys/queue.rs",
        "gives the device memory, and takes it back when that is done with it",
    ),
    (
        "crates/fabric/src/verbs/sys/receive.rs",
        "gives the device memory for messages, and takes it back with one",
    ),
    ("crates/fabric/benches/oneside.rs", "times a bare mapping, the floor that links are compared with"),
];

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Every crate root forbids unsafe code, or its crate is a holder's; and no other file, tests included, has any.
pub(super) fn look(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if is_root(path) && !holds(path) && !text.lines().any(|line| line.trim() == FORBID) {
        found.push((1, format!("add {FORBID} under the module's text")));
    }
    if path.ends_with(".rs") && !HOLDERS.iter().any(|(holder, _)| *holder == path) {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| has_unsafe(line));
        found.extend(lines.map(|(at, line)| {
            (at, format!("unsafe code in `{}`: put it behind a safe function of {HOME}", line.trim()))
        }));
    }
    found
}

fn is_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/")
}

/// Whether a file of the same crate may hold unsafe code.
fn holds(path: &str) -> bool {
    let of_crate = |path: &str| path.split_once("/src/").map(|(dir, _)| dir.to_owned());
    HOLDERS.iter().any(|(holder, _)| of_crate(holder) == of_crate(path))
}

/// Whether the keyword stands in the line, outside of comments and texts. A text over several lines is taken for code:
/// where one needs the word, it can be told in another.
fn has_unsafe(line: &str) -> bool {
    let mut code = String::new();
    let mut chars = line.chars().peekable();
    let mut in_text = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' if !in_text && chars.peek() == Some(&'"') => _ = chars.next(),
            '\\' if in_text => _ = chars.next(),
            '"' => in_text = !in_text,
            '/' if !in_text && chars.peek() == Some(&'/') => break,
            _ if !in_text => code.push(c),
            _ => {}
        }
    }
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::super::in_texts;
    use super::super::problem::printed;
    use super::*;
    use crate::repo::Repo;

    #[test]
    fn the_keyword_is_told_from_the_word() {
        for line in ["unsafe { f() }", "    unsafe impl Send for X {}", "g(\"a\", unsafe { h(\"b\") })"] {
            assert!(has_unsafe(line), "{line}");
        }
        for line in [
            "#![forbid(unsafe_code)]",
            "//! memory-unsafe code",
            "f(); // unsafe { g() }",
            "reason = \"what replaces it is unsafe\"",
            "(\"a \\\" unsafe \\\" b\")",
            "['\"', \" unsafe \"]",
        ] {
            assert!(!has_unsafe(line), "{line}");
        }
    }

    #[test]
    fn roots_forbid_it_except_beside_a_holder() {
        let forbidding = "//! It.\n#![forbid(unsafe_code)]\n";
        let repo = Repo::of(&[
            ("crates/fabric/src/lib.rs", "//! Fabric.\n"),
            ("crates/fabric/src/memory.rs", "//! Memory.\nfn f() { unsafe { g() } }\n"),
            ("crates/policy/src/lib.rs", forbidding),
            ("crates/sidelong/src/main.rs", "//! Main.\n"),
        ]);
        let said = printed(&in_texts(&repo, look));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("crates/sidelong/src/main.rs:1: add"), "{said:?}");
    }

    #[test]
    fn it_lies_in_its_holders_alone() {
        let repo = Repo::of(&[
            ("crates/fabric/src/shm.rs", "//! Shm.\nfn f() { unsafe { g() } }\n"),
            ("crates/policy/tests/all.rs", "//! All.\n\nunsafe fn f() {}\n"),
        ]);
        let said = printed(&in_texts(&repo, look));
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("crates/fabric/src/shm.rs:2:"), "{said:?}");
        assert!(said[1].starts_with("crates/policy/tests/all.rs:3:"), "{said:?}");
    }
}
