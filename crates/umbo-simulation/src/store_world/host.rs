//! A host with a store on it: opening, power failures, and operations that end with the store's process.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::AbortHandle;
use umbo_routing::ClusterMap;
use umbo_store::Store;
use umbo_store_redb::{Config, Opener, RedbStore};
use umbo_types::Clock;

use super::endpoint::Endpoint;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::disk::SimulatedDisk;
use crate::simulation::{elapsed, met, note, violated};

/// Consecutive openings that may fail before that counts as a violation.
const OPENINGS_MAX: u32 = 50;

/// The host.
#[derive(Debug)]
pub(super) struct SimulatedHost {
    folder: TempDir,
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Arc<SimulatedClock>,
    pub(super) config: RefCell<Config>,
    pub(super) endpoint: Rc<Endpoint>,
    /// Opens shards that failed to open.
    retry: RefCell<Option<AbortHandle>>,
    /// When the power last failed.
    pub(super) failed_at: Cell<Duration>,
}

impl SimulatedHost {
    pub(super) fn new(seed: u64, name: &str, config: Config, clock: &Arc<SimulatedClock>) -> Self {
        let folder = real_folder();
        let config = Config {
            folder: folder.path().join("data"),
            has_log: Chance::new(seed, &format!("log{name}")).per_mille(500),
            ..config
        };
        Self {
            folder,
            disk: SimulatedDisk::new(Chance::new(seed, &format!("disk{name}"))),
            clock: Arc::clone(clock),
            config: RefCell::new(config),
            endpoint: Rc::new(Endpoint::of(seed)),
            retry: RefCell::default(),
            failed_at: Cell::new(Duration::ZERO),
        }
    }

    /// Opens the store, repeatedly if the power fails meanwhile. It must open.
    pub(super) async fn open(&self) {
        if let Err(error) = self.try_open().await {
            violated(&format!("the folder does not open: {error}"));
        }
    }

    /// Opens the store, repeatedly if the power fails meanwhile. Returns the error if it does not open.
    pub(super) async fn try_open(&self) -> Result<(), String> {
        for _ in 0..OPENINGS_MAX {
            let clock: Arc<dyn Clock> = Arc::<SimulatedClock>::clone(&self.clock);
            let opener: Arc<dyn Opener> = Arc::new(self.disk.clone());
            let attempt = RedbStore::open_simulated(self.config.borrow().clone(), &clock, &opener);
            match attempt {
                Ok(store) if !self.disk.is_off() => {
                    let reports = &store.report().shards;
                    let serving = reports.iter().filter(|shard| shard.unavailable.is_none());
                    note!(
                        "the store opens {} of {} shards",
                        serving.count(),
                        reports.len()
                    );
                    self.begin(Arc::new(store));
                    return Ok(());
                }
                Ok(store) => drop(store),
                Err(error) if !self.disk.is_off() => {
                    return Err(self.without_path(&error));
                }
                Err(_) => {}
            }
            self.settle().await;
            self.failed_at.set(elapsed());
            self.disk.restart();
            met("power failure amid an opening");
        }
        Err("the power failed at every opening".to_owned())
    }

    fn begin(&self, store: Arc<RedbStore>) {
        self.endpoint.begin(Arc::<RedbStore>::clone(&store));
        let retry = tokio::task::spawn_local(async move { store.retry_opening().await });
        self.retry.replace(Some(retry.abort_handle()));
    }

    /// Ends the tasks of the process. Returns its store.
    fn end(&self) -> Option<Arc<dyn Store>> {
        if let Some(retry) = self.retry.take() {
            retry.abort();
        }
        self.endpoint.end()
    }

    /// Returns the map of the cluster that the store is opened with; none if it belongs to none.
    pub(super) fn map(&self) -> Option<Arc<ClusterMap>> {
        let config = self.config.borrow();
        let member = config.cluster.as_ref();
        member.map(|member| Arc::clone(&member.map))
    }

    /// Replaces the folder of the store by an empty one.
    pub(super) fn empty_folder(&self) {
        let folder = self.data_folder();
        let emptied = std::fs::remove_dir_all(&folder);
        let made = emptied.and_then(|()| std::fs::create_dir(&folder));
        if let Err(error) = made {
            violated(&format!("a folder cannot be emptied: {error}"));
        }
    }

    /// Returns the folder of the store.
    pub(super) fn data_folder(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Ends the process as a power failure does, and turns the power on again.
    pub(super) async fn lose_power(&self) {
        self.disk.fail_power();
        self.failed_at.set(elapsed());
        drop(self.end());
        self.settle().await;
        self.disk.restart();
    }

    /// Ends the process properly.
    pub(super) async fn close(&self) {
        if let Some(store) = self.end() {
            store.close().await;
        }
        self.settle().await;
    }

    /// Waits until an ended process has released everything.
    async fn settle(&self) {
        for _ in 0..10_000 {
            if self.disk.handles() == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
        violated("a store has ended, and its files are still open");
    }

    /// Returns an error without the folder's name, which differs from run to run.
    pub(super) fn without_path(&self, error: &dyn std::fmt::Display) -> String {
        let folder = self.folder.path().display().to_string();
        error.to_string().replace(&folder, "")
    }
}

/// Creates a folder in memory, if the system has one: syncs of real files cost time.
fn real_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a simulation needs a folder for small files")
}
