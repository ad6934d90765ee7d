"""Increments: atomic, exact, and refused without harm where the value is no number."""

import concurrent.futures

import pytest

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")

LARGEST = 9_223_372_036_854_775_807


def inc(ns, by, partition, sort=None, body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers["Umbo-Increment"] = str(by)
    return ns.client.request("PATCH", ns.path(partition, sort), body, headers)


def test_an_absent_row_counts_as_nought(ns):
    answer = inc(ns, -5, "p", "n")
    assert (answer.status, answer.body) == (200, b"-5"), answer
    assert answer.headers["content-type"] == "text/plain" and answer.headers["umbo-existed"] == "false"
    row = ns.get("p", "n")
    assert (row.body, row.headers["content-type"]) == (b"-5", "text/plain")
    assert row.headers["etag"] == answer.headers["etag"]
    answer = inc(ns, 7, "p", "n")
    assert answer.body == b"2" and answer.headers["umbo-existed"] == "true"
    ns.delete("p", "n")
    assert inc(ns, 0, "p", "n").body == b"0"


def test_media_type_and_expiry_stay_unless_another_expiry_is_named(ns):
    ns.put("p", "n", b"1", content_type="application/x-count", umbo_ttl="600")
    at = ns.get("p", "n").headers["umbo-expires-at"]
    inc(ns, 1, "p", "n")
    row = ns.get("p", "n")
    assert row.headers["content-type"] == "application/x-count" and row.headers["umbo-expires-at"] == at
    inc(ns, 1, "p", "n", umbo_expires_at="4000000000000")
    row = ns.get("p", "n")
    assert (row.body, row.headers["umbo-expires-at"]) == (b"3", "4000000000000")


@pytest.mark.parametrize("value", [b"", b"abc", b"1.5", b"+1", b"01", b" 1", b"1\n", b"-0", b"9" * 19, b"\xff"])
def test_what_is_no_number_stays_as_it_is(ns, value):
    tag = ns.put("p", "n", value).headers["etag"]
    assert inc(ns, 1, "p", "n").problem(409, "not-a-number")["outcome"] == "not-applied"
    row = ns.get("p", "n")
    assert row.body == value and row.headers["etag"] == tag


def test_a_number_that_would_not_fit_stays_as_it_is(ns):
    for start, by in ((LARGEST, 1), (-LARGEST - 1, -1), (-2, -LARGEST - 1)):
        ns.put("p", "n", str(start))
        problem = inc(ns, by, "p", "n").problem(409, "increment-overflow")
        assert problem["outcome"] == "not-applied" and str(start) in problem["detail"]
        assert ns.get("p", "n").body == str(start).encode()
    ns.put("p", "n", str(LARGEST))
    assert inc(ns, -LARGEST - 1, "p", "n").body == b"-1"


@pytest.mark.parametrize("by", ["", "1.0", "+1", "x", "01", "--1", str(LARGEST + 1)])
def test_a_malformed_increment_is_refused(ns, by):
    assert "umbo-increment" in inc(ns, by, "p").problem(400, "invalid-header")["detail"]


def test_an_increment_where_there_is_none_is_refused(ns):
    header = {"umbo_increment": "1"}
    for answer in (ns.put("p", value=b"1", **header), ns.delete("p", **header)):
        answer.problem(400, "invalid-header")
    ns.write([{"pk": "p", "v": "1"}], headers={"Umbo-Increment": "1"}).problem(400, "invalid-header")
    inc(ns, 1, "p", body=b"5").problem(400, "invalid-body")
    assert ns.get("p").status == 404


def test_conditions_hold(ns):
    inc(ns, 1, "p", if_match="*").problem(412, "precondition-failed")
    tag = inc(ns, 1, "p", if_none_match="*").headers["etag"]
    inc(ns, 1, "p", if_none_match="*").problem(412, "precondition-failed")
    assert inc(ns, 1, "p", if_match=tag).body == b"2"
    inc(ns, 1, "p", if_match=tag).problem(412, "precondition-failed")


def test_increments_in_a_batch(ns):
    rows = [
        {"op": "inc", "pk": "p", "by": 5},
        {"op": "inc", "pk": "p", "by": -7, "ttl": 600},
        {"op": "inc", "pk": "p"},
        {"op": "inc", "pk": "p", "by": 1, "v": "2"},
        {"op": "put", "pk": "p", "by": 1, "v": "2"},
        {"pk": "q", "v": "text"},
        {"op": "inc", "pk": "q", "by": 1},
    ]
    *lines, _ = ns.write(rows).batch()
    assert [line["status"] for line in lines] == [201, 204, 400, 400, 400, 201, 409], lines
    assert [line.get("number") for line in lines[:2]] == [5, -2]
    assert lines[6]["error"]["type"] == "/v1/errors/not-a-number"
    row = ns.get("p")
    assert row.body == b"-2" and "umbo-expires-at" in row.headers


def test_many_at_once_lose_nothing(server, ns):
    def count(writer):
        client = server.client()
        path = ns.path("p", str(writer % 2))
        for _ in range(50):
            answer = client.request("PATCH", path, headers={"Umbo-Increment": "1"})
            assert answer.status == 200, answer

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert [ns.get("p", str(sort)).body for sort in range(2)] == [b"200", b"200"]
