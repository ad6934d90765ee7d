"""Ranges and their deletion: selectors, bounds, cursors in both directions."""

import concurrent.futures
import re

import pytest

from harness import b64u
from processes import wait_until

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")

KEYS = [f"{letter}{number:02}" for letter in "abc" for number in range(20)]
MANY = 20_000
# Rows that a delete range removes in one atomic step.
STEP_ROWS = 1024


@pytest.fixture
def full(ns):
    rows = [{"pk": "p", "sk": key, "v": key * 3} for key in KEYS]
    assert ns.write(rows).status == 200
    return ns


def keys(rows):
    return [row["sk"] for row in rows]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "selectors",
    [
        {},
        {"start": "a05"},
        {"end": "b10"},
        {"start": "a05", "end": "b10"},
        {"prefix": "b"},
        {"prefix": "b", "start": "b03"},
        {"prefix": "b", "end": "b03"},
        {"prefix": "b", "start": "a", "end": "z"},
        {"start": "b", "end": "b"},
        {"start": "z", "end": "a"},
        {"prefix": "zz"},
    ],
)
def test_selectors_and_walks(full, selectors, reverse):
    chosen = [
        key
        for key in KEYS
        if key >= selectors.get("start", "")
        and key < selectors.get("end", "~")
        and key.startswith(selectors.get("prefix", ""))
    ]
    if reverse:
        chosen.reverse()
        selectors = selectors | {"reverse": "true"}
    assert keys(full.range_all("p", **selectors)) == chosen
    for bounds in ({"limit": 1}, {"limit": 7}, {"max_bytes": 1}, {"max_bytes": 30}):
        assert keys(full.range_all("p", **selectors, **bounds)) == chosen, bounds


def test_rows_and_ends_say_what_they_hold(full):
    rows, end = full.range("p", limit=2).rows_and_end()
    assert [(row["sk"], row["v"]) for row in rows] == [("a00", "a00" * 3), ("a01", "a01" * 3)]
    assert all(isinstance(row["version"], int) for row in rows)
    assert end["why"] == "limit" and end["more"] and end["rows"] == 2 and end["bytes"] == 24
    rows, end = full.range("p", limit=60).rows_and_end()
    assert len(rows) == 60 and end["why"] in ("done", "limit")
    rows, end = full.range("p", max_bytes=13).rows_and_end()
    assert len(rows) == 2 and end["why"] == "bytes", "a page ends with the row that reaches it"
    rows, end = full.range("nobody").rows_and_end()
    assert rows == [] and end["why"] == "done" and not end["more"] and "cursor" not in end


def test_keys_only_leaves_values_out(full):
    rows, _ = full.range("p", keys_only="true", limit=3).rows_and_end()
    assert [row["bytes"] for row in rows] == [9, 9, 9]
    assert all("v" not in row and "v64" not in row for row in rows)
    assert keys(full.range_all("p", keys_only="true", limit=7)) == KEYS


def test_values_that_are_no_text_come_as_base64(ns):
    ns.put("p", b"\xff", b"\xfe\xfd", content_type="image/x", content_encoding="br")
    (row,) = ns.range_all("p")
    assert (row["sk64"], row["v64"]) == (b64u(b"\xff"), b64u(b"\xfe\xfd"))
    assert (row["content_type"], row["content_encoding"]) == ("image/x", "br")


def test_json_array_is_bounded_and_ends_with_its_end(ns):
    for first in range(0, 1100, 550):
        numbers = range(first, first + 550)
        ns.write([{"pk": "p", "sk": f"{number:04}", "v": "x"} for number in numbers])
    as_array = {"Accept": "application/json"}
    answer = ns.range("p", headers=as_array)
    assert answer.headers["content-type"] == "application/json"
    rows, end = answer.rows_and_end()
    assert len(rows) == 1000 and end["why"] == "limit" and end["more"]
    rows, end = ns.range("p", headers=as_array, cursor=end["cursor"]).rows_and_end()
    assert len(rows) == 100 and end["why"] == "done"
    assert ns.range("nobody", headers=as_array).rows_and_end()[0] == []
    assert len(ns.range_all("p")) == 1100


def test_cursors_are_continued_by_a_query_that_repeats_the_selectors_or_leaves_them(full):
    cursor = full.range("p", prefix="b", limit=5).rows_and_end()[1]["cursor"]
    with_selectors = full.range("p", prefix="b", limit=5, cursor=cursor).rows_and_end()
    without = full.range("p", limit=5, cursor=cursor).rows_and_end()
    assert keys(with_selectors[0]) == keys(without[0]) == KEYS[25:30]


def test_cursors_that_were_changed_or_belong_elsewhere_are_refused(full, server):
    cursor = full.range("p", prefix="b", limit=5).rows_and_end()[1]["cursor"]
    other = server.namespace("elsewhere")
    foreign = [
        full.range("q", cursor=cursor),
        other.range("p", cursor=cursor),
        full.range("p", cursor=cursor, prefix="c"),
        full.range("p", cursor=cursor, reverse="true"),
        full.scan(cursor=cursor),
        full.range("p", cursor=full.scan(limit=1).rows_and_end()[1]["cursor"]),
        full.range("p", cursor=""),
        full.range("p", cursor="AAAA"),
        full.range("p", cursor=cursor + "A"),
        full.range("p", cursor=cursor[:-1]),
        full.range("p", cursor=cursor * 50),
    ]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for at, letter in enumerate(cursor):
        changed = alphabet[(alphabet.index(letter) + 1) % 64]
        answer = full.range("p", cursor=cursor[:at] + changed + cursor[at + 1 :])
        foreign.append(answer)
    for answer in foreign:
        answer.problem(400, "invalid-cursor")


def test_a_walk_is_not_disturbed_by_writes(full):
    cursor = full.range("p", limit=20).rows_and_end()[1]["cursor"]
    full.put("p", "a001", b"behind")
    full.put("p", "b001", b"ahead")
    full.delete("p", "c00")
    rest = keys(full.range_all("p", cursor=cursor))
    assert rest == sorted(set(KEYS[20:]) - {"c00"} | {"b001"})


@pytest.mark.parametrize(
    "query",
    [
        "limits=1",
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=1&limit=2",
        "limit=",
        "max_bytes=0",
        "max_bytes=1073741825",
        "reverse=1",
        "keys_only=no",
        "enc=hex",
        "Limit=1",
        "all=true",
    ],
)
def test_parameters_that_cannot_be_read_are_named(full, query):
    problem = full.client.get(f"{full.base}/range/p?{query}").problem(400, "invalid-query")
    assert query.partition("=")[0] in problem["detail"]


def test_unknown_parameters_are_refused_everywhere(full):
    for method, path in [
        ("GET", "/kv/a"),
        ("PUT", "/kv/a"),
        ("DELETE", "/kv/a"),
        ("GET", "/range/a"),
        ("DELETE", "/range/a"),
        ("POST", "/batch/get"),
        ("POST", "/batch/write"),
        ("POST", "/scan"),
    ]:
        answer = full.client.request(method, f"{full.base}{path}?wrong=1")
        assert "'wrong'" in answer.problem(400, "invalid-query")["detail"], (method, path)


def test_selectors_as_base64(full):
    query = f"prefix={b64u('b')}&start={b64u('b18')}&enc=b64u"
    rows, _ = full.client.get(f"{full.base}/range/{b64u('p')}?{query}").rows_and_end()
    assert keys(rows) == ["b18", "b19"]
    full.client.get(f"{full.base}/range/cA?prefix=!&enc=b64u").problem(400, "invalid-key")


def test_delete_range_needs_bounds_and_counts(full):
    delete = lambda query: full.client.delete(f"{full.base}/range/p{query}")
    problem = delete("").problem(400, "unbounded-delete")
    assert problem["outcome"] == "not-applied"
    for query in ("?dry_run=true", "?prefix=", "?start=", "?end=", "?prefix", "?start=a10&end="):
        delete(query).problem(400, "unbounded-delete")
    for query in ("?all=", "?all=1", "?prefix=b&all="):
        delete(query).problem(400, "invalid-query")
    assert delete("?prefix=b&dry_run=true").json() == {"rows": 20, "bytes": 240, "dry_run": True}
    assert len(full.range_all("p")) == 60
    assert delete("?prefix=b").json() == {"rows": 20, "bytes": 240, "dry_run": False}
    assert keys(full.range_all("p")) == KEYS[:20] + KEYS[40:]
    assert delete("?start=a10&end=c05").json()["rows"] == 15
    assert delete("?prefix=zz").json()["rows"] == 0
    assert delete("?start=z&end=a").json()["rows"] == 0
    assert delete("?all=true&dry_run").json()["rows"] == 25
    assert delete("?all=true").json()["rows"] == 25
    assert full.range_all("p") == []


def test_delete_range_of_many_rows_spares_the_other_partitions(ns):
    for first in range(0, 5000, 2500):
        numbers = range(first, first + 2500)
        rows = [{"pk": pk, "sk": f"{number:04}", "v": "x"} for number in numbers for pk in "pq"]
        assert ns.write(rows).status == 200
    assert ns.client.delete(f"{ns.base}/range/p?all=true").json()["rows"] == 5000
    assert ns.range_all("p") == [] and len(ns.range_all("q")) == 5000


@pytest.mark.redb("a minute that passes in no time ends the wait for the cluster, too")
def test_a_delete_range_cut_by_its_deadline_says_what_is_gone(server, ns, still):
    """The deadline passes when the first step is seen to be done."""
    path = f"{ns.base}/range/p?all=true"

    def left():
        # A step that was under way may end after the answer; this write stands behind it.
        ns.delete("p", "nothing")
        return ns.client.delete(path + "&dry_run=true").json()["rows"]

    def check(answer, gone):
        """Returns how many rows the answer is sure of."""
        if answer.status == 200:
            assert answer.json()["rows"] == gone, answer
            return gone
        problem = answer.json()
        if problem["outcome"] == "not-applied":
            assert gone == 0, answer
            answer.problem(504, "deadline-before-store")
            return 0
        assert problem["outcome"] == "unknown", answer
        answer.problem(504, "deadline-in-store")
        # Nothing is told where not even the first step is known to be done.
        told = re.search(r"at least (\d+) rows were removed", problem["detail"])
        told = int(told[1]) if told else 0
        assert told <= gone <= told + STEP_ROWS, answer
        return told

    def is_cut():
        for first in range(0, MANY, 5000):
            rows = [{"pk": "p", "sk": f"{number:05}", "v": ""} for number in range(first, first + 5000)]
            assert ns.write(rows).status == 200
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            deleted = pool.submit(server.client().delete, path, Umbo_Timeout_Ms="60000")
            wait_until(lambda: ns.get("p", "00000", cache_control="no-cache").status == 404, "a step is done")
            still.advance(60)
        return 0 < check(deleted.result(), MANY - left()) < MANY

    check(ns.client.delete(path, Umbo_Timeout_Ms="1"), 0)
    # A delete that is over before it is seen to have begun is tried again.
    wait_until(is_cut, "a delete is cut short")
    remaining = left()
    assert ns.client.delete(path).json()["rows"] == remaining and left() == 0
