//! The pages of a file that may have been written since its transaction began.
//!
//! Owns a fixed number of bits, each shared by many pages, so that a read checks a page without a lock. It may report a
//! page that was not written, but never misses a written one. A failed read of a reported page is returned to redb,
//! which costs an opening of the file; unwinding there would poison a lock ([`crate::bad_read`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes of redb's smallest page; all begin at a multiple of it.
const PAGE_LEN: u64 = 4 << 10;
/// Words of 64 pages each: neighbours in 128 MiB of a file differ, and a file takes 4 KiB of memory.
const WORDS: usize = 512;

/// Pages written.
#[derive(Debug)]
pub(crate) struct WrittenPages {
    words: Box<[AtomicU64]>,
    /// Whether any page was written, so that a transaction that fits the cache clears nothing.
    is_any: AtomicBool,
}

impl Default for WrittenPages {
    fn default() -> Self {
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            is_any: AtomicBool::new(false),
        }
    }
}

impl WrittenPages {
    /// Records a page before it is written.
    pub(crate) fn insert(&self, offset: u64) {
        let (word, bit) = self.place(offset);
        word.fetch_or(bit, Relaxed);
        self.is_any.store(true, Relaxed);
    }

    /// Returns whether a page may have been written. A thread that can reach a page of a transaction holds a lock of
    /// redb that the writer of the page held before.
    pub(crate) fn may_hold(&self, offset: u64) -> bool {
        let (word, bit) = self.place(offset);
        word.load(Relaxed) & bit != 0
    }

    /// Forgets all pages. To be called before a transaction begins, when it has no pages yet, and after it has ended.
    pub(crate) fn clear(&self) {
        if self.is_any.swap(false, Relaxed) {
            for word in &self.words {
                word.store(0, Relaxed);
            }
        }
    }

    fn place(&self, offset: u64) -> (&AtomicU64, u64) {
        let page = offset / PAGE_LEN;
        let word = (page / u64::from(u64::BITS)) as usize % WORDS;
        (&self.words[word], 1 << (page % u64::from(u64::BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_missed_and_few_others_are_taken_for_one() {
        let pages = WrittenPages::default();
        let all = (0..WORDS as u64 * 64).map(|page| page * PAGE_LEN);
        assert!(!all.clone().any(|page| pages.may_hold(page)));
        let is_written = |page: &u64| page.is_multiple_of(3 * PAGE_LEN);
        all.clone()
            .filter(is_written)
            .for_each(|page| pages.insert(page));
        assert!(
            all.clone()
                .all(|page| pages.may_hold(page) == is_written(&page))
        );
        let far = 1 << 40;
        pages.insert(far);
        assert!(pages.may_hold(far));
        pages.clear();
        assert!(!all.chain([far]).any(|page| pages.may_hold(page)));
    }
}
