"""The log of a dispatcher says once that a shard node is away, and once that it is back; in words."""

import json
import re

from bulk import step_until
from deadline import standing_still
from harness import wait_until

# As many as there are before the waits between them are at their longest.
ATTEMPTS = 6


def lines_of(dispatcher, node):
    lines = [json.loads(line) for line in dispatcher.log_text().splitlines()]
    return [line for line in lines if line.get("node") == node]


def test_an_outage_is_logged_once_at_each_end(new_cluster):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    name, *others = cluster.nodes
    node = cluster.nodes[name]
    assert not lines_of(dispatcher, name), "a node that is there is no news"
    ns = dispatcher.namespace()
    own = cluster.partitions(ns, 1)[name][0]
    refused = lambda: dispatcher.metric("umbo_remote_connections_refused_total")

    def kill():
        # What a node has not read when it is killed would make another reason of it.
        with standing_still(dispatcher.clock):
            assert ns.get(own, Cache_Control="no-cache").status == 404
            node.kill()

    for end in (kill, node.stop):
        before, attempts = len(lines_of(dispatcher, name)), refused()
        # The waits between attempts begin anew after a connection that has lasted.
        dispatcher.clock.advance(2)
        end()
        wait_until(lambda: len(lines_of(dispatcher, name)) > before, "the outage in the log")
        dispatcher.clock.advance(1)
        step_until(dispatcher.clock, lambda: refused() >= attempts + ATTEMPTS, "it is tried again and again")
        node.start()
        messages = lambda: [line["message"] for line in lines_of(dispatcher, name)[before:]]  # noqa: E731
        wait_until(lambda: "a shard node is connected again" in messages(), "the recovery in the log")
        lost, back = lines_of(dispatcher, name)[before:]
        assert lost["message"] in (
            "the connection to a shard node was lost; trying again",
            "a shard node is restarting",
        ), lost
        if "reason" in lost:
            assert not re.search(r"h2|protocol error|os error|Kind", lost["reason"]), lost
        assert (back["level"], int(back["away_ms"]) >= 1000) == ("INFO", True), back
    assert not any(lines_of(dispatcher, other) for other in others)
    cluster.stop()
