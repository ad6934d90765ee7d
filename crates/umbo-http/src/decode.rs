//! The decode phase: HTTP becomes a typed operation. Nothing past this point knows HTTP.
//!
//! Hot path. The raw path is decoded, not a UTF-8 string made of it, so any bytes are a key. Routes are recognised
//! first, because a caller is identified before anything else of the request is read.

use bytes::Bytes;
use http::{HeaderValue, Uri};
use umbo_api::header;
use umbo_api::path::KeyEncoding;
use umbo_api::row::{CONTENT_FIELD_EXPECTED, is_content_field};
use umbo_control::NamespaceEntry;
use umbo_rows::{Columns, Expiry, FormatError, RowFormat};
use umbo_store::{Atomicity, Change, Condition, Durability, SortRange};
use umbo_types::{Key, Operation, PartitionKey, Timestamp, Value, limits};

use crate::byte_range::AskedRange;
use crate::fields::{Fields, Tags};
use crate::idempotency_key::KeyedRequest;
use crate::key_path::{key_bytes, key_in_path, key_of};
use crate::query::Query;
use crate::request_error::{KeyPart, RequestError};
pub use crate::route::{Route, resource, route};

/// A get.
#[derive(Debug)]
pub struct GetAsk {
    /// The row.
    pub key: Key,
    /// Whether the body is left out of the answer.
    pub is_head: bool,
    /// Tags of `If-Match`.
    pub if_match: Option<Tags>,
    /// Tags of `If-None-Match`.
    pub if_none_match: Option<Tags>,
    /// Content codings that the client accepts; any if absent.
    pub accept_encoding: Option<HeaderValue>,
    /// The requested part; `None` for the whole.
    pub range: Option<AskedRange>,
    /// `If-Range`: the part is sent only if the answer has this tag, otherwise the whole.
    pub if_range: Option<HeaderValue>,
}

/// How a write is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// The body is stored.
    Put,
    /// The present value is stored again, with another expiry.
    Touch,
    /// The present number is incremented.
    Increment,
    /// The row is removed.
    Delete,
    /// The row stays, and the answer counts the rows and bytes that a delete would remove.
    DeleteDryRun,
}

/// A put, touch, increment or delete.
#[derive(Debug)]
pub struct WriteAsk {
    /// The row.
    pub key: Key,
    /// How it is made.
    pub kind: WriteKind,
    /// The change of the row. [`WriteAsk::expire`] sets its expiry.
    pub change: Change,
    /// Expiry of the row, if the request names one.
    expiry: Option<Expiry>,
    /// Condition of the write.
    pub condition: Condition,
    /// When it is acknowledged, if the request says it.
    pub durability: Option<Durability>,
    /// Idempotency key of the write, with the digest of everything but the body; `None` for a dry run.
    pub keyed: Option<KeyedRequest>,
}

impl WriteAsk {
    /// Sets the expiry of the row in `namespace`; `now` returns the time of its shard. Refuses an instant that has
    /// passed.
    pub fn expire(
        &mut self,
        namespace: &NamespaceEntry,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), RequestError> {
        let default = namespace.default_ttl().map(Expiry::After);
        if self.expiry.or(default).is_none() {
            return Ok(());
        }
        let now = now();
        let at = |expiry: Expiry| expiry.instant(now);
        let own = self.expiry.map(at);
        if own.is_some_and(|at| at <= now) {
            return Err(RequestError::BadHeader {
                name: header::EXPIRES_AT,
                expected: "an instant in the future: the row would have expired already",
            });
        }
        match &mut self.change {
            Change::Put { expires_at, .. } => *expires_at = own.or(default.map(at)),
            Change::Increment {
                expires_at,
                default_expiry,
                ..
            } => (*expires_at, *default_expiry) = (own, default.map(at)),
            Change::Delete | Change::Upload(_) => {}
        }
        Ok(())
    }
}

/// How rows are laid out in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One JSON object a line.
    Lines,
    /// One JSON array.
    Array,
}

/// Bounds of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBounds {
    /// Most rows.
    pub rows_max: u64,
    /// Most bytes of keys and values; the last row may go beyond.
    pub bytes_max: u64,
    /// Whether values are left out.
    pub keys_only: bool,
}

/// A range.
#[derive(Debug)]
pub struct RangeAsk {
    /// The partition.
    pub partition: PartitionKey,
    /// Which of its rows.
    pub range: SortRange,
    /// Whether the last row comes first.
    pub reverse: bool,
    /// Whether start, end, prefix or reverse were given.
    pub is_selective: bool,
    /// The bounds of the page.
    pub bounds: PageBounds,
    /// The cursor of the page before.
    pub cursor: Option<Bytes>,
    /// How the rows are laid out.
    pub layout: Layout,
}

/// A delete of a range.
#[derive(Debug)]
pub struct DeleteRangeAsk {
    /// The partition.
    pub partition: PartitionKey,
    /// Which of its rows.
    pub range: SortRange,
    /// Whether rows are counted and stay.
    pub dry_run: bool,
    /// When it is acknowledged, if the request says it.
    pub durability: Option<Durability>,
}

/// A batch write.
#[derive(Debug)]
pub struct BatchAsk {
    /// Format of the rows: lines of JSON or CSV.
    pub format: RowFormat,
    /// Which rows are applied together.
    pub atomicity: Atomicity,
    /// Whether only the rows that failed are answered.
    pub is_minimal: bool,
    /// When it is acknowledged, if the request says it.
    pub durability: Option<Durability>,
    /// Idempotency key of the batch, with the digest of everything but the body.
    pub keyed: Option<KeyedRequest>,
}

/// Decodes a get.
pub fn get(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<GetAsk, RequestError> {
    Ok(GetAsk {
        key: key_in_path(route.rest, uri)?,
        is_head: route.is_head(),
        if_match: fields.if_match_tags()?,
        if_none_match: fields.if_none_match_tags()?,
        accept_encoding: fields.accept_encoding.cloned(),
        // RFC 9110, section 14.2: the field is defined for GET alone.
        range: fields
            .range
            .filter(|_| !route.is_head())
            .and_then(AskedRange::parse),
        if_range: fields.if_range.cloned(),
    })
}

/// Required fields of a touch.
const TOUCH_EXPECTED: &str = "this header, Umbo-Expires-At or Umbo-Increment on a PATCH";

/// Decodes a put, touch, increment or delete.
pub fn write(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<WriteAsk, RequestError> {
    let (key, kind) = if route.operation == Operation::Put {
        let kind = match (route.is_touch(), fields.increment) {
            (true, None) => WriteKind::Touch,
            (true, Some(_)) => WriteKind::Increment,
            (false, _) => WriteKind::Put,
        };
        (key_in_path(route.rest, uri)?, kind)
    } else {
        let query = Query::read(uri.query(), "enc, dry_run")?;
        let kind = if query.flag("dry_run")? {
            WriteKind::DeleteDryRun
        } else {
            WriteKind::Delete
        };
        (key_of(route.rest, query.key_encoding()?)?, kind)
    };
    let expiry = fields.expiry()?;
    if kind == WriteKind::Touch && expiry.is_none() {
        return Err(RequestError::BadHeader {
            name: header::TTL,
            expected: TOUCH_EXPECTED,
        });
    }
    if kind != WriteKind::Increment {
        fields.refuse_increment()?;
    }
    let change = if let Some(by) = fields.increment()? {
        Change::Increment {
            by,
            expires_at: None,
            default_expiry: None,
        }
    } else if route.operation == Operation::Put {
        Change::Put {
            value: Value::new(
                Bytes::new(),
                content_field(fields.content_type, "content-type")?,
                content_field(fields.content_encoding, "content-encoding")?,
            )?,
            expires_at: None,
        }
    } else {
        Change::Delete
    };
    let keyed = keyed_write(fields, &key, kind)?;
    Ok(WriteAsk {
        key,
        kind,
        change,
        expiry,
        condition: fields.write_condition()?,
        durability: fields.durability()?,
        keyed,
    })
}

/// Returns the identity of a write with an idempotency key. A dry run has none.
fn keyed_write(
    fields: &Fields<'_>,
    key: &Key,
    kind: WriteKind,
) -> Result<Option<KeyedRequest>, RequestError> {
    let kind = match kind {
        WriteKind::Put => "put",
        WriteKind::Touch => "touch",
        WriteKind::Increment => "increment",
        WriteKind::Delete => "delete",
        WriteKind::DeleteDryRun => return Ok(None),
    };
    let Some(mut keyed) = KeyedRequest::read(fields)? else {
        return Ok(None);
    };
    for part in [
        kind.as_bytes(),
        key.partition.as_bytes(),
        key.sort.as_bytes(),
    ] {
        keyed.add(Some(part));
    }
    keyed.add_fields(fields);
    Ok(Some(keyed))
}

/// Decodes the layout of a scan; its selection follows in the body.
pub fn scan(uri: &Uri, fields: &Fields<'_>) -> Result<Layout, RequestError> {
    bare(uri)?;
    Ok(layout(fields))
}

/// Refuses any parameter.
pub fn bare(uri: &Uri) -> Result<(), RequestError> {
    Query::read(uri.query(), "").map(drop)
}

/// Reads a field that is stored unchanged: both a row in JSON and a header field must be able to hold its text.
fn content_field(value: Option<&HeaderValue>, name: &'static str) -> Result<Bytes, RequestError> {
    let Some(value) = value else {
        return Ok(Bytes::new());
    };
    if !is_content_field(value.as_bytes()) {
        return Err(RequestError::BadHeader {
            name,
            expected: CONTENT_FIELD_EXPECTED,
        });
    }
    Ok(Bytes::copy_from_slice(value.as_bytes()))
}

fn layout(fields: &Fields<'_>) -> Layout {
    if fields.wants_json_array() {
        Layout::Array
    } else {
        Layout::Lines
    }
}

/// Reads `start`, `end` and `prefix`; the flag tells whether any of them bounds the range. An empty one bounds nothing:
/// it comes from a variable that is not set.
fn sort_range(query: &Query<'_>, encoding: KeyEncoding) -> Result<(SortRange, bool), RequestError> {
    let bound = |name, part| {
        let key = query.key(name, part, encoding)?;
        Ok::<_, RequestError>(key.filter(|key| !key.is_empty()))
    };
    let start = bound("start", KeyPart::Start)?;
    let end = bound("end", KeyPart::End)?;
    let prefix = bound("prefix", KeyPart::Prefix)?;
    let is_bounded = start.is_some() || end.is_some() || prefix.is_some();
    let range = SortRange {
        start: start.unwrap_or_default(),
        end,
    };
    Ok((
        range.intersect(SortRange::with_prefix(prefix.unwrap_or_default())),
        is_bounded,
    ))
}

/// Decodes a range.
pub fn range(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<RangeAsk, RequestError> {
    const KNOWN: &str = "start, end, prefix, reverse, limit, max_bytes, cursor, keys_only, enc";
    let query = Query::read(uri.query(), KNOWN)?;
    let encoding = query.key_encoding()?;
    let (range, is_bounded) = sort_range(&query, encoding)?;
    let reverse = query.flag("reverse")?;
    let layout = layout(fields);
    let rows_max = query.number("limit", 1..=u64::MAX, "a number of rows, at least 1")?;
    let bytes_max = query.number(
        "max_bytes",
        1..=limits::PAGE_BYTES_MAX,
        "a number of bytes from 1 to 1073741824",
    )?;
    Ok(RangeAsk {
        partition: PartitionKey::new(key_bytes(route.rest, KeyPart::Partition, encoding)?)?,
        range,
        reverse,
        is_selective: is_bounded || query.text("reverse").is_some(),
        bounds: page_bounds(rows_max, bytes_max, query.flag("keys_only")?, layout),
        cursor: query.text("cursor").map(Bytes::copy_from_slice),
        layout,
    })
}

/// Returns the bounds of a page; a JSON array has an additional bound on rows.
pub fn page_bounds(
    rows_max: Option<u64>,
    bytes_max: Option<u64>,
    keys_only: bool,
    layout: Layout,
) -> PageBounds {
    let rows_ceiling = match layout {
        Layout::Lines => u64::MAX,
        Layout::Array => limits::JSON_ARRAY_ROWS_MAX,
    };
    PageBounds {
        rows_max: rows_max.unwrap_or(u64::MAX).min(rows_ceiling),
        bytes_max: bytes_max.unwrap_or(limits::PAGE_BYTES_DEFAULT),
        keys_only,
    }
}

/// Decodes a delete of a range.
pub fn delete_range(
    route: &Route<'_>,
    uri: &Uri,
    fields: &Fields<'_>,
) -> Result<DeleteRangeAsk, RequestError> {
    let query = Query::read(uri.query(), "start, end, prefix, all, dry_run, enc")?;
    fields.refuse_increment()?;
    if fields.idempotency_key.is_some() {
        return Err(RequestError::BadHeader {
            name: header::IDEMPOTENCY_KEY,
            expected: "no such header on a delete of a range, which can be repeated without it",
        });
    }
    let encoding = query.key_encoding()?;
    let partition = PartitionKey::new(key_bytes(route.rest, KeyPart::Partition, encoding)?)?;
    let (range, is_bounded) = sort_range(&query, encoding)?;
    let has_empty_bound = ["start", "end", "prefix"]
        .into_iter()
        .any(|name| query.text(name).is_some_and(<[u8]>::is_empty));
    if !query.flag("all")? && (!is_bounded || has_empty_bound) {
        return Err(RequestError::UnboundedDelete);
    }
    let dry_run = query.flag("dry_run")?;
    Ok(DeleteRangeAsk {
        partition,
        range,
        dry_run,
        durability: fields.durability()?,
    })
}

/// Decodes a batch write; its rows follow in the body.
pub fn batch(uri: &Uri, fields: &Fields<'_>) -> Result<BatchAsk, RequestError> {
    let query = Query::read(uri.query(), "atomic")?;
    let atomicity = match query.text("atomic") {
        None | Some(b"none") => Atomicity::None,
        Some(b"partition") => Atomicity::Partition,
        Some(value) => return Err(crate::query::bad("atomic", value, "partition or none")),
    };
    let is_minimal = fields.is_preferred("return=minimal");
    fields.refuse_increment()?;
    let format = batch_format(fields)?;
    let mut keyed = KeyedRequest::read(fields)?;
    if let Some(keyed) = &mut keyed {
        keyed.add(Some(b"batch"));
        keyed.add(Some(match atomicity {
            Atomicity::None => b"none",
            Atomicity::Partition => b"partition",
        }));
        if format != RowFormat::Lines {
            keyed.add(Some(format.content_type().as_bytes()));
        }
    }
    Ok(BatchAsk {
        format,
        atomicity,
        is_minimal,
        durability: fields.durability()?,
        keyed,
    })
}

/// Returns the format of a batch by its media type; Parquet is refused. A batch with an unknown type is read as NDJSON,
/// because clients like curl name a type by themselves.
fn batch_format(fields: &Fields<'_>) -> Result<RowFormat, RequestError> {
    let sent = fields.content_type.and_then(|sent| sent.to_str().ok());
    let sent = sent.unwrap_or_default();
    let reason = match RowFormat::from_content_type(sent, &Columns::default()) {
        Err(FormatError::UnknownMediaType(_)) => return Ok(RowFormat::Lines),
        Ok(RowFormat::Parquet(_)) => {
            format!("'{sent}' is accepted only by loads and by 'umbo kv import'")
        }
        Ok(format) => return Ok(format),
        Err(error) => error.to_string(),
    };
    Err(RequestError::BatchFormat { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use proptest::prelude::*;

    fn routed(method: &Method, path: &str) -> Option<Result<Operation, RequestError>> {
        route(method, path).map(|result| result.map(|route| route.operation))
    }

    #[test]
    fn routes_are_told_apart() {
        let cases = [
            (Method::GET, "/v1/ns/a/kv/x", Some(Operation::Get)),
            (Method::HEAD, "/v1/ns/a/kv/x/y/z", Some(Operation::Get)),
            (Method::PUT, "/v1/ns/a/kv/x", Some(Operation::Put)),
            (Method::DELETE, "/v1/ns/a/kv/x", Some(Operation::Delete)),
            (Method::GET, "/v1/ns/a/range/x", Some(Operation::Range)),
            (
                Method::DELETE,
                "/v1/ns/a/range/x",
                Some(Operation::DeleteRange),
            ),
            (
                Method::POST,
                "/v1/ns/a/batch/get",
                Some(Operation::MultiGet),
            ),
            (
                Method::POST,
                "/v1/ns/a/batch/write",
                Some(Operation::BatchWrite),
            ),
            (Method::POST, "/v1/ns/a/scan", Some(Operation::Scan)),
            (Method::POST, "/v1/ns/a/explain", Some(Operation::Explain)),
            (Method::GET, "/v1/ns/a/usage", Some(Operation::Usage)),
            (Method::POST, "/v1/ns/a/loads", None),
            (Method::GET, "/v1/ns/a/versions", None),
            (Method::GET, "/v1/ns/a/usage/x", None),
            (Method::GET, "/v1/ns/a/range/x/y", None),
            (Method::GET, "/v1/ns/a/kv", None),
            (Method::GET, "/healthz", None),
        ];
        for (method, path, expected) in cases {
            assert_eq!(
                routed(&method, path).map(Result::unwrap),
                expected,
                "{path}"
            );
        }
        let refused = routed(&Method::POST, "/v1/ns/a/kv/x").unwrap().unwrap_err();
        let is_named = |failure: &RequestError| matches!(failure, RequestError::MethodNotAllowed { allowed } if allowed.contains("PUT"));
        assert!(is_named(&refused));
        assert!(matches!(
            routed(&Method::GET, "/v1/ns/A/kv/x"),
            Some(Err(RequestError::BadNamespace(_)))
        ));
    }

    #[test]
    fn what_bounds_nothing_deletes_nothing() {
        let ask = |query: &str| {
            let uri: Uri = format!("/v1/ns/a/range/cA?{query}").parse().unwrap();
            let route = route(&Method::DELETE, uri.path()).unwrap().unwrap();
            delete_range(&route, &uri, &Fields::default())
        };
        for query in [
            "",
            "prefix=",
            "start=",
            "end=",
            "prefix",
            "start=&end=&prefix=",
            "start=a&end=",
            "prefix=a&start=",
            "prefix=&enc=b64u",
            "prefix=&all=false",
            "prefix=&dry_run=true",
        ] {
            let refused = ask(query).unwrap_err();
            assert!(matches!(refused, RequestError::UnboundedDelete), "{query}");
        }
        for query in ["all=", "all=1", "prefix=a&all="] {
            let refused = ask(query).unwrap_err();
            assert!(
                matches!(refused, RequestError::BadParameter { name: "all", .. }),
                "{query}"
            );
        }
        let whole = ask("prefix=&start=&end=&all=true").unwrap();
        assert_eq!(whole.range, SortRange::default());
        assert_eq!(ask("prefix=a").unwrap().range.start, "a");
    }

    #[test]
    fn an_empty_bound_of_a_range_bounds_nothing() {
        let uri: Uri = "/v1/ns/a/range/p?start=&end=&prefix=".parse().unwrap();
        let route = route(&Method::GET, uri.path()).unwrap().unwrap();
        let ask = range(&route, &uri, &Fields::default()).unwrap();
        assert_eq!((ask.range, ask.is_selective), (SortRange::default(), false));
    }

    fn key(path_and_query: &str) -> Result<Key, RequestError> {
        let uri: Uri = path_and_query.parse().unwrap();
        let rest = uri.path().strip_prefix("/v1/ns/a/kv/").unwrap();
        key_in_path(rest, &uri)
    }

    #[test]
    fn keys_are_bytes() {
        let of =
            |partition: &[u8], sort: &[u8]| Key::new(partition.to_vec(), sort.to_vec()).unwrap();
        assert_eq!(key("/v1/ns/a/kv/x").unwrap(), of(b"x", b""));
        assert_eq!(key("/v1/ns/a/kv/x/").unwrap(), of(b"x", b""));
        assert_eq!(key("/v1/ns/a/kv/x//y/z").unwrap(), of(b"x", b"/y/z"));
        assert_eq!(
            key("/v1/ns/a/kv/%00%FF%2F/a%2fb").unwrap(),
            of(b"\0\xff/", b"a/b")
        );
        assert_eq!(
            key("/v1/ns/a/kv/AP8/Li4?enc=b64u").unwrap(),
            of(b"\0\xff", b"..")
        );
        assert!(matches!(key("/v1/ns/a/kv/"), Err(RequestError::BadKey(_))));
        assert!(matches!(
            key("/v1/ns/a/kv/%4"),
            Err(RequestError::BadKeyText { .. })
        ));
        assert!(matches!(
            key("/v1/ns/a/kv/a?enc=hex"),
            Err(RequestError::BadParameter { .. })
        ));
        assert!(matches!(
            key("/v1/ns/a/kv/a?x"),
            Err(RequestError::UnknownParameter { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_key_survives_its_url(
            partition in prop::collection::vec(any::<u8>(), 1..20),
            sort in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let target = umbo_api::path::kv_target("a", &partition, &sort);
            prop_assert_eq!(key(&target).unwrap(), Key::new(partition, sort).unwrap());
        }

        #[test]
        fn any_path_is_routed_or_not(path in "/v1/ns/[a-z]{0,2}/?(kv|range|batch|scan)?/?.{0,9}") {
            for method in [Method::GET, Method::PUT, Method::POST] {
                let _ = route(&method, &path);
            }
        }
    }
}
