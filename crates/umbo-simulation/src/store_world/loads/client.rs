//! Clients that put, delete and read rows.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::datasets::{RowId, SeenValue};
use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::records_world::process::{ProcessAnswer, Told};
use crate::simulation::{elapsed, met, note, violated};

/// Runs until the world is over.
pub(super) async fn run(world: Rc<LoadsWorld>, client: u64, mut chance: Chance) {
    let mut writes = 0;
    while !world.is_over() {
        let think = chance.below(world.think_micros);
        tokio::time::sleep(Duration::from_micros(think)).await;
        let dispatcher = chance.index(world.dispatchers.len());
        if !world.dispatchers[dispatcher].process.is_open() {
            continue;
        }
        let row = (chance.below(world.partitions), chance.below(world.sorts));
        match chance.below(20) {
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
    let (partition, sort) = row;
    let path = format!("kv/p{partition}/k{sort}");
    let method = if value.is_some() { "PUT" } else { "DELETE" };
    let body = value.clone().unwrap_or_default().into_bytes();
    let number = world
        .datasets
        .borrow_mut()
        .begin(row, value.clone(), elapsed());
    let answer = world.ask(dispatcher, method, &path, &[], body).await;
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
    let json = answer.as_ref().map_or(Value::Null, ProcessAnswer::json);
    let is_done = answer.is_some_and(|one| one.told() == Told::Done);
    note!("DELETE {path} by dispatcher {dispatcher}: {is_done} {json}");
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
async fn get(world: &LoadsWorld, dispatcher: usize, row: RowId) {
    let path = format!("kv/p{}/k{}", row.0, row.1);
    let sent = elapsed();
    let answer = world.ask(dispatcher, "GET", &path, &[], Vec::new()).await;
    let value = match answer {
        Some(answer) if answer.status == StatusCode::OK => {
            Some(String::from_utf8_lossy(&answer.body).into_owned())
        }
        Some(answer) if answer.code() == "key-not-found" => None,
        _ => return,
    };
    check(world, dispatcher, &[(row, value)], sent, None);
}

/// Reads a partition and checks that all of it is of one version; of a certain one, if it is named. Returns whether it
/// was answered.
pub(super) async fn range(
    world: &LoadsWorld,
    dispatcher: usize,
    partition: u64,
    only: Option<u32>,
) -> bool {
    let path = format!("range/p{partition}");
    let sent = elapsed();
    let answer = world.ask(dispatcher, "GET", &path, &[], Vec::new()).await;
    let Some(answer) = answer.filter(|answer| answer.status == StatusCode::OK) else {
        return false;
    };
    let lines = answer.body.split(|&byte| byte == b'\n');
    let rows: Vec<Value> = lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    // A range that did not come to its end says so, or is cut off.
    if rows.last().is_none_or(|end| end["end"]["more"] != false) {
        return false;
    }
    let value_of = |sort: u64| {
        let name = Value::from(format!("k{sort}"));
        let found = rows.iter().find(|row| row["sk"] == name)?;
        found["v"].as_str().map(str::to_owned)
    };
    let seen: Vec<(RowId, SeenValue)> = (0..world.sorts)
        .map(|sort| ((partition, sort), value_of(sort)))
        .collect();
    check(world, dispatcher, &seen, sent, only);
    true
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
