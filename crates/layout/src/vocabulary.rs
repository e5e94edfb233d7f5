//! Enums whose values are words in the cluster file, in a simulation's configuration, on the command line and in
//! results. Each is declared in the crate that acts on it, and all others use that declaration.
//!
//! It is a macro, not a derive such as strum's: it defines a value's word once for serde, `FromStr` and `Display`, and
//! parsing errors list the accepted words.

use std::fmt;

/// Declares an enum whose values are written as the given words. The calling crate needs `serde`.
#[macro_export]
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[derive(::serde::Serialize, ::serde::Deserialize)]
        pub enum $name {
            $($(#[$value_doc])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// Every value, in the order of their description.
            pub const ALL: &[Self] = &[$(Self::$value),+];
            /// The word of each, in the same order.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The value's word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(word: &str) -> ::std::result::Result<Self, $crate::UnknownWord> {
                match word {
                    $($word => Ok(Self::$value),)+
                    _ => Err($crate::UnknownWord::new(word, Self::WORDS)),
                }
            }
        }
    };
}

/// A word that no value of an enum has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWord {
    found: String,
    expected: &'static [&'static str],
}

impl UnknownWord {
    /// An error for `found`, which is not among `expected`.
    pub fn new(found: &str, expected: &'static [&'static str]) -> Self {
        UnknownWord { found: found.to_owned(), expected }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not known; expected one of {}", self.found, self.expected.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public enums")]
mod tests {
    vocabulary! {
        /// Ways to stop.
        Stop {
            /// At once.
            #[default]
            AtOnce = "at-once",
            /// After the last request.
            Gently = "gently",
        }
    }

    #[test]
    fn a_value_is_written_and_read_as_its_word() {
        for (value, word) in Stop::ALL.iter().zip(Stop::WORDS) {
            assert_eq!(value.to_string(), *word);
            assert_eq!(word.parse(), Ok(*value));
            assert_eq!(serde_json::to_value(value).unwrap(), *word);
            assert_eq!(serde_json::from_value::<Stop>((*word).into()).unwrap(), *value);
        }
        assert_eq!(format!("{:>8}", Stop::Gently), "  gently");
    }

    #[test]
    fn another_word_is_refused_with_those_that_are_accepted() {
        let error = "never".parse::<Stop>().unwrap_err().to_string();
        assert_eq!(error, "\"never\" is not known; expected one of at-once, gently");
        let error = serde_json::from_str::<Stop>("\"never\"").unwrap_err().to_string();
        assert!(error.contains("`never`, expected `at-once` or `gently`"), "{error}");
    }
}
