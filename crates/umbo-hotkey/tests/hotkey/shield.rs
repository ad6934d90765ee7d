//! The shield as a dispatcher uses it, under simulated time.

mod cache;
mod flights;
mod lab;
mod operators;
mod stampede;
mod writes;
