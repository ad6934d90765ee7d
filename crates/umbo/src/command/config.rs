//! `umbo config show` and `umbo config check FILE`: the settings in effect, and whether a settings file is
//! valid.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli_error::{CliError, usage};
use crate::map_file;
use crate::output;
use crate::parts::read_policies;
use crate::settings::{ClusterSection, LoadedSettings};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the settings in effect as TOML, each with its origin
    Show {
        /// Settings file; else the file in `UMBO_CONFIG`, else `umbo.toml` if it exists
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Check a settings file, without the environment
    Check {
        /// Settings file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        match self {
            Self::Show { config } => {
                let loaded = LoadedSettings::of_file(config.clone())?;
                if let Some(warning) = loaded.warning() {
                    output::print_note(&warning);
                }
                let text = format!("# {}\n\n{}", loaded.source(), loaded.to_toml());
                output::write_bytes(text.as_bytes())
            }
            Self::Check { file } => {
                let settings = LoadedSettings::read_file(file)?.settings;
                let policies = read_policies(&settings).map_err(CliError::start)?;
                let is_named = settings.quota.policy_file.is_some();
                let policies = is_named.then(|| format!(", policies: {}", policies.len()));
                let cluster = check_cluster(&settings.cluster)?;
                let text = format!(
                    "{}: ok (would serve {}, admin on {}, from the folder {}{}{})\n",
                    file.display(),
                    settings.server.listen,
                    settings.server.admin_listen,
                    settings.store.folder,
                    policies.unwrap_or_default(),
                    cluster.unwrap_or_default(),
                );
                output::write_bytes(text.as_bytes())
            }
        }
    }
}

/// Reads the map of the cluster, if there is one, and describes it.
fn check_cluster(cluster: &ClusterSection) -> Result<Option<String>, CliError> {
    let Some(path) = cluster.map.as_deref().map(Path::new) else {
        return Ok(None);
    };
    let map = map_file::read(path)?;
    if let Some(node) = &cluster.node
        && map.node(node).is_none()
    {
        return Err(usage!("{} has no node '{node}'", path.display()));
    }
    let (id, version) = (map.cluster_id(), map.version());
    Ok(Some(format!(", cluster: {id}, version {version}")))
}
