//! The page on the simulator describes each field as the program does.

use sidelong_sim::fields::FIELDS;

#[test]
fn every_field_and_its_source_is_documented() {
    let page = include_str!("../../../../docs/sim.md");
    for field in FIELDS {
        let [rams, today] = field.default.map(|value| if value.is_empty() { "-" } else { value });
        let line = format!("| {} | {rams} | {today} | {} | {} |", field.key, field.what, field.source);
        assert!(page.lines().any(|found| found == line), "docs/sim.md lacks: {line}");
    }
}
