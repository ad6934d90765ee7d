"""Large values in namespaces whose versions are swapped and dropped."""

import base64
import contextlib
import hashlib
import random

import pytest

from bulk import step_until
from bulk_loads import Load, build, lines, rollback, versions
from harness import read_answer, wait_until

MIB = 1 << 20
CHUNK = 252 << 10


@pytest.fixture
def ns(server, request):
    return server.namespace(f"l{abs(hash(request.node.name)) % 10**9}")


def content(length, seed=1):
    return random.Random(seed).randbytes(length)


def digest(value):
    return "sha-256=:" + base64.b64encode(hashlib.sha256(value).digest()).decode() + ":"


class Sender:
    """A put whose body is sent in pieces."""

    def __init__(self, server, ns, key, length, is_chunked=False, **headers):
        self.is_chunked = is_chunked
        framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {length}"
        fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"PUT {ns.path(*key)} HTTP/1.1\r\nHost: h\r\n{framing}\r\n{fields}\r\n"
        self.sock = server.raw(head.encode())

    def send(self, piece):
        self.sock.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if self.is_chunked else piece)

    def end(self):
        """The answer to all that was sent."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self.is_chunked:
                self.sock.sendall(b"0\r\n\r\n")
        with self.sock, self.sock.makefile("rb") as reader:
            return read_answer(reader)


def rows(value):
    return [{"pk": f"p{n % 13}", "sk": f"{n:05}", "v": f"{value}-{n}"} for n in range(100)]


def replace(ns, value="second"):
    build(ns, rows(value), activate=True, guards={"rows_change_max": 1e6}).wait_for("live")


def drop_first(ns):
    """Drops the version that has the id of the namespace."""
    answer = ns.client.delete(f"/v1/ns/{ns.name}/versions/1")
    assert answer.status == 200 and answer.json()["dropped"] == [1], answer


def check(ns, key, value):
    got = ns.get(*key)
    assert got.status == 200 and got.body == value
    assert got.headers["content-digest"] == digest(value)
    for first, last in [(0, 0), (CHUNK - 1, CHUNK), (len(value) - 7, len(value) - 1)]:
        got = ns.get(*key, Range=f"bytes={first}-{last}")
        assert got.status == 206 and got.body == value[first : last + 1]


@pytest.mark.parametrize("length", [MIB + 1, 11 * MIB // 10, 2 * MIB, 3 * MIB, 64 * MIB])
def test_large_values_outlive_the_first_version(ns, length):
    before, key = content(2 * MIB, 2), ("kept", "s")
    assert ns.put(*key, before).status == 201
    replace(ns)
    assert ns.put("both", "s", before).status == 201
    drop_first(ns)
    ns.get(*key).problem(404, "key-not-found")
    check(ns, ("both", "s"), before)
    value, other = content(length), content(length, 3)
    assert ns.put("p", "s", value, Content_Digest=digest(value)).status == 201
    check(ns, ("p", "s"), value)
    assert ns.put("p", "s", other).status == 204
    check(ns, ("p", "s"), other)
    blocks = (value[at : at + 65_536] for at in range(0, len(value), 65_536))
    assert ns.client.request("PUT", ns.path("p", "s"), blocks).status == 204
    check(ns, ("p", "s"), value)
    assert ns.delete("p", "s").status == 204
    ns.get("p", "s").problem(404, "key-not-found")


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("length", [1000, MIB + 1, 2 * MIB, 6 * MIB])
def test_an_upload_outlives_the_version_in_which_it_began(server, ns, length, is_chunked):
    value = content(length)
    sender = Sender(server, ns, ("p", "s"), length, is_chunked, Idempotency_Key='"one"')
    sender.send(value[: length // 2])
    wait_until(lambda: server.in_flight() > 0, "the upload has begun")
    replace(ns)
    drop_first(ns)
    sender.send(value[length // 2 :])
    answer = sender.end()
    assert answer.status == 201, answer
    assert ns.get("p", "s").body == value
    again = ns.put("p", "s", value, Idempotency_Key='"one"')
    assert again.status == 201 and again.headers["umbo-replayed"] == "?1", again
    assert again.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize("is_created_again", [False, True])
@pytest.mark.parametrize("length", [MIB + 1, 2 * MIB, 6 * MIB])
def test_an_upload_ends_with_its_namespace(server, ns, length, is_created_again):
    ns.put("other", value="v")
    value = content(length)
    sender = Sender(server, ns, ("p", "s"), length)
    sender.send(value[:-1])
    wait_until(lambda: server.in_flight() > 0, "the upload has begun")
    assert server.client().delete(f"/admin/v1/namespaces/{ns.name}").status in (202, 204)
    if is_created_again:
        wait_until(lambda: is_created(server, ns.name), "the name is free")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sender.send(value[-1:])
    problem = sender.end().problem(404, "namespace-not-found")
    assert problem["outcome"] == "not-applied"
    if is_created_again:
        assert ns.scan_all() == []


def is_created(server, name):
    return server.client().put(f"/admin/v1/namespaces/{name}").status == 201


def test_a_read_outlives_the_version_in_which_it_began(server, ns):
    value = content(24 * MIB)
    assert ns.put("p", "s", value).status == 201
    replace(ns)
    # In both versions.
    assert ns.put("p", "s", value).status in (201, 204)
    assert rollback(ns).status == 200
    with server.raw(f"GET {ns.path('p', 's')} HTTP/1.1\r\nHost: h\r\n\r\n".encode()) as sock:
        with sock.makefile("rb") as reader:
            assert reader.readline().split()[1] == b"200"
            assert rollback(ns).status == 200
            drop_first(ns)
            while reader.readline() != b"\r\n":
                pass
            assert reader.read(len(value)) == value


def test_nothing_is_left_to_reclaim_of_a_version_that_was_dropped(server, ns):
    """Idempotency records of the namespace are kept under the id of its first version, and are no work to be done."""
    first = ns.put("p", "s", b"v", Idempotency_Key='"one"')
    replace(ns)
    drop_first(ns)
    wait_until(lambda: server.metric("umbo_shard_purging_namespaces") == 0, "all of it is reclaimed")
    again = ns.put("p", "s", b"v", Idempotency_Key='"one"')
    assert again.headers["umbo-replayed"] == "?1" and again.headers["etag"] == first.headers["etag"]


def test_large_values_are_in_all_versions(ns):
    before, while_building, after = content(5 * MIB), content(2 * MIB, 2), content(3 * MIB, 3)
    assert ns.put("before", value=before).status == 201
    load = Load.create(ns.client, ns.name, mode="replace", activate=True, guards={"rows_change_max": 1e6})
    loaded = [{"pk": key, "v": "loaded"} for key in ("before", "while", "after", "gone")]
    assert load.put(0, lines(loaded)).status == 201
    assert ns.put("while", value=while_building).status == 201
    load.seal(1)
    load.wait_for("live")
    assert ns.get("before").body == b"loaded" and ns.get("while").body == while_building
    for key in ("after", "gone"):
        assert ns.put(key, value=after).status == 204
    assert ns.delete("gone").status == 204
    for _ in range(2):
        assert rollback(ns).status == 200
        check(ns, ("while",), while_building)
        check(ns, ("after",), after)
        ns.get("gone").problem(404, "key-not-found")
    assert rollback(ns).status == 200
    check(ns, ("before",), before)
    # A load puts its rows in the place of large values in all versions, too.
    load = Load.create(ns.client, ns.name)
    assert load.put(0, lines([{"pk": "after", "v": "merged"}])).status == 201
    load.seal(1)
    load.wait_for("live")
    for _ in range(2):
        assert ns.get("after").body == b"merged"
        assert rollback(ns).status == 200


def test_a_kill_after_the_first_version_was_dropped(new_server):
    server = new_server().start()
    ns = server.namespace()
    replace(ns)
    drop_first(ns)
    value = content(3 * MIB)
    first = ns.put("p", value=value, Idempotency_Key='"one"')
    assert first.status == 201
    broken = Sender(server, ns, ("broken",), 8 * MIB)
    broken.send(value)
    wait_until(lambda: server.in_flight() > 0, "the upload has begun")
    server.kill()
    server.start()
    ns = server.namespace()
    again = ns.put("p", value=value, Idempotency_Key='"one"')
    assert again.headers["umbo-replayed"] == "?1" and again.headers["etag"] == first.headers["etag"]
    check(ns, ("p",), value)
    ns.get("broken").problem(404, "key-not-found")
    assert ns.put("broken", value=value).status == 201
    check(ns, ("broken",), value)
    server.stop()


def test_a_namespace_is_removed_while_a_version_is_built_and_a_value_comes_in(server, ns):
    load = Load.create(ns.client, ns.name, mode="replace")
    assert load.put(0, lines(rows("new"))).status == 201
    value = content(6 * MIB)
    sender = Sender(server, ns, ("p",), len(value))
    sender.send(value[: 4 * MIB])
    wait_until(lambda: server.in_flight() > 0, "the upload has begun")
    assert server.client().delete(f"/admin/v1/namespaces/{ns.name}").status in (202, 204)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sender.send(value[4 * MIB :])
    sender.end().problem(404, "namespace-not-found")
    load.post("seal", {"parts": 1}).problem(404, "namespace-not-found")
    wait_until(lambda: is_created(server, ns.name), "the name is free")
    assert ns.put("p", value=value).status == 201
    check(ns, ("p",), value)
    assert [row["pk"] for row in ns.scan_all()] == ["p"]


@pytest.mark.parametrize("way", ["superseded", "dropped", "namespace"])
def test_the_space_of_large_values_is_reclaimed_with_their_version(new_server, way):
    server = new_server({"store": {"shards": 1}}).start()
    ns = server.namespace()
    value = content(16 * MIB)

    def size():
        files = [path for path in server.folder.rglob("*.redb") if path.is_file()]
        return sum(path.stat().st_blocks * 512 for path in files)

    for turn in range(2):
        replace(ns, f"first-{turn}")
        assert ns.put("p", value=value).status == 201
        if way == "namespace":
            assert server.client().delete(f"/admin/v1/namespaces/{ns.name}").status in (202, 204)
            wait_until(lambda: is_created(server, ns.name), "the name is free")
        else:
            replace(ns, f"second-{turn}")
            if way == "dropped":
                kept = next(number for number, one in versions(ns).items() if one["state"] == "kept")
                assert ns.client.delete(f"/v1/ns/{ns.name}/versions/{kept}").status == 200
            else:
                replace(ns, f"third-{turn}")
        wait_until(lambda: server.metric("umbo_shard_live_bytes") < MIB, "the value is dropped")
        # Reads that have begun go on for 20 s; then space is reclaimed between commits, and some of it given back.
        for _ in range(40):
            server.clock.advance(1)
            assert ns.put("other").status in (201, 204)
        if turn == 0:
            first = size()
    step_until(server.clock, lambda: size() <= first + 8 * MIB, "the space is used again", step=1)
    server.stop()
