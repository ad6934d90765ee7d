//! What limited a phase: a judgement by rules that are simple enough to state.
//!
//! Refusals come first, because nothing else counts beside them. Then CPU: if nearly all cores of the machine
//! were busy, it was the CPU, and who took most of it is named. Then the disk, for puts whose time
//! is a few syncs. Otherwise nothing was used up, and more requests in flight would find out.

use super::disk::DiskSample;
use super::phase::{BenchRequest, PhaseResult};

/// Share of all cores from which on the CPU is used up.
const BUSY_SHARE_MIN: f64 = 0.85;
/// Most syncs in the median time of a put that the disk limits: a commit takes one to three, and a put that
/// comes while one is under way waits for the next.
const SYNCS_MAX: f64 = 8.0;

/// Returns what limited a phase, in words.
pub(super) fn limit(
    result: &PhaseResult,
    load: BenchRequest,
    cores: u32,
    disk: Option<&DiskSample>,
) -> String {
    if let Some(failure) = result.failure.as_ref().filter(|_| result.failed > 0) {
        return format!("refusals: {failure}");
    }
    let (server, client) = (result.server_cores.unwrap_or(0.0), result.client_cores);
    let other = result.other_cores;
    if server + client + other >= BUSY_SHARE_MIN * f64::from(cores) {
        let larger = if other > server + client {
            "most of it other programs', shard nodes on this machine included"
        } else if client > server {
            "more of it the client's: the server alone does more"
        } else {
            "more of it the server's"
        };
        return format!("CPU, {larger}");
    }
    match disk {
        Some(disk)
            if load == BenchRequest::Put && result.p50_ms <= SYNCS_MAX * disk.sync_p50_ms =>
        {
            let syncs = result.p50_ms / disk.sync_p50_ms;
            format!("disk: a put takes as long as {syncs:.1} syncs")
        }
        None if load == BenchRequest::Put => {
            "disk or requests in flight (no folder to measure)".to_owned()
        }
        _ if result.in_flight == 1 => "one request at a time".to_owned(),
        _ => "requests in flight: try more --connections".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(server: f64, client: f64, p50_ms: f64) -> PhaseResult {
        PhaseResult {
            request: "put",
            in_flight: 16,
            per_second: 100.0,
            p50_ms,
            p99_ms: p50_ms,
            failed: 0,
            failure: None,
            server_cores: Some(server),
            client_cores: client,
            other_cores: 0.0,
            limit: String::new(),
        }
    }

    #[test]
    fn each_limit_is_found() {
        let disk = DiskSample {
            sync_p50_ms: 1.0,
            sync_p99_ms: 2.0,
        };
        let of = |result: &PhaseResult, load| limit(result, load, 2, Some(&disk));
        let cases = [
            (
                result(0.5, 1.3, 0.1),
                BenchRequest::Get,
                "CPU, more of it the client's",
            ),
            (
                result(1.3, 0.5, 0.1),
                BenchRequest::Get,
                "CPU, more of it the server's",
            ),
            (
                result(0.2, 0.2, 3.0),
                BenchRequest::Put,
                "disk: a put takes as long as 3.0 syncs",
            ),
            (
                result(0.2, 0.2, 30.0),
                BenchRequest::Put,
                "requests in flight",
            ),
            (
                result(0.2, 0.2, 3.0),
                BenchRequest::Get,
                "requests in flight",
            ),
        ];
        for (result, load, expected) in cases {
            let found = of(&result, load);
            assert!(found.starts_with(expected), "{found}, not {expected}");
        }
        let mut refused = result(1.5, 0.5, 1.0);
        (refused.failed, refused.failure) = (3, Some("Quota exceeded".to_owned()));
        assert_eq!(of(&refused, BenchRequest::Get), "refusals: Quota exceeded");
        let mut alone = result(0.1, 0.1, 1.0);
        alone.in_flight = 1;
        assert_eq!(of(&alone, BenchRequest::Get), "one request at a time");
        let mut crowded = result(0.1, 0.1, 1.0);
        crowded.other_cores = 1.7;
        let found = of(&crowded, BenchRequest::Put);
        assert!(
            found.starts_with("CPU, most of it other programs"),
            "{found}"
        );
        let unknown = limit(&result(0.1, 0.1, 1.0), BenchRequest::Put, 2, None);
        assert!(
            unknown.starts_with("disk or requests in flight"),
            "{unknown}"
        );
    }
}
