"""Policies that cannot be: refused with the place and the values, and the running ones stay."""

import json

import pytest

from harness import quote
from quotas import NEVER, QUOTAS, limited, names, policy, until_rejected

HUGE = "9" * 400
# What to change in a good policy `bad` (1000 requests a second per caller), and what the refusal says.
INVALID = {
    "unknown unit": ({"unit": "tokens"}, ["'bad': unit", "tokens"]),
    "unit in capitals": ({"unit": "RU"}, ["'bad': unit", "RU"]),
    "empty unit": ({"unit": ""}, ["'bad': unit"]),
    "rate 0": ({"rate": 0}, ["'bad': rate", "0"]),
    "rate -0": ({"rate": "-0"}, ["'bad': rate", "-0"]),
    "rate 0.0": ({"rate": 0.0}, ["'bad': rate", "0"]),
    "rate negative": ({"rate": -5}, ["'bad': rate", "-5"]),
    "rate too fine": ({"rate": "0.0000001"}, ["'bad': rate", "0.0000001"]),
    "rate too high": ({"rate": 1_000_000_001}, ["'bad': rate", "1000000001", "1000000000"]),
    "rate of 2^64": ({"rate": 1 << 64}, ["'bad': rate"]),
    "rate of 2^63": ({"rate": 1 << 63}, ["'bad': rate", "9223372036854775808"]),
    "rate 1e300": ({"rate": 1e300}, ["'bad': rate"]),
    "rate of many digits": ({"rate": HUGE}, ["'bad': rate"]),
    "rate NaN": ({"rate": "NaN"}, ["'bad': rate", "NaN"]),
    "rate inf": ({"rate": "inf"}, ["'bad': rate", "inf"]),
    "rate no number": ({"rate": "many"}, ["'bad': rate", "many"]),
    "rate empty": ({"rate": ""}, ["'bad': rate"]),
    "rate with a sign": ({"rate": "+5"}, ["'bad': rate", "+5"]),
    "rate in other digits": ({"rate": "\u0661"}, ["'bad': rate"]),
    "rate in hex": ({"rate": "0x10"}, ["'bad': rate", "0x10"]),
    "rate with spaces": ({"rate": " 5"}, ["'bad': rate"]),
    "rate of a size": ({"rate": "64KiB"}, ["'bad': rate", "64KiB"]),
    "half a byte": ({"unit": "bytes", "rate": 0.5}, ["'bad': rate", "0.5"]),
    "size too large": ({"unit": "bytes", "rate": "999999999999GiB"}, ["'bad': rate"]),
    "burst 0": ({"burst": 0}, ["'bad': burst", "0"]),
    "burst below one": ({"rate": 1, "burst": 0.5}, ["'bad': burst", "0.5", "1"]),
    "burst negative": ({"burst": -1}, ["'bad': burst", "-1"]),
    "burst below a refill": ({"burst": 1}, ["'bad': burst", "burst 1 ", "rate 1000", "50ms"]),
    "burst below a long refill": (
        {"burst": 9_999, "refill": "10s"},
        ["'bad': burst", "9999", "1000", "10000", "10s"],
    ),
    "burst too high": ({"burst": 50_000_000_001}, ["'bad': burst", "50000000001"]),
    "burst never gathered": ({"rate": "0.000001", "burst": 5}, ["'bad': burst", "0.000001"]),
    "unknown dimension": ({"per": ["caller", "galaxy"]}, ["'bad': per[1]", "galaxy"]),
    "dimension twice": ({"per": ["caller", "user", "caller"]}, ["'bad': per[2]", "caller"]),
    "refill of no unit": ({"refill": "50"}, ["'bad': refill", "50"]),
    "refill too short": ({"refill": "9ms"}, ["'bad': refill", "9ms", "10ms"]),
    "refill too long": ({"refill": "11s"}, ["'bad': refill", "11s", "10s"]),
    "refill of parts": ({"refill": "10.5ms"}, ["'bad': refill", "10.5ms"]),
    "refill negative": ({"refill": "-50ms"}, ["'bad': refill", "-50ms"]),
    "unknown scope": ({"scope": "galaxy"}, ["'bad': scope", "galaxy"]),
    "scope against per": ({"scope": "pod", "per": ["shard"]}, ["'bad': scope", "pod", "shard"]),
    "fleet against per": ({"scope": "fleet", "per": ["shard"]}, ["'bad': scope", "fleet", "shard"]),
    "unknown mode": ({"mode": "maybe"}, ["'bad': mode", "maybe"]),
    "status 500": ({"status": 500}, ["'bad': status", "500"]),
    "status 428": ({"status": 428}, ["'bad': status", "428"]),
    "unknown operation": ({"match": {"operations": ["get", "fly"]}}, ["operations[1]", "fly"]),
    "operation twice": ({"match": {"operations": ["get", "get"]}}, ["operations[1]", "get"]),
    "no such thing counted": (
        {"unit": "writes", "match": {"operations": ["get", "scan"]}},
        ["'bad': match.operations", "writes", "get", "scan"],
    ),
    "no namespace": ({"match": {"namespace": "Caf\u00e9"}}, ["'bad': match.namespace"]),
    "empty pattern": ({"match": {"caller": ""}}, ["'bad': match.caller"]),
    "long pattern": ({"match": {"caller": "c" * 257}}, ["'bad': match.caller"]),
    "override of nobody": ({"overrides": [{"match": {}, "rate": 5}]}, ["overrides[0].match"]),
    "override of all": (
        {"overrides": [{"match": {"caller": "*"}, "rate": 5}]},
        ["overrides[0].match", "1000"],
    ),
    "override outside per": (
        {"overrides": [{"match": {"user": "x"}, "rate": 5}]},
        ["overrides[0].match.user", "caller"],
    ),
    "override of operations": (
        {"overrides": [{"match": {"caller": "x", "operations": ["get"]}, "rate": 5}]},
        ["overrides[0].match.operations"],
    ),
    "override of none": (
        {"match": {"caller": "a*"}, "overrides": [{"match": {"caller": "b"}, "rate": 5}]},
        ["overrides[0].match.caller", "'b'", "'a*'"],
    ),
    "override twice": (
        {"overrides": [{"match": {"caller": "x"}, "rate": n} for n in (5, 6)]},
        ["overrides[1].match", "overrides[0]", "5", "6"],
    ),
    "override of nothing": (
        {"overrides": [{"match": {"caller": "x"}, "rate": 0}]},
        ["overrides[0].rate", "0"],
    ),
    "override below a refill": (
        {"overrides": [{"match": {"caller": "x"}, "rate": 1000, "burst": 2}]},
        ["overrides[0].burst", "2", "1000"],
    ),
    "too many overrides": (
        {"overrides": [{"match": {"caller": f"x{n}"}, "rate": 5} for n in range(257)]},
        ["'bad': overrides", "257", "256"],
    ),
    "another name": ({"name": "other"}, ["'bad'", "'other'"]),
}
# What the policy has to be, as text, for the shape itself to be wrong.
MALFORMED = {
    "nothing": "",
    "cut off": '{"name":"bad","unit":"ru"',
    "a list": "[]",
    "a list of fields": '["bad",{},[],"ru",1]',
    "null": "null",
    "a number": "5",
    "no rate": '{"name":"bad","unit":"ru"}',
    "no unit": '{"name":"bad","rate":5}',
    "no name": '{"unit":"ru","rate":5}',
    "unknown field": '{"name":"bad","unit":"ru","rate":5,"rates":6}',
    "unknown field of match": '{"name":"bad","unit":"ru","rate":5,"match":{"caler":"x"}}',
    "field twice": '{"name":"bad","unit":"ru","rate":5,"rate":6}',
    "rate a list": '{"name":"bad","unit":"ru","rate":[5]}',
    "rate null": '{"name":"bad","unit":"ru","rate":null}',
    "rate true": '{"name":"bad","unit":"ru","rate":true}',
    "rate NaN": '{"name":"bad","unit":"ru","rate":NaN}',
    "rate 1e999": '{"name":"bad","unit":"ru","rate":1e999}',
    "name a number": '{"name":5,"unit":"ru","rate":5}',
    "per a text": '{"name":"bad","unit":"ru","rate":5,"per":"caller"}',
    "status a text": '{"name":"bad","unit":"ru","rate":5,"status":"429"}',
    "status 70000": '{"name":"bad","unit":"ru","rate":5,"status":70000}',
    "refill a number": '{"name":"bad","unit":"ru","rate":5,"refill":50}',
    "overrides an object": '{"name":"bad","unit":"ru","rate":5,"overrides":{}}',
    "no UTF-8": b'{"name":"bad\xff","unit":"ru","rate":5}',
    "NUL": "\x00",
    "more after it": '{"name":"bad","unit":"ru","rate":5} x',
    "deep": "[" * 100_000,
}


@pytest.fixture(scope="module")
def guarded(server):
    """The server with one good policy; at the end it is as it was, and works."""
    ns = server.namespace("guarded")
    name = limited(server, ns, only=3)
    yield server.client()
    assert names(server.client()) == {"default-caller": "built-in", name: "stored"}
    assert until_rejected(lambda: ns.get("a"), 4)[0] == 3
    assert not server.logged("ERROR")


def refusals(client, body):
    """The same body wherever a policy is taken."""
    yield client.put(f"{QUOTAS}/bad", body)
    yield client.put(f"{QUOTAS}/bad?dry_run=true", body)
    body = body.encode() if isinstance(body, str) else body
    yield client.post(f"{QUOTAS}/simulate", b'{"policy":' + body + b"}")


@pytest.mark.parametrize("what", INVALID)
def test_a_policy_that_cannot_be(guarded, what):
    change, parts = INVALID[what]
    body = json.dumps(policy("bad", 1000, per=["caller"]) | change)
    for number, answer in enumerate(refusals(guarded, body)):
        if number == 2 and what == "another name":
            continue
        detail = answer.problem(400, "quota-invalid")["detail"]
        for part in parts:
            assert part in detail, detail
        assert len(detail) < 2000, "what was sent is not sent back whole"


@pytest.mark.parametrize("what", MALFORMED)
def test_a_body_that_is_no_policy(guarded, what):
    for answer in refusals(guarded, MALFORMED[what]):
        answer.problem(400, "invalid-body")


def test_a_body_too_large(guarded):
    body = json.dumps(policy("bad", 5, per=["caller"]) | {"match": {"caller": "x" * 4_000_000}})
    guarded.put(f"{QUOTAS}/bad", body).problem(413, "body-too-large")
    guarded.post(f"{QUOTAS}/simulate", body).problem(413, "body-too-large")


@pytest.mark.parametrize("name", ["Bad", "-bad", "b d", "b\u00e4d", "", "a" * 65, "a/b", "..", "%00", "\x7f"])
def test_names_that_are_none(guarded, name):
    body = json.dumps(policy(name, 5))
    path = f"{QUOTAS}/{quote(name)}"
    assert guarded.put(path, body).status in (400, 404, 405), name
    assert guarded.delete(path).status in (404, 405), name
    if name:
        guarded.get(path).problem(404, "quota-not-found")
    simulated = guarded.post(f"{QUOTAS}/simulate", {"policy": policy(name, 5)})
    simulated.problem(400, "quota-invalid")


def test_the_longest_name_is_one(guarded):
    name = "a" + "-._9" * 15 + "zzz"
    body = json.dumps(policy(name, NEVER))
    assert len(name) == 64
    assert guarded.put(f"{QUOTAS}/{name}", body).status == 201
    assert guarded.delete(f"{QUOTAS}/{name}").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "?limit=5"),
        ("GET", "/guarded?dry_run=true"),
        ("DELETE", "/guarded?dry_run=maybe"),
        ("DELETE", "/guarded?force=true"),
        ("PUT", "/guarded?dry_run=true&dry_run=false"),
        ("POST", "/simulate?last=5"),
    ],
)
def test_queries_that_cannot_be(guarded, method, path):
    guarded.request(method, QUOTAS + path, json.dumps(policy("bad"))).problem(400, "invalid-query")


@pytest.mark.parametrize("value", ["5", '"x', "W/", '"1", nonsense', "\u00e9"])
def test_conditions_that_cannot_be(guarded, value):
    for field in ("If-Match", "If-None-Match"):
        headers = {field: value.encode("latin-1")}
        body = json.dumps(policy("bad"))
        guarded.put(f"{QUOTAS}/bad", body, **headers).problem(400, "invalid-header")
        guarded.delete(f"{QUOTAS}/bad", **headers).problem(400, "invalid-header")


@pytest.mark.parametrize("last", [0, -1, 1.5, "60", 1 << 64])
def test_simulations_that_cannot_be(guarded, last):
    answer = guarded.post(f"{QUOTAS}/simulate", {"policy": policy("bad", 5), "last_seconds": last})
    answer.problem(400, "invalid-body")


def test_a_simulation_of_all_time(guarded):
    body = {"policy": policy("bad", 5), "last_seconds": (1 << 64) - 1}
    assert guarded.post(f"{QUOTAS}/simulate", body).status == 200
