"""Hostile input: random bytes on the socket, random keys, lines and policies.

More of everything: `UMBO_TESTS_EXAMPLES=500`.
"""

import json
import os
import random
import re
import socket

from harness import Client, Namespace, b64u, curl, quote, row_bytes
from processes import WAIT_SECONDS

EXAMPLES = int(os.environ.get("UMBO_TESTS_EXAMPLES", "10"))
def speak(server, data):
    """Sends bytes and returns what comes back."""
    with socket.create_connection(("127.0.0.1", server.port), WAIT_SECONDS) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        try:
            while chunk := sock.recv(1 << 16):
                answer += chunk
        except OSError:
            pass
        return answer


def check_statuses(answer, data):
    for status in re.findall(rb"HTTP/1\.[01] (\d{3})", answer):
        assert not status.startswith(b"5"), (data[:300], answer[:500])


SEEDS = [
    b"GET /v1/ns/demo/kv/a HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"1\"\r\n\r\n",
    b"PUT /v1/ns/demo/kv/a/b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nUmbo-TTL: 5\r\n\r\nabc",
    b"PUT /v1/ns/demo/kv/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /v1/ns/demo/batch/write?atomic=partition HTTP/1.1\r\nHost: a\r\nContent-Length: 22\r\n\r\n"
    b'{"pk":"a","v":"x"}\n\n\n\n',
    b"GET /v1/ns/demo/range/a?prefix=b&limit=5&cursor=AAAA HTTP/1.1\r\nHost: a\r\n\r\n",
    b'POST /v1/ns/demo/scan HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n{"segments":2}',
    b"PUT /admin/v1/namespaces/demo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /v1/ns/demo/kv/a HTTP/1.1\r\nHost: a\r\nUmbo-Quota-User: b\r\nUmbo-User: c\r\nUmbo-Org: d\r\n"
    b"Umbo-Attempt: 2\r\n\r\n",
    b"POST /v1/ns/demo/explain HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n"
    b'{"operation":"range","pk":"a"}',
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64"
    b"\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82",
]


def mutated(dice, seed):
    data = bytearray(seed)
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0:
                data[at:at] = dice.randbytes(dice.randint(1, 8))
            case 1:
                del data[at : at + dice.randint(1, 12)]
            case 2 if at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            case 3:
                data[at:at] = data[dice.randrange(len(data) + 1) :][: dice.randint(1, 40)]
            case _:
                piece = [b"\r\n", b"\0", b"%", b"%00", b"\xff", b" ", b":", b"\n", b"9" * 25, b"?&="]
                data[at:at] = dice.choice(piece)
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def test_bytes_that_are_almost_requests(fuzzed):
    fuzzed.namespace("demo")
    dice = random.Random(11)
    for _ in range(30 * EXAMPLES):
        data = mutated(dice, dice.choice(SEEDS))
        check_statuses(speak(fuzzed, data), data)
    assert fuzzed.client().get("/healthz").status == 200


def test_bytes_that_are_nothing(fuzzed):
    dice = random.Random(12)
    for _ in range(10 * EXAMPLES):
        data = dice.randbytes(dice.choice([1, 5, 24, 100, 3000]))
        answer = speak(fuzzed, data)
        check_statuses(answer, data)
        assert not answer.startswith(b"HTTP/1.1 2")


def test_two_lengths_are_one_too_many(fuzzed):
    """Nothing that another reader of the same bytes could cut into other requests."""
    ns = fuzzed.namespace("demo")
    ns.delete("smuggled")
    inner = b"PUT /v1/ns/demo/kv/smuggled HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
    for fields in (
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 0\r\nContent-Length: 5",
        b"Content-Length: +5",
        b"Content-Length: 0x5",
        b"Transfer-Encoding: chunked, identity",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Content-Length: 5 5",
        b" Content-Length: 5",
    ):
        head = b"PUT /v1/ns/demo/kv/a HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n\r\n"
        answer = speak(fuzzed, head + b"0\r\n\r\n" + inner)
        statuses = re.findall(rb"HTTP/1\.1 (\d{3})", answer)
        assert len(statuses) <= 1 or statuses[0] == b"400", (fields, answer)
        if len(statuses) == 1 and statuses[0] != b"400":
            assert b"connection: close" in answer.lower(), (fields, answer)
    ns.get("smuggled").problem(404, "key-not-found")


def test_random_keys_by_python_and_curl(fuzzed):
    ns = fuzzed.namespace("keys")
    dice = random.Random(13)
    expected = {}
    for number in range(40 * EXAMPLES):
        key = dice.randbytes(dice.randint(1, 40)), dice.randbytes(dice.randint(0, 40))
        value = dice.randbytes(20)
        match number % 3:
            case 0:
                answer = ns.put(*key, value)
            case 1:
                path = "/".join(b64u(part) for part in key)
                answer = ns.client.put(f"{ns.base}/kv/{path}?enc=b64u", value)
            case _:
                line = {"pk64": b64u(key[0]), "sk64": b64u(key[1]), "v64": b64u(value)}
                answer = ns.write([line])
        assert answer.status in (200, 201, 204), answer
        expected[key] = value
    for number, (key, value) in enumerate(expected.items()):
        if number % 20 == 0:
            url = f"http://127.0.0.1:{fuzzed.port}{ns.base}/kv/" + "/".join(map(quote, key))
            assert curl("--globoff", url).body == value
        assert ns.get(*key).body == value
    found = {(row_bytes(r, "pk"), row_bytes(r, "sk")): row_bytes(r, "v") for r in ns.scan_all()}
    assert found == expected


def test_random_paths_and_queries(fuzzed):
    fuzzed.namespace("demo")
    client = Client(fuzzed.port)
    dice = random.Random(14)
    pieces = ["/v1", "/ns", "/demo", "/kv", "/range", "/batch", "/scan", "/get", "/a", "//", "/..",
              "%2F", "%00", "%ff", "%", "?", "&", "limit=", "prefix=", "cursor=", "enc=b64u", "=", "1",
              "start=%ff", "reverse", "#", "*", "/admin/v1", "/namespaces", "/tokens", "/quotas", "/explain", "/usage", "/simulate", "/users",
              ";", "+"]  # fmt: skip
    for _ in range(60 * EXAMPLES):
        path = "/" + "".join(dice.choices(pieces, k=dice.randint(1, 9))).lstrip("/")
        method = dice.choice(["GET", "PUT", "DELETE", "POST", "HEAD"])
        body = dice.choice([None, b"", b"{}", b"[]", dice.randbytes(9)])
        if method == "PUT" and "/tokens" in path or path.startswith("/admin/v1/tokens"):
            continue
        answer = client.request(method, path, body)
        assert answer.status < 500, (method, path, answer)
        if answer.status >= 400 and method != "HEAD":
            answer.problem(answer.status, json.loads(answer.body)["type"].rsplit("/", 1)[1])


def test_random_lines_of_a_batch(fuzzed):
    ns = fuzzed.namespace("lines")
    dice = random.Random(15)
    seed = json.dumps({"op": "put", "pk": "a", "sk64": "YQ", "v": "\\u00e9\n", "ttl": 5, "if_match": "*"})
    for _ in range(10 * EXAMPLES):
        lines = b"\n".join(mutated(dice, seed.encode()) for _ in range(20))
        answer = ns.client.post(f"{ns.base}/batch/write", lines)
        assert answer.status in (200, 207), answer
        *rows, last = answer.lines()
        assert last["end"]["rows"] == len(rows)
        assert all(row["status"] in (201, 204, 400, 412, 413) for row in rows), rows
    assert isinstance(Namespace(ns.client, "lines").scan_all(), list)


AMOUNTS = [0, 1, 5, -1, 0.5, 1e-6, 1e-7, 1e300, 1 << 63, 1 << 64, 999_999_999.999999, "64KiB", "1e3", "NaN",
           "", "0", "007", "1.", ".5", "1_000", "9" * 50, 50_000_000_000, None, True, [1], {}]  # fmt: skip
NAMES = ["a", "*", "a*", "*a*b*", "", "A", "fuzz", "\u00e9", "x" * 300, "a b", "**", 5, None]


def random_policy(dice):
    """A policy whose fields are each sometimes good, sometimes bad, sometimes absent."""
    fields = ["caller", "namespace", "user", "session", "org"]
    words = ["get", "put", "scan", "batch-write", "fly", "", 1]

    def matcher():
        found = {name: dice.choice(NAMES) for name in dice.sample(fields, dice.randint(0, 2))}
        if not dice.randrange(4):
            found["operations"] = dice.choices(words, k=dice.randint(0, 3))
        return found

    def either(good, bad):
        return lambda: dice.choice(good if dice.randrange(8) else bad)

    values = {
        "name": either(["fuzz"], NAMES),
        "match": lambda: matcher() | ({} if dice.randrange(5) else {"caller": "nobody"}),
        "per": lambda: dice.sample([*fields, "shard"], dice.randint(0, 3)),
        "unit": either(["ru", "requests", "reads", "writes", "bytes", "read-bytes"], ["x", "", 1]),
        "rate": either([1000, 0.1, "5", "2.5", 1 << 20], AMOUNTS),
        "burst": either([1_000_000, "5000.5", 50_000], AMOUNTS),
        "refill": either(["50ms", "10s", "0.1s"], ["0ms", "1h", "1e3ms", "", 50, "-1s"]),
        "scope": either(["pod", "shard", "fleet"], ["galaxy", None]),
        "mode": either(["enforce", "shadow"], ["", 1]),
        "status": either([429, 419], [400, -1, "429", 1 << 40]),
        "overrides": lambda: [
            {"match": matcher(), "rate": dice.choice([*AMOUNTS, *range(1, 9)])}
            for _ in range(dice.choice([0, 0, 1, 3]))
        ],
        "more": lambda: 1,
    }
    chosen = {"name", "unit", "rate"} | set(dice.sample(list(values)[:-1], dice.randint(0, 6)))
    chosen ^= {dice.choice(list(values))} if not dice.randrange(12) else set()
    return {name: values[name]() for name in values if name in chosen}


def test_random_policies(fuzzed):
    """Taken or refused, never half of both; what was taken is shown, and can be put again."""
    ns, quotas = fuzzed.namespace("demo"), "/admin/v1/quotas"
    client, dice, taken = Client(fuzzed.port), random.Random(16), 0
    replacing = {}
    for number in range(120 * EXAMPLES):
        body = json.dumps(random_policy(dice)).encode()
        if number % 4 == 3:
            body = mutated(dice, body)
        simulated = client.post(f"{quotas}/simulate", b'{"policy":' + body + b"}")
        answer = client.put(f"{quotas}/fuzz", body, **replacing)
        assert answer.status in (200, 201, 400), (body, answer)
        if answer.status == 400:
            assert answer.json()["type"].rsplit("/", 1)[1] in ("quota-invalid", "invalid-body"), answer
            continue
        taken, replacing = taken + 1, {"If-Match": "*"}
        assert simulated.status == 200, (body, simulated)
        shown = client.get(f"{quotas}/fuzz").json()["policy"]
        assert shown == answer.json()["after"], body
        again = client.put(f"{quotas}/fuzz", json.dumps(shown))
        assert again.status == 200 and again.json()["after"] == shown, (body, again)
        who = {"Umbo-Quota-User": dice.choice("ab"), "Umbo-Org": "a"}
        for ask in (ns.get("k", **who), ns.put("k", value=b"x", **who), ns.range("k")):
            assert ask.status < 500, (body, ask)
        assert client.get(f"{quotas}/fuzz/users").status == 200
        if dice.randrange(3) == 0:
            assert client.delete(f"{quotas}/fuzz").status == 200
            replacing = {}
    assert taken >= 10 * EXAMPLES, taken
    client.delete(f"{quotas}/fuzz")
    assert client.get(quotas).json()["policies"][0]["policy"]["name"] == "default-caller"
