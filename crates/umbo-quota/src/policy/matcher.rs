//! The requests that a policy matches: patterns over their names, and a set of operations.

use umbo_types::{Attributes, Operation};

use crate::dimension::{Dimension, Dimensions};
use crate::known_name::{self, UnknownName};
use crate::pattern::Pattern;
use crate::subject::Subject;

/// A set of operations that have a price. The empty set stands for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Operations(u16);

impl Operations {
    /// Returns all operations that have a price, in the order of their declaration.
    pub fn all() -> impl Iterator<Item = Operation> {
        let all = Operation::ALL.into_iter();
        all.filter(|operation| operation.has_price())
    }

    /// Finds an operation by its name.
    pub fn find(name: &str) -> Result<Operation, UnknownName> {
        known_name::find("operation", name, Self::all(), Operation::as_str)
    }

    /// Returns whether the set contains an operation. An empty set contains all operations that
    /// have a price.
    pub const fn contains(self, operation: Operation) -> bool {
        operation.has_price() && (self.0 == 0 || self.has_chosen(operation))
    }

    /// Returns whether an operation was chosen.
    pub const fn has_chosen(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u16) != 0
    }

    /// Returns whether no operation was chosen.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the chosen operations, in the order of their declaration.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Self::all().filter(move |operation| self.has_chosen(*operation))
    }
}

impl FromIterator<Operation> for Operations {
    /// Chooses operations; operations without a price are left out.
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        let chosen = operations.into_iter().filter(|one| one.has_price());
        Self(chosen.fold(0, |bits, operation| bits | 1 << operation as u16))
    }
}

/// How specific a matcher is: first by its number of exact names, then by its number of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity {
    exact: usize,
    literal_len: usize,
}

/// Matches requests: a request has to match every pattern that is set, and the operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// Over the payer.
    pub caller: Option<Pattern>,
    /// Over the namespace.
    pub namespace: Option<Pattern>,
    /// Over the attributes; a request without one of them does not match.
    pub attributes: Attributes<Option<Pattern>>,
    /// The operations.
    pub operations: Operations,
}

impl Matcher {
    /// Returns whether a request matches. Allocates nothing.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.operations.contains(subject.operation)
            && self.patterns().all(|(dimension, pattern)| {
                dimension
                    .value(subject)
                    .is_some_and(|name| pattern.matches(name))
            })
    }

    /// Returns whether some requests of a caller to a namespace can match.
    pub fn is_possible_for(&self, caller: &str, namespace: &str) -> bool {
        let is_open = |pattern: &Option<Pattern>, name| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
        };
        is_open(&self.caller, caller) && is_open(&self.namespace, namespace)
    }

    /// Returns the pattern over a dimension; the shard never has one.
    pub fn pattern(&self, dimension: Dimension) -> Option<&Pattern> {
        match dimension {
            Dimension::Caller => self.caller.as_ref(),
            Dimension::Namespace => self.namespace.as_ref(),
            Dimension::Attribute(attribute) => self.attributes[attribute].as_ref(),
            Dimension::Shard => None,
        }
    }

    /// Returns the patterns there are, in the order of the dimensions.
    pub fn patterns(&self) -> impl Iterator<Item = (Dimension, &Pattern)> {
        let all = Dimension::ALL.into_iter();
        all.filter_map(|dimension| Some((dimension, self.pattern(dimension)?)))
    }

    /// Returns the dimensions over which there is a pattern.
    pub fn dimensions(&self) -> Dimensions {
        self.patterns().map(|(dimension, _)| dimension).collect()
    }

    /// Returns how specific the patterns are; operations do not count.
    pub fn specificity(&self) -> Specificity {
        let start = Specificity {
            exact: 0,
            literal_len: 0,
        };
        self.patterns()
            .fold(start, |sum, (_, pattern)| Specificity {
                exact: sum.exact + usize::from(pattern.is_exact()),
                literal_len: sum.literal_len + pattern.literal_len(),
            })
    }
}
