"""Large answers and difficult clients: memory stays flat, work stops, connections end."""

import contextlib
import json
import resource
import socket

import pytest

from bulk import step_until
from harness import Server, memory_folder, receive, wait_until

MIB = 1 << 20
SMALL_CACHE = {"store": {"cache": "8MiB", "shards": 4}}
LARGE_ROWS = 200
SMALL_ROWS = 100_000
WRITE_SECONDS = 2
RECEIVE_BUFFER = 32 << 10
# More than the kernel holds of an answer at both ends: once it is taken, the server has written more.
TAKEN = 640 << 10


@contextlib.contextmanager
def standing_still(clock):
    """No time passes but what the test adds."""
    clock.stop()
    try:
        yield
    finally:
        clock.go()


@pytest.fixture(scope="module")
def loaded():
    """200 values of 1 MiB in one partition, 100,000 small rows in another."""
    with memory_folder() as folder:
        limits = {"drain_delay": "0s", "write_timeout": f"{WRITE_SECONDS}s", "header_timeout": "5s"}
        with Server(folder, SMALL_CACHE | {"server": limits}) as server:
            server.start()
            ns = server.namespace()
            # Whole partitions by the dozen are more than everybody may ask for at once.
            generous = {"name": "default-caller", "unit": "ru", "per": ["caller"], "rate": 100_000_000}
            assert server.client().put("/admin/v1/quotas/default-caller", json.dumps(generous)).status == 201
            for number in range(LARGE_ROWS):
                value = f"{number:04}".encode() * (MIB // 4)
                assert ns.put("large", f"{number:03}", value, Umbo_Durability="async").status == 201
            for first in range(0, SMALL_ROWS, 10_000):
                rows = [{"pk": "small", "sk": f"{n:06}", "v": "x" * 60} for n in range(first, first + 10_000)]
                assert ns.write(rows).status == 200
            yield server, ns
            server.stop()


def get_range(server, partition, receive_buffer=None):
    """Asks for a whole partition; returns the socket."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(60)
    sock.connect(("127.0.0.1", server.port))
    head = f"GET /v1/ns/demo/range/{partition}?max_bytes={1 << 30} HTTP/1.1\r\nHost: a\r\n"
    sock.sendall(head.encode() + b"Connection: close\r\n\r\n")
    return sock


def drain(sock):
    """Reads all of an answer; returns its length and its end."""
    length, end = 0, b""
    while chunk := sock.recv(MIB):
        length += len(chunk)
        end = (end + chunk)[-400:]
    sock.close()
    return length, end


@pytest.mark.parametrize(
    "partition, rows, size", [("large", LARGE_ROWS, 200 * MIB), ("small", SMALL_ROWS, 6 * MIB)]
)
def test_a_large_range_is_streamed_in_flat_memory(loaded, partition, rows, size):
    server, _ = loaded
    drain(get_range(server, partition))
    server.reset_peak_memory()
    before = server.memory()
    length, end = drain(get_range(server, partition))
    extra = server.memory("VmHWM") - before
    last = json.loads(end[end.rindex(b'{"end"') :].split(b"\n")[0])["end"]
    print(f"{partition}: {length} bytes, {extra / MIB:.1f} MiB of memory more than before")
    assert length > size and last["rows"] == rows and last["why"] == "done"
    assert extra <= 16 * MIB


def test_clients_that_read_nothing_hold_little_and_are_cut(loaded):
    server, _ = loaded
    drain(get_range(server, "large"))
    before, cut_before = server.memory(), server.metric("umbo_streams_aborted_total")
    server.reset_peak_memory()
    # Nobody is cut before each of them holds a value.
    with standing_still(server.clock):
        clients = [get_range(server, "large", receive_buffer=4096) for _ in range(32)]
        for client in clients:
            assert client.recv(1) == b"H"
        wait_until(lambda: server.metric("umbo_answer_memory_bytes") >= 32 * MIB, "each holds a value")
    cut = lambda: server.metric("umbo_streams_aborted_total") - cut_before
    step_until(server.clock, lambda: server.in_flight() == 0 and cut() >= 32, "they are cut", step=0.5)
    extra = server.memory("VmHWM") - before
    print(f"32 clients that read one byte: {extra / MIB:.1f} MiB more")
    assert extra <= 32 * 2 * MIB + 16 * MIB
    assert cut() == 32
    for client in clients:
        answer = receive(client)
        assert answer.startswith(b"TTP/1.1 200") and not answer.rstrip().endswith(b"}}"), "no end line"
        client.close()


def test_a_client_that_reads_steadily_is_served_however_slowly(loaded):
    """Longer than the write timeout in all, with some bytes taken within each."""
    server, _ = loaded
    client = get_range(server, "small", receive_buffer=RECEIVE_BUFFER)
    length, begun = 0, server.clock.monotonic()
    with standing_still(server.clock):
        while server.clock.monotonic() < begun + 5 * WRITE_SECONDS:
            length += len(client.recv(TAKEN, socket.MSG_WAITALL))
            server.clock.advance(0.9 * WRITE_SECONDS)
    rest, end = drain(client)
    assert b'"why":"done"' in end and length + rest > 6 * MIB


def test_a_client_that_leaves_stops_the_work(loaded):
    server, _ = loaded
    sent = lambda: server.metric("umbo_response_bytes_total")
    before = sent()
    for _ in range(10):
        client = get_range(server, "large", receive_buffer=4096)
        client.recv(100)
        client.close()
    wait_until(lambda: server.in_flight() == 0, "nothing is in flight")
    assert sent() - before < 10 * 20 * MIB


def test_heads_that_do_not_end(loaded):
    server, _ = loaded
    heads = [server.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ") for _ in range(200)]
    for head in heads:
        head.sendall(b"more")
    wait_until(lambda: server.metric("umbo_connections") >= len(heads), "all are accepted")
    server.clock.advance(5)
    assert server.client().get("/healthz").status == 200
    for head in heads:
        assert receive(head).startswith(b"HTTP/1.1 408")
        head.close()


def test_a_thousand_idle_connections(loaded):
    server, ns = loaded
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard), hard))
    before = server.memory()
    idle = []
    try:
        for _ in range(1000):
            idle.append(server.raw(b""))
        for sock in idle[::10]:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 200"
        assert ns.get("small", "000001").status == 200
        extra = server.memory() - before
        print(f"1,000 idle connections: {extra / 1000 / 1024:.1f} KiB each")
        assert extra <= 32 * MIB
    finally:
        for sock in idle:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert ns.get("small", "000001").status == 200


def test_more_connections_than_allowed_wait_for_their_turn(new_server):
    server = new_server({"server": {"connections_max": 5}}).start()
    ns = server.namespace()
    ns.client.close()
    fields = "Host: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    first = [server.raw(f"PUT {ns.path('a')} HTTP/1.1\r\n{fields}".encode()) for _ in range(5)]
    for sock in first:
        assert sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n", "each has a request"
    late = server.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    for _ in range(20):
        assert server.admin().get("/healthz").status == 200, "operators have a port of their own"
    late.setblocking(False)
    with pytest.raises(BlockingIOError):
        late.recv(1)
    late.settimeout(60)
    first.pop().close()
    assert late.recv(12) == b"HTTP/1.1 200"
    for sock in [*first, late]:
        sock.close()


def test_silent_connections_keep_nobody_out(new_server):
    """Twice as many as there may be: those that ask are served all the same."""
    server = new_server({"server": {"connections_max": 20}}).start()
    ns = server.namespace()
    assert ns.put("a", value=b"x").status == 201
    silent = [server.raw(b"") for _ in range(40)]
    for _ in range(5):
        assert server.client().get("/healthz").status == 200
        silent.append(server.raw(b""))
        assert server.client().get(ns.path("a")).body == b"x"
    assert server.metric("umbo_connections_evicted_total") >= 20
    for sock in silent:
        sock.close()


def test_an_address_has_no_more_connections_than_it_may(new_server):
    server = new_server({"server": {"connections_per_address_max": 3}}).start()
    silent = [server.raw(b"") for _ in range(10)]
    assert server.client().get("/healthz").status == 200
    wait_until(lambda: server.metric("umbo_connections") <= 3 + 1, "with the one of the admin port")
    for sock in silent:
        sock.close()


def test_more_requests_in_flight_than_allowed_are_shed(new_server):
    server = new_server({"server": {"requests_in_flight_max": 3}}).start()
    ns = server.namespace()
    fields = "Host: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    waiting = [server.raw(f"PUT {ns.path('a')} HTTP/1.1\r\n{fields}".encode()) for _ in range(3)]
    for sock in waiting:
        assert sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n", "its body is being waited for"
    shed = ns.put("b", value=b"x")
    problem = shed.problem(503, "too-many-in-flight")
    assert problem["retry"] == {"safe": True, "after_ms": problem["retry"]["after_ms"]}
    assert problem["outcome"] == "not-applied" and problem["scope"] == "pod"
    assert int(shed.headers["retry-after"]) >= 1
    assert int(shed.headers["umbo-retry-after-ms"]) == problem["retry"]["after_ms"]
    for sock in waiting:
        sock.sendall(b"12345")
    statuses = [sock.recv(12) for sock in waiting]
    # One that waited for its client may have given way.
    assert sum(status in (b"HTTP/1.1 201", b"HTTP/1.1 204") for status in statuses) >= 2, statuses
    for sock in waiting:
        sock.close()
    wait_until(lambda: ns.put("b", value=b"x").status in (201, 204), "there is room again")


def test_bodies_in_flight_share_a_bounded_memory(new_server):
    server = new_server({"server": {"body_memory": "16MiB"}}).start()
    ns = server.namespace()
    head = f"POST {ns.base}/batch/write HTTP/1.1\r\nHost: a\r\nContent-Length: {16 * MIB}\r\n\r\n"
    held = lambda: server.metric("umbo_body_memory_bytes")
    holder = server.raw(head.encode() + b"\n" * 100_000)
    wait_until(lambda: held() >= 100_000, "the body is being read")
    assert held() < MIB, "what is only announced takes no memory"
    assert ns.write(["\n" * 200_000]).status == 200, "there is room for others"
    holder.sendall(b"\n" * (9 * MIB))
    wait_until(lambda: held() > 8 * MIB, "much of it has come")
    assert ns.put("small", value=b"x").status == 201, "small ones need none"
    wait_until(lambda: ns.write(["\n" * 15_000_000]).status == 200, "who pauses gives way")
    assert holder.recv(12) == b"HTTP/1.1 503"
    holder.close()
    wait_until(lambda: held() == 0, "all of it is given back")
