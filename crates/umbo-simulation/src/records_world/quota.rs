//! A quota of the scope `fleet` beside all else that happens to its dispatchers: at rest it counts once.
//!
//! What a quota admits while dispatchers are killed or cut off is the subject of the worlds of `umbo-quota`. Here the
//! ownership row is at a home that fails, the members come and go by their presence rows, and the messages pass through
//! the connections and checks of servers.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinHandle;

use super::world::World;
use crate::chance::Chance;
use crate::simulation::{elapsed, met, note, violated};

/// Namespace of the quota; no other task of the world changes it.
const NAMESPACE: &str = "counted";
/// Requests a second, and burst.
const RATE: u64 = 10;
/// Time between two requests of the client: four times the rate.
const PAUSE: Duration = Duration::from_micros(1_000_000 / (4 * RATE));
/// For how long requests come before they are counted: the burst is spent, and killed dispatchers are no members any more,
/// which takes 20 s.
const SETTLING: Duration = Duration::from_secs(25);
/// For how long they are counted.
const COUNTED: Duration = Duration::from_secs(10);
/// By how much the admitted requests may differ from the rate, in thousandths: some requests at the begin and the end.
const OFF_PER_MILLE: u64 = 50;
const ATTEMPTS_MAX: u32 = 20;

/// Makes the quota, and begins to send requests.
pub(super) async fn begin(world: &Rc<World>, chance: Chance) -> JoinHandle<()> {
    prepare(world).await;
    tokio::task::spawn_local(run(Rc::clone(world), chance))
}

/// Makes the namespace and the quota, while nothing fails but at marked points.
async fn prepare(world: &World) {
    let policy = format!(
        r#"{{"name":"{NAMESPACE}","unit":"requests","rate":{RATE},"burst":{RATE},"scope":"fleet","match":{{"namespace":"{NAMESPACE}"}}}}"#
    );
    let namespace = (format!("/admin/v1/namespaces/{NAMESPACE}"), "{}".to_owned());
    for (path, body) in [namespace, (format!("/admin/v1/quotas/{NAMESPACE}"), policy)] {
        for attempt in 0.. {
            let body = body.clone().into_bytes();
            let answer = world.ask(0, "PUT", &path, body).await;
            let done = |status: StatusCode| status.is_success() || status == StatusCode::CONFLICT;
            if answer.as_ref().is_some_and(|one| done(one.status)) {
                break;
            }
            if attempt == ATTEMPTS_MAX {
                let answer = answer.map(|one| one.json());
                return violated(&format!("{path} cannot be made at the begin: {answer:?}"));
            }
        }
    }
}

/// Sends requests through all dispatchers until the world is over.
async fn run(world: Rc<World>, mut chance: Chance) {
    while !world.is_over() {
        let dispatcher = chance.index(world.plan.dispatchers);
        request(&world, dispatcher).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Sends a request. Returns whether it was admitted, or `None` if it was refused for another reason.
async fn request(world: &World, dispatcher: usize) -> Option<bool> {
    let path = format!("/v1/ns/{NAMESPACE}/kv/row");
    let answer = world.ask(dispatcher, "GET", &path, Vec::new()).await?;
    match answer.status {
        StatusCode::OK | StatusCode::NOT_FOUND => Some(true),
        StatusCode::TOO_MANY_REQUESTS => Some(false),
        _ => None,
    }
}

/// Checks that all dispatchers together admit the rate.
pub(super) async fn check(world: &Rc<World>) {
    met("quota of the fleet at rest");
    let begun = elapsed();
    let (mut admitted, mut turn) = (0, 0);
    while elapsed() < begun + SETTLING + COUNTED {
        let dispatcher = turn % world.plan.dispatchers;
        turn += 1;
        let is_counted = elapsed() >= begun + SETTLING;
        match request(world, dispatcher).await {
            Some(true) => admitted += u64::from(is_counted),
            Some(false) => {}
            None => return violated("a request within a quota fails although all faults are over"),
        }
        tokio::time::sleep(PAUSE).await;
    }
    let wanted = RATE * COUNTED.as_secs();
    note!("the fleet admits {admitted} of {wanted}");
    if admitted.abs_diff(wanted) * 1_000 > wanted * OFF_PER_MILLE {
        violated(&format!(
            "{} dispatchers admit {admitted} requests of a quota of {wanted} at rest",
            world.plan.dispatchers
        ));
    }
}
