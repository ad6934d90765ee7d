"""Get, head, put, delete of one row: statuses, headers, conditions, expiry."""

import pytest

# No time passes that could end a request or a connection, however slow the machine is.
pytestmark = pytest.mark.usefixtures("still")


def now_ms(clock):
    return int(clock.time() * 1000)


def test_a_row_from_first_put_to_delete(ns):
    new = ns.put("a", value=b"one", content_type="text/plain", content_encoding="zstd")
    assert (new.status, new.body) == (201, b"")
    again = ns.put("a", value=b"two", content_type="text/css")
    assert (again.status, again.body) == (204, b"")
    assert int(again.headers["etag"].strip('"')) > int(new.headers["etag"].strip('"'))

    read = ns.get("a")
    assert (read.status, read.body) == (200, b"two")
    assert read.headers["etag"] == again.headers["etag"]
    assert read.headers["content-type"] == "text/css"
    assert "content-encoding" not in read.headers and "umbo-expires-at" not in read.headers

    head = ns.client.request("HEAD", ns.path("a"))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == "3"
    assert head.headers["etag"] == read.headers["etag"]

    for existed in ("true", "false"):
        gone = ns.delete("a")
        assert (gone.status, gone.body, gone.headers["umbo-existed"]) == (204, b"", existed)
    ns.get("a").problem(404, "key-not-found")
    assert ns.put("a").status == 201, "a deleted row is a new one"


def test_content_fields_are_kept_and_have_a_default(ns):
    ns.put("a", value=b"x", content_type="application/x-foo; v=1", content_encoding="gzip")
    read = ns.get("a", accept_encoding="gzip")
    assert read.headers["content-type"] == "application/x-foo; v=1"
    assert read.headers["content-encoding"] == "gzip"
    ns.client.request("PUT", ns.path("b"), b"x")
    assert ns.get("b").headers["content-type"] == "application/octet-stream"


def test_a_content_field_is_text_that_a_row_of_json_holds_unchanged(ns):
    for field in (b"text/\xe9\xff", b"text/a\tb"):
        for name in ("Content-Type", "Content-Encoding"):
            ns.client.request("PUT", ns.path("c"), b"x", {name: field}).problem(400, "invalid-header")
    ns.get("c").problem(404, "key-not-found")


def test_empty_value_and_largest_value(ns):
    assert ns.put("empty").status == 201
    assert ns.get("empty").body == b""
    value = bytes(range(256)) * 4096
    assert ns.put("large", value=value).status == 201
    assert ns.get("large").body == value


def test_absent_key_and_absent_namespace_differ(ns, no_ns):
    ns.get("a").problem(404, "key-not-found")
    problem = no_ns.get("a").problem(404, "namespace-not-found")
    assert "nowhere" in problem["detail"] and problem["scope"] == "namespace"
    assert no_ns.put("a").problem(404, "namespace-not-found")["outcome"] == "not-applied"


def test_if_none_match_on_reads(ns):
    tag = ns.put("a", value=b"x").headers["etag"]
    for value in (tag, "*", f"W/{tag}", f'"1", {tag}', f'W/"1" ,W/{tag}'):
        answer = ns.get("a", If_None_Match=value)
        assert (answer.status, answer.body) == (304, b""), value
        assert answer.headers["etag"] == tag
    for value in ('"1"', 'W/"1"', '"foo"'):
        assert ns.get("a", If_None_Match=value).status == 200, value
    ns.get("b", If_None_Match="*").problem(404, "key-not-found")
    ns.get("a", If_None_Match="1").problem(400, "invalid-header")


def test_if_match_on_reads(ns):
    tag = ns.put("a", value=b"x").headers["etag"]
    assert ns.get("a", If_Match=tag).status == 200
    assert ns.get("a", If_Match="*").status == 200
    problem = ns.get("a", If_Match='"1"').problem(412, "precondition-failed")
    assert problem["etag"] == tag
    ns.get("a", If_Match=f"W/{tag}").problem(412, "precondition-failed")
    assert ns.get("a", If_Match=tag, If_None_Match=tag).status == 304


def test_if_none_match_star_creates_once(ns):
    first = ns.put("a", value=b"x", If_None_Match="*")
    assert first.status == 201
    refused = ns.put("a", value=b"y", If_None_Match="*")
    problem = refused.problem(412, "precondition-failed")
    assert problem["etag"] == refused.headers["etag"] == first.headers["etag"]
    assert problem["outcome"] == refused.headers["umbo-outcome"] == "not-applied"
    assert ns.get("a").body == b"x"
    ns.put("a", If_None_Match='"1"').problem(400, "invalid-header")
    ns.put("a", If_None_Match="*", If_Match="*").problem(400, "invalid-query")


def test_if_match_on_writes(ns):
    assert "etag" not in ns.put("a", If_Match="*").headers
    ns.put("a", If_Match='"1"').problem(412, "precondition-failed")
    tag = ns.put("a", value=b"1").headers["etag"]
    second = ns.put("a", value=b"2", If_Match=f'"7", {tag}')
    assert second.status == 204
    ns.put("a", value=b"3", If_Match=tag).problem(412, "precondition-failed")
    weak = f"W/{second.headers['etag']}"
    ns.put("a", value=b"3", If_Match=weak).problem(412, "precondition-failed")
    assert ns.put("a", value=b"3", If_Match="*").status == 204
    assert ns.get("a").body == b"3"


def test_if_match_on_deletes(ns):
    tag = ns.put("a").headers["etag"]
    ns.delete("a", If_Match='"1"').problem(412, "precondition-failed")
    assert ns.get("a").status == 200
    assert ns.delete("a", If_Match=tag).status == 204
    ns.delete("a", If_Match=tag).problem(412, "precondition-failed")


def test_ttl_and_expiry_are_told_and_kept(ns, still):
    ns.put("a", value=b"x", Umbo_TTL="100")
    assert int(ns.get("a").headers["umbo-expires-at"]) == now_ms(still) + 100_000
    ns.put("a", value=b"x")
    assert "umbo-expires-at" not in ns.get("a").headers, "a put replaces the expiry too"
    ns.put("a", value=b"x", Umbo_Expires_At="4102444800000")
    assert ns.get("a").headers["umbo-expires-at"] == "4102444800000"


def test_an_expired_row_is_never_visible(ns, still):
    soon = str(now_ms(still) + 300)
    tag = ns.put("a", value=b"x").headers["etag"]
    assert ns.put("a", "s", b"x", Umbo_Expires_At=soon).status == 201
    assert ns.put("a", value=b"x", Umbo_Expires_At=soon).status == 204
    still.advance(0.299)
    assert ns.get("a").body == b"x" and len(ns.range_all("a")) == 2
    still.advance(0.001)
    ns.get("a").problem(404, "key-not-found")
    assert ns.range_all("a") == [] and ns.scan_all() == []
    assert ns.multi_get([{"pk": "a"}]).lines()[0]["status"] == 404
    ns.put("a", If_Match=tag).problem(412, "precondition-failed")
    assert ns.put("a", value=b"y", If_None_Match="*").status == 201, "expired is absent"
    assert int(ns.get("a").headers["etag"].strip('"')) > int(tag.strip('"'))


@pytest.mark.parametrize(
    "headers",
    [
        {"Umbo-TTL": "0"},
        {"Umbo-TTL": "-1"},
        {"Umbo-TTL": "315360001"},
        {"Umbo-TTL": "1.5"},
        {"Umbo-TTL": ""},
        {"Umbo-Expires-At": "0"},
        {"Umbo-Expires-At": "1763000000"},
        {"Umbo-Expires-At": "999999999999"},
        {"Umbo-TTL": "5 parsecs"},
        {"Umbo-Expires-At": "tomorrow"},
        {"Umbo-Expires-At": "99999999999999999999"},
        {"Umbo-Durability": "maybe"},
        {"Umbo-Criticality": "high"},
        {"Content-Type": "x" * 256},
    ],
)
def test_headers_that_cannot_be_read_are_named(ns, headers):
    problem = ns.client.put(ns.path("a"), b"x", **headers).problem(400, "invalid-header")
    named = list(headers)[0].lower()
    assert named in problem["detail"].lower() or named.startswith("content"), problem
    ns.get("a").problem(404, "key-not-found")


def test_ttl_and_expiry_contradict_each_other(ns):
    ns.put("a", Umbo_TTL="1", Umbo_Expires_At="4102444800000").problem(400, "invalid-query")


def test_default_ttl_of_the_namespace(server, still):
    ns = server.namespace("with-ttl", b'{"default_ttl": 500}')
    ns.put("a")
    ns.write([{"pk": "b", "v": ""}, {"pk": "c", "v": "", "ttl": 9000}])
    ns.put("d", Umbo_TTL="9000")
    seconds = {row["pk"]: (row["expires_at"] - now_ms(still)) / 1000 for row in ns.scan_all()}
    assert seconds == {"a": 500, "b": 500, "c": 9000, "d": 9000}


def test_async_durability_is_read_at_once(ns):
    assert ns.put("a", value=b"x", Umbo_Durability="async").status == 201
    assert ns.get("a").body == b"x"
    assert ns.put("a", value=b"y", Umbo_Durability="sync").status == 204


def test_versions_grow_under_concurrent_writers(ns, server):
    import threading

    tags, lock = [], threading.Lock()

    def write():
        client = server.client()
        for _ in range(20):
            tag = client.put(ns.path("a"), b"x").headers["etag"]
            with lock:
                tags.append(tag)

    threads = [threading.Thread(target=write) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(set(tags)) == 160
    assert ns.get("a").headers["etag"] == max(tags, key=lambda tag: int(tag.strip('"')))


def test_unknown_headers_of_umbo_are_refused_with_the_nearest_known(ns):
    for headers, nearest in (
        ({"Umbo-TLL": "60"}, "umbo-ttl"),
        ({"Umbo-Timeout": "60"}, "umbo-timeout-ms"),
        ({"Umbo-Durabilty": "async"}, "umbo-durability"),
    ):
        detail = ns.client.put(ns.path("a"), b"x", **headers).problem(400, "invalid-header")["detail"]
        assert f"'{nearest}'" in detail, detail
        ns.get("a", **headers).problem(400, "invalid-header")
        admin = ns.client.get("/admin/v1/namespaces", **headers)
        assert f"'{nearest}'" in admin.problem(400, "invalid-header")["detail"]
    ns.get("a", Umbo_Nothing_Like_It="1").problem(400, "invalid-header")
    assert ns.get("a", X_Umbo_TLL="1").status == 404
