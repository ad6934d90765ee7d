"""The log over OTLP: the lines of standard error from every process, and none about the export itself."""

import json

import pytest

from harness import IS_CLUSTER, Cluster, Server, memory_folder
from otlp import Collector
from processes import wait_until

# The first line that is exported for certain, of a process with shards and of one without.
OPENED = ("the store is open", "the shards are on the nodes of a cluster")

OF_EXPORT = ("h2", "hyper", "opentelemetry", "tonic", "tower")


def written(process):
    """Lines of standard error since the store was opened, in order, but the last: it comes after the last export."""
    lines = [json.loads(line) for line in process.log_text().splitlines() if line.startswith("{")]
    lines = [line for line in lines if not line["target"].startswith(OF_EXPORT)]
    first = next(at for at, line in enumerate(lines) if line["message"] in OPENED)
    assert lines[-1]["message"] == "umbo has stopped"
    return lines[first:-1]


def is_same(line, one):
    """Whether a line of standard error arrived as this one. Errors have the name of the conventions."""
    own = {name: value for name, value in line.items() if name not in ("timestamp", "level", "target", "message")}
    sent = {("error" if name == "exception.message" else name): value for name, value in one.attributes.items()}
    texts = lambda fields: {name: str(value).lower() for name, value in fields.items()}
    return (line["message"], line["level"], texts(own)) == (one.message, one.severity, texts(sent))


def check_arrived(process, lines):
    missing = [line for line in written(process) if not any(is_same(line, one) for one in lines)]
    assert not missing, missing[:5]


@pytest.mark.skipif(IS_CLUSTER, reason="starts the topology that it is about")
def test_every_line_of_a_server_arrives_and_none_about_the_export(folder):
    with Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint}, "log": {"otlp": True, "filter": "trace"}}
        with Server(folder, settings) as server:
            server.start()
            ns = server.namespace("told")
            assert ns.put("p", value=b"secret-of-the-value").status == 201
            wait_until(lambda: collector.lines, "lines have come")
            server.stop()
        check_arrived(server, collector.lines)
        # The export at level trace says much about itself, and nothing of it is exported.
        assert any(f'"target":"{of}' in server.log_text() for of in OF_EXPORT)
        assert len(collector.lines) <= len(written(server)) + 100
        (resource,) = {tuple(sorted(line.resource.items())) for line in collector.lines}
        assert {"service.name", "service.version", "service.instance.id"} == set(dict(resource))
        assert not any("secret-of-the-value" in f"{line.message} {line.attributes}" for line in collector.lines)


def test_lines_of_dispatchers_and_nodes_are_told_apart():
    with memory_folder() as path, Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint}, "log": {"otlp": True}}
        cluster = Cluster(path, 1, settings, node_settings=settings)
        try:
            cluster.start()
            (dispatcher,), nodes = cluster.dispatchers, dict(cluster.nodes)
            cluster.stop()
        finally:
            cluster.discard()
        of = lambda node: [line for line in collector.lines if line.resource.get("umbo.node") == node]
        check_arrived(dispatcher, of(None))
        for name, node in nodes.items():
            check_arrived(node, of(name))


def test_the_log_stays_at_home_unless_it_is_asked_for(folder):
    with Collector() as collector:
        settings = {"trace": {"otlp_endpoint": collector.endpoint, "sample_ratio": 1.0}}
        with Server(folder, settings) as server:
            server.start()
            assert server.namespace("quiet").put("p", value=b"v").status == 201
            server.stop()
        assert collector.spans and not collector.lines


def test_a_collector_that_is_away_is_logged_and_costs_only_its_lines(folder):
    with Collector() as collector:
        endpoint = collector.endpoint
    settings = {"trace": {"otlp_endpoint": endpoint}, "log": {"otlp": True}}
    with Server(folder, settings) as server:
        server.start()
        ns = server.namespace("away")
        assert ns.put("p", value=b"v").status == 201
        wait_until(
            lambda: any("takes no log lines" in line for line in server.logged("WARN")), "the outage is logged"
        )
        assert ns.get("p").status == 200
        server.stop()
