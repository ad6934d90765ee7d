"""Pinned and blocked keys: what a block refuses, what it costs, and how long it lasts."""

import json

import pytest

from harness import Namespace, wait_until
from hot import (
    HOT,
    WARM,
    block,
    blocked,
    heated,
    is_hit,
    kept,
    key_path,
    keys_of,
    listed,
    make_token,
    pin,
    report,
    row_path,
    unblock,
)


def test_a_blocked_row_is_refused_whatever_is_asked_of_it(ns):
    ns.put("a", value=b"v")
    said = block(ns, "a", reason="crawler")
    assert said["standing"] == "blocked" and said["reason"] == "crawler"
    assert said["by"] == "anonymous" and said["at"] > 1_700_000_000_000
    problem = blocked(ns.get("a"))
    assert "crawler" not in json.dumps(problem), "the reason is for operators"
    head = ns.client.request("HEAD", ns.path("a"))
    assert head.status == 429 and head.headers["umbo-ru"] == "0"
    for answer in (ns.put("a", value=b"new"), ns.delete("a")):
        assert blocked(answer)["outcome"] == "not-applied"
    unblock(ns, "a")
    assert ns.get("a").body == b"v"


def test_a_block_is_one_row_and_no_other(server, ns):
    other = server.namespace(f"{ns.name}-other")
    for place in (ns, other):
        place.put("a", value=b"v")
        place.put("a", "s", b"v")
    block(ns, "a")
    assert ns.get("a", "s").status == other.get("a").status == 200
    assert ns.range("a").rows_and_end()[1]["rows"] == 2, "a range reads what is there"


def test_a_kept_answer_is_not_served_of_a_blocked_key(ns):
    kept(ns, "a")
    block(ns, "a")
    blocked(ns.get("a"))
    blocked(ns.get("a", Cache_Control="no-cache"))
    unblock(ns, "a")
    assert ns.get("a").body == b"v"


def test_blocked_rows_of_a_multi_get_are_refused_one_by_one(ns):
    ns.put("a", value=b"a")
    ns.put("b", value=b"b")
    block(ns, "b")
    answer = ns.multi_get([{"pk": "a"}, {"pk": "b"}, {"pk": "c"}])
    lines = answer.batch()
    assert answer.status == 207
    assert [line["status"] for line in lines[:3]] == [200, 429, 404]
    error = lines[1]["error"]
    assert error["type"] == "/v1/errors/abnormal-usage-detected" and "v" not in lines[1]
    assert lines[-1]["end"]["failed"] >= 1


def test_a_multi_get_of_blocked_rows_alone_costs_nothing(ns):
    block(ns, "a")
    block(ns, "b")
    answer = ns.multi_get([{"pk": "a"}, {"pk": "b"}])
    assert [line["status"] for line in answer.lines()[:2]] == [429, 429]
    assert answer.headers["umbo-ru"] == "0", answer


def test_blocked_rows_of_a_batch_are_refused_one_by_one(ns):
    ns.put("b", value=b"old")
    block(ns, "b")
    rows = [
        {"op": "put", "pk": "a", "v": "new"},
        {"op": "put", "pk": "b", "v": "new"},
        {"op": "del", "pk": "b"},
    ]
    answer = ns.write(rows)
    assert answer.status == 207, answer
    assert [line["status"] for line in answer.batch()[:3]] == [201, 429, 429]
    assert ns.get("a").body == b"new"
    unblock(ns, "b")
    assert ns.get("b").body == b"old"


def test_an_atomic_batch_with_a_blocked_row_does_nothing(ns):
    block(ns, "a", "x")
    rows = [{"op": "put", "pk": "a", "sk": sk, "v": "new"} for sk in ("w", "x")]
    blocked(ns.write(rows, "?atomic=partition"))
    ns.get("a", "w").problem(404, "key-not-found")


def test_a_block_leaves_the_quota_untouched(ns):
    ns.put("a", value=b"v")
    block(ns, "a")
    name = f"of-{ns.name}"
    policy = {"name": name, "unit": "requests", "rate": 0.001, "burst": 2.5, "per": ["caller"]}
    policy["match"] = {"namespace": ns.name}
    assert ns.client.put(f"/admin/v1/quotas/{name}", json.dumps(policy)).status == 201
    for _ in range(20):
        blocked(ns.get("a"))
        blocked(ns.put("a", value=b"new"))
    # All of it is still there.
    assert [ns.get("b").status for _ in range(4)] == [404, 404, 404, 429]


def test_a_blocked_range_is_refused_by_its_id(server, ns):
    ns.put("p", "s", b"v")
    path = f"{ns.base}/range/p?limit=7"
    key = heated(server, ns, lambda: ns.client.get(path))
    assert key["kind"] == "range" and key["pk"] == "p" and "sk" not in key
    listed(ns.client, "blocked", f"id/{key['id']}")
    answer = ns.client.get(path)
    blocked(answer)
    assert ns.range("p", limit=8).status == 200 and ns.get("p", "s").status == 200
    assert ns.client.delete(f"{HOT}/blocked/id/{key['id']}").status == 204
    assert ns.client.get(path).status == 200


def test_an_attack_on_a_blocked_key_is_still_seen(server, ns):
    block(ns, "a")
    key = heated(server, ns, lambda: ns.get("a"))
    assert key["standing"] == "blocked" and key["rate"] > 0
    assert key["blocked"]["by"] == "anonymous"
    assert key["reads"] > 10 and key["hits"] == 0
    assert key["callers"][0]["caller"] == "anonymous", "who goes on asking"


def test_lists_outlive_kill_and_restart(new_server):
    server = new_server(WARM).start()
    ns = server.namespace("demo")
    ns.put("kept", value=b"v")
    block(ns, b"\x00\xff", "s/1", reason="crawler")
    pin(ns, "kept")
    before = {key["id"]: key for key in keys_of(ns.client, ns)}
    server.kill()
    server.start()
    server.clock.stop()
    ns = Namespace(server.client(), "demo")
    blocked(ns.get(b"\x00\xff", "s/1"))
    ns.get("kept")
    assert is_hit(ns.get("kept"))
    after = {key["id"]: key for key in keys_of(ns.client, ns)}
    assert set(after) == set(before)
    for id, key in after.items():
        for field in ("hash", "pinned", "blocked", "namespace", "standing"):
            assert key.get(field) == before[id].get(field)


def test_a_block_with_an_end_ends(server, ns):
    said = block(ns, "a", ttl=1)
    assert said["until"] - said["at"] == 1_000
    server.clock.advance(0.999)
    blocked(ns.get("a"))
    # What has ended is looked for once a second.
    server.clock.advance(1.001)
    wait_until(lambda: ns.get("a").status == 404, "it has ended")
    path = f"{HOT}/blocked/{key_path(ns, 'a')}"
    ns.client.delete(path).problem(404, "hot-key-not-listed")


@pytest.mark.parametrize("encoding", ["percent", "b64u"])
def test_keys_are_bytes_in_either_encoding(ns, encoding):
    partition, sort = b"\x00/\xff", b"..\xfe"
    said = listed(ns.client, "blocked", row_path(ns, partition, sort, encoding))
    assert "pk64" in said and "sk64" in said
    blocked(ns.get(partition, sort))
    other = "b64u" if encoding == "percent" else "percent"
    answer = ns.client.delete(f"{HOT}/blocked/{row_path(ns, partition, sort, other)}")
    assert answer.status == 204
    ns.get(partition, sort).problem(404, "key-not-found")


def test_listing_again_changes_how_only_under_a_condition(ns):
    path = f"{HOT}/blocked/{key_path(ns, 'a')}"
    first = ns.client.put(path, '{"reason":"one"}')
    assert first.status == 201
    again = ns.client.put(path, '{"reason":"one"}')
    assert again.status == 200 and again.json() == first.json()
    for body in ('{"reason":"two"}', '{"reason":"one","ttl":60}', b""):
        ns.client.put(path, body).problem(409, "hot-key-listed")
    assert keys_of(ns.client, ns)[0]["blocked"]["reason"] == "one"
    second = ns.client.put(path, '{"reason":"two"}', If_Match=first.headers["etag"])
    assert second.status == 200 and second.json()["reason"] == "two"
    ns.client.put(path, If_Match=first.headers["etag"]).problem(412, "precondition-failed")
    assert ns.client.put(path, If_Match="*").status == 200, "no body is no reason"
    assert "reason" not in keys_of(ns.client, ns)[0]["blocked"]
    assert ns.client.delete(path).status == 204
    ns.client.delete(path).problem(404, "hot-key-not-listed")


def test_each_list_has_its_bound(new_server):
    server = new_server(WARM).start()
    ns = server.namespace("demo")
    for number in range(256):
        block(ns, f"key-{number}")
    path = f"{HOT}/blocked/{key_path(ns, 'one-more')}"
    detail = ns.client.put(path).problem(409, "hot-list-full")["detail"]
    assert "256" in detail
    blocked(ns.get("key-255"))
    unblock(ns, "key-0")
    assert ns.client.put(path).status == 201
    assert len(report(ns.client)["keys"]) == 256


@pytest.mark.parametrize(
    "key, status, code",
    [
        ("ns/nowhere/kv/a", 404, "namespace-not-found"),
        ("ns/No/kv/a", 400, "invalid-key"),
        ("ns/{ns}/kv/", 400, "invalid-key"),
        ("ns/{ns}/kv/%f", 400, "invalid-key"),
        ("ns/{ns}/kv/a?enc=hex", 400, "invalid-query"),
        ("ns/{ns}/kv/" + "k" * 1_025, 413, "key-too-large"),
        ("id/x", 400, "invalid-key"),
        ("id/", 400, "invalid-key"),
        ("ns/{ns}", 404, "route-not-found"),
    ],
)
def test_a_malformed_key_is_refused_by_name(ns, key, status, code):
    path = f"{HOT}/blocked/{key.format(ns=ns.name)}"
    ns.client.put(path).problem(status, code)
    ns.client.delete(path).problem(status, code)


@pytest.mark.parametrize("body", ['{"ttl":0}', '{"reson":"x"}', "[]", '{"reason":"a\\nb"}', "{"])
def test_a_malformed_body_is_refused(ns, body):
    ns.client.put(f"{HOT}/blocked/{key_path(ns, 'a')}", body).problem(400, "invalid-body")


def test_keys_are_for_the_admin_of_their_namespace(new_server):
    server = new_server(WARM).start()
    token = make_token(server.client(), "root", "*:*")
    root = server.client(token=token)
    shop = server.client(token=make_token(root, "shop-ops", "admin:shop"))
    reader = server.client(token=make_token(root, "reader", "read,write,scan:*"))
    for name in ("shop", "maps"):
        assert root.put(f"/admin/v1/namespaces/{name}").status == 201
        listed(root, "pinned", f"ns/{name}/kv/secret-{name}")
    assert {key["namespace"] for key in report(root)["keys"]} == {"shop", "maps"}
    assert {key["namespace"] for key in report(shop)["keys"]} == {"shop"}
    server.client().get(HOT).problem(401, "unauthenticated")
    reader.get(HOT).problem(403, "forbidden")
    reader.put(f"{HOT}/blocked/ns/shop/kv/a").problem(403, "forbidden")
    shop.put(f"{HOT}/blocked/ns/maps/kv/a").problem(403, "forbidden")
    said = listed(shop, "blocked", "ns/shop/kv/secret-a")
    assert said["by"] == "shop-ops"
    blocked(Namespace(reader, "shop").get("secret-a"))
    # Neither the log nor the metrics tell a key.
    scrape = server.admin().get("/metrics").body.decode()
    assert "secret" not in scrape and "secret" not in server.log_text()
    wait_until(lambda: said["hash"] in server.log_text(), "it is logged")
