//! SPDX licence expressions (SPDX 2.3, annex D), and the `/` for OR that older manifests have.

/// Whether the licences in `allowed` suffice for `expression`. An exception belongs to its licence: `A WITH B` is allowed
/// by its full name only.
pub(super) fn is_met(expression: &str, allowed: &[&str]) -> Result<bool, String> {
    let spaced = ["(", ")", "/"].iter().fold(expression.to_owned(), |e, c| e.replace(c, &format!(" {c} ")));
    let mut reader = Reader { words: spaced.split_whitespace().collect(), allowed };
    reader.words.reverse();
    let met = reader.or()?;
    match reader.words.last() {
        None => Ok(met),
        Some(word) => Err(format!("{expression:?} goes on with {word:?}")),
    }
}

/// What is left to read, the next word last.
struct Reader<'a> {
    words: Vec<&'a str>,
    allowed: &'a [&'a str],
}

impl Reader<'_> {
    fn or(&mut self) -> Result<bool, String> {
        let mut met = self.and()?;
        while self.take("OR") || self.take("/") {
            met |= self.and()?;
        }
        Ok(met)
    }

    fn and(&mut self) -> Result<bool, String> {
        let mut met = self.licence()?;
        while self.take("AND") {
            met &= self.licence()?;
        }
        Ok(met)
    }

    fn licence(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let met = self.or()?;
            return if self.take(")") { Ok(met) } else { Err("a parenthesis is not closed".into()) };
        }
        let name = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok(self.allowed.contains(&&*format!("{name} WITH {exception}")));
        }
        Ok(self.allowed.contains(&&*name))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.words.pop() {
            Some(word) if !matches!(word, "OR" | "AND" | "WITH" | "/" | "(" | ")") => Ok(word.into()),
            Some(word) => Err(format!("{word:?} stands where a licence should")),
            None => Err("a licence is missing".into()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let next = self.words.pop_if(|next| *next == word);
        next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[&str] = &["MIT", "Apache-2.0", "ISC", "BSD-3-Clause WITH X"];

    #[test]
    fn expressions_are_met() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "Apache-2.0 / MIT",
            "Apache-2.0 AND ISC",
            "(MIT OR GPL-3.0) AND ISC",
            "GPL-3.0 OR MIT AND ISC",
            "BSD-3-Clause WITH X",
        ] {
            assert_eq!(is_met(expression, ALLOWED), Ok(true), "{expression}");
        }
    }

    #[test]
    fn expressions_are_not_met() {
        for expression in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH X",
            "(MIT OR ISC) AND (GPL-3.0 OR LGPL-3.0)",
            "BSD-3-Clause",
        ] {
            assert_eq!(is_met(expression, ALLOWED), Ok(false), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT ISC", "OR MIT", "MIT)", "MIT WITH"] {
            assert!(is_met(expression, ALLOWED).is_err(), "{expression}");
        }
    }
}
