//! The commands, one module each. A command owns its arguments and what it does with them.

pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod serve;
pub(crate) mod version;
