"""Teaches schemathesis to send lines of JSON, and that HTTP allows unknown header fields."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    """One line of what the schema made; text goes as it is."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value).encode()


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
