"""What requests cost: prices worked out by hand, and books that agree to the millionth."""

import random
import socket

from harness import IS_CASSANDRA, NDJSON, Namespace, receive, wait_until
from quotas import MICROS, Prices, charged, in_threads, metric_micros, micros, total, usage

PRICES = Prices()
# Umbo has no time of its own in the price: a millisecond of the store costs a tenth of a unit.
TIME_MICROS_PER_MS = MICROS // 10
# Shards that a request of these tests reads at the same time: an engine that is waited for has the time of each.
READ_TOGETHER = 2 if IS_CASSANDRA else 1


def every_operation(ns, prices):
    """Does everything once; yields what was done, the answer, and its price without time."""
    value = b"v" * 8191
    put = ns.put("p", "s", value)
    yield "put of a new row", put, prices.write(1, 8192)
    yield "put over it", ns.put("p", "s", value), prices.write(1, 8192)
    yield "put of nothing", ns.put("empty"), prices.write(1, 0)
    yield "put, condition false", ns.put("p", "s", value, If_None_Match="*"), prices.write(1, 8192)
    got = ns.get("p", "s")
    yield "get", got, prices.read(1, 8192)
    yield "head", ns.client.request("HEAD", ns.path("p", "s")), prices.read(1, 8192)
    yield "get, known", ns.get("p", "s", If_None_Match=got.headers["etag"]), prices.read(1, 8192)
    yield "get, other", ns.get("p", "s", If_Match='"1"'), prices.read(1, 8192)
    yield "get of nothing", ns.get("absent"), prices.read(1)
    yield "delete", ns.delete("p", "s"), prices.write(1)
    yield "delete of nothing", ns.delete("p", "s"), prices.write(1)
    rows = [{"pk": "pk", "sk": f"s{n}", "v": "v" * 1020} for n in range(5)]
    yield "batch write", ns.write(rows), prices.write(5, 5 * 1024)
    yield "atomic batch", ns.write(rows, "?atomic=partition"), prices.write(5, 5 * 1024)
    bad = [rows[0], "{}", "nonsense", {"op": "del", "pk": "x"}]
    yield "batch, half of it malformed", ns.write(bad), prices.write(2, 1024)
    yield "batch, all malformed", ns.write(["{}"]), 0
    keys = [{"pk": "pk", "sk": "s1"}, {"pk": "pk", "sk": "s2"}, {"pk": "absent"}]
    yield "multi-get", ns.multi_get(keys), prices.read(3, 2 * 1024)
    yield "range", ns.range("pk"), prices.read(5, 5 * 1022)
    yield "range of two", ns.range("pk", limit=2), prices.read(2, 2 * 1022)
    yield "range backwards", ns.range("pk", limit=2, reverse="true"), prices.read(2, 2 * 1022)
    yield "range of keys", ns.range("pk", keys_only="true"), prices.read(5, 5 * 1022)
    array = {"accept": "application/json"}
    yield "range as an array", ns.range("pk", headers=array), prices.read(5, 5 * 1022)
    yield "range of nothing", ns.range("absent"), prices.read()
    # The empty row is 5 bytes of partition key.
    yield "scan", ns.scan(), prices.read(6, 5 * 1024 + 5)
    yield "scan of keys", ns.scan(keys_only=True), prices.read(6, 5 * 1024 + 5)
    dry = f"{ns.base}/range/pk?prefix=s&dry_run=true"
    yield "dry run", ns.client.delete(dry), prices.count(5, 5 * 1022)
    yield "delete range", ns.client.delete(f"{ns.base}/range/pk?prefix=s"), prices.write(5)
    yield "delete range again", ns.client.delete(f"{ns.base}/range/pk?all=true"), prices.write()


def test_every_operation_is_charged_what_the_model_says(timeless):
    ns = timeless.namespace("exact")
    found = [(what, charged(answer), price) for what, answer, price in every_operation(ns, PRICES)]
    assert [row for row in found if row[1] != row[2]] == []
    assert micros(usage(ns.client, "exact")["ru"]) == sum(price for _, _, price in found)


def test_weights_are_settings(new_server):
    weights = {"read_base": 0.25, "write_base": 3, "row": 1, "read_bytes": 0.000001, "write_bytes": 2.5}
    server = new_server({"cost": weights | {"version": 7, "latency_ms": 0}}).start()
    prices = Prices(**weights)
    ns = server.namespace()
    found = [(what, charged(answer), price) for what, answer, price in every_operation(ns, prices)]
    assert [row for row in found if row[1] != row[2]] == []


def test_the_time_of_the_store_costs_at_most_the_time_of_the_answer(server, ns):
    """Whatever the machine does meanwhile: nobody is charged for longer than they waited."""
    server.clock.go()
    try:
        steps, begun = every_operation(ns, PRICES), server.clock.monotonic()
        for what, answer, price in steps:
            now = server.clock.monotonic()
            elapsed_ms, begun = (now - begun) * 1000, now
            time_micros = charged(answer) - price
            assert 0 <= time_micros <= READ_TOGETHER * TIME_MICROS_PER_MS * elapsed_ms + 10, (what, answer)
    finally:
        server.clock.stop()


def test_a_scan_costs_more_than_a_look_up_by_what_it_reads(timeless):
    ns = timeless.namespace("large")
    rows = 3000
    for part in range(0, rows, 1000):
        lines = [{"pk": "p", "sk": f"{n:06}", "v": "v" * 94} for n in range(part, part + 1000)]
        assert ns.write(lines).status == 200
    for answer in (ns.range("p", limit=rows), ns.range("p", max_bytes=1 << 30)):
        assert charged(answer) == PRICES.read(rows, rows * 100)
        assert len(answer.rows_and_end()[0]) == rows
    assert charged(ns.scan()) == PRICES.read(rows, rows * 101)
    assert charged(ns.get("p", "000001")) == PRICES.read(1, 100)
    head = ns.range("p", limit=rows, headers={"accept": NDJSON}).headers["umbo-ru"]
    assert 0 < micros(head) <= PRICES.read(rows, rows * 100)


def test_what_never_reaches_the_store_costs_nothing(server, ns):
    for port_client in (server.client(), server.admin()):
        for method, path, body in [
            ("GET", "/healthz", None),
            ("GET", "/readyz", None),
            ("GET", "/openapi.json", None),
            ("GET", "/nowhere", None),
            ("PATCH", "/v1/ns/demo/kv/a", None),
            ("GET", "/admin/v1/namespaces", None),
            ("GET", "/admin/v1/quotas", None),
            ("GET", "/admin/v1/quotas/none", None),
            ("PUT", "/admin/v1/quotas/bad", "{}"),
            ("GET", "/v1/ns/absent/kv/a", None),
            ("GET", "/v1/errors/quota-exceeded", None),
        ]:
            answer = port_client.request(method, path, body)
            assert answer.headers.get("umbo-ru") == "0", (method, path, answer)
    for method, path, body in [
        ("GET", f"{ns.base}/kv/%4", None),
        ("GET", f"{ns.base}/kv/{'k' * 3000}", None),
        ("GET", f"{ns.base}/range/a?limit=0", None),
        ("GET", f"{ns.base}/range/a?cursor=nonsense", None),
        ("POST", f"{ns.base}/batch/get", "[]"),
        ("POST", f"{ns.base}/scan", '{"segments":-1}'),
        ("DELETE", f"{ns.base}/range/a", None),
        ("GET", f"{ns.base}/usage", None),
        ("POST", f"{ns.base}/explain", '{"operation":"get","pk":"a"}'),
        ("POST", f"{ns.base}/explain", "{}"),
    ]:
        answer = ns.client.request(method, path, body)
        assert answer.headers.get("umbo-ru") == "0", (method, path, answer)
    assert usage(ns.client, ns.name)["rows"] == []
    long = server.client().get("/healthz", x="a" * 40_000)
    assert (long.status, long.headers["umbo-ru"]) == (431, "0")
    for head in (
        b"BREW /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"\0\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b"\r\n\r\n",
    ):
        with server.raw(head) as sock:
            assert b"\r\numbo-ru: 0\r\n" in receive(sock).lower()


def test_a_page_that_is_left_in_part_is_charged_in_part(new_server):
    server = new_server({"cost": {"latency_ms": 0}}).start()
    ns = server.namespace("pages")
    for part in range(4):
        rows = [{"pk": "p", "sk": f"{part}-{n:04}", "v": "v" * 3000} for n in range(1000)]
        assert ns.write(rows).status == 200
    paid = charged(ns.range("p", max_bytes=1 << 30))
    assert paid == PRICES.read(4000, 4000 * 3006)
    before = micros(usage(ns.client, "pages")["ru"])
    head = f"GET {ns.base}/range/p?max_bytes={1 << 30} HTTP/1.1\r\nHost: a\r\n\r\n"
    with server.raw(head.encode()) as sock:
        sock.recv(1000)
    wait_until(lambda: server.in_flight() == 0, "the one who left is gone")
    left = micros(usage(ns.client, "pages")["ru"]) - before
    assert 50 * MICROS < left <= paid, (left, paid)


def one_of_anything(dice, ns):
    """A request of any kind, good or bad."""
    one, other = f"p{dice.randrange(6)}", f"s{dice.randrange(6)}"
    value = b"v" * dice.choice([0, 1, 100, 5000])
    match dice.randrange(11):
        case 0 | 1:
            return ns.put(one, other, value)
        case 2:
            return ns.put(one, other, value, If_None_Match="*")
        case 3:
            return ns.delete(one, other)
        case 4:
            return ns.range(one, limit=dice.choice([1, 3, 100]))
        case 5:
            lines = [{"pk": one, "sk": f"b{n}", "v": "x"} for n in range(dice.randrange(4))]
            return ns.write(lines + dice.choice([[], ["{}"]]))
        case 6:
            return ns.multi_get([{"pk": one, "sk": other}, {"pk": "absent"}])
        case 7:
            return ns.client.delete(f"{ns.base}/range/{one}?prefix=b")
        case 8:
            return ns.scan(limit=20)
        case 9:
            return ns.get(one, other + "?what=")
        case _:
            return ns.get(one, other)


def test_answers_ledger_and_metrics_agree_to_the_millionth(new_server):
    server = new_server().start()
    server.namespace("books")

    def spend(number):
        dice, ns = random.Random(number), Namespace(server.client(), "books")
        answers = [one_of_anything(dice, ns) for _ in range(150)]
        assert all(answer.status < 500 for answer in answers)
        return [(charged(answer), is_of_a_shard(answer)) for answer in answers]

    def is_of_a_shard(answer):
        """What another request has just read is charged, and none of its shard."""
        return "; hit;" not in answer.headers.get("cache-status", "")

    answers = [answer for answers in in_threads(8, spend) for answer in answers]
    charges = [charge for charge, _ in answers]
    told, of_shards = sum(charges), sum(charge for charge, is_of_one in answers if is_of_one)
    report = usage(server.client(), "books")
    assert sum(micros(row["ru"]) for row in report["rows"]) == told == micros(report["ru"])
    assert sum(micros(shard["ru"]) for shard in report["shards"]) == of_shards
    assert metric_micros(server, "umbo_shard_request_units_total") == of_shards
    assert metric_micros(server) == told
    assert metric_micros(server, "umbo_caller_request_units_total") == told
    assert total(report["rows"], "requests") == len(charges) - charges.count(0)
    assert server.metric("umbo_requests_admitted_total") >= len(charges) - charges.count(0)
    assert total(report["rows"], "rejected") == server.metric("umbo_requests_rejected_total") == 0


def test_clients_that_leave_are_charged_once(new_server):
    """Cut off in the middle of answers and bodies: what was done stands in every book alike."""
    server = new_server().start()
    ns = server.namespace("leavers")
    for n in range(24):
        ns.put("p", f"{n:02}", b"v" * 200_000)
    before = micros(usage(ns.client, "leavers")["ru"])

    def leave(number):
        dice = random.Random(number)
        for _ in range(12):
            path = f"/v1/ns/leavers/range/p?max_bytes={8 << 20}"
            upload = "PUT /v1/ns/leavers/kv/q HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx"
            head = dice.choice([f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n", upload])
            with server.raw(head.encode()) as sock:
                # Reset and not closed, so that the server cannot go on writing for long.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if head.startswith("GET"):
                    sock.recv(dice.choice([1, 1000, 300_000]))

    in_threads(6, leave)
    wait_until(lambda: server.in_flight() == 0, "those who left are gone")
    report = usage(ns.client, "leavers")
    (range_row,) = [row for row in report["rows"] if row["operation"] == "range"]
    assert micros(report["ru"]) > before
    assert micros(range_row["ru"]) >= range_row["requests"] * MICROS
    assert metric_micros(server) == micros(report["ru"]) == sum(
        micros(shard["ru"]) for shard in report["shards"]
    )
    assert ns.get("q").status == 404, "an upload that was cut off is no row"
    puts = [row for row in report["rows"] if row["operation"] == "put"]
    assert total(puts, "rows") == 24
    assert not server.logged("ERROR")


def test_usage_is_what_was_done(timeless):
    ns = timeless.namespace("done")
    for answer in (ns.put("a", "s", b"12345"), ns.put("a", "t", b""), ns.get("a", "s")):
        assert answer.status in (200, 201)
    ns.multi_get([{"pk": "a", "sk": "s"}, {"pk": "b"}])
    report = usage(ns.client, "done")
    assert report["namespace"] == "done"
    found = {row["operation"]: row for row in report["rows"]}
    assert set(found) == {"put", "get", "multi-get"}
    assert {row["caller"] for row in report["rows"]} == {"anonymous"}
    put, get, many = found["put"], found["get"], found["multi-get"]
    assert (put["requests"], put["rows"], put["write_bytes"], put["read_bytes"]) == (2, 2, 7, 0)
    assert (get["requests"], get["rows"], get["read_bytes"]) == (1, 1, 6)
    # A key that is absent was looked up.
    assert (many["requests"], many["rows"], many["read_bytes"]) == (1, 2, 7)
    assert micros(put["ru"]) == PRICES.write(1, 6) + PRICES.write(1, 1)
    costs = [row["ru"] for row in report["rows"]]
    assert costs == sorted(costs, reverse=True), "the most spent first"
