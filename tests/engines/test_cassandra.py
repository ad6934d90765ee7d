"""Servers that keep their rows in a real node of Cassandra: over HTTP they are as any others, and any number of them
share the rows."""

import concurrent.futures
import itertools
import json

import pytest

import cassandra_node
from harness import Server, b64u, row_bytes, wait_until

pytestmark = [pytest.mark.real("cassandra"), pytest.mark.embedded("the engine takes the place of the nodes")]

SERVERS = 2


def settings_of(folder, **more):
    of_engine = cassandra_node.settings(folder) | more
    return {"store": {"engine": "cassandra", "shards": 4}, "cassandra": of_engine}


@pytest.fixture
def server(folder):
    with Server(folder / "one", settings_of(folder)) as server:
        yield server.start()


@pytest.fixture
def servers(folder):
    """Servers with the same rows."""
    made = [Server(folder / str(number), settings_of(folder)) for number in range(SERVERS)]
    try:
        yield [server.start() for server in made]
    finally:
        for server in made:
            server.discard()


def test_what_was_acknowledged_outlives_a_kill(server):
    ns = server.namespace()
    rows = [{"pk": f"p{number % 7}", "sk": f"{number:03}", "v": f"v{number}"} for number in range(300)]
    assert all(line["status"] == 201 for line in ns.write(rows).batch()[:-1])
    etag = ns.put("p", "s", b"first").headers["etag"]
    assert ns.put("p", "s", b"second", If_Match=etag).status == 204
    assert ns.put("p", "s", b"third", If_Match=etag).problem(412, "precondition-failed")
    assert ns.delete("p0", "000").status == 204
    server.kill()
    server.start()
    ns = server.namespace()
    assert ns.get("p", "s").body == b"second"
    assert ns.get("p0", "000").status == 404
    found = ns.scan_all()
    assert len(found) == 300, len(found)
    assert [row["sk"] for row in ns.range_all("p1")] == [row["sk"] for row in rows if row["pk"] == "p1"]


def test_the_largest_batch_goes_to_one_partition(server):
    """More than the cluster takes at once: 10,000 rows, 15 MB."""
    ns = server.namespace()
    rows = [{"pk": "p", "sk": f"{number:05}", "v": "x" * 1_400} for number in range(10_000)]
    assert all(line["status"] == 201 for line in ns.write(rows).batch()[:-1])
    key = {"Idempotency-Key": "once"}
    counts = [{"op": "inc", "pk": "p", "sk": f"n{number % 3}", "by": 1} for number in range(1_500)]
    for _ in range(2):
        lines = ns.write(counts, headers=key).batch()[:-1]
        assert all(line["status"] in (200, 201, 204) for line in lines), lines[:3]
    assert [ns.get("p", f"n{number}").body for number in range(3)] == [b"500"] * 3
    assert len(ns.range_all("p", prefix="0")) == 10_000


@pytest.mark.parametrize("writes", ["exact", "fast"])
def test_keys_of_any_bytes_are_in_order_and_apart(server, writes):
    """Keys that begin or end as others do, in the longest and the shortest form."""
    body = json.dumps({"writes": writes}).encode()
    assert server.client().put(f"/admin/v1/namespaces/{writes}", body, content_type="application/json").status == 201
    ns = server.namespace(writes)
    partitions = [b"\0", b"\0\0", b"\xff", b"\xff\xff", b"a", b"a\0", b"a\xff", b"\0" * 1024, b"\xff" * 1024]
    sorts = sorted([b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"s", b"s\0", b"t", b"\0" * 2048, b"\xff" * 2048])
    keys = list(itertools.product(partitions, sorts))
    rows = [{"pk64": b64u(pk), "sk64": b64u(sk), "v": f"{at}"} for at, (pk, sk) in enumerate(keys)]
    assert all(line["status"] < 300 for line in ns.write(rows).batch()[:-1])

    def walked(limit):
        return [(row_bytes(row, "pk"), row_bytes(row, "sk")) for row in ns.scan_all(limit=limit)]

    assert sorted(walked(1)) == sorted(walked(1_000)) == sorted(keys)
    for pk, (start, end) in itertools.product(partitions, itertools.combinations(sorts, 2)):
        found = ns.range_all(b64u(pk), enc="b64u", start=b64u(start), end=b64u(end), limit=4)
        assert [row_bytes(row, "sk") for row in found] == [sk for sk in sorts if start <= sk < end], (pk, start, end)
    last = [row_bytes(row, "sk") for row in ns.range_all(b64u(b"\xff"), enc="b64u", reverse="true", limit=3)]
    assert last == sorts[::-1]
    gone = ns.client.delete(f"{ns.base}/range/{b64u(b'a')}?enc=b64u&start={b64u(sorts[2])}")
    assert gone.json()["rows"] == len(sorts) - 2
    assert sorted(walked(7)) == sorted(key for key in keys if key[0] != b"a" or key[1] < sorts[2])


def test_a_map_of_nodes_contradicts_the_engine(folder):
    settings = settings_of(folder) | {"cluster": {"map": "map.toml"}}
    with Server(folder / "one", settings) as server:
        server.launch()
        server.wait()
        assert "rows in Cassandra have no shard nodes, and so no map" in server.log_text(), server.log_text()


def test_servers_share_rows_and_records(servers):
    one, other = servers
    ns = one.namespace("shared")
    seen = other.client()
    path = ns.path("p", "s")
    assert ns.put("p", "s", b"of one").status == 201
    # The other one learns of the namespace within a moment.
    wait_until(lambda: seen.get(path).status == 200, "the other server knows the namespace")
    assert seen.get(path).body == b"of one"
    assert seen.put(path, b"of the other").status == 204
    assert ns.get("p", "s", cache_control="no-cache").body == b"of the other"

    def count(server):
        client = server.client()
        for _ in range(20):
            counted = client.request("PATCH", f"{ns.base}/kv/counter", headers={"Umbo-Increment": "1"})
            assert counted.status in (200, 201), counted

    with concurrent.futures.ThreadPoolExecutor(SERVERS) as pool:
        list(pool.map(count, servers))
    assert ns.get("counter", cache_control="no-cache").body == str(20 * SERVERS).encode()
    assert one.client().delete("/admin/v1/namespaces/shared").status == 204
    wait_until(lambda: seen.get(path).status == 404, "the other server knows that it was removed")


def test_what_the_engine_lacks_is_refused_by_name(server):
    problem = server.admin().post("/admin/v1/backups").problem(501, "not-implemented")
    assert problem["outcome"] == "not-applied" and "umbo kv export" in problem["detail"], problem


def test_nodes_tell_of_themselves(server):
    node = wait_until(lambda: told(server), "the node has told its version")
    assert node["reachable"] and node["program_version"].startswith("5."), node
    assert isinstance(node["clock_ahead_ms"], int), node


def told(server):
    (node,) = server.admin().get("/admin/v1/cluster").json()["nodes"]
    return node if "program_version" in node else None


def test_servers_are_one_fleet(servers):
    def are_live():
        listed = servers[0].admin().get("/admin/v1/fleet").json()["processes"]
        return [one["state"] for one in listed] == ["live"] * SERVERS

    wait_until(are_live, "each is live")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"data_center": "elsewhere"}, "the cluster has no data center 'elsewhere': it has datacenter1"),
        ({"contact_points": "127.0.0.1:9"}, "the Cassandra cluster cannot be used"),
        ({"contact_points": "127.0.0.1"}, "name nodes as host:port, separated by commas"),
        ({"buckets": 24}, "shards and buckets are powers of two"),
        ({"keyspace": 'umbo" with x; drop keyspace "umbo'}, "a keyspace has a name of 1 to 48 letters, digits and '_'"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_told(folder, wrong, told):
    with Server(folder / "one", settings_of(folder, **wrong)) as server:
        server.launch()
        server.wait()
        assert told in server.log_text(), server.log_text()


def test_a_layout_is_kept(folder):
    with Server(folder / "one", settings_of(folder)) as server:
        server.start().stop()
    with Server(folder / "two", settings_of(folder, buckets=32)) as other:
        other.launch()
        other.wait()
        assert "has buckets 16, and the settings say 32" in other.log_text()
