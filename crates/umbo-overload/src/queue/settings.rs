//! What may be set of a queue, and what a queue of writes is set to.

use umbo_types::RequestUnits;

use super::codel::CodelSettings;
use super::limit::LimitSettings;

/// What a queue is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// Bounds of the requests in flight.
    pub limit: LimitSettings,
    /// How much delay is normal.
    pub codel: CodelSettings,
    /// Share of the limit, in percent, that each tier keeps however much of higher ones waits; 0 to
    /// 25. Default 10.
    pub floor_percent: u32,
    /// Most that wait. Default 4,096.
    pub waiting_max: usize,
    /// Most that the estimates of those who wait may come to. A request that is more by itself waits
    /// alone. Default one million RU.
    pub work_max: RequestUnits,
}

/// Slots of a store that works on what it has gathered as one.
const GROUP_SLOTS: u32 = 128;

impl QueueSettings {
    /// The same for a store that gathers what it is given and does it as one, as it commits writes.
    ///
    /// The more such a store has the more it does, and the longer each takes: no knee is to be found by
    /// service times. So the limit are a fixed number, 128, or fewer where fewer are allowed.
    #[must_use]
    pub const fn for_groups(mut self) -> Self {
        let limit = if self.limit.max < GROUP_SLOTS {
            self.limit.max
        } else {
            GROUP_SLOTS
        };
        self.limit = LimitSettings {
            min: limit,
            max: limit,
            initial: limit,
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
