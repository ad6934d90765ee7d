//! What checking and applying share: the parts of a load, whether it is still to be worked on, and waiting.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use umbo_types::NamespaceId;

use crate::host::Host;
use crate::journal::{Journal, Stop};
use crate::layout::{self, PartRecord};
use crate::limits::BEAT;
use crate::record::{LoadRecord, shortened};
use crate::stored_rows::read_json_rows;

/// Longest wait before something is tried again.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Waits, and says what for.
pub(super) async fn wait(
    host: &Host,
    id: &str,
    journal: &mut Journal,
    after: Duration,
    reason: &str,
    tries: &mut u32,
) -> Result<(), Stop> {
    if *tries == 0 {
        tracing::info!(load = id, reason, "a load waits");
    }
    journal.waits_for(Some(shortened(reason)));
    // What is refused again and again is asked for less and less often.
    let factor = 1_u32 << (*tries).min(5);
    *tries += 1;
    let mut left = after
        .max(Duration::from_millis(10))
        .saturating_mul(factor.div_ceil(2));
    left = left.min(WAIT_MAX.max(after));
    while !left.is_zero() {
        let step = left.min(BEAT);
        sleep(step).await;
        left -= step;
        continues(host, id)?;
        // The store that says that it has no room may be the one that this row is in.
        match journal.write().await {
            Ok(()) | Err(Stop::Later { .. }) => {}
            Err(end) => return Err(end),
        }
    }
    Ok(())
}

/// Returns the load while it is to be worked on.
pub(super) fn continues(host: &Host, id: &str) -> Result<Arc<LoadRecord>, Stop> {
    let load = host.load(id).filter(|load| load.is_to_run());
    load.ok_or(Stop::LetGo)
}

/// The parts of a sealed load, by number.
pub(super) struct Parts(Vec<PartRecord>);

impl Parts {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) async fn read(host: &Host, load: &LoadRecord) -> Result<Self, Stop> {
        let report: NamespaceId = load.report_id();
        let found = read_json_rows::<_, PartRecord>(host, report, layout::PARTS).await?;
        let count = load.parts.unwrap_or(0) as usize;
        let parts: Vec<PartRecord> = found
            .into_iter()
            .zip(0..count)
            .take_while(|((number, _), at)| usize::from(*number) == *at)
            .map(|((_, part), _)| part)
            .collect();
        if parts.len() < count {
            return Err(Stop::Failed(format!("part {} is not there", parts.len())));
        }
        Ok(Self(parts))
    }

    /// Returns the parts from a number on.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = (u16, &PartRecord)> {
        let parts = self.0.iter().enumerate().skip(number as usize);
        parts.map(|(number, part)| (number as u16, part))
    }
}
