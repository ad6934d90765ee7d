"""Requests that run: one that costs too much ends with a cursor, and operators list and end them."""

import json
import socket
import subprocess

import pytest

from harness import Server, binary, memory_folder, receive, wait_until

ROWS = 40_000
ROW = "x" * 200
# A chunk is about 256 KiB: a page ends after one or two, and a hundred pages are the whole.
SETTINGS = {"store": {"shards": 4}, "server": {"request_ru_max": 60, "drain_delay": "0s"}}


@pytest.fixture(scope="module")
def loaded():
    """One partition of 40,000 rows; a request may cost 60 RU."""
    with memory_folder() as folder, Server(folder, SETTINGS) as server:
        server.start()
        ns = server.namespace()
        generous = {"name": "default-caller", "unit": "ru", "per": ["caller"], "rate": 100_000_000}
        assert server.client().put("/admin/v1/quotas/default-caller", json.dumps(generous)).status == 201
        for first in range(0, ROWS, 10_000):
            rows = [{"pk": "long", "sk": f"{n:06}", "v": ROW} for n in range(first, first + 10_000)]
            assert ns.write(rows).status == 200
        yield server, ns
        server.stop()


def umbo(server, *arguments, status=0):
    command = [binary(), "--server", f"http://127.0.0.1:{server.port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done
    return done.stdout if status == 0 else done.stderr


def running(server):
    return server.client().get("/admin/v1/requests").json()["requests"]


@pytest.mark.parametrize("kind", ["range", "scan"])
def test_a_page_that_costs_too_much_ends_with_its_cursor_and_the_reason(loaded, kind):
    server, ns = loaded
    page = ns.range("long", max_bytes=1 << 30) if kind == "range" else ns.scan(max_bytes=1 << 30)
    rows, end = page.rows_and_end()
    assert end["why"] == "limit" and end["cause"] == "cost" and end["more"], end
    # It ends with the chunk that reaches the bound: one costs about as much as the bound here.
    assert 60 <= end["ru"] < 250 and 0 < len(rows) < ROWS / 4, end
    everything = ns.range_all("long", max_bytes=1 << 30) if kind == "range" else ns.scan_all(max_bytes=1 << 30)
    assert [row["sk"] for row in everything] == [f"{n:06}" for n in range(ROWS)], "each once, in order"
    small, end = ns.range("long", limit=10).rows_and_end()
    assert len(small) == 10 and end["why"] == "limit" and "cause" not in end


def test_the_client_goes_on_by_itself(loaded):
    server, _ = loaded
    lines = umbo(server, "kv", "range", "demo", "long", "-o", "ndjson").splitlines()
    keys = [json.loads(line).get("sk") for line in lines]
    assert [key for key in keys if key] == [f"{n:06}" for n in range(ROWS)]


def long_range(port, partition, request_id):
    """Asks for a partition and reads nothing of it but one byte."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", port))
    head = f"GET /v1/ns/demo/range/{partition}?max_bytes={1 << 30} HTTP/1.1\r\nHost: a\r\nUmbo-Request-Id: {request_id}\r\n"
    sock.sendall(head.encode() + b"Connection: close\r\n\r\n")
    assert sock.recv(1) == b"H"
    return sock


def test_a_long_stream_is_listed_and_ended(new_server):
    server = new_server({"store": {"shards": 4}}).start()
    ns = server.namespace()
    for first in range(0, ROWS, 10_000):
        rows = [{"pk": "long", "sk": f"{n:06}", "v": ROW} for n in range(first, first + 10_000)]
        assert ns.write(rows).status == 200
    assert running(server) == []
    client = long_range(server.port, "long", "job-7")
    (listed,) = wait_until(lambda: running(server), "the stream is listed")
    assert (listed["id"], listed["operation"], listed["phase"]) == ("job-7", "range", "encode")
    assert listed["namespace"] == "demo" and listed["ru"] > 1
    for _ in range(20):
        assert ns.get("long", "000001").status == 200
    assert [one["id"] for one in running(server)] == ["job-7"], "a get is not listed"
    (told,) = [json.loads(line) for line in umbo(server, "ps", "-o", "ndjson").splitlines()]
    assert told["id"] == "job-7" and told["dispatcher"]

    umbo(server, "kill", "job-7", "--reason", "too much at noon")
    body = receive(client)
    client.close()
    text = body.partition(b"\r\n\r\n")[2]
    error = json.loads(text[text.rindex(b'{"error"') :].split(b"\n")[0])
    assert error["error"]["type"] == "/v1/errors/request-killed", error
    assert "too much at noon" in error["error"]["detail"] and error["cursor"], error
    wait_until(lambda: running(server) == [], "it is listed no more")
    # It is charged what was read: the ledger and the line say the same.
    usage = server.client().get("/v1/ns/demo/usage").json()
    (charged,) = [row["ru"] for row in usage["rows"] if row["operation"] == "range"]
    assert charged == error["ru"] > listed["ru"] - 0.001, (usage, error)
    events = server.client().get("/admin/v1/events").json()["events"]
    (event,) = [one for one in events if one["kind"] == "request-killed"]
    assert event["subject"] == "job-7" and event["reason"] == "too much at noon"

    rows, end = ns.range("long", cursor=error["cursor"], max_bytes=1 << 30).rows_and_end()
    seen = text.count(b'"sk":"')
    assert [row["sk"] for row in rows] == [f"{n:06}" for n in range(seen, ROWS)] and not end["more"]


def test_a_request_that_does_not_run_cannot_be_ended(loaded):
    server, _ = loaded
    answer = server.client().delete("/admin/v1/requests/5f3a9c01000000000007")
    answer.problem(404, "request-not-running")
    assert "umbo ps" in umbo(server, "kill", "5f3a9c01000000000007", status=3)
