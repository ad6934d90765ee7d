"""Everything is restarted, one process after the other, and a plain client with one retry sees no error.

At 300 requests a second by default, `UMBO_TESTS_RATE=2000` for more (with a release binary).
"""

import http.client
import itertools
import os
import threading
import time

from harness import Namespace, wait_until

RATE = int(os.environ.get("UMBO_TESTS_RATE", "300"))
CLIENTS = 24
CUT = (OSError, http.client.HTTPException)


class PlainClient(threading.Thread):
    """Puts and gets at a steady rate. What fails it tries once more, through the next dispatcher, after as
    long as it was told to wait."""

    def __init__(self, dispatchers, number, rate):
        super().__init__(daemon=True)
        self.ports = itertools.cycle(dispatchers[number % len(dispatchers) :] + dispatchers[: number % len(dispatchers)])
        self.number, self.interval = number, 1 / rate
        self.served = self.retried = 0
        self.errors, self.ended = [], threading.Event()
        self.ns = None

    def connect(self):
        if self.ns is not None:
            self.ns.client.close()
        self.ns = Namespace(next(self.ports).client(), "rolling")

    def run(self):
        self.connect()
        due = time.monotonic()
        while not self.ended.is_set():
            self.turn(self.served)
            self.served += 1
            due = max(due + self.interval, time.monotonic() - 1)
            self.ended.wait(max(0, due - time.monotonic()))

    def turn(self, at):
        failure, wait = self.ask(at)
        if failure is None:
            return
        self.retried += 1
        self.connect()
        time.sleep(wait)
        again, _ = self.ask(at)
        if again is not None:
            self.errors.append((failure, again))

    def ask(self, at):
        """Returns what went wrong and how long to wait."""
        key = f"{self.number}-{at // 2}"
        try:
            if at % 2 == 0:
                answer = self.ns.put(key, value=key.encode())
                is_good = answer.status in (201, 204)
            else:
                answer = self.ns.get(key)
                is_good = answer.status == 200 and answer.body == key.encode()
        except CUT as cut:
            return repr(cut), 0
        if is_good:
            return None, 0
        return answer, int(answer.headers.get("retry-after", 0))


def test_a_rolling_restart_of_everything_is_not_noticed(new_cluster):
    # As long as a load balancer would take to look elsewhere, in which these clients go on.
    cluster = new_cluster(2, {"server": {"drain_delay": "200ms"}}).start()
    first, second = cluster.dispatchers
    first.namespace("rolling")
    other = Namespace(second.client(), "rolling")
    wait_until(lambda: other.get("nobody").json()["type"].endswith("/key-not-found"), "both know it")
    # Whoever comes back listens where it listened.
    for dispatcher in cluster.dispatchers:
        dispatcher.arguments = ["--listen", f"127.0.0.1:{dispatcher.port}", "--admin-listen", "127.0.0.1:0"]
    clients = [PlainClient(cluster.dispatchers, number, RATE / CLIENTS) for number in range(CLIENTS)]
    begun = time.monotonic()
    [client.start() for client in clients]

    def served():
        return sum(client.served for client in clients)

    def go_on(seconds):
        goal = served() + RATE * seconds / 2
        wait_until(lambda: served() >= goal, "requests go on")

    go_on(2)
    for node in cluster.nodes.values():
        node.restart()
        go_on(2)
    for dispatcher in cluster.dispatchers:
        dispatcher.stop()
        dispatcher.start()
        go_on(2)
    for client in clients:
        client.ended.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    rate, retried = served() / (time.monotonic() - begun), sum(client.retried for client in clients)
    print(f"{served()} requests at {rate:.0f} a second, {retried} tried twice")
    errors = [error for client in clients for error in client.errors]
    assert not errors, (len(errors), errors[:3])
    rows = {row["pk"]: row["v"] for row in Namespace(second.client(), "rolling").scan_all()}
    for client in clients:
        for at in range((client.served - 1) // 2):
            key = f"{client.number}-{at}"
            assert rows.get(key) == key
    cluster.stop()
