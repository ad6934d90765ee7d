"""A thousand clients that send their bodies slowly: their memory is bounded, and others write meanwhile."""

import json

import pytest

from bulk_loads import Load
from harness import NDJSON, Server, memory_folder

MIB = 1 << 20
BODY_MEMORY = 32 * MIB
SLOW = 1_000
# What sockets and tasks of so many connections hold beside their bodies.
CONNECTIONS = 64 * MIB


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


def heads(ns, load):
    """The head of a slow body of each kind, its announced length, and how to continue it for ever."""
    part = f"{load.base}/parts/"
    return [
        lambda at: ("PUT", ns.path(f"slow{at}"), MIB, ""),
        lambda at: ("POST", f"{ns.base}/batch/write", 16 * MIB, ""),
        lambda at: ("POST", f"{ns.base}/batch/get", 5 * MIB, ""),
        lambda at: ("PUT", f"{part}{at}", 200_000_000, f"Content-Type: {NDJSON}\r\n"),
        lambda at: ("PUT", ns.path(f"large{at}"), 60 * MIB, ""),
        lambda at: ("PUT", "/admin/v1/quotas/slow", 512 << 10, "Content-Type: application/json\r\n"),
        lambda at: ("PUT", f"/admin/v1/namespaces/slow{at}", 64 << 10, "Content-Type: application/json\r\n"),
    ]


def begin(server, kinds, at, come):
    method, path, length, fields = kinds[at % len(kinds)](at)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{fields}\r\n"
    sock = server.raw(head.encode())
    sock.setblocking(False)
    # As much as the server takes: it ends some of them, and what it does not read stays in the socket.
    try:
        sock.send(b" " * min(come, length - 1))
    except OSError:
        pass
    return sock


@pytest.mark.parametrize("come", [100, 60_000, 2 * MIB], ids=["nothing", "little", "much"])
def test_slow_uploads_hinder_no_writer(server, come):
    slow, other = server.namespace("slow"), server.namespace("other")
    load = Load.create(server.client(), "slow")
    assert other.put("warm", value=b"x" * 100_000).status == 201
    before = server.memory()
    server.reset_peak_memory()
    kinds, socks, failed, written = heads(slow, load), [], [], 0
    for at in range(SLOW):
        socks.append(begin(server, kinds, at, come))
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
