//! Callers and their permissions: verbs × namespace pattern, plus an upper bound on criticality.
//!
//! A grant is written `verbs:pattern`, for example `read,scan:listing-*`; `*` as verbs is all of
//! them. A pattern is a namespace name in which each `*` stands for any run of characters.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::criticality::Criticality;
use crate::glob;

/// Identity of a caller: the name of its token, or `anonymous` if no token is required.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerId(Arc<str>);

impl CallerId {
    /// Keeps a name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Get, multi-get, range.
    Read,
    /// Put, delete, delete range, batch write.
    Write,
    /// Scan of a whole namespace.
    Scan,
    /// Calling on behalf of another caller.
    Delegate,
    /// The admin API.
    Admin,
}

impl Verb {
    /// All verbs, in the order they are printed.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Write,
        Self::Scan,
        Self::Delegate,
        Self::Admin,
    ];

    /// Returns the name used in grants.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Scan => "scan",
            Self::Delegate => "delegate",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn parse(name: &str) -> Result<Self, GrantError> {
        let verb = Self::ALL.into_iter().find(|verb| verb.as_str() == name);
        verb.ok_or_else(|| GrantError::UnknownVerb(name.to_owned()))
    }
}

/// Why a text is not a grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// There is no colon.
    #[error("a grant is written verbs:namespace-pattern (like read,write:listing-*), not '{0}'")]
    NoColon(String),
    /// An unknown verb.
    #[error("no such verb: '{0}' (read, write, scan, delegate, admin or *)")]
    UnknownVerb(String),
    /// The pattern contains a character that no namespace name has.
    #[error("'{0}' can match no namespace name")]
    BadPattern(String),
}

/// Permissions on the namespaces that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    verbs: u8,
    pattern: NamespacePattern,
}

impl Grant {
    /// Makes the grant of every verb on every namespace.
    pub fn everything() -> Self {
        Self {
            verbs: Verb::ALL.iter().fold(0, |bits, verb| bits | verb.bit()),
            pattern: NamespacePattern("*".into()),
        }
    }

    /// Reads a grant of a token that was made before. `bulk`, a verb of former versions that allowed nothing,
    /// is left out; none is returned where nothing else is granted.
    pub fn of_made_token(text: &str) -> Result<Option<Self>, GrantError> {
        let Some((verbs, pattern)) = text.split_once(':') else {
            return text.parse().map(Some);
        };
        let verbs = verbs.split(',').map(str::trim);
        let kept: Vec<&str> = verbs.filter(|verb| *verb != "bulk").collect();
        if kept.is_empty() {
            return Ok(None);
        }
        format!("{}:{pattern}", kept.join(",")).parse().map(Some)
    }

    /// Returns whether the grant covers `verb` on `namespace`.
    pub fn allows(&self, verb: Verb, namespace: &str) -> bool {
        self.verbs & verb.bit() != 0 && self.pattern.matches(namespace)
    }

    /// Returns whether the grant covers `verb` on every namespace.
    pub fn allows_everywhere(&self, verb: Verb) -> bool {
        self.verbs & verb.bit() != 0 && &*self.pattern.0 == "*"
    }
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (verbs, pattern) = text
            .split_once(':')
            .ok_or_else(|| GrantError::NoColon(text.to_owned()))?;
        let mut bits = 0;
        for name in verbs.split(',').map(str::trim) {
            if name == "*" {
                bits = Self::everything().verbs;
                continue;
            }
            bits |= Verb::parse(name)?.bit();
        }
        Ok(Self {
            verbs: bits,
            pattern: pattern.parse()?,
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.verbs == Self::everything().verbs {
            return write!(f, "*:{}", self.pattern.0);
        }
        let mut separator = "";
        for verb in Verb::ALL
            .into_iter()
            .filter(|verb| self.verbs & verb.bit() != 0)
        {
            write!(f, "{separator}{}", verb.as_str())?;
            separator = ",";
        }
        write!(f, ":{}", self.pattern.0)
    }
}

/// Pattern over namespace names; `*` matches any run of characters, including an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePattern(Arc<str>);

impl NamespacePattern {
    /// Returns whether a name matches.
    pub fn matches(&self, name: &str) -> bool {
        glob::is_match(&self.0, name)
    }
}

impl FromStr for NamespacePattern {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_allowed =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'*');
        if text.is_empty() || !text.bytes().all(is_allowed) {
            return Err(GrantError::BadPattern(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

/// An identified caller: identity, grants, and the highest tier that it may claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its identity.
    pub id: CallerId,
    /// Its grants; one that covers the request suffices.
    pub grants: Vec<Grant>,
    /// Highest criticality that it may claim; a higher claim is lowered to this.
    pub criticality_max: Criticality,
}

impl Caller {
    /// Makes the caller of a server that requires no token: everything is allowed.
    pub fn anonymous() -> Self {
        Self {
            id: CallerId::new("anonymous"),
            grants: vec![Grant::everything()],
            criticality_max: Criticality::CriticalPlus,
        }
    }

    /// Returns whether any grant covers `verb` on `namespace`.
    pub fn is_allowed(&self, verb: Verb, namespace: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.allows(verb, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_read_back_as_written() {
        for text in [
            "read:a",
            "read,write:listing-*",
            "*:*",
            "scan,delegate,admin:x.y",
        ] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_token_of_a_former_version_keeps_what_it_allows() {
        let made = |text| Grant::of_made_token(text).unwrap();
        assert_eq!(made("read,bulk:a"), "read:a".parse().ok());
        assert_eq!(made("*:a"), "*:a".parse().ok());
        assert_eq!(made("bulk:*"), None);
        assert!("read,bulk:a".parse::<Grant>().is_err());
        assert!(Grant::of_made_token("read").is_err() && Grant::of_made_token("fly:a").is_err());
    }

    #[test]
    fn grants_that_mean_nothing_are_refused() {
        assert!(matches!(
            "read".parse::<Grant>(),
            Err(GrantError::NoColon(_))
        ));
        assert!(matches!(
            "fly:*".parse::<Grant>(),
            Err(GrantError::UnknownVerb(_))
        ));
        assert!(matches!(
            ":*".parse::<Grant>(),
            Err(GrantError::UnknownVerb(_))
        ));
        assert!(matches!(
            "read:".parse::<Grant>(),
            Err(GrantError::BadPattern(_))
        ));
        assert!(matches!(
            "read:A".parse::<Grant>(),
            Err(GrantError::BadPattern(_))
        ));
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        let pattern: NamespacePattern = "listing-*".parse().unwrap();
        assert!(pattern.matches("listing-") && pattern.matches("listing-2"));
        assert!(!pattern.matches("listings") && !pattern.matches("a-listing-2"));
    }

    #[test]
    fn a_grant_is_verb_and_namespace_together() {
        let grant: Grant = "read,scan:geo*".parse().unwrap();
        assert!(grant.allows(Verb::Read, "geo") && grant.allows(Verb::Scan, "geo-2"));
        assert!(!grant.allows(Verb::Write, "geo") && !grant.allows(Verb::Read, "other"));
        assert!(!grant.allows_everywhere(Verb::Read));
    }
}
