"""Traces through dispatcher and shard node: one trace, in which the node's spans are below those of the
dispatcher."""

import pytest

from harness import wait_until
from otlp import Collector

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def traced(new_cluster):
    with Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint}}
        cluster = new_cluster(1, settings, node_settings=settings).start()
        cluster.collector = collector
        yield cluster


def spans(cluster, trace, count):
    """The spans of a trace, once there are so many."""
    own = lambda: [span for span in cluster.collector.received() if span.trace == trace]
    return wait_until(lambda: len(own()) >= count and own(), f"{count} spans have come")


def at_node(found):
    return [span for span in found if span.name.startswith("node ")]


def test_a_sampled_request_is_one_trace_through_dispatcher_and_node(traced):
    (dispatcher,) = traced.dispatchers
    ns = dispatcher.namespace("traced")
    victim = traced.partitions(ns, 1)["b"][0]
    shard = ns.client.post(f"{ns.base}/explain", {"operation": "get", "pk": victim}).json()["shards"][0]["shard"]
    assert ns.put(victim, "s", b"value").status == 201
    assert ns.get(victim, "s", traceparent=SAMPLED, Umbo_Criticality="critical").status == 200
    found = wait_until(lambda: at_node(spans(traced, TRACE, 8)) and spans(traced, TRACE, 8), "the node's span")
    (top,) = [span for span in found if span.parent == CALLER]
    (below,) = at_node(found)
    assert top.name == "get" and below.name == "node get"
    assert below.parent == top.id and below.id not in (top.id, CALLER)
    # Of one machine, so that the clocks agree.
    assert top.started <= below.started <= below.ended <= top.ended
    said = below.attributes
    assert said.pop("umbo.service_time_us") * 1_000 <= below.ended - below.started
    assert said == {
        "umbo.node": "b",
        "umbo.request": "get",
        "umbo.outcome": "done",
        "umbo.criticality": "critical",
        "umbo.shard": shard,
        "umbo.caller": "anonymous",
        "umbo.rows": 1,
        "umbo.bytes": len(victim) + len("s") + len("value"),
    }
    assert not below.is_error
    traced.stop()


def test_each_node_that_a_sampled_request_reaches_says_what_it_did(traced):
    (dispatcher,) = traced.dispatchers
    ns = dispatcher.namespace("traced")
    keys = [own[0] for own in traced.partitions(ns, 1).values()]
    other = "11112222333344445555666677778888"
    headers = {"traceparent": f"00-{other}-{CALLER}-01"}
    assert ns.write([{"pk": one, "v": one} for one in keys], headers=headers).status == 200
    assert ns.multi_get([{"pk": one} for one in keys], headers={"traceparent": SAMPLED}).status == 200
    for trace, request in ((other, "write"), (TRACE, "multi-get")):
        found = spans(traced, trace, len(keys) + 1)
        found = wait_until(lambda: len(at_node(spans(traced, trace, 1))) == len(keys) and spans(traced, trace, 1), "all")
        (top,) = [span for span in found if span.parent == CALLER]
        below = at_node(found)
        assert {span.attributes["umbo.node"] for span in below} == set(traced.nodes)
        assert all(span.parent == top.id and span.name == f"node {request}" for span in below)
        assert all(span.attributes["umbo.rows"] == 1 and "umbo.shard" in span.attributes for span in below)
    traced.stop()


def test_what_is_not_sampled_has_no_span_at_a_node(traced):
    (dispatcher,) = traced.dispatchers
    ns = dispatcher.namespace("traced")
    unsampled = f"00-{'22' * 16}-{CALLER}-00"
    for headers in ({}, {"traceparent": unsampled}, {"traceparent": "nonsense"}):
        assert ns.put("a", "s", b"x", **headers).status in (201, 204)
        assert ns.get("a", "s", **headers).status == 200
    # The spans of a process leave in order: nothing came before these.
    assert ns.get("a", "s", traceparent=SAMPLED, Cache_Control="no-cache").status == 200
    wait_until(lambda: at_node(spans(traced, TRACE, 1)), "the node's span")
    traced.stop()
    # Those that were slow or failed have one at the dispatcher, and need not.
    assert [span.trace for span in at_node(traced.collector.received())] == [TRACE]
