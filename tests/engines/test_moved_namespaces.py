"""A namespace moves from files of Umbo's to Cassandra and back as the operator's guide says: writes are paused, rows are
exported, and loaded with their versions. Each row is compared with what it was, and writes go on from there."""

import json
import os
import pathlib
import random

import pytest

import cassandra_node
from bulk import run
from clock import Clock
from harness import Namespace, Server, b64u, row_bytes
from processes import PROJECT

pytestmark = [pytest.mark.real("cassandra"), pytest.mark.embedded("the engine takes the place of the nodes")]

CITIES = pathlib.Path(os.environ.get("UMBO_TESTS_CITIES", PROJECT / "tests/data/cities-sample.ndjson"))
ROWS = 12_000
NAME = "cities"
BATCH = 2_000
LARGE = random.Random(11).randbytes(5 << 20)
# Of rows that expire on the way, and of rows that do not.
SHORT, LONG = 120, 30 * 86_400
# Of the namespace that they move to: rows without an expiry get none.
SETTINGS = {"default_ttl": "30d", "compression": "zstd"}


def cities():
    """Cities, each divided into districts until there are enough rows."""
    found = [json.loads(line) for line in CITIES.read_text(encoding="utf-8").splitlines()]
    districts = -(-ROWS // len(found))
    return [city | {"sk": f"{city['sk']}/{number}"} for city in found for number in range(districts)]


def fill(ns, clock):
    """Writes rows of all kinds; returns the keys of those that expire on the way."""
    rows = cities()
    for number, row in enumerate(rows):
        if number % 5 == 0:
            row["expires_at"] = round((clock.time() + LONG) * 1_000) + number
        if number % 7 == 0:
            row["content_type"] = "application/json"
    short = [{"pk": "short", "sk": f"{number}", "v": "gone soon", "ttl": SHORT} for number in range(50)]
    odd = [
        {"pk64": b64u(b"\xff\0"), "sk64": b64u(b"\xfe"), "v64": b64u(bytes(range(256)))},
        {"pk": "empty", "v": ""},
        {"pk": "coded", "v64": b64u(b"\x1f\x8b no gzip"), "content_type": "text/x", "content_encoding": "gzip"},
        {"pk": "long", "v": "compressible " * 50_000},
    ]
    # Versions that are newer than others of their neighbours.
    again = [row | {"v": row["v"] + " again"} for row in rows[::11]]
    for written, status in [(rows, 201), (short, 201), (odd, 201), (again, 204)]:
        for at in range(0, len(written), BATCH):
            lines = ns.write(written[at : at + BATCH]).batch()[:-1]
            assert all(line["status"] == status for line in lines), lines[:3]
    for _ in range(3):
        assert ns.client.request("PATCH", ns.path("counter"), headers={"Umbo-Increment": "5"}).status in (200, 201)
    assert ns.put("large", "value", LARGE, Content_Type="image/png", Umbo_Ttl=str(LONG)).status == 201
    assert ns.delete(rows[1]["pk"], rows[1]["sk"]).status == 204
    return {(row["pk"].encode(), row["sk"].encode()) for row in short}


def key_of(row):
    return row_bytes(row, "pk"), row_bytes(row, "sk") if "sk" in row or "sk64" in row else b""


def stored(ns):
    """All rows by key, with versions, expiries and types."""
    return {key_of(row): row for row in ns.scan_all()}


def pause(server, folder):
    """Lets the namespace take no further write."""
    policy = ["--unit", "writes", "--rate", "0.000001", "--burst", "1", "--per", "namespace"]
    run(server, "quota", "set", "paused", *policy, "--match", f"namespace={NAME}", folder=folder)
    ns = Namespace(server.client(), NAME)
    # The first ones are taken, because the bucket of a new policy is full.
    while (answer := ns.delete("no such row")).status != 429:
        assert answer.status in (204, 404), answer


def moved(source, target, folder, name, clock=None):
    """Brings a namespace from one server to another; returns it there."""
    pause(source, folder)
    run(source, "kv", "export", NAME, "-f", name, folder=folder)
    if clock:
        clock.advance(2 * SHORT)
    ns = target.namespace(NAME, json.dumps(SETTINGS))
    push = ["load", "push", NAME, name, "--mode", "replace", "--keep-row-versions", "--activate", "--wait"]
    run(target, *push, folder=folder)
    return ns


def check(ns, expected):
    found = stored(ns)
    assert found.keys() == expected.keys(), sorted(found.keys() ^ expected.keys())[:5]
    different = [(found[key], row) for key, row in expected.items() if found[key] != row]
    assert not different, different[:3]
    got = ns.get("large", "value")
    assert got.body == LARGE and got.headers["content-type"] == "image/png"
    for key in [*random.Random(1).sample(sorted(expected), 40), (b"large", b"value"), (b"counter", b"")]:
        got = ns.get(*key)
        assert got.headers["etag"] == f'"{expected[key]["version"]}"', (key, got)
        expires_at = expected[key].get("expires_at")
        assert got.headers.get("umbo-expires-at") == (expires_at and str(expires_at)), (key, got)


def write(ns, expected):
    """Writes by the ETags of clients; returns the rows afterwards."""
    latest = max(row["version"] for row in expected.values())
    changed = sorted(key for key, row in expected.items() if "large" not in row and key != (b"counter", b""))[::97]
    for key in changed:
        etag = f'"{expected[key]["version"]}"'
        assert ns.put(*key, b"changed", If_Match='"1"').status == 412
        answer = ns.put(*key, b"changed", If_Match=etag)
        assert answer.status == 204, answer
        assert int(answer.headers["etag"].strip('"')) > latest
    answer = ns.client.request("PATCH", ns.path("counter"), headers={"Umbo-Increment": "1"})
    assert answer.status == 200 and int(answer.headers["etag"].strip('"')) > latest, answer
    rows = stored(ns)
    assert {key for key, row in rows.items() if row != expected[key]} == {*changed, (b"counter", b"")}
    return rows


def test_a_namespace_moves_to_cassandra_and_back_with_every_version(folder):
    clock = Clock()
    engine = {"store": {"engine": "cassandra", "shards": 4}, "cassandra": cassandra_node.settings(folder)}
    with (
        Server(folder / "before", clock=clock) as before,
        Server(folder / "between", engine, clock=clock) as between,
        Server(folder / "after", {"store": {"shards": 3}}, clock=clock) as after,
    ):
        ns = before.start().namespace(NAME)
        short = fill(ns, clock)
        rows = stored(ns)
        assert short <= rows.keys() and len(rows) >= ROWS
        expected = {key: row for key, row in rows.items() if key not in short}
        ns = moved(before, between.start(), folder, "there.ndjson.zst", clock)
        check(ns, expected)
        expected = write(ns, expected)
        # In an export of another format the versions are kept, too.
        check(moved(between, after.start(), folder, "back.parquet"), expected)
        write(Namespace(after.client(), NAME), expected)
        after.stop()
