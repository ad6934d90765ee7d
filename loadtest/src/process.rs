//! Processes that a benchmark starts: pinned, watched, and ended by their own id.
//!
//! The invariant: what was started here ends with its handle, whatever happens, and nothing else
//! is touched.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Longest wait for a server to answer.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest wait for a process that was told to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a wait looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Clock ticks a second in `/proc/PID/stat` (`USER_HZ`, the same on every Linux there is).
const TICKS_PER_SECOND: f64 = 100.0;

/// Which cores a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Core 0, the servers'.
    Server,
    /// Core 1, the client's.
    Client,
    /// All cores: the process is bound to none.
    All,
}

/// A process under way.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program with its output in `folder`.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        cores: Cores,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).map_err(Failure::io(log.display().to_string()))?;
        let errors = output
            .try_clone()
            .map_err(Failure::io(log.display().to_string()))?;
        let child = command(program, cores)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(Failure::io(format!("cannot start {}", program.display())))?;
        Ok(Self {
            child,
            name: name.into_owned(),
            log,
        })
    }

    /// Waits until a port answers.
    pub(crate) fn wait_for(&mut self, port: u16) -> Result<(), Failure> {
        let begun = Instant::now();
        while !answers(port) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.failure(format!("ended with {status}")));
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(self.failure("does not answer".to_owned()));
            }
            sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        resident_bytes(self.id(), "VmRSS:")
    }

    /// Kills it without a warning.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().map_err(Failure::io("cannot kill"))?;
        self.child.wait().map_err(Failure::io("cannot wait"))?;
        Ok(())
    }

    /// Tells it to end, and waits for it.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.terminate()?;
        let begun = Instant::now();
        while begun.elapsed() < STOP_TIMEOUT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            sleep(LOOK_INTERVAL);
        }
        Err(self.failure("does not end when told to".to_owned()))
    }

    fn terminate(&self) -> Result<(), Failure> {
        // The standard library sends no other signal than SIGKILL.
        Command::new("kill")
            .args(["-TERM", &self.id().to_string()])
            .status()
            .map_err(Failure::io("kill"))?;
        Ok(())
    }

    fn failure(&self, what: String) -> Failure {
        Failure::Process {
            program: self.name.clone(),
            what,
            log: self.log.clone(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already refuses, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that runs a program on these cores.
pub(crate) fn command(program: &Path, cores: Cores) -> Command {
    let core = match cores {
        Cores::Server => "0",
        Cores::Client => "1",
        Cores::All => return Command::new(program),
    };
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program);
    command
}

/// Finds a program in the folder of this one, or in the search path.
pub(crate) fn find(program: &str, remedy: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    folders
        .chain(["/usr/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .ok_or_else(|| Failure::Missing {
            program: program.to_owned(),
            remedy: remedy.to_owned(),
        })
}

/// Returns whether something listens on a port of this machine.
fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
}

/// Refuses ports that answer.
pub(crate) fn check_free(ports: &[u16]) -> Result<(), Failure> {
    match ports.iter().find(|&&port| answers(port)) {
        Some(&port) => Err(Failure::PortInUse(port)),
        None => Ok(()),
    }
}

/// Returns the processor time of a process so far, in seconds.
pub(crate) fn cpu_seconds(id: u32) -> Result<f64, Failure> {
    let path = format!("/proc/{id}/stat");
    let text = fs::read_to_string(&path).map_err(Failure::io(path))?;
    // The second field is the name in parentheses and may hold anything (proc(5)).
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_ascii_whitespace().skip(11).take(2);
    let mut next = || {
        let field = ticks.next().and_then(|field| field.parse::<f64>().ok());
        field.unwrap_or(0.0) / TICKS_PER_SECOND
    };
    Ok(next() + next())
}

/// Returns a line of `/proc/PID/status` that is in KiB, in bytes.
pub(crate) fn resident_bytes(id: u32, name: &str) -> Result<u64, Failure> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path).map_err(Failure::io(path))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_answers_is_refused() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(matches!(check_free(&[port]), Err(Failure::PortInUse(_))));
        drop(listener);
        assert!(check_free(&[port]).is_ok());
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let id = std::process::id();
        assert!(resident_bytes(id, "VmRSS:").unwrap() > 1 << 18);
        assert!(cpu_seconds(id).unwrap() >= 0.0);
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}
