//! The pressure under a simulated clock: a day of noise, steps, windows, and who pays for an overload.

// Counts and rates here are far below 2⁵³.
#![expect(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod day;
mod draw;
mod lab;
mod prices;
mod steps;
mod windows;
