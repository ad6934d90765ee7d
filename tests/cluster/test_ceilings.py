"""Quotas of shards: all dispatchers together count them once, and a request that is fetched in pieces counts once."""

import json
from decimal import Decimal

import pytest

from deadline import standing_still
from harness import wait_until
from test_fleet_quotas import RATE, Load, check_rejection, has_policy, started
from test_nodes import outcomes

# What is charged is to be the same in every run.
SETTINGS = {"cost": {"latency_ms": 0}}
# More than a node answers at once by far.
ROWS, VALUE_LEN = 600, 4_096


@pytest.fixture
def cluster(new_cluster):
    return new_cluster(1, SETTINGS, node_settings=SETTINGS)


def limit(cluster, name, **policy):
    """Stores a policy of shards, the only one, and waits until it counts."""
    policy = {"name": name, "scope": "shard", "rate": 1, "per": []} | policy
    (dispatcher,) = cluster.dispatchers
    stored = dispatcher.client().put(f"/admin/v1/quotas/{name}", json.dumps(policy))
    assert stored.status == 201, stored
    series = f'umbo_policy_buckets{{policy="{name}"}}'
    wait_until(lambda: series in dispatcher.admin().get("/metrics").body.decode(), "it counts")


def fill(ns, partition):
    rows = [{"pk": partition, "sk": f"{at:04}", "v": "x" * VALUE_LEN} for at in range(ROWS)]
    for at in range(0, ROWS, 200):
        assert ns.write(rows[at : at + 200]).status == 200


def begin(cluster):
    """Starts it; returns a namespace, and a node with one of its partitions."""
    (dispatcher,) = cluster.start().dispatchers
    ns = dispatcher.namespace()
    return ns, cluster.nodes["b"], cluster.partitions(ns, 1)["b"][0]


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


def test_a_long_range_costs_what_it_does_in_one_process_and_counts_once(cluster, new_server):
    alone = new_server(SETTINGS).start()
    own = alone.namespace()
    fill(own, "p")
    price = ru(ranged(own, "p"))
    alone.stop()

    ns, node, victim = begin(cluster)
    fill(ns, victim)
    limit(cluster, "few", unit="requests", burst=4)
    keys = [{"pk": victim, "sk": f"{at:04}"} for at in range(ROWS)]
    before = asked(node, "range")
    with standing_still(cluster.tier.clock):
        assert ru(ranged(ns, victim)) == price
        assert asked(node, "range") - before >= 8, "it is fetched in pieces"
        before = asked(node, "multi-get")
        found = ns.multi_get(keys, headers={"Cache-Control": "no-cache"})
        assert found.status == 200, found
        assert asked(node, "multi-get") - before > 4
        statuses = [ns.get(victim, "none", Cache_Control="no-cache").status for _ in range(4)]
    assert statuses == [404, 404, 429, 429], "two were counted before"
    cluster.stop()


def test_all_dispatchers_together_admit_the_quota_of_each_shard(new_cluster):
    cluster = started(new_cluster, 2)
    ns = cluster.dispatchers[0].namespace("shared")
    victim, other = (cluster.partitions(ns, 1)[name][0] for name in "ab")
    client = cluster.dispatchers[0].client()
    assert client.delete("/admin/v1/quotas/of-all").status == 200
    # Little, so that requests that reach a shard exceed it on a busy machine, too.
    rate = RATE // 5
    policy = {"name": "of-shard", "unit": "requests", "rate": rate, "burst": rate, "scope": "shard"}
    policy |= {"match": {"namespace": "shared"}}
    assert client.put("/admin/v1/quotas/of-shard", json.dumps(policy)).status == 201
    for dispatcher in cluster.dispatchers:
        wait_until(lambda: has_policy(dispatcher, "of-shard"), "the policy is known")  # noqa: B023
    # The cache of hot keys asks no shard.
    load = Load(cluster.dispatchers, victim, Cache_Control="no-cache").run()
    assert 0.9 / 5 <= load.used() <= 1.1 / 5, load.used()
    check_rejection(load.refused[-1], "of-shard", unit="requests", rate=rate, burst=rate, scope="shard")
    assert ns.get(other).status == 404, "another shard has another counter"
    cluster.stop()
