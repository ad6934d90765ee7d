"""The history of series and the heat map, from a server that works."""

import pytest

from harness import read_answer
from processes import wait_until
from recorded import pass_seconds


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


def total(server, name, **labels):
    """A value of a second is a rate a second: the sum of all seconds is the number."""
    return sum(last_values(server, name, **labels))


def test_a_series_shows_the_requests_that_were_served(server, still):
    ns = server.namespace("watched")
    pass_seconds(server)
    count = 100
    for number in range(count):
        ns.put(f"p{number}", value=b"v")
        ns.get(f"p{number}")
        ns.get(f"absent-{number}")
    pass_seconds(server)
    assert total(server, "served", operation="put") == count
    assert total(server, "served", operation="get") == 2 * count, "the absent rows too"
    assert total(server, "served_by_tier", tier="sheddable-plus") == 3 * count
    assert total(server, "caller_requests", caller="anonymous") == 3 * count
    shards = server.admin().get("/admin/v1/shards").json()["shards"]
    assert sum(total(server, "shard_requests", shard=str(one["shard"])) for one in shards) == 3 * count
    assert total(server, "ru") == pytest.approx(server.metric("umbo_request_units_total"), rel=1e-4)
    report = history(server, range="5m")
    assert report["step_ms"] == 1000 and all(len(one["values"]) == 300 for one in report["series"])
    assert report["start_ms"] % 1000 == 0
    assert report["now_ms"] == int(still.time() * 1000)
    # A sample counts for the second that has ended; it may be early by ten milliseconds.
    assert -10 <= report["now_ms"] - report["start_ms"] - 300_000 < 990
    assert find(report, "memory_bytes")["unit"] == "bytes"
    assert 1e6 < last_values(server, "memory_bytes")[-1] < 1e9


def test_a_series_shows_the_latency_of_requests(server, still):
    ns = server.namespace("slow")
    pass_seconds(server)
    head = f"PUT {ns.path('a')} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"
    with server.raw(head.encode() + b"x") as sock:
        wait_until(lambda: server.in_flight() == 1, "the request is in flight")
        still.advance(0.25)
        sock.sendall(b"y")
        assert read_answer(sock.makefile("rb")).status == 201

    def is_recorded():
        # An answer is there before its request is counted, which may be in the next second.
        pass_seconds(server)
        return last_values(server, "latency_p50_ms", operation="put")[-1] > 1

    wait_until(is_recorded, "the put is in the history")
    for name in ("latency_p50_ms", "latency_p99_ms", "latency_p999_ms"):
        assert last_values(server, name, operation="put")[-1] == pytest.approx(250, rel=0.1), name


def test_refusals_by_a_quota_are_counted_apart(server, still):
    ns = server.namespace("refused-often")
    policy = b'{"name":"tight","unit":"requests","rate":1,"burst":1,"per":["caller"],"match":{"namespace":"refused-often"}}'
    pass_seconds(server)
    answer = server.client().put("/admin/v1/quotas/tight", policy)
    assert answer.status == 201, answer
    assert [ns.get("x").status for _ in range(51)] == [404] + [429] * 50
    pass_seconds(server)
    assert total(server, "rejected", operation="get") == 50
    assert total(server, "policy_rejected", policy="tight") == 50
    assert total(server, "caller_rejected", caller="anonymous") == 50
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


def test_the_heat_map_has_the_shards_and_who_is_behind_them(server, still):
    ns = server.namespace("hot-place")
    ns.put("hot", value=b"v")
    shards = [one["shard"] for one in server.admin().get("/admin/v1/shards").json()["shards"]]

    def hot_rows():
        for _ in range(400):
            ns.get("hot")
        pass_seconds(server)
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
