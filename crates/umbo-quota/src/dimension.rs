//! By what a policy counts: the dimensions of which each combination of values has its own bucket.

use std::fmt;
use std::str::FromStr;

use crate::known_name::{self, UnknownName};
use crate::subject::Subject;

/// Something of a request by which a policy can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Who pays.
    Caller,
    /// For whom the caller calls.
    User,
    /// In which session.
    Session,
    /// For which organisation.
    Org,
    /// The namespace.
    Namespace,
    /// The storage shard; a request that reaches several counts at each by its part.
    Shard,
}

impl Dimension {
    /// All dimensions, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Caller,
        Self::User,
        Self::Session,
        Self::Org,
        Self::Namespace,
        Self::Shard,
    ];

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::User => "user",
            Self::Session => "session",
            Self::Org => "org",
            Self::Namespace => "namespace",
            Self::Shard => "shard",
        }
    }

    /// Returns the value that a request has here: none where it brings none, and of the shard.
    pub const fn value<'a>(self, subject: &Subject<'a>) -> Option<&'a str> {
        match self {
            Self::Caller => Some(subject.caller),
            Self::User => subject.user,
            Self::Session => subject.session,
            Self::Org => subject.org,
            Self::Namespace => Some(subject.namespace),
            Self::Shard => None,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
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

    /// Returns whether the set holds none.
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
        assert!(set.contains(Dimension::Caller) && !set.contains(Dimension::User));
        assert_eq!(set.to_string(), "[caller, namespace]");
        assert_eq!(set.with(Dimension::Shard).iter().count(), 3);
        assert!(Dimensions::default().is_empty() && !set.is_empty());
        assert_eq!(
            Dimension::ALL
                .into_iter()
                .collect::<Dimensions>()
                .iter()
                .count(),
            6
        );
    }

    #[test]
    fn names_read_back() {
        for dimension in Dimension::ALL {
            assert_eq!(dimension.as_str().parse(), Ok(dimension));
        }
        let error = "callers".parse::<Dimension>().unwrap_err();
        assert_eq!(error.nearest, Some("caller"));
    }
}
