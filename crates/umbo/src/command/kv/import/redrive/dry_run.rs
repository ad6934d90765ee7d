//! `umbo dlq redrive --dry-run`: what would be sent where. Reads the versions of rows, as the redrive does, and writes
//! nothing, neither rows nor files.

use std::collections::BTreeMap;

use serde::Serialize;
use umbo_types::Namespace;

use super::{Arguments, CHUNK_LEN, CHUNK_LINES};
use crate::cli_error::CliError;
use crate::command::kv::import::checkpoint::Checkpoint;
use crate::command::kv::import::dead_letters::LetterLines;
use crate::command::kv::import::newer_rows::{self, RedriveLine, SentKeys};
use crate::connection::ConnectionArgs;
use crate::output;

/// What would be done with the lines of one namespace.
#[derive(Debug, Default, Serialize)]
struct Counts {
    namespace: String,
    /// Rows that would be sent.
    rows: u64,
    /// Rows that would not be sent because newer ones are there.
    left_alone: u64,
}

impl Arguments {
    /// Counts, and prints a line for each namespace.
    pub(super) async fn dry_run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let client = connection.bulk_client()?;
        let done = Checkpoint::load(&self.file)?.map_or(0, |known| known.lines);
        let (mut counts, mut sent) = (BTreeMap::<Namespace, Counts>::new(), SentKeys::new());
        let mut lines = LetterLines::open(&self.file)?;
        let mut kept = 0_u64;
        loop {
            let mut chunk = BTreeMap::<Namespace, Vec<Vec<u8>>>::new();
            let (mut read, mut len) = (0, 0);
            let mut line = Vec::new();
            while read < CHUNK_LINES && len < CHUNK_LEN {
                line.clear();
                let Some(number) = lines.next(&mut line)? else {
                    break;
                };
                read += 1;
                if number <= done {
                    continue;
                }
                len += line.len();
                match self.destination(&line) {
                    Some(namespace) => chunk.entry(namespace).or_default().push(line.clone()),
                    None => kept += 1,
                }
            }
            for (namespace, lines) in chunk {
                let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
                let all = lines.len() as u64;
                let mut left_alone = 0;
                if !self.overwrite {
                    let patience = self.transfer.patience;
                    let checked =
                        newer_rows::check(&client, &namespace, &lines, &mut sent, patience).await?;
                    let is_left = |line: &&RedriveLine| matches!(line, RedriveLine::LeaveAlone);
                    left_alone = checked.iter().filter(is_left).count() as u64;
                }
                let own = counts.entry(namespace).or_default();
                own.rows += all - left_alone;
                own.left_alone += left_alone;
            }
            if read == 0 {
                break;
            }
        }
        let counts: Vec<Counts> = counts
            .into_iter()
            .map(|(namespace, counts)| Counts {
                namespace: namespace.as_str().to_owned(),
                ..counts
            })
            .collect();
        let header = "NAMESPACE  WOULD-SEND  LEFT-ALONE";
        output::write_list(connection.listing_format(), &counts, header, |one| {
            vec![
                one.namespace.clone(),
                one.rows.to_string(),
                one.left_alone.to_string(),
            ]
        })?;
        if kept > 0 {
            output::note(&format!(
                "{kept} more are of other types, and would be kept"
            ));
        }
        output::note("nothing was sent: this was a dry run");
        Ok(())
    }
}
