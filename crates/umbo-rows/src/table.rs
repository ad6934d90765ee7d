//! The use of the columns of a table, and rows made of its cells: the same for CSV and Parquet.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde_json::value::RawValue;
use umbo_api::batch::WriteOp;
use umbo_api::columns::{TableColumns, TableValue};
use umbo_api::path::KeyEncoding;
use umbo_api::path::base64url;
use umbo_api::row::{EXPIRES_AT_EXPECTED, RowFieldError};
use umbo_api::time_to_live;
use umbo_types::{Key, Version};

use crate::error::RowsError;
use crate::format::Columns;
use crate::line;
use crate::row::{COLUMNS_MAX, InputRow, LINE_LEN_MAX, NAMES_LEN_MAX, RejectReason};

/// Most names of columns that an error lists.
const NAMES_LISTED_MAX: usize = 20;

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    /// No value.
    Null,
    /// UTF-8.
    Text(Bytes),
    /// Bytes that may be no text.
    Binary(Bytes),
    /// A number or boolean, as JSON has it.
    Plain(String),
    /// JSON.
    Json(Bytes),
}

impl Cell {
    /// Returns the bytes, or `None` for a null.
    pub(crate) fn into_bytes(self) -> Option<Bytes> {
        match self {
            Self::Null => None,
            Self::Text(bytes) | Self::Binary(bytes) | Self::Json(bytes) => Some(bytes),
            Self::Plain(text) => Some(text.into()),
        }
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Text(bytes) | Self::Binary(bytes) | Self::Json(bytes) => bytes.len(),
            Self::Plain(text) => text.len(),
        }
    }

    pub(crate) fn push_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Text(text) => push_string(&String::from_utf8_lossy(text), out),
            Self::Binary(bytes) => push_string(&base64url(bytes), out),
            Self::Json(json) => out.extend_from_slice(json),
            Self::Plain(text) if serde_json::from_str::<&RawValue>(text).is_ok() => {
                out.extend_from_slice(text.as_bytes());
            }
            // Numbers that JSON does not have: infinities and NaN.
            Self::Plain(text) => push_string(text, out),
        }
    }
}

pub(crate) fn push_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a vector takes every write");
}

/// The cells of one row. A cell that cannot be read rejects its row.
pub(crate) trait Cells {
    /// Returns the cell of a column.
    fn cell(&self, column: usize) -> Result<Cell, RejectReason>;
}

/// The use of the columns of a table, as indexes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    names: Vec<String>,
    pk: Option<usize>,
    sk: Option<usize>,
    v: Option<usize>,
    pk64: Option<usize>,
    sk64: Option<usize>,
    v64: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
    expires_at: Option<usize>,
    content_type: Option<usize>,
    content_encoding: Option<usize>,
    version: Option<usize>,
    /// Columns whose JSON object is the value, in their order; `None` if the value is a column.
    rest: Option<Vec<usize>>,
}

impl Table {
    /// Finds the columns of a header.
    pub(crate) fn new<'n>(
        names: impl ExactSizeIterator<Item = &'n [u8]>,
        columns: &Columns,
    ) -> Result<Self, RowsError> {
        if names.len() > COLUMNS_MAX {
            return Err(RowsError::TooManyColumns);
        }
        let mut left = NAMES_LEN_MAX;
        let names = names.map(|name| {
            left = left
                .checked_sub(name.len())
                .ok_or(RowsError::TooManyColumns)?;
            let name = std::str::from_utf8(name).map_err(|_| RowsError::HeaderNotText)?;
            Ok(name.to_owned())
        });
        let names = names.collect::<Result<_, RowsError>>()?;
        let mut table = Self {
            names,
            ..Self::default()
        };
        match columns {
            Columns::Fields => table.by_fields()?,
            Columns::Named(columns) => table.by_names(columns)?,
        }
        Ok(table)
    }

    fn by_names(&mut self, columns: &TableColumns) -> Result<(), RowsError> {
        self.pk = Some(self.required(&columns.pk)?);
        self.sk = match &columns.sk {
            Some(name) => Some(self.required(name)?),
            None => self.find("sk")?,
        };
        match &columns.value {
            TableValue::Column(name) => self.v = Some(self.required(name)?),
            TableValue::Columns(names) => {
                unique(names)?;
                unique(&self.names)?;
                let places = self.names.iter().zip(0..);
                let places: HashMap<&String, usize> = places.collect();
                let place = |name: &String| match places.get(name) {
                    Some(&place) => Ok(place),
                    None => self.required(name),
                };
                self.rest = Some(names.iter().map(place).collect::<Result<_, _>>()?);
            }
            TableValue::Rest => {
                let is_rest = |at: &usize| Some(*at) != self.pk && Some(*at) != self.sk;
                let rest: Vec<usize> = (0..self.names.len()).filter(is_rest).collect();
                unique(&self.names)?;
                self.rest = Some(rest);
            }
        }
        Ok(())
    }

    /// Uses each column as the field of its name in a line.
    fn by_fields(&mut self) -> Result<(), RowsError> {
        for name in &self.names {
            let is_field = crate::error::FIELDS.split(", ").any(|field| field == name);
            if !is_field {
                return Err(RowsError::UnknownColumn { name: name.clone() });
            }
            self.required(name)?;
        }
        self.pk = self.find("pk")?;
        self.pk64 = self.find("pk64")?;
        if self.pk64.is_none() {
            self.required("pk")?;
        }
        self.v = self.find("v")?;
        self.v64 = self.find("v64")?;
        self.op = self.find("op")?;
        if self.v64.is_none() && self.op.is_none() {
            self.required("v")?;
        }
        self.sk = self.find("sk")?;
        self.sk64 = self.find("sk64")?;
        self.ttl = self.find("ttl")?;
        self.expires_at = self.find("expires_at")?;
        self.content_type = self.find("content_type")?;
        self.content_encoding = self.find("content_encoding")?;
        self.version = self.find("version")?;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Option<usize>, RowsError> {
        let mut places = (0..self.names.len()).filter(|&at| self.names[at] == name);
        let place = places.next();
        match places.next() {
            Some(_) => Err(RowsError::ColumnTwice(name.to_owned())),
            None => Ok(place),
        }
    }

    fn required(&self, name: &str) -> Result<usize, RowsError> {
        self.find(name)?.ok_or_else(|| {
            let mut found: Vec<String> =
                self.names.iter().map(|name| format!("'{name}'")).collect();
            if found.len() > NAMES_LISTED_MAX {
                found.truncate(NAMES_LISTED_MAX);
                found.push("…".to_owned());
            }
            RowsError::NoColumn {
                name: name.to_owned(),
                found: found.join(", "),
            }
        })
    }

    /// Returns the number of columns.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the name of a column.
    pub(crate) fn name(&self, column: usize) -> &str {
        &self.names[column]
    }

    /// Returns whether a column holds a key.
    pub(crate) fn is_key(&self, column: usize) -> bool {
        [self.pk, self.pk64, self.sk, self.sk64].contains(&Some(column))
    }

    /// Returns for each column whether it is read.
    pub(crate) fn read(&self) -> Vec<bool> {
        let fields = [
            self.pk,
            self.pk64,
            self.sk,
            self.sk64,
            self.v,
            self.v64,
            self.op,
            self.ttl,
            self.expires_at,
            self.content_type,
            self.content_encoding,
            self.version,
        ];
        let mut read = vec![false; self.len()];
        for &column in fields.iter().flatten().chain(self.rest.iter().flatten()) {
            read[column] = true;
        }
        read
    }

    /// Makes a row.
    pub(crate) fn row(&self, cells: &impl Cells) -> Result<InputRow, RejectReason> {
        let op = match optional(cells, self.op)? {
            None => WriteOp::Put,
            Some(op) if &op[..] == b"put" => WriteOp::Put,
            Some(op) if &op[..] == b"del" => WriteOp::Del,
            Some(_) => return Err(self.bad(self.op, "put, del or nothing")),
        };
        let expiry = line::expiry(self.ttl(cells)?, self.expires_at(cells)?)?;
        let partition = pair(cells, "pk", self.pk, self.pk64)?;
        let partition = partition.ok_or(RejectReason::from(RowFieldError::Neither("pk")))?;
        let sort = pair(cells, "sk", self.sk, self.sk64)?;
        let key = Key::new(partition, sort.unwrap_or_default())?;
        let value = match &self.rest {
            Some(rest) => Some(self.object(cells, rest)?),
            None => pair(cells, "v", self.v, self.v64)?,
        };
        // A removal has no value, and an empty cell counts as no value.
        let value = value.filter(|value| op == WriteOp::Put || !value.is_empty());
        let content_type = optional(cells, self.content_type)?.unwrap_or_default();
        let content_encoding = optional(cells, self.content_encoding)?;
        let content = [content_type, content_encoding.unwrap_or_default()];
        let change = line::change(op, value, content, expiry)?;
        let version = self.version(cells)?;
        Ok(InputRow {
            key,
            change,
            version,
        })
    }

    /// Returns the version in a row. A cell that is not a version counts as none: most loads do not need one.
    fn version(&self, cells: &impl Cells) -> Result<Option<Version>, RejectReason> {
        let text = optional(cells, self.version)?;
        let version = text.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        Ok(version.map(Version))
    }

    fn ttl(&self, cells: &impl Cells) -> Result<Option<u64>, RejectReason> {
        let Some(text) = optional(cells, self.ttl)? else {
            return Ok(None);
        };
        let seconds = std::str::from_utf8(&text)
            .ok()
            .and_then(time_to_live::parse);
        let bad = || self.bad(self.ttl, time_to_live::EXPECTED);
        seconds.ok_or_else(bad).map(Some)
    }

    fn expires_at(&self, cells: &impl Cells) -> Result<Option<u64>, RejectReason> {
        let Some(text) = optional(cells, self.expires_at)? else {
            return Ok(None);
        };
        let is_number = text.iter().all(u8::is_ascii_digit);
        let millis = std::str::from_utf8(&text).ok().filter(|_| is_number);
        let millis = millis.and_then(|text| text.parse().ok());
        let bad = || self.bad(self.expires_at, EXPIRES_AT_EXPECTED);
        millis.ok_or_else(bad).map(Some)
    }

    fn object(&self, cells: &impl Cells, rest: &[usize]) -> Result<Bytes, RejectReason> {
        let mut out = Vec::with_capacity(32 * rest.len());
        for (at, &column) in rest.iter().enumerate() {
            out.push(if at == 0 { b'{' } else { b',' });
            push_string(self.name(column), &mut out);
            out.push(b':');
            cells.cell(column)?.push_json(&mut out);
            // Too long for a value already: the rest is left out.
            if out.len() > LINE_LEN_MAX {
                break;
            }
        }
        if rest.is_empty() {
            out.push(b'{');
        }
        out.push(b'}');
        Ok(out.into())
    }

    fn bad(&self, column: Option<usize>, expected: &'static str) -> RejectReason {
        let column = column.map_or_else(String::new, |column| self.names[column].clone());
        RejectReason::BadCell { column, expected }
    }
}

/// Refuses a name that stands twice: a JSON object with it is ambiguous.
fn unique(names: &[String]) -> Result<(), RowsError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(RowsError::ColumnTwice(name.clone()));
        }
    }
    Ok(())
}

/// Returns the bytes of a pair of columns, or `None` if both are null or absent.
fn pair(
    cells: &impl Cells,
    name: &'static str,
    plain: Option<usize>,
    base64: Option<usize>,
) -> Result<Option<Bytes>, RejectReason> {
    let plain = match plain {
        Some(column) => cells.cell(column)?.into_bytes(),
        None => None,
    };
    let Some(encoded) = optional(cells, base64)? else {
        return Ok(plain);
    };
    if plain.is_some_and(|plain| !plain.is_empty()) {
        return Err(RowFieldError::Both(name).into());
    }
    match KeyEncoding::Base64Url.decode(&encoded) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(_) => Err(RowFieldError::BadBase64(name).into()),
    }
}

/// Returns the bytes of a column, or `None` if they are null or empty, or there is no column.
fn optional(cells: &impl Cells, column: Option<usize>) -> Result<Option<Bytes>, RejectReason> {
    let Some(column) = column else {
        return Ok(None);
    };
    let bytes = cells.cell(column)?.into_bytes();
    Ok(bytes.filter(|bytes| !bytes.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &str, columns: &Columns) -> Result<Table, String> {
        let names: Vec<&[u8]> = names.split(',').map(str::as_bytes).collect();
        Table::new(names.into_iter(), columns).map_err(|error| error.to_string())
    }

    fn named(pk: &str, sk: Option<&str>, value: TableValue) -> Columns {
        Columns::Named(TableColumns {
            pk: pk.to_owned(),
            sk: sk.map(str::to_owned),
            value,
        })
    }

    #[test]
    fn default_columns_are_the_fields_of_a_row_and_no_others() {
        let columns = Columns::default();
        let found = table("v,sk,pk", &columns).unwrap();
        assert_eq!((found.pk, found.sk, found.v), (Some(2), Some(1), Some(0)));
        for names in [
            "pk64,v64",
            "pk,v",
            "pk,op",
            "pk,sk,v,version,ttl,expires_at,content_type",
        ] {
            assert!(table(names, &columns).is_ok(), "{names}");
        }
        for (names, says) in [
            ("sk,v", "no column 'pk'; its columns are 'sk', 'v'"),
            ("pk,sk", "no column 'v'"),
            ("pk,v,name", "column 'name' is not a field"),
            ("pk,v,pk", "two columns 'pk'"),
            ("pk,v,name", "name the columns of keys and value, or"),
            ("PK,v", "column 'PK' is not a field"),
            ("PK,v", "write 'pk', without"),
            ("pk, sk, v", "write 'sk', without"),
        ] {
            let error = table(names, &columns).unwrap_err();
            assert!(error.contains(says), "{names}: {error}");
        }
    }

    #[test]
    fn a_table_has_as_many_columns_as_are_looked_up_in_no_time_and_no_more() {
        let columns = named("c0", None, TableValue::Rest);
        let header = |count: usize, pad: usize| {
            let names =
                (0..count).map(|at| format!("c{at}{}", "x".repeat(if at == 0 { 0 } else { pad })));
            names.collect::<Vec<_>>().join(",")
        };
        assert_eq!(
            table(&header(COLUMNS_MAX, 0), &columns).unwrap().len(),
            COLUMNS_MAX
        );
        for (names, says) in [
            (header(COLUMNS_MAX + 1, 0), "more than 4096 columns"),
            (
                header(COLUMNS_MAX, NAMES_LEN_MAX / COLUMNS_MAX),
                "more than 256 KiB",
            ),
            (header(COLUMNS_MAX - 1, 0) + ",c7", "two columns 'c7'"),
        ] {
            let error = table(&names, &columns).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_value_of_the_rest_is_not_made_beyond_the_longest_one() {
        struct Long;
        impl Cells for Long {
            fn cell(&self, _: usize) -> Result<Cell, RejectReason> {
                Ok(Cell::Text(Bytes::from(vec![b'x'; LINE_LEN_MAX / 4])))
            }
        }
        let names: Vec<String> = (0..1_000).map(|at| format!("c{at}")).collect();
        let wide = table(&names.join(","), &named("c0", None, TableValue::Rest)).unwrap();
        let rest = wide.rest.clone().unwrap();
        let made = wide.object(&Long, &rest).unwrap();
        assert!(made.len() > LINE_LEN_MAX && made.len() < 2 * LINE_LEN_MAX);
    }

    #[test]
    fn named_columns_are_the_only_ones_that_are_read() {
        let column = |name: &str| TableValue::Column(name.to_owned());
        let columns = named("country", Some("city"), column("json"));
        let found = table("city,op,country,json,op", &columns).unwrap();
        assert_eq!(
            (found.pk, found.sk, found.v, found.op),
            (Some(2), Some(0), Some(3), None)
        );
        assert!(
            table("country,json", &columns)
                .unwrap_err()
                .contains("'city'")
        );
        let columns = named("id", None, TableValue::Rest);
        let found = table("name,id,sk,op", &columns).unwrap();
        assert_eq!((found.sk, found.rest), (Some(2), Some(vec![0, 3])));
        assert!(
            table("id,name,name", &columns)
                .unwrap_err()
                .contains("two columns 'name'")
        );
        assert!(table("id", &columns).is_ok());
    }

    #[test]
    fn an_error_lists_no_end_of_columns() {
        let names: Vec<String> = (0..999).map(|at| format!("c{at}")).collect();
        let error = table(&names.join(","), &named("id", None, TableValue::Rest)).unwrap_err();
        assert!(error.ends_with("'c19', …"), "{error}");
    }
}
