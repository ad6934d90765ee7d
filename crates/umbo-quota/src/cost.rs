//! The cost model: what a request costs in request units.
//!
//! ```text
//! reads   1 + 0.05 × rows + bytes read    / 4096 + 0.1 × milliseconds
//! writes  6 + 0.05 × rows + bytes written / 4096 + 0.1 × milliseconds
//! ```
//!
//! The weights are settings with a version. Milliseconds are the store's service time, without our own queues. The
//! number of milliseconds that are charged is decided outside of this crate, where the overload of a shard is known.
//! Everything is integer micro-RU. Fractions of a micro-RU are rounded up, once each for bytes read, bytes written and
//! time.

use std::time::Duration;

use umbo_types::{Key, Operation, PartitionKey, RequestUnits};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::unit::Unit;

/// Bytes that cost one weight of bytes.
const BYTES: u64 = 4_096;

/// Weights of the cost model. Each is at most [`Weights::HIGHEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weights {
    /// Version of the weights; every explanation of a price names it.
    pub version: u32,
    /// Any read.
    pub read_base: RequestUnits,
    /// Any write.
    pub write_base: RequestUnits,
    /// A row read or written.
    pub row: RequestUnits,
    /// 4,096 bytes read.
    pub read_bytes: RequestUnits,
    /// 4,096 bytes written.
    pub write_bytes: RequestUnits,
    /// A millisecond of the store's service time.
    pub latency_ms: RequestUnits,
}

impl Default for Weights {
    fn default() -> Self {
        let micros = RequestUnits::from_micros;
        Self {
            version: 1,
            read_base: micros(1_000_000),
            write_base: micros(6_000_000),
            row: micros(50_000),
            read_bytes: micros(1_000_000),
            write_bytes: micros(1_000_000),
            latency_ms: micros(100_000),
        }
    }
}

/// The work that the store did for a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActualUsage {
    /// Rows read or written.
    pub rows: u64,
    /// Bytes of keys and values read.
    pub read_bytes: u64,
    /// Bytes of keys and values written.
    pub write_bytes: u64,
    /// Reads: 1 for a get, range or scan, the keys of a multi-get.
    pub reads: u64,
    /// Rows written or removed.
    pub writes: u64,
    /// Charged part of the store's service time for this request alone, without our own queues.
    pub service_time: Duration,
}

impl Weights {
    /// Highest weight.
    pub const HIGHEST: RequestUnits = RequestUnits::from_micros(1_000_000_000);

    /// Returns the price of work done.
    #[inline]
    pub fn price(&self, operation: Operation, work: &ActualUsage) -> RequestUnits {
        let base = if operation.is_write() {
            self.write_base
        } else {
            self.read_base
        };
        let micros = base
            .as_micros()
            .saturating_add(self.row.as_micros().saturating_mul(work.rows))
            .saturating_add(weighed(self.read_bytes, work.read_bytes))
            .saturating_add(weighed(self.write_bytes, work.write_bytes))
            .saturating_add(self.time(nanos(work.service_time)));
        RequestUnits::from_micros(micros)
    }

    #[inline]
    fn time(&self, nanos: u64) -> u64 {
        let weight = self.latency_ms.as_micros();
        match nanos.checked_mul(weight) {
            Some(product) => product.div_ceil(1_000_000),
            None => (nanos / 1_000_000).saturating_mul(weight),
        }
    }
}

/// Returns a duration in whole nanoseconds.
#[inline]
fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

#[inline]
fn weighed(weight: RequestUnits, bytes: u64) -> u64 {
    // Reads write nothing, and most writes read nothing.
    if bytes == 0 {
        return 0;
    }
    match weight.as_micros().checked_mul(bytes) {
        Some(product) => product.div_ceil(BYTES),
        None => weight.as_micros().saturating_mul(bytes / BYTES),
    }
}

/// Facts about a request before its work is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostHint {
    /// Most rows it can touch.
    pub rows_max: Option<u64>,
    /// Most bytes it can read.
    pub bytes_max: Option<u64>,
    /// Length of its body, if the client announces it.
    pub body_len: Option<u64>,
    /// Hash of the one row, partition or segment that the request reads; 0 if it reads several.
    pub place: u64,
}

impl CostHint {
    /// Returns the hash of a row.
    #[inline]
    pub fn place_of(key: &Key) -> u64 {
        let partition = Self::place_of_partition(&key.partition);
        xxh3_64_with_seed(key.sort.as_bytes(), partition).max(1)
    }

    /// Returns the hash of a partition.
    #[inline]
    pub fn place_of_partition(partition: &PartitionKey) -> u64 {
        xxh3_64(partition.as_bytes()).max(1)
    }
}

/// The charge of one request in every unit that a policy can count. Kept as counts, so that a unit that no policy
/// counts is not computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CostByUnit {
    /// In micro-RU.
    pub(crate) ru: u64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    write_bytes: u64,
}

/// Returns whether a unit counts the work of an operation.
pub(crate) const fn is_counted(unit: Unit, operation: Operation) -> bool {
    match unit {
        Unit::Ru | Unit::Requests | Unit::Bytes => true,
        Unit::Reads | Unit::ReadBytes => !operation.is_write(),
        Unit::Writes | Unit::WriteBytes => operation.is_write(),
    }
}

/// Highest charge of one request in any unit, in atoms: far below where sums could wrap around.
const CHARGE_MAX: u64 = 1 << 55;

impl CostByUnit {
    /// Returns the charge of one request that did `work` at a price.
    #[inline]
    pub(crate) fn of(price: RequestUnits, work: &ActualUsage) -> Self {
        Self {
            ru: price.as_micros().min(CHARGE_MAX),
            reads: work.reads,
            writes: work.writes,
            read_bytes: work.read_bytes,
            write_bytes: work.write_bytes,
        }
    }

    /// Returns the charge in a unit, in its atoms.
    #[inline]
    pub(crate) fn in_unit(&self, unit: Unit) -> u64 {
        if unit == Unit::Ru {
            return self.ru;
        }
        self.counted_in(unit)
    }

    // Not inlined, so that no amount is computed before a policy asks for it.
    #[inline(never)]
    fn counted_in(&self, unit: Unit) -> u64 {
        let one = Unit::Requests.atoms_per_unit();
        let counted = |number: u64| number.saturating_mul(one).min(CHARGE_MAX);
        match unit {
            Unit::Ru => self.ru,
            Unit::Requests => one,
            Unit::Reads => counted(self.reads),
            Unit::Writes => counted(self.writes),
            Unit::ReadBytes => self.read_bytes.min(CHARGE_MAX),
            Unit::WriteBytes => self.write_bytes.min(CHARGE_MAX),
            Unit::Bytes => self.read_bytes.min(CHARGE_MAX) + self.write_bytes.min(CHARGE_MAX),
        }
    }

    /// Returns the larger of both in each unit.
    pub(crate) fn max(&self, other: &Self) -> Self {
        Self {
            ru: self.ru.max(other.ru),
            reads: self.reads.max(other.reads),
            writes: self.writes.max(other.writes),
            read_bytes: self.read_bytes.max(other.read_bytes),
            write_bytes: self.write_bytes.max(other.write_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(operation: Operation, work: ActualUsage) -> String {
        Weights::default().price(operation, &work).to_string()
    }

    #[test]
    fn prices_are_those_of_the_model() {
        let work = ActualUsage {
            rows: 1,
            read_bytes: 256,
            reads: 1,
            ..ActualUsage::default()
        };
        assert_eq!(price(Operation::Get, work), "1.1125");
        let work = ActualUsage {
            rows: 1,
            write_bytes: 8_192,
            writes: 1,
            service_time: Duration::from_millis(5),
            ..ActualUsage::default()
        };
        assert_eq!(price(Operation::Put, work), "8.55");
        let work = ActualUsage {
            rows: 100_000,
            read_bytes: 25_600_000,
            reads: 1,
            ..ActualUsage::default()
        };
        assert_eq!(price(Operation::Range, work), "11251");
        assert_eq!(price(Operation::Get, ActualUsage::default()), "1");
    }

    #[test]
    fn a_part_of_a_micro_ru_is_rounded_up_and_nothing_overflows() {
        let work = ActualUsage {
            read_bytes: 1,
            ..ActualUsage::default()
        };
        assert_eq!(price(Operation::Get, work), "1.000245");
        let work = ActualUsage {
            service_time: Duration::from_nanos(1),
            ..ActualUsage::default()
        };
        assert_eq!(price(Operation::Get, work), "1.000001");
        let work = ActualUsage {
            rows: u64::MAX,
            read_bytes: u64::MAX,
            write_bytes: u64::MAX,
            reads: u64::MAX,
            writes: u64::MAX,
            service_time: Duration::MAX,
        };
        let price = Weights::default().price(Operation::Scan, &work);
        assert_eq!(
            CostByUnit::of(price, &work).in_unit(Unit::Bytes),
            CHARGE_MAX * 2
        );
    }
}
