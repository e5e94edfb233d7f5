//! One session: what it requests next, by the table, the page before it and chance.
//!
//! It does no I/O. Its randomness and the pages are arguments.

use std::sync::Arc;

use form_urlencoded::Serializer;
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::interaction::{Interaction, Way};
use super::page::{Form, Page, is_like, item};
use super::table::{self, Table};

/// Most interactions of a session (RUBiS: `max transitions`).
const STEPS_MAX: u32 = 1000;
/// Most draws of a state that the page leads to.
const DRAWS_MAX: u32 = 16;
/// By how much a bid is above the least, at most (RUBiS: each bid raises by 1 to 10).
const RAISE_MAX: u64 = 10;
/// Bytes of a comment and of a description, at most (RUBiS).
const COMMENT_BYTES_MAX: usize = 2048;
const DESCRIPTION_BYTES_MAX: usize = 8192;
/// Prices of what is sold, at most, and what the reserve price and then the price to buy now are above (RUBiS).
const PRICE_MAX: u64 = 5000;
const ABOVE_MAX: u64 = 999;
/// Of 100 items, those that are single, and that have a reserve price and a price to buy now; else, how many there are (RUBiS).
const SINGLE_PERCENT: u64 = 80;
const RESERVE_PERCENT: u64 = 40;
const BUY_NOW_PERCENT: u64 = 10;
const QUANTITY_MAX: u64 = 10;
/// Days of an auction, at most (RUBiS).
const DAYS_MAX: u64 = 7;
/// The ratings that a comment may have (RUBiS).
const RATINGS: [&str; 5] = ["-5", "-3", "0", "3", "5"];

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ask {
    pub(super) interaction: Interaction,
    /// Path and query.
    pub(super) path: String,
    /// The body of a POST, in `application/x-www-form-urlencoded`; otherwise it is a GET.
    pub(super) form: Option<String>,
}

/// A session between its pages.
#[derive(Debug)]
pub(super) struct Session {
    table: Arc<Table>,
    /// The state whose page came last.
    state: Interaction,
    /// The requests that going back repeats, all as GETs.
    history: Vec<Ask>,
    /// What was asked last.
    last: Ask,
    steps: u32,
    /// The number of its user, drawn when the site has said how many there are.
    user: Option<u64>,
}

impl Session {
    /// A session that begins at Home, whose request comes with it.
    pub(super) fn begin(table: Arc<Table>) -> (Session, Ask) {
        let session = Session {
            table,
            state: Interaction::Home,
            history: Vec::new(),
            last: home(),
            steps: 1,
            user: None,
        };
        (session, home())
    }

    /// What follows `page`, the answer to the last request; `None` at the session's end.
    pub(super) fn next(&mut self, page: &Page, random: &mut Pcg64) -> Option<Ask> {
        if let (None, Some(users)) = (self.user, page.users) {
            self.user = Some(random.random_range(1..=users.max(1)));
        }
        if self.steps >= STEPS_MAX {
            return None;
        }
        self.steps += 1;
        for _ in 0..DRAWS_MAX {
            match self.table.next(self.state, random.random()) {
                table::Way::End => return None,
                table::Way::Back => {
                    if let Some(ask) = self.history.pop() {
                        return Some(self.goes(ask));
                    }
                }
                table::Way::To(state) => {
                    if let Some(ask) = self.ask(state, page, random) {
                        self.remember(state);
                        return Some(self.goes(ask));
                    }
                }
            }
        }
        Some(self.home())
    }

    /// After an error: a session goes back to Home (RUBiS). `None` at its end.
    pub(super) fn failed(&mut self) -> Option<Ask> {
        self.steps += 1;
        (self.steps <= STEPS_MAX).then(|| self.home())
    }

    fn home(&mut self) -> Ask {
        self.history.clear();
        self.goes(home())
    }

    fn goes(&mut self, ask: Ask) -> Ask {
        self.state = ask.interaction;
        self.last = ask.clone();
        ask
    }

    /// A state that cannot be left by going back ends the way back.
    fn remember(&mut self, next: Interaction) {
        match self.table.can_go_back(next) {
            // Who has signed in gets the page of a form by GET, too.
            true => self.history.push(Ask { form: None, ..self.last.clone() }),
            false => self.history.clear(),
        }
    }

    /// The request of an interaction; `None` where the page does not lead there.
    fn ask(&self, to: Interaction, page: &Page, random: &mut Pcg64) -> Option<Ask> {
        let get = |path: &str| Ask { interaction: to, path: path.to_owned(), form: None };
        match to.way() {
            Way::Path(path) => Some(get(path)),
            Way::Link(like) => {
                // A search goes on to its next page, or begins again.
                if to == self.state && is_like(&self.last.path, like) {
                    let first = self.last.path.split('?').next().unwrap_or_default();
                    let next = page.next.as_deref().filter(|path| is_like(path, like));
                    return Some(get(next.unwrap_or(first)));
                }
                let links: Vec<_> = page.links.iter().filter(|path| is_like(path, like)).collect();
                let chosen = random.random_range(0..links.len().max(1));
                links.get(chosen).map(|path| get(path))
            }
            Way::Form(like) => {
                let on_page = page.forms.iter().find(|form| is_like(&form.action, like));
                // PutComment follows pages without its form, which every page's token stands in for.
                let form = match (on_page, to) {
                    (Some(form), _) => form.clone(),
                    (None, Interaction::PutComment) => {
                        let item = page.links.iter().find_map(|path| item(path))?;
                        Form { action: format!("/items/{item}/comment"), inputs: Vec::new() }
                    }
                    (None, _) => return None,
                };
                let body = self.fill(to, &form, page, random);
                Some(Ask { interaction: to, path: form.action, form: Some(body) })
            }
        }
    }

    /// A form as it is sent.
    fn fill(&self, to: Interaction, form: &Form, page: &Page, random: &mut Pcg64) -> String {
        let mut fields = Serializer::new(String::new());
        for input in form.inputs.iter().filter(|input| input.is_hidden) {
            fields.append_pair(&input.name, &input.value);
        }
        if form.input("csrf").is_none() {
            fields.append_pair("csrf", &page.token);
        }
        let quantity = |random: &mut Pcg64| {
            let most = form.input("qty").and_then(|input| input.max).unwrap_or(1);
            random.random_range(1..=most.max(1)).to_string()
        };
        match to {
            Interaction::RegisterUser => {
                let nickname = format!("w{:016x}", random.random::<u64>());
                fields.append_pair("firstname", "Walker").append_pair("lastname", &nickname);
                fields.append_pair("nickname", &nickname).append_pair("password", "a long password");
                fields.append_pair("email", &format!("{nickname}@walker.example"));
                fields.append_pair("region", &random.random_range(1..=REGIONS).to_string());
            }
            Interaction::StoreBuyNow => {
                fields.append_pair("qty", &quantity(random));
            }
            Interaction::StoreBid => {
                let least = form.input("bid").and_then(|input| input.min).unwrap_or(1);
                let bid = least.saturating_add(random.random_range(0..RAISE_MAX));
                fields.append_pair("bid", &bid.to_string()).append_pair("qty", &quantity(random));
            }
            Interaction::StoreComment => {
                fields.append_pair("rating", RATINGS[random.random_range(0..RATINGS.len())]);
                fields.append_pair("comment", &words(COMMENT_BYTES_MAX, random));
            }
            Interaction::RegisterItem => {
                let mut is_one_of = |percent: u64| random.random_range(0..100) < percent;
                let (single, reserve, buy_now) =
                    (is_one_of(SINGLE_PERCENT), is_one_of(RESERVE_PERCENT), is_one_of(BUY_NOW_PERCENT));
                let initial = random.random_range(1..=PRICE_MAX);
                let least = initial + random.random_range(0..=ABOVE_MAX);
                let bought = least + random.random_range(0..=ABOVE_MAX);
                let price = |has: bool, price: u64| if has { price } else { 0 };
                let quantity = if single { 1 } else { random.random_range(1..=QUANTITY_MAX) };
                fields.append_pair("name", &format!("Item {:08x}", random.random::<u32>()));
                fields.append_pair("description", &words(DESCRIPTION_BYTES_MAX, random));
                if form.input("category").is_none() {
                    let category = number_in(&self.last.path).unwrap_or(1);
                    fields.append_pair("category", &category.to_string());
                }
                fields.append_pair("initial_price", &initial.to_string());
                fields.append_pair("reserve_price", &price(reserve, least).to_string());
                fields.append_pair("buy_now", &price(buy_now, bought).to_string());
                fields.append_pair("quantity", &quantity.to_string());
                fields.append_pair("duration", &random.random_range(1..=DAYS_MAX).to_string());
            }
            // The forms that sign in.
            _ => {
                let user = self.user.unwrap_or(1);
                fields.append_pair("nickname", &format!("user{user}"));
                fields.append_pair("password", &format!("password{user}"));
            }
        }
        fields.finish()
    }
}

/// Regions that every site has (RUBiS: 62).
const REGIONS: u64 = 62;

fn home() -> Ask {
    Ask { interaction: Interaction::Home, path: "/".to_owned(), form: None }
}

/// The last number among the parts of a path.
fn number_in(path: &str) -> Option<u64> {
    path.split('/').filter_map(|part| part.parse().ok()).next_back()
}

/// Text of 1 to this number of bytes.
fn words(bytes_max: usize, random: &mut Pcg64) -> String {
    const TEXT: &str = "as good as new, well kept and sent at once ";
    let bytes = random.random_range(1..=bytes_max);
    TEXT.chars().cycle().take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::super::page::Input;
    use super::super::table::{INTERACTIONS_MEAN, Mix, Rows};
    use super::*;

    /// A page from which all interactions can be reached.
    fn everywhere() -> Page {
        let ways = Interaction::ALL.map(Interaction::way);
        let path = |like: &str| like.replace('*', "3");
        let hidden = Input { name: "csrf".into(), value: "t".into(), is_hidden: true, ..Input::default() };
        Page {
            users: Some(100),
            token: "t".into(),
            links: ways
                .iter()
                .filter_map(|way| if let Way::Link(like) = way { Some(path(like)) } else { None })
                .collect(),
            forms: ways
                .iter()
                .filter_map(|way| if let Way::Form(like) = way { Some(path(like)) } else { None })
                .map(|action| Form { action, inputs: vec![hidden.clone()] })
                .collect(),
            ..Page::default()
        }
    }

    /// Shares of all interactions, in percent, and interactions in a session.
    fn simulated(mix: Mix, rows: Rows, sessions: u32) -> ([f64; Interaction::COUNT], f64) {
        let (table, page) = (Arc::new(Table::new(mix, rows)), everywhere());
        let mut random = Pcg64::seed_from_u64(1);
        let mut counts = [0_u32; Interaction::COUNT];
        for _ in 0..sessions {
            let (mut session, mut ask) = Session::begin(Arc::clone(&table));
            loop {
                counts[ask.interaction as usize] += 1;
                match session.next(&page, &mut random) {
                    Some(next) => ask = next,
                    None => break,
                }
            }
        }
        let all: u32 = counts.iter().sum();
        (counts.map(|count| 100.0 * f64::from(count) / f64::from(all)), f64::from(all) / f64::from(sessions))
    }

    /// The shares of an independent simulation of the tables by the emulator's rule, in percent: bidding, browsing.
    const SHARES: [[f64; 2]; Interaction::COUNT] = [
        [2.119, 0.273],
        [1.110, 0.0],
        [1.115, 0.0],
        [7.634, 1.020],
        [5.340, 0.715],
        [16.803, 34.514],
        [2.216, 0.299],
        [2.181, 0.296],
        [6.944, 13.507],
        [16.327, 35.149],
        [4.215, 9.875],
        [2.322, 4.352],
        [1.637, 0.0],
        [1.611, 0.0],
        [1.583, 0.0],
        [5.860, 0.0],
        [7.151, 0.0],
        [5.282, 0.0],
        [0.0, 0.0],
        [0.654, 0.0],
        [0.645, 0.0],
        [0.608, 0.0],
        [0.600, 0.0],
        [0.589, 0.0],
        [0.579, 0.0],
        [1.800, 0.0],
        [3.078, 0.0],
    ];

    #[test]
    fn sessions_have_the_mix_of_the_tables() {
        let emulated = [(Mix::Bidding, 1200, 51.0), (Mix::Browsing, 300, 443.0)];
        for (place, (mix, sessions, length)) in emulated.into_iter().enumerate() {
            let (shares, mean) = simulated(mix, Rows::AsEmulated, sessions);
            for (state, share) in Interaction::ALL.into_iter().zip(shares) {
                let expected = SHARES[state as usize][place];
                assert!(
                    (share - expected).abs() < 0.3 + 0.08 * expected,
                    "{mix:?} {state:?}: {share}, not {expected}"
                );
            }
            assert!((0.85..1.15).contains(&(mean / length)), "{mix:?}: {mean} interactions a session");
        }
        let (shares, mean) = simulated(Mix::Bidding, Rows::Normalised, 4000);
        let writes: f64 = Interaction::ALL
            .into_iter()
            .filter(|state| state.is_write())
            .map(|state| shares[state as usize])
            .sum();
        assert!((6.8..7.8).contains(&writes), "{writes} % writes");
        assert!((0.93..1.07).contains(&(mean / INTERACTIONS_MEAN)), "{mean} interactions a session");
    }

    #[test]
    fn back_is_where_the_session_came_from_and_a_form_is_asked_for_again_by_get() {
        let table = Arc::new(Table::new(Mix::Bidding, Rows::Normalised));
        let ask = |interaction, path: &str, form| Ask { interaction, path: path.into(), form };
        let asked: Vec<_> = (0..100)
            .filter_map(|seed| {
                let (mut session, _) = Session::begin(Arc::clone(&table));
                session.goes(ask(Interaction::PutBid, "/items/3/bid", Some("x=1".into())));
                session.remember(Interaction::ViewUserInfo);
                session.goes(ask(Interaction::ViewUserInfo, "/users/3", None));
                // The page leads nowhere but back, or to what can be asked for from any page.
                session.next(&Page::default(), &mut Pcg64::seed_from_u64(seed))
            })
            .collect();
        let back = ask(Interaction::PutBid, "/items/3/bid", None);
        assert!(asked.iter().filter(|asked| **asked == back).count() > 50, "{asked:?}");
        assert!(asked.iter().all(|asked| asked.form.is_none()), "{asked:?}");
    }

    #[test]
    fn a_page_that_leads_nowhere_or_an_error_sends_a_session_home_and_it_ends_at_last() {
        let (mut session, _) = Session::begin(Arc::new(Table::new(Mix::Browsing, Rows::Normalised)));
        session.goes(Ask {
            interaction: Interaction::BrowseCategories,
            path: "/categories".into(),
            form: None,
        });
        let mut random = Pcg64::seed_from_u64(2);
        for _ in 0..100 {
            let ask = session.next(&Page::default(), &mut random).unwrap();
            assert!(ask.form.is_none() && !ask.path.contains('3'), "{ask:?}");
        }
        let mut asked = 0;
        while let Some(ask) = session.failed() {
            assert_eq!(ask, home());
            asked += 1;
        }
        assert_eq!(asked, STEPS_MAX - 101);
    }

    #[test]
    fn a_form_is_sent_with_what_it_has_and_what_the_session_makes_up() {
        let input = |name: &str, min, max| Input { name: name.into(), min, max, ..Input::default() };
        let once = Input { name: "once".into(), value: "a b&c".into(), is_hidden: true, ..Input::default() };
        let inputs = vec![once, input("bid", Some(42), None), input("qty", None, Some(2))];
        let form = Form { action: "/items/3/bids".into(), inputs };
        let page = Page { token: "t+".into(), forms: vec![form], ..Page::default() };
        let (session, _) = Session::begin(Arc::new(Table::new(Mix::Bidding, Rows::Normalised)));
        let mut random = Pcg64::seed_from_u64(3);
        for _ in 0..50 {
            let ask = session.ask(Interaction::StoreBid, &page, &mut random).unwrap();
            let body = ask.form.unwrap();
            let fields: Vec<_> = form_urlencoded::parse(body.as_bytes()).collect();
            let of = |name: &str| {
                fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.to_string()).unwrap()
            };
            assert_eq!(
                (ask.path.as_str(), of("once"), of("csrf")),
                ("/items/3/bids", "a b&c".into(), "t+".into())
            );
            assert!(
                (42..52).contains(&of("bid").parse().unwrap())
                    && (1..=2).contains(&of("qty").parse::<u64>().unwrap())
            );
        }
    }
}
