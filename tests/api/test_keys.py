"""Keys are bytes: whatever stands in them, by whatever client and encoding, comes back the same."""

import random

import pytest

from harness import b64u, curl, quote, row_bytes

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")

KEYS = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff",
    b"/",
    b"//",
    b".",
    b"..",
    b"../..",
    b"%",
    b"%2F",
    b"%%",
    b"a b",
    b"+",
    b"?",
    b"#",
    b"a&b=c",
    b"\r\n",
    b"\x7f",
    "é漢😀".encode(),
    b"\xc3",
    bytes(range(256)),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:6].hex())
def test_any_key_by_any_client_and_encoding(server, ns, key):
    base = f"http://127.0.0.1:{server.port}{ns.base}/kv"
    percent = f"/{quote(key)}/{quote(key)}"
    encoded = f"/{b64u(key)}/{b64u(key)}?enc=b64u"
    assert curl("-T", "-", base + percent, data=b"by curl").status == 201
    assert ns.client.get(f"{ns.base}/kv{percent}").body == b"by curl"
    assert ns.client.put(f"{ns.base}/kv{encoded}", b"by python").status == 204
    assert curl(base + encoded).body == b"by python"
    (row,) = ns.scan_all()
    assert row_bytes(row, "pk") == row_bytes(row, "sk") == key
    assert ("pk64" in row) == (not is_text(key))
    one = ns.multi_get([{"pk64": b64u(key), "sk64": b64u(key)}]).lines()[0]
    assert one["status"] == 200 and row_bytes(one, "v") == b"by python"


def is_text(key):
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_sort_keys_hold_slashes_and_dots_as_they_are(server, ns):
    base = f"http://127.0.0.1:{server.port}{ns.base}/kv/p"
    for tail, key in [("/a/b", b"a/b"), ("//x", b"/x"), ("/..", b".."), ("/./a", b"./a")]:
        assert curl("-T", "-", base + tail, data=b"x").status == 201, tail
        assert [row_bytes(row, "sk") for row in ns.range_all("p")] == [key]
        assert ns.delete("p", key).status == 204
    ns.client.put(f"{ns.base}/kv/p/", b"x")
    assert ns.get("p").body == b"x", "a slash and nothing is the empty sort key"


def test_lengths_up_to_the_limit_and_beyond(ns):
    longest = b"\xff" * 1024, b"\0" * 2048
    assert ns.put(*longest, b"x").status == 201
    assert ns.get(*longest).body == b"x"
    ns.put(b"p" * 1025).problem(413, "key-too-large")
    ns.put(b"p", b"s" * 2049).problem(413, "key-too-large")
    ns.get(b"p" * 1025).problem(413, "key-too-large")
    ns.range(b"p" * 1025).problem(413, "key-too-large")
    ns.range(b"p", prefix="s" * 2049).problem(413, "key-too-large")


@pytest.mark.parametrize("tail", ["", "?enc=b64u", "/x"])
def test_the_empty_partition_key_is_refused(ns, tail):
    ns.client.get(f"{ns.base}/kv/{tail}").problem(400, "invalid-key")


@pytest.mark.parametrize(
    "tail", ["%", "%4", "%zz", "a/%f", "a?enc=b64u", "YQ==?enc=b64u", "a/!?enc=b64u"]
)
def test_keys_that_cannot_be_decoded_are_refused(ns, tail):
    ns.client.get(f"{ns.base}/kv/{tail}").problem(400, "invalid-key")


@pytest.mark.parametrize("name", ["A", "-a", "a" * 65, "a%20b", "%61", "a_b!", "%C3"])
def test_names_that_are_no_namespace_are_refused(server, name):
    client = server.client()
    client.get(f"/v1/ns/{name}/kv/a").problem(400, "invalid-key")
    if name not in ("%61", "%C3"):  # the admin API reads text: these are "a", and no text
        client.put(f"/admin/v1/namespaces/{name}").problem(400, "invalid-key")


def test_order_is_by_bytes(ns):
    dice = random.Random(7)
    keys = {bytes(dice.choices(b"\0\x01a/\xfe\xff", k=dice.randint(0, 5))) for _ in range(200)}
    rows = [{"pk": "p", "sk64": b64u(key), "v": "x"} for key in keys]
    assert ns.write(rows).status == 200
    assert [row_bytes(row, "sk") for row in ns.range_all("p")] == sorted(keys)
    for prefix in (b"\xff", b"\xff\xff", b"a", b"\0"):
        found = ns.client.get(f"{ns.base}/range/p?prefix={quote(prefix)}").rows_and_end()[0]
        expected = [key for key in sorted(keys) if key.startswith(prefix)]
        assert [row_bytes(row, "sk") for row in found] == expected
