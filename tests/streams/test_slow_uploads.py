"""A thousand clients that send their bodies slowly: their memory is bounded, and others write meanwhile."""

import json

import pytest

from bulk_loads import Load
from harness import NDJSON, Server, memory_folder, wait_until

MIB = 1 << 20
BODY_MEMORY = 32 * MIB
SLOW = 1_000
# What so many connections hold beside their bodies: each 48 KiB, and up to 64 KiB that came and was not read.
CONNECTIONS = SLOW * (48 + 64 << 10)


@pytest.fixture
def server():
    with memory_folder() as folder:
        limits = {"drain_delay": "0s", "body_memory": f"{BODY_MEMORY // MIB}MiB"}
        settings = {"store": {"cache": "8MiB", "shards": 2}, "server": limits}
        with Server(folder, settings) as server:
            server.start()
            generous = {"name": "default-caller", "unit": "ru", "per": ["caller"], "rate": 100_000_000}
            assert server.client().put("/admin/v1/quotas/default-caller", json.dumps(generous)).status == 201
            yield server
            server.stop()


def kinds_of(ns, load, tables):
    """A slow body of each kind: its method, path, announced length, and further fields."""
    json_type, gzip = "Content-Type: application/json\r\n", "Content-Encoding: gzip\r\n"
    part = lambda load, at: f"{load.base}/parts/{at}"
    continued = "Upload-Offset: 0\r\nUpload-Complete: ?1\r\n"
    return [
        lambda at: ("PUT", ns.path(f"slow{at}"), MIB, ""),
        lambda at: ("POST", f"{ns.base}/batch/write", 16 * MIB, ""),
        lambda at: ("POST", f"{ns.base}/batch/write", 16 * MIB, gzip),
        lambda at: ("POST", f"{ns.base}/batch/get", 5 * MIB, ""),
        lambda at: ("POST", f"{ns.base}/scan", 16 << 10, ""),
        lambda at: ("POST", f"{ns.base}/explain", MIB, ""),
        lambda at: ("POST", f"{ns.base}/loads", 4 << 10, json_type),
        lambda at: ("PUT", part(load, at), 200 * MIB, f"Content-Type: {NDJSON}\r\n"),
        lambda at: ("PATCH", part(load, at), 200 * MIB, f"Content-Type: {NDJSON}\r\n{continued}"),
        lambda at: ("PUT", part(tables, at), 200 * MIB, "Content-Type: text/csv\r\n"),
        lambda at: ("PUT", part(tables, at), 200 * MIB, f"Content-Type: text/csv\r\n{gzip}"),
        lambda at: ("PUT", ns.path(f"large{at}"), 60 * MIB, ""),
        lambda at: ("PUT", ns.path(f"unknown{at}"), None, ""),
        lambda at: ("PUT", "/admin/v1/quotas/slow", 512 << 10, json_type),
        lambda at: ("PUT", f"/admin/v1/namespaces/slow{at}", 64 << 10, json_type),
    ]


def callers(server):
    """Tokens of two callers: of one who may do everything, and of one who may write."""
    make = lambda token, name, *grants: (
        server.client(token=token).post("/admin/v1/tokens", {"name": name, "grants": list(grants)}).json()["token"]
    )
    slow = make(None, "slow", "admin:*", "write:*", "read:*", "scan:*")
    return slow, make(slow, "other", "write:*")


def begin(server, kinds, at, come, token):
    method, path, length, fields = kinds[at % len(kinds)](at)
    framing = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
    asked = f"Authorization: Bearer {token}\r\n" if token else ""
    chunk = "" if length else f"{64 * MIB:x}\r\n"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n{fields}{asked}\r\n{chunk}"
    sock = server.raw(head.encode())
    sock.setblocking(False)
    # As much as the server takes: it ends some of them, and what it does not read stays in the socket.
    try:
        sock.send(b" " * min(come, (length or 64 * MIB) - 1))
    except OSError:
        pass
    return sock


@pytest.mark.parametrize(
    "come, is_one_caller", [(100, True), (60_000, True), (2 * MIB, False)], ids=["nothing", "little", "much"]
)
def test_slow_uploads_hinder_no_writer(server, come, is_one_caller):
    """What comes at once of much holds the share of its caller; what is slow gives way to its own caller, too."""
    slow, other = server.namespace("slow"), server.namespace("other")
    load, tables = (Load.create(server.client(), "slow") for _ in range(2))
    token = None
    if not is_one_caller:
        token, other.client.token = callers(server)
    assert other.put("warm", value=b"x" * 100_000).status == 201
    before = server.memory()
    server.reset_peak_memory()
    kinds, socks, failed, written = kinds_of(slow, load, tables), [], [], 0
    for at in range(SLOW):
        socks.append(begin(server, kinds, at, come, token))
        if at % 10 == 0:
            answer = other.put(f"p{at}", value=b"y" * (100_000 if at % 20 else 900_000))
            written += 1
            if answer.status not in (201, 204):
                failed.append(answer)
    for at in range(100):
        for sock in socks:
            try:
                sock.send(b" ")
            except OSError:
                pass
        answer = other.put(f"p{at}", value=b"y" * 300_000)
        written += 1
        if answer.status not in (201, 204):
            failed.append(answer)
    extra = server.memory("VmHWM") - before
    held = server.metric("umbo_body_memory_bytes")
    print(f"{SLOW} slow uploads of {come} bytes: {len(failed)} of {written} failed, {extra / MIB:.1f} MiB more, {held / MIB:.1f} held")
    assert len(failed) <= written / 100, failed[:3]
    assert held <= BODY_MEMORY
    assert extra <= BODY_MEMORY + CONNECTIONS
    for sock in socks:
        sock.close()


def test_slow_short_bodies_give_way_where_requests_are_in_flight(new_server):
    """Bodies that take no memory take places among the requests in flight."""
    places = 40
    server = new_server({"server": {"requests_in_flight_max": places}}).start()
    ns = server.namespace()
    head = f"PUT {ns.path('slow')} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx"
    slow = [server.raw(head.encode()) for _ in range(places + 10)]
    wait_until(lambda: server.in_flight() >= places, "they have all places")
    wait_until(lambda: ns.put("p", value=b"x").status == 201, "some give way")
    statuses = [ns.put("p", value=b"x").status for _ in range(100)]
    assert statuses == [204] * 100, "as many as the next ones need"
    assert server.metric('umbo_refused_total{code="too-many-in-flight",kind="shed"}') >= 1
    for sock in slow:
        sock.close()
