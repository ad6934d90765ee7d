"""What a rejected caller is told, in every unit, scope and status; and what a rejection leaves."""

import pytest

from harness import Namespace, read_answer
from quotas import (
    LEFT,
    NEVER,
    QUOTA,
    charged,
    check_rejection,
    counters,
    limited,
    rejected,
    rest,
    total,
    until_rejected,
    usage,
    wait_ms,
)


@pytest.mark.parametrize("status", [429, 419])
def test_a_rejection_says_all_that_a_caller_needs(server, ns, status):
    name = limited(server, ns, per=["caller"], only=3, status=status)
    served, answer = until_rejected(lambda: ns.get("a"), 4)
    assert served == 3, "no more and no less than the burst"
    told = {"unit": "requests", "rate": NEVER, "burst": 2.5, "scope": "caller", "status": status}
    check_rejection(answer, name, **told)
    assert "outcome" not in answer.json()
    put = ns.put("a", value=b"x" * 100_000)
    check_rejection(put, name, **told)
    assert put.json()["outcome"] == put.headers["umbo-outcome"] == "not-applied"
    head = ns.client.request("HEAD", ns.path("a"))
    assert head.status == status and head.body == b"" and wait_ms(head) > 0
    for ask in (
        lambda: ns.range("a"),
        lambda: ns.scan(),
        lambda: ns.delete("a"),
        lambda: ns.write([{"pk": "a", "v": "x"}]),
        lambda: ns.multi_get([{"pk": "a"}]),
        lambda: ns.client.delete(f"{ns.base}/range/a?all=true"),
    ):
        check_rejection(ask(), name, **told)
    assert counters(ns.client, name)["rejected"] == 9
    report = usage(ns.client, ns.name)
    assert total(report["rows"], "rejected") == 9 and total(report["rows"], "requests") == 3


def test_the_meaning_of_the_code_can_be_read(server):
    answer = server.client().get("/v1/errors/quota-exceeded")
    assert answer.status == 200 and b"wait" in answer.body


def test_a_rejected_request_does_nothing(server, ns):
    limited(server, ns, unit="writes", only=2)
    assert (ns.put("a").status, ns.put("a", value=b"first").status) == (201, 204)
    for answer in (
        ns.put("a", value=b"second"),
        ns.put("b", value=b"x"),
        ns.delete("a"),
        ns.write([{"pk": "c", "v": "x"}, {"op": "del", "pk": "a"}]),
        ns.write([{"pk": "c", "v": "x"}], "?atomic=partition"),
        ns.client.delete(f"{ns.base}/range/a?all=true"),
    ):
        assert rejected(answer), answer
    assert [row["v"] for row in ns.scan_all()] == ["first"]


def test_a_body_is_refused_before_it_is_sent(server, ns):
    """A client that asks first (Expect) is spared the body; one that sends it may go on."""
    limited(server, ns, only=2)
    assert until_rejected(lambda: ns.get("a"), 3)[0] == 2
    head = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n"
    with server.raw((head + "Expect: 100-continue\r\n\r\n").encode()) as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 429")
    for body in (b"", b"x", b"x" * 900_000):
        assert rejected(ns.put("a", value=body))
        assert ns.client.get("/healthz").status == 200
    text = f"GET {ns.path('a')} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    with server.raw(text * 50) as sock, sock.makefile("rb") as reader:
        assert [read_answer(reader).status for _ in range(50)] == [429] * 50


UNITS = {
    # What spends it all, what is then rejected, what is not.
    "requests": (["get", "put"], ["get", "put", "range", "delete", "scan"], []),
    "reads": (["multi-get"], ["get", "range", "scan", "multi-get"], ["put", "delete", "batch-write"]),
    "writes": (["batch-write"], ["put", "delete", "batch-write", "delete-range"], ["get", "scan"]),
    "ru": (["put"], ["get", "put", "range", "delete"], []),
    "read-bytes": (["range"], ["get", "range", "scan", "multi-get"], ["put", "delete"]),
    "write-bytes": (["put"], ["put", "batch-write"], ["get", "range", "scan"]),
    "bytes": (["range"], ["get", "put", "scan"], []),
}


def ask(ns, what):
    match what:
        case "get":
            return ns.get("p", "s")
        case "put":
            return ns.put("p", "s", b"v" * 4000)
        case "delete":
            return ns.delete("gone")
        case "range":
            return ns.range("p")
        case "scan":
            return ns.scan()
        case "multi-get":
            return ns.multi_get([{"pk": "p", "sk": "s"}, {"pk": "q"}])
        case "batch-write":
            return ns.write([{"pk": "q", "v": "1"}, {"pk": "r", "v": "2"}])
        case "delete-range":
            return ns.client.delete(f"{ns.base}/range/gone?all=true")


@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_counts_what_it_says(server, ns, unit):
    spends, refused, admitted = UNITS[unit]
    assert ask(ns, "put").status == 201
    name = limited(server, ns, unit=unit, burst=1.5 if unit in ("requests", "reads", "writes") else 6)
    for what in spends:
        assert ask(ns, what).status < 400, what
    for what in refused:
        answer = ask(ns, what)
        assert rejected(answer), (unit, what, answer)
        assert answer.json()["limit"]["unit"] == unit and answer.json()["scope"] == "pod"
    for what in admitted:
        answer = ask(ns, what)
        assert answer.status < 300 and "ratelimit" not in answer.headers, (unit, what, answer)
    assert counters(ns.client, name)["rejected"] == len(refused)


@pytest.mark.parametrize(
    ("per", "scope"),
    [
        ([], "pod"),
        (["caller"], "caller"),
        (["namespace"], "namespace"),
        (["caller", "namespace"], "caller"),
        (["user"], "caller"),
        (["org", "session"], "caller"),
        (["shard"], "shard"),
        (["namespace", "shard"], "shard"),
    ],
    ids=str,
)
def test_the_scope_is_named(server, ns, per, scope):
    name = limited(server, ns, per=per, only=2)
    who = {"Umbo_User": "u", "Umbo_Org": "o", "Umbo_Session": "s"}
    # What another request has just read asks no shard.
    served, answer = until_rejected(lambda: ns.get("a", Cache_Control="no-cache", **who), 3)
    assert served == 2
    check_rejection(answer, name, unit="requests", rate=NEVER, burst=1.5, scope=scope)


def test_all_policies_must_admit_and_the_one_that_does_not_is_named(server, ns):
    """What one policy refuses is taken from none of the others."""
    limited(server, ns, f"wide-{ns.name}", only=10)
    narrow = limited(server, ns, f"narrow-{ns.name}", only=2, match={"operations": ["get"]})
    for _ in range(2):
        assert ns.get("a").status == 404
    for _ in range(20):
        assert ns.get("a").json()["policy"] == narrow
    puts = [ns.put("a").status for _ in range(9)]
    assert puts == [201] + [204] * 7 + [429], "the wide one lost two by gets and eight by puts"


def test_what_is_left_is_said_while_it_lasts(server, ns):
    name = limited(server, ns, per=["caller"], burst=5, rate=0.5)
    for left in (4, 3, 2, 1, 0):
        answer = ns.get("a")
        found, quota = LEFT.match(answer.headers["ratelimit"]), QUOTA.match(answer.headers["ratelimit-policy"])
        assert found.group(1) == name and quota.groups() == (name, "5", "10", "requests"), answer
        assert int(found.group(2)) == left, answer
        assert int(found.group(3)) >= 1, answer
    other = server.namespace(ns.name + "-other")
    assert "ratelimit" not in other.get("a").headers, "only where somebody configured it"


def test_the_tightest_of_several_is_said(server, ns):
    limited(server, ns, f"wide-{ns.name}", only=1000)
    tight = limited(server, ns, f"tight-{ns.name}", only=4)
    limited(server, ns, f"shadow-{ns.name}", only=2, mode="shadow")
    assert LEFT.match(ns.get("a").headers["ratelimit"]).group(1) == tight


@pytest.mark.parametrize("refill_ms", [10, 50, 400])
def test_no_wait_is_shorter_than_a_refill_nor_in_vain(server, ns, refill_ms):
    """One caller that waits as told is served when it comes back, time after time."""
    limited(server, ns, rate=10, burst=10, refill=f"{refill_ms}ms")
    in_vain = 0
    for _ in range(12):
        _, answer = until_rejected(lambda: ns.get("a"), 60)
        assert wait_ms(answer) >= refill_ms
        rest(server, wait_ms(answer))
        in_vain += rejected(ns.get("a", Umbo_Retry_Ticket=answer.headers["umbo-retry-ticket"]))
    assert in_vain == 0


def test_a_shard_has_a_ceiling_of_its_own(server):
    """The hot shard is refused, whoever asks and whatever for; the others go on."""
    ns = server.namespace("per-shard")
    name = limited(server, ns, scope="shard", only=30)
    served, answer = until_rejected(lambda: ns.get("hot", Cache_Control="no-cache"), 40)
    assert served == 30
    check_rejection(answer, name, unit="requests", rate=NEVER, burst=29.5, scope="shard")
    found = {rejected(ns.get(f"key-{n}")) for n in range(48)}
    assert found == {True, False}, "some keys live on the hot shard and some do not"
    report = usage(ns.client, "per-shard")
    assert rejected(ns.scan()) and rejected(ns.multi_get([{"pk": f"key-{n}"} for n in range(48)]))
    shards = {shard["shard"]: shard["requests"] for shard in report["shards"]}
    assert max(shards.values()) == 30 and len(shards) > 1
    users = ns.client.get(f"/admin/v1/quotas/{name}/users").json()
    hot = [user for user in users["users"] if user["rejected"]]
    assert len(hot) == 1 and hot[0]["label"].startswith("shard="), users


def test_a_large_request_is_admitted_and_paid_off(server, ns):
    """One that costs more than the burst is not refused for ever; a minute of the rate is owed for it."""
    lines = [{"pk": "p", "sk": f"{n:04}", "v": "x" * 1000} for n in range(1000)]
    assert ns.write(lines).status == 200
    name = limited(server, ns, unit="ru", rate=1, burst=2)
    answer = ns.range("p", limit=1000)
    assert charged(answer) > 250_000_000
    refused = ns.get("p", "0001")
    wait = check_rejection(refused, name, unit="ru", rate=1, burst=2, scope="pod")
    assert wait > 1000
    (user,) = ns.client.get(f"/admin/v1/quotas/{name}/users").json()["users"]
    assert -60 <= user["balance"] < -50 and user["limit"] == {"rate": 1, "burst": 2, "unit": "ru"}


def test_shadow_never_refuses_and_is_counted(server, ns):
    name = limited(server, ns, only=3, mode="shadow", per=["caller"])
    for _ in range(20):
        answer = ns.get("a")
        assert answer.status == 404 and "ratelimit" not in answer.headers
    found = counters(ns.client, name)
    assert (found["rejected"], found["shadow_rejected"]) == (0, 17)
    text = server.admin().get("/metrics").body.decode()
    assert f'umbo_policy_shadow_rejected_total{{policy="{name}"}} 17' in text
    # It becomes a real one, and back, and never refuses while it is none.
    limited(server, ns, name, only=3, per=["caller"])
    assert rejected(until_rejected(lambda: ns.get("a"), 4)[1])
    limited(server, ns, name, only=3, per=["caller"], mode="shadow")
    assert ns.get("a").status == 404


def test_a_shadow_does_not_change_what_is_enforced(server, ns):
    enforced = limited(server, ns, f"real-{ns.name}", only=5)
    limited(server, ns, f"a-shadow-{ns.name}", only=2, mode="shadow")
    limited(server, ns, f"z-shadow-{ns.name}", only=2, mode="shadow", status=419)
    served, answer = until_rejected(lambda: ns.get("a"), 6)
    assert served == 5 and answer.json()["policy"] == enforced and answer.status == 429


def test_the_same_connection_goes_on(server, ns):
    limited(server, ns, only=2)
    client = server.client()
    own = Namespace(client, ns.name)
    assert until_rejected(lambda: own.get("a"), 3)[0] == 2
    used = client.connection.sock
    for _ in range(200):
        assert rejected(own.get("a")) and rejected(own.put("a", value=b"x" * 100))
    assert client.connection.sock is used, "a rejection costs no connection"
