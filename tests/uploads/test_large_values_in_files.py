"""Large values in exports, imports and loads: the same bytes and media types come back, and what cannot is named."""

import base64
import hashlib
import json
import random
import re
import subprocess

import pytest

from bulk import environment, run, start, step_until
from bulk_loads import Load, lines, rollback
from harness import b64u, binary

MIB = 1 << 20
EXPIRES_AT = 4_000_000_000_000
# The longest that any bytes can have in a line of 16 MiB.
LONGEST = 12 * MIB - 4_096


def content(length, seed=1):
    return random.Random(seed).randbytes(length)


def text(length, seed=2):
    return content(length // 2, seed).hex().encode()


VALUES = {
    ("small", ""): (b"v", {"Content-Type": "text/plain"}),
    ("a row", ""): (content(MIB), {}),
    ("first large", "é"): (content(MIB + 1), {"Content-Type": "image/png"}),
    ("expires", "\n"): (content(3 * MIB), {"Umbo-Expires-At": str(EXPIRES_AT)}),
    ("text", ""): (b'"\\\n' + text(15 * MIB), {"Content-Type": "text/plain; charset=utf-8"}),
    ("coded", ""): (content(2 * MIB, 3), {"Content-Type": "a/b", "Content-Encoding": "br"}),
    ("longest", ""): (content(LONGEST, 4), {}),
}


@pytest.fixture(scope="module")
def stored(server):
    """A namespace with large values, and other rows around them."""
    ns = server.namespace("stored")
    assert ns.write([{"pk": f"p{n}", "sk": "s", "v": f"{n}"} for n in range(300)]).status == 200
    for (pk, sk), (value, headers) in VALUES.items():
        assert ns.client.request("PUT", ns.path(pk, sk), value, headers).status == 201
    return ns


def compare(server, name):
    """Compares a namespace with what was put, over HTTP."""
    ns = server.namespace(name)
    rows = ns.scan_all(keys_only=True)
    assert len(rows) == 300 + len(VALUES)
    for (pk, sk), (value, headers) in VALUES.items():
        got = ns.get(pk, sk, Accept_Encoding="*")
        assert got.status == 200 and got.body == value, (pk, got.status, len(got.body))
        for field in ["content-type", "content-encoding"]:
            expected = {name.lower(): one for name, one in headers.items()}.get(field)
            assert got.headers.get(field) in (expected, None if expected else "application/octet-stream"), pk
        if len(value) > MIB:
            digest = base64.b64encode(hashlib.sha256(value).digest()).decode()
            assert got.headers["content-digest"] == f"sha-256=:{digest}:"
    expiries = {row["pk"]: row["expires_at"] for row in rows if "expires_at" in row}
    assert expiries == {"expires": EXPIRES_AT}


def create(server, name):
    assert server.client().put(f"/admin/v1/namespaces/{name}", b"{}").status == 201


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.ndjson.zst", "rows.csv", "rows.parquet"])
def test_what_is_exported_comes_back(server, stored, folder, name):
    run(server, "kv", "export", stored.name, "-f", name, folder=folder)
    copy = "copy-" + name.replace(".", "-")
    said = run(server, "kv", "import", "--create", copy, name, folder=folder)
    assert f"{300 + len(VALUES)} rows written, 0 failed" in said, said
    compare(server, copy)


def test_rows_beside_a_longer_value_are_read_once(server, folder):
    """A page ends before a value that is too long to be held beside others, and few more pages are read for that."""
    ns = server.namespace("beside")
    assert ns.write([{"pk": f"p{n}", "v": "x" * 100} for n in range(8_000)]).status == 200
    assert ns.put("p4000", "large", content(6 * MIB)).status == 201

    def scans():
        text = server.admin().get("/metrics").body.decode()
        return int(re.search(r'^umbo_requests_total\{operation="scan",status="200"\} (\d+)$', text, re.MULTILINE)[1])

    run(server, "kv", "export", ns.name, "-f", "none.ndjson", "--without-large", folder=folder)
    before = scans()
    run(server, "kv", "export", ns.name, "-f", "rows.ndjson", "--segments", "1", folder=folder)
    assert len((folder / "rows.ndjson").read_text().splitlines()) == 8_002
    assert scans() - before < 200, scans() - before


def test_rows_of_a_pipe_come_back(server, stored, folder):
    with open(folder / "rows.ndjson", "wb") as out:
        assert start(server, "kv", "export", stored.name, folder=folder, stdout=out).wait(timeout=300) == 0
    for turn in range(2):
        with open(folder / "rows.ndjson", "rb") as rows:
            said = run(server, "kv", "import", "--create", "piped", "-", folder=folder, stdin=rows)
        assert f"{300 + len(VALUES)} rows written, 0 failed" in said, (turn, said)
        compare(server, "piped")


@pytest.mark.parametrize("mode", ["merge", "replace"])
@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_loads_of_each_mode_have_them(server, stored, folder, mode, order):
    run(server, "kv", "export", stored.name, "-f", "all.ndjson", folder=folder)
    *lines, _ = (folder / "all.ndjson").read_text(encoding="utf-8").splitlines()
    rows = [{name: field for name, field in json.loads(line).items() if name != "version"} for line in lines]
    rows.sort(key=lambda row: (row["pk"].encode(), row["sk"].encode()))
    if order == "shuffled":
        random.Random(7).shuffle(rows)
    (folder / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    name = f"{mode}-{order}"
    create(server, name)
    more = ["--activate"] if mode == "replace" else []
    arguments = ["load", "push", name, "rows.ndjson", "--mode", mode, *more, "--part-mib", "4", "--wait"]
    run(server, *arguments, folder=folder)
    compare(server, name)
    if mode == "replace":
        # The version before has none of them, and they are there again after it.
        for _ in range(2):
            assert rollback(server.namespace(name)).status == 200
        compare(server, name)


def test_a_merge_replaces_no_newer_large_value(server, folder):
    ns = server.namespace("newer")
    assert ns.put("p", "s", content(2 * MIB)).status == 201
    (folder / "rows.ndjson").write_text(json.dumps({"pk": "p", "sk": "s", "v64": b64u(content(3 * MIB))}) + "\n")
    run(server, "load", "push", ns.name, "rows.ndjson", "--as-of", "2020-01-01T00:00:00Z", "--wait", folder=folder)
    assert ns.get("p", "s").body == content(2 * MIB)


def test_longer_ones_are_named_and_the_others_are_exported(server, folder):
    ns = server.namespace("longer")
    for key, value in {"a": b"v", "b": content(20 * MIB), "c": content(2 * MIB), "d": text(17 * MIB)}.items():
        assert ns.put(key, "s", value).status in (201, 204)
    said = run(server, "kv", "export", ns.name, "-f", "rows.ndjson", folder=folder, code=7)
    assert "2 rows with large values left out" in said, said
    for key in "bd":
        assert f'row {{"pk":"{key}","sk":"s"}} is left out: its line is longer than 16 MiB' in said, said
    *rows, end = [json.loads(line) for line in (folder / "rows.ndjson").read_text().splitlines()]
    assert {row["pk"] for row in rows} == {"a", "c"} and end["end"]["rows"] == 2
    said = run(server, "kv", "export", ns.name, "-f", "few.ndjson", "--without-large", folder=folder)
    assert "3 rows with large values left out" in said, said
    # They are copied as it says.
    run(server, "kv", "get", ns.name, "b", "s", "--file", "value", folder=folder)
    assert (folder / "value").read_bytes() == content(20 * MIB)
    run(server, "kv", "put", ns.name, "copy", "--file", "value", folder=folder)
    assert ns.get("copy").body == content(20 * MIB)


def test_rows_that_no_line_has_are_rejected_with_line_and_reason(server, folder):
    condition = {"pk": "c", "v": "y" * (2 * MIB), "if_none_match": "*"}
    rows = [{"pk": "a", "v": "1"}, {"pk": "b", "v": "x" * (17 * MIB)}, condition]
    (folder / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = run(server, "kv", "import", "--create", "rejected", "rows.ndjson", folder=folder, code=7)
    assert "1 row written, 2 failed" in said, said
    with open(folder / "rows.ndjson", "rb") as source:
        said = run(server, "kv", "import", "rejected", "-", folder=folder, stdin=source, code=7)
    assert "1 row written, 2 failed" in said, said
    failed = [json.loads(line)["failed"] for line in (folder / "stdin.failed.ndjson").read_text().splitlines()]
    assert [one["line"] for one in failed] == [2, 3]
    assert "longer than 16 MiB" in failed[0]["detail"] and "without a condition" in failed[1]["detail"]


def test_the_command_line_prints_the_bytes_that_http_has(server, stored, folder):
    for pk, sk in VALUES:
        if sk == "\n":
            continue
        command = [binary(), "kv", "get", stored.name, pk, *([sk] if sk else [])]
        got = subprocess.run(command, env=environment(server), cwd=folder, capture_output=True, check=True, timeout=300)
        assert got.stdout == stored.get(pk, sk, Accept_Encoding="*").body == VALUES[pk, sk][0]


def test_a_large_value_in_a_load_is_stored_once_under_a_quota(new_server):
    """The row comes when its bytes have used up what the quota allows at once: they are not stored again for it."""
    server = new_server().start()
    ns = server.namespace("paced")
    # Twelve whole chunks, of which two are written together.
    value = text(12 * 252 * 1_024)
    load = Load.create(ns.client, "paced")
    assert load.put(0, lines([{"pk": "large", "v": value.decode()}, {"pk": "other", "v": "x"}])).status == 201
    policy = {"name": "slow", "match": {"namespace": "paced", "operations": ["batch-write"]}, "per": ["namespace"]}
    policy |= {"unit": "write-bytes", "rate": 1_000_000, "burst": 500_000}
    assert server.client().put("/admin/v1/quotas/slow", json.dumps(policy)).status == 201
    load.seal(1)
    info = load.wait_for("live")
    assert (info["rows_applied"], info["rows_rejected"]) == (2, 0)
    assert ns.get("large").body == value
    spent = sum(row["write_bytes"] for row in ns.client.get("/v1/ns/paced/usage").json()["rows"])
    assert spent < 3 * len(value), "the part, and the value once"


def with_a_quota(server, ns, rate):
    policy = {"name": "low", "match": {"namespace": ns.name, "operations": ["batch-write"]}, "per": ["namespace"]}
    policy |= {"unit": "write-bytes", "rate": rate, "burst": 300_000}
    assert server.client().put("/admin/v1/quotas/low", json.dumps(policy)).status in (200, 201)


@pytest.fixture
def stopped(new_server):
    """A server whose clock stands still, with a load of a large value and another row."""
    server = new_server().start()
    ns = server.namespace("low")
    load = Load.create(ns.client, "low", max_reject_ratio=0.5)
    value = text(2 * MIB)
    assert load.put(0, lines([{"pk": "large", "v": value.decode()}, {"pk": "other", "v": "x"}])).status == 201
    server.clock.stop()
    yield server, ns, load, value
    server.clock.go()


def in_small_steps(server, load):
    """Lets time pass until a load is live. A chunk takes half a minute by its quota, and bytes that get none for two
    minutes are given up: the steps leave the threads of loads, which are of the lowest priority, the time to write."""
    return step_until(server.clock, lambda: load.reached("live"), "the load is live", step=0.5)


def test_a_large_value_is_stored_once_under_a_quota_that_takes_minutes(stopped):
    server, ns, load, value = stopped
    with_a_quota(server, ns, 8_000)
    load.seal(1)
    info = in_small_steps(server, load)
    assert (info["rows_applied"], info["rows_rejected"]) == (2, 0)
    assert ns.get("large").body == value
    spent = sum(row["write_bytes"] for row in ns.client.get("/v1/ns/low/usage").json()["rows"])
    assert spent < 2.5 * len(value), "the part, and the value once"


def test_a_large_value_that_a_quota_never_lets_through_is_rejected_by_name(stopped):
    server, ns, load, value = stopped
    with_a_quota(server, ns, 1_000)
    load.seal(1)
    info = in_small_steps(server, load)
    assert (info["rows_applied"], info["rows_rejected"]) == (1, 1)
    [reject] = load.rejects()
    assert (reject["part"], reject["line"]) == (0, 1) and json.loads(reject["text"])["pk"] == "large"
    reason = "a value of 2097152 bytes cannot be stored: policy 'low' allows 1000 write-bytes a second"
    assert reason in reject["reason"], reject
    assert ns.get("other").body == b"x"
