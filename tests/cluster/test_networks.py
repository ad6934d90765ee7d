"""A bad wire between a dispatcher and one of its nodes: late, lossy, cut.

The node runs in a network namespace; link.py is the wire. That needs root, `ip` (iproute2) and
/dev/net/tun; where they cannot be had, UMBO_TESTS_NO_NETNS=1 skips these tests, which the report counts.
"""

import os
import time

import pytest

from harness import Namespace, wait_until
from link import Link
from tier import SHARDS, Tier, free_port, map_text, spread
from writers import ACKNOWLEDGED, Writer, check

TIMEOUT_MS = 1_000
# How much later than its deadline an answer may come on a machine that is busy with other things.
GRACE_SECONDS = 4
FAR = "c"


@pytest.fixture
def link():
    if os.environ.get("UMBO_TESTS_NO_NETNS") == "1":
        pytest.skip("told to make no network namespaces (UMBO_TESTS_NO_NETNS)")
    with Link() as made:
        yield made


@pytest.fixture
def cluster(new_cluster, folder, link):
    """Three nodes, the last of them at the other end of the wire."""
    here = {name: f"127.0.0.1:{free_port()}" for name in ("a", "b")}
    addresses = here | {FAR: f"{link.host}:7411"}
    (folder / "tier").mkdir()
    (folder / "tier/cluster.toml").write_text(map_text(addresses, spread(SHARDS, list(addresses))))
    # The wire is not loopback, and nobody else is on it.
    tier = Tier(folder / "tier", node_settings={"server": {"drain_delay": "0s", "insecure": True}})
    tier.nodes[FAR].prefix = link.prefix()
    return new_cluster(tier=tier).start()


def total(writers):
    return sum(writer.acknowledged() for writer in writers)


def begin(cluster, count=6):
    """Writers of every node, writing."""
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("net")
    writers = {
        name: [Writer(dispatcher.client, "net", one, f"{name}-{at}", at % 3 == 2, TIMEOUT_MS) for at, one in enumerate(own)]
        for name, own in cluster.partitions(ns, count).items()
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
    assert max(writer.slowest() for writer in everybody) < TIMEOUT_MS / 1000 + GRACE_SECONDS
    (dispatcher,) = cluster.dispatchers
    counts = check(Namespace(dispatcher.client(), "net"), everybody)
    cluster.stop()
    return counts


def test_a_late_wire_makes_its_own_shards_late_and_nothing_else(cluster, link):
    ns, writers = begin(cluster)
    link.delay_seconds = 0.04
    before, near = total(writers[FAR]), total(writers["a"])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "the far ones go on")
    assert total(writers["a"]) > near
    # Two ways for every write, so no writer has made more than one in eighty milliseconds.
    assert total(writers["a"]) - near > total(writers[FAR]) - before - 60, "the near ones are not late"
    for writer in writers[FAR]:
        assert not writer.problems, writer.problems[:1]
    finish(cluster, writers)


def test_a_lossy_wire_loses_no_acknowledged_write(cluster, link):
    ns, writers = begin(cluster)
    link.delay_seconds, link.loss_ratio = 0.005, 0.05
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 100, "the far ones go on", 120)
    assert link.lost > 0
    link.delay_seconds, link.loss_ratio = 0, 0
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "and better so")
    assert finish(cluster, writers)[ACKNOWLEDGED] > 100


def test_a_cut_wire_is_noticed_and_mends_by_itself(cluster, link):
    ns, writers = begin(cluster)
    link.is_cut = True
    far = writers[FAR][0].partition

    def is_named():
        begun = time.monotonic()
        answer = ns.get(far, "x", Cache_Control="no-cache", Umbo_Timeout_Ms=str(TIMEOUT_MS))
        assert time.monotonic() - begun < TIMEOUT_MS / 1000 + GRACE_SECONDS
        assert answer.status in (503, 504, 404), answer
        return answer.status == 503 and answer.json()["type"].endswith("/shard-unavailable")

    wait_until(is_named, "the shards behind the wire are said to be unavailable", 60)
    near = total(writers["a"] + writers["b"])
    wait_until(lambda: total(writers["a"] + writers["b"]) >= near + 100, "the near ones go on")
    # Long enough for whatever was under way to be given up at both ends.
    time.sleep(2)
    link.is_cut = False
    before = total(writers[FAR])
    wait_until(lambda: total(writers[FAR]) >= before + 60, "it is found again by itself", 90)
    finish(cluster, writers)
