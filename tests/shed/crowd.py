"""Many clients at once on one shard that is slower than they are."""

import collections
import threading
import time

# Two permits and little patience, so that a few dozen writers are an overload.
TIGHT = {"overload": {"in_flight_max": 2, "queue_target": "1ms", "queue_interval": "20ms"}}


# A tenth of its time is what a request may wait: with more, a few dozen writers meet their deadlines.
TIMEOUT_MS = "100"


class Crowd:
    """Writers of one partition, each with its own tier; what each of them was answered."""

    def __init__(self, server, tiers, seconds, partition="p", **headers):
        self.answers = collections.defaultdict(list)
        self.until = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.server, self.partition = server, partition
        self.headers = {"Umbo_Timeout_Ms": TIMEOUT_MS} | headers
        self.threads = [threading.Thread(target=self.run, args=(at, tier)) for at, tier in enumerate(tiers)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join()

    def run(self, at, tier):
        client = self.server.client()
        own = []
        while time.monotonic() < self.until:
            begun = time.monotonic()
            path = f"/v1/ns/demo/kv/{self.partition}/w{at}"
            answer = client.put(path, b"x" * 100, Umbo_Criticality=tier, **self.headers)
            own.append((answer, time.monotonic() - begun))
        with self.lock:
            self.answers[tier] += own

    def of(self, tier, status):
        return [answer for answer, _ in self.answers[tier] if answer.status == status]
