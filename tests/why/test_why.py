"""Why a request was refused: by its id, and by its caller."""

import concurrent.futures
import json
import pathlib
import re
import subprocess

import pytest

from harness import Client, binary, quote, read_answer
from processes import wait_until

ERROR_CODES = pathlib.Path(__file__).parents[2] / "crates/umbo-api/src/error_code.rs"
# Codes of refusals that take more than one request to a healthy server; the unit tests of the sentences
# go through all codes.
POLICY = '{"name": "two", "unit": "ru", "rate": %d, "match": {"caller": "nobody"}}'
NEEDS = {
    "before a request has an id": {"headers-too-large", "invalid-request", "uri-too-long"},
    "a fault": {
        "data-damaged", "deadline-in-store", "internal", "namespace-being-removed", "records-stale",
        "records-unavailable", "records-unreadable", "shard-unavailable", "storage-failed", "storage-full",
        "upload-gone",
    },
    "a crowd": {
        "answer-memory-full", "body-memory-full", "overloaded", "too-many-in-flight", "too-many-readers",
        "write-queue-full", "hot-list-full", "idempotency-full", "load-limit",
    },
    # It is told in a header field.
    "a HEAD": {"part-not-found"},
    "another engine": {"needs-exact-writes", "not-implemented"},
    "other settings": {"hot-keys-disabled", "quota-of-file", "token-of-file"},
    # Shard nodes tell within moments what they have.
    "rows": {"namespace-has-rows"},
    "a restart": {"shutting-down"},
    "an operator": {"request-killed", "request-not-running"},
    # An operator whose token is the last one.
    "tokens": {"forbidden", "unauthenticated", "last-admin"},
}


def why(client, request_id):
    answer = client.get(f"/admin/v1/why/{quote(request_id)}")
    assert answer.status == 200, answer
    return answer.json()


def refused_of_loads(ns, root):
    """The same of loads."""
    base = f"/v1/ns/{ns.name}-loads/loads"
    root.put(f"/admin/v1/namespaces/{ns.name}-loads")
    load, ended = (f"{base}/{root.post(base, '{}').json()['id']}" for _ in range(2))
    kind = {"Content_Type": "application/x-ndjson"}
    assert root.put(f"{load}/parts/0", b'{"pk":"a","v":"1"}\n', **kind).status == 201
    assert root.post(f"{ended}/abort").status == 200
    assert root.post(base, '{"mode":"replace"}').status == 201
    versions = base.removesuffix("/loads") + "/versions"
    return {
        "load-building": lambda: root.post(base, '{"mode":"replace"}'),
        "version-in-use": lambda: root.delete(f"{versions}/1"),
        "version-not-found": lambda: root.post(f"{versions}/9/activate"),
        "version-not-ready": lambda: root.post(f"{versions}/2/activate"),
        "version-superseded": lambda: root.post(f"{versions}/rollback"),
        "load-not-found": lambda: root.get(f"{base}/nothing"),
        "load-state": lambda: root.put(f"{ended}/parts/0", b"{}", **kind),
        "offset-mismatch": lambda: root.request("PATCH", f"{load}/parts/1", b"{}", {"upload-offset": "9", "content-type": "application/x-ndjson"}),
        "part-differs": lambda: root.put(f"{load}/parts/0", b'{"pk":"b","v":"1"}\n', **kind),
        "parts-missing": lambda: root.post(f"{load}/seal", '{"parts":3}'),
        "unsupported-format": lambda: root.put(f"{load}/parts/2", b"x", Content_Type="image/png"),
    }


def refused(ns, root):
    """A request for each code that one request to a healthy server meets."""
    get, put, post, delete = ns.client.get, ns.client.put, ns.client.post, ns.client.delete
    long_key = "k" * 1_025
    ns.put("there", value=b"1")
    ns.put("brotli", value=b"1", Content_Encoding="br")
    ns.put("most", value=b"%d" % (2**63 - 1))
    ns.put("word", value=b"one")
    patch = lambda name: ns.client.request("PATCH", ns.path(name), headers={"umbo-increment": "1"})  # noqa: E731
    root.put(f"/admin/v1/hot/blocked/ns/{ns.name}/kv/blocked")
    policy = {"name": f"only-{ns.name}", "match": {"namespace": ns.name}, "unit": "writes", "rate": "0.001", "burst": "40"}
    put_policy = root.put(f"/admin/v1/quotas/{policy['name']}", json.dumps(policy))
    assert put_policy.status == 201, put_policy
    many = [{"pk": str(at)} for at in range(20_000)]
    return {
        "abnormal-usage-detected": lambda: ns.get("blocked"),
        **refused_of_loads(ns, root),
        "digest-mismatch": lambda: ns.put("there", value=b"1", Content_Digest=f"sha-256=:{'A' * 43}=:"),
        "idempotency-mismatch": lambda: [ns.put("there", value=v, Idempotency_Key="k") for v in (b"1", b"2")][1],
        "increment-overflow": lambda: patch("most"),
        "not-a-number": lambda: patch("word"),
        "range-not-satisfiable": lambda: ns.get("there", Range="bytes=99-"),
        "batch-too-large": lambda: ns.multi_get(many),
        "body-too-large": lambda: post(f"{ns.base}/explain", b"x" * (1 << 20) + b"y"),
        "hot-key-listed": lambda: [
            root.put(f"/admin/v1/hot/pinned/ns/{ns.name}/kv/listed", body) for body in ("", '{"reason":"x"}')
        ][1],
        "body-not-json": lambda: root.put("/admin/v1/namespaces/other", "{}", Content_Type="text/plain"),
        "foreign-host": lambda: ns.get("there", Host="example.org"),
        "foreign-origin": lambda: ns.put("there", Origin="https://example.org"),
        "hot-key-not-listed": lambda: delete(f"/admin/v1/hot/pinned/ns/{ns.name}/kv/there"),
        "invalid-body": lambda: post(f"{ns.base}/explain", "{"),
        "invalid-cursor": lambda: ns.range("there", cursor="x"),
        "invalid-header": lambda: ns.put("a", Umbo_TTL="never"),
        "invalid-key": lambda: get("/v1/ns/UPPER/kv/a"),
        "invalid-query": lambda: get(f"{ns.path('a')}?nope=1"),
        "key-not-found": lambda: ns.get("absent"),
        "key-too-large": lambda: ns.get(long_key),
        "method-not-allowed": lambda: post(ns.path("a")),
        "namespace-exists": lambda: root.put(f"/admin/v1/namespaces/{ns.name}", '{"default_ttl": "1h"}'),
        "namespace-not-found": lambda: get("/v1/ns/nowhere/kv/a"),
        "not-acceptable": lambda: ns.get("brotli", Accept_Encoding="gzip"),
        "precondition-failed": lambda: ns.put("there", If_Match='"1"'),
        "quota-exists": lambda: [root.put("/admin/v1/quotas/two", POLICY % rate) for rate in (1000, 2000)][1],
        "quota-invalid": lambda: root.put("/admin/v1/quotas/bad", '{"name": "bad", "unit": "ru", "rate": "-1"}'),
        "quota-not-found": lambda: get("/admin/v1/quotas/nothing"),
        "record-not-found": lambda: get("/admin/v1/why/nothing"),
        "route-not-found": lambda: get("/v2"),
        "token-not-found": lambda: delete("/admin/v1/tokens/nothing"),
        "unbounded-delete": lambda: delete(f"{ns.base}/range/there"),
        "unsupported-coding": lambda: post(f"{ns.base}/explain", "{}", Content_Encoding="br"),
        "value-too-large": lambda: ns.put("a", value=b"", Content_Length=str((64 << 20) + 1)),
        # The last one: after it no write is admitted.
        "quota-exceeded": lambda: ns.write([{"pk": str(at), "v": "1"} for at in range(50)]) and ns.put("a"),
    }


def test_every_code_of_a_refusal_is_explained(server, ns):
    root = server.client()
    requests = refused(ns, root)
    codes = set(re.findall(r'^    [A-Z]\w+ "([a-z-]+)" \d{3} ', ERROR_CODES.read_text(), re.M))
    needs = set().union(*NEEDS.values()) | {"client-closed", "deadline-before-store", "request-timeout"}
    assert set(requests) | needs == codes and not set(requests) & needs
    for code, request in requests.items():
        answer = request()
        problem = answer.problem(answer.status, code)
        found = why(root, problem["request_id"])
        assert (found["code"], found["status"]) == (code, answer.status), found
        assert found["older"] == 0 and found["kept_as"] == "refused", found
        assert f"({code})" in found["text"] and len(found["text"]) > 80, found
        is_answer = code in ("key-not-found", "precondition-failed")
        assert problem.get("why") == (None if is_answer else f"umbo why {problem['request_id']}")


def test_a_request_that_its_client_cuts_off_is_explained(server, ns, still):
    """The record is there without any tick of the server."""
    root = server.client()
    head = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n"
    with server.raw((head + "Umbo-Request-Id: cut-off\r\n\r\nx").encode()):
        wait_until(lambda: server.in_flight() == 1, "the request is in flight")
    wait_until(lambda: root.get("/admin/v1/why/cut-off").status == 200, "the record is there")
    found = why(root, "cut-off")
    assert found["outcome"] in ("refused", "abandoned") and found["caller"] == "anonymous", found
    assert found["phase"] == "locate" and found["shard"] >= 0, found


def test_a_rejection_names_policies_balances_and_parts(server, ns):
    requests = refused(ns, server.client())
    answer = requests["quota-exceeded"]()
    problem = answer.problem(429, "quota-exceeded")
    found = why(server.client(), problem["request_id"])
    verdicts = {one["policy"]: one for one in found["policies"]}
    spent = verdicts[problem["policy"]]
    assert spent["verdict"] == "rejected" and spent["unit"] == "writes" and spent["cost"] == 1, spent
    assert spent["balance"] < 1 and abs(spent["wait_ms"] - problem["retry"]["after_ms"]) <= 1, spent
    assert verdicts["default-caller"]["verdict"] == "would-admit"
    assert found["actual_ru"] == 0 and found["estimate_ru"] >= 6, found
    parts = found["ru_parts"]
    assert sum(parts.values()) == pytest.approx(found["estimate_ru"], abs=1e-5), parts
    assert found["caller"] == "anonymous" and found["namespace"] == ns.name
    assert [phase["phase"] for phase in found["phases"]] == ["prepare"]
    assert found["phase"] == "admit" and "umbo quota set" in found["text"]


def test_a_slow_request_says_where_its_time_went(server, ns, still):
    """Of few puts no p99 is known: one that takes more than 100 ms is slow."""
    client = server.client()
    head = f"PUT {ns.path('slow')} HTTP/1.1\r\nHost: a\r\nUmbo-Request-Id: slow-put\r\nContent-Length: 2\r\n\r\nx"
    with server.raw(head.encode()) as sock, sock.makefile("rb") as reader:
        wait_until(lambda: server.in_flight() == 1, "the request is in flight")
        still.advance(0.4)
        still.go()
        sock.sendall(b"y")
        assert read_answer(reader).status == 201
    found = why(client, "slow-put")
    assert (found["operation"], found["outcome"], found["kept_as"]) == ("put", "served", "slow"), found
    times = {phase["phase"]: phase["ms"] for phase in found["phases"]}
    assert 400 <= times["prepare"] <= found["total_ms"] and times["fetch"] > 0, found
    assert "It is slow" in found["text"] and "its body may have come slowly" in found["text"], found
    assert found["actual_ru"] >= 6 and found["policies"][0]["verdict"] == "admitted", found


def test_the_newest_of_an_id_is_shown_with_the_number_of_others(server, ns):
    client = server.client()
    for value in (b"x" * ((1 << 20) + 1), b"x"):
        client.put("/v1/ns/nowhere/kv/a", value, Umbo_Request_Id="again")
    client.get("/v2", Umbo_Request_Id="again")
    found = why(client, "again")
    assert found["code"] == "route-not-found" and found["older"] == 2, found
    assert "2 older requests with the same id" in found["text"]


@pytest.mark.parametrize("request_id", ["nothing", "a" * 1_024, "<script>alert(1)</script>", "../../etc", "\u00e9", "%00", "-rf"])
def test_an_id_without_a_record_is_told_how_long_they_are_kept(server, request_id):
    answer = server.client().get(f"/admin/v1/why/{quote(request_id)}")
    problem = answer.problem(404, "record-not-found")
    assert "are kept" in problem["detail"] or "an id has 1 to 64" in problem["detail"], problem
    assert len(problem["detail"]) < 400 and answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("query", ["?caller=", "?caller=a&last=2h", "?caller=a&last=x", "?caller=a&caller=b", "?caller=%ff"])
def test_a_bad_question_is_refused(server, query):
    server.client().get(f"/admin/v1/why{query}").problem(400, "invalid-query")


def test_a_flood_of_one_caller_hides_no_refusal_of_another(new_server):
    server = new_server().start()
    root = server.client()
    ns = server.namespace("demo")
    token = root.post("/admin/v1/tokens", {"name": "root", "grants": ["*:*"]}).json()["token"]
    root = server.client(token=token)
    make = lambda name: root.post("/admin/v1/tokens", {"name": name, "grants": ["read:demo"]}).json()["token"]
    flood, quiet = make("flood"), server.client(token=make("quiet"))
    said = quiet.put(ns.path("a")).problem(403, "forbidden")
    request = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {flood}\r\nContent-Length: 0\r\n\r\n"
    # More than the server keeps records of.
    count, rounds, threads = 100, 301, 4

    def send(_):
        with server.raw(b"") as sock:
            for _ in range(rounds):
                sock.sendall(request.encode() * count)
                data = b""
                # Counted and not read: the test has to be quicker than what it floods.
                while (forbidden := data.count(b"HTTP/1.1 403 ")) < count:
                    assert data.count(b"HTTP/1.1 ") <= forbidden + 1, data[-2_000:]
                    received = sock.recv(1 << 16)
                    assert received, data[-2_000:]
                    data += received

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(threads)))
    found = why(root, said["request_id"])
    assert (found["caller"], found["code"]) == ("quiet", "forbidden")
    reasons = root.get("/admin/v1/why?caller=flood").json()
    assert [(one["code"], one["count"]) for one in reasons["reasons"]] == [("forbidden", threads * rounds * count)]
    assert why(root, reasons["reasons"][0]["example"])["caller"] == "flood"
    # Without the permission a caller is told of its own requests, and of no others.
    assert why(quiet, said["request_id"])["id"] == said["request_id"]
    fleet = quiet.get(f"/admin/v1/fleet/why/{said['request_id']}").json()["processes"]
    assert [one["answer"]["id"] for one in fleet] == [said["request_id"]]
    # Without a caller all are listed, those that were refused last first.
    newest = root.get("/admin/v1/why").json()
    assert "caller" not in newest and [one["caller"] for one in newest["reasons"]][:2] == ["flood", "quiet"]
    quiet.get("/admin/v1/why").problem(403, "forbidden")
    own = quiet.get("/admin/v1/why?caller=quiet").json()["reasons"]
    assert [(one["code"], one["count"]) for one in own] == [("forbidden", 1)]
    for other in (reasons["reasons"][0]["example"], "nothing"):
        quiet.get(f"/admin/v1/why/{other}").problem(403, "forbidden")
        assert quiet.get(f"/admin/v1/fleet/why/{other}").json()["processes"] == []
    quiet.get("/admin/v1/why?caller=flood").problem(403, "forbidden")
    Client(server.port).get("/admin/v1/why?caller=flood").problem(401, "unauthenticated")
    last = [one["id"] for one in root.get("/admin/v1/tokens").json()["tokens"] if one["name"] == "root"][0]
    refused = root.delete(f"/admin/v1/tokens/{last}").problem(409, "last-admin")
    assert why(root, refused["request_id"])["code"] == "last-admin"


def test_the_command_tells_the_same(new_server):
    # On a server of its own: of a caller with many reasons, the later ones are told apart by their code only.
    server = new_server().start()
    ns = server.namespace("crowded")
    requests = refused(ns, server.client())
    problem = requests["quota-exceeded"]().problem(429, "quota-exceeded")

    def run(*arguments):
        command = [binary(), "--server", f"127.0.0.1:{server.port}", "why", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    told = run(*problem["why"].split()[2:])
    assert told.returncode == 0, told
    assert problem["policy"] in told.stdout and "rejected with 429" in told.stdout
    counted = run("--caller", "anonymous", "--last", "5m", "-o", "json")
    reasons = {(one["code"], one.get("policy")) for one in json.loads(counted.stdout)["reasons"]}
    assert ("quota-exceeded", problem["policy"]) in reasons
    unknown = run("-rf")
    assert unknown.returncode == 3 and "are kept" in unknown.stderr, unknown
    assert run().returncode == 2 and run("a", "--caller", "b").returncode == 2
