//! Kills −9 of the uploader, a dispatcher and the node, at any point of a load of either mode or of an import: it ends as
//! it would have, with the same rows, and leaves nothing behind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use umbo_api::loads::{LoadInfo, LoadState};

use super::relay::Relay;
use super::rows::Digest;
use super::tier::{Tier, wait_for};
use crate::check::plan::Plan;
use crate::dataset::{self, Order};
use crate::failure::Failure;
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const KILLS: usize = 200;
const KILLS_QUICK: usize = 6;
/// Rows of each load: nine parts of a MiB before they are compressed, more than an import sends without a load.
const ROWS: u64 = 30_000;
/// Parts that are sent at a time.
const CONNECTIONS: u32 = 2;
/// Most that is sent again: a part on each connection.
const PART_BYTES: f64 = 1_048_576.0;
/// Kills are spread over so many times the duration of a load that is left alone.
const SPREAD: f64 = 1.1;
/// How often a push that ended with an error is run again, as its user would.
const RUNS_MAX: u32 = 5;
/// Bytes of a load that may stay once its rows are removed: its report, which is kept for a week.
const REPORT_BYTES: f64 = 4_096.0;
const ROWS_FILE: &str = "rows.ndjson";

/// What came of all loads.
#[derive(Default)]
struct Outcome {
    /// Loads that ended otherwise, or with other rows.
    other: u32,
    first_other: Option<String>,
    /// Bytes that were sent again, of a part on each connection, and after which kill most of all.
    again: Vec<f64>,
    most_after: (f64, String),
    /// Pushes that ended with an error and were run again.
    reruns: u32,
    /// Files beside the rows that a push left.
    files: u32,
    /// Kills that hit a load under way.
    hits: u32,
}

pub(super) fn kills(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let kills = if plan.is_quick { KILLS_QUICK } else { KILLS };
    let mut loads = Loads::start()?;
    // The longer of the two, so that kills hit all of it.
    loads.run("alone-merge", Upload::Merge, None)?;
    loads.run("alone-import", Upload::Import, None)?;
    let alone = loads.run("alone", Upload::Replace, None)?;
    let before = loads.tier.stored_bytes()?;
    let files = files_in(&loads.tier.data)?;
    let mut random = Random::seeded(plan.seed);
    let mut outcome = Outcome::default();
    for number in 0..kills {
        let kill = Kill {
            // Each server is a victim, and the uploader is one as often as each.
            victim: number % (loads.tier.servers() + 1),
            after: alone.seconds.mul_f64(random.unit() * SPREAD),
        };
        let namespace = format!("load-{number}");
        let uploads = [Upload::Merge, Upload::Replace, Upload::Import];
        let upload = uploads[random.below(3) as usize];
        let run = loads.run(&namespace, upload, Some(&kill))?;
        outcome.add(&loads, &kill, &alone, &run)?;
        loads.tier.remove(&namespace)?;
    }
    let most = before + REPORT_BYTES * kills as f64;
    let left = wait_for("what loads stored is reclaimed", || {
        let left = loads.tier.stored_bytes()?;
        Ok((left <= most).then_some((left - before).max(0.0)))
    });
    let new_files = files_in(&loads.tier.data)?.difference(&files).count() as f64;
    loads.tier.stop()?;
    Ok(outcome.verdicts(kills, left.unwrap_or(f64::INFINITY), new_files))
}

/// How rows are uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upload {
    /// `umbo load push` in mode merge.
    Merge,
    /// `umbo load push` in mode replace.
    Replace,
    /// `umbo kv import`.
    Import,
}

/// Who is killed, and when.
struct Kill {
    /// A server, or the uploader where there is none of this number.
    victim: usize,
    after: Duration,
}

/// A load that came to its end.
struct Run {
    seconds: Duration,
    bytes: u64,
    reruns: u32,
    was_under_way: bool,
    loads: Vec<LoadInfo>,
    digest: Digest,
}

struct Loads {
    tier: Tier,
    relay: Relay,
    folder: PathBuf,
    expected: Digest,
}

impl Loads {
    fn start() -> Result<Self, Failure> {
        let mut tier = Tier::cluster(Cores::All)?;
        let folder = tier.lab.new_folder("kills")?;
        let path = folder.join(ROWS_FILE);
        let file = File::create(&path).map_err(Failure::io(path.display().to_string()))?;
        dataset::write_rows(file, ROWS, Order::Key).map_err(Failure::io("the rows"))?;
        Ok(Self {
            relay: Relay::start(tier.ports.clone())?,
            expected: Digest::of_file(&path)?,
            tier,
            folder,
        })
    }

    /// Loads the rows into a namespace of their own, while something is killed.
    fn run(
        &mut self,
        namespace: &str,
        upload: Upload,
        kill: Option<&Kill>,
    ) -> Result<Run, Failure> {
        self.tier.create(namespace, "{}")?;
        let (begun, bytes) = (Instant::now(), self.relay.bytes());
        let mut push = self.push(namespace, upload)?;
        let (mut reruns, mut was_under_way) = (0, false);
        if let Some(kill) = kill {
            sleep(kill.after);
            let is_pushing = matches!(push.0.try_wait(), Ok(None));
            was_under_way = is_pushing || self.ended(namespace)?.is_none();
            if kill.victim < self.tier.servers() {
                self.tier.kill(kill.victim)?;
                self.tier.start_again(kill.victim)?;
            } else if is_pushing {
                drop(push);
                push = self.push(namespace, upload)?;
            }
        }
        while let Err(said) = push.wait(&self.folder) {
            reruns += 1;
            if reruns > RUNS_MAX {
                return Err(Failure::WrongAnswer(format!("{upload:?}: {said}")));
            }
            push = self.push(namespace, upload)?;
        }
        let loads = wait_for("a load ends", || self.ended(namespace))?;
        let seconds = begun.elapsed();
        Ok(Run {
            seconds,
            bytes: self.relay.bytes() - bytes,
            reruns,
            was_under_way,
            loads,
            digest: Digest::of_namespace(&mut self.tier, namespace)?,
        })
    }

    fn push(&self, namespace: &str, upload: Upload) -> Result<Push, Failure> {
        let connections = CONNECTIONS.to_string();
        let name = match upload {
            Upload::Import => ["kv", "import"],
            Upload::Merge | Upload::Replace => ["load", "push"],
        };
        let arguments = [name[0], name[1], namespace, ROWS_FILE, "--part-mib=1"];
        let mut command = self.tier.umbo(self.relay.port, &arguments, &self.folder);
        let said = self.folder.join("push.txt");
        let said = File::create(&said).map_err(Failure::io("push.txt"))?;
        command.args(["--connections", &connections]);
        if upload == Upload::Replace {
            command.args(["--mode=replace", "--activate"]);
        }
        let child = command.stdout(Stdio::null()).stderr(said).spawn();
        child.map(Push).map_err(Failure::io("umbo load push"))
    }

    /// Returns the loads of a namespace once one of them has ended.
    fn ended(&self, namespace: &str) -> Result<Option<Vec<LoadInfo>>, Failure> {
        match self.tier.loads(namespace) {
            Ok(loads) => Ok(loads
                .iter()
                .any(|load| load.state.is_ended())
                .then_some(loads)),
            // The home of the records may just be starting.
            Err(Failure::WrongAnswer(said)) if said.starts_with("http/1.1 5") => Ok(None),
            Err(Failure::Io { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// An uploader under way; it is killed with its handle.
struct Push(Child);

impl Push {
    fn wait(&mut self, folder: &Path) -> Result<(), String> {
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(fs::read_to_string(folder.join("push.txt")).unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        // One that has ended already refuses, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outcome {
    fn add(&mut self, loads: &Loads, kill: &Kill, alone: &Run, run: &Run) -> Result<(), Failure> {
        // One that was created in the moment before its id was kept has no parts, and is given up after a day.
        let is_forgotten = |load: &&LoadInfo| load.state != LoadState::Created;
        let mut counted = run.loads.iter().filter(is_forgotten);
        let is_alike = counted
            .next()
            .is_some_and(|load| load.state == LoadState::Live)
            && counted.next().is_none();
        if !is_alike || run.digest != loads.expected {
            self.other += 1;
            self.first_other.get_or_insert_with(|| {
                let (victim, after) = (kill.victim, kill.after);
                let (loads, rows) = (&run.loads, run.digest.rows);
                format!("victim {victim} after {after:?}: {loads:?}, {rows} rows")
            });
        }
        let again = run.bytes.saturating_sub(alone.bytes) as f64;
        let again = again / PART_BYTES / f64::from(CONNECTIONS);
        if again > self.most_after.0 {
            let said = format!("most after the kill of {} at {:?}", kill.victim, kill.after);
            self.most_after = (again, said);
        }
        self.again.push(again);
        self.reruns += run.reruns;
        self.hits += u32::from(run.was_under_way);
        let ours = ["push.txt", ROWS_FILE];
        let left = files_in(&loads.folder)?;
        let left = left
            .iter()
            .filter(|path| !ours.iter().any(|ours| path.ends_with(ours)));
        self.files += left.count() as u32;
        Ok(())
    }

    fn verdicts(self, kills: usize, left_bytes: f64, new_files: f64) -> Vec<Verdict> {
        let detail = format!(
            "{kills} kills, {} of them of a load under way; {} pushes run again; {}",
            self.hits,
            self.reruns,
            self.first_other.unwrap_or_default()
        );
        let none = Bound::AtMost(0.0);
        let per_load = left_bytes / kills as f64;
        let files = f64::from(self.files) + new_files;
        vec![
            Verdict::one(
                "kills: loads that ended otherwise",
                none,
                self.other.into(),
                detail,
            ),
            Verdict::worst(
                "  parts sent again, of each connection",
                Bound::AtMost(1.0),
                self.again,
                self.most_after.1,
            ),
            Verdict::one(
                "  bytes left of a load",
                Bound::AtMost(REPORT_BYTES),
                per_load,
                "",
            ),
            Verdict::one("  files left", none, files, ""),
        ]
    }
}

/// Returns the files within a folder.
fn files_in(folder: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |error| Failure::io(folder.display().to_string())(error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path);
            }
        }
    }
    Ok(files)
}
