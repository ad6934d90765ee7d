//! The program as its user meets it: the commands against a real server, and against a small one that answers by
//! script.
//!
//! One executable, because each links the server's HTTP library and waits for the program to be built.

#![cfg(test)]

mod calibrate;
mod cluster;
mod command_line;
mod commands;
mod dead_letters;
mod faults;
mod hot;
mod operators;
mod quota;
mod server;
mod shed;
mod stub;
mod versions;
