//! The third verb: what is known of the work before it is done. The estimate is made of it.
//!
//! Hot path. Bytes are those of sort keys and values, and of partition keys where they do not
//! stand in the path: the same bytes that the `end` line of a page counts. Removals write none.

use http_body::SizeHint;
use umbo_quota::Known;
use umbo_store::Change;
use umbo_types::limits;

use crate::decode::{Ask, Layout, WriteAsk};

/// Returns what is known of a request whose body has not been read.
pub(crate) fn known(ask: &Ask, body: &SizeHint) -> Known {
    match ask {
        Ask::Write(ask) => write(ask, body),
        Ask::Range(ask) => Known {
            rows_max: Some(ask.bounds.rows_max).filter(|&rows| rows < u64::MAX),
            bytes_max: Some(ask.bounds.bytes_max),
            body_len: None,
        },
        Ask::MultiGet | Ask::BatchWrite(_) => Known {
            body_len: body.exact(),
            ..Known::default()
        },
        // The selection stands in the body; that an array is short is known without it.
        Ask::Scan(Layout::Array) => Known {
            rows_max: Some(limits::JSON_ARRAY_ROWS_MAX),
            ..Known::default()
        },
        Ask::Get(_)
        | Ask::DeleteRange(_)
        | Ask::Scan(Layout::Lines)
        | Ask::Explain
        | Ask::Usage => Known::default(),
    }
}

fn write(ask: &WriteAsk, body: &SizeHint) -> Known {
    let body_len = match ask.change {
        Change::Put { .. } => {
            let sort_len = ask.key.sort.as_bytes().len() as u64;
            body.exact().map(|len| len + sort_len)
        }
        Change::Delete => Some(0),
    };
    Known {
        body_len,
        ..Known::default()
    }
}
