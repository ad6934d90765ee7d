//! Clients that write and read rows of the namespaces through any dispatcher.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use super::names::Epoch;
use super::process::Told;
use super::world::World;
use crate::chance::Chance;
use crate::history::{Asked, Effect, OnlyIf, RowName};
use crate::simulation::{met, note, violated};
use crate::value::{WriteId, value, writer_of};

/// Rows from before the namespace ever existed.
const NO_EPOCH: u64 = 1_000_000;

/// Runs until the world is over.
pub(super) async fn run(world: Rc<World>, client: u32, mut chance: Chance) {
    while !world.is_over() {
        let think = chance.below(world.plan.think_micros);
        tokio::time::sleep(Duration::from_micros(think)).await;
        let name = chance.index(world.plan.names);
        let dispatcher = chance.index(world.plan.dispatchers);
        let key = chance.below(world.plan.keys);
        match chance.below(10) {
            0..5 => {
                let len = chance.weighted(&[(9, 40), (1, 3_000)]);
                write(&world, (client, dispatcher), name, key, Some(len)).await;
            }
            5 => write(&world, (client, dispatcher), name, key, None).await,
            _ => read(&world, dispatcher, name, key).await,
        }
    }
}

fn row_of(epoch: u64, name: usize, key: u64) -> RowName {
    RowName {
        namespace: epoch,
        partition: format!("n{name}"),
        sort: format!("k{key}"),
    }
}

/// Puts a row with a value of this length, or removes it.
async fn write(
    world: &World,
    (client, dispatcher): (u32, usize),
    name: usize,
    key: u64,
    len: Option<usize>,
) {
    let epoch = world.names.borrow().latest(name);
    let asked = Asked {
        row: row_of(epoch.map_or(NO_EPOCH, |epoch| epoch.number), name, key),
        // Versions are compared by row: the shard of a row is unknown here.
        shard: (name as u64 * 100 + key) as u16,
        effect: len.map_or(Effect::Delete, |_| Effect::Put { expires_at: None }),
        only_if: OnlyIf::Always,
    };
    let session = client * 8 + dispatcher as u32;
    let id = {
        let mut history = world.history.borrow_mut();
        history.begin_unordered(session, asked)
    };
    world
        .asked
        .borrow_mut()
        .entry((name, key))
        .or_default()
        .push(id);
    let path = format!("/v1/ns/n{name}/kv/k{key}");
    let (method, body) = match len {
        Some(len) => ("PUT", value(id, len)),
        None => ("DELETE", Vec::new()),
    };
    let answer = world.ask(dispatcher, method, &path, body).await;
    let mut history = world.history.borrow_mut();
    let Some(answer) = answer else {
        return history.doubt(id);
    };
    let told = answer.told();
    note!(
        "client {client}: write {id} of n{name}/k{key} by dispatcher {dispatcher}: {} {told:?} {:?}",
        answer.status.as_u16(),
        answer.etag
    );
    match told {
        Told::Done => {
            if epoch.is_some() && world.names.borrow().epoch(name) == epoch {
                history.acknowledge(id, answer.etag);
            } else {
                // The namespace was removed or created meanwhile: the row may be of the next one, and in another shard.
                met("write over a change of its namespace");
                history.doubt(id);
            }
        }
        Told::Refused => {
            met("write refused");
            history.refuse(id);
        }
        Told::Unknown => {
            met("write of unknown outcome");
            history.doubt(id);
        }
    }
}

/// Reads a row and checks the result.
pub(super) async fn read(world: &World, dispatcher: usize, name: usize, key: u64) {
    let epoch = world.names.borrow().epoch(name);
    let begun = world.history.borrow_mut().event();
    let path = format!("/v1/ns/n{name}/kv/k{key}");
    let Some(answer) = world.ask(dispatcher, "GET", &path, Vec::new()).await else {
        return;
    };
    let Some(epoch) = epoch.filter(|epoch| world.names.borrow().epoch(name) == Some(*epoch)) else {
        return;
    };
    let seen = match answer.status {
        StatusCode::OK => {
            let Some(id) = writer_of(&answer.body) else {
                return violated("a value is not what was written");
            };
            Some((id, answer.etag.unwrap_or_default()))
        }
        StatusCode::NOT_FOUND if answer.code() == "namespace-not-found" => {
            // The dispatcher has an old copy of the records, without the namespace.
            return met("namespace not known to a dispatcher");
        }
        StatusCode::NOT_FOUND => None,
        _ => return,
    };
    check(world, dispatcher, (name, key), epoch, begun, seen);
}

fn check(
    world: &World,
    dispatcher: usize,
    (name, key): (usize, u64),
    epoch: Epoch,
    begun: u64,
    seen: Option<(usize, u64)>,
) {
    let row = &row_of(epoch.number, name, key);
    let mut history = world.history.borrow_mut();
    note!(
        "dispatcher {dispatcher} shows {}/{} as {seen:?}",
        row.partition,
        row.sort
    );
    if let Some((id, _)) = seen
        && history.write(id).row != *row
    {
        if history.was_over_by(id, epoch.since) {
            violated(&format!(
                "{}/{}: write {id} is seen, and its namespace was removed since",
                row.partition, row.sort
            ));
        }
        // Answered after the namespace was created anew: the row may exist, and hide the one from before.
        return history.taint(row);
    }
    // The same holds for a removal.
    let asked = world.asked.borrow();
    let mut of_row = asked.get(&(name, key)).into_iter().flatten();
    let may_be_there = |&id: &WriteId| {
        history.write(id).row != *row && history.may_be_applied_after(id, epoch.since)
    };
    if of_row.any(may_be_there) {
        history.taint(row);
    }
    let seen = seen.map(|(id, version)| (Some(id), version));
    history.check(row, begun, seen);
}
