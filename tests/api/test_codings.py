"""Content codings: bodies that come compressed, answers that leave compressed, values that are stored so."""

import gzip
import json

import pytest

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


def zstd(text):
    """A frame of one block as it stands (RFC 8878)."""
    assert len(text) < 256
    block = (1 | len(text) << 3).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(text)]) + block + text


LINES = b'{"pk":"a","sk":"1","v":"x"}\n{"pk":"a","sk":"2","v":"y"}\n'
# The name of a case holds its bytes, and must be the same in every worker: without the time of compression.
GZIP = gzip.compress(LINES, mtime=0)
BODIES = [("gzip", GZIP), ("x-gzip", GZIP), ("zstd", zstd(LINES)), ("identity", LINES)]


@pytest.mark.parametrize("coding, body", BODIES)
def test_a_body_may_be_compressed(ns, coding, body):
    write = lambda body: ns.client.post(f"{ns.base}/batch/write", body, Content_Encoding=coding)
    assert write(body).status == 200
    assert [row["v"] for row in ns.range_all("a")] == ["x", "y"]
    if coding != "identity":
        write(LINES).problem(400, "invalid-body")
        write(body[:-1]).problem(400, "invalid-body")
    keys = json.dumps({"keys": [{"pk": "a", "sk": "1"}]}).encode()
    encode = {"zstd": zstd, "identity": bytes}.get(coding, gzip.compress)
    for path, body in (("batch/get", keys), ("scan", b"{}"), ("explain", b'{"operation":"get","pk":"a"}')):
        answer = ns.client.post(f"{ns.base}/{path}", encode(body), Content_Encoding=coding)
        assert answer.status == 200, answer


def test_a_compressed_body_is_bounded_by_what_it_becomes(ns):
    bomb = gzip.compress(b" " * (32 << 20))
    assert len(bomb) < 64 << 10
    answer = ns.client.post(f"{ns.base}/batch/write", bomb, Content_Encoding="gzip")
    answer.problem(413, "body-too-large")


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzipp", ""])
def test_other_codings_are_refused_with_those_there_are(ns, coding):
    answer = ns.client.post(f"{ns.base}/batch/write", LINES, Content_Encoding=coding)
    answer.problem(415, "unsupported-coding")
    assert answer.headers["accept-encoding"] == "gzip, zstd"
    admin = ns.client.put("/admin/v1/namespaces/coded", b"{}", Content_Encoding=coding)
    admin.problem(415, "unsupported-coding")
    assert admin.headers["accept-encoding"] == "gzip, zstd"


def test_the_admin_api_reads_compressed_bodies_and_holds_its_bound(ns):
    path, spec = "/admin/v1/namespaces/coded-{}", b'{"default_ttl":"1h"}'
    for coding, body in (("gzip", gzip.compress(spec)), ("zstd", zstd(spec)), ("identity", spec)):
        made = ns.client.put(path.format(coding), body, Content_Encoding=coding)
        assert made.status == 201 and made.json()["default_ttl"] == 3600, made
    long = gzip.compress(b'{"default_ttl":"' + b" " * (1 << 20) + b'"}')
    ns.client.put(path.format("long"), long, Content_Encoding="gzip").problem(413, "body-too-large")
    ns.client.put(path.format("bad"), spec, Content_Encoding="gzip").problem(400, "invalid-body")
    policy = b'{"name":"coded","match":{"caller":"nobody"},"unit":"ru","rate":1}'
    assert ns.client.put("/admin/v1/quotas/coded", gzip.compress(policy), Content_Encoding="gzip").status == 201
    assert ns.client.delete("/admin/v1/quotas/coded").status == 200


def inflate(answer):
    assert answer.headers["content-encoding"] == "gzip", answer
    return gzip.decompress(answer.body)


def test_long_answers_are_compressed_where_that_is_asked_for(ns):
    rows = [{"pk": "p", "sk": f"{number:05}", "v": "words " * 10} for number in range(3000)]
    written = ns.client.post(f"{ns.base}/batch/write", "\n".join(map(json.dumps, rows)), Accept_Encoding="gzip")
    assert inflate(written).count(b'"status":201') == 3000
    plain = ns.range("p", max_bytes=1 << 20)
    assert "content-encoding" not in plain.headers and plain.headers["vary"] == "accept-encoding"
    coded = ns.range("p", headers={"Accept-Encoding": "br, gzip;q=0.5"}, max_bytes=1 << 20)
    lines = inflate(coded)
    assert lines.splitlines()[:-1] == plain.body.splitlines()[:-1] and lines.count(b"\n") == 3001
    assert len(coded.body) < len(lines) / 5
    keys = [{"pk": "p", "sk": row["sk"]} for row in rows[:1000]]
    assert inflate(ns.multi_get(keys, headers={"Accept-Encoding": "gzip"})).count(b"words") == 10_000
    for accepted in ("identity", "gzip;q=0", "br"):
        assert "content-encoding" not in ns.range("p", headers={"Accept-Encoding": accepted}).headers
    assert ns.range("p", headers={"Accept-Encoding": "gzip, zstd"}, limit=100).headers["content-encoding"] == "zstd"
    short = ns.range("p", headers={"Accept-Encoding": "gzip"}, limit=1)
    assert "content-encoding" not in short.headers and short.rows_and_end()[1]["more"]
    document = ns.client.get("/openapi.json", Accept_Encoding="gzip")
    assert json.loads(inflate(document)) == ns.client.get("/openapi.json").json()


def test_a_single_value_is_sent_as_it_is_stored(ns):
    ns.put("a", value=b"x" * 100_000)
    answer = ns.get("a", Accept_Encoding="gzip, zstd")
    assert answer.body == b"x" * 100_000 and "content-encoding" not in answer.headers


# Without the time of compression, as above.
@pytest.mark.parametrize(
    "coding, stored", [("gzip", gzip.compress(b"plain" * 99, mtime=0)), ("zstd", zstd(b"plain" * 50))]
)
def test_a_stored_coding_is_decoded_for_a_client_that_does_not_accept_it(ns, coding, stored):
    tag = ns.put("a", value=stored, content_encoding=coding).headers["etag"]
    for accepted in (coding, "br, *", f"{coding};q=0.1"):
        answer = ns.get("a", Accept_Encoding=accepted)
        assert (answer.body, answer.headers["content-encoding"]) == (stored, coding)
    for accepted in ("identity", "br", f"{coding};q=0, *", ""):
        answer = ns.get("a", Accept_Encoding=accepted)
        assert answer.status == 200 and set(answer.body[:5]) == set(b"plain"), answer
        assert "content-encoding" not in answer.headers
        # Other bytes have another tag, of the same version.
        assert answer.headers["etag"] == tag[:-1] + ';identity"'
        assert answer.headers["vary"] == "accept-encoding"


def test_a_stored_coding_that_cannot_be_decoded_is_refused(ns):
    bomb = gzip.compress(b" " * (9 << 20))
    for coding, stored in (("br", b"x"), ("gzip", b"no gzip"), ("gzip, br", b"x"), ("gzip", bomb)):
        ns.put("a", value=stored, content_encoding=coding)
        ns.get("a", Accept_Encoding="identity").problem(406, "not-acceptable")
        assert ns.get("a", Accept_Encoding="*").body == stored
        head = ns.client.request("HEAD", ns.path("a"), Accept_Encoding="identity")
        assert (head.status, head.headers["umbo-problem"]) == (406, "not-acceptable")
