"""kill -9 in the middle of writes: what was acknowledged is there, with its version, and nothing is torn.

Three rounds by default; `UMBO_TESTS_ROUNDS=20` for more.
"""

import http.client
import os
import threading

from harness import Namespace, wait_until

ROUNDS = int(os.environ.get("UMBO_TESTS_ROUNDS", "3"))
WRITERS = 64
BATCH_ROWS = 5
# What a connection raises whose other side was killed.
CUT = (OSError, http.client.HTTPException)
# Answers of a server that is overloaded: to all of a request, or to a part of a batch.
REFUSALS = (207, 429, 503)


class Writer(threading.Thread):
    """Writes until the server dies. Even ones put rows, odd ones write atomic batches.

    What ended it other than a cut connection, a wrong answer above all, is its `failure`.
    """

    def __init__(self, port_of, number, life):
        super().__init__(daemon=True)
        self.port_of, self.number, self.life = port_of, number, life
        self.rows, self.batches, self.tries, self.counter = {}, {}, 0, None
        self.failure = None

    def run(self):
        try:
            self.write_on()
        except CUT:
            pass
        except Exception as failure:
            self.failure = failure

    def write_on(self):
        ns = Namespace(self.port_of(), "kill")
        while True:
            self.tries += 1
            name = f"{self.life}-{self.number}-{self.tries}"
            if self.number % 2:
                self.batch(ns, name)
            else:
                self.put(ns, name)

    def raise_failure(self):
        if self.failure is not None:
            raise self.failure

    def accepted(self, write):
        """The answer to a write. A server on a slow machine refuses some for now, also parts of a batch."""
        return wait_until(lambda: (answer := write()).status not in REFUSALS and answer, "the server accepts a write")

    def put(self, ns, name):
        answer = self.accepted(lambda: ns.put("row-" + name, value=name.encode()))
        assert answer.status == 201, answer
        self.rows["row-" + name] = (name.encode(), answer.headers["etag"])
        answer = self.accepted(lambda: ns.put(f"counter-{self.number}", value=str(self.tries).encode()))
        assert answer.status in (201, 204), answer
        self.counter = (self.life, self.tries, int(answer.headers["etag"].strip('"')))

    def batch(self, ns, name):
        rows = [
            {"pk": f"batch-{self.number}", "sk": f"{name}/{at}", "v": name}
            for at in range(BATCH_ROWS)
        ]
        rows.append({"pk": f"last-{self.number}", "v": name})
        answer = self.accepted(lambda: ns.write(rows, "?atomic=partition"))
        assert answer.status == 200, answer
        self.batches[name] = [line["version"] for line in answer.lines()[:BATCH_ROWS]]


def acknowledged(writers):
    """How many writes were; all writers must still be writing."""
    for writer in writers:
        writer.raise_failure()
        assert writer.is_alive(), "a connection was cut by a server that lives"
    return sum(len(writer.rows) + len(writer.batches) for writer in writers)


def check(ns, writers):
    """Holds what is there against everything that was ever acknowledged."""
    stored = {(row["pk"], row["sk"]): row for row in ns.scan_all()}
    for writer in writers:
        for key, (value, etag) in writer.rows.items():
            row = stored.get((key, ""))
            assert row is not None, f"lost: {key}"
            assert row["v"].encode() == value and f'"{row["version"]}"' == etag, (row, etag)
        for name, versions in writer.batches.items():
            rows = [stored.get((f"batch-{writer.number}", f"{name}/{at}")) for at in range(BATCH_ROWS)]
            assert None not in rows, f"lost rows of {name}"
            assert [row["version"] for row in rows] == versions
    torn = {}
    for (partition, sort), row in stored.items():
        if partition.startswith("batch-"):
            assert sort.rpartition("/")[0] == row["v"]
            torn[partition, row["v"]] = torn.get((partition, row["v"]), 0) + 1
    assert set(torn.values()) <= {BATCH_ROWS}, "a batch was torn"
    for number in {writer.number for writer in writers if writer.counter}:
        latest = max(writer.counter for writer in writers if writer.number == number and writer.counter)
        assert stored[f"counter-{number}", ""]["version"] >= latest[2]
    return len(stored)


def test_nothing_acknowledged_is_lost(new_server, tmp_path):
    server = new_server({"store": {"folder": str(tmp_path / "data")}})
    server.data = tmp_path / "data"
    server.start()
    server.namespace("kill")
    everybody = []
    for life in range(ROUNDS):
        writers = [Writer(server.client, number, life) for number in range(WRITERS)]
        everybody += writers
        [writer.start() for writer in writers]
        goal = 300 + 97 * life
        done = wait_until(
            lambda: (count := acknowledged(writers)) >= goal and count, "the writers write", 120
        )
        server.kill()
        [writer.join(60) for writer in writers]
        assert not any(writer.is_alive() for writer in writers)
        [writer.raise_failure() for writer in writers]
        server.start()
        ns = Namespace(server.client(), "kill")
        some = next(key for writer in writers for key in writer.rows)
        assert ns.get(some).status == 200
        stored = check(ns, everybody)
        print(f"round {life}: {done} writes acknowledged and more, {stored} rows")


def test_kill_during_the_very_first_start(new_server):
    """A folder that was being made when the process died can be opened."""
    for delay_writes in range(4):
        server = new_server(name=f"early-{delay_writes}").launch()
        wait_until(
            lambda: len(list(server.data.glob("**/*"))) > delay_writes or not server.is_running(),
            "the folder is being made",
        )
        server.kill()
        server.start()
        assert server.namespace().put("a").status == 201
        server.stop()
