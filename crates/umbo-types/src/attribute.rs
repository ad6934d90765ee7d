//! Attributes: the user, session or organisation of a request, as stated by a caller that may delegate.
//! Policies match and count by them; they decide nothing else.
//!
//! A new attribute is a variant here, a field of `MatchSpec`, a header with its place in `Fields`, and a
//! field of the client's `Payer`.

use std::ops::{Index, IndexMut};

/// An attribute of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attribute {
    /// The user.
    User,
    /// The session.
    Session,
    /// The organisation.
    Org,
}

impl Attribute {
    /// All attributes, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::User, Self::Session, Self::Org];

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Session => "session",
            Self::Org => "org",
        }
    }
}

/// A value for each attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Attributes<T>([T; Attribute::ALL.len()]);

impl<T> Attributes<T> {
    /// Takes the values in the order of the attributes.
    pub const fn new(values: [T; Attribute::ALL.len()]) -> Self {
        Self(values)
    }

    /// Makes each value from its attribute.
    pub fn from_fn(value: impl FnMut(Attribute) -> T) -> Self {
        Self(Attribute::ALL.map(value))
    }

    /// Makes each value from its attribute, or returns the first error.
    pub fn try_from_fn<E>(mut value: impl FnMut(Attribute) -> Result<T, E>) -> Result<Self, E> {
        let mut error = None;
        let values = Attribute::ALL.map(|attribute| match (&error, value(attribute)) {
            (None, Ok(value)) => Some(value),
            (None, Err(first)) => {
                error = Some(first);
                None
            }
            (Some(_), _) => None,
        });
        match error {
            Some(error) => Err(error),
            None => Ok(Self(values.map(|value| value.expect("no value failed")))),
        }
    }

    /// Returns the attributes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Attribute, &T)> {
        Attribute::ALL.into_iter().zip(&self.0)
    }

    /// Replaces one value.
    #[must_use]
    pub fn with(mut self, attribute: Attribute, value: T) -> Self {
        self[attribute] = value;
        self
    }
}

impl<T: Copy> Attributes<Option<T>> {
    /// No attribute has a value.
    pub const NONE: Self = Self([None; Attribute::ALL.len()]);
}

impl<T> Index<Attribute> for Attributes<T> {
    type Output = T;

    fn index(&self, attribute: Attribute) -> &T {
        &self.0[attribute as usize]
    }
}

impl<T> IndexMut<Attribute> for Attributes<T> {
    fn index_mut(&mut self, attribute: Attribute) -> &mut T {
        &mut self.0[attribute as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_has_its_own_place() {
        let named = Attributes::from_fn(Attribute::as_str);
        for (attribute, name) in named.iter() {
            assert_eq!((*name, named[attribute]), (attribute.as_str(), *name));
        }
        let other = named.with(Attribute::Session, "other");
        assert_eq!(other[Attribute::Session], "other");
        assert_eq!(other[Attribute::Org], "org");
    }

    #[test]
    fn the_first_error_is_returned() {
        let refuse = |attribute: Attribute| match attribute {
            Attribute::User => Ok(()),
            other => Err(other),
        };
        assert_eq!(Attributes::try_from_fn(refuse), Err(Attribute::Session));
        let all = Attributes::try_from_fn(|_| Ok::<_, ()>(1));
        assert_eq!(all, Ok(Attributes::from_fn(|_| 1)));
    }
}
