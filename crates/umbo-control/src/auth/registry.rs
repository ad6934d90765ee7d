//! The tokens in effect, from a file and from the store, as one immutable snapshot.
//!
//! Readers take no lock and allocate nothing. Writers replace the snapshot. While there is no token at
//! all, requests need none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use umbo_api::admin::TokenInfo;
use umbo_types::{Caller, Timestamp};

use super::error::AuthError;
use super::memo;
use super::record::{CheckedToken, TokenRecord, TokenSource};
use super::snapshot::{Snapshot, TokenEntry};
use super::token::Token;

/// The tokens in effect.
#[derive(Debug)]
pub struct TokenRegistry {
    in_effect: ArcSwap<Snapshot>,
    sources: Mutex<Sources>,
    anonymous: Arc<Caller>,
    is_kept_closed: AtomicBool,
    /// A record to hash against if an id is unknown, so that this takes the same time as a wrong
    /// secret.
    decoy: TokenRecord,
}

#[derive(Debug, Default)]
struct Sources {
    file: Vec<TokenRecord>,
    store: Vec<TokenRecord>,
}

impl TokenRegistry {
    /// Makes a registry without tokens. Fails only if the system has no randomness.
    pub fn new() -> Result<Self, AuthError> {
        let decoy = CheckedToken::check(&umbo_api::admin::NewToken {
            name: "decoy".to_owned(),
            grants: vec!["read:decoy".to_owned()],
            criticality_max: None,
            ttl: None,
        })?;
        Ok(Self {
            in_effect: ArcSwap::default(),
            sources: Mutex::default(),
            anonymous: Arc::new(Caller::anonymous()),
            is_kept_closed: AtomicBool::new(false),
            decoy: decoy.create(Timestamp(0))?.1,
        })
    }

    /// Requires a token from now on, even if no token is left: a server that others can reach must not
    /// open because its token file was emptied.
    pub fn keep_closed(&self) {
        self.is_kept_closed.store(true, Relaxed);
    }

    /// Replaces all tokens of one source.
    pub fn replace(&self, source: TokenSource, records: Vec<TokenRecord>) {
        self.change(source, |kept| *kept = records);
    }

    /// Adds one token, or replaces the one with its id.
    pub fn insert(&self, source: TokenSource, record: TokenRecord) {
        self.change(source, |kept| {
            kept.retain(|other| other.id != record.id);
            kept.push(record);
        });
    }

    /// Removes the token of the store that has this id. Ask [`check_revoke`](Self::check_revoke)
    /// first.
    pub fn remove(&self, id: &str) {
        self.change(TokenSource::Store, |kept| {
            kept.retain(|record| record.id() != id);
        });
    }

    /// Returns whether requests need a token: as soon as there is any.
    pub fn is_required(&self) -> bool {
        self.is_kept_closed.load(Relaxed) || !self.in_effect.load().is_empty()
    }

    /// Returns the caller of a request, by the value of the `Authorization` header. While there is no
    /// token, every request is from the anonymous caller, who has all permissions, unless the registry
    /// is [kept closed](Self::keep_closed). The time is asked for only if the token may expire.
    pub fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        now: impl Fn() -> Timestamp,
    ) -> Result<Arc<Caller>, AuthError> {
        let in_effect = self.in_effect.load();
        if in_effect.is_empty() && !self.is_kept_closed.load(Relaxed) {
            return Ok(self.anonymous.clone());
        }
        let authorization = authorization.ok_or(AuthError::Missing)?;
        if let Some(caller) = memo::recall(&in_effect, authorization, &now) {
            return Ok(caller);
        }
        let text = bearer(authorization).ok_or(AuthError::Malformed)?;
        let token = Token::parse(text).ok_or(AuthError::Malformed)?;
        let entry = in_effect.get(token.id());
        let is_genuine = entry
            .map_or(&self.decoy, |entry| &entry.record)
            .is_of(&token);
        match entry {
            Some(entry) if is_genuine && entry.record.has_expired(now()) => Err(AuthError::Expired),
            Some(entry) if is_genuine => {
                memo::remember(&in_effect, authorization, entry);
                Ok(entry.caller.clone())
            }
            _ => Err(AuthError::Unknown),
        }
    }

    /// Returns whether a token may be made: the first one must be able to make others.
    pub fn check_create(&self, record: &TokenRecord) -> Result<(), AuthError> {
        if self.is_required() || record.is_admin() {
            Ok(())
        } else {
            Err(AuthError::FirstIsNoAdmin)
        }
    }

    /// Returns whether a token may be revoked. It must be a token of the store. If it can manage
    /// tokens, another token that can do so and has not expired at `now` must remain, or it must be the
    /// only token of a server that may open again.
    pub fn check_revoke(&self, id: &str, now: Timestamp) -> Result<(), AuthError> {
        let in_effect = self.in_effect.load();
        let id = id.to_owned();
        let Some(entry) = in_effect.values().find(|entry| entry.record.id() == id) else {
            return Err(AuthError::NoSuchToken { id });
        };
        if entry.source == TokenSource::File {
            return Err(AuthError::OfFile { id });
        }
        let is_admin =
            |entry: &TokenEntry| entry.record.is_admin() && !entry.record.has_expired(now);
        let has_other_admin = in_effect
            .values()
            .any(|other| other.record.id != entry.record.id && is_admin(other));
        let may_open = in_effect.len() == 1 && !self.is_kept_closed.load(Relaxed);
        if is_admin(entry) && !has_other_admin && !may_open {
            return Err(AuthError::LastAdmin { id });
        }
        Ok(())
    }

    /// Returns all tokens by id, without their secrets.
    pub fn list(&self) -> Vec<TokenInfo> {
        let in_effect = self.in_effect.load();
        let entries = in_effect.values();
        let mut tokens: Vec<_> = entries
            .map(|entry| entry.record.info(entry.source))
            .collect();
        tokens.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        tokens
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, source: TokenSource, edit: impl FnOnce(&mut Vec<TokenRecord>)) {
        let mut sources = self.lock();
        match source {
            TokenSource::File => edit(&mut sources.file),
            TokenSource::Store => edit(&mut sources.store),
        }
        let mut snapshot = Snapshot::default();
        // The file comes last: if an id is in both, the entry of the file counts.
        let store = sources
            .store
            .iter()
            .map(|record| (record, TokenSource::Store));
        let file = sources
            .file
            .iter()
            .map(|record| (record, TokenSource::File));
        for (record, source) in store.chain(file) {
            let entry = TokenEntry {
                record: record.clone(),
                caller: Arc::new(record.caller()),
                source,
            };
            snapshot.insert(record.id, entry);
        }
        // Stored under the lock, so that the later of two changes stays in effect.
        self.in_effect.store(Arc::new(snapshot));
    }
}

/// Returns the text after `Bearer` (in any case) and spaces.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = authorization.split_at_checked("Bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && rest.first() == Some(&b' ');
    is_bearer.then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(5_000);

    fn make(grant: &str, ttl: Option<u64>) -> (Token, TokenRecord) {
        let asked = umbo_api::admin::NewToken {
            name: "service".to_owned(),
            grants: vec![grant.to_owned()],
            criticality_max: Some("critical".to_owned()),
            ttl,
        };
        CheckedToken::check(&asked).unwrap().create(NOW).unwrap()
    }

    fn header(token: &Token) -> Vec<u8> {
        format!("Bearer {token}").into_bytes()
    }

    #[test]
    fn without_tokens_everybody_is_let_in_and_with_one_nobody_else_is() {
        let registry = TokenRegistry::new().unwrap();
        assert!(!registry.is_required());
        let open = registry.authenticate(Some(b"Basic eDp5"), || NOW).unwrap();
        assert_eq!(*open, Caller::anonymous());
        let (token, record) = make("admin:*", None);
        registry.insert(TokenSource::Store, record);
        assert!(registry.is_required());
        let caller = registry
            .authenticate(Some(&header(&token)), || NOW)
            .unwrap();
        assert_eq!(caller.id.as_str(), "service");
        assert!(matches!(
            registry.authenticate(None, || NOW),
            Err(AuthError::Missing)
        ));
    }

    #[test]
    fn what_is_kept_closed_does_not_open_when_the_tokens_are_gone() {
        let registry = TokenRegistry::new().unwrap();
        let (token, record) = make("admin:*", None);
        registry.replace(TokenSource::Store, vec![record]);
        let id = registry.list()[0].id.clone();
        assert!(registry.check_revoke(&id, NOW).is_ok());
        registry.keep_closed();
        let refused = registry.check_revoke(&id, NOW);
        assert!(matches!(refused, Err(AuthError::LastAdmin { .. })));
        registry.replace(TokenSource::Store, Vec::new());
        assert!(registry.is_required());
        let outcome = registry.authenticate(Some(&header(&token)), || NOW);
        assert!(matches!(outcome, Err(AuthError::Unknown)));
        let outcome = registry.authenticate(None, || NOW);
        assert!(matches!(outcome, Err(AuthError::Missing)));
    }

    #[test]
    fn what_was_remembered_ends_with_its_token() {
        let registry = TokenRegistry::new().unwrap();
        let (lasting, record) = make("admin:*", None);
        registry.insert(TokenSource::Store, record);
        let (short, record) = make("read:*", Some(10));
        let id = record.id().to_owned();
        registry.insert(TokenSource::Store, record);
        let shown = header(&short);
        let after = Timestamp::from_millis(15_000);
        for _ in 0..2 {
            assert!(registry.authenticate(Some(&shown), || NOW).is_ok());
        }
        // Neither one byte less nor another last one is what was remembered.
        assert!(
            registry
                .authenticate(Some(&shown[..shown.len() - 1]), || NOW)
                .is_err()
        );
        let mut other = shown.clone();
        other[20] ^= 1;
        assert!(registry.authenticate(Some(&other), || NOW).is_err());
        let expired = registry.authenticate(Some(&shown), || after);
        assert!(matches!(expired, Err(AuthError::Expired)));
        registry.remove(&id);
        let revoked = registry.authenticate(Some(&shown), || NOW);
        assert!(matches!(revoked, Err(AuthError::Unknown)));
        assert!(
            registry
                .authenticate(Some(&header(&lasting)), || after)
                .is_ok()
        );
    }

    #[test]
    fn every_wrong_header_has_its_one_outcome() {
        let registry = TokenRegistry::new().unwrap();
        let (token, record) = make("admin:*", None);
        let (stranger, _) = make("admin:*", None);
        let (expired, old) = make("read:*", Some(1));
        registry.replace(TokenSource::File, vec![record, old]);
        let later = NOW.saturating_add(std::time::Duration::from_secs(1));
        let outcome = |header: &[u8]| registry.authenticate(Some(header), || later).map(|_| ());

        let text = token.to_string();
        for good in ["Bearer ", "bearer ", "BEARER   "] {
            assert!(outcome(format!("{good}{text}").as_bytes()).is_ok());
        }
        let bad = [
            "",
            "Bearer",
            "Bearer ",
            "Basic eDp5",
            "Bearerumbo_",
            "Bearer umbo_x_y",
            "\u{fffd}",
        ];
        for header in bad {
            assert!(
                matches!(outcome(header.as_bytes()), Err(AuthError::Malformed)),
                "{header}"
            );
        }
        assert!(matches!(
            outcome(&header(&stranger)),
            Err(AuthError::Unknown)
        ));
        let mixed = format!("Bearer {}{}", &text[..18], &stranger.to_string()[18..]);
        assert!(matches!(outcome(mixed.as_bytes()), Err(AuthError::Unknown)));
        assert!(matches!(
            outcome(&header(&expired)),
            Err(AuthError::Expired)
        ));
    }

    #[test]
    fn nobody_is_locked_out() {
        let registry = TokenRegistry::new().unwrap();
        let (_, reader) = make("read:*", None);
        let (_, narrow) = make("admin:some", None);
        let (_, admin) = make("*:*", None);
        for record in [&reader, &narrow] {
            let refused = registry.check_create(record);
            assert!(matches!(refused, Err(AuthError::FirstIsNoAdmin)));
        }
        registry.check_create(&admin).unwrap();
        registry.insert(TokenSource::Store, admin.clone());
        registry.check_revoke(admin.id(), NOW).unwrap();
        registry.check_create(&reader).unwrap();
        registry.insert(TokenSource::Store, reader.clone());
        let refused = registry.check_revoke(admin.id(), NOW);
        assert!(matches!(refused, Err(AuthError::LastAdmin { .. })));
        registry.check_revoke(reader.id(), NOW).unwrap();

        let (_, second) = make("admin:*", Some(10));
        registry.replace(TokenSource::File, vec![second.clone()]);
        registry.check_revoke(admin.id(), NOW).unwrap();
        let end = NOW.saturating_add(std::time::Duration::from_secs(10));
        let refused = registry.check_revoke(admin.id(), end);
        assert!(
            matches!(refused, Err(AuthError::LastAdmin { .. })),
            "the other has expired"
        );
        let refused = registry.check_revoke(second.id(), NOW);
        assert!(matches!(refused, Err(AuthError::OfFile { .. })));
        let refused = registry.check_revoke("nosuchtoken0", NOW);
        assert!(matches!(refused, Err(AuthError::NoSuchToken { .. })));
    }

    #[test]
    fn a_revoked_token_is_unknown_at_once_and_the_list_tells_no_secret() {
        let registry = TokenRegistry::new().unwrap();
        let (_, admin) = make("admin:*", None);
        let (token, record) = make("read:*", None);
        registry.replace(TokenSource::Store, vec![admin, record.clone()]);
        assert_eq!(registry.list().len(), 2);
        assert!(!format!("{:?}", registry.list()).contains(&token.to_string()[18..]));
        registry.remove(record.id());
        let outcome = registry.authenticate(Some(&header(&token)), || NOW);
        assert!(matches!(outcome, Err(AuthError::Unknown)));
    }

    proptest! {
        #[test]
        fn arbitrary_headers_are_refused(header in prop::collection::vec(any::<u8>(), 0..100)) {
            let registry = TokenRegistry::new().unwrap();
            registry.insert(TokenSource::Store, make("admin:*", None).1);
            prop_assert!(registry.authenticate(Some(&header), || NOW).is_err());
        }
    }
}
