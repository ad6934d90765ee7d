//! The limiter as its users see it: stories under a simulated clock.
#![cfg(test)]

mod conservation;
mod crowd;
mod estimates;
mod penalties;
mod policies;
mod random;
mod settling;
mod support;
mod usage;
mod waiting;
