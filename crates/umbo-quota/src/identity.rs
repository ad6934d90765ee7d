//! Hashes that stand for accounts and buckets: 128 bits under a secret seed, so that no client can
//! choose two names with the same hash.

use smallvec::SmallVec;
use umbo_types::ShardId;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::dimension::Dimension;
use crate::policy::Policy;
use crate::subject::Subject;

/// Hashes names with a secret seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identities {
    seed: u64,
}

impl Identities {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the key of the account of a caller in a namespace.
    #[inline]
    pub(crate) fn account(self, subject: &Subject<'_>) -> u128 {
        let seed = self
            .seed
            .wrapping_add(u64::from(subject.namespace_id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        xxh3_128_with_seed(subject.caller.as_bytes(), seed)
    }

    /// Returns the key of the bucket that counts a request under a policy.
    pub(crate) fn bucket(
        self,
        policy: &Policy,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
    ) -> u128 {
        let mut text = SmallVec::<[u8; 256]>::new();
        let mut add = |tag: u8, name: &[u8]| {
            text.push(tag);
            text.extend_from_slice(&(name.len() as u32).to_le_bytes());
            text.extend_from_slice(name);
        };
        add(0, policy.name.as_bytes());
        // A change of the unit gives a policy new buckets.
        add(1, policy.unit.as_str().as_bytes());
        if policy.scope.is_shared() {
            // A change of the scope too; and a shadow policy has another counter at its owner.
            add(u8::MAX, policy.mode.as_str().as_bytes());
        }
        for dimension in policy.per.iter() {
            match dimension {
                Dimension::Namespace => add(2, &subject.namespace_id.0.to_le_bytes()),
                Dimension::Shard => add(3, &shard.map_or(u16::MAX, |shard| shard.0).to_le_bytes()),
                other => add(
                    4 + other.index(),
                    other.value(subject).unwrap_or("").as_bytes(),
                ),
            }
        }
        xxh3_128_with_seed(&text, self.seed)
    }
}

/// Returns the dimensions that a policy counts by, with the values of a request, like
/// `caller=web namespace=listings`.
pub(crate) fn label(policy: &Policy, subject: &Subject<'_>, shard: Option<ShardId>) -> Box<str> {
    let part = |dimension: Dimension| match (dimension, shard) {
        (Dimension::Shard, Some(shard)) => format!("shard={shard}"),
        _ => format!(
            "{}={}",
            dimension.as_str(),
            dimension.value(subject).unwrap_or("-")
        ),
    };
    let parts: Vec<String> = policy.per.iter().map(part).collect();
    if parts.is_empty() {
        "everything".into()
    } else {
        parts.join(" ").into()
    }
}
