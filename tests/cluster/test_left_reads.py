"""Clients that lead the read of a key and leave while its node stands still: whoever waits for the same key
is answered when the node goes on."""

import pytest

from deadline import standing_still
from harness import read_answer, wait_until

CLIENTS = 40
VICTIM = "b"


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


@pytest.mark.parametrize("is_hot", (False, True), ids=("cold", "hot"))
def test_who_leads_and_leaves_takes_nobody_along(single, is_hot):
    (dispatcher,) = single.dispatchers
    ns, node = dispatcher.namespace(f"left-{is_hot}".lower()), single.nodes[VICTIM]
    partitions = single.partitions(ns, CLIENTS)[VICTIM]
    for one in partitions:
        if is_hot:
            answer = ns.client.put(f"/admin/v1/hot/pinned/{ns.path(one).removeprefix('/v1/')}", "{}")
            assert answer.status in (200, 201), answer
        # A write ends what is kept of the key.
        assert ns.put(one, value=one.encode()).status in (201, 204)
    leaders, followers = ([Reader(dispatcher, ns.path(one)) for one in partitions] for _ in range(2))
    led = lambda: dispatcher.metric("umbo_hotkey_leaders_total")
    followed = lambda: dispatcher.metric("umbo_hotkey_followers_total")
    led_before, followed_before = led(), followed()
    # No node is taken for dead, so that it is about who leads.
    with standing_still(dispatcher.clock):
        node.pause()
        try:
            [one.ask() for one in leaders]
            wait_until(lambda: led() - led_before == CLIENTS, "all are led")
            [one.ask() for one in followers]
            wait_until(lambda: followed() - followed_before == CLIENTS, "all are followed")
            [one.leave() for one in leaders]
            wait_until(lambda: dispatcher.in_flight() == CLIENTS, "those who lead have left")
        finally:
            node.resume()
        answers = [one.answer() for one in followers]
    assert [answer.status for answer in answers] == [200] * CLIENTS, answers
    assert [answer.body for answer in answers] == [one.encode() for one in partitions]
    assert led() - led_before == CLIENTS, "nobody reads twice"
    assert dispatcher.in_flight() == 0
