//! The idempotency of a write: `id, digest of the request, kept until, flags`, then the line of each mutation.

use umbo_store::{DIGEST_LEN, Idempotency};
use umbo_types::Timestamp;

use crate::error::DecodeError;
use crate::wire::{Reader, bad, put_varint};

/// Bit of the idempotency: whether refusals are recorded.
const KEEPS_REFUSALS: u8 = 1;

/// Appends the idempotency of a write.
pub(super) fn put_idempotency(out: &mut Vec<u8>, idempotency: &Idempotency) {
    out.extend_from_slice(&idempotency.id);
    out.extend_from_slice(&idempotency.request);
    put_varint(out, idempotency.keep_until.0);
    out.push(if idempotency.keeps_refusals {
        KEEPS_REFUSALS
    } else {
        0
    });
    for &line in &idempotency.lines {
        put_varint(out, line.into());
    }
}

/// Decodes the idempotency of a write; it has a line for each mutation.
pub(super) fn idempotency(
    mut reader: Reader<'_>,
    mutations: usize,
) -> Result<Idempotency, DecodeError> {
    let digest = |reader: &mut Reader<'_>| {
        let bytes = reader.raw(DIGEST_LEN)?;
        bytes.try_into().map_err(|_| bad("digest", &bytes.len()))
    };
    let (id, request) = (digest(&mut reader)?, digest(&mut reader)?);
    let keep_until = Timestamp(reader.varint()?);
    let keeps_refusals = reader.byte()? & KEEPS_REFUSALS > 0;
    let lines = (0..mutations).map(|_| reader.u32("line"));
    Ok(Idempotency {
        id,
        request,
        keep_until,
        keeps_refusals,
        lines: lines.collect::<Result<_, _>>()?,
    })
}
