"""Namespaces by the admin API: made, changed, shown, removed with all their rows."""

import pytest

from harness import Namespace, wait_until


def described(client, path):
    """What a namespace is, without its size, which answers to changes do not have."""
    info = client.get(path).json()
    assert set(info.pop("size")) >= {"rows", "bytes"}
    return info


def test_a_namespace_is_made_shown_and_changed(server):
    for client in (server.client(), server.admin()):
        name = f"made-{client.port}"
        path = f"/admin/v1/namespaces/{name}"
        client.get(path).problem(404, "namespace-not-found")
        made = client.put(path, b'{"default_ttl": 60, "durability": "async"}')
        info = made.json()
        assert made.status == 201 and info["name"] == name and info["state"] == "live"
        assert (info["default_ttl"], info["durability"]) == (60, "async")
        assert info.pop("change") == "created"
        assert described(client, path) == info
        listed = client.get("/admin/v1/namespaces").json()["namespaces"]
        names = [each["name"] for each in listed]
        assert name in names and names == sorted(names)


@pytest.mark.redb("Cassandra has both kinds of writes")
def test_files_have_exact_writes_only(server):
    client = server.client()
    for method, name in (("PUT", "fast"), ("PUT", "exact"), ("PATCH", "exact")):
        answer = client.request(method, f"/admin/v1/namespaces/{name}", b'{"writes":"fast"}')
        assert "without 'writes'" in answer.problem(501, "not-implemented")["detail"]
        made = client.put("/admin/v1/namespaces/exact", b'{"writes":"exact"}')
        assert made.status in (200, 201) and "writes" not in made.json()
    client.get("/admin/v1/namespaces/fast").problem(404, "namespace-not-found")


def test_creating_an_existing_namespace_changes_nothing_and_says_so(server):
    client, path = server.client(), "/admin/v1/namespaces/kept"
    made = client.put(path, b'{"default_ttl": "5m", "durability": "async"}')
    info = made.json() | {"change": "unchanged"}
    assert (made.status, info["default_ttl"]) == (201, 300)
    for body in (b"", b"{}", b'{"default_ttl":300}', b'{"durability":"async"}'):
        again = client.put(path, body)
        assert (again.status, again.json()) == (200, info), body
        assert again.headers["etag"] == made.headers["etag"]
    for body in (b'{"default_ttl":60}', b'{"default_ttl":null}', b'{"durability":"sync"}'):
        problem = client.put(path, body).problem(409, "namespace-exists")
        assert "PATCH" in problem["detail"] and problem["outcome"] == "not-applied"
    client.put(path, If_None_Match="*").problem(412, "precondition-failed")
    client.put(path + "-not", If_Match="*").problem(412, "precondition-failed")
    client.get(path + "-not").problem(404, "namespace-not-found")
    assert described(client, path) == {k: v for k, v in info.items() if k != "change"}


def test_a_patch_changes_what_it_names(server):
    client, path = server.client(), "/admin/v1/namespaces/patched"
    patch = lambda body, **headers: client.request("PATCH", path, body, **headers)
    patch(b"{}").problem(404, "namespace-not-found")
    made = client.put(path, b'{"default_ttl": 60}')
    settings = lambda answer: [answer.json().get(name) for name in ("change", "default_ttl", "durability")]
    assert settings(patch(b"{}")) == ["unchanged", 60, "sync"]
    changed = patch(b'{"durability":"async"}', If_Match=made.headers["etag"])
    assert changed.status == 200 and settings(changed) == ["changed", 60, "async"]
    assert client.get(path).headers["etag"] == changed.headers["etag"] != made.headers["etag"]
    patch(b'{"default_ttl":1}', If_Match=made.headers["etag"]).problem(412, "precondition-failed")
    assert settings(patch(b'{"default_ttl":null}')) == ["changed", None, "async"]
    assert settings(patch(b'{"default_ttl":"1h 30m"}')) == ["changed", 5400, "async"]
    patch(b'{"colour":1}').problem(400, "invalid-body")
    replaced = client.put(path, b'{"default_ttl":7}', If_Match="*")
    assert settings(replaced) == ["changed", 7, "sync"], "what a replacement does not name has its default"
    log = list(server.log)
    for event in ("created a namespace", "changed the settings of a namespace"):
        assert [line for line in log if event in line and "patched" in line], event


@pytest.mark.parametrize(
    "body",
    ["[]", "1", "{", '{"default_ttl":0}', '{"default_ttl":315360001}', '{"default_ttl":"-1"}',
     '{"durability":"maybe"}', '{"colour":1}', '{"default_ttl":"soon"}', '"x"', "[60]"],
)  # fmt: skip
def test_settings_that_cannot_be_read(server, body):
    client = server.client()
    client.put("/admin/v1/namespaces/refused", body).problem(400, "invalid-body")
    client.get("/admin/v1/namespaces/refused").problem(404, "namespace-not-found")
    client.put("/admin/v1/namespaces/refused?x=1").problem(400, "invalid-query")


def test_large_admin_bodies_are_refused(server):
    answer = server.client().put("/admin/v1/namespaces/refused", b" " * 300_000)
    answer.problem(413, "body-too-large")


def test_removal_says_what_it_would_remove_and_then_removes_it(server):
    ns = server.namespace("removed")
    rows = [{"pk": f"p{n % 50}", "sk": str(n), "v": "12345"} for n in range(5000)]
    nothing = stored_rows(server)
    assert ns.write(rows).status == 200
    size = sum(len(row["pk"]) + len(row["sk"]) + 5 for row in rows)
    path = "/admin/v1/namespaces/removed"
    told = {"name": "removed", "rows": 5000, "bytes": size, "dry_run": True}
    assert ns.client.delete(path + "?dry_run=true").json() == told
    assert ns.get("p1", "1").status == 200
    cursor = ns.scan(limit=10).rows_and_end()[1]["cursor"]
    # What shard nodes hold, a dispatcher knows of the last second.
    before = wait_until(lambda: counted(server, nothing + 5000), "the rows are counted")
    removed = ns.client.delete(path)
    assert (removed.status, removed.body) == (204, b""), "every shard has confirmed it"
    ns.client.delete(path).problem(404, "namespace-not-found")
    for answer in (ns.get("p1", "1"), ns.put("p1"), ns.scan(), ns.range("p1")):
        answer.problem(404, "namespace-not-found")

    again = server.namespace("removed")
    assert again.scan_all() == [] and again.range_all("p1") == []
    again.get("p1", "1").problem(404, "key-not-found")
    again.scan(cursor=cursor).problem(400, "invalid-cursor")
    again.put("p1", "1", b"new")
    # What is new are records of Umbo's own.
    wait_until(lambda: stored_rows(server) <= before - 5000 + 100, "the space is reclaimed")
    assert [row["v"] for row in again.scan_all()] == ["new"]


def counted(server, least):
    rows = stored_rows(server)
    return rows if rows >= least else None


def stored_rows(server):
    shards = server.client().get("/admin/v1/shards").json()["shards"]
    return sum(shard["rows"] for shard in shards)


@pytest.mark.embedded("there is no data folder and no cluster of one's own to show")
def test_shards_and_settings_are_shown(server):
    client = server.admin()
    shards = client.get("/admin/v1/shards").json()["shards"]
    assert [shard["shard"] for shard in shards] == list(range(len(shards)))
    assert sum(shard["slots"] for shard in shards) == 4096
    assert all(shard["state"] == "available" for shard in shards)
    assert not any("node" in shard for shard in shards), "they are in the server's own process"
    assert client.get("/admin/v1/cluster").json() == {"nodes": []}
    client.get("/admin/v1/cluster?x=1").problem(400, "invalid-query")
    config = client.get("/admin/v1/config")
    assert config.headers["content-type"] == "text/plain; charset=utf-8"
    assert "[server]" in config.body.decode() and "drain_delay" in config.body.decode()
    client.get("/admin/v1/shards?x=1").problem(400, "invalid-query")
    client.get("/admin/v1/config?x=1").problem(400, "invalid-query")


def test_names_that_are_no_text(server):
    client = server.client()
    for path in ("/admin/v1/namespaces/%C3", "/v1/errors/%C3"):
        client.get(path).problem(404, "route-not-found")
    client.get("/admin/v1/namespaces/%2F..%2F").problem(400, "invalid-key")
    Namespace(client, "%C3").get("a").problem(400, "invalid-key")


def test_a_namespace_is_listed_with_its_size(server):
    client, path = server.client(), "/v1/ns/sized/kv/user-7"
    client.put("/admin/v1/namespaces/sized")

    def size():
        listed = client.get("/admin/v1/namespaces").json()["namespaces"]
        (own,) = [each["size"] for each in listed if each["name"] == "sized"]
        assert "without_shards" not in own
        return own

    assert size() == {"rows": 0, "bytes": 0}
    for row in range(20):
        client.put(f"{path}-{row}/name", b"x" * 100)
    # The shards of a cluster tell their sizes within a moment.
    full = wait_until(lambda: (own := size())["rows"] == 20 and own, "all rows are counted")
    assert 20 * 100 < full["bytes"] < 20 * 200
    assert client.get("/admin/v1/namespaces/sized").json()["size"] == full
    for row in range(5):
        client.delete(f"{path}-{row}/name")
    left = wait_until(lambda: (own := size())["rows"] == 15 and own, "removed rows are not counted")
    assert left["bytes"] < full["bytes"]
