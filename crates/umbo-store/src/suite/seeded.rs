//! Seeded pseudo-random numbers: `SplitMix64` (Steele, Lea & Flood 2014). Equal seeds give equal tests.

/// A sequence that its seed decides.
#[derive(Debug)]
pub(super) struct Seeded(u64);

impl Seeded {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; the bias is of no matter for tests.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Says yes once in `n` times.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Returns up to `len_max` bytes from an alphabet in which the bytes that break codecs are
    /// common: 0x00, 0x01, 0xFE and 0xFF.
    pub(super) fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let len = self.below(len_max + 1);
        (0..len)
            .map(|_| *self.pick(&[0x00, 0x01, b'/', b'a', b'b', 0xFE, 0xFF]))
            .collect()
    }
}
