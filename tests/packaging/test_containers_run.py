"""The image built and docker-compose.yml started, by podman.

Every line of the Dockerfile runs, and the services of docker-compose.yml run as they stand there. Three things are not
real: `cargo` in the image of the first stage puts the binary under test in its place (test_image.py holds the text of
that stage), HAProxy and Prometheus are Debian's versions under the names of the file, and Grafana is left out, which
Debian does not have. podman-compose does not wait for health checks, and without systemd they run only when asked for.
"""

import contextlib
import itertools
import json
import threading
import tomllib
import urllib.request

import pytest

from containers import LEFT_OUT, Container, engine
from debian import run
from harness import Client, Namespace
from package import CONFIG, check_documents, compose, of_image, umbo
from processes import wait_until

pytestmark = pytest.mark.real("podman")

SERVICES = [name for name in compose()["services"] if name != LEFT_OUT]
OURS = list(of_image(compose()["services"]))
DISPATCHERS = [name for name in OURS if name.startswith("dispatcher")]
PORT, PROMETHEUS_PORT = 8080, 9090
MIB = 1 << 20
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def podman():
    with engine() as one:
        yield one


@pytest.fixture(scope="module")
def deployment(podman):
    """docker-compose.yml, started and healthy."""
    podman.compose("up", "--detach", "--no-build", *SERVICES)
    for name in OURS:
        podman.container(name).wait_until_healthy()
    wait_until(lambda: answers(PORT, "/readyz") == 200, "the load balancer has found a dispatcher")
    return podman


@pytest.fixture
def ns(deployment):
    return new_namespace()


def new_namespace(port=PORT):
    client, name = Client(port), f"ns-{next(NUMBERS)}"
    assert client.put(f"/admin/v1/namespaces/{name}").status == 201
    return Namespace(client, name)


def answers(port, path):
    """The status of an answer, or None where there is none."""
    with contextlib.suppress(OSError):
        return Client(port).get(path).status


def by_node(ns, count):
    """So many partitions of each node that docker-compose.yml starts, by its service."""
    shards = {one["id"]: f"shard-{one['node']}" for one in tomllib.loads((CONFIG / "cluster.toml").read_text())["shards"]}
    found = {name: [] for name in shards.values()}
    for number in range(1000):
        question = {"operation": "get", "pk": f"p-{number}"}
        (where,) = ns.client.post(f"{ns.base}/explain", question).json()["shards"]
        found[shards[where["shard"]]].append(question["pk"])
        if all(len(partitions) >= count for partitions in found.values()):
            return {name: partitions[:count] for name, partitions in found.items()}
    raise AssertionError(found)


def is_found_by_all(ns, engine, partitions):
    """Whether each dispatcher reads rows, asked past the load balancer."""
    clients = [Client(PORT, host=engine.container(name).address()) for name in DISPATCHERS]
    every = [Namespace(client, ns.name).get(one, "s").status for client in clients for one in partitions]
    return set(every) == {200}


class Load:
    """Clients that put rows and read them back, each by another connection. Nothing is sent twice."""

    def __init__(self, ns, clients=4):
        self.done, self.failed, self.has_ended = 0, [], threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(ns.name, number)) for number in range(clients)]

    def work(self, name, client):
        ns = Namespace(Client(PORT), name)
        for number in itertools.count():
            if self.has_ended.is_set():
                return
            partition, value = f"client-{client}", str(number).encode()
            try:
                put, got = ns.put(partition, f"{number % 100}", value), ns.get(partition, f"{number % 100}")
                if (put.status, got.status, got.body) not in ((201, 200, value), (204, 200, value)):
                    self.failed.append((put, got))
            except OSError as error:
                self.failed.append(error)
            self.done += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_):
        self.has_ended.set()
        for thread in self.threads:
            thread.join()

    def goes_on(self):
        """Waits until some more has been done."""
        before = self.done
        wait_until(lambda: self.done > before + 100, "the load goes on")


def test_rows_go_in_and_out_through_the_load_balancer(ns):
    rows = [{"pk": f"p-{number}", "sk": "s", "v": str(number)} for number in range(300)]
    assert ns.write(rows).status == 200
    for row in rows:
        got = ns.get(row["pk"], "s")
        assert (got.status, got.body.decode()) == (200, row["v"])


def test_the_image_has_a_stripped_binary_and_documents_and_is_read_only(deployment, tmp_path):
    node = "umbo_shard-a_1"
    assert deployment.podman("exec", node, "id", "-u").strip() == "10001"
    touch = "for at in / /usr/bin /etc/umbo /data; do touch $at/x && echo $at; done; rm /data/x"
    assert deployment.podman("exec", node, "sh", "-c", touch).split() == ["/data"]
    deployment.podman("cp", f"{node}:/usr/share/doc/umbo", tmp_path / "documents")
    check_documents(tmp_path / "documents")
    deployment.podman("cp", f"{node}:/usr/local/bin/umbo", tmp_path / "umbo")
    assert run(tmp_path / "umbo", "version") == umbo("version").stdout
    assert ".debug_info" not in run("readelf", "--section-headers", "--wide", tmp_path / "umbo")


def test_a_killed_node_is_told_by_its_health_and_has_its_rows_afterwards(ns, deployment):
    partitions = by_node(ns, 2)
    for partition in itertools.chain(*partitions.values()):
        assert ns.put(partition, "s", b"before").status == 201
    node = deployment.container("shard-b")
    assert node.is_healthy()
    node.kill()
    wait_until(lambda: not node.is_healthy(), "its health check says so")
    assert {name: {ns.get(one, "s").status for one in of_node} for name, of_node in partitions.items()} == {
        "shard-a": {200},
        "shard-b": {503},
        "shard-c": {200},
    }
    assert ns.put(partitions["shard-a"][0], "s", b"meanwhile").status == 204
    node.start()
    node.wait_until_healthy()
    wait_until(lambda: is_found_by_all(ns, deployment, partitions["shard-b"]), "all dispatchers have found it")
    assert [ns.get(one, "s").body for one in partitions["shard-b"]] == [b"before", b"before"]
    assert ns.put(partitions["shard-b"][0], "s", b"after").status == 204


def test_a_rolling_restart_of_dispatchers_fails_no_request(ns, deployment):
    with Load(ns) as load:
        for name in DISPATCHERS:
            deployment.container(name).restart()
            deployment.container(name).wait_until_healthy()
            load.goes_on()
            wait_until(lambda: is_served_by(name), f"the load balancer sends requests to {name}")
    assert not load.failed, load.failed[:5]
    assert load.done > 300


def is_served_by(name):
    """Whether the load balancer finds a dispatcher ready."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/query?query=haproxy_server_status") as answer:
        found = json.load(answer)["data"]["result"]
    return any(one["metric"]["server"] == name and one["metric"]["state"] == "UP" and one["value"][1] == "1" for one in found)


def test_a_new_container_has_the_rows_of_the_volume(ns, deployment):
    partitions = by_node(ns, 2)["shard-c"]
    for partition in partitions:
        assert ns.put(partition, "s", partition.encode()).status == 201
    node = deployment.container("shard-c")
    before = node.identity()
    node.remove()
    deployment.compose("up", "--detach", "--no-build", "shard-c")
    node.wait_until_healthy()
    assert node.identity() != before
    # Its address may be another one, too.
    wait_until(lambda: is_found_by_all(ns, deployment, partitions), "all dispatchers have found it")
    assert [ns.get(one, "s").body.decode() for one in partitions] == partitions


def test_prometheus_finds_all_of_its_targets(deployment):
    def targets():
        with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/targets") as answer:
            return json.load(answer)["data"]["activeTargets"]

    wait_until(lambda: all(one["health"] == "up" for one in targets()), "all targets are up")
    found = {one["labels"]["instance"].split(":")[0] for one in targets()}
    assert found == set(OURS) | {"load-balancer"} and len(targets()) == len(found)
    with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS_PORT}/api/v1/rules") as answer:
        rules = [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
    wrong = [rule for rule in rules if rule["health"] == "err"]
    assert rules and not wrong, wrong


def test_the_image_alone_serves_and_keeps_its_rows_on_a_volume(podman):
    """The line at the head of the Dockerfile."""
    # Another port than the one that docker-compose.yml publishes.
    line = ["--rm", "--detach", "--publish", "127.0.0.1:8090:8080", "--volume", "umbo:/data", "umbo", "serve", "--insecure"]
    found = []
    for _ in range(2):
        container = Container(podman, podman.podman("run", *line).strip())
        container.wait_until_healthy()
        client = Client(8090)
        found.append(client.put("/admin/v1/namespaces/demo").status)
        ns = Namespace(client, "demo")
        found.append(ns.get("user-7", "name").body if found[-1] == 200 else ns.put("user-7", "name", b"Ada").status)
        container.remove()
    assert found == [201, 201, 200, b"Ada"]


def test_a_limit_of_memory_is_respected_under_load(podman):
    """With default settings, which fit the limit."""
    limit, value_bytes, clients = 192 * MIB, MIB, 16
    limits = ["--memory", str(limit), "--memory-swap", str(limit)]
    container = Container(podman, podman.podman("run", "--detach", *limits, "--publish", "127.0.0.1:8091:8080", "umbo", "serve", "--insecure").strip())
    container.wait_until_healthy()
    shown = podman.podman("exec", container.name, "umbo", "config", "show")
    assert 'cache = "64MiB"' in shown and 'body_memory = "32MiB"' in shown, shown
    ns = new_namespace(8091)
    statuses = []

    def work(client):
        one = Namespace(Client(8091), ns.name)
        for number in range(20):
            statuses.append(one.put(f"c-{client}", f"{number}", bytes(value_bytes)).status)
            statuses.append(one.get(f"c-{client}", f"{number}").status)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = container.state()
    assert state["Running"] and not state["OOMKilled"], container.logs()
    assert container.is_healthy()
    # More than the limit has gone in, and out again.
    assert statuses.count(201) * value_bytes > limit and statuses.count(200) * value_bytes > limit
    assert set(statuses) <= {200, 201, 404, 429, 503}, statuses
    container.remove()
