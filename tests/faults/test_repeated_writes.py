"""Writes over connections that are cut at random, and a server that is killed, repeated with their keys until they are
answered: the oracle says that each was applied once, and that each answer is that of its application.

A second or two by default; `UMBO_TESTS_REPEATED=200000` for more requests.
"""

import http.client
import json
import os
import random
import socket
import threading

from harness import Client, Namespace, wait_until

REQUESTS = int(os.environ.get("UMBO_TESTS_REPEATED", "1600"))
WRITERS = 8
COUNTERS = 6
# What a connection raises that is cut, or whose server was killed.
CUT = (OSError, http.client.HTTPException)


class Cutter:
    """A relay of TCP that cuts connections at a random byte, of the request or of the answer."""

    def __init__(self, port_of, seed):
        self.port_of, self.random, self.cuts = port_of, random.Random(seed), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.relay, args=(near,), daemon=True).start()

    def relay(self, near):
        try:
            far = socket.create_connection(("127.0.0.1", self.port_of()), 10)
        except OSError:
            return near.close()
        # Most requests and answers have a few hundred bytes.
        limits = [self.random.randrange(40, 4_000) if self.random.random() < 0.7 else None for _ in range(2)]
        pumps = [
            threading.Thread(target=self.pump, args=(one, other, limit), daemon=True)
            for one, other, limit in ((near, far, limits[0]), (far, near, limits[1]))
        ]
        [pump.start() for pump in pumps]

    def pump(self, source, sink, limit):
        passed = 0
        try:
            while piece := source.recv(65_536):
                if limit is not None and passed + len(piece) >= limit:
                    self.cuts += 1
                    sink.sendall(piece[: limit - passed])
                    break
                sink.sendall(piece)
                passed += len(piece)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Writer(threading.Thread):
    """Sends writes, each with a key, again and again until it is answered; some of them once more after that."""

    def __init__(self, cutter, number, requests):
        super().__init__(daemon=True)
        self.cutter, self.number, self.requests = cutter, number, requests
        self.random = random.Random(1_000 + number)
        self.added = [0] * COUNTERS
        self.created, self.sent, self.replayed, self.done = {}, 0, 0, 0
        self.failure = None

    def run(self):
        try:
            client = self.connect()
            for at in range(self.requests):
                client = self.write(client, at)
                self.done += 1
        except Exception as failure:
            self.failure = failure

    def connect(self):
        return Client(self.cutter.port)

    def write(self, client, at):
        kind = self.random.choice(["inc", "inc", "create", "batch"])
        counter, by = self.random.randrange(COUNTERS), self.random.randrange(-9, 10)
        key = {"Idempotency-Key": f'"{self.number}-{at}"'}
        path = f"/v1/ns/once/kv/counter-{counter}"
        if kind == "inc":
            ask = ("PATCH", path, None, key | {"Umbo-Increment": str(by)})
        elif kind == "create":
            path = f"/v1/ns/once/kv/row-{self.number}/{at}"
            ask = ("PUT", path, str(at), key | {"If-None-Match": "*"})
        else:
            rows = [{"op": "inc", "pk": f"counter-{one}", "by": by} for one in range(COUNTERS)]
            rows.append({"pk": f"row-{self.number}", "sk": str(at), "v": str(at), "if_none_match": "*"})
            body = "\n".join(json.dumps(row) for row in rows)
            ask = ("POST", "/v1/ns/once/batch/write", body, key)
        first, client = self.until_answered(client, ask)
        assert first.status in (200, 201), first
        if self.random.random() < 0.3:
            again, client = self.until_answered(client, ask)
            assert again.headers["umbo-replayed"] == "?1", again
            assert again.status == first.status and tag(again) == tag(first), (first, again)
        if kind == "inc":
            self.added[counter] += by
        else:
            self.created[str(at)] = tag(first)[-1]
            if kind == "batch":
                self.added = [sum + by for sum in self.added]
        return client

    def until_answered(self, client, ask):
        while True:
            self.sent += 1
            try:
                answer = client.request(*ask)
                # The last field of a head; without it the head was cut, which the library does not notice.
                if "date" not in answer.headers:
                    raise ConnectionError("a head without its end")
            except CUT:
                client.close()
                client = self.connect()
                continue
            is_answered = answer.status < 500
            if answer.status == 207:
                is_answered = all(line["status"] < 500 for line in answer.lines()[:-1])
            if is_answered:
                self.replayed += "umbo-replayed" in answer.headers
                return answer, client


def tag(answer):
    """What names the versions and numbers that an answer gives."""
    if "etag" in answer.headers:
        return [answer.body, answer.headers["etag"]]
    rows = answer.lines()[:-1]
    return [[row.get("number") for row in rows], *(f'"{row["version"]}"' for row in rows)]


def test_writes_over_cut_connections_are_applied_once(new_server, tmp_path):
    server = new_server({"store": {"folder": str(tmp_path / "data")}})
    server.data = tmp_path / "data"
    server.start()
    server.namespace("once")
    cutter = Cutter(lambda: server.port, 7)
    writers = [Writer(cutter, number, REQUESTS // WRITERS) for number in range(WRITERS)]
    [writer.start() for writer in writers]

    def done():
        for writer in writers:
            if writer.failure is not None:
                raise writer.failure
        return sum(writer.done for writer in writers)

    for part in (1, 2, 3):
        wait_until(lambda: done() >= REQUESTS * part // 4, "the writers write", 600)
        server.kill()
        server.start()
    wait_until(lambda: done() == WRITERS * (REQUESTS // WRITERS), "the writers end", 600)
    [writer.join(60) for writer in writers]
    cutter.close()
    ns = Namespace(server.client(), "once")
    for counter in range(COUNTERS):
        expected = sum(writer.added[counter] for writer in writers)
        assert ns.get(f"counter-{counter}").body == str(expected).encode(), f"counter {counter}"
    stored = {(row["pk"], row["sk"]): f'"{row["version"]}"' for row in ns.scan_all()}
    for writer in writers:
        rows = {sort: etag for (pk, sort), etag in stored.items() if pk == f"row-{writer.number}"}
        assert rows == writer.created, f"writer {writer.number}"
    sent, replayed = (sum(getattr(writer, name) for writer in writers) for name in ("sent", "replayed"))
    # Enough connections were cut, and some of them after their write was applied.
    assert cutter.cuts > 20 and sent > done() + 20, (cutter.cuts, sent)
    assert replayed > 20, replayed
    server.stop()
