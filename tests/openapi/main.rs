//! The document of the API, `openapi.json` in the crate of the wire types, is what is made of its source (`source`),
//! of the error codes (`responses`) and of the wire types (`schemas`); and it is whole: what it refers to is there.
//!
//! `UMBO_BLESS=1 cargo test -p umbo-tests --test openapi` writes it. That the routes of the servers are those of the
//! document is tested where they are declared.

#[cfg(test)]
mod constants;
#[cfg(test)]
mod content;
#[cfg(test)]
mod document;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod schemas;
#[cfg(test)]
mod source;
