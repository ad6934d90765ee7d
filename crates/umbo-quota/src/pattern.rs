//! Patterns over the names in a request; `*` stands for any run of characters, also an empty one.

use std::fmt;
use std::sync::Arc;

use umbo_types::glob;

use crate::limits::PATTERN_LEN_MAX;

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty.
    #[error("an empty pattern matches no name; '*' matches all")]
    Empty,
    /// Longer than a pattern may be.
    #[error("a pattern has at most {PATTERN_LEN_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A character that no name has.
    #[error("'{0}' can match no name: it holds a space, or a character that is not ASCII")]
    BadCharacter(String),
}

/// A pattern over names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Arc<str>,
    literal_len: u16,
}

impl Pattern {
    /// Reads a pattern: 1 to 256 visible ASCII characters. Stars that stand together are one.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > PATTERN_LEN_MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(PatternError::BadCharacter(text.to_owned()));
        }
        let mut plain = String::with_capacity(text.len());
        for character in text.chars() {
            if character != '*' || !plain.ends_with('*') {
                plain.push(character);
            }
        }
        let literal_len = plain.bytes().filter(|&byte| byte != b'*').count() as u16;
        Ok(Self {
            text: plain.into(),
            literal_len,
        })
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_exact() {
            return *self.text == *name;
        }
        glob::is_match(&self.text, name)
    }

    /// Returns whether some name matches both patterns.
    pub fn is_overlap(&self, other: &Self) -> bool {
        glob::is_overlap(&self.text, &other.text)
    }

    /// Returns whether it matches one name only.
    pub fn is_exact(&self) -> bool {
        usize::from(self.literal_len) == self.text.len()
    }

    /// Returns whether it matches every name.
    pub fn is_any(&self) -> bool {
        self.literal_len == 0
    }

    /// Returns the number of characters other than stars. A pattern with more of them matches fewer
    /// names.
    pub fn literal_len(&self) -> usize {
        usize::from(self.literal_len)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_knows_how_much_it_says() {
        assert!(pattern("search").is_exact() && !pattern("search").is_any());
        assert!(!pattern("sea*").is_exact() && !pattern("sea*").is_any());
        assert!(pattern("*").is_any() && !pattern("*").is_exact());
        assert_eq!(pattern("a*b*").literal_len(), 2);
        assert_eq!(pattern("a***b").as_str(), "a*b");
    }

    #[test]
    fn what_can_match_no_name_is_refused() {
        assert_eq!(Pattern::parse(""), Err(PatternError::Empty));
        assert_eq!(
            Pattern::parse(&"a".repeat(257)),
            Err(PatternError::TooLong(257))
        );
        for text in ["a b", "a\n", "é", "\u{7f}"] {
            assert_eq!(
                Pattern::parse(text),
                Err(PatternError::BadCharacter(text.to_owned()))
            );
        }
        assert_eq!(pattern(&"a".repeat(256)).literal_len(), 256);
    }

    proptest! {
        #[test]
        fn stars_that_stand_together_are_one(text in "[ab*]{1,12}", name in "[ab]{0,12}") {
            let read = pattern(&text);
            prop_assert_eq!(read.matches(&name), glob::is_match(&text, &name));
            prop_assert_eq!(&pattern(read.as_str()), &read);
            prop_assert!(!read.is_any() || read.matches(&name));
            prop_assert!(!read.is_exact() || read.matches(&name) == (text == name));
        }
    }
}
