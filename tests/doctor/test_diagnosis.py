"""Incidents, each staged on one process or on a cluster: the same sentence names what is wrong and who causes it in the
diagnosis, `umbo status`, `umbo doctor` and the events, and it is gone when the incident is over."""

import json
import os
import re
import subprocess
import sys

import pytest

from bulk_loads import Load, lines
from harness import Client, Namespace, binary, wait_until
from processes import PROJECT
from recorded import pass_seconds
from tier import Tier

for area in ("cluster", "faults", "shed"):
    sys.path.insert(0, str(PROJECT / "tests" / area))

from deadline import Waiting, asked_of  # noqa: E402
from held import Commits  # noqa: E402
from test_disk import small_disk  # noqa: E402, F401  (a fixture)

#: Seconds of history before anything is unusual, and some more.
WARM = 65
#: Seconds in which an incident is named, at most: three of the condition, one that it was under way in.
NAMED = 5
DAY_SECONDS = 24 * 3600


class Stage:
    """A server whose seconds the test makes, with callers that work in each."""

    def __init__(self, server):
        self.server, self.token = server, None
        self.root = self.token_of("root")
        self.token, self.callers = self.root, {}
        server.namespace("shop", token=self.root)
        server.clock.stop()

    def token_of(self, name):
        answer = self.server.client(token=self.token).post("/admin/v1/tokens", {"name": name, "grants": ["*:*"]})
        assert answer.status == 201, answer
        return answer.json()["token"]

    def ns(self, caller):
        if caller not in self.callers:
            self.callers[caller] = Namespace(Client(self.server.port, token=self.token_of(caller)), "shop")
        return self.callers[caller]

    def seconds(self, count, **requests):
        """So many seconds, in each of which callers send some gets of many rows."""
        for _ in range(count):
            for caller, times in requests.items():
                ns = self.ns(caller)
                for number in range(times):
                    ns.get(f"row-{number}")
            pass_seconds(self.server, token=self.root)

    def findings(self):
        answer = self.server.admin(token=self.root).get("/admin/v1/diagnosis")
        assert answer.status == 200, answer
        return {one["rule"]: one for one in answer.json()["findings"]}

    def until(self, rule, second, seconds=NAMED):
        """Lets seconds pass until a rule has a finding; returns it."""
        for _ in range(seconds):
            if rule in self.findings():
                break
            second()
        found = self.findings()
        assert rule in found, found
        return found[rule]

    def until_slow(self, second):
        """Lets usual seconds pass, and then slow ones until a node is named."""
        for _ in range(WARM):
            second(is_slow=False)
        assert self.findings() == {}
        return self.until("node-slow", second)

    def run(self, *arguments, codes=(0,)):
        command = [binary(), "--server", f"http://127.0.0.1:{self.server.port}", *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UMBO")}
        environment |= {"UMBO_TOKEN": self.root}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode in codes, done
        return done.stdout

    def is_told_everywhere(self, finding, kind="trouble-began"):
        sentence = finding["sentence"]
        assert len(sentence) <= 200 and finding["advice"] and finding["since_ms"], finding
        assert f"! {sentence}\n" in self.run("status")
        checks = json.loads(self.run("doctor", "-o", "json", codes=(0, 1)))["checks"]
        told = [one for one in checks if one["found"] == sentence]
        assert [one["advice"] for one in told] == [finding["advice"]], checks
        events = self.server.admin(token=self.root).get("/admin/v1/events").json()["events"]
        assert sentence in [one["text"] for one in events if one["kind"] == kind], events
        assert sentence in self.run("events")

    def ends(self, rule, second):
        """Lets seconds pass until a finding is gone, and its end is told."""
        for _ in range(30):
            if rule not in self.findings():
                break
            second()
        assert rule not in self.findings()


@pytest.fixture
def new_tier(folder):
    """Starts nodes, which end with the test."""
    tiers = []

    def make(*names, **more):
        tiers.append(Tier(folder / "tier", nodes=names, shards=4, **more))
        return tiers[-1].start()

    yield make
    for tier in tiers:
        tier.discard()


@pytest.fixture(params=["one server", "a dispatcher and nodes"])
def stage(request, new_server, new_tier):
    """Either of both, whatever the other tests have."""
    more = {} if request.param == "one server" else {"tier": new_tier("a", "b")}
    return Stage(new_server({"hotkey": {"rate_min": 20}}, **more).start())


# Not with nodes: a call that is under way when the test lets a second pass has taken a second, and its shard is overloaded.
@pytest.mark.parametrize("stage", ["one server"], indirect=True)
def test_a_caller_sends_twenty_times_its_usual(stage):
    stage.seconds(WARM, crawler=15, web=20)
    assert stage.findings() == {}
    finding = stage.until("caller-unusual", lambda: stage.seconds(1, crawler=315, web=20))
    assert finding["subject"] == "crawler" and finding["view"] == "callers"
    # A second that was recorded together with the next one has half of its rate.
    told = r"caller crawler sends \d+ requests/s, [\d.]+ times its usual [\d.]+, and takes \d+ % of the request units"
    assert re.fullmatch(told, finding["sentence"]), finding
    stage.is_told_everywhere(finding)
    stage.ends("caller-unusual", lambda: stage.seconds(1, crawler=15, web=20))
    events = stage.server.admin(token=stage.root).get("/admin/v1/events").json()["events"]
    over = [one["text"] for one in events if one["kind"] == "trouble-ended" and one["subject"] == "crawler"]
    assert len(over) == 1 and over[0].startswith("over after ") and over[0].endswith(finding["sentence"])


def test_a_key_is_hot(stage):
    ns = stage.ns("web")
    assert ns.put("front-page", value=b"x").status == 201

    def second():
        for number in range(400):
            ns.get("front-page" if number % 16 else f"row-{number}")
        pass_seconds(stage.server, token=stage.root)

    finding = stage.until("key-hot", second, seconds=15)
    assert finding["sentence"].startswith("key shop/front-page")
    assert finding["sentence"].endswith(" of them by caller web")
    stage.is_told_everywhere(finding)


def test_a_quota_rejects_a_caller(stage):
    policy = {"name": "crawler-cap", "match": {"caller": "crawler"}, "per": ["caller"], "unit": "requests"}
    policy |= {"rate": "5", "burst": "5"}
    answer = stage.server.admin(token=stage.root).put("/admin/v1/quotas/crawler-cap", json.dumps(policy).encode(), content_type="application/json")
    assert answer.status in (200, 201), answer
    finding = stage.until("quota-rejects", lambda: stage.seconds(1, crawler=21, web=20), seconds=8)
    assert finding["subject"] == "crawler-cap"
    assert "requests/s of caller crawler: " in finding["sentence"]
    assert finding["sentence"].endswith(" requests/s are asked for and 5 requests/s allowed")
    stage.is_told_everywhere(finding)


def test_a_load_has_failed(stage):
    client = stage.ns("loader").client
    load = Load.create(client, "shop", max_reject_ratio=0)
    load.put(0, lines([{"pk": "a", "v": "1"}]) + b"nonsense\n")
    load.seal(1)
    stage.server.clock.go()
    reason = load.wait_for("failed")["reason"]
    stage.server.clock.stop()
    finding = stage.findings()["load-failed"]
    assert finding["sentence"].startswith(f"load {load.id} of namespace shop has failed: {reason}"[:160])
    pass_seconds(stage.server, token=stage.root)
    stage.is_told_everywhere(finding)
    # A later load that is live is what the operator wanted.
    again = Load.create(client, "shop", max_reject_ratio=0)
    again.put(0, lines([{"pk": "a", "v": "1"}]))
    again.seal(1)
    stage.server.clock.go()
    again.wait_for("live")
    stage.server.clock.stop()
    assert "load-failed" not in stage.findings()


@pytest.mark.embedded("its files are on the disk of a node")
def test_a_disk_is_full(small_disk, new_server):  # noqa: F811
    server = new_server({"store": {"shards": 1}})
    server.data = small_disk / "data"
    stage = Stage(server.start())
    ns = stage.ns("loader")
    wait_until(lambda: ns.put(os.urandom(8).hex(), value=os.urandom(1 << 20)).status == 507, "the disk is full")
    finding = stage.findings()["shard-not-serving"]
    assert finding["sentence"].startswith("shard 0 is read-only: ") and "No space left" in finding["sentence"]
    assert finding["severity"] == "problem" and finding["view"] == "storage"
    pass_seconds(stage.server, token=stage.root)
    stage.is_told_everywhere(finding, "shard-lost")


class AsRoot:
    """A server whose metrics are read with a token."""

    def __init__(self, stage):
        self.admin = lambda: stage.server.admin(token=stage.root)


def partitions_of(stage, name, count):
    """Partitions of a node."""
    ns, found = stage.ns("web"), []
    for number in range(1_000):
        answer = ns.client.post(f"{ns.base}/explain", {"operation": "get", "pk": f"row-{number}"})
        (where,) = answer.json()["shards"]
        if stage.server.tier.owner(where["shard"]) == name:
            found.append(f"row-{number}")
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("stage", ["one server"], indirect=True)
def test_the_last_backup_is_old(stage, tmp_path):
    def backup(name):
        stage.run("backup", "--share", "100", "--to", str(tmp_path / name))

    def listed():
        return [one["location"] for one in json.loads(stage.run("backup", "ls", "-o", "json"))]

    stage.server.clock.go()
    assert stage.findings() == {} and listed() == [], "a store without backups is told nothing"
    backup("monday")
    assert listed() == [str(tmp_path / "monday")]

    def days_later(seconds):
        stage.server.stop()
        stage.server.clock.advance(seconds)
        stage.server.start()
        wait_until(listed, "the home has told it")

    days_later(7 * DAY_SECONDS - 600)
    assert "backup-old" not in stage.findings()
    days_later(600)
    finding = stage.findings()["backup-old"]
    assert finding["sentence"] == "the last backup is 7 days old; it is the only one"
    assert finding["severity"] == "warning"
    stage.is_told_everywhere(finding)
    backup("next")
    assert "backup-old" not in stage.findings()
    assert listed() == [str(tmp_path / name) for name in ("next", "monday")]


@pytest.fixture
def commits():
    commits = Commits()
    yield commits
    commits.close()


def test_a_disk_is_slow(new_server, commits):
    stage = Stage(new_server(environment=commits.environment()).start())
    writers = [stage.ns(f"writer-{number}") for number in range(5)]
    writes = [lambda ns=ns, at=at: ns.put("row", f"of-{at}", b"x") for at, ns in enumerate(writers)]

    def second(is_slow=True):
        if is_slow:
            commits.hold()
        waiting = Waiting(*writes)
        if is_slow:
            wait_until(commits.waiting, "a commit waits for the disk")
            stage.server.clock.advance(0.2)
            commits.let_go()
        waiting.answers()
        pass_seconds(stage.server, token=stage.root)

    finding = stage.until_slow(second)
    assert finding["sentence"].startswith("this server answers in ") and "; its disk takes " in finding["sentence"]
    stage.is_told_everywhere(finding)


@pytest.fixture
def cluster(new_server, new_tier):
    """A dispatcher and two nodes, whatever the other tests have."""
    return Stage(new_server(tier=new_tier("a", "b")).start())


def test_a_node_is_killed(cluster):
    stage = cluster
    name, node = list(stage.server.tier.nodes.items())[-1]
    stage.server.clock.go()
    node.kill()
    wait_until(lambda: "node-away" in stage.findings(), "the node is missed")
    found = stage.findings()
    assert found["node-away"]["subject"] == name
    assert found["node-away"]["sentence"].startswith(f"node '{name}' is not reachable: ")
    wait_until(lambda: "shard-not-serving" in stage.findings(), "its shards are missed")
    # Each new attempt to connect may fail for another reason.
    stage.server.clock.stop()
    stage.is_told_everywhere(stage.findings()["node-away"], "node-lost")
    stage.server.clock.go()
    node.start()
    wait_until(lambda: not {"node-away", "shard-not-serving"} & set(stage.findings()), "it is back")


def test_a_node_is_slow(cluster):
    stage, name = cluster, "b"
    node = stage.server.tier.nodes[name]
    readers = [Namespace(Client(stage.server.port, token=stage.root), "shop") for _ in range(5)]
    places = zip(readers, partitions_of(stage, name, len(readers)))
    asks = [lambda ns=ns, one=one: ns.get(one, **{"Cache-Control": "no-cache"}) for ns, one in places]

    def second(is_slow=True):
        if is_slow:
            node.pause()
        waiting = Waiting(*asks)
        if is_slow:
            wait_until(lambda: asked_of(AsRoot(stage), name) >= len(asks), "all are asked")
            stage.server.clock.advance(0.2)
            node.resume()
        waiting.answers()
        pass_seconds(stage.server, token=stage.root)

    finding = stage.until_slow(second)
    assert finding["subject"] == name and finding["severity"] == "problem"
    assert finding["sentence"].startswith(f"node {name} answers in ") and " ms (p99), usually in " in finding["sentence"]
    stage.is_told_everywhere(finding)
    shards = stage.server.admin(token=stage.root).get("/admin/v1/shards").json()["shards"]
    slow = {one["node"] for one in shards if one.get("p99_ms", 0) > 100}
    assert slow == {name}, shards
