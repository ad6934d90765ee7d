"""Writers that never stop, and what each of their writes was answered.

Every row is written once, under a key of its own, so that afterwards each is either there or not. What
an answer said of it is held against that: acknowledged is there, `not-applied` is not, `unknown` may be.
"""

import http.client
import threading

from harness import Namespace

BATCH_ROWS = 3
ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "not-applied", "unknown"
# What a connection raises whose other side was killed.
CUT = (OSError, http.client.HTTPException)
# For those who must not notice anything, on whatever machine.
PATIENT_MS = 20_000
# So that writers without success leave the processor to others.
PAUSE_SECONDS = 0.02


class Writer(threading.Thread):
    """Writes to one partition: rows by themselves, or atomic batches."""

    def __init__(self, client, ns_name, partition, name, is_batch=False, timeout_ms=2_000):
        super().__init__(daemon=True)
        self.make_client, self.ns_name, self.partition, self.name = client, ns_name, partition, name
        self.is_batch, self.headers = is_batch, {"Umbo-Timeout-Ms": str(timeout_ms)}
        self.ended = threading.Event()
        # By name of the write: what became of it, and its versions.
        self.writes = {}
        self.problems = []
        self.cuts, self.failure = 0, None

    def run(self):
        ns, number = Namespace(self.make_client(), self.ns_name), 0
        try:
            while not self.ended.is_set():
                number += 1
                self.write(ns, f"{self.name}-{number}")
        except Exception as failure:  # shown by the test
            self.failure = failure
        finally:
            ns.client.close()

    def write(self, ns, name):
        try:
            self.writes[name] = (self.batch if self.is_batch else self.put)(ns, name)
        except CUT:
            # Whoever cut the connection has said nothing.
            self.cuts += 1
            self.writes[name] = UNKNOWN, []
            # Whoever comes next may listen elsewhere.
            ns.client.close()
            ns.client = self.make_client()
        if self.writes[name][0] != ACKNOWLEDGED:
            self.ended.wait(PAUSE_SECONDS)

    def put(self, ns, name):
        answer = ns.put(self.partition, name, value=name.encode(), **self.headers)
        if answer.status == 201:
            return ACKNOWLEDGED, [int(answer.headers["etag"].strip('"'))]
        return self.refused(answer.problem(answer.status, answer.json()["type"].rpartition("/")[2])), []

    def batch(self, ns, name):
        rows = [{"pk": self.partition, "sk": f"{name}/{at}", "v": name} for at in range(BATCH_ROWS)]
        answer = ns.write(rows, "?atomic=partition", headers=self.headers)
        if answer.status == 200:
            return ACKNOWLEDGED, [line["version"] for line in answer.lines()[:-1]]
        if answer.status != 207:
            return self.refused(answer.json()), []
        outcomes = {self.refused(line["error"] | {"status": line["status"]}) for line in answer.lines()[:-1]}
        assert len(outcomes) == 1, f"one fate for an atomic batch: {answer}"
        return outcomes.pop(), []

    def refused(self, problem):
        """What an answer without success says of its write."""
        self.problems.append(problem)
        code = problem["type"].rpartition("/")[2]
        expected = {"shard-unavailable", "deadline-before-store", "deadline-in-store", "overloaded"}
        assert problem["status"] in (503, 504), problem
        assert code in expected or "deadline" in code, problem
        assert problem["outcome"] in (REFUSED, UNKNOWN), problem
        return problem["outcome"]

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive(), "a request has no end"
        if self.failure is not None:
            raise self.failure

    def acknowledged(self):
        if self.failure is not None:
            raise self.failure
        return sum(outcome == ACKNOWLEDGED for outcome, _ in list(self.writes.values()))


def total(writers):
    """Writes of some writers that were acknowledged."""
    return sum(writer.acknowledged() for writer in writers)


def stored_rows(ns):
    """Everything that is there, by partition and sort key."""
    return {(row["pk"], row["sk"]): row for row in ns.scan_all()}


def check(ns, writers):
    """Holds what is there against everything that was ever answered; returns counts by outcome."""
    stored, counts = stored_rows(ns), dict.fromkeys((ACKNOWLEDGED, REFUSED, UNKNOWN), 0)
    for writer in writers:
        for name, (outcome, versions) in list(writer.writes.items()):
            counts[outcome] += 1
            keys = [f"{name}/{at}" for at in range(BATCH_ROWS)] if writer.is_batch else [name]
            rows = [stored.get((writer.partition, key)) for key in keys]
            if outcome == ACKNOWLEDGED:
                assert None not in rows, f"lost: {name}"
                assert [row["version"] for row in rows] == versions, name
            elif outcome == REFUSED:
                assert rows == [None] * len(keys), f"said not to be applied, and is there: {name}"
            else:
                assert rows.count(None) in (0, len(keys)), f"torn: {name}"
    return counts
