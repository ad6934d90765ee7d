"""A dispatcher whose clock is wrong: rows live for their time by the clocks of their nodes."""

import pytest

from clock import Clock
from harness import Namespace, wait_until

HOUR_SECONDS = 3_600
# Longer than the test takes, and so is the half of it.
TTL_SECONDS = 20_000


@pytest.mark.parametrize("ahead", [-HOUR_SECONDS, HOUR_SECONDS])
def test_a_row_lives_for_its_time_whatever_the_clock_of_its_dispatcher_says(new_cluster, ahead):
    cluster = new_cluster(2)
    right, wrong = cluster.dispatchers
    wrong.clock = Clock()
    wrong.clock.jump(ahead)
    cluster.start()
    right.namespace("demo")
    ns = wrong.namespace("demo")
    partitions = [own for of_node in cluster.partitions(ns, 3).values() for own in of_node]
    short = str(HOUR_SECONDS - 600)
    for own in partitions:
        assert ns.put(own, "short", value=b"x", **{"Umbo-TTL": short}).status == 201
        assert ns.put(own, "long", value=b"x", **{"Umbo-TTL": str(TTL_SECONDS)}).status == 201

    def read(sort):
        return {
            Namespace(one.client(), "demo").get(own, sort, **{"Cache-Control": "no-cache"}).status
            for one in cluster.dispatchers
            for own in partitions
        }

    # It would have expired, or would live for more than another hour.
    assert read("short") == {200}
    for seconds, status in ((TTL_SECONDS // 2, 200), (TTL_SECONDS // 2, 404)):
        for clock in (cluster.tier.clock, wrong.clock):
            clock.advance(seconds)
        wait_until(lambda status=status: read("long") == {status}, f"every row is answered with {status}")
        assert read("short") == {404}
    offset = wrong.metric("umbo_remote_node_clock_offset_seconds") / len(cluster.nodes)
    assert abs(offset - ahead) < 60
