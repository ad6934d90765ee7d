//! Requests of all kinds on several threads, each ended in one of all ways, and the books of what they
//! have to pay.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use umbo_quota::{
    ActualUsage, CostHint, Limiter, QuotaRequest, Reservation, ShardShare, Subject, Weights,
};
use umbo_types::{
    Attribute, Attributes, NamespaceId, Operation, PriceMultiplier, RequestUnits, ShardId,
};

use crate::random::Random;

/// Threads, whatever the cores: they have to get in each other's way.
pub(super) const THREADS: u64 = 4;
/// Callers.
pub(super) const CALLERS: u64 = 50;
/// Requests that a thread keeps open.
const OPEN_MAX: usize = 32;
const OPERATIONS: [Operation; 8] = [
    Operation::Get,
    Operation::Put,
    Operation::Delete,
    Operation::Range,
    Operation::DeleteRange,
    Operation::MultiGet,
    Operation::BatchWrite,
    Operation::Scan,
];

/// What a thread did.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Sequences begun.
    pub(super) begun: u64,
    /// Of those, admitted.
    pub(super) admitted: u64,
    /// What they have to pay, in micro-RU.
    pub(super) due: u128,
    /// Of those, how many pay anything.
    pub(super) paying: u64,
    /// Answers that differ from what was due.
    pub(super) wrong: u64,
}

/// Begins and ends requests on all threads. `instant` says when the sequence of a number is.
pub(super) fn drive(
    limiter: &Limiter,
    seed: u64,
    sequences: u64,
    instant: &(dyn Fn(u64) -> Instant + Sync),
) -> Books {
    let next = AtomicU64::new(0);
    let of_thread = |thread: u64| {
        let mut books = Books::default();
        let mut random = Random::seeded(seed ^ (thread << 40));
        let mut open: Vec<Open> = Vec::with_capacity(OPEN_MAX);
        loop {
            // One clock for all, or a thread that falls behind would see time go back.
            let number = next.fetch_add(1, Relaxed);
            if number >= sequences {
                break;
            }
            begin(limiter, instant(number), &mut random, &mut open, &mut books);
            if open.len() == OPEN_MAX {
                let at = random.below(OPEN_MAX as u64) as usize;
                let one = open.swap_remove(at);
                end(one, &mut random, &mut books);
            }
        }
        for one in open {
            end(one, &mut random, &mut books);
        }
        books
    };
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let of_thread = &of_thread;
                scope.spawn(move || of_thread(thread))
            })
            .collect();
        let books = threads.into_iter().map(ScopedJoinHandle::join);
        books.collect::<Result<Vec<_>, _>>()
    });
    let all = all.unwrap_or_else(|panic| resume_unwind(panic));
    all.into_iter().fold(Books::default(), |sum, one| Books {
        begun: sum.begun + one.begun,
        admitted: sum.admitted + one.admitted,
        due: sum.due + one.due,
        paying: sum.paying + one.paying,
        wrong: sum.wrong + one.wrong,
    })
}

/// Returns the name of a caller.
pub(super) fn caller(number: u64) -> String {
    format!("caller-{number}")
}

/// A request under way.
struct Open {
    reservation: Reservation,
    operation: Operation,
}

fn begin(
    limiter: &Limiter,
    now: Instant,
    random: &mut Random,
    open: &mut Vec<Open>,
    books: &mut Books,
) {
    books.begun += 1;
    let operation = OPERATIONS[random.below(8) as usize];
    let caller = caller(random.below(CALLERS));
    let user = format!("user-{}", random.below(100));
    let namespace_id = NamespaceId(random.below(3) as u32);
    let request = QuotaRequest {
        subject: Subject {
            caller: &caller,
            namespace: ["one", "two", "three"][namespace_id.0 as usize],
            namespace_id,
            attributes: Attributes::NONE.with(
                Attribute::User,
                (random.below(4) == 0).then_some(user.as_str()),
            ),
            operation,
        },
        hint: CostHint {
            rows_max: (random.below(3) == 0).then(|| random.below(100)),
            bytes_max: (random.below(2) == 0).then(|| random.below(100_000)),
            body_len: (random.below(2) == 0).then(|| random.below(50_000)),
            ..CostHint::default()
        },
        ticket: None,
        price_multiplier: PriceMultiplier::NONE,
    };
    let Ok(mut reservation) = limiter.admit(&request, now, random.next()) else {
        return;
    };
    let first = random.below(4) as u16;
    let shares = [first, (first + 1) % 4].map(|shard| ShardShare {
        shard: ShardId(shard),
        parts: 1 + random.below(9) as u32,
    });
    let shares = &shares[..=random.below(2) as usize];
    if limiter
        .admit_shards(&mut reservation, &request, shares, now, random.next())
        .is_ok()
    {
        books.admitted += 1;
        open.push(Open {
            reservation,
            operation,
        });
    }
}

/// Ends a request in one of all ways, and books what it has to pay.
fn end(open: Open, random: &mut Random, books: &mut Books) {
    let Open {
        mut reservation,
        operation,
    } = open;
    let estimate = reservation.estimate();
    let price = |work: &ActualUsage| Weights::default().price(operation, work);
    // A third is given up before the store is asked.
    if random.below(3) == 0 {
        match random.below(4) {
            0 => drop(reservation),
            1 => lose(reservation),
            2 => reservation.release(),
            _ => books.wrong += u64::from(reservation.abandon() != RequestUnits::ZERO),
        }
        return;
    }
    reservation.sent();
    let mut done = ActualUsage::default();
    let mut known = estimate;
    for _ in 0..random.below(4) {
        done = grown(done, operation, random);
        reservation.progress(&done);
        known = known.max(price(&done));
    }
    let due = match random.below(8) {
        0 => {
            drop(reservation);
            known
        }
        1 => {
            lose(reservation);
            known
        }
        2 => {
            books.wrong += u64::from(reservation.abandon() != known);
            known
        }
        3 => {
            reservation.release();
            RequestUnits::ZERO
        }
        4 => {
            let fixed = RequestUnits::from_micros(100_000);
            books.wrong += u64::from(reservation.settle_at(fixed, &done) != fixed);
            fixed
        }
        kind => {
            done = grown(done, operation, random);
            let due = price(&done);
            books.wrong += u64::from(reservation.settle(&done) != due);
            if kind == 5 {
                // A second one counts for nothing.
                books.wrong += u64::from(reservation.settle(&ActualUsage::default()) != due);
                reservation.progress(&grown(done, operation, random));
                reservation.release();
            }
            books.wrong += u64::from(reservation.charged() != due);
            due
        }
    };
    books.due += micros(due);
    books.paying += u64::from(due > RequestUnits::ZERO);
}

/// Loses a request in a panic. Nothing is printed: the hook is not asked.
fn lose(reservation: Reservation) {
    let lost = catch_unwind(AssertUnwindSafe(move || {
        let _held = reservation;
        resume_unwind(Box::new("lost"));
    }));
    debug_assert!(lost.is_err());
}

fn grown(done: ActualUsage, operation: Operation, random: &mut Random) -> ActualUsage {
    let bytes = random.below(20_000);
    let (read, written) = if operation.is_write() {
        (0, bytes)
    } else {
        (bytes, 0)
    };
    ActualUsage {
        rows: done.rows + random.below(50),
        read_bytes: done.read_bytes + read,
        write_bytes: done.write_bytes + written,
        reads: done.reads + u64::from(!operation.is_write()),
        writes: done.writes + u64::from(operation.is_write()),
        service_time: Duration::ZERO,
    }
}

pub(super) fn micros(amount: RequestUnits) -> u128 {
    u128::from(amount.as_micros())
}
