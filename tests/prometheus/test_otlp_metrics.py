"""Metrics over OTLP: the same families and values as the text for Prometheus, from every process."""

import itertools
import re
import socket
import urllib.request

import pytest

from harness import IS_CLUSTER, Cluster, Server, memory_folder
from otlp import Collector
from processes import wait_until

UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1", "_units": "{RU}"}
# They change although no request comes.
RESTLESS = re.compile(
    r"process_(cpu|resident|open)|umbo_(records_age|disk_free|runtime_lag|answer_memory|remote_|node_)"
    r"|umbo_.*_(waiting_seconds|per_second|ratio)|umbo_shard_(pressure|call)"
)
# Looks for an export before which another interval passes.
NUDGED = {8 << shift for shift in range(10)}
LINE = re.compile(r'^(\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? (\S+)$')


def text_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


class Scrape:
    """The text for Prometheus, read: families by help text, samples by name and label values."""

    def __init__(self, text):
        self.helps, self.kinds, self.samples = {}, {}, {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                _, _, name, text = line.split(" ", 3)
                assert text not in self.helps, text
                self.helps[text] = name
            elif line.startswith("# TYPE "):
                _, _, name, self.kinds[name] = line.split(" ")
            else:
                self.add(line)

    def add(self, line):
        name, suffix, labels, value = LINE.match(line).groups()
        if name not in self.kinds:
            name, suffix = name + (suffix or ""), None
        values = re.findall(r'(\w+)="((?:\\.|[^"])*)"', labels or "")
        bound = next((float(value) for label, value in values if label == "le"), None)
        key = (name, tuple(sorted(value for label, value in values if label != "le")))
        if self.kinds[name] != "histogram":
            self.samples[key] = float(value)
            return
        histogram = self.samples.setdefault(key, {"buckets": []})
        if suffix == "_bucket":
            histogram["buckets"].append((bound, int(value)))
        else:
            histogram[suffix] = float(value)


def histogram(value):
    count, total, buckets = value
    return {"buckets": buckets, "_count": count, "_sum": total}


def between(before, value, after, key):
    """Whether this is the value of one of the texts. The requests for the texts are counted themselves, of which an
    export sees a part."""
    if "service" in key[1] or key[0] in ("umbo_connections", "umbo_connections_accepted_total"):
        return True
    first, last = before.samples.get(key), after.samples.get(key)
    if after.kinds[key[0]] == "counter" and last is not None:
        # Umbo reads its own records now and then. A series that is new began at 0.
        return (first or 0) <= value <= last
    return value in (first, last)


def compare(before, points, after):
    """Compares an export with the texts before and after it; returns the families that it had."""
    families = set()
    for point in points:
        name = after.helps[point.description]
        key = (name, tuple(sorted(str(value) for value in point.attributes.values())))
        families.add(name)
        kind = after.kinds[name]
        if kind == "histogram":
            assert point.kind == "histogram" and point.is_cumulative and 0 < point.started < point.time, point
            assert between(before, histogram(point.value), after, key), point
        else:
            assert (point.kind, point.is_monotonic) in {
                "counter": [("sum", True)],
                "gauge": [("gauge", False), ("sum", False)],
            }[kind], point
            assert point.is_cumulative == (point.kind == "sum"), point
            assert point.kind == "gauge" or 0 < point.started <= point.time, point
            assert RESTLESS.match(name) or between(before, point.value, after, key), point
        for suffix, unit in UNITS.items():
            if name.removesuffix("_total").endswith(suffix):
                assert point.unit == unit, point
        assert not re.search(r"_seconds|_bytes|_total", point.name), point
    return families


def after_interval(clock, is_so, what):
    """Lets the interval between two exports pass on a clock that stands still, and waits until it is so. A process that
    was still about to wait needs another interval, which would cut short what is being sent: ever more rarely."""
    clock.advance(1)
    looks = itertools.count(1)
    return wait_until(lambda: is_so() or (next(looks) in NUDGED and clock.advance(1)), what)


def check_exports(collector, clock, ports):
    """Every family of the text that has samples arrives from each process, with the value of the text. `ports` are by
    node, as the collector tells processes apart. Returns the points of each."""
    began = clock.time() * 1e9
    before = {node: Scrape(text_of(port)) for node, port in ports.items()}
    named = lambda scrape: {name for name, _ in scrape.samples}
    found, differs = {}, {}

    def have_all():
        for node, port in ports.items():
            after = Scrape(text_of(port))
            # Classes of a shard that was quiet for long have no series.
            expected = named(before[node]) & named(after)
            for points in collector.exports(began, node):
                families = {after.helps[point.description] for point in points}
                if node not in found and expected <= families:
                    # Dispatchers write their presence in some intervals: between an export and the text, a queue and
                    # a file may change. Then another export is compared.
                    try:
                        assert compare(before[node], points, after) <= named(before[node]) | named(after)
                        found[node] = points
                    except AssertionError as error:
                        differs[node] = error
        return len(found) == len(ports)

    try:
        after_interval(clock, have_all, "all metrics have come")
    except AssertionError as error:
        raise AssertionError(f"{error}: {differs}") from None
    return found


@pytest.fixture(scope="module")
def exported():
    """A server, or a dispatcher and its nodes, that sends metrics each second; and its collector."""
    with memory_folder() as path, Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint}, "metrics": {"otlp_interval": "1s"}}
        cluster = Cluster(path, 1, settings, node_settings=settings)
        try:
            cluster.start()
            cluster.collector = collector
            cluster.tier.clock.stop()
            yield cluster
            cluster.tier.clock.go()
            cluster.stop()
        finally:
            cluster.discard()


def use(server):
    ns = server.namespace("exported")
    for at in range(20):
        assert ns.put(f"p{at}", value=b"x" * 100).status == 201
        assert ns.get(f"p{at}").status == 200
    assert ns.get("absent").status == 404
    return ns


@pytest.mark.skipif(IS_CLUSTER, reason="starts the topology that it is about")
def test_every_metric_of_a_server_arrives(folder):
    with Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint}, "metrics": {"otlp_interval": "1s"}}
        with Server(folder, settings) as server:
            server.start().clock.stop()
            use(server)
            points = check_exports(collector, server.clock, {None: server.admin_port})[None]
            (resource,) = {tuple(sorted(point.resource.items())) for point in points}
            assert {"service.name", "service.version", "service.instance.id"} == set(dict(resource))
            (latency,) = [
                point
                for point in points
                if point.name == "http.server.request.duration" and point.attributes == {"umbo.operation": "get"}
            ]
            assert latency.unit == "s" and latency.value[0] == 21
            stopping = server.clock.time() * 1e9
            server.clock.go()
            server.stop()
        # The last export is made at the stop.
        stopped = max(point.time for point in collector.points)
        assert stopped > stopping


def test_every_metric_of_dispatchers_and_nodes_arrives(exported):
    (dispatcher,) = exported.dispatchers
    use(dispatcher)
    ports = {None: dispatcher.admin_port} | {name: node.admin_port for name, node in exported.nodes.items()}
    found = check_exports(exported.collector, exported.tier.clock, ports)
    instances = {point.resource["service.instance.id"] for points in found.values() for point in points}
    assert len(instances) == 1 + len(exported.nodes)


def test_a_collector_that_is_away_is_logged_once_and_catches_up(folder):
    with Collector() as collector:
        port = collector.port
        settings = {"trace": {"otlp_endpoint": collector.endpoint}, "metrics": {"otlp_interval": "1s"}}
        server = Server(folder, settings).start()
        clock = server.clock
        clock.stop()
        after_interval(clock, lambda: collector.points, "metrics have come")
    try:
        use(server)
        warned = lambda: [line for line in server.logged("WARN") if "takes no metrics" in line]
        wait_until(lambda: warned() or clock.advance(1), "the outage is logged")
        with socket.create_server(("127.0.0.1", port)) as closed:
            closed.setblocking(False)

            def refuses():
                try:
                    closed.accept()[0].close()
                    return True
                except BlockingIOError:
                    clock.advance(1)

            for _ in range(3):
                wait_until(refuses, "it is tried again")
        assert len(warned()) == 1
        with Collector(port) as collector:
            is_back = lambda: any("takes metrics again" in line for line in server.logged("INFO"))
            after_interval(clock, is_back, "metrics come again")
            (points,) = collector.exports()[-1:]
            counts = [point for point in points if point.name == "umbo.request.count"]
            puts = [point for point in counts if point.attributes["umbo.operation"] == "put"]
            assert sum(point.value for point in puts) == 20
            back = [line for line in server.logged("INFO") if "takes metrics again" in line]
            assert len(back) == 1 and len(warned()) == 1
            clock.go()
            server.stop()
    finally:
        server.discard()


def test_no_metrics_leave_at_interval_zero(folder):
    with Collector() as collector:
        settings = {
            "trace": {"otlp_endpoint": collector.endpoint, "sample_ratio": 1.0},
            "metrics": {"otlp_interval": "0s"},
        }
        with Server(folder, settings) as server:
            server.start()
            use(server)
            server.stop()
        assert collector.spans and not collector.points


@pytest.mark.parametrize("interval", ["500ms", "2h", "never"])
def test_intervals_out_of_bounds_are_refused(folder, interval):
    server = Server(folder, {"metrics": {"otlp_interval": interval}})
    server.spawn(["serve"], server.settings)
    assert server.wait() != 0
    assert "metrics.otlp_interval" in server.log_text()
