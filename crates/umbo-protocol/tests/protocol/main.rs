//! The protocol as its peers see it: what goes in comes out, whatever comes is survived, and the
//! schema says the same as the code.

mod hostile;
mod round_trip;
mod schema;
mod values;
mod versions;
