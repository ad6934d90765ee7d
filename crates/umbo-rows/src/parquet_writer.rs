//! Rows into Parquet: row groups of some megabytes, each written when it is full.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, LogicalType, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use umbo_api::batch::WriteLine;

use crate::error::RowsError;
use crate::export_columns::{COLUMNS, texts};

/// Bytes of text after which a row group ends: the most that the writer holds.
const GROUP_BYTES: usize = 16 << 20;
/// Rows after which a row group ends, even if they are short.
const GROUP_ROWS: usize = 128 << 10;

/// Writes Parquet.
pub(crate) struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    /// Text columns, in the order of [`texts`].
    texts: [Vec<Option<ByteArray>>; 8],
    numbers: [Vec<Option<i64>>; 2],
    bytes: usize,
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(crate) fn new(out: W) -> Result<Self, RowsError> {
        let schema = schema().map_err(failure)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            writer: writer.map_err(failure)?,
            texts: Default::default(),
            numbers: Default::default(),
            bytes: 0,
        })
    }

    pub(crate) fn write(&mut self, row: &WriteLine<'_>) -> Result<(), RowsError> {
        for (column, text) in self.texts.iter_mut().zip(texts(row)) {
            self.bytes += text.map_or(0, str::len);
            column.push(text.map(ByteArray::from));
        }
        for (column, number) in self.numbers.iter_mut().zip([row.version, row.expires_at]) {
            column.push(number.map(u64::cast_signed));
        }
        if self.bytes >= GROUP_BYTES || self.numbers[0].len() >= GROUP_ROWS {
            self.write_group().map_err(failure)?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let texts = std::mem::take(&mut self.texts);
        let [versions, expiries] = std::mem::take(&mut self.numbers);
        self.bytes = 0;
        let [pk, sk, v, content_type, content_encoding, pk64, sk64, v64] = texts;
        let mut group = self.writer.next_row_group()?;
        let mut column = |cells: ColumnCells| -> Result<(), ParquetError> {
            let Some(mut writer) = group.next_column()? else {
                return Err(ParquetError::General(
                    "the schema has no such column".to_owned(),
                ));
            };
            match cells {
                ColumnCells::Texts(cells) => {
                    let (values, levels) = divided(cells);
                    let typed = writer.typed::<ByteArrayType>();
                    typed.write_batch(&values, Some(&levels), None)?;
                }
                ColumnCells::Numbers(cells) => {
                    let (values, levels) = divided(cells);
                    let typed = writer.typed::<Int64Type>();
                    typed.write_batch(&values, Some(&levels), None)?;
                }
            }
            writer.close()
        };
        for cells in [pk, sk, v] {
            column(ColumnCells::Texts(cells))?;
        }
        for cells in [versions, expiries] {
            column(ColumnCells::Numbers(cells))?;
        }
        for cells in [content_type, content_encoding, pk64, sk64, v64] {
            column(ColumnCells::Texts(cells))?;
        }
        group.close().map(drop)
    }

    /// Writes the last rows and the footer.
    pub(crate) fn finish(mut self) -> Result<W, RowsError> {
        if !self.numbers[0].is_empty() {
            self.write_group().map_err(failure)?;
        }
        self.writer.into_inner().map_err(failure)
    }
}

enum ColumnCells {
    Texts(Vec<Option<ByteArray>>),
    Numbers(Vec<Option<i64>>),
}

/// Returns the values that are there, and for each cell whether it has one.
fn divided<T>(cells: Vec<Option<T>>) -> (Vec<T>, Vec<i16>) {
    let levels = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    (cells.into_iter().flatten().collect(), levels)
}

fn schema() -> Result<Type, ParquetError> {
    let fields: Result<Vec<_>, ParquetError> = COLUMNS
        .iter()
        .map(|&name| {
            let is_number = matches!(name, "version" | "expires_at");
            let builder = if is_number {
                let unsigned = LogicalType::integer(64, false);
                Type::primitive_type_builder(name, PhysicalType::INT64)
                    .with_logical_type(Some(unsigned))
                    .with_converted_type(ConvertedType::UINT_64)
            } else {
                Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY)
                    .with_logical_type(Some(LogicalType::String))
                    .with_converted_type(ConvertedType::UTF8)
            };
            builder
                .with_repetition(Repetition::OPTIONAL)
                .build()
                .map(Arc::new)
        })
        .collect();
    Type::group_type_builder("rows")
        .with_fields(fields?)
        .build()
}

fn failure(error: ParquetError) -> RowsError {
    RowsError::Read(io::Error::other(error))
}
