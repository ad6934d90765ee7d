//! Shares, bounds, counts by reason.

use proptest::prelude::*;
use umbo_api::ErrorCode;
use umbo_types::{CallerId, Operation, ShardId};

use super::*;

fn record(caller: &str, id: &str, millis: u64) -> Arc<RequestRecord> {
    Arc::new(RequestRecord {
        id: RecordId::from_slice(id.as_bytes()),
        at: Timestamp::from_millis(millis),
        operation: Operation::Get,
        caller: (!caller.is_empty()).then(|| CallerId::new(caller)),
        called_by: None,
        namespace: None,
        criticality: None,
        status: 503,
        code: Some(ErrorCode::Overloaded),
        kept_as: KeptAs::Refused,
        phase: "wait",
        times: RequestTimes::default(),
        cache: None,
        shard: Some(ShardId(3)),
        attempts: 0,
        moment: None,
        charge: None,
        detail: None,
    })
}

fn changed(record: &mut Arc<RequestRecord>) -> &mut RequestRecord {
    Arc::get_mut(record).unwrap()
}

fn small(records: usize) -> RequestRecords {
    RequestRecords::with_bounds(Bounds {
        records,
        bytes: 1 << 20,
        callers: 8,
        reasons: 16,
    })
}

#[test]
fn a_flood_of_one_caller_pushes_out_none_of_the_others() {
    let records = small(100);
    for at in 0..50 {
        records.keep(record("quiet", &format!("quiet-{at}"), at), false);
    }
    for at in 0..10_000 {
        records.keep(record("flood", &format!("flood-{at}"), at), false);
    }
    for at in 0..50 {
        assert!(
            records.find(format!("quiet-{at}").as_bytes()).is_some(),
            "{at}"
        );
    }
    assert!(records.find(b"flood-9999").is_some() && records.find(b"flood-9950").is_some());
    assert!(records.find(b"flood-9949").is_none());
    let kept = records.retention(Timestamp::from_millis(10_000));
    assert_eq!(kept.records, 100);
    assert_eq!(kept.oldest, Duration::from_secs(10));
    // Of two that have as many, the one that grew last goes first.
    assert_eq!(kept.oldest_of_largest, Duration::from_millis(50));
}

#[test]
fn the_newest_of_an_id_is_found_with_the_number_of_others() {
    let records = small(3);
    for millis in [1, 2, 3] {
        records.keep(record("a", "same", millis), false);
    }
    let found = records.find(b"same").unwrap();
    assert_eq!((found.record.at.as_millis(), found.others), (3, 2));
    for id in ["x", "y", "z"] {
        records.keep(record("a", id, 9), false);
    }
    assert_eq!(records.find(b"same"), None);
    assert_eq!(records.find(b""), None);
    assert_eq!(records.find(&[0xff; 1_024]), None);
}

#[test]
fn refusals_are_counted_when_their_records_are_gone() {
    let records = small(4);
    let minute = 60_000;
    for at in 0..1_000 {
        records.keep(record("a", &format!("{at}"), at), false);
    }
    records.keep(record("a", "late", 20 * minute), false);
    let mut other = record("a", "other", 20 * minute);
    changed(&mut other).code = Some(ErrorCode::Forbidden);
    records.keep(other, false);
    let mut answer = record("a", "answer", 20 * minute);
    changed(&mut answer).code = Some(ErrorCode::KeyNotFound);
    records.keep(answer, true);
    let now = Timestamp::from_millis(20 * minute + 5);
    let counts = |minutes| {
        let reasons = records.reasons("a", now, minutes).unwrap();
        let count = |one: &ReasonCount| (one.code.unwrap(), one.count);
        reasons.iter().map(count).collect::<Vec<_>>()
    };
    let forbidden = (ErrorCode::Forbidden, 1);
    assert_eq!(counts(15), [forbidden, (ErrorCode::Overloaded, 1)]);
    assert_eq!(counts(60), [(ErrorCode::Overloaded, 1_001), forbidden]);
    let reasons = records.reasons("a", now, 60).unwrap();
    assert_eq!(reasons[0].example.as_slice(), b"late");
    assert_eq!(records.reasons("nobody", now, 60), None);
    let day = Timestamp::from_millis(1_440 * minute);
    assert_eq!(records.reasons("a", day, 60).unwrap(), []);
}

#[test]
fn the_newest_reasons_are_those_of_all_callers() {
    let records = small(4);
    let minute = 60_000;
    for (caller, at) in [
        ("a", 0),
        ("b", 30 * minute),
        ("a", 31 * minute),
        ("c", 32 * minute),
    ] {
        records.keep(record(caller, caller, at), false);
    }
    let now = Timestamp::from_millis(40 * minute);
    let newest = |minutes, max| {
        let reasons = records.newest_reasons(now, minutes, max).into_iter();
        let text = |(caller, one): (String, ReasonCount)| format!("{caller} {}", one.count);
        reasons.map(text).collect::<Vec<_>>()
    };
    assert_eq!(newest(60, 9), ["c 1", "a 2", "b 1"]);
    assert_eq!(newest(10, 9), ["c 1", "a 1"]);
    assert_eq!(newest(60, 1), ["c 1"]);
}

#[test]
fn what_waits_to_be_written_is_taken_once_and_shared_fairly() {
    let records = RequestRecords::default();
    for at in 0..5_000 {
        records.keep(record("flood", &format!("flood-{at}"), at), false);
    }
    for at in 0..3 {
        records.keep(record("quiet", &format!("quiet-{at}"), 5_000 + at), false);
    }
    let taken = records.take(10);
    let ids: Vec<_> = taken.records.iter().map(|one| one.id.to_vec()).collect();
    let flood = (4_993..5_000).map(|at| format!("flood-{at}"));
    let expected = flood.chain((0..3).map(|at| format!("quiet-{at}")));
    assert_eq!(ids, expected.map(String::into_bytes).collect::<Vec<_>>());
    assert_eq!(taken.left_out, 4_993);
    let count = |(caller, reasons): &(Box<str>, Vec<ReasonCount>)| {
        (caller.to_string(), reasons[0].count, reasons.len())
    };
    let counts: Vec<_> = taken.refusals.iter().map(count).collect();
    assert_eq!(
        counts,
        [("flood".to_owned(), 5_000, 1), ("quiet".to_owned(), 3, 1)]
    );
    assert_eq!(records.take(10), TakenRecords::default());
    // All that there is room for is taken, and no answer and none of the sample.
    for caller in ["a", "b"] {
        for at in 0..5 {
            records.keep(record(caller, &format!("{caller}-{at}"), 5_011), false);
        }
        let answer = RequestRecord {
            code: Some(ErrorCode::KeyNotFound),
            ..RequestRecord::clone(&record(caller, "answer", 5_011))
        };
        records.keep(Arc::new(answer), true);
    }
    let taken = records.take(10);
    assert_eq!((taken.records.len(), taken.left_out), (10, 0));
    // The counts are taken even if no record may be.
    records.keep(record("flood", "late", 5_020), false);
    let taken = records.take(0);
    assert_eq!((taken.records.len(), taken.left_out), (0, 1));
    assert_eq!(taken.refusals[0].1[0].example.as_slice(), b"late");
}

#[test]
fn callers_and_reasons_are_bounded() {
    let records = small(1_000);
    for at in 0..100 {
        let caller = format!("caller-{at}");
        records.keep(record(&caller, &caller, 1_000), false);
    }
    let now = Timestamp::from_millis(1_000);
    assert!(records.reasons("caller-7", now, 1).is_some());
    assert_eq!(records.reasons("caller-8", now, 1), None);
    let others = records.reasons(OTHERS, now, 1).unwrap();
    assert_eq!(others.iter().map(|one| one.count).sum::<u64>(), 92);
    assert!(records.find(b"caller-99").is_some());
    for shard in 0..1_000 {
        let mut of_shard = record("caller-0", "shards", 1_000);
        changed(&mut of_shard).shard = Some(ShardId(shard));
        records.keep(of_shard, false);
    }
    let ring = records.ring();
    assert!(ring.reasons <= 16 + 2, "{}", ring.reasons);
    drop(ring);
    let counted = |caller| records.reasons(caller, now, 1).unwrap();
    let all = counted("caller-0").into_iter().chain(counted(OTHERS));
    assert_eq!(all.map(|one| one.count).sum::<u64>(), 1 + 92 + 1_000);
}

#[test]
fn callers_of_long_ago_give_way() {
    let records = small(4);
    for at in 0..8 {
        records.keep(record(&format!("old-{at}"), "x", 0), false);
    }
    let late = 2 * COUNTED_FOR.as_millis() as u64;
    let now = Timestamp::from_millis(late);
    for at in 0..4 {
        records.keep(record("old-0", &format!("new-{at}"), late), false);
    }
    records.keep(record("new", "y", late), false);
    assert!(records.reasons("new", now, 60).is_some());
    assert_eq!(records.reasons("old-7", now, 60), None);
}

#[test]
fn the_whole_is_within_its_bound() {
    let records = RequestRecords::default();
    let policy = PolicyRecord {
        policy: "per-caller".into(),
        balance: 0,
        price: 1,
        rate: 1,
        observed: 1,
        wait_millis: 1,
        unit: 0,
        is_of_shard: false,
        is_of_fleet: false,
        verdict: PolicyVerdict::Rejected,
    };
    for at in 0..RECORDS_MAX + 10_000 {
        let mut one = record("a", &format!("{at:020}"), 0);
        changed(&mut one).charge = Some(Box::new(ChargeRecord {
            policies: Box::new([policy.clone(), policy.clone()]),
            ..ChargeRecord::default()
        }));
        records.keep(one, false);
    }
    let kept = records.retention(Timestamp::from_millis(0)).records;
    assert!((100_000..=RECORDS_MAX).contains(&kept), "{kept}");
    assert!(records.ring().bytes <= RECORD_BYTES_MAX);
}

proptest! {
    #[test]
    fn a_record_is_lost_only_by_the_caller_that_has_the_most(
        callers in prop::collection::vec(0_u8..5, 1..400), room in 5_usize..60,
    ) {
        let records = small(room);
        let mut model: Vec<VecDeque<String>> = vec![VecDeque::new(); 5];
        for (at, caller) in callers.iter().enumerate() {
            let id = format!("{at}");
            records.keep(record(&format!("c{caller}"), &id, at as u64), false);
            model[usize::from(*caller)].push_back(id);
            if model.iter().map(VecDeque::len).sum::<usize>() > room {
                let most = model.iter().map(VecDeque::len).max().unwrap();
                let is_gone = |list: &VecDeque<String>| records.find(list[0].as_bytes()).is_none();
                let lost: Vec<usize> = (0..5)
                    .filter(|caller| !model[*caller].is_empty() && is_gone(&model[*caller]))
                    .collect();
                prop_assert_eq!(lost.len(), 1);
                prop_assert_eq!(model[lost[0]].len(), most);
                model[lost[0]].pop_front();
            }
        }
        for id in model.iter().flatten() {
            prop_assert!(records.find(id.as_bytes()).is_some());
        }
    }
}
