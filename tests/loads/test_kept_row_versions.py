"""Loads whose rows keep the versions of their export: what has none, or one that cannot be, is named, and writes go on
above them."""

import random

import pytest

from bulk import step_until
from bulk_loads import Load, build, lines

COUNT = 300


def rows(first, count=COUNT):
    """Rows as an export has them, in the order of their keys."""
    return [{"pk": f"p{n:04}", "v": f"v{n}", "version": first + 7 * n} for n in range(count)]


def load(ns, *dataset):
    """Loads an export with its end line; returns the load."""
    text = lines([*dataset, {"end": {"rows": len(dataset)}}])
    load = Load.create(ns.client, ns.name, mode="replace", keep_row_versions=True, activate=True)
    assert load.put(0, text).status == 201
    assert load.seal(1)["keep_row_versions"]
    return load


def micros(server, seconds=0.0):
    """The version of a write at a time of the server's clock."""
    return round((server.clock.time() + seconds) * 1_000_000)


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_rows_keep_their_versions_and_later_writes_are_above(server, ns, order):
    # The last ones are of a clock that is ahead: the load waits for that time.
    dataset = rows(micros(server, -3_600)) + [{"pk": "q", "v": "ahead", "version": micros(server, 3)}]
    expected = {row["pk"]: row for row in dataset}
    if order == "shuffled":
        random.Random(3).shuffle(dataset)
    loaded = load(ns, *dataset)
    info = step_until(server.clock, lambda: loaded.reached("live"), "the load is live")
    assert info["rows_applied"] == COUNT + 1
    found = {row["pk"]: row for row in ns.scan_all()}
    assert {pk: (row["v"], row["version"]) for pk, row in found.items()} == {
        pk: (row["v"], row["version"]) for pk, row in expected.items()
    }
    latest = expected["q"]["version"]
    for pk in ["p0000", "p0011", "q"]:
        etag = f'"{expected[pk]["version"]}"'
        assert ns.get(pk, cache_control="no-cache").headers["etag"] == etag
        assert ns.put(pk, None, b"w", If_Match='"5"').status == 412
        written = ns.put(pk, None, b"w", If_Match=etag)
        assert written.status == 204 and int(written.headers["etag"].strip('"')) > latest, written


def test_rows_without_a_possible_version_are_named(server, ns):
    good = rows(micros(server, -60), 3)
    future = micros(server, 3_600)
    bad = [{"pk": "none", "v": ""}, {"pk": "zero", "v": "", "version": 0}, {"pk": "far", "v": "", "version": future}]
    loaded = load(ns, *good, *bad)
    failed = loaded.wait_for("failed")
    assert "3" in failed["reason"] and failed["rows_rejected"] == 3, failed
    rejects = {reject["line"]: reject for reject in loaded.rejects()}
    assert rejects.keys() == {4, 5, 6}
    assert all("it has no version" in rejects[line]["reason"] for line in (4, 5))
    assert f"its version {future} is of the future" in rejects[6]["reason"], rejects
    assert "far" in rejects[6]["text"]
    assert ns.scan_all() == []


def test_where_versions_could_go_back_they_are_not_kept(server, ns):
    path = f"/v1/ns/{ns.name}/loads"
    refused = ns.client.post(path, {"mode": "merge", "keep_row_versions": True})
    assert "keep_row_versions" in refused.problem(400, "invalid-body")["detail"]
    # A row that is there when the load is created may not be counted yet: the load fails before it is ready.
    early = Load.create(ns.client, ns.name, mode="replace", keep_row_versions=True, activate=True)
    assert ns.put("p", "s", b"v").status == 201
    assert early.put(0, lines([*rows(micros(server, -60), 3), {"end": {"rows": 3}}])).status == 201
    early.seal(1)
    assert "the live version has 1 rows" in early.wait_for("failed")["reason"]
    assert ns.get("p", "s").body == b"v"
    # Without the option it is a load as any other.
    build(ns, [{"pk": pk, "v": "w"} for pk in "pq"], activate=True, guards={"rows_change_max": 9}).wait_for("live")


def test_a_namespace_with_rows_is_refused(server, ns):
    assert ns.put("p", "s", b"v").status == 201
    refused = lambda: ns.client.post(f"/v1/ns/{ns.name}/loads", {"mode": "replace", "keep_row_versions": True})
    # The sizes of shard nodes are told within moments.
    is_counted = lambda: (one := refused()).headers.get("umbo-problem") == "namespace-has-rows" and one
    answer = step_until(server.clock, is_counted, "the row is counted", 0.1)
    assert "row versions are kept in an empty one" in answer.problem(409, "namespace-has-rows")["detail"]
