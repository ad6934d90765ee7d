//! The name of a read on every dispatcher and after a restart: the key as an operator lists it.
//!
//! Its text is base64url of: a version, the kind, the namespace id, the length of the partition key, the
//! partition key, the detail. Bytes that no key has are refused here, so that every listed key can be
//! asked for. The seeds of dispatchers differ, and so do their hashes of a key; [`KeyIdHasher`] makes
//! the same hash on all of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut};
use serde::{Deserialize, Serialize};
use umbo_api::hot::{HotKeyName, HotKind, text_or_base64};
use umbo_hotkey::{KeyKind, KeyRef, KeySeed, ReadKey};
use umbo_types::{Key, NamespaceId, limits};

use super::error::HotKeyError;

const VERSION: u8 = 1;
/// Longest description of a range: two sort keys and the other parameters.
const DETAIL_LEN_MAX: usize = 2 * limits::SORT_KEY_LEN_MAX + 64;

/// Names a read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId {
    namespace: NamespaceId,
    kind: KeyKind,
    partition: Vec<u8>,
    detail: Vec<u8>,
}

impl KeyId {
    /// Names a row.
    pub fn row(namespace: NamespaceId, key: &Key) -> Self {
        Self {
            namespace,
            kind: KeyKind::Row,
            partition: key.partition.as_bytes().to_vec(),
            detail: key.sort.as_bytes().to_vec(),
        }
    }

    /// Names the read of a key of the shield.
    pub fn of(key: &KeyRef<'_>) -> Self {
        Self {
            namespace: key.namespace(),
            kind: key.kind(),
            partition: key.partition().to_vec(),
            detail: key.detail().to_vec(),
        }
    }

    /// Returns the namespace.
    pub const fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    /// Names the read as the process of this seed knows it.
    pub fn read_key(&self, seed: KeySeed) -> ReadKey {
        seed.key(self.namespace, self.kind, &self.partition, &self.detail)
            .to_owned()
    }

    /// Reads an id.
    pub fn parse(text: &str) -> Result<Self, HotKeyError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        bytes
            .and_then(|bytes| Self::from_bytes(&bytes))
            .ok_or(HotKeyError::BadId)
    }

    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let kind = match bytes.try_get_u8().ok()? {
            0 => KeyKind::Row,
            1 => KeyKind::Range,
            _ => return None,
        };
        let namespace = NamespaceId(bytes.try_get_u32().ok()?);
        let partition_len = usize::from(bytes.try_get_u16().ok()?);
        let (partition, detail) = bytes.split_at_checked(partition_len)?;
        let detail_len_max = match kind {
            KeyKind::Row => limits::SORT_KEY_LEN_MAX,
            KeyKind::Range => DETAIL_LEN_MAX,
        };
        let is_key = (1..=limits::PARTITION_KEY_LEN_MAX).contains(&partition.len())
            && detail.len() <= detail_len_max;
        is_key.then(|| Self {
            namespace,
            kind,
            partition: partition.to_vec(),
            detail: detail.to_vec(),
        })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.partition.len() + self.detail.len());
        bytes.put_u8(VERSION);
        bytes.put_u8(match self.kind {
            KeyKind::Row => 0,
            KeyKind::Range => 1,
        });
        bytes.put_u32(self.namespace.0);
        let len = u16::try_from(self.partition.len());
        bytes.put_u16(len.expect("a partition key has 1,024 bytes at most"));
        bytes.put_slice(&self.partition);
        bytes.put_slice(&self.detail);
        bytes
    }

    /// Returns the text of the id.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.to_bytes())
    }

    /// Describes the key to an operator.
    pub fn name(&self, namespace: &str, hasher: &KeyIdHasher) -> HotKeyName {
        let (pk, pk64) = text_or_base64(&self.partition);
        let (kind, (sk, sk64)) = match self.kind {
            KeyKind::Row => (HotKind::Row, text_or_base64(&self.detail)),
            KeyKind::Range => (HotKind::Range, (None, None)),
        };
        HotKeyName {
            id: self.text(),
            hash: hasher.hash(self),
            namespace: namespace.to_owned(),
            kind,
            pk,
            pk64,
            sk,
            sk64,
        }
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.text()
    }
}

impl TryFrom<String> for KeyId {
    type Error = HotKeyError;

    fn try_from(text: String) -> Result<Self, HotKeyError> {
        Self::parse(&text)
    }
}

// Keys are the customer's data: debug output shows their length, never their bytes.
impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (partition, detail) = (self.partition.len(), self.detail.len());
        write!(f, "{:?}({partition} + {detail} bytes)", self.kind)
    }
}

/// Makes the hashes that stand for keys in metrics and logs. They are the same on all dispatchers of a
/// store. Keys cannot be found by trying them, because the hash needs the secret of the store.
#[derive(Clone)]
pub struct KeyIdHasher([u8; 32]);

impl KeyIdHasher {
    /// Derives the key of the hashes from the secret that all dispatchers of a store share.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(blake3::derive_key("umbo 2026 hashes of hot keys", secret))
    }

    /// Returns 16 hexadecimal digits.
    pub fn hash(&self, key: &KeyId) -> String {
        let hash = blake3::keyed_hash(&self.0, &key.to_bytes());
        hash.to_hex()[..16].to_owned()
    }
}

// With the secret of the hashes, keys can be found by trying them.
impl fmt::Debug for KeyIdHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyIdHasher(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_id() -> impl Strategy<Value = KeyId> {
        let bytes = |lens| prop::collection::vec(any::<u8>(), lens);
        let parts = (any::<u32>(), any::<bool>(), bytes(1..40), bytes(0..40));
        parts.prop_map(|(namespace, is_row, partition, detail)| KeyId {
            namespace: NamespaceId(namespace),
            kind: if is_row { KeyKind::Row } else { KeyKind::Range },
            partition,
            detail,
        })
    }

    proptest! {
        #[test]
        fn ids_read_back_and_are_safe_in_a_path(id in any_id()) {
            let text = id.text();
            prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
            prop_assert_eq!(KeyId::parse(&text).unwrap(), id.clone());
            let kept = id.read_key(KeySeed::new(7));
            prop_assert_eq!(KeyId::of(&kept.borrow()), id);
        }

        #[test]
        fn any_text_is_an_id_or_refused(
            text in "[A-Za-z0-9_-]{0,40}", cut in 0_usize..60, id in any_id(),
        ) {
            for text in [text, id.text().chars().take(cut).collect()] {
                if let Ok(id) = KeyId::parse(&text) {
                    prop_assert_eq!(id.text(), text);
                }
            }
        }
    }

    #[test]
    fn what_no_key_has_is_refused() {
        let id = |kind, partition: usize, detail: usize| KeyId {
            namespace: NamespaceId(1),
            kind,
            partition: vec![b'p'; partition],
            detail: vec![b'd'; detail],
        };
        let is_read = |id: KeyId| KeyId::parse(&id.text()).is_ok();
        assert!(is_read(id(KeyKind::Row, 1_024, 2_048)) && is_read(id(KeyKind::Row, 1, 0)));
        assert!(is_read(id(KeyKind::Range, 1, 4_096)));
        for refused in [
            id(KeyKind::Row, 0, 0),
            id(KeyKind::Row, 1_025, 0),
            id(KeyKind::Row, 1, 2_049),
            id(KeyKind::Range, 1, DETAIL_LEN_MAX + 1),
        ] {
            assert!(!is_read(refused.clone()), "{refused:?}");
        }
        for text in ["", "AQ", "AgAAAAABAAFh", "AQIAAAABAAFh", "AQAAAAABAAFh="] {
            assert_eq!(KeyId::parse(text), Err(HotKeyError::BadId), "{text}");
        }
        assert!(KeyId::parse("AQAAAAABAAFh").is_ok());
    }

    #[test]
    fn a_hash_tells_keys_apart_and_does_not_tell_them() {
        let (one, other) = (KeyIdHasher::new(&[1; 32]), KeyIdHasher::new(&[2; 32]));
        let [a, b] = ["a", "b"].map(|name| {
            let key = Key::new(name, "").unwrap();
            KeyId::row(NamespaceId(1), &key)
        });
        assert_eq!(one.hash(&a).len(), 16);
        assert_eq!(one.hash(&a), KeyIdHasher::new(&[1; 32]).hash(&a));
        assert_ne!(one.hash(&a), one.hash(&b));
        assert_ne!(one.hash(&a), other.hash(&a));
        assert!(!format!("{a:?} {one:?}").contains("Row(a"));
    }
}
