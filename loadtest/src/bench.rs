//! The benchmarks: each compares Umbo with a peer, by turns, and says whether its bound holds.

pub(crate) mod cluster;
mod folder;
mod import;
pub(crate) mod lab;
pub(crate) mod plan;
mod point;
mod process_size;
mod range;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::lab::Lab;
use crate::failure::Failure;
use crate::verdict::Verdict;

/// Arguments of `umbo-loadtest bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Benchmarks to run; all where none is named
    names: Vec<String>,
    /// A tenth of the rows, fewer and shorter rounds: a smoke test, its figures mean little
    #[arg(long)]
    quick: bool,
    /// Folder, on the disk to be measured, in which a temporary one is made
    #[arg(long)]
    folder: Option<PathBuf>,
    /// List the benchmarks and their bounds
    #[arg(long)]
    list: bool,
}

/// A benchmark.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Lab) -> Result<Vec<Verdict>, Failure>,
}

const BENCHMARKS: [Benchmark; 8] = [
    Benchmark {
        name: "get",
        about: "processor time of a get, against a bare axum handler: at most 1.45",
        run: point::get,
    },
    Benchmark {
        name: "get-peers",
        about: "gets a second on one core, against webdis + redis (1.7) and etcd (10)",
        run: point::get_peers,
    },
    Benchmark {
        name: "range",
        about: "ranges of 100 rows a second, against a bare axum handler on redb: at least 0.9",
        run: range::range,
    },
    Benchmark {
        name: "put",
        about: "durable puts a second, against webdis + redis (0.8) and etcd (3)",
        run: point::put,
    },
    Benchmark {
        name: "import",
        about: "rows a second that are imported: 100,000 in key order, 40,000 at random",
        run: import::import,
    },
    Benchmark {
        name: "idle",
        about: "resident memory of an idle server with an empty store: at most 30 MiB",
        run: process_size::idle,
    },
    Benchmark {
        name: "restart",
        about: "time to the first get after kill -9 with all rows stored: at most 1 s",
        run: process_size::restart,
    },
    Benchmark {
        name: "nginx",
        about: "processor time of a get, against nginx returning a constant: for orientation",
        run: point::get_nginx,
    },
];

impl Arguments {
    /// Runs the benchmarks, prints each verdict when it is known, and fails where a bound does not
    /// hold.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            for benchmark in BENCHMARKS {
                println!("{:<10} {}", benchmark.name, benchmark.about);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = chosen(&self.names)?;
        let mut lab = Lab::open(self.folder.as_deref(), self.quick)?;
        println!("{}", Verdict::HEADING);
        let mut holds = true;
        for benchmark in chosen {
            for verdict in (benchmark.run)(&mut lab)? {
                println!("{verdict}");
                holds &= verdict.holds();
            }
        }
        Ok(if holds {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Benchmark>, Failure> {
    if names.is_empty() {
        return Ok(BENCHMARKS.iter().collect());
    }
    let find = |name: &String| {
        let found = BENCHMARKS.iter().find(|benchmark| benchmark.name == name);
        found.ok_or_else(|| Failure::UnknownName {
            kind: "benchmark",
            name: name.clone(),
            known: BENCHMARKS.map(|benchmark| benchmark.name).join(", "),
        })
    };
    names.iter().map(find).collect()
}
