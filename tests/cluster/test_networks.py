"""A bad wire between a dispatcher and one of its nodes: late, lossy, cut.

The node runs in a network namespace; network.py is the wire. That needs root, `ip` (iproute2) and
/dev/net/tun; where they cannot be had, UMBO_TESTS_NO_NETNS=1 skips these tests, which the report counts.
"""

import re
import subprocess

import pytest

from bulk import step_until
from deadline import answers_at_deadline, by_node, standing_still
from harness import Namespace, wait_until
from network import Network, may_be_made
from tier import SHARDS, Tier, free_port, map_text, spread
from writers import ACKNOWLEDGED, PATIENT_MS, Writer, check, total

TIMEOUT_MS = 1_000
FAR = "c"


@pytest.fixture
def network():
    may_be_made()
    with Network(FAR) as made:
        yield made


@pytest.fixture
def cluster(new_cluster, folder, network):
    """Three nodes, the last of them at the other end of the wire."""
    here = {name: f"127.0.0.1:{free_port()}" for name in ("a", "b")}
    addresses = here | {FAR: f"{network.address(FAR)}:7411"}
    (folder / "tier").mkdir()
    (folder / "tier/cluster.toml").write_text(map_text(addresses, spread(SHARDS, list(addresses))))
    # The wire is not loopback, and nobody else is on it.
    tier = Tier(folder / "tier", node_settings={"server": {"drain_delay": "0s", "insecure": True}})
    tier.nodes[FAR].prefix = network.prefix(FAR)
    return new_cluster(tier=tier).start()


def begin(cluster, far_ms=PATIENT_MS):
    """Writers of every node, writing; those of the far one have less time where it is to be missed."""
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("net")
    timeout_ms = {"a": PATIENT_MS, "b": PATIENT_MS, FAR: far_ms}
    writers = {
        name: [
            Writer(dispatcher.client, "net", one, f"{name}-{at}", at % 3 == 2, timeout_ms[name])
            for at, one in enumerate(own)
        ]
        for name, own in cluster.partitions(ns, 6).items()
    }
    for own in writers.values():
        [writer.start() for writer in own]
        wait_until(lambda: total(own) >= 40, "the writers write")
    return ns, writers


def finish(cluster, writers):
    """Ends all of them; nobody near has noticed anything, and what was said is true."""
    everybody = [writer for own in writers.values() for writer in own]
    [writer.end() for writer in everybody]
    for name in ("a", "b"):
        for writer in writers[name]:
            assert not writer.problems and not writer.cuts, (writer.cuts, writer.problems[:1])
    (dispatcher,) = cluster.dispatchers
    counts = check(Namespace(dispatcher.client(), "net"), everybody)
    cluster.stop()
    return counts


def test_a_late_wire_makes_its_own_shards_late_and_nothing_else(cluster, network):
    ns, writers = begin(cluster)
    network.delay_seconds = 0.04
    before, near = total(writers[FAR]), total(writers["a"])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "the far ones go on")
    assert total(writers["a"]) > near
    # Two ways for every write, so no writer has made more than one in eighty milliseconds.
    assert total(writers["a"]) - near > total(writers[FAR]) - before - 60, "the near ones are not late"
    for writer in writers[FAR]:
        assert not writer.problems, writer.problems[:1]
    finish(cluster, writers)


def test_a_lossy_wire_loses_no_acknowledged_write(cluster, network):
    ns, writers = begin(cluster)
    network.delay_seconds, network.loss_ratio = 0.005, 0.05
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 100, "the far ones go on", 120)
    assert network.lost > 0
    network.delay_seconds, network.loss_ratio = 0, 0
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "and better so")
    assert finish(cluster, writers)[ACKNOWLEDGED] > 100


def connections_of(node):
    """Connections of a node at the other end, as it tells there."""
    url = f"http://{node.host}:{node.admin_port}/metrics"
    done = subprocess.run([*node.prefix, "curl", "-sS", url], capture_output=True, text=True, check=True, timeout=60)
    return int(re.search(r"^umbo_node_connections (\d+)$", done.stdout, re.M).group(1))


def test_a_cut_wire_is_noticed_and_mends_by_itself(cluster, network):
    (dispatcher,) = cluster.dispatchers
    ns, writers = begin(cluster, TIMEOUT_MS)
    network.cut(FAR)
    far = writers[FAR][0].partition

    def is_named():
        answer = ns.get(far, "x", Cache_Control="no-cache", Umbo_Timeout_Ms=str(TIMEOUT_MS))
        assert answer.status in (503, 504, 404), answer
        return answer.status == 503 and answer.json()["type"].endswith("/shard-unavailable")

    wait_until(is_named, "the shards behind the wire are said to be unavailable")
    near = total(writers["a"] + writers["b"])
    wait_until(lambda: total(writers["a"] + writers["b"]) >= near + 100, "the near ones go on")
    # Whatever was under way is given up at both ends.
    assert by_node(dispatcher, "umbo_remote_node_up")[FAR] == 0
    node = cluster.nodes[FAR]
    is_given_up = lambda: connections_of(node) == 0
    step_until(dispatcher.clock, is_given_up, "the far node has given the dispatcher up", step=0.5)
    network.mend()
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "it is found again by itself")
    finish(cluster, writers)


def test_a_request_that_meets_a_cut_wire_is_answered_at_its_deadline(cluster, network):
    (dispatcher,) = cluster.dispatchers
    far = cluster.partitions(dispatcher.namespace("net"), 1)[FAR][0]
    new = lambda: Namespace(dispatcher.client(), "net")
    headers = {"Umbo-Timeout-Ms": str(TIMEOUT_MS), "Cache-Control": "no-cache"}
    with standing_still(dispatcher.clock):
        wait_until(lambda: dispatcher.in_flight() == 0, "nobody asks")
        network.cut(FAR)
        read, written = answers_at_deadline(
            dispatcher, TIMEOUT_MS, *(lambda ask=ask: ask(far, **headers) for ask in (new().get, new().put))
        )
        network.mend()
    read.problem(504, "deadline-in-store")
    assert written.problem(504, "deadline-in-store")["outcome"] == "unknown"
    wait_until(lambda: new().put(far, value=b"x").status in (201, 204), "it goes on")
    cluster.stop()
