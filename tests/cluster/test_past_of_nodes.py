"""What dispatchers tell of nodes that come and go, and what a node keeps of its own past."""

import json
import urllib.error
import urllib.request

import pytest

from bulk import step_until
from harness import wait_until


def events(dispatcher, since=0):
    answer = dispatcher.admin().get(f"/admin/v1/events?since={since}&wait=1").json()
    return [(one["kind"], one["subject"]) for one in answer["events"]]


def test_a_node_that_comes_and_goes_is_told_by_every_dispatcher(new_cluster):
    cluster = new_cluster(2).start()
    since = [dispatcher.admin().get("/admin/v1/events").json()["next"] for dispatcher in cluster.dispatchers]
    name, node = next(iter(cluster.nodes.items()))
    node.kill()
    for dispatcher, before in zip(cluster.dispatchers, since):
        wait_until(lambda: ("node-lost", name) in events(dispatcher, before), "the loss is told")
        wait_until(lambda: "shard-lost" in dict(events(dispatcher, before)), "its shards are told")

        def recorded():
            history = dispatcher.admin().get("/admin/v1/history?range=5m&series=node_up").json()
            return {one["labels"]["node"] for one in history["series"]}

        wait_until(lambda: recorded() == set(cluster.nodes), "the history has all nodes")
    node.start()
    for dispatcher, before in zip(cluster.dispatchers, since):
        wait_until(lambda: ("node-back", name) in events(dispatcher, before), "the return is told")
        told = [kind for kind, subject in events(dispatcher, before) if subject == name]
        assert told == ["node-lost", "node-back"]
    # A change through one dispatcher is told by the other.
    first, second = cluster.dispatchers
    first.namespace("everywhere")
    wait_until(lambda: ("namespace-created", "everywhere") in events(second, since[1]), "the change is told")


def test_a_node_keeps_its_history_over_a_restart(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("demo")
    node = next(iter(cluster.nodes.values()))

    def writes(length):
        url = f"http://{node.host}:{node.admin_port}/history?range={length}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            report = json.load(answer)
        series = [one for one in report["series"] if one["name"] == "served" and one["labels"] == {"operation": "write"}]
        steps = enumerate(series[0]["values"] if series else [])
        return {report["start_ms"] + at * report["step_ms"]: value for at, value in steps if value is not None}

    def has_steps():
        for number in range(50):
            ns.put(f"p{number}", value=b"v")
        return sum(value > 0 for value in writes("1h").values()) >= 2

    # In steps that are shorter than those of the history.
    step_until(dispatcher.clock, has_steps, "the node has a history", step=5)
    before = writes("1h")
    node.stop()
    node.start()
    after = writes("1h")
    assert {at: after.get(at) for at in before} == before
    with pytest.raises(urllib.error.HTTPError) as refused:
        writes("2h")
    assert refused.value.code == 400
