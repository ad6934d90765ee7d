"""Loads of mode merge: parts in, rows live; what is refused and by which name."""

import csv
import gzip
import hashlib
import io
import json
import random

import pytest

from bulk_loads import Load, digest, lines, load_rows
from harness import NDJSON, Namespace, read_answer, unb64u, wait_until


@pytest.fixture
def ns(server, request):
    name = f"n{abs(hash(request.node.name)) % 10**9}"
    return server.namespace(name)


def rows_of(ns):
    return {(row["pk"], row.get("sk", "")): row["v"] for row in ns.scan_all()}


def test_parts_in_any_order_become_rows(ns):
    load = Load.create(ns.client, ns.name, expected_rows=300)
    parts = [[{"pk": f"p{part}", "sk": f"{n:03}", "v": f"{part}-{n}"} for n in range(100)] for part in range(3)]
    for number in (2, 0, 1):
        body = lines(parts[number])
        answer = load.put(number, body)
        assert answer.status == 201, answer
        part = answer.json()
        assert part["sha256"] == hashlib.sha256(body).hexdigest()
        assert (part["number"], part["bytes"], part["complete"]) == (number, len(body), True)
        assert float(answer.headers["umbo-ru"]) > 0, "an upload is charged"
    assert load.info()["state"] == "uploading"
    assert ns.scan_all() == [], "nothing is visible before the seal"
    assert load.seal(3)["state"] in ("sealed", "building", "live")
    info = load.wait_for("live")
    assert (info["rows_applied"], info["rows_skipped"], info["rows_rejected"]) == (300, 0, 0)
    assert [(part["rows"], part["rejected"], part["applied"]) for part in info["parts"]] == [(100, 0, 100)] * 3
    assert sum(shard["rows_applied"] for shard in info["shards"]) == 300
    assert rows_of(ns) == {(row["pk"], row["sk"]): row["v"] for part in parts for row in part}
    assert load.seal(3)["state"] == "live", "a seal may be repeated"
    listed = ns.client.get(f"/v1/ns/{ns.name}/loads").json()["loads"]
    assert [(one["id"], one["state"]) for one in listed] == [(load.id, "live")]


def test_the_same_part_twice_changes_nothing_and_another_is_refused(ns):
    load = Load.create(ns.client, ns.name)
    body = lines([{"pk": "a", "v": "1"}])
    assert load.put(0, body).status == 201
    again = load.put(0, body)
    assert again.status == 200 and again.json()["sha256"] == hashlib.sha256(body).hexdigest()
    assert load.put(0, body, Content_Digest=digest(body)).status == 200
    other = lines([{"pk": "a", "v": "2"}])
    load.put(0, other).problem(409, "part-differs")
    load.put(0, other, Content_Digest=digest(other)).problem(409, "part-differs")
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 1
    load.put(1, body).problem(409, "load-state")
    assert load.put(0, body).status == 200, "what is whole stays a no-op"


def test_uploads_go_on_where_they_were(ns):
    load = Load.create(ns.client, ns.name)
    random.seed(3)
    rows = [{"pk": f"k{n}", "v": random.randbytes(300).hex()} for n in range(2_000)]
    body = lines(rows)
    cuts = sorted(random.sample(range(1, len(body)), 5))
    assert load.offset(7) is None
    problem = load.client.get(f"{load.base}/parts/7")
    assert problem.status == 405 and problem.headers["allow"] == "HEAD, PUT, PATCH"
    at = 0
    for end in [*cuts, len(body)]:
        wrong = load.patch(7, b"x", at + 1)
        wrong.problem(409, "offset-mismatch")
        assert wrong.headers["upload-offset"] == str(at)
        answer = load.patch(7, body[at:end], at, end == len(body), content_type=NDJSON if at == 0 else None)
        assert answer.status == 204, answer
        assert answer.headers["upload-offset"] == str(end)
        at = end
        assert load.offset(7) == (end, end == len(body))
    part = load.info()["parts"][0]
    assert part["sha256"] == hashlib.sha256(body).hexdigest(), "however it was cut"
    assert load.put(7, body).status == 200
    assert load.patch(7, b"", len(body), True).status == 204
    load.patch(7, b"x", len(body)).problem(409, "offset-mismatch")
    load.patch(7, b"x", 0).problem(409, "offset-mismatch")
    missing = load.post("seal", {"parts": 9}).problem(409, "parts-missing")
    assert "0, 1, 2, 3, 4, 5, 6, 8" in missing["detail"]
    assert load.post("seal", {"parts": 2}).problem(400, "invalid-body")["detail"].startswith("part 7")
    for number in range(7):
        assert load.put(number, b"").status == 201, "an empty part is one"
    load.seal(8)
    assert load.wait_for("live")["rows_applied"] == 2_000
    assert rows_of(ns) == {(row["pk"], ""): row["v"] for row in rows}


def test_a_piece_is_in_the_coding_of_its_part(ns):
    load = Load.create(ns.client, ns.name)
    body = lines([{"pk": "a", "v": "1"}, {"pk": "b", "v": "2"}])
    assert load.patch(0, body[:10], 0).status == 204
    for content_type in (None, NDJSON):
        wrong = load.patch(0, gzip.compress(body[10:]), 10, content_type=content_type, Content_Encoding="gzip")
        assert "gzip" in wrong.problem(409, "part-differs")["detail"]
    assert load.patch(0, body[10:], 10, True, content_type=None).status == 204
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 2


def test_a_cut_connection_leaves_what_can_be_continued(server, ns):
    load = Load.create(ns.client, ns.name)
    rows = [{"pk": f"k{n:05}", "v": "x" * 1_000} for n in range(3_000)]
    body = lines(rows)
    head = (
        f"PUT {load.base}/parts/0 HTTP/1.1\r\nHost: x\r\nContent-Type: {NDJSON}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    sock = server.raw(head.encode())
    sock.sendall(body[:2_000_000])
    wait_until(lambda: (load.offset(0) or (0, False))[0] >= 1_000_000, "a part of it is kept")
    sock.close()

    wait_until(lambda: server.in_flight() == 0, "the upload has ended")
    kept, complete = load.offset(0)
    assert not complete and 1_900_000 <= kept <= 2_000_000
    assert load.patch(0, body[kept:], kept, True, content_type=None).status == 204
    assert load.info()["parts"][0]["sha256"] == hashlib.sha256(body).hexdigest()
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 3_000


def test_a_body_with_another_digest_counts_for_nothing(ns):
    load = Load.create(ns.client, ns.name)
    body = lines([{"pk": "a", "v": "1"}])
    refused = load.put(0, body, Content_Digest=digest(b"other")).problem(422, "digest-mismatch")
    assert hashlib.sha256(body).hexdigest() in refused["detail"]
    assert load.offset(0) is None
    assert load.patch(0, body, 0).status == 204
    load.patch(0, body, len(body), Content_Digest=digest(b"other")).problem(422, "digest-mismatch")
    assert load.offset(0) == (len(body), False)
    assert load.patch(0, body, len(body), True, Content_Digest=digest(body)).status == 204
    load.put(1, body, Content_Digest="sha-256=nonsense").problem(400, "invalid-header")
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 2


def test_formats_and_codings_give_the_same_rows(ns):
    rows = [{"pk": f"p{n % 7}", "sk": f"{n:04}", "v": f'value "{n}", ü'} for n in range(500)]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["sk", "v", "pk"])
    writer.writeheader()
    writer.writerows(rows[250:])
    load = Load.create(ns.client, ns.name)
    assert load.put(0, gzip.compress(lines(rows[:250])), Content_Encoding="gzip").status == 201
    part = load.put(1, text.getvalue().encode(), content_type="text/csv; charset=utf-8")
    assert part.status == 201 and part.json()["content_type"] == "text/csv"
    load.put(2, b"x", content_type="text/plain").problem(415, "unsupported-format")
    load.put(2, b"x", content_type="").problem(415, "unsupported-format")
    load.put(2, b"x", Content_Encoding="br").problem(415, "unsupported-format")
    load.seal(2)
    info = load.wait_for("live")
    assert info["rows_applied"] == 500 and info["parts"][0]["coding"] == "gzip"
    assert rows_of(ns) == {(row["pk"], row["sk"]): row["v"] for row in rows}


def test_columns_are_named_once(ns):
    body = b"id,name,size\n1,a,10\n2,b,20\n"
    load = Load.create(ns.client, ns.name, columns={"pk": "id", "value": "rest"})
    assert load.put(0, body, content_type="text/csv").status == 201
    load.seal(1)
    load.wait_for("live")
    assert json.loads(ns.get("1").body) == {"name": "a", "size": "10"}
    load = Load.create(ns.client, ns.name, columns={"pk": "other"})
    load.put(0, body, content_type="text/csv")
    load.seal(1)
    assert "part 0" in load.wait_for("failed")["reason"] and "other" in load.info()["reason"]


def test_wrong_rows_are_rejected_by_line_and_reason(ns):
    body = b'{"pk":"a","v":"1"}\nnonsense\n{"pk":"","v":"2"}\n\xff\xfe\n{"pk":"b","v":"3"}\n'
    load = Load.create(ns.client, ns.name, max_reject_ratio=0.6)
    load.put(0, body)
    load.seal(1)
    info = load.wait_for("live")
    assert (info["rows_applied"], info["rows_rejected"]) == (2, 3)
    rejects = load.rejects()
    assert [(one["part"], one["line"]) for one in rejects] == [(0, 2), (0, 3), (0, 4)]
    assert rejects[0]["text"] == "nonsense" and unb64u(rejects[2]["b64"]) == b"\xff\xfe"
    assert all(one["reason"] for one in rejects)
    strict = Load.create(ns.client, ns.name, max_reject_ratio=0.59)
    strict.put(0, body.replace(b'"a"', b'"c"'))
    strict.seal(1)
    assert "3 of 5" in strict.wait_for("failed")["reason"]
    assert ns.get("c").status == 404, "nothing was applied"
    assert len(strict.rejects()) == 3


def test_rejects_come_in_pages(ns):
    load = Load.create(ns.client, ns.name, max_reject_ratio=1)
    bad = [b"%03d" % number + b"x" * 2_000 for number in range(300)]
    load.put(0, b"\n".join(bad[:200]))
    load.put(1, b"\n".join(bad[200:]))
    load.seal(2)
    load.wait_for("live")
    rows = [(number // 200, number % 200 + 1) for number in range(300)]
    for query in ["", "?limit=70", "?limit=1000"]:
        assert [(one["part"], one["line"]) for one in load.rejects(query)] == rows, query
    first = load.client.get(f"{load.base}/rejects")
    assert len(first.body) < 300_000 and len(first.lines()) < 300, "a page is bounded"
    assert float(first.headers["umbo-ru"]) > float(load.client.get(f"{load.base}/rejects?limit=1").headers["umbo-ru"])
    load.client.get(f"{load.base}/rejects?limit=1001").problem(400, "invalid-query")
    load.client.get(f"{load.base}/rejects?cursor=first").problem(400, "invalid-cursor")


def test_rows_of_blocked_keys_are_rejected_one_by_one(ns):
    block = f"/admin/v1/hot/blocked/ns/{ns.name}/kv/bad"
    assert ns.client.put(block, b'{"reason":"abuse"}').status == 201
    load = Load.create(ns.client, ns.name, max_reject_ratio=0)
    load.put(0, lines([{"pk": "a", "v": "1"}, {"pk": "bad", "v": "2"}, {"pk": "bad", "sk": "s", "v": "3"}]))
    load.put(1, b'\n{"op":"del","pk":"bad"}\n')
    load.seal(2)
    info = load.wait_for("live")
    assert (info["rows_applied"], info["rows_skipped"], info["rows_rejected"]) == (2, 0, 2)
    rejects = load.rejects()
    assert [(one["part"], one["line"]) for one in rejects] == [(0, 2), (1, 2)]
    for one in rejects:
        assert one["reason"] == "an operator has blocked the key", one
        assert json.loads(one["text"]) == {"pk": "bad", "sk": ""}
    assert rows_of(ns) == {("a", ""): "1", ("bad", "s"): "3"}
    assert ns.client.delete(block).status == 204
    assert ns.get("bad").status == 404


def test_a_load_with_other_rows_than_expected_applies_none(ns):
    load = Load.create(ns.client, ns.name, expected_rows=3)
    load.put(0, lines([{"pk": "a", "v": "1"}, {"pk": "b", "v": "1"}]))
    load.seal(1)
    reason = load.wait_for("failed")["reason"]
    assert "2" in reason and "3" in reason and ns.scan_all() == []
    load.post("pause").problem(409, "load-state")
    load.post("abort").problem(409, "load-state")


def test_older_data_never_replaces_newer(server, ns):
    ns.put("service", value=b"before")
    # After the write, which may be of this millisecond.
    instant = int(server.clock.time() * 1000) + 1
    server.clock.advance(0.002)
    ns.put("newer", value=b"service")
    rows = [{"pk": pk, "v": "load"} for pk in ("service", "newer", "fresh")]
    _, info = load_rows(ns.client, ns.name, rows, as_of=instant)
    assert (info["rows_applied"], info["rows_skipped"]) == (2, 1)
    assert [ns.get(pk).body for pk in ("service", "newer", "fresh")] == [b"load", b"service", b"load"]
    # A later load of older data changes nothing, one of newer data does.
    _, info = load_rows(ns.client, ns.name, [{"pk": "fresh", "v": "older"}], as_of=instant - 1)
    assert (info["rows_applied"], info["rows_skipped"]) == (0, 1)
    tag = ns.get("fresh").headers["etag"]
    _, info = load_rows(ns.client, ns.name, [{"pk": "fresh", "v": "again"}], as_of=instant)
    assert info["rows_applied"] == 1 and int(ns.get("fresh").headers["etag"].strip('"')) > int(tag.strip('"'))
    _, info = load_rows(ns.client, ns.name, [{"pk": "newer", "v": "forced"}], as_of=instant, force=True)
    assert info["rows_applied"] == 1 and ns.get("newer").body == b"forced"
    _, info = load_rows(ns.client, ns.name, [{"op": "del", "pk": "fresh"}, {"op": "del", "pk": "newer"}], as_of=instant)
    assert (info["rows_applied"], info["rows_skipped"]) == (1, 1)
    assert (ns.get("fresh").status, ns.get("newer").status) == (404, 200)


def test_of_rows_with_one_key_the_last_counts(ns):
    parts = [[{"pk": "a", "v": f"{part}-{n}"} for n in range(1_500)] for part in range(2)]
    _, info = load_rows(ns.client, ns.name, *parts)
    assert info["rows_applied"] == 3_000 and ns.get("a").body == b"1-1499"


def test_rows_expire_as_they_say(server, ns):
    milliseconds = lambda: int(server.clock.time() * 1000)
    now = milliseconds()
    rows = [
        {"pk": "gone", "v": "x", "expires_at": now - 1000},
        {"pk": "stays", "v": "x", "expires_at": now + 3_600_000},
        {"pk": "ttl", "v": "x", "ttl": 3600},
    ]
    _, info = load_rows(ns.client, ns.name, rows)
    assert (info["rows_applied"], info["rows_skipped"]) == (2, 1)
    assert ns.get("gone").status == 404
    assert ns.get("stays").headers["umbo-expires-at"] == str(now + 3_600_000)
    expires_at = int(ns.get("ttl").headers["umbo-expires-at"])
    assert now + 3_600_000 <= expires_at <= milliseconds() + 3_600_000


def test_a_paused_load_waits_and_an_aborted_one_ends(ns):
    load = Load.create(ns.client, ns.name)
    load.put(0, lines([{"pk": "a", "v": "1"}]))
    assert load.post("pause").json()["paused"] and load.post("pause").status == 200
    load.seal(1)
    other, _ = load_rows(ns.client, ns.name, [{"pk": "b", "v": "1"}])
    info = load.info()
    assert (info["state"], info["paused"]) == ("sealed", True) and ns.get("a").status == 404
    assert not load.post("resume").json()["paused"]
    load.wait_for("live")
    doomed = Load.create(ns.client, ns.name)
    doomed.put(0, lines([{"pk": "c", "v": "1"}]))
    dry = doomed.client.post(f"{doomed.base}/abort?dry_run=true").json()
    assert (dry["state"], dry["dry_run"]) == ("aborted", True) and doomed.info()["state"] == "uploading"
    assert doomed.post("abort").json()["state"] == "aborted" and doomed.post("abort").status == 200
    doomed.put(1, b"").problem(409, "load-state")
    doomed.post("seal", {"parts": 1}).problem(409, "load-state")
    other.post("abort").problem(409, "load-state")


def test_bad_requests_are_named(server, ns):
    loads = f"/v1/ns/{ns.name}/loads"
    client = ns.client
    for body in ('{"mode":"x"}', "[]", "{", '{"as_of":99999999999999}', '{"max_reject_ratio":2}', '{"colour":1}'):
        client.post(loads, body).problem(400, "invalid-body")
    client.get(f"{loads}/0-0").problem(404, "load-not-found")
    client.get(f"{loads}/0-0/parts").problem(404, "route-not-found")
    client.delete(loads).problem(405, "method-not-allowed")
    client.get("/v1/ns/nobody/loads").problem(404, "namespace-not-found")
    load = Load.create(client, ns.name)
    for number in ("10000", "-1", "x"):
        load.put(number, b"").problem(400, "invalid-key")
    other = server.namespace(f"{ns.name}-other")
    load.through(other.client)
    Load(other.client, other.name, load.id).put(0, b"").problem(404, "load-not-found")
    load.post("seal", {"parts": 10_001}).problem(400, "invalid-body")
    load.post("seal", b"").problem(400, "invalid-body")
    head = f"PUT {load.base}/parts/0 HTTP/1.1\r\nHost: x\r\nContent-Type: {NDJSON}\r\nContent-Length: {(256 << 20) + 1}\r\n\r\n"
    sock = server.raw(head.encode())
    assert b" 413 " in sock.recv(4096).splitlines()[0]
    sock.close()
    loads_open = [Load.create(client, ns.name) for _ in range(7)]
    client.post(loads, {}).problem(409, "load-limit")
    assert loads_open[0].post("abort").status == 200
    assert client.post(loads, {}).status == 201


def test_loads_need_their_permissions(new_server):
    server = new_server().start()
    admin = server.namespace("cities").client

    def token(name, grant):
        made = admin.post("/admin/v1/tokens", {"name": name, "grants": [grant]})
        assert made.status == 201, made
        return made.json()["token"]

    # From the first token on all need one.
    admin.token = token("root", "*:*")
    reader, writer = server.client(token=token("reader", "read:*")), server.client(token=token("writer", "write:*"))
    reader.post("/v1/ns/cities/loads", {}).problem(403, "forbidden")
    load = Load.create(writer, "cities")
    load.through(reader).put(0, b"").problem(403, "forbidden")
    assert load.put(0, b"").status == 201
    assert load.through(reader).info()["created_by"] == "writer"
    writer.get(load.base).problem(403, "forbidden")


def test_a_namespace_removed_meanwhile_takes_its_loads_along(server, ns):
    load = Load.create(ns.client, ns.name)
    load.put(0, lines([{"pk": "a", "v": "1"}]))
    removed = ns.client.delete(f"/admin/v1/namespaces/{ns.name}")
    assert removed.status in (200, 202, 204), removed
    ns.client.get(load.base).problem(404, "namespace-not-found")

    def made_again():
        answer = ns.client.put(f"/admin/v1/namespaces/{ns.name}")
        return answer.status == 201

    wait_until(made_again, "the name is free")
    load.client.get(load.base).problem(404, "load-not-found")
    assert Namespace(ns.client, ns.name).scan_all() == []


def test_changes_of_loads_are_events(server, ns):
    load, _ = load_rows(ns.client, ns.name, [{"pk": "a", "v": "1"}])

    def events():
        listed = server.admin().get("/admin/v1/events").json()["events"]
        return [one for one in listed if one["subject"] == f"{ns.name}/{load.id}"]

    states = ["created", "uploading", "sealed", "building", "live"]
    wait_until(lambda: len(events()) == len(states), "the last event is there")
    assert [json.loads(one["after"]) for one in events()] == states
    assert all(one["kind"] == "load-changed" and one["by"] for one in events())
    assert server.metric("umbo_load_rows_total") > 0 and server.metric("umbo_loads_ended_total") > 0


def test_of_two_requests_that_continue_a_part_the_newer_goes_on(server, ns):
    load = Load.create(ns.client, ns.name)
    body, other = (lines([{"pk": f"{name}{n}", "v": "x" * 1_000} for n in range(1_000)]) for name in "ab")
    fields = f"Content-Type: {NDJSON}\r\nUpload-Offset: 0\r\nUpload-Complete: ?0\r\nContent-Length: {len(body)}"
    head = f"PATCH {load.base}/parts/0 HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n"
    with server.raw(head.encode()) as sock:
        sock.sendall(body[:700_000])
        wait_until(lambda: (load.offset(0) or (0, False))[0] >= 200_000, "a part of it is kept")
        newer = load.patch(0, other, 0, True)
        assert newer.status == 204 and newer.headers["upload-offset"] == str(len(other)), newer
        older = read_answer(sock.makefile("rb"))
        older.problem(409, "offset-mismatch")
    assert older.headers["upload-offset"] == "0", "nothing of it is left"
    assert load.info()["parts"][0]["sha256"] == hashlib.sha256(other).hexdigest()
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 1_000


def test_requests_about_loads_are_charged_and_refused_like_others(server, ns):
    def price(answer, status=200):
        assert answer.status == status, answer
        return float(answer.headers["umbo-ru"])

    usage = f"/v1/ns/{ns.name}/usage"
    created = ns.client.post(f"/v1/ns/{ns.name}/loads", {"mode": "merge"})
    load = Load(ns.client, ns.name, created.json()["id"])
    changes = [price(created, 201), price(load.post("pause")), price(load.post("resume"))]
    shards = len(server.admin().get("/admin/v1/shards").json()["shards"])
    rows = {row["operation"]: row["rows"] for row in ns.client.get(usage).json()["rows"]}
    assert rows["batch-write"] >= 3 * shards, "a change is handed to all shards"
    assert min(changes) >= 6 + 0.05 * shards, "and pays for a row in each of them"
    few = price(ns.client.get(load.base))
    for number in range(200):
        assert load.put(number, lines([{"pk": f"p{number}", "v": "x"}])).status == 201
    many = price(ns.client.get(load.base))
    assert many > few + 10, "a report is paid for by its rows and bytes"
    missing = load.post("seal", {"parts": 201})
    missing.problem(409, "parts-missing")
    assert price(missing, 409) > few + 10, "a refused seal has read the list of parts"
    assert price(ns.client.get(f"/v1/ns/{ns.name}/loads")) > 0
    spent = {row["operation"]: row["ru"] for row in ns.client.get(usage).json()["rows"]}
    assert spent["range"] >= few + many and spent["batch-write"] >= sum(changes), spent
    policy = {"name": "none", "match": {"namespace": ns.name}, "per": ["namespace"], "unit": "ru", "rate": 1, "burst": 1}
    assert server.client().put("/admin/v1/quotas/none", json.dumps(policy)).status == 201
    try:
        refused = lambda answer: answer.status == 429
        wait_until(lambda: refused(ns.client.get(load.base)), "a report is refused")
        assert refused(ns.client.post(f"/v1/ns/{ns.name}/loads", {"mode": "merge"}))
        assert refused(load.post("pause"))
        assert load.post("abort").json()["state"] == "aborted", "a caller without quota can end its loads"
    finally:
        assert server.client().delete("/admin/v1/quotas/none").status == 200


def test_changes_of_loads_push_out_none_of_operators(server, ns):
    path = f"/admin/v1/namespaces/{ns.name}-removed"
    assert ns.client.put(path).status == 201 and ns.client.delete(path).status in (202, 204)
    load = Load.create(ns.client, ns.name)
    for _ in range(260):
        assert load.post("pause").status == 200 and load.post("resume").status == 200
    listed = server.admin().get("/admin/v1/events").json()["events"]
    assert [one["subject"] for one in listed if one["kind"] == "namespace-removed"][-1] == f"{ns.name}-removed"
    own = [one["after"] for one in listed if one["subject"] == f"{ns.name}/{load.id}"]
    assert len(own) == 64 and own[-2:] == ['"created, paused"', '"created"']
    changes = [one["id"] for one in listed if one.get("by")]
    assert changes == sorted(changes)


def test_a_part_costs_what_it_inflates_to(ns):
    inflated = b"\n" * (16 << 20) + lines([{"pk": "a", "v": "1"}])
    load = Load.create(ns.client, ns.name)
    assert load.put(0, gzip.compress(inflated, 1), Content_Encoding="gzip").status == 201
    before = spent(ns)
    load.seal(1)
    assert load.wait_for("live")["rows_applied"] == 1
    more = spent(ns) - before
    # Whoever waits reads what is stored of the load, and pays for that.
    assert len(inflated) <= more < 1.5 * len(inflated), "once, though it is checked and applied"


def spent(ns):
    """Bytes that are charged for a namespace."""
    rows = ns.client.get(f"/v1/ns/{ns.name}/usage").json()["rows"]
    return sum(row["read_bytes"] + row["write_bytes"] for row in rows)
