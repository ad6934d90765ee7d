//! Umbo's own records over stores that fail: what is answered is what took effect, whatever fails where,
//! and whichever dispatcher is asked.

mod away;
mod clocks;
mod kept;
mod removal;
mod steps;
mod store;
mod support;
mod versions;
