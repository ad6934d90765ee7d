//! The client that creates the first token.

use std::rc::Rc;
use std::time::Duration;

use super::process::{ProcessAnswer, Told};
use super::token::FirstToken;
use super::world::World;
use crate::chance::Chance;
use crate::simulation::{elapsed, met, note};

/// Creates the first token at a random time.
pub(super) async fn run(world: Rc<World>, mut chance: Chance) {
    let wait = chance.below(world.plan.lasts.as_millis() as u64);
    tokio::time::sleep(Duration::from_millis(wait)).await;
    while !world.is_over() {
        let dispatcher = chance.index(world.plan.dispatchers);
        world.token.replace(FirstToken::InDoubt);
        let body = br#"{"name":"root","grants":["admin,read,write:*"]}"#.to_vec();
        let answer = world
            .ask(dispatcher, "POST", "/admin/v1/tokens", body)
            .await;
        let told = answer.as_ref().map_or(Told::Unknown, ProcessAnswer::told);
        note!("first token by dispatcher {dispatcher}: {told:?}");
        match (told, answer) {
            (Told::Done, Some(answer)) => {
                met("first token");
                let token = answer.json()["token"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                world.token.replace(FirstToken::Known(token, elapsed()));
                return;
            }
            (Told::Refused, _) => {
                met("first token refused");
                world.token.replace(FirstToken::None);
                tokio::time::sleep(Duration::from_millis(chance.below(2_000))).await;
            }
            _ => return met("first token of unknown outcome"),
        }
    }
}
