"""Policies as data: made, changed and removed while the server works; kept over its end."""

import json
import threading
from decimal import Decimal

import pytest

from harness import IS_CASSANDRA, Namespace, wait_until
from quotas import (
    NEVER,
    QUOTAS,
    counters,
    in_threads,
    limited,
    names,
    policy,
    put_policy,
    rejected,
    rest,
    started,
    until_rejected,
    wait_ms,
)

BUILT_IN = {"default-caller": "built-in"}


def tag(answer):
    return answer.headers["etag"]


def test_a_policy_is_made_read_changed_and_removed(new_server):
    server = started(new_server())
    client = server.client()
    assert names(client) == BUILT_IN
    made = put_policy(client, policy("reads", 10, per=["caller"]))
    assert made.status == 201 and made.json()["dry_run"] is False
    assert "before" not in made.json() and made.json()["after"]["rate"] == 10
    shown = client.get(f"{QUOTAS}/reads")
    assert tag(shown) == tag(made) == f'"{shown.json()["version"]}"'
    assert shown.json()["source"] == "stored"
    full = {"name": "reads", "per": ["caller"], "unit": "requests", "rate": 10, "burst": 10,
            "refill": "50ms", "scope": "pod", "mode": "enforce", "status": 429}  # fmt: skip
    assert shown.json()["policy"] == full, "everything written out"
    other = json.dumps(full | {"rate": 20, "status": 419})
    changed = client.put(f"{QUOTAS}/reads", other, If_Match=tag(made))
    assert changed.status == 200 and tag(changed) != tag(made)
    assert changed.json()["before"] == full
    assert names(client) == BUILT_IN | {"reads": "stored"}
    removed = client.delete(f"{QUOTAS}/reads")
    assert removed.status == 200 and removed.json()["before"]["rate"] == 20
    assert "after" not in removed.json()
    client.delete(f"{QUOTAS}/reads").problem(404, "quota-not-found")
    client.get(f"{QUOTAS}/reads").problem(404, "quota-not-found")
    client.get(f"{QUOTAS}/reads/users").problem(404, "quota-not-found")
    assert names(client) == BUILT_IN


def test_making_is_not_changing(new_server):
    """Without a condition a stored policy stays, whoever asks and however often."""
    client = started(new_server()).client()
    made = put_policy(client, policy("reads", 10, per=["caller"]))
    same = client.put(f"{QUOTAS}/reads", json.dumps(policy("reads", 10, per=["caller"])))
    assert same.status == 200 and tag(same) == tag(made)
    assert same.json()["before"] == same.json()["after"]
    other = json.dumps(policy("reads", 20, per=["caller"]))
    for query in ("", "?dry_run=true"):
        refused = client.put(f"{QUOTAS}/reads{query}", other).problem(409, "quota-exists")
        assert "If-Match" in refused["detail"], refused
    assert client.get(f"{QUOTAS}/reads").json()["policy"]["rate"] == 10
    assert client.put(f"{QUOTAS}/reads", other, If_Match="*").status == 200
    # One that is built in is not stored, so storing one in its place is making it.
    assert client.put(f"{QUOTAS}/default-caller", json.dumps(policy("default-caller"))).status == 201


def test_the_admin_port_has_the_same(server, ns):
    name = limited(server, ns, burst=7)
    assert server.admin().get(f"{QUOTAS}/{name}").json()["policy"]["burst"] == 7
    assert names(server.admin()) == names(server.client())


def test_what_was_shown_can_be_put_back(server, ns):
    """All that can be said, said once; in one shape in and out."""
    name = f"of-{ns.name}"
    body = {
        "name": name,
        "match": {
            "caller": "search-*",
            "namespace": ns.name,
            "user": "*",
            "session": "s*t",
            "org": "o",
            "operations": ["get", "range"],
        },
        "per": ["caller", "user", "session", "org", "namespace", "shard"],
        "unit": "read-bytes",
        "rate": "64KiB",
        "burst": "1MiB",
        "refill": "1s",
        "scope": "shard",
        "mode": "shadow",
        "status": 419,
        "overrides": [
            {"match": {"caller": "search-web", "user": "v*"}, "rate": 70_000, "burst": "2MiB"},
            {"match": {"namespace": ns.name, "session": "sit"}, "rate": "1KiB"},
        ],
    }
    put_policy(server.client(), body)
    first = server.client().get(f"{QUOTAS}/{name}").json()["policy"]
    assert first["rate"] == 65_536 and first["overrides"][1]["burst"] == 1024
    again = put_policy(server.client(), first)
    assert again.status == 200 and again.json()["before"] == again.json()["after"] == first


@pytest.mark.parametrize("rate", ["0.1", "1", "2.5", "0.000001", "1e-6", '"0.5"', "999999999.999999"])
def test_rates_stay_what_they_are(server, ns, rate):
    name = f"of-{ns.name}"
    text = json.dumps(policy(name, match={"namespace": ns.name})).replace(str(NEVER), rate)
    assert server.client().put(f"{QUOTAS}/{name}", text).status == 201
    shown = server.client().get(f"{QUOTAS}/{name}").json()["policy"]
    assert Decimal(str(shown["rate"])) == Decimal(rate.strip('"'))


def test_a_change_counts_at_once_and_keeps_what_was_spent(server, ns):
    name = limited(server, ns, only=5)
    assert until_rejected(lambda: ns.get("a"), 6)[0] == 5
    for only in (50, 5, 500):
        limited(server, ns, name, only=only)
        assert rejected(ns.get("a")), "a change is no fresh burst"
    limited(server, ns, name, rate=1_000_000, burst=1_000_000)
    # The higher rate counts, also for what the earlier rejections are told to wait for.
    waits = []
    while rejected(answer := ns.get("a")):
        waits.append(wait_ms(answer))
        rest(server, waits[-1])
    assert sum(waits) <= 500, waits
    limited(server, ns, name, only=3)
    assert until_rejected(lambda: ns.get("a"), 4)[0] <= 3, "a lower burst cuts at once"
    assert ns.client.delete(f"{QUOTAS}/{name}").status == 200
    assert not any(rejected(ns.get("a")) for _ in range(20))
    assert "ratelimit" not in ns.get("a").headers


def test_if_match_lets_one_change_through(server, ns):
    """Eight at once, each having read the same version: one wins each round, nothing is lost."""
    name = limited(server, ns, rate=1, burst=100)
    wins = []

    def change(number):
        client, won = server.client(), 0
        for _ in range(6):
            while True:
                shown = client.get(f"{QUOTAS}/{name}")
                body = shown.json()["policy"] | {"burst": shown.json()["policy"]["burst"] + 1}
                answer = client.put(f"{QUOTAS}/{name}", json.dumps(body), If_Match=tag(shown))
                if answer.status == 200:
                    won += 1
                    wins.append(tag(answer))
                    break
                answer.problem(412, "precondition-failed")
                assert tag(answer) != tag(shown), "the current one is told"
        return won

    assert in_threads(8, change) == [6] * 8
    assert len(set(wins)) == 48
    assert server.client().get(f"{QUOTAS}/{name}").json()["policy"]["burst"] == 148


def test_if_none_match_makes_one(server, ns):
    name = f"of-{ns.name}"

    def make(number):
        body = json.dumps(policy(name, number + 1))
        return server.client().put(f"{QUOTAS}/{name}", body, If_None_Match="*").status

    assert sorted(in_threads(8, make)) == [201] + [412] * 7
    shown = server.client().get(f"{QUOTAS}/{name}")
    for headers in ({"If_Match": '"1"'}, {"If_None_Match": "*"}):
        server.client().delete(f"{QUOTAS}/{name}", **headers).problem(412, "precondition-failed")
    assert server.client().delete(f"{QUOTAS}/{name}", If_Match=tag(shown)).status == 200
    gone = server.client().put(f"{QUOTAS}/{name}", json.dumps(policy(name)), If_Match="*")
    gone.problem(412, "precondition-failed")


def test_a_dry_run_changes_nothing(server, ns):
    client, name = server.client(), limited(server, ns, only=5)
    before = client.get(f"{QUOTAS}/{name}")
    before_names = names(client)
    body = before.json()["policy"] | {"burst": 9}
    dry = client.put(f"{QUOTAS}/{name}?dry_run=true", json.dumps(body), If_Match=tag(before))
    assert dry.status == 200 and dry.json()["dry_run"] is True
    assert (dry.json()["before"]["burst"], dry.json()["after"]["burst"]) == (4.5, 9)
    assert "etag" not in dry.headers and "version" not in dry.json()
    new = client.put(f"{QUOTAS}/other-{name}?dry_run", json.dumps(policy(f"other-{name}")))
    assert new.status == 200 and "before" not in new.json()
    gone = client.delete(f"{QUOTAS}/{name}?dry_run=true")
    assert gone.status == 200 and gone.json()["before"]["burst"] == 4.5 and "after" not in gone.json()
    stale = client.put(f"{QUOTAS}/{name}?dry_run=true", json.dumps(body), If_Match='"1"')
    stale.problem(412, "precondition-failed")
    bad = client.put(f"{QUOTAS}/{name}?dry_run=true", json.dumps(body | {"rate": 0}))
    bad.problem(400, "quota-invalid")
    client.delete(f"{QUOTAS}/none-{name}?dry_run=true").problem(404, "quota-not-found")
    after = client.get(f"{QUOTAS}/{name}")
    assert tag(after) == tag(before) and after.json()["policy"] == before.json()["policy"]
    assert names(client) == before_names
    assert until_rejected(lambda: ns.get("a"), 6)[0] == 5


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_policies_survive(new_server, end):
    """Acknowledged means kept, kill -9 the very next moment included."""
    server = started(new_server())
    server.namespace()
    for number in range(1, 4):
        made = put_policy(server.client(), policy(f"p{number}", per=["caller"], only=number + 1))
        put_policy(server.client(), policy("changed", number, burst=100 + number))
        put_policy(server.client(), policy("gone"))
        assert server.client().delete(f"{QUOTAS}/gone").status == 200
        server.clock.go()
        getattr(server, end)()
        started(server)
        kept = {f"p{n}": "stored" for n in range(1, number + 1)}
        assert names(server.client()) == BUILT_IN | kept | {"changed": "stored"}
        shown = server.client().get(f"{QUOTAS}/p{number}")
        assert tag(shown) == tag(made) and shown.json()["policy"]["burst"] == number + 0.5
        assert server.client().get(f"{QUOTAS}/changed").json()["policy"]["rate"] == number
    ns = Namespace(server.client(), "demo")
    assert until_rejected(lambda: ns.get("a"), 3)[0] == 2, "the tightest of them is in effect"


def test_the_built_in_policy_gives_way_and_comes_back(new_server):
    server = started(new_server())
    ns, client = server.namespace(), server.client()
    built_in = client.get(f"{QUOTAS}/default-caller").json()
    assert built_in["policy"]["per"] == ["caller"] and "version" not in built_in
    client.delete(f"{QUOTAS}/default-caller").problem(404, "quota-not-found")
    made = put_policy(client, policy("default-caller", per=["caller"], only=2))
    assert made.status == 201 and made.json()["before"] == built_in["policy"]
    assert until_rejected(lambda: ns.get("a"), 3)[0] == 2
    assert names(client) == {"default-caller": "stored"}
    assert client.delete(f"{QUOTAS}/default-caller").json()["after"] == built_in["policy"]
    assert names(client) == BUILT_IN and not rejected(ns.get("a"))


def test_two_hundred_changes_drop_no_request_and_give_no_fresh_burst(new_server):
    """Policies come, go and change under load: every request is answered, the bound holds."""
    server = started(new_server())
    server.namespace("busy")
    # Of the test node, whose commit log is written later.
    warned = server.logged("WARN") if IS_CASSANDRA else []
    body = policy("steady", 50, burst=100, per=["caller"], match={"caller": "bounded"})
    put_policy(server.client(), body)
    stop, begun = threading.Event(), server.clock.monotonic()

    def load(number):
        ns, counts = Namespace(server.client(), "busy"), {"served": 0, "rejected": 0}
        own = {"Umbo-Quota-User": "bounded"} if number % 2 else {"Umbo-Quota-User": f"free-{number}"}
        while not stop.is_set():
            answer = ns.get("a", **own)
            assert answer.status in (404, 429), answer
            assert number % 2 or answer.status == 404, "nobody limits this one"
            counts["rejected" if rejected(answer) else "served"] += 1
        return counts

    def change(_):
        client = server.client()
        try:
            for number in range(100):
                # Another limit and back: no balance moves by it.
                put_policy(client, body | {"rate": 50 + number % 2})
                other = f"other-{number % 7}"
                if number % 3:
                    put_policy(client, policy(other, 1_000_000, per=["caller", "user"]))
                else:
                    assert client.delete(f"{QUOTAS}/{other}").status in (200, 404)
                server.clock.advance(0.02)
            wait_until(lambda: counters(client, "steady")["rejected"] > 100, "the load is more than may be")
        finally:
            stop.set()

    counts = in_threads(5, lambda number: change(number) if number == 4 else load(number))
    elapsed = server.clock.monotonic() - begun
    bounded = [counts[number] for number in (1, 3)]
    served = sum(count["served"] for count in bounded)
    assert sum(count["rejected"] for count in bounded) > 0
    # Each change may move it by one refill of 50 ms; none may give the burst again.
    assert 100 <= served <= 100 + 51 * elapsed + 51 * 0.05 * 100 + 3, (served, elapsed)
    assert counters(server.client(), "steady")["rejected"] >= sum(c["rejected"] for c in bounded)
    assert not server.logged("ERROR") and server.logged("WARN") == warned, server.log_text()[-2000:]


def test_there_is_room_for_so_many_and_no_more(new_server):
    server = started(new_server())
    client, ns = server.client(), server.namespace()
    for number in range(255):
        made = policy(f"p{number:03}", match={"caller": f"nobody-{number}"})
        assert client.put(f"{QUOTAS}/{made['name']}", json.dumps(made)).status == 201
    full = client.put(f"{QUOTAS}/one-more", json.dumps(policy("one-more")))
    assert "256" in full.problem(400, "quota-invalid")["detail"]
    assert len(names(client)) == 256
    assert put_policy(client, policy("p007", 5)).status == 200, "one that is there may change"
    assert client.delete(f"{QUOTAS}/p100").status == 200
    assert put_policy(client, policy("one-more", per=["caller"], only=2)).status == 201
    assert until_rejected(lambda: ns.get("a"), 3)[1].json()["policy"] == "one-more"


def test_quotas_are_for_administrators(closed):
    closed.namespace("shop")
    put_policy(closed.root, policy("there"))
    everything = [
        ("GET", QUOTAS, ""),
        ("GET", f"{QUOTAS}/there", ""),
        ("GET", f"{QUOTAS}/there/users", ""),
        ("PUT", f"{QUOTAS}/mine", json.dumps(policy("mine", 1_000_000))),
        ("PUT", f"{QUOTAS}/mine?dry_run=true", json.dumps(policy("mine", 1_000_000))),
        ("DELETE", f"{QUOTAS}/there", ""),
        ("DELETE", f"{QUOTAS}/not-there", ""),
        ("POST", f"{QUOTAS}/simulate", json.dumps({"policy": policy("mine")})),
    ]
    for grants in (["read,write,scan,delegate:*"], ["admin:shop"]):
        client = closed.caller("someone", *grants)
        for method, path, body in everything:
            client.request(method, path, body).problem(403, "forbidden")
    for method, path, body in everything:
        closed.server.client().request(method, path, body).problem(401, "unauthenticated")
        closed.server.admin().request(method, path, body).problem(401, "unauthenticated")
    assert names(closed.root) == BUILT_IN | {"there": "stored"}


def test_administration_is_not_counted(server, ns):
    """Who has spent everything can still be helped."""
    name = limited(server, ns, per=["caller"], only=2)
    until_rejected(lambda: ns.get("a"), 3)
    assert ns.client.get(f"/admin/v1/namespaces/{ns.name}").status == 200
    assert ns.client.get(f"{ns.base}/usage").status == 200
    assert ns.client.post(f"{ns.base}/explain", {"operation": "get", "pk": "a"}).status == 200
    users = ns.client.get(f"{QUOTAS}/{name}/users").json()
    (user,) = users["users"]
    assert user["label"] == "caller=anonymous" and user["balance"] <= 0 and user["rejected"] == 1
    assert user["limit"] == {"rate": NEVER, "burst": 1.5, "unit": "requests"}
    assert ns.client.delete(f"{QUOTAS}/{name}").status == 200
    assert ns.get("a").status == 404


def test_users_are_listed_busiest_first_and_bounded(server, ns):
    name = limited(server, ns, per=["user"], burst=100)
    for number in range(12):
        for _ in range(number + 1):
            ns.get("a", Umbo_User=f"u{number:02}")
    listed = ns.client.get(f"{QUOTAS}/{name}/users?limit=5").json()
    assert listed["policy"] == name and listed["total"] == 12 and len(listed["users"]) == 5
    observed = [user["observed"] for user in listed["users"]]
    assert observed == sorted(observed, reverse=True)
    everybody = ns.client.get(f"{QUOTAS}/{name}/users").json()["users"]
    balances = {user["label"]: user["balance"] for user in everybody}
    assert round(balances["user=u11"]) == 88 and round(balances["user=u00"]) == 99
    for limit in ("0", "-1", "10001", "many", ""):
        ns.client.get(f"{QUOTAS}/{name}/users?limit={limit}").problem(400, "invalid-query")
