//! The first token: after its creation every request must have one. A refused creation must not have this
//! effect.

use std::rc::Rc;
use std::time::Duration;

use super::process::Told;
use super::{LEARNED_WITHIN, World};
use crate::chance::Chance;
use crate::simulation::{elapsed, met, note, violated};

/// The known state of the first token.
#[derive(Debug, Default)]
pub(super) enum Token {
    /// It does not exist.
    #[default]
    None,
    /// Its creation was requested, and it may exist.
    InDoubt,
    /// It exists.
    Known(String, Duration),
}

impl Token {
    /// Returns the fields of a request.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Known(token, _) => vec![("authorization", format!("Bearer {token}"))],
            Self::None | Self::InDoubt => Vec::new(),
        }
    }

    /// Returns whether it is unknown if requests without a token are admitted.
    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::InDoubt)
    }

    /// Checks that a request may be refused for lack of a valid token.
    pub(super) fn check_refusal(&self, was_shown: bool, sent: Duration) {
        match self {
            Self::None => violated("a token is asked for, and none was ever made"),
            Self::Known(_, since) if was_shown && *since + LEARNED_WITHIN * 4 < sent => {
                violated("a token is refused that was acknowledged");
            }
            Self::InDoubt | Self::Known(..) => {}
        }
    }
}

/// Creates the first token at a random time.
pub(super) async fn run(world: Rc<World>, mut chance: Chance) {
    let wait = chance.below(world.plan.lasts.as_millis() as u64);
    tokio::time::sleep(Duration::from_millis(wait)).await;
    while !world.is_over() {
        let dispatcher = chance.index(world.plan.dispatchers);
        world.token.replace(Token::InDoubt);
        let body = br#"{"name":"root","grants":["admin,read,write:*"]}"#.to_vec();
        let answer = world
            .ask(dispatcher, "POST", "/admin/v1/tokens", body)
            .await;
        let told = answer
            .as_ref()
            .map_or(Told::Unknown, super::process::Answer::told);
        note!("first token by dispatcher {dispatcher}: {told:?}");
        match (told, answer) {
            (Told::Done, Some(answer)) => {
                met("first token");
                let token = answer.json()["token"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                world.token.replace(Token::Known(token, elapsed()));
                return;
            }
            (Told::Refused, _) => {
                met("first token refused");
                world.token.replace(Token::None);
                tokio::time::sleep(Duration::from_millis(chance.below(2_000))).await;
            }
            _ => return met("first token of unknown outcome"),
        }
    }
}
