"""A node that is killed or stands still under a steady load, with everything that sheds turned on: the
shards of the others lose nothing, and those of the node are told so.
"""

import pytest

from harness import wait_until
from steady import Steady
from writers import PATIENT_MS

TIMEOUT_MS = 1_000
GOODPUT_MIN = 0.98
VICTIM = "b"
# Replies of each node before, while it fails and afterwards.
CALM, FAILED, BACK = 100, 400, 50


@pytest.mark.parametrize("is_killed", (True, False), ids=("killed", "paused"))
def test_the_others_lose_nothing_while_a_node_fails(new_cluster, is_killed):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("goodput")
    partitions = cluster.partitions(ns, 6)
    victim, others = cluster.nodes[VICTIM], [name for name in partitions if name != VICTIM]
    timeout_ms = dict.fromkeys(partitions, PATIENT_MS) | {VICTIM: TIMEOUT_MS}
    with Steady(dispatcher.client, "goodput", partitions, timeout_ms) as load:
        load.phase = "calm"
        wait_until(lambda: all(len(load.of(name, "calm")) >= CALM for name in partitions), "the load goes on")
        victim.kill() if is_killed else victim.pause()
        load.phase = "failed"
        # Some of them may be served once the node is back.
        codes = lambda: {(one.status, one.code) for one in load.of(VICTIM, "failed") if not one.is_good()}
        wait_until(lambda: all(len(load.of(name, "failed")) >= FAILED for name in others), "the others go on")
        wait_until(lambda: (503, "shard-unavailable") in codes(), "its clients are told")
        load.phase = "back"
        victim.start() if is_killed else victim.resume()
        good = lambda name: sum(reply.is_good() for reply in load.of(name, "back"))
        wait_until(lambda: all(good(name) >= BACK for name in partitions), "all are served again")
    during = {name: load.of(name, "failed") for name in others}
    summary = {name: sum(reply.is_good() for reply in own) / len(own) for name, own in during.items()}
    for name, goodput in summary.items():
        assert goodput >= GOODPUT_MIN, (name, summary, {reply.code for reply in during[name]})
    if is_killed:
        # Known at once: there is nothing to wait for but its return.
        assert codes() == {(503, "shard-unavailable")}, codes()
    else:
        assert codes() <= {
            (503, "shard-unavailable"),
            (503, "overloaded"),
            (504, "deadline-in-store"),
            (504, "deadline-before-store"),
        }, codes()
    print(summary, codes())
    shed = dispatcher.metric("umbo_shed_total")
    assert shed <= sum(reply.code == "overloaded" for reply in load.replies[VICTIM]), "only of the shards that failed"
    cluster.stop()
