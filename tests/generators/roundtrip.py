"""One row there and back by the generated client: `roundtrip.py URL`, with the client in the path of modules."""

import io
import sys

from umbo_generated import Client
from umbo_generated.api.cost import explain
from umbo_generated.api.many_rows import batch_write, range_
from umbo_generated.api.namespaces import put_namespace
from umbo_generated.api.rows import delete_sorted, get_sorted, put_sorted
from umbo_generated.models import ExplainBody, NamespaceSpec
from umbo_generated.types import File

# A list instead of lines, which the generator does not read.
client = Client(base_url=sys.argv[1]).with_headers({"Accept": "application/json"})
key = {"client": client, "ns": "python", "pk": "a/b", "sk": "c d"}
value = bytes(range(256))

created = put_namespace.sync(client=client, ns="python", body=NamespaceSpec(default_ttl="30d"))
assert created.name == "python" and created.default_ttl == 30 * 86_400, created
put = put_sorted.sync_detailed(**key, body=File(io.BytesIO(value)), umbo_ttl="5m")
assert put.status_code == 201, put
assert get_sorted.sync(**key).payload.read() == value
refused = put_sorted.sync_detailed(**key, body=File(io.BytesIO(b"x")), if_none_match="*")
assert refused.status_code == 412, refused
assert refused.parsed.type_ == "/v1/errors/precondition-failed" and not refused.parsed.retry.safe
line = b'{"pk":"a/b","sk":"d","v":"text"}\n'
written = batch_write.sync_detailed(client=client, ns="python", body=File(io.BytesIO(line)))
assert written.status_code == 200, written
first, second, last = range_.sync(client=client, ns="python", pk="a/b", limit=5)
assert (first.sk, second.sk, second.v) == ("c d", "d", "text"), (first, second)
assert last.end.rows == 2 and not last.end.more and last.end.ru > 0, last
price = explain.sync(client=client, ns="python", body=ExplainBody(operation="get", pk="a"))
assert price.estimate_ru > 0, price
assert delete_sorted.sync_detailed(**key).status_code == 204
absent = get_sorted.sync(**key)
assert absent.status == 404 and absent.type_ == "/v1/errors/key-not-found", absent
print("round trip done")
