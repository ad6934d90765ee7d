//! Conditions that must hold after all faults are over.

use std::rc::Rc;
use std::time::Duration;

use super::names::SimulatedState;
use super::world::World;
use super::{admin, quota, rows};
use crate::simulation::{is_violated, note, violated};

/// Time after the last fault within which all pending work must be done.
const HEALING: Duration = Duration::from_secs(20);
/// How often a change or a removal is repeated until it is acknowledged: an answer may still get lost.
const ATTEMPTS_MAX: u32 = 20;

/// Checks that all dispatchers return the same, that every row exists, and that nothing is left of removed
/// namespaces.
pub(super) async fn check(world: &Rc<World>) {
    note!("all faults are over");
    for number in 0..world.plan.dispatchers {
        if world
            .ask(number, "GET", "/healthz", Vec::new())
            .await
            .is_none()
            && !world.starts_in_the_end(number).await
        {
            return violated("a dispatcher does not open although all faults are over");
        }
    }
    if world.token.borrow().is_in_doubt() {
        return note!("it is not known whether requests need a token");
    }
    let quota = async {
        if world.plan.has_quota {
            quota::check(world).await;
        }
    };
    tokio::join!(tokio::time::sleep(HEALING), quota);
    for name in 0..world.plan.names {
        show_everywhere(world, name).await;
    }
    if is_violated() {
        return;
    }
    // All names are removed but the last, which must still be changeable.
    for name in 0..world.plan.names {
        let dispatcher = name % world.plan.dispatchers;
        if name + 1 < world.plan.names {
            remove(world, name, dispatcher).await;
        } else {
            change(world, name, dispatcher).await;
        }
    }
    tokio::time::sleep(HEALING).await;
    check_stored(world).await;
    check_fleet(world).await;
}

/// Checks that each dispatcher lists all of them as live, and none of the processes that were killed.
async fn check_fleet(world: &Rc<World>) {
    for number in 0..world.plan.dispatchers {
        let answer = world
            .ask(number, "GET", "/admin/v1/fleet", Vec::new())
            .await;
        let list = answer.map_or_else(Default::default, |answer| answer.json());
        let processes = list["processes"].as_array().cloned().unwrap_or_default();
        let live = processes
            .iter()
            .filter(|one| one["state"] == "live")
            .count();
        if live != world.plan.dispatchers {
            let (found, wanted) = (live, world.plan.dispatchers);
            violated(&format!(
                "dispatcher {number} lists {found} live dispatchers at rest instead of {wanted}: {list}"
            ));
        }
    }
}

async fn show_everywhere(world: &Rc<World>, name: usize) {
    for dispatcher in 0..world.plan.dispatchers {
        admin::show(world, name, dispatcher).await;
        for key in 0..world.plan.keys {
            rows::read(world, dispatcher, name, key).await;
        }
    }
}

async fn change(world: &Rc<World>, name: usize, dispatcher: usize) {
    for attempt in 0..ATTEMPTS_MAX {
        let setting = 99_000_000 + u64::from(attempt);
        admin::put(world, name, dispatcher, setting).await;
        if world.names.borrow().possible(name) == [SimulatedState::Live(setting)] {
            return;
        }
    }
    violated("a change is refused although all faults are over");
}

async fn remove(world: &Rc<World>, name: usize, dispatcher: usize) {
    for _ in 0..ATTEMPTS_MAX {
        if world.names.borrow().possible(name) == [SimulatedState::Absent] {
            return;
        }
        let path = format!("/admin/v1/namespaces/n{name}");
        let answer = world.ask(dispatcher, "GET", &path, Vec::new()).await;
        if answer.is_some_and(|answer| answer.status == http::StatusCode::NOT_FOUND) {
            return;
        }
        admin::remove(world, name, dispatcher).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    violated("a namespace cannot be removed although all faults are over");
}

/// Checks that rows are stored only of existing namespaces.
async fn check_stored(world: &Rc<World>) {
    let answer = world
        .ask(0, "GET", "/admin/v1/namespaces", Vec::new())
        .await;
    let Some(answer) = answer else {
        return violated("the namespaces are not listed although all faults are over");
    };
    let json = answer.json();
    let listed = json["namespaces"].as_array().cloned().unwrap_or_default();
    let live: Vec<u64> = listed
        .iter()
        .filter_map(|info| info["id"].as_u64())
        .collect();
    for (id, rows) in world.store.stored().await {
        if id != 0 && !live.contains(&u64::from(id)) {
            violated(&format!(
                "{rows} rows of namespace id {id} are stored at rest, and no namespace has it"
            ));
        }
    }
}
