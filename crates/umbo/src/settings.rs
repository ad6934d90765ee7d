//! Settings of an operator: defaults, then a file, then the environment, then flags.
//!
//! Owns the tree of [`Settings`] and how the layers are read, checked and shown. Does not act on any of them.
//! An invalid value is refused before anything starts, with its place: the file and line, the variable, or
//! the flag.

mod check;
mod cluster_section;
mod error;
mod layer;
mod section;
mod show;
mod unit;

use std::env;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::cluster_section::{ClusterSection, ShardSection};
pub(crate) use self::error::SettingsError;
pub(crate) use self::layer::Flag;
use self::layer::{Effective, Layers};
pub(crate) use self::section::{
    AuthSettings, CostSection, HotkeySection, LogSection, OverloadSection, QuotaSection,
    RecordsSection, ServerSettings, StoreSettings, TlsSettings, TraceSection,
};

/// Name of the file that is read from the working folder by default.
const FILE_DEFAULT: &str = "umbo.toml";
/// Variable that names the file.
const FILE_VARIABLE: &str = "UMBO_CONFIG";

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Addresses, limits and time-outs.
    pub(crate) server: ServerSettings,
    /// Where rows are kept.
    pub(crate) store: StoreSettings,
    /// Authentication.
    pub(crate) auth: AuthSettings,
    /// Encryption of connections.
    pub(crate) tls: TlsSettings,
    /// Umbo's own records.
    pub(crate) records: RecordsSection,
    /// Quotas of callers.
    pub(crate) quota: QuotaSection,
    /// Keys that are read very often.
    pub(crate) hotkey: HotkeySection,
    /// Queues and shedding.
    pub(crate) overload: OverloadSection,
    /// What a request costs.
    pub(crate) cost: CostSection,
    /// The dispatchers and shard nodes that this process works with.
    pub(crate) cluster: ClusterSection,
    /// Settings of a shard node.
    pub(crate) shard: ShardSection,
    /// The log.
    pub(crate) log: LogSection,
    /// Spans.
    pub(crate) trace: TraceSection,
}

/// Origins of settings, besides the defaults and the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingsSources {
    /// The file of `--config`. Without it `UMBO_CONFIG` may name one, and `umbo.toml` of the working folder
    /// is read if it exists.
    pub(crate) file: Option<PathBuf>,
    /// The flags that were given.
    pub(crate) flags: Vec<Flag>,
}

/// Settings in effect, and the origin of each.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// The values.
    pub(crate) settings: Settings,
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    effective: Vec<Effective>,
}

impl Loaded {
    /// Reads all layers.
    pub(crate) fn read(sources: &SettingsSources) -> Result<Self, SettingsError> {
        let file = sources.file.clone().or_else(find_file);
        let variables = env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            Some((name, value.to_string_lossy().into_owned()))
        });
        Self::from_layers(file, variables, &sources.flags)
    }

    /// Reads one file over the defaults, without the environment.
    pub(crate) fn read_file(file: &Path) -> Result<Self, SettingsError> {
        Self::from_layers(Some(file.to_owned()), [], &[])
    }

    /// Returns the settings in effect as TOML, each with its origin; secrets are hidden.
    pub(crate) fn to_toml(&self) -> String {
        show::to_toml(&self.effective)
    }

    /// Returns a line about the file that was read, for the log.
    pub(crate) fn source(&self) -> String {
        match &self.file {
            Some(file) => format!("settings of {}", file.display()),
            None => format!("default settings ({FILE_DEFAULT} does not exist here)"),
        }
    }

    fn from_layers(
        file: Option<PathBuf>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &[Flag],
    ) -> Result<Self, SettingsError> {
        let mut layers = Layers::defaults();
        if let Some(path) = &file {
            let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
                path: path.clone(),
                source,
            })?;
            layers.add_file(path, &text)?;
        }
        layers.add_variables(variables)?;
        layers.add_flags(flags)?;
        let settings = layers.settings()?;
        check::check(&settings, &layers)?;
        Ok(Self {
            settings,
            file,
            effective: layers.into_effective(),
        })
    }
}

fn find_file() -> Option<PathBuf> {
    let named = env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
    named.map(PathBuf::from).or_else(|| {
        let default = PathBuf::from(FILE_DEFAULT);
        default.exists().then_some(default)
    })
}

#[cfg(test)]
mod tests;
