"""Any dispatcher continues a load: none keeps anything of it."""

from bulk_loads import ENDED, Load, lines
from deadline import GRACE_SECONDS, by_node
from harness import Namespace, wait_until

ROWS = 12_000
# Longer than a dispatcher that says nothing keeps a load.
LEASE_SECONDS = 6


def test_another_dispatcher_continues_a_load(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    ns = first.namespace("demo")
    rows = [{"pk": f"p{n % 97}", "sk": f"{n:06}", "v": f"value {n}"} for n in range(ROWS)]
    bodies = [lines(rows[at : at + 4_000]) for at in range(0, ROWS, 4_000)]
    load = Load.create(ns.client, "demo")
    there = load.through(second.client())
    # Known at once through the other one.
    assert there.info()["state"] == "created"
    half = len(bodies[0]) // 2
    assert load.patch(0, bodies[0][:half], 0).status == 204
    assert there.offset(0) == (half, False)
    assert there.patch(0, bodies[0][half:], half, True, content_type=None).status == 204
    assert there.put(1, bodies[1]).status == 201 and load.put(1, bodies[1]).status == 200
    assert load.put(2, bodies[2]).status == 201
    there.seal(3)
    for killed, other in ((first, second), (second, first)):
        before = load.through(other.client()).info()["rows_applied"]
        killed.kill()
        # Another one takes over once its lease has ended.
        killed.clock.advance(LEASE_SECONDS)
        here = load.through(other.client())
        wait_until(lambda: here.info()["state"] in ENDED or here.info()["rows_applied"] > before, "it goes on")
        killed.start()
    info = load.through(second.client()).wait_for("live")
    assert info["rows_applied"] == ROWS and sum(shard["rows_applied"] for shard in info["shards"]) == ROWS
    found = {(row["pk"], row["sk"]): row["v"] for row in Namespace(first.client(), "demo").scan_all()}
    assert found == {(row["pk"], row["sk"]): row["v"] for row in rows}


def test_a_load_is_paused_and_aborted_through_any_dispatcher(new_cluster):
    cluster = new_cluster(2).start()
    first, second = cluster.dispatchers
    ns = first.namespace("demo")
    load = Load.create(ns.client, "demo")
    load.put(0, lines([{"pk": "a", "v": "1"}]))
    there = load.through(second.client())
    assert there.post("pause").json()["paused"]
    load.seal(1)
    wait_until(lambda: load.info()["paused"], "the other one knows")
    assert ns.get("a").status == 404
    assert load.post("abort").json()["state"] == "aborted"
    there.put(1, b"").problem(409, "load-state")


def test_loads_are_listed_while_nodes_are_away(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("demo")
    load = Load.create(ns.client, "demo")
    load.put(0, lines([{"pk": "a", "v": "1"}]))
    load.seal(1)
    load.wait_for("live")

    def listed():
        answer = ns.client.get("/v1/ns/demo/loads")
        assert answer.status == 200, answer
        (one,) = answer.json()["loads"]
        return one

    assert (listed()["rows_applied"], "reason" in listed()) == (1, False)
    [node.kill() for node in cluster.nodes.values()]
    wait_until(lambda: not any(by_node(dispatcher, "umbo_remote_node_up").values()), "all nodes are seen to be gone")
    # None is expected back any more.
    dispatcher.clock.advance(GRACE_SECONDS)
    away = listed()
    assert away["state"] == "live" and "cannot be counted" in away["reason"], away


def test_a_load_is_created_once_every_shard_has_noted_it(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("demo")
    shards = cluster.tier.map()["shards"]
    away = next(one["node"] for one in shards if one["node"] != shards[0]["node"])
    of_node = {one["id"] for one in shards if one["node"] == away}
    cluster.nodes[away].kill()
    wait_until(lambda: 0 in by_node(dispatcher, "umbo_remote_node_up").values(), "the node is seen to be gone")
    dispatcher.clock.advance(GRACE_SECONDS)
    key = {"Idempotency-Key": "nightly"}
    for headers in ({}, key):
        answer = ns.client.post("/v1/ns/demo/loads", {"mode": "merge"}, **headers)
        problem = answer.problem(503, "shard-unavailable")
        assert problem["shard"] in of_node and problem["outcome"] == "not-applied", problem
    states = sorted(one["state"] for one in ns.client.get("/v1/ns/demo/loads").json()["loads"])
    assert states == ["aborted", "created"]
    cluster.nodes[away].start()
    answers = []

    def created():
        answers.append(ns.client.post("/v1/ns/demo/loads", {"mode": "merge"}, **key))
        return answers[-1].status == 201

    wait_until(created, "the same key makes the load")
    load = Load(ns.client, "demo", answers[-1].json()["id"])
    load.put(0, lines([{"pk": f"p{n}", "v": "1"} for n in range(50)]))
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 50
