//! Pages of Parquet columns, bounded over all columns of a file that are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// Most bytes of decompressed pages that are held of all columns together: two pages of 1 MiB of some hundred columns.
const HELD_LEN_MAX: usize = 512 << 20;
/// Most values in the pages that a batch of rows of nested columns reads: a page of lists has some hundred thousand, and
/// a row has at most half a million that fit into a value.
const NESTED_VALUES_MAX: usize = 4 << 20;

/// What the pages of all columns hold.
#[derive(Debug, Default)]
pub(crate) struct PageBudget {
    held: AtomicUsize,
    /// Values in the pages of nested columns since the batch began.
    values: AtomicUsize,
}

impl PageBudget {
    /// Begins a batch of rows.
    pub(crate) fn begin_batch(&self) {
        self.values.store(0, Ordering::Relaxed);
    }
}

/// Reads the pages of a column.
pub(crate) struct BoundedPages {
    pub(crate) inner: Box<dyn PageReader>,
    pub(crate) budget: Arc<PageBudget>,
    pub(crate) is_nested: bool,
    /// Bytes of the dictionary and of the present page.
    pub(crate) held: [usize; 2],
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        let len = page.as_ref().map_or(0, |page| page.buffer().len());
        let is_dictionary = matches!(page, Some(Page::DictionaryPage { .. }));
        let before = std::mem::replace(&mut self.held[usize::from(!is_dictionary)], len);
        self.budget.held.fetch_sub(before, Ordering::Relaxed);
        let held = self.budget.held.fetch_add(len, Ordering::Relaxed) + len;
        if held > HELD_LEN_MAX {
            return Err(ParquetError::General(format!(
                "the pages of its columns have more than {} MiB at a time: write smaller pages, or read fewer columns",
                HELD_LEN_MAX >> 20
            )));
        }
        if let Some(page) = page.as_ref().filter(|_| self.is_nested && !is_dictionary) {
            let values = page.num_values() as usize;
            if self.budget.values.fetch_add(values, Ordering::Relaxed) + values > NESTED_VALUES_MAX
            {
                let message = "its lists are longer than a value can be, or its pages have millions of values";
                return Err(ParquetError::General(message.to_owned()));
            }
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

impl Iterator for BoundedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl Drop for BoundedPages {
    fn drop(&mut self) {
        let held = self.held.iter().sum();
        self.budget.held.fetch_sub(held, Ordering::Relaxed);
    }
}
