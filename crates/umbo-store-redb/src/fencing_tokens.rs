//! The latest runs of loads in the file of a shard.

use umbo_store::{FencingToken, FencingTokens};
use umbo_types::NamespaceId;

/// Name of the record of the latest runs; absent in files that no load has written to.
pub(crate) const META_RUNS: &str = "load_runs";
const FORMAT: u8 = 1;
/// Bytes of a run.
const RUN_LEN: usize = 8;

/// Encodes the record: `format u8 | runs`, each `load u32 | number u32`, all big endian.
pub(crate) fn encode(runs: &FencingTokens) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    for run in runs.iter() {
        bytes.extend_from_slice(&run.load.0.to_be_bytes());
        bytes.extend_from_slice(&run.number.to_be_bytes());
    }
    bytes
}

/// Decodes the record, or returns `None` if the bytes are not a valid one.
pub(crate) fn decode(bytes: &[u8]) -> Option<FencingTokens> {
    let (&FORMAT, rest) = bytes.split_first()? else {
        return None;
    };
    let (runs, rest) = rest.as_chunks::<RUN_LEN>();
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    let run = |bytes: &[u8; RUN_LEN]| {
        Some(FencingToken {
            load: NamespaceId(number(bytes)?),
            number: number(&bytes[4..])?,
        })
    };
    let runs: Vec<FencingToken> = runs.iter().map(run).collect::<Option<_>>()?;
    let is_sound = rest.is_empty() && runs.is_sorted_by(|one, next| one.load < next.load);
    is_sound.then(|| runs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back(runs in prop::collection::vec(any::<(u32, u32)>(), 0..20)) {
            let run = |(load, number)| FencingToken { load: NamespaceId(load), number };
            let runs: FencingTokens = runs.into_iter().map(run).collect();
            prop_assert_eq!(decode(&encode(&runs)), Some(runs));
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..40)) {
            if let Some(runs) = decode(&bytes) {
                prop_assert_eq!(encode(&runs), bytes);
            }
        }
    }
}
