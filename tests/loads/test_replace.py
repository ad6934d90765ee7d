"""Loads of mode replace: versions that are built beside the live one, swapped in at once, and rolled back."""

import contextlib
import itertools
import json
import threading

import pytest

from bulk import step_until
from bulk_loads import Load, activate, build, lines, load_rows, rollback, versions
from harness import Namespace, receive, wait_until


@pytest.fixture
def ns(server, request):
    return server.namespace(f"v{abs(hash(request.node.name)) % 10**9}")


def rows(count, value, start=0):
    return [{"pk": f"p{n % 13}", "sk": f"{n:05}", "v": f"{value}-{n}"} for n in range(start, start + count)]


def content(ns, **body):
    return {(row["pk"], row["sk"]): row["v"] for row in ns.scan_all(**body)}


def as_content(dataset):
    return {(row["pk"], row["sk"]): row["v"] for row in dataset}


def write_all(ns, dataset):
    for at in range(0, len(dataset), 500):
        puts = [{"op": "put", **row} for row in dataset[at : at + 500]]
        assert ns.write(puts).status == 200


def test_a_version_is_swapped_in_and_rolled_back_and_no_write_is_lost(ns):
    old, new = rows(400, "old"), rows(420, "new")
    write_all(ns, old)
    assert versions(ns) == {}
    load = Load.create(ns.client, ns.name, mode="replace")
    info = load.info()
    assert (info["state"], info["version"]) == ("created", 2)
    # What clients do meanwhile wins over the rows of the load.
    assert ns.put("p1", "00001", b"while").status == 204
    assert ns.delete("p2", "00002").status == 204
    assert ns.client.delete(f"/v1/ns/{ns.name}/range/p3?all=true").status == 200
    assert load.put(0, lines(new)).status == 201
    load.seal(1)
    load.wait_for("ready")
    expected_old = as_content(old) | {("p1", "00001"): "while"}
    expected_new = as_content(new) | {("p1", "00001"): "while"}
    for gone in (expected_old, expected_new):
        for key in [key for key in gone if key[0] == "p3"]:
            del gone[key]
        gone.pop(("p2", "00002"), None)
    assert content(ns) == expected_old, "nothing of it is visible"
    ready = versions(ns)[2]
    assert ready["state"] == "ready" and ready["load"] == load.id
    assert sum(shard["rows"] for shard in ready["shards"]) == len(expected_new)

    dry = activate(ns, 2, "?dry_run=true").json()
    assert (dry["before"], dry["live"], dry["dry_run"]) == (1, 2, True)
    assert content(ns) == expected_old
    assert activate(ns, 2).json()["live"] == 2
    assert content(ns) == expected_new
    assert load.info()["state"] == "live"
    assert {number: one["state"] for number, one in versions(ns).items()} == {1: "kept", 2: "live"}
    assert activate(ns, 2).status == 200, "twice is once"

    # Writes after the swap are there after the rollback, too.
    assert ns.put("p1", "after", b"after").status == 201
    assert ns.delete("p4", "00004").status == 204
    assert rollback(ns, "?dry_run=true").json()["live"] == 1
    assert rollback(ns).json()["live"] == 1
    assert load.info()["state"] == "rolled-back"
    expected_old[("p1", "after")] = "after"
    del expected_old[("p4", "00004")]
    assert content(ns) == expected_old
    # Nodes tell them now and then.
    size = lambda: ns.client.get(f"/admin/v1/namespaces/{ns.name}").json()["size"]["rows"]  # noqa: E731
    wait_until(lambda: size() == len(expected_old), "sizes are those of the live version")


def test_loads_beside_writers_and_swaps_lose_nothing(server, ns):
    stop = threading.Event()
    acknowledged, failures, created = {}, [], []
    # In the order in which the threads come.
    order = itertools.count()

    def write(number):
        own = Namespace(server.client(), ns.name)
        count = 0
        while not stop.is_set():
            key = (f"w{number}", f"{count % 40:03}")
            begun = next(order)
            if count % 7 == 6:
                answer = own.delete(*key)
                acknowledged[key] = (None, begun)
            else:
                answer = own.put(*key, f"{number}-{count}".encode())
                acknowledged[key] = (f"{number}-{count}", begun)
            if answer.status not in (201, 204):
                failures.append(answer)
            count += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(3):
            load = Load.create(ns.client, ns.name, mode="replace", activate=True, guards={"rows_change_max": 1e6})
            created.append(next(order))
            written = lambda: any(begun > created[-1] for _, begun in list(acknowledged.values()))
            wait_until(lambda: failures or written(), "writers write while it is built")
            assert load.put(0, lines(rows(300, f"turn{turn}"))).status == 201
            load.seal(1)
            load.wait_for("live")
            assert ns.get("p0", "00000").body.decode() == f"turn{turn}-0"
            if turn == 1:
                assert rollback(ns).status == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:3]
    # The third version is live. That before it is the first: the second was rolled back, and then dropped.
    for since in (created[2], created[0]):
        found = content(ns)
        for key, (value, begun) in acknowledged.items():
            # What was written before the load was created is replaced by its rows.
            assert found.get(key) == value or begun < since and key not in found, key
        assert any(begun > since for _, begun in acknowledged.values())
        rollback(ns)


def test_pages_go_on_in_the_version_in_which_they_began(ns):
    old, new = rows(200, "old"), rows(210, "new")
    write_all(ns, old)
    first = ns.range("p1", limit=5)
    lines_, end = first.rows_and_end()
    assert end["more"]
    build(ns, new, activate=True).wait_for("live")
    rest = []
    while end["more"]:
        page, end = ns.range("p1", limit=5, cursor=end["cursor"]).rows_and_end()
        rest += page
    assert {row["v"].split("-")[0] for row in [*lines_, *rest]} == {"old"}, "no answer mixes versions"
    assert len(lines_) + len(rest) == sum(row["pk"] == "p1" for row in old)
    cursor = ns.scan(limit=5).rows_and_end()[1]["cursor"]
    old_cursor = first.rows_and_end()[1]["cursor"]
    assert content(ns, version=1) == as_content(old), "a version that is kept can be read"
    build(ns, rows(200, "third"), activate=True).wait_for("live")
    ns.scan(cursor=cursor).rows_and_end()
    dropped = ns.range("p1", cursor=old_cursor).problem(400, "invalid-cursor")
    assert "dropped" in dropped["detail"]
    activate(ns, 1).problem(409, "version-superseded")
    activate(ns, 9).problem(404, "version-not-found")


@pytest.mark.parametrize("way", ["range", "scan"])
def test_a_page_that_is_being_sent_says_that_its_version_was_dropped(server, ns, way):
    for at in range(60):
        assert ns.put("p", f"{at:03}", bytes(512 << 10)).status == 201
    whole = 1 << 30
    if way == "range":
        head = f"GET {ns.base}/range/p?max_bytes={whole} HTTP/1.1\r\nHost: h\r\n\r\n"
    else:
        body = json.dumps({"max_bytes": whole})
        head = f"POST {ns.base}/scan HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with server.raw(head.encode()) as sock:
        assert b" 200 " in sock.recv(64)
        build(ns, rows(50, "new"), activate=True).wait_for("live")
        assert ns.client.delete(f"/v1/ns/{ns.name}/versions/1").status == 200
        last = receive(sock)[-4_096:]
    assert b'"/v1/errors/invalid-cursor"' in last and b"dropped" in last, last


def test_hot_keys_are_of_the_live_version(ns):
    write_all(ns, rows(20, "old"))
    pinned = f"/admin/v1/hot/pinned/ns/{ns.name}/kv/p0/00000"
    assert ns.client.put(pinned, b"{}").status == 201
    is_kept = lambda: "hit" in ns.get("p0", "00000").headers.get("cache-status", "")
    wait_until(is_kept, "the answer is kept")
    build(ns, rows(20, "new"), activate=True).wait_for("live")
    assert ns.get("p0", "00000").body == b"new-0"
    wait_until(is_kept, "the answer is kept")
    rollback(ns)
    assert ns.get("p0", "00000").body == b"old-0"
    assert ns.client.delete(pinned).status == 204


def test_guards_fail_a_load_and_leave_the_live_version(ns):
    write_all(ns, rows(100, "old"))
    few = build(ns, rows(50, "few")).wait_for("failed")
    assert "rows_change_max" in few["reason"]
    none = build(ns, rows(100, "new"), guards={"rows_min": 101}).wait_for("failed")
    assert "rows_min" in none["reason"]
    counted = build(ns, rows(100, "new"), expected_rows=99).wait_for("failed")
    assert "expected" in counted["reason"]
    assert content(ns) == as_content(rows(100, "old"))
    assert {number: one["state"] for number, one in versions(ns).items()} == {1: "live"}
    rollback(ns).problem(409, "version-superseded")
    activate(ns, 2).problem(409, "version-superseded")


def test_an_abort_leaves_nothing(server, ns):
    write_all(ns, rows(100, "old"))
    # The shards of a cluster tell their sizes within a moment.
    told = lambda: ns.client.get(f"/admin/v1/namespaces/{ns.name}").json()["size"]["rows"]
    wait_until(lambda: told() == 100, "the rows are counted")
    before = server.metric("umbo_shard_live_bytes")
    load = build(ns, rows(110, "new" * 200))
    load.wait_for("ready")
    wait_until(lambda: server.metric("umbo_shard_live_bytes") > before + 65_536, "the version is counted")
    other = ns.client.post(f"/v1/ns/{ns.name}/loads", {"mode": "replace"})
    assert load.id in other.problem(409, "load-building")["detail"]
    ns.client.delete(f"/v1/ns/{ns.name}/versions/2").problem(409, "version-in-use")
    assert load.post("abort").json()["state"] == "aborted"
    activate(ns, 2).problem(409, "version-superseded")
    assert content(ns) == as_content(rows(100, "old"))
    # The report of the load stays for a while.
    wait_until(lambda: server.metric("umbo_shard_live_bytes") <= before + 16_384, "the version is reclaimed")


def test_what_cannot_be_is_refused(ns):
    loads = f"/v1/ns/{ns.name}/loads"
    for spec in (
        {"mode": "replace", "as_of": 1},
        {"mode": "replace", "force": True},
        {"mode": "replace", "guards": {"rows_change_max": -1}},
        {"mode": "merge", "activate": True},
    ):
        ns.client.post(loads, spec).problem(400, "invalid-body")
    load = Load.create(ns.client, ns.name, mode="replace")
    not_ready = activate(ns, 2).problem(409, "version-not-ready")
    assert load.id in not_ready["detail"]
    activate(ns, 1)
    load.post("abort")


def test_a_kept_version_can_be_dropped(ns):
    write_all(ns, rows(100, "old"))
    build(ns, rows(100, "new"), activate=True).wait_for("live")
    path = f"/v1/ns/{ns.name}/versions"
    ns.client.delete(f"{path}/2").problem(409, "version-in-use")
    assert ns.client.delete(f"{path}/1?dry_run=true").json()["dry_run"] is True
    assert ns.client.delete(f"{path}/1").json()["dropped"] == [1]
    rollback(ns).problem(409, "version-superseded")
    # The namespace lives on under the id of its second version.
    assert ns.put("p1", "00001", b"later").status == 204
    assert content(ns) == as_content(rows(100, "new")) | {("p1", "00001"): "later"}
    build(ns, rows(90, "third"), activate=True).wait_for("live")
    assert content(ns) == as_content(rows(90, "third"))


@pytest.mark.parametrize("state", ["uploading", "building", "ready", "live"])
def test_a_kill_leaves_each_state_as_it_would_have_been(new_server, state):
    server = new_server().start()
    ns = server.namespace("demo")
    old, new = rows(3_000, "old"), rows(3_100, "new")
    write_all(ns, old)
    load = Load.create(ns.client, "demo", mode="replace", activate=state == "live")
    assert load.put(0, lines(new)).status == 201
    if state != "uploading":
        load.seal(1)
        if state == "building":
            load.wait_for("building", "verifying", "ready")
        else:
            load.wait_for(state)
    assert ns.put("p1", "00001", b"before").status == 204
    server.kill()
    server.start()
    ns = Namespace(server.client(), "demo")
    load = load.through(ns.client)
    assert ns.put("p2", "00002", b"after").status == 204
    if state == "uploading":
        load.seal(1)
    if state != "live":
        # The lease of who worked on the load before ends first, unless there is no other dispatcher.
        step_until(server.clock, lambda: load.info()["state"] == "ready", "the load is ready")
        assert activate(ns, 2).status == 200
    written = {("p1", "00001"): "before", ("p2", "00002"): "after"}
    assert content(ns) == as_content(new) | written
    assert rollback(ns).status == 200
    assert content(ns) == as_content(old) | written


def test_a_removed_namespace_takes_its_versions_with_it(server, ns):
    empty = server.metric("umbo_shard_live_bytes")
    write_all(ns, rows(3_000, "old"))
    build(ns, rows(3_000, "new"), activate=True).wait_for("live")
    wait_until(lambda: server.metric("umbo_shard_live_bytes") > empty + 65_536, "the sizes are told")
    Load.create(ns.client, ns.name, mode="replace")
    assert server.client().delete(f"/admin/v1/namespaces/{ns.name}").status in (202, 204)
    again = None
    with contextlib.suppress(AssertionError):
        again = server.namespace(ns.name)
    again = again or wait_until(lambda: server.namespace(ns.name), "the name is free")
    assert content(again) == {}
    # Umbo's own records tell of it for a while.
    wait_until(lambda: server.metric("umbo_shard_live_bytes") <= empty + 16_384, "all of it is reclaimed")


def test_a_version_is_kept_for_as_long_as_its_namespace_says(server, ns):
    path = f"/admin/v1/namespaces/{ns.name}"
    patch = lambda body: ns.client.request("PATCH", path, body)
    assert patch('{"versions_kept_for":"1m"}').json()["versions_kept_for"] == 60
    for bad in ("0", "-1", '"soon"', "315360001", "true"):
        patch('{"versions_kept_for":%s}' % bad).problem(400, "invalid-body")
    conflict = ns.client.put(path, '{"versions_kept_for":"2h"}').problem(409, "namespace-exists")
    assert "versions_kept_for is 60 s, not 7200 s" in conflict["detail"]
    write_all(ns, rows(40, "old"))
    build(ns, rows(40, "new"), activate=True).wait_for("live")
    assert versions(ns)[1]["keep_until"] - versions(ns)[2]["activated_at"] == 60_000
    server.clock.advance(60)
    wait_until(lambda: set(versions(ns)) == {2}, "the version before is dropped")
    rollback(ns).problem(409, "version-superseded")
    assert content(ns) == as_content(rows(40, "new"))
    assert "versions_kept_for" not in patch('{"versions_kept_for":null}').json()
    build(ns, rows(40, "third"), activate=True).wait_for("live")
    assert versions(ns)[2]["keep_until"] - versions(ns)[3]["activated_at"] == 24 * 3_600_000


def test_increments_go_to_all_versions_and_are_recognised_in_each(ns):
    write_all(ns, rows(50, "old"))
    build(ns, rows(50, "new"), activate=True).wait_for("live")
    path = ns.path("counter", "c")
    of = lambda key: {"Umbo-Increment": "1", "Idempotency-Key": f'"{key}"'}  # noqa: E731
    for number in range(1, 4):
        answer = ns.client.request("PATCH", path, headers=of(f"k{number}"))
        assert answer.status in (200, 201), answer
    assert rollback(ns).status == 200
    # A repetition is recognised in the version before, too.
    ns.client.request("PATCH", path, headers=of("k3"))
    assert ns.get("counter", "c").body == b"3"


def test_parts_in_order_are_applied_before_the_seal(ns):
    old, new = rows(130, "old"), sorted(rows(1300, "new"), key=lambda row: (row["pk"], row["sk"]))
    write_all(ns, old)
    load = Load.create(ns.client, ns.name, mode="replace", expected_rows=1300, guards={"rows_change_max": 20})
    # The second part waits for the first one.
    assert load.put(1, lines(new[400:800])).status == 201
    assert load.put(0, lines(new[:400])).status == 201
    wait_until(lambda: load.info()["rows_applied"] == 800, "both are applied")
    assert load.info()["state"] == "uploading" and content(ns) == as_content(old)
    # Writes win over rows that are applied later and over those that are there already.
    assert ns.put("p0", "00000", b"late").status == 204 and ns.delete("p0", "00013").status == 204
    assert ns.delete(new[-1]["pk"], new[-1]["sk"]).status == 204
    # What is applied is known as a part still.
    assert load.put(0, lines(new[:400])).status == 200
    load.put(0, lines(new[:401])).problem(409, "part-differs")
    assert load.post("pause").json()["paused"]
    assert load.put(2, lines(new[800:])).status == 201
    load.seal(3)
    # Another load comes to its end meanwhile. A dispatcher that does not know of the pause yet may have applied rows, and
    # goes no further.
    load_rows(ns.client, ns.name)
    assert load.info()["state"] == "sealed"
    load.post("resume")
    load.wait_for("ready")
    activate(ns, 2)
    expected = as_content(new) | {("p0", "00000"): "late"}
    del expected["p0", "00013"], expected[new[-1]["pk"], new[-1]["sk"]]
    assert content(ns) == expected


def test_a_part_that_cannot_be_read_fails_the_load_before_the_seal(ns):
    load = Load.create(ns.client, ns.name, mode="replace")
    assert load.put(0, b"id,v\na,1\n", "text/csv").status == 201
    load.wait_for("failed")
    assert "'id'" in load.info()["reason"]
    load.put(1, b"pk,v\na,1\n", "text/csv").problem(409, "load-state")
    load.post("seal", {"parts": 1}).problem(409, "load-state")


@pytest.mark.parametrize("mode", ["merge", "replace"])
def test_a_creation_that_is_repeated_finds_its_load(ns, mode):
    path, key = f"/v1/ns/{ns.name}/loads", {"Idempotency-Key": '"once"'}

    def create(body, **more):
        return ns.client.request("POST", path, json.dumps(body).encode(), key | more)

    first = create({"mode": mode})
    assert first.status == 201, first
    load = Load(ns.client, ns.name, first.json()["id"])
    again = create({"mode": mode})
    assert again.status == 201 and again.json()["id"] == load.id, again
    assert again.headers["location"] == first.headers["location"]
    create({"mode": mode, "expected_rows": 3}).problem(422, "idempotency-mismatch")
    create({"mode": mode}, **{"Umbo-Idempotency-TTL": "10m"}).problem(400, "invalid-header")
    assert load.put(0, lines(rows(10, "v"))).status == 201
    load.seal(1)
    load.wait_for("live", "ready")
    assert create({"mode": mode}).json()["id"] == load.id
    assert len(ns.client.get(path).json()["loads"]) == 1
