//! How fast rows of sorted and of unsorted files become a dataset, beside a bare load of redb files, and in how much
//! memory and how many bytes.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use redb::{Database, Durability, TableDefinition};
use umbo_api::loads::{LoadInfo, LoadState};

use super::tier::{CACHE_BYTES, SHARDS, Tier};
use crate::bench::lab::Lab;
use crate::check::plan::Plan;
use crate::dataset::{self, Order, VALUE_LEN};
use crate::failure::Failure;
use crate::process::{Cores, resident_bytes};
use crate::verdict::{Bound, Verdict};

const ROWS: u64 = 10_000_000;
const ROWS_QUICK: u64 = 1_000_000;
/// Rows of one transaction of the bare load.
const COMMIT_ROWS: u64 = 100_000;
/// Values of the bare load, which are made beforehand; their content does not matter to redb.
const VALUES: u64 = 1_024;
/// How often progress and memory are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Longest load.
const LOAD_TIMEOUT: Duration = Duration::from_hours(1);
/// Unit of the room that a file takes.
const BLOCK_LEN: u64 = 512;
const MIB: f64 = 1_048_576.0;
const NAMESPACE: &str = "built";
const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");

pub(super) fn build(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let rows = if plan.is_quick { ROWS_QUICK } else { ROWS };
    let sorted = Built::of(rows, Order::Key)?;
    let bare = bare_rate(rows)?;
    let unsorted = Built::of(rows, Order::Random)?;
    let of_bare = sorted.rate_since_seal / bare;
    let detail = format!(
        "{:.0} rows a second and {bare:.0}; {rows} rows",
        sorted.rate_since_seal
    );
    let mib = |bytes: u64| bytes as f64 / MIB;
    let most = |of: fn(&Built) -> u64| vec![mib(of(&sorted)), mib(of(&unsorted))];
    let per_raw = |built: &Built| built.file_bytes as f64 / raw_bytes(rows) as f64;
    let at_least =
        |what: &str, bound, figure| Verdict::one(what, Bound::AtLeast(bound), figure, "");
    let memory = "beside the page cache; sorted and unsorted";
    Ok(vec![
        Verdict::one(
            "build: sealed sorted parts, of a bare load",
            Bound::AtLeast(0.8),
            of_bare,
            detail,
        ),
        at_least(
            "build: rows a second end to end, sorted",
            150_000.0,
            sorted.rate,
        ),
        at_least(
            "build: rows a second end to end, unsorted",
            100_000.0,
            unsorted.rate,
        ),
        Verdict::worst(
            "build: memory of the server, MiB",
            Bound::AtMost(256.0),
            most(|built| built.server_bytes),
            memory,
        ),
        Verdict::worst(
            "build: memory of the uploader, MiB",
            Bound::AtMost(256.0),
            most(|built| built.client_bytes),
            "",
        ),
        Verdict::worst(
            "build: room of the files, of the raw bytes",
            Bound::AtMost(1.25),
            vec![per_raw(&sorted), per_raw(&unsorted)],
            "room that the parts have left included",
        ),
    ])
}

/// Bytes of keys and values.
const fn raw_bytes(rows: u64) -> u64 {
    rows * (VALUE_LEN + "p000000s000".len()) as u64
}

/// What a load took.
struct Built {
    /// Rows a second from the first byte on, and from the seal on.
    rate: f64,
    rate_since_seal: f64,
    /// Most memory of the processes, the page cache of the server apart.
    server_bytes: u64,
    client_bytes: u64,
    file_bytes: u64,
}

impl Built {
    /// Loads rows into an empty store.
    fn of(rows: u64, order: Order) -> Result<Self, Failure> {
        let mut tier = Tier::embedded(Cores::All)?;
        let path = tier.lab.path("rows.ndjson");
        let file = File::create(&path).map_err(Failure::io(path.display().to_string()))?;
        dataset::write_rows(file, rows, order).map_err(Failure::io("the rows"))?;
        tier.create(NAMESPACE, "{}")?;
        let built = Self::measure(&tier, rows, &path)?;
        tier.activate_ready(NAMESPACE)?;
        if tier.size(NAMESPACE)?.rows != rows {
            let size = tier.size(NAMESPACE)?;
            return Err(Failure::WrongAnswer(format!("{size:?} of {rows} rows")));
        }
        tier.stop()?;
        Ok(built)
    }

    fn measure(tier: &Tier, rows: u64, path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new("."));
        let arguments = ["load", "push", NAMESPACE, &file, "--mode=replace"];
        let server = tier.store_id()?;
        let (mut server_bytes, mut client_bytes) = (0, 0);
        let begun = Instant::now();
        let mut push = tier.umbo(tier.ports[0], &arguments, folder);
        let push = push.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut push = push.map_err(Failure::io("umbo load push"))?;
        let mut sealed = None;
        let load = loop {
            server_bytes = server_bytes.max(resident_bytes(server, "RssAnon:")?);
            if sealed.is_none() {
                // One that has just ended has no memory to tell of.
                client_bytes = client_bytes.max(resident_bytes(push.id(), "RssAnon:").unwrap_or(0));
                if push
                    .try_wait()
                    .map_err(Failure::io("umbo load push"))?
                    .is_some()
                {
                    sealed = Some(Instant::now());
                }
            } else if let Some(load) = ended(tier)? {
                break load;
            }
            if begun.elapsed() > LOAD_TIMEOUT {
                return Err(Failure::WrongAnswer("the load does not end".to_owned()));
            }
            sleep(LOOK_INTERVAL);
        };
        let rate = |since: Instant| rows as f64 / since.elapsed().as_secs_f64();
        let (of_all, since_seal) = (rate(begun), rate(sealed.unwrap_or(begun)));
        if load.state != LoadState::Ready {
            return Err(Failure::WrongAnswer(format!("{load:?}")));
        }
        Ok(Self {
            rate: of_all,
            rate_since_seal: since_seal,
            server_bytes: server_bytes.saturating_sub(CACHE_BYTES),
            client_bytes,
            file_bytes: bytes_in(&tier.data)?,
        })
    }
}

fn ended(tier: &Tier) -> Result<Option<LoadInfo>, Failure> {
    let loads = tier.loads(NAMESPACE)?;
    Ok(loads.into_iter().find(|load| load.state.is_applied()))
}

/// Returns the room on the disk of all files of a folder and of those within it, in bytes. It is less than their lengths:
/// redb doubles a file before it has pages for it, and a part that was never written takes no room.
fn bytes_in(folder: &Path) -> Result<u64, Failure> {
    let failed = |error| Failure::io(folder.display().to_string())(error);
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        bytes += if metadata.is_dir() {
            bytes_in(&entry.path())?
        } else {
            metadata.blocks() * BLOCK_LEN
        };
    }
    Ok(bytes)
}

/// Writes the same keys in their order to as many files as there are shards, by as many threads as there are cores;
/// returns rows a second.
fn bare_rate(rows: u64) -> Result<f64, Failure> {
    let mut lab = Lab::open(None, true)?;
    let folder = lab.new_folder("bare")?;
    let values: Vec<String> = (0..VALUES).map(dataset::value).collect();
    let next = AtomicUsize::new(0);
    let shards = usize::from(SHARDS);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    thread::scope(|scope| {
        let work = (0..threads).map(|_| {
            scope.spawn(|| {
                loop {
                    let shard = next.fetch_add(1, Relaxed);
                    if shard >= shards {
                        return Ok::<_, Failure>(());
                    }
                    let path = folder.join(format!("{shard}.redb"));
                    bare_load(&path, rows, shard as u64, &values)?;
                }
            })
        });
        let work: Vec<_> = work.collect();
        work.into_iter()
            .try_for_each(|thread| thread.join().expect("no load panics"))
    })?;
    Ok(rows as f64 / begun.elapsed().as_secs_f64())
}

/// Writes every row of a shard: each fourth partition is one of it.
fn bare_load(path: &Path, rows: u64, shard: u64, values: &[String]) -> Result<(), Failure> {
    let mut builder = Database::builder();
    builder.set_cache_size((CACHE_BYTES / u64::from(SHARDS)) as usize);
    let database = builder.create(path).map_err(Failure::redb)?;
    let of_shard = |row: &u64| row / dataset::PARTITION_ROWS % u64::from(SHARDS) == shard;
    let mut numbers = (0..rows).filter(of_shard).peekable();
    while numbers.peek().is_some() {
        let mut transaction = database.begin_write().map_err(Failure::redb)?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(Failure::redb)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(Failure::redb)?;
            for row in numbers.by_ref().take(COMMIT_ROWS as usize) {
                let key = format!("{}\0{}", dataset::partition(row), dataset::sort(row));
                let value = &values[row as usize % values.len()];
                table
                    .insert(key.as_bytes(), value.as_bytes())
                    .map_err(Failure::redb)?;
            }
        }
        transaction.commit().map_err(Failure::redb)?;
    }
    Ok(())
}
