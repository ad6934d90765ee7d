"""What a request costs is one figure: the answer, the usage, the bucket and what `explain` said before agree on it."""

import itertools
import json
from decimal import Decimal

import pytest

from harness import quote
from quotas import MICROS, Prices, charged, limited, micros, rest, until_rejected, usage

PRICES = Prices()
MIB = 1 << 20
CHUNK = 252 << 10
# Requests of a kind from which an estimate has learned what they cost.
LESSONS = 4
NUMBERS = itertools.count()


class Books:
    """A namespace with a policy that counts its request units, and whatever keeps count of them."""

    def __init__(self, server, ns):
        self.server, self.ns = server, ns
        self.policy = limited(server, ns, unit="ru", rate=1, burst=1_000_000)

    def explain(self, operation, **more):
        answer = self.ns.client.post(f"{self.ns.base}/explain", {"operation": operation} | more)
        assert answer.status == 200, answer
        return json.loads(answer.body, parse_float=Decimal, parse_int=Decimal)

    def left(self):
        """What the bucket has, in millionths."""
        policies = self.explain("get", pk="any")["policies"]
        (balance,) = [each["balance"] for each in policies if each["name"] == self.policy]
        return micros(balance)

    def spent(self):
        """What the usage says, in millionths."""
        return micros(usage(self.ns.client, self.ns.name)["ru"])

    def charge(self, request):
        """Sends a request; returns its answer and what it cost, on which all books agree."""
        spent, left = self.spent(), self.left()
        answer = request()
        assert answer.status < 300, answer
        told, spent, left = charged(answer), self.spent() - spent, left - self.left()
        assert told == spent == left, (told, spent, left, answer)
        return answer, told


@pytest.fixture
def books(timeless):
    return Books(timeless, timeless.namespace(f"books-{next(NUMBERS)}"))


def rows(count, size=100, **more):
    return [{"pk": "many", "sk": f"{n:04}", "v": "v" * size} | more for n in range(count)]


def idempotent(key):
    return {"Idempotency_Key": key}


def kinds(ns):
    """By kind of request: a request that may be sent again and again, and what `explain` is asked about it."""
    keys = [{"pk": "many", "sk": f"{n:04}"} for n in range(3)]
    numbers = iter(range(1_000))
    large, small = b"v" * (3 * MIB), b"v" * 5_000
    batch = len("\n".join(map(json.dumps, rows(3))))
    key, many = {"pk": "a", "sk": "s"}, f"{ns.base}/range/many"
    get = lambda **headers: lambda: ns.get("a", "s", **headers)  # noqa: E731
    put = lambda value: lambda: ns.put("a", "s", value)  # noqa: E731
    patch = lambda name, **headers: ns.client.request("PATCH", ns.path(name), headers=headers)  # noqa: E731
    return {
        "get": (put(small), get(), {"operation": "get"} | key),
        "get of a part": (put(small), get(Range="bytes=9-99"), {"operation": "get"} | key),
        "get of a large value": (put(large), get(), {"operation": "get"} | key),
        "get of a part of a large value": (put(large), get(Range=f"bytes={CHUNK - 1}-{CHUNK}"), {"operation": "get"} | key),
        "head of a large value": (put(large), lambda: ns.client.request("HEAD", ns.path("a", "s")), {"operation": "get"} | key),
        "put": (None, put(small), {"operation": "put", "bytes": len(small)} | key),
        "put of a large value": (None, put(large), {"operation": "put", "bytes": len(large)} | key),
        "put with an idempotency key": (
            None,
            lambda: ns.put("a", "s", small, **idempotent(str(next(numbers)))),
            {"operation": "put", "bytes": len(small), "idempotent": True} | key,
        ),
        "increment": (None, lambda: patch("n", **{"umbo-increment": "1"}), {"operation": "increment", "pk": "n"}),
        "delete": (None, lambda: ns.delete("a", "s"), {"operation": "delete"} | key),
        "range": (lambda: ns.write(rows(20)), lambda: ns.range("many"), {"operation": "range", "pk": "many"}),
        "long range": (
            lambda: ns.write(rows(1_500)),
            lambda: ns.range("many", limit=1_200),
            {"operation": "range", "pk": "many", "limit": 1_200},
        ),
        "multi-get": (lambda: ns.write(rows(9)), lambda: ns.multi_get(keys), {"operation": "multi-get", "keys": keys}),
        "batch write": (None, lambda: ns.write(rows(3)), {"operation": "batch-write", "keys": keys, "bytes": batch}),
        "scan": (lambda: ns.write(rows(20)), lambda: ns.scan(), {"operation": "scan"}),
        "removal of a range": (None, lambda: ns.client.delete(f"{many}?all=true"), {"operation": "delete-range", "pk": "many"}),
    }


@pytest.mark.parametrize("kind", kinds(type("", (), {"base": ""})))
def test_answer_usage_bucket_and_explain_agree(books, kind):
    prepare, request, asked = kinds(books.ns)[kind]
    if prepare:
        assert prepare().status < 300
    for _ in range(LESSONS):
        books.charge(request)
    estimate = micros(books.explain(**asked)["estimate_ru"])
    _, cost = books.charge(request)
    assert abs(estimate - cost) <= cost / 1_000, (estimate, cost)


@pytest.mark.parametrize("length", [MIB, MIB + 1, 5 * CHUNK, 6 * CHUNK + 1, 9 * MIB - 1])
def test_explain_says_what_a_value_of_any_length_will_cost(books, length):
    found = books.explain("put", pk="p", sk="s", bytes=length)
    answer, cost = books.charge(lambda: books.ns.put("p", "s", b"v" * length))
    assert answer.status == 201 and micros(found["estimate_ru"]) == cost
    assert abs(sum(found["breakdown"].values()) * MICROS - cost) <= 1, found


def test_a_part_of_a_large_value_is_charged_by_the_chunks_that_are_read(books):
    ns = books.ns
    ns.put("p", "s", b"v" * (3 * MIB))
    row = charged(ns.client.request("HEAD", ns.path("p", "s")))
    chunks = lambda size: row - PRICES.read(1, 0) + PRICES.read(1, size) - row  # noqa: E731
    last = 3 * MIB - 12 * CHUNK
    for asked, size in [("0-0", CHUNK), (f"{CHUNK - 1}-{CHUNK}", 2 * CHUNK), ("-1", last), ("0-", 3 * MIB)]:
        answer, cost = books.charge(lambda: ns.get("p", "s", Range=f"bytes={asked}"))
        assert answer.status in (200, 206) and 0 <= cost - row - chunks(size) <= 2, (asked, cost)


@pytest.mark.parametrize("limit", [1, 2_000])
def test_rows_that_have_expired_are_charged_and_told(books, limit):
    """Rows are reclaimed meanwhile: whatever a page still finds of them is in its price and in its end line."""
    ns, size = books.ns, 100
    for part in range(2):
        lines = [{"pk": "p", "sk": f"a{part}{n:03}", "v": "v" * (size - 5), "ttl": 5} for n in range(1_000)]
        assert ns.write(lines).status == 200
    ns.put("p", "last", b"v" * (size - 4))
    rest(books.server, 6_000)
    for read in (lambda: ns.range("p", limit=limit), lambda: ns.scan(limit=limit)):
        answer, cost = books.charge(read)
        found, end = answer.rows_and_end()
        touched, partition = end["rows"] + end.get("expired", 0), len("p") * ("pk" in found[0])
        assert len(found) == end["rows"] == 1 and touched <= 2_001
        assert cost == PRICES.read(touched, touched * (size + partition)), (end, cost)
    end = ns.range("p", prefix="last").rows_and_end()[1]
    assert "expired" not in end, end


def test_a_ceiling_of_a_shard_names_it(server, ns):
    name = limited(server, ns, scope="shard", only=2)
    shard = ns.client.post(f"{ns.base}/explain", {"operation": "get", "pk": "p"}).json()["shards"][0]["shard"]
    _, refused = until_rejected(lambda: ns.put("p"), 1_000)
    problem = refused.problem(429, "quota-exceeded")
    assert (problem["policy"], problem["scope"], problem["shard"]) == (name, "shard", shard), problem
    assert f"shard {shard}" in problem["detail"], problem
    found = ns.client.get(f"/admin/v1/why/{quote(problem['request_id'])}").json()
    assert (found["shard"], found["code"]) == (shard, "quota-exceeded"), found
    assert f"shard {shard}" in found["text"], found
