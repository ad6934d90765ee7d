"""A map that changes while the cluster runs: new versions are picked up, shards move as planned."""

import json
import os
import shutil
import signal
import subprocess

from harness import Namespace, binary, wait_until
from tier import Node, free_port
from writers import ACKNOWLEDGED, PATIENT_MS, Writer, check, total


def umbo(*arguments):
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run([binary(), *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=60)


def begin(cluster, count=3, timeout_ms=2_000):
    """Writers of every node, writing."""
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("maps")
    # Where time passes in steps, each write that is under way costs a step of it.
    generous = {"name": "default-caller", "unit": "ru", "per": ["caller"], "rate": 1_000_000_000}
    assert ns.client.put("/admin/v1/quotas/default-caller", json.dumps(generous)).status == 201
    partitions = [one for own in cluster.partitions(ns, count).values() for one in own]
    new = lambda at, one: Writer(dispatcher.client, "maps", one, f"w-{at}", at % 3 == 2, timeout_ms)
    writers = [new(at, one) for at, one in enumerate(partitions)]
    [writer.start() for writer in writers]
    wait_until(lambda: total(writers) >= 60, "the writers write")
    return ns, writers


def map_versions(cluster):
    answer = cluster.dispatchers[0].client().get("/admin/v1/cluster")
    assert answer.status == 200, answer
    return {node["name"]: node.get("map_version") for node in answer.json()["nodes"]}


def test_a_new_version_is_picked_up_and_nobody_notices(new_cluster):
    cluster = new_cluster().start()
    ns, writers = begin(cluster, timeout_ms=PATIENT_MS)
    text = cluster.tier.map_file.read_text()
    for version in range(2, 6):
        cluster.tier.write_map(text.replace("version = 1", f"version = {version}"))
        # One after the other, so that for a while they go by different versions.
        for process in [*cluster.nodes.values(), *cluster.dispatchers]:
            process.process.send_signal(signal.SIGHUP)
            before = total(writers)
            wait_until(lambda: total(writers) >= before + 20, "the writers go on")
        wait_until(lambda: set(map_versions(cluster).values()) == {version}, "all nodes go by it")
    [writer.end() for writer in writers]
    for writer in writers:
        assert not writer.problems and not writer.cuts, writer.problems[:1]
    assert check(ns, writers)[ACKNOWLEDGED] > 400
    cluster.stop()


def plan(cluster, folder):
    """What is proposed for one node more; the map, and the moves."""
    address = f"127.0.0.1:{free_port()}"
    target = folder / "next.toml"
    nodes = ",".join([*cluster.nodes, f"d={address}"])
    done = umbo("cluster", "plan", "--map", cluster.tier.map_file, "--nodes", nodes, "--out", target, "-o", "json")
    assert done.returncode == 0, done
    planned = json.loads(done.stdout)
    assert planned["version"] == 2 and 0 < len(planned["moves"]) <= 4, planned
    assert umbo("shard", "verify", "--map", target, "--before", cluster.tier.map_file).returncode == 0
    host, port = address.rsplit(":", 1)
    added = Node(cluster.tier.folder / "d", "d", cluster.tier.map_file, host, int(port))
    return target, planned["moves"], added


def carry_out(cluster, target, moves, added):
    """As the plan says: give everybody the map, stop, copy, start."""
    (dispatcher,) = cluster.dispatchers
    stopped = sorted({move["from"] for move in moves})
    cluster.tier.write_map(target.read_text())
    # Of the new map they learn from its file when they stop.
    for name in stopped:
        cluster.nodes[name].stop()
    added.data.mkdir(parents=True, exist_ok=True)
    for move in moves:
        shutil.copy2(cluster.nodes[move["from"]].data / move["file"], added.data / move["file"])
    cluster.nodes["d"] = added
    for process in [dispatcher, *(node for name, node in cluster.nodes.items() if node.is_running())]:
        process.process.send_signal(signal.SIGHUP)
    for name in [*stopped, "d"]:
        cluster.nodes[name].start()


def test_shards_move_to_a_new_node_as_planned(new_cluster, folder):
    cluster = new_cluster().start()
    ns, writers = begin(cluster)
    target, moves, added = plan(cluster, folder)
    carry_out(cluster, target, moves, added)
    before = {writer: writer.acknowledged() for writer in writers}
    wait_until(lambda: all(writer.acknowledged() >= before[writer] + 10 for writer in writers), "all go on", 90)
    [writer.end() for writer in writers]
    counts = check(Namespace(cluster.dispatchers[0].client(), "maps"), writers)
    assert counts[ACKNOWLEDGED] > 100
    owners = {cluster.tier.owner(move["shard"]) for move in moves}
    assert owners == {"d"}
    # A node that comes back with what stayed behind does not serve it.
    for name in {move["from"] for move in moves}:
        cluster.nodes[name].restart()
    assert check(Namespace(cluster.dispatchers[0].client(), "maps"), writers) == counts
    cluster.stop()


def test_a_file_that_was_not_closed_is_not_called_good(new_cluster):
    cluster = new_cluster().start()
    node = next(iter(cluster.nodes.values()))

    def verified():
        done = umbo("shard", "verify", "--map", cluster.tier.map_file, "--data", node.data, "-o", "json")
        assert done.returncode == 0, done
        return [(one["state"], one.get("reason")) for one in json.loads(done.stdout)["files"]]

    node.kill()
    states = verified()
    assert states and all(state == "unclosed" and "when it opens it" in reason for state, reason in states), states
    node.start()
    node.stop()
    assert set(verified()) == {("good", None)}
    cluster.stop()


def test_a_file_that_was_forgotten_is_missed_by_name(new_cluster, folder):
    cluster = new_cluster().start()
    ns, writers = begin(cluster, 6)
    [writer.end() for writer in writers]
    target, moves, added = plan(cluster, folder)
    forgotten, *copied = moves
    (dispatcher,) = cluster.dispatchers
    origin = cluster.nodes[forgotten["from"]].data / forgotten["file"]
    cluster.tier.write_map(target.read_text())
    for name in sorted({move["from"] for move in moves}):
        cluster.nodes[name].stop()
    added.data.mkdir(parents=True, exist_ok=True)
    for move in copied:
        shutil.copy2(cluster.nodes[move["from"]].data / move["file"], added.data / move["file"])
    cluster.nodes["d"] = added
    checked = umbo("shard", "verify", "--map", target, "--data", added.data, "--node", "d")
    assert checked.returncode != 0 and forgotten["file"] in checked.stdout + checked.stderr, checked
    dispatcher.process.send_signal(signal.SIGHUP)
    for name, node in cluster.nodes.items():
        if not node.is_running():
            node.launch()
    named = lambda: any(forgotten["file"] in line for line in added.log)
    wait_until(named, "the file is named")
    client = dispatcher.client()
    state = lambda: {one["shard"]: one["state"] for one in client.get("/admin/v1/shards").json()["shards"]}
    wait_until(lambda: list(state().values()).count("available") == 11, "all others serve")
    assert state()[forgotten["shard"]] == "unavailable"
    added.stop()
    shutil.copy2(origin, added.data / forgotten["file"])
    added.start()
    wait_until(lambda: set(state().values()) == {"available"}, "it serves")
    check(Namespace(dispatcher.client(), "maps"), writers)
    cluster.stop()
