//! Reasons to reload: SIGHUP, and a change of one of the files that count.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Interval;

use crate::failure::Failure;
use crate::settings::{Loaded, Settings, Sources};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Waits for reasons to reload.
pub(crate) struct ReloadWatch {
    pub(crate) sources: Sources,
    hangup: Signal,
    seen: Seen,
    look: Interval,
}

/// When each file that counts was last changed.
type Seen = BTreeMap<PathBuf, Option<SystemTime>>;

impl ReloadWatch {
    /// Begins to watch, before the files are read, so that no change falls in between, and before
    /// anything is announced: until somebody waits for it, SIGHUP ends the process.
    pub(crate) async fn begin(sources: Sources) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup()).map_err(Failure::start)?;
        let seen = seen(&sources).await;
        Ok(Self {
            sources,
            hangup,
            seen,
            look: tokio::time::interval(LOOK_INTERVAL),
        })
    }

    /// Waits until there is a reason, and reads the settings again; says in the log why they cannot
    /// be used, and goes on waiting.
    pub(crate) async fn next(&mut self) -> Settings {
        loop {
            let was_told = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = self.look.tick() => false,
            };
            let now = seen(&self.sources).await;
            if !was_told && now == self.seen {
                continue;
            }
            self.seen = now;
            match Loaded::read(&self.sources) {
                Ok(loaded) => return loaded.settings,
                Err(error) => {
                    tracing::error!(%error, "nothing is reloaded: the settings cannot be used");
                }
            }
        }
    }
}

/// Looks at the files that count.
async fn seen(sources: &Sources) -> Seen {
    let mut files: Vec<PathBuf> = Vec::new();
    if let Ok(loaded) = Loaded::read(sources) {
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
    let mut seen = Seen::new();
    for file in files {
        let changed = tokio::fs::metadata(&file)
            .await
            .and_then(|found| found.modified());
        seen.insert(file, changed.ok());
    }
    seen
}

/// Says what became of one part; none where there is nothing of the kind.
pub(crate) fn note<E: std::fmt::Display>(what: &str, outcome: Option<Result<(), E>>) {
    match outcome {
        Some(Ok(())) => tracing::info!("reloaded the {what}"),
        Some(Err(error)) => tracing::error!(%error, "the {what} stays as it was"),
        None => {}
    }
}
