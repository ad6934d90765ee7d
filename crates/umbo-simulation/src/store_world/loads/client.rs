//! Clients that put, delete and read rows.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::clocks::TTL;
use super::datasets::{RowId, SeenValue};
use super::large_rows::{LOADED_PARTITION, LOADED_ROWS, is_large, long_bytes};
use super::world::{LoadsWorld, NAME};
use crate::chance::Chance;
use crate::records_world::process::{Process, ProcessAnswer, Told};
use crate::simulation::{elapsed, met, note, violated};

/// Gets and removals that are of large rows of loads, in thousandths.
const LARGE_PER_MILLE: u64 = 100;

/// Runs until the world is over.
pub(super) async fn run(world: Rc<LoadsWorld>, client: u64, mut chance: Chance) {
    let mut writes = 0;
    while !world.is_over() {
        let think = chance.below(world.think_micros);
        tokio::time::sleep(Duration::from_micros(think)).await;
        let dispatcher = chance.index(world.dispatchers.len());
        if !world.answers(dispatcher) {
            continue;
        }
        let row = (chance.below(world.partitions), chance.below(world.sorts));
        let mut action = chance.below(20);
        // What loads have put into the last partition mostly stays, so that late writes of their runs are seen.
        let is_quiet = row.0 > 0 && row.0 + 1 == world.partitions;
        if is_quiet && chance.per_mille(950) {
            action = action.max(9);
        }
        let large = (LOADED_PARTITION, row.1 % LOADED_ROWS);
        let is_large = world.large_per_mille > 0 && chance.per_mille(LARGE_PER_MILLE);
        match action {
            7 if is_large => write(&world, dispatcher, large, None).await,
            9..13 if is_large => get(&world, dispatcher, large).await,
            0..6 => {
                writes += 1;
                let value = format!("w{client}-{writes}");
                write(&world, dispatcher, row, Some(value)).await;
            }
            6..8 => write(&world, dispatcher, row, None).await,
            8 => remove_range(&world, dispatcher, row.0).await,
            9..13 => get(&world, dispatcher, row).await,
            _ => {
                range(&world, dispatcher, row.0, None).await;
            }
        }
    }
}

async fn write(world: &LoadsWorld, dispatcher: usize, row: RowId, value: SeenValue) {
    let method = if value.is_some() { "PUT" } else { "DELETE" };
    send(world, dispatcher, (method, row), value, Duration::MAX).await;
}

/// Sends a write of a row, after which it has a value or is gone, and records what came of it. The client leaves after
/// `patience`.
pub(super) async fn send(
    world: &LoadsWorld,
    dispatcher: usize,
    (method, row): (&str, RowId),
    value: SeenValue,
    patience: Duration,
) -> Option<ProcessAnswer> {
    let (partition, sort) = row;
    let path = format!("kv/p{partition}/k{sort}");
    let ttl = || vec![("umbo-ttl", TTL.to_owned())];
    let (headers, body) = match &value {
        // It keeps the value that is there.
        Some(_) if method == "PATCH" => (ttl(), Vec::new()),
        Some(value) if is_large(row) => (Vec::new(), long_bytes(value)),
        Some(value) if sort % 2 == 1 => (ttl(), value.clone().into_bytes()),
        value => (Vec::new(), value.clone().unwrap_or_default().into_bytes()),
    };
    let number = world
        .datasets
        .borrow_mut()
        .begin(row, value.clone(), elapsed());
    let asking = world.ask(dispatcher, method, &path, &headers, body);
    let answer = tokio::time::timeout(patience, asking).await;
    let answer = answer.ok().flatten();
    let told = answer.as_ref().map_or(Told::Unknown, ProcessAnswer::told);
    note!("{method} {path} {value:?} by dispatcher {dispatcher}: {told:?}");
    let applied = match told {
        Told::Done => Some(true),
        Told::Refused => Some(false),
        Told::Unknown => {
            met("write of unknown outcome");
            None
        }
    };
    let mut datasets = world.datasets.borrow_mut();
    datasets.end(row, number, applied, elapsed());
    answer
}

/// Removes all rows of a partition, which is done step by step.
async fn remove_range(world: &LoadsWorld, dispatcher: usize, partition: u64) {
    let path = format!("range/p{partition}?all=true");
    let rows: Vec<RowId> = (0..world.sorts).map(|sort| (partition, sort)).collect();
    let begun: Vec<(RowId, usize)> = {
        let mut datasets = world.datasets.borrow_mut();
        let begin = |row| (row, datasets.begin(row, None, elapsed()));
        rows.into_iter().map(begin).collect()
    };
    let answer = world
        .ask(dispatcher, "DELETE", &path, &[], Vec::new())
        .await;
    // A problem has the id of its request, which differs from run to run.
    let code = answer.as_ref().map(ProcessAnswer::code);
    let is_done = answer.is_some_and(|one| one.told() == Told::Done);
    note!("DELETE {path} by dispatcher {dispatcher}: {is_done} {code:?}");
    if is_done {
        met("range removed");
    }
    let mut datasets = world.datasets.borrow_mut();
    for (row, write) in begun {
        // Steps of one that was refused may have been done.
        datasets.end(row, write, is_done.then_some(true), elapsed());
    }
}

/// Reads a row and checks it.
pub(super) async fn get(world: &LoadsWorld, dispatcher: usize, row: RowId) {
    let sent = elapsed();
    let process = &world.dispatchers[dispatcher].process;
    if let Some(value) = row_of(process, row).await {
        check(world, dispatcher, &[(row, value)], sent, None);
    }
}

/// Reads a row of a process; none if it was not answered.
pub(super) async fn row_of(process: &Process, row: RowId) -> Option<SeenValue> {
    let path = format!("/v1/ns/{NAME}/kv/p{}/k{}", row.0, row.1);
    let answer = process.ask("GET", &path, &[], Vec::new()).await;
    match answer {
        Some(answer) if answer.status == StatusCode::OK => {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let is_whole = |value: &&str| is_large(row) && long_bytes(value) == answer.body;
            let large = text.split(':').next().filter(is_whole);
            let text = large.map_or_else(|| text.chars().take(80).collect(), str::to_owned);
            Some(Some(text))
        }
        Some(answer) if answer.code() == "key-not-found" => Some(None),
        _ => None,
    }
}

/// Reads a partition and checks that all of it is of one version; of a certain one, if it is named. Returns whether it
/// was answered.
pub(super) async fn range(
    world: &LoadsWorld,
    dispatcher: usize,
    partition: u64,
    only: Option<u32>,
) -> bool {
    let sent = elapsed();
    let process = &world.dispatchers[dispatcher].process;
    let Some(seen) = partition_of(process, partition, world.sorts).await else {
        return false;
    };
    check(world, dispatcher, &seen, sent, only);
    true
}

/// Reads the rows of a partition of a process; none if not all of it was answered.
pub(super) async fn partition_of(
    process: &Process,
    partition: u64,
    sorts: u64,
) -> Option<Vec<(RowId, SeenValue)>> {
    let path = format!("/v1/ns/{NAME}/range/p{partition}");
    let answer = process.ask("GET", &path, &[], Vec::new()).await;
    let answer = answer.filter(|answer| answer.status == StatusCode::OK)?;
    let lines = answer.body.split(|&byte| byte == b'\n');
    let rows: Vec<Value> = lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    // A range that did not come to its end says so, or is cut off.
    if rows.last().is_none_or(|end| end["end"]["more"] != false) {
        return None;
    }
    let value_of = |sort: u64| {
        let name = Value::from(format!("k{sort}"));
        let found = rows.iter().find(|row| row["sk"] == name)?;
        found["v"].as_str().map(str::to_owned)
    };
    let seen = (0..sorts).map(|sort| ((partition, sort), value_of(sort)));
    Some(seen.collect())
}

fn check(
    world: &LoadsWorld,
    dispatcher: usize,
    seen: &[(RowId, SeenValue)],
    sent: Duration,
    only: Option<u32>,
) {
    note!("dispatcher {dispatcher} shows {seen:?}");
    let mut datasets = world.datasets.borrow_mut();
    if let Err(reason) = datasets.check(seen, (sent, elapsed()), only) {
        violated(&format!(
            "dispatcher {dispatcher} shows {seen:?}, which is of no version:{reason}"
        ));
    }
}
