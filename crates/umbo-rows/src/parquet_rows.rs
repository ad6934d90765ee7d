//! Parquet: columns in, rows out. Holds a batch of rows and their pages.
//!
//! The library decodes untrusted bytes: it is called behind `catch_unwind`, and a page or a footer that claims to
//! be larger than the bounds here is refused before memory is taken for it.

use std::io::{self, BufReader, Chain, Cursor, Read, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::basic::Repetition;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader as _, Length, SerializedFileReader};
use parquet::schema::types::Type;

use crate::error::RowsError;
use crate::format::Columns;
use crate::parquet_nested::{ColumnNode, LeafRun};
use crate::parquet_pages::{BATCH_LEN_MAX, BoundedPages, PageBudget, take_room};
use crate::parquet_type::{ColumnKind, ToCell};
use crate::row::{EXCERPT_LEN_MAX, ReadRow, RejectReason, RejectedRow};
use crate::source::ReadSeek;
use crate::table::{Cell, Cells, Table};

/// Longest page, decompressed, in bytes. Writers make pages of about 1 MiB; one with a value of 1 MiB is larger.
const PAGE_LEN_MAX: u64 = 64 << 20;
/// Longest footer, in bytes: some thousand row groups of some hundred columns.
const FOOTER_LEN_MAX: u64 = 16 << 20;
/// Bytes of values that a batch of rows is to hold.
const BATCH_BYTES: u64 = 2 << 20;
/// Bytes that a value of a nested column takes at least, with its levels.
const NESTED_CELL_LEN: i64 = 48;
/// Most rows of a batch.
const BATCH_ROWS_MAX: u64 = 1_024;
/// Bytes of the header of a page that have its type and length: two fields of at most six bytes.
const LENGTHS_LEN: u64 = 12;
const MAGIC: &[u8] = b"PAR1";
/// Length of the end of a file: the footer's length and the magic.
const TAIL_LEN: u64 = 8;

/// Reads rows of Parquet.
pub(crate) struct ParquetRows {
    file: SerializedFileReader<Chunks>,
    chunks: Chunks,
    table: Table,
    columns: Vec<ReadColumn>,
    budget: Arc<PageBudget>,
    /// Row groups that are read or being read.
    groups: usize,
    /// Readers of the leaves of the columns, in order.
    readers: Vec<ColumnReader>,
    /// Rows of the present group that are not in a batch yet.
    left: u64,
    batch_rows: u64,
    /// Cells of a batch: for each column of the file, one for each row.
    batch: Vec<Vec<Cell>>,
    /// The next row of the batch, and their number.
    at: usize,
    len: usize,
    /// Rows so far.
    row: u64,
}

/// A column that is read.
struct ReadColumn {
    column: usize,
    /// The first leaf, and how values of the leaves become cells.
    leaf: usize,
    kinds: Vec<ColumnKind>,
    /// Parts of a nested column.
    node: Option<ColumnNode>,
}

impl ParquetRows {
    /// Reads the footer, and checks the columns.
    pub(crate) fn new(
        source: Box<dyn ReadSeek + Send>,
        columns: &Columns,
    ) -> Result<Self, RowsError> {
        let chunks = Chunks::new(source)?;
        let file = chunks.guarded(|| SerializedFileReader::new(chunks.clone()))?;
        chunks.lock().has_footer = true;
        let descriptor = file.metadata().file_metadata().schema_descr_ptr();
        let fields = descriptor.root_schema().get_fields();
        let names = fields.iter().map(|field| field.name().as_bytes());
        let table = Table::new(names, columns)?;
        let (mut used, read, mut leaf) = (Vec::new(), table.read(), 0);
        for (column, field) in fields.iter().enumerate() {
            if read[column] {
                let (is_key, mut kinds, mut node) = (table.is_key(column), Vec::new(), None);
                let is_repeated = field.get_basic_info().repetition() == Repetition::REPEATED;
                if field.is_primitive() && !is_repeated {
                    kinds.push(ColumnKind::of_leaf(field, is_key)?);
                } else if is_key {
                    return Err(ColumnKind::refusal(field, true));
                } else {
                    node = Some(ColumnNode::of(field, (0, 0), &mut kinds)?);
                }
                used.push(ReadColumn {
                    column,
                    leaf,
                    kinds,
                    node,
                });
            }
            leaf += leaves(field);
        }
        Ok(Self {
            batch: vec![Vec::new(); table.len()],
            file,
            chunks,
            table,
            columns: used,
            budget: Arc::default(),
            groups: 0,
            readers: Vec::new(),
            left: 0,
            batch_rows: 1,
            at: 0,
            len: 0,
            row: 0,
        })
    }

    /// Returns the number of the last row.
    pub(crate) const fn row(&self) -> u64 {
        self.row
    }

    /// Returns the next row, or `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ReadRow>, RowsError> {
        if self.at == self.len {
            let chunks = self.chunks.clone();
            chunks.guarded(|| self.read_batch())?;
            if self.len == 0 {
                return Ok(None);
            }
        }
        self.row += 1;
        let cells = BatchRow {
            batch: &self.batch,
            row: self.at,
            table: &self.table,
        };
        let row = self.table.row(&cells);
        let row = row.map_err(|reason| RejectedRow {
            line: self.row,
            reason,
            bytes: cells.excerpt(&self.columns),
        });
        self.at += 1;
        Ok(Some(row))
    }

    fn read_batch(&mut self) -> Result<(), ParquetError> {
        (self.at, self.len) = (0, 0);
        while self.left == 0 {
            if self.groups == self.file.num_row_groups() {
                return Ok(());
            }
            self.open_group()?;
        }
        let rows = self.left.min(self.batch_rows) as usize;
        self.budget.begin_batch();
        let (mut readers, mut room) = (self.readers.iter_mut(), BATCH_LEN_MAX);
        for column in &self.columns {
            let cells = &mut self.batch[column.column];
            cells.clear();
            let leaves = column.kinds.iter().zip(&mut readers);
            let runs = leaves.map(|(kind, reader)| read_leaf(reader, *kind, rows, &mut room));
            let mut runs = runs.collect::<Result<Vec<_>, _>>()?;
            match &column.node {
                Some(node) => node.cells(&mut runs, rows, &mut room, cells)?,
                None => runs[0].flat_cells(cells),
            }
            if cells.len() != rows {
                let message = "a column does not have as many values as its row group has rows";
                return Err(ParquetError::General(message.to_owned()));
            }
        }
        self.left -= rows as u64;
        self.len = rows;
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), ParquetError> {
        let group = self.file.get_row_group(self.groups)?;
        self.groups += 1;
        self.left = u64::try_from(group.metadata().num_rows())?;
        self.readers.clear();
        let mut bytes = 0;
        for column in &self.columns {
            for leaf in column.leaf..column.leaf + column.kinds.len() {
                let chunk = group.metadata().column(leaf);
                // Repeated values are short on the disk, and each is a cell.
                let values = chunk.num_values().saturating_mul(NESTED_CELL_LEN);
                let len = chunk.uncompressed_size();
                let len = if column.node.is_some() {
                    len.max(values)
                } else {
                    len
                };
                bytes += u64::try_from(len).unwrap_or_default();
                let pages = group.get_column_page_reader(leaf)?;
                let pages = BoundedPages::new(pages, &self.budget, column.node.is_some());
                let descriptor = chunk.column_descr_ptr();
                self.readers
                    .push(get_column_reader(descriptor, Box::new(pages)));
            }
        }
        let row_bytes = bytes / self.left.max(1) + 1;
        self.batch_rows = (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX);
        Ok(())
    }
}

/// Returns the number of leaves of a field.
fn leaves(field: &Type) -> usize {
    if field.is_primitive() {
        return 1;
    }
    field.get_fields().iter().map(|field| leaves(field)).sum()
}

fn read_leaf(
    reader: &mut ColumnReader,
    kind: ColumnKind,
    rows: usize,
    room: &mut usize,
) -> Result<LeafRun, ParquetError> {
    match reader {
        ColumnReader::BoolColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::Int32ColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::Int64ColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::FloatColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::DoubleColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::ByteArrayColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::FixedLenByteArrayColumnReader(reader) => read_typed(reader, kind, rows, room),
        ColumnReader::Int96ColumnReader(reader) => read_typed(reader, kind, rows, room),
    }
}

fn read_typed<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    kind: ColumnKind,
    rows: usize,
    room: &mut usize,
) -> Result<LeafRun, ParquetError>
where
    T::T: ToCell,
{
    let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let (records, _, _) =
        reader.read_records(rows, Some(&mut defined), Some(&mut repeated), &mut values)?;
    if records != rows {
        let message = "a column has fewer values than its row group has rows";
        return Err(ParquetError::General(message.to_owned()));
    }
    let mut cells = Vec::with_capacity(values.len());
    for value in values {
        let cell = value.to_cell(kind);
        take_room(room, cell.len(), rows)?;
        cells.push(cell);
    }
    // A level that all entries have is not stored.
    let len = defined.len().max(repeated.len()).max(cells.len());
    defined.resize(len, 0);
    repeated.resize(len, 0);
    let levels: Vec<_> = defined.into_iter().zip(repeated).collect();
    Ok(LeafRun {
        levels: levels.into_iter(),
        cells: cells.into_iter(),
    })
}

/// A row of a batch.
struct BatchRow<'a> {
    batch: &'a [Vec<Cell>],
    row: usize,
    table: &'a Table,
}

impl Cells for BatchRow<'_> {
    fn cell(&self, column: usize) -> Result<Cell, RejectReason> {
        let cell = self.batch[column]
            .get(self.row)
            .cloned()
            .unwrap_or(Cell::Null);
        match &cell {
            Cell::Text(text) if std::str::from_utf8(text).is_err() => {
                Err(RejectReason::NotText(self.table.name(column).to_owned()))
            }
            _ => Ok(cell),
        }
    }
}

impl BatchRow<'_> {
    fn excerpt(&self, columns: &[ReadColumn]) -> Bytes {
        let cells = columns.iter().filter_map(|column| {
            let cell = self.batch[column.column].get(self.row)?;
            Some(cell.clone().into_bytes().unwrap_or_default())
        });
        let cells: Vec<Bytes> = cells.collect();
        excerpt(cells.iter().map(|cell| &cell[..]))
    }
}

/// A source that the library reads pieces of.
#[derive(Clone)]
struct Chunks {
    source: Arc<Mutex<ParquetSource>>,
    len: u64,
}

struct ParquetSource {
    inner: Box<dyn ReadSeek + Send>,
    /// Whether the footer was read, so that only pages are left.
    has_footer: bool,
    /// The first error of the source; the library would replace it by another.
    failure: Option<io::Error>,
}

impl Chunks {
    /// Checks the end of the file.
    fn new(mut source: Box<dyn ReadSeek + Send>) -> Result<Self, RowsError> {
        let len = source.seek(SeekFrom::End(0))?;
        let chunks = Self {
            source: Arc::new(Mutex::new(ParquetSource {
                inner: source,
                has_footer: false,
                failure: None,
            })),
            len,
        };
        let no_parquet = |reason: &str| Err(RowsError::Parquet(reason.to_owned()));
        if len < TAIL_LEN + MAGIC.len() as u64 {
            return no_parquet("it is too short");
        }
        let mut tail = [0; TAIL_LEN as usize];
        chunks.read_exact_at(len - TAIL_LEN, &mut tail)?;
        if !tail.ends_with(MAGIC) {
            return no_parquet("it does not end as Parquet does: it is another file, or cut off");
        }
        let footer = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        if u64::from(footer) > FOOTER_LEN_MAX.min(len - TAIL_LEN) {
            return no_parquet("its footer is longer than 16 MiB or the file");
        }
        Ok(chunks)
    }

    /// Calls the library. A panic of the library and an error of the source become errors.
    fn guarded<T>(&self, call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, RowsError> {
        let result = catch_unwind(AssertUnwindSafe(call));
        if let Some(failure) = self.lock().failure.take() {
            return Err(RowsError::Read(failure));
        }
        match result {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(ParquetError::General(text) | ParquetError::EOF(text))) => {
                Err(RowsError::Parquet(text))
            }
            Ok(Err(error)) => Err(RowsError::Parquet(error.to_string())),
            Err(_) => Err(RowsError::Parquet("it is damaged".to_owned())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ParquetSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut source = self.lock();
        let seek = source.inner.seek(SeekFrom::Start(at));
        let read = seek.and_then(|_| source.inner.read(buffer));
        read.map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            // The library replaces it by another error; the first one is kept for the caller.
            let copy = io::Error::new(error.kind(), error.to_string());
            source.failure.get_or_insert(error);
            copy
        })
    }

    fn read_exact_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let chunks = self.clone();
        OffsetReader { chunks, at }.read_exact(buffer)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Chunks {
    type T = BufReader<Chain<Cursor<Vec<u8>>, OffsetReader>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let chunks = self.clone();
        let mut read = OffsetReader { chunks, at: start };
        let mut head = Vec::with_capacity(LENGTHS_LEN as usize);
        if !self.lock().has_footer {
            return Ok(BufReader::new(Cursor::new(head).chain(read)));
        }
        // The library opens a reader only at the header of a page.
        read.by_ref().take(LENGTHS_LEN).read_to_end(&mut head)?;
        match decompressed_len(&head) {
            Some(len) if len <= PAGE_LEN_MAX => Ok(BufReader::new(Cursor::new(head).chain(read))),
            Some(_) => Err(ParquetError::General(
                "a page is longer than 64 MiB".to_owned(),
            )),
            None => Err(ParquetError::General("a page has no header".to_owned())),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start
            .checked_add(length as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(ParquetError::EOF("a page ends after the file".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Returns the decompressed length in the header of a page. The header is a Thrift structure in the compact
/// protocol. Its first two fields are the type of the page and its decompressed length, both of 32 bits.
fn decompressed_len(head: &[u8]) -> Option<u64> {
    /// A field of 32 bits, numbered one more than the field before.
    const NEXT_I32: u8 = 0x15;
    let mut rest = head.iter().copied();
    let mut field = || {
        (rest.next()? == NEXT_I32).then_some(())?;
        let mut number = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = rest.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // Zigzag: the sign is the lowest bit. A negative length is longer than any bound.
                return Some(if number & 1 == 0 {
                    number >> 1
                } else {
                    u64::MAX
                });
            }
        }
        None
    };
    field()?;
    field()
}

/// Reads from an offset on.
struct OffsetReader {
    chunks: Chunks,
    at: u64,
}

impl Read for OffsetReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.chunks.read_at(self.at, buffer)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Returns cells as CSV, cut to the bytes that are kept of a rejected row.
fn excerpt<'a>(cells: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut left = EXCERPT_LEN_MAX;
    let kept = cells.map_while(|cell| {
        let kept = &cell[..cell.len().min(left)];
        let is_left = left > 0;
        left = left.saturating_sub(cell.len() + 1);
        is_left.then_some(kept)
    });
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    // A vector takes every write.
    let _ = writer.write_record(kept);
    let mut bytes = writer.into_inner().unwrap_or_default();
    bytes.truncate(bytes.trim_ascii_end().len().min(EXCERPT_LEN_MAX));
    bytes.into()
}
