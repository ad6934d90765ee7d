"""Everything is restarted, one process after the other, and a plain client with one retry sees no error.

`UMBO_TESTS_REQUESTS=2000` for more of them between two restarts (with a release binary).
"""

import http.client
import itertools
import os
import threading

from bulk import step_until
from deadline import standing_still
from harness import Namespace, wait_until

REQUESTS = int(os.environ.get("UMBO_TESTS_REQUESTS", "200"))
CLIENTS = 12
CUT = (OSError, http.client.HTTPException)


class PlainClient(threading.Thread):
    """Puts and gets. What fails it tries once more, through the next dispatcher, after as long as it was told to
    wait."""

    def __init__(self, dispatchers, number):
        super().__init__(daemon=True)
        first = number % len(dispatchers)
        self.ports = itertools.cycle(dispatchers[first:] + dispatchers[:first])
        self.number = number
        self.served = self.retried = 0
        self.errors, self.ended = [], threading.Event()
        self.ns = None

    def connect(self):
        if self.ns is not None:
            self.ns.client.close()
        self.ns = Namespace(next(self.ports).client(), "rolling")

    def run(self):
        self.connect()
        while not self.ended.is_set():
            self.turn(self.served)
            self.served += 1

    def turn(self, at):
        failure, wait = self.ask(at)
        if failure is None:
            return
        self.retried += 1
        self.connect()
        self.ended.wait(wait)
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


def restart(node, clock):
    """Restarts a node. It is expected back for some seconds, which hardly pass while it starts, however slowly."""
    node.stop()
    with standing_still(clock):
        node.launch()
        step_until(clock, lambda: node.readiness() == 200, "the node serves", step=0.005)


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
    clients = [PlainClient(cluster.dispatchers, number) for number in range(CLIENTS)]
    [client.start() for client in clients]

    def served():
        return sum(client.served for client in clients)

    def go_on():
        # Of each of them: one that was told to wait before its second try does that before the next process stops.
        goals = [client.served + REQUESTS // CLIENTS for client in clients]
        wait_until(
            lambda: all(client.served >= goal for client, goal in zip(clients, goals)), "requests go on"
        )

    go_on()
    for node in cluster.nodes.values():
        restart(node, first.clock)
        go_on()
    for dispatcher in cluster.dispatchers:
        dispatcher.stop()
        dispatcher.start()
        go_on()
    for client in clients:
        client.ended.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
    print(f"{served()} requests, {sum(client.retried for client in clients)} tried twice")
    errors = [error for client in clients for error in client.errors]
    assert not errors, [[getattr(answer, "body", answer) for answer in pair] for pair in errors]
    rows = {row["pk"]: row["v"] for row in Namespace(second.client(), "rolling").scan_all()}
    for client in clients:
        for at in range((client.served - 1) // 2):
            key = f"{client.number}-{at}"
            assert rows.get(key) == key
    cluster.stop()
