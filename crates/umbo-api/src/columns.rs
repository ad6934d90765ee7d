//! The columns of tables (CSV and Parquet) that keys and values are read from.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Columns of CSV and Parquet.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TableColumns {
    /// Column of the partition key.
    #[serde(default = "default_pk")]
    pub pk: String,
    /// Column of the sort key. Default: `sk`, if the table has this column.
    pub sk: Option<String>,
    /// The value.
    #[serde(default)]
    pub value: TableValue,
}

fn default_pk() -> String {
    "pk".to_owned()
}

impl Default for TableColumns {
    fn default() -> Self {
        Self {
            pk: default_pk(),
            sk: None,
            value: TableValue::default(),
        }
    }
}

/// The value of a row in CSV and Parquet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TableValue {
    /// The value of this column.
    Column(String),
    /// A JSON object of these columns.
    Columns(Vec<String>),
    /// A JSON object of all columns except the key columns.
    Rest,
}

impl Default for TableValue {
    fn default() -> Self {
        Self::Column("v".to_owned())
    }
}
