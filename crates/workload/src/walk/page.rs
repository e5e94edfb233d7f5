//! What a session needs of a page: its name, its links, its forms, the CSRF token (`demo/auction/PAGES.md`).
//!
//! It never fails: of a page that is none of the site's, little is found.

use html5gum::{HtmlString, StartTag, Token, Tokenizer};

/// A page as a session sees it.
#[derive(Clone, Default, Debug)]
pub(super) struct Page {
    /// The interaction that it says it answers.
    pub(super) interaction: String,
    /// How many users the site has, where the page says so.
    pub(super) users: Option<u64>,
    /// The CSRF token.
    pub(super) token: String,
    /// The paths of its links.
    pub(super) links: Vec<String>,
    /// The link to the next page of a search.
    pub(super) next: Option<String>,
    pub(super) forms: Vec<Form>,
}

/// A form that is posted.
#[derive(Clone, Default, Debug)]
pub(super) struct Form {
    /// The path that it is sent to.
    pub(super) action: String,
    pub(super) inputs: Vec<Input>,
}

#[derive(Clone, Default, Debug)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) is_hidden: bool,
    pub(super) min: Option<u64>,
    pub(super) max: Option<u64>,
}

impl Form {
    pub(super) fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

impl Page {
    pub(super) fn read(html: &[u8]) -> Page {
        let mut page = Page::default();
        let mut form: Option<Form> = None;
        for Ok(token) in Tokenizer::new(html) {
            match token {
                Token::StartTag(tag) => page.take(&tag, &mut form),
                Token::EndTag(tag) if tag.name.as_slice() == b"form" => page.forms.extend(form.take()),
                _ => {}
            }
        }
        page.forms.extend(form);
        page
    }

    fn take(&mut self, tag: &StartTag<()>, form: &mut Option<Form>) {
        let has = |name: &str| tag.attributes.get(name.as_bytes());
        let text = |name: &str| has(name).map(|value| string(&value.value)).unwrap_or_default();
        let number = |name: &str| text(name).parse().ok();
        match tag.name.as_slice() {
            b"body" => {
                self.interaction = text("data-interaction");
                self.users = number("data-users");
            }
            b"meta" if text("name") == "csrf-token" => self.token = text("content"),
            b"a" => {
                let path = text("href");
                match text("rel").as_str() {
                    "next" => self.next = Some(path),
                    _ => self.links.push(path),
                }
            }
            b"form" if text("method").eq_ignore_ascii_case("post") => {
                self.forms.extend(form.replace(Form { action: text("action"), inputs: Vec::new() }));
            }
            b"input" => {
                if let Some(form) = form {
                    form.inputs.push(Input {
                        name: text("name"),
                        value: text("value"),
                        is_hidden: text("type").eq_ignore_ascii_case("hidden"),
                        min: number("min"),
                        max: number("max"),
                    });
                }
            }
            _ => {}
        }
    }
}

fn string(bytes: &HtmlString) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a path, without its query, is of this form, in which `*` stands for a number.
pub(super) fn is_like(path: &str, form: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let mut parts = path.split('/');
    form.split('/').all(|wanted| match parts.next() {
        Some(part) if wanted == "*" => number(part).is_some(),
        Some(part) => part == wanted,
        None => false,
    }) && parts.next().is_none()
}

/// The item that a path is about.
pub(super) fn item(path: &str) -> Option<u64> {
    number(path.strip_prefix("/items/")?.split(['/', '?']).next()?)
}

fn number(part: &str) -> Option<u64> {
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| part.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<!doctype html><html><head><meta name="csrf-token" content="abc"></head>
        <body data-interaction="PutBid" data-users="7"><a href="/items/17">A &amp; B</a> <a rel="next" href="/x?page=2">on</a>
        <form method="get" action="/search"><input name="q"></form>
        <form method="post" action="/items/17/bids"><input type="hidden" name="csrf" value="a&quot;c">
        <input name="bid" type="number" min="42" value="42"><input name="qty" max="3"></form>"#;

    #[test]
    fn a_page_is_known_by_its_links_and_forms() {
        let page = Page::read(PAGE.as_bytes());
        assert_eq!((page.interaction.as_str(), page.users, page.token.as_str()), ("PutBid", Some(7), "abc"));
        assert_eq!((page.links, page.next), (vec!["/items/17".to_owned()], Some("/x?page=2".to_owned())));
        assert_eq!(page.forms.len(), 1, "a form that is not posted changes nothing");
        let form = &page.forms[0];
        assert_eq!(form.action, "/items/17/bids");
        assert_eq!(
            form.input("csrf").map(|input| (input.value.as_str(), input.is_hidden)),
            Some(("a\"c", true))
        );
        assert_eq!(form.input("bid").and_then(|input| input.min), Some(42));
        assert_eq!(form.input("qty").and_then(|input| input.max), Some(3));
    }

    #[test]
    fn what_is_no_page_has_nothing() {
        for bytes in [&b""[..], b"{\"error\": 1}", b"<body", b"\xff<a href='\xfe'>", b"<form><input name=x>"]
        {
            let page = Page::read(bytes);
            assert!(page.interaction.is_empty() && page.forms.is_empty(), "{bytes:?}");
        }
    }

    #[test]
    fn a_path_is_like_a_form_with_numbers_in_the_place_of_stars() {
        assert!(is_like("/items/17", "/items/*") && is_like("/items/17?page=2", "/items/*"));
        assert!(is_like("/regions/2/categories/3/items", "/regions/*/categories/*/items"));
        assert!(!is_like("/items/17/bids", "/items/*") && !is_like("/items/", "/items/*"));
        assert!(!is_like("/items/x", "/items/*") && !is_like("/items", "/items/*"));
        assert!(!is_like("http://elsewhere/items/1", "/items/*"));
        assert_eq!((item("/items/17/bids"), item("/users/1"), item("/items/-1")), (Some(17), None, None));
    }
}
