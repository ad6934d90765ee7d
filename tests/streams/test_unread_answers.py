"""Answers that nobody reads: their memory is bounded, they are in flight, their connections end."""

import gzip
import json

import http2
import pytest

from bulk import step_until
from harness import Server, memory_folder, wait_until

MIB = 1 << 20
BUDGET = 64 * MIB
STREAMS = 250


@pytest.fixture(scope="module")
def loaded():
    """64 rows of 1 MiB, and 100 of 60 KiB."""
    with memory_folder() as folder:
        limits = {"drain_delay": "0s", "write_timeout": "3s", "answer_memory": "64MiB"}
        limits["requests_in_flight_max"] = 8192  # more than the streams of all that read nothing
        settings = {"store": {"cache": "8MiB", "shards": 4}, "server": limits}
        with Server(folder, settings) as server:
            server.start()
            ns = server.namespace()
            generous = {"name": "default-caller", "unit": "ru", "per": ["caller"], "rate": 100_000_000}
            assert server.client().put("/admin/v1/quotas/default-caller", json.dumps(generous)).status == 201
            for number in range(64):
                assert ns.put("large", f"{number:03}", b"v" * MIB, Umbo_Durability="async").status == 201
            for number in range(100):
                assert ns.put("medium", f"{number:03}", b"v" * (60 << 10), Umbo_Durability="async").status == 201
            warm(ns)
            yield server, ns
            server.stop()


def keys_of(first, count):
    return [{"pk": "large", "sk": f"{(first + at) % 64:03}"} for at in range(count)]


def warm(ns):
    """The memory that a process keeps is taken before it is measured."""
    for first in range(8):
        assert ns.multi_get(keys_of(first, 7)).status == 200
        assert ns.get("large", f"{first:03}").status == 200


def attack(server, requests, window=0):
    """One connection of HTTP/2 that takes `window` bytes of each answer, and no more."""
    sock = server.raw(http2.settings(window))
    for at, request in enumerate(requests):
        sock.sendall(http2.request(at * 2 + 1, *request))
    return sock


def multi_gets(ns):
    for first in range(STREAMS):
        yield "POST", f"{ns.base}/batch/get", json.dumps({"keys": keys_of(first, 7)}).encode()


def gets(ns, partition, rows, **fields):
    for at in range(STREAMS):
        yield "GET", ns.path(partition, f"{at % rows:03}"), None, fields


def wait_until_cut(server):
    """Lets the time pass in which a client has to take something."""
    step_until(server.clock, lambda: server.in_flight() == 0, "they are cut", step=0.5)


@pytest.mark.parametrize("connections, attacked", [(1, "multi-get"), (6, "get"), (20, "medium")])
def test_unread_answers_hold_no_more_than_their_budget(loaded, connections, attacked):
    server, ns = loaded
    requests = {
        "multi-get": lambda: multi_gets(ns),
        "get": lambda: gets(ns, "large", 64),
        "medium": lambda: gets(ns, "medium", 100),
    }[attacked]
    refused = lambda: server.metric("umbo_refused_total")
    before, refused_before = server.memory(), refused()
    server.reset_peak_memory()
    # Nobody is cut before all have asked.
    server.clock.stop()
    try:
        socks = [attack(server, requests()) for _ in range(connections)]
        have_asked = lambda: server.in_flight() + refused() - refused_before >= connections * STREAMS
        wait_until(have_asked, "what is not handed over is in flight")
        wait_until(lambda: server.metric("umbo_answer_memory_bytes") > 2 * MIB, "answers are held")
        # Small rows of others are read meanwhile.
        assert ns.put("small", value=b"x").status in (201, 204)
        assert ns.get("small").status == 200
    finally:
        server.clock.go()
    wait_until_cut(server)
    wait_until(lambda: server.metric("umbo_answer_memory_bytes") == 0, "nothing is held any more")
    extra = server.memory("VmHWM") - before
    print(f"{connections} x {STREAMS} unread {attacked}: {extra / MIB:.1f} MiB more")
    assert extra <= BUDGET + 64 * MIB
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_values_are_decoded_within_the_budget(loaded, method):
    """A value of 8 KB that is 8 MiB for a client which does not accept its coding."""
    server, ns = loaded
    zeros = gzip.compress(bytes(8 * MIB - 1))
    assert ns.put("bomb", value=zeros, Content_Encoding="gzip").status in (201, 204)
    plain = {"Accept-Encoding": "identity"}
    assert ns.get("bomb", **plain).body == bytes(8 * MIB - 1)
    before = server.memory()
    server.reset_peak_memory()
    requests = ((method, ns.path("bomb"), None, {"accept-encoding": "identity"}) for _ in range(STREAMS))
    sock = attack(server, requests)
    held = lambda: server.metric("umbo_answer_memory_bytes")
    wait_until(lambda: held() >= 7 * MIB or method == "HEAD", "one of them is decoded")
    assert ns.get("medium", "000").status == 200
    wait_until_cut(server)
    wait_until(lambda: held() == 0, "nothing is held any more")
    extra = server.memory("VmHWM") - before
    print(f"{STREAMS} unread decoded {method}: {extra / MIB:.1f} MiB more")
    assert extra <= BUDGET + 64 * MIB
    sock.close()


def test_a_byte_now_and_then_keeps_no_connection(loaded):
    server, ns = loaded
    sock = attack(server, gets(ns, "large", 64), window=1)
    cut_before = server.metric("umbo_streams_aborted_total")
    stream = 1

    def is_cut():
        nonlocal stream
        try:
            sock.sendall(http2.frame(http2.WINDOW_UPDATE, 0, stream, b"\0\0\0\1"))
        except OSError:
            pass
        stream = (stream + 2) % (STREAMS * 2)
        server.clock.advance(0.1)
        return server.metric("umbo_streams_aborted_total") > cut_before and server.in_flight() == 0

    wait_until(is_cut, "it is cut")
    sock.close()


def test_an_answer_that_finds_no_room_is_shed(loaded):
    """Within its own time, by a name of its own, and others are answered."""
    server, ns = loaded
    shed = lambda: server.metric('umbo_refused_total{code="answer-memory-full",kind="shed"}')
    # Over a slow hop the time of answers may be over before they come so far that they hold or want room: then again.
    for _ in range(10):
        before = shed()
        server.clock.stop()
        try:
            sock = attack(server, gets(ns, "large", 64, **{"umbo-timeout-ms": "1000"}))
            wait_until(lambda: server.metric("umbo_answer_memory_bytes") > 3 * MIB, "answers are held")
            # Less than the time after which those are cut that hold what there is.
            server.clock.advance(1.1)
            wait_until(lambda: shed() > before or server.in_flight() < 10, "the others have ended")
            is_met = shed() > before and server.metric("umbo_answer_memory_bytes") >= MIB
            assert ns.get("large", "000").body == b"v" * MIB
        finally:
            server.clock.go()
        wait_until_cut(server)
        sock.close()
        if is_met:
            return
    pytest.fail("what waits is shed, while others are held")
