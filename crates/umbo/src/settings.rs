//! Settings of an operator: defaults, then a file, then the environment, then flags.
//!
//! Owns the tree of [`Settings`] and how the layers are read, checked and shown. Does not act on any of them.
//! An invalid value is refused before anything starts, with its place: the file and line, the variable, or
//! the flag.

mod check;
mod error;
mod layer;
mod loaded;
mod memory;
mod section;
mod unit;

pub(crate) use self::error::SettingsError;
pub(crate) use self::layer::Flag;
pub(crate) use self::loaded::{LoadedSettings, SettingsSources};
pub(crate) use self::section::{
    ClusterSection, ServerSettings, Settings, StoreEngine, StoreSettings, TlsSettings,
};

#[cfg(test)]
mod tests;
