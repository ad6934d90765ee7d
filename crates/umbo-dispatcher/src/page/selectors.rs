//! The selection of a range, as its cursors keep it.

use umbo_store::SortRange;

/// The selection of rows of a partition. Its digest is computed only if a cursor is read or written; most pages
/// have no cursor.
#[derive(Debug, Clone)]
pub(crate) enum Selectors {
    /// By the request itself.
    Asked {
        /// The sort keys.
        range: SortRange,
        /// Whether the last one comes first.
        reverse: bool,
    },
    /// By the first request of a walk, whose digest its cursors keep.
    Digest(u64),
}

impl Selectors {
    /// Returns a digest, to tell whether a cursor belongs to a request.
    pub(crate) fn digest(&self) -> u64 {
        let (range, reverse) = match self {
            Self::Asked { range, reverse } => (range, *reverse),
            Self::Digest(digest) => return *digest,
        };
        let mut hasher = blake3::Hasher::new();
        for part in [Some(&range.start), range.end.as_ref()] {
            let part = part.map_or(&b""[..], |bytes| &bytes[..]);
            hasher
                .update(&(part.len() as u64).to_le_bytes())
                .update(part);
        }
        hasher.update(&[u8::from(range.end.is_some()), u8::from(reverse)]);
        let bytes = *hasher.finalize().as_bytes();
        u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
    }
}
