//! Settings of a queue, and of a queue of writes.

use umbo_types::RequestUnits;

use super::codel::CodelSettings;
use super::limit::LimitSettings;

/// Settings of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Bounds of the requests in flight.
    pub limit: LimitSettings,
    /// The normal delay.
    pub codel: CodelSettings,
    /// Share of the limit, in percent, that each tier keeps while higher tiers wait; 0 to 25. Default 10.
    /// 25. Default 10.
    pub floor_percent: u32,
    /// Most requests that wait. Default 4,096.
    pub waiting_max: usize,
    /// Largest sum of the estimates of the requests that wait. A request with a larger estimate waits alone. Default
    /// one million RU.
    pub work_max: RequestUnits,
}

/// Permits of a store that commits the requests it has gathered as one group.
const GROUP_PERMITS: u32 = 128;

impl QueueSettings {
    /// Returns the same settings for a store that gathers requests and does them as one group, as it commits writes.
    ///
    /// The more requests such a store has, the more it does at once, and the longer each takes: service times show no
    /// knee. So the limit is a fixed number: 128, or `limit.max` if that is less.
    #[must_use]
    pub const fn for_groups(self) -> Self {
        let limit = if self.limit.max < GROUP_PERMITS {
            self.limit.max
        } else {
            GROUP_PERMITS
        };
        self.with_permits(limit)
    }

    /// Returns the same settings for heavy requests. They have one permit until it is known how many have room.
    #[must_use]
    pub const fn for_heavy_work(self) -> Self {
        self.with_permits(1)
    }

    const fn with_permits(mut self, permits: u32) -> Self {
        self.limit = LimitSettings {
            min: permits,
            max: permits,
            initial: permits,
        };
        self
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            limit: LimitSettings::default(),
            codel: CodelSettings::default(),
            floor_percent: 10,
            waiting_max: 4_096,
            work_max: RequestUnits::from_micros(1_000_000_000_000),
        }
    }
}
