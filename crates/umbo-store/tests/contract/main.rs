//! The contract suite on engines in memory: the reference, and one that promises no more than the core.

#![cfg(test)]

mod memory;
mod several_writers;
