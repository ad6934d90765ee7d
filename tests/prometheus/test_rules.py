"""Rules and alerts as they stand in config/prometheus, by Prometheus' own tools."""

import re
import urllib.request

import pytest
import yaml

from harness import IS_CLUSTER
from processes import PROJECT
from prometheus import RULES, promtool

pytestmark = pytest.mark.real("prometheus")

CASES = sorted((PROJECT / "tests/prometheus").glob("alerts*_test.yml"))


def alerts():
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_rules_are_well_formed():
    said = promtool("check", "rules", *sorted(RULES.glob("*.yml")))
    assert said.count("SUCCESS") == 2, said


def test_every_alert_fires_and_only_when_it_should():
    said = promtool("test", "rules", *CASES)
    assert said.count("SUCCESS") == len(CASES) == 2, said


def test_no_alert_is_without_a_case():
    text = "".join(file.read_text() for file in CASES)
    fired = set(re.findall(r'alertname="(\w+)",alertstate="firing"', text))
    assert fired == set(alerts())


def test_the_guide_names_each_alert_under_its_severity():
    guide = (PROJECT / "config/README.md").read_text()
    rows = dict(re.findall(r"^\| `(page|ticket)`:[^|]+\| (.+) \|$", guide, re.M))
    named = {name: severity for severity, row in rows.items() for name in re.findall(r"`(Umbo\w+)`", row)}
    assert named == {name: rule["labels"]["severity"] for name, rule in alerts().items()}


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_happened_and_what_to_do(name):
    alert = alerts()[name]
    assert alert["labels"]["severity"] in ("page", "ticket")
    summary, description = alert["annotations"]["summary"], alert["annotations"]["description"]
    assert 20 < len(summary) < 200 and len(description) > 30, alert
    is_command = "`umbo " in description or "As for" in description or "log" in description
    assert is_command or "disk" in description or "limit" in description, description


def test_metrics_have_good_names_and_kinds(server):
    assert promtool("check", "metrics", text=server.admin().get("/metrics").body.decode()) == ""
    if IS_CLUSTER:
        for node in server.tier.nodes.values():
            text = urllib_text(f"http://127.0.0.1:{node.admin_port}/metrics")
            assert promtool("check", "metrics", text=text) == ""


def urllib_text(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()
