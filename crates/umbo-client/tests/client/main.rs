//! The client as its user sees it: what is on the wire (`wire`), what refusals slow (`refusals`), how it behaves
//! towards a server that rejects and sheds (`obedience`), and the pacer in simulated time (`pacing`).
//!
//! One executable, because each links the whole client.

#![cfg(test)]

mod obedience;
mod pacing;
mod refusals;
mod wire;
