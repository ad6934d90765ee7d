//! Lists, maps and structures in Parquet, which become JSON: each leaf has a run of values with levels (Melnik et al.,
//! "Dremel", 2010), and the runs are put together row by row.

use std::vec::IntoIter;

use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use crate::error::RowsError;
use crate::parquet_pages::take_room;
use crate::parquet_type::ColumnKind;
use crate::row::LINE_LEN_MAX;
use crate::table::{Cell, push_string};

/// Deepest nesting that is read: each level takes some stack.
const DEPTH_MAX: i16 = 32;

/// The entries of a leaf in a batch of rows.
#[derive(Debug, Default)]
pub(crate) struct LeafRun {
    /// Definition and repetition level of each entry.
    pub(crate) levels: IntoIter<(i16, i16)>,
    /// Cells of the entries that have a value.
    pub(crate) cells: IntoIter<Cell>,
}

impl LeafRun {
    fn next_levels(&self) -> Option<(i16, i16)> {
        self.levels.as_slice().first().copied()
    }

    /// Makes the cells of a column that is not nested.
    pub(crate) fn flat_cells(&mut self, out: &mut Vec<Cell>) {
        let is_required = self.levels.len() == self.cells.len();
        for (definition, _) in &mut self.levels {
            let cell = match definition {
                0 if !is_required => Cell::Null,
                _ => self.cells.next().unwrap_or(Cell::Null),
            };
            out.push(cell);
        }
    }
}

/// A column or a part of one. It is there if the definition level is at least `from`.
#[derive(Debug)]
pub(crate) enum ColumnNode {
    /// Values of the leaf with this number.
    Leaf { leaf: usize, from: i16 },
    /// A null or something.
    Optional { from: i16, inner: Box<Self> },
    /// A list; `again` is the repetition level of further elements.
    List {
        from: i16,
        again: i16,
        inner: Box<Self>,
    },
    /// A map, as a list of keys with values.
    Map {
        from: i16,
        again: i16,
        pair: Box<(Self, Self)>,
    },
    /// Named parts, at least one.
    Group(Vec<(String, Self)>),
}

impl ColumnNode {
    /// Makes the node of a field that stands at these definition and repetition levels, and appends how its leaves
    /// become cells. A type that is not read is refused.
    pub(crate) fn of(
        field: &Type,
        (definition, repetition): (i16, i16),
        kinds: &mut Vec<ColumnKind>,
    ) -> Result<Self, RowsError> {
        let from = definition + 1;
        match field.get_basic_info().repetition() {
            _ if definition > DEPTH_MAX => Err(ColumnKind::refusal(field, false)),
            Repetition::REQUIRED => Self::shape(field, (definition, repetition), kinds),
            Repetition::OPTIONAL => {
                let inner = Self::shape(field, (from, repetition), kinds)?.into();
                Ok(Self::Optional { from, inner })
            }
            Repetition::REPEATED => {
                let again = repetition + 1;
                let inner = Self::shape(field, (from, again), kinds)?.into();
                Ok(Self::List { from, again, inner })
            }
        }
    }

    fn shape(
        field: &Type,
        levels: (i16, i16),
        kinds: &mut Vec<ColumnKind>,
    ) -> Result<Self, RowsError> {
        if field.is_primitive() {
            kinds.push(ColumnKind::of_leaf(field, false)?);
            let (leaf, from) = (kinds.len() - 1, levels.0);
            return Ok(Self::Leaf { leaf, from });
        }
        let (from, again) = (levels.0 + 1, levels.1 + 1);
        let info = field.get_basic_info();
        let (logical, converted) = (info.logical_type_ref(), info.converted_type());
        match field.get_fields() {
            [list]
                if matches!(logical, Some(LogicalType::List))
                    || converted == ConvertedType::LIST =>
            {
                let Some(element) = wrapped(list) else {
                    return Self::of(list, levels, kinds);
                };
                let inner = Self::of(element, (from, again), kinds)?.into();
                Ok(Self::List { from, again, inner })
            }
            [entries]
                if matches!(logical, Some(LogicalType::Map))
                    || matches!(converted, ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE) =>
            {
                let [key, value] = parts(entries) else {
                    return Err(ColumnKind::refusal(field, false));
                };
                let key = Self::of(key, (from, again), kinds)?;
                let pair = Box::new((key, Self::of(value, (from, again), kinds)?));
                if !matches!(pair.0, Self::Leaf { .. }) {
                    return Err(ColumnKind::refusal(field, false));
                }
                Ok(Self::Map { from, again, pair })
            }
            // The parts of a variant say nothing without its encoding.
            _ if matches!(logical, Some(LogicalType::Variant(_))) => {
                Err(ColumnKind::refusal(field, false))
            }
            // A group in a group takes stack too.
            [] => Err(ColumnKind::refusal(field, false)),
            fields => {
                let part = |field: &TypePtr| {
                    let name = field.name().to_owned();
                    Ok((name, Self::of(field, levels, kinds)?))
                };
                let parts: Result<_, RowsError> = fields.iter().map(part).collect();
                Ok(Self::Group(parts?))
            }
        }
    }

    /// Returns the first leaf.
    fn first(&self) -> usize {
        match self {
            Self::Leaf { leaf, .. } => *leaf,
            Self::Optional { inner, .. } | Self::List { inner, .. } => inner.first(),
            Self::Map { pair, .. } => pair.0.first(),
            Self::Group(parts) => parts[0].1.first(),
        }
    }

    /// Returns the last leaf.
    fn last(&self) -> usize {
        match self {
            Self::Leaf { leaf, .. } => *leaf,
            Self::Optional { inner, .. } | Self::List { inner, .. } => inner.last(),
            Self::Map { pair, .. } => pair.1.last(),
            Self::Group(parts) => parts[parts.len() - 1].1.last(),
        }
    }

    /// Writes the part of a row as JSON. A text that is too long for a value already is not made longer.
    fn write(&self, runs: &mut [LeafRun], out: &mut Vec<u8>) -> Option<()> {
        let is_there =
            |from: i16, runs: &[LeafRun]| Some(runs[self.first()].next_levels()?.0 >= from);
        match self {
            Self::Leaf { leaf, from } => {
                let (definition, _) = runs[*leaf].levels.next()?;
                let cell = if definition == *from {
                    runs[*leaf].cells.next()?
                } else {
                    Cell::Null
                };
                match cell {
                    _ if out.len() > LINE_LEN_MAX => {}
                    // Makes the whole no text, so that its row is rejected.
                    Cell::Text(text) if std::str::from_utf8(&text).is_err() => out.extend(text),
                    cell => cell.push_json(out),
                }
            }
            Self::Optional { from, inner } if is_there(*from, runs)? => inner.write(runs, out)?,
            Self::Optional { .. } => self.skip(runs, b"null", out)?,
            Self::List { from, again, inner } if is_there(*from, runs)? => {
                self.repeat(*again, *b"[]", runs, out, |runs, out| {
                    inner.write(runs, out)
                })?;
            }
            Self::List { .. } => self.skip(runs, b"[]", out)?,
            Self::Map { from, again, pair } if is_there(*from, runs)? => {
                self.repeat(*again, *b"{}", runs, out, |runs, out| {
                    let mut key = Vec::new();
                    pair.0.write(runs, &mut key)?;
                    // A key that is no text is the text of its JSON.
                    if key.first() == Some(&b'"') {
                        out.extend_from_slice(&key);
                    } else {
                        push_string(&String::from_utf8_lossy(&key), out);
                    }
                    out.push(b':');
                    pair.1.write(runs, out)
                })?;
            }
            Self::Map { .. } => self.skip(runs, b"{}", out)?,
            Self::Group(parts) => {
                for (at, (name, part)) in parts.iter().enumerate() {
                    out.push(if at == 0 { b'{' } else { b',' });
                    push_string(name, out);
                    out.push(b':');
                    part.write(runs, out)?;
                }
                out.push(b'}');
            }
        }
        Some(())
    }

    /// Writes elements while there are further ones.
    fn repeat(
        &self,
        again: i16,
        brackets: [u8; 2],
        runs: &mut [LeafRun],
        out: &mut Vec<u8>,
        mut element: impl FnMut(&mut [LeafRun], &mut Vec<u8>) -> Option<()>,
    ) -> Option<()> {
        out.push(brackets[0]);
        loop {
            element(runs, out)?;
            let next = runs[self.first()].next_levels();
            if next.is_none_or(|(_, repetition)| repetition != again) {
                break;
            }
            out.push(b',');
        }
        out.push(brackets[1]);
        Some(())
    }

    /// Takes the entry that each leaf has of something that is not there.
    fn skip(&self, runs: &mut [LeafRun], json: &[u8], out: &mut Vec<u8>) -> Option<()> {
        for run in &mut runs[self.first()..=self.last()] {
            run.levels.next()?;
        }
        out.extend_from_slice(json);
        Some(())
    }

    /// Makes the cells of a column, one for each row; all of them together take no more than `room`.
    pub(crate) fn cells(
        &self,
        runs: &mut [LeafRun],
        rows: usize,
        room: &mut usize,
        cells: &mut Vec<Cell>,
    ) -> Result<(), ParquetError> {
        for _ in 0..rows {
            let mut json = Vec::new();
            let is_written = self.write(runs, &mut json).is_some();
            let is_next = |run: &LeafRun| {
                run.next_levels()
                    .is_none_or(|(_, repetition)| repetition == 0)
            };
            if !is_written || !runs.iter().all(is_next) {
                let message = "the levels of a nested column do not fit together";
                return Err(ParquetError::General(message.to_owned()));
            }
            take_room(room, json.len(), rows)?;
            cells.push(match std::str::from_utf8(&json) {
                Ok("null") => Cell::Null,
                Ok(_) => Cell::Json(json.into()),
                Err(_) => Cell::Text(json.into()),
            });
        }
        Ok(())
    }
}

/// Returns the fields of a group, and an empty list for a leaf.
fn parts(field: &Type) -> &[TypePtr] {
    if field.is_primitive() {
        &[]
    } else {
        field.get_fields()
    }
}

/// Returns the element of a list in three levels. Lists in two levels have their element in the place of the repeated group
/// (parquet-format, LogicalTypes.md, "Backward-compatibility rules").
fn wrapped(list: &Type) -> Option<&Type> {
    match parts(list) {
        [element] if list.name() != "array" && !list.name().ends_with("_tuple") => Some(element),
        _ => None,
    }
}
