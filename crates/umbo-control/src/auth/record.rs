//! The record of a token, in a file or in the store.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use subtle::ConstantTimeEq as _;
use umbo_api::admin::TokenInfo;
use umbo_types::{Caller, CallerId, Criticality, Grant, Permission, Timestamp, limits};

use super::error::AuthError;
use super::token::{HASH_LEN, ID_LEN, Token, TokenId};

/// Longest name of a token, in bytes.
const NAME_LEN_MAX: usize = 64;
/// Most grants of one token.
const GRANTS_MAX: usize = 64;

/// Where a token is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// In the token file. Only the owner of the file can remove it.
    File,
    /// In the store. Made and revoked with the admin API.
    Store,
}

impl TokenSource {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Store => "store",
        }
    }
}

/// A token to make, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedToken {
    name: String,
    grants: Vec<Grant>,
    criticality_max: Criticality,
    ttl: Option<Duration>,
}

impl CheckedToken {
    /// Checks what a client or an operator asks for. Errors name the field.
    pub fn check(asked: &umbo_api::admin::NewToken) -> Result<Self, AuthError> {
        let invalid = |place: &str, reason: String| AuthError::Invalid {
            place: place.to_owned(),
            reason,
        };
        if !is_name(&asked.name) {
            let reason = "1 to 64 characters of [A-Za-z0-9._-]".to_owned();
            return Err(invalid("name", reason));
        }
        if asked.grants.is_empty() || asked.grants.len() > GRANTS_MAX {
            return Err(invalid("grants", format!("1 to {GRANTS_MAX} grants")));
        }
        let grants = asked.grants.iter().map(|text| text.parse::<Grant>());
        let grants = grants.collect::<Result<_, _>>();
        let criticality_max = asked.criticality_max.as_deref().map(str::parse).transpose();
        if asked
            .ttl
            .is_some_and(|ttl| ttl == 0 || ttl > limits::TTL_SECONDS_MAX)
        {
            let reason = format!("1 to {} seconds", limits::TTL_SECONDS_MAX);
            return Err(invalid("ttl", reason));
        }
        Ok(Self {
            name: asked.name.clone(),
            grants: grants
                .map_err(|error: umbo_types::GrantError| invalid("grants", error.to_string()))?,
            criticality_max: criticality_max
                .map_err(|error: umbo_types::UnknownCriticality| {
                    invalid("criticality_max", error.to_string())
                })?
                .unwrap_or_default(),
            ttl: asked.ttl.map(Duration::from_secs),
        })
    }

    /// Makes the token: its text, to be shown once, and the record, to be kept.
    pub fn create(&self, now: Timestamp) -> Result<(Token, TokenRecord), AuthError> {
        let token = Token::generate()?;
        let mut salt = [0; HASH_LEN];
        getrandom::fill(&mut salt).map_err(AuthError::NoRandomness)?;
        let now = Timestamp::from_millis(now.as_millis());
        let record = TokenRecord {
            id: *token.id(),
            name: self.name.clone(),
            grants: self.grants.clone(),
            criticality_max: self.criticality_max,
            created_at: now,
            expires_at: self.ttl.map(|ttl| now.saturating_add(ttl)),
            salt,
            hash: token.hash(&salt),
        };
        Ok((token, record))
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// The stored form of a token. The token cannot be made again from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub(super) id: TokenId,
    pub(super) name: String,
    pub(super) grants: Vec<Grant>,
    pub(super) criticality_max: Criticality,
    /// Whole milliseconds, as it is kept.
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    salt: [u8; HASH_LEN],
    hash: [u8; HASH_LEN],
}

impl TokenRecord {
    /// Returns the id, the middle part of the token.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).expect("ids are made of letters and digits")
    }

    /// Returns whether `token` is the one of this record, in a time that does not depend on it.
    pub fn is_of(&self, token: &Token) -> bool {
        token.hash(&self.salt).ct_eq(&self.hash).into()
    }

    /// Returns whether the token has ended at `now`.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }

    /// Returns whether the token may manage tokens.
    pub fn is_admin(&self) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.allows_everywhere(Permission::Admin))
    }

    /// Returns the description for the admin API. `source` says where the token is kept.
    pub fn info(&self, source: TokenSource) -> TokenInfo {
        TokenInfo {
            id: self.id().to_owned(),
            name: self.name.clone(),
            grants: self.grants.iter().map(ToString::to_string).collect(),
            criticality_max: self.criticality_max.to_string(),
            created_at: self.created_at.as_millis(),
            expires_at: self.expires_at.map(Timestamp::as_millis),
            source: source.as_str().to_owned(),
        }
    }

    /// Returns the bytes under which the store keeps it.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record holds only strings and numbers")
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AuthError> {
        serde_json::from_slice(bytes).map_err(|error| AuthError::Invalid {
            place: "stored token".to_owned(),
            reason: error.to_string(),
        })
    }

    pub(super) fn caller(&self) -> Caller {
        Caller {
            id: CallerId::new(&self.name),
            grants: self.grants.clone(),
            criticality_max: self.criticality_max,
        }
    }
}

/// The form of a record in files and in the store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    id: String,
    name: String,
    grants: Vec<String>,
    criticality_max: String,
    /// Milliseconds since the Unix epoch.
    created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    salt: String,
    hash: String,
}

impl Serialize for TokenRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenToken {
            id: self.id().to_owned(),
            name: self.name.clone(),
            grants: self.grants.iter().map(ToString::to_string).collect(),
            criticality_max: self.criticality_max.to_string(),
            created_at: self.created_at.as_millis(),
            expires_at: self.expires_at.map(Timestamp::as_millis),
            salt: URL_SAFE_NO_PAD.encode(self.salt),
            hash: URL_SAFE_NO_PAD.encode(self.hash),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TokenRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenToken::deserialize(deserializer)?;
        let wrong = |field: &str, reason: &dyn std::fmt::Display| {
            <D::Error as de::Error>::custom(format!("{field}: {reason}"))
        };
        let id = TokenId::try_from(written.id.as_bytes()).ok();
        let id = id.filter(|id| id.iter().all(u8::is_ascii_alphanumeric));
        let id = id.ok_or_else(|| wrong("id", &format!("{ID_LEN} letters and digits")))?;
        if !is_name(&written.name) {
            return Err(wrong("name", &"1 to 64 characters of [A-Za-z0-9._-]"));
        }
        let grants = written.grants.iter();
        let grants = grants.filter_map(|text| Grant::of_made_token(text).transpose());
        let grants = grants.collect::<Result<_, _>>();
        let criticality_max = written.criticality_max.parse::<Criticality>();
        Ok(Self {
            id,
            name: written.name,
            grants: grants.map_err(|error| wrong("grants", &error))?,
            criticality_max: criticality_max.map_err(|error| wrong("criticality_max", &error))?,
            created_at: Timestamp::from_millis(written.created_at),
            expires_at: written.expires_at.map(Timestamp::from_millis),
            salt: read_hash(&written.salt).map_err(|reason| wrong("salt", &reason))?,
            hash: read_hash(&written.hash).map_err(|reason| wrong("hash", &reason))?,
        })
    }
}

fn read_hash(text: &str) -> Result<[u8; HASH_LEN], &'static str> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "not base64url")?;
    bytes.try_into().map_err(|_| "not 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> umbo_api::admin::NewToken {
        umbo_api::admin::NewToken {
            name: "listing".to_owned(),
            grants: vec!["read,write:listing-*".to_owned()],
            criticality_max: None,
            ttl: Some(60),
        }
    }

    #[test]
    fn a_record_knows_its_token_and_no_other_and_survives_being_stored() {
        let now = Timestamp(1_000_999);
        let new = CheckedToken::check(&asked()).unwrap();
        let (token, record) = new.create(now).unwrap();
        let (other, _) = new.create(now).unwrap();
        assert!(record.is_of(&token) && !record.is_of(&other));
        let stored = record.to_bytes();
        assert!(
            !String::from_utf8(stored.clone())
                .unwrap()
                .contains(&token.to_string()[18..])
        );
        assert_eq!(TokenRecord::from_bytes(&stored).unwrap(), record);
        assert!(!record.has_expired(Timestamp::from_millis(60_999)));
        assert!(record.has_expired(Timestamp::from_millis(61_000)));
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_by_field() {
        type Spoil = fn(&mut umbo_api::admin::NewToken);
        let cases: [(&str, Spoil); 6] = [
            ("name", |asked| asked.name = String::new()),
            ("name", |asked| asked.name = "two words".to_owned()),
            ("grants", |asked| asked.grants.clear()),
            ("grants", |asked| asked.grants[0] = "fly:*".to_owned()),
            ("criticality_max", |asked| {
                asked.criticality_max = Some("high".to_owned());
            }),
            ("ttl", |asked| asked.ttl = Some(0)),
        ];
        for (field, spoil) in cases {
            let mut asked = asked();
            spoil(&mut asked);
            let error = CheckedToken::check(&asked).unwrap_err();
            assert!(
                matches!(error, AuthError::Invalid { place, .. } if place == field),
                "{field}"
            );
        }
    }
}
