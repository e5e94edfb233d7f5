//! Words that do not belong in what is handed over: notes to oneself, stubs, and paths of one machine.

/// In two halves each, so that this file may be looked at too.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Where a developer's files lie. Nothing that we ship may count on them.
const ONE_MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Every line of every text.
pub(super) fn look(_path: &str, text: &str) -> Vec<(usize, String)> {
    let lines = (1..).zip(text.lines());
    lines.flat_map(|(at, line)| in_line(line).map(move |what| (at, what))).collect()
}

fn in_line(line: &str) -> impl Iterator<Item = String> {
    let unfinished = UNFINISHED.iter().filter(|word| stands_in(line, word)).map(|word| {
        format!("{word} is left: finish it, or open an issue and say in words what is not there")
    });
    let one_machine = ONE_MACHINE.iter().filter(|dir| begins_path_in(line, dir)).map(|dir| {
        format!(
            "a path below {dir} is of one machine: take it from an argument, a variable or the project's root"
        )
    });
    unfinished.chain(one_machine)
}

/// Whether `word` stands in `line` by itself, not as a part of another word.
fn stands_in(line: &str, word: &str) -> bool {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(of_word) && !line[at + word.len()..].starts_with(of_word))
}

/// Whether an absolute path in `line` begins with `dir`: `/a/b`, but not `x/a/b` or `../a/b`.
fn begins_path_in(line: &str, dir: &str) -> bool {
    let of_path = |c: char| c.is_alphanumeric() || "_-.~}*/".contains(c);
    line.match_indices(dir).any(|(at, _)| !line[..at].ends_with(of_path))
}

#[cfg(test)]
mod tests {
    use super::super::in_texts;
    use super::super::problem::printed;
    use super::*;
    use crate::repo::Repo;

    #[test]
    fn notes_and_stubs_are_found() {
        for word in UNFINISHED {
            assert_eq!(in_line(&format!("x // {word}: later")).count(), 1, "{word}");
            assert_eq!(in_line(&format!("a{word} _{word}")).count(), 0, "{word}");
        }
        assert_eq!(in_line(&format!("mktemp name.{}", "X".repeat(6))).count(), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for dir in ONE_MACHINE {
            assert_eq!(in_line(&format!("open(\"{dir}file\")")).count(), 1, "{dir}");
            assert_eq!(in_line(&format!("see https://host{dir} and ..{dir}file")).count(), 0, "{dir}");
        }
    }

    #[test]
    fn the_line_is_named() {
        let repo = Repo::of(&[("README.md", &format!("fine\n{}\n", UNFINISHED[0]))]);
        let said = printed(&in_texts(&repo, look));
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("README.md:2: "), "{said:?}");
    }
}
