"""Runs the real binary and talks to it, for the tests of this folder.

Owns: servers, a plain HTTP client, raw sockets. Decides nothing about what is right.

A server is one process, `umbo serve`, or, where UMBO_TEST_TOPOLOGY says `cluster`, a dispatcher in
front of three shard nodes, or, where it says `cassandra`, one process that keeps its rows in Cassandra:
tests do not see which.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.parse

import cassandra_node
from clock import Clock
from processes import PROJECT, WAIT_SECONDS, Process, binary, wait_until
from tier import Tier

PROBLEM = "application/problem+json"
NDJSON = "application/x-ndjson"
TOPOLOGY = os.environ.get("UMBO_TEST_TOPOLOGY", "embedded")
assert TOPOLOGY in ("embedded", "cluster", "cassandra"), TOPOLOGY
IS_CLUSTER = TOPOLOGY == "cluster"
IS_CASSANDRA = TOPOLOGY == "cassandra"
# Its reads wait for other processes.
IS_REMOTE = IS_CLUSTER or IS_CASSANDRA


@contextlib.contextmanager
def memory_folder():
    """A folder in memory where there is one, so that tests do not wait for a slow disk."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="umbo-test-", dir=parent)
    try:
        yield pathlib.Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def quote(key):
    """Percent-encodes every byte of a key that is not unreserved."""
    return urllib.parse.quote(key, safe="")


def b64u(key):
    key = key.encode() if isinstance(key, str) else key
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode()


def unb64u(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def row_bytes(row, name):
    """One of `pk`, `sk`, `v` of a JSON row, as bytes."""
    return row[name].encode() if name in row else unb64u(row[name + "64"])


class Answer:
    """An HTTP answer."""

    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.header_list = [(name.lower(), value) for name, value in headers]
        self.headers = dict(self.header_list)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:400]!r}"

    def json(self):
        return json.loads(self.body)

    def lines(self):
        assert self.headers["content-type"] == NDJSON, self
        assert self.body.endswith(b"\n"), self
        return [json.loads(line) for line in self.body.splitlines()]

    def batch(self):
        """Lines of a batch; its end says what was charged, as the header does."""
        lines = self.lines()
        assert lines[-1]["end"].pop("ru") == float(self.headers["umbo-ru"]), self
        return lines

    def rows_and_end(self):
        """Rows of a page and its end; the end line is there once, and last. It says what the page
        was charged, and the header what it was when the head left."""
        lines = self.lines() if self.headers["content-type"] == NDJSON else self.json()
        assert all("end" not in line and "error" not in line for line in lines[:-1]), self
        end = lines[-1]["end"]
        assert end["ru"] >= 1 and float(self.headers["umbo-ru"]) > 0, self
        return lines[:-1], end

    def problem(self, status, code):
        """Checks that this is the given problem, complete, and returns it."""
        assert self.status == status, self
        assert self.headers["content-type"] == PROBLEM, self
        problem = self.json()
        assert problem["type"] == f"/v1/errors/{code}", self
        assert problem["status"] == status and problem["title"] and problem["detail"], self
        assert isinstance(problem["retry"]["safe"], bool), self
        assert problem["request_id"] == self.headers["umbo-request-id"] != "", self
        return problem


class Client:
    """A keep-alive connection. Paths go out as they are."""

    def __init__(self, port, token=None, context=None, host="127.0.0.1"):
        self.token, self.host, self.port, self.context = token, host, port, context
        self.connection = None

    def request(self, method, path, body=None, headers=None, **more):
        headers = dict(headers or {})
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if isinstance(body, str):
            body = body.encode()
        if self.connection is None:
            make = http.client.HTTPConnection
            kind = {}
            if self.context:
                make, kind = http.client.HTTPSConnection, {"context": self.context}
            self.connection = make(self.host, self.port, timeout=WAIT_SECONDS, **kind)
        sock = self.connection.sock
        # A server closes what has been idle for long; so do all clients look before they use it again.
        if sock and select.select([sock], [], [], 0)[0]:
            self.connection.close()
        try:
            self.connection.request(method, path, body=body, headers=headers)
            answer = self.connection.getresponse()
            content = answer.read()
        except BaseException:
            self.close()
            raise
        if answer.will_close:
            self.close()
        return Answer(answer.status, answer.getheaders(), content)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def get(self, path, **headers):
        return self.request("GET", path, **headers)

    def put(self, path, body=b"", **headers):
        return self.request("PUT", path, body, **headers)

    def delete(self, path, **headers):
        return self.request("DELETE", path, **headers)

    def post(self, path, body=b"", **headers):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        return self.request("POST", path, body, **headers)


def pages(fetch, first, cursor_in):
    """Follows cursors from page to page; yields the rows. `fetch(query)` answers a page."""
    cursor = None
    while True:
        rows, end = fetch(first if cursor is None else first | {cursor_in: cursor}).rows_and_end()
        yield from rows
        assert end["rows"] == len(rows) and end["more"] == ("cursor" in end)
        assert end["more"] == (end["why"] != "done")
        if not end["more"]:
            return
        cursor = end["cursor"]


class Namespace:
    """A namespace through one client."""

    def __init__(self, client, name):
        self.client, self.name, self.base = client, name, f"/v1/ns/{name}"

    def path(self, partition, sort=None):
        tail = "" if sort is None else "/" + quote(sort)
        return f"{self.base}/kv/{quote(partition)}{tail}"

    def put(self, partition, sort=None, value=b"", **headers):
        return self.client.put(self.path(partition, sort), value, **headers)

    def get(self, partition, sort=None, **headers):
        return self.client.get(self.path(partition, sort), **headers)

    def delete(self, partition, sort=None, **headers):
        return self.client.delete(self.path(partition, sort), **headers)

    def range(self, partition, headers=None, **query):
        query = urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="")
        path = f"{self.base}/range/{quote(partition)}" + ("?" + query if query else "")
        return self.client.request("GET", path, headers=headers)

    def range_all(self, partition, **query):
        """Rows of all pages."""
        return list(pages(lambda query: self.range(partition, **query), query, "cursor"))

    def scan(self, headers=None, **body):
        return self.client.request("POST", f"{self.base}/scan", json.dumps(body), headers)

    def scan_all(self, **body):
        return list(pages(lambda body: self.scan(**body), body, "cursor"))

    def write(self, rows, query="", headers=None):
        """Batch write of lines: dictionaries, or text as it stands."""
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        body = "\n".join(lines).encode()
        return self.client.request("POST", f"{self.base}/batch/write{query}", body, headers)

    def multi_get(self, keys, headers=None):
        body = json.dumps({"keys": keys})
        return self.client.request("POST", f"{self.base}/batch/get", body, headers)


class Server(Process):
    """What serves HTTP on free loopback ports: a process of `umbo serve`, or a dispatcher.

    Where it is a dispatcher, it has its own storage tier, started and ended with it, unless it is
    given one that others have too. It lives by `clock`, with all of its tier.
    """

    # Where it is reached, for a server on another host.
    host = "127.0.0.1"

    def __init__(self, folder, settings=None, arguments=(), environment=None, tier=None, clock=None):
        super().__init__(folder)
        self.clock = clock or (tier.clock if tier else Clock())
        self.data = self.folder / "data"
        self.settings = {"server": {"drain_delay": "0s"}} | (settings or {})
        self.arguments, self.environment = list(arguments), environment or {}
        self.port, self.admin_port = None, None
        self.tier = tier or (Tier(self.folder / "tier", settings, clock=self.clock) if IS_CLUSTER else None)
        self.owns_tier = IS_CLUSTER and tier is None

    def launch(self):
        """Starts the process without waiting for it."""
        settings = self.settings
        if self.owns_tier:
            self.tier.start()
        if self.tier:
            of_cluster = {"map": str(self.tier.map_file)} | settings.get("cluster", {})
            # How many shards there are is in the map.
            of_store = {name: value for name, value in settings.get("store", {}).items() if name != "shards"}
            settings = settings | {"cluster": of_cluster, "store": of_store}
            command = ["dispatcher"]
        elif IS_CASSANDRA:
            of_store = {"engine": "cassandra"}
            of_node = settings.get("cassandra") or cassandra_node.settings(self.folder)
            settings = settings | {"store": of_store, "cassandra": of_node}
            command = ["serve"]
        else:
            command = ["serve", "--data", str(self.data)]
        if "--listen" not in self.arguments and "listen" not in self.settings["server"]:
            command += ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        self.port, self.admin_port = None, None
        self.spawn(command + self.arguments, settings, self.environment)
        return self

    def start(self):
        """Starts the process and waits until it serves."""
        self.launch()
        return self.wait_until_it_serves()

    def wait_until_it_serves(self):
        def serves():
            assert self.process.poll() is None, f"the server ended: {self.log_text()}"
            return next((line for line in list(self.log) if '"umbo serves"' in line), None)

        fields = json.loads(wait_until(serves, "the server serves"))
        self.port = int(fields["data"].rsplit(":", 1)[1])
        self.admin_port = int(fields["admin"].rsplit(":", 1)[1])
        return self

    def stand_still(self):
        """Stops the clock while all nodes of the tier are reached: none is connected again while time stands still."""
        if self.tier:
            with contextlib.closing(self.client()) as client:
                nodes = lambda: client.get("/admin/v1/cluster").json()["nodes"]
                wait_until(lambda: all(node["reachable"] for node in nodes()), "all nodes are reached")
        self.clock.stop()

    def stop(self):
        """SIGTERM and a good end. Connections without a request are closed after a second, which passes in steps."""
        self.process.send_signal(signal.SIGTERM)
        for _ in range(4):
            self.clock.advance(0.25)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
                break
        self.wait_for_good_end()
        if self.owns_tier:
            self.tier.stop()

    def kill(self):
        super().kill()
        if self.owns_tier:
            self.tier.kill()

    def discard(self):
        super().discard()
        if self.owns_tier:
            self.tier.discard()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.discard()

    def client(self, **more):
        return Client(self.port, host=self.host, **more)

    def admin(self, **more):
        return Client(self.admin_port, host=self.host, **more)

    def namespace(self, name="demo", body=b"", **more):
        """Makes sure that a namespace is there."""
        client = self.client(**more)
        answer = client.put(f"/admin/v1/namespaces/{name}", body)
        assert answer.status in (200, 201), answer
        return Namespace(client, name)

    def metric(self, name):
        """Sum of all series of a metric."""
        text = self.admin().get("/metrics").body.decode()
        pattern = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$"
        return sum(float(value) for value in re.findall(pattern, text, re.M))

    def in_flight(self):
        """Requests in flight, without the one that asks."""
        text = self.admin().get("/metrics").body.decode()
        found = re.findall(r'^umbo_requests_in_flight\{operation="([^"]+)"\} (\d+)$', text, re.M)
        assert found, text
        return sum(int(number) for operation, number in found if operation != "service")

    def raw(self, head, timeout=WAIT_SECONDS):
        """Opens a socket, sends bytes, and leaves the rest to the caller."""
        sock = socket.create_connection((self.host, self.port), timeout)
        sock.sendall(head)
        return sock


class Cluster:
    """Dispatchers in front of one storage tier."""

    def __init__(self, folder, dispatchers=1, settings=None, tier=None, **of_tier):
        folder = pathlib.Path(folder)
        self.tier = tier or Tier(folder / "tier", settings, **of_tier)
        names = [f"dispatcher-{number}" for number in range(dispatchers)]
        self.dispatchers = [Server(folder / name, settings, tier=self.tier) for name in names]
        self.nodes = self.tier.nodes

    def start(self):
        self.tier.start()
        for dispatcher in self.dispatchers:
            dispatcher.launch()
        for dispatcher in self.dispatchers:
            dispatcher.wait_until_it_serves()
        return self

    def stop(self):
        for dispatcher in self.dispatchers:
            dispatcher.stop()
        self.tier.stop()

    def discard(self):
        for dispatcher in self.dispatchers:
            dispatcher.discard()
        self.tier.discard()

    def node_of(self, ns, partition):
        """Name of the node that has a partition."""
        question = {"operation": "get", "pk": partition}
        answer = ns.client.post(f"{ns.base}/explain", question)
        assert answer.status == 200, answer
        (where,) = answer.json()["shards"]
        return self.tier.owner(where["shard"])

    def partitions(self, ns, count, prefix="p"):
        """So many partitions of each node, by node."""
        found = {name: [] for name in self.nodes}
        number = 0
        while any(len(partitions) < count for partitions in found.values()):
            partition = f"{prefix}-{number}"
            found[self.node_of(ns, partition)].append(partition)
            number += 1
            assert number < 100 * count * len(found), found
        return {name: partitions[:count] for name, partitions in found.items()}


def receive(sock):
    """Everything until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := sock.recv(1 << 16):
            data += chunk
    return data


def read_answer(reader, is_head=False):
    """Reads one HTTP/1.1 answer of known length from a buffered socket; none at its end."""
    status_line = reader.readline()
    if not status_line:
        return None
    headers = []
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, value = line.decode("latin-1").rstrip("\r\n").split(":", 1)
        headers.append((name, value.strip()))
    length = int(dict((n.lower(), v) for n, v in headers).get("content-length", 0))
    body = b"" if is_head else reader.read(length)
    return Answer(int(status_line.split()[1]), headers, body)


def curl(*arguments, data=None):
    """Runs curl; returns the answer (the last one, where there are several heads)."""
    result = subprocess.run(
        ["curl", "-sS", "-i", "--path-as-is", "--max-time", str(WAIT_SECONDS), *arguments],
        input=data,
        capture_output=True,
    )
    assert result.returncode == 0, (result.returncode, result.stderr, result.stdout[:400])
    rest, status, headers = result.stdout, 0, []
    while rest.startswith(b"HTTP/"):
        head, _, rest = rest.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        status = int(first.split()[1])
        headers = [tuple(field.split(": ", 1)) for field in fields if ": " in field]
    answer = Answer(status, headers, rest)
    answer.sent = result.stderr
    return answer


def client_context(authority, certificate=None, key=None):
    """TLS settings of a client that trusts one authority."""
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = True
    if certificate:
        context.load_cert_chain(certificate, key)
    return context
