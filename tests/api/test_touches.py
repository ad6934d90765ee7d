"""A touch gives a row another expiry and leaves its value; a dry run of a delete says what would go."""

import concurrent.futures
import json

import pytest

from harness import Client

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


def now_ms(clock):
    return int(clock.time() * 1000)


def touch(ns, partition, sort=None, **headers):
    return ns.client.request("PATCH", ns.path(partition, sort), headers={
        name.replace("_", "-"): value for name, value in headers.items()})  # fmt: skip


def test_a_touch_changes_the_expiry_and_nothing_else(ns, still):
    put = ns.put("p", "s", b"\x00value", content_type="text/x", umbo_ttl="60")
    touched = touch(ns, "p", "s", umbo_ttl="2h")
    assert (touched.status, touched.body) == (204, b""), touched
    # As a put of the same value: a new version, and so a new tag.
    assert touched.headers["etag"] != put.headers["etag"]
    row = ns.get("p", "s")
    assert (row.body, row.headers["content-type"]) == (b"\x00value", "text/x")
    assert row.headers["etag"] == touched.headers["etag"]
    assert int(row.headers["umbo-expires-at"]) == now_ms(still) + 7_200_000
    at = str(now_ms(still) + 100_000)
    assert touch(ns, "p", "s", umbo_expires_at=at).status == 204
    assert ns.get("p", "s").headers["umbo-expires-at"] == at


def test_a_touch_with_a_value_is_refused_and_changes_nothing(ns):
    put = ns.put("p", "s", b"value")
    answer = ns.client.request("PATCH", ns.path("p", "s"), b"other", {"umbo-ttl": "60"})
    assert "no body" in answer.problem(400, "invalid-body")["detail"]
    row = ns.get("p", "s")
    assert row.body == b"value" and row.headers["etag"] == put.headers["etag"]
    assert "umbo-expires-at" not in row.headers


def test_a_row_that_is_touched_outlives_its_first_expiry(ns, still):
    ns.put("p", value=b"v", umbo_expires_at=str(now_ms(still) + 700))
    assert touch(ns, "p", umbo_ttl="60").status == 204
    ns.put("q", value=b"v")
    assert touch(ns, "q", umbo_expires_at=str(now_ms(still) + 300)).status == 204
    still.advance(0.299)
    assert ns.get("q", cache_control="no-cache").body == b"v"
    still.advance(0.701)
    assert ns.get("p").body == b"v"
    ns.get("q", cache_control="no-cache").problem(404, "key-not-found")


def test_a_touch_holds_its_condition(ns):
    tag = ns.put("p", value=b"v").headers["etag"]
    refused = touch(ns, "p", umbo_ttl="60", if_match='"1"').problem(412, "precondition-failed")
    assert refused["outcome"] == "not-applied" and refused["etag"] == tag
    assert "umbo-expires-at" not in ns.get("p").headers
    touch(ns, "p", umbo_ttl="60", if_none_match="*").problem(412, "precondition-failed")
    for condition in (tag, "*"):
        assert touch(ns, "p", umbo_ttl="60", if_match=condition).status == 204
    # The tag of before is of the row of before.
    touch(ns, "p", umbo_ttl="60", if_match=tag).problem(412, "precondition-failed")
    touch(ns, "absent", umbo_ttl="60", if_match="*").problem(412, "precondition-failed")


def test_a_touch_that_cannot_be(ns, no_ns):
    touch(ns, "absent", umbo_ttl="60").problem(404, "key-not-found")
    touch(no_ns, "absent", umbo_ttl="60").problem(404, "namespace-not-found")
    ns.put("p", value=b"v")
    for headers in ({}, {"umbo_ttl": "0"}):
        assert touch(ns, "p", **headers).problem(400, "invalid-header")["outcome"] == "not-applied"
    touch(ns, "p", umbo_ttl="60", umbo_expires_at="4000000000000").problem(400, "invalid-query")


def test_the_price_of_a_touch_is_that_of_the_put_and_of_the_bytes_read(ns, still):
    value = b"v" * 40_960
    put = float(ns.put("p", value=value).headers["umbo-ru"])
    touched = float(touch(ns, "p", umbo_ttl="60").headers["umbo-ru"])
    # The store takes no time here.
    assert put == pytest.approx(6.05 + 10, abs=1e-5)
    assert touched == pytest.approx(6.05 + 20, abs=1e-5)


def test_touches_lose_no_write(ns):
    """Each reads the row and stores what it read: what others store meanwhile has to stay."""
    ns.put("p", value=b"0")

    def toucher(_):
        client = Client(ns.client.port)
        request = lambda: client.request("PATCH", ns.path("p"), headers={"Umbo-TTL": "60"})  # noqa: E731
        return [request().status for _ in range(30)]

    with concurrent.futures.ThreadPoolExecutor(3) as threads:
        touchers = [threads.submit(toucher, number) for number in range(3)]
        for number in range(1, 60):
            tag = ns.put("p", value=str(number).encode()).headers["etag"]
            row = ns.get("p", cache_control="no-cache")
            assert row.body == str(number).encode(), (tag, row)
        statuses = [status for one in touchers for status in one.result()]
    # A touch is refused when it was overtaken eight times, and a write overtakes at most three touches. So of 90 at most
    # 40 are refused, in whatever order they run.
    assert set(statuses) <= {204, 412} and statuses.count(204) > len(statuses) / 2, statuses


def test_a_dry_run_of_a_delete_removes_nothing(ns):
    tag = ns.put("p", "sort", b"value").headers["etag"]
    path = ns.path("p", "sort") + "?dry_run=true"
    counted = ns.client.delete(path)
    assert (counted.status, counted.json()) == (200, {"rows": 1, "bytes": 9, "dry_run": True})
    assert ns.client.delete(path, if_match=tag).status == 200
    ns.client.delete(path, if_match='"1"').problem(412, "precondition-failed")
    assert ns.get("p", "sort").body == b"value"
    assert ns.client.delete(ns.path("absent") + "?dry_run").json()["rows"] == 0
    assert ns.client.delete(ns.path("p", "sort") + "?dry_run=false").status == 204
    ns.get("p", "sort").problem(404, "key-not-found")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_expiry_that_has_passed_is_refused(ns, still, method):
    ns.put("p", value=b"v")
    past = {"Umbo-Expires-At": str(now_ms(still) - 1)}
    refused = ns.client.request(method, ns.path("p"), b"", past).problem(400, "invalid-header")
    assert "expired already" in refused["detail"], json.dumps(refused)
    assert ns.get("p").body == b"v"
