"""Compression of a namespace at rest: clients see what they stored, and pay for what is moved."""

import base64
import hashlib
import json
import subprocess

import pytest

from harness import Namespace, binary
from processes import wait_until

TEXT = b"".join(b"row %d of a value that repeats itself; " % (n % 7) for n in range(60))
SHORT = b"too short to pay"
NOISE = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(64))


@pytest.fixture
def packed(ns):
    """A namespace with compression."""
    changed = ns.client.request("PATCH", f"/admin/v1/namespaces/{ns.name}", b'{"compression":"zstd"}')
    assert changed.status == 200 and changed.json()["compression"] == "zstd", changed
    return ns


def size(ns):
    return ns.client.get(f"/admin/v1/namespaces/{ns.name}").json()["size"]


def digest(body):
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def test_the_setting_is_off_is_named_and_is_changed(ns):
    path = f"/admin/v1/namespaces/{ns.name}"
    assert "compression" not in ns.client.get(path).json()
    ns.client.put(path, b'{"compression":"zstd"}').problem(409, "namespace-exists")
    ns.client.request("PATCH", path, b'{"compression":"lz4"}').problem(400, "invalid-body")
    assert ns.client.request("PATCH", path, b'{"compression":"zstd"}').json()["change"] == "changed"
    assert ns.client.request("PATCH", path, b'{"compression":null}').json()["change"] == "changed"
    assert "compression" not in ns.client.get(path).json()


@pytest.mark.parametrize("value", [b"", SHORT, TEXT, NOISE, bytes(1 << 20)], ids=["empty", "short", "text", "noise", "zeros"])
def test_a_client_reads_what_it_stored(packed, value):
    put = packed.put("a", "s", value=value, content_type="text/plain", Content_Digest=digest(value))
    for _ in range(2):
        read = packed.get("a", "s")
        assert (read.status, read.body) == (200, value)
        assert (read.headers["etag"], read.headers["content-type"]) == (put.headers["etag"], "text/plain")
        assert "content-encoding" not in read.headers
    head = packed.client.request("HEAD", packed.path("a", "s"))
    assert head.headers.get("content-length", "0") == str(len(value))
    [row] = packed.range_all("a")
    assert base64.urlsafe_b64decode(row["v64"] + "==") == value if "v64" in row else row["v"].encode() == value
    if value:
        assert packed.get("a", "s", Range="bytes=-5").body == value[-5:]


def test_a_client_that_names_zstd_gets_the_frame_and_a_tag_of_its_own(packed):
    tag = packed.put("a", value=TEXT).headers["etag"]
    plain = packed.get("a")
    assert (plain.body, plain.headers["vary"], plain.headers["etag"]) == (TEXT, "accept-encoding", tag)
    for accepted in ("zstd", "gzip, br, zstd"):
        frame = packed.get("a", Accept_Encoding=accepted)
        assert frame.headers["content-encoding"] == "zstd" and frame.headers["vary"] == "accept-encoding"
        assert frame.body[:4] == b"\x28\xb5\x2f\xfd" and len(frame.body) * 4 < len(TEXT)
        assert frame.headers["etag"] == tag[:-1] + ';zstd"'
    for accepted in ("*", "gzip", "zstd;q=0", "identity", ""):
        assert packed.get("a", Accept_Encoding=accepted).body == TEXT, accepted
    # A server reads the frame like any other body: what leaves compressed comes back whole.
    packed.put("b", value=frame.body, content_encoding="zstd")
    assert packed.get("b", Accept_Encoding="identity").body == TEXT
    # Parts are of the bytes that were stored.
    part = packed.get("a", Accept_Encoding="zstd", Range="bytes=4-9")
    assert (part.status, part.body, part.headers["etag"]) == (206, TEXT[4:10], tag)
    assert packed.get("a", Accept_Encoding="zstd", If_None_Match=tag).status == 304
    assert packed.put("a", value=b"x", If_Match=frame.headers["etag"]).status == 204


def test_rows_of_every_kind_of_read_are_plain(packed):
    lines = b"".join(json.dumps({"pk": "p", "sk": f"{n:03}", "v": TEXT.decode() + str(n)}).encode() + b"\n" for n in range(50))
    packed.client.post(f"{packed.base}/batch/write", lines).batch()
    expected = [TEXT.decode() + str(n) for n in range(50)]
    assert [row["v"] for row in packed.range_all("p")] == expected
    keys = json.dumps({"keys": [{"pk": "p", "sk": f"{n:03}"} for n in range(50)]}).encode()
    got = packed.client.post(f"{packed.base}/batch/get", keys).lines()
    assert [row["v"] for row in got[:-1]] == expected
    scanned = packed.client.post(f"{packed.base}/scan", b"{}").lines()
    assert sorted(row["v"] for row in scanned[:-1]) == sorted(expected)
    only_keys = packed.client.get(f"{packed.base}/range/p?keys_only=true").lines()[:-1]
    assert {row["bytes"] for row in only_keys} <= {len(TEXT) + 1, len(TEXT) + 2}


def test_a_page_of_values_that_compress_well_is_bounded_by_what_it_returns(packed):
    zeros = bytes(1 << 20)
    for n in range(6):
        packed.put("z", str(n), value=zeros)
    page = packed.client.get(f"{packed.base}/range/z").lines()
    assert len(page) < 6 and page[-1]["end"]["more"]
    assert len(packed.range_all("z")) == 6
    keys = json.dumps({"keys": [{"pk": "z", "sk": str(n % 6)} for n in range(20)]}).encode()
    rows = packed.client.post(f"{packed.base}/batch/get", keys).lines()[:-1]
    assert {row["status"] for row in rows} == {200, 413}


def test_a_touch_keeps_the_value_and_a_change_of_the_setting_keeps_the_rows(packed):
    packed.put("a", value=TEXT)
    touched = packed.client.request("PATCH", packed.path("a"), headers={"Umbo-TTL": "1h"})
    assert touched.status == 204 and packed.get("a").body == TEXT
    packed.client.request("PATCH", f"/admin/v1/namespaces/{packed.name}", b'{"compression":"off"}')
    packed.put("b", value=TEXT)
    assert packed.get("a").body == packed.get("b").body == TEXT
    assert "vary" not in packed.get("b").headers


def test_what_is_moved_is_charged_and_what_is_saved_is_shown(packed, still):
    large = TEXT * 40
    put, read = packed.put("a", value=large), packed.get("a")
    packed.client.request("PATCH", f"/admin/v1/namespaces/{packed.name}", b'{"compression":null}')
    plain_put, plain_read = packed.put("b", value=large), packed.get("b")
    ru = lambda answer: float(answer.headers["umbo-ru"])
    # 20 for 4 KiB each; the store's own milliseconds do not count here.
    assert ru(plain_put) - ru(put) > 15 and ru(plain_read) - ru(read) > 15
    still.go()
    # Of a cluster the size is what its nodes last told.
    wait_until(lambda: size(packed).get("bytes_saved", 0) > 0.8 * len(large), "what is saved is told")
    packed.delete("a")
    wait_until(lambda: "bytes_saved" not in size(packed), "nothing is saved any more")


def test_a_dry_run_counts_what_was_stored(packed):
    packed.put("a", "s", value=TEXT)
    counted = packed.client.request("DELETE", packed.path("a", "s") + "?dry_run=true").json()
    assert counted["bytes"] == len(TEXT) + 1
    ranged = packed.client.request("DELETE", f"{packed.base}/range/a?all=true&dry_run=true").json()
    assert ranged["bytes"] == len(TEXT) + 1


def test_explain_names_the_compression(packed):
    answer = packed.client.post(f"{packed.base}/explain", b'{"operation":"put","pk":"a","bytes":100}').json()
    assert answer["compression"] == "zstd"


def test_the_command_line_sets_it_and_shows_the_ratio(server):
    def umbo(*arguments):
        environment = {"UMBO_SERVER": f"http://127.0.0.1:{server.port}", "PATH": ""}
        done = subprocess.run([binary(), *arguments], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done
        return done.stdout

    made = umbo("ns", "create", "by-command", "--compression", "zstd")
    assert "COMPRESSION" in made and "zstd" in made
    ns = Namespace(server.client(), "by-command")
    ns.put("a", value=TEXT * 20)
    wait_until(lambda: size(ns).get("bytes_saved"), "what is saved is told")
    header, *rows = umbo("ns", "ls").splitlines()
    row = next(row.split() for row in rows if row.startswith("by-command"))
    assert float(row[header.split().index("RATIO") - len(header.split())]) > 4
    assert umbo("kv", "get", "by-command", "a").encode() == TEXT * 20


def test_rows_and_the_setting_outlive_a_kill(new_server):
    server = new_server().start()
    ns = server.namespace("kept", b'{"compression":"zstd"}')
    ns.put("a", value=TEXT)
    server.kill()
    server.start()
    ns = Namespace(server.client(), "kept")
    assert ns.client.get("/admin/v1/namespaces/kept").json()["compression"] == "zstd"
    assert ns.get("a").body == TEXT
    frame = ns.get("a", Accept_Encoding="zstd")
    assert frame.headers["content-encoding"] == "zstd" and len(frame.body) * 4 < len(TEXT)
