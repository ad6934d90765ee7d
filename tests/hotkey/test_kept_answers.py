"""Answers from the local cache: what is served, how it says so, and for how long."""

import json

import pytest

from harness import wait_until
from hot import (
    HIT_PRICE,
    TTL_SECONDS,
    came_by,
    heated,
    is_hit,
    kept,
    keys_of,
    pin,
    pinned_range,
    report,
    warmed,
)


def test_a_key_that_is_read_a_lot_becomes_hot_and_is_served_from_the_cache(server, ns):
    ns.put("a", value=b"v", Content_Type="text/x")
    found = heated(server, ns, lambda: ns.get("a"))
    answer = warmed(lambda: ns.get("a"))
    assert all(is_hit(ns.get("a")) for _ in range(100))
    (key,) = keys_of(ns.client, ns)
    assert found["standing"] == "hot" and key["is_hot"] and key["kind"] == "row" and key["hits"] >= 101
    assert (key["pk"], key["sk"]) == ("a", "")
    assert key["rate_now"] > 50 and key["rate_error"] >= 0 and key["hot_for_ms"] >= 0
    assert key["callers"][0]["caller"] == "anonymous" and key["callers"][0]["share"] > 0.9
    assert 0 < key["hit_ratio"] <= 1 and key["hits"] <= key["reads"]
    assert answer.status == 200 and answer.body == b"v"
    assert answer.headers["content-type"] == "text/x" and answer.headers["umbo-ru"] == HIT_PRICE


def test_a_key_that_is_read_no_more_cools_down(server, ns):
    heated(server, ns, lambda: ns.get("a"))
    assert is_hit(warmed(lambda: ns.get("a")))
    # Three seconds with hardly a read.
    server.clock.advance(3.5)
    wait_until(lambda: not keys_of(ns.client, ns), "it has cooled")
    assert came_by(ns.get("a")) == "miss"


def test_a_single_read_is_a_miss_at_the_full_price(ns):
    ns.put("a", value=b"v")
    answer = ns.get("a")
    assert came_by(answer) == "miss"
    assert float(answer.headers["umbo-ru"]) > 1


def test_a_pinned_key_is_kept_without_traffic(server, ns):
    ns.put("a", value=b"v")
    pin(ns, "a")
    assert came_by(ns.get("a")) == "miss"
    for _ in range(3):
        server.clock.advance(TTL_SECONDS / 4)
        answer = ns.get("a")
        assert is_hit(answer) and answer.body == b"v", answer
        assert answer.headers["umbo-ru"] == HIT_PRICE


def test_age_and_time_to_live_are_told(server, ns):
    first = kept(ns, "a")
    assert int(first.headers["age"]) == 0
    ttl = int(first.headers["cache-status"].rsplit("=", 1)[1])
    assert TTL_SECONDS <= ttl <= TTL_SECONDS * 1.1
    server.clock.advance(1.1)
    second = ns.get("a")
    assert is_hit(second), second
    assert int(second.headers["age"]) == 1
    assert int(second.headers["cache-status"].rsplit("=", 1)[1]) in (ttl - 2, ttl - 1)


def test_no_answer_is_served_beyond_its_time(new_server):
    server = new_server({"hotkey": {"ttl": "2s"}}).start()
    ns = server.namespace("demo")
    server.clock.stop()
    kept(ns, "a")
    ages = []
    for _ in range(250):
        ages.append(int(ns.get("a").headers.get("age", 0)))
        server.clock.advance(0.02)
    # A tenth more by chance, and whole seconds are told.
    assert max(ages) <= 2, ages
    assert ages.count(0) > 1
    # Whoever comes after all that reads the store.
    server.clock.advance(2.2)
    assert came_by(ns.get("a")) == "miss"


def test_a_head_is_answered_from_the_cache(ns):
    full = kept(ns, "a", value=b"four")
    head = ns.client.request("HEAD", ns.path("a"))
    assert is_hit(head) and head.body == b"" and head.status == 200
    assert head.headers["content-length"] == "4"
    assert head.headers["etag"] == full.headers["etag"]
    assert head.headers["umbo-ru"] == HIT_PRICE


def test_a_head_warms_the_cache_for_a_get(ns):
    ns.put("a", value=b"four")
    pin(ns, "a")
    assert came_by(ns.client.request("HEAD", ns.path("a"))) == "miss"
    answer = ns.get("a")
    assert is_hit(answer) and answer.body == b"four"


def test_conditional_reads_are_answered_from_the_cache(ns):
    tag = kept(ns, "a").headers["etag"]
    same = ns.get("a", If_None_Match=tag)
    assert same.status == 304 and is_hit(same) and same.headers["etag"] == tag
    assert same.headers["umbo-ru"] == HIT_PRICE
    other = ns.get("a", If_None_Match='"1"')
    assert other.status == 200 and is_hit(other)
    wrong = ns.get("a", If_Match='"1"')
    wrong.problem(412, "precondition-failed")
    assert is_hit(wrong)


@pytest.mark.parametrize("directive", ["no-cache", "no-store", "max-age=9, No-Cache"])
def test_who_wants_it_from_the_store_gets_it(ns, directive):
    kept(ns, "a")
    answer = ns.get("a", Cache_Control=directive)
    assert came_by(answer) == "request" and answer.body == b"v"
    assert float(answer.headers["umbo-ru"]) > 1
    assert is_hit(ns.get("a")), "it is kept for the others"


def test_max_age_bounds_the_age(server, ns):
    kept(ns, "a")
    server.clock.advance(1)
    assert is_hit(ns.get("a", Cache_Control="max-age=1"))
    server.clock.advance(0.001)
    young = ns.get("a", Cache_Control="max-age=1")
    assert came_by(young) != "hit", young
    server.clock.advance(0.001)
    zero = ns.get("a", Cache_Control="max-age=0")
    assert came_by(zero) != "hit", zero
    assert is_hit(ns.get("a", Cache_Control="max-age=60"))


def test_that_there_is_nothing_is_kept_for_a_third_of_the_time(new_server):
    server = new_server({"hotkey": {"ttl": "3s"}}).start()
    ns = server.namespace("demo")
    pin(ns, "absent")
    server.clock.stop()
    before = server.metric("umbo_hotkey_negative_hits_total")
    answer = warmed(lambda: ns.get("absent"))
    answer.problem(404, "key-not-found")
    assert answer.headers["umbo-ru"] == HIT_PRICE
    assert server.metric("umbo_hotkey_negative_hits_total") > before
    server.clock.advance(0.999)
    assert is_hit(ns.get("absent"))
    # A tenth more by chance.
    server.clock.advance(0.101)
    assert came_by(ns.get("absent")) == "miss"


def test_an_answer_with_an_error_is_never_kept(ns):
    pin(ns, "a")
    for _ in range(5):
        ns.get("a", Umbo_Timeout_Ms="0")
    answer = ns.get("a")
    answer.problem(404, "key-not-found")


def test_a_row_is_not_served_after_it_has_expired(server, ns):
    for ttl in (1, 2):
        partition = f"a{ttl}"
        pin(ns, partition)
        ns.put(partition, value=b"v", Umbo_TTL=str(ttl))
        expires_at = int(ns.get(partition).headers["umbo-expires-at"]) / 1000
        # Up to the last millisecond, which the field has as a whole.
        while (left := expires_at - 0.001 - server.clock.time()) > 0:
            answer = ns.get(partition)
            assert answer.status == 200 and is_hit(answer), (answer, left)
            server.clock.advance(min(left, 0.25))
        assert is_hit(ns.get(partition))
        # The field has no parts of a millisecond, and a float has none of a microsecond.
        server.clock.advance(0.003)
        ns.get(partition).problem(404, "key-not-found")


def test_large_values_are_served_and_not_kept(ns):
    value = bytes(300 << 10)
    ns.put("a", value=value)
    pin(ns, "a")
    for _ in range(3):
        answer = ns.get("a")
        assert answer.body == value
        assert came_by(answer) == "miss"


def test_values_of_256_kib_less_a_little_are_kept(ns):
    value = bytes(255 << 10)
    answer = kept(ns, "a", value=value)
    assert answer.body == value and answer.headers["umbo-ru"] == HIT_PRICE


def test_identical_ranges_are_answered_from_the_cache(server, ns):
    ns.write([{"op": "put", "pk": "p", "sk": f"s{n}", "v": f"{n}"} for n in range(20)])
    pinned_range(server, ns, "p", limit=5)
    answer = warmed(lambda: ns.range("p", limit=5))
    rows, end = answer.lines()[:-1], answer.lines()[-1]["end"]
    assert [row["sk"] for row in rows] == sorted(f"s{n}" for n in range(20))[:5]
    assert end["why"] == "limit" and end["ru"] == float(HIT_PRICE), end
    # Its cursor goes on from there, in the store.
    more = ns.range("p", limit=5, cursor=end["cursor"])
    assert len(more.lines()) == 6 and came_by(more) != "hit"
    # Other selectors are another range.
    for query in ({"limit": 6}, {"limit": 5, "reverse": "true"}, {"limit": 5, "start": "s1"}):
        assert came_by(ns.range("p", **query)) == "miss", query


def test_a_range_that_finds_nothing_is_kept_too(server, ns):
    pinned_range(server, ns, "nobody", limit=5)
    answer = warmed(lambda: ns.range("nobody", limit=5))
    assert answer.lines()[-1]["end"]["rows"] == 0


def test_hot_keys_of_a_multi_get_come_from_the_cache(server, ns):
    for key in ("a", "b"):
        kept(ns, key, value=key.encode())
    ns.put("cold", value=b"cold")
    before = server.metric("umbo_hotkey_hits_total")
    both = ns.multi_get([{"pk": "a"}, {"pk": "b"}]).batch()
    assert [line.get("v") for line in both[:2]] == ["a", "b"]
    assert server.metric("umbo_hotkey_hits_total") == before + 2
    hits = ns.multi_get([{"pk": "a"}, {"pk": "b"}])
    assert float(hits.headers["umbo-ru"]) == pytest.approx(2 * float(HIT_PRICE))
    mixed = ns.multi_get([{"pk": "cold"}, {"pk": "a"}, {"pk": "absent"}]).batch()
    assert [line["status"] for line in mixed[:3]] == [200, 200, 404]
    assert [line.get("v") for line in mixed[:2]] == ["cold", "a"]
    bypassed = ns.multi_get([{"pk": "a"}], headers={"Cache-Control": "no-cache"})
    assert bypassed.batch()[0]["v"] == "a" and float(bypassed.headers["umbo-ru"]) > 1


def test_a_multi_get_warms_the_cache(ns):
    ns.put("a", value=b"v")
    pin(ns, "a")
    assert ns.multi_get([{"pk": "a"}]).batch()[0]["v"] == "v"
    assert is_hit(ns.get("a"))


def test_two_namespaces_with_the_same_key_do_not_mix(server, ns):
    other = server.namespace(f"{ns.name}-other")
    kept(ns, "a", value=b"one")
    kept(other, "a", value=b"other")
    for _ in range(3):
        assert (ns.get("a").body, other.get("a").body) == (b"one", b"other")


def test_keys_are_bytes(ns):
    keys = [(b"\x00\xff", b"/"), (b"a", b"b"), (b"ab", b""), (b"a/b", None), (b"\xc3", b"\xa9")]
    for partition, sort in keys:
        kept(ns, partition, sort, value=repr((partition, sort)).encode())
    for partition, sort in keys:
        answer = ns.get(partition, sort)
        assert is_hit(answer) and answer.body == repr((partition, sort)).encode()


def test_a_kept_answer_costs_a_tenth_of_a_unit_and_a_quota_says_so(server, ns):
    kept(ns, "a")
    before = server.metric("umbo_request_units_total")
    for _ in range(20):
        assert is_hit(ns.get("a"))
    spent = server.metric("umbo_request_units_total") - before
    assert spent == pytest.approx(2.0), spent


def test_scans_do_not_count(server, ns):
    ns.write([{"op": "put", "pk": f"p{n}", "v": "v"} for n in range(300)])
    for _ in range(5):
        ns.scan_all()
    assert keys_of(ns.client, ns) == []


def test_the_pod_says_what_it_has_saved(server, ns):
    kept(ns, "a")
    before = report(ns.client)["pod"]
    for _ in range(50):
        ns.get("a")
    after = report(ns.client)["pod"]
    assert after["hits"] - before["hits"] == 50
    assert after["cache_entries"] >= 1 and after["cache_bytes"] > 0
    assert 0 < after["saved_share"] <= 1 and after["detection_bytes"] < 1 << 20
    assert after["threshold_rate"] >= 50
    assert json.dumps(after).isascii()
