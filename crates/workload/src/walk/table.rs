//! The transition tables: where a session goes next, by chance.

use super::interaction::Interaction;

const STATES: usize = Interaction::COUNT;

/// Interactions of a session, in the mean, in the bidding mix with normalised rows.
pub const INTERACTIONS_MEAN: f64 = 12.3;

/// Which of RUBiS's two mixes of interactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mix {
    /// Sessions look, bid, buy, sell and comment: 7 of 100 interactions write.
    #[default]
    Bidding,
    /// Sessions only look.
    Browsing,
}

/// What is made of the tables' rows, whose sums are between 0.97 and 1.21.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rows {
    /// Each is divided by its sum: 12.3 interactions in a session of the bidding mix.
    #[default]
    Normalised,
    /// As RUBiS's client emulator has it: the first column whose cumulative sum is above the draw. What lies beyond 1 is
    /// never reached, so that 51 interactions are in a session of the bidding mix, and 443 in one of the browsing mix.
    AsEmulated,
}

/// Where a session goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    To(Interaction),
    Back,
    End,
}

/// A table, ready to be drawn from.
#[derive(Debug)]
pub(super) struct Table {
    /// For each state the cumulative probabilities of all states, back and end.
    rows: Vec<[f64; STATES + 2]>,
    /// Whether a session can go back from each state.
    can_go_back: [bool; STATES],
}

impl Table {
    pub(super) fn new(mix: Mix, rows: Rows) -> Self {
        let text = match mix {
            Mix::Bidding => include_str!("tables/bidding.csv"),
            Mix::Browsing => include_str!("tables/browsing.csv"),
        };
        let mut table = Table { rows: Vec::with_capacity(STATES), can_go_back: [false; STATES] };
        for (state, line) in text.lines().skip(1).enumerate() {
            let mut row = [0.0; STATES + 2];
            let numbers = line.split(',').skip(1).map(|number| number.parse::<f64>());
            for (place, number) in row.iter_mut().zip(numbers) {
                *place = number.expect("a table of this program");
            }
            table.can_go_back[state] = row[STATES] > 0.0;
            let whole = match rows {
                Rows::Normalised => row.iter().sum(),
                Rows::AsEmulated => 1.0,
            };
            let mut sum = 0.0;
            for place in &mut row {
                sum += *place / whole;
                *place = sum;
            }
            table.rows.push(row);
        }
        table
    }

    /// Where a session goes from `state` by `draw`, from 0 to below 1. Where the sum of a row is below the draw, it stays.
    pub(super) fn next(&self, state: Interaction, draw: f64) -> Way {
        match self.rows[state as usize].iter().position(|sum| *sum > draw) {
            Some(STATES) => Way::Back,
            Some(place) if place > STATES => Way::End,
            Some(place) => Way::To(Interaction::ALL[place]),
            None => Way::To(state),
        }
    }

    /// Whether a session may go back from `state`.
    pub(super) fn can_go_back(&self, state: Interaction) -> bool {
        self.can_go_back[state as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_the_states_in_order() {
        for text in [include_str!("tables/bidding.csv"), include_str!("tables/browsing.csv")] {
            let mut lines = text.lines();
            let columns: Vec<_> = lines.next().unwrap().split(',').skip(1).collect();
            let rows: Vec<_> = lines.map(|line| line.split(',').next().unwrap()).collect();
            assert_eq!(columns[..STATES], rows);
            assert_eq!(columns[STATES..], ["Back", "EndOfSession"]);
            for (name, state) in rows.into_iter().zip(Interaction::ALL) {
                // The tables misspell one, and write another with a space.
                let is_odd = ["StoreBuyBow", "AboutMe (auth form)"].contains(&name);
                assert!(is_odd || name == state.name(), "{name}");
            }
        }
    }

    #[test]
    fn a_normalised_row_ends_at_1_and_what_is_beyond_1_is_not_reached_as_emulated() {
        for mix in [Mix::Bidding, Mix::Browsing] {
            let table = Table::new(mix, Rows::Normalised);
            assert_eq!(table.rows.len(), STATES);
            assert!(table.rows.iter().all(|row| (row[STATES + 1] - 1.0).abs() < 1e-9));
        }
        let (normalised, emulated) =
            (Table::new(Mix::Bidding, Rows::Normalised), Table::new(Mix::Bidding, Rows::AsEmulated));
        let last = 1.0 - f64::EPSILON;
        assert_eq!(normalised.next(Interaction::SearchItemsInCategory, last), Way::End);
        assert_ne!(emulated.next(Interaction::SearchItemsInCategory, last), Way::End);
        // The row of Home in the bidding mix adds up to 0.97.
        assert_eq!(emulated.next(Interaction::Home, last), Way::To(Interaction::Home));
    }
}
