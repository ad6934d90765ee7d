"""Ceilings of shards as their nodes keep them, for all dispatchers together: what a request counts for that
is fetched in pieces, and policies that count by whom a caller calls for."""

from decimal import Decimal

import pytest

from deadline import standing_still
from test_nodes import limit, outcomes

# What is charged is to be the same in every run.
SETTINGS = {"cost": {"latency_ms": 0}}
# More than a node answers at once by far.
ROWS, VALUE_LEN = 600, 4_096


@pytest.fixture
def cluster(new_cluster):
    return new_cluster(2, SETTINGS, node_settings=SETTINGS)


def fill(ns, partition):
    rows = [{"pk": partition, "sk": f"{at:04}", "v": "x" * VALUE_LEN} for at in range(ROWS)]
    for at in range(0, ROWS, 200):
        assert ns.write(rows[at : at + 200]).status == 200


def begin(cluster):
    """Starts it; returns a namespace as each dispatcher has it, and a node with a partition of its own."""
    first, second = cluster.start().dispatchers
    ns, other = first.namespace(), second.namespace()
    return ns, other, cluster.nodes["b"], cluster.partitions(ns, 1)["b"][0]


def ranged(ns, partition):
    """The end of a whole range."""
    answer = ns.range(partition, headers={"Cache-Control": "no-cache"}, max_bytes=64 << 20)
    assert answer.status == 200, answer
    rows, end = answer.rows_and_end()
    assert len(rows) == end["rows"] == ROWS and not end["more"], end
    return end


def ru(end):
    return Decimal(str(end["ru"]))


def asked(node, kind):
    return outcomes(node, "done").get(kind, 0)


def test_a_long_range_costs_at_a_node_what_it_does_in_one_process(cluster, new_server):
    alone = new_server(SETTINGS).start()
    own = alone.namespace()
    fill(own, "p")
    price = ru(ranged(own, "p"))
    alone.stop()

    ns, other, node, victim = begin(cluster)
    fill(ns, victim)
    before = asked(node, "range")
    assert ru(ranged(ns, victim)) == price
    pieces = asked(node, "range") - before
    assert pieces >= 8, "it is fetched in pieces"

    # Room at the node for two of them and five requests; each dispatcher has seen one of both.
    burst = 2 * price + Decimal("5.5")
    limit(cluster, "ceiling", unit="ru", per=[], burst=float(round(burst, 3)))
    with standing_still(cluster.tier.clock):
        assert ru(ranged(ns, victim)) == ru(ranged(other, victim)) == price
        served = 0
        while (answer := ns.get(victim, "none", Cache_Control="no-cache")).status == 404:
            assert answer.headers["umbo-ru"] == "1.05"
            served += 1
    problem = answer.problem(429, "quota-exceeded")
    assert served == 6, "the last one is the first of a debt"
    assert outcomes(node, "quota-exceeded").get("get", 0) > 0, "it was the node that said so"
    assert problem["observed"] > 0 and problem["policy"] == "ceiling", problem
    cluster.stop()


def test_a_request_in_pieces_counts_as_one(cluster):
    ns, other, node, victim = begin(cluster)
    fill(ns, victim)
    limit(cluster, "few", unit="requests", per=[], burst=4)
    keys = [{"pk": victim, "sk": f"{at:04}"} for at in range(ROWS)]
    before = asked(node, "range")
    with standing_still(cluster.tier.clock):
        ranged(ns, victim)
        ranged(other, victim)
        assert asked(node, "range") - before > 8
        before = asked(node, "multi-get")
        found = ns.multi_get(keys, headers={"Cache-Control": "no-cache"})
        assert found.status == 200, found
        assert asked(node, "multi-get") - before > 4
        statuses = [one.get(victim, "none", Cache_Control="no-cache").status for _ in range(4) for one in (ns, other)]
    assert statuses == [404] + [429] * 7, "three were counted before"
    cluster.stop()


def test_a_ceiling_by_user_holds_for_all_dispatchers_together(cluster):
    ns, other, node, victim = begin(cluster)
    limit(cluster, "by-user", unit="requests", per=["user"], burst=10)
    stored, refused = 0, []
    with standing_still(cluster.tier.clock):
        for _ in range(15):
            for one in (ns, other):
                answer = one.put(victim, value=b"x", Umbo_User="u-1")
                stored += answer.status in (201, 204)
                if answer.status == 429:
                    refused.append(answer.problem(429, "quota-exceeded"))
    assert stored == 10, "each dispatcher alone would let ten through"
    assert outcomes(node, "quota-exceeded").get("write", 0) > 0, "it was the node that said so"
    assert all(one["policy"] == "by-user" and one["scope"] == "shard" and one["observed"] > 0 for one in refused)
    # Another user has a bucket of its own, and who names none has none.
    for user in ("u-2", None):
        named = {"Umbo_User": user} if user else {}
        assert other.put(victim, value=b"x", **named).status == 204
    cluster.stop()


def test_a_scan_that_was_let_in_is_not_stopped_on_its_way(cluster):
    cluster.start()
    first, second = cluster.dispatchers
    ns, other = first.namespace(), second.namespace()
    partitions = [own[0] for own in cluster.partitions(ns, 1).values()]
    victim = partitions[-1]
    for one in partitions:
        assert ns.put(one, value=b"x").status == 201
    limit(cluster, "ceiling", unit="requests", per=[], rate=0.1, burst=3)
    # What the second dispatcher spends is unknown to the first one: the node says no.
    with standing_still(cluster.tier.clock):
        for one in (other, ns):
            assert 429 in [one.put(victim, value=b"x").status for _ in range(6)]
            used_up = outcomes(cluster.nodes["c"], "quota-exceeded")
        assert used_up.get("write", 0) > 0
        # As in one process, where all shards are asked before the first row is read.
        assert {row["pk"] for row in ns.scan_all()} == set(partitions)
        assert outcomes(cluster.nodes["c"], "quota-exceeded") == used_up
    cluster.stop()
