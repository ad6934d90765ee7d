"""Events: what operators change is told with who, why, before and after; what happens is told too."""

import re
import socket
import threading
import time

from processes import wait_until


def events(server, since="0", wait=0):
    answer = server.admin().get(f"/admin/v1/events?since={since}&wait={wait}")
    assert answer.status == 200, answer
    return answer.json()


def last(server, kind):
    return [one for one in events(server)["events"] if one["kind"] == kind][-1]


def test_a_start_is_an_event(server):
    first = events(server)["events"][0]
    assert first["kind"] == "started" and "by" not in first
    assert abs(first["at_ms"] - time.time() * 1000) < 600_000


def test_each_change_is_told_once_with_who_and_why(server):
    client = server.client()
    before = events(server)["next"]
    path = "/admin/v1/namespaces/told"
    assert client.put(path, b'{"default_ttl":60}', Umbo_Reason="für den Start".encode()).status == 201
    assert client.put(path, b'{"default_ttl":60}').status == 200
    assert client.request("PATCH", path, b'{"default_ttl":5}', Umbo_Reason="shorter").status == 200
    assert client.request("PATCH", path, b'{"default_ttl":5}').status == 200
    policy = b'{"name":"told","unit":"requests","rate":%d,"per":["caller"],"match":{"namespace":"told"}}'
    assert client.put("/admin/v1/quotas/told", policy % 900, Umbo_Reason="launch").status == 201
    tag = client.get("/admin/v1/quotas/told").headers["etag"]
    assert client.put("/admin/v1/quotas/told?dry_run=true", policy % 1, If_Match=tag).status == 200
    assert client.put("/admin/v1/quotas/told", policy % 800, If_Match=tag).status == 200
    assert client.delete("/admin/v1/quotas/told", Umbo_Reason="over").status == 200
    key = "/admin/v1/hot/blocked/ns/told/kv/k"
    assert client.put(key, b'{"reason":"abuse"}').status == 201
    assert client.delete(key).status == 204
    assert client.delete(path).status in (202, 204)
    told = events(server, before)["events"]
    assert [(one["kind"], one.get("reason")) for one in told] == [
        ("namespace-created", "für den Start"),
        ("namespace-changed", "shorter"),
        ("policy-changed", "launch"),
        ("policy-changed", None),
        ("policy-removed", "over"),
        ("hot-key-listed", "abuse"),
        ("hot-key-unlisted", None),
        ("namespace-removed", None),
    ]
    assert all(one["by"] == "anonymous" for one in told)
    assert "60" in told[1]["before"] and "5" in told[1]["after"]
    assert "900" in told[3]["before"] and "800" in told[3]["after"] and "after" not in told[4]
    ids = [one["id"] for one in told]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    log = [line for line in list(server.log) if '"kind":"policy-changed"' in line and "launch" in line]
    assert len(log) == 1, "a change is logged once"


def test_a_reason_has_bounds(server):
    client = server.client()
    for reason in ("", "x" * 257, "a\tb"):
        answer = client.put("/admin/v1/namespaces/unreasonable", b"", Umbo_Reason=reason)
        answer.problem(400, "invalid-header")
    client.get("/admin/v1/namespaces/unreasonable").problem(404, "namespace-not-found")


def test_who_waits_hears_of_a_change_at_once(server):
    since = events(server)["next"]
    heard = []

    def listen():
        begun = time.monotonic()
        heard.extend(events(server, since, wait=20)["events"])
        heard.append(time.monotonic() - begun)

    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(1)
    assert not heard
    server.namespace("heard-of")
    listener.join(30)
    assert heard[0]["subject"] == "heard-of" and 0.9 < heard[-1] < 15
    begun = time.monotonic()
    next_id = events(server)["next"]
    assert events(server, next_id, wait=1) == {"events": [], "next": next_id}
    assert 0.9 < time.monotonic() - begun < 20
    for query in ("wait=26", "since=-1", "since=x", "since=1832960000256000", "sinc=1"):
        server.admin().get(f"/admin/v1/events?{query}").problem(400, "invalid-query")


def service_time(server):
    """Requests of operators that were answered, and the time that they took."""
    text = server.admin().get("/metrics").body.decode()
    found = dict(re.findall(r'^umbo_request_duration_seconds_(sum|count)\{operation="admin"\} (\S+)$', text, re.M))
    return int(found["count"]), float(found["sum"])


def test_a_wait_for_an_event_is_no_service_time(server):
    cursor = events(server)["next"]
    count, took = service_time(server)
    assert events(server, cursor, wait=3)["events"] == []
    after, later = service_time(server)
    # The answer came after three seconds, by the server's own clock.
    assert after == count + 1 and later - took < 2


def test_a_client_that_leaves_while_it_waits_is_no_failure(server):
    failed = lambda: server.metric('umbo_request_outcomes_total{operation="admin",tier="unknown",outcome="failed"}')
    waiting = lambda: server.metric('umbo_requests_in_flight{operation="admin"}')
    before, cursor = failed(), events(server)["next"]
    sock = socket.create_connection(("127.0.0.1", server.admin_port))
    sock.sendall(f"GET /admin/v1/events?since={cursor}&wait=25 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wait_until(lambda: waiting() == 1, "the request waits")
    sock.close()
    wait_until(lambda: waiting() == 0, "the server has noticed")
    assert failed() == before


def test_changes_outlive_a_restart(new_server):
    server = new_server().start()
    server.namespace("kept")
    assert last(server, "namespace-created")["subject"] == "kept"
    server.stop()
    server.start()
    told = [one["kind"] for one in events(server)["events"]]
    assert told.count("namespace-created") == 1 and told[-1] == "started"
    assert len({one["id"] for one in events(server)["events"]}) == len(told)
