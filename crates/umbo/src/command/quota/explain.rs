//! `umbo quota explain`: what a request would cost, which shards it would reach and which policies apply to
//! it.

use clap::Args;
use serde_json::json;
use umbo_api::batch::KeyFields;
use umbo_api::quota::{ExplainAnswer, ExplainBody, ExplainPolicy};
use umbo_types::Namespace;

use crate::cli_error::{CliError, usage};
use crate::command::kv::Key;
use crate::connection::ConnectionArgs;
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo quota explain`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// get, put, touch, increment, delete, range, delete-range, multi-get, batch-write or scan
    operation: String,
    /// Partition key; for a multi-get or batch-write, the first one
    pk: Option<Key>,
    /// Sort key; for a multi-get or batch-write, more partition keys
    sk: Vec<Key>,
    /// Most rows; of a range, delete-range or scan
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Most bytes of keys and values; of a range or scan
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    max_bytes: Option<u64>,
    /// Length of the value of a put or of the body of a batch-write
    #[arg(long, value_name = "BYTES")]
    bytes: Option<u64>,
    /// With an idempotency key; of a write
    #[arg(long)]
    idempotent: bool,
}

impl Arguments {
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let body = self.body()?;
        let client = connection.client()?;
        let answer = client.explain(self.ns.as_str(), &body).await?;
        output::write_report(connection.listing_format(), &answer, || report(&answer))
    }

    fn body(&self) -> Result<ExplainBody, CliError> {
        let mut body = ExplainBody {
            operation: self.operation.clone(),
            limit: self.limit,
            max_bytes: self.max_bytes,
            bytes: self.bytes,
            idempotent: self.idempotent.then_some(true),
            ..ExplainBody::default()
        };
        let Some(partition) = &self.pk else {
            return Ok(body);
        };
        if matches!(self.operation.as_str(), "multi-get" | "batch-write") {
            let keys = std::iter::once(partition).chain(&self.sk);
            body.keys = keys.map(|key| KeyFields::of(&key.0, b"")).collect();
            return Ok(body);
        }
        let sort = match self.sk.as_slice() {
            [] => &[][..],
            [sort] => &sort.0,
            _ => return Err(usage!("a row has one sort key")),
        };
        let KeyFields { pk, pk64, sk, sk64 } = KeyFields::of(&partition.0, sort);
        (body.pk, body.pk64) = (pk, pk64);
        if !sort.is_empty() {
            (body.sk, body.sk64) = (sk, sk64);
        }
        Ok(body)
    }
}

fn report(answer: &ExplainAnswer) -> Result<(), CliError> {
    let breakdown = &answer.breakdown;
    let parts = [
        ("base", breakdown.base),
        ("rows", breakdown.rows),
        ("read-bytes", breakdown.read_bytes),
        ("write-bytes", breakdown.write_bytes),
        ("latency", breakdown.latency),
        ("penalty", breakdown.penalty),
        ("estimate", answer.estimate_ru),
    ];
    let lines = parts.map(|(part, ru)| json!({"part": part, "ru": ru}));
    Listing::new("PART  RU").write(Format::Table, &lines)?;
    output::write_bytes(b"\n")?;
    Listing::new("SHARD  SHARE").write(Format::Table, &answer.shards)?;
    output::write_bytes(b"\n")?;
    Listing::new(
        "POLICY  MODE  SCOPE  SHARD  USER  UNIT  RATE  BURST  BALANCE  PRICE  ADMITS  WAIT-MS",
    )
    .with("POLICY", |policy: &ExplainPolicy| policy.name.clone())
    .with("USER", |policy| policy.label.clone())
    .write(Format::Table, &answer.policies)?;
    match answer.samples {
        0 => note!("the estimate uses the request alone"),
        samples => note!(
            "the estimate uses past requests: {}",
            output::counted(samples, "request")
        ),
    }
    Ok(())
}
