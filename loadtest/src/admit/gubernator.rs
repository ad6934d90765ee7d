//! gubernator's decision, by its gRPC interface.

use std::collections::HashMap;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::decision::{Decider, Decision, RATE};
use crate::failure::Failure;

/// Longest wait for a decision.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Of the interface: a bucket that leaks evenly.
const LEAKY_BUCKET: i32 = 1;
/// Of the interface: the server that is asked decides.
const GLOBAL: i32 = 2;

/// The messages of `gubernator.proto` of v2.13.0, as far as they are used.
#[derive(Clone, PartialEq, prost::Message)]
struct Limits {
    #[prost(message, repeated, tag = "1")]
    requests: Vec<LimitedRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LimitedRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    unique_key: String,
    #[prost(int64, tag = "3")]
    hits: i64,
    #[prost(int64, tag = "4")]
    limit: i64,
    #[prost(int64, tag = "5")]
    duration_ms: i64,
    #[prost(int32, tag = "6")]
    algorithm: i32,
    #[prost(int32, tag = "7")]
    behavior: i32,
    #[prost(int64, tag = "8")]
    burst: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answers {
    #[prost(message, repeated, tag = "1")]
    responses: Vec<Answer>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    /// 0 if the request is under the limit.
    #[prost(int32, tag = "1")]
    status: i32,
    #[prost(string, tag = "5")]
    error: String,
    #[prost(map = "string, string", tag = "6")]
    metadata: HashMap<String, String>,
}

/// A client with one connection.
pub(super) struct Gubernator {
    runtime: Runtime,
    ports: Vec<u16>,
    /// Which of the servers is asked.
    at: usize,
    client: Grpc<Channel>,
    request: Limits,
    owner: Option<u16>,
}

impl Gubernator {
    pub(super) fn new(at: u32, ports: Vec<u16>, is_global: bool) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::io("cannot start the runtime"))?;
        let at = at as usize % ports.len();
        let limit = LimitedRequest {
            name: "shared".to_owned(),
            unique_key: "all".to_owned(),
            hits: 1,
            limit: RATE.into(),
            duration_ms: 1_000,
            algorithm: LEAKY_BUCKET,
            behavior: if is_global { GLOBAL } else { 0 },
            burst: RATE.into(),
        };
        let client = {
            let _runtime = runtime.enter();
            client(ports[at])?
        };
        Ok(Self {
            runtime,
            ports,
            at,
            client,
            request: Limits {
                requests: vec![limit],
            },
            owner: None,
        })
    }

    fn ask(&mut self) -> Result<Answers, Status> {
        let (client, request) = (&mut self.client, self.request.clone());
        let path = PathAndQuery::from_static("/pb.gubernator.V1/GetRateLimits");
        self.runtime.block_on(async {
            let ready = client.ready().await;
            ready.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::default();
            let answer = client.unary(Request::new(request), path, codec).await?;
            Ok(answer.into_inner())
        })
    }
}

impl Decider for Gubernator {
    fn decide(&mut self) -> Decision {
        let Ok(answers) = self.ask() else {
            // The next server may be there.
            self.at = (self.at + 1) % self.ports.len();
            let _runtime = self.runtime.enter();
            if let Ok(client) = client(self.ports[self.at]) {
                self.client = client;
            }
            return Decision::Failed;
        };
        let Some(answer) = answers.responses.first().filter(|one| one.error.is_empty()) else {
            return Decision::Failed;
        };
        let owner = answer.metadata.get("owner");
        let port = owner.and_then(|owner| owner.rsplit_once(':')?.1.parse().ok());
        self.owner = port.or(self.owner);
        Decision::of(answer.status == 0)
    }

    fn owner(&self) -> Option<u16> {
        self.owner
    }
}

fn client(port: u16) -> Result<Grpc<Channel>, Failure> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"));
    let endpoint = endpoint.map_err(Failure::peer)?.timeout(TIMEOUT);
    Ok(Grpc::new(endpoint.connect_lazy()))
}
