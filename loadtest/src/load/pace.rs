//! The pacing client: prepared requests at fixed instants, whatever the answers are, and how long each
//! took.
//!
//! One thread a connection, so that a timer is as good as the system's. A latency counts from the
//! instant at which the request was to be sent if its connection was still waiting for an answer then
//! (no omission is coordinated), and from when it was sent if only this client's own timer was late.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::requests::Prepared;
use super::response::{Head, body_len};
use crate::failure::Failure;
use crate::latencies::Latencies;

/// Bytes that are read at a time.
const CHUNK_LEN: usize = 256 << 10;

/// Arguments of `umbo-loadtest pace`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Port of the server on this machine
    #[arg(long)]
    port: u16,
    /// File of prepared requests
    #[arg(long)]
    requests: PathBuf,
    /// Requests a second, of all connections
    #[arg(long)]
    rate: f64,
    /// Connections
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Time before anything is counted, in milliseconds
    #[arg(long, default_value_t = 500)]
    warm_up_ms: u64,
    /// Time that is counted, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    measure_ms: u64,
    /// First request to send
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Make a connection for each request, and read its answer to the end without looking at it
    #[arg(long)]
    drain: bool,
    /// Also report when each request was due
    #[arg(long)]
    moments: bool,
}

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Requests answered with success.
    pub(crate) succeeded: u64,
    /// Requests that a quota rejected.
    pub(crate) rejected: u64,
    /// Requests answered otherwise.
    pub(crate) failed: u64,
    /// Of the requests that succeeded.
    #[serde(skip)]
    pub(crate) latencies: Latencies,
    /// 0.99 of the requests that succeeded took at most so many microseconds.
    pub(crate) p99_us: Option<f64>,
    /// Of all requests, where these are wanted.
    pub(crate) moments: Vec<Moment>,
    /// When counting began, in seconds of Unix time.
    pub(crate) counted_from_s: f64,
}

/// One request.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// When it was due, in seconds from the beginning of what is counted.
    pub(crate) due_s: f64,
    /// Latency of the request in microseconds, where it succeeded.
    pub(crate) latency_us: Option<f64>,
}

impl Moment {
    /// Returns when it was answered, in seconds from the beginning; none where it did not succeed.
    pub(crate) fn answered_s(&self) -> Option<f64> {
        self.latency_us.map(|us| self.due_s + us / 1e6)
    }
}

/// Returns an instant in seconds of Unix time.
fn unix_seconds(at: Instant) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_s = now.map_or(0.0, |now| now.as_secs_f64());
    let until = at.saturating_duration_since(Instant::now());
    now_s + until.as_secs_f64() - at.elapsed().as_secs_f64()
}

impl Report {
    /// Counts the seconds of its moments from an instant of this process. The client is one of its own, and begins a
    /// little later.
    pub(crate) fn on_clock_of(mut self, begun: Instant) -> Self {
        let later_s = self.counted_from_s - unix_seconds(begun);
        for moment in &mut self.moments {
            moment.due_s += later_s;
        }
        self
    }

    /// Returns the p99 of the requests that succeeded, in microseconds, or NaN if none did.
    pub(crate) fn p99_us(&self) -> f64 {
        self.p99_us.unwrap_or(f64::NAN)
    }

    /// Returns the number of all requests.
    pub(crate) const fn answered(&self) -> u64 {
        self.succeeded + self.rejected + self.failed
    }

    /// Adds another report; only [`Arguments::run`] brings the p99 up to date.
    pub(crate) fn add(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.latencies.add(&other.latencies);
        self.moments.extend(other.moments);
    }
}

impl Arguments {
    /// Sends requests until the time is over, and prints the report.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let prepared = Prepared::read(&self.requests)?;
        let all = Mutex::new(Ok(Report::default()));
        let begun = Instant::now() + Duration::from_millis(20);
        thread::scope(|scope| {
            for connection in 0..self.connections {
                let (prepared, all) = (&prepared, &all);
                scope.spawn(move || {
                    let report = self.drive(prepared, connection, begun);
                    let mut all = all.lock().expect("no thread panics with the report");
                    match (&mut *all, report) {
                        (Ok(all), Ok(report)) => all.add(report),
                        (Ok(_), Err(failure)) => *all = Err(failure),
                        (Err(_), _) => {}
                    }
                });
            }
        });
        let mut report = all
            .into_inner()
            .expect("no thread panics with the report")?;
        report.p99_us = report.latencies.quantile_ms(0.99).map(|ms| ms * 1e3);
        report.counted_from_s = unix_seconds(begun + Duration::from_millis(self.warm_up_ms));
        println!("{}", serde_json::to_string(&report)?);
        Ok(())
    }

    /// Sends every request that falls to a connection.
    fn drive(
        &self,
        prepared: &Prepared,
        connection: u32,
        begun: Instant,
    ) -> Result<Report, Failure> {
        let mut socket = if self.drain {
            None
        } else {
            Some(self.connect()?)
        };
        let counted_from = begun + Duration::from_millis(self.warm_up_ms);
        let end = counted_from + Duration::from_millis(self.measure_ms);
        let mut report = Report::default();
        let mut buffer = vec![0; CHUNK_LEN];
        for number in (u64::from(connection)..).step_by(self.connections as usize) {
            let planned = begun + Duration::from_secs_f64(number as f64 / self.rate);
            if planned >= end {
                break;
            }
            let now = Instant::now();
            let is_late = now > planned;
            if !is_late {
                thread::sleep(planned - now);
            }
            let from = if is_late { planned } else { Instant::now() };
            let request = prepared.get(self.first + number as usize);
            let status = self.ask(&mut socket, request, &mut buffer)?;
            let Some(due) = planned.checked_duration_since(counted_from) else {
                continue;
            };
            let mut latency_us = None;
            match status {
                200..300 => {
                    let us = from.elapsed().as_secs_f64() * 1e6;
                    report.succeeded += 1;
                    report.latencies.record_ms(us / 1e3);
                    latency_us = Some(us);
                }
                419 | 429 => report.rejected += 1,
                _ => report.failed += 1,
            }
            if self.moments {
                let due_s = due.as_secs_f64();
                report.moments.push(Moment { due_s, latency_us });
            }
        }
        Ok(report)
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let socket = TcpStream::connect(address).map_err(Failure::io("cannot connect"))?;
        socket
            .set_nodelay(true)
            .map_err(Failure::io("TCP_NODELAY"))?;
        Ok(socket)
    }

    /// Sends a request on the connection, or on one that is made for it, and returns the status. A
    /// connection that fails is given up.
    fn ask(
        &self,
        socket: &mut Option<TcpStream>,
        request: &[u8],
        buffer: &mut [u8],
    ) -> Result<u16, Failure> {
        if self.drain {
            return drain(&mut self.connect()?, request, buffer);
        }
        let mut connected = match socket.take() {
            Some(socket) => socket,
            None => self.connect()?,
        };
        let status = answer(&mut connected, request, buffer)?;
        *socket = Some(connected);
        Ok(status)
    }
}

/// Sends a request and reads its answer; returns the status.
fn answer(socket: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> Result<u16, Failure> {
    socket
        .write_all(request)
        .map_err(Failure::io("cannot send"))?;
    let mut len = 0;
    loop {
        let read = receive(socket, &mut buffer[len..])?;
        if read == 0 {
            return Err(Failure::WrongAnswer(
                "the server closed a connection".to_owned(),
            ));
        }
        len += read;
        let answered = &buffer[..len];
        if let Some(head) = Head::parse(answered)
            && body_len(&head, answered).is_some()
        {
            return Ok(head.status);
        }
    }
}

/// Sends a request and reads until the server closes the connection; returns the status.
fn drain(socket: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> Result<u16, Failure> {
    socket
        .write_all(request)
        .map_err(Failure::io("cannot send"))?;
    let mut status = None;
    loop {
        let read = receive(socket, buffer)?;
        if read == 0 {
            break;
        }
        status = status.or_else(|| Head::parse(&buffer[..read]).map(|head| head.status));
    }
    status.ok_or_else(|| Failure::WrongAnswer("an answer without a head".to_owned()))
}

fn receive(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Failure> {
    socket.read(buffer).map_err(Failure::io("cannot receive"))
}
