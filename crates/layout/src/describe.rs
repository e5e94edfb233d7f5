//! Memory that describes itself: the declaration of a struct is also its description. From descriptions come the hash of each kind of
//! region ([`RegionKind::layout_hash`](crate::RegionKind::layout_hash)) and the header for C (`cargo xtask headers`).
//!
//! A part that occurs a number of times that the cluster file decides is an array of none, in the order in which the parts lie.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::hash::{fnv1a, fnv1a_on};

/// What lies at a place.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// An unsigned integer.
    Integer {
        /// Its size.
        bytes: usize,
        /// Whether it changes while others read it.
        is_atomic: bool,
    },
    /// Fields, one after the other.
    Struct(&'static Struct),
    /// So many of the same; 0 if the number depends on the cluster file.
    Array(&'static Type, usize),
}

/// A struct.
#[derive(Clone, Copy, Debug)]
pub struct Struct {
    /// Its name in Rust.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Its fields in their order, with what pads it.
    pub fields: &'static [Field],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it begins, in bytes from the struct's start.
    pub offset: usize,
    /// What it holds.
    pub of: &'static Type,
    /// What its bits mean.
    pub words: &'static [&'static Word],
}

/// What the bits of an integer mean.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its name.
    pub name: &'static str,
    /// Its parts with their bits, the last of which is the lowest.
    pub parts: &'static [(&'static str, u32)],
    /// Values of a part, or single bits, that have names.
    pub values: &'static [(&'static str, u64)],
}

impl Word {
    /// A word of these parts.
    pub(crate) const fn new(name: &'static str, parts: &'static [(&'static str, u32)]) -> Word {
        let word = Word { name, parts, values: &[] };
        assert!(word.shift(0) + parts[0].1 <= u64::BITS, "the parts fit into a word");
        word
    }

    /// A word of single bits.
    pub(crate) const fn flags(name: &'static str, values: &'static [(&'static str, u64)]) -> Word {
        Word { name, parts: &[], values }
    }

    /// The word, with names for values.
    pub(crate) const fn with(self, values: &'static [(&'static str, u64)]) -> Word {
        Word { values, ..self }
    }

    /// The place of a part's lowest bit.
    pub const fn shift(&self, part: usize) -> u32 {
        let (mut at, mut last) = (0, self.parts.len());
        while last > part + 1 {
            last -= 1;
            at += self.parts[last].1;
        }
        at
    }

    /// The largest value of a part.
    pub const fn max(&self, part: usize) -> u64 {
        u64::MAX >> (u64::BITS - self.parts[part].1)
    }

    /// The word of these parts, each cut down to its bits.
    #[inline]
    pub const fn pack<const PARTS: usize>(&self, values: [u64; PARTS]) -> u64 {
        assert!(PARTS == self.parts.len(), "a value for each part");
        let (mut word, mut part) = (0, 0);
        while part < PARTS {
            word = word << self.parts[part].1 | values[part] & self.max(part);
            part += 1;
        }
        word
    }

    /// The parts of a word.
    #[inline]
    pub const fn unpack<const PARTS: usize>(&self, word: u64) -> [u64; PARTS] {
        assert!(PARTS == self.parts.len(), "a place for each part");
        let (mut values, mut rest, mut part) = ([0; PARTS], word, PARTS);
        while part > 0 {
            part -= 1;
            values[part] = rest & self.max(part);
            rest >>= self.parts[part].1;
        }
        values
    }
}

/// What has a description.
pub trait Described {
    /// The description.
    const TYPE: &'static Type;
}

macro_rules! integers {
    ($($integer:ty, $is_atomic:literal;)+) => {
        $(impl Described for $integer {
            const TYPE: &'static Type = &Type::Integer { bytes: size_of::<$integer>(), is_atomic: $is_atomic };
        })+
    };
}

integers! {
    u8, false;
    u16, false;
    u32, false;
    u64, false;
    AtomicU16, true;
    AtomicU32, true;
    AtomicU64, true;
}

impl<T: Described, const TIMES: usize> Described for [T; TIMES] {
    const TYPE: &'static Type = &Type::Array(T::TYPE, TIMES);
}

/// Declares structs as they lie in memory, and describes them. `#[word(W)]` says that the field's bits are those of the [`Word`] `W`.
macro_rules! described {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])* $(#[word($($word:expr),+)])? $field_vis:vis $field:ident: $type:ty,)+
        }
    )+) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[allow(dead_code, reason = "some lie in memory, and in no variable")]
        $vis struct $name {
            $($(#[doc = $doc])* $field_vis $field: $type,)+
        }

        impl $crate::describe::Described for $name {
            const TYPE: &'static $crate::describe::Type =
                &$crate::describe::Type::Struct(&$crate::describe::Struct {
                    name: stringify!($name),
                    bytes: size_of::<$name>(),
                    fields: &[$($crate::describe::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!($name, $field),
                        of: <$type as $crate::describe::Described>::TYPE,
                        words: &[$($(&$word),+)?],
                    }),+],
                });
        }
    )+};
}

/// Declares named values, as an enum, or as constants of a module or type, and lists them in `VALUES`.
macro_rules! values {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $value:ident = $number:expr,)+ }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $value = $number,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$value),+];
            /// The name and the number of each.
            pub const VALUES: &[(&str, u64)] = &[$((stringify!($value), $name::$value as u64)),+];
        }
    };
    ($(#[$meta:meta])* $vis:vis mod $name:ident: $type:ty { $($rest:tt)+ }) => {
        $(#[$meta])*
        $vis mod $name {
            $crate::describe::values! { @constants $vis $type { $($rest)+ } }
        }
    };
    (impl $name:ident: $type:ty { $($rest:tt)+ }) => {
        impl $name {
            $crate::describe::values! { @constants pub $type { $($rest)+ } }
        }
    };
    (@constants $vis:vis $type:ty { $($(#[$doc:meta])* $value:ident = $number:expr,)+ }) => {
        $($(#[$doc])* $vis const $value: $type = $number;)+
        pub(crate) const VALUES: &[(&str, u64)] = &[$((stringify!($value), $number as u64)),+];
    };
}

pub(crate) use {described, values};

impl Type {
    /// Hash of the description: of names, sizes and places, of bits and values.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash_on(fnv1a(b""))
    }

    const fn hash_on(&self, hash: u64) -> u64 {
        match self {
            Type::Integer { bytes, .. } => numbered(hash, b"u", *bytes as u64),
            Type::Array(of, times) => numbered(of.hash_on(hash), b"*", *times as u64),
            Type::Struct(of) => {
                let mut hash = numbered(hash, of.name.as_bytes(), of.bytes as u64);
                let mut at = 0;
                while at < of.fields.len() {
                    let field = &of.fields[at];
                    hash = field.of.hash_on(numbered(hash, field.name.as_bytes(), field.offset as u64));
                    let mut word = 0;
                    while word < field.words.len() {
                        hash = field.words[word].hash_on(hash);
                        word += 1;
                    }
                    at += 1;
                }
                hash
            }
        }
    }
}

impl Word {
    const fn hash_on(&self, hash: u64) -> u64 {
        let mut hash = numbered(hash, self.name.as_bytes(), self.parts.len() as u64);
        let mut at = 0;
        while at < self.parts.len() {
            hash = numbered(hash, self.parts[at].0.as_bytes(), self.parts[at].1 as u64);
            at += 1;
        }
        at = 0;
        while at < self.values.len() {
            hash = numbered(hash, self.values[at].0.as_bytes(), self.values[at].1);
            at += 1;
        }
        hash
    }
}

const fn numbered(hash: u64, name: &[u8], number: u64) -> u64 {
    fnv1a_on(fnv1a_on(hash, name), &number.to_le_bytes())
}
