"""Multi-get and batch write: one answer a row, 207 where any failed, all or nothing by partition."""

import json

import pytest

from harness import b64u, curl

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


def test_multi_get_answers_in_order_with_a_status_a_row(ns):
    ns.put("a", "1", b"x", content_type="text/plain", Umbo_Expires_At="4102444800000")
    ns.put(b"\xff", value=b"\xfe")
    keys = [{"pk": "zz"}, {"pk": "a", "sk": "1"}, {"pk64": b64u(b"\xff")}, {"pk": "a", "sk": "1"}]
    answer = ns.multi_get(keys)
    *rows, last = answer.batch()
    assert answer.status == 200, "absent rows are no failures"
    assert [(row["i"], row["status"]) for row in rows] == [(0, 404), (1, 200), (2, 200), (3, 200)]
    assert rows[1]["v"] == "x" and rows[1]["content_type"] == "text/plain"
    assert rows[1]["expires_at"] == 4102444800000
    assert rows[2]["v64"] == b64u(b"\xfe") and rows[2]["pk64"] == b64u(b"\xff")
    assert rows[0] == {"i": 0, "status": 404, "pk": "zz", "sk": ""}
    assert last == {"end": {"rows": 4, "failed": 0}}
    assert ns.multi_get([]).batch() == [{"end": {"rows": 0, "failed": 0}}]


def test_multi_get_bounds(ns):
    assert ns.multi_get([{"pk": str(n)} for n in range(1000)]).status == 200
    ns.multi_get([{"pk": str(n)} for n in range(1001)]).problem(413, "batch-too-large")
    for number in range(9):
        ns.put(str(number), value=b"x" * (1 << 20))
    answer = ns.multi_get([{"pk": str(number)} for number in range(9)])
    *rows, last = answer.batch()
    assert answer.status == 207 and last["end"] == {"rows": 9, "failed": rows[-1]["i"] - 6}
    assert {row["status"] for row in rows} == {200, 413}
    assert rows[-1]["error"]["type"].endswith("batch-too-large")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        '{"keys":[{"pk":""}]}',
        '{"keys":[{"sk":"a"}]}',
        '{"keys":[{"pk":"a","pk64":"YQ"}]}',
        '{"keys":[{"pk64":"YQ=="}]}',
        '{"keys":[{"pk":"a","x":1}]}',
        '{"keys":[{"pk":1}]}',
        '{"keys":[],"more":1}',
        '{"keys":[{"pk":"' + "a" * 1025 + '"}]}',
        '{"keys":[{"pk":"\ud800"}]}',
    ],
)
def test_multi_get_bodies_that_cannot_be_read(ns, body):
    answer = ns.client.post(f"{ns.base}/batch/get", body.encode("utf-8", "surrogatepass"))
    answer.problem(400, "invalid-body")


def test_batch_write_answers_each_line(ns):
    tag = ns.put("old", value=b"x").headers["etag"]
    answer = ns.write(
        [
            {"pk": "a", "sk": "1", "v": "x"},
            "",
            {"op": "put", "pk": "a", "sk": "1", "v": "y", "content_type": "text/a"},
            {"op": "del", "pk": "a", "sk": "nothing"},
            {"pk64": b64u(b"\xff"), "v64": b64u(b"\0\xff")},
            {"pk": "old", "v": "z", "if_match": tag},
            {"pk": "old", "v": "z", "if_match": tag},
            {"pk": "new", "v": "z", "if_none_match": "*"},
            {"pk": "new", "v": "z", "if_none_match": "*"},
            "   ",
        ]
    )
    *rows, last = answer.batch()
    statuses = [201, 204, 204, 201, 204, 412, 201, 412]
    assert [row["status"] for row in rows] == statuses
    assert [row["i"] for row in rows] == list(range(8)) and answer.status == 207
    assert last == {"end": {"rows": 8, "failed": 2}}
    assert rows[5]["error"]["etag"] == f'"{rows[4]["version"]}"'
    assert rows[5]["error"]["outcome"] == "not-applied"
    assert rows[5]["error"]["type"] == "/v1/errors/precondition-failed"
    assert ns.get("a", "1").headers["etag"] == f'"{rows[1]["version"]}"'
    assert ns.get("a", "1").body == b"y" and ns.get(b"\xff").body == b"\0\xff"


def test_order_within_one_key_is_that_of_the_lines(ns):
    rows = [{"pk": "a", "v": str(number)} for number in range(500)]
    *answers, _ = ns.write(rows).lines()
    versions = [answer["version"] for answer in answers]
    assert versions == sorted(set(versions)) and ns.get("a").body == b"499"
    ns.write([{"pk": "a", "v": "x"}, {"op": "del", "pk": "a"}])
    ns.get("a").problem(404, "key-not-found")


def test_malformed_lines_are_named_and_the_others_done(ns):
    bad = [
        "nonsense",
        "{}",
        '{"pk":"a"}',
        '{"pk":"","v":"x"}',
        '{"pk":"a","v":"x","extra":1}',
        '{"pk":"a","v":"x","ttl":0}',
        '{"pk":"a","v":"x","ttl":1,"expires_at":5}',
        '{"pk":"a","v":"x","expires_at":18446744073709551615}',
        '{"pk":"a","v":"x","v64":"eA"}',
        '{"pk":"a","v64":"="}',
        '{"op":"del","pk":"a","v":"x"}',
        '{"op":"get","pk":"a"}',
        '{"pk":"a","v":"x","if_match":"1","if_none_match":"*"}',
        '{"pk":"a","v":"x","if_match":"one"}',
        '{"pk":"a","v":"x","content_type":"a\\nb"}',
        '{"pk":"' + "p" * 1025 + '","v":"x"}',
        '{"pk":"a","sk":"' + "s" * 2049 + '","v":"x"}',
        '{"pk":"a","v":"' + "v" * (1048576 + 1) + '"}',
        "[" * 5000,
    ]
    lines = []
    for number, line in enumerate(bad):
        lines += [{"pk": f"good-{number}", "v": "x"}, line]
    answer = ns.write(lines)
    *rows, last = answer.batch()
    assert answer.status == 207
    assert last["end"] == {"rows": 2 * len(bad), "failed": len(bad)}
    for row in rows:
        if row["i"] % 2 == 0:
            assert row["status"] == 201, row
        else:
            assert row["status"] in (400, 413), (row, bad[row["i"] // 2][:80])
            assert row["error"]["outcome"] == "not-applied" and row["error"]["detail"]
            # A line is of the body, whatever is wrong with it.
            assert not row["error"]["type"].endswith("/invalid-query"), row
    assert len(ns.scan_all()) == len(bad)


@pytest.mark.parametrize(
    ("media_type", "why"),
    [
        ("text/csv; charset=latin1", "'latin1'"),
        ("text/csv; delimiter=x", "is 'x', expected"),
        ("application/vnd.apache.parquet", "umbo kv import"),
    ],
)
def test_rows_of_other_formats_are_refused_by_their_media_type(ns, media_type, why):
    refused = ns.write(["pk,v", "a,1"], headers={"Content-Type": media_type}).problem(415, "unsupported-format")
    for words in (why, "application/x-ndjson", "text/csv"):
        assert words in refused["detail"], refused
    assert refused["outcome"] == "not-applied"
    # What curl and other clients send of themselves says nothing of the rows.
    for said in ("application/x-www-form-urlencoded", "text/plain", "application/x-ndjson", "nonsense"):
        assert ns.write([{"pk": "a", "v": "1"}], headers={"Content-Type": said}).status == 200, said


def csv_batch(ns, text, query="", media_type="text/csv", **headers):
    body = text.encode() if isinstance(text, str) else text
    return ns.client.request("POST", f"{ns.base}/batch/write{query}", body, {"Content-Type": media_type, **headers})


def test_rows_of_csv_are_written_and_refused_one_by_one(ns):
    ns.put("gone", "", b"x")
    long = "x" * 1_025
    text = (
        "\ufeffpk,sk,v,op,ttl,v64\r\n"
        'a,1,"two\nlines, ""quoted""",,,\r\n'
        "\r\n"
        "gone,,,del,,\r\n"
        'b,1,"x"y,,,\r\n'
        "b,2\r\n"
        f"{long},1,x,,,\r\n"
        "c,1,,,60,_w\r\n"
        "d,1,x,inc,,"
    )
    answer = csv_batch(ns, text)
    *rows, last = answer.batch()
    assert answer.status == 207 and last["end"]["rows"] == 7 and last["end"]["failed"] == 4, answer
    assert [row["status"] for row in rows] == [201, 204, 400, 400, 413, 201, 400], rows
    reasons = [row["error"]["detail"] for row in rows if "error" in row]
    for reason, words in zip(reasons, ["is not CSV", "it has 2 cells", "1024", "'op'"]):
        assert words in reason, reasons
    assert rows[4]["error"]["type"].endswith("/key-too-large"), rows[4]
    assert ns.get("a", "1").body == b'two\nlines, "quoted"' and ns.get("c", "1").body == b"\xff"
    assert "umbo-expires-at" in ns.get("c", "1").headers and ns.get("gone").status == 404


def test_csv_of_a_batch_is_written_as_its_media_type_says(ns):
    media_type = 'text/csv; delimiter=";"; null=NULL; columns="pk,v"'
    assert csv_batch(ns, "a;x,y\nb;NULL\n", media_type=media_type).status == 207
    assert [(row["pk"], row["v"]) for row in ns.scan_all()] == [("a", "x,y")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("pk,name\na,b\n", "column 'name' is not a field"),
        ("pk;v\na;b\n", "semicolons"),
        ('pk,v\na,1\nb,"2\n', "is not closed"),
        ("pk,v\na,1\n".encode("utf-16"), "UTF-16"),
        ('{"pk":"a","v":"1"}', "column"),
    ],
)
def test_csv_that_cannot_be_read_refuses_the_whole_batch(ns, text, says):
    refused = csv_batch(ns, text).problem(400, "invalid-body")
    assert says in refused["detail"] and refused["outcome"] == "not-applied", refused
    assert ns.scan_all() == []


def test_an_atomic_batch_of_csv_is_whole_or_nothing(ns):
    refused = csv_batch(ns, "pk,v\na,1\nb\n", "?atomic=partition").problem(400, "invalid-body")
    assert "row 1" in refused["detail"] and ns.scan_all() == []
    assert csv_batch(ns, "pk,sk,v\na,1,x\na,2,y\n", "?atomic=partition").status == 200
    too_many = "pk,v\n" + "".join(f"p{n},\n" for n in range(10_001))
    csv_batch(ns, too_many).problem(413, "batch-too-large")
    # The same bytes in another format are another request.
    key = {"Idempotency-Key": "once"}
    assert csv_batch(ns, "pk,v\nk,1\n", **key).status == 200
    assert csv_batch(ns, "pk,v\nk,1\n", **key).headers["umbo-replayed"]
    other = csv_batch(ns, "pk,v\nk,1\n", media_type="text/csv; null=NULL", **key)
    assert other.batch()[0]["status"] == 422, other


def test_atomic_by_partition(ns):
    ns.put("b", "1", b"old")
    lines = [
        {"pk": "a", "sk": "1", "v": "x"},
        {"pk": "b", "sk": "2", "v": "x"},
        {"pk": "b", "sk": "1", "v": "x", "if_none_match": "*"},
        {"pk": "a", "sk": "2", "v": "x"},
    ]
    answer = ns.write(lines, "?atomic=partition")
    *rows, last = answer.batch()
    assert answer.status == 207 and last["end"]["failed"] == 2
    assert [row["status"] for row in rows] == [201, 412, 412, 201]
    assert "row 2" in rows[1]["error"]["detail"]
    assert len(ns.range_all("a")) == 2
    assert [(row["sk"], row["v"]) for row in ns.range_all("b")] == [("1", "old")]


def test_an_atomic_batch_with_a_malformed_line_does_nothing(ns):
    lines = [{"pk": "a", "v": "x"}, "nonsense", {"pk": "b", "v": "x"}]
    problem = ns.write(lines, "?atomic=partition").problem(400, "invalid-body")
    assert "row 1" in problem["detail"] and problem["outcome"] == "not-applied"
    assert ns.scan_all() == []


def test_an_atomic_group_has_its_bound(ns):
    rows = [{"pk": "a", "sk": str(number), "v": ""} for number in range(1001)]
    ns.write(rows, "?atomic=partition").problem(413, "batch-too-large")
    assert ns.scan_all() == []
    assert ns.write(rows[:1000], "?atomic=partition").status == 200
    ns.write(rows[:1], "?atomic=all").problem(400, "invalid-query")


def test_batch_bounds(server, ns):
    rows = [{"op": "del", "pk": str(number)} for number in range(10_000)]
    assert ns.write(rows).status == 200
    ns.write(rows + rows[:1]).problem(413, "batch-too-large")
    assert ns.write([]).batch() == [{"end": {"rows": 0, "failed": 0}}]
    huge = json.dumps({"pk": "a", "v": "x" * 1_000_000})
    url = f"http://127.0.0.1:{server.port}{ns.base}/batch/write"
    refused = curl("--data-binary", "@-", url, data="\n".join([huge] * 17).encode())
    refused.problem(413, "body-too-large")
    assert ns.scan_all() == []


def test_minimal_answers_hold_only_what_failed(ns):
    lines = [{"pk": "a", "v": "x"}, "bad", {"pk": "b", "v": "x"}]
    rows = ns.write(lines, headers={"Prefer": "return=minimal"}).batch()
    assert [row.get("i") for row in rows] == [1, None]
    assert rows[-1] == {"end": {"rows": 3, "failed": 1}}


def test_exported_rows_are_lines_of_a_batch(ns, server):
    ns.put(b"\xff", b"\0", b"\xfe", content_type="x/y", Umbo_Expires_At="4102444800000")
    ns.put("text", "key", "wörter".encode())
    exported = ns.scan_all()
    copy = server.namespace("copy")
    assert copy.write(exported).status == 200
    strip = lambda rows: [{k: v for k, v in row.items() if k != "version"} for row in rows]
    order = lambda rows: sorted(strip(rows), key=json.dumps)
    assert order(copy.scan_all()) == order(exported)


def test_rows_that_have_expired_already_are_skipped_and_counted(ns):
    past, seconds = 1_600_000_000_000, 1_763_000_000
    ns.put("b", "", b"before")
    rows = [
        {"pk": "a", "v": "x", "ttl": "5m"},
        {"pk": "b", "v": "x", "expires_at": past},
        {"pk": "c", "v": "x", "expires_at": past + 10**13},
    ]
    answer = ns.write(rows)
    assert answer.status == 200
    first, second, third, end = answer.batch()
    assert (first["status"], third["status"]) == (201, 201)
    assert second == {"i": 1, "status": 200, "skipped": "expired"}
    assert end == {"end": {"rows": 3, "failed": 0, "skipped": 1}}
    assert ns.get("b", "").body == b"before", "nothing is written"
    minimal = ns.write(rows, headers={"Prefer": "return=minimal"}).batch()
    assert minimal == [{"end": {"rows": 3, "failed": 0, "skipped": 1}}]
    refused = ns.write(rows, query="?atomic=partition").problem(400, "invalid-body")
    assert "row 1" in refused["detail"] and "expired" in refused["detail"]
    (row, end) = ns.write([{"pk": "d", "v": "x", "expires_at": seconds}]).batch()
    assert row["status"] == 400 and "milliseconds" in row["error"]["detail"] and end["end"]["failed"] == 1


def test_what_people_send_first_is_told_what_is_wrong(ns):
    """A byte order mark costs nothing; a list is refused whole; JSON as a value, and lines that have lost their ends, are named."""
    answer = ns.write(['\ufeff{"pk":"a","v":"1"}', {"pk": "b", "v": "2"}])
    assert answer.status == 200 and ns.get("a", "").body == b"1"
    refused = ns.write(['[{"pk":"c","v":"1"}]']).problem(400, "invalid-body")
    assert "one JSON object per line" in refused["detail"]
    for line, words in [
        ('{"pk":"d","v":{"x":1}}', "'v' is an object, expected text"),
        ('{"pk":"d","v":5}', "'v' is a number, expected text"),
        ('{"pk":7,"v":"x"}', "'pk' is a number, expected text"),
        ('{"pk":"d","v":"1"}{"pk":"e","v":"2"}', "--data-binary"),
        ('{"pk":"d","v":x}', "at column 15"),
        ('{"pk":"d","v":"1"', "the text ends within an object"),
    ]:
        row, end = ns.write([line]).batch()
        assert row["status"] == 400 and words in row["error"]["detail"], row
        assert "line 1" not in row["error"]["detail"]
    for keys, words in [
        (["a"], 'expected an object at line 1 column 13, not the text "a"'),
        ({"pk": "a"}, "expected a list at line 1 column 9, not an object"),
        ([{"pk": 5}], "expected text at line 1 column 18, not the number `5`"),
    ]:
        refused = ns.multi_get(keys).problem(400, "invalid-body")
        assert refused["detail"] == words, refused
    assert len(ns.scan_all()) == 2
