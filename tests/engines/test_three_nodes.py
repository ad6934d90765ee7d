"""Servers that keep their rows in three nodes of Cassandra, while a node is killed and comes back, under writes."""

import itertools
import os
import threading

import pytest

import cassandra_node
from bulk_loads import Load, activate, lines, rollback, versions
from harness import Namespace, Server, wait_until

pytestmark = [pytest.mark.real("cassandra"), pytest.mark.embedded("the engine takes the place of the nodes")]

# Rows of the load; a million of them take a while.
ROWS = int(os.environ.get("UMBO_TEST_LOAD_ROWS", 6_000))
PART = 2_000 + ROWS // 100
# Writes that meet a lost node may fail.
FAILED_MAX = 5
# Beside a load of a million rows, which shares the machine with three nodes, some are shed, too.
REFUSED_MAX = max(FAILED_MAX, ROWS // 5_000)


@pytest.fixture(scope="module")
def cluster():
    with cassandra_node.Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def servers(folder, cluster):
    settings = {"store": {"engine": "cassandra", "shards": 4}, "cassandra": cluster.settings()}
    made = [Server(folder / str(number), settings) for number in range(2)]
    try:
        yield [server.start() for server in made]
    finally:
        for server in made:
            server.discard()


class Writer(threading.Thread):
    """A client of all servers in turn, which puts rows and notes what was acknowledged. Nothing is sent twice."""

    def __init__(self, servers, name, number):
        super().__init__()
        self.spaces = itertools.cycle([Namespace(server.client(), name) for server in servers])
        self.number, self.has_ended = number, threading.Event()
        self.done, self.failed = 0, []
        # The last value of each row, and rows whose last write has failed: it may have been applied.
        self.acknowledged, self.doubtful = {}, set()

    def run(self):
        for step in itertools.count():
            if self.has_ended.is_set():
                return
            # Rows of the writer alone, some of which the load has, too.
            pk, sk = ("client", f"{self.number}-{step % 50}") if step % 2 else (f"p{self.number}", f"{step % 9:06}")
            value = f"{self.number}-{step}".encode()
            answer = next(self.spaces).put(pk, sk, value)
            if answer.status in (201, 204):
                self.acknowledged[pk, sk] = value
                self.doubtful.discard((pk, sk))
                self.done += 1
            else:
                self.doubtful.add((pk, sk))
                self.failed.append(answer)


def as_rows(dataset):
    return [{"pk": pk, "sk": sk, "v": value.decode()} for (pk, sk), value in dataset]


def check(ns, dataset, writers):
    """All rows of a dataset and no others, with what clients have written on top."""
    found = {(row["pk"], row["sk"]): row["v"].encode() for row in ns.scan_all()}
    expected = dict(dataset)
    for writer in writers:
        expected |= writer.acknowledged
        for key in writer.doubtful:
            expected.pop(key, None)
            found.pop(key, None)
    differ = sorted(set(found.items()) ^ set(expected.items()))
    assert not differ, (len(differ), differ[:10])


def test_a_dataset_is_replaced_and_rolled_back_while_a_node_dies(servers, cluster):
    one, other = (server.namespace("replaced") for server in servers)
    old = {(f"p{number % 7}", f"{number:06}"): b"old" for number in range(300)}
    new = {(f"p{number % 7}", f"{number:06}"): b"new" for number in range(100, 100 + ROWS)}
    assert one.write(as_rows(old.items())).status == 200
    events = [server.namespace("events", '{"writes":"fast"}') for server in servers]
    writers = [Writer(servers, "replaced", number) for number in range(5)]
    of_events = [Writer(servers, "events", number) for number in range(3)]
    done = lambda: min(sum(writer.done for writer in some) for some in (writers, of_events))
    for writer in writers + of_events:
        writer.start()
    try:
        # It has far more rows than there were.
        load = Load.create(one.client, one.name, mode="replace", guards={"rows_change_max": 1e6})
        dataset = list(new.items())
        for number, at in enumerate(range(0, ROWS, PART)):
            assert load.put(number, lines(as_rows(dataset[at : at + PART]))).status == 201
        load.seal(number + 1)
        wait_until(lambda: load.reached("building", "verifying"), "it is being built")
        cluster.nodes[1].kill()
        wait_until(lambda: lost_nodes(servers[0]) == ["127.0.0.2"], "the lost node is told")
        wait_until(lambda: load.reached("ready"), "it is ready", seconds=300 + ROWS // 500)
        cluster.nodes[1].start()
        cluster.settle()
        wait_until(lambda: not lost_nodes(servers[0]), "it is back")
        cluster.nodes[2].kill()
        assert activate(one, 2).json()["live"] == 2
        enough = done() + 20
        wait_until(lambda: done() > enough, "writers go on")
    finally:
        for writer in writers + of_events:
            writer.has_ended.set()
        for writer in writers + of_events:
            writer.join()
    refused = [answer for writer in writers + of_events for answer in writer.failed]
    shed = [answer for answer in refused if answer.headers.get("umbo-problem") == "overloaded"]
    failed = [answer for answer in refused if answer not in shed]
    assert len(failed) <= FAILED_MAX, failed[:3]
    assert len(refused) <= REFUSED_MAX, refused[:3]
    assert all(answer.json()["outcome"] == "not-applied" for answer in shed), shed[:3]
    assert {number: of["state"] for number, of in versions(other).items()} == {1: "kept", 2: "live"}
    for ns in (one, other):
        check(ns, new, writers)
    for ns in events:
        check(ns, {}, of_events)
    assert rollback(other).json()["live"] == 1
    check(other, old, writers)
    # Another server reads what it has heard of.
    wait_until(lambda: one.get("p0", "000014").body == b"old", "the other server has heard of it")
    check(one, old, writers)
    # One copy of three is no quorum.
    cluster.nodes[1].kill()
    wait_until(lambda: servers[0].admin().get("/readyz").status == 503, "readiness says so")
    one.put("p0", "late", b"late").problem(503, "shard-unavailable")
    problem = servers[0].admin().get("/admin/v1/shards").json()["shards"][0]
    assert problem["state"] == "unavailable" and "connected: 1;" in problem["reason"], problem


def lost_nodes(server):
    nodes = server.admin().get("/admin/v1/cluster").json()["nodes"]
    return [node["name"] for node in nodes if not node["reachable"]]
