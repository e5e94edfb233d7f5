//! Tables in Markdown: those of measures, those of targets, and those that a report has.

use crate::check::{Check, Verdict};
use crate::measure::Measure;
use crate::record::Table;
use crate::samples::Samples;
use crate::series::MISSING;

/// What the heading of a section begins with.
pub(crate) const HEADING: &str = "## ";
/// The heading of the targets.
const TARGETS: &str = "Targets";

/// A table in Markdown, without the end of its last line.
pub(crate) fn table(columns: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut table = format!("{}{}|\n", line(columns), "|---".repeat(columns.len()));
    table.extend(rows.iter().map(|cells| line(cells)));
    table.trim_end().to_owned()
}

/// The tables of a report, each with the heading that it stands under.
pub(crate) fn tables(report: &str) -> Vec<Table> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let (mut title, mut tables, mut is_in_table) = ("", Vec::<Table>::new(), false);
    for line in report.lines() {
        title = line.strip_prefix(HEADING).unwrap_or(title);
        let is_row = line.starts_with('|');
        match tables.last_mut() {
            _ if !is_row => (),
            Some(_) if is_in_table && line.starts_with("|---") => (),
            Some(table) if is_in_table => table.rows.push(cells(line)),
            _ => tables.push(Table { title: title.to_owned(), columns: cells(line), rows: Vec::new() }),
        }
        is_in_table = is_row;
    }
    tables
}

/// The table of some cases, a line each.
///
/// `rows` is a pattern of the first dimensions, by default of all; `columns` are measures, each behind the words of the other
/// dimensions: with the rows `get,set` a column is `memcached/p99_us`. A dimension of which the pattern names one word has no column.
///
/// # Errors
/// If a column is not declared.
pub(crate) fn measures(
    samples: &Samples,
    rows: Option<&str>,
    columns: Option<&str>,
) -> Result<String, String> {
    let dimensions = samples.dimensions;
    let all = samples.all();
    let pattern = rows.unwrap_or(&all);
    let depth = pattern.split('/').count();
    let shown: Vec<bool> = pattern.split('/').map(|part| part == "*" || part.contains(',')).collect();

    let mut heading: Vec<String> = Vec::new();
    heading.extend(
        dimensions.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(of, _)| of.label.to_owned()),
    );
    let names = samples.measures.iter().map(|measure| measure.name);
    let columns: Vec<&str> =
        columns.map_or_else(|| names.collect(), |text| text.split_whitespace().collect());
    let mut of = Vec::new();
    for column in columns {
        let (words, name) = column.rsplit_once('/').map_or(("", column), |(words, name)| (words, name));
        let measure = samples.measures.iter().find(|measure| measure.name == name);
        let measure = measure.ok_or_else(|| format!("no measure {name} is declared"))?;
        let words: Vec<&str> = words.split('/').filter(|word| !word.is_empty()).collect();
        if depth + words.len() != dimensions.len() {
            return Err(format!("column {column} has another number of words than rows leaves"));
        }
        let labels = dimensions[depth..].iter().zip(&words).map(|(of, word)| of.label_of(word));
        heading.push(labels.chain([measure.label]).collect::<Vec<_>>().join(", "));
        of.push((words.iter().map(|word| format!("/{word}")).collect::<String>(), measure));
    }

    let begins = samples.begins(pattern);
    let line = |begin: &String| {
        let cell = |(words, measure): &(String, &Measure)| {
            let figures = samples.get(&format!("{begin}{words}"));
            figures.map_or(MISSING.to_owned(), |figures| figures[measure.name].cell(measure.decimals))
        };
        let cells: Vec<String> = of.iter().map(cell).collect();
        let words = begin.split('/').zip(dimensions).zip(&shown).filter(|(_, shown)| **shown);
        let head = words.map(|((word, dimension), _)| dimension.label_of(word).to_owned());
        cells.iter().any(|cell| cell != MISSING).then(|| head.chain(cells).collect())
    };
    Ok(table(&heading, &begins.iter().filter_map(line).collect::<Vec<_>>()))
}

/// The targets, and whether they are met.
pub(crate) fn targets(checks: &[Check]) -> String {
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let [missed, invalid, left_out] = [Verdict::Missed, Verdict::Invalid, Verdict::NotMeasured].map(count);
    let some = |count: usize, what: &str| match count {
        0 => String::new(),
        1 => format!(" One {what}."),
        _ => format!(" {count} {}.", what.replacen("is ", "are ", 1).replacen("was ", "were ", 1)),
    };
    let head = match left_out == checks.len() {
        true => "Nothing that would tell was measured.".to_owned(),
        false if missed + invalid == 0 => "All that were measured are met.".to_owned(),
        false => format!("{}{}", some(missed, "is MISSED"), some(invalid, "is INVALID")),
    };
    let left_out = if (1..checks.len()).contains(&left_out) {
        some(left_out, "was not measured")
    } else {
        String::new()
    };
    let row = |check: &Check| {
        vec![check.what.clone(), check.target.clone(), check.figure(2), check.verdict().to_owned()]
    };
    let columns = ["what", "target", "measured", ""].map(str::to_owned);
    let rows: Vec<_> = checks.iter().map(row).collect();
    format!("{HEADING}{TARGETS}\n\n{}\n\n{}", format!("{head}{left_out}").trim(), table(&columns, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::tests::samples;

    #[test]
    fn a_table_has_a_line_for_each_case_that_was_measured() {
        let all = measures(&samples(), None, None).unwrap();
        let expected = "|  | load | p50, µs | p99, µs | p99 / p50 |\n|---|---|---|---|---|\n\
                        | our system | idle | 10 | 30.0 (20.0 to 40.0) | 3.00 (2.00 to 4.00) |\n\
                        | the other | idle | 15 | – | – |";
        assert_eq!(all, expected);
    }

    #[test]
    fn columns_may_be_of_other_cases() {
        let beside = measures(&samples(), Some("*"), Some("idle/p50_us idle/ratio")).unwrap();
        assert!(beside.starts_with("|  | idle, p50, µs | idle, p99 / p50 |\n"), "{beside}");
        assert!(beside.ends_with("\n| the other | 15 | – |"), "{beside}");
        let one = measures(&samples(), Some("ours/*"), Some("p50_us")).unwrap();
        assert_eq!(one, "| load | p50, µs |\n|---|---|\n| idle | 10 |");
        assert_eq!(measures(&samples(), None, Some("p50")).unwrap_err(), "no measure p50 is declared");
        assert!(measures(&samples(), Some("*"), Some("p50_us")).unwrap_err().starts_with("column p50_us"));
    }

    #[test]
    fn targets_are_counted() {
        let checks = [2.0, 1.0, 9.0].map(|value| Check::at_least("x", 1.5, Some(value)).possible(0.0..=4.0));
        let text = targets(&checks);
        assert!(text.contains("\n\nOne is MISSED. One is INVALID.\n\n"), "{text}");
        assert!(text.contains("| x | at least 1.5 | 9.00 | INVALID |"), "{text}");
        assert!(targets(&checks[..1]).contains("All that were measured are met."));
        assert!(targets(&[Check::at_least("x", 1.0, None)]).contains("Nothing that would tell"));
    }

    #[test]
    fn tables_are_those_of_the_report() {
        let found = tables(
            "# R\n\n| a |\n|---|\n| 1 |\n\n## Measured\nText.\n\n|  | b |\n|---|---|\n| 1 | |\n\n| c |\n|---|\n",
        );
        let titles: Vec<_> = found.iter().map(|table| (table.title.as_str(), table.rows.len())).collect();
        assert_eq!(titles, [("", 1), ("Measured", 1), ("Measured", 0)]);
        assert_eq!(
            (&found[1].columns[..], &found[1].rows[0][..]),
            (&["".into(), "b".to_owned()][..], &["1".to_owned(), "".into()][..])
        );
    }
}
