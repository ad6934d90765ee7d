//! Identification of callers: tokens, their storage, and how a request proves that it holds one.
//!
//! Owns the token format, its verification and the set of tokens in effect. Deliberately decides neither
//! what a permission needs (that is `umbo_types::Grant`) nor how a refusal looks (that is for
//! `umbo-http`), and reads no clock. Invariant: a secret is shown once, when it is made. The stored
//! record cannot be turned back into it.

mod error;
pub mod file;
mod memo;
mod record;
mod registry;
mod snapshot;
mod token;

pub use error::AuthError;
pub use record::{CheckedToken, TokenRecord, TokenSource};
pub use registry::TokenRegistry;
pub use token::Token;
