//! Tokens that were made with the admin API, as records.

use umbo_types::Timestamp;

use crate::auth::{TokenRecord, TokenRegistry};
use crate::error::ControlError;
use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Reads the tokens of a set of records.
pub(crate) fn read(set: &RecordSet) -> Result<Vec<TokenRecord>, Unreadable> {
    set.of(Kind::Token)
        .map(|(id, content)| {
            // The reason is left out: it may quote the record.
            let record = TokenRecord::from_bytes(content)
                .map_err(|_| unreadable(Kind::Token, id, &"this version cannot decode it"))?;
            if record.id() == id {
                Ok(record)
            } else {
                let why = "it has the id of another token";
                Err(unreadable(Kind::Token, id, &why))
            }
        })
        .collect()
}

/// Plans to store a token. `in_effect` holds the tokens of the file and of the set that is changed.
pub(crate) fn create(
    in_effect: &TokenRegistry,
    record: &TokenRecord,
) -> Result<Edits, ControlError> {
    in_effect.check_create(record)?;
    Ok(Edits::none().put(Kind::Token, record.id(), record.to_bytes()))
}

/// Plans to revoke a token.
pub(crate) fn revoke(
    in_effect: &TokenRegistry,
    id: &str,
    now: Timestamp,
) -> Result<Edits, ControlError> {
    in_effect.check_revoke(id, now)?;
    Ok(Edits::none().remove(Kind::Token, id))
}
