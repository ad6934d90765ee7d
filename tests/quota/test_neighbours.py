"""One bad neighbour cannot hurt the others."""

import threading

from harness import Namespace, wait_until
from quotas import charged, in_threads, micros, policy, put_policy, rejected, rows_of, total, usage

RATE, BURST = 300, 600


def test_a_flood_of_large_ranges_leaves_the_neighbour_alone(closed):
    """A floods far beyond its quota; B, within its own, is never refused and A stays bounded."""
    closed.namespace("shared")
    writer = Namespace(closed.root, "shared")
    for part in range(5):
        rows = [{"pk": "big", "sk": f"{part}-{n:04}", "v": "x" * 60} for n in range(1000)]
        assert writer.write(rows).status == 200
    limit = {"per": ["caller"], "unit": "ru", "match": {"namespace": "shared"}}
    put_policy(closed.root, policy("fair", RATE, burst=BURST, **limit) | {
        "overrides": [{"match": {"caller": "root"}, "rate": 1_000_000}]
    })
    tokens = {name: closed.caller(name, "read:shared").token for name in ("flood", "calm")}
    stop, clock = threading.Event(), closed.server.clock
    begun = clock.monotonic()
    largest, refused = [0] * 4, [0] * 4

    def flood(number):
        ns = Namespace(closed.server.client(token=tokens["flood"]), "shared")
        while not stop.is_set():
            answer = ns.range("big", limit=100_000)
            assert answer.status in (200, 429), answer
            if rejected(answer):
                refused[number] += 1
            else:
                largest[number] = max(largest[number], charged(answer))

    def calm():
        ns, statuses = Namespace(closed.server.client(token=tokens["calm"]), "shared"), []
        try:
            for _ in range(200):
                statuses.append(ns.get("big", "1-0007").status)
                clock.advance(0.005)
            wait_until(lambda: min(refused) > 20, "the flood goes on beyond its quota")
        finally:
            stop.set()
        return statuses

    statuses = in_threads(5, lambda number: calm() if number == 4 else flood(number))[4]
    elapsed = clock.monotonic() - begun
    assert 0.99 < elapsed < 1.01
    report = usage(closed.root, "shared")
    a, b = (rows_of(report, caller, op) for caller, op in (("flood", "range"), ("calm", "get")))
    assert statuses == [200] * 200 and total(b, "rejected") == 0 and total(b, "requests") == 200
    assert total(a, "rejected") > total(a, "requests") > 0
    # What is under way when the bucket runs dry is paid off afterwards: one request a connection.
    allowed = (BURST + RATE * elapsed) * 1_000_000 + sum(largest)
    assert sum(micros(row["ru"]) for row in a) <= allowed


def test_a_caller_nobody_configured_is_bounded_by_the_default(closed):
    """The built-in policy can be made strict for everybody; each caller has its own bucket."""
    closed.namespace("demo")
    put_policy(closed.root, policy("default-caller", only=4, per=["caller"]) | {
        "overrides": [{"match": {"caller": "root"}, "rate": 1000}]
    })
    for name in ("one", "two", "three"):
        ns = Namespace(closed.caller(name, "read:*"), "demo")
        assert [rejected(ns.get("a")) for _ in range(6)] == [False] * 4 + [True] * 2, name
    put_policy(closed.root, policy("default-caller", 1000, per=["caller"]))
    assert not rejected(Namespace(closed.caller("four", "read:*"), "demo").get("a"))


def test_two_tokens_of_one_name_are_one_caller(closed):
    closed.namespace("demo")
    put_policy(closed.root, policy("small", only=4, per=["caller"], match={"caller": "job"}))
    first, second = (Namespace(closed.caller("job", "read:*"), "demo") for _ in range(2))
    assert [rejected(ns.get("a")) for ns in (first, second) * 3] == [False] * 4 + [True] * 2


def test_another_name_is_no_way_around(closed):
    """What a caller may say of itself without a grant changes nothing of what it may spend."""
    closed.namespace("demo")
    put_policy(closed.root, policy("small", only=4, per=["caller"], match={"caller": "job*"}))
    token = closed.caller("job", "read:*").token
    found = []
    for n in range(8):
        ns = Namespace(closed.server.client(token=token), "demo")
        headers = {"Umbo-Request-Id": f"r{n}", "Umbo-Quota-User": f"u{n}", "Umbo-User": f"u{n}",
                   "Umbo-Attempt": str(n + 1), "X-Forwarded-For": f"10.0.0.{n}", "Umbo-Org": "o",
                   "Umbo-Criticality": "sheddable"}  # fmt: skip
        found.append(rejected(ns.get(f"k{n}", **headers)))
    assert found == [False] * 4 + [True] * 4
