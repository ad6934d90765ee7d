"""A steady load that waits for nobody: so many requests a second to partitions of each node, and what
each was answered.

Every node has clients of its own, so that one that fails holds up nobody else's.
"""

import queue
import threading
import time

from harness import Namespace

# Enough for every request of a node to wait for its whole deadline.
CLIENTS = 40
GOOD = (200, 201, 204)


class Reply:
    """One request and its answer; `due` is when it was to be sent."""

    def __init__(self, due, took, status, code):
        self.due, self.took, self.status, self.code = due, took, status, code

    def is_good(self):
        return self.status in GOOD


class Steady:
    """Three reads to one write, of rows that no cache answers for."""

    def __init__(self, client, ns_name, partitions, rate, timeout_ms):
        self.make_client, self.ns_name, self.partitions, self.rate = client, ns_name, partitions, rate
        self.headers = {"Umbo-Timeout-Ms": str(timeout_ms), "Cache-Control": "no-cache"}
        self.queues = {name: queue.Queue() for name in partitions}
        self.replies = {name: [] for name in partitions}
        self.failures, self.ended = [], threading.Event()
        self.threads = [threading.Thread(target=self.pace, daemon=True)]
        for name in partitions:
            self.threads += [threading.Thread(target=self.serve, args=(name,), daemon=True) for _ in range(CLIENTS)]

    def __enter__(self):
        ns = Namespace(self.make_client(), self.ns_name)
        for own in self.partitions.values():
            for partition in own:
                assert ns.put(partition, "read", value=b"x" * 200).status == 201
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_):
        self.ended.set()
        for name in self.queues:
            [self.queues[name].put(None) for _ in range(CLIENTS)]
        [thread.join(60) for thread in self.threads]
        assert not self.failures, self.failures[:1]

    def pace(self):
        names, begun, number = list(self.partitions), time.monotonic(), 0
        while not self.ended.is_set():
            due = begun + number / self.rate
            time.sleep(max(0, due - time.monotonic()))
            self.queues[names[number % len(names)]].put((due, number // len(names)))
            number += 1

    def serve(self, name):
        try:
            ns = Namespace(self.make_client(), self.ns_name)
            while (job := self.queues[name].get()) is not None:
                due, number = job
                partition = self.partitions[name][number % len(self.partitions[name])]
                begun = time.monotonic()
                if number % 4 == 3:
                    answer = ns.put(partition, f"write-{number % 997}", value=b"y" * 200, **self.headers)
                else:
                    answer = ns.get(partition, "read", **self.headers)
                took = time.monotonic() - begun
                code = None if answer.status in GOOD else answer.json()["type"].rpartition("/")[2]
                self.replies[name].append(Reply(due, took, answer.status, code))
        except Exception as failure:  # shown by the test
            self.failures.append(failure)

    def between(self, name, begin, end):
        """Replies to what was due in that time."""
        return [reply for reply in list(self.replies[name]) if begin <= reply.due < end]
