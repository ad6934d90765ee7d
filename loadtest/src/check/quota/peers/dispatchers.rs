//! The dispatchers, as processes: runs of all of them, and what came of each.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use umbo_quota::OwnerRow;

use crate::admit::{Counts, DISPATCHERS, Kind, Run, TENTH, Word, frame};
use crate::failure::Failure;

/// Longest wait for a dispatcher.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The dispatchers; they end with this.
pub(super) struct Dispatchers {
    all: Vec<Dispatcher>,
    /// What they say, and `None` at the end of a dispatcher.
    words: Receiver<(usize, Option<Word>)>,
    row: Arc<Mutex<OwnerRow>>,
    is_fleet: bool,
}

struct Dispatcher {
    child: Child,
    input: ChildStdin,
    /// The port on which others ask it.
    port: Option<u16>,
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came of a run, at all dispatchers together.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    tenths: Vec<Counts>,
    pub(super) cpu_ns: u64,
    pub(super) decisions: u64,
    /// Mean of the dispatchers' medians.
    pub(super) p50_us: f64,
    /// Port of the owner.
    pub(super) owner: Option<u16>,
}

impl Outcome {
    /// Returns the sum of the counts from a time on.
    pub(super) fn after(&self, time: Duration) -> Counts {
        let skipped = (time.as_millis() / TENTH.as_millis()) as usize;
        let tenths = self.tenths.iter().skip(skipped);
        tenths.fold(Counts::default(), |sum, one| Counts {
            admitted: sum.admitted + one.admitted,
            refused: sum.refused + one.refused,
            failed: sum.failed + one.failed,
        })
    }
}

impl Dispatchers {
    /// Starts the dispatchers, which ask servers on these ports.
    pub(super) fn start(kind: Kind, servers: &[u16]) -> Result<Self, Failure> {
        let is_fleet = kind == Kind::Fleet;
        let row = Arc::new(Mutex::new(OwnerRow::default()));
        let own_ports = if is_fleet { free_ports()? } else { Vec::new() };
        let ports = if is_fleet { &own_ports } else { servers };
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let mut fields = vec!["admit".to_owned(), name_of(kind)];
        fields.extend(ports.iter().map(|port| format!("--ports={port}")));
        if is_fleet {
            let kept = Arc::clone(&row);
            let row_port = frame::serve(0, move |wish| changed(&kept, wish))?;
            fields.push(format!("--row-port={row_port}"));
        }
        let (sender, words) = channel();
        let mut all = Vec::new();
        for at in 0..DISPATCHERS as usize {
            let port = own_ports.get(at).copied();
            all.push(Dispatcher::start(at, &fields, port, sender.clone())?);
        }
        let started = Self {
            all,
            words,
            row,
            is_fleet,
        };
        for _ in 0..DISPATCHERS {
            match started.next()? {
                (_, Some(_)) => {}
                (at, None) => return Err(Failure::Peer(format!("dispatcher {at} ended"))),
            }
        }
        Ok(started)
    }

    /// Waits until all dispatchers of a fleet are owners.
    pub(super) fn wait_for_owners(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        let owners = || {
            self.row
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .owners
                .len()
        };
        while self.is_fleet && owners() < DISPATCHERS as usize {
            if begun.elapsed() > TIMEOUT {
                return Err(Failure::Peer(format!("{} owners", owners())));
            }
            sleep(TENTH);
        }
        Ok(())
    }

    /// Runs all dispatchers that are there; `meanwhile` may return the port of one that is to be killed then.
    pub(super) fn run(
        &mut self,
        run: Run,
        meanwhile: impl FnOnce() -> Result<Option<u16>, Failure>,
    ) -> Result<Outcome, Failure> {
        let line = serde_json::to_string(&run)?;
        for dispatcher in &mut self.all {
            let asked = writeln!(dispatcher.input, "{line}");
            asked.map_err(Failure::io("cannot ask a dispatcher"))?;
        }
        if let Some(port) = meanwhile()? {
            let found = self.all.iter_mut().find(|one| one.port == Some(port));
            let owner = found.ok_or_else(|| Failure::Peer(format!("no owner on {port}")))?;
            owner.child.kill().map_err(Failure::io("cannot kill"))?;
        }
        let mut outcome = Outcome::default();
        let mut under_way = self.all.len();
        while under_way > 0 {
            match self.next()?.1 {
                Some(Word::Tenth { at, counts }) => outcome.count(at as usize, counts),
                Some(Word::Done {
                    cpu_ns,
                    decisions,
                    p50_us,
                    owner,
                }) => {
                    under_way -= 1;
                    outcome.cpu_ns += cpu_ns;
                    outcome.decisions += decisions;
                    outcome.p50_us += p50_us / f64::from(DISPATCHERS);
                    outcome.owner = outcome.owner.or(owner);
                }
                Some(Word::Ready) => {}
                None => under_way -= 1,
            }
        }
        Ok(outcome)
    }

    fn next(&self) -> Result<(usize, Option<Word>), Failure> {
        let word = self.words.recv_timeout(TIMEOUT);
        word.map_err(|_| Failure::Peer("the dispatchers say nothing".to_owned()))
    }
}

impl Outcome {
    fn count(&mut self, at: usize, counts: Counts) {
        if self.tenths.len() <= at {
            self.tenths.resize(at + 1, Counts::default());
        }
        let tenth = &mut self.tenths[at];
        tenth.admitted += counts.admitted;
        tenth.refused += counts.refused;
        tenth.failed += counts.failed;
    }
}

impl Dispatcher {
    fn start(
        at: usize,
        fields: &[String],
        port: Option<u16>,
        words: Sender<(usize, Option<Word>)>,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::io("own program"))?;
        let mut child = Command::new(program)
            .args(fields)
            .arg(format!("--at={at}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::io("cannot start a dispatcher"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let missing = || Failure::Peer("a dispatcher has no pipes".to_owned());
        let output = BufReader::new(output.ok_or_else(missing)?);
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Half a line is that of one that was killed.
                let word = serde_json::from_str(&line).ok();
                // The reader is gone when the check is over.
                if let Some(word) = word
                    && words.send((at, Some(word))).is_err()
                {
                    return;
                }
            }
            let _ = words.send((at, None));
        });
        Ok(Self {
            child,
            input: input.ok_or_else(missing)?,
            port,
        })
    }
}

fn name_of(kind: Kind) -> String {
    let value = kind.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Changes the row if a wish follows the row that is there; returns the row.
fn changed(row: &Mutex<OwnerRow>, wish: &[u8]) -> Vec<u8> {
    let mut row = row.lock().unwrap_or_else(PoisonError::into_inner);
    let wish: Option<OwnerRow> = serde_json::from_slice(wish).unwrap_or_default();
    if let Some(wish) = wish.filter(|wish| wish.revision == row.revision + 1) {
        *row = wish;
    }
    serde_json::to_vec(&*row).unwrap_or_default()
}

/// Returns free ports.
fn free_ports() -> Result<Vec<u16>, Failure> {
    let bind = |_| TcpListener::bind("127.0.0.1:0");
    let listeners: Result<Vec<_>, _> = (0..DISPATCHERS).map(bind).collect();
    let listeners = listeners.map_err(Failure::io("cannot find free ports"))?;
    let ports = listeners.iter().map(|one| Ok(one.local_addr()?.port()));
    let ports: std::io::Result<Vec<u16>> = ports.collect();
    ports.map_err(Failure::io("socket"))
}
