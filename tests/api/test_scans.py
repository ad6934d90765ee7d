"""Scans: every row of a namespace exactly once, in any number of segments and pages."""

import json

import pytest

from harness import read_answer, row_bytes

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


@pytest.fixture(scope="module")
def full(server):
    ns = server.namespace("scanned")
    rows = [{"pk": f"p{number % 97}", "sk": str(number), "v": "x" * 20} for number in range(1500)]
    assert ns.write(rows).status == 200
    other = server.namespace("scanned-not")
    other.write([{"pk": "p1", "sk": "foreign", "v": "x"}])
    return ns


def keys(rows):
    return [(row_bytes(row, "pk"), row_bytes(row, "sk")) for row in rows]


EXPECTED = sorted((f"p{n % 97}".encode(), str(n).encode()) for n in range(1500))


@pytest.mark.parametrize("segments", [1, 2, 3, 7, 16])
def test_segments_give_each_row_once(full, segments):
    found = []
    for segment in range(segments):
        found += keys(full.scan_all(segments=segments, segment=segment))
    assert sorted(found) == EXPECTED


def test_a_segment_for_each_slot_gives_each_row_once(server, full):
    def request(segment):
        body = json.dumps({"segments": 4096, "segment": segment})
        return f"POST {full.base}/scan HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    found = []
    with server.raw(b"") as sock, sock.makefile("rb") as reader:
        # Many requests are on their way at a time: there are as many segments as slots.
        for first in range(0, 4096, 64):
            sock.sendall(b"".join(request(segment) for segment in range(first, first + 64)))
            for _ in range(64):
                rows, end = read_answer(reader).rows_and_end()
                assert end["why"] == "done", end
                found += keys(rows)
    assert sorted(found) == EXPECTED


@pytest.mark.parametrize("bounds", [{"limit": 100}, {"max_bytes": 1000}, {"keys_only": True}])
def test_pages_give_each_row_once(full, bounds):
    assert sorted(keys(full.scan_all(segments=3, segment=1, **bounds))) == sorted(
        keys(full.scan_all(segments=3, segment=1))
    )
    assert sorted(keys(full.scan_all(**bounds))) == EXPECTED


def test_a_scan_needs_no_body(full):
    rows, end = full.client.post(f"{full.base}/scan").rows_and_end()
    assert sorted(keys(rows)) == EXPECTED and end["why"] == "done"


def test_a_scan_as_json_array(full):
    rows, end = full.scan(headers={"Accept": "application/json"}).rows_and_end()
    assert len(rows) == 1000 and end["more"]


def test_a_cursor_belongs_to_its_segment(full):
    cursor = full.scan(segments=2, segment=1, limit=5).rows_and_end()[1]["cursor"]
    assert full.scan(cursor=cursor, limit=5).status == 200
    assert full.scan(segments=2, segment=1, cursor=cursor, limit=5).status == 200
    full.scan(segments=2, segment=0, cursor=cursor).problem(400, "invalid-cursor")
    full.scan(segments=3, segment=1, cursor=cursor).problem(400, "invalid-cursor")
    full.scan(cursor="nonsense").problem(400, "invalid-cursor")


@pytest.mark.parametrize(
    "body",
    [
        {"segments": 0},
        {"segments": 4097},
        {"segments": 2, "segment": 2},
        {"segment": 1},
        {"segments": -1},
        {"limit": 0},
        {"max_bytes": 0},
        {"max_bytes": (1 << 30) + 1},
        {"unknown": 1},
        {"keys_only": "yes"},
        [],
        "text",
    ],
    ids=json.dumps,
)
def test_bodies_that_cannot_be_read_are_refused(full, body):
    answer = full.client.post(f"{full.base}/scan", json.dumps(body))
    assert answer.status == 400, answer
    answer.problem(400, answer.json()["type"].rsplit("/", 1)[1])


def test_a_row_is_one_line_to_every_reader(ns):
    """Clients that split text by Unicode's line ends, as Python's splitlines does, see each row as one line."""
    odd = "a\u0085b\u2028c\u2029d"
    ns.put(odd, odd, odd.encode())
    for body in (ns.range(odd).body, ns.scan().body, ns.multi_get([{"pk": odd, "sk": odd}]).body):
        lines = body.decode().splitlines()
        assert len(lines) == 2, lines
        row = json.loads(lines[0])
        assert row["sk"] == odd and row["v"] == odd
