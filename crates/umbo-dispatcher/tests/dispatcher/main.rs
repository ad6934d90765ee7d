//! A dispatcher from its HTTP requests to its store, in this process, under simulated time: what it charges
//! (`cost`), its policies (`quotas`), hot keys (`hot`), and Umbo's own records (`records`).
//!
//! One executable, because each links the whole dispatcher.

#![cfg(test)]

mod cost;
mod hot;
mod quotas;
mod records;
