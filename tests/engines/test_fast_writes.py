"""Namespaces with fast writes on a real node of Cassandra: what they take, what they refuse by name, and what is left."""

import json
import subprocess

import pytest

import cassandra_node
from bulk import environment, row, run
from bulk_loads import lines
from harness import Namespace, Server, binary, memory_folder, wait_until

pytestmark = [pytest.mark.real("cassandra"), pytest.mark.embedded("the engine takes the place of the nodes")]

SERVERS = 2
FAST = json.dumps({"writes": "fast"})
MIB = 1 << 20
COUNT = 20_000


@pytest.fixture(scope="module")
def servers():
    """Servers with the same rows, one of which may be ended."""
    with memory_folder() as folder:
        settings = {"store": {"engine": "cassandra", "shards": 4}, "cassandra": cassandra_node.settings(folder)}
        made = [Server(folder / str(number), settings) for number in range(SERVERS)]
        try:
            yield [server.start() for server in made]
        finally:
            for server in made:
                server.discard()


@pytest.fixture
def ns(servers, request):
    return servers[0].namespace(request.node.originalname.replace("_", "-"), FAST)


def command_output(server, *arguments):
    done = subprocess.run([binary(), *arguments], env=environment(server), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done.stdout


def through(server, ns):
    return Namespace(server.client(), ns.name)


def test_rows_are_written_read_and_removed_through_all_servers(servers, ns):
    other = through(servers[1], ns)
    first = ns.put("p", "a", b"first", content_type="text/plain")
    assert first.status == 204, "it is not known whether there was a row"
    second = other.put("p", "a", b"second")
    assert int(second.headers["etag"].strip('"')) > int(first.headers["etag"].strip('"'))
    for one in (ns, other):
        found = one.get("p", "a", cache_control="no-cache")
        assert (found.body, found.headers["etag"]) == (b"second", second.headers["etag"])
    # Values on both sides of the length from which they stand apart, over one another.
    for value in (b"x" * 20_000, b"short", b"y" * MIB, b""):
        assert ns.put("p", "b", value).status == 204
        assert other.get("p", "b", cache_control="no-cache").body == value
    rows = [{"pk": "q", "sk": f"{number:03}", "v": f"v{number}"} for number in range(500)]
    assert {line["status"] for line in ns.write(rows, "?atomic=partition").batch()[:-1]} == {204}
    assert [found["v"] for found in other.range_all("q")] == [one["v"] for one in rows]
    assert len(other.scan_all()) == 502
    assert ns.delete("q", "007").status == 204 and other.get("q", "007").status == 404
    assert ns.delete("q", "absent").status == 204
    removed = ns.client.delete(f"{ns.base}/range/q?prefix=1")
    assert removed.status == 200 and removed.json()["rows"] == 100, removed
    assert len(other.range_all("q")) == 399
    assert ns.put("p", "ttl", b"x", Umbo_TTL="1s").status == 204
    servers[0].clock.advance(2)
    assert ns.get("p", "ttl").status == 404


def test_what_was_acknowledged_outlives_a_kill(servers, ns):
    rows = [{"pk": f"p{number % 7}", "sk": f"{number:03}", "v": f"v{number}"} for number in range(300)]
    assert all(line["status"] == 204 for line in ns.write(rows).batch()[:-1])
    servers[0].kill()
    servers[0].start()
    assert len(through(servers[0], ns).scan_all()) == 300


def test_what_needs_a_read_is_refused_by_name(ns):
    etag = ns.put("p", "a", b"1").headers["etag"]
    refused = lambda answer: answer.problem(409, "needs-exact-writes")
    for condition in ({"If_Match": etag}, {"If_Match": "*"}, {"If_None_Match": "*"}, {"Idempotency_Key": "once"}):
        problem = refused(ns.put("p", "a", b"2", **condition))
        assert problem["outcome"] == "not-applied" and "fast writes" in problem["detail"], problem
        refused(ns.delete("p", "a", **condition))
    refused(ns.client.request("PATCH", ns.path("p", "a"), None, {"Umbo-Increment": "1"}))
    refused(ns.put("p", "long", b"x" * (2 * MIB)))
    for mode in ("replace", "merge"):
        problem = refused(ns.client.post(f"/v1/ns/{ns.name}/loads", {"mode": mode}))
        assert "batch/write" in problem["detail"], problem
    # Lines of a batch are independent.
    lines = ns.write(
        [
            {"pk": "p", "sk": "b", "v": "2"},
            {"pk": "p", "sk": "a", "v": "2", "if_match": etag},
            {"op": "inc", "pk": "p", "sk": "a", "by": 1},
        ]
    ).batch()[:-1]
    assert [line["status"] for line in lines] == [204, 409, 409]
    assert all(line["error"]["type"] == "/v1/errors/needs-exact-writes" for line in lines[1:]), lines
    assert [found["v"] for found in ns.range_all("p")] == ["1", "2"]


def test_how_rows_are_written_never_changes(servers, ns):
    client, path = ns.client, f"/admin/v1/namespaces/{ns.name}"
    info = client.get(path).json()
    assert info["writes"] == "fast" and "size" not in info, info
    exact = json.dumps({"writes": "exact"})
    etag = client.get(path).headers["etag"]
    for answer in (
        client.put(path, exact),
        client.put(path, exact, If_Match=etag),
        client.request("PATCH", path, exact.encode()),
    ):
        assert "never changes" in answer.problem(409, "namespace-exists")["detail"]
    # Other settings do, and leave it.
    changed = client.put(path, json.dumps({"default_ttl": "1h"}), If_Match=etag).json()
    assert changed["writes"] == "fast" and changed["default_ttl"] == 3_600
    changed = client.request("PATCH", path, json.dumps({"compression": "zstd"}).encode()).json()
    assert changed["writes"] == "fast"
    value = b"compressible " * 1_000
    ns.put("p", "s", value)
    assert ns.get("p", "s", cache_control="no-cache").body == value
    header, *listed = command_output(servers[0], "ns", "ls").splitlines()
    at, line = header.index("WRITES"), next(line for line in listed if line.startswith(ns.name))
    assert line[at:].startswith("fast "), (header, line)
    # All servers know it, and those that come later.
    at_other = servers[1].client()
    wait_until(lambda: at_other.get(path).json().get("writes") == "fast", "the other server knows it")
    servers[1].stop()
    servers[1].start()
    other = through(servers[1], ns)
    other.put("p", "s", b"x", If_None_Match="*").problem(409, "needs-exact-writes")


def test_a_name_that_is_free_again_has_none_of_the_rows(ns):
    for number in range(50):
        ns.put(f"p{number}", "s", b"old")
    path = f"/admin/v1/namespaces/{ns.name}"
    assert ns.client.delete(f"{path}?dry_run=true").json()["rows"] == 50, "they are counted where it is asked"
    assert ns.client.delete(path).status in (202, 204)
    ns.get("p1", "s").problem(404, "namespace-not-found")
    assert ns.client.put(path).status == 201
    assert ns.scan_all() == []
    assert ns.put("p1", "s", b"new").status == 201, "it has exact writes"


def test_files_are_imported_whatever_their_length(servers, ns, folder):
    # Longer than the files that other namespaces take as a load.
    rows = [row(number, "x" * 400) for number in range(COUNT)]
    (folder / "rows.ndjson").write_bytes(lines(rows))
    assert (folder / "rows.ndjson").stat().st_size > 8 * MIB
    run(servers[0], "kv", "import", ns.name, "rows.ndjson", folder=folder)
    assert len(ns.scan_all(keys_only=True)) == COUNT


def test_a_restart_with_a_clock_that_is_set_wrong_hides_no_write(folder):
    settings = {"store": {"engine": "cassandra", "shards": 4}, "cassandra": cassandra_node.settings(folder)}
    with Server(folder / "one", settings) as server:
        server.start().namespace("clocks", FAST)
        for days in (0, 1, -2, 1):
            server.kill()
            server.clock.jump(days * 86_400)
            ns = Namespace(server.start().client(), "clocks")
            value = f"{days} days".encode()
            assert ns.put("row", "s", value).status == 204
            assert ns.get("row", "s").body == value, "a later version hides it"
            assert ns.delete("row", "s").status == 204
            assert ns.get("row", "s").status == 404, "a later version outlives it"
            assert ns.put("row", "s", value).status == 204
