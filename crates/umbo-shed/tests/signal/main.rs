//! The signal under a simulated clock: windows against exact ones, a day of noise, steps, and who
//! pays for an overload.

// Counts and rates here are far below 2⁵³.
#![expect(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod day;
mod draw;
mod lab;
mod p_square;
mod penalty;
mod steps;
mod windows;
