"""Whose work keeps a shard busy: writes, ranges and multi-gets of one partition are named with their caller, beside others.

Time is counted in seconds of the server's clock: it runs while requests are made, and is moved on for each second that
is to end.
"""

import itertools

import pytest

from harness import Client, Namespace
from hot import make_token
from recorded import pass_seconds

BUSY = "/admin/v1/hot/busy"
PARTITION = "listing:17"
ROWS = 400
ROUNDS = 20
# Within two seconds a new source is named, and one that has ended is not.
SECONDS = 2
TIME_MS_MAX = 2**53 - 1


class Scene:
    """A server, callers with their own tokens, and the seconds in which they ask."""

    def __init__(self, server):
        self.server, self.numbers = server, itertools.count(1)
        self.root = make_token(server.client(), "root", "*:*")
        self.admin = server.admin(token=self.root)
        self.ns = server.namespace("shop", token=self.root)
        self.callers = {}

    def of(self, caller):
        if caller not in self.callers:
            token = make_token(self.ns.client, caller, "read,write,scan:*")
            self.callers[caller] = Namespace(Client(self.server.port, token=token), self.ns.name)
        return self.callers[caller]

    def background(self):
        """Reads and writes of many partitions by two other callers."""
        for number in itertools.islice(self.numbers, 10):
            self.of("web").get(f"p{number}")
            self.of("mail").put(f"p{number % 100}", value=b"x" * 100)

    def second(self, work=lambda number: None):
        """A second in which each round of work is made next to what others ask."""
        self.server.clock.go()
        for _ in range(ROUNDS):
            work(next(self.numbers))
            self.background()
        self.server.clock.stop()
        pass_seconds(self.server, token=self.root)

    def busy(self, **query):
        answer = self.admin.get(f"{BUSY}?" + "&".join(f"{name}={value}" for name, value in query.items()))
        assert answer.status == 200, answer
        return answer.json()


@pytest.fixture
def scene(new_server):
    # What is asked again and again is asked of the shard, too.
    server = new_server({"hotkey": {"enabled": False}}).start()
    scene = Scene(server)
    scene.ns.write([{"pk": PARTITION, "sk": f"{n:04}", "v": "x" * 1_000} for n in range(ROWS)])
    server.clock.stop()
    yield scene
    server.clock.go()


def writes(ns, number):
    answer = ns.write([{"pk": PARTITION, "sk": f"{n:04}", "v": f"{number}" * 300} for n in range(ROWS)])
    assert answer.status == 200, answer


def ranges(ns, number):
    for start in range(5):
        assert ns.range(PARTITION, start=f"{start:04}", limit=ROWS).status == 200


def multi_gets(ns, number):
    keys = [{"pk": PARTITION, "sk": f"{n:04}"} for n in range(ROWS)]
    for _ in range(5):
        assert ns.multi_get(keys + [{"pk": f"p{n}"} for n in range(20)]).status == 200


KINDS = {"batch-write": writes, "range": ranges, "multi-get": multi_gets}


def of_crawler(report):
    """The shard whose largest source is the crawler in the partition, with that source."""
    firsts = [(shard, shard["sources"][0]) for shard in report["shards"] if shard["sources"]]
    found = [(shard, one) for shard, one in firsts if (one.get("caller"), one.get("pk")) == ("crawler", PARTITION)]
    return found[0] if found else None


def source_of_crawler(report, operation):
    """The source that is the crawler in the partition, by this operation."""
    sources = [one for shard in report["shards"] for one in shard["sources"]]
    sign = ("crawler", operation, "shop", PARTITION)
    return next((one for one in sources if (one.get("caller"), one["operation"], one.get("namespace"), one.get("pk")) == sign), None)


@pytest.mark.parametrize("operation", KINDS)
def test_a_hot_partition_is_named_with_its_caller_and_leaves_when_it_ends(scene, operation):
    scene.second()
    before = scene.busy()
    assert of_crawler(before) is None, before
    callers = {one.get("caller") for shard in before["shards"] for one in shard["sources"]}
    assert "mail" in callers, before
    crawler = scene.of("crawler")
    for _ in range(SECONDS):
        scene.second(lambda number: KINDS[operation](crawler, number))
        if named := of_crawler(scene.busy()):
            break
    assert named, scene.busy()
    shard, source = named
    assert (source["operation"], source["namespace"]) == (operation, "shop"), named
    assert 0 < source["share"] <= 1 and shard["busy"] > 0
    assert sum(one["share"] for one in shard["sources"]) <= 1.0001
    then = scene.busy()
    (same,) = scene.busy(shard=shard["shard"])["shards"]
    assert same == of_crawler(then)[0]
    for _ in range(SECONDS):
        scene.second()
    now = scene.busy()
    assert "crawler" not in {one.get("caller") for shard in now["shards"] for one in shard["sources"]}, now
    # The time that it was is looked at: by its second, one of those two, and by the step of the map.
    seconds = range(then["start_ms"], then["start_ms"] + then["step_ms"], 1000)
    at = next(at + 999 for at in seconds if source_of_crawler(scene.busy(at=at), operation))
    past = source_of_crawler(scene.busy(at=at), operation)
    row = scene.admin.get(f"/admin/v1/heat/{shard['shard']}?range=5m&at={at}").json()
    assert (row["start_ms"], row["step_ms"]) == (at // 1000 * 1000, 1000)
    assert past in row["sources"] and row["busy"] > 0
    scene.second()
    row = scene.admin.get(f"/admin/v1/heat/{shard['shard']}?range=1h&at={at}").json()
    assert row["start_ms"] <= at < row["start_ms"] + row["step_ms"] == row["start_ms"] + 10_000
    assert "crawler" in {one.get("caller") for one in row["sources"]}, row


def test_a_scan_is_named_by_its_caller(scene):
    crawler = scene.of("crawler")
    scene.second(lambda number: [crawler.scan() for _ in range(5)])
    found = [one for shard in scene.busy()["shards"] for one in shard["sources"]]
    (scan, *_) = [one for one in found if (one.get("caller"), one["operation"]) == ("crawler", "scan")]
    assert "pk" not in scan and scan["namespace"] == "shop"


def test_a_partition_is_named_by_all_its_bytes_and_only_while_its_namespace_is_there(scene):
    long = b"\xff\x00" * 512
    rows = [{"pk64": "_wA", "sk": f"{n}", "v": "x" * 500} for n in range(ROWS)]
    scene.second(lambda number: [scene.of("crawler").write(rows), scene.of("web").put(long, value=b"x" * 100_000)])
    found = [one for shard in scene.busy()["shards"] for one in shard["sources"]]
    assert any(one.get("pk64") == "_wA" for one in found), found
    scene.ns.client.delete("/admin/v1/namespaces/shop")
    report = scene.busy()
    assert report["shards"] == [] or all("pk64" not in one for shard in report["shards"] for one in shard["sources"])


def test_times_and_shards_that_cannot_be_are_refused(scene):
    scene.second()
    for route in (BUSY, "/admin/v1/heat/0", "/admin/v1/heat"):
        for time in (TIME_MS_MAX + 1, 2**64, -1, "", "now"):
            scene.admin.get(f"{route}?at={time}").problem(400, "invalid-query")
    for route in (BUSY, "/admin/v1/heat/0"):
        assert scene.admin.get(f"{route}?at={TIME_MS_MAX}").status == 200
        assert scene.admin.get(f"{route}?at=0").json().get("sources", []) == []
    for shard in (65_536, -1, "", "x"):
        scene.admin.get(f"{BUSY}?shard={shard}").problem(400, "invalid-query")
    assert scene.busy(shard=65_535)["shards"] == []
    reader = Client(scene.server.admin_port, token=make_token(scene.ns.client, "reader", "observe:shop"))
    reader.get(BUSY).problem(403, "forbidden")
