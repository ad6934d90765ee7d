"""What every answer carries, whatever was asked: ids, problems, Allow, timing, no body for HEAD."""

import pytest

from harness import PROBLEM, read_answer

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")

ROUTES = [
    ("/v1/ns/{ns}/kv/a", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
    ("/v1/ns/{ns}/kv/a/b/c", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
    ("/v1/ns/{ns}/range/a", {"GET", "DELETE"}),
    ("/v1/ns/{ns}/batch/get", {"POST"}),
    ("/v1/ns/{ns}/batch/write", {"POST"}),
    ("/v1/ns/{ns}/scan", {"POST"}),
    ("/healthz", {"GET", "HEAD"}),
    ("/readyz", {"GET", "HEAD"}),
    ("/openapi.json", {"GET", "HEAD"}),
    ("/v1/errors/internal", {"GET", "HEAD"}),
    ("/admin/v1/namespaces", {"GET", "HEAD"}),
    ("/admin/v1/namespaces/{ns}", {"GET", "HEAD", "PUT", "PATCH", "DELETE"}),
    ("/admin/v1/tokens", {"GET", "HEAD", "POST"}),
    ("/admin/v1/tokens/x", {"DELETE"}),
    ("/admin/v1/shards", {"GET", "HEAD"}),
    ("/admin/v1/cluster", {"GET", "HEAD"}),
    ("/admin/v1/config", {"GET", "HEAD"}),
]
METHODS = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS", "TRACE", "PROPFIND"]


@pytest.mark.parametrize("path, allowed", ROUTES)
def test_405_names_what_is_allowed(server, ns, path, allowed):
    client = server.client()
    path = path.format(ns=ns.name)
    for method in METHODS:
        if method in allowed:
            continue
        answer = client.request(method, path)
        assert answer.status == 405, (method, answer)
        listed = {name.strip() for name in answer.headers["allow"].split(",")}
        assert listed == allowed, (method, answer)
        if method != "HEAD":
            answer.problem(405, "method-not-allowed")


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/ns", "/v1/ns/a", "/v1/ns/a/kv", "/v1/ns/a/range/a/b", "/v1/ns/a/batch/put",
     "/v2/ns/a/kv/a", "/admin", "/admin/v1/quota", "/v1/ns/a/scan/b",
     "//", "/%00", "/healthz/", "/metrics"],
)  # fmt: skip
def test_unknown_paths(server, path):
    client = server.client()
    for method in ("GET", "POST", "PUT"):
        client.request(method, path).problem(404, "route-not-found")
    client.get("/v1/errors/nonsense").problem(404, "route-not-found")


def test_refusals_of_head_have_no_body(server, ns, no_ns):
    with server.raw(b"") as sock:
        reader = sock.makefile("rb")
        for path in (ns.path("a"), no_ns.path("a"), "/nowhere", ns.path("a") + "?x=1"):
            sock.sendall(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            answer = read_answer(reader, is_head=True)
            assert answer.status in (400, 404) and answer.headers["content-type"] == PROBLEM
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_answer(reader).json() == {"status": "ok"}, "nothing was left in between"


def test_request_ids_are_taken_or_made(server, ns):
    client = server.client()
    for path in (ns.path("a"), "/healthz", "/nowhere", "/admin/v1/shards"):
        made = [client.get(path).headers["umbo-request-id"] for _ in range(2)]
        assert made[0] != made[1] and all(made)
        for given in ("my-id_1.2", "a" * 64):
            assert client.get(path, Umbo_Request_Id=given).headers["umbo-request-id"] == given
        for bad in ("a" * 65, "a b", "", "é".encode().decode("latin-1"), "<x>"):
            assert client.get(path, Umbo_Request_Id=bad).headers["umbo-request-id"] not in (bad, "")
    problem = ns.get("a", Umbo_Request_Id="me").problem(404, "key-not-found")
    assert problem["request_id"] == "me"


def test_timing_on_request(ns):
    ns.put("a", value=b"x")
    assert "server-timing" not in ns.get("a").headers
    # The store has no time in an answer that another request has just read.
    timing = ns.get("a", Prefer="umbo-timing", Cache_Control="no-cache").headers["server-timing"]
    assert "total;dur=" in timing and "store;dur=" in timing
    assert "server-timing" in ns.get("b", Prefer="x, Umbo-Timing").headers


def test_fields_that_stand_twice_are_refused(server, ns):
    with server.raw(b"") as sock:
        reader = sock.makefile("rb")
        for field in ("Umbo-TTL: 5", "If-Match: *", "Umbo-Timeout-Ms: 50", "Umbo-Durability: sync"):
            head = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
            sock.sendall(f"{head}{field}\r\n{field}\r\n\r\n".encode())
            answer = read_answer(reader)
            assert answer.status in (204, 201, 400), (field, answer)
            answer.problem(400, "invalid-header")


def test_every_error_type_explains_itself(server, ns):
    client = server.client()
    problem = ns.get("a").problem(404, "key-not-found")
    explained = client.get(problem["type"])
    assert explained.status == 200 and "404" in explained.body.decode()
    assert explained.headers["content-type"].startswith("text/plain")
    document = client.get("/openapi.json").body.decode()
    assert "/v1/errors/" in document or "problem+json" in document


def test_health_readiness_and_metrics(server):
    for client in (server.client(), server.admin()):
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ok"}
    metrics = server.admin().get("/metrics")
    assert metrics.status == 200 and metrics.headers["content-type"].startswith("text/plain")
    before = server.metric("umbo_requests_total")
    server.client().get("/healthz")
    assert server.metric("umbo_requests_total") > before
    server.admin().get("/v1/ns/a/kv/a").problem(404, "route-not-found")


def test_the_root_says_what_this_is(server):
    for client in (server.client(), server.admin()):
        root = client.get("/")
        info = root.json()
        assert root.status == 200 and info["name"] == "umbo" and 'rel="service-desc"' in root.headers["link"]
        assert client.get(info["openapi"]).json()["openapi"] == "3.1.0"
        assert client.get(info["contract"]).body.startswith(b"# The contract for services")
        assert client.get(info["status"]).status == 200


def test_answers_without_a_body_name_their_problem(ns, no_ns):
    for where, code in ((ns, "key-not-found"), (no_ns, "namespace-not-found")):
        head = where.client.request("HEAD", where.path("a"))
        assert (head.status, head.body, head.headers["umbo-problem"]) == (404, b"", code)
        assert where.get("a").headers["umbo-problem"] == code
    ns.put("a", value=b"x")
    refused = ns.client.request("HEAD", ns.path("a"), If_Match='"1"')
    assert (refused.status, refused.headers["umbo-problem"]) == (412, "precondition-failed")
    assert "umbo-problem" not in ns.get("a").headers


PREFLIGHT = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization,umbo-ttl"}


def test_pages_of_other_origins_use_the_data_plane_where_they_may(new_server):
    page = {"Origin": "https://app.example.org"}
    server = new_server({"server": {"cors_origins": "https://app.example.org, http://localhost:3000"}}, "listed")
    server.start()
    client, path = server.client(), "/v1/ns/demo/kv/a"
    server.namespace("demo")
    asked = client.request("OPTIONS", path, headers=page | PREFLIGHT)
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == page["Origin"]
    assert "PUT" in asked.headers["access-control-allow-methods"]
    assert asked.headers["access-control-allow-headers"] == "authorization,umbo-ttl"
    for answer in (client.put(path, b"x", **page), client.get("/v1/ns/no/kv/a", **page)):
        assert answer.headers["access-control-allow-origin"] == page["Origin"], answer
        assert answer.headers["vary"] == "origin" and answer.headers["access-control-expose-headers"] == "*"
    for stranger in ({"Origin": "https://evil.example"}, {"Origin": "null"}):
        assert client.request("OPTIONS", path, headers=stranger | PREFLIGHT).status == 405
        assert "access-control-allow-origin" not in client.get(path, **stranger).headers
    admin = client.request("OPTIONS", "/admin/v1/namespaces", headers=page | PREFLIGHT)
    assert admin.status == 405 and "access-control-allow-origin" not in admin.headers


def test_without_settings_no_page_of_another_origin_may(ns):
    page = {"Origin": "https://app.example.org"}
    assert ns.client.request("OPTIONS", ns.path("a"), headers=page | PREFLIGHT).status == 405
    assert not [name for name in ns.get("a", **page).headers if name.startswith("access-control")]


def lines_of(server, method, path, *fields):
    """Asks with fields as they are, in as many lines as they have."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", "Content-Length: 0", *fields, "", ""])
    with server.raw(head.encode()) as sock:
        return read_answer(sock.makefile("rb"), is_head=method == "HEAD")


def test_a_list_may_have_several_lines(server, ns):
    ns.put("a", value=b"x" * 2000)
    tag, path = ns.get("a").headers["etag"], ns.path("a")
    assert lines_of(server, "GET", path, 'If-None-Match: "1"', f"If-None-Match: {tag}").status == 304
    assert lines_of(server, "GET", path, 'If-None-Match: "1"', 'if-none-match: , "2",').status == 200
    assert lines_of(server, "PUT", path, 'If-Match: "1"', f"If-Match: {tag}").status == 204
    assert lines_of(server, "PUT", path, 'If-Match: "1"', f"If-Match: {tag}").status == 412
    ns.write([{"op": "put", "pk": "p", "sk": str(n), "v": "x" * 100} for n in range(50)])
    several = lines_of(server, "GET", f"{ns.base}/range/p", "Accept-Encoding: br", "Accept-Encoding: gzip")
    assert several.headers["content-encoding"] == "gzip"
    several = lines_of(server, "GET", f"{ns.base}/range/p", "Accept: application/json;q=0.4", "Accept: application/x-ndjson;q=0.3")
    assert several.headers["content-type"] == "application/json"
    several = lines_of(server, "GET", path, "Prefer: respond-async", "Prefer: umbo-timing")
    assert "server-timing" in several.headers
    page = server.client().get("/page")
    assert lines_of(server, "GET", "/page", 'If-None-Match: "x"', f"If-None-Match: {page.headers['etag']}").status == 304
    for field in ("Umbo-TTL: 5", "Range: bytes=0-1", "Idempotency-Key: a", "Content-Type: text/plain"):
        lines_of(server, "PUT", path, field, field).problem(400, "invalid-header")


@pytest.mark.parametrize("accept, kind", [
    ("application/json;q=0, application/x-ndjson", "application/x-ndjson"),
    ("application/json;q=0", "application/x-ndjson"),
    ("application/json;q=0.2, application/x-ndjson;q=0.1", "application/json"),
    ("application/json, */*", "application/json"),
    ("*/*", "application/x-ndjson"),
])  # fmt: skip
def test_what_has_no_weight_is_never_answered(ns, accept, kind):
    assert ns.range("a", {"Accept": accept}).headers["content-type"] == kind


def test_refusals_are_counted_before_there_is_any(new_server):
    server = new_server().start()
    text = server.admin().get("/metrics").body.decode()
    for series in (
        'umbo_refused_total{code="quota-exceeded",kind="rejected"} 0',
        'umbo_refused_total{code="foreign-host",kind="refused"} 0',
        'umbo_requests_rejected_total{operation="put"} 0',
        'umbo_request_outcomes_total{operation="get",tier="sheddable-plus",outcome="failed"} 0',
    ):
        assert f"\n{series}\n" in text, series
