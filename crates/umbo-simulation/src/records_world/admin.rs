//! The client that creates, changes and removes one namespace, repeatedly.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use umbo_types::NamespaceId;

use super::names::SimulatedState;
use super::process::{LEARNED_WITHIN, ProcessAnswer, Told};
use super::world::World;
use crate::chance::Chance;
use crate::simulation::{met, note, violated};

/// First setting of a namespace, in seconds: rows do not expire while the simulation runs.
const FIRST_TTL: u64 = 100_000;

/// Runs until the world is over.
pub(super) async fn run(world: Rc<World>, name: usize, mut chance: Chance) {
    let mut ttl = FIRST_TTL + 1_000_000 * name as u64;
    while !world.is_over() {
        let pause = chance.weighted(&[(2, 20), (2, 300), (1, 1_500)]);
        tokio::time::sleep(Duration::from_millis(chance.below(pause))).await;
        let dispatcher = chance.index(world.plan.dispatchers);
        ttl += 1;
        let possible = world.names.borrow().possible(name);
        match possible[..] {
            [SimulatedState::Live(_)] if chance.per_mille(400) => {
                remove(&world, name, dispatcher).await;
            }
            [SimulatedState::Live(_)] if chance.per_mille(600) => {
                show(&world, name, dispatcher).await;
            }
            _ => put(&world, name, dispatcher, ttl).await,
        }
    }
}

/// Creates the namespace, or changes its setting.
pub(super) async fn put(world: &World, name: usize, dispatcher: usize, ttl: u64) {
    let change = world
        .names
        .borrow_mut()
        .begin(name, SimulatedState::Live(ttl));
    let event = world.history.borrow_mut().event();
    world.names.borrow_mut().ask_for(name, event);
    let body = format!("{{\"default_ttl\":{ttl}}}").into_bytes();
    let path = format!("/admin/v1/namespaces/n{name}");
    let mut answer = world.ask(dispatcher, "PUT", &path, body.clone()).await;
    if answer
        .as_ref()
        .is_some_and(|one| one.code() == "namespace-exists")
    {
        answer = world.ask(dispatcher, "PATCH", &path, body).await;
    }
    let told = told(answer.as_ref());
    note!("n{name}: change {change}, default_ttl {ttl}, by dispatcher {dispatcher}: {told:?}");
    let mut names = world.names.borrow_mut();
    names.end(name, change, told, dispatcher);
    if let (Told::Done, Some(answer)) = (told, answer) {
        met("namespace put");
        let id = answer.json()["id"].as_u64().unwrap_or_default();
        let before = names.note_there(name, id);
        let is_confirmed = before
            .is_none_or(|before| world.store.is_fenced_everywhere(NamespaceId(before as u32)));
        if !is_confirmed {
            violated(&format!(
                "n{name} was made again before every shard had raised the fence of its old id"
            ));
        }
    }
}

/// Removes the namespace; if the outcome is unknown, repeatedly.
pub(super) async fn remove(world: &World, name: usize, dispatcher: usize) {
    let before = world.names.borrow().epoch(name);
    let change = world.names.borrow_mut().begin(name, SimulatedState::Absent);
    let path = format!("/admin/v1/namespaces/n{name}");
    let answer = world.ask(dispatcher, "DELETE", &path, Vec::new()).await;
    let mut told = told(answer.as_ref());
    if answer.is_some_and(|answer| answer.status == StatusCode::NOT_FOUND) {
        // The dispatcher has an old copy of the records, without the namespace.
        told = Told::Refused;
    }
    note!("n{name}: change {change}, removed by dispatcher {dispatcher}: {told:?}");
    let mut names = world.names.borrow_mut();
    names.end(name, change, told, dispatcher);
    match told {
        Told::Done => met("namespace removed"),
        Told::Refused => {
            met("removal refused");
            names.set_epoch(name, before);
        }
        Told::Unknown => met("removal of unknown outcome"),
    }
}

/// Reads the namespace through a dispatcher.
pub(super) async fn show(world: &World, name: usize, dispatcher: usize) {
    let sent = crate::simulation::elapsed();
    let path = format!("/admin/v1/namespaces/n{name}");
    let Some(answer) = world.ask(dispatcher, "GET", &path, Vec::new()).await else {
        return;
    };
    let shown = match answer.status {
        StatusCode::OK => {
            let json = answer.json();
            let is_removing = json["state"].as_str().is_some_and(|state| state != "live");
            if is_removing {
                SimulatedState::Absent
            } else {
                SimulatedState::Live(json["default_ttl"].as_u64().unwrap_or_default())
            }
        }
        StatusCode::NOT_FOUND => SimulatedState::Absent,
        _ => return,
    };
    let known_by = world
        .calm_since
        .get()
        .and_then(|calm| sent.checked_sub(LEARNED_WITHIN).filter(|by| calm <= *by));
    world
        .names
        .borrow_mut()
        .check(name, dispatcher, shown, known_by);
}

fn told(answer: Option<&ProcessAnswer>) -> Told {
    let Some(answer) = answer else {
        return Told::Unknown;
    };
    let told = answer.told();
    if told != Told::Done {
        met(match told {
            Told::Refused => "change refused",
            _ => "change of unknown outcome",
        });
        note!("answered {} {}", answer.status.as_u16(), answer.code());
    }
    told
}
