//! The class of work whose price an overload multiplies, as an operator sets it.

use umbo_types::Criticality;

/// Tiers and callers whose prices are multiplied, lowest tier first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesignatedClass {
    /// The highest tier of the class. Default `sheddable-plus`.
    tier_max: Criticality,
    /// Sorted hashes of the callers of the class. `None` if the class has all callers; then callers above their fair
    /// share come first.
    callers: Option<Box<[u64]>>,
}

impl Default for DesignatedClass {
    fn default() -> Self {
        Self::new(Criticality::SheddablePlus, None)
    }
}

impl DesignatedClass {
    /// Designates the tiers up to `tier_max`, and in them the callers with these hashes, or all callers.
    pub fn new(tier_max: Criticality, callers: Option<Vec<u64>>) -> Self {
        let callers = callers.map(|mut callers| {
            callers.sort_unstable();
            callers.into_boxed_slice()
        });
        Self { tier_max, callers }
    }

    /// Returns the highest tier of the class.
    pub const fn tier_max(&self) -> Criticality {
        self.tier_max
    }

    /// Returns whether the class names its callers.
    pub(crate) const fn names_callers(&self) -> bool {
        self.callers.is_some()
    }

    /// Returns whether the class has a caller, in any tier.
    pub(crate) fn has_caller(&self, caller: u64) -> bool {
        let callers = self.callers.as_ref();
        callers.is_none_or(|callers| callers.binary_search(&caller).is_ok())
    }
}
