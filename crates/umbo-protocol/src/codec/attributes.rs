//! User, session and organisation of a caller.

use umbo_types::{Attribute, OwnedAttributes};

use crate::error::DecodeError;
use crate::wire::{Reader, bad, put_optional};

/// Longest name of a user, session or organisation, in bytes.
const NAME_LEN_MAX: usize = 1_024;

pub(super) fn put_attributes(out: &mut Vec<u8>, attributes: &OwnedAttributes) {
    for (attribute, name) in attributes.iter() {
        if let Some(name) = name {
            put_optional(out, tag_of(attribute), name.as_bytes());
        }
    }
}

/// Returns the tag of the value of an attribute.
const fn tag_of(attribute: Attribute) -> u8 {
    1 + attribute as u8
}

pub(super) fn attributes(mut reader: Reader<'_>) -> Result<OwnedAttributes, DecodeError> {
    let mut attributes = OwnedAttributes::default();
    while let Some((tag, mut field)) = reader.optional()? {
        let mut known = Attribute::ALL.into_iter();
        let Some(attribute) = known.find(|one| tag_of(*one) == tag) else {
            field.ignored(tag)?;
            continue;
        };
        let len = field.left();
        if len > NAME_LEN_MAX {
            return Err(bad("attributes", &format_args!("a name of {len} bytes")));
        }
        let text =
            std::str::from_utf8(field.raw(len)?).map_err(|error| bad("attributes", &error))?;
        attributes[attribute] = Some(text.into());
    }
    Ok(attributes)
}
