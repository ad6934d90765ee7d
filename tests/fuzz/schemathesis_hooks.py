"""Teaches schemathesis to send lines of JSON, that HTTP allows unknown header fields, and the rules of the document
that no schema can say."""

import itertools
import json

import schemathesis

KEYS = itertools.count()
# Header fields that HTTP itself gives any answer.
OF_HTTP = {"connection", "content-encoding", "content-length", "content-type", "date", "transfer-encoding"}


@schemathesis.serializer("application/x-ndjson", "text/csv")
def lines(_context, value):
    """One line of what the schema made; text goes as it is."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value).encode()


def resolved(document, value):
    """What a reference of the document refers to, or the value itself."""
    for name in value.get("$ref", "").split("/")[1:]:
        document = document[name]
    return document if "$ref" in value else value


@schemathesis.check
def header_fields_are_described(_context, response, case):
    """Each header field of an answer is one that the document has for this operation and status."""
    document = case.operation.schema.raw_schema
    operation = document["paths"][case.operation.path].get(case.method.lower(), {})
    answer = operation.get("responses", {}).get(str(response.status_code))
    # Other checks are about answers that the document does not have.
    if answer is not None:
        described = {name.lower() for name in resolved(document, answer).get("headers", {})}
        others = {name.lower() for name in response.headers} - described - OF_HTTP
        assert not others, f"{case.method} {case.operation.path}: {response.status_code} has {others}"


@schemathesis.hook
def filter_case(_context, case):
    """An unknown header field breaks the schema of the headers as it understands it."""
    return not any("schemathesis-unknown" in name.lower() for name in case.headers or {})


@schemathesis.hook
def before_call(_context, case, _kwargs):
    """A millisecond is a right thing to ask for, and a busy machine rightly answers 504."""
    for name in case.headers or {}:
        if name.lower() == "umbo-timeout-ms" and case.headers[name] in map(str, range(1, 1000)):
            case.headers[name] = "60000"
    if case.meta is not None and case.meta.generation.mode.is_positive:
        keep_rules(case)


def drop(fields, name):
    for field in [one for one in fields if one.lower() == name]:
        del fields[field]


def keep_rules(case):
    """What the document says in words, a request that follows its schemas has to keep too."""
    headers, query = case.headers, case.query
    names = {name.lower() for name in headers or {}}
    # Requests for rows are of a namespace that is there.
    if case.operation.path.startswith("/v1/ns/"):
        case.path_parameters["ns"] = "demo"
    # Of two conditions, and of two ways to say when a row expires, one.
    if {"if-match", "if-none-match"} <= names:
        drop(headers, "if-none-match")
    if {"umbo-ttl", "umbo-expires-at"} <= names:
        drop(headers, "umbo-expires-at")
        names.remove("umbo-expires-at")
    # Rows expire in times to come, and a touch says when.
    for name in names & {"umbo-expires-at"}:
        drop(headers, name)
        headers["Umbo-Expires-At"] = "4102444800000"
    if case.method == "PATCH" and "/kv/" in case.operation.path:
        if not names & {"umbo-ttl", "umbo-expires-at"}:
            case.headers["Umbo-TTL"] = "60"
    # Each request has an idempotency key of its own, and only with one a time for which it is kept.
    if "idempotency-key" in names:
        drop(headers, "idempotency-key")
        headers["Idempotency-Key"] = f"k{next(KEYS)}"
    if "umbo-idempotency-ttl" in names:
        drop(headers, "umbo-idempotency-ttl")
        if "idempotency-key" in names:
            headers["Umbo-Idempotency-TTL"] = "60"
    # A digest is that of the body, an upload goes on at its beginning, and a reason is one line.
    if "content-digest" in names:
        drop(headers, "content-digest")
    if "/parts/" in case.operation.path and case.method in ("PUT", "PATCH"):
        drop(case.headers, "upload-offset")
        drop(case.headers, "content-type")
        case.headers["Content-Type"] = "application/x-ndjson"
        if case.method == "PATCH":
            case.headers["Upload-Offset"] = "0"
    if "umbo-reason" in names:
        drop(headers, "umbo-reason")
        headers["Umbo-Reason"] = "for a test"
    # A body that is said to be compressed is.
    if "content-encoding" in names:
        drop(headers, "content-encoding")
    # Cursors are those of a page before, ids those of the report, and the number of a shard one of theirs.
    if query and "cursor" in query:
        del query["cursor"]
    if query and "abandon_shard" in query:
        query["abandon_shard"] = 0
    # A delete is bounded, or says that it is not.
    if case.operation.path.endswith("/range/{pk}") and case.method == "DELETE":
        case.query = query = bounded(query or {})
    body = case.body if isinstance(case.body, dict) else {}
    body.pop("cursor", None)
    if "/hot/{list}/id/" in case.operation.path:
        case.path_parameters["id"] = "AQAAAAABAAFh"
    # With enc=b64u, keys are base64url, and no text is that by chance.
    if query and query.get("enc") == "b64u":
        query["enc"] = "percent"
    if case.operation.path.endswith("/batch/get"):
        body["keys"] = [one_key(key) for key in body["keys"]]
    # Lines that are none fail one by one, and in an atomic batch all of them.
    if query and case.operation.path.endswith("/batch/write"):
        query["atomic"] = "none"
    # The header of CSV names its columns.
    if case.media_type == "text/csv":
        case.body = "pk,v\na,1\n"
    # A load is of one mode, and takes the fields of that one.
    if case.operation.path.endswith("/loads") and body:
        for name in ("as_of", "force", "import") if body.get("mode") == "replace" else ("guards", "activate"):
            body.pop(name, None)
        # A value is of a column or of several.
        columns = body.get("columns") or {}
        if isinstance(columns.get("value"), dict):
            columns["value"] = {"column": "v"}
    # A load is sealed with all the parts that were uploaded.
    if case.operation.path.endswith("/seal") and body:
        body["parts"] = 10_000
    if "segment" in body:
        body["segment"] = (body["segment"] or 0) % (body.get("segments") or 1)
    if case.operation.path.endswith("/explain"):
        case.body = one_operation(body)
    # Which values of a policy go together is tried by test_random_policies.
    if case.operation.path == "/admin/v1/quotas/simulate":
        body["policy"] = one_policy(body["policy"])
    elif case.operation.path == "/admin/v1/quotas/{name}" and body:
        case.path_parameters["name"] = body["name"]
        case.body = one_policy(body)
    # The first token closes the server to requests without one.
    if case.operation.path == "/admin/v1/tokens" and "grants" in body:
        body["grants"] = ["read:demo"]


def bounded(query):
    kept = {name: value for name, value in query.items() if name not in ("start", "end", "prefix") or value}
    return kept if kept.keys() & {"start", "end", "prefix"} else kept | {"all": "true"}


def one_key(fields):
    """Exactly one of `pk` and `pk64`, and at most one of `sk` and `sk64`."""
    return {"pk": fields.get("pk") or "a", "sk": fields.get("sk")}


# What can be said of an operation beside its keys.
EXPLAINED = {
    "get": (), "put": ("bytes",), "delete": (), "range": ("limit", "max_bytes"), "delete-range": ("limit",),
    "touch": (), "increment": (), "multi-get": (), "batch-write": ("bytes",), "scan": ("limit", "max_bytes"),
}  # fmt: skip


def one_operation(body):
    """Of a request that is explained the fields that its operation has."""
    operation = body["operation"]
    kept = {name: body[name] for name in ("operation", *EXPLAINED[operation]) if name in body}
    if operation in ("multi-get", "batch-write"):
        kept["keys"] = [one_key(key) for key in body.get("keys") or [{}]]
    elif operation != "scan":
        kept |= one_key(body) if "range" not in operation else {"pk": body.get("pk") or "a"}
    return kept


def one_policy(body):
    return {name: body[name] for name in ("name", "unit", "mode") if name in body} | {"rate": 1000, "match": {"caller": "nobody"}}
