//! The shield under simulated time (`shield`), and its flights in every order of locks and atomics
//! (`interleavings`).

#![cfg(test)]

mod interleavings;
mod shield;
