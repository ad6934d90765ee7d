"""Requests that wait, and deadlines that pass when a test lets them pass.

While the clock of a cluster stands still no deadline passes and no node is taken for dead, however slow the machine is.
"""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

from harness import wait_until
from processes import WAIT_SECONDS

# By how much the timers of a process may be late: they count whole milliseconds.
ROUNDING_SECONDS = 0.002
# For as long a node whose connection is lost is expected back.
GRACE_SECONDS = 3


def by_node(dispatcher, name):
    """The values of a metric of a dispatcher by node."""
    text = dispatcher.admin().get("/metrics").body.decode()
    return {node: int(value) for node, value in re.findall(rf'^{name}{{node="([^"]+)"}} (\d+)$', text, re.M)}


def asked_of(dispatcher, node):
    """Requests of a dispatcher that are in flight to a node."""
    return by_node(dispatcher, "umbo_remote_requests_in_flight")[node]


@contextlib.contextmanager
def standing_still(clock):
    """No time passes but what the test adds."""
    clock.stop()
    try:
        yield
    finally:
        clock.go()


class Waiting:
    """Requests that are in flight, each on a thread of its own."""

    def __init__(self, *asks):
        self.threads = ThreadPoolExecutor(len(asks))
        self.asked = [self.threads.submit(ask) for ask in asks]
        self.threads.shutdown(wait=False)

    def answers(self):
        return [one.result(WAIT_SECONDS) for one in self.asked]

    def are_answered(self):
        return any(one.done() for one in self.asked)


def answers_at_deadline(dispatcher, timeout_ms, *asks, telling_ms=0):
    """Asks with a timeout, and returns the answers, which come when it has passed, or within `telling_ms` before it.
    The clock has to stand still, and nobody else may ask."""
    waiting = Waiting(*asks)
    wait_until(lambda: dispatcher.in_flight() == len(asks), "all are asked")
    dispatcher.clock.advance((timeout_ms - telling_ms - 1) / 1_000)
    assert not waiting.are_answered(), "no time was left to wait"
    # With time to tell, they are answered before the deadline.
    dispatcher.clock.advance(telling_ms / 1_000 if telling_ms else 0.001 + ROUNDING_SECONDS)
    return waiting.answers()
