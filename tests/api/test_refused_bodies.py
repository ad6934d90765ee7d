"""A refusal is read, also by clients that send their whole body before they read anything."""

import json
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
import requests

from harness import PROBLEM, curl, read_answer, receive

MIB = 1 << 20
HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def refusals(server):
    """Requests that are refused before their body is read, or while it is: method, path, status, MiB of the body."""
    client = server.client()
    server.namespace("spent")
    policy = {"name": "spent", "match": {"namespace": "spent"}, "per": ["namespace"], "unit": "ru", "rate": 1, "burst": 1}
    assert client.put("/admin/v1/quotas/spent", json.dumps(policy)).status == 201
    # In debt for longer than the tests take.
    assert client.put("/v1/ns/spent/kv/a", bytes(MIB)).status == 201
    server.namespace("bodies")
    return [
        ("POST", "/v1/ns/bodies/batch/write", 413, 30),
        ("POST", "/v1/ns/bodies/batch/write", 413, 70),
        ("PUT", "/v1/ns/bodies/kv/a", 413, 70),
        ("PUT", "/v1/ns/bodies/kv/a?x=1", 400, 8),
        ("PUT", "/v1/ns/absent/kv/a", 404, 30),
        ("POST", "/v1/ns/bodies/kv/a", 405, 15),
        ("PUT", "/nowhere", 404, 15),
        ("PUT", "/admin/v1/namespaces/bodies", 413, 15),
        ("PUT", "/v1/ns/spent/kv/a", 429, 15),
    ]


def by_urllib(url, method, body):
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=60)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers["content-type"], refused.read()


def by_requests(url, method, body):
    answer = requests.request(method, url, data=body, timeout=60)
    return answer.status_code, answer.headers["content-type"], answer.content


def by_requests_in_chunks(url, method, body):
    return by_requests(url, method, (body[at : at + MIB] for at in range(0, len(body), MIB)))


def by_curl_over_http2(url, method, body):
    answer = curl("--http2-prior-knowledge", "-H", "Expect:", "-X", method, "--data-binary", "@-", url, data=body)
    return answer.status, answer.headers["content-type"], answer.body


def by_fetch(url, method, body):
    script = """const [url, method, length] = process.argv.slice(1);
        fetch(url, { method, body: Buffer.alloc(Number(length), "x") })
            .then(async (answer) => console.log(JSON.stringify([answer.status, answer.headers.get("content-type"), await answer.text()])))
            .catch((error) => { console.error(error); process.exit(1); });"""
    return of_program(["node", "-e", script, url, method, str(len(body))])


def by_java(url, method, body):
    return of_program(["java", "-Xshare:auto", HERE / "RefusedBody.java", url, method, str(len(body))])


def of_program(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    status, kind, text = json.loads(result.stdout)
    return status, kind, text.encode()


@pytest.mark.parametrize("send", [by_urllib, by_requests, by_requests_in_chunks, by_curl_over_http2, by_fetch, by_java])
def test_the_answer_to_a_refused_body_is_read(server, refusals, send):
    program = {by_fetch: "node", by_java: "java"}.get(send)
    if program and not shutil.which(program):
        pytest.skip(f"there is no {program}")
    # A program takes seconds to start.
    for method, path, status, length in refusals[:: 4 if program else 1]:
        got, kind, text = send(f"http://127.0.0.1:{server.port}{path}", method, b"x" * (length * MIB))
        assert (got, kind) == (status, PROBLEM), (method, path, length, text)
        assert json.loads(text)["status"] == status


def test_bodies_that_never_end_are_not_waited_for_without_a_bound(server, refusals):
    """As many of them as are read at a time. Whoever comes then is answered as ever, also after its body."""
    head = b"POST /v1/ns/absent/batch/write HTTP/1.1\r\nHost: a\r\nContent-Length: 600000000\r\n\r\n"
    slow = [server.raw(head + bytes(5 * MIB)) for _ in range(64)]
    for sock in slow:
        answer = read_answer(sock.makefile("rb"))
        assert answer.status == 404 and answer.headers["connection"] == "close"
    assert by_urllib(f"http://127.0.0.1:{server.port}/nowhere", "PUT", bytes(2 * MIB))[0] == 404
    assert [receive(sock) for sock in slow] == [b""] * len(slow)


def test_a_token_that_is_wrong_is_read_too(new_server):
    server = new_server().start()
    server.namespace("demo")
    assert server.client().post("/admin/v1/tokens", {"name": "ops", "grants": ["*:*"]}).status == 201
    for path in ("/v1/ns/demo/kv/a", "/admin/v1/namespaces/demo"):
        assert by_urllib(f"http://127.0.0.1:{server.port}{path}", "PUT", bytes(30 * MIB))[:2] == (401, PROBLEM)
