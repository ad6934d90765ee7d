//! The limiter as its users see it: stories under a simulated clock.
#![cfg(test)]

mod policies;
mod settling;
mod support;
mod surplus;
mod waiting;
