//! Callers and their grants: permissions × namespace pattern, plus an upper bound on criticality.
//!
//! A grant is written `permissions:pattern`, for example `read,scan:listing-*`; `*` as permissions is all of them.
//! A pattern is a namespace name with `*` for any run of characters.

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
pub enum Permission {
    /// Get, multi-get, range.
    Read,
    /// Put, delete, delete range, batch write.
    Write,
    /// Scan of a whole namespace.
    Scan,
    /// Calling on behalf of another caller.
    Delegate,
    /// Reading the admin API and metrics.
    Observe,
    /// The admin API. Includes [`Permission::Observe`].
    Admin,
}

impl Permission {
    /// All permissions, in the order they are printed.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::Scan,
        Self::Delegate,
        Self::Observe,
        Self::Admin,
    ];

    /// Returns the name used in grants.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Scan => "scan",
            Self::Delegate => "delegate",
            Self::Observe => "observe",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Returns the bits of the permissions that include this one.
    const fn bits_allowing(self) -> u8 {
        match self {
            Self::Observe => Self::Observe.bit() | Self::Admin.bit(),
            _ => self.bit(),
        }
    }

    fn parse(name: &str) -> Result<Self, GrantError> {
        let permission = Self::ALL
            .into_iter()
            .find(|permission| permission.as_str() == name);
        permission.ok_or_else(|| GrantError::UnknownPermission(name.to_owned()))
    }
}

/// Why a text is not a grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// There is no colon.
    #[error(
        "a grant is written permissions:namespace-pattern (like read,write:listing-*), not '{0}'"
    )]
    NoColon(String),
    /// An unknown permission.
    #[error("no such permission: '{0}' (read, write, scan, delegate, observe, admin or *)")]
    UnknownPermission(String),
    /// The pattern contains a character that no namespace name has.
    #[error("'{0}' can match no namespace name")]
    BadPattern(String),
}

/// Permissions on the namespaces that a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    permissions: u8,
    pattern: NamespacePattern,
}

impl Grant {
    /// Makes the grant of every permission on every namespace.
    pub fn everything() -> Self {
        Self {
            permissions: Permission::ALL
                .iter()
                .fold(0, |bits, permission| bits | permission.bit()),
            pattern: NamespacePattern("*".into()),
        }
    }

    /// Reads a grant of an existing token. `bulk`, a permission of former versions that allowed nothing, is left
    /// out. Returns `None` if nothing else is granted.
    pub fn of_made_token(text: &str) -> Result<Option<Self>, GrantError> {
        let Some((permissions, pattern)) = text.split_once(':') else {
            return text.parse().map(Some);
        };
        let permissions = permissions.split(',').map(str::trim);
        let kept: Vec<&str> = permissions
            .filter(|permission| *permission != "bulk")
            .collect();
        if kept.is_empty() {
            return Ok(None);
        }
        format!("{}:{pattern}", kept.join(",")).parse().map(Some)
    }

    /// Returns whether the grant covers `permission` on `namespace`.
    pub fn allows(&self, permission: Permission, namespace: &str) -> bool {
        self.permissions & permission.bits_allowing() != 0 && self.pattern.matches(namespace)
    }

    /// Returns whether the grant covers `permission` on every namespace.
    pub fn allows_everywhere(&self, permission: Permission) -> bool {
        self.permissions & permission.bits_allowing() != 0 && &*self.pattern.0 == "*"
    }
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (permissions, pattern) = text
            .split_once(':')
            .ok_or_else(|| GrantError::NoColon(text.to_owned()))?;
        let mut bits = 0;
        for name in permissions.split(',').map(str::trim) {
            if name == "*" {
                bits = Self::everything().permissions;
                continue;
            }
            bits |= Permission::parse(name)?.bit();
        }
        Ok(Self {
            permissions: bits,
            pattern: pattern.parse()?,
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.permissions == Self::everything().permissions {
            return write!(f, "*:{}", self.pattern.0);
        }
        let mut separator = "";
        for permission in Permission::ALL
            .into_iter()
            .filter(|permission| self.permissions & permission.bit() != 0)
        {
            write!(f, "{separator}{}", permission.as_str())?;
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
    /// Identity of the caller.
    pub id: CallerId,
    /// Grants of the caller; a single grant that covers the request suffices.
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

    /// Returns whether any grant covers `permission` on `namespace`.
    pub fn is_allowed(&self, permission: Permission, namespace: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.allows(permission, namespace))
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
            Err(GrantError::UnknownPermission(_))
        ));
        assert!(matches!(
            ":*".parse::<Grant>(),
            Err(GrantError::UnknownPermission(_))
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
    fn who_may_change_may_observe_and_not_the_reverse() {
        let admin: Grant = "admin:geo".parse().unwrap();
        assert!(
            admin.allows(Permission::Observe, "geo") && !admin.allows(Permission::Observe, "other")
        );
        assert_eq!(admin.to_string(), "admin:geo");
        let observer: Grant = "observe:*".parse().unwrap();
        assert!(observer.allows_everywhere(Permission::Observe));
        for permission in [
            Permission::Admin,
            Permission::Read,
            Permission::Write,
            Permission::Scan,
            Permission::Delegate,
        ] {
            assert!(!observer.allows(permission, "geo"), "{permission:?}");
        }
    }

    #[test]
    fn a_grant_is_permission_and_namespace_together() {
        let grant: Grant = "read,scan:geo*".parse().unwrap();
        assert!(grant.allows(Permission::Read, "geo") && grant.allows(Permission::Scan, "geo-2"));
        assert!(
            !grant.allows(Permission::Write, "geo") && !grant.allows(Permission::Read, "other")
        );
        assert!(!grant.allows_everywhere(Permission::Read));
    }
}
