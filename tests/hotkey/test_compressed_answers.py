"""Answers of compressed values from the local cache: what is kept is the small form, what is served what was stored."""

from hot import kept, pinned_range, warmed

TEXT = b"".join(b"line %d of a value that repeats itself; " % (n % 5) for n in range(80))


def compressed(ns):
    path = f"/admin/v1/namespaces/{ns.name}"
    assert ns.client.request("PATCH", path, b'{"compression":"zstd"}').status == 200
    return ns


def test_a_cached_value_is_plain_or_the_frame_as_its_client_asks(ns):
    compressed(ns)
    hit = kept(ns, "a", value=TEXT)
    assert hit.body == TEXT and "content-encoding" not in hit.headers
    frame = warmed(lambda: ns.get("a", Accept_Encoding="zstd"))
    assert frame.headers["content-encoding"] == "zstd" and len(frame.body) * 4 < len(TEXT)
    part = warmed(lambda: ns.get("a", Range="bytes=5-24"))
    assert (part.status, part.body) == (206, TEXT[5:25])
    assert ns.put("a", value=TEXT + b"!").status == 204
    assert warmed(lambda: ns.get("a")).body == TEXT + b"!"


def test_a_cached_range_is_plain(server, ns):
    compressed(ns)
    for n in range(3):
        ns.put("p", str(n), TEXT + b"%d" % n)
    pinned_range(server, ns, "p")
    answer = warmed(lambda: ns.range("p"))
    assert [row["v"].encode() for row in answer.lines()[:-1]] == [TEXT + b"%d" % n for n in range(3)]
