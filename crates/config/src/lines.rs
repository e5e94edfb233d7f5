//! Keys and their lines in the file.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key of the file: `section.key`, `section[entry].key` or `section[entry].key[item]`, or the first part of one. The section
/// may be a table in another, such as `cache.peer`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    section: &'static str,
    entry: Option<usize>,
    key: Option<&'static str>,
    item: Option<usize>,
}

impl At {
    /// A table that occurs once.
    pub(crate) const fn section(section: &'static str) -> Self {
        At { section, entry: None, key: None, item: None }
    }

    /// The `entry`-th table of an array, counting from 0.
    pub(crate) const fn entry(section: &'static str, entry: usize) -> Self {
        At { section, entry: Some(entry), key: None, item: None }
    }

    /// A key in it.
    pub(crate) const fn key(self, key: &'static str) -> Self {
        At { key: Some(key), ..self }
    }

    /// The `item`-th value of that key's array, counting from 0.
    pub(crate) const fn item(self, item: usize) -> Self {
        At { item: Some(item), ..self }
    }

    /// The line of this key in `text`, counting from 1. The line of its table if the key is left out, and 1 if the table is
    /// left out, too.
    pub(crate) fn line(self, text: &str) -> usize {
        let (root, _) = DeTable::parse_recoverable(text);
        line_at(text, self.offset(root.get_ref()).unwrap_or(0))
    }

    fn offset(self, root: &DeTable<'_>) -> Option<usize> {
        let mut sections = self.section.split('.');
        let (mut name, mut value) = root.get_key_value(sections.next()?)?;
        for section in sections {
            (name, value) = value.get_ref().as_table()?.get_key_value(section)?;
        }
        let mut offset = name.span().start;
        if let Some(entry) = self.entry {
            let Some(table) = value.get_ref().as_array().and_then(|tables| tables.get(entry)) else {
                return Some(offset);
            };
            offset = table.span().start;
            value = table;
        }
        let found = self.key.and_then(|key| value.get_ref().as_table()?.get_key_value(key));
        let Some((key, value)) = found else { return Some(offset) };
        let item = self.item.and_then(|item| DeValue::as_array(value.get_ref())?.get(item));
        Some(item.map_or(key.span().start, |item| item.span().start))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.section)?;
        if let Some(entry) = self.entry {
            write!(f, "[{entry}]")?;
        }
        if let Some(key) = self.key {
            write!(f, ".{key}")?;
        }
        if let Some(item) = self.item {
            write!(f, "[{item}]")?;
        }
        Ok(())
    }
}

/// The line of the byte at `offset`, counting from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// The key whose value the byte at `offset` is part of, as `section.key`; `None` where it is not part of a value.
pub(crate) fn key_at(text: &str, offset: usize) -> Option<String> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut path = Vec::new();
    let mut table = root.get_ref();
    loop {
        let (key, mut value) = table.iter().find(|(_, value)| spans(value, offset))?;
        path.push(key.get_ref().as_ref());
        if let Some(item) =
            value.get_ref().as_array().and_then(|all| all.iter().find(|one| spans(one, offset)))
        {
            value = item;
        }
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path.join(".")),
        }
    }
}

/// Whether the byte is part of the value: of a table, of one of those in it.
fn spans(value: &Spanned<DeValue<'_>>, offset: usize) -> bool {
    match value.get_ref() {
        DeValue::Table(table) => table.iter().any(|(_, value)| spans(value, offset)),
        DeValue::Array(items) => {
            items.iter().any(|item| spans(item, offset)) || value.span().contains(&offset)
        }
        _ => value.span().contains(&offset),
    }
}
