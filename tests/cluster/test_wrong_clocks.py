"""Wrong clocks: rows live for their time by the clocks of their nodes, and no single clock ends anything early."""

import pytest

from bulk_loads import Load, lines, load_rows
from clock import Clock
from harness import Namespace, wait_until

HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
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


def test_no_row_expires_early_because_its_node_was_behind_when_it_was_stored(new_cluster):
    cluster = new_cluster(2)
    behind = next(iter(cluster.nodes.values()))
    behind.clock = Clock()
    behind.clock.jump(-HOUR_SECONDS)
    cluster.start()
    ns = cluster.dispatchers[0].namespace("demo")
    partitions = [own for of_node in cluster.partitions(ns, 3).values() for own in of_node]
    ttl = HOUR_SECONDS // 2
    for own in partitions:
        assert ns.put(own, "put", value=b"x", **{"Umbo-TTL": str(ttl)}).status == 201
    rows = lambda sort: [{"pk": own, "sk": sort, "v": "x", "ttl": ttl} for own in partitions]  # noqa: E731
    assert ns.write(rows("batch")).status == 200
    load_rows(ns.client, "demo", rows("load"))
    behind.clock.jump(HOUR_SECONDS)

    def read():
        headers = {"Cache-Control": "no-cache"}
        return {sort: {ns.get(own, sort, **headers).status for own in partitions} for sort in ("put", "batch", "load")}

    assert read() == {"put": {200}, "batch": {200}, "load": {200}}
    for clock in {cluster.tier.clock, behind.clock, cluster.dispatchers[0].clock}:
        clock.advance(ttl)
    wait_until(lambda: read() == {"put": {404}, "batch": {404}, "load": {404}}, "every row has expired")


def test_no_load_ends_early_because_the_clock_of_its_home_was_behind(new_cluster):
    cluster = new_cluster()
    (dispatcher,) = cluster.dispatchers
    dispatcher.clock = Clock()
    cluster.start()
    dispatcher.namespace("demo")
    home, own = cluster.tier.clock, dispatcher.clock

    def jump(days, *clocks):
        for clock in clocks:
            clock.jump(days * DAY_SECONDS)
        ahead = 8 if days < 0 and own not in clocks else 0
        offset = lambda: dispatcher.metric("umbo_remote_node_clock_offset_seconds") / len(cluster.nodes)  # noqa: E731
        wait_until(lambda: abs(offset() - ahead * DAY_SECONDS) < 60, "the dispatcher knows the time of the nodes")

    def load():
        made = Load.create(dispatcher.client(), "demo")
        assert made.put(0, lines([{"pk": "a", "v": "1"}])).status == 201
        return made

    # Nobody seals them for seven days: the one by all clocks, the other by that of the home alone.
    jump(-8, home, own)
    old = load()
    jump(8, home, own)
    jump(-8, home)
    young = load()
    jump(8, home)

    def states():
        # A jump ahead is believed after ten minutes in which both processes have seen it.
        for clock in (home, own):
            clock.advance(10)
        return [one.info()["state"] for one in (old, young)]

    wait_until(lambda: states()[0] == "failed", "the old one ends")
    for _ in range(20):
        assert states() == ["failed", "uploading"]
