"""Two dispatchers on one tier are one service: nothing that matters is kept by one of them."""

import json

import pytest

from harness import Namespace, wait_until


@pytest.fixture
def clients(pair):
    return [dispatcher.client() for dispatcher in pair.dispatchers]


def namespace(pair, name, body=b""):
    """A namespace made through the first dispatcher, seen through both."""
    first, second = pair.dispatchers
    ns = first.namespace(name, body)
    other = Namespace(second.client(), name)
    wait_until(lambda: other.get("nobody").json()["type"].endswith("/key-not-found"), "it is seen")
    return ns, other


def test_what_one_writes_the_other_reads_at_once(pair):
    ns, other = namespace(pair, "rows")
    for number in range(50):
        writer, reader = (ns, other) if number % 2 else (other, ns)
        put = writer.put(f"key-{number}", "s", value=str(number).encode())
        read = reader.get(f"key-{number}", "s")
        assert read.status == 200 and read.body == str(number).encode()
        assert read.headers["etag"] == put.headers["etag"]
        # Versions grow whoever assigns them.
        again = reader.put(f"key-{number}", "s", value=b"again")
        assert again.status == 204 and int(again.headers["etag"].strip('"')) > int(put.headers["etag"].strip('"'))
        assert writer.put(f"key-{number}", "s", value=b"", If_Match=put.headers["etag"]).status == 412
    assert other.scan_all() == ns.scan_all() and len(ns.scan_all()) == 50


def test_each_continues_the_cursors_of_the_other(pair):
    ns, other = namespace(pair, "cursors")
    rows = [{"pk": "p", "sk": f"{n:03}", "v": "x"} for n in range(90)] + [{"pk": f"q{n}", "v": "x"} for n in range(60)]
    assert ns.write(rows).status == 200
    found, cursor, turn = [], {}, [ns, other]
    while True:
        page, end = turn[len(found) % 2].range("p", limit=7, **cursor).rows_and_end()
        found += [row["sk"] for row in page]
        turn.reverse()
        if not end["more"]:
            break
        cursor = {"cursor": end["cursor"]}
    assert found == [f"{n:03}" for n in range(90)]
    found, cursor, backwards = set(), {}, [other, ns]
    while True:
        page, end = backwards[0].scan(limit=11, **cursor).rows_and_end()
        backwards.reverse()
        keys = {(row["pk"], row["sk"]) for row in page}
        assert not keys & found, "a row comes once"
        found |= keys
        if not end["more"]:
            break
        cursor = {"cursor": end["cursor"]}
    assert len(found) == 150


def test_a_cursor_of_nobody_is_refused_by_both(pair):
    ns, other = namespace(pair, "forged")
    ns.write([{"pk": "p", "sk": f"{n}", "v": "x"} for n in range(9)])
    cursor = ns.range("p", limit=3).rows_and_end()[1]["cursor"]
    forged = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
    for one in (ns, other):
        one.range("p", cursor=forged).problem(400, "invalid-cursor")


def test_namespaces_come_and_go_for_both(pair, clients):
    ns, other = namespace(pair, "shared", json.dumps({"default_ttl": 600}))
    first, second = clients
    assert second.get("/admin/v1/namespaces/shared").json() == first.get("/admin/v1/namespaces/shared").json()
    assert other.put("a", value=b"x").status == 201
    assert "umbo-expires-at" in ns.get("a").headers
    assert second.delete("/admin/v1/namespaces/shared").status in (200, 202, 204)
    gone = lambda: ns.get("a").status == 404 and ns.get("a").json()["type"].endswith("/namespace-not-found")
    wait_until(gone, "the first one sees that it is gone")


def test_quotas_of_one_are_quotas_of_both(pair, clients):
    ns, other = namespace(pair, "quotas")
    first, second = clients
    body = {"name": "both", "unit": "requests", "rate": 0.001, "burst": 2.5, "match": {"namespace": "quotas"}}
    assert first.put("/admin/v1/quotas/both", json.dumps(body)).status == 201
    wait_until(lambda: other.get("a").status == 429, "the second one rejects too")
    assert other.get("a").json()["policy"] == "both"
    assert second.delete("/admin/v1/quotas/both").status == 200
    wait_until(lambda: ns.get("a").status == 404, "the first one rejects no longer")


def test_blocked_keys_of_one_are_blocked_by_both(pair, clients):
    ns, other = namespace(pair, "blocked")
    assert ns.put("bad", value=b"x").status == 201
    first, second = clients
    path = "/admin/v1/hot/blocked/ns/blocked/kv/bad"
    listed = first.put(path, json.dumps({"reason": "test"}))
    assert listed.status in (200, 201), listed
    wait_until(lambda: other.get("bad").status == 429, "the second one refuses too")
    assert second.delete(path).status in (200, 204)
    wait_until(lambda: ns.get("bad").status == 200, "the first one serves it again")


def test_tokens_of_one_open_both(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    made = first.client().post("/admin/v1/tokens", {"name": "root", "grants": ["*:*"]})
    assert made.status == 201
    root = made.json()["token"]
    wait_until(
        lambda: second.client().get("/admin/v1/namespaces").status == 401, "the second one asks for tokens"
    )
    assert second.client(token=root).get("/admin/v1/namespaces").status == 200
    made = second.client(token=root).post("/admin/v1/tokens", {"name": "reader", "grants": ["read:*"]})
    reader, identity = made.json()["token"], made.json()["id"]
    with_reader = first.client(token=reader)
    wait_until(lambda: with_reader.get("/v1/ns/x/kv/a").status == 404, "the first one knows it")
    assert with_reader.put("/v1/ns/x/kv/a").status == 403
    assert first.client(token=root).delete(f"/admin/v1/tokens/{identity}").status == 204
    on_second = second.client(token=reader)
    wait_until(lambda: on_second.get("/v1/ns/x/kv/a").status == 401, "the second one forgets it")
    # One that was not there yet knows all of it from its first request on.
    first.stop()
    first.start()
    assert first.client().get("/admin/v1/namespaces").status == 401
    assert first.client(token=root).get("/admin/v1/namespaces").status == 200
    cluster.stop()


def test_both_show_the_same_shards_on_the_same_nodes(pair, clients):
    first, second = (client.get("/admin/v1/shards").json()["shards"] for client in clients)
    assert [one["shard"] for one in first] == list(range(12)) == [one["shard"] for one in second]
    assert all(one["state"] == "available" for one in first + second)
    assert sum(one["slots"] for one in first) == 4096
    nodes = clients[0].get("/admin/v1/cluster").json()["nodes"]
    assert {node["name"]: node["shards"] for node in nodes} == {
        name: [at for at in range(12) if pair.tier.owner(at) == name] for name in pair.nodes
    }
    assert all(node["reachable"] for node in nodes)
