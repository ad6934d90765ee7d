"""A steady load: clients of each node that ask again as soon as they are answered, and what each was answered.

Every node has clients of its own, so that one that fails holds up nobody else's.
"""

import itertools
import threading

from harness import Namespace

CLIENTS = 6
GOOD = (200, 201, 204)


class Reply:
    """An answer, and the phase in which it was asked for."""

    def __init__(self, phase, status, code):
        self.phase, self.status, self.code = phase, status, code

    def is_good(self):
        return self.status in GOOD


class Steady:
    """Three reads to one write, of rows that no cache answers for. `timeout_ms` is by node."""

    def __init__(self, client, ns_name, partitions, timeout_ms):
        self.make_client, self.ns_name, self.partitions = client, ns_name, partitions
        self.timeout_ms = timeout_ms
        self.numbers = {name: itertools.count() for name in partitions}
        self.replies = {name: [] for name in partitions}
        # Set by the test.
        self.phase = None
        self.failures, self.ended = [], threading.Event()
        self.threads = [
            threading.Thread(target=self.ask, args=(name,), daemon=True) for name in partitions for _ in range(CLIENTS)
        ]

    def __enter__(self):
        ns = Namespace(self.make_client(), self.ns_name)
        for own in self.partitions.values():
            for partition in own:
                assert ns.put(partition, "read", value=b"x" * 200).status == 201
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_):
        self.ended.set()
        [thread.join(60) for thread in self.threads]
        assert not any(thread.is_alive() for thread in self.threads), "a request has no end"
        assert not self.failures, self.failures[:1]

    def ask(self, name):
        headers = {"Umbo-Timeout-Ms": str(self.timeout_ms[name]), "Cache-Control": "no-cache"}
        try:
            ns = Namespace(self.make_client(), self.ns_name)
            while not self.ended.is_set():
                number, phase = next(self.numbers[name]), self.phase
                partition = self.partitions[name][number % len(self.partitions[name])]
                if number % 4 == 3:
                    answer = ns.put(partition, f"write-{number % 997}", value=b"y" * 200, **headers)
                else:
                    answer = ns.get(partition, "read", **headers)
                code = None if answer.status in GOOD else answer.json()["type"].rpartition("/")[2]
                self.replies[name].append(Reply(phase, answer.status, code))
        except Exception as failure:  # shown by the test
            self.failures.append(failure)

    def of(self, name, phase):
        """Replies to what was asked in a phase."""
        return [reply for reply in list(self.replies[name]) if reply.phase == phase]
