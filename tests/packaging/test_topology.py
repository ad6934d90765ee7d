"""What docker-compose.yml describes, started as plain processes: the same roles, settings, map and load
balancer, with addresses of loopback in the place of containers' names."""

import re
import shutil
import subprocess
import threading
import urllib.request

import pytest
import yaml

from clock import Clock
from harness import Client, Namespace, memory_folder
from package import CONFIG, compose, of_image
from processes import Process, wait_until
from tier import free_port


class Topology:
    """All that is in docker-compose.yml but Prometheus, whose questions the tests ask."""

    def __init__(self, folder):
        self.folder = folder
        self.services = of_image(compose()["services"])
        # By what one container calls another: `host:port`.
        self.addresses = {}
        self.processes = {name: Process(folder / name) for name in self.services}
        for process in self.processes.values():
            process.clock = Clock()
        self.config = folder / "config"
        self.config.mkdir(parents=True)
        for name, service in self.services.items():
            for key, value in service["environment"].items():
                if key.endswith("LISTEN"):
                    container_port = value.rsplit(":", 1)[1]
                    self.addresses[f"{name}:{container_port}"] = f"127.0.0.1:{free_port()}"
        (self.config / "cluster.toml").write_text(self.here((CONFIG / "cluster.toml").read_text()))
        self.balancer = None

    def here(self, text):
        """A text with this machine's addresses in the place of the containers'."""
        for there, here in self.addresses.items():
            text = text.replace(there, here)
        return text

    def port(self, there):
        return int(self.addresses[there].rsplit(":", 1)[1])

    def environment(self, name):
        """What a container has in its environment, with paths and addresses of here."""
        environment = {}
        for key, value in self.services[name]["environment"].items():
            if key.endswith("LISTEN"):
                value = self.addresses[f"{name}:{value.rsplit(':', 1)[1]}"]
            value = value.replace("/etc/umbo", str(self.config))
            environment[key] = str(self.folder / name / "data") if value == "/data" else value
        return environment

    def launch(self, name):
        self.processes[name].spawn(self.services[name]["command"], {}, self.environment(name))

    def is_ready(self, name):
        assert self.processes[name].is_running(), self.processes[name].log_text()
        return self.status(name, "/readyz") == 200

    def admin_port(self, name):
        return self.port(f"{name}:{self.services[name]['environment']['HEALTH_PORT']}")

    def status(self, name, path):
        try:
            return Client(self.admin_port(name)).get(path).status
        except OSError:
            return None

    def start(self):
        for kind in ("shard-", "dispatcher-"):
            names = [name for name in self.services if name.startswith(kind)]
            for name in names:
                self.launch(name)
            for name in names:
                wait_until(lambda: self.is_ready(name), f"{name} serves")
        self.start_load_balancer()

    def start_load_balancer(self):
        for port in ("8080", "8405"):
            self.addresses[f"bind :{port}"] = f"bind 127.0.0.1:{free_port()}"
        self.front_port, self.balancer_metrics = self.port("bind :8080"), self.port("bind :8405")
        text = (CONFIG / "haproxy.cfg").read_text()
        file = self.config / "haproxy.cfg"
        file.write_text(self.here(text))
        assert len(re.findall(r"server dispatcher-\d 127\.0\.0\.1:", file.read_text())) == 3
        haproxy = shutil.which("haproxy") or "/usr/sbin/haproxy"
        self.balancer = subprocess.Popen([haproxy, "-db", "-f", str(file)], stderr=subprocess.DEVNULL)
        wait_until(lambda: self.front_status() == 200, "the load balancer finds a dispatcher")

    def front_status(self):
        try:
            return Client(self.front_port).get("/healthz").status
        except OSError:
            return None

    def is_asked(self, name):
        """Whether the load balancer sends requests to a dispatcher."""
        text = Client(self.balancer_metrics).get("/metrics").body.decode()
        found = re.search(rf'^haproxy_server_status\{{[^}}]*server="{name}",state="UP"\}} (\d)$', text, re.M)
        return found.group(1) == "1"

    def stop(self, name):
        """Stops a dispatcher. The time that it leaves to the load balancer passes once that looks elsewhere."""
        process, environment = self.processes[name], self.services[name]["environment"]
        process.clock.stop()
        process.process.terminate()
        wait_until(lambda: not self.is_asked(name), "the load balancer looks elsewhere")
        assert process.is_running()
        process.clock.advance(float(environment["UMBO__SERVER__DRAIN_DELAY"].removesuffix("s")))
        process.clock.go()
        process.wait_for_good_end()

    def end(self):
        if self.balancer:
            self.balancer.kill()
            self.balancer.wait()
        for process in self.processes.values():
            process.discard()


@pytest.fixture(scope="module")
def topology():
    with memory_folder() as folder:
        made = Topology(folder)
        try:
            made.start()
            yield made
        finally:
            made.end()


@pytest.fixture
def client(topology):
    return Client(topology.front_port)


def namespace(topology, client, name):
    """A namespace that all dispatchers know."""
    assert client.put(f"/admin/v1/namespaces/{name}").status in (200, 201)
    for number in (1, 2, 3):
        own = Client(topology.port(f"dispatcher-{number}:8080"))
        wait_until(lambda: own.get(f"/v1/ns/{name}/usage").status == 200, "every dispatcher knows it")
    return Namespace(client, name)


def test_what_is_written_through_the_load_balancer_is_read_through_it(topology, client):
    ns = namespace(topology, client, "through")
    for number in range(60):
        assert ns.put(f"key-{number}", "a/b %2F", value=b"x" * number).status == 201
    for number in range(60):
        # Another connection each time, and so another dispatcher.
        read = Namespace(Client(topology.front_port), "through").get(f"key-{number}", "a/b %2F")
        assert read.status == 200 and read.body == b"x" * number
    assert len(ns.scan_all()) == 60
    on_nodes = [(topology.folder / name / "data") for name in topology.services if name.startswith("shard-")]
    assert all(list(folder.glob("**/*.redb")) for folder in on_nodes)


def test_every_dispatcher_has_its_part_of_the_requests(topology, client):
    namespace(topology, client, "parts")
    for number in range(30):
        Namespace(Client(topology.front_port), "parts").get(f"key-{number}")
    for name in topology.services:
        if name.startswith("dispatcher-"):
            text = Client(topology.admin_port(name)).get("/metrics").body.decode()
            gets = re.search(r'^umbo_requests_total\{[^}]*operation="get"[^}]*\} (\d+)$', text, re.M)
            assert gets and int(gets.group(1)) > 0, name


def test_dispatchers_find_one_another_on_the_port_that_is_named(topology):
    names = [name for name in topology.services if name.startswith("dispatcher-")]
    for name in names:
        listens = topology.addresses[f"{name}:7410"]
        assert listens in topology.processes[name].log_text()
        admin = Client(topology.admin_port(name))

        def answers():
            found = admin.get("/admin/v1/fleet/shards").json()["processes"]
            return found if len(found) == len(names) else None

        found = wait_until(answers, "all are known")
        assert [one["status"] for one in found] == [200] * len(names) and not any("error" in one for one in found)


def test_prometheus_is_answered_wherever_it_asks(topology):
    scraped = yaml.safe_load((CONFIG / "prometheus.yml").read_text())
    named = {"umbo-dispatcher": "umbo_requests_total", "umbo-shard": "umbo_", "load-balancer": "haproxy_"}
    asked = 0
    for job in scraped["scrape_configs"]:
        for target in job["static_configs"][0]["targets"]:
            here = topology.addresses.get(target, f"127.0.0.1:{topology.balancer_metrics}")
            with urllib.request.urlopen(f"http://{here}/metrics", timeout=30) as answer:
                assert answer.status == 200
                lines = answer.read().decode().splitlines()
            assert any(line.startswith(named[job["job_name"]]) for line in lines), target
            asked += 1
    assert asked == 7


def test_probes_are_answered_where_the_manifests_ask(topology):
    for name in topology.services:
        assert topology.status(name, "/healthz") == 200
        assert topology.status(name, "/readyz") == 200
    for number in (1, 2, 3):
        at = topology.port(f"dispatcher-{number}:8080")
        assert Client(at).get("/readyz").status == 200, "the load balancer's own question"


def test_a_dispatcher_that_is_told_to_stop_is_not_missed(topology, client):
    """Nobody behind the load balancer sees that a dispatcher is replaced, not even without a retry."""
    namespace(topology, client, "rolling")
    stop, failures, served = threading.Event(), [], [0] * 8

    def ask(worker):
        ns = Namespace(Client(topology.front_port), "rolling")
        while not stop.is_set():
            try:
                answer = ns.put(f"{worker}-{served[worker]}", value=b"x")
                assert answer.status == 201, answer
                served[worker] += 1
                if served[worker] % 20 == 0:
                    ns.client.close()
            except Exception as failure:  # shown by the test
                failures.append(failure)
                ns.client.close()

    workers = [threading.Thread(target=ask, args=(worker,)) for worker in range(len(served))]
    [worker.start() for worker in workers]
    try:
        for number in (1, 2, 3):
            name = f"dispatcher-{number}"
            topology.stop(name)
            topology.launch(name)
            wait_until(lambda: topology.is_ready(name), f"{name} serves again")
            goal = sum(served) + 50
            wait_until(lambda: failures or sum(served) >= goal, "requests go on")
            # Until the load balancer has found it again.
            own = Client(topology.admin_port(name))
            wait_until(lambda: failures or puts_of(own) > 0, f"{name} is asked again")
    finally:
        stop.set()
        [worker.join() for worker in workers]
    assert not failures, failures[:3]
    assert len(namespace(topology, client, "rolling").scan_all(keys_only=True)) == sum(served)


def puts_of(client):
    text = client.get("/metrics").body.decode()
    found = re.findall(r'^umbo_requests_total\{[^}]*operation="put"[^}]*\} (\d+)$', text, re.M)
    return sum(map(int, found))
