//! The idempotency of a write: `id, digest of the request, kept until, flags`, then the line of each mutation.

use umbo_store::{DIGEST_LEN, Idempotency};

use super::field::Field;
use crate::error::DecodeError;
use crate::wire::{Reader, bad};

/// Appends the idempotency of a write.
pub(super) fn put_idempotency(out: &mut Vec<u8>, idempotency: &Idempotency) {
    out.extend_from_slice(&idempotency.id);
    out.extend_from_slice(&idempotency.request);
    idempotency.keep_until.put(out);
    idempotency.keeps_refusals.put(out);
    for line in &idempotency.lines {
        line.put(out);
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
    Ok(Idempotency {
        id: digest(&mut reader)?,
        request: digest(&mut reader)?,
        keep_until: Field::read(&mut reader, "keep_until")?,
        keeps_refusals: reader.byte()? & 1 > 0,
        lines: (0..mutations)
            .map(|_| Field::read(&mut reader, "line"))
            .collect::<Result<_, _>>()?,
    })
}
