//! The text of a token, `umbo_<id>_<secret>`, and the hash of its secret.
//!
//! The id (12 characters, 60 bits) finds the record, the secret (43 characters of base 62, 256 bits)
//! proves it. Both have a fixed length, so that reading one is a matter of positions. Only letters
//! and digits, so that a double click takes the whole of a part.

use std::fmt;

use super::error::AuthError;

/// Length of an id, in bytes.
pub(super) const ID_LEN: usize = 12;
/// Length of a secret, in bytes; 43 characters of base 62 hold 256 bits.
pub(super) const SECRET_LEN: usize = 43;
/// Length of a salt and of a hash, in bytes.
pub(super) const HASH_LEN: usize = 32;

const PREFIX: &[u8] = b"umbo_";
const TEXT_LEN: usize = PREFIX.len() + ID_LEN + 1 + SECRET_LEN;
/// Letters and digits that are not mistaken for each other: 32 of them.
const ID_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const SECRET_ALPHABET: &[u8; 62] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Id of a token.
pub(super) type TokenId = [u8; ID_LEN];

/// A token in clear. Exists only while it is made or checked, and is never stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    secret: [u8; SECRET_LEN],
}

impl Token {
    /// Makes a token from the system's randomness.
    pub fn generate() -> Result<Self, AuthError> {
        Ok(Self {
            id: random_text(ID_ALPHABET)?,
            secret: random_text(SECRET_ALPHABET)?,
        })
    }

    /// Reads the text of a token. Returns `None` if the text does not have this form. Allocates
    /// nothing.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != TEXT_LEN {
            return None;
        }
        let rest = text.strip_prefix(PREFIX)?;
        let (id, rest) = rest.split_first_chunk::<ID_LEN>()?;
        let secret = rest.strip_prefix(b"_")?.first_chunk::<SECRET_LEN>()?;
        let is_id = id
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        (is_id && secret.iter().all(u8::is_ascii_alphanumeric)).then_some(Self {
            id: *id,
            secret: *secret,
        })
    }

    pub(super) fn id(&self) -> &TokenId {
        &self.id
    }

    /// Returns the salted hash of the secret, which the record keeps.
    pub(super) fn hash(&self, salt: &[u8; HASH_LEN]) -> [u8; HASH_LEN] {
        *blake3::keyed_hash(salt, &self.secret).as_bytes()
    }
}

/// Shows the whole token: the one time that its owner sees it.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = String::from_utf8_lossy(&self.id);
        write!(f, "umbo_{id}_{}", String::from_utf8_lossy(&self.secret))
    }
}

/// Shows the id only, because debug output ends in logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", String::from_utf8_lossy(&self.id))
    }
}

/// Makes a random text of an alphabet, every character equally likely.
fn random_text<const LEN: usize>(alphabet: &[u8]) -> Result<[u8; LEN], AuthError> {
    // Bytes over the last whole multiple are thrown away: they would favour the first characters.
    let usable = 256 / alphabet.len() * alphabet.len();
    let mut text = [0; LEN];
    let mut filled = 0;
    let mut random = [0; 64];
    while filled < LEN {
        getrandom::fill(&mut random).map_err(AuthError::NoRandomness)?;
        for byte in random
            .iter()
            .map(|&byte| usize::from(byte))
            .filter(|&byte| byte < usable)
        {
            if let Some(place) = text.get_mut(filled) {
                *place = alphabet[byte % alphabet.len()];
                filled += 1;
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_reads_back_as_it_was_shown() {
        for _ in 0..100 {
            let token = Token::generate().unwrap();
            let text = token.to_string();
            assert_eq!(text.len(), 61);
            assert_eq!(Token::parse(text.as_bytes()), Some(token));
            assert!(!format!("{token:?}").contains(&text[18..]));
        }
    }

    #[test]
    fn what_has_another_form_is_no_token() {
        let text = Token::generate().unwrap().to_string();
        for other in [
            text[1..].to_owned(),
            format!("{text}a"),
            text.replace("umbo_", "UMBO_"),
            text.to_uppercase(),
            format!("{}-", &text[..60]),
            String::new(),
        ] {
            assert_eq!(Token::parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_shows_as_it_was(text in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(token) = Token::parse(&text) {
                prop_assert_eq!(token.to_string().into_bytes(), text);
            }
        }
    }
}
