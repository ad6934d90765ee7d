"""Parts of values, and digests of bodies: Range, If-Range, Content-Range, Content-Digest."""

import base64
import gzip
import hashlib

import pytest

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")

VALUE = bytes(range(256)) * 4


def digest(body, algorithm="sha256", name="sha-256"):
    return f"{name}=:{base64.b64encode(hashlib.new(algorithm, body).digest()).decode()}:"


@pytest.mark.parametrize("asked, first, last", [
    ("bytes=0-0", 0, 0),
    ("bytes=10-19", 10, 19),
    ("bytes=1000-", 1000, 1023),
    ("bytes=1000-9999", 1000, 1023),
    ("bytes=-24", 1000, 1023),
    ("bytes=-9999", 0, 1023),
    ("Bytes=0-", 0, 1023),
])
def test_a_part_is_answered_with_its_place(ns, asked, first, last):
    tag = ns.put("part", value=VALUE, content_type="image/png").headers["etag"]
    part = ns.get("part", Range=asked)
    assert (part.status, part.body) == (206, VALUE[first:last + 1])
    assert part.headers["content-range"] == f"bytes {first}-{last}/1024"
    assert part.headers["content-length"] == str(last - first + 1)
    assert (part.headers["etag"], part.headers["content-type"]) == (tag, "image/png")


@pytest.mark.parametrize("ignored", ["bytes=0-1,5-6", "rows=0-1", "bytes=9-2", "bytes=x-", "bytes=-", "nonsense"])
def test_what_is_not_one_range_of_bytes_is_ignored(ns, ignored):
    ns.put("whole", value=VALUE)
    whole = ns.get("whole", Range=ignored)
    assert (whole.status, whole.body) == (200, VALUE)
    assert "content-range" not in whole.headers


def test_a_part_beyond_the_value_is_refused_with_its_length(ns):
    ns.put("short", value=b"abc")
    for asked in ("bytes=3-", "bytes=99-100", "bytes=-0"):
        refused = ns.get("short", Range=asked)
        refused.problem(416, "range-not-satisfiable")
        assert refused.headers["content-range"] == "bytes */3"
    ns.put("none", value=b"")
    assert ns.get("none", Range="bytes=0-").headers["content-range"] == "bytes */0"
    ns.get("absent", Range="bytes=0-1").problem(404, "key-not-found")


@pytest.mark.parametrize("value", [b"", VALUE, bytes(2 << 20)], ids=["empty", "small", "large"])
def test_head_has_the_fields_of_get_and_both_say_that_there_are_parts(ns, value):
    ns.put("head", value=value)
    head = ns.client.request("HEAD", ns.path("head"), headers={"Range": "bytes=0-1"})
    whole = ns.get("head")
    assert (head.status, head.headers["content-length"]) == (200, str(len(value)))
    assert head.headers["accept-ranges"] == "bytes"
    apart = {"date", "umbo-request-id", "umbo-ru", "cache-status", "age"}
    assert {name: text for name, text in head.headers.items() if name not in apart} == {
        name: text for name, text in whole.headers.items() if name not in apart
    }
    if value:
        assert ns.get("head", Range="bytes=0-0").headers["accept-ranges"] == "bytes"


def test_a_part_is_of_the_version_that_if_range_names_or_the_whole_is_the_answer(ns):
    old = ns.put("row", value=b"old value").headers["etag"]
    assert ns.get("row", Range="bytes=0-2", If_Range=old).body == b"old"
    new = ns.put("row", value=b"new value").headers["etag"]
    for other in (old, f"W/{new}", "Wed, 21 Oct 2026 07:28:00 GMT", '"x"'):
        whole = ns.get("row", Range="bytes=0-2", If_Range=other)
        assert (whole.status, whole.body) == (200, b"new value"), other
    assert ns.get("row", Range="bytes=0-2", If_Range=new).status == 206


def test_preconditions_come_before_the_part(ns):
    tag = ns.put("row", value=b"x").headers["etag"]
    assert ns.get("row", Range="bytes=9-", If_None_Match=tag).status == 304
    ns.get("row", Range="bytes=0-", If_Match='"1"').problem(412, "precondition-failed")


def test_a_decoded_value_has_a_tag_of_its_own_and_parts_count_in_what_is_answered(ns):
    coded = gzip.compress(VALUE, mtime=0)
    tag = ns.put("coded", value=coded, content_encoding="gzip").headers["etag"]
    plain = ns.get("coded", accept_encoding="identity")
    assert (plain.body, plain.headers["vary"]) == (VALUE, "accept-encoding")
    plain_tag = plain.headers["etag"]
    assert plain_tag == tag[:-1] + ';identity"'
    part = ns.get("coded", accept_encoding="identity", Range="bytes=5-9", If_Range=plain_tag)
    assert (part.status, part.body, part.headers["etag"]) == (206, VALUE[5:10], plain_tag)
    stored = ns.get("coded", accept_encoding="gzip", Range="bytes=5-9", If_Range=tag)
    assert (stored.status, stored.body, stored.headers["content-encoding"]) == (206, coded[5:10], "gzip")
    # A part of one representation is never answered to a client that has begun with the other.
    mixed = ns.get("coded", accept_encoding="gzip", Range="bytes=5-9", If_Range=plain_tag)
    assert (mixed.status, mixed.body) == (200, coded)
    # Both tags are of the same version.
    assert ns.get("coded", accept_encoding="identity", If_None_Match=tag).status == 304
    assert ns.get("coded", accept_encoding="identity", If_None_Match=tag).headers["etag"] == plain_tag
    assert ns.put("coded", value=b"new", If_Match=plain_tag).status == 204
    ns.put("coded", value=b"newer", If_Match=plain_tag).problem(412, "precondition-failed")


def test_a_body_is_stored_only_where_it_has_its_digest(ns):
    assert ns.put("row", value=b"right", Content_Digest=digest(b"right")).status == 201
    wrong = ns.put("row", value=b"wrong", Content_Digest=digest(b"right"))
    problem = wrong.problem(422, "digest-mismatch")
    assert (problem["outcome"], problem["retry"]["safe"]) == ("not-applied", True)
    assert ns.get("row").body == b"right"
    several = digest(b"more", "sha512", "sha-512") + ", " + digest(b"more")
    assert ns.put("row", value=b"more", Content_Digest=several).status == 204
    ns.put("row", value=b"less", Content_Digest=several).problem(422, "digest-mismatch")


def test_other_digests_are_ignored_and_a_malformed_one_is_refused(ns):
    other = digest(b"another", "sha512", "sha-512")
    assert ns.put("row", value=b"x", Content_Digest=other).status == 201
    for malformed in ("sha-256=", "sha-256=:AAAA:", "sha-256=:***:"):
        ns.put("row", value=b"y", Content_Digest=malformed).problem(400, "invalid-header")
    assert ns.get("row").body == b"x"


def test_the_digest_of_a_batch_is_of_the_body_as_it_is_sent(ns):
    lines = b'{"pk":"batch","v":"x"}\n'
    write = lambda body, **fields: ns.client.post(f"{ns.base}/batch/write", body, **fields)
    assert write(lines, Content_Digest=digest(lines)).status == 200
    write(lines, Content_Digest=digest(b"")).problem(422, "digest-mismatch")
    coded = gzip.compress(lines, mtime=0)
    assert write(coded, Content_Encoding="gzip", Content_Digest=digest(coded)).status == 200
    write(coded, Content_Encoding="gzip", Content_Digest=digest(lines)).problem(422, "digest-mismatch")
