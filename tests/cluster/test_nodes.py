"""What a shard node does by itself: ports, health, metrics, and what it refuses to be."""

import json
import re
import urllib.request

import pytest

from bulk import step_until
from deadline import by_node, standing_still
from harness import Client, wait_until
from tier import Node, free_port


@pytest.fixture
def cluster(new_cluster):
    return new_cluster(2)


def text_of(node, path):
    with urllib.request.urlopen(f"http://{node.host}:{node.admin_port}{path}", timeout=30) as answer:
        return answer.read().decode()


def outcomes(node, outcome):
    """Requests to a node that came to this, by what was asked."""
    pattern = rf'^umbo_node_requests_total{{request="([^"]+)",outcome="{outcome}"}} (\d+)$'
    return {kind: int(count) for kind, count in re.findall(pattern, text_of(node, "/metrics"), re.M)}


def test_a_node_shows_its_health_its_counters_and_its_map(cluster):
    cluster.start()
    ns = cluster.dispatchers[0].namespace()
    for own in cluster.partitions(ns, 2).values():
        for one in own:
            assert ns.put(one, value=b"x").status == 201
            assert ns.get(one).status == 200
    for node in cluster.nodes.values():
        assert node.readiness() == 200 and text_of(node, "/healthz") == "ok\n"
        assert outcomes(node, "done").get("write", 0) >= 2
        assert node.metric("umbo_node_connections") >= 1
        assert node.metric("umbo_node_requests_in_flight") == 0
        assert node.metric("umbo_shard_available") == 4
        assert 'cluster_id = "tests"' in text_of(node, "/cluster-map")
    cluster.stop()


def test_a_dispatcher_counts_its_way_to_the_nodes(cluster):
    cluster.start()
    (dispatcher, _), names = cluster.dispatchers, list(cluster.nodes)
    ns = dispatcher.namespace()
    partitions = cluster.partitions(ns, 1)

    of_nodes = lambda name: by_node(dispatcher, name)
    assert of_nodes("umbo_remote_node_up") == dict.fromkeys(names, 1)
    assert of_nodes("umbo_remote_node_map_version") == dict.fromkeys(names, 1)
    assert of_nodes("umbo_remote_requests_in_flight") == dict.fromkeys(names, 0)
    before = dispatcher.metric("umbo_remote_requests_total")
    for (one,) in partitions.values():
        assert ns.put(one, value=b"x").status == 201
    assert dispatcher.metric("umbo_remote_requests_total") >= before + len(names)
    assert dispatcher.metric("umbo_remote_sent_frames_total") > 0 < dispatcher.metric("umbo_remote_frames_total")
    connections = dispatcher.metric("umbo_remote_connections_total")
    assert connections >= len(names) and dispatcher.metric("umbo_remote_connections_lost_total") == 0
    cluster.nodes["b"].kill()
    wait_until(lambda: of_nodes("umbo_remote_node_up") == dict.fromkeys(names, 1) | {"b": 0}, "it is seen to be gone")
    # While it is waited for, and of a read that others could join.
    brief = {"Umbo-Timeout-Ms": "200"}
    for ask in (ns.get, ns.put):
        told = ask(partitions["b"][0], **brief).problem(503, "shard-unavailable")
        assert cluster.tier.owner(told["shard"]) == "b" and told["retry"]["safe"]
    wait_until(lambda: dispatcher.metric("umbo_remote_connections_refused_total") > 0, "it is tried again")
    assert dispatcher.metric("umbo_remote_connections_lost_total") >= 1
    cluster.nodes["b"].start()
    wait_until(lambda: of_nodes("umbo_remote_node_up") == dict.fromkeys(names, 1), "it is back")
    assert dispatcher.metric("umbo_remote_connections_total") > connections
    cluster.stop()


def test_a_dispatcher_without_nodes_waits_for_them(cluster):
    dispatcher = cluster.dispatchers[0].launch()

    def said():
        lines = [line for line in list(dispatcher.log) if "waiting for the shard nodes" in line]
        return lines and json.loads(lines[0])

    fields = wait_until(said, "it says what it waits for")
    client = Client(int(fields["data"].rsplit(":", 1)[1]))
    assert client.get("/healthz").status == 200
    assert client.get("/readyz").status == 503
    assert client.get("/v1/ns/demo/kv/a").json()["type"] == "/v1/errors/shard-unavailable"
    cluster.tier.start()
    dispatcher.wait_until_it_serves()
    assert client.get("/readyz").status == 200
    ns = dispatcher.namespace()
    assert ns.put("a", value=b"x").status == 201
    dispatcher.stop()
    cluster.tier.stop()


def test_a_dispatcher_that_waits_can_be_stopped(cluster):
    dispatcher = cluster.dispatchers[0].launch()
    wait_until(lambda: "waiting for the shard nodes" in dispatcher.log_text(), "it waits")
    dispatcher.process.terminate()
    dispatcher.wait_for_good_end()


def test_a_node_that_is_told_to_stop_says_so_first(cluster):
    cluster.start()
    node = cluster.nodes["c"]
    node.stop()
    assert "every dispatcher is notified" in node.log_text()
    closed = next(json.loads(line) for line in node.log if "port for dispatchers is closed" in line)
    assert closed["connections"] >= 1 and closed["cut"] == 0, closed
    cluster.nodes["c"].start()
    cluster.stop()


def test_a_public_node_asks_for_certificates(cluster, folder):
    bare = Node(folder / "bare", "a", cluster.tier.map_file, "0.0.0.0", free_port())
    bare.launch()
    assert bare.wait() not in (0, -9) and "--insecure" in bare.log_text()
    assert not list(bare.data.glob("**/*")), "nothing was made"


def test_a_node_needs_a_map_and_a_name(cluster, folder):
    for missing in ("map", "node"):
        nameless = Node(folder / f"without-{missing}", "a", cluster.tier.map_file, "127.0.0.1", free_port())
        settings = nameless.effective_settings()
        del settings["cluster"][missing]
        nameless.spawn(["shard"], settings)
        assert nameless.wait() not in (0, -9), nameless.log_text()
        assert f"cluster.{missing}" in nameless.log_text()
