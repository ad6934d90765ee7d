//! Pages of Parquet columns, with bounds over all columns of a file that are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

/// Most bytes of values that a batch of rows may hold. The footer cannot raise it.
pub(crate) const BATCH_LEN_MAX: usize = 256 << 20;
/// Most bytes of decompressed pages that are held of all columns together: two pages of 1 MiB of some hundred columns.
const HELD_LEN_MAX: usize = 512 << 20;
/// Most values in the pages that a batch of rows of nested columns reads: a page of lists has some hundred thousand,
/// and a value of 1 MiB has half a million.
const NESTED_VALUES_MAX: usize = 4 << 20;

/// The memory and the values of the pages of all columns.
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

/// Takes some of the bytes that values of a batch of this many rows may still have.
pub(crate) fn take_room(room: &mut usize, len: usize, rows: usize) -> Result<()> {
    *room = room.checked_sub(len).ok_or_else(|| {
        let mib = BATCH_LEN_MAX >> 20;
        ParquetError::General(format!("{rows} of its rows have more than {mib} MiB"))
    })?;
    Ok(())
}

/// Reads the pages of a column. A page that is looked at ahead is read as a whole: only in this way does the library
/// open a reader only at the header of a page.
pub(crate) struct BoundedPages {
    inner: Box<dyn PageReader>,
    budget: Arc<PageBudget>,
    is_nested: bool,
    /// The page that was looked at ahead.
    ahead: Option<Page>,
    /// Bytes of the dictionary, of the present page and of the one ahead.
    held: [usize; 3],
}

impl BoundedPages {
    /// Reads pages of a column, which is nested or not, within the budget of its file.
    pub(crate) fn new(
        inner: Box<dyn PageReader>,
        budget: &Arc<PageBudget>,
        is_nested: bool,
    ) -> Self {
        Self {
            inner,
            budget: Arc::clone(budget),
            is_nested,
            ahead: None,
            held: [0; 3],
        }
    }

    /// Counts a page in place of the one before it.
    fn hold(&mut self, place: usize, len: usize) -> Result<()> {
        let before = std::mem::replace(&mut self.held[place], len);
        self.budget.held.fetch_sub(before, Ordering::Relaxed);
        let held = self.budget.held.fetch_add(len, Ordering::Relaxed) + len;
        if held > HELD_LEN_MAX {
            return Err(ParquetError::General(format!(
                "the pages of its columns have more than {} MiB at a time: write smaller pages, or read fewer columns",
                HELD_LEN_MAX >> 20
            )));
        }
        Ok(())
    }
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.hold(2, 0)?;
        let page = match self.ahead.take() {
            Some(page) => Some(page),
            None => self.inner.get_next_page()?,
        };
        let is_dictionary = matches!(page, Some(Page::DictionaryPage { .. }));
        let len = page.as_ref().map_or(0, |page| page.buffer().len());
        self.hold(usize::from(!is_dictionary), len)?;
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
        if self.ahead.is_none() {
            self.ahead = self.inner.get_next_page()?;
            let len = self.ahead.as_ref().map_or(0, |page| page.buffer().len());
            self.hold(2, len)?;
        }
        let (num_rows, is_dict) = match &self.ahead {
            None => return Ok(None),
            Some(Page::DataPage { .. }) => (None, false),
            Some(Page::DataPageV2 { num_rows, .. }) => (Some(*num_rows as usize), false),
            Some(Page::DictionaryPage { .. }) => (None, true),
        };
        let values = self.ahead.as_ref().map(|page| page.num_values() as usize);
        Ok(Some(PageMetadata {
            num_rows,
            num_levels: values.filter(|_| !is_dict),
            is_dict,
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.get_next_page().map(drop)
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
