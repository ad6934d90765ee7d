//! The load client: prepared requests over keep-alive connections, in a closed loop.
//!
//! One thread, one request in flight a connection, no pipelining. Every server is driven by the
//! same code with requests prepared beforehand, so that what differs is the server. Latencies of a
//! closed loop are those of saturation; nothing here measures an unloaded server.

pub(crate) mod client;
pub(crate) mod pace;
pub(crate) mod requests;
mod response;
pub(crate) mod scrape;

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, sleep_until};

use self::requests::Prepared;
use self::response::{Head, body_len};
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::process::cpu_seconds;

/// Returns status and length of an answer that has arrived whole.
pub(crate) fn answer_len(bytes: &[u8]) -> Option<(u16, usize)> {
    let head = Head::parse(bytes)?;
    Some((head.status, body_len(&head, bytes)?))
}

/// Arguments of `umbo-loadtest load`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Port of the server on this machine
    #[arg(long)]
    port: u16,
    /// File of prepared requests
    #[arg(long)]
    requests: PathBuf,
    /// Connections
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Time before anything is counted, in milliseconds
    #[arg(long, default_value_t = 500)]
    warm_up_ms: u64,
    /// Time that is counted, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    measure_ms: u64,
    /// First request to send
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Also report what was answered in each interval of so many milliseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    sample_ms: Option<u64>,
    /// That there is nothing under a key is an answer, too
    #[arg(long)]
    absent_succeeds: bool,
    /// Send each request once, and measure the whole
    #[arg(long)]
    once: bool,
    /// Processes of the server, whose processor time is read
    #[arg(long)]
    server: Vec<u32>,
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Requests answered with success.
    pub(crate) requests: u64,
    /// Requests answered otherwise.
    pub(crate) failed: u64,
    /// Time, in seconds.
    pub(crate) seconds: f64,
    /// Processor time of the server, in seconds.
    pub(crate) server_cpu_seconds: f64,
    /// Bytes of all answers.
    pub(crate) bytes: u64,
    /// Median of the latencies, of one connection alone, in microseconds.
    pub(crate) p50_micros: Option<f64>,
    /// Of each interval, where these are wanted: requests answered with success.
    pub(crate) samples: Vec<u64>,
}

impl Report {
    /// Returns requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Returns the server's processor time a request, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.server_cpu_seconds * 1e6 / self.requests as f64
    }
}

#[derive(Debug, Default)]
struct Counted {
    requests: Cell<u64>,
    failed: Cell<u64>,
    bytes: Cell<u64>,
    /// Only of one connection alone: those of more are of saturation.
    latencies: Option<RefCell<Latencies>>,
    /// Whether an absent key is no failure.
    absent_succeeds: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let prepared = Rc::new(Prepared::read(&self.requests)?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::io("cannot start the runtime"))?;
        let report = LocalSet::new().block_on(&runtime, self.measure(&prepared))?;
        println!("{}", serde_json::to_string(&report)?);
        Ok(())
    }

    async fn measure(&self, prepared: &Rc<Prepared>) -> Result<Report, Failure> {
        let counted = Rc::new(Counted {
            absent_succeeds: self.absent_succeeds,
            latencies: (self.connections == 1).then(RefCell::default),
            ..Counted::default()
        });
        let begun = (Instant::now(), self.cpu_seconds()?, counted.look());
        let queue = self.once.then(|| Rc::new(Cell::new(0)));
        let mut tasks = Vec::with_capacity(self.connections);
        for connection in 0..self.connections {
            let socket = connect(self.port).await?;
            // Each connection begins elsewhere, so that no two ask for the same keys in step.
            let turn = match &queue {
                Some(next) => Turn::Once(Rc::clone(next)),
                None => Turn::Endless(self.first + connection * prepared.len() / self.connections),
            };
            let (prepared, counted) = (Rc::clone(prepared), Rc::clone(&counted));
            tasks.push(tokio::task::spawn_local(async move {
                drive(socket, &prepared, turn, &counted).await
            }));
        }
        let mut before = begun;
        let mut samples = Vec::new();
        if !self.once {
            sleep(Duration::from_millis(self.warm_up_ms)).await;
            counted.forget_latencies();
            before = (Instant::now(), self.cpu_seconds()?, counted.look());
            samples = self.sample(before.0, &counted).await;
        }
        let mut after = (Instant::now(), self.cpu_seconds()?, counted.look());
        for task in tasks {
            // An endless connection never ends by itself but with an error.
            if self.once || task.is_finished() {
                task.await
                    .map_err(|error| Failure::WrongAnswer(error.to_string()))??;
            } else {
                task.abort();
            }
        }
        if self.once {
            after = (Instant::now(), self.cpu_seconds()?, counted.look());
        }
        Ok(Report {
            requests: after.2.requests - before.2.requests,
            failed: after.2.failed - before.2.failed,
            bytes: after.2.bytes - before.2.bytes,
            p50_micros: counted.p50_micros(),
            samples,
            seconds: (after.0 - before.0).as_secs_f64(),
            server_cpu_seconds: after.1 - before.1,
        })
    }

    /// Lets the time pass that is counted, and returns what was answered in each interval of it.
    async fn sample(&self, begun: Instant, counted: &Counted) -> Vec<u64> {
        let step_ms = self.sample_ms.unwrap_or(self.measure_ms).max(1);
        let mut samples = Vec::new();
        let mut last = counted.requests.get();
        let mut at_ms = 0;
        while at_ms < self.measure_ms {
            at_ms = (at_ms + step_ms).min(self.measure_ms);
            sleep_until((begun + Duration::from_millis(at_ms)).into()).await;
            let requests = counted.requests.get();
            samples.push(requests - last);
            last = requests;
        }
        samples
    }

    fn cpu_seconds(&self) -> Result<f64, Failure> {
        self.server.iter().map(|&id| cpu_seconds(id)).sum()
    }
}

/// What was counted up to a moment.
struct Looked {
    requests: u64,
    failed: u64,
    bytes: u64,
}

impl Counted {
    fn look(&self) -> Looked {
        Looked {
            requests: self.requests.get(),
            failed: self.failed.get(),
            bytes: self.bytes.get(),
        }
    }
}

impl Counted {
    fn forget_latencies(&self) {
        if let Some(latencies) = &self.latencies {
            latencies.borrow_mut().clear();
        }
    }

    fn p50_micros(&self) -> Option<f64> {
        let latencies = self.latencies.as_ref()?.borrow();
        latencies.quantile_ms(0.5).map(|ms| ms * 1e3)
    }
}

/// Which request comes next.
#[derive(Debug)]
enum Turn {
    /// The one after this one, for ever.
    Endless(usize),
    /// The first that no connection has taken.
    Once(Rc<Cell<usize>>),
}

impl Turn {
    fn next(&mut self, len: usize) -> Option<usize> {
        match self {
            Self::Endless(at) => {
                *at += 1;
                Some(*at - 1)
            }
            Self::Once(next) => {
                let at = next.get();
                next.set(at + 1);
                (at < len).then_some(at)
            }
        }
    }
}

async fn connect(port: u16) -> Result<TcpStream, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = TcpStream::connect(address)
        .await
        .map_err(Failure::io("cannot connect"))?;
    socket
        .set_nodelay(true)
        .map_err(Failure::io("TCP_NODELAY"))?;
    Ok(socket)
}

/// Sends request after request.
async fn drive(
    mut socket: TcpStream,
    prepared: &Prepared,
    mut turn: Turn,
    counted: &Counted,
) -> Result<(), Failure> {
    let mut buffer = Vec::with_capacity(64 << 10);
    while let Some(at) = turn.next(prepared.len()) {
        let request = prepared.get(at);
        let sent = counted.latencies.as_ref().map(|_| Instant::now());
        socket
            .write_all(request)
            .await
            .map_err(Failure::io("cannot send"))?;
        buffer.clear();
        let head = loop {
            let read = socket
                .read_buf(&mut buffer)
                .await
                .map_err(Failure::io("cannot receive"))?;
            if read == 0 {
                return Err(Failure::WrongAnswer(
                    "the server closed a connection".to_owned(),
                ));
            }
            if let Some(head) = Head::parse(&buffer)
                && body_len(&head, &buffer).is_some()
            {
                break head;
            }
        };
        if let (Some(latencies), Some(sent)) = (&counted.latencies, sent) {
            latencies
                .borrow_mut()
                .record_ms(sent.elapsed().as_secs_f64() * 1e3);
        }
        let is_success =
            (200..300).contains(&head.status) || (head.status == 404 && counted.absent_succeeds);
        if is_success {
            counted.requests.set(counted.requests.get() + 1);
        } else {
            counted.failed.set(counted.failed.get() + 1);
        }
        counted.bytes.set(counted.bytes.get() + buffer.len() as u64);
    }
    Ok(())
}
