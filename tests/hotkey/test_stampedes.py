"""A stampede: many readers of one key, and few reads of the store."""

import threading
import time

import pytest

from harness import Client, Namespace, wait_until
from hot import WARM, came_by, kept


def stampede(server, path, threads=16, seconds=1.0):
    """Reads one path by many connections that begin at the same moment; returns the answers' ways."""
    ready, stop, ways, failures = threading.Barrier(threads + 1), threading.Event(), [], []

    def read():
        client, mine = Client(server.port), []
        try:
            client.get("/healthz")
            ready.wait()
            while not stop.is_set():
                answer = client.get(path)
                assert answer.status == 200, answer
                mine.append(came_by(answer))
        except Exception as failure:
            failures.append(failure)
            ready.abort()
        finally:
            ways.extend(mine)
            client.close()

    readers = [threading.Thread(target=read) for _ in range(threads)]
    for reader in readers:
        reader.start()
    ready.wait()
    time.sleep(seconds)
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures, failures
    return ways


def leaders(server):
    return server.metric("umbo_hotkey_leaders_total")


@pytest.mark.parametrize("what", ["kv/a/s", "range/a?limit=10"])
def test_a_stampede_on_a_cold_key_reaches_the_store_a_handful_of_times(server, ns, what):
    ns.put("a", "s", b"v" * 1_000)
    time.sleep(0.3)
    before = leaders(server)
    ways = stampede(server, f"{ns.base}/{what}", seconds=2)
    asked = leaders(server) - before
    assert len(ways) > 100, len(ways)
    # One read to begin with, perhaps one more until its key is known to be hot, one a time to live.
    assert asked <= 4, (asked, len(ways))
    assert ways.count("miss") <= asked
    assert ways.count("hit") + ways.count("collapsed") == len(ways) - ways.count("miss")


def test_a_stampede_on_a_kept_key_costs_the_shard_nothing(server, ns):
    kept(ns, "a")
    before = server.metric("umbo_shard_requests_total")
    ways = stampede(server, ns.path("a"))
    reached = server.metric("umbo_shard_requests_total") - before
    assert reached <= 2, (reached, len(ways))


def test_a_stampede_right_after_a_start_is_no_worse(new_server):
    server = new_server(WARM).start()
    ns = server.namespace("demo")
    ns.put("a", value=b"v")
    server.stop()
    server.start()
    before = leaders(server)
    ways = stampede(server, ns.path("a"), seconds=2)
    assert leaders(server) - before <= 4, (leaders(server) - before, len(ways))


def test_who_leaves_takes_nobody_along(server, ns):
    """Connections that are cut in the middle of a stampede do not leave the others waiting."""
    ns.put("a", value=b"v")
    request = f"GET {ns.path('a')} HTTP/1.1\r\nHost: umbo\r\n\r\n".encode()
    stop = threading.Event()

    def cut():
        while not stop.is_set():
            server.raw(request).close()

    cutters = [threading.Thread(target=cut) for _ in range(2)]
    for cutter in cutters:
        cutter.start()
    try:
        ways = stampede(server, ns.path("a"), threads=4)
    finally:
        stop.set()
        for cutter in cutters:
            cutter.join()
    assert len(ways) > 50
    wait_until(lambda: server.in_flight() == 0, "nothing is left in flight")


def test_with_the_layer_off_every_read_asks_its_shard(new_server):
    server = new_server({"hotkey": {"enabled": False}}).start()
    ns = server.namespace("demo")
    ns.put("a", value=b"v")
    for _ in range(300):
        answer = ns.get("a")
        assert answer.status == 200 and answer.body == b"v"
        assert "age" not in answer.headers and "hit" not in answer.headers.get("cache-status", "")
    assert server.metric("umbo_hotkey_hits_total") == 0
    client = server.client()
    client.get("/admin/v1/hot").problem(409, "hot-keys-disabled")
    path = f"/admin/v1/hot/blocked/ns/{ns.name}/kv/a"
    client.put(path).problem(409, "hot-keys-disabled")
    client.delete(path).problem(409, "hot-keys-disabled")
    assert Namespace(client, ns.name).get("a").status == 200
