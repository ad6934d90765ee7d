//! `umbo kv put`: one row from the command line, a file or stdin.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::fs::FileType;
use serde_json::{Value, json};
use umbo_api::admin::DurabilitySetting;
use umbo_api::key_text::KeyTextError;
use umbo_client::{Condition, PutOptions, ValueSource};
use umbo_types::Namespace;
use umbo_types::limits::{LARGE_VALUE_LEN_MAX, VALUE_LEN_MAX};

use super::argument::{Key, condition, partition_key, read_file, ttl};
use crate::cli_error::{CliError, usage};
use crate::connection::ConnectionArgs;
use crate::output::{Listing, note};

/// Arguments of `umbo kv put`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Partition key
    #[arg(value_parser = partition_key)]
    pk: Key,
    /// Sort key [default: empty] and value as text; the value is read from stdin if it is - or absent
    #[arg(value_names = ["SK", "VALUE"], num_args = 0..=2, allow_negative_numbers = true)]
    words: Vec<String>,
    /// Sort key, in place of the one before the value
    #[arg(long, value_name = "SK")]
    sk: Option<Key>,
    /// Value as text; it may be - or begin with -
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        conflicts_with = "file"
    )]
    value: Option<String>,
    /// File that holds the value, of up to 64 MiB
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Time to live (like 90s, 10m, 30d) [default: the namespace's default]
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Media type to store with the value
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Content encoding to store with the value
    #[arg(long, value_name = "ENCODING")]
    content_encoding: Option<String>,
    /// Store only if the row has this version ('*': any)
    #[arg(long, value_name = "VERSION", value_parser = condition)]
    if_match: Option<Condition>,
    /// Store only if there is no row
    #[arg(long, conflicts_with = "if_match")]
    if_absent: bool,
    /// When the write is acknowledged
    #[arg(long, value_enum)]
    durability: Option<DurabilityOption>,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DurabilityOption {
    /// Once it is on the disk
    Sync,
    /// Once readers see it
    Async,
}

impl From<DurabilityOption> for DurabilitySetting {
    fn from(durability: DurabilityOption) -> Self {
        match durability {
            DurabilityOption::Sync => Self::Sync,
            DurabilityOption::Async => Self::Async,
        }
    }
}

/// Returns the length of a file with a large value, which is sent in pieces. Returns `None` for other files, and for
/// stdin, which can be read only once.
fn large_len(file: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(file).ok()?;
    let is_large = file.as_os_str() != "-" && metadata.is_file();
    Some(metadata.len()).filter(|len| is_large && *len > VALUE_LEN_MAX as u64)
}

/// Returns whether stdin is a file, a pipe or a socket. Earlier versions read the value there if one word, the sort key,
/// follows the partition key.
fn is_redirected() -> bool {
    let stat = rustix::fs::fstat(std::io::stdin());
    let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(
        kind,
        Ok(FileType::RegularFile | FileType::Fifo | FileType::Socket)
    )
}

impl Arguments {
    /// Returns the sort key, and the value if the command line has it as text.
    fn sort_and_text(&self) -> Result<(Key, Option<String>), CliError> {
        let is_named = self.value.is_some() || self.file.is_some();
        let (sort, value) = match &self.words[..] {
            // As in earlier versions: with --value or --file, the word is the sort key.
            [sort] if is_named => (Some(sort), None),
            [word] if self.sk.is_none() && word != "-" && is_redirected() => {
                return Err(usage!(
                    "'{word}' is a value or a sort key, as stdin is redirected: --value {word} stores it, and NS PK {word} - \
                     stores what stdin has"
                ));
            }
            [value] => (None, Some(value)),
            [sort, value] => (Some(sort), Some(value)),
            _ => (None, None),
        };
        if (is_named && value.is_some()) || (self.sk.is_some() && sort.is_some()) {
            return Err(usage!(
                "the value and the sort key can be given once: NS PK [SK] VALUE, or --sk, --value and --file"
            ));
        }
        let sort = sort.map(|sort| sort.parse()).transpose();
        let sort = sort.map_err(|error: KeyTextError| usage!("{error}"))?;
        let sort = sort.or_else(|| self.sk.clone()).unwrap_or_default();
        let text = self.value.clone();
        Ok((
            sort,
            text.or_else(|| value.filter(|text| *text != "-").cloned()),
        ))
    }

    /// Stores the row and prints its version.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let file = self.file.as_deref().unwrap_or(Path::new("-"));
        let absent = self.if_absent.then_some(Condition::Absent);
        let condition = self.if_match.or(absent).unwrap_or_default();
        let options = PutOptions {
            ttl: self.ttl,
            expires_at: None,
            content_type: self.content_type.clone(),
            content_encoding: self.content_encoding.clone(),
            condition,
            durability: self.durability.map(Into::into),
        };
        let (sort, text) = self.sort_and_text()?;
        let (client, ns, pk, sk) = (connection.client()?, self.ns.as_str(), &self.pk.0, &sort.0);
        let written = if let Some(text) = text {
            client.put(ns, pk, sk, text, &options).await?
        } else if let Some(len) = large_len(file) {
            let source = ValueSource::file(file.to_owned(), len);
            client.put_stream(ns, pk, sk, &source, &options).await?
        } else {
            if self.file.is_none() && std::io::stdin().is_terminal() {
                note!("the value is read from here, up to Ctrl-D");
            }
            let value = read_file(file, LARGE_VALUE_LEN_MAX as usize)?;
            client.put(ns, pk, sk, value, &options).await?
        };
        let answer = json!({"created": written.is_new, "version": written.version});
        Listing::new("DONE  VERSION")
            .with("DONE", |answer: &Value| {
                let is_new = answer["created"] == true;
                if is_new { "created" } else { "replaced" }.to_owned()
            })
            .write_one(connection.listing_format(), &answer)
    }
}
