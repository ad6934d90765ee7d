"""The history of series and the heat map, from a server that works."""

import time

import pytest

from processes import wait_until


def history(server, **query):
    query = "&".join(f"{name}={value}" for name, value in query.items())
    answer = server.admin().get(f"/admin/v1/history?{query}")
    assert answer.status == 200, answer
    return answer.json()


def find(report, name, **labels):
    found = [one for one in report["series"] if one["name"] == name and one["labels"] == labels]
    return found[0] if found else None


def last_values(server, name, **labels):
    series = find(history(server, range="5m", series=name), name, **labels)
    return [value for value in (series or {"values": []})["values"] if value is not None]


def test_a_series_shows_the_requests_that_were_served(server):
    ns = server.namespace("watched")
    count = 300
    begun = time.time()
    for number in range(count):
        ns.put(f"p{number}", value=b"v")
        ns.get(f"p{number}")
        ns.get(f"absent-{number}")

    def served(operation, name="served"):
        return sum(last_values(server, name, operation=operation))

    # A value of a second is a rate a second: the sum of all seconds is the number of requests.
    wait_until(lambda: served("put") >= count * 0.99, "the puts are in the history")
    wait_until(lambda: served("get") >= 2 * count * 0.99, "the gets are in the history, the absent rows too")
    assert served("put") <= count * 1.01 and served("get") <= 2 * count * 1.01
    tier = sum(last_values(server, "served_by_tier", tier="sheddable-plus"))
    assert tier == pytest.approx(3 * count, rel=0.02)
    assert sum(last_values(server, "caller_requests", caller="anonymous")) == pytest.approx(3 * count, rel=0.02)
    shards = server.admin().get("/admin/v1/shards").json()["shards"]
    by_shard = [sum(last_values(server, "shard_requests", shard=str(one["shard"]))) for one in shards]
    assert sum(by_shard) == pytest.approx(3 * count, rel=0.02)
    assert sum(last_values(server, "ru")) == pytest.approx(server.metric("umbo_request_units_total"), rel=0.02)
    for name in ("latency_p50_ms", "latency_p99_ms", "latency_p999_ms"):
        values = last_values(server, name, operation="get")
        assert values and all(0 < value < 10_000 for value in values), name
    report = history(server, range="5m")
    assert report["step_ms"] == 1000 and all(len(one["values"]) == 300 for one in report["series"])
    assert report["start_ms"] % 1000 == 0
    assert abs(report["now_ms"] - time.time() * 1000) < 5_000
    end = report["start_ms"] + 300_000
    assert end <= report["now_ms"] < end + 5_000 and report["now_ms"] > begun * 1000
    assert find(report, "memory_bytes")["unit"] == "bytes"
    assert 1e6 < last_values(server, "memory_bytes")[-1] < 1e9


def test_refusals_by_a_quota_are_counted_apart(server):
    ns = server.namespace("refused-often")
    policy = b'{"name":"tight","unit":"requests","rate":1,"burst":1,"per":["caller"],"match":{"namespace":"refused-often"}}'
    answer = server.client().put("/admin/v1/quotas/tight", policy)
    assert answer.status == 201, answer
    refused = 0
    while refused < 50:
        refused += ns.get("x").status == 429
    wait_until(lambda: sum(last_values(server, "rejected", operation="get")) >= 49, "rejections are in the history")
    wait_until(lambda: sum(last_values(server, "policy_rejected", policy="tight")) >= 40, "by policy too")
    assert sum(last_values(server, "caller_rejected", caller="anonymous")) >= 40
    assert server.client().delete("/admin/v1/quotas/tight").status == 200


def test_ranges_and_names_that_there_are_not(server):
    for query in ("range=2h", "range=", "series=nothing", "series=served,", "rang=5m"):
        server.admin().get(f"/admin/v1/history?{query}").problem(400, "invalid-query")
    server.admin().get("/admin/v1/heat?range=1y").problem(400, "invalid-query")
    for row in ("x", "99", "-1", "65536", "0/1"):
        server.admin().get(f"/admin/v1/heat/{row}").problem(404, "route-not-found")
    for length in ("1h", "24h", "30d"):
        report = history(server, range=length)
        assert all(len(one["values"]) <= 720 for one in report["series"])
    assert history(server, range="1h")["step_ms"] == 10_000


def test_the_heat_map_has_the_shards_and_who_is_behind_them(server):
    ns = server.namespace("hot-place")
    ns.put("hot", value=b"v")
    shards = [one["shard"] for one in server.admin().get("/admin/v1/shards").json()["shards"]]

    def hot_rows():
        for _ in range(400):
            ns.get("hot")
        found = {shard: server.admin().get(f"/admin/v1/heat/{shard}").json() for shard in shards}
        return {shard: row for shard, row in found.items() if any(key["pk"] == "hot" for key in row["keys"])}

    rows = wait_until(hot_rows, "the hot key is behind a row")
    assert len(rows) == 1
    [(shard, row)] = rows.items()
    assert row["callers"][0]["caller"] == "anonymous" and row["row"] == str(shard)
    heat = server.admin().get("/admin/v1/heat?range=5m").json()
    assert [one["shard"] for one in heat["rows"]] == shards
    place = next(one for one in heat["rows"] if one["shard"] == shard)
    assert len(place["values"]) == 300 and max(value or 0 for value in place["values"]) > 10
