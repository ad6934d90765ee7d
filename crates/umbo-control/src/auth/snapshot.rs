//! The tokens in effect at one instant, by id.

use std::collections::HashMap;
use std::sync::Arc;

use umbo_types::Caller;

use super::record::{TokenRecord, TokenSource};
use super::token::TokenId;

/// Tokens by id.
pub(super) type Snapshot = HashMap<TokenId, TokenEntry>;

/// A token in effect.
#[derive(Debug)]
pub(super) struct TokenEntry {
    pub(super) record: TokenRecord,
    pub(super) caller: Arc<Caller>,
    pub(super) source: TokenSource,
}
