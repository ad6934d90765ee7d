//! What a load reports of its rows.

use umbo_loads::layout::{self, PartProgress};
use umbo_store::SortRange;

use super::super::*;
use super::fake_host::{FakeHost, REPORT};
use crate::stored_rows::{all_rows, whole};

impl FakeHost {
    /// Returns what is reported of a part.
    pub(super) async fn progress(self: &Arc<Self>, part: u16) -> PartProgress {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let key = layout::part_key(layout::PROGRESS, part);
        let found = read_json(&Host::new(host), REPORT, &key).await;
        found.unwrap().unwrap().0
    }

    /// Returns how many rejects are reported.
    pub(super) async fn rejects(self: &Arc<Self>) -> u64 {
        let host: Arc<dyn LoadHost> = Arc::<Self>::clone(self);
        let partition = layout::report_partition(layout::REJECTS);
        let mut rejects = 0;
        let request = whole(REPORT, partition, SortRange::default());
        let listed = all_rows(&Host::new(host), request, |_| rejects += 1).await;
        listed.unwrap();
        rejects
    }
}
