//! Requests that run now, and the end of one.

use reqwest::Method;
use umbo_api::fleet::{FleetAnswers, ProcessState};
use umbo_api::path::percent_encode;
use umbo_api::running::{RunningList, RunningRequest};

use crate::client::Client;
use crate::error::Error;
use crate::request::RepeatableRequest;
use crate::retry::Repeat;

impl Client {
    /// Lists the requests that run on the dispatchers of the server's cluster that answer now, and the dispatchers that
    /// did not answer, with the reasons. Needs the grant `observe` on every namespace.
    pub async fn running(&self) -> Result<(Vec<RunningRequest>, Vec<String>), Error> {
        let answers = self.ask_fleet("requests").await?;
        let unreached = answers.unreached();
        Ok((running_of(answers)?, unreached))
    }

    /// Ends the requests of an id on the server that answers. Needs the grant `admin` on every namespace.
    pub async fn kill(&self, request_id: &str) -> Result<(), Error> {
        let id = percent_encode(request_id.as_bytes());
        let target = format!("/admin/v1/requests/{id}");
        let request = RepeatableRequest::new(Method::DELETE, target, Repeat::IfNotApplied);
        self.send(&request).await.map(drop)
    }
}

fn running_of(answers: FleetAnswers) -> Result<Vec<RunningRequest>, Error> {
    let mut running = Vec::new();
    for one in answers.processes {
        let is_told_now =
            one.process.state == ProcessState::Live && one.answered_ms == Some(one.process.seen_ms);
        let text = (one.answer).filter(|_| is_told_now && one.status == Some(200));
        let list = text.map(|text| serde_json::from_str::<RunningList>(text.get()));
        let list = list.transpose().map_err(|error| Error::json(&error))?;
        let requests = list.unwrap_or_default().requests.into_iter();
        running.extend(requests.map(|request| RunningRequest {
            dispatcher: Some(one.process.about.name.clone()),
            ..request
        }));
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_now_has_no_request_that_runs() {
        let process = |state, seen_ms, answered_ms| {
            serde_json::json!({
                "process": {
                    "id": "1", "is_self": false, "state": state, "seen_ms": seen_ms,
                    "about": {"name": state, "version": "", "url": "", "admin_url": "", "started_ms": 0}
                },
                "status": 200, "answered_ms": answered_ms,
                "answer": {"requests": [{"id": "a", "operation": "scan", "age_ms": 1, "phase": "wait", "ru": 1.0}]}
            })
        };
        // One answers, one has not answered in time, and one is away: of both an earlier answer is shown.
        let processes = [
            process("live", 9, 9),
            process("live", 9, 7),
            process("away", 7, 7),
        ];
        let answers = serde_json::json!({"processes": processes}).to_string();
        let running = running_of(serde_json::from_str(&answers).unwrap()).unwrap();
        assert_eq!(running.len(), 1, "{running:?}");
        assert_eq!(running[0].dispatcher.as_deref(), Some("live"));
    }
}
