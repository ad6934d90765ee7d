"""A stampede: many readers of one key, and few reads of the store."""

import threading

import pytest

from harness import IS_REMOTE, Client, Namespace, wait_until
from hot import LOOK_SECONDS, READS, WARM, came_by, kept

READERS = 16


def stampede(server, path, is_enough, threads=READERS):
    """Reads one path by many connections that begin at the same moment, until there was enough; returns the cache
    status of each answer, in the order in which the answers came.

    Time stands still meanwhile, but for the moments in which the detector looks, until there is a hit: then no answer
    ends that is kept, however slow the machine is.
    """
    ready, stop, ways, failures = threading.Barrier(threads + 1), threading.Event(), [], []
    looked = 0

    def read():
        client = Client(server.port)
        try:
            client.get("/healthz")
            ready.wait()
            while not stop.is_set():
                answer = client.get(path)
                assert answer.status == 200, answer
                ways.append(came_by(answer))
        except Exception as failure:
            failures.append(failure)
            ready.abort()
        finally:
            client.close()

    def is_over():
        nonlocal looked
        if "hit" not in ways and len(ways) >= looked + READS:
            server.clock.advance(LOOK_SECONDS)
            looked = len(ways)
        return failures or is_enough(ways)

    server.clock.stop()
    readers = [threading.Thread(target=read) for _ in range(threads)]
    for reader in readers:
        reader.start()
    try:
        ready.wait()
        wait_until(is_over, "the readers have seen enough")
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not failures, failures
    return ways


def mostly_hits(ways):
    """Whether enough answers came from the cache, and more than all others."""
    return ways.count("hit") > max(500, len(ways) / 2)


def leaders(server):
    return server.metric("umbo_hotkey_leaders_total")


def detected(ways):
    """The answers from the first hit on: until then nobody knows that the key is hot."""
    assert "hit" in ways, len(ways)
    return ways[ways.index("hit") :]


def asked_at_most(ways):
    """How often the store may be asked: once when the key becomes hot, and once more by who came just before that.
    Before a remote store each flight that came before the detection is one more; each reader may note one of their
    answers after the first hit of another."""
    if not IS_REMOTE:
        return 2
    return 2 + ways[: ways.index("hit")].count("miss") + READERS


@pytest.mark.parametrize("what", ["kv/a/s", "range/a?limit=10"])
def test_a_stampede_reaches_the_store_a_handful_of_times_once_its_key_is_hot(server, ns, what):
    ns.put("a", "s", b"v" * 1_000)
    before = leaders(server)
    ways = stampede(server, f"{ns.base}/{what}", mostly_hits)
    asked = leaders(server) - before
    assert asked <= asked_at_most(ways), (asked, len(ways))
    hot = detected(ways)
    assert hot.count("miss") <= asked + READERS, hot.count("miss")
    assert hot.count("hit") + hot.count("collapsed") == len(hot) - hot.count("miss")


def test_a_stampede_on_a_kept_key_costs_the_shard_nothing(server, ns):
    kept(ns, "a")
    before = server.metric("umbo_shard_requests_total")
    ways = stampede(server, ns.path("a"), mostly_hits)
    assert server.metric("umbo_shard_requests_total") == before
    assert set(ways) == {"hit"}


def test_a_stampede_right_after_a_start_is_no_worse(new_server):
    server = new_server(WARM).start()
    ns = server.namespace("demo")
    ns.put("a", value=b"v")
    server.stop()
    server.start()
    before = leaders(server)
    ways = stampede(server, ns.path("a"), mostly_hits)
    assert leaders(server) - before <= asked_at_most(ways), (leaders(server) - before, len(ways))
    assert detected(ways).count("miss") <= READERS + 2, detected(ways).count("miss")


def test_who_leaves_takes_nobody_along(server, ns):
    """Connections that are cut in the middle of a stampede do not leave the others waiting."""
    ns.put("a", value=b"v")
    request = f"GET {ns.path('a')} HTTP/1.1\r\nHost: umbo\r\n\r\n".encode()
    stop, cuts = threading.Event(), []

    def cut():
        while not stop.is_set():
            server.raw(request).close()
            cuts.append(1)

    cutters = [threading.Thread(target=cut) for _ in range(2)]
    for cutter in cutters:
        cutter.start()
    try:
        stampede(server, ns.path("a"), lambda ways: len(cuts) > 100 and mostly_hits(ways), threads=4)
    finally:
        stop.set()
        for cutter in cutters:
            cutter.join()
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
