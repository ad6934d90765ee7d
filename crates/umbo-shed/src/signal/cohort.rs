//! Cohorts: 128 equal parts of a tier, so that a part of it can be shed before all of it.
//!
//! A caller belongs to one cohort for an hour, and to another one in the next, so that the same
//! callers are not always the first.

/// Cohorts of a tier.
pub const COHORTS: u8 = 128;

/// Returns the cohort of a caller in an epoch, below [`COHORTS`]. `caller` is a hash.
#[inline]
pub const fn cohort(caller: u64, epoch: u32) -> u8 {
    // The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
    let mut mixed = caller ^ (epoch as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> 57) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cohorts_are_about_equal_and_change_by_epoch() {
        let mut sizes = [0_u32; COHORTS as usize];
        let mut stayed = 0;
        for caller in 0..128_000 {
            sizes[usize::from(cohort(caller, 5))] += 1;
            stayed += u32::from(cohort(caller, 5) == cohort(caller, 6));
        }
        assert!(
            sizes.iter().all(|size| (850..1_150).contains(size)),
            "{sizes:?}"
        );
        assert!((800..1_200).contains(&stayed), "{stayed}");
    }
}
