"""Clients that lead the read of a key and leave while its node stands still: whoever waits for the same key
is answered when the node goes on."""

import time

import pytest

from harness import read_answer, wait_until

CLIENTS = 40
VICTIM = "b"
# A node that says nothing for a second has failed: then it is no longer about who leads.
PAUSE_SECONDS_MAX = 0.8
ATTEMPTS = 8


class Reader:
    """A client with a connection of its own, which asks for one key."""

    def __init__(self, dispatcher, path):
        self.request = f"GET {path} HTTP/1.1\r\nHost: umbo\r\nUmbo-Timeout-Ms: 20000\r\n\r\n".encode()
        self.socket = dispatcher.raw(b"")

    def ask(self):
        self.socket.sendall(self.request)

    def leave(self):
        self.socket.close()

    def answer(self):
        with self.socket, self.socket.makefile("rb") as reader:
            return read_answer(reader)


def lead_leave_and_follow(cluster, ns, partitions):
    """Returns what those were told who stayed, and for how long the node stood still."""
    (dispatcher,) = cluster.dispatchers
    node = cluster.nodes[VICTIM]
    metric = dispatcher.metric
    leaders, followers = ([Reader(dispatcher, ns.path(one)) for one in partitions] for _ in range(2))
    led, followed = metric("umbo_hotkey_leaders_total"), metric("umbo_hotkey_followers_total")
    node.pause()
    begun = time.monotonic()
    try:
        [one.ask() for one in leaders]
        wait_until(lambda: metric("umbo_hotkey_leaders_total") - led == CLIENTS, "all are led")
        [one.ask() for one in followers]
        wait_until(lambda: metric("umbo_hotkey_followers_total") - followed == CLIENTS, "all are followed")
        [one.leave() for one in leaders]
        wait_until(lambda: dispatcher.in_flight() == CLIENTS, "those who lead have left")
    finally:
        node.resume()
    took = time.monotonic() - begun
    return [one.answer() for one in followers], took, metric("umbo_hotkey_leaders_total") - led


@pytest.mark.parametrize("is_hot", (False, True), ids=("cold", "hot"))
def test_who_leads_and_leaves_takes_nobody_along(new_cluster, is_hot):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace("left")
    for attempt in range(ATTEMPTS):
        partitions = cluster.partitions(ns, CLIENTS, f"of-{attempt}")[VICTIM]
        for one in partitions:
            if is_hot:
                answer = ns.client.put(f"/admin/v1/hot/pinned/{ns.path(one).removeprefix('/v1/')}", "{}")
                assert answer.status in (200, 201), answer
            # A write ends what is kept of the key.
            assert ns.put(one, value=one.encode()).status in (201, 204)
        answers, took, led = lead_leave_and_follow(cluster, ns, partitions)
        if took <= PAUSE_SECONDS_MAX:
            break
    else:
        pytest.fail(f"the machine is too slow: the node stood still for {took} s each time")
    assert [answer.status for answer in answers] == [200] * CLIENTS, answers
    assert [answer.body for answer in answers] == [one.encode() for one in partitions]
    assert led == CLIENTS, "nobody reads twice"
    assert dispatcher.in_flight() == 0
    cluster.stop()
