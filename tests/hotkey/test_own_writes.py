"""Writes through a server are seen at once by reads through it, whatever it keeps."""

import itertools
import threading

import pytest

from harness import Client, Namespace
from hot import came_by, is_hit, kept, pin, pinned_range, warmed


def test_a_put_is_seen_at_once(ns):
    kept(ns, "a", value=b"0")
    for number in range(1, 50):
        written = ns.put("a", value=str(number).encode())
        answer = ns.get("a")
        assert answer.body == str(number).encode()
        assert answer.headers["etag"] == written.headers["etag"]
        assert is_hit(ns.get("a")) or number < 50


def test_a_delete_is_seen_at_once(ns):
    kept(ns, "a")
    assert ns.delete("a").status == 204
    ns.get("a").problem(404, "key-not-found")


def test_a_put_ends_a_kept_absence(ns):
    pin(ns, "a")
    warmed(lambda: ns.get("a")).problem(404, "key-not-found")
    ns.put("a", value=b"v")
    assert ns.get("a").body == b"v"


def test_a_delete_of_a_range_is_seen_at_once(ns):
    kept(ns, "p", "a")
    kept(ns, "p", "b")
    kept(ns, "q", "a")
    deleted = ns.client.delete(f"{ns.base}/range/p?prefix=a")
    assert deleted.status == 200, deleted
    ns.get("p", "a").problem(404, "key-not-found")
    assert ns.get("p", "b").body == b"v" and ns.get("q", "a").body == b"v"


@pytest.mark.parametrize("query", ["", "?atomic=partition"])
def test_a_batch_is_seen_at_once(ns, query):
    for key in ("a", "b", "c"):
        kept(ns, key)
    rows = [{"op": "put", "pk": "a", "v": "new"}, {"op": "del", "pk": "b"}]
    assert ns.write(rows, query).status == 200
    assert ns.get("a").body == b"new"
    ns.get("b").problem(404, "key-not-found")
    assert ns.get("c").body == b"v"


def test_a_row_written_is_seen_in_a_kept_range(server, ns):
    ns.write([{"op": "put", "pk": "p", "sk": f"s{n}", "v": "old"} for n in range(4)])
    pinned_range(server, ns, "p", limit=9)
    warmed(lambda: ns.range("p", limit=9))
    for number, change in enumerate(
        [
            lambda: ns.put("p", "s1", b"new"),
            lambda: ns.delete("p", "s2"),
            lambda: ns.write([{"op": "put", "pk": "p", "sk": "s9", "v": "more"}]),
            lambda: ns.client.delete(f"{ns.base}/range/p?prefix=s0"),
        ]
    ):
        assert change().status in (200, 201, 204), number
        rows, _ = ns.range("p", limit=9, headers=None).lines()[:-1], None
        seen = {row["sk"]: row["v"] for row in rows}
        expected = [
            {"s0": "old", "s1": "new", "s2": "old", "s3": "old"},
            {"s0": "old", "s1": "new", "s3": "old"},
            {"s0": "old", "s1": "new", "s3": "old", "s9": "more"},
            {"s1": "new", "s3": "old", "s9": "more"},
        ][number]
        assert seen == expected, number
        warmed(lambda: ns.range("p", limit=9))


def test_a_write_that_is_refused_ends_nothing_that_is_true(ns):
    first = kept(ns, "a", value=b"kept")
    refused = ns.put("a", value=b"other", If_Match='"1"')
    refused.problem(412, "precondition-failed")
    answer = ns.get("a")
    assert answer.body == b"kept" and answer.headers["etag"] == first.headers["etag"]


def test_a_namespace_made_anew_has_none_of_the_old_answers(server, ns):
    kept(ns, "a")
    assert ns.client.delete(f"/admin/v1/namespaces/{ns.name}").status == 204
    ns.get("a").problem(404, "namespace-not-found")
    server.namespace(ns.name)
    ns.get("a").problem(404, "key-not-found")


def test_no_reader_ever_sees_an_older_value_than_was_acknowledged(server, ns):
    """Readers in the middle of a stampede, and a writer: after a write is answered nobody reads
    what was there before it."""
    ns.put("a", value=b"0")
    pin(ns, "a")
    acknowledged, stop, wrong, reads = [0], threading.Event(), [], [0, 0]

    def read():
        mine = Namespace(Client(server.port), ns.name)
        while not stop.is_set():
            least = acknowledged[0]
            answer = mine.get("a")
            reads[0] += 1
            reads[1] += came_by(answer) != "miss"
            if int(answer.body) < least:
                wrong.append((least, answer))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        # Until there were enough reads between the writes, too.
        for number in itertools.count(1):
            assert ns.put("a", value=str(number).encode()).status == 204
            acknowledged[0] = number
            assert all(reader.is_alive() for reader in readers)
            if wrong or (number >= 199 and reads[0] > 100 and reads[1] > 0):
                break
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong, wrong[:3]
