//! The dimensions that a policy counts by. Each combination of their values has a separate bucket.

use std::fmt;
use std::str::FromStr;

use umbo_types::Attribute;

use crate::known_name::{self, UnknownName};
use crate::subject::Subject;

/// A property of a request that a policy can count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// The payer.
    Caller,
    /// An attribute of the request, like the user for whom the caller calls.
    Attribute(Attribute),
    /// The namespace.
    Namespace,
    /// The storage shard. A request that reaches several shards is counted at each of them by its
    /// share.
    Shard,
}

impl Dimension {
    /// All dimensions, in the order of their declaration.
    pub const ALL: [Self; Attribute::ALL.len() + 3] = {
        let mut all = [Self::Caller; Attribute::ALL.len() + 3];
        let mut at = 0;
        while at < Attribute::ALL.len() {
            all[1 + at] = Self::Attribute(Attribute::ALL[at]);
            at += 1;
        }
        all[1 + at] = Self::Namespace;
        all[2 + at] = Self::Shard;
        all
    };

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Attribute(attribute) => attribute.as_str(),
            Self::Namespace => "namespace",
            Self::Shard => "shard",
        }
    }

    /// Returns the value of a request, or `None` if the request does not name one. The shard is
    /// always `None`: the subject does not hold it.
    pub fn value<'a>(self, subject: &Subject<'a>) -> Option<&'a str> {
        match self {
            Self::Caller => Some(subject.caller),
            Self::Attribute(attribute) => subject.attributes[attribute],
            Self::Namespace => Some(subject.namespace),
            Self::Shard => None,
        }
    }

    /// Returns its place in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> u8 {
        let attributes = Attribute::ALL.len() as u8;
        match self {
            Self::Caller => 0,
            Self::Attribute(attribute) => 1 + attribute as u8,
            Self::Namespace => 1 + attributes,
            Self::Shard => 2 + attributes,
        }
    }

    const fn bit(self) -> u8 {
        1 << self.index()
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dimension {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        known_name::find("dimension", text, Self::ALL, Self::as_str)
    }
}

/// A set of dimensions. The empty one stands for one bucket that serves all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Dimensions(u8);

impl Dimensions {
    /// Returns whether the set holds a dimension.
    pub const fn contains(self, dimension: Dimension) -> bool {
        self.0 & dimension.bit() != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the dimensions, in the order of their declaration.
    pub fn iter(self) -> impl Iterator<Item = Dimension> {
        let all = Dimension::ALL.into_iter();
        all.filter(move |dimension| self.contains(*dimension))
    }

    /// Adds a dimension.
    #[must_use]
    pub const fn with(self, dimension: Dimension) -> Self {
        Self(self.0 | dimension.bit())
    }
}

impl FromIterator<Dimension> for Dimensions {
    fn from_iter<I: IntoIterator<Item = Dimension>>(dimensions: I) -> Self {
        dimensions.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Dimensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Dimension::as_str).collect();
        write!(f, "[{}]", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: Dimensions = [Dimension::Namespace, Dimension::Caller]
            .into_iter()
            .collect();
        assert!(set.contains(Dimension::Caller) && !set.contains(Dimension::Shard));
        assert_eq!(set.to_string(), "[caller, namespace]");
        assert_eq!(set.with(Dimension::Shard).iter().count(), 3);
        assert!(Dimensions::default().is_empty() && !set.is_empty());
        assert_eq!(
            Dimension::ALL
                .into_iter()
                .collect::<Dimensions>()
                .iter()
                .count(),
            Dimension::ALL.len()
        );
    }

    #[test]
    fn names_read_back() {
        for dimension in Dimension::ALL {
            assert_eq!(dimension.as_str().parse(), Ok(dimension));
            assert_eq!(Dimension::ALL[usize::from(dimension.index())], dimension);
        }
        let error = "callers".parse::<Dimension>().unwrap_err();
        assert_eq!(error.nearest, Some("caller"));
    }
}
