"""What cannot be right is refused and named, and nothing is harmed by it."""

import hashlib
import random
import signal
import socket

import pytest

from harness import Cluster, Namespace, Server, memory_folder, wait_until
from tier import NODES, SHARDS, Node, Tier, free_port, map_text, spread

EVEN = spread(SHARDS, NODES)


def even_slots():
    bounds = [-(-shard * 4096 // SHARDS) for shard in range(SHARDS + 1)]
    return [[first, following - 1] for first, following in zip(bounds, bounds[1:])]


def with_gap():
    slots = even_slots()
    slots[3][1] -= 1
    return {"slots": slots}, str(slots[3][1] + 1)


def with_two_owners():
    slots = even_slots()
    slots[3][1] += 1
    return {"slots": slots}, str(slots[3][1])


def with_a_node_nobody_knows():
    return {"owners": EVEN[:-1] + ["d"]}, "d"


def with_slots_beyond_the_last():
    slots = even_slots()
    slots[-1][1] += 1
    return {"slots": slots}, "4096"


BROKEN = [with_gap, with_two_owners, with_a_node_nobody_knows, with_slots_beyond_the_last]


def broken_map(make, addresses):
    more, named = make()
    return map_text(addresses, **({"owners": EVEN} | more)), named


def refuses_to_start(process, *named):
    """The process ends by itself and says why, in the words that are named."""
    process.launch()
    code = process.wait()
    assert code not in (0, -9, -6, -11), process.log_text()
    for word in named:
        assert word in process.log_text(), (word, process.log_text())


def content(folder):
    """Every file below a folder, by its bytes."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("make", BROKEN)
def test_a_broken_map_starts_nothing(new_cluster, make):
    cluster = new_cluster()
    addresses = cluster.tier.map()["nodes"]
    text, named = broken_map(make, addresses)
    cluster.tier.write_map(text)
    node = cluster.nodes["a"]
    refuses_to_start(node, named, "cluster.toml")
    assert not list(node.data.glob("**/*.redb")), "nothing was made"
    refuses_to_start(cluster.dispatchers[0], named, "cluster.toml")


@pytest.mark.parametrize("make", BROKEN)
def test_a_broken_map_changes_nothing_that_runs(new_cluster, make):
    cluster = new_cluster().start()
    (dispatcher,) = cluster.dispatchers
    ns = dispatcher.namespace()
    partitions = [one for own in cluster.partitions(ns, 2).values() for one in own]
    good = cluster.tier.map_file.read_text()
    text, named = broken_map(make, cluster.tier.map()["nodes"])
    cluster.tier.write_map(text.replace("version = 1", "version = 2"))
    everybody = [dispatcher, *cluster.nodes.values()]
    for process in everybody:
        process.process.send_signal(signal.SIGHUP)
    for process in everybody:
        said = lambda: any(named in line for line in process.logged("ERROR") + process.logged("WARN"))
        wait_until(said, "it is said")
    for one in partitions:
        assert ns.put(one, value=b"x").status == 201
    cluster.tier.write_map(good)
    cluster.stop()


def test_a_node_of_another_cluster_does_not_open_this_ones_data(new_cluster):
    cluster = new_cluster().start()
    ns = cluster.dispatchers[0].namespace()
    partitions = cluster.partitions(ns, 2)
    assert ns.put(partitions["a"][0], value=b"kept").status == 201
    cluster.stop()
    node, good = cluster.nodes["a"], cluster.tier.map_file.read_text()
    before = content(node.data)
    cluster.tier.write_map(good.replace('cluster_id = "tests"', 'cluster_id = "others"'))
    refuses_to_start(node, "others", "tests")
    assert content(node.data) == before, "nothing is touched"
    cluster.tier.write_map(good)
    cluster.start()
    assert Namespace(cluster.dispatchers[0].client(), "demo").get(partitions["a"][0]).body == b"kept"
    cluster.stop()


def test_a_node_does_not_open_the_data_of_another(new_cluster):
    cluster = new_cluster().start()
    cluster.stop()
    a, b = cluster.nodes["a"], cluster.nodes["b"]
    before = content(b.data)
    a.data = b.data
    refuses_to_start(a, "'b'")
    assert content(b.data) == before, "nothing is touched"


def test_a_node_and_a_server_of_its_own_do_not_open_each_others_data(new_cluster, folder):
    cluster = new_cluster().start()
    cluster.stop()
    node = cluster.nodes["a"]
    alone = Alone(folder / "alone")
    alone.start()
    alone.stop()
    of_node, of_alone = content(node.data), content(alone.data)
    alone.data, own = node.data, alone.data
    refuses_to_start(alone, str(node.data.name))
    assert content(node.data) == of_node
    node.data = own
    refuses_to_start(node, str(own.name))
    assert content(own) == of_alone


class Alone(Server):
    """`umbo serve`, whatever the topology of the tests."""

    def __init__(self, folder):
        super().__init__(folder)
        self.tier, self.owns_tier = None, False


def test_two_processes_do_not_share_a_node(new_cluster):
    cluster = new_cluster().start()
    node = cluster.nodes["a"]
    twin = Node(node.folder.parent / "twin", "a", cluster.tier.map_file, "127.0.0.1", free_port())
    twin.data = node.data
    refuses_to_start(twin)
    ns = cluster.dispatchers[0].namespace()
    assert ns.put(cluster.partitions(ns, 1)["a"][0], value=b"x").status == 201
    cluster.stop()


def test_a_dispatcher_of_another_cluster_is_refused_by_name(new_cluster, folder):
    cluster = new_cluster().start()
    ns = cluster.dispatchers[0].namespace()
    stranger_map = cluster.tier.map_file.read_text().replace('cluster_id = "tests"', 'cluster_id = "others"')
    (folder / "others").mkdir()
    (folder / "others/cluster.toml").write_text(stranger_map)
    stranger = Server(folder / "stranger", tier=Tier(folder / "others"))
    try:
        stranger.launch()
        told = lambda: "others" in stranger.log_text() and "tests" in stranger.log_text()
        wait_until(told, "it is told whose nodes these are")
        assert '"umbo serves"' not in stranger.log_text() or stranger_is_refused(stranger)
    finally:
        stranger.discard()
    for partitions in cluster.partitions(ns, 1).values():
        assert ns.put(partitions[0], value=b"x").status == 201
    cluster.stop()


def stranger_is_refused(stranger):
    stranger.wait_until_it_serves()
    return stranger.client().put("/admin/v1/namespaces/theirs").status == 503


GARBAGE = {
    "nothing": b"",
    "random": random.Random(7).randbytes(100_000),
    "an HTTP/1 request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 100,
    "a TLS greeting": bytes.fromhex("16030100c8010000c40303") + random.Random(8).randbytes(400),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "the preface, and then random": b"UMBOHOP1" + random.Random(9).randbytes(100_000),
    "frames that claim to be large": b"UMBOHOP1" + (b"\xff\xff\xff\x7f\x01" + bytes(500)) * 100,
    "frames of no length": b"UMBOHOP1" + bytes(4) * 20_000,
    "frames without end, and no hello": b"UMBOHOP1" + b"\x01\x00\x00\x00\x80" * 20_000,
    "a hello that never ends": b"UMBOHOP1" + b"\x00\x00\x02\x00\x01" + b"\xff" * 100_000,
}


@pytest.fixture(scope="module")
def small():
    with memory_folder() as folder:
        cluster = Cluster(folder)
        try:
            cluster.start()
            cluster.dispatchers[0].namespace()
            yield cluster
            cluster.stop()
            for node in cluster.nodes.values():
                assert "panicked" not in node.log_text()
        finally:
            cluster.discard()


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_on_the_port_of_a_node_harms_nobody(small, what):
    node = small.nodes["a"]
    before = node.memory()
    for _ in range(20):
        with socket.create_connection((node.host, node.port), 30) as sock:
            try:
                sock.sendall(GARBAGE[what])
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except OSError:
                pass  # It hung up first.
    assert node.is_running() and node.readiness() == 200
    assert node.memory() - before < 64 << 20
    ns = Namespace(small.dispatchers[0].client(), "demo")
    partition = small.partitions(ns, 1, f"after-{len(what)}")["a"][0]
    assert ns.put(partition, value=b"x").status == 201
    assert ns.get(partition).body == b"x"


def test_connections_that_say_nothing_keep_nobody_out(small):
    node = small.nodes["a"]
    silent = [socket.create_connection((node.host, node.port), 30) for _ in range(200)]
    try:
        ns = Namespace(small.dispatchers[0].client(), "demo")
        partition = small.partitions(ns, 1, "silent")["a"][0]
        assert ns.put(partition, value=b"x").status == 201
        assert node.readiness() == 200
    finally:
        [sock.close() for sock in silent]
