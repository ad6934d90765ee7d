//! Metrics of the process from the kernel: memory, CPU time, files, start.
//!
//! Owns the parsing of `/proc/self`. Returns nothing if that folder does not exist; a scrape then lacks these
//! series and is otherwise complete.

use std::fs;

use super::visit::Families;
use crate::metric_names as names;

/// State of the process at one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessSample {
    /// CPU time spent, user and system.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_memory_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Most file descriptors the process may open.
    pub max_fds: u64,
    /// Start of the process, seconds since the Unix epoch.
    pub start_time_seconds: f64,
}

/// The kernel's unit of time in `/proc`, fixed at 100 a second for programs on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessSample {
    /// Reads the state of this process. A few short files; call it per scrape, not per request.
    pub fn read() -> Option<Self> {
        let (cpu_ticks, start_ticks) = parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)?;
        let booted = parse_field(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
        let resident_kib = parse_field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        // The listing itself holds one descriptor open.
        let open = fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1);
        Some(Self {
            cpu_seconds: ticks_as_seconds(cpu_ticks),
            resident_memory_bytes: resident_kib * 1_024,
            open_fds: open as u64,
            max_fds: parse_field(&limits, "Max open files")?,
            start_time_seconds: lossy(booted) + ticks_as_seconds(start_ticks),
        })
    }

    /// Shows the state of the process.
    pub fn visit(&self, families: &mut Families<'_>) {
        families.single(&names::PROCESS_CPU, self.cpu_seconds);
        families.single(&names::PROCESS_RESIDENT_MEMORY, self.resident_memory_bytes);
        families.single(&names::PROCESS_OPEN_FDS, self.open_fds);
        families.single(&names::PROCESS_MAX_FDS, self.max_fds);
        families.single(&names::PROCESS_START_TIME, self.start_time_seconds);
    }
}

fn ticks_as_seconds(ticks: u64) -> f64 {
    lossy(ticks) / TICKS_PER_SECOND
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds and ticks stay far under 2^52"
)]
fn lossy(value: u64) -> f64 {
    value as f64
}

/// Returns CPU ticks (user + system) and the start in ticks since boot.
fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    // The second field is the program's name in parentheses and may hold anything, also spaces.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    // Counted from the third field of proc_pid_stat(5): 14 is utime, 15 stime, 22 starttime.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let started: u64 = fields.nth(6)?.parse().ok()?;
    Some((user + system, started))
}

/// Returns the first number after `name`, of the line that begins with it.
fn parse_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = rest.split_ascii_whitespace().next()?;
    if number == "unlimited" {
        return Some(u64::MAX);
    }
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_shift_the_fields() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 777 1 2";
        assert_eq!(parse_stat(stat), Some((300, 777)));
        assert_eq!(parse_stat("42 (x"), None);
        assert_eq!(parse_stat("42 (x) S 1"), None);
    }

    #[test]
    fn fields_are_found_by_the_start_of_their_line() {
        let text = "VmHWM: 9 kB\nVmRSS:\t 1234 kB\nMax open files  unlimited unlimited files\n";
        assert_eq!(parse_field(text, "VmRSS:"), Some(1_234));
        assert_eq!(parse_field(text, "Max open files"), Some(u64::MAX));
        assert_eq!(parse_field(text, "btime"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_can_be_read() {
        let sample = ProcessSample::read().unwrap();
        assert!(sample.resident_memory_bytes > 100_000);
        assert!(sample.open_fds >= 3 && sample.open_fds <= sample.max_fds);
        assert!(sample.start_time_seconds > 1e9);
    }
}
