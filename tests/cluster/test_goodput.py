"""A node that is killed or stands still under a steady load, with everything that sheds turned on: the
shards of the others lose nothing, and nobody is answered late.
"""

import time

import pytest

from harness import wait_until
from steady import Steady

RATE = 150
CALM_SECONDS, FAILED_SECONDS = 4, 4
TIMEOUT_MS = 1_000
GOODPUT_MIN = 0.98
# How much later than its deadline an answer may come on a machine that is busy with other things.
GRACE_SECONDS = 3
VICTIM = "b"


@pytest.mark.parametrize("is_killed", (True, False), ids=("killed", "paused"))
def test_the_others_lose_nothing_while_a_node_fails(new_cluster, is_killed):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("goodput")
    partitions = cluster.partitions(ns, 6)
    victim = cluster.nodes[VICTIM]
    with Steady(dispatcher.client, "goodput", partitions, RATE, TIMEOUT_MS) as load:
        time.sleep(CALM_SECONDS)
        failed = time.monotonic()
        victim.kill() if is_killed else victim.pause()
        time.sleep(FAILED_SECONDS)
        back = time.monotonic()
        victim.start() if is_killed else victim.resume()
        wait_until(lambda: ns.put(partitions[VICTIM][0], "back").status in (201, 204), "it serves again")
        served = time.monotonic()
        time.sleep(1)
    summary = {}
    for name in partitions:
        during = load.between(name, failed, back)
        assert during and load.between(name, served, served + 1), "the load went on"
        slowest = max(reply.took for reply in during)
        summary[name] = (sum(reply.is_good() for reply in during) / len(during), round(slowest, 3))
        assert slowest < TIMEOUT_MS / 1000 + GRACE_SECONDS, summary
        if name != VICTIM:
            assert summary[name][0] >= GOODPUT_MIN, (name, summary, {reply.code for reply in during})
    codes = {(reply.status, reply.code) for reply in load.between(VICTIM, failed, back)} - {(200, None), (201, None), (204, None)}
    if is_killed:
        # Known at once: there is nothing to wait for but its return.
        assert codes == {(503, "shard-unavailable")}, codes
    else:
        assert (503, "shard-unavailable") in codes, codes
        assert codes <= {(503, "shard-unavailable"), (503, "overloaded"), (504, "deadline-in-store"), (504, "deadline-before-store")}, codes
    print(summary, codes)
    shed = dispatcher.metric("umbo_shed_total")
    assert shed <= sum(reply.code == "overloaded" for reply in load.replies[VICTIM]), "only of the shards that failed"
    cluster.stop()
