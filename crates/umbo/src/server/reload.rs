//! What can be reloaded while the server runs: the log filter, the certificates, the token file, the
//! policy file.
//!
//! At SIGHUP, and within ten seconds of a change of one of the files. What cannot be used is
//! refused with its reason and the old one stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::Signal;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::auth::file::read_tokens;
use umbo_dispatcher::auth::{AuthError, TokenRegistry, TokenSource};
use umbo_tls::TlsSource;
use umbo_dispatcher::policies::{FilePolicies, PolicyFileError};
use umbo_telemetry::logging::LogHandle;

use crate::settings::{Loaded, Settings, Sources};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What a reload replaces.
pub(super) struct Reload {
    pub(super) sources: Sources,
    pub(super) started_with: Settings,
    pub(super) log: LogHandle,
    pub(super) tls: Option<Arc<TlsSource>>,
    pub(super) tokens: Arc<TokenRegistry>,
    pub(super) pod: Arc<Dispatcher>,
    /// SIGHUP, from before anybody could send it.
    pub(super) hangup: Signal,
    /// From before the files were read, so that no change falls in between.
    pub(super) seen: Seen,
}

/// When each file that counts was last changed.
pub(super) type Seen = BTreeMap<PathBuf, Option<SystemTime>>;

impl Reload {
    /// Reloads whenever there is a reason to, for ever.
    pub(super) async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            let was_told = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = look.tick() => false,
            };
            let now = seen(&self.sources).await;
            if was_told || now != self.seen {
                self.seen = now;
                self.reload().await;
            }
        }
    }

    async fn reload(&self) {
        let settings = match Loaded::read(&self.sources) {
            Ok(loaded) => loaded.settings,
            Err(error) => {
                tracing::error!(%error, "nothing is reloaded: the settings cannot be used");
                return;
            }
        };
        note(
            "log filter",
            Some(self.log.set_filter(&settings.log.filter)),
        );
        note("certificates", self.tls.as_ref().map(|tls| tls.reload()));
        let tokens = settings.auth.token_file.as_deref().map(|path| {
            let records = read_tokens(Path::new(path))?;
            self.tokens.replace(TokenSource::File, records);
            Ok::<(), AuthError>(())
        });
        note("token file", tokens);
        let path = settings.quota.policy_file.as_deref();
        let policies = self.reload_policies(path).await;
        let is_named = path
            .or(self.started_with.quota.policy_file.as_deref())
            .is_some();
        note("policy file", is_named.then_some(policies));
        if !is_same_otherwise(&settings, &self.started_with) {
            tracing::warn!("settings have changed that take effect at the next start");
        }
    }

    /// Takes up the policies of a file, or of none any more.
    async fn reload_policies(&self, path: Option<&str>) -> Result<(), PolicyFileError> {
        let policies = path.map(|path| FilePolicies::read(Path::new(path)));
        let policies = policies.transpose()?.unwrap_or_default();
        self.pod.replace_policy_file(policies).await
    }
}

/// Looks at the files that count.
pub(super) async fn seen(sources: &Sources) -> Seen {
    let mut files: Vec<PathBuf> = Vec::new();
    if let Ok(loaded) = Loaded::read(sources) {
        let Settings {
            auth, tls, quota, ..
        } = loaded.settings;
        let named = [
            auth.token_file,
            tls.certificate,
            tls.key,
            tls.client_ca,
            quota.policy_file,
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
fn note<E: std::fmt::Display>(what: &str, outcome: Option<Result<(), E>>) {
    match outcome {
        Some(Ok(())) => tracing::info!("reloaded the {what}"),
        Some(Err(error)) => tracing::error!(%error, "the {what} stays as it was"),
        None => {}
    }
}

/// Says whether two settings differ only in what a reload takes up.
fn is_same_otherwise(new: &Settings, old: &Settings) -> bool {
    let mut new = new.clone();
    new.log.filter.clone_from(&old.log.filter);
    new.quota.policy_file.clone_from(&old.quota.policy_file);
    new == *old
}
