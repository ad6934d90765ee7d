//! The commands, one module each. A command owns its arguments and its work.

pub(crate) mod backup;
pub(crate) mod calibrate;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod dispatcher;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod fleet;
pub(crate) mod hot;
pub(crate) mod kv;
pub(crate) mod load;
mod location;
pub(crate) mod man;
pub(crate) mod ns;
pub(crate) mod quota;
pub(crate) mod restore;
pub(crate) mod running;
pub(crate) mod serve;
pub(crate) mod shard;
pub(crate) mod shed;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod version;
pub(crate) mod why;
