"""What is too large or too slow is refused in time: from its announcement, before it is read."""

import http.client
import json
import select
import socket

import pytest

from harness import Answer, Server, b64u, curl, memory_folder, read_answer, receive
from processes import WAIT_SECONDS, wait_until

MIB = 1 << 20
LARGEST = 64 * MIB


def head(method, path, *fields):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode()


def test_413_from_content_length_without_the_body(server, ns):
    """The answer arrives although not one byte of the body is sent."""
    for path, length, code in [
        ("/kv/a", LARGEST + 1, "value-too-large"),
        ("/kv/a", 1 << 62, "value-too-large"),
        ("/batch/write", 16 * MIB + 1, "body-too-large"),
        ("/batch/get", 16 * MIB, "body-too-large"),
        ("/scan", MIB, "body-too-large"),
    ]:
        method = "PUT" if path == "/kv/a" else "POST"
        with server.raw(head(method, ns.base + path, f"Content-Length: {length}")) as sock:
            answer = read_answer(sock.makefile("rb"))
            answer.problem(413, code)
            assert answer.headers["connection"] == "close", "nobody reads that body"
    ns.get("a").problem(404, "key-not-found")


def test_a_refusal_is_not_as_long_as_what_it_refuses(server, ns):
    """Its text keeps both ends: the beginning says what is wrong, and the end what is expected."""
    long = "k" * MIB
    post = lambda path, body: ns.client.request("POST", f"{ns.base}/{path}", body)
    detail = post("batch/get", json.dumps({long: 1})).problem(400, "invalid-body")["detail"]
    assert len(detail.encode()) <= 1_024 and detail.startswith("unknown field `kkk") and "expected" in detail
    lines = b"".join(json.dumps({long: number}).encode() + b"\n" for number in range(8))
    refused = post("batch/write", lines)
    assert len(refused.body) < 16 << 10 and b"kkk" in refused.body, refused
    policy = {"name": long, "unit": "ru", "rate": 1}
    for path, body in [("/admin/v1/quotas/q", policy), ("/admin/v1/namespaces", {"name": long})]:
        refused = ns.client.request("PUT" if path.endswith("q") else "POST", path, json.dumps(body))
        assert 400 <= refused.status < 500 and len(refused.body) < 4 << 10, refused
    refused = ns.client.get(ns.path("a") + "?" + "p" * 5_000 + "=1")
    assert refused.status == 400 and len(refused.body) < 4 << 10, refused


def test_413_with_expect_continue_never_asks_for_the_body(server, ns, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(b"x" * (LARGEST + 1))
    url = f"http://127.0.0.1:{server.port}{ns.path('a')}"
    refused = curl("-v", "-T", str(large), "-H", "Expect: 100-continue", url)
    refused.problem(413, "value-too-large")
    assert b"100 Continue" not in refused.sent and refused.headers["connection"] == "close"
    large.write_bytes(b"x" * MIB)
    taken = curl("-v", "-T", str(large), "-H", "Expect: 100-continue", url)
    assert taken.status == 201 and b"100 Continue" in taken.sent


def test_413_of_chunked_bodies(server, ns):
    """Without an announcement the refusal comes once the limit is passed."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with server.raw(head("PUT", ns.path("a"), "Transfer-Encoding: chunked")) as sock:
        sock.sendall(chunk * 1024 + b"1\r\nx\r\n")
        read_answer(sock.makefile("rb")).problem(413, "value-too-large")
    with server.raw(head("PUT", ns.path("a"), "Transfer-Encoding: chunked")) as sock:
        sock.sendall(chunk * 16 + b"0\r\n\r\n")
        assert read_answer(sock.makefile("rb")).status == 201
    assert len(ns.get("a").body) == MIB


def test_a_refused_short_body_costs_no_connection(server, no_ns):
    """Head and body in two pieces: the refusal may come first, the connection goes on."""
    with server.raw(b"") as sock:
        # The second piece does not wait until the first one is confirmed.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = sock.makefile("rb")
        for _ in range(20):
            sock.sendall(head("PUT", no_ns.path("a"), "Content-Length: 5"))
            sock.sendall(b"12345")
            answer = read_answer(reader)
            answer.problem(404, "namespace-not-found")
            assert "connection" not in answer.headers
        sock.sendall(head("PUT", "/admin/v1/namespaces/NO", "Content-Length: 2") + b"{}")
        read_answer(reader).problem(400, "invalid-key")
        sock.sendall(head("PUT", "/nowhere", "Content-Length: 2") + b"{}")
        read_answer(reader).problem(404, "route-not-found")
        sock.sendall(head("GET", "/healthz"))
        assert read_answer(reader).status == 200


def test_a_refused_body_that_does_not_come_ends_the_connection_and_says_so(server, no_ns):
    for fields in (["Content-Length: 5"], ["Content-Length: 5", "Expect: 100-continue"]):
        with server.raw(head("PUT", no_ns.path("a"), *fields)) as sock:
            answer = read_answer(sock.makefile("rb"))
            answer.problem(404, "namespace-not-found")
            assert answer.headers["connection"] == "close"


def test_414(server, ns):
    assert ns.get("a" * 1000, "s" * 2000).status == 404
    ns.client.get(f"{ns.base}/kv/{'a' * 17_000}").problem(414, "uri-too-long")
    with server.raw(b"GET /" + b"a" * 200_000) as sock:
        read_answer(sock.makefile("rb")).problem(414, "uri-too-long")
    longest = ns.client.get(f"{ns.base}/kv/{'%61' * 1024}/{'%61' * 2048}")
    longest.problem(404, "key-not-found")


def test_431(server, ns):
    many = {f"X-{number}": "x" for number in range(150)}
    ns.client.request("GET", ns.path("a"), headers=many).problem(431, "headers-too-large")
    ns.client.get(ns.path("a"), x="y" * 33_000).problem(431, "headers-too-large")
    assert ns.client.get(ns.path("a"), x="y" * 16_000).status == 404


def answered_in_time(server, sock, seconds):
    """Lets time pass in steps until the server has an answer, or closes. What was sent before may reach it after a
    step."""
    wait_until(lambda: select.select([sock], [], [], 0)[0] or server.clock.advance(seconds), "the server answers")
    return sock


@pytest.fixture(scope="module")
def patient():
    """A server with short timeouts, whose time does not pass by itself."""
    settings = {"server": {"header_timeout": "1s", "body_timeout": "1s", "idle_timeout": "1m"}}
    with memory_folder() as path, Server(path, settings) as server:
        server.start().clock.stop()
        yield server


def test_408_for_a_head_that_does_not_end(patient):
    with patient.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n") as sock:
        answer = read_answer(answered_in_time(patient, sock, 1).makefile("rb"))
        answer.problem(408, "request-timeout")
        assert answer.headers["connection"] == "close"
    with patient.raw(b"") as idle:
        idle.sendall(head("GET", "/healthz"))
        reader = idle.makefile("rb")
        assert read_answer(reader).status == 200
        idle.sendall(b"G")
        answered_in_time(patient, idle, 1)
        read_answer(reader).problem(408, "request-timeout")
        assert reader.read() == b""


def test_408_for_a_body_that_does_not_end(patient):
    ns = patient.namespace()
    with patient.raw(head("PUT", ns.path("a"), "Content-Length: 10") + b"12345") as sock:
        answer = read_answer(answered_in_time(patient, sock, 1).makefile("rb"))
        assert answer.problem(408, "request-timeout")["outcome"] == "not-applied"
        assert answer.headers["connection"] == "close"
    ns.get("a").problem(404, "key-not-found")


def test_a_body_that_is_cut_off_is_not_applied(server, ns):
    lines = json.dumps({"pk": "a", "v": "x"}).encode() + b"\n"
    for method, path in (("PUT", "/kv/a"), ("POST", "/batch/write")):
        sock = server.raw(head(method, ns.base + path, "Content-Length: 1000") + lines)
        sock.close()
    with server.raw(head("PUT", ns.path("a"), "Transfer-Encoding: chunked") + b"zz\r\n") as sock:
        assert read_answer(sock.makefile("rb")).status == 400
    ns.get("a").problem(404, "key-not-found")


def test_an_idle_connection_is_closed_silently(patient):
    with patient.raw(b"") as sock:
        assert receive(answered_in_time(patient, sock, 1)) == b"", "no request came"
    with patient.raw(head("GET", "/healthz")) as sock:
        assert read_answer(sock.makefile("rb")).status == 200
        assert receive(answered_in_time(patient, sock, 15)) == b""


def test_timeouts_within_their_bounds(ns):
    for value in ("0", "600001", "-1", "1.5", "x", ""):
        problem = ns.get("a", Umbo_Timeout_Ms=value).problem(400, "invalid-header")
        assert "umbo-timeout-ms" in problem["detail"]
    ns.put("a", value=b"x")
    assert ns.get("a", Umbo_Timeout_Ms="600000").status == 200
    statuses = {ns.get("a", Umbo_Timeout_Ms="1").status for _ in range(20)}
    assert statuses <= {200, 504}


def test_a_page_ends_at_the_clients_time_and_goes_on_from_there(server, ns, still):
    """Its time ends when the client has read a little of it: far more than the sockets hold is still to come."""
    for part in range(2):
        assert ns.write([{"pk": "p", "sk": f"{part}{n}", "v": "x" * MIB} for n in range(8)]).status == 200
    with socket.socket() as sock:
        sock.settimeout(WAIT_SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        sock.connect(("127.0.0.1", server.port))
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.sock = sock
        connection.request("GET", f"{ns.base}/range/p?max_bytes={1 << 30}", headers={"Umbo-Timeout-Ms": "5000"})
        answer = connection.getresponse()
        begun = answer.read(MIB)
        still.advance(5)
        page = Answer(answer.status, answer.getheaders(), begun + answer.read())
    rows, end = page.rows_and_end()
    assert end["why"] == "deadline" and 0 < len(rows) < 16, end
    rows += ns.range_all("p", cursor=end["cursor"], max_bytes=1 << 30)
    assert [row["sk"] for row in rows] == [f"{part}{n}" for part in range(2) for n in range(8)]


def test_a_page_whose_time_has_passed_may_be_asked_for_again(ns):
    """On a machine that does not get to the store within a millisecond."""
    ns.put("p", value=b"x")
    for _ in range(20):
        page = ns.range("p", headers={"Umbo-Timeout-Ms": "1"})
        if page.status == 504:
            assert page.problem(504, page.json()["type"].rsplit("/", 1)[1])["retry"]["safe"]
        else:
            assert page.status == 200, page


def test_a_page_may_be_longer_than_its_default(ns):
    for part in range(3):
        ns.put("p", str(part), b"x" * MIB)
    rows, end = ns.range("p").rows_and_end()
    assert len(rows) == 2 and end["why"] == "bytes"
    rows, end = ns.range("p", max_bytes=8 * MIB).rows_and_end()
    assert len(rows) == 3 and end["why"] == "done"


@pytest.mark.parametrize("size", [MIB, MIB + 1])
def test_values_in_a_batch_have_the_same_limit(ns, size):
    lines = [{"pk": "a", "v": "x" * size}, {"pk": "b", "v64": b64u(b"y" * size)}]
    *rows, _ = ns.write(lines).lines()
    expected = 201 if size == MIB else 413
    assert [row["status"] for row in rows] == [expected] * 2
