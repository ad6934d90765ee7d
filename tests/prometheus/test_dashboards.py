"""A real Prometheus scrapes a running cluster: every expression of every panel and rule has data."""

import json
import re
import threading

import pytest
import yaml

import bulk_loads
from harness import Cluster, memory_folder
from processes import PROJECT, wait_until
from prometheus import RULES, Prometheus, promtool
from test_rules import urllib_text

pytestmark = pytest.mark.real("prometheus")

DASHBOARDS = sorted((PROJECT / "config/grafana/dashboards").glob("*.json"))
# What stands in for Grafana's variables.
VARIABLES = {"$__rate_interval": "10s"} | dict.fromkeys(("$caller", "$namespace", "$policy", "$shard"), ".*")
# Expressions that have no data in a healthy cluster, and why.
EMPTY = {
    "changes(umbo_overload_episodes_total[1m]) > 0": "no overload has begun",
}


def panels(file):
    for panel in json.loads(file.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def concrete(expression):
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def recordings():
    groups = yaml.safe_load((RULES / "recording.yml").read_text())["groups"]
    return [rule["record"] for group in groups for rule in group["rules"]]


def unrecorded(prometheus):
    return [name for name in recordings() if not prometheus.query(name)]


def selectors(expression):
    """Names of the series that an expression selects."""
    return set(re.findall(r"\b((?:umbo|process)_\w+|umbo:[\w:]+|up)\b(?!\()", expression))


class Load:
    """Callers that read, write, repeat, upload and are rejected."""

    def __init__(self, cluster):
        self.cluster, self.is_over = cluster, threading.Event()
        self.namespaces = [one.namespace("demo") for one in cluster.dispatchers]
        cluster.dispatchers[0].namespace("nightly")
        # Rejects however slow the machine is.
        policy = {"name": "few-writes", "match": {"namespace": "demo"}, "unit": "writes", "rate": "2", "burst": "2"}
        shadow = policy | {"name": "few-reads", "unit": "reads", "mode": "shadow"}
        root = cluster.dispatchers[0].client()
        for one in (policy, shadow):
            answer = root.put(f"/admin/v1/quotas/{one['name']}", json.dumps(one))
            assert answer.status == 201, answer
        # Hot however slow the machine is.
        assert root.put("/admin/v1/hot/pinned/ns/demo/kv/hot").status == 201
        self.threads = [threading.Thread(target=self.run, args=(ns,)) for ns in self.namespaces]

    def run(self, ns):
        ns.client.close()
        at = 0
        while not self.is_over.is_set():
            at += 1
            ns.put(f"row-{at % 200}", value=b"x" * 100)
            ns.range(f"row-{at % 200}")
            ns.multi_get([{"pk": f"row-{at % 200}"}, {"pk": "absent"}])
            if at % 50 == 0:
                ns.scan(limit=10)
                self.upload(ns, at)
            for _ in range(20):
                ns.get("hot", Umbo_Criticality="critical")
            ns.get(f"row-{at % 200}", Umbo_Attempt="2")
            # It is there to be counted, not to fill the machine.
            self.is_over.wait(0.01)

    @staticmethod
    def upload(ns, at):
        rows = [{"pk": f"uploaded-{at}-{number}", "v": "x" * 100} for number in range(100)]
        # The policies above are for another namespace.
        load = bulk_loads.Load.create(ns.client, "nightly")
        assert load.put(0, bulk_loads.lines(rows)).status == 201
        load.seal(1)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        for ns in self.namespaces:
            ns.client.close()


@pytest.fixture(scope="module")
def watched():
    """A cluster of two dispatchers and three nodes under load, and the Prometheus that scrapes it."""
    with memory_folder() as path:
        cluster = Cluster(path, dispatchers=2)
        try:
            cluster.start()
            jobs = {
                "umbo-dispatcher": [f"127.0.0.1:{one.admin_port}" for one in cluster.dispatchers],
                "umbo-shard": [f"127.0.0.1:{node.admin_port}" for node in cluster.nodes.values()],
            }
            with Load(cluster), Prometheus(path, jobs) as prometheus:
                prometheus.cluster = cluster
                hot = lambda: prometheus.query("umbo_hotkey_key_hit_ratio")
                wait_until(lambda: hot() and not unrecorded(prometheus), "all series are recorded, and a key is hot")
                yield prometheus
            cluster.stop()
        finally:
            cluster.discard()


def test_all_processes_are_scraped(watched):
    scraped = lambda: watched.query('up{job=~"umbo.*"}')
    # A scrape may take longer than the second it has, once.
    wait_until(lambda: [one["value"][1] for one in scraped()] == ["1"] * 5, "all are scraped")
    jobs = yaml.safe_load((PROJECT / "config/prometheus.yml").read_text())["scrape_configs"]
    assert {one["metric"]["job"] for one in scraped()} <= {job["job_name"] for job in jobs}


def test_metrics_of_dispatchers_and_nodes_have_good_names(watched):
    targets = lambda: watched.api("targets")["activeTargets"]
    wait_until(lambda: {(one["health"], one["lastError"]) for one in targets()} == {("up", "")}, "all are well")
    for target in targets():
        assert promtool("check", "metrics", text=urllib_text(target["scrapeUrl"])) == ""


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_has_data(watched, file):
    def empty():
        return [
            (title, expression)
            for title, expression in panels(file)
            if concrete(expression) not in EMPTY and not watched.query(concrete(expression))
        ]

    # What is judged by many samples takes its time on a slow machine.
    wait_until(lambda: not empty(), "every panel has data")


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_complete(file):
    board = json.loads(file.read_text())
    assert board["uid"] == file.stem and board["title"] and board["description"]
    variables = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", file.read_text())) - {"__rate_interval", "__all"}
    assert used <= variables, used
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"], panel
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel


def test_variables_have_values(watched):
    for file in DASHBOARDS:
        for variable in json.loads(file.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
                found = wait_until(lambda metric=metric: watched.query(metric), f"there is {metric}")
                assert all(label in one["metric"] for one in found), variable


def test_every_recorded_series_has_data(watched):
    wait_until(lambda: not unrecorded(watched), "all series are recorded")


def test_every_alert_looks_at_series_that_there_are(watched):
    """An alert is silent in a healthy cluster; but each series that it looks at is there."""
    rules = [rule for group in watched.api("rules")["groups"] for rule in group["rules"]]
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    assert len(alerts) == len(yaml_alerts()) and all(rule["health"] in ("ok", "unknown") for rule in rules), rules
    assert [rule["name"] for rule in rules if rule.get("lastError")] == []
    for rule in alerts:
        for name in selectors(rule["query"]):
            wait_until(lambda name=name: watched.query(name), f"there is {name}, of {rule['name']}")
    firing = {one["metric"]["alertname"] for one in watched.query('ALERTS{alertstate="firing"}')}
    assert not watched.query('ALERTS{alertname="UmboDiskFullWithinADay"}'), "first rows are no trend"
    # The load spends its quota on purpose; tests run where disks may be full.
    assert firing <= {"UmboQuotaNearlySpent", "UmboDiskNearlyFull"}, firing


def yaml_alerts():
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_a_lost_node_is_told(watched):
    """The last test of the file: a node is lost, and alerts are on their way."""
    node = watched.cluster.nodes["b"]
    node.kill()
    try:
        pending = lambda: {one["metric"]["alertname"] for one in watched.query("ALERTS")}
        expected = {"UmboProcessDown", "UmboNodeLost", "UmboShardDown"}
        wait_until(lambda: expected <= pending(), "the alerts are pending")
    finally:
        node.start()
