//! The reload of a running process: its triggers, which are SIGHUP and a change of one of the watched files, and the
//! parts that every process has.
//!
//! At SIGHUP, and within ten seconds of a change of one of the files. An invalid file is refused with its
//! reason, and the old content stays in effect.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Interval;
use umbo_telemetry::logging::LogHandle;
use umbo_tls::TlsSource;

use crate::cli_error::CliError;
use crate::settings::{LoadedSettings, Settings, SettingsSources};

/// How often the files are checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Waits for triggers of a reload.
pub(crate) struct ReloadWatch {
    sources: SettingsSources,
    hangup: Signal,
    seen: ChangeTimes,
    look: Interval,
}

/// The parts of a process that a reload replaces, in addition to the filter of the log and the certificates.
pub(crate) trait Reloadable {
    /// Replaces the parts.
    fn reload(&self, settings: &Settings) -> impl Future<Output = ()> + Send;
}

/// Time of the last change of each watched file.
type ChangeTimes = BTreeMap<PathBuf, Option<SystemTime>>;

impl ReloadWatch {
    /// Begins to watch. Must be called before the files are read, so that no change is missed, and before the
    /// server is announced: until something waits for it, SIGHUP ends the process.
    pub(crate) async fn begin(sources: SettingsSources) -> Result<Self, CliError> {
        let hangup = signal(SignalKind::hangup()).map_err(CliError::start)?;
        let seen = seen(&sources).await;
        Ok(Self {
            sources,
            hangup,
            seen,
            look: tokio::time::interval(LOOK_INTERVAL),
        })
    }

    /// Reloads at each trigger, in an endless loop.
    pub(crate) async fn run(
        mut self,
        started_with: Settings,
        log: LogHandle,
        tls: Vec<Arc<TlsSource>>,
        parts: impl Reloadable,
    ) {
        loop {
            let settings = self.next().await;
            note("log filter", Some(log.set_filter(&settings.log.filter)));
            for tls in &tls {
                note("certificates", Some(tls.reload()));
            }
            parts.reload(&settings).await;
            warn_of_others(&settings, &started_with);
        }
    }

    /// Waits for a trigger, and reads the settings again. If they are invalid, logs why and continues to
    /// wait.
    async fn next(&mut self) -> Settings {
        loop {
            let was_told = tokio::select! {
                biased;
                _ = self.hangup.recv() => true,
                _ = self.look.tick() => false,
            };
            let now = seen(&self.sources).await;
            if !was_told && now == self.seen {
                continue;
            }
            self.seen = now;
            match LoadedSettings::read(&self.sources) {
                Ok(loaded) => return loaded.settings,
                Err(error) => {
                    tracing::error!(%error, "nothing is reloaded: the settings cannot be used");
                }
            }
        }
    }
}

/// Returns the change times of the watched files.
async fn seen(sources: &SettingsSources) -> ChangeTimes {
    let mut files: Vec<PathBuf> = Vec::new();
    if let Ok(loaded) = LoadedSettings::read(sources) {
        let Settings {
            auth,
            tls,
            quota,
            cluster,
            ..
        } = loaded.settings;
        let named = [
            auth.token_file,
            tls.certificate,
            tls.key,
            tls.client_ca,
            quota.policy_file,
            cluster.map,
            cluster.certificate,
            cluster.key,
            cluster.ca,
        ];
        files.extend(loaded.file);
        files.extend(named.into_iter().flatten().map(PathBuf::from));
    }
    let mut seen = ChangeTimes::new();
    for file in files {
        let changed = tokio::fs::metadata(&file)
            .await
            .and_then(|found| found.modified());
        seen.insert(file, changed.ok());
    }
    seen
}

/// Warns if settings have changed since the start that no reload changes.
fn warn_of_others(new: &Settings, started_with: &Settings) {
    let mut new = new.clone();
    new.log.filter.clone_from(&started_with.log.filter);
    let file = &started_with.quota.policy_file;
    new.quota.policy_file.clone_from(file);
    if new != *started_with {
        tracing::warn!("settings have changed that take effect at the next start");
    }
}

/// Logs the result of reloading one part; nothing if there is no such part.
pub(crate) fn note<E: std::fmt::Display>(what: &str, outcome: Option<Result<(), E>>) {
    match outcome {
        Some(Ok(())) => tracing::info!("reloaded the {what}"),
        Some(Err(error)) => {
            tracing::error!(%error, "cannot reload the {what}; nothing has changed");
        }
        None => {}
    }
}
