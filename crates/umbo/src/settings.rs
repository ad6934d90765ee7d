//! What an operator may choose: defaults, then a file, then the environment, then flags.
//!
//! Owns the tree of [`Settings`], how the layers are read, checked and shown. Does not act on any
//! of them. A value that cannot be used is refused before anything starts, with its place: the
//! file and line, the variable, or the flag.

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
    ServerSettings, StoreSettings, TlsSettings, TraceSection,
};

/// Name of the file that is read from the working folder when none is named.
const FILE_DEFAULT: &str = "umbo.toml";
/// Variable that names the file.
const FILE_VARIABLE: &str = "UMBO_CONFIG";

/// Everything an operator may choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Addresses, limits and time-outs.
    pub(crate) server: ServerSettings,
    /// Where rows are kept.
    pub(crate) store: StoreSettings,
    /// Who may call.
    pub(crate) auth: AuthSettings,
    /// Encryption of connections.
    pub(crate) tls: TlsSettings,
    /// Who may spend how much.
    pub(crate) quota: QuotaSection,
    /// Keys that are read very often.
    pub(crate) hotkey: HotkeySection,
    /// What waits and what is shed.
    pub(crate) overload: OverloadSection,
    /// What a request costs.
    pub(crate) cost: CostSection,
    /// The dispatchers and shard nodes that this process works with.
    pub(crate) cluster: ClusterSection,
    /// A shard node.
    pub(crate) shard: ShardSection,
    /// The log.
    pub(crate) log: LogSection,
    /// Spans.
    pub(crate) trace: TraceSection,
}

/// Where settings are read from, beside the defaults and the environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The file that `--config` names. Without it `UMBO_CONFIG` may name one, and `umbo.toml` of the
    /// working folder is read where it exists.
    pub(crate) file: Option<PathBuf>,
    /// The flags that were given.
    pub(crate) flags: Vec<Flag>,
}

/// Settings in effect, and where each of them came from.
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
    pub(crate) fn read(sources: &Sources) -> Result<Self, SettingsError> {
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

    /// Says in one line which file was read, for the log.
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
