//! A dispatcher from its HTTP requests to its store, in this process, under simulated time: what it charges
//! (`cost`), the table of bounds (`bounds`), its policies (`quotas`), hot keys (`hot`), and Umbo's own records (`records`).
//!
//! One executable, because each links the whole dispatcher.

#![cfg(test)]

mod bounds;
mod cost;
mod hot;
mod quotas;
mod records;
