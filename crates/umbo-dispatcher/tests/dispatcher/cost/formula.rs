//! The formula of the contract for services against real charges: each part on its own, and all together.

use std::time::Duration;

use proptest::prelude::*;
use umbo_types::RequestUnits;

use crate::cost::support::TestDispatcher;

/// What services are told.
const CONTRACT: &str = include_str!("../../../../umbo-api/README.md");

/// The numbers of the formula, in micro-RU.
#[derive(Debug, Clone, Copy)]
struct Formula {
    read: u64,
    write: u64,
    row: u64,
    four_kib: u64,
    millisecond: u64,
}

impl Formula {
    /// Reads the formula where it is told.
    fn of_contract() -> Self {
        let words: Vec<&str> = CONTRACT.split_whitespace().collect();
        let text = words.join(" ");
        let (_, rest) = text.split_once("charged in request units: ").unwrap();
        let mut rest = rest;
        let mut before = |words: &str| {
            let (number, after) = rest.split_once(words).unwrap();
            rest = after;
            number.parse::<RequestUnits>().unwrap().as_micros()
        };
        Self {
            read: before(" for a read or "),
            write: before(" for a write, "),
            row: before(" a row, "),
            four_kib: before(" for 4 KiB of keys and values, "),
            millisecond: before(" a millisecond of the store."),
        }
    }

    fn of_work(&self, base: u64, work: Work) -> u64 {
        base + self.row * work.rows
            + (self.four_kib * work.bytes).div_ceil(4_096)
            + (self.millisecond * work.micros).div_ceil(1_000)
    }
}

/// What a request makes the store do.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    rows: u64,
    bytes: u64,
    micros: u64,
}

/// Sends a request of which each call of the store takes so long; returns what it was charged, in
/// micro-RU.
async fn charge(
    pod: &TestDispatcher,
    micros: u64,
    (method, target): (&str, &str),
    body: impl Into<bytes::Bytes>,
) -> u64 {
    pod.store.set_time(Duration::from_micros(micros));
    let target = format!("/v1/ns/listings/{target}");
    let reply = pod.ask(method, &target, &[], body).await;
    assert!(
        matches!(reply.status, 200..=204 | 404),
        "{method} {target}: {}",
        reply.status
    );
    // The head of a page may be older than its end.
    let is_page = target.contains("/range/") || target.ends_with("/scan");
    if is_page && method != "DELETE" {
        let end = reply.last_line()["end"]["ru"].to_string();
        return end.parse::<RequestUnits>().unwrap().as_micros();
    }
    reply.units().as_micros()
}

async fn check(values: &[usize], absent: u64, micros: u64) {
    let formula = Formula::of_contract();
    let pod = TestDispatcher::open(&[]).await;
    let rows = values.len() as u64;
    let sort = |at: usize| format!("{at:02}");
    let mut stored = 0;
    for (at, len) in values.iter().enumerate() {
        let target = format!("kv/p/{}", sort(at));
        let work = Work {
            rows: 1,
            bytes: 2 + *len as u64,
            micros,
        };
        stored += work.bytes;
        let put = charge(&pod, micros, ("PUT", &target), vec![b'v'; *len]).await;
        assert_eq!(put, formula.of_work(formula.write, work), "{work:?}");
        // Each part on its own: the bytes, and the time.
        let timeless = charge(&pod, 0, ("PUT", &target), vec![b'v'; *len]).await;
        assert_eq!(
            put - timeless,
            (formula.millisecond * micros).div_ceil(1_000)
        );
        let bytes = timeless - formula.write - formula.row;
        assert_eq!(bytes, (formula.four_kib * work.bytes).div_ceil(4_096));
        let get = charge(&pod, micros, ("GET", &target), "").await;
        assert_eq!(get, formula.of_work(formula.read, work), "{work:?}");
    }
    let nothing = Work {
        rows: 1,
        bytes: 0,
        micros,
    };
    let get = charge(&pod, micros, ("GET", "kv/absent"), "").await;
    assert_eq!(get, formula.of_work(formula.read, nothing));

    // All rows are in one chunk: one call of the store.
    let work = Work {
        rows,
        bytes: stored,
        micros,
    };
    for target in ["range/p", "range/p?keys_only=true"] {
        let page = charge(&pod, micros, ("GET", target), "").await;
        assert_eq!(page, formula.of_work(formula.read, work), "{target}");
    }
    let count = charge(
        &pod,
        micros,
        ("DELETE", "range/p?all=true&dry_run=true"),
        "",
    )
    .await;
    assert_eq!(count, formula.of_work(formula.write, work));

    let found = (0..values.len()).map(|at| format!("{{\"pk\":\"p\",\"sk\":\"{}\"}}", sort(at)));
    let missing = (0..absent).map(|at| format!("{{\"pk\":\"p\",\"sk\":\"none-{at}\"}}"));
    let keys: Vec<String> = found.chain(missing).collect();
    let body = format!("{{\"keys\":[{}]}}", keys.join(","));
    let work = Work {
        rows: rows + absent,
        bytes: stored + rows,
        micros,
    };
    let got = charge(&pod, micros, ("POST", "batch/get"), body).await;
    assert_eq!(got, formula.of_work(formula.read, work));

    let removed = charge(&pod, micros, ("DELETE", "range/p?all=true"), "").await;
    let work = Work {
        rows,
        bytes: 0,
        micros,
    };
    assert_eq!(removed, formula.of_work(formula.write, work));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn charges_are_what_the_contract_says(
        // A first chunk holds 64 KiB.
        values in prop::collection::vec(0_usize..12_000, 1..6),
        absent in 0_u64..20,
        micros in 0_u64..40_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&values, absent, micros));
    }
}
