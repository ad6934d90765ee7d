"""Incidents of a cluster, each staged with real nodes: the sentence that `test_diagnosis.py` asks for in all places."""

import datetime
import pathlib
import signal

import pytest

from clock import Clock
from harness import wait_until
from recorded import pass_seconds
from test_diagnosis import DAY_SECONDS, Stage, new_tier  # noqa: F401  (a fixture)

# In the folder of the clusters, which `test_diagnosis` has made known.
from certificates import Authority  # noqa: E402

HOUR_SECONDS = 3600


@pytest.fixture
def staged(new_server, new_tier):  # noqa: F811
    """Makes the stage of a dispatcher and nodes."""
    return lambda *names: Stage(new_server(tier=new_tier(*names)).start())


def named(stage, rule, kind="trouble-began"):
    """Waits for a finding, and looks for its sentence everywhere; returns it. Time runs: answers may wait for nodes."""
    stage.server.clock.go()
    while True:
        wait_until(lambda: rule in stage.findings(), f"{rule} is named")
        finding = stage.findings()[rule]
        try:
            stage.is_told_everywhere(finding, kind)
            return finding
        except AssertionError:
            # A sentence ends with its reason, which is another one once the node is seen to be away otherwise.
            if stage.findings().get(rule, finding)["sentence"] == finding["sentence"]:
                raise


def is_over(stage, rule):
    wait_until(lambda: rule not in stage.findings(), f"{rule} is over")


def test_the_home_of_the_records_is_away(staged):
    stage = staged("a")
    stage.server.tier.nodes["a"].kill()
    finding = named(stage, "records-old")
    assert finding["sentence"].startswith("Umbo's own records are served from a copy: "), finding
    stage.server.tier.nodes["a"].start()
    is_over(stage, "records-old")


def test_requests_fail_while_a_node_is_away(staged):
    stage = staged("a", "b")
    stage.server.clock.go()
    node = stage.server.tier.nodes["b"]
    node.kill()
    ns = stage.ns("web")

    def failed():
        answers = [ns.get(f"row-{number}").status for number in range(20)]
        pass_seconds(stage.server, token=stage.root)
        return 503 in answers

    wait_until(lambda: failed() and "requests-fail" in stage.findings(), "requests fail")
    finding = named(stage, "requests-fail")
    assert finding["severity"] == "problem" and " requests/s fail, " in finding["sentence"]
    node.start()
    wait_until(lambda: not failed(), "all are served")
    stage.ends("requests-fail", failed)


def test_a_certificate_ends(new_server, new_tier, tmp_path):  # noqa: F811
    authority = Authority(tmp_path / "authority")
    soon = datetime.datetime.fromtimestamp(Clock().time() + 3.5 * DAY_SECONDS, datetime.UTC)
    settings = authority.settings("dispatcher", last=soon.strftime("%Y%m%d%H%M%SZ"))
    stage = Stage(new_server(settings, tier=new_tier("a", node_settings=authority.settings())).start())
    finding = named(stage, "certificate-ends")
    file = settings["cluster"]["certificate"]
    assert finding["sentence"] == f"the certificate in {file} ends in 3 days"
    good = authority.settings("dispatcher")
    pathlib.Path(good["cluster"]["certificate"]).replace(file)
    stage.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "cannot reload the certificates; nothing has changed" in stage.server.log_text(), "the key is of another one")
    assert stage.findings()["certificate-ends"]["sentence"] == finding["sentence"], "it is still in effect"
    pathlib.Path(good["cluster"]["key"]).replace(settings["cluster"]["key"])
    stage.server.process.send_signal(signal.SIGHUP)
    is_over(stage, "certificate-ends")


def test_a_node_goes_by_a_newer_map(staged):
    stage = staged("a", "b")
    tier = stage.server.tier
    old = tier.map_file.read_text()
    tier.write_map(old.replace("version = 1", "version = 2"))
    tier.nodes["b"].process.send_signal(signal.SIGHUP)
    finding = named(stage, "maps-differ")
    assert finding["sentence"] == "nodes go by different maps: versions 1, 2"
    tier.nodes["a"].process.send_signal(signal.SIGHUP)
    is_over(stage, "maps-differ")


@pytest.mark.parametrize(("hours", "side"), [(1, "ahead of"), (-1, "behind")])
def test_the_clock_of_a_server_is_an_hour_off(staged, hours, side):
    stage = staged("a")
    stage.server.clock.jump(hours * HOUR_SECONDS)
    finding = named(stage, "clock-off")
    told = f"the clock of this server is {HOUR_SECONDS} s {side}"
    assert finding["sentence"] in [f"{told} that of node 'a'", f"{told} that of node 'a'".replace("3600", "3599")]
    stage.server.clock.jump(-hours * HOUR_SECONDS)
    is_over(stage, "clock-off")
