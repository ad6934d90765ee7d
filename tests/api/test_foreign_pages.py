"""Web pages of other sites, which a browser lets send requests to a server that asks for no token."""

import json

import pytest

from harness import Client, curl

EVIL = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
CHANGES = [
    ("POST", "/v1/ns/{ns}/batch/write", '{"op":"put","pk":"evil","v":"1"}'),
    ("POST", "/v1/ns/{ns}/scan", "{}"),
    ("POST", "/v1/ns/{ns}/loads", '{"mode":"merge"}'),
    ("POST", "/v1/ns/{ns}/loads/x/abort", ""),
    ("POST", "/v1/ns/{ns}/versions/rollback", ""),
    ("POST", "/v1/ns/{ns}/versions/2/activate", ""),
    ("PUT", "/v1/ns/{ns}/kv/evil", "x"),
    ("DELETE", "/v1/ns/{ns}/kv/mine", ""),
    ("POST", "/admin/v1/tokens", '{"name":"evil","grants":["*:*"]}'),
    ("POST", "/admin/v1/quotas/simulate", "{}"),
    ("POST", "/admin/v1/backups", ""),
    ("PUT", "/admin/v1/namespaces/evil", ""),
    ("DELETE", "/admin/v1/namespaces/{ns}", ""),
    ("POST", "/page", ""),
    ("POST", "/nowhere", ""),
]
READS = ["/", "/page", "/page/app.js", "/healthz", "/readyz", "/openapi.json", "/contract", "/v1/errors/internal",
         "/v1/ns/{ns}/kv/mine", "/v1/ns/{ns}/range/mine", "/v1/ns/{ns}/usage", "/admin/v1/namespaces",
         "/admin/v1/shards", "/admin/v1/config", "/admin/v1/metrics", "/nowhere"]  # fmt: skip
OWN = ["127.0.0.1", "[::1]:8080", "localhost", "LOCALHOST:1", "localhost.", "dispatcher-1:8080", "umbo.data.svc"]
FOREIGN = ["evil.example", "EVIL.example.:8080", "127.0.0.1.evil.example", "localhost@evil.example", "umbo.svc.example", ""]


@pytest.fixture
def mine(ns):
    ns.put("mine", value=b"1")
    return ns


def both_ports(server):
    return [server.client(), server.admin()]


@pytest.mark.parametrize("foreign", [EVIL, {"Origin": "null"}, {"Sec-Fetch-Site": "same-site"}])
def test_no_page_of_another_origin_changes_anything(server, mine, foreign):
    for client in both_ports(server):
        for method, path, body in CHANGES:
            answer = client.request(method, path.format(ns=mine.name), body, foreign)
            problem = answer.problem(403, "foreign-origin")
            assert problem["outcome"] == "not-applied" and "server.cors_origins" in problem["detail"], answer
    assert mine.get("mine").body == b"1" and mine.get("evil").status == 404
    assert server.client().get("/admin/v1/tokens").json()["tokens"] == []


def test_the_own_page_changes_and_any_page_may_ask(server, mine):
    for client in both_ports(server):
        own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
        named = {"Content-Type": "application/json; charset=utf-8"}
        answer = client.put(f"/admin/v1/namespaces/{mine.name}", "{}", **own, **named)
        assert answer.status == 200, answer
        assert client.get("/admin/v1/namespaces", **EVIL).status == 200
        assert "access-control-allow-origin" not in client.get("/healthz", **EVIL).headers


def test_a_name_that_may_be_of_a_foreign_page_reads_nothing(server, mine):
    for client in both_ports(server):
        for path in [*READS, "/metrics"]:
            for method in ("GET", "HEAD", "OPTIONS", "PUT"):
                answer = client.request(method, path.format(ns=mine.name), headers={"Host": "evil.example:8080"})
                assert answer.status == 403 and answer.headers["umbo-problem"] == "foreign-host", (path, answer)
        for host in FOREIGN:
            problem = client.get(mine.path("mine"), Host=host).problem(403, "foreign-host")
            assert f"'{host}'" in problem["detail"] and "server.hosts" in problem["detail"], problem
        for host in OWN:
            assert client.get("/healthz", Host=host).status == 200, host


def test_the_host_of_a_target_and_of_http2_counts(server, mine):
    url = f"http://127.0.0.1:{server.port}{mine.path('mine')}"
    over_http2 = ("--http2-prior-knowledge", url)
    curl("-H", "Host: evil.example", *over_http2).problem(403, "foreign-host")
    assert curl("-H", "Host: localhost:80", *over_http2).status == 200
    assert curl(*over_http2).body == b"1"
    target = ("--request-target", "http://evil.example" + mine.path("mine"), url)
    curl(*target).problem(403, "foreign-host")
    # A probe of a load balancer: no browser leaves the field out.
    assert curl("--http1.0", "-H", "Host:", url).body == b"1"


def test_listed_names_are_served_and_listed_origins_change_the_data_plane(new_server):
    settings = {"hosts": "kv.example.org, .corp.example", "cors_origins": "https://app.example.org"}
    server = new_server({"server": settings}).start()
    ns = server.namespace("demo")
    for host in ("kv.example.org", "KV.example.org:8080", "a.corp.example."):
        assert ns.put("a", value=b"1", Host=host).status in (201, 204), host
    ns.put("a", Host="x.kv.example.org").problem(403, "foreign-host")
    listed = {"Origin": "https://app.example.org", "Sec-Fetch-Site": "cross-site"}
    assert ns.put("a", value=b"2", **listed).status == 204
    ns.client.put("/admin/v1/namespaces/demo", **listed).problem(403, "foreign-origin")
    server.admin().put("/admin/v1/namespaces/demo", **listed).problem(403, "foreign-origin")
    own = {"Origin": "https://kv.example.org", "Host": "kv.example.org"}
    assert ns.put("a", value=b"3", **own).status == 204


def test_with_a_token_names_and_origins_are_nobodys_business(new_server):
    server = new_server().start()
    server.namespace("demo")
    answer = server.client().post("/admin/v1/tokens", {"name": "ops", "grants": ["*:*"]})
    token = answer.json()["token"]
    for client in (Client(server.port, token), Client(server.admin_port, token)):
        answer = client.put("/admin/v1/namespaces/other", Host="evil.example", Origin="https://evil.example")
        assert answer.status in (200, 201), answer
    server.client().get("/admin/v1/namespaces", Host="evil.example").problem(401, "unauthenticated")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a",
                                  "application/jsonx", "text/json", ""])  # fmt: skip
def test_a_body_for_operators_is_json_by_its_media_type(server, kind):
    for client in both_ports(server):
        for method, path, body in [
            ("POST", "/admin/v1/tokens", {"name": "a", "grants": ["*:*"]}),
            ("PUT", "/admin/v1/namespaces/other", {"default_ttl": "1d"}),
            ("PATCH", "/admin/v1/namespaces/other", {"default_ttl": "1d"}),
            ("PUT", "/admin/v1/quotas/a", {"name": "a"}),
            ("POST", "/admin/v1/quotas/simulate", {"policy": {"name": "a"}}),
        ]:
            problem = client.request(method, path, json.dumps(body), {"Content-Type": kind}).problem(415, "body-not-json")
            assert "application/json" in problem["detail"] and problem["outcome"] == "not-applied"
    assert server.client().get("/admin/v1/tokens").json()["tokens"] == []


def test_json_has_more_than_one_name_and_a_program_may_leave_it_out(server, ns):
    client = server.client()
    body, path = json.dumps({"default_ttl": "1d"}), f"/admin/v1/namespaces/{ns.name}"
    for kind in ({}, {"Content-Type": "Application/JSON"}, {"Content-Type": "application/merge-patch+json"}):
        assert client.request("PATCH", path, body, kind).status == 200, kind
    by_browser = {"Origin": f"http://127.0.0.1:{server.port}"}
    client.request("PATCH", path, body, by_browser).problem(415, "body-not-json")


def test_stored_values_run_nothing_in_a_browser(server, ns):
    html = b"<script>alert(1)</script>"
    ns.put("page", value=html, Content_Type="text/html")
    ns.put("large", value=html * (1 << 17), Content_Type="text/html")
    ns.put("number", value=b"1")
    tag = ns.get("page").headers["etag"]
    answers = [
        ns.get("page"),
        ns.client.request("HEAD", ns.path("page")),
        ns.get("page", Range="bytes=0-3"),
        ns.get("page", If_None_Match=tag),
        ns.get("large"),
        ns.get("large", Range="bytes=5-"),
        ns.range("page"),
        ns.range("page", {"Accept": "application/json"}),
        ns.scan(),
        ns.multi_get([{"pk": "page"}]),
        ns.write([{"op": "put", "pk": "x", "v": "<b>"}]),
        ns.client.request("PATCH", ns.path("number"), headers={"Umbo-Increment": "1"}),
        curl("--http2-prior-knowledge", f"http://127.0.0.1:{server.port}{ns.path('page')}"),
    ]
    for answer in answers:
        assert answer.status in (200, 206, 304), answer
        assert answer.headers["content-security-policy"] == "sandbox", answer
        assert answer.headers["x-content-type-options"] == "nosniff", answer
