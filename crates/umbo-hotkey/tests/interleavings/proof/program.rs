//! What the tasks of one run do: readers with their mishaps, a writer, and time that passes.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use shuttle::rand::{Rng, thread_rng};

use super::fetched::{AnswerSource, FlightError, Served};
use super::shared_reads::StoreRead;
use super::world::{Fault, Floor, Place, Seen, Tally, World};

/// How a read of the store ends, for the request that brought it along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Answer,
    Error,
    Panic,
}

/// One read, by one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) place: Place,
    pub(crate) is_hot: bool,
    /// Times that the store waits before it answers; 0 to 2.
    pub(crate) pauses: usize,
    pub(crate) ending: Ending,
    /// Polls after which the client leaves.
    pub(crate) patience: Option<usize>,
    /// Whether it reads directly, as a request that wants nothing from the cache.
    pub(crate) is_direct: bool,
}

/// One run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    /// Clients; each reads one after the other.
    pub(crate) clients: Vec<Vec<Reader>>,
    /// Writes of one writer, and whether they are acknowledged.
    pub(crate) writes: Vec<(Place, bool)>,
    /// Milliseconds that pass at some moment.
    pub(crate) passes: Vec<u64>,
    /// Polls after which the tasks of leaders are ended, in the order in which they begin.
    pub(crate) aborts: Vec<usize>,
}

/// The payload of panics that are meant.
struct OnPurpose;

pub(crate) fn expect_purpose(payload: Box<dyn Any + Send>) {
    if !payload.is::<OnPurpose>() {
        resume_unwind(payload);
    }
}

impl Program {
    /// Makes a program of three clients, a writer and a clock.
    pub(crate) fn random() -> Self {
        let mut random = thread_rng();
        let mut place = || match random.gen_range(0..8) {
            0 => Place::Other,
            1 | 2 => Place::Both,
            _ => Place::One,
        };
        let mut places = || [place(), place(), place()];
        let (reads, writes) = ([places(), places(), places()], places());
        let mut random = thread_rng();
        let mut reader = |place| Reader {
            place,
            is_hot: random.gen_bool(0.5),
            pauses: random.gen_range(0..=2),
            ending: match random.gen_range(0..8) {
                0 => Ending::Error,
                1 => Ending::Panic,
                _ => Ending::Answer,
            },
            patience: random.gen_bool(0.2).then(|| random.gen_range(0..4)),
            is_direct: random.gen_bool(0.3),
        };
        let clients = reads.map(|places| {
            let reads = thread_rng().gen_range(1..=3);
            places.into_iter().take(reads).map(&mut reader).collect()
        });
        let mut random = thread_rng();
        let writes = writes.into_iter().take(random.gen_range(0..=2));
        let passes = [3, 150, 250, 2_100, 3_500];
        Self {
            clients: clients.into(),
            writes: writes.map(|place| (place, random.gen_bool(0.8))).collect(),
            passes: (0..random.gen_range(0..=2))
                .map(|_| passes[random.gen_range(0..passes.len())])
                .collect(),
            aborts: (0..3)
                .map(|_| match random.gen_range(0..6) {
                    0 => random.gen_range(0..3),
                    _ => usize::MAX,
                })
                .collect(),
        }
    }
}

/// Runs a program once, and adds what it came to.
pub(crate) fn run(program: &Program, sum: &Mutex<Tally>) {
    let world = World::new(program.aborts.clone());
    let program = program.clone();
    let tally = shuttle::future::block_on(async move {
        let mut tasks = Vec::new();
        for (client, reads) in program.clients.into_iter().enumerate() {
            let world = Arc::clone(&world);
            tasks.push(shuttle::future::spawn(async move {
                for (at, reader) in reads.into_iter().enumerate() {
                    serve(&world, reader, 10 * client + at).await;
                }
            }));
        }
        if !program.writes.is_empty() {
            let world = Arc::clone(&world);
            tasks.push(shuttle::future::spawn(async move {
                for (place, is_acknowledged) in program.writes {
                    world.write(place, is_acknowledged);
                }
            }));
        }
        if !program.passes.is_empty() {
            let world = Arc::clone(&world);
            tasks.push(shuttle::future::spawn(async move {
                for millis in program.passes {
                    shuttle::future::yield_now().await;
                    world.pass(millis);
                }
            }));
        }
        for task in tasks {
            task.await.expect("a client does not fail");
        }
        world.finish().await
    });
    let mut sum = sum.lock().expect("a run that failed has panicked already");
    sum.add(&Tally { runs: 1, ..tally });
}

/// What a request does, as a dispatcher would.
async fn serve(world: &Arc<World>, reader: Reader, fault: Fault) {
    let Reader { place, is_hot, .. } = reader;
    let (key, floor, context) = (place.key(), world.floor(place), world.context());
    if is_hot && let Some(cached) = world.reads.cached(&key, &context) {
        world.check(place, floor, context.now, &cached.served);
        if cached.is_refresh_due {
            let read = reading(world, reader, fault);
            world.reads.refresh(&key, &context, read);
        }
        return;
    }
    if reader.is_direct {
        return ask(world, place, floor, context.now).await;
    }
    let read = reading(world, reader, fault);
    let share = pin!(world.reads.read(&key, is_hot, &context, read));
    let Some(outcome) = with_patience(share, reader.patience).await else {
        world.tally().cancelled += 1;
        return;
    };
    match outcome {
        Ok(served) => world.check(place, floor, context.now, &served),
        Err(FlightError::LeaderFailed) => ask(world, place, floor, context.now).await,
        Err(error) => {
            world.tally().failed += 1;
            // A failure is told to the client whose read it was, and to no other.
            let is_own = match error {
                FlightError::Failed(of) => of == fault,
                FlightError::Panicked => reader.ending == Ending::Panic,
                FlightError::LeaderFailed | FlightError::Full => false,
            };
            assert!(is_own, "{error:?}");
        }
    }
}

/// Asks the store for one request alone.
async fn ask(world: &Arc<World>, place: Place, floor: Floor, asked_at: Instant) {
    world.direct.fetch_add(1, Relaxed);
    let fetched = Arc::clone(world).read(place, 0).await;
    let served = Served::new(fetched, AnswerSource::Leader, asked_at);
    world.check(place, floor, asked_at, &served);
}

fn reading(
    world: &Arc<World>,
    reader: Reader,
    fault: Fault,
) -> impl FnOnce() -> StoreRead<Seen, Fault> {
    let world = Arc::clone(world);
    move || {
        Box::pin(async move {
            let fetched = Arc::clone(&world).read(reader.place, reader.pauses).await;
            match reader.ending {
                Ending::Answer => return Ok(fetched),
                Ending::Error => world.failures.fetch_add(1, Relaxed),
                Ending::Panic => {
                    world.failures.fetch_add(1, Relaxed);
                    // Not `panic!`: a million of them need no report each.
                    resume_unwind(Box::new(OnPurpose));
                }
            };
            Err(fault)
        })
    }
}

/// Polls a request until it is answered or the client leaves; none where it left, also in a panic.
async fn with_patience<T>(
    mut request: std::pin::Pin<&mut impl Future<Output = T>>,
    patience: Option<usize>,
) -> Option<T> {
    let mut polls = 0;
    poll_fn(|context| {
        if patience.is_some_and(|patience| polls > patience) {
            return Poll::Ready(None);
        }
        polls += 1;
        if patience.is_some() {
            // Comes back by itself, to leave.
            context.waker().wake_by_ref();
        }
        match catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(payload) => {
                expect_purpose(payload);
                polls = usize::MAX - 1;
                Poll::Ready(None)
            }
        }
    })
    .await
}
