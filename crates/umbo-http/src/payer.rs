//! The payer: the caller of the credential, or a caller named by one with the permission `delegate`.
//!
//! Hot path: a request that names no payer allocates nothing here. The names count for quotas and nothing
//! else; the credential alone decides which operations are allowed.

use http::HeaderValue;
use umbo_api::header;
use umbo_control::NamespaceEntry;
use umbo_quota::Subject;
use umbo_types::{Attributes, Caller, Operation, Permission};

use crate::fields::Fields;
use crate::request_error::RequestError;

/// Longest name of a caller, user, session or organisation.
const NAME_LEN_MAX: usize = 128;

/// The names of a request in addition to the caller of its credential.
#[derive(Debug, Clone, Default)]
pub struct Payer {
    /// Whether the request names a payer or an attribute, honoured or not.
    is_named: bool,
    honoured: Option<Box<PayerNames>>,
}

/// Names as sent; each is visible ASCII.
#[derive(Debug, Clone)]
struct PayerNames {
    caller: Option<HeaderValue>,
    attributes: Attributes<Option<HeaderValue>>,
}

impl Payer {
    /// Reads the payer. Names are honoured, and therefore checked, only if the caller holds the grant
    /// `delegate` on the namespace.
    pub fn read(
        fields: &Fields<'_>,
        caller: &Caller,
        namespace: &str,
    ) -> Result<Self, RequestError> {
        if !fields.names_payer() {
            return Ok(Self::default());
        }
        let is_delegate = caller.is_allowed(Permission::Delegate, namespace);
        let honoured = is_delegate.then(|| PayerNames::read(fields)).transpose()?;
        Ok(Self {
            is_named: true,
            honoured: honoured.map(Box::new),
        })
    }

    /// Returns the attributes that quotas match and count by.
    pub fn subject<'a>(
        &'a self,
        caller: &'a Caller,
        namespace: &'a NamespaceEntry,
        operation: Operation,
    ) -> Subject<'a> {
        let attributes = self.honoured.as_deref().map(PayerNames::attributes);
        Subject {
            caller: self.name(caller),
            namespace: &namespace.info.name,
            namespace_id: namespace.id,
            attributes: attributes.unwrap_or_default(),
            operation,
        }
    }

    /// Returns the name of the caller that pays.
    pub fn name<'a>(&'a self, caller: &'a Caller) -> &'a str {
        let named = self.honoured.as_deref();
        let named = named.and_then(|names| names.caller.as_ref());
        named.map_or_else(|| caller.id.as_str(), text)
    }

    /// Returns the payer, if the request names one or an attribute: the caller, then `;user="…"` and so on
    /// for the honoured attributes.
    pub fn charged_to(&self, caller: &Caller) -> Option<HeaderValue> {
        if !self.is_named {
            return None;
        }
        let own = caller.id.as_str();
        let Some(names) = self.honoured.as_deref() else {
            return HeaderValue::from_str(own).ok();
        };
        let mut out = names.caller.as_ref().map_or(own, text).to_owned();
        for (attribute, value) in names.attributes.iter() {
            let Some(value) = value else { continue };
            out.push(';');
            out.push_str(attribute.as_str());
            out.push_str("=\"");
            for character in text(value).chars() {
                if matches!(character, '"' | '\\') {
                    out.push('\\');
                }
                out.push(character);
            }
            out.push('"');
        }
        HeaderValue::try_from(out).ok()
    }
}

impl PayerNames {
    fn read(fields: &Fields<'_>) -> Result<Self, RequestError> {
        Ok(Self {
            caller: checked(fields.quota_user, header::QUOTA_USER)?,
            attributes: Attributes::try_from_fn(|one| {
                let (name, value) = fields.attribute(one);
                checked(value, name)
            })?,
        })
    }

    fn attributes(&self) -> Attributes<Option<&str>> {
        Attributes::from_fn(|one| self.attributes[one].as_ref().map(text))
    }
}

fn checked(
    value: Option<&HeaderValue>,
    name: &'static str,
) -> Result<Option<HeaderValue>, RequestError> {
    let Some(value) = value else { return Ok(None) };
    let is_name = (1..=NAME_LEN_MAX).contains(&value.len())
        && value.as_bytes().iter().all(u8::is_ascii_graphic);
    if is_name {
        return Ok(Some(value.clone()));
    }
    Err(RequestError::BadHeader {
        name,
        expected: "1 to 128 visible ASCII characters",
    })
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn caller(grant: &str) -> Caller {
        Caller {
            grants: vec![grant.parse().unwrap()],
            ..Caller::anonymous()
        }
    }

    fn read(pairs: &[(&'static str, &str)], grant: &str) -> Result<Option<String>, RequestError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let caller = caller(grant);
        let payer = Payer::read(&Fields::read(&headers), &caller, "listings")?;
        let charged_to = payer.charged_to(&caller);
        Ok(charged_to.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn names_are_honoured_with_the_grant_and_ignored_without() {
        let names = [("umbo-quota-user", "search"), ("umbo-user", "u\"7")];
        let delegate = read(&names, "read,delegate:list*").unwrap();
        assert_eq!(delegate.as_deref(), Some("search;user=\"u\\\"7\""));
        let other = read(&names, "read:*").unwrap();
        assert_eq!(other.as_deref(), Some("anonymous"));
        assert_eq!(read(&[], "*:*").unwrap(), None);
    }

    #[test]
    fn a_name_is_checked_where_it_is_honoured() {
        let long = "x".repeat(129);
        for bad in ["", "two words", "tab\t", &long] {
            let names = [("umbo-session", bad)];
            let refused = read(&names, "delegate:*");
            assert!(
                matches!(refused, Err(RequestError::BadHeader { .. })),
                "{bad}"
            );
            assert!(read(&names, "read:*").is_ok());
        }
        assert!(read(&[("umbo-org", &long[1..])], "delegate:*").is_ok());
    }
}
