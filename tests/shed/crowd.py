"""More writes at once than a shard takes, by construction: its commits are held, and its time is the test's.

A write that has no permit waits for as long as the test advances the clock, and no longer; what is served, shed or
late is therefore the same on any machine.
"""

from harness import IS_CASSANDRA, IS_CLUSTER, read_answer, wait_until

# Two permits, so that the third write waits.
PERMITS = 2
TIGHT = {"overload": {"in_flight_max": PERMITS, "queue_target": "1ms", "queue_interval": "20ms"}}
# A tenth of its time is what a request may wait; twice as long in an overloaded queue.
TIMEOUT_MS = 10_000
PATIENCE_SECONDS = 2 * TIMEOUT_MS / 1_000 / 10
# Of a write that is to wait for whatever comes before it.
LONG_TIMEOUT_MS = 60_000
# How far the clock moves before the server is asked again: a small part of the time of a write, so that its turn to be
# shed comes long before its deadline also where the server is slow to look.
STEP_SECONDS = 0.1


class Write:
    """A write that is under way, on a connection of its own."""

    def __init__(self, server, tier, path, body=b"x" * 100, method="PUT", timeout_ms=TIMEOUT_MS):
        self.tier, self.path = tier, path
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
            f"Umbo-Criticality: {tier}\r\nUmbo-Timeout-Ms: {timeout_ms}\r\n\r\n"
        )
        self.sock = server.raw(head.encode() + body)

    def answer(self):
        with self.sock, self.sock.makefile("rb") as reader:
            return read_answer(reader)


class Shard:
    """Where the rows of a crowd are, and how its queue stands."""

    def __init__(self, server, ns, commits, partition="p"):
        self.server, self.ns, self.commits, self.partition = server, ns, commits, partition
        self.number = self.of(partition)
        self.client = server.client()

    def of(self, partition):
        """Number of the shard of a partition."""
        answer = self.ns.client.post(f"{self.ns.base}/explain", {"operation": "get", "pk": partition})
        (where,) = answer.json()["shards"]
        return where["shard"]

    def file(self):
        """The file of the shard, with the process that serves it or with its node. On Cassandra there is none: all
        shards share the commit log."""
        if IS_CASSANDRA:
            return None
        tier = self.server.tier
        folder = tier.nodes[tier.owner(self.number)].data if IS_CLUSTER else self.server.data
        (path,) = folder.rglob(f"shard-{self.number:03}.redb")
        return path

    def hold(self):
        """From here on no write of the shard ends, and time stands still."""
        self.commits.hold(self.file())
        self.server.clock.stop()

    def write(self, name, tier="sheddable", **more):
        """Begins a write of a row."""
        return Write(self.server, tier, f"{self.ns.base}/kv/{self.partition}/{name}", **more)

    def crowd(self, count, tier="sheddable", prefix="w", **more):
        """So many writes at once; returns when each of them has a permit or waits for one."""
        before = self.arrived()
        writes = [self.write(f"{prefix}{number}", tier, **more) for number in range(count)]
        wait_until(lambda: self.arrived() == before + count, "all of them have come")
        return writes

    def occupy(self, tier="critical", **more):
        """Takes all permits."""
        more = {"timeout_ms": LONG_TIMEOUT_MS} | more
        writes = self.crowd(PERMITS, tier, "permit-", **more)
        assert self.status()["queue"]["in_flight"] == PERMITS
        return writes

    def look(self, number):
        """One more write, which waits above all others; when it has come, the queue has looked at all of them."""
        write = self.write(f"look-{number}", "critical-plus", timeout_ms=LONG_TIMEOUT_MS)
        wait_until(lambda: self.tier("critical-plus")["waiting"] == number + 1, "it has come")
        return write

    def status(self):
        shards = self.client.get("/admin/v1/shed").json()["shards"]
        return next(one for one in shards if one["shard"] == self.number)

    def tier(self, name):
        return next(one for one in self.status()["tiers"] if one["tier"] == name)

    def arrived(self):
        """How many hold a permit or wait."""
        queue = self.status()["queue"]
        return queue["in_flight"] + queue["waiting"]

    def shed(self):
        """How many were shed, by tier."""
        return {one["tier"]: sum(one["shed"].values()) for one in self.status()["tiers"] if one["shed"]}

    def advance(self, seconds):
        """Lets time pass in steps, so that the queue is looked after meanwhile."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self.server.clock.advance(STEP_SECONDS)
            self.status()

    def advance_until(self, is_so, what):
        """Lets time pass, step by step, until it is so."""

        def stepped():
            self.server.clock.advance(STEP_SECONDS)
            return is_so()

        return wait_until(stepped, what)
