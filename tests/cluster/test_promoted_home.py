"""The home of Umbo's own records is lost, and another shard takes its place by an operator's word."""

import os
import shutil
import signal
import subprocess

from clock import Clock
from harness import Namespace, binary, wait_until
from test_fleet_quotas import started

HOME = 0
# For as long the command waits for nodes that do not answer.
GATHER_SECONDS = 5


def promote_home(cluster, *arguments):
    """Runs the command without a wait for the nodes that are away."""
    nodes, clock = [node for node in cluster.nodes.values() if node.is_running()], Clock()
    connections = lambda: [node.metric("umbo_node_connections") for node in nodes]
    before = connections()
    command = subprocess.Popen(
        [binary(), "cluster", "promote-home", *map(str, arguments)],
        env={"PATH": os.environ["PATH"]} | clock.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    are_asked = lambda: all(now > then for now, then in zip(connections(), before))
    wait_until(lambda: are_asked() or command.poll() is not None, "all nodes that are there are asked")
    clock.advance(GATHER_SECONDS)
    _, said = command.communicate(timeout=60)
    return command.returncode, said


def test_a_lost_home_is_replaced_and_the_records_go_on(new_cluster, folder):
    # Two dispatchers own the counters of a quota; the row that says so is at the home.
    cluster = started(new_cluster, 2)
    dispatcher, other = cluster.dispatchers
    revision = dispatcher.metric("umbo_fleet_quota_revision")
    ns = dispatcher.namespace("kept")
    keys = [f"key-{number}" for number in range(60)]
    for key in keys:
        assert ns.put(key, value=b"v").status == 201
    lost = cluster.tier.owner(HOME)
    new_home = next(one["id"] for one in cluster.tier.map()["shards"] if one["node"] != lost)
    # Every node has the copy of the last change before the home goes.
    wait_until(lambda: all((node.data / "records").exists() for node in cluster.nodes.values()), "copies are kept")
    cluster.nodes[lost].stop()
    shutil.rmtree(cluster.nodes[lost].data)
    asked = ["--map", cluster.tier.map_file, "--shard", new_home]
    code, said = promote_home(cluster, *asked, "--dry-run")
    assert code == 6 and f"no answer from {lost}" in said and "--without" in said, said
    code, said = promote_home(cluster, *asked, "--without", lost, "--dry-run")
    assert code == 0 and "in epoch 2" in said, said
    # The node of the new home does not know the map yet, so this one gives up; the map is written.
    out = folder / "next.toml"
    code, said = promote_home(cluster, *asked, "--without", lost, "--out", out, "--wait", "1s")
    assert code == 6 and "--resume" in said, said
    cluster.tier.write_map(out.read_text())
    running = [node for node in cluster.nodes.values() if node.is_running()]
    for process in [*cluster.dispatchers, *running]:
        process.process.send_signal(signal.SIGHUP)
    resume = ["--map", out, "--without", lost, "--resume", "--wait", "30s"]
    # A node that has no time to answer within seconds is named, and asked again by the same command.
    late = lambda told: told[0] == 6 and "no answer from" in told[1]
    code, said = wait_until(lambda: not late(told := promote_home(cluster, *resume)) and told, "all nodes answer")
    assert code == 0 and f"shard {new_home} is the home of the records" in said, said
    # Once more changes nothing.
    code, again = promote_home(cluster, *resume)
    assert code == 0 and again.splitlines()[-1] == said.splitlines()[-1], again
    client = dispatcher.client()
    made = lambda: client.put("/admin/v1/namespaces/young").status in (200, 201)
    wait_until(made, "records are changed in the new home")
    names = [one["name"] for one in client.get("/admin/v1/namespaces").json()["namespaces"]]
    assert {"kept", "young"} <= set(names), names
    answers = [Namespace(client, "kept").get(key).status for key in keys]
    # The owners have written their row at the new home, so that a dispatcher that begins finds it.
    for one in cluster.dispatchers:
        wait_until(lambda: one.metric("umbo_fleet_quota_revision") > revision, "the row is there again")  # noqa: B023
    other.stop()
    other.start()
    wait_until(lambda: other.metric("umbo_fleet_quota_revision") >= revision + 3, "it owns counters with the others")
    # What was on the other nodes is still there; the shards of the lost one are down.
    assert set(answers) <= {200, 503} and answers.count(200) > 20, answers
